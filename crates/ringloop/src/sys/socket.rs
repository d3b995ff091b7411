//! Sockets: create, connect, accept, move bytes, options.
//!
//! Owns: nothing; a new socket is returned as an [`OwnedFd`]. Called by: `net`, the operations'
//! readiness form, and the Python transports' synchronous fast path. Never blocks (each socket made
//! here is non-blocking), raises SIGPIPE (each send has `MSG_NOSIGNAL`) or retries.
//!
//! Byte path: from the kernel's receive queue to the buffer of an operation, and back.
//!
//! # Invariants
//! - **S1** A pointer handed to the kernel is to live memory of the length given, for the call; a
//!   raw twin passes this duty to its caller.
//! - **S2** A receive that returns *n* has initialised at most the first *n* bytes it was given
//!   (fewer under `MSG_TRUNC`), and touched no others.
//! - **S3** A non-negative return of `socket`, `accept` or `accept4`, and each end of a `socketpair`, is a fresh
//!   descriptor that nothing else owns.

use super::address::SockAddr;
use super::file;
use super::interest::Interest;
use super::platform;
use super::{check, is_refused};
use crate::sys::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use crate::sys::libc;
use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::net::Shutdown;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Creates a non-blocking, close-on-exec socket; the arguments are those of socket(2).
///
/// # Errors
/// `EMFILE`, `ENFILE`, `EAFNOSUPPORT`, `EPROTONOSUPPORT`, `EACCES`.
pub fn socket(domain: i32, kind: i32, protocol: i32) -> io::Result<OwnedFd> {
    let kind = kind | platform::SOCK_NONBLOCK | platform::SOCK_CLOEXEC;
    // SAFETY: S3; no pointer is passed.
    let fd = check(unsafe { platform::socket(domain, kind, protocol) })?;
    // SAFETY: S3.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Binds the socket to its local address.
pub fn bind(fd: RawFd, address: &SockAddr) -> io::Result<()> {
    // SAFETY: S1.
    check(unsafe { libc::bind(fd, address.as_ptr(), address.len()) })?;
    Ok(())
}

/// Starts listening, with a backlog of at most `backlog` (and `net.core.somaxconn`).
pub fn listen(fd: RawFd, backlog: i32) -> io::Result<()> {
    // SAFETY: no pointer is passed.
    check(unsafe { libc::listen(fd, backlog) })?;
    Ok(())
}

/// Begins to connect. See connect(2).
///
/// # Errors
/// `EINPROGRESS` normally: wait for writability, then call [`take_error`]. `EAGAIN` for a Unix
/// socket whose listener's backlog is full.
pub fn connect(fd: RawFd, address: &SockAddr) -> io::Result<()> {
    // SAFETY: S1.
    check(unsafe { libc::connect(fd, address.as_ptr(), address.len()) })?;
    Ok(())
}

/// Accepts one queued connection, non-blocking and close-on-exec. See accept4(2). If that is
/// refused, accept(2) and fcntl(2): a program that another thread starts between them inherits the
/// connection.
///
/// # Errors
/// `EAGAIN` if there is none; `EMFILE`, `ENFILE`, `ENOBUFS`, `ENOMEM`: back off; `ECONNABORTED` and
/// other network errors of the *new* socket: try again.
pub fn accept(fd: RawFd) -> io::Result<OwnedFd> {
    accept_with(fd, None)
}

/// As [`accept`], with the peer's address, which the connection may lose again by a reset.
pub fn accept_from(fd: RawFd) -> io::Result<(OwnedFd, SockAddr)> {
    let mut peer = SockAddr::empty();
    let new = accept_with(fd, Some(&mut peer))?;
    Ok((new, peer))
}

fn accept_with(fd: RawFd, mut peer: Option<&mut SockAddr>) -> io::Result<OwnedFd> {
    static REFUSED: AtomicBool = AtomicBool::new(false);
    if !REFUSED.load(Ordering::Relaxed) {
        match accept4(fd, peer.as_deref_mut()) {
            Err(error) if is_refused(&error, || accept4(-1, None)) => {
                REFUSED.store(true, Ordering::Relaxed);
            }
            accepted => return accepted,
        }
    }
    accept_then_set(fd, peer)
}

/// Where accept(2) stores the peer's address; null pointers if it is not asked for.
fn room_for(peer: Option<&mut SockAddr>) -> (*mut libc::sockaddr, *mut libc::socklen_t) {
    match peer {
        Some(peer) => (peer.as_mut_ptr(), peer.len_mut_ptr()),
        None => (std::ptr::null_mut(), std::ptr::null_mut()),
    }
}

fn accept4(fd: RawFd, peer: Option<&mut SockAddr>) -> io::Result<OwnedFd> {
    let flags = platform::SOCK_NONBLOCK | platform::SOCK_CLOEXEC;
    let (at, len) = room_for(peer);
    // SAFETY: S1, S3.
    let new = check(unsafe { platform::accept4(fd, at, len, flags) })?;
    // SAFETY: S3.
    Ok(unsafe { OwnedFd::from_raw_fd(new) })
}

fn accept_then_set(fd: RawFd, peer: Option<&mut SockAddr>) -> io::Result<OwnedFd> {
    let (at, len) = room_for(peer);
    // SAFETY: S1, S3.
    let new = check(unsafe { libc::accept(fd, at, len) })?;
    // SAFETY: S3.
    let new = unsafe { OwnedFd::from_raw_fd(new) };
    platform::prepare_socket(new.as_raw_fd());
    file::set_close_on_exec(new.as_raw_fd())?;
    file::set_nonblocking(new.as_raw_fd(), true)?;
    Ok(new)
}

/// Like [`accept`], but never waits, even on a blocking listener.
pub fn accept_now(fd: RawFd) -> io::Result<OwnedFd> {
    if accept_waits(fd)? {
        return Err(io::Error::from_raw_os_error(libc::EAGAIN));
    }
    accept(fd)
}

/// True if accepting would wait now: the listener is blocking, and no connection is queued.
///
/// accept4(2) has no flag for that, so the listener is polled first. Another process may take the
/// connection between the calls: a shared listener should be non-blocking.
pub fn accept_waits(fd: RawFd) -> io::Result<bool> {
    // On a socket that does not listen it fails without waiting.
    Ok(!file::is_nonblocking(fd)?
        && file::poll_now(fd, Interest::READ)? == Interest::NONE
        && is_listening(fd)?)
}

/// Receives what is available, at most the buffer's length; 0 is the end of the stream.
///
/// The first `n` bytes of `buffer` are initialised. With `MSG_TRUNC`, `n` may exceed the buffer (a datagram's full size). Costs 320 ns for `EAGAIN`. An address that is not 16-byte aligned makes the copy 4 times slower on Zen 3 and 4.
///
/// # Errors
/// `EAGAIN`, `ECONNRESET`, and those of recv(2).
pub fn recv(fd: RawFd, buffer: &mut [MaybeUninit<u8>], flags: i32) -> io::Result<usize> {
    // SAFETY: S1.
    unsafe { recv_raw(fd, buffer.as_mut_ptr().cast(), buffer.len(), flags) }
}

/// Like [`recv`], into initialised memory.
pub fn recv_into(fd: RawFd, buffer: &mut [u8], flags: i32) -> io::Result<usize> {
    // SAFETY: S1.
    unsafe { recv_raw(fd, buffer.as_mut_ptr(), buffer.len(), flags) }
}

/// Receives into raw memory, like [`recv`], for memory that another language owns.
///
/// # Safety
/// `at .. at + len` is writable for the call and not read meanwhile.
pub unsafe fn recv_raw(fd: RawFd, at: *mut u8, len: usize, flags: i32) -> io::Result<usize> {
    // SAFETY: S1, by this function's contract.
    let count = check(unsafe { libc::recv(fd, at.cast(), len, flags) })?;
    Ok(count as usize)
}

/// Sends what fits, at most the buffer; never raises SIGPIPE.
///
/// # Errors
/// `EAGAIN`, `EPIPE`, `ECONNRESET`, and those of send(2).
pub fn send(fd: RawFd, bytes: &[u8], flags: i32) -> io::Result<usize> {
    // SAFETY: S1.
    unsafe { send_raw(fd, bytes.as_ptr(), bytes.len(), flags) }
}

/// Sends from raw memory, like [`send`], for memory that another language owns.
///
/// # Safety
/// `at .. at + len` is readable for the call and not written meanwhile.
pub unsafe fn send_raw(fd: RawFd, at: *const u8, len: usize, flags: i32) -> io::Result<usize> {
    let flags = flags | platform::MSG_NOSIGNAL;
    // SAFETY: S1, by this function's contract.
    let count = check(unsafe { libc::send(fd, at.cast(), len, flags) })?;
    Ok(count as usize)
}

/// Sends several buffers as one: at most `IOV_MAX` (1024); returns the bytes of all of them. Never
/// raises SIGPIPE.
pub fn send_vectored(fd: RawFd, buffers: &[IoSlice<'_>]) -> io::Result<usize> {
    // SAFETY: S1: all-zero bytes are a valid message without name, buffers or control data.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    let vector = platform::vector_of(buffers);
    // The kernel only reads through this pointer.
    message.msg_iov = vector.as_ptr().cast_mut();
    // size_t in one C library and int in the other.
    message.msg_iovlen = buffers.len().min(platform::UIO_MAXIOV as usize) as _;
    // SAFETY: S1.
    unsafe { sendmsg(fd, &raw const message, 0) }
}

/// An empty message header.
pub fn empty_message() -> libc::msghdr {
    // SAFETY: all-zero is a valid `msghdr`: null pointers and zero lengths.
    unsafe { std::mem::zeroed() }
}

/// Receives a message: bytes, sender's address, control data.
///
/// # Safety
/// Each pointer in `*message` is valid for its length, for the call; the memory is not shared
/// meanwhile.
pub unsafe fn recvmsg(fd: RawFd, message: *mut libc::msghdr, flags: i32) -> io::Result<usize> {
    let flags = flags | platform::MSG_CMSG_CLOEXEC;
    // SAFETY: S1, by this function's contract.
    let count = check(unsafe { platform::recvmsg(fd, message, flags) })?;
    Ok(count as usize)
}

/// Receives a message and its source, which is written if there is one. Arguments and errors as in
/// [`recv`].
pub fn recv_from(
    fd: RawFd,
    buffer: &mut [MaybeUninit<u8>],
    source: &mut SockAddr,
    flags: i32,
) -> io::Result<usize> {
    let mut iovec = libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: buffer.len() };
    let mut message = empty_message();
    message.msg_name = source.as_mut_ptr().cast();
    message.msg_namelen = size_of::<libc::sockaddr_storage>() as libc::socklen_t;
    message.msg_iov = &raw mut iovec;
    message.msg_iovlen = 1;
    // SAFETY: S1: all that the header names is borrowed for the call.
    let count = unsafe { recvmsg(fd, &raw mut message, flags) }?;
    source.set_len(message.msg_namelen);
    Ok(count)
}

/// Sends a message: bytes, receiver's address, control data; never raises SIGPIPE.
///
/// # Safety
/// Each pointer in `*message` is valid for its length, for the call; the memory is not written
/// meanwhile.
pub unsafe fn sendmsg(fd: RawFd, message: *const libc::msghdr, flags: i32) -> io::Result<usize> {
    let flags = flags | platform::MSG_NOSIGNAL;
    // SAFETY: S1, by this function's contract.
    let count = check(unsafe { libc::sendmsg(fd, message, flags) })?;
    Ok(count as usize)
}

/// Shuts down one direction of a connection, or both.
///
/// # Errors
/// `ENOTCONN`.
pub fn shutdown(fd: RawFd, how: Shutdown) -> io::Result<()> {
    let how = match how {
        Shutdown::Read => libc::SHUT_RD,
        Shutdown::Write => libc::SHUT_WR,
        Shutdown::Both => libc::SHUT_RDWR,
    };
    // SAFETY: no pointer is passed.
    check(unsafe { libc::shutdown(fd, how) })?;
    Ok(())
}

/// The socket's own address.
pub fn local_addr(fd: RawFd) -> io::Result<SockAddr> {
    let mut address = SockAddr::empty();
    let (at, len) = (address.as_mut_ptr(), address.len_mut_ptr());
    // SAFETY: S1.
    check(unsafe { libc::getsockname(fd, at, len) })?;
    Ok(address)
}

/// The peer's address.
///
/// # Errors
/// `ENOTCONN`.
pub fn peer_addr(fd: RawFd) -> io::Result<SockAddr> {
    let mut address = SockAddr::empty();
    let (at, len) = (address.as_mut_ptr(), address.len_mut_ptr());
    // SAFETY: S1.
    check(unsafe { libc::getpeername(fd, at, len) })?;
    Ok(address)
}

/// Takes the pending error of the socket (`SO_ERROR`), if any; taking clears it.
pub fn take_error(fd: RawFd) -> io::Result<Option<io::Error>> {
    let errno = get_option_int(fd, libc::SOL_SOCKET, libc::SO_ERROR)?;
    Ok((errno != 0).then(|| io::Error::from_raw_os_error(errno)))
}

/// Sets an option whose value is an `int`.
pub fn set_option_int(fd: RawFd, level: i32, name: i32, value: i32) -> io::Result<()> {
    let len = size_of::<libc::c_int>() as libc::socklen_t;
    // SAFETY: S1.
    check(unsafe { libc::setsockopt(fd, level, name, (&raw const value).cast(), len) })?;
    Ok(())
}

/// Reads an option whose value is an `int`.
pub fn get_option_int(fd: RawFd, level: i32, name: i32) -> io::Result<i32> {
    let mut value: libc::c_int = 0;
    let mut len = size_of::<libc::c_int>() as libc::socklen_t;
    let at = (&raw mut value).cast();
    // SAFETY: S1.
    check(unsafe { platform::getsockopt(fd, level, name, at, &raw mut len) })?;
    Ok(value)
}

/// The family of a socket, even if it has no address. See socket(7), `SO_DOMAIN`.
pub fn family(fd: RawFd) -> io::Result<i32> {
    get_option_int(fd, libc::SOL_SOCKET, platform::SO_DOMAIN)
}

/// True for a UDP socket: ping and raw sockets, of the same families, are not. See socket(7),
/// `SO_PROTOCOL`.
pub fn is_udp(fd: RawFd) -> io::Result<bool> {
    let is_internet = matches!(family(fd)?, libc::AF_INET | libc::AF_INET6);
    let protocol = get_option_int(fd, libc::SOL_SOCKET, platform::SO_PROTOCOL)?;
    Ok(is_internet && protocol == libc::IPPROTO_UDP)
}

/// True for a stream socket; all others preserve message boundaries. See socket(7), `SO_TYPE`.
pub fn is_stream(fd: RawFd) -> io::Result<bool> {
    get_option_int(fd, libc::SOL_SOCKET, libc::SO_TYPE).map(|kind| kind == libc::SOCK_STREAM)
}

/// True if a descriptor preserves message boundaries: a socket that is no stream, a packet pipe, a
/// device. Also true for a terminal, whose lines may be joined. See socket(7), `SO_TYPE`; pipe(2),
/// `O_DIRECT`.
pub fn keeps_messages(fd: RawFd) -> io::Result<bool> {
    Ok(match file::kind(fd)? {
        file::FileKind::Pipe => {
            let flags = check(platform::status_flags(fd))?;
            platform::O_DIRECT.is_some_and(|packets| flags & packets != 0)
        }
        file::FileKind::Socket => !is_stream(fd)?,
        file::FileKind::Device => true,
        file::FileKind::Memory | file::FileKind::Other => false,
    })
}

/// True if a socket is listening. See socket(7), `SO_ACCEPTCONN`.
pub fn is_listening(fd: RawFd) -> io::Result<bool> {
    get_option_int(fd, libc::SOL_SOCKET, libc::SO_ACCEPTCONN).map(|value| value != 0)
}

/// Sets what happens to unsent bytes at the close (`SO_LINGER`): `None` sends them in the
/// background, zero drops them and resets the connection; otherwise the close blocks for at most
/// this time, rounded up to seconds. See socket(7).
pub fn set_linger(fd: RawFd, linger: Option<Duration>) -> io::Result<()> {
    let seconds = linger.unwrap_or_default().as_millis().div_ceil(1000);
    let value = libc::linger {
        l_onoff: linger.is_some().into(),
        l_linger: libc::c_int::try_from(seconds).unwrap_or(libc::c_int::MAX),
    };
    let (at, len) = ((&raw const value).cast(), size_of::<libc::linger>());
    let len = len as libc::socklen_t;
    // SAFETY: S1.
    check(unsafe { libc::setsockopt(fd, libc::SOL_SOCKET, libc::SO_LINGER, at, len) })?;
    Ok(())
}

/// True if the process or the system lacks a resource for a connection: the next accept would fail
/// the same way. See accept(2), `EMFILE`, `ENFILE`, `ENOBUFS`, `ENOMEM`; and `epoll_ctl(2)`, `ENOSPC`.
pub fn is_exhaustion(error: &io::Error) -> bool {
    let short = [libc::EMFILE, libc::ENFILE, libc::ENOBUFS, libc::ENOMEM, libc::ENOSPC];
    error.raw_os_error().is_some_and(|errno| short.contains(&errno))
}

/// Creates two connected Unix sockets, non-blocking and close-on-exec; `kind` is `SOCK_STREAM`,
/// `SOCK_DGRAM` or `SOCK_SEQPACKET`. See socketpair(2).
///
/// # Errors
/// `EMFILE`, `ENFILE`.
pub fn pair(kind: i32) -> io::Result<(OwnedFd, OwnedFd)> {
    let mut ends = [0; 2];
    let kind = kind | platform::SOCK_NONBLOCK | platform::SOCK_CLOEXEC;
    // SAFETY: S1: room for two descriptors.
    check(unsafe { platform::socketpair(libc::AF_UNIX, kind, 0, ends.as_mut_ptr()) })?;
    // SAFETY: S3.
    let one = unsafe { OwnedFd::from_raw_fd(ends[0]) };
    // SAFETY: S3.
    let other = unsafe { OwnedFd::from_raw_fd(ends[1]) };
    Ok((one, other))
}

/// Disables Nagle's algorithm (`TCP_NODELAY`).
pub fn set_nodelay(fd: RawFd, on: bool) -> io::Result<()> {
    set_option_int(fd, libc::IPPROTO_TCP, libc::TCP_NODELAY, on.into())
}

/// Lets a listener bind while old connections of the address linger (`SO_REUSEADDR`).
pub fn set_reuse_address(fd: RawFd, on: bool) -> io::Result<()> {
    set_option_int(fd, libc::SOL_SOCKET, libc::SO_REUSEADDR, on.into())
}

/// Lets several sockets of one user bind the same address; the kernel distributes connections over
/// them (`SO_REUSEPORT`).
pub fn set_reuse_port(fd: RawFd, on: bool) -> io::Result<()> {
    set_option_int(fd, libc::SOL_SOCKET, libc::SO_REUSEPORT, on.into())
}

/// Sets the program that selects the socket of a `SO_REUSEPORT` group for a datagram or a
/// connection: it returns the socket's index in the order of binding; with any other number the
/// kernel selects. See socket(7), `SO_ATTACH_REUSEPORT_CBPF` (Linux 4.5).
///
/// # Errors
/// `EINVAL` if the kernel refuses the program.
pub fn set_reuse_port_program(fd: RawFd, program: &[platform::sock_filter]) -> io::Result<()> {
    let program = platform::sock_fprog {
        len: u16::try_from(program.len()).map_err(|_| io::ErrorKind::InvalidInput)?,
        // The kernel copies it, and does not write to it.
        filter: program.as_ptr().cast_mut(),
    };
    let (at, len) = ((&raw const program).cast(), size_of::<platform::sock_fprog>());
    let (len, name) = (len as libc::socklen_t, platform::SO_ATTACH_REUSEPORT_CBPF);
    // SAFETY: S1: so is the program that it points at.
    check(unsafe { libc::setsockopt(fd, libc::SOL_SOCKET, name, at, len) })?;
    Ok(())
}

/// Makes an existing descriptor non-blocking or blocking.
pub fn set_nonblocking(fd: RawFd, on: bool) -> io::Result<()> {
    let mut value = libc::c_int::from(on);
    // SAFETY: S1.
    check(unsafe { libc::ioctl(fd, libc::FIONBIO, &raw mut value) })?;
    Ok(())
}

#[cfg(test)]
mod tests;
