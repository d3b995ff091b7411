//! Values whose bytes are sent: each becomes a buffer for as long as the operation runs, and itself again after it.
//!
//! Owns: [`Outgoing`]. Called by: `net`, whose writes take any of them; `executor`, whose received buffers are one.
//! Never does: I/O.

use super::SendBuf;

/// What can be sent as it is: the operation owns it while the kernel may read it, and gives it back.
///
/// Source: for `Vec<u8>`, `&'static [u8]` and [`Received`](crate::net::Received), which is sent out of the loop's
/// own memory.
pub trait Outgoing: Sized {
    /// What is kept beside the buffer.
    type Kept;

    /// The bytes, where they were received a moment ago: they may be sent by the system call at once, from where they
    /// are and while the processor still has them at hand, and not with the next batch.
    fn just_received(&self) -> Option<&[u8]> {
        None
    }

    /// Whether such bytes are sent at once whatever else there is to be done.
    fn is_urgent(&self) -> bool {
        false
    }

    /// Make it a buffer.
    fn lend(self) -> (SendBuf, Self::Kept);

    /// Make it itself again.
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
