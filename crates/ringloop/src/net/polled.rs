//! A stream with `poll_read` and `poll_write` on the caller's buffers; `compat` implements the traits
//! of futures-io, tokio and hyper by it.
//!
//! Owns: the stream, one receive and one send in flight, the buffers between them and the caller, and
//! the task that sends the rest when the caller stops polling. Called by: `compat`, applications. Bytes
//! are copied once: the kernel may use an operation's memory after its future is dropped.
//!
//! Buffers at most [`limits::POLLED_READ_BYTES`] of received and twice [`limits::POLLED_WRITE_BYTES`] of
//! written bytes; each buffer is allocated while it is used.

use super::socket::Socket;
use super::split::OnSocket;
use super::{TcpStream, UnixStream};
use crate::buf::{RecvBuf, SendBuf};
use crate::driver::Kind;
use crate::executor::{Local, Op};
use crate::limits;
use crate::op::{Recv, Send};
use crate::sys::fd::AsRawFd;
use crate::sys::socket;
use crate::time::{self, Sleep};
use std::cell::RefCell;
use std::fmt;
use std::future::Future;
use std::io;
use std::net::Shutdown;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

/// A stream that can be polled: [`TcpStream`] or [`UnixStream`].
pub trait Stream: OnSocket + 'static {}

impl Stream for TcpStream {}
impl Stream for UnixStream {}

/// A stream with `poll_read` and `poll_write`.
///
/// With the features `futures-io`, `tokio` and `hyper` it has the `AsyncRead` and `AsyncWrite` of the first
/// two, and hyper's `Read` and `Write`.
///
/// A write ends when its bytes are buffered: they are in flight, or a task of the stream sends them
/// while the loop runs. Flush before `block_on` ends: bytes still buffered then are lost.
///
/// # Cancel safety
/// Cancel safe: received bytes stay for the next reader, and written ones are sent. Dropping it closes
/// the stream after they are sent, or after [`limits::POLLED_LINGER_MS`].
pub struct Polled<S: Stream> {
    shared: Rc<PolledState<S>>,
    reading: Reading,
}

/// State that the stream and its sending task share.
struct PolledState<S> {
    stream: S,
    writing: RefCell<Writing>,
}

enum Reading {
    InFlight(Op<Recv>),
    /// Received bytes; those after `taken` are unread.
    Filled {
        buf: Vec<u8>,
        taken: usize,
    },
}

#[derive(Default)]
struct Writing {
    in_flight: Option<Op<Send>>,
    /// The send in flight may be partial: the kernel does not send the rest.
    is_in_parts: bool,
    /// Sent next, in one operation.
    queued: Vec<u8>,
    /// Error of a send, not yet returned.
    failed: Option<io::Error>,
    /// Waits for room or for a flush; may be stale.
    writer: Option<Waker>,
    mover: Option<Mover>,
    mover_count: u64,
}

/// The task that sends for writers that stopped polling; it exists while the kernel alone would not
/// send everything. It receives the completions of sends and wakes the writer: a dropped future
/// cannot report that it no longer waits.
struct Mover {
    number: u64,
    /// The loop it runs on.
    loop_id: Option<u64>,
    /// `None` before its first poll, which checks everything.
    waker: Option<Waker>,
}

impl<S: Stream> Polled<S> {
    /// Takes the stream over.
    pub fn new(stream: S) -> Self {
        let shared = PolledState { stream, writing: RefCell::default() };
        Self { shared: Rc::new(shared), reading: Reading::Filled { buf: Vec::new(), taken: 0 } }
    }

    /// The inner stream.
    pub fn stream(&self) -> &S {
        &self.shared.stream
    }

