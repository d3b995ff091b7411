//! A socket on a loop: what TCP, UDP and Unix sockets share.
//!
//! Owns: [`Socket`], a descriptor that its driver releases before it is closed. Called by: the socket
//! types of this folder. No call blocks.

use crate::buf::{Outgoing, RecvBuf, SendBuf};
use crate::executor::{Local, LoopFd, Op, SendZeroCopy, ZeroCopyBufs};
use crate::limits;
use crate::op::{self, Recv, Request, Send, SendDatagram, SendMsg, SendMsgZc, SendZc};
use crate::sys::address::SockAddr;
use crate::sys::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use crate::sys::libc;
use crate::sys::socket;
use std::cell::Cell;
use std::io;

/// A socket that its driver releases before it is closed.
#[derive(Debug)]
pub struct Socket {
    fd: LoopFd,
    /// The last receive drained the socket: the next one polls first.
    is_drained: Cell<bool>,
    /// Number of calls of [`Socket::cancel`].
    cancel_count: Cell<u32>,
}

impl Socket {
    /// A new socket with the domain and type of socket(2).
    pub fn open(domain: i32, kind: i32) -> io::Result<Self> {
        Ok(socket::socket(domain, kind, 0)?.into())
    }

    /// The descriptor, for use on the current loop.
    pub fn on_loop(&self) -> RawFd {
        Local::with_current(|local| self.on(local))
    }

    /// The descriptor, for use on `local`.
    #[inline]
    pub fn on(&self, local: &Local) -> RawFd {
        self.fd.on(local)
    }

