//! Bytes and datagrams as they come: one multishot receive for all of them, into buffers of the loop's pool; bytes that
//! come in bulk by one receive at a time, into a large buffer that is warm; short messages of prompt peers by one
//! receive each.
//!
//! Owns: [`Receive`], [`Datagrams`], [`Datagram`]. Called by: sockets' `receive()` and `datagrams()`.
//! Never does: copy, or hold a buffer that was handed out.
//!
//! ```text
//!                          the loop is busy, its peers prompt (`executor::pace`)
//!           ┌──────────────────────────────────────────────────────▶ Leaving ─▸ Single
//!   Pool ───┤                                                                     │ a long message, or not so any more
//!    ▲ ▲    └──────────────▶ Leaving ─▸ Large                                     │
//!    │ │   full buffers                   │ few bytes, or no buffer               │
//!    │ └──────────────────────────────────┘                                       │
//!    └────────────────────────────────────────────────────────────────────────────┘
//! ```
//!
//! Byte path: from `driver` (a completion with a pool buffer) to the [`Received`] that the caller reads.

use super::socket::Socket;
use crate::buf::RecvBuf;
use crate::driver::PoolKind;
use crate::executor::{
    Doubt, Holder, Local, Multi, Received, Shots, SingleSeat, Standing, Streaming,
};
use crate::limits;
use crate::op::{PollMulti, Recv, RecvMsgMulti, RecvMulti, Request};
use crate::sys::address::SockAddr;
use crate::sys::datagram::{Control, Message};
use crate::sys::interest::Interest;
use std::future::{Future, poll_fn};
use std::io;
use std::task::Poll::{Pending, Ready};
use std::task::{self, Context, ready};

/// The bytes of a stream, in order, in buffers of the loop's.
///
/// Small messages come by a multishot receive into the pool that all streams share: nothing is armed a message, and
/// an idle connection owns no buffer. A stream that fills them ([`limits::FULL_RECEIVES_MAX`]), with more behind or on a
/// processor whose cache does not hold a batch of full ones ([`crate::Options::cache_bytes`]), goes over to large ones
/// ([`limits::LARGE_BUFFER_BYTES`]): it receives into the one that was used last until no bytes are left, and then waits
/// for word of more, by one multishot poll; when they are few again, back. In a loop whose turns are long and whose peers
/// answer within one, messages are received one by one, each into a small or medium buffer of the stream's own, by
/// [`limits::SINGLE_STREAMS`] streams at most: their bytes are there when they are asked for.
/// Bounded: at most `limits::UNTAKEN_RECEIVES_MAX` buffers wait here; then receiving stops until they are
/// taken, and the peer is held up by its window. Where every large buffer is held ([`limits::LARGE_BUFFERS`]), it goes
/// back to the pool; where every buffer of that is held, it waits for one.
/// Dropping it loses the bytes that were received and not taken.
/// Source: recv(2), multishot since kernel 6.0.
#[derive(Debug)]
#[must_use = "nothing is received until the next bytes are asked for"]
pub struct Receive<'a> {
    socket: &'a Socket,
    pool: PoolKind,
    way: Way,
    is_over: bool,
    /// Receives in a row that speak for the other way.
    misfits: u32,
    /// Bytes of the last one.
    last_len: u32,
    /// There once the stream receives.
    streaming: Option<Streaming>,
}

/// How bytes are received.
#[derive(Debug)]
enum Way {
    /// By a multishot receive, into buffers of a pool.
    Pool(Multi),
    /// As before, and asked to stop for another way.
    Leaving {
        multi: Multi,
        next: Next,
        /// [`Socket::cancels`] when it was: a later one is the user's.
        cancels: u32,
    },
    /// Message by message, into a small buffer or a medium one.
    Single {
        receive: Standing<Recv>,
        /// Where its bytes will be.
        holder: Option<Box<Holder>>,
        /// The turn in which it was asked for.
        asked: u32,
        seat: SingleSeat,
    },
    /// Into a large buffer, until none are left; then once there is word of more.
    Large {
        word: Multi,
        is_drained: bool,
        doubt: Doubt,
    },
}

/// What a multishot receive is stopped for.
#[derive(Debug)]
enum Next {
    Large,
    Single(SingleSeat),
}

type Item = Option<io::Result<Received>>;

