//! What the tests of the crates share. Development only: never published, and no dependency of a program.
//!
//! `engine` is for the tests of `ringloop`, with `fork` and `states`; `sys::refusal` makes `epoll_ctl(2)` fail for a while;
//! `examples` runs a crate's examples; `corpus` is for fuzz targets; `coro` (by its feature) for the tests of
//! `ringloop-coro`; `quic` and `relay` (feature `quic`) for those of `ringloop-quic`.

// A helper that fails ends its test, and its name says what it does.
#![allow(
    missing_docs,
    clippy::missing_panics_doc,
    clippy::return_self_not_must_use,
    clippy::unwrap_used
)]

#[cfg(feature = "coro")]
pub mod coro;
pub mod corpus;
pub mod engine;
pub mod examples;

#[cfg(feature = "quic")]
pub mod quic;
#[cfg(feature = "quic")]
pub mod relay;
pub mod states;
pub mod sys;

use ringloop::embed::Engine;
use ringloop::embed::sys::selector::Selector;
use ringloop::{Choice, Error, Options};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

/// How long a single thing may take before the test fails.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// The most time for a test on one driver, also under a sanitizer and beside others.
pub const LIMIT: Duration = Duration::from_secs(300);

/// The drivers that exist here: the one that `RINGLOOP_DRIVER` names, or both, unless `RINGLOOP_ALLOW_NO_URING` excuses a
/// kernel without a ring.
pub fn drivers() -> Vec<Choice> {
    match Choice::from_env().unwrap() {
        Choice::Auto => {}
        named => return vec![named],
    }
    let uring = Engine::new(Options { driver: Choice::Uring, ..Options::default() });
    match uring {
        Ok(_) => vec![Choice::Uring, Choice::Epoll],
        Err(Error::DriverRefused(reason))
            if std::env::var_os("RINGLOOP_ALLOW_NO_URING").is_some() =>
        {
            eprintln!("skipped on io_uring: {reason}");
            vec![Choice::Epoll]
        }
        Err(error) => panic!("{error}"),
    }
}

/// The driver's name in `RINGLOOP_DRIVER`.
pub fn name_of(driver: Choice) -> &'static str {
    match driver {
        Choice::Auto => "auto",
        Choice::Uring => "uring",
        Choice::Epoll => Selector::NAME,
    }
}

/// An address without a listener, and the sockets that keep its port taken.
pub fn refusing_addr() -> (SocketAddr, [TcpStream; 2]) {
    // Not an ephemeral port of a connection to it, which could connect to itself.
    let listener = TcpListener::bind("127.0.0.2:0").unwrap();
    let addr = listener.local_addr().unwrap();
    let client = TcpStream::connect(addr).unwrap();
    let (served, _) = listener.accept().unwrap();
    (addr, [client, served])
}
