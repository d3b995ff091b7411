//! Receiving by multishot operations into the loop's buffer pool; bulk data by single receives into a
//! large, warm buffer.
//!
//! Owns: [`Receive`], [`Datagrams`], [`Datagram`]. Called by: sockets' `receive()` and `datagrams()`.
//! Nothing is copied.
//!
//! ```text
//!            full buffers              the multishot receive is over
//!   Pool ────────────────▶ Leaving ────────────────────────────────▶ Large
//!    ▲                                                                 │
//!    └─────────────────────────────────────────────────────────────────┘
//!                      few bytes at a time, or no buffer
//! ```
//!
//! Byte path: from `driver` (a completion with a pool buffer) to the [`Received`] that the caller reads.

use super::socket::Socket;
use crate::buf::PoolKind;
use crate::buf::RecvBuf;
use crate::executor::{Local, Multi, Received};
use crate::limits;
use crate::op::{PollMulti, Recv, RecvMsgMulti, RecvMulti, Request};
use crate::sys::address::SockAddr;
use crate::sys::datagram::{Control, Message};
use crate::sys::interest::Interest;
use crate::sys::libc;
use std::future::{Future, poll_fn};
use std::io;
use std::task::Poll::Ready;
use std::task::{self, Context, ready};

/// The bytes of a stream, in order, in the loop's buffers.
///
/// Messages are received by a multishot receive into the pool that all streams share: no message
/// arms an operation, and an idle connection owns no buffer. A stream that fills the buffers
/// ([`limits::FULL_RECEIVES_MAX`]) changes to large ones ([`limits::LARGE_BUFFER_BYTES`]): it receives
/// into the buffer used last until the socket is drained, and then waits by a multishot poll. After
/// small receives ([`limits::SMALL_RECEIVES_MAX`]) it changes back.
///
/// At most `limits::UNTAKEN_RECEIVES_MAX` buffers are queued here; then receiving stops, and the
/// window blocks the peer. If every large buffer is in use ([`limits::LARGE_BUFFERS`]), it changes
/// to the pool. Queued bytes occupy no buffer that others need: they move to memory of their own.
/// Dropping it loses the queued bytes. See recv(2), multishot since kernel 6.0.
#[derive(Debug)]
#[must_use = "nothing is received until next() is awaited"]
pub struct Receive<'a> {
    socket: &'a Socket,
    pool: PoolKind,
    way: Way,
    is_over: bool,
    /// Receives in a row that suggest the other mode.
    streak: u32,
}

/// Mode of receiving.
#[derive(Debug)]
enum Way {
    /// By a multishot receive, into buffers of a pool.
    Pool(Multi),
    /// As `Pool`, being cancelled for the other mode.
    Leaving {
        multi: Multi,
        /// [`Socket::cancels`] at that time: a later cancel is the user's.
        cancels: u32,
    },
    /// Into a large buffer until the socket is drained, then after a poll.
    Large { word: Multi, is_drained: bool },
}

type Item = Option<io::Result<Received>>;

impl<'a> Receive<'a> {
    pub(super) fn new(socket: &'a Socket) -> Self {
        Self {
            socket,
            pool: PoolKind::Streams,
            way: Way::Pool(Multi::default()),
            is_over: false,
            streak: 0,
        }
    }

    /// Lets the kernel fill several buffers per completion (Linux 6.10); [`Receive::next`] returns
    /// them one by one, in order. Older kernels fill one.
    ///
    /// Buffers of [`limits::BUNDLE_POOL_BUFFER_BYTES`], of a pool of their own; at most
    /// [`limits::UNTAKEN_BUNDLED_MAX`] are queued before receiving stops. Call it before the first
    /// `next`. See docs/decisions/0008 in the repository, and `io_uring_prep_recv_multishot(3)`,
    /// `IORING_RECVSEND_BUNDLE`.
    pub fn bundled(self) -> Self {
        Self { pool: PoolKind::Bundles, ..self }
    }

