//! The writing side: from `transport.sendto` to the kernel.
//!
//! Owns: the queue of datagrams that the socket had no room for, and the poll for writing.
//! Called by: `methods` (sendto), the turn, `lifecycle` (discard).
//! Never does: decide what an error means for the endpoint.
//!
//! A datagram is sent at once while nothing is queued: that is when its error can be told to the one
//! who sent it. Once the socket is full, datagrams queue, and leave in batches when there is room.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::io;

use pyo3::exceptions::{PyBlockingIOError, PyInterruptedError, PyOSError};
use pyo3::intern;
use pyo3::prelude::*;
use ringloop::buf::SendBuf;
use ringloop::sys::address::SockAddr;
use ringloop::sys::{datagram, socket};

use super::{Armed, Datagram_, Role, address, lifecycle};
use crate::error;
use crate::ffi::{self, Obj};
use crate::transport::{self, flow, with_protocol};

/// Where a datagram goes.
pub(super) enum Destination {
    /// To the peer of the socket.
    Peer,
    To(SockAddr),
    /// An address that `socket.sendto` has to understand, or to refuse.
    Foreign(Obj),
}

struct Queued {
    buf: SendBuf,
    to: Destination,
}

/// What became of a send.
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
            Err(error) if is_blocked(&error) => Self::Blocked,
            Err(error) => Self::No(error::from_io(&error)),
        }
    }

    fn of_python<T>(py: Python<'_>, result: PyResult<T>) -> Self {
        match result {
            Ok(_) => Self::Yes,
            Err(error)
                if error.is_instance_of::<PyBlockingIOError>(py)
                    || error.is_instance_of::<PyInterruptedError>(py) =>
            {
                Self::Blocked
            }
            Err(error) => Self::No(error),
        }
    }
}

