//! Wakes a sleeping loop from another thread, or from a signal handler.
//!
//! Owns: the choice of form, at compile time: an eventfd on Linux, a posted completion on Windows, a pipe
//! elsewhere. Called by: the
//! executor's unpark and the signal handler (`notify`), the selector, the drivers and listeners of
//! signals (`drain`). The executor's three-state flag decides if a wake is needed.
//!
//! Not by a user event of kqueue's: the wake exists before the loop's selector does, a signal handler
//! may write(2) but not call kevent(2), and embedders poll the descriptor.

#[cfg(all(target_os = "linux", not(libkqueue)))]
mod eventfd;
#[cfg(any(target_vendor = "apple", target_os = "freebsd", libkqueue))]
mod pipe;
#[cfg(windows)]
mod posted;

#[cfg(all(target_os = "linux", not(libkqueue)))]
pub use eventfd::EventFd;
#[cfg(all(target_os = "linux", not(libkqueue)))]
pub(super) use eventfd::notify;
#[cfg(any(target_vendor = "apple", target_os = "freebsd", libkqueue))]
pub use pipe::EventFd;
#[cfg(any(target_vendor = "apple", target_os = "freebsd", libkqueue))]
pub(super) use pipe::{drain, notify};
#[cfg(windows)]
pub use posted::EventFd;
#[cfg(windows)]
pub(super) use posted::Shared;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::fd::AsRawFd;
    use crate::sys::file::poll_now;
    use crate::sys::interest::Interest;

    pub(super) fn readable(event: &EventFd) -> bool {
        poll_now(event.as_raw_fd(), Interest::READ).unwrap().contains(Interest::READ)
    }

    #[test]
    fn e1_notifications_merge_and_one_drain_takes_them_all() {
        let event = EventFd::new().unwrap();
        assert!(!readable(&event));
        event.notify();
        event.notify();
        assert!(readable(&event));
        event.drain();
        assert!(!readable(&event));
        event.drain();
    }

    #[test]
    fn e1_notification_by_number_is_one_too() {
        let event = EventFd::new().unwrap();
        notify(event.notified_fd());
        assert!(readable(&event));
        event.drain();
        assert!(!readable(&event));
    }

    #[test]
    fn e2_descriptor_is_owned_nonblocking_and_closed_on_exec() {
        let event = EventFd::new().unwrap();
        for raw in [event.as_raw_fd(), event.notified_fd()] {
            // SAFETY: no pointer is passed.
            let flags = unsafe { libc::fcntl(raw, libc::F_GETFL) };
            // SAFETY: no pointer is passed.
            let fd_flags = unsafe { libc::fcntl(raw, libc::F_GETFD) };
            assert!(flags & libc::O_NONBLOCK != 0 && fd_flags & libc::FD_CLOEXEC != 0);
        }
    }
}
