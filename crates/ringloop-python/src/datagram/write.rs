//! The writing side: from `transport.sendto` to the kernel.
//!
//! Owns: the queue of datagrams for which the socket had no room, and the poll for writing. Called
//! by: `methods` (sendto), the turn, the module's root (discard).
//!
//! Once the socket is full, datagrams are queued, and sent in batches when there is room. Before
//! that, the first datagram of a turn is sent at once: its sender gets the error. Further ones of
//! the same turn are gathered and sent when it ends, or when there are enough of them, in one
//! system call; if they have one peer and one length, as one GSO message (`UDP_SEGMENT`). Their
//! errors are reported when they are sent. Not gathered are long datagrams, those of non-UDP
//! sockets, of a loop that does not run, and of a closing endpoint.
//!
//! ```text
//!   Direct ──EAGAIN──▶ Blocked ──room, all sent──▶ Direct
//!   the queue holds    the queue holds what the socket had no room for,
//!   gathered ones      as asyncio's would: only this counts as its size
//! ```

use std::collections::VecDeque;
use std::io;

use pyo3::exceptions::PyOSError;
use pyo3::prelude::*;
use ringloop::embed::sys::datagram::{self, SendError};
use ringloop::embed::sys::interest::Interest;
use ringloop::embed::sys::socket as syscalls;

use super::state::{Datagram, Datagram_, Destination, Queued, Role};
use crate::error;
use crate::event_loop::poll;
use crate::ffi::{self, Obj, intern};
use crate::limits;
use crate::transport::address;
use crate::transport::base::{call_protocol, call_protocol_here, report_callback, write_failed};
use crate::transport::flow::{self, Flow, Writable};
use crate::transport::socket::{self, Armed};

/// Result of a send.
enum Sent {
    Yes,
    /// The socket is full.
    Blocked,
    No(PyErr),
}

impl Sent {
    fn of(result: io::Result<usize>) -> Self {
        match result {
            Ok(_) => Self::Yes,
            Err(error) if error::is_blocked(&error) => Self::Blocked,
            Err(error) => Self::No(error::from_io(&error)),
        }
    }

    fn of_python<T>(py: Python<'_>, result: PyResult<T>) -> Self {
        match result {
            Ok(_) => Self::Yes,
            Err(error) if error::would_block(py, &error) => Self::Blocked,
            Err(error) => Self::No(error),
        }
    }
}

impl Writable for Datagram {
    fn flow(&self) -> &Flow {
        &self.flow
    }

    fn size(&self) -> usize {
        self.write.size()
    }
}

/// Determines a datagram's destination.
pub(super) fn destination(
    this: Datagram_<'_, '_>,
    address: Borrowed<'_, '_, PyAny>,
) -> Destination {
    if this.connected {
        return Destination::Peer;
    }
    if let Some(known) = this.seen.borrow().known(address) {
        return Destination::To(known);
    }
    match address::from_python(address, this.family) {
        Some(parsed) => {
            let seen = (parsed.clone(), Obj::from_borrowed(address));
            let old = this.seen.borrow_mut().destination.replace(seen);
            drop(old);
            Destination::To(parsed)
        }
        None => Destination::Foreign(Obj::from_borrowed(address)),
    }
}

/// Sends now, gathers, or queues.
pub(super) fn send(
    this: Datagram_<'_, '_>,
    data: Borrowed<'_, '_, PyAny>,
    to: Destination,
) -> PyResult<()> {
    if gathers(this, data, &to)? {
        enqueue(this, data, to)?;
        return await_end(this);
    }
    send_gathered(this)?;
    if this.write.is_empty() {
        match send_object(this, data, &to) {
            Sent::Yes => return Ok(()),
            // Its socket is about to be closed, and the queue will not be sent.
            Sent::Blocked if this.base.is_lost() => return Ok(()),
            Sent::Blocked => {}
            Sent::No(error) => return failed(this, error, Who::Sender),
        }
    }
    enqueue(this, data, to)?;
    block(this)
}

/// Whether a datagram may wait for the end of the turn: not the first one.
fn gathers(
    this: Datagram_<'_, '_>,
    data: Borrowed<'_, '_, PyAny>,
    to: &Destination,
) -> PyResult<bool> {
    if !this.socket.gathering.is_allowed() || this.write.blocked.get() || this.base.is_closing() {
        return Ok(false);
    }
    let turn = this.base.core(this.py())?.get().turn_number();
    let is_first = this.write.last_turn.replace(turn) != turn;
    Ok(turn != 0
        && !is_first
        && !matches!(to, Destination::Foreign(_))
        && ffi::with_bytes(data, <[u8]>::len)
            .is_ok_and(|len| len <= limits::GATHERED_DATAGRAM_BYTES_MAX))
}

