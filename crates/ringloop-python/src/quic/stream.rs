//! `Stream`: one stream of a connection, the base of `ringloop.quic.Stream`.
//!
//! Nothing blocks here: waiting is done by futures ([`super::waiters`]). A stream that is dropped
//! early stops the peer with code 0, and finishes what was written.

use std::sync::{Mutex, MutexGuard, PoisonError};

use pyo3::PyTraverseError;
use pyo3::gc::PyVisit;
use pyo3::prelude::*;
use ringloop_quic::core::{Handle, Read};
use ringloop_quic::error::StreamError;
use ringloop_quic::session::{Wait, Wake};
use ringloop_quic::{Bytes, Direction, StreamId};

use super::connection::Connection;
use super::errors;
use super::numbers::{self, AtMost, Code};
use super::route::Route;
use super::state::State;
use super::waiter::Waiter;
use crate::ffi::{self, Fallible, intern};

/// State of one direction of a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    NotYet,
    /// Receiving: the end was read. Sending: nothing more will be written.
    Finished,
    /// Receiving: the peer reset it, with its code. Sending: this end did.
    Reset(u64),
    /// Receiving: this end stopped it.
    Stopped,
    /// It does not have this direction.
    Never,
}

#[derive(Debug)]
struct Ends {
    receiving: End,
    sending: End,
    /// The code with which the peer stopped it, once seen: the engine forgets it with the stream.
    stopped: Option<u64>,
    /// It was finished after queued bytes.
    is_queued: bool,
    /// Read from the protocol, but there was no memory to return it: for the next read.
    unread: Vec<Bytes>,
}

/// A stream of a connection, by its number. There is one object of a stream.
#[pyclass(frozen, subclass, module = "ringloop._native.quic")]
pub struct Stream {
    connection: Py<Connection>,
    id: StreamId,
    /// Opened before the handshake was complete: a server may reject it.
    is_early: bool,
    ends: Mutex<Ends>,
}

#[pymethods]
impl Stream {
    #[new]
    fn new(py: Python<'_>, connection: &Bound<'_, Connection>, stream_id: u64) -> Self {
        let route = &connection.get().route;
        let id = StreamId(stream_id);
        let (is_client, is_early) = {
            let mut state = route.shared.state(py);
            let both = state.sessions.both(route.handle);
            both.map_or((true, false), |(connection, _)| {
                let is_client = connection.is_client();
                (is_client, is_client && connection.is_handshaking())
            })
        };
        let is_ours = id.is_by_client() == is_client;
        let is_uni = id.direction() == Direction::Uni;
        let goes = |way: bool| if way { End::NotYet } else { End::Never };
        let ends = Ends {
            receiving: goes(!is_uni || !is_ours),
            sending: goes(!is_uni || is_ours),
            stopped: None,
            is_queued: false,
            unread: Vec::new(),
        };
        Self {
            connection: connection.clone().unbind(),
            id,
            is_early,
            ends: Mutex::new(ends),
        }
    }

