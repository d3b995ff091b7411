//! Bytes and datagrams as they come: one multishot receive for all of them, into buffers of the loop's pool.
//!
//! Owns: [`Receive`], [`Datagrams`], [`Datagram`]. Called by: sockets' `receive()` and `datagrams()`.
//! Never does: copy, or hold a buffer that was handed out.
//!
//! Byte path: from `driver` (a completion with a pool buffer) to the [`Received`] that the caller reads.

use super::socket::Socket;
use crate::driver::PoolKind;
use crate::executor::{Arrival, Local, Multi, Received};
#[cfg(doc)]
use crate::limits;
use crate::op::{RecvMsgMulti, RecvMulti, Request};
use crate::sys::address::SockAddr;
use crate::sys::datagram::{Control, Message};
use std::future::poll_fn;
use std::io;
use std::task::{Context, Poll, ready};

/// The bytes of a stream, in order, in buffers of the loop's pool.
///
/// Bounded: at most `limits::UNTAKEN_RECEIVES_MAX` buffers wait here; then receiving stops until they are
/// taken, and the peer is held up by its window. Where every buffer of the pool is held, it waits for one.
/// Dropping it loses the bytes that were received and not taken.
/// Source: recv(2), multishot since kernel 6.0.
#[derive(Debug)]
#[must_use = "nothing is received until the next bytes are asked for"]
pub struct Receive<'a> {
    socket: &'a Socket,
    pool: PoolKind,
    multi: Multi,
    is_over: bool,
}

impl<'a> Receive<'a> {
    pub(super) fn new(socket: &'a Socket) -> Self {
        Self {
            socket,
            pool: PoolKind::Streams,
            multi: Multi::default(),
            is_over: false,
        }
    }

    /// Have the kernel fill several buffers at a time, and say so by one completion, where it can (Linux
    /// 6.10); [`Receive::next`] yields them one by one, in order. The bytes are the same either way.
    ///
    /// Shape: buffers of [`limits::BUNDLE_POOL_BUFFER_BYTES`], of a pool of their own; at most
    /// [`limits::UNTAKEN_BUNDLED_MAX`] wait here before receiving stops. To be asked for before the first
    /// bytes are.
    /// Cost: see docs/decisions/0008 in the repository.
    /// Source: `io_uring_prep_recv_multishot(3)`, `IORING_RECVSEND_BUNDLE`.
    pub fn bundled(self) -> Self {
        Self {
            pool: PoolKind::Bundles,
            ..self
        }
    }

    /// Have the kernel put what it receives behind what it has received, in large buffers that all such streams
    /// of the loop share, where it can (Linux 6.15): so one receive may be as long as a buffer, and a short one
    /// takes no more than its own length. The bytes are the same either way.
    ///
    /// Shape: buffers of [`limits::PIECE_POOL_BUFFER_BYTES`]; at most [`limits::UNTAKEN_PIECES_MAX`] pieces
    /// wait here before receiving stops. Who holds a piece holds its buffer. To be asked for before the first
    /// bytes are.
    /// Cost: see docs/decisions/0008 in the repository.
    /// Source: `io_uring_register_buf_ring(3)`, `IOU_PBUF_RING_INC`.
    pub fn incremental(self) -> Self {
        Self {
            pool: PoolKind::Pieces,
            ..self
        }
    }

    /// Take the next bytes, at least one; `None` after the end of the stream and after an error.
    ///
    /// Errors: `ECONNRESET` and those of recv(2).
    /// Cancel safety: safe; bytes that came meanwhile are the next call's.
    pub async fn next(&mut self) -> Option<io::Result<Received>> {
        poll_fn(|cx| self.poll_next(cx)).await
    }

    /// [`Receive::next`] as a poll function, for streams of one's own.
    pub fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<io::Result<Received>>> {
        if self.is_over {
            return Poll::Ready(None);
        }
        let socket = self.socket;
        if self.multi.is_idle() {
            let local = Local::current();
            self.pool = local.engine().driver_mut().receive_pool(self.pool);
        }
        let pool = self.pool;
        let request = || Request::RecvMulti(RecvMulti::into_pool(socket.on_loop(), pool));
        let Arrival { result, buffer, .. } = ready!(self.multi.poll_next(cx, request));
        let item = match (result, buffer) {
            (Ok(_), Some(bytes)) => return Poll::Ready(Some(Ok(bytes))),
            (Ok(_), None) => None,
            (Err(error), _) => Some(Err(error)),
        };
        self.is_over = true;
        Poll::Ready(item)
    }
}

/// The datagrams of a socket, in order of arrival, in buffers of the loop's pool for datagrams.
///
/// Bounded: at most `limits::UNTAKEN_DATAGRAMS_MAX` wait here (on epoll a batch more); then they wait in the
/// socket's queue, and are dropped by the kernel once that is full, as datagrams are.
/// Source: recvmsg(2), multishot since kernel 6.0; recvmmsg(2).
#[derive(Debug)]
#[must_use = "nothing is received until the next datagram is asked for"]
pub struct Datagrams<'a> {
    socket: &'a Socket,
    control: Control,
    multi: Multi,
}

impl<'a> Datagrams<'a> {
    pub(super) fn new(socket: &'a Socket, control: Control) -> Self {
        Self {
            socket,
            control,
            multi: Multi::default(),
        }
    }

    /// Take the next datagram, or train of them where the socket receives trains.
    ///
    /// Errors: those of recvmsg(2), such as `ECONNREFUSED` for an earlier send; the next call goes on.
    /// Cancel safety: safe; what came meanwhile is the next call's.
    pub async fn next(&mut self) -> io::Result<Datagram> {
        poll_fn(|cx| self.poll_next(cx)).await
    }

    /// [`Datagrams::next`] as a poll function, for streams of one's own.
    pub fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<Datagram>> {
        let (socket, control) = (self.socket, self.control);
        let request = || Request::RecvMsgMulti(RecvMsgMulti::new(socket.on_loop(), control));
        let Arrival { result, buffer, .. } = ready!(self.multi.poll_next(cx, request));
        Poll::Ready(match (result, buffer) {
            (Ok(_), Some(received)) => Datagram::parse(received),
            (Ok(_), None) => Err(io::ErrorKind::InvalidData.into()),
            (Err(error), _) => Err(error),
        })
    }
}

/// One received datagram, or a train of equal ones of one sender, in a buffer of the pool.
#[derive(Debug)]
pub struct Datagram {
    received: Received,
}

impl Datagram {
    fn parse(received: Received) -> io::Result<Self> {
        if Message::parse(&received).is_none() {
            return Err(io::ErrorKind::InvalidData.into());
        }
        Ok(Self { received })
    }

    /// Source address, payload and control data.
    pub fn message(&self) -> Message<'_> {
        Message::parse(&self.received).unwrap_or_default()
    }

    /// Where it came from.
    pub fn source(&self) -> SockAddr {
        self.message().source
    }

    /// The bytes; of a train, those of all its datagrams.
    pub fn payload(&self) -> &[u8] {
        self.message().payload
    }

    /// Each datagram of a train, or the one there is.
    pub fn segments(&self) -> impl Iterator<Item = &[u8]> {
        self.message().datagrams()
    }
}
