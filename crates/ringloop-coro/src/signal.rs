//! Signals of the process, waited for by coroutines.
//!
//! Called by: coroutines. Never does: anything in the handler beyond a note; the engine's (`ringloop::signal`) is it.

use crate::block_on;
use std::io;

pub use ringloop::signal::Signal;

/// Signals as they come, from now until it is dropped; it stays on its thread.
///
/// ```no_run
/// use ringloop_coro::signal::{Signal, Signals};
///
/// ringloop_coro::start(1, || -> std::io::Result<()> {
///     let mut signals = Signals::new(&[Signal::TERMINATE, Signal::INTERRUPT])?;
///     println!("ends by {:?}", signals.wait()?);
///     Ok(())
/// })??;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
#[must_use = "signals are heard of by wait()"]
pub struct Signals(ringloop::signal::Signals);

impl Signals {
    /// Listen to these signals; what the process did on them before it does not do meanwhile.
    ///
    /// Errors: as [`ringloop::signal::Signals::new`].
    pub fn new(signals: &[Signal]) -> io::Result<Self> {
        ringloop::signal::Signals::new(signals).map(Self)
    }

    /// Park until the next one comes.
    pub fn wait(&mut self) -> io::Result<Signal> {
        block_on(self.0.next())
    }

    /// The next one, as a future: for `select!`. Cancel safety: safe.
    pub async fn wait_async(&mut self) -> io::Result<Signal> {
        self.0.next().await
    }
}

/// Park until Ctrl-C (`SIGINT`) comes.
pub fn ctrl_c() -> io::Result<()> {
    block_on(ringloop::signal::ctrl_c())
}
