//! The writing side: from `transport.write` to one send per turn.
//!
//! Owns: the queue of data to send, and the send in flight: at most one per stream, because the
//! kernel does not order two. Called by: `methods` (write), the turn (flush, completions), the
//! module's root (discard).
//!
//! Byte path: `transport.write` → the queue → [`flush`] at the end of the turn → send.
//!
//! * Small writes of one turn are gathered, if `transport::gather` allows it, and sent as one
//!   operation, on the ring submitted by the enter that waits. Others try send(2) at once.
//! * So does a large write, or many small ones, while the data is hot in the cache.
//! * A socket that preserves message boundaries sends each write separately, at once if there is
//!   room.
//! * Exact `bytes` are kept by reference; every other buffer is copied, because its owner may
//!   change it.

use std::io;

use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use ringloop::buf::SendBuf;
use ringloop::embed::op::{Request, Send, SendMsg};
use ringloop::embed::sys::interest::Interest;
use ringloop::embed::sys::libc;
use ringloop::embed::sys::socket as syscalls;
use ringloop::embed::{Event, Kind};

use super::sendfile;
use super::state::{Role, SendOp, Stream, Stream_};
use crate::error;
use crate::event_loop::poll;
use crate::ffi::{Fallible, Raise as _, intern};
use crate::limits;
use crate::transport::base::{State, write_failed};
use crate::transport::flow::{self, Flow, Writable};
use crate::transport::{socket, thread};

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
        let SendOp::Sending(key) = this.write.armed.get() else {
            return Ok(this.write.size());
        };
        let sent = this.base.driver(this.py(), |driver| driver.peek(key))?;
        let sent = usize::try_from(sent.unwrap_or(0)).unwrap_or(0);
        Ok(this.write.size().saturating_sub(sent))
    }
}

/// Writes bytes already taken over.
pub(super) fn write_buf(this: Stream_<'_, '_>, buf: SendBuf) -> PyResult<()> {
    if this.write.eof.get() {
        return Err(PyRuntimeError::raise("Cannot call write() after write_eof()"));
    }
    if sendfile::in_progress(this) {
        return Err(PyRuntimeError::raise("unable to write; sendfile is in progress"));
    }
    if this.base.is_elsewhere() {
        return thread::hand_over_bytes(this, &[buf]);
    }
    if buf.is_empty() || dropped(this)? {
        return Ok(());
    }
    enqueue(this, std::iter::once(buf))
}

/// Whether a write comes after the end, and is dropped.
pub(super) fn dropped(this: Stream_<'_, '_>) -> PyResult<bool> {
    if this.base.lost_writes.get() == 0 {
        return Ok(false);
    }
    let text = "socket.send() raised exception.";
    this.base.lost_writes.drop_write(&this.object(), text).map(|()| true)
}

/// Queues buffers, and sends them now or at the end of the turn.
pub(super) fn enqueue(this: Stream_<'_, '_>, bufs: impl Iterator<Item = SendBuf>) -> PyResult<()> {
    if this.socket.gathering.is_inherited() && this.write.armed() {
        // Operations in flight belong to the parent.
        this.write.forget();
    }
    this.write.queue.push(bufs)?;
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
    if this.write.armed() || this.write.failure.get().is_some() {
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
    let queue = &this.write.queue;
    let before = queue.size();
    if before == 0 {
        return Ok(());
    }
    socket::ensure_registered(this)?;
    let fd = this.socket.fd(this.py());
    let single = if queue.count() == 1 || this.keeps_messages {
        queue.pop_front()
    } else if before <= limits::WRITE_JOIN_MAX {
        // Without memory for a copy, they are sent as they are.
        queue.take_joined()
    } else {
        None
    };
    let request = if let Some(buf) = single {
        Request::Send(Send { fd, buf })
    } else {
        let count = queue.count().min(ringloop::embed::limits::SEND_VECTOR_MAX);
        Request::SendMsg(SendMsg::new(fd, queue.take(count)))
    };
    this.write.sending_bytes.set(before - queue.size());
    let key = socket::submit(this, Role::Write as u8, request)?;
    this.write.armed.set(SendOp::Sending(key));
    Ok(())
}

/// Tries send(2) until everything is sent or the socket is full; then the engine takes over.
fn send_now(this: Stream_<'_, '_>) -> PyResult<()> {
    match send_or_wait(this)? {
        Some(errno) => failed(this, errno),
        None => Ok(()),
    }
}

/// As [`send_now`]; returns the errno of a failure.
fn send_or_wait(this: Stream_<'_, '_>) -> PyResult<Option<i32>> {
    match send_queue(this) {
        Ok(()) => Ok(None),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
            match this.kind {
                Kind::Uring => submit(this)?,
                Kind::Epoll => wait_writable(this)?,
            }
            Ok(None)
        }
        Err(error) => Ok(Some(error.raw_os_error().unwrap_or(libc::EIO))),
    }
}

