//! The reading side: from a completion to `data_received`.
//!
//! Owns: the receive in flight, and received bytes that the protocol has not taken, because reading is
//! paused or because an exception left the loop. Called by: the turn (`completed`), `methods` (pause,
//! resume), the module's root (stop).
//!
//! Byte path: `event_loop::dispatch` → here → `protocol.data_received` / `get_buffer`.
//!
//! Two modes of reading:
//! * *Interactive* (ring only, initial): one multishot receive into the loop's shared pool. The
//!   bytes are copied out and the buffer is returned at once. An idle connection owns no buffer.
//! * *Ready*: the engine reports the socket readable and we call recv(2), directly into the object
//!   for the protocol, while the data is hot in the cache. Always on the readiness driver; on the
//!   ring while reads fill their buffers.
//!
//! Pausing cancels the receive in flight at the end of the turn: bytes that arrived by then are
//! held, later ones stay in the kernel, for the socket's next user. The cancel is submitted before
//! the next receive, which on a ring means at the next enter. Pausing and resuming in one turn
//! costs nothing.
//!
//! The end of a stream is reported after the callbacks that its last bytes scheduled, as in asyncio,
//! which receives once per iteration: see [`ended`].

use std::io;

use pyo3::prelude::*;
use ringloop::embed::op::{RecvMulti, Request};
use ringloop::embed::sys::interest::Interest;
use ringloop::embed::sys::libc;
use ringloop::embed::{Event, Kind, PoolBuffer};

use super::buffered::{deliver_into_protocol, receive_into_protocol};
use super::native;
use super::state::{Delivery, End, Held, Mode, Receiver, Role, SendOp, Stream, Stream_};
use crate::error;
use crate::event_loop::exceptions::leaves_the_loop;
use crate::event_loop::poll;
use crate::ffi::{self, Obj, intern};
use crate::limits;
use crate::transport::base::{
    Endpoint as _, Readable, call_protocol, fatal_error, log_debug, read_failed,
};
use crate::transport::socket::{self, Armed, Wish};

/// Starts reading; scheduled right after `connection_made`.
pub(super) fn start(this: Stream_<'_, '_>) -> PyResult<()> {
    if this.read.wish.get() != Wish::NotStarted {
        return Ok(());
    }
    this.read.wish.set(Wish::Read);
    arm(this)
}

/// Stops permanently.
pub(super) fn stop(this: Stream_<'_, '_>) -> PyResult<()> {
    this.read.wish.set(Wish::Stop);
    this.read.held_end.set(None);
    drop(this.read.held.take());
    disarm(this)
}

impl Readable for Stream {
    fn is_paused(&self) -> bool {
        self.read.is_paused()
    }

    fn pause(this: Stream_<'_, '_>) -> PyResult<bool> {
        match this.read.wish.get() {
            Wish::Read | Wish::NotStarted => {
                this.read.wish.set(Wish::Pause);
                if socket::flush_later(this).is_err() {
                    disarm(this)?;
                }
                Ok(true)
            }
            Wish::Pause => Ok(false),
            Wish::Stop => Ok(!this.read.paused_after_end.replace(true)),
        }
    }

    fn resume(this: Stream_<'_, '_>) -> PyResult<bool> {
        if this.read.wish.get() != Wish::Pause {
            let was_paused = this.read.paused_after_end.replace(false);
            if was_paused && this.read.is_over() && !this.base.is_closing() {
                // asyncio reads again and sees the end again, which a newly set protocol has not
                // seen.
                this.read.wish.set(Wish::Read);
                this.read.held_end.set(Some(End::Eof));
                schedule_delivery(this)?;
            }
            return Ok(was_paused);
        }
        this.read.wish.set(Wish::Read);
        if holds(this) {
            schedule_delivery(this)?;
        } else {
            arm(this)?;
        }
        Ok(true)
    }
}

/// End of the turn: applies a pause that was not resumed. Nothing stays in flight, so that an
/// unreferenced transport is collected ([`socket::rest_if_idle`]).
pub(super) fn settle_pause(this: Stream_<'_, '_>) -> PyResult<()> {
    if this.read.wish.get() == Wish::Pause { disarm(this) } else { Ok(()) }
}