    /// The unread bytes; waits if there are none. Empty at the end of the stream.
    pub fn poll_fill(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<&[u8]>> {
        ready!(self.poll_filled(cx))?;
        Poll::Ready(Ok(match &self.reading {
            Reading::Filled { buf, taken } => &buf[*taken..],
            Reading::InFlight(_) => &[],
        }))
    }

    /// Waits for bytes, or the end of the stream.
    fn poll_filled(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        loop {
            match &mut self.reading {
                Reading::Filled { buf, taken } if *taken < buf.len() => return Poll::Ready(Ok(())),
                Reading::Filled { buf, .. } => {
                    let mut buf = std::mem::take(buf);
                    buf.clear();
                    buf.reserve(limits::POLLED_READ_BYTES);
                    let recv =
                        Recv { fd: self.stream().socket().on_loop(), buf: RecvBuf::from(buf) };
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

    /// Consumes the first `count` of the bytes that [`Polled::poll_fill`] returned.
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

    /// Receives some bytes into `into`; 0 is the end of the stream.
    pub fn poll_read(&mut self, cx: &mut Context<'_>, into: &mut [u8]) -> Poll<io::Result<usize>> {
        self.poll_read_with(cx, into.len(), |bytes| into[..bytes.len()].copy_from_slice(bytes))
    }

    /// Passes some bytes, at most `room`, to `take`; returns their count.
    pub(crate) fn poll_read_with(
        &mut self,
        cx: &mut Context<'_>,
        room: usize,
        take: impl FnOnce(&[u8]),
    ) -> Poll<io::Result<usize>> {
        if room == 0 {
            return Poll::Ready(Ok(0));
        }
        let filled = ready!(self.poll_fill(cx))?;
        let count = filled.len().min(room);
        take(&filled[..count]);
        self.consume(count);
        Poll::Ready(Ok(count))
    }

    /// Buffers some of `bytes` to send; returns the count. The error may be of an earlier write.
    /// No further poll is needed to send them; [`Polled::poll_flush`] waits until they are sent.
    pub fn poll_write(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_write_vectored(cx, &[io::IoSlice::new(bytes)])
    }

    /// As [`Polled::poll_write`], of several buffers in order.
    pub fn poll_write_vectored(
        &mut self,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        ready!(self.poll_sent(cx, limits::POLLED_WRITE_BYTES - 1))?;
        let writing = &mut *self.shared.writing.borrow_mut();
        let mut count = 0;
        for buf in bufs {
            let room = limits::POLLED_WRITE_BYTES - writing.queued.len();
            let part = &buf[..buf.len().min(room)];
            writing.queued.extend_from_slice(part);
            count += part.len();
        }
        if writing.in_flight.is_none() {
            let socket = self.shared.stream.socket();
            writing.send_queued(socket);
            // Its first poll submits it; an immediate failure is returned by the next call.
            writing.advance(socket, cx.waker());
        }
        if writing.needs_mover() {
            self.start_mover(writing);
        }
        Poll::Ready(Ok(count))
    }

    /// Waits until everything that was written has been sent.
    pub fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_sent(cx, 0)
    }

    /// Sends everything that was written, then the end of the stream.
    pub fn poll_shutdown(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_flush(cx))?;
        let fd = self.stream().socket().as_raw_fd();
        Poll::Ready(match socket::shutdown(fd, Shutdown::Write) {
            // The peer has closed already.
            Err(error) if error.kind() == io::ErrorKind::NotConnected => Ok(()),
            ended => ended,
        })
    }

    fn poll_sent(&mut self, cx: &mut Context<'_>, left_max: usize) -> Poll<io::Result<()>> {
        let writing = &mut *self.shared.writing.borrow_mut();
        writing.writer = None;
        let sent = writing.poll_sent(self.shared.stream.socket(), cx.waker(), left_max);
        if sent.is_pending() {
            writing.writer = Some(cx.waker().clone());
            if writing.needs_mover() {
                self.start_mover(writing);
            }
        }
        sent
    }

    /// Starts a task of this loop that sends the buffered bytes. Outside of a loop no task could run.
    #[cold]
    fn start_mover(&self, writing: &mut Writing) {
        let Some(local) = Local::try_current() else {
            return;
        };
        writing.mover_count += 1;
        writing.mover =
            Some(Mover { number: writing.mover_count, loop_id: Local::current_id(), waker: None });
        drop(local.spawn(Moving {
            shared: Rc::clone(&self.shared),
            number: writing.mover_count,
            linger: None,
        }));
    }
}

impl Writing {
    /// Sends until at most `left_max` bytes are queued; with 0, until the last one is sent.
    fn poll_sent(
        &mut self,
        socket: &Socket,
        waker: &Waker,
        left_max: usize,
    ) -> Poll<io::Result<()>> {
        if self.in_flight.is_some() {
            let mover = self.mover.as_ref().filter(|mover| mover.is_here());
            let hearer = mover.map(|mover| mover.waker.clone());
            match hearer {
                Some(waker) => self.advance(socket, waker.as_ref().unwrap_or(Waker::noop())),
                None => self.advance(socket, waker),
            };
        }
        if let Some(error) = self.failed.take() {
            return Poll::Ready(Err(error));
        }
        let has_room = left_max > 0 && self.queued.len() <= left_max;
        if has_room || self.in_flight.is_none() { Poll::Ready(Ok(())) } else { Poll::Pending }
    }

    /// Sends without waiting; returns whether a send has ended.
    fn advance(&mut self, socket: &Socket, waker: &Waker) -> bool {
        let cx = &mut Context::from_waker(waker);
        let mut has_ended = false;
        while let Some(op) = &mut self.in_flight {
            let Poll::Ready((result, mut buf)) = pin!(op).poll(cx) else {
                break;
            };
            has_ended = true;
            self.in_flight = None;
            match result {
                Ok(count) => buf.advance(count),
                Err(error) => {
                    self.queued.clear();
                    self.failed = Some(error);
                    break;
                }
            }
            if buf.is_empty() {
                self.send_queued(socket);
            } else {
                self.send(socket, buf);
            }
        }
        has_ended
    }

    /// Whether bytes are buffered that no operation and no task of this loop would send.
    fn needs_mover(&self) -> bool {
        self.in_flight.is_some()
            && (self.is_in_parts || !self.queued.is_empty())
            && !self.has_mover()
    }

    fn has_mover(&self) -> bool {
        self.mover.as_ref().is_some_and(Mover::is_here)
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
        let (is_alone, kind) =
            Local::with_current(|local| (local.is_alone(), local.engine().kind()));
        // On the ring the kernel sends the rest of a partial send (`op::Send`).
        self.is_in_parts = kind == Kind::Epoll;
        // As `write_all`: alone it would be a batch of one, and the next write would wait behind it.
        let op = if is_alone { Op::try_first(send) } else { Op::new(send) };
        self.in_flight = Some(op);
    }
}

impl Mover {
    /// Whether its loop is the current one: another loop may be stopped.
    fn is_here(&self) -> bool {
        self.loop_id == Local::current_id()
    }
}

/// The work of a [`Mover`].
struct Moving<S: Stream> {
    shared: Rc<PolledState<S>>,
    number: u64,
    /// Deadline once the stream is dropped.
    linger: Option<Sleep>,
}

impl<S: Stream> Moving<S> {
    /// Continues; returns whether it has ended.
    fn move_on(&self, waker: &Waker) -> bool {
        let mut borrowed = self.shared.writing.borrow_mut();
        let writing = &mut *borrowed;
        let Some(mover) = writing.mover.as_mut().filter(|mover| mover.number == self.number) else {
            // The stream moved to another loop.
            return true;
        };
        let known = mover.waker.as_ref();
        if !known.is_some_and(|known| known.will_wake(waker)) {
            mover.waker = Some(waker.clone());
        }
        let has_ended = writing.advance(self.shared.stream.socket(), waker);
        let is_over = writing.in_flight.is_none();
        if is_over {
            writing.mover = None;
        }
        let writer = if has_ended || is_over { writing.writer.take() } else { None };
        // A woken task may call back.
        drop(borrowed);
        if let Some(writer) = writer {
            writer.wake();
        }
        is_over
    }
}

impl<S: Stream> Future for Moving<S> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        if self.move_on(cx.waker()) {
            return Poll::Ready(());
        }
        if Rc::strong_count(&self.shared) > 1 {
            return Poll::Pending;
        }
        // No caller is left for an error, or for a peer that does not read.
        let limit = Duration::from_millis(limits::POLLED_LINGER_MS);
        let linger = self.linger.get_or_insert_with(|| time::sleep(limit));
        Pin::new(linger).poll(cx)
    }
}

impl<S: Stream> Drop for Moving<S> {
    fn drop(&mut self) {
        // Its loop may end first, and another loop continue.
        if let Ok(mut writing) = self.shared.writing.try_borrow_mut()
            && let Some(mover) = &writing.mover
            && mover.number == self.number
        {
            writing.mover = None;
        }
    }
}

impl<S: Stream> Drop for Polled<S> {
    fn drop(&mut self) {
        // A dropped waker may have owned the stream; the sender then finds that it is alone.
        let Ok(mut writing) = self.shared.writing.try_borrow_mut() else {
            return;
        };
        let writer = writing.writer.take();
        let mover = writing.mover.as_ref().and_then(|mover| mover.waker.clone());
        if writing.in_flight.is_some() && !writing.has_mover() {
            self.start_mover(&mut writing);
        }
        drop(writing);
        drop(writer);
        if let Some(mover) = mover {
            mover.wake();
        }
    }
}

impl<S: Stream> From<S> for Polled<S> {
    fn from(stream: S) -> Self {
        Self::new(stream)
    }
}

impl<S: Stream + fmt::Debug> fmt::Debug for Polled<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Polled").field("stream", &self.shared.stream).finish_non_exhaustive()
    }
}

