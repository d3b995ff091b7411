//! A pipe in the place of an eventfd.
//!
//! # Invariants
//! - **E1** The pointer given to `read` or `write` is to live memory of the length given.

use super::super::file::{self, Descriptor};
use std::io;
use std::os::fd::{AsRawFd, RawFd};

/// Notifications that one `read` takes.
const DRAINED: usize = 256;

/// Wakes a loop from any thread.
#[derive(Debug)]
pub struct EventFd {
    reader: Descriptor,
    writer: Descriptor,
}

impl EventFd {
    /// Creates a non-blocking, close-on-exec pipe. See pipe(2).
    ///
    /// # Errors
    /// `EMFILE`, `ENFILE`, `ENOMEM`.
    pub fn new() -> io::Result<Self> {
        let (reader, writer) = file::pipe()?;
        Ok(Self { reader: reader.into(), writer: writer.into() })
    }

    /// Makes the descriptor readable until the next [`EventFd::drain`].
    ///
    /// `EAGAIN` means that the pipe is full and the descriptor readable already.
    pub fn notify(&self) {
        notify(self.notified_fd());
    }

    /// Takes all notifications so far; the descriptor is unreadable again.
    pub fn drain(&self) {
        drain(self.as_raw_fd());
    }

    /// The descriptor for [`notify`].
    pub fn notified_fd(&self) -> RawFd {
        self.writer.as_raw_fd()
    }
}

impl AsRawFd for EventFd {
    /// The descriptor to wait for.
    fn as_raw_fd(&self) -> RawFd {
        self.reader.as_raw_fd()
    }
}

/// As [`EventFd::notify`], by number; a signal handler may call it.
pub fn notify(fd: RawFd) {
    let one = 1_u8;
    // SAFETY: E1.
    unsafe { libc::write(fd, (&raw const one).cast(), 1) };
}

/// As [`EventFd::drain`], by number.
pub fn drain(fd: RawFd) {
    let mut taken = [0_u8; DRAINED];
    // SAFETY: E1. Less than asked for was all.
    while unsafe { libc::read(fd, taken.as_mut_ptr().cast(), DRAINED) } == DRAINED as isize {}
}

#[cfg(test)]
mod tests {
    use super::super::tests::readable;
    use super::*;

    #[test]
    fn e1_notify_on_a_full_pipe_keeps_it_readable() {
        let event = EventFd::new().unwrap();
        while file::write(event.notified_fd(), &[0; 4096], None).is_ok() {}
        event.notify();
        assert!(readable(&event));
        event.drain();
        assert!(!readable(&event));
    }
}
