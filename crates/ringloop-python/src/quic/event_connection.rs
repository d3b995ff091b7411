//! `EventConnection`: a connection that reports events and addresses streams by id.
//!
//! For the interfaces of aioquic and its kin, on endpoints that keep events; not used by
//! `ringloop.quic` itself.

use pyo3::exceptions::{PyBufferError, PyRuntimeError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList};
use ringloop_quic::StreamId;

use super::connection::{Connection, direction};
use super::endpoint::Endpoint;
use super::errors;
use super::event_queue::{IdChange, Pending, Taken};
use super::events;
use super::numbers::{self, Code};
use super::queued::Queued;
use super::route::Route;
use crate::ffi::{self, Fallible, Raise as _};

/// A connection of an endpoint that keeps events: its streams by number, and its events.
#[pyclass(frozen, extends = Connection, module = "ringloop._native.quic")]
pub struct EventConnection {
    pub route: Route,
}

type Ids<'py> = (Bound<'py, PyBytes>, Bound<'py, PyBytes>);

#[pymethods]
impl EventConnection {
    #[new]
    fn new(
        py: Python<'_>,
        endpoint: &Bound<'_, Endpoint>,
        key: u64,
    ) -> PyResult<PyClassInitializer<Self>> {
        let base = Connection::new(py, endpoint, key)?;
        let route = base.route.clone();
        Ok(PyClassInitializer::from(base).add_subclass(Self { route }))
    }

    /// Its number in the endpoint, never reused.
    #[getter]
    fn key(&self) -> Fallible<u64> {
        Fallible(self.route.handle.to_bits())
    }

    /// Open a stream; return its number, or None while the peer allows no more.
    #[pyo3(signature = (unidirectional=false))]
    fn open_stream_nowait(
        &self,
        py: Python<'_>,
        unidirectional: bool,
    ) -> PyResult<Fallible<Option<u64>>> {
        self.route.open(py, direction(unidirectional))
    }

    /// Bytes of all streams that wait for space in the send window.
    #[getter]
    fn streams_queued(&self, py: Python<'_>) -> PyResult<Fallible<usize>> {
        self.route.look(py, |_, session| session.attached.queued_bytes()).map(Fallible)
    }