/// Sends what is queued behind a send that has ended but whose event is pending; if that send
/// failed, the connection ends now.
fn send_behind(this: Stream_<'_, '_>) -> PyResult<()> {
    let SendOp::Sending(key) = this.write.armed.get() else {
        return Ok(());
    };
    let sent = this.base.driver(this.py(), |driver| driver.peek(key))?;
    if let Some(errno @ 1..) = sent.map(i32::wrapping_neg) {
        return failed(this, errno);
    }
    let is_whole = sent.is_some_and(|sent| sent as usize == this.write.sending_bytes.get());
    match if is_whole { send_queue(this) } else { Ok(()) } {
        Err(error) if error.kind() != io::ErrorKind::WouldBlock => {
            failed(this, error.raw_os_error().unwrap_or(libc::EIO))
        }
        _ => Ok(()),
    }
}

/// The loop is closed and no turn will end: sends what was gathered, as far as the kernel accepts
/// it.
pub(super) fn send_last(this: Stream_<'_, '_>) {
    if !this.write.armed() && !this.write.discarded.get() {
        drop(send_queue(this));
    }
}

fn send_queue(this: Stream_<'_, '_>) -> io::Result<()> {
    let fd = this.socket.fd(this.py());
    let before = this.write.queue.size();
    let sent = this.write.queue.send(
        this.keeps_messages,
        |bytes| syscalls::send(fd, bytes, 0),
        |slices| syscalls::send_vectored(fd, slices),
    );
    this.base.owner.sent(before - this.write.queue.size());
    sent
}

fn wait_writable(this: Stream_<'_, '_>) -> PyResult<()> {
    let poll = poll(this.socket.fd(this.py()), Interest::WRITE);
    let key = socket::submit(this, Role::Writable as u8, poll)?;
    this.write.armed.set(SendOp::Waiting(key));
    Ok(())
}

/// A send operation has ended; the errno of its failure.
pub(super) fn completed(this: Stream_<'_, '_>, event: Event) -> PyResult<Option<i32>> {
    this.write.armed.set(SendOp::Nothing);
    let result = event.completion.result;
    if this.write.discarded.get() {
        drop(event);
        return socket::close_if_lost(this).map(|()| None);
    }
    if result < 0 {
        drop(event);
        return Ok(Some(-result));
    }
    this.base.owner.sent(result as usize);
    let sending = this.write.sending_bytes.replace(0);
    if (result as usize) < sending {
        put_back(this, event);
    }
    progressed(this).map(|()| None)
}

/// A short send: the rest goes back to the front of the queue.
fn put_back(this: Stream_<'_, '_>, event: Event) {
    let sent = event.completion.result.max(0) as usize;
    let bufs = match event.completion.request {
        Some(Request::Send(single)) => vec![single.buf],
        Some(Request::SendMsg(several)) => several.into_bufs(),
        _ => Vec::new(),
    };
    for buf in bufs.into_iter().rev() {
        this.write.queue.push_front(buf);
    }
    this.write.queue.advance(sent);
}

/// The socket is writable again; the errno of a send that failed.
pub(super) fn writable(this: Stream_<'_, '_>, event: Event) -> PyResult<Option<i32>> {
    if !event.completion.more {
        this.write.armed.set(SendOp::Nothing);
    }
    if this.write.discarded.get() {
        return socket::close_if_lost(this).map(|()| None);
    }
    match event.completion.result {
        0.. => {}
        error if error == -libc::ECANCELED => {}
        // Such as `ENOMEM`, of epoll: another poll would fail the same way.
        error => return Ok(Some(-error)),
    }
    if let SendOp::Waiting(key) = this.write.armed.get() {
        this.base.driver(this.py(), |driver| driver.forget(key))?;
        this.write.armed.set(SendOp::Nothing);
    }
    match send_or_wait(this)? {
        Some(errno) => Ok(Some(errno)),
        None => progressed(this).map(|()| None),
    }
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
    this.write.armed() && !this.write.queue.is_empty()
}

/// Drops unsent data, for an abort; a TLS alert, say, was written a moment ago and is sent.
pub(super) fn discard(this: Stream_<'_, '_>) -> PyResult<()> {
    if !this.write.armed() && !this.socket.gathering.is_inherited() {
        drop(send_queue(this));
    }
    this.write.discarded.set(true);
    this.write.drop_unsent();
    match this.write.armed.get() {
        SendOp::Sending(key) | SendOp::Waiting(key) => {
            this.base.driver(this.py(), |driver| driver.cancel(key))
        }
        SendOp::Nothing => Ok(()),
    }
}

/// The reset that a receive in flight has reported, if its event is pending.
fn pending_reset(this: Stream_<'_, '_>) -> PyResult<Option<i32>> {
    let Some(key) = this.read.key() else {
        return Ok(None);
    };
    let result = this.base.driver(this.py(), |driver| driver.peek(key))?;
    Ok(result.filter(|result| *result == -libc::ECONNRESET).map(i32::wrapping_neg))
}

/// A send failed: ends the connection.
pub(super) fn failed(this: Stream_<'_, '_>, errno: i32) -> PyResult<()> {
    // If the reading side has taken that report, a send gets only EPIPE.
    let reset = match this.read.held_errno() {
        None if errno == libc::EPIPE => pending_reset(this)?,
        held => held,
    };
    let error = error::from_errno(reset.unwrap_or(errno));
    sendfile::failed(this, &error)?;
    write_failed(this, error)
}