fn enqueue(
    this: Datagram_<'_, '_>,
    data: Borrowed<'_, '_, PyAny>,
    to: Destination,
) -> PyResult<()> {
    let buf = ffi::take_over(data)?;
    let counted = buf.len() + this.rules.header_len;
    this.write.queue.borrow_mut().try_reserve(1).map_err(ffi::no_memory)?;
    let queued_bytes = this.write.queued_bytes.get() + counted;
    this.write.queued_bytes.set(queued_bytes);
    this.write.queue.borrow_mut().push_back(Queued { buf, to });
    Ok(())
}

/// Sends gathered datagrams when the turn ends, or now if there are enough.
fn await_end(this: Datagram_<'_, '_>) -> PyResult<()> {
    let count = this.write.queue.borrow().len();
    if count >= limits::GATHERED_DATAGRAMS_MAX
        || this.write.queued_bytes.get() >= limits::GATHERED_BYTES_MAX
    {
        return send_gathered(this);
    }
    socket::flush_later(this).or_else(|_| send_gathered(this))
}

/// The turn has ended.
pub(super) fn turn_ends(this: Datagram_<'_, '_>) -> PyResult<()> {
    this.socket.turn_ended();
    let sent = send_gathered(this);
    // An interrupt from `error_received` leaves the loop, with the rest unsent.
    let is_over = this.write.blocked.get() || this.write.is_empty();
    let rest = if is_over { Ok(()) } else { socket::flush_later(this) };
    sent.and(rest)
}

/// Sends what is gathered; the rest waits for room.
pub(super) fn send_gathered(this: Datagram_<'_, '_>) -> PyResult<()> {
    if this.socket.gathering.is_inherited() && !this.write.blocked.get() {
        this.write.discard();
        return Ok(());
    }
    // What `error_received` sends meanwhile waits for the end of the next turn.
    let mut left = this.write.queue.borrow().len();
    while left > 0 && !this.write.blocked.get() && !this.write.is_empty() {
        match send_front(this) {
            Ok(count) => {
                left = left.saturating_sub(count);
                drop(take_sent(this, count));
            }
            Err(Sent::No(error)) => {
                left -= 1;
                drop(take_front(this, 1));
                failed(this, error, Who::Queue)?;
            }
            Err(_) => return block(this),
        }
    }
    Ok(())
}

/// The socket has no room: the queue waits for it.
fn block(this: Datagram_<'_, '_>) -> PyResult<()> {
    if this.base.is_lost() {
        this.write.discard();
        return Ok(());
    }
    this.write.blocked.set(true);
    arm(this)?;
    flow::maybe_pause(this, this.write.size())
}

/// Makes the engine report room, if something waits for it.
pub(super) fn arm(this: Datagram_<'_, '_>) -> PyResult<()> {
    if this.write.armed.get() == Armed::Nothing && this.write.blocked.get() {
        let poll = poll(this.socket.fd(this.py()), Interest::WRITE);
        let key = socket::submit(this, Role::Write as u8, poll)?;
        this.write.armed.set(Armed::Running(key));
    }
    Ok(())
}

fn send_object(this: Datagram_<'_, '_>, data: Borrowed<'_, '_, PyAny>, to: &Destination) -> Sent {
    let fd = this.socket.fd(this.py());
    let sent = match to {
        Destination::Peer => ffi::with_bytes(data, |bytes| syscalls::send(fd, bytes, 0)),
        Destination::To(to) => ffi::with_bytes(data, |bytes| datagram::send_to(fd, bytes, to)),
        Destination::Foreign(to) => return send_by_python(this, data, to),
    };
    match sent {
        Ok(result) => {
            if let Ok(len) = result {
                this.base.owner.sent(len);
            }
            Sent::of(result)
        }
        Err(error) => Sent::No(error),
    }
}

fn send_by_python(this: Datagram_<'_, '_>, data: Borrowed<'_, '_, PyAny>, to: &Obj) -> Sent {
    let py = this.py();
    let socket = this.socket.get_or_none(py);
    let result = socket.call_method1(intern!(py, "sendto"), (data, to.bind(py)));
    Sent::of_python(py, result)
}