    /// Why it ended, as aioquic's event.
    #[getter]
    fn close_info<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        match self.route.lost() {
            Some(_) => self.terminated(py).map(Some),
            None => Ok(None),
        }
    }

    /// The connection id that the peer uses first, and the destination id of the client's first packet; None for
    /// endpoints that do not report ids.
    fn ids<'py>(&self, py: Python<'py>) -> PyResult<Fallible<Option<Ids<'py>>>> {
        let ids = self.route.look(py, |connection, _| connection.ids())?;
        ids.map(|(first, original)| {
            Ok((ffi::new_bytes(py, &first)?, ffi::new_bytes(py, &original)?))
        })
        .transpose()
        .map(Fallible)
    }

    /// Whether the server refused early data: its streams do not exist.
    #[getter]
    fn early_data_rejected(&self, py: Python<'_>) -> PyResult<bool> {
        self.route.look(py, |_, session| session.early_rejected)
    }

    /// Pause a stream's events, so that its window closes. Only for endpoints that keep events. Does nothing if the
    /// connection is closed: received data is reported, and nothing follows the last event.
    fn pause_stream(&self, py: Python<'_>, stream_id: u64) -> PyResult<()> {
        if self.route.lost().is_some() {
            return Ok(());
        }
        self.route.look(py, |_, session| {
            session.attached.events.pause(StreamId(stream_id));
        })
    }

    /// Resume a stream's events.
    fn resume_stream(&self, py: Python<'_>, stream_id: u64) {
        let stream = StreamId(stream_id);
        let mut state = self.route.shared.state(py);
        let session = state.sessions.get(self.route.handle);
        if session.is_some_and(|session| session.attached.events.resume(stream)) {
            state.push_event(self.route.handle, Pending::Readable(stream));
        }
    }

    /// Make `take_writable` return a stream once its queue is empty; False if it already is.
    fn want_writable(&self, py: Python<'_>, stream_id: u64) -> PyResult<bool> {
        let stream = StreamId(stream_id);
        self.route.look(py, |_, session| {
            let is_queued = session.attached.queued.contains_key(&stream);
            if is_queued {
                session.attached.wanted.insert(stream);
            }
            is_queued
        })
    }

    /// The streams of `want_writable` whose queues are empty now.
    fn take_writable(&self, py: Python<'_>) -> Fallible<Vec<u64>> {
        let mut state = self.route.shared.state(py);
        let session = state.sessions.get(self.route.handle);
        let taken = session.map(|session| std::mem::take(&mut session.attached.writable));
        let taken = taken.unwrap_or_default();
        Fallible(taken.into_iter().map(|stream| stream.0).collect())
    }

    /// Whether a stream with written data waits for the peer to allow more streams.
    #[pyo3(signature = (unidirectional=false))]
    fn waits_for_credit(&self, py: Python<'_>, unidirectional: bool) -> PyResult<bool> {
        self.route.look(py, |connection, session| {
            let opened = session.attached.opened[usize::from(unidirectional)];
            session.attached.queued.keys().any(|stream| {
                stream.is_by_client() == connection.is_client()
                    && stream.direction() == direction(unidirectional)
                    && stream.0 >> 2 >= opened
            })
        })
    }

    /// Bytes that `send_stream_data` may queue before it raises `BufferError`; None: no limit.
    fn set_queued_max(&self, py: Python<'_>, count: Option<&Bound<'_, PyAny>>) -> PyResult<()> {
        let bounds = 0..=isize::MAX as usize;
        // The configuration field's name.
        let whole = |count| numbers::whole("tx_max_queued_bytes", count, &bounds, ", or None");
        let count = count.map(whole).transpose()?;
        self.route.look(py, |_, session| session.attached.queued_max = count)
    }

    /// Send packets from another address from now on: switch to another connection id, notify the peer. An error until
    /// the handshake is confirmed (RFC 9000 §9).
    fn local_address_changed(&self, py: Python<'_>) -> PyResult<()> {
        if self.route.act(py, |connection| !connection.local_address_changed())? {
            return Err(PyRuntimeError::raise(
                "the handshake is not confirmed: until then the connection cannot change its address",
            ));
        }
        Ok(())
    }

    /// The number of the next stream that would be opened.
    #[pyo3(signature = (unidirectional=false))]
    fn next_stream_id(&self, py: Python<'_>, unidirectional: bool) -> PyResult<Fallible<u64>> {
        self.route
            .look(py, |connection, session| {
                let opened = session.attached.opened[usize::from(unidirectional)];
                let waiting = session.attached.queued.keys().filter(|stream| {
                    stream.is_by_client() == connection.is_client()
                        && stream.direction() == direction(unidirectional)
                });
                let next = waiting.map(|stream| (stream.0 >> 2) + 1).fold(opened, u64::max);
                next << 2 | u64::from(unidirectional) << 1 | u64::from(!connection.is_client())
            })
            .map(Fallible)
    }

    /// Send on a stream by its number; the first write opens it. Data without room, or of a stream that the peer does
    /// not allow yet, is queued; with `bounded`, this accepts nothing and raises `BufferError` once too much is queued.
    #[pyo3(signature = (stream_id, data, end_stream=false, bounded=true))]
    fn send_stream_data(
        &self,
        py: Python<'_>,
        stream_id: u64,
        data: &Bound<'_, PyAny>,
        end_stream: bool,
        bounded: bool,
    ) -> PyResult<()> {
        let (handle, stream) = (self.route.handle, StreamId(stream_id));
        ffi::spare()?;
        let sent = ffi::with_bytes(data.as_borrowed(), |bytes| {
            let room = ffi::room_for(bytes.len())?;
            let send = || {
                let mut state = self.route.shared.state(py);
                if bounded
                    && !bytes.is_empty()
                    && state.sessions.get(handle).is_some_and(|session| session.attached.is_full())
                {
                    return Ok(false);
                }
                state.open_up_to(handle, stream)?;
                if !bytes.is_empty() {
                    state.write(handle, stream, bytes, room)?;
                }
                if end_stream {
                    state.finish(handle, stream)?;
                }
                Ok(true)
            };
            send().map_err(|error| self.route.refused(py, &error))
        })??;
        if !sent {
            return Err(PyBufferError::raise(
                "too much is queued already: wait until the peer has received some of it, or raise tx_max_queued_bytes",
            ));
        }
        self.route.shared.arm_flush(py)
    }

    /// Reset a stream.
    fn reset_stream(&self, py: Python<'_>, stream_id: u64, error_code: Code) -> PyResult<()> {
        let (handle, stream) = (self.route.handle, StreamId(stream_id));
        let done = self.route.shared.state(py).reset(handle, stream, error_code.0);
        done.map_err(|error| self.route.refused(py, &error))?;
        self.route.shared.arm_flush(py)
    }

    /// Ask the peer to stop sending on a stream, and drop received data.
    fn stop_stream(&self, py: Python<'_>, stream_id: u64, error_code: Code) -> PyResult<()> {
        let done = {
            let mut state = self.route.shared.state(py);
            state.stop(self.route.handle, StreamId(stream_id), error_code.0)
        };
        done.map_err(|error| self.route.refused(py, &error))?;
        self.route.shared.arm_flush(py)
    }

    /// Streams of a higher priority send first; 0 at the start.
    fn set_stream_priority(
        &self,
        py: Python<'_>,
        stream_id: u64,
        priority: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        let priority = numbers::whole("priority", priority, &(i32::MIN..=i32::MAX), "")?;
        let done = {
            let mut state = self.route.shared.state(py);
            let both = state.sessions.open(self.route.handle);
            both.and_then(|(mut connection, _)| {
                connection.set_priority(StreamId(stream_id), priority)
            })
        };
        done.map_err(|error| self.route.refused(py, &error))
    }

    /// Bytes of a stream that wait for space in the send window.
    fn stream_queued(&self, py: Python<'_>, stream_id: u64) -> PyResult<Fallible<usize>> {
        self.route
            .look(py, |_, session| {
                let queued = session.attached.queued.get(&StreamId(stream_id));
                queued.map_or(0, Queued::len)
            })
            .map(Fallible)
    }

    /// The next event; None if there is none. Only for endpoints that keep events.
    fn next_event<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        let taken = self.take_next(py, 1);
        let Some(first) = taken.first() else {
            return Ok(None);
        };
        let event = self.event(py, first);
        if event.is_err() {
            self.put_back(taken);
        }
        event.map(Some)
    }

    /// All pending events, with at most about a megabyte of stream data.
    fn take_events<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        let list = ffi::new_list(py)?;
        let taken = self.take_next(py, usize::MAX);
        let listed = taken.iter().try_for_each(|taken| list.append(self.event(py, taken)?));
        if let Err(error) = listed {
            self.put_back(taken);
            return Err(error);
        }
        Ok(list)
    }
}

