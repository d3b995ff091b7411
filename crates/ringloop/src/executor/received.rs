//! Received bytes as a value, and what becomes of it while they are sent.
//!
//! Owns: [`Received`]. Called by: `multi` and `net`, which make one of each receive. Never does: I/O, or copy, except
//! out of a pool buffer whose few bytes are sent, or when too many of them are lent.
//!
//! The value is two words, which go from hand to hand in registers; where the bytes are says a [`Holder`], which the loop
//! uses again for the next ones.

use super::holder::{Holder, Memory};
use super::large::lead_len;
use super::loan::Loan;
use super::{Home, Local};
use crate::buf::{Outgoing, SendBuf};
use crate::driver::Lease;
use crate::limits;
use std::fmt;
use std::ops::{Deref, Range};

/// Received bytes in a buffer of the loop's, which gets it back when this is dropped.
///
/// Shape: reads as `[u8]`, and can be sent as it is (`write_all`). One that is forgotten (`mem::forget`) loses its
/// buffer to the pool (`limits::POOL_BUFFERS`), and keeps the pool's memory after the runtime's end; nothing else.
/// Cost: no copy. Hold it shortly: while every buffer of the pool is held, all streams of the loop wait.
pub struct Received {
    /// There until it is dropped.
    holder: Option<Box<Holder>>,
    span: Span,
}

/// Where the bytes begin and end in their buffer; none of a loop's is as long as 4 GiB.
#[derive(Clone, Copy)]
struct Span(u64);

impl Span {
    #[inline]
    fn new(start: usize, end: usize) -> Self {
        Self((start as u64) << 32 | (end as u64 & u64::from(u32::MAX)))
    }

    #[inline]
    fn start(self) -> usize {
        (self.0 >> 32) as usize
    }

    #[inline]
    fn end(self) -> usize {
        self.0 as u32 as usize
    }

    #[inline]
    fn len(self) -> usize {
        self.end() - self.start()
    }

    #[inline]
    fn range(self) -> Range<usize> {
        self.start()..self.end()
    }
}

impl Drop for Received {
    #[inline]
    fn drop(&mut self) {
        if let Some(holder) = self.holder.take() {
            Home::keep_holder(holder);
        }
    }
}

impl Received {
    /// The `len` bytes at the beginning of a pool buffer.
    #[inline]
    pub(super) fn new(local: &Local, lease: Lease, len: usize) -> Self {
        let span = Span::new(0, len.min(lease.bytes().len()));
        let mut holder = local.empty_holder();
        holder.memory = Memory::Pool(lease);
        Self {
            holder: Some(holder),
            span,
        }
    }

    /// The bytes of one of `local`'s large buffers.
    pub(crate) fn large(local: &Local, bytes: Vec<u8>) -> Self {
        let span = Span::new(lead_len(&bytes), bytes.len());
        let mut holder = local.empty_holder();
        holder.memory = Memory::Large(bytes);
        Self {
            holder: Some(holder),
            span,
        }
    }

    /// Received bytes in the small or medium buffer that was taken out of `holder`.
    #[inline]
    pub(crate) fn single(mut holder: Box<Holder>, bytes: Vec<u8>) -> Self {
        let end = bytes.len();
        let span = Span::new(holder.put_own(bytes), end);
        Self {
            holder: Some(holder),
            span,
        }
    }

    /// They are part of more.
    pub(crate) fn followed(mut self) -> Self {
        if let Some(holder) = &mut self.holder {
            holder.follow();
        }
        self
    }

    /// Whether they are sent from where they lie, with the next batch: many bytes of a pool buffer, while that leaves
    /// the others enough of them.
    #[inline]
    fn may_be_lent(&self) -> bool {
        self.span.len() >= limits::EAGER_SEND_BYTES_MIN
            && self.holder.as_ref().is_some_and(|holder| {
                matches!(holder.memory, Memory::Pool(_)) && holder.home.may_lend()
            })
    }

