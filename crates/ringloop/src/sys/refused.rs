//! A refused call that an event loop needs: its name, the cause and the remedy.
//!
//! Called by: callers of such calls, once per loop. Makes no system call but to read a limit.

use super::process;
use crate::sys::libc;
use std::error::Error;
use std::fmt;
use std::io;

/// The call that was refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RefusedCall {
    /// Its name, as in a seccomp profile.
    pub call: &'static str,
    /// Its errno.
    pub errno: i32,
}

impl RefusedCall {
    /// Adds the name of `call` to its error.
    pub fn name(call: &'static str) -> impl Fn(io::Error) -> io::Error {
        move |error| match error.raw_os_error() {
            Some(errno) => io::Error::new(error.kind(), Self { call, errno }),
            None => error,
        }
    }

    /// The call that an error names.
    pub fn of(error: &io::Error) -> Option<&Self> {
        error.get_ref()?.downcast_ref()
    }
}

impl fmt::Display for RefusedCall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let cause = io::Error::from_raw_os_error(self.errno);
        write!(f, "{} was refused: {cause}; ", self.call)?;
        match self.errno {
            libc::EMFILE => write!(
                f,
                "raise RLIMIT_NOFILE (`ulimit -n`, now {}) or close some descriptors",
                process::soft_limit(libc::RLIMIT_NOFILE)
            ),
            libc::ENFILE => f.write_str("raise fs.file-max or close some descriptors"),
            libc::ENOMEM => f.write_str("raise the memory limit"),
            _ if !cfg!(target_os = "linux") => f.write_str("a policy of the system may deny it"),
            _ => write!(
                f,
                "allow {} in the seccomp profile or the other policy that denies it",
                self.call
            ),
        }
    }
}

impl Error for RefusedCall {}
