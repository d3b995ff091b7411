//! `Stream`: one stream of a connection, the base of `ringloop.quic.Stream`.
//!
//! Nothing blocks here: waiting is done by futures ([`super::waiters`]). A stream that is dropped
//! early stops the peer with code 0, and finishes what was written.

use std::slice;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use pyo3::PyTraverseError;
use pyo3::exceptions::PyValueError;
use pyo3::gc::PyVisit;
use pyo3::prelude::*;
use ringloop_h3::webtransport::codes::{self, SESSION_GONE};
use ringloop_quic::core::Read;
use ringloop_quic::error::{ConnectionError, StreamError};
use ringloop_quic::session::{RecvHalf, SendHalf, Wait, Wake};
use ringloop_quic::{Bytes, Direction, StreamId};

use super::connection::Connection;
use super::errors;
use super::exception;
use super::numbers::{self, AtMost, Code};
use super::route::Route;
use super::state::State;
use super::waiter::Waiter;
use crate::ffi::{self, Fallible, Raise as _, intern};

/// A stream of a connection, by its number. Each stream has one object.
#[pyclass(frozen, subclass, module = "ringloop._native.quic")]
pub struct Stream {
    connection: Py<Connection>,
    id: StreamId,
    /// Opened before the handshake was complete: a server may reject it.
    is_early: bool,
    membership: Option<Membership>,
    /// Locked for a few instructions; after the protocol if both are needed.
    halves: Mutex<(SendHalf, RecvHalf)>,
}

/// The stream's WebTransport session, if any; its codes are the application's then.
struct Membership {
    session: StreamId,
    /// The session has flow control.
    is_limited: bool,
    /// Bytes that were read with the stream's header, and counted, but not taken.
    counted: AtomicU64,
}

#[pymethods]
impl Stream {
    #[new]
    fn new(py: Python<'_>, connection: &Bound<'_, Connection>, stream_id: u64) -> Self {
        let route = &connection.get().route;
        let id = StreamId(stream_id);
        let (is_client, is_early, handed) = {
            let mut state = route.shared.state(py);
            let both = state.sessions.both(route.handle);
            both.map_or((true, false, None), |(connection, session)| {
                let is_client = connection.is_client();
                let http = session.attached.http.as_mut();
                let handed = http.and_then(|driver| {
                    let handed = driver.take_handed(id)?;
                    let is_limited = driver.limits_sessions();
                    if is_limited {
                        session.attached.limited.insert(id, handed.session);
                    }
                    Some((handed, is_limited))
                });
                (is_client, is_client && connection.is_handshaking(), handed)
            })
        };
        let is_ours = id.is_by_client() == is_client;
        let is_uni = id.direction() == Direction::Uni;
        let send =
            if is_uni && !is_ours { SendHalf::absent(id) } else { SendHalf::new(id, is_early) };
        let mut recv =
            if is_uni && is_ours { RecvHalf::absent(id) } else { RecvHalf::new(id, is_early) };
        let membership = handed.map(|(handed, is_limited)| {
            let counted = AtomicU64::new(handed.data.len() as u64);
            recv.put_back([handed.data].into_iter());
            if handed.fin {
                recv.note_end();
            }
            Membership { session: handed.session, is_limited, counted }
        });
        Self {
            connection: connection.clone().unbind(),
            id,
            is_early,
            membership,
            halves: Mutex::new((send, recv)),
        }
    }