/// Makes the engine read, unless it already does or must not.
fn arm(this: Stream_<'_, '_>) -> PyResult<()> {
    if this.read.wish.get() != Wish::Read || this.read.armed() || this.base.is_closing() {
        return Ok(());
    }
    let fd = this.socket.fd(this.py());
    let request = match this.read.mode.get() {
        Mode::Interactive => Request::RecvMulti(RecvMulti::borrowed(fd)),
        Mode::Ready => poll(fd, Interest::READ),
    };
    let key = socket::submit(this, Role::Read as u8, request)?;
    this.read.armed.set(Armed::Running(key));
    Ok(())
}

pub(super) fn disarm(this: Stream_<'_, '_>) -> PyResult<()> {
    socket::disarm(this, &this.read.armed)
}

/// A completion of the read operation; after the last one [`settle`] is to follow.
pub(super) fn completed(this: Stream_<'_, '_>, event: Event) -> PyResult<()> {
    let completion = event.completion;
    if !completion.more {
        this.read.armed.set(Armed::Nothing);
    }
    let py = this.py();
    // The kernel keeps the file of a receive open, even if the application has closed the socket.
    let taken_away = this.socket.fd(py) < 0;
    match completion.buffer {
        Some(_) if taken_away => ended(this, End::Failed(libc::EBADF)),
        Some(bytes) => {
            note_received(this, bytes.len());
            received(this, bytes)
        }
        // Also a receive that was in flight when the mode changed.
        None if completion.result > 0 => ready(this),
        None if completion.result == 0 && taken_away => ended(this, End::Failed(libc::EBADF)),
        None if completion.result == 0 => ended(this, End::Eof),
        // `ENOBUFS`: the pool has buffers again. Others: the kernel ended the operation. The
        // receive is re-armed below.
        None if matches!(
            -completion.result,
            libc::ECANCELED | libc::ENOBUFS | libc::EAGAIN | libc::EINTR
        ) =>
        {
            Ok(())
        }
        None => ended(this, End::Failed(-completion.result)),
    }
}

/// Nothing is in flight: continues after a change of mode, or a pause that was resumed.
pub(super) fn settle(this: Stream_<'_, '_>) -> PyResult<()> {
    let again = if holds(this) { Ok(()) } else { arm(this) };
    let closed = socket::close_if_lost(this);
    let rested = socket::rest_if_idle(this);
    again.and(closed).and(rested)
}

#[inline]
fn note_received(this: Stream_<'_, '_>, len: usize) {
    this.base.owner.received(len);
    this.read.received_in.set(this.base.owner.turn());
}

/// Bytes in a pool buffer, which is returned before the protocol is called.
fn received(this: Stream_<'_, '_>, content: PoolBuffer) -> PyResult<()> {
    let py = this.py();
    let wish = this.read.wish.get();
    let len = content.len();
    if wish == Wish::Read
        && !holds(this)
        && let Receiver::Native(native) = this.read.receiver.get()
        && let Some(protocol) = this.base.protocol.get(py)
    {
        let protocol = protocol.bind(py);
        let held = ffi::locked(protocol, || (native.take)(protocol, &content));
        drop(content);
        look_for_bulk(this, len)?;
        return native::deliver(this, native, held);
    }
    if wish == Wish::Stop {
        return Ok(());
    }
    let filled = if wish == Wish::Read && !holds(this) { native::fill(this, &content)? } else { 0 };
    if filled == len {
        drop(content);
        return look_for_bulk(this, len);
    }
    let bytes = ffi::copy_bytes(py, &content[filled..]);
    drop(content);
    match bytes {
        Ok(bytes) => {
            look_for_bulk(this, len)?;
            deliver(this, bytes.into())
        }
        Err(error) => read_failed(this, error),
    }
}