impl<'a> Receive<'a> {
    pub(super) fn new(socket: &'a Socket) -> Self {
        Self {
            socket,
            pool: PoolKind::Streams,
            way: Way::Pool(Multi::default()),
            is_over: false,
            misfits: 0,
            last_len: 0,
            streaming: None,
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
    // An iterator does not wait.
    #[allow(clippy::should_implement_trait)]
    pub fn next(&mut self) -> impl Future<Output = Option<io::Result<Received>>> {
        poll_fn(|cx| self.poll_next(cx))
    }

    /// [`Receive::next`] as a poll function, for streams of one's own.
    pub fn poll_next(&mut self, cx: &mut Context<'_>) -> task::Poll<Item> {
        if self.is_over {
            return Ready(None);
        }
        match &self.way {
            Way::Large { .. } => self.poll_large(cx),
            Way::Single { .. } => self.poll_single(cx),
            Way::Pool(_) | Way::Leaving { .. } => self.poll_pool(cx),
        }
    }

    /// The end of the stream, or what ended it.
    fn end(&mut self, error: Option<io::Error>) -> task::Poll<Item> {
        self.is_over = true;
        Ready(error.map(Err))
    }

    fn poll_pool(&mut self, cx: &mut Context<'_>) -> task::Poll<Item> {
        let (multi, is_leaving) = match &mut self.way {
            Way::Pool(multi) => (multi, false),
            Way::Leaving { multi, .. } => (multi, true),
            Way::Large { .. } | Way::Single { .. } => return self.end(None),
        };
        if multi.is_idle() {
            if is_leaving {
                return self.enter_next(cx);
            }
            let local = Local::current();
            self.pool = local.engine().driver_mut().receive_pool(self.pool);
            self.streaming.get_or_insert_with(|| local.count_stream());
        }
        let (fd, pool) = (self.socket.on_loop(), self.pool);
        let request = || Request::RecvMulti(RecvMulti::into_pool(fd, pool));
        let Ready(arrival) = multi.poll_next(cx, request) else {
            return self.reconsider(cx);
        };
        let Some(bytes) = arrival.buffer else {
            return match arrival.result() {
                Ok(_) => self.end(None),
                Err(error) if is_cancelled(&error) && self.is_by_us() => self.enter_next(cx),
                Err(error) => self.end(Some(error)),
            };
        };
        let bytes = if is_leaving {
            bytes.followed()
        } else if pool == PoolKind::Streams {
            self.weigh(bytes)
        } else {
            bytes
        };
        Ready(Some(Ok(bytes)))
    }

    /// Nothing has come by the multishot receive: perhaps single ones had better take its place.
    #[inline]
    fn reconsider(&mut self, cx: &mut Context<'_>) -> task::Poll<Item> {
        let Way::Pool(multi) = &mut self.way else {
            return Pending;
        };
        if self.pool != PoolKind::Streams || self.misfits > 0 {
            return Pending;
        }
        let len = self.last_len as usize;
        let seat = Local::with_current(|local| {
            let shots = local.engine().pace().shots();
            local.single_seat(shots.single_max(), len)
        });
        let Some(seat) = seat else {
            return Pending;
        };
        let multi = std::mem::take(multi);
        self.leave(multi, Next::Single(seat));
        self.poll_pool(cx)
    }

    /// Stop a multishot receive for another way.
    fn leave(&mut self, multi: Multi, next: Next) {
        multi.stop();
        self.way = Way::Leaving {
            multi,
            next,
            cancels: self.socket.cancels(),
        };
    }

    /// Whether the multishot receive was stopped for another way only.
    fn is_by_us(&self) -> bool {
        matches!(self.way, Way::Leaving { cancels, .. } if cancels == self.socket.cancels())
    }

    /// The multishot receive is over.
    fn enter_next(&mut self, cx: &mut Context<'_>) -> task::Poll<Item> {
        match std::mem::replace(&mut self.way, Way::Pool(Multi::default())) {
            Way::Leaving {
                next: Next::Single(seat),
                ..
            } => {
                self.socket.keep_sender();
                self.way = Way::Single {
                    receive: Standing::default(),
                    holder: None,
                    asked: 0,
                    seat,
                };
                self.poll_single(cx)
            }
            _ => self.enter_large(cx),
        }
    }

    fn poll_single(&mut self, cx: &mut Context<'_>) -> task::Poll<Item> {
        let Way::Single {
            receive,
            holder,
            asked,
            seat,
        } = &mut self.way
        else {
            return self.end(None);
        };
        if !receive.is_in_flight() {
            Local::with_current(|local| {
                let fd = self.socket.on(local);
                let (own, room) = if seat.is_long() {
                    (local.medium_holder(), limits::MEDIUM_BUFFER_BYTES)
                } else {
                    (local.small_holder(), limits::SMALL_BUFFER_BYTES)
                };
                let own = holder.insert(own);
                *asked = local.engine().pace().turn();
                receive.begin(local, cx.waker(), || Recv {
                    fd,
                    buf: RecvBuf::append(own.take_own(), room),
                });
            });
            return Pending;
        }
        let (received, bytes) = ready!(receive.poll(cx.waker(), |received, bytes| {
            let holder = holder.take();
            (
                received,
                holder.map(|holder| Received::single(holder, bytes)),
            )
        }));
        let (Ok(count), Some(bytes)) = (&received, bytes) else {
            return self.end(received.err());
        };
        if *count == 0 {
            return self.end(None);
        }
        self.last_len = *count as u32;
        let was_long = *count >= limits::SMALL_BUFFER_BYTES;
        let mut fits = !was_long;
        if seat.is_long() {
            self.misfits = if was_long { 0 } else { self.misfits + 1 };
            fits =
                *count < limits::MEDIUM_BUFFER_BYTES && self.misfits < limits::SMALL_RECEIVES_MAX;
        }
        let asked = *asked;
        let goes_on = Local::with_current(|local| {
            let mut engine = local.engine();
            engine.pace().note(asked);
            let may = engine.pace().shots() != Shots::Many;
            fits && may && (!seat.is_long() || local.may_be_single_and_long(*count))
        });
        if !goes_on {
            self.misfits = 0;
            self.way = Way::Pool(Multi::default());
        }
        Ready(Some(Ok(bytes)))
    }

    /// What a receive into the pool took.
    fn weigh(&mut self, bytes: Received) -> Received {
        self.last_len = bytes.len() as u32;
        if bytes.len() < limits::POOL_BUFFER_BYTES as usize {
            self.misfits = 0;
            return bytes;
        }
        let Way::Pool(multi) = &mut self.way else {
            return bytes;
        };
        // Else it may be just as long as a buffer, which goes well in batches that stay in the cache.
        if !multi.may_be_followed() && Local::current().keeps_batches_warm() {
            return bytes;
        }
        self.misfits += 1;
        if self.misfits == limits::FULL_RECEIVES_MAX {
            let multi = std::mem::take(multi);
            self.leave(multi, Next::Large);
        }
        bytes.followed()
    }

    fn enter_large(&mut self, cx: &mut Context<'_>) -> task::Poll<Item> {
        self.misfits = 0;
        self.way = Way::Large {
            word: Multi::default(),
            is_drained: false,
            doubt: Doubt::default(),
        };
        self.poll_large(cx)
    }

    fn leave_large(&mut self) {
        self.misfits = 0;
        self.way = Way::Pool(Multi::default());
    }

    fn poll_large(&mut self, cx: &mut Context<'_>) -> task::Poll<Item> {
        let local = Local::current();
        let fd = self.socket.on(&local);
        loop {
            let Way::Large {
                word,
                is_drained,
                doubt,
            } = &mut self.way
            else {
                return self.end(None);
            };
            if *is_drained && !doubt.must_look() {
                let interest = Interest::READ;
                let request = || Request::PollMulti(PollMulti { fd, interest });
                let Ready(arrival) = word.poll_next(cx, request) else {
                    local.wait_in_doubt(doubt, cx.waker());
                    return Pending;
                };
                doubt.settle();
                if let Err(error) = arrival.result() {
                    return self.end(Some(error));
                }
            }
            *is_drained = false;
            if !Local::spend_share() {
                cx.waker().wake_by_ref();
                return Pending;
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
                    // Alone, the loop would sleep next, and look again before.
                    if count < limits::LARGE_BUFFER_BYTES && !local.is_alone() {
                        *is_drained = true;
                        doubt.believe();
                    }
                    self.misfits = if is_small(count, &local) {
                        self.misfits + 1
                    } else {
                        0
                    };
                    if self.misfits == limits::SMALL_RECEIVES_MAX {
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

/// Whether a large buffer is more than a receive needed.
fn is_small(count: usize, local: &Local) -> bool {
    let pool_len = limits::POOL_BUFFER_BYTES as usize;
    count < pool_len || (count == pool_len && local.keeps_batches_warm())
}

fn is_cancelled(error: &io::Error) -> bool {
    error.raw_os_error() == Some(libc::ECANCELED)
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

#[cfg(test)]
mod tests;
