//! Layer 4: signals as a sequence, and Ctrl-C.
//!
//! Owns: [`Signals`], [`Signal`]. Called by: applications. Signals without a listener keep their action.
//!
//! A handler writes to an eventfd that the loop polls (`sys::signal`). signalfd(2) would need the signals
//! blocked in every thread of the process, and children would inherit the mask.
//!
//! ```no_run
//! use ringloop::signal::{Signal, Signals};
//!
//! let runtime = ringloop::Runtime::new()?;
//! runtime.block_on(async {
//!     let mut signals = Signals::new(&[Signal::HANGUP, Signal::TERMINATE])?;
//!     while signals.next().await? == Signal::HANGUP {
//!         println!("reading the configuration again");
//!     }
//!     std::io::Result::Ok(())
//! })??;
//! # Ok::<(), ringloop::Error>(())
//! ```

use crate::executor::{Local, Op, WeakLocal};
use crate::op::Poll;
use crate::sys::fd::AsRawFd;
use crate::sys::interest::Interest;
use crate::sys::libc;
use crate::sys::signal::Listener;
use std::collections::VecDeque;
use std::fmt;
use std::io;

/// A signal by its number.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Signal(i32);

impl Signal {
    /// `SIGINT`: Ctrl-C.
    pub const INTERRUPT: Self = Self(libc::SIGINT);
    /// `SIGTERM`: a request to end.
    pub const TERMINATE: Self = Self(libc::SIGTERM);
    /// `SIGHUP`: the terminal was closed; for daemons, a request to reload the configuration.
    pub const HANGUP: Self = Self(libc::SIGHUP);
    /// `SIGQUIT`: Ctrl-\\.
    pub const QUIT: Self = Self(libc::SIGQUIT);
    /// `SIGUSR1`.
    pub const USER_1: Self = Self(libc::SIGUSR1);
    /// `SIGUSR2`.
    pub const USER_2: Self = Self(libc::SIGUSR2);
    /// `SIGCHLD`: a child has ended or stopped. `process` does not use it.
    pub const CHILD: Self = Self(libc::SIGCHLD);
    /// `SIGWINCH`: the terminal was resized.
    pub const WINDOW_CHANGE: Self = Self(libc::SIGWINCH);
    /// `SIGALRM`: a timer of the process has expired.
    pub const ALARM: Self = Self(libc::SIGALRM);

    /// The signal of this number.
    pub const fn from_raw(number: i32) -> Self {
        Self(number)
    }

    /// Its number.
    pub const fn as_raw(self) -> i32 {
        self.0
    }
}

impl fmt::Debug for Signal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = match *self {
            Self::INTERRUPT => "SIGINT",
            Self::TERMINATE => "SIGTERM",
            Self::HANGUP => "SIGHUP",
            Self::QUIT => "SIGQUIT",
            Self::USER_1 => "SIGUSR1",
            Self::USER_2 => "SIGUSR2",
            Self::CHILD => "SIGCHLD",
            Self::WINDOW_CHANGE => "SIGWINCH",
            Self::ALARM => "SIGALRM",
            Self(number) => return write!(f, "Signal({number})"),
        };
        f.write_str(name)
    }
}

/// Receives signals from now until it is dropped.
///
/// It replaces the process's action; dropping the last listener of a signal restores that. Several
/// listeners, on any loops, each receive every signal. A signal that is sent again before it was received
/// counts once. A forked child begins with the previous actions; inherited listeners receive nothing.
#[derive(Debug)]
#[must_use = "call next() to receive signals"]
pub struct Signals {
    listener: Listener,
    taken: VecDeque<Signal>,
    weak_local: Option<WeakLocal>,
}

impl Signals {
    /// Listens to these signals. See sigaction(2).
    ///
    /// # Errors
    /// `EINVAL` for an invalid number, a signal that cannot be caught (`SIGKILL`, `SIGSTOP`) or whose
    /// handler must not return (`SIGSEGV` and the like); `EMFILE`; `EAGAIN` beyond 64 listeners.
    pub fn new(signals: &[Signal]) -> io::Result<Self> {
        let numbers: Vec<i32> = signals.iter().map(|signal| signal.0).collect();
        Ok(Self { listener: Listener::new(&numbers)?, taken: VecDeque::new(), weak_local: None })
    }

    /// Waits for the next signal; of several, returns the lowest number first.
    ///
    /// # Cancel safety
    /// Cancel safe: the next call returns the signal.
    pub async fn next(&mut self) -> io::Result<Signal> {
        loop {
            self.taken.extend(self.listener.take().map(Signal));
            if let Some(signal) = self.taken.pop_front() {
                return Ok(signal);
            }
            self.weak_local = Some(Local::current().downgrade());
            let poll =
                Poll { fd: self.listener.as_raw_fd(), interest: Interest::READ, level: false };
            Op::new(poll).await?;
        }
    }
}

impl Drop for Signals {
    fn drop(&mut self) {
        // Other loops continue to use the descriptor.
        if let Some(weak_local) = &self.weak_local {
            weak_local.release(self.listener.as_raw_fd());
        }
    }
}

/// Waits for Ctrl-C (`SIGINT`), from now on; an earlier one does not count.
///
/// # Errors
/// As [`Signals::new`].
///
/// # Cancel safety
/// Dropping it restores the previous action of `SIGINT`.
pub async fn ctrl_c() -> io::Result<()> {
    let mut signals = Signals::new(&[Signal::INTERRUPT])?;
    signals.next().await.map(drop)
}
