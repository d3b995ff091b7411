//! Layer 4: signals as a sequence, and Ctrl-C.
//!
//! Owns: [`Signals`], [`Signal`]. Called by: Rust programs. Never does: block a signal, or touch one that nobody
//! listens to.
//!
//! A handler writes an eventfd that the loop polls (`sys::signal`). Not signalfd(2): it hears only of signals
//! that are blocked, in every thread of the process, and children would inherit the mask.
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

use crate::executor::{Home, Local, Op};
use crate::op::Poll;
use crate::sys::interest::Interest;
use crate::sys::signal::Listener;
use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::os::fd::AsRawFd;

/// A signal by its number.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Signal(i32);

impl Signal {
    /// `SIGINT`: Ctrl-C.
    pub const INTERRUPT: Self = Self(libc::SIGINT);
    /// `SIGTERM`: the polite way to end a process.
    pub const TERMINATE: Self = Self(libc::SIGTERM);
    /// `SIGHUP`: the terminal is gone; of daemons, to read the configuration again.
    pub const HANGUP: Self = Self(libc::SIGHUP);
    /// `SIGQUIT`: Ctrl-\\.
    pub const QUIT: Self = Self(libc::SIGQUIT);
    /// `SIGUSR1`.
    pub const USER_1: Self = Self(libc::SIGUSR1);
    /// `SIGUSR2`.
    pub const USER_2: Self = Self(libc::SIGUSR2);
    /// `SIGCHLD`: a child has ended or stopped. `process` does without it.
    pub const CHILD: Self = Self(libc::SIGCHLD);
    /// `SIGWINCH`: the terminal has another size.
    pub const WINDOW_CHANGE: Self = Self(libc::SIGWINCH);
    /// `SIGALRM`: a timer of the process.
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

/// Signals as they come, from now until it is dropped.
///
/// What the process did before on such a signal it does not do meanwhile; when the last listener of a signal
/// is dropped, its previous action is back. Several listeners, on any loops, each hear of every signal.
/// Bounded: a signal that comes again before it was taken counts once, as signals do.
/// A forked child begins without listeners, with the previous actions: what it inherits hears of nothing.
#[derive(Debug)]
#[must_use = "signals are heard of by next()"]
pub struct Signals {
    listener: Listener,
    taken: VecDeque<Signal>,
    home: Option<Home>,
}

impl Signals {
    /// Listen to these signals.
    ///
    /// Errors: `EINVAL` for what is no signal, cannot be caught (`SIGKILL`, `SIGSTOP`), or must not be
    /// returned from (`SIGSEGV` and the like); `EMFILE`; `EAGAIN` where 64 listen already.
    /// Source: sigaction(2).
    pub fn new(signals: &[Signal]) -> io::Result<Self> {
        let numbers: Vec<i32> = signals.iter().map(|signal| signal.0).collect();
        Ok(Self {
            listener: Listener::new(&numbers)?,
            taken: VecDeque::new(),
            home: None,
        })
    }

    /// Wait for the next signal; of those that came together, the lowest first.
    ///
    /// Cancel safety: safe; a signal that came meanwhile is the next call's.
    pub async fn next(&mut self) -> io::Result<Signal> {
        loop {
            self.taken.extend(self.listener.take().map(Signal));
            if let Some(signal) = self.taken.pop_front() {
                return Ok(signal);
            }
            self.home = Some(Local::current().home());
            let poll = Poll {
                fd: self.listener.as_raw_fd(),
                interest: Interest::READ,
                level: false,
            };
            Op::new(poll).await?;
        }
    }
}

impl Drop for Signals {
    fn drop(&mut self) {
        // The descriptor goes on to serve other loops.
        if let Some(home) = &self.home {
            home.release(self.listener.as_raw_fd());
        }
    }
}

/// Wait for Ctrl-C (`SIGINT`), from now on: one that came before is not heard of.
///
/// Errors: as [`Signals::new`].
/// Cancel safety: dropping it gives `SIGINT` its previous action back.
pub async fn ctrl_c() -> io::Result<()> {
    let mut signals = Signals::new(&[Signal::INTERRUPT])?;
    signals.next().await.map(drop)
}