/// Switches the mode after a few full buffers.
fn look_for_bulk(this: Stream_<'_, '_>, len: usize) -> PyResult<()> {
    let full = len >= limits::READ_CHUNK_MIN;
    let streak = if full { this.read.streak.get() + 1 } else { 0 };
    this.read.streak.set(streak);
    if streak >= limits::FULL_READS_TO_BULK && this.read.mode.get() == Mode::Interactive {
        this.read.streak.set(0);
        this.read.mode.set(Mode::Ready);
        this.read.chunk_len.set(limits::READ_CHUNK_BULK);
        disarm(this)?;
    }
    Ok(())
}

/// The socket is readable: receives once, or a few times while buffers are filled.
fn ready(this: Stream_<'_, '_>) -> PyResult<()> {
    for _ in 0..limits::READS_PER_EVENT {
        if this.read.wish.get() != Wish::Read {
            // Nothing was read, so nothing is held; the kernel keeps it.
            return disarm(this);
        }
        let mut asked = this.read.chunk_len.get();
        let received = match this.read.receiver.get() {
            Receiver::Data => receive_and_deliver(this, asked)?,
            Receiver::Buffered => receive_into_protocol(this)?,
            Receiver::Native(native) => Some(native::receive(this, native, asked)?),
            Receiver::Reader(functions) => {
                match native::receive_into_result(this, functions, &mut asked)? {
                    Some(received) => Some(received),
                    None => receive_and_deliver(this, asked)?,
                }
            }
        };
        match received {
            // The failure has ended the connection.
            None => return Ok(()),
            Some(Ok(0)) => {
                disarm(this)?;
                return ended(this, End::Eof);
            }
            Some(Ok(len)) => {
                note_received(this, len);
                // The end of a result says nothing about what comes.
                if asked >= this.read.chunk_len.get() {
                    adapt(this, asked, len)?;
                }
                if len < asked || !this.read.armed() {
                    return Ok(());
                }
            }
            Some(Err(error)) if error::is_blocked(&error) => return Ok(()),
            Some(Err(error)) => {
                let errno = error.raw_os_error().unwrap_or(libc::EIO);
                return ended(this, End::Failed(errno));
            }
        }
    }
    Ok(())
}

/// Whether an operation in flight may have taken bytes; a poll takes none.
pub(super) fn is_receiving(this: Stream_<'_, '_>) -> bool {
    let polls = this.read.mode.get() == Mode::Ready;
    match this.read.armed.get() {
        Armed::Nothing => false,
        Armed::Running(_) => !polls,
        Armed::Stopping(_) => true,
    }
}

/// A send has failed: delivers what arrived before.
pub(super) fn read_last(this: Stream_<'_, '_>) -> PyResult<()> {
    if this.read.wish.get() == Wish::Read && !holds(this) { ready(this) } else { Ok(()) }
}

/// Whether a send has taken the kernel's report of a reset, which it makes once: a receive sees only
/// EOF then.
fn was_reset(this: Stream_<'_, '_>) -> PyResult<bool> {
    let SendOp::Sending(key) = this.write.armed.get() else {
        return Ok(this.write.took_reset.get());
    };
    let sent = this.base.driver(this.py(), |driver| driver.peek(key))?;
    Ok(sent == Some(-libc::ECONNRESET))
}

/// Receives into a new object; `None`: that failed, and the connection has ended.
fn receive_and_deliver(this: Stream_<'_, '_>, asked: usize) -> PyResult<Option<io::Result<usize>>> {
    let bytes = match ffi::receive_bytes(this.py(), this.socket.fd(this.py()), asked) {
        Ok(Ok(bytes)) => bytes,
        Ok(Err(error)) => return Ok(Some(Err(error))),
        Err(error) => return read_failed(this, error).map(|()| None),
    };
    let len = ffi::bytes_len(&bytes);
    if len > 0 {
        deliver(this, bytes.into())?;
    }
    Ok(Some(Ok(len)))
}

