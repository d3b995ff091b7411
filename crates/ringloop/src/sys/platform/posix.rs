//! Linux's calls, implemented with POSIX's, for systems without them.
//!
//! Called by: `apple/`. Compiled on Linux for its tests, which compare each with the call of its name.

use super::super::control;
use super::errno::{errno, fail};
use std::ffi::c_int;

/// A flag of ours, as systems that need these forms have none. It is taken out again before a call.
pub const SOCK_CLOEXEC: c_int = 0x2000_0000;
/// As [`SOCK_CLOEXEC`].
pub const SOCK_NONBLOCK: c_int = 0x4000_0000;
/// As [`SOCK_CLOEXEC`].
pub const MSG_CMSG_CLOEXEC: c_int = 0x4000_0000;
/// As [`SOCK_CLOEXEC`], but refused.
pub const RWF_NOWAIT: c_int = 8;

/// socket(2) with flags in its kind.
///
/// # Safety
/// None; it is a function of C.
pub unsafe fn socket(domain: c_int, kind: c_int, protocol: c_int) -> c_int {
    let flags = SOCK_NONBLOCK | SOCK_CLOEXEC;
    // SAFETY: no pointer is passed.
    let fd = unsafe { libc::socket(domain, kind & !flags, protocol) };
    if fd < 0 || set_flags(fd, kind & flags) < 0 {
        return close_all(&[fd]);
    }
    fd
}

/// socketpair(2) with flags in its kind.
///
/// # Safety
/// `ends` is room for two descriptors.
pub unsafe fn socketpair(domain: c_int, kind: c_int, protocol: c_int, ends: *mut c_int) -> c_int {
    let flags = SOCK_NONBLOCK | SOCK_CLOEXEC;
    // SAFETY: by this function's contract.
    if unsafe { libc::socketpair(domain, kind & !flags, protocol, ends) } < 0 {
        return -1;
    }
    // SAFETY: the call has filled both.
    let ends = unsafe { *ends.cast::<[c_int; 2]>() };
    if ends.iter().any(|end| set_flags(*end, kind & flags) < 0) {
        return close_all(&ends);
    }
    0
}

/// pipe2(2), with `O_NONBLOCK` and `O_CLOEXEC`.
///
/// # Safety
/// `ends` is room for two descriptors.
pub unsafe fn pipe2(ends: *mut c_int, flags: c_int) -> c_int {
    let nonblocking = if flags & libc::O_NONBLOCK != 0 { SOCK_NONBLOCK } else { 0 };
    let closed_on_exec = if flags & libc::O_CLOEXEC != 0 { SOCK_CLOEXEC } else { 0 };
    // SAFETY: by this function's contract.
    if unsafe { libc::pipe(ends) } < 0 {
        return -1;
    }
    // SAFETY: the call has filled both.
    let ends = unsafe { *ends.cast::<[c_int; 2]>() };
    if ends.iter().any(|end| set_flags(*end, nonblocking | closed_on_exec) < 0) {
        return close_all(&ends);
    }
    0
}

/// recvmsg(2) with `MSG_CMSG_CLOEXEC`: descriptors that arrived are closed on exec.
///
/// # Safety
/// As of recvmsg(2).
pub unsafe fn recvmsg(fd: c_int, message: *mut libc::msghdr, flags: c_int) -> libc::ssize_t {
    // SAFETY: by this function's contract.
    let count = unsafe { libc::recvmsg(fd, message, flags & !MSG_CMSG_CLOEXEC) };
    if count < 0 || flags & MSG_CMSG_CLOEXEC == 0 {
        return count;
    }
    // SAFETY: the call has filled the header.
    let message = unsafe { &*message };
    let at = message.msg_control.cast::<u8>();
    if at.is_null() {
        return count;
    }
    // C libraries differ in its type.
    let len = message.msg_controllen as _;
    // SAFETY: the call has filled the control data, which is the caller's.
    let control = unsafe { std::slice::from_raw_parts(at, len) };
    let rights = control::messages(control)
        .filter(|(level, kind, _)| (*level, *kind) == (libc::SOL_SOCKET, libc::SCM_RIGHTS));
    for fd in rights.flat_map(|(_, _, data)| data.as_chunks().0) {
        set_flags(c_int::from_ne_bytes(*fd), SOCK_CLOEXEC);
    }
    count
}

/// preadv2(2); `RWF_NOWAIT` is not supported.
///
/// # Safety
/// As of readv(2).
pub unsafe fn preadv2(
    fd: c_int,
    vector: *const libc::iovec,
    count: c_int,
    offset: libc::off_t,
    flags: c_int,
) -> libc::ssize_t {
    if flags & RWF_NOWAIT != 0 {
        return fail(libc::EOPNOTSUPP) as libc::ssize_t;
    }
    if offset == -1 {
        // SAFETY: by this function's contract.
        return unsafe { libc::readv(fd, vector, count) };
    }
    // SAFETY: by this function's contract.
    unsafe { libc::preadv(fd, vector, count, offset) }
}

/// pwritev2(2), without flags.
///
/// # Safety
/// As of writev(2).
pub unsafe fn pwritev2(
    fd: c_int,
    vector: *const libc::iovec,
    count: c_int,
    offset: libc::off_t,
    _flags: c_int,
) -> libc::ssize_t {
    if offset == -1 {
        // SAFETY: by this function's contract.
        return unsafe { libc::writev(fd, vector, count) };
    }
    // SAFETY: by this function's contract.
    unsafe { libc::pwritev(fd, vector, count, offset) }
}

/// The family of a socket by its own address, which has one before it is bound. See getsockname(2).
///
/// # Safety
/// `value` is room for an `int`.
pub unsafe fn domain(fd: c_int, value: *mut c_int) -> c_int {
    // SAFETY: it holds only integers.
    let mut address: libc::sockaddr_storage = unsafe { std::mem::zeroed() };
    let mut len = size_of::<libc::sockaddr_storage>() as libc::socklen_t;
    let at = (&raw mut address).cast();
    // SAFETY: the address and its length are live for the call.
    if unsafe { libc::getsockname(fd, at, &raw mut len) } < 0 {
        return -1;
    }
    // SAFETY: by this function's contract.
    unsafe { *value = c_int::from(address.ss_family) };
    0
}

/// Sets what Linux sets with these flags of socket(2).
fn set_flags(fd: c_int, flags: c_int) -> c_int {
    // SAFETY: no pointer is passed.
    if flags & SOCK_CLOEXEC != 0 && unsafe { libc::fcntl(fd, libc::F_SETFD, libc::FD_CLOEXEC) } < 0
    {
        return -1;
    }
    if flags & SOCK_NONBLOCK == 0 {
        return 0;
    }
    // SAFETY: no pointer is passed.
    let status = unsafe { libc::fcntl(fd, libc::F_GETFL) };
    // SAFETY: no pointer is passed.
    unsafe { libc::fcntl(fd, libc::F_SETFL, status | libc::O_NONBLOCK) }
}

/// Closes new descriptors after a failure, whose errno stays.
fn close_all(fds: &[c_int]) -> c_int {
    let errno = errno();
    for fd in fds.iter().filter(|fd| **fd >= 0) {
        // SAFETY: it is new, and nothing else knows it.
        unsafe { libc::close(*fd) };
    }
    fail(errno)
}

#[cfg(test)]
mod tests;