    /// Whether they are in a buffer that nobody else needs meanwhile.
    fn is_own(&self) -> bool {
        let memory = self.holder.as_ref().map(|holder| &holder.memory);
        matches!(memory, Some(Memory::Medium(_)))
    }

    /// Drop the first `count` bytes, which have been used; more than there are counts as all.
    pub fn advance(&mut self, count: usize) {
        let start = self.span.start() + count.min(self.len());
        self.span = Span::new(start, self.span.end());
    }
}

impl Deref for Received {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        let bytes = self
            .holder
            .as_ref()
            .map_or(&[][..], |holder| holder.bytes());
        &bytes[self.span.range()]
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

/// What received bytes that are being sent leave behind: themselves without their memory, which the operation has.
#[derive(Debug)]
pub struct Sending(Received);

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
        self.span.len() >= limits::EAGER_SEND_BYTES_MIN && !self.is_own() && !self.may_be_lent()
    }

    /// Few bytes of a pool buffer are copied, and the buffer given back: were all held until their bytes are sent, the
    /// few of the pool would be what all streams wait for.
    #[inline]
    fn lend(mut self) -> (SendBuf, Sending) {
        let Some(holder) = &mut self.holder else {
            return (SendBuf::default(), Sending(self));
        };
        let bytes = match &mut holder.memory {
            Memory::Large(bytes) | Memory::Small(bytes) | Memory::Medium(bytes) => {
                std::mem::take(bytes)
            }
            Memory::Pool(_) | Memory::Followed(_) => return self.lend_of_pool(),
            Memory::Lent(_) | Memory::None => Vec::new(),
        };
        let mut buf = SendBuf::from(bytes);
        buf.advance(self.span.start());
        (buf, Sending(self))
    }

    #[inline(always)]
    fn restore(sending: Sending, buf: SendBuf) -> Self {
        let Sending(mut received) = sending;
        let Some(holder) = &mut received.holder else {
            return received;
        };
        // Foreign memory of a lent buffer: it ends here, before the loan does.
        let bytes = buf.into_vec().unwrap_or_default();
        let end = bytes.len();
        match &mut holder.memory {
            Memory::Large(place) | Memory::Small(place) | Memory::Medium(place) => *place = bytes,
            _ => return received.restore_lent(),
        }
        // Where the buffer was lost to the operation there are none.
        received.span = Span::new(received.span.start().min(end), end);
        received
    }
}

impl Received {
    fn lend_of_pool(mut self) -> (SendBuf, Sending) {
        let may_be_lent = self.may_be_lent();
        let range = self.span.range();
        if let Some(mut holder) = self.holder.take()
            && let Some(lease) = holder.take_lease()
        {
            if may_be_lent {
                let (buf, lent) = Loan::new(holder.home.clone(), lease).lend(range);
                holder.memory = Memory::Lent(lent);
                self.holder = Some(holder);
                return (buf, Sending(self));
            }
            let (copy, holder) = Home::copy_out(holder, lease, range);
            self.span = Span::new(0, copy.len());
            self.holder = Some(holder);
            return (copy.into(), Sending(self));
        }
        (SendBuf::default(), Sending(self))
    }

    /// Nothing is sent from the pool's buffer any more; where an operation still has it there are no bytes.
    fn restore_lent(mut self) -> Self {
        self.span = Span::new(0, 0);
        if let Some(holder) = &mut self.holder
            && let Memory::Lent(lent) = std::mem::take(&mut holder.memory)
            && let Some((lease, range)) = lent.end()
        {
            holder.memory = Memory::Pool(lease);
            self.span = Span::new(range.start, range.end);
        }
        self
    }
}

#[cfg(all(test, target_pointer_width = "64"))]
mod tests {
    use super::*;

    #[test]
    fn received_bytes_are_two_words_and_so_is_what_they_leave_behind() {
        assert_eq!(size_of::<Received>(), 16);
        assert_eq!(size_of::<Sending>(), 16);
    }
}