/// There is room: sends the queue until the socket is full.
pub(super) fn ready(this: Datagram_<'_, '_>) -> PyResult<()> {
    while !this.write.is_empty() {
        match send_front(this) {
            Ok(count) => drop(take_sent(this, count)),
            Err(Sent::No(error)) => {
                drop(take_front(this, 1));
                // The next ones are for the next event.
                return failed(this, error, Who::Queue);
            }
            Err(_) => break,
        }
    }
    // Its exception may leave the loop, with the rest done.
    let told = flow::maybe_resume(this, this.write.size());
    let settled = settle(this);
    told.and(settled)
}

/// Nothing waits for room any more: stops polling, and completes a close.
fn settle(this: Datagram_<'_, '_>) -> PyResult<()> {
    if !this.write.is_empty() {
        return Ok(());
    }
    this.write.blocked.set(false);
    socket::disarm(this, &this.write.armed)?;
    if this.base.is_closing() { socket::lose(this, None) } else { Ok(()) }
}

/// Sends from the front of the queue; returns how many were sent.
fn send_front(this: Datagram_<'_, '_>) -> Result<usize, Sent> {
    let py = this.py();
    let queue = this.write.queue.borrow();
    let foreign = match queue.front() {
        Some(Queued { buf, to: Destination::Foreign(to) }) => {
            Some((ffi::copy_bytes(py, buf.as_slice()), to.clone_ref(py)))
        }
        _ => None,
    };
    if let Some((data, to)) = foreign {
        drop(queue);
        let data = data.map_err(Sent::No)?;
        return match send_by_python(this, data.bind(py).as_borrowed(), &to) {
            Sent::Yes => Ok(1),
            other => Err(other),
        };
    }
    match send_batch(this, &queue) {
        Err(error) if error.is_of_segmentation() => {
            // Permanently: later ones would use the same route and device.
            this.write.segmented.set(false);
            send_batch(this, &queue)
        }
        sent => sent,
    }
    .map_err(|refused| Sent::of(Err(refused.error)))
}

/// Sends from the front of the queue, up to the first for `socket.sendto`.
fn send_batch(this: Datagram_<'_, '_>, queue: &VecDeque<Queued>) -> Result<usize, SendError> {
    let py = this.py();
    let batch = queue.iter().map_while(|queued| match &queued.to {
        Destination::Peer => Some((queued.buf.as_slice(), None)),
        Destination::To(to) => Some((queued.buf.as_slice(), Some(to))),
        Destination::Foreign(_) => None,
    });
    let (fd, segmented) = (this.socket.fd(py), this.write.segmented.get());
    let in_use = || SendError::from(io::Error::from(io::ErrorKind::WouldBlock));
    let core = this.base.core(py).map_err(|_| in_use())?;
    core.get()
        .outgoing
        .with(|outgoing| outgoing.send(fd, batch, segmented))
        .map_err(|_| in_use())?
}

/// Takes datagrams off the queue that were sent.
fn take_sent(this: Datagram_<'_, '_>, count: usize) -> Vec<Queued> {
    let before = this.write.queued_bytes.get();
    let taken = take_front(this, count);
    let with_headers = before - this.write.queued_bytes.get();
    this.base.owner.sent(with_headers.saturating_sub(taken.len() * this.rules.header_len));
    taken
}

/// Takes datagrams off the queue, to be dropped outside its borrow.
fn take_front(this: Datagram_<'_, '_>, count: usize) -> Vec<Queued> {
    let mut queue = this.write.queue.borrow_mut();
    let count = count.min(queue.len());
    let taken: Vec<Queued> = queue.drain(..count).collect();
    let bytes: usize = taken.iter().map(|queued| queued.buf.len() + this.rules.header_len).sum();
    this.write.queued_bytes.set(this.write.queued_bytes.get().saturating_sub(bytes));
    taken
}

/// Who gets an exception of `error_received`.
#[derive(PartialEq, Eq)]
enum Who {
    /// The caller of `sendto`, in whose context it runs.
    Sender,
    /// The loop's exception handler.
    Queue,
}

/// The protocol gets errors of the kernel; any other ends the endpoint.
fn failed(this: Datagram_<'_, '_>, error: PyErr, who: Who) -> PyResult<()> {
    let py = this.py();
    if !error.is_instance_of::<PyOSError>(py) {
        return write_failed(this, error);
    }
    let exception = error.into_value(py).into_bound(py);
    let argument = Obj::from(exception.clone().into_any());
    let method = intern!(py, "error_received");
    // As asyncio, inside of `except`.
    ffi::while_handled(&exception, || {
        if who == Who::Queue {
            let told = call_protocol(this, method, Some(&argument));
            return report_callback(this, told.map(drop), "_sendto_ready");
        }
        call_protocol_here(this, method, Some(&argument))
    })
}
