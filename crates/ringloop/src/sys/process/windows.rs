//! A child as a handle.
//!
//! # Invariants
//! - **H4** A handle that `OpenProcess` returned is fresh, and nothing else owns it.

use super::super::fd::{OwnedFd, RawFd, handle_of, is_socket};
use super::super::libc;
use std::io;
use std::os::windows::io::{FromRawHandle, OwnedHandle};
use windows_sys::Win32::Foundation::{WAIT_OBJECT_0, WAIT_TIMEOUT};
use windows_sys::Win32::System::Threading::{
    OpenProcess, PROCESS_SYNCHRONIZE, WaitForSingleObject,
};

/// Opens a handle of a process.
///
/// # Errors
/// `ESRCH` no such process; `EPERM`.
pub fn pidfd_open(pid: u32) -> io::Result<OwnedFd> {
    // SAFETY: no pointer is passed.
    let handle = unsafe { OpenProcess(PROCESS_SYNCHRONIZE, 0, pid) };
    if handle.is_null() {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: H4.
    Ok(unsafe { OwnedHandle::from_raw_handle(handle) }.into())
}

/// True if a process has ended.
///
/// # Errors
/// `EBADF`.
pub fn has_ended(pidfd: RawFd) -> io::Result<bool> {
    if pidfd < 0 || is_socket(pidfd) {
        return Err(io::Error::from_raw_os_error(libc::EBADF));
    }
    // SAFETY: no pointer is passed.
    match unsafe { WaitForSingleObject(handle_of(pidfd), 0) } {
        WAIT_OBJECT_0 => Ok(true),
        WAIT_TIMEOUT => Ok(false),
        _ => Err(io::Error::last_os_error()),
    }
}