    /// See [`LoopFd::lend`].
    pub fn lend_fd(&self) -> BorrowedFd<'_> {
        self.fd.lend()
    }

    /// Releases the descriptor from its loop.
    pub fn into_fd(self) -> OwnedFd {
        self.fd.into_fd()
    }

    /// Receives up to the capacity of `buf`.
    pub async fn recv(&self, buf: Vec<u8>) -> (io::Result<usize>, Vec<u8>) {
        let room = buf.capacity();
        let (result, buf) = self.recv_next(RecvBuf::from(buf)).await;
        self.note_drained(&result, room);
        (result, buf.into_vec())
    }

    /// Receives up to the room of `buf`.
    pub async fn recv_buf(&self, mut buf: RecvBuf) -> (io::Result<usize>, RecvBuf) {
        let (_, room) = buf.as_mut_ptr();
        let (result, buf) = self.recv_next(buf).await;
        self.note_drained(&result, room);
        (result, buf)
    }

    /// The next receive: it polls first if the last one drained the socket.
    fn recv_next(&self, buf: RecvBuf) -> Op<Recv> {
        let recv = Recv { fd: self.on_loop(), buf };
        if self.is_drained.take() { Op::poll_first(recv) } else { Op::new(recv) }
    }

    fn note_drained(&self, result: &io::Result<usize>, room: usize) {
        self.is_drained.set(matches!(*result, Ok(count) if count > 0 && count < room));
    }

    /// A receive into the room of `buf`.
    pub fn recv_op(&self, buf: RecvBuf) -> Op<Recv> {
        Op::new(Recv { fd: self.on_loop(), buf })
    }

    /// Sends some of `bytes`.
    pub async fn send<B: Outgoing>(&self, bytes: B) -> (io::Result<usize>, B) {
        let (buf, kept) = bytes.lend();
        let (result, buf) = Op::new(Send { fd: self.on_loop(), buf }).await;
        (result, B::restore(kept, buf))
    }

    /// Sends one datagram, to the peer or to `to`; returns its length.
    pub async fn send_datagram(
        &self,
        bytes: Vec<u8>,
        to: Option<SockAddr>,
    ) -> (io::Result<usize>, Vec<u8>) {
        let (fd, buf) = (self.on_loop(), SendBuf::from(bytes));
        let (result, buf) = Op::new(match to {
            Some(to) => SendDatagram::to(fd, buf, to),
            None => SendDatagram::new(fd, buf),
        })
        .await;
        (result, buf.into_vec().unwrap_or_default())
    }

    /// Sends some of `bufs`, in order.
    pub async fn send_vectored(&self, bufs: Vec<Vec<u8>>) -> (io::Result<usize>, Vec<Vec<u8>>) {
        let bufs = bufs.into_iter().map(SendBuf::from).collect();
        let (result, bufs) = Op::new(SendMsg::new(self.on_loop(), bufs)).await;
        (result, into_vecs(bufs))
    }

    /// Sends all of `bufs`, in order.
    pub async fn send_all_vectored(&self, bufs: Vec<Vec<u8>>) -> (io::Result<()>, Vec<Vec<u8>>) {
        let mut bufs: Vec<SendBuf> = bufs.into_iter().map(SendBuf::from).collect();
        // Buffers that are sent, kept for the caller.
        let mut sent_bufs = Vec::with_capacity(bufs.len());
        loop {
            let done = bufs.iter().take_while(|buf| buf.is_empty()).count();
            sent_bufs.extend(bufs.drain(..done));
            if bufs.is_empty() {
                return (Ok(()), into_vecs(sent_bufs));
            }
            let (result, back) = Op::new(SendMsg::new(self.on_loop(), bufs)).await;
            bufs = back;
            match result {
                Ok(count) => advance(&mut bufs, count),
                Err(error) => {
                    sent_bufs.append(&mut bufs);
                    return (Err(error), into_vecs(sent_bufs));
                }
            }
        }
    }

    /// Sends some of `bufs` without copying, or by a plain send if that is not possible.
    pub async fn send_zero_copy(
        &self,
        mut bufs: Vec<SendBuf>,
    ) -> (io::Result<usize>, ZeroCopyBufs) {
        let fd = self.on_loop();
        if SendZeroCopy::is_possible() {
            let request = match bufs.len() {
                1 => Request::SendZc(SendZc::new(Send { fd, buf: bufs.remove(0) })),
                _ => Request::SendMsgZc(SendMsgZc::new(SendMsg::new(fd, bufs))),
            };
            let (result, back) = SendZeroCopy::new(request).await;
            match result {
                // Nothing was sent: unsupported by this socket (Unix), or the locked-memory limit is reached.
                Err(error) if needs_copy(&error) => bufs = back.await.bufs,
                result => return (result, back),
            }
        }
        let (result, bufs) = Op::new(SendMsg::new(self.on_loop(), bufs)).await;
        let over = Request::SendMsg(SendMsg::new(fd, bufs));
        (result, ZeroCopyBufs::back(over))
    }

    /// Sends all of `bytes` without copying, and waits until the network has released them. Small
    /// ones are copied.
    pub async fn send_all_zero_copy(&self, bytes: Vec<u8>) -> (io::Result<()>, Vec<u8>) {
        if bytes.len() < limits::ZERO_COPY_BYTES_MIN {
            return self.send_all(bytes).await;
        }
        let mut buf = SendBuf::from(bytes);
        let mut sent = Ok(());
        while !buf.is_empty() && sent.is_ok() {
            let (result, back) = self.send_zero_copy(vec![buf]).await;
            buf = back.await.bufs.pop().unwrap_or_else(|| Vec::new().into());
            sent = result.map(|count| buf.advance(count));
        }
        (sent, buf.into_vec().unwrap_or_default())
    }

    /// Cancels every operation in flight on this socket; returns their count.
    pub fn cancel(&self) -> usize {
        self.cancel_count.update(|count| count.wrapping_add(1));
        self.fd.cancel()
    }

    /// Number of cancels by the user, of this socket or of its whole loop; a receive that is being
    /// cancelled for a change of mode compares it.
    pub fn cancels(&self) -> u32 {
        Local::with_current(|local| self.cancels_on(local))
    }

    /// As [`Socket::cancels`], on `local`, the current loop.
    #[inline]
    pub fn cancels_on(&self, local: &Local) -> u32 {
        self.cancel_count.get().wrapping_add(local.cancels())
    }

    /// Receives without removing the bytes from the socket.
    pub async fn peek(&self, buf: Vec<u8>) -> (io::Result<usize>, Vec<u8>) {
        let peek = op::Peek { fd: self.on_loop(), buf: RecvBuf::from(buf) };
        let (result, buf) = Op::new(peek).await;
        (result, buf.into_vec())
    }
}

fn needs_copy(error: &io::Error) -> bool {
    // `EAGAIN`, `EINTR`: the kernel has stopped waiting for room; a plain send waits again.
    let refusals = [libc::EOPNOTSUPP, libc::ENOMEM, libc::ENOBUFS, libc::EAGAIN, libc::EINTR];
    error.raw_os_error().is_some_and(|errno| refusals.contains(&errno))
}

/// Drops the first `count` bytes of several buffers.
fn advance(bufs: &mut [SendBuf], mut count: usize) {
    for buf in bufs {
        let own = count.min(buf.len());
        buf.advance(own);
        count -= own;
    }
}

fn into_vecs(bufs: Vec<SendBuf>) -> Vec<Vec<u8>> {
    let vecs = bufs.into_iter().map(SendBuf::into_vec);
    vecs.map(Option::unwrap_or_default).collect()
}

impl From<OwnedFd> for Socket {
    fn from(fd: OwnedFd) -> Self {
        Self { fd: fd.into(), is_drained: Cell::new(false), cancel_count: Cell::new(0) }
    }
}

impl AsRawFd for Socket {
    #[inline]
    fn as_raw_fd(&self) -> RawFd {
        self.fd.as_raw_fd()
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}
