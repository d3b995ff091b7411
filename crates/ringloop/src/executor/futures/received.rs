//! Received bytes as a value, which can be sent.
//!
//! Owns: [`Received`]. Called by: `multi` and `net`, which make one of each receive. Copies only a
//! few bytes of a pool buffer to send them, or more if too many buffers are being sent from.

use crate::buf::{Held, Outgoing, SendBuf};
use crate::executor::runtime::large::lead_len;
use crate::executor::runtime::local::Local;
use crate::executor::runtime::weak::WeakLocal;
use crate::limits;
use crate::sys::pool::PoolBuffer;
use std::fmt;
use std::ops::{Deref, Range};
use std::rc::Rc;

/// Received bytes in a buffer of the loop, which is returned on drop.
///
/// Derefs to `[u8]`, and can be passed to `write_all`. Forgetting one (`mem::forget`) only loses its
/// buffer to the pool (`limits::POOL_BUFFERS`), and keeps the pool's memory after the runtime's end.
/// Costs no copy. Hold it briefly: a short one holds a whole buffer, and once values hold all of a
/// pool's buffers, the loop maps as many again.
pub struct Received {
    weak_local: WeakLocal,
    memory: Memory,
    /// Range of the bytes in their buffer.
    span: Range<u32>,
}

/// Owner of a received buffer.
enum Memory {
    /// In a buffer of the receive pool.
    Pool(PoolBuffer),
    /// A large buffer. Empty while an operation sends it, or if it was lost to one.
    Large(Vec<u8>),
    /// Copied out of a pool buffer to be sent. Empty like a large one.
    Copied(Vec<u8>),
    /// No buffer: lost to an operation.
    None,
}

impl Drop for Received {
    #[inline]
    fn drop(&mut self) {
        match std::mem::replace(&mut self.memory, Memory::None) {
            Memory::Large(buffer) => self.weak_local.keep_large(buffer),
            Memory::Pool(_) | Memory::Copied(_) | Memory::None => {}
        }
    }
}

impl Received {
    /// The bytes of a pool buffer.
    #[inline]
    pub(crate) fn new(local: &Local, buffer: PoolBuffer) -> Self {
        Self {
            weak_local: local.downgrade(),
            span: span(0, buffer.len()),
            memory: Memory::Pool(buffer),
        }
    }

    /// The bytes of a large buffer of `local`.
    pub(crate) fn large(local: &Local, bytes: Vec<u8>) -> Self {
        let span = span(lead_len(&bytes), bytes.len());
        Self { weak_local: local.downgrade(), memory: Memory::Large(bytes), span }
    }

    /// Drops the first `count` bytes; more than there are drops all.
    pub fn advance(&mut self, count: usize) {
        let start = self.span.start as usize + count.min(self.len());
        self.span.start = start as u32;
    }

    #[inline]
    fn range(&self) -> Range<usize> {
        self.span.start as usize..self.span.end as usize
    }
}

/// No buffer of a loop is 4 GiB long.
#[inline]
fn span(start: usize, end: usize) -> Range<u32> {
    start as u32..end as u32
}

impl Deref for Received {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        let bytes = match &self.memory {
            Memory::Pool(buffer) => &**buffer,
            Memory::Large(bytes) | Memory::Copied(bytes) => bytes,
            Memory::None => return &[],
        };
        &bytes[self.range()]
    }
}

impl AsRef<[u8]> for Received {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl fmt::Debug for Received {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Received").field("len", &self.len()).finish_non_exhaustive()
    }
}

/// Received bytes that an operation sends in place; the loop counts them
/// ([`limits::HELD_BUFFERS_MAX`]).
#[derive(Debug)]
struct SentInPlace(Received);

impl SentInPlace {
    fn new(received: Received) -> Rc<Self> {
        received.weak_local.count_held(1);
        Rc::new(Self(received))
    }
}

impl Drop for SentInPlace {
    fn drop(&mut self) {
        self.0.weak_local.count_held(-1);
    }
}

impl AsRef<[u8]> for SentInPlace {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

// A pool buffer is never written to, and not reused before it is dropped.
impl Held for SentInPlace {}

/// What the caller keeps of received bytes while they are sent.
#[derive(Debug)]
pub struct Sending(Kept);

#[derive(Debug)]
enum Kept {
    /// Without their memory, which the operation has.
    Emptied(Received),
    /// The other reference.
    InPlace(Rc<SentInPlace>),
}

impl Outgoing for Received {
    type Kept = Sending;

    #[inline]
    fn just_received(&self) -> Option<&[u8]> {
        Some(self)
    }

    /// Copying many bytes costs more than a system call.
    #[inline]
    fn is_urgent(&self) -> bool {
        self.span.len() >= limits::EAGER_SEND_BYTES_MIN && !self.may_send_in_place()
    }

    /// Copies a few bytes of a pool buffer, and returns the buffer: if all were held until their
    /// bytes are sent, all streams would wait for the pool.
    #[inline]
    fn lend(mut self) -> (SendBuf, Sending) {
        if self.may_send_in_place() {
            let in_place = SentInPlace::new(self);
            return (SendBuf::of_held(&in_place), Sending(Kept::InPlace(in_place)));
        }
        let buf = match &mut self.memory {
            Memory::Large(bytes) | Memory::Copied(bytes) => {
                let mut buf = SendBuf::from(std::mem::take(bytes));
                buf.advance(self.span.start as usize);
                buf
            }
            Memory::Pool(_) | Memory::None => self.copy_out().into(),
        };
        (buf, Sending(Kept::Emptied(self)))
    }

    #[inline]
    fn restore(sending: Sending, buf: SendBuf) -> Self {
        let mut received = match sending.0 {
            Kept::Emptied(received) => received,
            Kept::InPlace(in_place) => {
                drop(buf);
                return Self::end_of(in_place);
            }
        };
        let bytes = buf.into_vec().unwrap_or_default();
        let end = bytes.len();
        if let Memory::Large(place) | Memory::Copied(place) = &mut received.memory {
            *place = bytes;
        }
        // If the operation lost the buffer, no bytes are left.
        received.span = span((received.span.start as usize).min(end), end);
        received
    }
}

impl Received {
    /// True if they are sent in place, with the next batch: many bytes of a pool buffer, while
    /// enough other buffers are free.
    #[inline]
    fn may_send_in_place(&self) -> bool {
        self.span.len() >= limits::EAGER_SEND_BYTES_MIN
            && match &self.memory {
                Memory::Pool(buffer) => self.weak_local.may_hold_for_send(buffer.pool_count()),
                Memory::Large(_) | Memory::Copied(_) | Memory::None => false,
            }
    }

    /// Copies the bytes out, and returns their pool buffer.
    fn copy_out(&mut self) -> Vec<u8> {
        let copy = self.to_vec();
        self.span = span(0, copy.len());
        self.memory = Memory::Copied(Vec::new());
        copy
    }

    /// Takes them back after the last send; `None` if an operation still has them.
    fn end_of(in_place: Rc<SentInPlace>) -> Self {
        let none =
            Self { weak_local: in_place.0.weak_local.clone(), memory: Memory::None, span: 0..0 };
        match Rc::into_inner(in_place) {
            Some(mut in_place) => std::mem::replace(&mut in_place.0, none),
            None => none,
        }
    }
}
