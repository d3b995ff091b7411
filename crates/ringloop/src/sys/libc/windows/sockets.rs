//! Sockets, by Winsock.

use super::super::super::fd::{is_socket, of_socket, socket_of};
use super::constants::{
    EBADF, EINPROGRESS, EMSGSIZE, EOPNOTSUPP, EPIPE, FIONBIO, POLLIN, SO_LINGER, SO_REUSEADDR,
    SOL_SOCKET,
};
use super::fail;
use super::types::{c_int, c_void, linger, pollfd, sockaddr, socklen_t, ssize_t};
use std::sync::Once;
use windows_sys::Win32::Foundation::{GetLastError, HANDLE_FLAG_INHERIT, SetHandleInformation};
use windows_sys::Win32::Networking::WinSock::{self, SOCKET};

/// Creates a socket that is neither inherited nor, with `nonblocking`, ever waits.
pub(in crate::sys) fn make_socket(
    domain: c_int,
    kind: c_int,
    protocol: c_int,
    nonblocking: bool,
) -> c_int {
    start();
    let flags = WinSock::WSA_FLAG_OVERLAPPED | WinSock::WSA_FLAG_NO_HANDLE_INHERIT;
    // SAFETY: no pointer is passed.
    let socket = unsafe { WinSock::WSASocketW(domain, kind, protocol, std::ptr::null(), 0, flags) };
    take_over(socket, nonblocking)
}

/// A new socket as a descriptor.
fn take_over(socket: SOCKET, nonblocking: bool) -> c_int {
    if socket == WinSock::INVALID_SOCKET {
        return told(-1);
    }
    let fd = of_socket(socket as u64);
    let mut on = 1;
    // SAFETY: X2.
    if nonblocking && unsafe { ioctl(fd, FIONBIO, &raw mut on) } < 0 {
        // SAFETY: it is new, and nothing else knows it.
        unsafe { WinSock::closesocket(socket) };
        return -1;
    }
    fd
}

/// Winsock is started once a process, and stays.
fn start() {
    static STARTED: Once = Once::new();
    STARTED.call_once(|| {
        let mut data = WinSock::WSADATA::default();
        // A failure is that of each call after it.
        // SAFETY: the structure is live for the call.
        unsafe { WinSock::WSAStartup(0x0202, &raw mut data) };
    });
}

/// A result of Winsock, with POSIX's errors.
pub(super) fn told(result: c_int) -> c_int {
    if result >= 0 {
        return result;
    }
    // SAFETY: no pointer is passed.
    match unsafe { GetLastError() }.cast_signed() {
        WinSock::WSAENOTSOCK => fail(EBADF),
        WinSock::WSAESHUTDOWN => fail(EPIPE),
        _ => -1,
    }
}

pub(super) fn raw(fd: c_int) -> SOCKET {
    socket_of(fd) as SOCKET
}

/// connect(2); a call in progress is `EINPROGRESS`.
///
/// # Safety
/// As of connect(2).
pub unsafe fn connect(fd: c_int, address: *const sockaddr, len: socklen_t) -> c_int {
    // SAFETY: X2.
    let done = told(unsafe { WinSock::connect(raw(fd), address, len as c_int) });
    // SAFETY: no pointer is passed.
    if done < 0 && unsafe { GetLastError() }.cast_signed() == WinSock::WSAEWOULDBLOCK {
        return fail(EINPROGRESS);
    }
    done
}

/// bind(2).
///
/// # Safety
/// As of bind(2).
pub unsafe fn bind(fd: c_int, address: *const sockaddr, len: socklen_t) -> c_int {
    // SAFETY: X2.
    told(unsafe { WinSock::bind(raw(fd), address, len as c_int) })
}

/// listen(2).
///
/// # Safety
/// None; it is a function of C.
pub unsafe fn listen(fd: c_int, backlog: c_int) -> c_int {
    // SAFETY: X2.
    told(unsafe { WinSock::listen(raw(fd), backlog) })
}

/// accept(2); the new socket is not inherited.
///
/// # Safety
/// As of accept(2).
pub unsafe fn accept(fd: c_int, address: *mut sockaddr, len: *mut socklen_t) -> c_int {
    // SAFETY: X2.
    let socket = unsafe { WinSock::accept(raw(fd), address, len.cast()) };
    if socket != WinSock::INVALID_SOCKET {
        // SAFETY: no pointer is passed. A failure leaves it inherited, as on a system without the flag.
        unsafe { SetHandleInformation(socket as _, HANDLE_FLAG_INHERIT, 0) };
    }
    take_over(socket, false)
}

/// Bytes that one call moves: Winsock's lengths are 31 bits.
fn bounded(len: usize) -> c_int {
    c_int::try_from(len).unwrap_or(c_int::MAX)
}

/// recv(2). A datagram that is longer is cut.
///
/// # Safety
/// As of recv(2).
pub unsafe fn recv(fd: c_int, at: *mut c_void, len: usize, flags: c_int) -> ssize_t {
    let len = bounded(len);
    // SAFETY: X2.
    let count = told(unsafe { WinSock::recv(raw(fd), at.cast(), len, flags) });
    // SAFETY: no pointer is passed.
    if count < 0 && unsafe { GetLastError() }.cast_signed() == EMSGSIZE {
        return len as ssize_t;
    }
    count as ssize_t
}