    /// Lets the kernel append to large buffers that such streams of the loop share (Linux 6.15): a
    /// receive may be as long as a buffer, and a short one uses its own length only.
    ///
    /// Buffers of [`limits::PIECE_POOL_BUFFER_BYTES`]; at most [`limits::UNTAKEN_PIECES_MAX`]
    /// pieces are queued before receiving stops. A piece keeps its whole buffer. Call it before the
    /// first `next`. See docs/decisions/0008 in the repository, and
    /// `io_uring_register_buf_ring(3)`, `IOU_PBUF_RING_INC`.
    pub fn incremental(self) -> Self {
        Self { pool: PoolKind::Pieces, ..self }
    }

    /// Returns the next bytes, at least one; `None` after the end of the stream or an error.
    ///
    /// # Errors
    /// `ECONNRESET` and those of recv(2).
    ///
    /// # Cancel safety
    /// Cancel safe: the next call returns the bytes.
    // Not an iterator: it waits.
    #[allow(clippy::should_implement_trait)]
    pub fn next(&mut self) -> impl Future<Output = Option<io::Result<Received>>> {
        poll_fn(|cx| self.poll_next(cx))
    }

    /// [`Receive::next`] as a poll function.
    pub fn poll_next(&mut self, cx: &mut Context<'_>) -> task::Poll<Item> {
        if self.is_over {
            return Ready(None);
        }
        match &self.way {
            Way::Large { .. } => self.poll_large(cx),
            Way::Pool(_) | Way::Leaving { .. } => self.poll_pool(cx),
        }
    }

    /// The end of the stream, or its error.
    fn end(&mut self, error: Option<io::Error>) -> task::Poll<Item> {
        self.is_over = true;
        Ready(error.map(Err))
    }

    fn poll_pool(&mut self, cx: &mut Context<'_>) -> task::Poll<Item> {
        let (multi, left_at) = match &mut self.way {
            Way::Pool(multi) => (multi, None),
            Way::Leaving { multi, cancels } => (multi, Some(*cancels)),
            Way::Large { .. } => return self.poll_large(cx),
        };
        if multi.is_idle() {
            if left_at.is_some() {
                return self.enter_large(cx);
            }
            let local = Local::current();
            self.pool = local.engine().driver_mut().receive_pool(self.pool);
        }
        let (fd, pool) = (self.socket.on_loop(), self.pool);
        let request = || Request::RecvMulti(RecvMulti::into_pool(fd, pool));
        let arrival = ready!(multi.poll_next(cx, request));
        let Some(bytes) = arrival.buffer else {
            return match arrival.result() {
                Ok(_) => self.end(None),
                Err(error) if is_cancelled(&error) && left_at == Some(self.socket.cancels()) => {
                    self.enter_large(cx)
                }
                Err(error) => self.end(Some(error)),
            };
        };
        self.weigh(bytes.len());
        Ready(Some(Ok(bytes)))
    }

    /// Result of a receive into the pool.
    fn weigh(&mut self, len: usize) {
        let Way::Pool(multi) = &mut self.way else {
            return;
        };
        if self.pool != PoolKind::Streams || len < limits::POOL_BUFFER_BYTES as usize {
            self.streak = 0;
            return;
        }
        self.streak += 1;
        if self.streak == limits::FULL_RECEIVES_MAX {
            let multi = std::mem::take(multi);
            multi.stop();
            let cancels = self.socket.cancels();
            self.way = Way::Leaving { multi, cancels };
        }
    }

    fn enter_large(&mut self, cx: &mut Context<'_>) -> task::Poll<Item> {
        self.streak = 0;
        self.way = Way::Large { word: Multi::default(), is_drained: false };
        self.poll_large(cx)
    }

    fn leave_large(&mut self) {
        self.streak = 0;
        self.way = Way::Pool(Multi::default());
    }