    /// The connection that it is of.
    #[getter]
    fn connection<'py>(&self, py: Python<'py>) -> Bound<'py, Connection> {
        self.connection.bind(py).clone()
    }

    /// Its number in the connection (RFC 9000 §2.1).
    #[getter]
    fn id(&self) -> Fallible<u64> {
        Fallible(self.id.0)
    }

    /// Whether its bytes go both ways.
    #[getter]
    fn is_bidirectional(&self) -> bool {
        self.id.direction() == Direction::Bi
    }

    /// Whether something can still be read: it receives, and neither end nor reset was read.
    #[getter]
    fn is_readable(&self) -> bool {
        let ends = self.ends();
        ends.receiving == End::NotYet || !ends.unread.is_empty()
    }

    /// Whether something can still be written: it sends, and was not finished or reset.
    #[getter]
    fn is_writable(&self) -> bool {
        self.ends().sending == End::NotYet
    }

    /// Write all of `data`. What has no room in the send window waits here: `drain()` waits for it.
    fn write(&self, py: Python<'_>, data: &Bound<'_, PyAny>) -> PyResult<()> {
        self.put(py, data)?;
        self.route().shared.arm_flush(py)
    }

    /// Write, and wait for room: `write` and `drain`. The bytes are taken by the call; what is wrong with them, the stream
    /// or the connection is raised where it is awaited.
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

    /// Wait until all that was written has room in the send window.
    fn drain<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        let (py, this) = (slf.py(), slf.get());
        if matches!(this.is_full(py), Ok(false)) {
            return Ok(this.route().shared.ready(py));
        }
        // Waiting and errors happen where it is awaited.
        slf.call_method0(intern!(py, "_drain"))
    }

    /// Write what there is room for in the send window; tells how many bytes that are.
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

    /// Bytes that wait for room in the send window.
    #[getter]
    fn queued_bytes(&self, py: Python<'_>) -> Fallible<usize> {
        let mut state = self.route().shared.state(py);
        let session = state.sessions.get(self.route().handle);
        let queued = session.and_then(|session| session.attached.queued.get(&self.id));
        Fallible(queued.map_or(0, super::queued::Queued::len))
    }

    /// What to await for the moment when all that was written has found room; None where it has.
    #[pyo3(name = "_drain_waiter")]
    fn drain_waiter<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, Waiter>>> {
        if self.is_full(py)? {
            return self.route().wait_for(py, Wait::Write(self.id)).map(Some);
        }
        Ok(None)
    }

    /// Say that nothing more will be written. Once is enough.
    fn finish(&self, py: Python<'_>) -> PyResult<()> {
        {
            let mut ends = self.ends();
            match ends.sending {
                End::NotYet => ends.sending = End::Finished,
                End::Never => return Err(self.refused(py, &StreamError::Closed)),
                _ => return Ok(()),
            }
        }
        let (handle, id) = (self.route().handle, self.id);
        let finished = self.with(py, |state| state.finish(handle, id));
        let finished = finished.map(|is_queued| self.ends().is_queued = is_queued);
        // If the peer has stopped it, there is a reset to send.
        let armed = self.route().shared.arm_flush(py);
        finished.and(armed)
    }

    /// Finish, unless sending or the connection is over; where the peer does not want the stream, give up sending with its
    /// code. What comes can still be read; a stream without references stops the peer.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        {
            let mut ends = self.ends();
            if ends.sending != End::NotYet || self.route().lost().is_some() {
                return Ok(());
            }
            ends.sending = End::Finished;
        }
        let (handle, id) = (self.route().handle, self.id);
        let mut state = self.route().shared.state(py);
        if self.check_early(&mut state).is_err() {
            return Ok(());
        }
        let (is_queued, stopped) = end_sending(&mut state, handle, id);
        drop(state);
        self.ends().is_queued = is_queued;
        self.note_stopped(stopped);
        self.route().shared.arm_flush(py)
    }

    /// Give up sending; what is on its way may be lost. Nothing happens where sending is over.
    fn reset(&self, py: Python<'_>, code: Code) -> PyResult<()> {
        let Code(code) = code;
        let before = {
            let mut ends = self.ends();
            if matches!(ends.sending, End::Never | End::Reset(_)) {
                return Ok(());
            }
            std::mem::replace(&mut ends.sending, End::Reset(code))
        };
        let (handle, id) = (self.route().handle, self.id);
        let done = {
            let mut state = self.route().shared.state(py);
            // The id of a stream of rejected early data is reused.
            match self.check_early(&mut state) {
                Ok(()) => state.reset(handle, id, code),
                refused => refused,
            }
        };
        match done {
            // All of it was acknowledged: there is nothing to reset.
            Err(StreamError::Closed) if before == End::Finished => self.ends().sending = before,
            Err(
                StreamError::Closed | StreamError::Connection(_) | StreamError::EarlyDataRejected,
            ) => {}
            _ => {
                let woken = [Wait::Write(id), Wait::Finished(id)];
                let woken = woken.map(|wait| Wake::For(handle, wait));
                return self.route().shared.finish(py, woken.into());
            }
        }
        Ok(())
    }

    /// Have the peer stop sending, and drop what has come. Nothing happens where receiving is over.
    fn stop(&self, py: Python<'_>, code: Code) -> PyResult<()> {
        let Code(code) = code;
        {
            let mut ends = self.ends();
            if ends.receiving != End::NotYet {
                return Ok(());
            }
            ends.receiving = End::Stopped;
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

    /// What has come, at most `count` bytes; `b""` at the end, None where there is nothing now.
    #[pyo3(name = "_take")]
    fn take<'py>(&self, py: Python<'py>, count: AtMost) -> PyResult<Option<Bound<'py, PyAny>>> {
        let AtMost(count) = count;
        let (unread, end) = {
            let mut ends = self.ends();
            (std::mem::take(&mut ends.unread), ends.receiving)
        };
        if !unread.is_empty() {
            return self.hand_out(py, unread, count).map(Some);
        }
        match end {
            End::NotYet => {}
            End::Finished => return Ok(Some(ffi::new_bytes(py, b"")?.into_any())),
            End::Reset(code) => return Err(self.refused(py, &StreamError::Reset(code))),
            End::Stopped | End::Never => return Err(self.refused(py, &StreamError::Closed)),
        }
        let (handle, id) = (self.route().handle, self.id);
        let mut pieces = Vec::new();
        let read = {
            let mut state = self.route().shared.state(py);
            match self.check_early(&mut state) {
                Ok(()) => state.read(handle, id, count, &mut pieces),
                Err(error) => Err(error),
            }
        };
        match read {
            Ok(Read::Blocked) => return Ok(None),
            Ok(Read::Some(_)) => {}
            Ok(Read::End(_)) => self.ends().receiving = End::Finished,
            Err(error) => {
                if let StreamError::Reset(code) = error {
                    self.ends().receiving = End::Reset(code);
                    // The stream has ended, which lets the peer open another one.
                    self.route().shared.arm_flush(py)?;
                }
                return Err(self.refused(py, &error));
            }
        }
        self.hand_out(py, pieces, count).map(Some)
    }

    /// What to await for the moment when there is something to read.
    #[pyo3(name = "_read_waiter")]
    fn read_waiter<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, Waiter>> {
        self.route().wait_for(py, Wait::Read(self.id))
    }

    /// How the peer has answered to what was sent: `(True, None)`: all of it was acknowledged; `(True, code)`: it
    /// does not want it, or sending was given up here; `(False, None)`: not yet.
    #[pyo3(name = "_sent")]
    fn sent(&self, py: Python<'_>) -> PyResult<Fallible<(bool, Option<u64>)>> {
        let known = {
            let ends = self.ends();
            match ends.sending {
                End::Reset(code) => Some(code),
                _ => ends.stopped,
            }
        };
        if known.is_some() {
            return Ok(Fallible((true, known)));
        }
        let (handle, id) = (self.route().handle, self.id);
        let sent = self.with(py, |state| {
            let (mut connection, session) = state.sessions.open(handle)?;
            if let Some(code) = session.stopped_after_finish(id) {
                return Ok((true, Some(code)));
            }
            match connection.stopped(id) {
                Err(StreamError::Closed) => Ok((true, None)),
                stopped => stopped.map(|code| (code.is_some(), code)),
            }
        })?;
        self.note_stopped(sent.1);
        Ok(Fallible(sent))
    }

    /// What to await for the moment when `sent` tells more.
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
        self.with(py, |state| {
            state.sessions.open(handle)?.0.set_priority(id, priority)
        })
    }

    /// No reference cycle has only streams and connections: attributes set by the application are
    /// cleared there.
    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.connection)
    }
}

