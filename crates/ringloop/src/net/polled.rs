//! A stream that is polled, for code which brings its own buffers: the traits of futures-io, tokio and
//! hyper are thin over this (`compat`).
//!
//! Owns: the stream, one receive and one send in flight, and the bytes between them and the caller.
//! Called by: `compat`, or by hand. Never does: lend the caller's memory to the kernel, which may use it
//! after a future is gone; bytes are copied once, and nothing is lost where the caller stops waiting.
//!
//! Bounds: [`limits::POLLED_READ_BYTES`] received and not yet taken, twice [`limits::POLLED_WRITE_BYTES`]
//! written and not yet sent. Each of the two is there only while it is used.

use super::socket::Socket;
use super::{TcpStream, UnixStream};
use crate::buf::{RecvBuf, SendBuf};
use crate::executor::{Local, Op};
use crate::limits;
use crate::op::{Recv, Send};
use crate::sys::socket;
use crate::time;
use std::fmt;
use std::future::Future;
use std::io;
use std::net::Shutdown;
use std::os::fd::AsRawFd;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker, ready};
use std::time::Duration;

/// A stream that can be polled: [`TcpStream`] or [`UnixStream`].
pub trait Stream: sealed::Stream {}

mod sealed {
    use super::Socket;

    pub trait Stream: 'static {
        fn socket(&self) -> &Socket;
    }
}

impl sealed::Stream for TcpStream {
    fn socket(&self) -> &Socket {
        &self.socket
    }
}

impl sealed::Stream for UnixStream {
    fn socket(&self) -> &Socket {
        &self.socket
    }
}

impl Stream for TcpStream {}
impl Stream for UnixStream {}

/// A stream with `poll_read` and `poll_write`.
///
/// With the features `futures-io`, `tokio` and `hyper` it has the `AsyncRead` and `AsyncWrite` of the first
/// two, and hyper's `Read` and `Write`.
///
/// A write is over when its bytes are kept, as a buffered writer's is: the first of them are on their way, and those
/// behind them go on whenever the stream is polled to read, to write or to flush. So flush after the last write, and
/// before `block_on` ends: what is still kept then is lost with the loop.
///
/// Cancel safety: every poll may be the last one; what was received waits for the next reader, and what
/// was written for the next poll. Dropping it sends that first, and closes the stream once that has happened, or after
/// [`limits::POLLED_LINGER_MS`].
pub struct Polled<S: Stream> {
    /// Shared with the task that sends the rest once this is dropped.
    stream: Rc<S>,
    reading: Reading,
    writing: Writing,
}

enum Reading {
    InFlight(Op<Recv>),
    /// What is behind `taken` waits for a reader.
    Filled {
        buf: Vec<u8>,
        taken: usize,
    },
}

#[derive(Default)]
struct Writing {
    in_flight: Option<Op<Send>>,
    /// Goes out next, in one piece.
    queued: Vec<u8>,
    /// Of a send that nobody has heard of yet.
    failed: Option<io::Error>,
    hearers: Hearers,
}

/// Who hears that a send has ended. Nobody knows whether one who waited still does: a future that is dropped tells
/// nothing. So the reader hears of it beside the writer, and moves on what the writer has given up.
#[derive(Default)]
struct Hearers {
    /// Waits for bytes.
    reader: Option<Waker>,
    /// Waits for room, or for everything to be sent, or has given that up.
    writer: Option<Waker>,
}

/// Wakes two tasks.
struct Both(Waker, Waker);

impl Wake for Both {
    fn wake(self: Arc<Self>) {
        self.0.wake_by_ref();
        self.1.wake_by_ref();
    }
}

impl Hearers {
    /// One for `waker`, which asks now and is none of these, and for who waits beside it.
    fn waker(&self, waker: &Waker) -> Waker {
        match self.reader.as_ref().or(self.writer.as_ref()) {
            Some(other) if !other.will_wake(waker) => {
                Waker::from(Arc::new(Both(waker.clone(), other.clone())))
            }
            _ => waker.clone(),
        }
    }
}