/// send(2).
///
/// # Safety
/// As of send(2).
pub unsafe fn send(fd: c_int, at: *const c_void, len: usize, flags: c_int) -> ssize_t {
    // SAFETY: X2.
    told(unsafe { WinSock::send(raw(fd), at.cast(), bounded(len), flags) }) as ssize_t
}

/// sendto(2).
///
/// # Safety
/// As of sendto(2).
pub unsafe fn sendto(
    fd: c_int,
    at: *const c_void,
    len: usize,
    flags: c_int,
    to: *const sockaddr,
    to_len: socklen_t,
) -> ssize_t {
    // SAFETY: X2.
    let sent =
        unsafe { WinSock::sendto(raw(fd), at.cast(), bounded(len), flags, to, to_len as c_int) };
    told(sent) as ssize_t
}

/// shutdown(2).
///
/// # Safety
/// None; it is a function of C.
pub unsafe fn shutdown(fd: c_int, how: c_int) -> c_int {
    // SAFETY: X2.
    told(unsafe { WinSock::shutdown(raw(fd), how) })
}

/// getsockname(2). A socket that is not bound has no address here: that of its family is told.
///
/// # Safety
/// As of getsockname(2).
pub unsafe fn getsockname(fd: c_int, address: *mut sockaddr, len: *mut socklen_t) -> c_int {
    // SAFETY: X2.
    told(unsafe { WinSock::getsockname(raw(fd), address, len.cast()) })
}

/// getpeername(2).
///
/// # Safety
/// As of getpeername(2).
pub unsafe fn getpeername(fd: c_int, address: *mut sockaddr, len: *mut socklen_t) -> c_int {
    // SAFETY: X2.
    told(unsafe { WinSock::getpeername(raw(fd), address, len.cast()) })
}

/// setsockopt(2).
///
/// # Safety
/// As of setsockopt(2).
pub unsafe fn setsockopt(
    fd: c_int,
    level: c_int,
    name: c_int,
    value: *const c_void,
    len: socklen_t,
) -> c_int {
    match (level, name) {
        (SOL_SOCKET, SO_REUSEADDR) => return 0,
        (SOL_SOCKET, SO_LINGER) => {
            // SAFETY: X2: the value of this option is a `linger`.
            let wanted = unsafe { *value.cast::<linger>() };
            let short = WinSock::LINGER {
                l_onoff: wanted.l_onoff as u16,
                l_linger: u16::try_from(wanted.l_linger).unwrap_or(u16::MAX),
            };
            let (at, len) = ((&raw const short).cast(), size_of::<WinSock::LINGER>() as c_int);
            // SAFETY: the value is live for the call.
            return told(unsafe { WinSock::setsockopt(raw(fd), level, name, at, len) });
        }
        _ => {}
    }
    // SAFETY: X2.
    told(unsafe { WinSock::setsockopt(raw(fd), level, name, value.cast(), len as c_int) })
}

/// getsockopt(2).
///
/// # Safety
/// As of getsockopt(2).
pub unsafe fn getsockopt(
    fd: c_int,
    level: c_int,
    name: c_int,
    value: *mut c_void,
    len: *mut socklen_t,
) -> c_int {
    // SAFETY: X2.
    told(unsafe { WinSock::getsockopt(raw(fd), level, name, value.cast(), len.cast()) })
}

/// ioctl(2) with [`FIONBIO`].
///
/// # Safety
/// As of ioctl(2).
pub unsafe fn ioctl(fd: c_int, request: c_int, value: *mut c_int) -> c_int {
    // SAFETY: X2.
    told(unsafe { WinSock::ioctlsocket(raw(fd), request, value.cast()) })
}

/// poll(2) of sockets. A descriptor that is none is `POLLNVAL`.
///
/// # Safety
/// `entries` is `count` entries.
pub unsafe fn poll(entries: *mut pollfd, count: u32, timeout: c_int) -> c_int {
    // SAFETY: by this function's contract.
    let entries = unsafe { std::slice::from_raw_parts_mut(entries, count as usize) };
    let mut theirs: Vec<_> = entries
        .iter()
        .map(|entry| WinSock::WSAPOLLFD { fd: raw(entry.fd), events: entry.events, revents: 0 })
        .collect();
    if !entries.iter().all(|entry| is_socket(entry.fd)) {
        return fail(EOPNOTSUPP);
    }
    // SAFETY: the entries are live for the call.
    let ready = told(unsafe { WinSock::WSAPoll(theirs.as_mut_ptr(), count, timeout) });
    for (entry, theirs) in entries.iter_mut().zip(&theirs) {
        entry.revents = theirs.revents;
        // The end of a stream is a hang-up alone here.
        if theirs.revents & WinSock::POLLHUP != 0 {
            entry.revents |= entry.events & POLLIN;
        }
    }
    ready
}
