//! Traits of other crates for this runtime, each by a feature with the crate's name.
//!
//! Called by: hyper, rustls and other code for futures-io's or tokio's traits. The I/O is in
//! [`crate::net::Polled`].
//!
//! | feature | provides |
//! |---|---|
//! | `futures-io` | `futures_io::{AsyncRead, AsyncBufRead, AsyncWrite}` for [`crate::net::Polled`] |
//! | `tokio` | `tokio::io::{AsyncRead, AsyncBufRead, AsyncWrite}` for it; tokio's traits, not its runtime |
//! | `hyper` | `hyper::rt::{Read, Write}` for it, and the `Executor` and `Timer` of `compat::hyper` |
//!
//! tokio's sockets and timers need tokio's runtime and do not work here; its channels and generic code
//! do.

/// The methods that the traits for writing share, in terms of those of [`crate::net::Polled`]; `$end`
/// is the trait's word for the end of the stream.
#[cfg(any(feature = "futures-io", feature = "hyper", feature = "tokio"))]
macro_rules! writes {
    ($end:ident) => {
        fn poll_write(
            self: Pin<&mut Self>,
            cx: &mut Context<'_>,
            bytes: &[u8],
        ) -> Poll<io::Result<usize>> {
            self.get_mut().poll_write(cx, bytes)
        }

        fn poll_write_vectored(
            self: Pin<&mut Self>,
            cx: &mut Context<'_>,
            bufs: &[io::IoSlice<'_>],
        ) -> Poll<io::Result<usize>> {
            self.get_mut().poll_write_vectored(cx, bufs)
        }

        fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
            self.get_mut().poll_flush(cx)
        }

        fn $end(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
            self.get_mut().poll_shutdown(cx)
        }
    };
}
#[cfg(any(feature = "futures-io", feature = "hyper", feature = "tokio"))]
use writes;

#[cfg(feature = "futures-io")]
mod futures_io;
#[cfg(feature = "hyper")]
pub mod hyper;
#[cfg(feature = "tokio")]
mod tokio;