impl<S: Stream> Polled<S> {
    /// Take the stream over.
    pub fn new(stream: S) -> Self {
        Self {
            stream: Rc::new(stream),
            reading: Reading::Filled {
                buf: Vec::new(),
                taken: 0,
            },
            writing: Writing::default(),
        }
    }

    /// The stream, for its addresses and options.
    pub fn stream(&self) -> &S {
        &self.stream
    }

    /// The bytes that were received and not taken yet; waits for some where there are none. Empty at the end
    /// of the stream.
    pub fn poll_fill(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<&[u8]>> {
        self.writing.hearers.reader = None;
        if self.writing.in_flight.is_some() {
            // What a writer left behind goes on while its task reads; its error is for the next write.
            let sent = self.writing.poll_sent(self.stream.socket(), cx, 0);
            self.writing.keep_error(sent);
        }
        let filled = self.poll_filled(cx);
        self.writing.hearers.reader = filled.is_pending().then(|| cx.waker().clone());
        ready!(filled)?;
        Poll::Ready(Ok(match &self.reading {
            Reading::Filled { buf, taken } => &buf[*taken..],
            Reading::InFlight(_) => &[],
        }))
    }

    /// Wait for bytes, or the end of the stream.
    fn poll_filled(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        loop {
            match &mut self.reading {
                Reading::Filled { buf, taken } if *taken < buf.len() => return Poll::Ready(Ok(())),
                Reading::Filled { buf, .. } => {
                    let mut buf = std::mem::take(buf);
                    buf.clear();
                    buf.reserve(limits::POLLED_READ_BYTES);
                    let recv = Recv {
                        fd: self.stream().socket().on_loop(),
                        buf: RecvBuf::from(buf),
                    };
                    self.reading = Reading::InFlight(Op::new(recv));
                }
                Reading::InFlight(op) => {
                    let (result, buf) = ready!(pin!(op).poll(cx));
                    let mut buf = buf.into_vec();
                    buf.truncate(*result.as_ref().unwrap_or(&0));
                    let is_end = buf.is_empty();
                    self.reading = Reading::Filled { buf, taken: 0 };
                    result?;
                    if is_end {
                        return Poll::Ready(Ok(()));
                    }
                }
            }
        }
    }

    /// Take the first `count` of the bytes that [`Polled::poll_fill`] gave.
    pub fn consume(&mut self, count: usize) {
        if let Reading::Filled { buf, taken } = &mut self.reading {
            *taken = (*taken + count).min(buf.len());
            if *taken == buf.len() {
                // An idle stream owns no buffer.
                *buf = Vec::new();
                *taken = 0;
            }
        }
    }

    /// Receive some bytes into `into`; 0 is the end of the stream.
    pub fn poll_read(&mut self, cx: &mut Context<'_>, into: &mut [u8]) -> Poll<io::Result<usize>> {
        if into.is_empty() {
            return Poll::Ready(Ok(0));
        }
        let filled = ready!(self.poll_fill(cx))?;
        let count = filled.len().min(into.len());
        into[..count].copy_from_slice(&filled[..count]);
        self.consume(count);
        Poll::Ready(Ok(count))
    }

    /// Take some of `bytes` to be sent; returns how many. An error may be an earlier write's. They may wait behind an
    /// earlier write's until the next poll: [`Polled::poll_flush`] sees all of them out.
    pub fn poll_write(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_write_vectored(cx, &[io::IoSlice::new(bytes)])
    }

    /// Take some of several buffers, in order.
    pub fn poll_write_vectored(
        &mut self,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        ready!(self.poll_sent(cx, limits::POLLED_WRITE_BYTES - 1))?;
        let (writing, socket) = (&mut self.writing, self.stream.socket());
        let mut count = 0;
        for buf in bufs {
            let room = limits::POLLED_WRITE_BYTES - writing.queued.len();
            let part = &buf[..buf.len().min(room)];
            writing.queued.extend_from_slice(part);
            count += part.len();
        }
        if writing.in_flight.is_none() {
            writing.send_queued(socket);
            // Submitted by its first poll; should it end at once, the next call finds that out.
            let sent = writing.poll_sent(socket, cx, limits::POLLED_WRITE_BYTES);
            writing.keep_error(sent);
        }
        Poll::Ready(Ok(count))
    }

    /// Wait until everything that was written has been sent.
    pub fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_sent(cx, 0)
    }