impl EventConnection {
    /// Takes the next events, at most `count_max`.
    fn take_next(&self, py: Python<'_>, count_max: usize) -> Vec<Taken> {
        let mut taken = self.route.untaken.take(count_max);
        if taken.is_empty() {
            let mut state = self.route.shared.state(py);
            if let Some((mut connection, session)) = state.sessions.both(self.route.handle) {
                let events = &mut session.attached.events;
                events.take(&mut connection, count_max, &mut taken);
            }
        }
        taken
    }

    /// Puts back events for which there was no memory.
    fn put_back(&self, taken: Vec<Taken>) {
        self.route.untaken.put_back(taken);
    }

    /// The event as a Python object.
    pub(super) fn event<'py>(&self, py: Python<'py>, taken: &Taken) -> PyResult<Bound<'py, PyAny>> {
        match taken {
            Taken::Negotiated => {
                let alpn = self.route.handshake(py).ok().flatten().and_then(|agreed| agreed.alpn.0);
                events::ProtocolNegotiated::object(py, alpn)
            }
            Taken::Completed => {
                let agreed = self.route.handshake(py).ok().flatten();
                let early = agreed.as_ref().is_some_and(|agreed| agreed.early_data_accepted);
                let resumed = agreed.as_ref().is_some_and(|agreed| agreed.is_resumed);
                let alpn = agreed.and_then(|agreed| agreed.alpn.0);
                events::HandshakeCompleted::object(py, alpn, early, resumed)
            }
            Taken::Data { stream, pieces, is_end } => {
                let data = ffi::join_bytes(py, pieces)?.into_bound(py).unbind();
                events::StreamDataReceived::object(py, data, *is_end, stream.0)
            }
            Taken::Reset(stream, code) => events::StreamReset::object(py, *code, stream.0),
            Taken::Stopped(stream, code) => {
                events::StopSendingReceived::object(py, *code, stream.0)
            }
            Taken::Datagram(bytes) => {
                let data = ffi::new_bytes(py, bytes)?.into_any().unbind();
                events::DatagramFrameReceived::object(py, data)
            }
            Taken::PingAcknowledged(uid) => events::PingAcknowledged::object(py, *uid),
            Taken::Id(IdChange::Issued(id)) => {
                events::ConnectionIdIssued::object(py, ffi::new_bytes(py, id)?.into_any().unbind())
            }
            Taken::Id(IdChange::Retired(id)) => {
                events::ConnectionIdRetired::object(py, ffi::new_bytes(py, id)?.into_any().unbind())
            }
            Taken::Terminated => self.terminated(py),
        }
    }

    /// How it ended, or just that it ended.
    pub(super) fn terminated<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let Some(end) = errors::close_of(&self.route.end) else {
            return events::ConnectionTerminated::object(py, 0, None, String::new());
        };
        // The frame type of an error is unknown, except that TLS alerts belong to CRYPTO frames
        // (RFC 9001 §4.8).
        let frame_type = match (end.is_application, end.code) {
            (true, _) => None,
            (false, 0x100..0x200) => Some(6),
            (false, _) => Some(0),
        };
        events::ConnectionTerminated::object(py, end.code, frame_type, end.reason)
    }
}
