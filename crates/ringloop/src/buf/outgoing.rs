//! Values that can be sent: each is a buffer while the operation runs, and itself again after it.
//!
//! Owns: [`Outgoing`]. Called by: `net`, for its writes; `executor`, whose received buffers are one.

use super::SendBuf;

/// A value that can be sent: the operation owns it while the kernel may read it, and returns it.
///
/// Source: for `Vec<u8>`, `&'static [u8]` and [`Received`](crate::net::Received), which is sent out
/// of the loop's own memory.
pub trait Outgoing: Sized {
    /// The part of the value that is not in the buffer.
    type Kept;

    /// The bytes if they were just received and are in the cache: these may be sent at once by a
    /// system call instead of with the next batch.
    fn just_received(&self) -> Option<&[u8]> {
        None
    }

    /// Whether such bytes are sent at once even if other tasks are ready.
    fn is_urgent(&self) -> bool {
        false
    }

    /// Converts it to a buffer.
    fn lend(self) -> (SendBuf, Self::Kept);

    /// Converts it back.
    fn restore(kept: Self::Kept, buf: SendBuf) -> Self;
}

impl Outgoing for Vec<u8> {
    type Kept = ();

    fn lend(self) -> (SendBuf, ()) {
        (self.into(), ())
    }

    fn restore((): (), buf: SendBuf) -> Self {
        buf.into_vec().unwrap_or_default()
    }
}

impl Outgoing for &'static [u8] {
    type Kept = Self;

    fn lend(self) -> (SendBuf, Self) {
        (self.into(), self)
    }

    fn restore(kept: Self, _: SendBuf) -> Self {
        kept
    }
}

impl<const LEN: usize> Outgoing for &'static [u8; LEN] {
    type Kept = Self;

    fn lend(self) -> (SendBuf, Self) {
        (self.as_slice().into(), self)
    }

    fn restore(kept: Self, _: SendBuf) -> Self {
        kept
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn static_bytes_and_vectors_come_back_whole() {
        let (mut buf, kept) = b"hello".lend();
        buf.advance(3);
        assert_eq!(buf.as_slice(), b"lo");
        assert_eq!(<&[u8; 5]>::restore(kept, buf), b"hello");
        let (mut buf, ()) = b"hello".to_vec().lend();
        buf.advance(3);
        assert_eq!(Vec::restore((), buf), b"hello");
    }
}
