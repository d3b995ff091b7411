//! The choice of driver: the user's, and the driver in use.
//!
//! Owns: [`Choice`], [`Kind`].

use crate::error::Error;
use crate::sys::selector::Selector;
use std::fmt;
use std::str::FromStr;

/// The user's choice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Choice {
    /// `io_uring`, or readiness if the kernel refuses it.
    #[default]
    Auto,
    /// `io_uring` or an error.
    Uring,
    /// Readiness: epoll, on Apple's systems kqueue, which is its word there.
    Epoll,
}

/// The driver in use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// `io_uring`.
    Uring,
    /// Readiness, by epoll or by kqueue.
    Epoll,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Uring => "uring",
            Self::Epoll => Selector::NAME,
        })
    }
}

impl FromStr for Choice {
    type Err = Error;

    fn from_str(word: &str) -> Result<Self, Error> {
        match word {
            "" | "auto" => Ok(Self::Auto),
            "uring" | "io_uring" => Ok(Self::Uring),
            Selector::NAME => Ok(Self::Epoll),
            other => Err(Error::UnknownDriver(other.to_owned())),
        }
    }
}

impl Choice {
    /// Parses `RINGLOOP_DRIVER`; unset is `Auto`.
    pub fn from_env() -> Result<Self, Error> {
        match std::env::var("RINGLOOP_DRIVER") {
            Ok(word) => word.parse().map_err(|_| Error::UnknownDriverInEnvironment(word)),
            Err(std::env::VarError::NotPresent) => Ok(Self::Auto),
            Err(std::env::VarError::NotUnicode(word)) => {
                Err(Error::UnknownDriverInEnvironment(word.to_string_lossy().into_owned()))
            }
        }
    }
}
