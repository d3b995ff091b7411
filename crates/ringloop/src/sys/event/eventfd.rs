//! An eventfd.
//!
//! # Invariants
//! - **E1** The pointer given to `read` or `write` is to a live local of exactly eight bytes.
//! - **E2** A non-negative return of `eventfd` is a fresh descriptor that nothing else owns.

use super::super::check;
use super::super::file::Descriptor;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

/// Wakes a loop from any thread.
#[derive(Debug)]
pub struct EventFd(Descriptor);

impl EventFd {
    /// Creates a non-blocking, close-on-exec eventfd. See eventfd(2).
    ///
    /// # Errors
    /// `EMFILE`, `ENFILE`, `ENOMEM`.
    pub fn new() -> io::Result<Self> {
        // SAFETY: E2; the call takes no pointer.
        let fd = check(unsafe { libc::eventfd(0, libc::EFD_NONBLOCK | libc::EFD_CLOEXEC) })?;
        // SAFETY: E2.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        Ok(Self(fd.into()))
    }

    /// Makes the descriptor readable until the next [`EventFd::drain`].
    ///
    /// `EAGAIN` means that the counter is full and the descriptor readable already. Costs one system call,
    /// about 340 ns without a waiter.
    pub fn notify(&self) {
        notify(self.notified_fd());
    }

    /// Takes all notifications so far; the descriptor is unreadable again.
    pub fn drain(&self) {
        let mut count = 0_u64;
        // SAFETY: E1.
        unsafe { libc::read(self.0.as_raw_fd(), (&raw mut count).cast(), size_of::<u64>()) };
    }

    /// The descriptor for [`notify`].
    pub fn notified_fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

/// As [`EventFd::notify`], by number; a signal handler may call it.
#[inline]
pub fn notify(fd: RawFd) {
    let one = 1_u64;
    // SAFETY: E1.
    unsafe { libc::write(fd, (&raw const one).cast(), size_of::<u64>()) };
}

impl AsRawFd for EventFd {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::readable;
    use super::*;

    #[test]
    fn e1_notify_on_a_full_counter_keeps_it_readable() {
        let event = EventFd::new().unwrap();
        let full = (u64::MAX - 1).to_ne_bytes();
        crate::sys::file::write(event.as_raw_fd(), &full, None).unwrap();
        event.notify();
        assert!(readable(&event));
        event.drain();
        assert!(!readable(&event));
    }
}