fn is_blocked(error: &io::Error) -> bool {
    let kind = error.kind();
    matches!(kind, io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
}

/// The state of the writing side.
pub(super) struct WriteSide {
    queue: RefCell<VecDeque<Queued>>,
    /// Bytes of the queue, with what the version counts for each datagram.
    queued_bytes: Cell<usize>,
    armed: Cell<Armed>,
}

impl WriteSide {
    pub fn new() -> Self {
        Self {
            queue: RefCell::new(VecDeque::new()),
            queued_bytes: Cell::new(0),
            armed: Cell::new(Armed::Nothing),
        }
    }

    pub fn armed(&self) -> &Cell<Armed> {
        &self.armed
    }

    pub fn size(&self) -> usize {
        self.queued_bytes.get()
    }

    pub fn is_empty(&self) -> bool {
        self.queue.borrow().is_empty()
    }

    /// Drop what was not sent.
    pub fn discard(&self) {
        let queue = self.queue.take();
        self.queued_bytes.set(0);
        drop(queue);
    }
}

/// Find out where a datagram goes.
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

/// Send now, or queue behind what waits.
pub(super) fn send(
    this: Datagram_<'_, '_>,
    data: Borrowed<'_, '_, PyAny>,
    to: Destination,
) -> PyResult<()> {
    if this.write.is_empty() {
        match send_object(this, data, &to) {
            Sent::Yes => return Ok(()),
            // Its socket is about to be closed, and nothing sends the queue any more.
            Sent::Blocked if this.lifecycle.is_lost() => return Ok(()),
            Sent::Blocked => {}
            Sent::No(error) => return failed(this, error, Who::Sender),
        }
    }
    let buf = transport::write::take_over(data)?;
    let counted = buf.len() + this.rules.header_len;
    this.write.queue.borrow_mut().push_back(Queued { buf, to });
    this.write.queued_bytes.set(this.write.size() + counted);
    arm(this)?;
    flow::maybe_pause(this, this.write.size())
}

/// Have the engine tell when there is room, where something waits for it.
pub(super) fn arm(this: Datagram_<'_, '_>) -> PyResult<()> {
    if this.write.armed.get() == Armed::Nothing && !this.write.is_empty() {
        this.write.armed.set(this.poll(this.py(), Role::Write)?);
    }
    Ok(())
}

fn send_object(this: Datagram_<'_, '_>, data: Borrowed<'_, '_, PyAny>, to: &Destination) -> Sent {
    let sent = match to {
        Destination::Peer => ffi::with_bytes(data, |bytes| socket::send(this.fd, bytes, 0)),
        Destination::To(to) => ffi::with_bytes(data, |bytes| datagram::send_to(this.fd, bytes, to)),
        Destination::Foreign(to) => return send_by_python(this, data, to),
    };
    match sent {
        Ok(result) => Sent::of(result),
        Err(error) => Sent::No(error),
    }
}

fn send_by_python(this: Datagram_<'_, '_>, data: Borrowed<'_, '_, PyAny>, to: &Obj) -> Sent {
    let py = this.py();
    let socket = this.socket.get_or_none(py);
    let result = socket.call_method1(intern!(py, "sendto"), (data, to.bind(py)));
    Sent::of_python(py, result)
}

/// There is room: send what is queued, until there is none.
pub(super) fn ready(this: Datagram_<'_, '_>) -> PyResult<()> {
    while !this.write.is_empty() {
        match send_front(this) {
            Ok(count) => drop(take_front(this, count)),
            Err(Sent::No(error)) => {
                drop(take_front(this, 1));
                // The next ones are for the next event.
                return failed(this, error, Who::Queue);
            }
            Err(_) => break,
        }
    }
    flow::maybe_resume(this, this.write.size())?;
    if this.write.is_empty() {
        this.disarm(this.py(), &this.write.armed)?;
        if this.lifecycle.is_closing() {
            return lifecycle::lose(this, None);
        }
    }
    Ok(())
}

/// Send from the front of the queue; how many went out.
fn send_front(this: Datagram_<'_, '_>) -> Result<usize, Sent> {
    let py = this.py();
    let queue = this.write.queue.borrow();
    let foreign = match queue.front() {
        Some(Queued {
            buf,
            to: Destination::Foreign(to),
        }) => Some((ffi::copy_bytes(py, buf.as_slice()), to.clone_ref(py))),
        _ => None,
    };
    if let Some((data, to)) = foreign {
        drop(queue);
        return match send_by_python(this, data.bind(py).as_borrowed(), &to) {
            Sent::Yes => Ok(1),
            other => Err(other),
        };
    }
    let batch = queue.iter().map_while(|queued| match &queued.to {
        Destination::Peer => Some((queued.buf.as_slice(), None)),
        Destination::To(to) => Some((queued.buf.as_slice(), Some(to))),
        Destination::Foreign(_) => None,
    });
    match datagram::send_batch(this.fd, batch) {
        Ok(count) => Ok(count),
        Err(error) => Err(Sent::of(Err(error))),
    }
}

/// Take datagrams off the queue, to be dropped outside of its borrow.
fn take_front(this: Datagram_<'_, '_>, count: usize) -> Vec<Queued> {
    let mut queue = this.write.queue.borrow_mut();
    let count = count.min(queue.len());
    let taken: Vec<Queued> = queue.drain(..count).collect();
    let bytes: usize = taken
        .iter()
        .map(|queued| queued.buf.len() + this.rules.header_len)
        .sum();
    this.write
        .queued_bytes
        .set(this.write.size().saturating_sub(bytes));
    taken
}

/// Who is told when `error_received` itself fails.
#[derive(PartialEq, Eq)]
enum Who {
    /// The caller of `sendto`, in whose context it runs.
    Sender,
    /// The loop's exception handler.
    Queue,
}

/// The kernel's errors are the protocol's to hear; any other ends the endpoint.
fn failed(this: Datagram_<'_, '_>, error: PyErr, who: Who) -> PyResult<()> {
    let py = this.py();
    if !error.is_instance_of::<PyOSError>(py) {
        return lifecycle::fatal_error(this, error, "Fatal write error on datagram transport");
    }
    let exception: Obj = error.into_value(py).into_bound(py).into();
    let method = intern!(py, "error_received");
    if who == Who::Queue {
        let told = with_protocol(this, |protocol| {
            ffi::call_method(py, method, &[protocol, &exception])
        });
        return lifecycle::report_callback(this, told.map(drop), "_sendto_ready");
    }
    match this.protocol.get(py) {
        Some(protocol) => ffi::call_method(py, method, &[&protocol, &exception]).map(drop),
        None => Ok(()),
    }
}
