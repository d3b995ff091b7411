//! Several buffers as one: the buffers of a vectored file operation.
//!
//! Owns: the buffers, and the vector that names them. Called by: `readv`, `writev`.
//!
//! Boxed together, so that the kernel's pointers stay valid while the request moves.

use crate::buf::{RecvBuf, SendBuf};
use crate::limits::{FILE_VECTOR_MAX, SEND_VECTOR_MAX};
use crate::sys::address::SockAddr;
use crate::sys::socket::{self, empty_message};
use crate::sys::storage::{self, Wait};
use crate::sys::uring::abi::Sqe;
use std::io;
use std::os::fd::RawFd;

/// A buffer that a vector can name.
pub(super) trait Piece {
    /// Its address, and its length in bytes.
    fn piece(&mut self) -> (*mut u8, usize);
}

impl Piece for RecvBuf {
    fn piece(&mut self) -> (*mut u8, usize) {
        self.as_mut_ptr()
    }
}

impl Piece for SendBuf {
    fn piece(&mut self) -> (*mut u8, usize) {
        let (ptr, len) = self.as_ptr();
        (ptr.cast_mut(), len)
    }
}

/// Buffers in order; those past `IOV_MAX` are not named.
#[derive(Debug)]
pub(super) struct Vector<B> {
    parts: Box<Parts<B>>,
}

#[derive(Debug)]
struct Parts<B> {
    bufs: Vec<B>,
    iovecs: Vec<libc::iovec>,
}

impl<B: Piece> Vector<B> {
    pub fn new(bufs: Vec<B>) -> Self {
        let iovecs = Vec::new();
        Self { parts: Box::new(Parts { bufs, iovecs }) }
    }

    pub fn into_bufs(self) -> Vec<B> {
        self.parts.bufs
    }

    pub fn bufs_mut(&mut self) -> &mut [B] {
        &mut self.parts.bufs
    }

    /// The vector that the kernel reads.
    pub fn entries(&mut self) -> &[libc::iovec] {
        let Parts { bufs, iovecs } = &mut *self.parts;
        iovecs.clear();
        iovecs.extend(bufs.iter_mut().take(FILE_VECTOR_MAX).map(|buf| {
            let (ptr, iov_len) = buf.piece();
            libc::iovec { iov_base: ptr.cast(), iov_len }
        }));
        iovecs
    }

    /// Bytes in all named buffers.
    pub fn len(&mut self) -> usize {
        self.entries().iter().map(|entry| entry.iov_len).sum()
    }

    /// Fills what `READV` and `WRITEV` share.
    pub fn prepare(&mut self, opcode: u8, fd: RawFd, offset: u64, sqe: &mut Sqe) {
        sqe.opcode = opcode;
        sqe.fd = fd;
        sqe.off = offset;
        let entries = self.entries();
        sqe.addr = entries.as_ptr() as u64;
        sqe.len = entries.len() as u32;
    }
}

impl Vector<RecvBuf> {
    /// Reads into all of them.
    pub fn read(&mut self, fd: RawFd, offset: u64, wait: Wait) -> io::Result<usize> {
        let entries = self.entries();
        // SAFETY: T1 of `sys/storage.rs`: each entry is a buffer's own memory.
        unsafe { storage::read_vector(fd, entries, offset, wait) }
    }
}

impl Vector<SendBuf> {
    /// Writes all of them.
    pub fn write(&mut self, fd: RawFd, offset: u64) -> io::Result<usize> {
        let entries = self.entries();
        // SAFETY: T1 of `sys/storage.rs`: each entry is a buffer's own bytes, which do not change.
        unsafe { storage::write_vector(fd, entries, offset) }
    }
}

/// Names buffers to send in `iovecs`, up to `IOV_MAX`.
pub(super) fn name_all(bufs: &[SendBuf], iovecs: &mut Vec<libc::iovec>) {
    iovecs.clear();
    iovecs.extend(bufs.iter().take(SEND_VECTOR_MAX).map(|buf| {
        let bytes = buf.as_slice();
        libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() }
    }));
}

/// Sends buffers as one message, without waiting; `iovecs` is scratch memory.
pub(super) fn send_all_now(
    fd: RawFd,
    bufs: &[SendBuf],
    to: Option<&SockAddr>,
    iovecs: &mut Vec<libc::iovec>,
) -> io::Result<usize> {
    name_all(bufs, iovecs);
    let mut header = empty_message();
    if let Some(to) = to {
        header.msg_name = to.as_ptr().cast_mut().cast();
        header.msg_namelen = to.len();
    }
    header.msg_iov = iovecs.as_mut_ptr();
    header.msg_iovlen = iovecs.len() as _;
    // SAFETY: S1 of `sys/socket.rs`: all that the header names is borrowed for the call.
    unsafe { socket::sendmsg(fd, &raw const header, libc::MSG_DONTWAIT) }
}
