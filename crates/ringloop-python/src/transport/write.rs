//! The writing side: from `transport.write` to one send per turn.
//!
//! Owns: the queue of data to send, and the send in flight: at most one per stream, because the
//! kernel does not order two. Called by: `methods` (write), the turn (flush, completions),
//! `lifecycle` (discard). Errors are handled by `lifecycle`.
//!
//! Byte path: `transport.write` → the queue → [`flush`] at the end of the turn → send.
//!
//! * Small writes of one turn are gathered, if [`super::gather`] allows it, and sent as one
//!   operation, on the ring submitted by the enter that waits. Others try send(2) at once.
//! * So does a large write, or many small ones, while the data is hot in the cache.
//! * A socket that preserves message boundaries sends each write separately, at once if there is
//!   room.
//! * Exact `bytes` are kept by reference; every other buffer is copied, because its owner may
//!   change it.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::io::{self, IoSlice};

use pyo3::prelude::*;
use ringloop::buf::SendBuf;
use ringloop::embed::op::{Request, Send, SendMsg};
use ringloop::embed::sys::interest::Interest;
use ringloop::embed::sys::socket as syscalls;
use ringloop::embed::{Event, Key, Kind};

use super::base::{State, fatal_error};
use super::flow::{self, Flow, Writable};
use super::{Role, Stream, Stream_, sendfile, socket};
use crate::error;
use crate::event_loop::poll;
use crate::ffi::{self, Fallible, intern};
use crate::limits;

/// The engine's operation for the writing side.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Armed {
    #[default]
    Nothing,
    /// A send, with its data.
    Sending(Key),
    /// Waiting for room in the socket's buffer.
    Waiting(Key),
}

/// The state of the writing side.
#[derive(Default)]
pub(super) struct WriteSide {
    queue: RefCell<VecDeque<SendBuf>>,
    /// Bytes in the queue and in the send in flight.
    queued_bytes: Cell<usize>,
    /// Bytes of the send in flight.
    sending_bytes: Cell<usize>,
    armed: Cell<Armed>,
    /// `write_eof` was called.
    pub eof: Cell<bool>,
    /// The result of a send in flight is ignored.
    discarded: Cell<bool>,
}

impl WriteSide {
    pub fn armed(&self) -> bool {
        self.armed.get() != Armed::Nothing
    }

    pub fn key(&self) -> Option<Key> {
        match self.armed.get() {
            Armed::Sending(key) | Armed::Waiting(key) => Some(key),
            Armed::Nothing => None,
        }
    }

    pub fn forget(&self) {
        self.armed.set(Armed::Nothing);
        self.queue.take();
        self.queued_bytes.set(0);
    }

    pub fn size(&self) -> usize {
        self.queued_bytes.get()
    }

    pub fn is_empty(&self) -> bool {
        self.queued_bytes.get() == 0
    }
}

impl Writable for Stream {
    fn flow(&self) -> &Flow {
        &self.flow
    }

    fn size(&self) -> usize {
        self.write.size()
    }

    /// Bytes that the kernel has not taken: gathered data is sent first, since gathering is no
    /// reason to wait, and a send that has ended counts before its event is dispatched.
    fn unsent(this: Stream_<'_, '_>) -> PyResult<usize> {
        let is_plain = this.base.state.get() == State::Open && !this.write.eof.get();
        if is_plain && !this.flow.is_paused() {
            send_gathered(this)?;
        }
        let Armed::Sending(key) = this.write.armed.get() else {
            return Ok(this.write.size());
        };
        let sent = this.base.driver(this.py(), |driver| driver.peek(key))?;
        let sent = usize::try_from(sent.unwrap_or(0)).unwrap_or(0);
        Ok(this.write.size().saturating_sub(sent))
    }
}

