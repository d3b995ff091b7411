//! Descriptors in general, and files. What is missing fails with `ENOSYS`.

use super::super::super::fd::{FromRawFd, OwnedFd, handle_of, is_socket};
use super::constants::{
    EBADF, ENOSYS, ESPIPE, F_SETFD, F_SETFL, FIONBIO, O_NONBLOCK, S_IFCHR, S_IFIFO, S_IFREG,
    S_IFSOCK, SO_TYPE, SOL_SOCKET,
};
use super::sockets::{getsockopt, ioctl, recv, send, told};
use super::types::{c_char, c_int, c_void, iovec, mode_t, off_t, ssize_t, stat};
use super::{fail, message, types};
use windows_sys::Win32::Networking::WinSock::closesocket;
use windows_sys::Win32::Storage::FileSystem::{
    FILE_TYPE_CHAR, FILE_TYPE_DISK, FILE_TYPE_PIPE, GetFileType,
};

/// read(2) of a socket.
///
/// # Safety
/// As of read(2).
pub unsafe fn read(fd: c_int, at: *mut c_void, len: usize) -> ssize_t {
    if !is_socket(fd) {
        return absent(fd) as ssize_t;
    }
    // SAFETY: X2.
    unsafe { recv(fd, at, len, 0) }
}

/// write(2) to a socket.
///
/// # Safety
/// As of write(2).
pub unsafe fn write(fd: c_int, at: *const c_void, len: usize) -> ssize_t {
    if !is_socket(fd) {
        return absent(fd) as ssize_t;
    }
    // SAFETY: X2.
    unsafe { send(fd, at, len, 0) }
}

/// writev(2) to a socket.
///
/// # Safety
/// As of writev(2).
pub unsafe fn writev(fd: c_int, vector: *const iovec, count: c_int) -> ssize_t {
    if !is_socket(fd) {
        return absent(fd) as ssize_t;
    }
    let header = types::msghdr {
        msg_name: std::ptr::null_mut(),
        msg_namelen: 0,
        msg_iov: vector.cast_mut(),
        msg_iovlen: count as usize,
        msg_control: std::ptr::null_mut(),
        msg_controllen: 0,
        msg_flags: 0,
    };
    // SAFETY: X2.
    unsafe { message::sendmsg(fd, &raw const header, 0) }
}

/// close(2).
///
/// # Safety
/// None; it is a function of C.
pub unsafe fn close(fd: c_int) -> c_int {
    if fd < 0 {
        return fail(EBADF);
    }
    if is_socket(fd) {
        // SAFETY: no pointer is passed; a number that is not open is an error.
        return told(unsafe { closesocket(fd as usize) });
    }
    // SAFETY: the caller's to close.
    drop(unsafe { OwnedFd::from_raw_fd(fd) });
    0
}

/// fcntl(2) with `F_GETFL`. The mode of a socket cannot be read here: it is taken for non-blocking, as the
/// engine makes each that it gets.
pub(in crate::sys) fn status_flags(fd: c_int) -> c_int {
    if is_open_socket(fd) { O_NONBLOCK } else { fail(EBADF) }
}

/// fcntl(2) with `F_SETFL` and `F_SETFD`. No handle is inherited.
///
/// # Safety
/// None; it is a function of C.
pub unsafe fn fcntl(fd: c_int, command: c_int, value: c_int) -> c_int {
    match command {
        F_SETFL if is_socket(fd) => {
            let mut on = c_int::from(value & O_NONBLOCK != 0);
            // SAFETY: X2.
            unsafe { ioctl(fd, FIONBIO, &raw mut on) }
        }
        F_SETFD => 0,
        _ => fail(EBADF),
    }
}

fn is_open_socket(fd: c_int) -> bool {
    let (mut kind, mut len): (c_int, _) = (0, size_of::<c_int>() as types::socklen_t);
    let at = (&raw mut kind).cast();
    // SAFETY: X2.
    is_socket(fd) && unsafe { getsockopt(fd, SOL_SOCKET, SO_TYPE, at, &raw mut len) } == 0
}

/// fstat(2), the kind of file alone.
///
/// # Safety
/// As of fstat(2).
pub unsafe fn fstat(fd: c_int, into: *mut stat) -> c_int {
    let kind = if fd < 0 {
        return fail(EBADF);
    } else if is_socket(fd) {
        if !is_open_socket(fd) {
            return fail(EBADF);
        }
        S_IFSOCK
    } else {
        // SAFETY: no pointer is passed.
        match unsafe { GetFileType(handle_of(fd)) } {
            FILE_TYPE_DISK => S_IFREG,
            FILE_TYPE_PIPE => S_IFIFO,
            FILE_TYPE_CHAR => S_IFCHR,
            // Processes and the like.
            _ => 0,
        }
    };
    // SAFETY: X2.
    unsafe { into.write(stat { st_mode: kind, st_rdev: 0 }) };
    0
}

/// lseek(2): nothing has positions.
///
/// # Safety
/// None; it is a function of C.
pub unsafe fn lseek(fd: c_int, _: off_t, _: c_int) -> off_t {
    if is_socket(fd) { off_t::from(fail(ESPIPE)) } else { off_t::from(absent(fd)) }
}

fn absent(fd: c_int) -> c_int {
    fail(if fd < 0 { EBADF } else { ENOSYS })
}

macro_rules! absent {
    ($($name:ident($($argument:ty),*) -> $result:ty;)*) => {$(
        #[doc = concat!("`", stringify!($name), "(2)`, which fails with `ENOSYS`.")]
        ///
        /// # Safety
        /// None: it touches no argument.
        pub unsafe fn $name($(_: $argument),*) -> $result {
            absent(0) as $result
        }
    )*};
}

absent! {
    ftruncate(c_int, off_t) -> c_int;
    linkat(c_int, *const c_char, c_int, *const c_char, c_int) -> c_int;
    mkdirat(c_int, *const c_char, mode_t) -> c_int;
    openat(c_int, *const c_char, c_int, u32) -> c_int;
    pread(c_int, *mut c_void, usize, off_t) -> ssize_t;
    pwrite(c_int, *const c_void, usize, off_t) -> ssize_t;
    symlinkat(*const c_char, c_int, *const c_char) -> c_int;
    unlinkat(c_int, *const c_char, c_int) -> c_int;
}
