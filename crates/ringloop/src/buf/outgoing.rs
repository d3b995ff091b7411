//! Values that can be sent: converted to a buffer for the operation, and back after it.
//!
//! Owns: [`Outgoing`]. Called by: `net`, for its writes; `executor`, whose received buffers implement it.

use super::SendBuf;
use std::rc::Rc;
use std::sync::Arc;

/// A value that can be sent: the operation owns it while the kernel may read it, and returns it.
///
/// Implemented for `Vec<u8>`, `Box<[u8]>`, static bytes and text; [`SendBuf`], whose unsent rest is returned;
/// [`Received`](crate::net::Received), which is sent from the loop's own memory; and for `String`, `Arc<[u8]>` and
/// (feature `bytes`) `Bytes`, which cost an allocation of a few words per send. None is copied.
pub trait Outgoing: Sized {
    /// The part of the value that is not in the buffer.
    type Kept;

    /// The bytes if they were just received and are in the CPU cache: they may be sent at once by a
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

impl Outgoing for Box<[u8]> {
    type Kept = ();

    fn lend(self) -> (SendBuf, ()) {
        (self.into(), ())
    }

    fn restore((): (), buf: SendBuf) -> Self {
        buf.into_vec().unwrap_or_default().into_boxed_slice()
    }
}

impl Outgoing for SendBuf {
    type Kept = ();

    fn lend(self) -> (SendBuf, ()) {
        (self, ())
    }

    fn restore((): (), buf: SendBuf) -> Self {
        buf
    }
}

/// Static values, which are buffers without an owner.
macro_rules! of_static {
    ($([$($generic:tt)*] $type:ty),*) => {$(
        impl$($generic)* Outgoing for &'static $type {
            type Kept = Self;

            fn lend(self) -> (SendBuf, Self) {
                let bytes: &'static [u8] = self.as_ref();
                (bytes.into(), self)
            }

            fn restore(kept: Self, _: SendBuf) -> Self {
                kept
            }
        }
    )*};
}

of_static!([] [u8], [<const LEN: usize>] [u8; LEN], [] str);

/// Values owned by both the operation and the caller.
macro_rules! of_held {
    ($($type:ty),*) => {$(
        impl Outgoing for $type {
            type Kept = SharedOwner<Self>;

            fn lend(self) -> (SendBuf, SharedOwner<Self>) {
                let shared = Rc::new(self);
                (SendBuf::of_held(&shared), SharedOwner(shared))
            }

            fn restore(SharedOwner(shared): SharedOwner<Self>, buf: SendBuf) -> Self {
                drop(buf);
                // An operation that lost its buffer may hold the other reference.
                Rc::try_unwrap(shared).unwrap_or_else(|shared| (*shared).clone())
            }
        }
    )*};
}

/// The caller's reference to a value while it is sent.
#[derive(Debug)]
pub struct SharedOwner<T>(Rc<T>);

of_held!(String, Arc<[u8]>);
#[cfg(feature = "bytes")]
of_held!(bytes::Bytes);

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

    /// Sends a part of `value`; returns the result.
    fn sent<B: Outgoing>(value: B) -> (Vec<u8>, B) {
        let (mut buf, kept) = value.lend();
        buf.advance(3);
        (buf.as_slice().to_vec(), B::restore(kept, buf))
    }

    #[test]
    fn owned_and_shared_values_are_sent_in_place_and_come_back_whole() {
        assert_eq!(sent("hello"), (b"lo".to_vec(), "hello"));
        assert_eq!(sent(Box::from(*b"hello")), (b"lo".to_vec(), Box::<[u8]>::from(*b"hello")));
        let text = "hello".to_owned();
        let address = text.as_ptr();
        let (rest, text) = sent(text);
        assert_eq!((rest.as_slice(), text.as_str(), text.as_ptr()), (&b"lo"[..], "hello", address));
        let bytes: Arc<[u8]> = Arc::from(*b"hello");
        let (rest, back) = sent(Arc::clone(&bytes));
        assert!(rest == b"lo" && Arc::ptr_eq(&bytes, &back));
        drop(back);
        assert_eq!(Arc::strong_count(&bytes), 1, "an operation kept it");
    }

    #[test]
    fn value_lives_until_its_operation_ends_even_if_the_caller_is_gone() {
        let bytes: Arc<[u8]> = Arc::from(*b"hello");
        let (buf, kept) = Arc::clone(&bytes).lend();
        drop(kept);
        assert_eq!((buf.as_slice(), Arc::strong_count(&bytes)), (&b"hello"[..], 2));
        drop(buf);
        assert_eq!(Arc::strong_count(&bytes), 1);
    }

    #[cfg(feature = "bytes")]
    #[test]
    fn bytes_share_their_memory_with_the_operation() {
        let bytes = bytes::Bytes::from(vec![7; 100]).slice(10..15);
        let (rest, back) = sent(bytes.clone());
        assert_eq!((rest, back.as_ptr()), (vec![7; 2], bytes.as_ptr()));
    }
}
