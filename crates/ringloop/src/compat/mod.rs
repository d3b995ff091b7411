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

#[cfg(feature = "futures-io")]
mod futures_io;
#[cfg(feature = "hyper")]
pub mod hyper;
#[cfg(feature = "tokio")]
mod tokio;