/// Adapts the size: more after a full read, less after small ones; on the ring, back to the pool.
fn adapt(this: Stream_<'_, '_>, asked: usize, len: usize) -> PyResult<()> {
    if this.keeps_messages {
        return Ok(());
    }
    if len == asked {
        this.read.streak.set(0);
        this.read.chunk_len.set((asked * 2).min(limits::READ_CHUNK_MAX));
        return Ok(());
    }
    if len > limits::READ_CHUNK_MIN {
        this.read.streak.set(0);
        return Ok(());
    }
    let streak = this.read.streak.get().saturating_add(1);
    this.read.streak.set(streak);
    if streak < limits::SMALL_READS_TO_INTERACTIVE {
        return Ok(());
    }
    this.read.streak.set(0);
    this.read.chunk_len.set(limits::READ_CHUNK_MIN);
    if this.kind == Kind::Uring && this.read.mode.get() == Mode::Ready {
        this.read.mode.set(Mode::Interactive);
        disarm(this)?;
    }
    Ok(())
}

/// Passes bytes to the protocol, or holds them.
fn deliver(this: Stream_<'_, '_>, bytes: Held) -> PyResult<()> {
    match this.read.wish.get() {
        Wish::Stop => return Ok(()),
        Wish::Read if !holds(this) => {}
        Wish::Read | Wish::Pause | Wish::NotStarted => {
            this.read.held.borrow_mut().push_back(bytes);
            return if this.read.wish.get() == Wish::Read { Ok(()) } else { disarm(this) };
        }
    }
    let py = this.py();
    match this.read.receiver.get() {
        Receiver::Data | Receiver::Reader(_) => {}
        Receiver::Buffered => {
            let (filled, rest) = deliver_into_protocol(this, bytes);
            let Some(rest) = rest else { return filled };
            if filled.is_ok() && this.read.wish.get() == Wish::Read && !this.read.is_buffered() {
                return deliver(this, rest);
            }
            // Paused or closed meanwhile; or `get_buffer` failed: asyncio leaves the bytes in the kernel.
            return filled.and(keep(this, rest));
        }
        Receiver::Native(native) => {
            let protocol = this.base.protocol.get_or_none(py);
            let held = (native.take)(&protocol, bytes.rest(py));
            return native::deliver(this, native, held);
        }
    }
    let bytes = match bytes.into_bytes(py) {
        Ok(bytes) => bytes,
        Err(error) => return read_failed(this, error),
    };
    let left = match this.read.receiver.get() {
        Receiver::Reader(functions) => native::feed(this, functions, bytes),
        _ => Ok(Some(bytes)),
    };
    let delivered = left.and_then(|left| match left {
        Some(bytes) => call_protocol(this, intern!(py, "data_received"), Some(&bytes)),
        None => Ok(None),
    });
    match delivered {
        Ok(_) => Ok(()),
        Err(error) => {
            fatal_error(this, error, "Fatal error: protocol.data_received() call failed.")
        }
    }
}

/// End of the stream; held while reading is paused, and until what this turn's bytes scheduled has run.
fn ended(this: Stream_<'_, '_>, end: End) -> PyResult<()> {
    let end = end_or_reset(this, end)?;
    match this.read.wish.get() {
        Wish::Stop => Ok(()),
        Wish::Read if !holds(this) => {
            if this.read.received_in.get() == this.base.owner.turn() {
                this.read.held_end.set(Some(end));
                return deliver_later(this, Delivery::Scheduled, Stream::last_context(this));
            }
            report_end(this, end)
        }
        Wish::Read | Wish::Pause | Wish::NotStarted => {
            this.read.held_end.set(Some(end));
            Ok(())
        }
    }
}

/// An end of the stream, or the reset that a send has taken instead.
fn end_or_reset(this: Stream_<'_, '_>, end: End) -> PyResult<End> {
    Ok(match end {
        End::Eof if was_reset(this)? => End::Failed(libc::ECONNRESET),
        end => end,
    })
}

