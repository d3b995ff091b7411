//! Several buffers as one: preadv2(2), pwritev2(2), sendmsg(2), the ring's `READV`, `WRITEV` (5.1) and
//! `SENDMSG` (5.3).
//!
//! Readiness form: a send when the socket is writable; a read at once if the bytes are cached
//! (`RWF_NOWAIT`); otherwise on a pool thread.
//!
//! The buffers and the vector are boxed together, so that the kernel's pointers stay valid while the
//! request moves.

use super::operation::{NO_FD, Need, Operation, counted};
use crate::buf::{RecvBuf, SendBuf};
use crate::limits::{CACHED_READ_BYTES, FILE_VECTOR_MAX, SEND_VECTOR_MAX};
use crate::sys::address::SockAddr;
use crate::sys::fd::RawFd;
use crate::sys::interest::Interest;
use crate::sys::libc;
use crate::sys::platform;
use crate::sys::socket::{self, empty_message};
use crate::sys::storage::{self, Wait};
use crate::sys::uring::abi::{self, Sqe};
use std::io;

/// A buffer that a vector can name.
trait Piece {
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
struct Vector<B> {
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

/// Fills the buffers in order. The result is the number of bytes in all of them; 0 at the end of
/// the file.
#[derive(Debug)]
pub struct ReadV {
    fd: RawFd,
    offset: u64,
    vector: Vector<RecvBuf>,
}

impl ReadV {
    /// Reads at `offset` bytes from the start, or at [`storage::CURRENT_POSITION`]; buffers past
    /// `IOV_MAX` stay empty.
    pub fn new(fd: RawFd, bufs: Vec<RecvBuf>, offset: u64) -> Self {
        let vector = Vector::new(bufs);
        Self { fd, offset, vector }
    }

    /// The buffers, each with what was read into it.
    pub fn into_bufs(self) -> Vec<RecvBuf> {
        self.vector.into_bufs()
    }

    fn read(&mut self, wait: Wait) -> io::Result<u32> {
        let (fd, offset) = (self.fd, self.offset);
        self.vector.read(fd, offset, wait).map(|count| count as u32)
    }
}

impl Operation for ReadV {
    const EXPOSES_MEMORY: bool = true;

    fn prepare(&mut self, sqe: &mut Sqe) {
        self.vector.prepare(abi::IORING_OP_READV, self.fd, self.offset, sqe);
    }

    fn need(&self) -> Need {
        Need::Pool([self.fd, NO_FD])
    }

    fn attempt(&mut self) -> io::Result<u32> {
        let asked = self.vector.len();
        if asked > CACHED_READ_BYTES || self.offset == storage::CURRENT_POSITION {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        match self.read(Wait::Never) {
            Ok(count) if count as usize == asked => Ok(count),
            // A short read may be all there is; the pool thread finds out.
            Ok(_) => Err(io::ErrorKind::WouldBlock.into()),
            Err(error) if error.raw_os_error() == Some(libc::EOPNOTSUPP) => {
                Err(io::ErrorKind::WouldBlock.into())
            }
            Err(error) => Err(error),
        }
    }

    fn work(&mut self) -> io::Result<u32> {
        self.read(Wait::Disk)
    }

    fn finish(&mut self, result: i32) -> i32 {
        let mut left = result.max(0) as usize;
        for buf in self.vector.bufs_mut() {
            let (_, capacity) = buf.as_mut_ptr();
            let count = left.min(capacity);
            buf.finish(count as i32);
            left -= count;
        }
        result
    }

    fn breaks_link(&mut self, result: i32) -> bool {
        usize::try_from(result) != Ok(self.vector.len())
    }
}

counted!(ReadV, Vec<RecvBuf>, ReadV::into_bufs);

/// Writes the buffers in order. The result is the number of bytes written, possibly not all.
#[derive(Debug)]
pub struct WriteV {
    fd: RawFd,
    offset: u64,
    vector: Vector<SendBuf>,
}

impl WriteV {
    /// Writes at `offset` bytes from the start, or at
    /// [`storage::CURRENT_POSITION`]; buffers past `IOV_MAX` stay
    /// unwritten.
    pub fn new(fd: RawFd, bufs: Vec<SendBuf>, offset: u64) -> Self {
        let vector = Vector::new(bufs);
        Self { fd, offset, vector }
    }