/// Queues buffers, and sends them now or at the end of the turn.
pub(super) fn enqueue(this: Stream_<'_, '_>, bufs: impl Iterator<Item = SendBuf>) -> PyResult<()> {
    if this.socket.gathering.is_inherited() && this.write.armed() {
        // Operations in flight belong to the parent.
        this.write.forget();
    }
    let mut added = 0;
    {
        let mut queue = this.write.queue.borrow_mut();
        // The caller gets the error, and nothing is queued.
        queue.try_reserve(bufs.size_hint().0).map_err(ffi::no_memory)?;
        for buf in bufs {
            added += buf.len();
            queue.push_back(buf);
        }
    }
    this.write.queued_bytes.set(this.write.size() + added);
    // While the loop is not running, no turn ends.
    let is_idle = !this.base.owner.is_running();
    if this.write.armed() {
        if is_idle || !this.socket.gathering.is_allowed() {
            send_behind(this)?;
        } else {
            // That send may have ended, with only its event pending; without memory, wait for the
            // event.
            drop(socket::flush_later(this));
        }
        return flow::maybe_pause(this, this.write.size());
    }
    let may_wait = this.socket.gathering.is_allowed()
        && !(is_idle || this.keeps_messages)
        && this.write.size() < limits::WRITE_AT_ONCE
        && !this.flow.above_high(this.write.size());
    if may_wait && socket::flush_later(this).is_ok() {
        return Ok(());
    }
    send_now(this)?;
    if !this.write.is_empty() {
        return flow::maybe_pause(this, this.write.size());
    }
    // The reason for the pause is gone; the protocol is resumed at the end of the turn, not inside
    // its `write`.
    let waits = this.flow.is_paused() || (this.socket.gathering.is_opening() && !is_idle);
    if waits && socket::flush_later(this).is_err() {
        return flow::maybe_resume(this, 0);
    }
    Ok(())
}

/// End of the turn: sends what was gathered.
pub(super) fn flush(this: Stream_<'_, '_>) -> PyResult<()> {
    this.socket.turn_ended();
    this.socket.gathering.turn_ended();
    if this.write.armed() {
        return Ok(());
    }
    if this.write.is_empty() {
        if this.write.discarded.get() {
            return Ok(());
        }
        // What was gathered has been sent before.
        let told = flow::maybe_resume(this, 0);
        return told.and(socket::rest_if_idle(this));
    }
    match this.kind {
        Kind::Uring if !this.keeps_messages => submit(this),
        _ => {
            send_now(this)?;
            if this.write.is_empty() {
                progressed(this)
            } else {
                flow::maybe_pause(this, this.write.size())
            }
        }
    }
}

/// One send operation with the whole queue.
fn submit(this: Stream_<'_, '_>) -> PyResult<()> {
    socket::ensure_registered(this)?;
    let fd = this.socket.fd(this.py());
    let request = {
        let mut queue = this.write.queue.borrow_mut();
        let total: usize = queue.iter().map(SendBuf::len).sum();
        let is_one = queue.len() == 1 || this.keeps_messages;
        let may_join = queue.len() > 1 && !is_one && total <= limits::WRITE_JOIN_MAX;
        // Without memory for a copy, they are sent as they are.
        let whole = may_join.then(|| joined(queue.make_contiguous()).ok()).flatten();
        match (queue.len(), whole) {
            (0, _) => return Ok(()),
            _ if is_one => queue.pop_front().map(|buf| Request::Send(Send { fd, buf })),
            (_, Some(buf)) => {
                queue.clear();
                Some(Request::Send(Send { fd, buf }))
            }
            (count, None) => {
                let count = count.min(ringloop::embed::limits::SEND_VECTOR_MAX);
                let bufs: Vec<SendBuf> = queue.drain(..count).collect();
                Some(Request::SendMsg(SendMsg::new(fd, bufs)))
            }
        }
    };
    let Some(request) = request else {
        return Ok(());
    };
    let queued: usize = this.write.queue.borrow().iter().map(SendBuf::len).sum();
    this.write.sending_bytes.set(this.write.size() - queued);
    let sink = this.socket.sink(Role::Write as u8);
    let key = this.base.driver(this.py(), |driver| driver.submit(request, sink))?;
    this.write.armed.set(Armed::Sending(key));
    Ok(())
}

/// One buffer with the bytes of all.
pub(super) fn joined(bufs: &[SendBuf]) -> PyResult<SendBuf> {
    let mut bytes = Vec::new();
    let len = bufs.iter().map(SendBuf::len).sum();
    bytes.try_reserve_exact(len).map_err(ffi::no_memory)?;
    for buf in bufs {
        bytes.extend_from_slice(buf.as_slice());
    }
    Ok(bytes.into())
}