/// Tells the protocol of the end.
fn report_end(this: Stream_<'_, '_>, end: End) -> PyResult<()> {
    let end = end_or_reset(this, end)?;
    this.read.wish.set(Wish::Stop);
    let py = this.py();
    if let End::Failed(errno) = end {
        return read_failed(this, error::from_errno(errno));
    }
    let logged = log_debug(this, "debug", "%r received EOF");
    let answer = logged.and_then(|()| call_protocol(this, intern!(py, "eof_received"), None));
    let truth =
        answer.and_then(|answer| answer.map_or(Ok(false), |answer| answer.bind(py).is_truthy()));
    let keep_open = match truth {
        Ok(keep_open) => keep_open,
        Err(error) if leaves_the_loop(py, &error) => {
            if !this.base.is_closing() {
                // The protocol gets it again when the loop continues.
                this.read.wish.set(Wish::Read);
                this.read.held_end.set(Some(end));
                postpone_delivery(this)?;
            }
            return Err(error);
        }
        Err(error) => {
            return fatal_error(this, error, "Fatal error: protocol.eof_received() call failed.");
        }
    };
    if keep_open { Ok(()) } else { socket::close(this) }
}

/// Whether there are held bytes, or an unreported end of the stream.
fn holds(this: Stream_<'_, '_>) -> bool {
    this.read.held_end.get().is_some() || !this.read.held.borrow().is_empty()
}

/// Holds the oldest bytes, which the protocol has not taken, before all others: until reading is
/// resumed, or until the next run of the loop, which an exception is about to leave.
fn keep(this: Stream_<'_, '_>, bytes: Held) -> PyResult<()> {
    let wish = this.read.wish.get();
    if wish == Wish::Stop {
        return Ok(());
    }
    this.read.held.borrow_mut().push_front(bytes);
    if wish == Wish::Read { postpone_delivery(this) } else { disarm(this) }
}

/// Delivers in the next pass, like asyncio's next iteration.
fn schedule_delivery(this: Stream_<'_, '_>) -> PyResult<()> {
    let context = ffi::context_copy_current(this.py());
    deliver_later(this, Delivery::Scheduled, context)
}

/// As [`schedule_delivery`], for the next run.
fn postpone_delivery(this: Stream_<'_, '_>) -> PyResult<()> {
    let context = ffi::context_copy_current(this.py());
    deliver_later(this, Delivery::Postponed, context)
}

fn deliver_later(
    this: Stream_<'_, '_>,
    delivery: Delivery,
    context: PyResult<Obj>,
) -> PyResult<()> {
    if this.read.delivery.replace(delivery) != Delivery::None {
        return Ok(());
    }
    let method = intern!(this.py(), "_deliver_held");
    this.base.core(this.py())?.get().call_method_soon(this.object(), method, None, context)
}

/// Delivers what arrived during a pause, then continues reading.
pub(super) fn deliver_held(this: Stream_<'_, '_>) -> PyResult<()> {
    if this.read.delivery.replace(Delivery::None) == Delivery::Postponed {
        return schedule_delivery(this);
    }
    let mut delivered_some = false;
    while this.read.wish.get() == Wish::Read {
        let next = this.read.held.borrow_mut().pop_front();
        if let Some(bytes) = next {
            let delivered = deliver_one(this, bytes);
            if delivered.is_err() {
                // An exception leaves the loop: the rest, and later bytes, are for the next run.
                let again = if holds(this) { postpone_delivery(this) } else { arm(this) };
                return delivered.and(again);
            }
            delivered_some = true;
            continue;
        }
        return match this.read.held_end.take() {
            Some(end) if delivered_some => {
                this.read.held_end.set(Some(end));
                schedule_delivery(this)
            }
            Some(end) => {
                let told = report_end(this, end);
                told.and(socket::rest_if_idle(this))
            }
            None => arm(this),
        };
    }
    Ok(())
}

/// As `deliver`, for the oldest held bytes.
fn deliver_one(this: Stream_<'_, '_>, bytes: Held) -> PyResult<()> {
    let rest = this.read.held.take();
    let end = this.read.held_end.take();
    let result = deliver(this, bytes);
    if this.read.wish.get() == Wish::Stop {
        return result;
    }
    // Later bytes go after what a pause meanwhile may have put back.
    this.read.held.borrow_mut().extend(rest);
    if end.is_some() {
        this.read.held_end.set(end);
    }
    result
}