impl<S: Stream> Unpin for Polled<S> {}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Runtime;
    use crate::driver::Choice;
    use std::future::poll_fn;

    #[test]
    fn send_that_the_kernel_finishes_by_itself_starts_no_task() {
        for driver in [Choice::Uring, Choice::Epoll] {
            let Ok(runtime) = Runtime::builder().driver(driver).build() else {
                continue;
            };
            let work = async {
                let (ours, peer) = UnixStream::pair().unwrap();
                let mut stream = Polled::new(ours);
                for _ in 0..10 {
                    // A second submission, so that the ring does not try it at once.
                    let beside = crate::spawn(time::yield_now());
                    let write = poll_fn(|cx| stream.poll_write(cx, b"some bytes"));
                    assert_eq!(write.await.unwrap(), 10);
                    poll_fn(|cx| stream.poll_flush(cx)).await.unwrap();
                    let (count, _) = peer.read(Vec::with_capacity(10)).await;
                    assert_eq!(count.unwrap(), 10);
                    beside.await.unwrap();
                }
                assert_eq!(stream.shared.writing.borrow().mover_count, 0);
                // A write that the kernel would not finish starts one, which ends with it.
                let more = vec![0; limits::POLLED_WRITE_BYTES];
                let mut kept = 0;
                while stream.shared.writing.borrow().queued.is_empty() {
                    let _beside = crate::spawn(time::yield_now());
                    kept += poll_fn(|cx| stream.poll_write(cx, &more)).await.unwrap();
                }
                assert_eq!(stream.shared.writing.borrow().mover_count, 1);
                while kept > 0 {
                    kept -= peer.read(Vec::with_capacity(kept)).await.0.unwrap();
                }
                while stream.shared.writing.borrow().mover.is_some() {
                    time::yield_now().await;
                }
                assert!(stream.shared.writing.borrow().in_flight.is_none());
            };
            runtime.block_on(work).unwrap();
        }
    }
}
