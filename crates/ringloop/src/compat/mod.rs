//! The traits of other crates over this runtime, each by a feature of the crate's name.
//!
//! Owns: nothing but thin wrappers. Called by: programs that use hyper, rustls or anything else that is
//! written for futures-io's or tokio's traits. Never does: I/O of its own; see [`crate::net::Polled`].
//!
//! | feature | what it gives |
//! |---|---|
//! | `futures-io` | `futures_io::{AsyncRead, AsyncBufRead, AsyncWrite}` for [`crate::net::Polled`] |
//! | `tokio` | `tokio::io::{AsyncRead, AsyncBufRead, AsyncWrite}` for it; tokio's traits, not its runtime |
//! | `hyper` | `hyper::rt::{Read, Write}` for it, and the `Executor` and `Timer` of `compat::hyper` |
//!
//! tokio's own sockets and timers need tokio's runtime and do not work here; its channels and
//! everything that is generic over the traits do.

#[cfg(feature = "futures-io")]
mod futures_io;
#[cfg(feature = "hyper")]
pub mod hyper;
#[cfg(feature = "tokio")]
mod tokio;