    /// The stream's connection.
    #[getter]
    fn connection<'py>(&self, py: Python<'py>) -> Bound<'py, Connection> {
        self.connection.bind(py).clone()
    }

    /// Its number in the connection (RFC 9000 §2.1).
    #[getter]
    fn id(&self) -> Fallible<u64> {
        Fallible(self.id.0)
    }

    /// Whether it is bidirectional.
    #[getter]
    fn is_bidirectional(&self) -> bool {
        self.id.direction() == Direction::Bi
    }

    /// Whether more can be read: it receives, and neither the end nor a reset was read.
    #[getter]
    fn is_readable(&self) -> bool {
        self.halves().1.is_readable()
    }

    /// Whether more can be written: it sends, and was not finished or reset.
    #[getter]
    fn is_writable(&self) -> bool {
        self.halves().0.is_open()
    }

    /// Write all of `data`. Data without room in the send window is queued; `drain()` waits for it.
    fn write(&self, py: Python<'_>, data: &Bound<'_, PyAny>) -> PyResult<()> {
        self.put(py, data)?;
        self.route().shared.arm_flush(py)
    }

    /// Write, and wait for space: `write` and `drain`. The call itself takes the bytes; errors are raised when it is
    /// awaited.
    fn send<'py>(slf: &Bound<'py, Self>, data: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        let (py, this) = (slf.py(), slf.get());
        let Ok(has_room) = this.put(py, data) else {
            return slf.call_method1(intern!(py, "_send"), (data,));
        };
        let shared = &this.route().shared;
        shared.arm_flush(py)?;
        if has_room {
            return Ok(shared.ready(py));
        }
        slf.call_method0(intern!(py, "_drain"))
    }

    /// Wait until all written data has space in the send window.
    fn drain<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        let (py, this) = (slf.py(), slf.get());
        if matches!(this.is_full(py), Ok(false)) {
            return Ok(this.route().shared.ready(py));
        }
        // Waiting and errors happen where it is awaited.
        slf.call_method0(intern!(py, "_drain"))
    }

    /// Write as much as the send window has space for; return the number of bytes.
    fn write_nowait(&self, py: Python<'_>, data: &Bound<'_, PyAny>) -> PyResult<Fallible<usize>> {
        self.check_sending(py)?;
        ffi::spare()?;
        let (handle, id) = (self.route().handle, self.id);
        let count = ffi::with_bytes(data.as_borrowed(), |bytes| {
            self.with(py, |state| state.write_some(handle, id, bytes))
        })??;
        self.route().shared.arm_flush(py)?;
        Ok(Fallible(count))
    }

    /// Bytes that wait for space in the send window.
    #[getter]
    fn queued_bytes(&self, py: Python<'_>) -> Fallible<usize> {
        let mut state = self.route().shared.state(py);
        let session = state.sessions.get(self.route().handle);
        let queued = session.and_then(|session| session.attached.queued.get(&self.id));
        Fallible(queued.map_or(0, super::queued::Queued::len))
    }

    /// The waiter for space for all written data; None if there is space.
    #[pyo3(name = "_drain_waiter")]
    fn drain_waiter<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, Waiter>>> {
        if self.is_full(py)? {
            return self.route().wait_for(py, Wait::Write(self.id)).map(Some);
        }
        Ok(None)
    }

    /// Declare that nothing more will be written. Further calls do nothing.
    fn finish(&self, py: Python<'_>) -> PyResult<()> {
        {
            let (send, _) = &mut *self.halves();
            if !send.is_present() {
                return Err(self.refused(py, &StreamError::Closed));
            }
            if !send.close() {
                return Ok(());
            }
        }
        let finished = self.end_sending(&mut self.route().shared.state(py));
        // If the peer has stopped it, there is a reset to send.
        let armed = self.route().shared.arm_flush(py);
        finished.map_err(|error| self.refused(py, &error))?;
        armed
    }

    /// Finish, unless sending or the connection has ended; if the peer stopped the stream, reset it with the peer's
    /// code. Received data can still be read; dropping the last reference to the stream stops the peer.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        if self.route().lost().is_some() || !self.halves().0.close() {
            return Ok(());
        }
        let ended = self.end_sending(&mut self.route().shared.state(py));
        match ended {
            Err(StreamError::EarlyDataRejected) => Ok(()),
            _ => self.route().shared.arm_flush(py),
        }
    }

    /// Reset the stream; data in flight may be lost. Does nothing if sending has ended.
    fn reset(&self, py: Python<'_>, code: Code) -> PyResult<()> {
        let code = self.code_to_send(code)?;
        let (handle, id) = (self.route().handle, self.id);
        let done = {
            let mut state = self.route().shared.state(py);
            let (send, _) = &mut *self.halves();
            if !send.may_reset() {
                return Ok(());
            }
            let is_ours = self.check_early(&mut state);
            if is_ours.is_ok()
                && let Some((mut connection, _)) = state.sessions.both(handle)
            {
                send.look_for_stop(&mut connection);
            }
            let done = is_ours.and_then(|()| state.reset(handle, id, code));
            // Otherwise all of it was acknowledged: there is nothing to reset.
            if done != Err(StreamError::Closed) || send.is_open() {
                send.note_reset(code);
            }
            done
        };
        if done.is_err() {
            return Ok(());
        }
        let woken = [Wait::Write(id), Wait::Finished(id)];
        let woken = woken.map(|wait| Wake::For(handle, wait));
        self.route().shared.finish(py, woken.into())
    }

    /// Ask the peer to stop sending, and drop received data. Does nothing if receiving has ended.
    fn stop(&self, py: Python<'_>, code: Code) -> PyResult<()> {
        let code = self.code_to_send(code)?;
        if !self.halves().1.close() {
            return Ok(());
        }
        let handle = self.route().handle;
        let mut state = self.route().shared.state(py);
        // The id of a stream of rejected early data is reused.
        if self.check_early(&mut state).is_err() {
            return Ok(());
        }
        if let Ok((mut connection, _)) = state.sessions.open(handle) {
            drop(connection.stop(self.id, code));
        }
        drop(state);
        let woken = Wake::For(handle, Wait::Read(self.id));
        self.route().shared.finish(py, vec![woken])
    }

    /// Read received data, at most `count` bytes; `b""` at the end, None if there is none now.
    #[pyo3(name = "_take")]
    fn take<'py>(&self, py: Python<'py>, count: AtMost) -> PyResult<Option<Bound<'py, PyAny>>> {
        self.taken(py, count.0)
    }

    /// The same; if there is none now, the waiter for data.
    #[pyo3(name = "_read")]
    fn read<'py>(&self, py: Python<'py>, count: AtMost) -> PyResult<Bound<'py, PyAny>> {
        match self.taken(py, count.0)? {
            Some(data) => Ok(data),
            None => self.read_waiter(py).map(Bound::into_any),
        }
    }

    /// The waiter for data to read.
    #[pyo3(name = "_read_waiter")]
    fn read_waiter<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, Waiter>> {
        self.route().wait_for(py, Wait::Read(self.id))
    }

    /// The outcome of sending: `(True, None)`: all data was acknowledged; `(True, code)`: the peer stopped the stream,
    /// or this end reset it; `(False, None)`: not known yet.
    #[pyo3(name = "_sent")]
    fn sent(&self, py: Python<'_>) -> PyResult<Fallible<(bool, Option<u64>)>> {
        let sent = {
            let mut state = self.route().shared.state(py);
            let (send, _) = &mut *self.halves();
            match (send.given_up(), state.sessions.open(self.route().handle)) {
                (Some(code), _) => Ok(Some(Some(code))),
                (None, Ok((mut connection, session))) => send.outcome(&mut connection, session),
                (None, Err(error)) => Err(error),
            }
        };
        let sent = sent.map_err(|error| self.refused(py, &error))?;
        let code = sent.flatten().map(|code| self.code_received(code));
        Ok(Fallible((sent.is_some(), code)))
    }

    /// The waiter for a change of `sent`.
    #[pyo3(name = "_sent_waiter")]
    fn sent_waiter<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, Waiter>> {
        self.route().wait_for(py, Wait::Finished(self.id))
    }

    /// Streams of a higher priority send first; 0 at the start.
    #[getter]
    fn get_priority(&self, py: Python<'_>) -> PyResult<Fallible<i32>> {
        let (handle, id) = (self.route().handle, self.id);
        let read = |state: &mut State| state.sessions.open(handle)?.0.priority(id);
        self.with(py, read).map(Fallible)
    }

    #[setter]
    fn set_priority(&self, py: Python<'_>, priority: &Bound<'_, PyAny>) -> PyResult<()> {
        let priority = numbers::whole("priority", priority, &(i32::MIN..=i32::MAX), "")?;
        let (handle, id) = (self.route().handle, self.id);
        self.with(py, |state| state.sessions.open(handle)?.0.set_priority(id, priority))
    }

    /// No reference cycle has only streams and connections: attributes set by the application are
    /// cleared there.
    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.connection)
    }
}