    /// Send everything that was written, then the end of the stream.
    pub fn poll_shutdown(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_flush(cx))?;
        let fd = self.stream().socket().as_raw_fd();
        Poll::Ready(match socket::shutdown(fd, Shutdown::Write) {
            // Gone already, which is what was asked for.
            Err(error) if error.kind() == io::ErrorKind::NotConnected => Ok(()),
            ended => ended,
        })
    }

    fn poll_sent(&mut self, cx: &mut Context<'_>, left_max: usize) -> Poll<io::Result<()>> {
        let socket = self.stream.socket();
        self.writing.hearers.writer = None;
        let sent = self.writing.poll_sent(socket, cx, left_max);
        self.writing.hearers.writer = sent.is_pending().then(|| cx.waker().clone());
        sent
    }
}

impl Writing {
    /// Go on sending until at most `left_max` bytes are queued; with 0, until the last one is sent.
    fn poll_sent(
        &mut self,
        socket: &Socket,
        cx: &mut Context<'_>,
        left_max: usize,
    ) -> Poll<io::Result<()>> {
        if let Some(error) = self.failed.take() {
            return Poll::Ready(Err(error));
        }
        if self.in_flight.is_none() {
            return Poll::Ready(Ok(()));
        }
        let waker = self.hearers.waker(cx.waker());
        let cx = &mut Context::from_waker(&waker);
        while let Some(op) = &mut self.in_flight {
            let Poll::Ready((result, mut buf)) = pin!(op).poll(cx) else {
                let has_room = left_max > 0 && self.queued.len() <= left_max;
                return if has_room {
                    Poll::Ready(Ok(()))
                } else {
                    Poll::Pending
                };
            };
            self.in_flight = None;
            match result {
                Ok(count) => buf.advance(count),
                Err(error) => {
                    self.queued.clear();
                    return Poll::Ready(Err(error));
                }
            }
            if buf.is_empty() {
                self.send_queued(socket);
            } else {
                self.send(socket, buf);
            }
        }
        Poll::Ready(Ok(()))
    }

    fn send_queued(&mut self, socket: &Socket) {
        if !self.queued.is_empty() {
            let queued = std::mem::take(&mut self.queued);
            self.send(socket, SendBuf::from(queued));
        }
    }

    fn send(&mut self, socket: &Socket, buf: SendBuf) {
        let fd = socket.on_loop();
        let send = Send { fd, buf };
        // As `write_all` does: alone there is no batch for it to go with, and the next write need not wait behind it.
        let op = if Local::with_current(Local::is_alone) {
            Op::eager(send)
        } else {
            Op::new(send)
        };
        self.in_flight = Some(op);
    }

    fn keep_error(&mut self, sent: Poll<io::Result<()>>) {
        if let Poll::Ready(Err(error)) = sent {
            self.failed = Some(error);
        }
    }
}

impl<S: Stream> Drop for Polled<S> {
    fn drop(&mut self) {
        let mut writing = std::mem::take(&mut self.writing);
        let (true, Some(local)) = (writing.in_flight.is_some(), Local::try_current()) else {
            return;
        };
        writing.hearers = Hearers::default();
        let stream = Rc::clone(&self.stream);
        drop(local.spawn(async move {
            let limit = Duration::from_millis(limits::POLLED_LINGER_MS);
            let sent = std::future::poll_fn(|cx| writing.poll_sent(stream.socket(), cx, 0));
            // Nobody is left to hear of an error, or of a peer that does not read.
            let _ = time::timeout(limit, sent).await;
        }));
    }
}

impl<S: Stream> From<S> for Polled<S> {
    fn from(stream: S) -> Self {
        Self::new(stream)
    }
}

impl<S: Stream + fmt::Debug> fmt::Debug for Polled<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Polled")
            .field("stream", &self.stream)
            .finish_non_exhaustive()
    }
}

impl<S: Stream> Unpin for Polled<S> {}