impl Stream {
    fn route(&self) -> &Route {
        &self.connection.get().route
    }

    fn ends(&self) -> MutexGuard<'_, Ends> {
        self.ends.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn note_stopped(&self, code: Option<u64>) {
        if code.is_some() {
            self.ends().stopped = code;
        }
    }

    /// Makes one object of the first `count` bytes; the rest is for the next read.
    fn hand_out<'py>(
        &self,
        py: Python<'py>,
        mut pieces: Vec<Bytes>,
        count: usize,
    ) -> PyResult<Bound<'py, PyAny>> {
        let rest = split_at(&mut pieces, count);
        // What was read is credit for the peer.
        let joined = self
            .route()
            .shared
            .arm_flush(py)
            .and_then(|()| ffi::join_bytes(py, &pieces));
        if joined.is_err() {
            pieces.extend(rest);
            self.ends().unread = pieces;
        } else if !rest.is_empty() {
            self.ends().unread = rest;
        }
        joined.map(|joined| joined.into_bound(py))
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
        if self.ends().sending == End::NotYet {
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
        if let Err(StreamError::Stopped(code)) = done {
            self.note_stopped(Some(code));
        }
        done.map_err(|error| self.refused(py, &error))
    }

    fn refused(&self, py: Python<'_>, error: &StreamError) -> PyErr {
        errors::stream(py, &self.route().end, error)
    }
}

/// Finishes; if the peer has stopped the stream, resets it instead (RFC 9000 §3.5). Returns whether
/// something is queued before the end, and the peer's code.
fn end_sending(state: &mut State, handle: Handle, id: StreamId) -> (bool, Option<u64>) {
    match state.finish(handle, id) {
        Ok(is_queued) => (is_queued, None),
        Err(StreamError::Stopped(code)) => {
            drop(state.reset(handle, id, code));
            (false, Some(code))
        }
        Err(_) => (false, None),
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        let ends = self.ends.get_mut().unwrap_or_else(PoisonError::into_inner);
        let (reads, writes) = (ends.receiving == End::NotYet, ends.sending == End::NotYet);
        let route = &self.connection.get().route;
        if !(reads || writes || ends.is_queued) || route.lost().is_some() {
            return;
        }
        let (handle, id) = (route.handle, self.id);
        {
            // The holder of the lock does not need the interpreter to release it.
            let mut state = self.route().shared.state_detached();
            if self.check_early(&mut state).is_err() {
                return;
            }
            if reads && let Ok((mut connection, _)) = state.sessions.open(handle) {
                drop(connection.stop(id, 0));
            }
            if writes {
                end_sending(&mut state, handle, id);
            }
            if let Some(session) = state.sessions.get(handle) {
                session.forget_finish(id);
            }
        }
        // A closed loop sends nothing more.
        Python::try_attach(|py| drop(self.route().shared.arm_flush(py)));
    }
}

/// Keeps the first `count` bytes; returns the others.
fn split_at(pieces: &mut Vec<Bytes>, count: usize) -> Vec<Bytes> {
    let mut left = count;
    let Some(index) = pieces.iter().position(|piece| {
        let is_cut = piece.len() > left;
        left -= piece.len().min(left);
        is_cut
    }) else {
        return Vec::new();
    };
    let before: usize = pieces[..index].iter().map(Bytes::len).sum();
    let mut rest = pieces.split_off(index);
    pieces.push(rest[0].split_to(count - before));
    rest
}
