//! Which driver runs: the user's word, then what the kernel allows.
//!
//! Called by: `Driver::new`. Never does: change its mind later; a driver is for the loop's life.

use super::{BlockingPool, Driver, ReadinessDriver, Setup, UringDriver};
use crate::error::Error;
use crate::sys::event::EventFd;
use crate::sys::uring::Cause;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

/// What the user asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Choice {
    /// `io_uring`, or epoll where the kernel refuses it.
    #[default]
    Auto,
    /// `io_uring` or an error.
    Uring,
    /// epoll.
    Epoll,
}

/// Which driver is in use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// `io_uring`.
    Uring,
    /// Readiness by epoll.
    Epoll,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Uring => "uring",
            Self::Epoll => "epoll",
        })
    }
}

impl FromStr for Choice {
    type Err = Error;

    fn from_str(word: &str) -> Result<Self, Error> {
        match word {
            "" | "auto" => Ok(Self::Auto),
            "uring" | "io_uring" => Ok(Self::Uring),
            "epoll" => Ok(Self::Epoll),
            other => Err(Error::UnknownDriver(other.to_owned())),
        }
    }
}

impl Choice {
    /// The word in `RINGLOOP_DRIVER`; unset is `Auto`.
    pub fn from_env() -> Result<Self, Error> {
        match std::env::var("RINGLOOP_DRIVER") {
            Ok(word) => word
                .parse()
                .map_err(|_| Error::UnknownDriverInEnvironment(word)),
            Err(std::env::VarError::NotPresent) => Ok(Self::Auto),
            Err(std::env::VarError::NotUnicode(word)) => Err(Error::UnknownDriverInEnvironment(
                word.to_string_lossy().into_owned(),
            )),
        }
    }
}

/// Open the driver, and say in one sentence why it is this one. Submission polling that is refused costs
/// the ring only where the ring was demanded.
pub(super) fn open(
    setup: &Setup,
    wake: Arc<EventFd>,
    pool: &BlockingPool,
) -> Result<(Driver, String), Error> {
    let choice = setup.choice;
    let readiness = |wake, reason: String| {
        let driver = ReadinessDriver::new(wake, pool.clone())?;
        Ok((Driver::Readiness(Box::new(driver)), reason))
    };
    if choice == Choice::Epoll {
        return readiness(wake, "epoll, as asked for".to_owned());
    }
    match UringDriver::new(Arc::clone(&wake), setup) {
        Ok(driver) => {
            let reason = match choice {
                Choice::Uring => "io_uring, as asked for",
                _ => "io_uring, which the kernel offers",
            };
            Ok((Driver::Uring(Box::new(driver)), reason.to_owned()))
        }
        Err(refusal) if choice == Choice::Auto && matches!(refusal.cause, Cause::Polling(_)) => {
            let without = Setup {
                polling: None,
                ..*setup
            };
            let (driver, reason) = open(&without, wake, pool)?;
            Ok((driver, format!("{reason}; {refusal}")))
        }
        Err(refusal) if choice == Choice::Auto => {
            readiness(wake, format!("{refusal}; using epoll"))
        }
        Err(refusal) => Err(Error::DriverRefused(refusal)),
    }
}
