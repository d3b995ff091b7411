//! Signals: not yet.

use super::super::fd::{AsRawFd, RawFd};
use super::super::libc;
use std::io;

/// Listens to some signals until it is dropped.
#[derive(Debug)]
pub struct Listener(());

impl Listener {
    /// Starts listening to these signals.
    ///
    /// # Errors
    /// `ENOSYS`.
    pub fn new(_signals: &[i32]) -> io::Result<Self> {
        Err(io::Error::from_raw_os_error(libc::ENOSYS))
    }

    /// Takes the signals that arrived since the last call.
    #[allow(clippy::unused_self)] // as of the other form
    pub fn take(&self) -> impl Iterator<Item = i32> + use<> {
        std::iter::empty()
    }
}

impl AsRawFd for Listener {
    fn as_raw_fd(&self) -> RawFd {
        -1
    }
}