/// Tries send(2) until everything is sent or the socket is full; then the engine takes over.
fn send_now(this: Stream_<'_, '_>) -> PyResult<()> {
    while !this.write.is_empty() {
        match send_queue(this) {
            Ok(count) => advance(this, count),
            Err(error) => match error.kind() {
                io::ErrorKind::Interrupted => {}
                io::ErrorKind::WouldBlock => {
                    return match this.kind {
                        Kind::Uring => submit(this),
                        Kind::Epoll => wait_writable(this),
                    };
                }
                _ => return failed(this, error.raw_os_error().unwrap_or(libc::EIO)),
            },
        }
    }
    Ok(())
}

/// Sends what is queued behind a send that has ended but whose event is pending; if that send
/// failed, the connection ends now.
fn send_behind(this: Stream_<'_, '_>) -> PyResult<()> {
    let Armed::Sending(key) = this.write.armed.get() else {
        return Ok(());
    };
    let sent = this.base.driver(this.py(), |driver| driver.peek(key))?;
    if let Some(errno @ 1..) = sent.map(i32::wrapping_neg) {
        return failed(this, errno);
    }
    let is_whole = sent.is_some_and(|sent| sent as usize == this.write.sending_bytes.get());
    while is_whole && !this.write.queue.borrow().is_empty() {
        match send_queue(this) {
            Ok(count) => advance(this, count),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
            Err(error) => return failed(this, error.raw_os_error().unwrap_or(libc::EIO)),
        }
    }
    Ok(())
}

/// The loop is closed and no turn will end: sends what was gathered, as far as the kernel accepts
/// it.
pub(super) fn send_last(this: Stream_<'_, '_>) {
    if !this.write.armed()
        && !this.write.discarded.get()
        && let Ok(count) = send_queue(this)
    {
        advance(this, count);
    }
}

/// One send(2) of the queue.
fn send_queue(this: Stream_<'_, '_>) -> io::Result<usize> {
    let fd = this.socket.fd(this.py());
    let queue = this.write.queue.borrow();
    match queue.len() {
        0 => Ok(0),
        count if count == 1 || this.keeps_messages => syscalls::send(fd, queue[0].as_slice(), 0),
        _ => syscalls::send_vectored(fd, &slices(&queue)),
    }
}

/// The front of a queue, for one vectored call.
pub(crate) fn slices(queue: &VecDeque<SendBuf>) -> Vec<IoSlice<'_>> {
    queue.iter().take(limits::WRITE_VECTOR_MAX).map(|buf| IoSlice::new(buf.as_slice())).collect()
}

fn wait_writable(this: Stream_<'_, '_>) -> PyResult<()> {
    socket::ensure_registered(this)?;
    let poll = poll(this.socket.fd(this.py()), Interest::WRITE);
    let sink = this.socket.sink(Role::Writable as u8);
    let key = this.base.driver(this.py(), |driver| driver.submit(poll, sink))?;
    this.write.armed.set(Armed::Waiting(key));
    Ok(())
}

/// Drops `count` sent bytes from the front of the queue.
fn advance(this: Stream_<'_, '_>, count: usize) {
    this.write.queued_bytes.set(this.write.size().saturating_sub(count));
    drop_front(&mut this.write.queue.borrow_mut(), count);
}

/// Drops `count` bytes from the front of a queue.
pub(crate) fn drop_front(queue: &mut VecDeque<SendBuf>, mut count: usize) {
    while let Some(front) = queue.front_mut() {
        let len = front.len();
        if count < len {
            front.advance(count);
            return;
        }
        count -= len;
        queue.pop_front();
    }
}

/// A send operation has ended.
pub(super) fn completed(this: Stream_<'_, '_>, event: Event) -> PyResult<()> {
    this.write.armed.set(Armed::Nothing);
    let result = event.completion.result;
    if this.write.discarded.get() {
        drop(event);
        return socket::close_if_lost(this);
    }
    if result < 0 {
        drop(event);
        return failed(this, -result);
    }
    let sending = this.write.sending_bytes.replace(0);
    if (result as usize) < sending {
        put_back(this, event);
    } else {
        this.write.queued_bytes.set(this.write.size().saturating_sub(sending));
    }
    progressed(this)
}

/// A short send: the rest goes back to the front of the queue.
fn put_back(this: Stream_<'_, '_>, event: Event) {
    let sent = event.completion.result.max(0) as usize;
    let bufs = match event.completion.request {
        Some(Request::Send(single)) => vec![single.buf],
        Some(Request::SendMsg(several)) => several.into_bufs(),
        _ => Vec::new(),
    };
    {
        let mut queue = this.write.queue.borrow_mut();
        for buf in bufs.into_iter().rev() {
            queue.push_front(buf);
        }
    }
    advance(this, sent);
}