    fn poll_large(&mut self, cx: &mut Context<'_>) -> task::Poll<Item> {
        let local = Local::current();
        let fd = self.socket.on(&local);
        loop {
            let Way::Large { word, is_drained } = &mut self.way else {
                return self.end(None);
            };
            if *is_drained {
                let interest = Interest::READ;
                let request = || Request::PollMulti(PollMulti { fd, interest });
                if let Err(error) = ready!(word.poll_next(cx, request)).result() {
                    return self.end(Some(error));
                }
            }
            *is_drained = false;
            if !Local::spend_budget() {
                return Local::next_turn(cx);
            }
            let Some(buffer) = local.large_buffer() else {
                self.leave_large();
                return self.poll_pool(cx);
            };
            let room = RecvBuf::append(buffer, limits::LARGE_BUFFER_BYTES);
            let (received, buffer) = Recv::now(fd, room);
            match received {
                Ok(0) => {
                    local.keep_large(buffer);
                    return self.end(None);
                }
                Ok(count) => {
                    let is_small = count < limits::POOL_BUFFER_BYTES as usize;
                    self.streak = if is_small { self.streak + 1 } else { 0 };
                    if self.streak == limits::SMALL_RECEIVES_MAX {
                        self.leave_large();
                    }
                    return Ready(Some(Ok(Received::large(&local, buffer))));
                }
                Err(error) => {
                    local.keep_large(buffer);
                    match error.kind() {
                        io::ErrorKind::WouldBlock => *is_drained = true,
                        io::ErrorKind::Interrupted => {}
                        _ => return self.end(Some(error)),
                    }
                }
            }
        }
    }
}

fn is_cancelled(error: &io::Error) -> bool {
    error.raw_os_error() == Some(libc::ECANCELED)
}

/// The datagrams of a socket, in order of arrival, in the loop's datagram buffers.
///
/// At most `limits::UNTAKEN_DATAGRAMS_MAX` are queued here (on epoll a batch more); then they stay
/// in the socket's queue, and the kernel drops further ones once that is full. See recvmsg(2),
/// multishot since kernel 6.0; recvmmsg(2).
#[derive(Debug)]
#[must_use = "nothing is received until next() is awaited"]
pub struct Datagrams<'a> {
    socket: &'a Socket,
    control: Control,
    multi: Multi,
}

impl<'a> Datagrams<'a> {
    pub(super) fn new(socket: &'a Socket, control: Control) -> Self {
        Self { socket, control, multi: Multi::default() }
    }

    /// Returns the next datagram, or GRO batch if the socket receives them.
    ///
    /// # Errors
    /// Those of recvmsg(2), such as `ECONNREFUSED` for an earlier send; the next call goes on.
    ///
    /// # Cancel safety
    /// Cancel safe: the next call returns the datagram.
    pub async fn next(&mut self) -> io::Result<Datagram> {
        poll_fn(|cx| self.poll_next(cx)).await
    }

    /// [`Datagrams::next`] as a poll function.
    pub fn poll_next(&mut self, cx: &mut Context<'_>) -> task::Poll<io::Result<Datagram>> {
        let (socket, control) = (self.socket, self.control);
        let request = || Request::RecvMsgMulti(RecvMsgMulti::new(socket.on_loop(), control));
        let arrival = ready!(self.multi.poll_next(cx, request));
        Ready(match (arrival.result(), arrival.buffer) {
            (Ok(_), Some(received)) => Datagram::parse(received),
            (Ok(_), None) => Err(io::ErrorKind::InvalidData.into()),
            (Err(error), _) => Err(error),
        })
    }
}

/// A received datagram, or a GRO batch of one sender, in a pool buffer.
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

    /// The sender's address.
    pub fn source(&self) -> SockAddr {
        self.message().source
    }

    /// The payload; of a batch, of all its datagrams.
    pub fn payload(&self) -> &[u8] {
        self.message().payload
    }

    /// Each datagram of a batch.
    pub fn segments(&self) -> impl Iterator<Item = &[u8]> {
        self.message().datagrams()
    }
}