/// What one read takes. The only piece of a short one needs no memory for a list.
#[derive(Default)]
struct Pieces {
    first: Bytes,
    /// All of them, if they are several.
    several: Vec<Bytes>,
}

impl Pieces {
    fn push(&mut self, piece: Bytes) {
        if self.first.is_empty() {
            self.first = piece;
            return;
        }
        if self.several.is_empty() {
            self.several.push(self.first.clone());
        }
        self.several.push(piece);
    }

    fn all(&self) -> &[Bytes] {
        if self.several.is_empty() { slice::from_ref(&self.first) } else { &self.several }
    }
}

impl Stream {
    /// Takes what has come, at most `count` bytes.
    fn taken<'py>(&self, py: Python<'py>, count: usize) -> PyResult<Option<Bound<'py, PyAny>>> {
        let mut pieces = Pieces::default();
        let (was_open, read) = self.read_into(py, count, &mut pieces);
        let armed = match read {
            Ok(Read::Blocked) => return Ok(None),
            // What was read is credit for the peer; an end lets it open another stream.
            Ok(Read::Some(_)) => self.route().shared.arm_flush(py),
            Ok(Read::End(_)) | Err(StreamError::Reset(_)) if was_open => {
                self.route().shared.arm_flush(py)
            }
            _ => Ok(()),
        };
        if let Err(error) = read {
            armed?;
            return Err(self.refused(py, &error));
        }
        let joined = armed.and_then(|()| ffi::join_bytes(py, pieces.all()));
        if joined.is_err() {
            self.halves().1.put_back(pieces.all().iter().cloned());
        } else {
            self.note_taken(py, pieces.all().iter().map(Bytes::len).sum());
        }
        joined.map(|joined| Some(joined.into_bound(py)))
    }

    /// Reads; and whether the half was open before.
    fn read_into(
        &self,
        py: Python<'_>,
        count: usize,
        pieces: &mut Pieces,
    ) -> (bool, Result<Read, StreamError>) {
        let mut push = |piece| {
            pieces.push(piece);
            true
        };
        {
            let (_, recv) = &mut *self.halves();
            let was_open = recv.is_open();
            if let Some(known) = recv.read_known(count, &mut push) {
                return (was_open, known);
            }
        }
        let mut state = self.route().shared.state(py);
        let (_, recv) = &mut *self.halves();
        let was_open = recv.is_open();
        let read = match state.sessions.both(self.route().handle) {
            Some((mut connection, session)) => recv.read(&mut connection, session, count, push),
            None => recv.read_known(count, push).unwrap_or(Err(ConnectionError::Closed.into())),
        };
        (was_open, read)
    }

    fn route(&self) -> &Route {
        &self.connection.get().route
    }

    fn halves(&self) -> MutexGuard<'_, (SendHalf, RecvHalf)> {
        self.halves.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Finishes a half that was closed; if the peer has stopped it, it is reset.
    fn end_sending(&self, state: &mut State) -> Result<bool, StreamError> {
        let finished =
            self.check_early(state).and_then(|()| state.finish(self.route().handle, self.id));
        self.halves().0.note_finish(&finished);
        finished
    }

    /// Writes all of `data`; whether it, and all before it, found room. Writes nothing on failure.
    fn put(&self, py: Python<'_>, data: &Bound<'_, PyAny>) -> PyResult<bool> {
        self.check_sending(py)?;
        ffi::spare()?;
        let (handle, id) = (self.route().handle, self.id);
        ffi::with_bytes(data.as_borrowed(), |bytes| {
            let room = ffi::room_for(bytes.len())?;
            self.with(py, |state| state.write(handle, id, bytes, room))
        })?
    }

    /// Whether written bytes wait for room in the send window.
    fn is_full(&self, py: Python<'_>) -> PyResult<bool> {
        let (handle, id) = (self.route().handle, self.id);
        self.with(py, |state| {
            let (_, session) = state.sessions.open(handle)?;
            Ok(!session.attached.queued.is_empty() && session.attached.queued.contains_key(&id))
        })
    }

    fn check_sending(&self, py: Python<'_>) -> PyResult<()> {
        if self.halves().0.is_open() {
            return Ok(());
        }
        Err(self.refused(py, &StreamError::Closed))
    }

    fn check_early(&self, state: &mut State) -> Result<(), StreamError> {
        let session = state.sessions.get(self.route().handle);
        session.map_or(Ok(()), |session| session.check_early(self.is_early))
    }

    fn with<T>(
        &self,
        py: Python<'_>,
        act: impl FnOnce(&mut State) -> Result<T, StreamError>,
    ) -> PyResult<T> {
        let done = {
            let mut state = self.route().shared.state(py);
            self.check_early(&mut state).and_then(|()| act(&mut state))
        };
        if done.is_err() {
            self.halves().0.note(&done);
        }
        done.map_err(|error| self.refused(py, &error))
    }

    fn refused(&self, py: Python<'_>, error: &StreamError) -> PyErr {
        let error = match (&self.membership, error) {
            (Some(_), StreamError::Reset(SESSION_GONE) | StreamError::Stopped(SESSION_GONE)) => {
                let text = "the stream's session has ended";
                return exception::exception(py, "StreamClosedError", (text,));
            }
            (Some(_), StreamError::Reset(code)) => StreamError::Reset(self.code_received(*code)),
            (Some(_), StreamError::Stopped(code)) => {
                StreamError::Stopped(self.code_received(*code))
            }
            _ => error.clone(),
        };
        errors::stream(py, &self.route().end, &error)
    }

    /// The code on the wire for one of the application's.
    fn code_to_send(&self, Code(code): Code) -> PyResult<u64> {
        if self.membership.is_none() {
            return Ok(code);
        }
        let code = u32::try_from(code).map_err(|_| {
            PyValueError::raise(format!(
                "code is {code}: give 0 to {}, the range of WebTransport",
                u32::MAX
            ))
        })?;
        Ok(codes::to_http_code(code))
    }

    /// The application's code for one on the wire; 0 if there was none of an application.
    fn code_received(&self, code: u64) -> u64 {
        if self.membership.is_none() {
            return code;
        }
        codes::to_application_code(code).unwrap_or(0).into()
    }

    /// Tells a session with flow control what was taken: the peer may send as much again.
    fn note_taken(&self, py: Python<'_>, len: usize) {
        let Some(membership) = self.membership.as_ref().filter(|it| it.is_limited && len > 0)
        else {
            return;
        };
        let len = len as u64;
        let counted = membership.counted.load(Ordering::Relaxed).min(len);
        membership.counted.fetch_sub(counted, Ordering::Relaxed);
        let handle = self.route().handle;
        let mut woken = Vec::new();
        {
            let mut state = self.route().shared.state(py);
            let now = state.clock.moment(None);
            let _known = state.with_http(now, handle, &mut woken, |driver, _, _| {
                driver.note_read(membership.session, self.id, len - counted, len);
                Ok(())
            });
        }
        // The data read is not lost; a loop that cannot be notified is closed, or out of memory.
        drop(self.route().shared.finish(py, woken));
    }

    /// Tells the session that the stream has ended.
    fn forget(&self, state: &mut State, woken: &mut Vec<Wake>) {
        let Some(membership) = &self.membership else {
            return;
        };
        let (now, handle) = (state.clock.moment(None), self.route().handle);
        if let Some(session) = state.sessions.get(handle)
            && !session.attached.queued.contains_key(&self.id)
        {
            session.attached.limited.remove(&self.id);
        }
        let _known = state.with_http(now, handle, woken, |driver, _, _| {
            driver.forget_stream(membership.session, self.id);
            Ok(())
        });
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        let (send, recv) = self.halves.get_mut().unwrap_or_else(PoisonError::into_inner);
        let (writes, reads) = (send.close(), recv.close());
        let forgets = send.finishes_later();
        let route = self.route();
        let is_known = reads || writes || forgets || self.membership.is_some();
        if !is_known || route.lost().is_some() {
            return;
        }
        let mut woken = Vec::new();
        {
            // The holder of the lock does not need the interpreter to release it.
            let mut state = route.shared.state_detached();
            if self.check_early(&mut state).is_err() {
                return;
            }
            if reads && let Ok((mut connection, _)) = state.sessions.open(route.handle) {
                drop(connection.stop(self.id, self.code_to_send(Code(0)).unwrap_or(0)));
            }
            if writes {
                drop(state.finish(route.handle, self.id));
            }
            if let Some(session) = state.sessions.get(route.handle) {
                session.forget_finish(self.id);
            }
            self.forget(&mut state, &mut woken);
        }
        // A closed loop sends nothing more.
        Python::try_attach(|py| drop(route.shared.finish(py, woken)));
    }
}