/// The socket is writable again.
pub(super) fn writable(this: Stream_<'_, '_>, event: Event) -> PyResult<()> {
    if !event.completion.more {
        this.write.armed.set(Armed::Nothing);
    }
    if this.write.discarded.get() {
        return socket::close_if_lost(this);
    }
    if let Armed::Waiting(key) = this.write.armed.get() {
        this.base.driver(this.py(), |driver| driver.forget(key))?;
        this.write.armed.set(Armed::Nothing);
    }
    send_now(this)?;
    progressed(this)
}

/// After a send: resumes the protocol, continues, or does what waited for an empty queue.
fn progressed(this: Stream_<'_, '_>) -> PyResult<()> {
    if this.write.discarded.get() {
        return Ok(());
    }
    // The protocol may write more here, and its exception may leave the loop: the next run finds
    // the rest in flight.
    let told = flow::maybe_resume(this, this.write.size());
    let went_on = if this.write.is_empty() {
        drained(this)
    } else if this.write.armed() {
        Ok(())
    } else {
        flush(this)
    };
    told.and(went_on)
}

/// Everything is sent: does what waited for that.
fn drained(this: Stream_<'_, '_>) -> PyResult<()> {
    sendfile::emptied(this)?;
    match this.base.state.get() {
        State::Closing => socket::lose(this, None),
        State::Open if this.write.eof.get() => {
            let told = shut_down(this);
            told.and(socket::rest_if_idle(this))
        }
        _ => socket::rest_if_idle(this),
    }
}

/// Ends writing: shuts down the peer's direction once everything is sent.
pub(super) fn write_eof(this: Stream_<'_, '_>) -> PyResult<()> {
    if this.base.is_closing() || this.write.eof.get() {
        return Ok(());
    }
    // asyncio has sent it by now, and its caller gets the error of shutdown(2) if the peer has
    // since reset.
    let size = Stream::unsent(this)?;
    this.write.eof.set(true);
    let is_open = this.base.state.get() == State::Open;
    if size == 0 && is_open && !this.write.armed() { shut_down(this) } else { Ok(()) }
}

fn shut_down(this: Stream_<'_, '_>) -> PyResult<()> {
    let py = this.py();
    if let Some(socket) = this.socket.get(py) {
        socket.bind(py).call_method1(intern!(py, "shutdown"), (Fallible(libc::SHUT_WR),))?;
    }
    Ok(())
}

/// Sends now what waits for the end of the turn: with asyncio, which sends inside `write`, it is
/// already sent when the connection is closed or aborted in the same callback.
pub(super) fn send_gathered(this: Stream_<'_, '_>) -> PyResult<()> {
    if this.socket.gathering.is_inherited() {
        return Ok(());
    }
    if this.write.armed() {
        return send_behind(this);
    }
    if this.write.is_empty() {
        return Ok(());
    }
    send_now(this)?;
    if this.write.is_empty() {
        sendfile::emptied(this)?;
    }
    Ok(())
}

/// Whether bytes are queued behind a send in flight, which may have ended.
pub(super) fn has_queued_behind(this: Stream_<'_, '_>) -> bool {
    this.write.armed() && this.write.size() > this.write.sending_bytes.get()
}

/// Drops unsent data, for an abort; a TLS alert, say, was written a moment ago and is sent.
pub(super) fn discard(this: Stream_<'_, '_>) -> PyResult<()> {
    if !this.write.armed()
        && !this.socket.gathering.is_inherited()
        && let Ok(count) = send_queue(this)
    {
        advance(this, count);
    }
    this.write.discarded.set(true);
    let queue = this.write.queue.take();
    drop(queue);
    this.write.queued_bytes.set(0);
    match this.write.armed.get() {
        Armed::Sending(key) | Armed::Waiting(key) => {
            this.base.driver(this.py(), |driver| driver.cancel(key))
        }
        Armed::Nothing => Ok(()),
    }
}

fn failed(this: Stream_<'_, '_>, errno: i32) -> PyResult<()> {
    // The kernel reports a reset once; if a paused reader has it, a write gets only EPIPE.
    let errno = this.read.held_errno().unwrap_or(errno);
    let error = error::from_errno(errno);
    sendfile::failed(this, &error)?;
    fatal_error(this, error, "Fatal write error on socket transport")
}
