//! One async I/O engine: `io_uring` first, readiness if the kernel refuses it, chosen at run time.
//!
//! Four layers, each a folder whose module docs say what it owns and who calls it:
//!
//! 1. `sys` – the kernel boundary: the ring, epoll, sockets, clocks. Every system call is here.
//! 2. `driver` and `op` – operations in flight; one file an operation, with its form on each driver.
//! 3. `executor` – one turn of the loop, tasks, timers, notifications from other threads.
//! 4. [`net`], [`fs`], [`process`], [`signal`] and [`time`] – thin `async fn`s over operations.
//!
//! Also: [`io`] (buffered streams, frames, copying), [`task`] (sets of tasks, task locals), [`sync`]
//! (channels, locks, cancellation), [`future`] (`join!`, `select!`), [`buf`] (memory that an operation
//! owns). Layers 1 to 3 are private; [`embed`] opens them to code that puts the engine into
//! another loop. Each layer uses only those below it. The engine has no Python, QUIC or TLS code.
//!
//! | subject | where | tests |
//! |---|---|---|
//! | the ring, the kernel's features, refusals | [`embed::sys::uring`] | `sys`, `faults.rs` |
//! | the same on readiness, chosen at run time | [`Choice`] | all; each runs on both drivers |
//! | operations that own their buffers, cancelled when dropped | [`embed::op`], [`embed::Op`] | `drop_states*.rs`, `futures.rs` |
//! | tasks, handles, aborts, panics | [`spawn`], [`JoinHandle`] | `tasks.rs`, `runtime.rs` |
//! | TCP, UDP, Unix sockets, halves, options, descriptors | [`net`] | `net.rs`, `unix.rs` |
//! | multishot sequences of connections, bytes, datagrams, readiness | [`net::Incoming`], [`net::Receive`], [`net::Datagrams`], [`net::Readiness`] | `multishot*.rs`, `future_faults.rs` |
//! | several buffers a completion, pieces of large ones | [`net::Receive::bundled`], [`net::Receive::incremental`] | `receives.rs` |
//! | files, directories, splice and tee | [`fs`] | `files.rs`, `directories.rs` |
//! | registered files and buffers | [`fs::RegisteredFile`], [`fs::RegisteredBuf`] | `registered.rs` |
//! | linked operations, time limits in the kernel | [`embed::Link`] | `links.rs` |
//! | sleep, time limit, deadline, interval | [`time`] | `time.rs` |
//! | cancelling by operation, by descriptor, of everything | [`embed::Op`], [`net::TcpStream::cancel`], [`embed::Local::cancel_all`] | `cancel.rs` |
//! | sending without a copy | [`net::TcpStream::write_zero_copy`] | `zero_copy.rs` |
//! | submission polling by the kernel | [`Options::submission_polling`] | `polling.rs` |
//! | busy polling before the loop sleeps | [`Options::busy_polling`] | `busy.rs` |
//! | several threads, a ring each | [`Builder`], [`spawn_on`] | `workers.rs` |
//! | child processes, signals | [`process`], [`signal`] | `process.rs`, `signal.rs` |
//! | lines, frames, copying between streams | [`io`] | `io.rs` |
//! | sets of tasks, task locals, a list of tasks, spans | [`task`] | `task.rs`, `dump.rs`, `spans.rs` |
//! | channels, locks, cancellation, select and join | [`sync`], [`future`] | `sync.rs`, `sync_shared.rs`, `task.rs` |
//! | blocking work, name look-up | [`spawn_blocking`], [`net::lookup_host`] | `files.rs` |
//! | the traits of futures-io, tokio, hyper | [`compat`] | `polled.rs`, `examples/web` |
//! | programs in four tiers | `examples/` | `examples.rs` |
//!
//! Which test proves which promise, faults included: `docs/internals/faults.md` in the repository.
//!
//! ```no_run
//! use ringloop::net::TcpListener;
//!
//! # fn main() -> std::io::Result<()> { ringloop::Runtime::new()?.block_on(async {
//! let listener = TcpListener::bind("127.0.0.1:7000").await?;
//! loop {
//!     let stream = listener.accept().await?;
//!     ringloop::spawn(async move {
//!         let mut buf = Vec::with_capacity(4096);
//!         while let (Ok(1..), bytes) = stream.read(buf).await {
//!             buf = stream.write_all(bytes).await.1;
//!         }
//!     });
//! }
//! # })? }
//! ```

pub mod buf;
mod choice;
pub mod compat;
mod deadlines;
mod driver;
pub mod embed;
mod error;
mod executor;
pub mod fs;
pub mod future;
pub mod io;
mod limits;
pub mod net;
mod op;
pub mod process;
pub mod signal;
mod slab;
pub mod sync;
// Not part of the interface: older code names `sys::interest::Interest`, which is `net::Interest` now.
#[doc(hidden)]
pub mod sys;
pub mod task;
pub mod time;

pub use choice::Choice;
pub use error::Error;
pub use executor::{
    Builder, JoinError, JoinHandle, Options, RemoteJoinHandle, Runtime, Workers, spawn,
    spawn_blocking, spawn_on, worker,
};

#[cfg(feature = "macros")]
pub use ringloop_macros::{main, test};

/// The body of a function with `#[ringloop::main]` or `#[ringloop::test]`.
///
/// # Panics
/// Without a runtime, with the reason.
#[doc(hidden)]
pub fn __run<F: Future>(builder: Builder, future: F) -> F::Output {
    let runtime = builder.build().map_err(std::io::Error::from);
    let output = runtime.and_then(|runtime| runtime.block_on(future));
    output.unwrap_or_else(|error| panic!("ringloop cannot run: {error}"))
}

/// The examples of the readme and the guide are compiled with the tests.
#[cfg(doctest)]
mod readme {
    #[doc = include_str!("../README.md")]
    mod of_the_crate {}
    #[doc = include_str!("../../../docs/rust.md")]
    mod guide {}
}
