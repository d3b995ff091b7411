//! POSIX's names for what Windows has, so far as the engine names them.
//!
//! Owns: constants with Windows's numbers, structures in POSIX's form, and functions with the contract of
//! the function of that name, by Winsock and the system's own calls. Errors are the thread's last error, as
//! `std::io::Error` reads it: an `E…` is the number that Windows uses for it.
//!
//! | what | here |
//! |---|---|
//! | sockets | Winsock, always non-blocking: there is no `MSG_DONTWAIT`, and a socket's mode cannot be read |
//! | `EINPROGRESS` | `WSAEWOULDBLOCK` of connect; `EBADF` is also `WSAENOTSOCK`, `EPIPE` also `WSAESHUTDOWN` |
//! | a datagram that was cut | `WSAEMSGSIZE`, told as POSIX does: the length of the buffer, and `MSG_TRUNC` |
//! | `SO_REUSEADDR` | ignored: POSIX's meaning is how Windows binds, and its own lets others steal the port |
//! | mappings | private memory alone |
//! | files by name, pipes, signals | not yet: `ENOSYS` |
//!
//! # Invariants
//! - **X2** A function here has the contract of POSIX's function of its name, with a descriptor of `sys::fd`.

mod constants;
mod files;
mod message;
mod sockets;
mod system;
mod types;

pub use constants::*;
pub use files::*;
pub use message::*;
pub use sockets::*;
pub use system::*;
pub use types::*;

use windows_sys::Win32::Foundation::SetLastError;

/// Fails a call as the system does.
pub(in crate::sys) fn fail(errno: c_int) -> c_int {
    // SAFETY: no pointer is passed.
    unsafe { SetLastError(errno.cast_unsigned()) };
    -1
}
