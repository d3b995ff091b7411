//! Signals of the process, received by coroutines.
//!
//! Owns: [`Signals`]. Called by: coroutines. The handler is the engine's (`ringloop::signal`).

use crate::wait::block_on;
use std::io;

pub use ringloop::signal::Signal;

/// Receives signals from now until it is dropped; it stays on its thread.
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
#[must_use = "call wait() to receive signals"]
pub struct Signals(ringloop::signal::Signals);

impl Signals {
    /// Receives these signals, in place of their earlier handlers.
    ///
    /// # Errors
    /// As [`ringloop::signal::Signals::new`].
    pub fn new(signals: &[Signal]) -> io::Result<Self> {
        ringloop::signal::Signals::new(signals).map(Self)
    }

    /// Parks until the next signal.
    pub fn wait(&mut self) -> io::Result<Signal> {
        block_on(self.0.next())
    }

    /// As [`Signals::wait`]: for `select!`.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn wait_async(&mut self) -> io::Result<Signal> {
        self.0.next().await
    }
}

/// Parks until Ctrl-C (`SIGINT`).
pub fn ctrl_c() -> io::Result<()> {
    block_on(ringloop::signal::ctrl_c())
}
