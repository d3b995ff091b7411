//! Received bytes as a value, and what becomes of it while they are sent.
//!
//! Owns: [`Received`]. Called by: `multi` and `net`, which make one of each receive. Never does: I/O, or copy, except
//! out of a pool buffer whose few bytes are sent, or when too many of them are lent.

use super::large::lead_len;
use super::loan::{Lent, Loan};
use super::{Home, Local};
use crate::buf::{Outgoing, SendBuf};
use crate::driver::Lease;
use crate::limits;
use std::fmt;
use std::ops::Deref;
use std::rc::Rc;

/// Received bytes in a buffer of the loop's, which gets it back when this is dropped.
///
/// Shape: reads as `[u8]`, and can be sent as it is (`write_all`). One that is forgotten (`mem::forget`) loses its
/// buffer to the pool (`limits::POOL_BUFFERS`), and keeps the pool's memory after the runtime's end; nothing else.
/// Cost: no copy. Hold it shortly: while every buffer of the pool is held, all streams of the loop wait.
pub struct Received {
    memory: Memory,
    /// Where in it the bytes begin and end; no buffer of a loop is as long as 4 GiB.
    start: u32,
    end: u32,
}

/// Where received bytes are.
enum Memory {
    Pool(Loan),
    /// Another, behind whose bytes there were more: what comes in bulk is sent on before those are taken.
    Followed(Loan),
    Large(Box<LargeLoan>),
    /// A small buffer of the loop's: received into, or copied into to be sent.
    Small(Small),
}

/// Bytes in one of the loop's small buffers, whose memory serves the next ones when it is dropped.
struct Small {
    home: Home,
    bytes: Vec<u8>,
}

impl Drop for Small {
    #[inline(always)]
    fn drop(&mut self) {
        if self.bytes.capacity() > 0 {
            self.home.keep_small(std::mem::take(&mut self.bytes));
        }
    }
}

/// One of the loop's few large buffers, given back when it is dropped; where it is empty it was lost to an operation.
#[derive(Debug)]
pub struct LargeLoan {
    home: Home,
    bytes: Vec<u8>,
}

impl Drop for LargeLoan {
    fn drop(&mut self) {
        self.home.give_back_large(std::mem::take(&mut self.bytes));
    }
}

impl Received {
    /// The `len` bytes at the beginning of a pool buffer.
    #[inline]
    pub(super) fn new(home: Home, lease: Lease, len: usize) -> Self {
        Self {
            start: 0,
            end: len.min(lease.bytes().len()) as u32,
            memory: Memory::Pool(Loan::new(home, lease)),
        }
    }

    /// The bytes of one of `local`'s large buffers.
    pub(crate) fn large(local: &Local, bytes: Vec<u8>) -> Self {
        let home = local.home();
        Self {
            start: lead_len(&bytes) as u32,
            end: bytes.len() as u32,
            memory: Memory::Large(Box::new(LargeLoan { home, bytes })),
        }
    }

    /// The bytes of one of `local`'s small buffers.
    pub(crate) fn small(local: &Local, bytes: Vec<u8>) -> Self {
        let home = local.home();
        Self {
            start: 0,
            end: bytes.len() as u32,
            memory: Memory::Small(Small { home, bytes }),
        }
    }

    /// They are part of more.
    pub(crate) fn followed(mut self) -> Self {
        self.memory = match self.memory {
            Memory::Pool(loan) => Memory::Followed(loan),
            other => other,
        };
        self
    }

    /// Whether they are sent from where they lie, with the next batch: many bytes of a pool buffer, while that leaves
    /// the others enough of them.
    fn may_be_lent(&self) -> bool {
        match &self.memory {
            Memory::Pool(loan) => self.len() >= limits::EAGER_SEND_BYTES_MIN && loan.may_be_lent(),
            Memory::Followed(_) | Memory::Large(_) | Memory::Small(_) => false,
        }
    }

    /// Drop the first `count` bytes, which have been used; more than there are counts as all.
    pub fn advance(&mut self, count: usize) {
        self.start += count.min(self.len()) as u32;
    }
}

impl Deref for Received {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        let bytes = match &self.memory {
            Memory::Pool(loan) | Memory::Followed(loan) => loan.bytes(),
            Memory::Large(loan) => &loan.bytes,
            Memory::Small(copy) => &copy.bytes,
        };
        &bytes[self.start as usize..self.end as usize]
    }
}

impl AsRef<[u8]> for Received {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl fmt::Debug for Received {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Received")
            .field("len", &self.len())
            .finish_non_exhaustive()
    }
}

/// What received bytes that are being sent leave behind; where the future is dropped the operation frees them.
#[derive(Debug)]
pub enum Sending {
    /// One of the large buffers, which is empty meanwhile, and where in it the bytes begin.
    Large(Box<LargeLoan>, u32),
    /// A buffer of the pool.
    Lent(Rc<Lent>),
    /// A copy, whose it is, and where in it the bytes begin.
    Copy(Kept, u32),
}

/// The loop that a copy's memory goes back to.
#[derive(Debug)]
pub struct Kept(Home);

impl Outgoing for Received {
    type Kept = Sending;

    #[inline]
    fn just_received(&self) -> Option<&[u8]> {
        Some(self)
    }

    /// Many bytes are copied twice where they go with the next batch and their buffer can not wait for it: from 8 KiB
    /// on that is more than a system call.
    #[inline]
    fn is_urgent(&self) -> bool {
        self.len() >= limits::EAGER_SEND_BYTES_MIN && !self.may_be_lent()
    }

    /// Few bytes of a pool buffer are copied, and the buffer given back: were all held until their bytes are sent, the
    /// few of the pool would be what all streams wait for.
    #[inline]
    fn lend(self) -> (SendBuf, Sending) {
        let may_be_lent = self.may_be_lent();
        let (start, end) = (self.start as usize, self.end as usize);
        let (bytes, sending) = match self.memory {
            Memory::Pool(loan) if may_be_lent => {
                let (buf, lent) = loan.lend(start..end);
                return (buf, Sending::Lent(lent));
            }
            Memory::Pool(loan) | Memory::Followed(loan) => {
                let (copy, home) = loan.copy_out(start..end);
                return (copy.into(), Sending::Copy(Kept(home), 0));
            }
            Memory::Large(mut loan) => (
                std::mem::take(&mut loan.bytes),
                Sending::Large(loan, self.start),
            ),
            Memory::Small(mut copy) => {
                let home = std::mem::take(&mut copy.home);
                let sending = Sending::Copy(Kept(home), self.start);
                (std::mem::take(&mut copy.bytes), sending)
            }
        };
        let mut buf = SendBuf::from(bytes);
        buf.advance(start);
        (buf, sending)
    }

    #[inline]
    fn restore(sending: Sending, buf: SendBuf) -> Self {
        // Foreign memory of a lent buffer: it ends here, before the loan does.
        let bytes = buf.into_vec().unwrap_or_default();
        let end = bytes.len() as u32;
        let (start, memory) = match sending {
            Sending::Large(mut loan, start) => {
                loan.bytes = bytes;
                (start, Memory::Large(loan))
            }
            Sending::Lent(lent) => {
                let (loan, range) = lent.end();
                return Self {
                    start: range.start as u32,
                    end: range.end as u32,
                    memory: Memory::Pool(loan),
                };
            }
            Sending::Copy(Kept(home), start) => (start, Memory::Small(Small { home, bytes })),
        };
        Self {
            // Where the buffer was lost to the operation there are none.
            start: start.min(end),
            end,
            memory,
        }
    }
}