    /// The buffers that were written.
    pub fn into_bufs(self) -> Vec<SendBuf> {
        self.vector.into_bufs()
    }
}

impl Operation for WriteV {
    const EXPOSES_MEMORY: bool = true;

    fn prepare(&mut self, sqe: &mut Sqe) {
        self.vector.prepare(abi::IORING_OP_WRITEV, self.fd, self.offset, sqe);
    }

    fn need(&self) -> Need {
        Need::Pool([self.fd, NO_FD])
    }

    fn work(&mut self) -> io::Result<u32> {
        let (fd, offset) = (self.fd, self.offset);
        self.vector.write(fd, offset).map(|count| count as u32)
    }

    fn breaks_link(&mut self, result: i32) -> bool {
        usize::try_from(result) != Ok(self.vector.len())
    }
}

counted!(WriteV, Vec<SendBuf>, WriteV::into_bufs);

/// Sends several buffers in one call: sendmsg(2), without SIGPIPE. The result is the number of bytes
/// sent, possibly not all. For datagrams use [`super::SendDatagram`].
#[derive(Debug)]
pub struct SendMsg {
    fd: RawFd,
    // Boxed so that a request stays small; the header points at the iovec next to it.
    parts: Box<Message>,
}

#[derive(Debug)]
struct Message {
    bufs: Vec<SendBuf>,
    to: Option<SockAddr>,
    iovecs: Vec<libc::iovec>,
    header: libc::msghdr,
}

impl SendMsg {
    /// Sends `bufs` in order; buffers past `IOV_MAX` stay unsent.
    pub fn new(fd: RawFd, bufs: Vec<SendBuf>) -> Self {
        Self::with(fd, bufs, None)
    }

    /// Sends `bufs` as one datagram to `to`.
    pub(super) fn to(fd: RawFd, bufs: Vec<SendBuf>, to: SockAddr) -> Self {
        Self::with(fd, bufs, Some(to))
    }

    fn with(fd: RawFd, bufs: Vec<SendBuf>, to: Option<SockAddr>) -> Self {
        let header = empty_message();
        Self { fd, parts: Box::new(Message { bufs, to, iovecs: Vec::new(), header }) }
    }

    /// The buffers that were sent.
    pub fn into_bufs(self) -> Vec<SendBuf> {
        self.parts.bufs
    }

    pub(super) fn fd(&self) -> RawFd {
        self.fd
    }

    fn header(&mut self) -> *const libc::msghdr {
        let parts = &mut *self.parts;
        parts.iovecs.clear();
        parts.iovecs.extend(parts.bufs.iter().take(SEND_VECTOR_MAX).map(|buf| {
            let bytes = buf.as_slice();
            libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() }
        }));
        if let Some(to) = &parts.to {
            parts.header.msg_name = to.as_ptr().cast_mut().cast();
            parts.header.msg_namelen = to.len();
        }
        parts.header.msg_iov = parts.iovecs.as_mut_ptr();
        parts.header.msg_iovlen = parts.iovecs.len() as _;
        &raw const parts.header
    }
}

impl Operation for SendMsg {
    const EXPOSES_MEMORY: bool = true;

    fn prepare(&mut self, sqe: &mut Sqe) {
        sqe.opcode = abi::IORING_OP_SENDMSG;
        sqe.fd = self.fd;
        sqe.addr = self.header() as u64;
        sqe.len = 1;
        sqe.op_flags = (platform::MSG_NOSIGNAL | libc::MSG_WAITALL) as u32;
    }

    fn need(&self) -> Need {
        Need::Ready(self.fd, Interest::WRITE)
    }

    fn attempt(&mut self) -> io::Result<u32> {
        let header = self.header();
        // SAFETY: S1 of `sys/socket.rs`: all that the header names is owned by `self`.
        let sent = unsafe { socket::sendmsg(self.fd, header, libc::MSG_DONTWAIT) };
        sent.map(|count| count as u32)
    }

    fn breaks_link(&mut self, result: i32) -> bool {
        let parts = &*self.parts;
        let asked: usize = parts.bufs.iter().map(SendBuf::len).sum();
        usize::try_from(result) != Ok(asked)
    }
}

counted!(SendMsg, Vec<SendBuf>, SendMsg::into_bufs);
