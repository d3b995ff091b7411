//! `Session`: a session of WebTransport, the base of `ringloop.webtransport.Session`.
//!
//! Nothing blocks here: waiting is done by futures, as with streams. Dropping a session cancels it.

use std::sync::Arc;

use pyo3::PyTraverseError;
use pyo3::exceptions::PyValueError;
use pyo3::gc::PyVisit;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList, PyString};
use ringloop_h3::varint;
use ringloop_h3::webtransport::Error;
use ringloop_h3::{StreamError, StreamId as HttpStreamId};
use ringloop_quic::session::{Wait, Wake};
use ringloop_quic::{Bytes, Direction, StreamId};

use super::opening::refused;
use crate::ffi::{self, Fallible, Raise as _};
use crate::h3::{pairs, with_http};
use crate::quic::http::{
    Driver, OpenError, Section, SessionEnd, SessionPhase, SharedSession, lock_session,
};
use crate::quic::{Connection, Route, Waiter, direction, errors, exception};

/// How a session ended: what, code, reason, whether by the peer.
type Over<'py> = (&'static str, u64, Bound<'py, PyString>, bool);

/// A WebTransport session, by the number of the stream that carries it. Each session has one object.
#[pyclass(frozen, subclass, weakref, module = "ringloop._native.webtransport")]
pub struct Session {
    connection: Py<Connection>,
    id: StreamId,
    state: SharedSession,
}

#[pymethods]
impl Session {
    #[new]
    fn new(py: Python<'_>, connection: &Bound<'_, Connection>, session_id: u64) -> PyResult<Self> {
        let id = StreamId(session_id);
        let route = &connection.get().route;
        let state = {
            let mut state = route.shared.state(py);
            let session = state.sessions.get(route.handle);
            let driver = session.and_then(|session| session.attached.http.as_ref());
            driver.and_then(|driver| driver.session(id))
        };
        let state = state.ok_or_else(|| {
            PyValueError::raise(format!("no session waits on stream {session_id}"))
        })?;
        Ok(Self { connection: connection.clone().unbind(), id, state })
    }

    /// The session's connection.
    #[getter]
    fn connection<'py>(&self, py: Python<'py>) -> Bound<'py, Connection> {
        self.connection.bind(py).clone()
    }

    /// Its number in the connection: that of its CONNECT stream.
    #[getter]
    fn session_id(&self) -> Fallible<u64> {
        Fallible(self.id.0)
    }

    // The request, and its response.

    /// The requested path and query.
    #[getter]
    fn path<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyString>> {
        self.pseudo(py, b":path")
    }

    /// The requested host and port.
    #[getter]
    fn authority<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyString>> {
        self.pseudo(py, b":authority")
    }

    /// The fields of the request, without the pseudo-header fields.
    #[getter]
    fn headers<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        let request = Arc::clone(&lock_session(&self.state).request);
        pairs(py, request.headers())
    }

    /// Clients: the fields of the server's response; None before it.
    #[getter]
    fn response_headers<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyList>>> {
        let response = lock_session(&self.state).response.clone();
        response.map(|response| pairs(py, response.headers())).transpose()
    }

    /// Clients: the status of the server's response; None before it.
    #[getter]
    fn status(&self) -> Fallible<Option<u16>> {
        let response = lock_session(&self.state).response.clone();
        Fallible(response.as_deref().and_then(status))
    }

    /// The negotiated sub-protocol, if any.
    #[getter]
    fn protocol<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyString>>> {
        let protocol = lock_session(&self.state).protocol.clone();
        protocol.map(|name| ffi::new_str(py, &name)).transpose()
    }

    // State.

    /// Whether the peer has requested the session's end: start nothing new in it.
    #[getter]
    fn is_draining(&self) -> bool {
        lock_session(&self.state).is_draining
    }

    /// Clients: whether the server has not responded yet.
    #[getter(_is_pending)]
    fn is_pending(&self) -> bool {
        lock_session(&self.state).phase == SessionPhase::Pending
    }

    /// How it ended: (what, code, reason, by the peer); None while it is open. What: `closed`, `rejected`, `reset`,
    /// `failed`, `cancelled`, or `lost` with the connection.
    #[getter(_end)]
    fn end<'py>(&self, py: Python<'py>) -> PyResult<Option<Over<'py>>> {
        let phase = lock_session(&self.state).phase.clone();
        let over = |what, code: u64, reason: &str, by_peer| {
            Ok(Some((what, code, ffi::new_str(py, reason)?, by_peer)))
        };
        match phase {
            SessionPhase::Over(SessionEnd::Closed { code, reason, by_peer }) => {
                over("closed", code.into(), &reason, by_peer)
            }
            SessionPhase::Over(SessionEnd::Rejected) => over("rejected", 0, "", true),
            SessionPhase::Over(SessionEnd::Reset(code)) => over("reset", code, "", true),
            SessionPhase::Over(SessionEnd::Failed(code, reason)) => {
                over("failed", code, reason, false)
            }
            SessionPhase::Over(SessionEnd::Cancelled) => over("cancelled", 0, "", false),
            _ if self.route().lost().is_some() => over("lost", 0, "", true),
            _ => Ok(None),
        }
    }

    /// The waiter for a change of its state.
    #[pyo3(name = "_waiter")]
    fn waiter<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, Waiter>> {
        self.route().wait_for(py, Wait::Session(self.id))
    }

    /// Close it with a code and a reason, which is cut at 1024 bytes. Resets all its streams: wait for the acknowledgement
    /// of data that must arrive first. Does nothing if it has ended.
    #[pyo3(name = "_close")]
    fn close(&self, py: Python<'_>, code: u32, reason: &str) -> PyResult<()> {
        let mut len = reason.len().min(ringloop_h3::limits::CLOSE_REASON_BYTES_MAX);
        while !reason.is_char_boundary(len) {
            len -= 1;
        }
        let end = SessionEnd::Closed { code, reason: reason[..len].to_owned(), by_peer: false };
        self.end_with(py, end)
    }

    /// Cancel it, without code and reason. Does nothing if it has ended.
    #[pyo3(name = "_cancel")]
    fn cancel(&self, py: Python<'_>) -> PyResult<()> {
        self.end_with(py, SessionEnd::Cancelled)
    }

    /// Ask the peer to finish it; everything still works. Does nothing if it has ended.
    fn drain(&self, py: Python<'_>) -> PyResult<()> {
        self.act(py, |driver, id| driver.with_sessions(|sessions, http| sessions.drain(http, id)))
            .map(drop)
    }

    // Streams.

    /// Open a stream; return its number, or None while the peer allows no more, and if the session has ended.
    #[pyo3(name = "_open_stream")]
    fn open_stream(&self, py: Python<'_>, unidirectional: bool) -> PyResult<Fallible<Option<u64>>> {
        ffi::spare()?;
        let (id, way) = (self.id, direction(unidirectional));
        let mut woken = Vec::new();
        let opened = {
            let mut state = self.route().shared.state(py);
            with_http(&mut state, self.route(), &mut woken, |driver, state, _| {
                Ok(driver.open_in_session(state, id, way))
            })
        };
        self.route().shared.finish(py, woken)?;
        match opened {
            Some(Ok(opened)) => Ok(Fallible(opened.map(|stream| stream.0))),
            None | Some(Err(OpenError::Session(Error::UnknownSession))) => Ok(Fallible(None)),
            Some(Err(OpenError::Session(error))) => Err(refused(py, error)),
            Some(Err(OpenError::Quic(error))) => Err(self.route().refused(py, &error)),
        }
    }

    /// The waiter for permission to open a stream.
    #[pyo3(name = "_open_waiter")]
    fn open_waiter<'py>(
        &self,
        py: Python<'py>,
        unidirectional: bool,
    ) -> PyResult<Bound<'py, Waiter>> {
        self.route().wait_for(py, Wait::Open(direction(unidirectional)))
    }

    /// Accept a stream that the peer has opened, of one kind or (None) of both: its number; None if there is none.
    #[pyo3(name = "_take_stream", signature = (unidirectional=None))]
    fn take_stream(&self, unidirectional: Option<bool>) -> Fallible<Option<u64>> {
        let way: Option<Direction> = unidirectional.map(direction);
        let taken = lock_session(&self.state).take_stream(way);
        Fallible(taken.map(|stream| stream.0))
    }

    /// The waiter for a stream of the peer, or the end.
    #[pyo3(name = "_stream_waiter")]
    fn stream_waiter<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, Waiter>> {
        self.route().wait_for(py, Wait::SessionStream(self.id))
    }

    // Datagrams.

    /// Send a datagram; False if the session has ended. Beyond `datagram_send_buffer` the oldest are dropped.
    #[pyo3(name = "_send_datagram")]
    fn send_datagram(&self, py: Python<'_>, data: &Bound<'_, PyAny>) -> PyResult<bool> {
        let data = Bytes::from(ffi::with_bytes(data.as_borrowed(), ffi::try_copy)??);
        let len_max = self.longest_datagram(py)?;
        if data.len() > len_max {
            let text = format!(
                "a datagram of {} bytes is too long: the path carries {len_max}",
                data.len()
            );
            return Err(exception::exception(py, "DatagramError", (text,)));
        }
        self.act(py, |driver, id| {
            driver.with_sessions(|sessions, http| sessions.send_datagram(http, id, data))
        })
    }

    /// Bytes of the longest datagram that can be sent now; path probing may raise it.
    #[getter]
    fn max_datagram_size(&self, py: Python<'_>) -> PyResult<Fallible<usize>> {
        self.longest_datagram(py).map(Fallible)
    }

    /// Take a received datagram; None if there is none.
    #[pyo3(name = "_take_datagram")]
    fn take_datagram<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyBytes>>> {
        let datagram = lock_session(&self.state).datagrams.pop();
        datagram.map(|datagram| ffi::new_bytes(py, &datagram)).transpose()
    }

    /// Received datagrams that were dropped: too many were waiting.
    #[getter]
    fn dropped_datagrams(&self) -> Fallible<u64> {
        Fallible(lock_session(&self.state).datagrams.dropped_count)
    }

    /// The waiter for a datagram, or the end.
    #[pyo3(name = "_datagram_waiter")]
    fn datagram_waiter<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, Waiter>> {
        self.route().wait_for(py, Wait::StreamDatagram(self.id))
    }

    /// No reference cycle has only sessions and connections: attributes set by the application are
    /// cleared there.
    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.connection)
    }
}

impl Session {
    fn route(&self) -> &Route {
        &self.connection.get().route
    }

    fn pseudo<'py>(&self, py: Python<'py>, name: &[u8]) -> PyResult<Bound<'py, PyString>> {
        let request = Arc::clone(&lock_session(&self.state).request);
        let value = request.pseudo(name).map_or(&b""[..], |value| value);
        ffi::new_str(py, &String::from_utf8_lossy(value))
    }

    /// Acts on the session; `false` if it has ended.
    fn act(
        &self,
        py: Python<'_>,
        act: impl FnOnce(&mut Driver, HttpStreamId) -> Result<(), Error>,
    ) -> PyResult<bool> {
        let mut woken = Vec::new();
        let done = {
            let mut state = self.route().shared.state(py);
            with_http(&mut state, self.route(), &mut woken, |driver, _, _| {
                Ok(act(driver, HttpStreamId(self.id.0)))
            })
        };
        self.route().shared.finish(py, woken)?;
        match done {
            Some(Ok(())) => Ok(true),
            None
            | Some(Err(
                Error::UnknownSession | Error::Stream(StreamError::Closed | StreamError::Unknown),
            )) => Ok(false),
            Some(Err(error)) => Err(refused(py, error)),
        }
    }

    fn end_with(&self, py: Python<'_>, end: SessionEnd) -> PyResult<()> {
        let mut woken = Vec::new();
        {
            let mut state = self.route().shared.state(py);
            let id = self.id;
            with_http(&mut state, self.route(), &mut woken, |driver, _, woken| {
                driver.close_session(id, end, woken);
                Ok(())
            });
        }
        self.route().shared.finish(py, woken)
    }

    /// Bytes of the longest datagram, after the session's number (RFC 9297 §2.1).
    fn longest_datagram(&self, py: Python<'_>) -> PyResult<usize> {
        let route = self.route();
        let longest = route.look(py, |connection, _| connection.max_datagram_len())?;
        let mut number = Vec::new();
        varint::write(&mut number, self.id.0 / 4);
        longest.map(|len| len.saturating_sub(number.len())).ok_or_else(|| {
            let disabled = ringloop_quic::error::DatagramError::UnsupportedByPeer;
            errors::datagram(py, &route.end, &disabled)
        })
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        let route = self.route();
        if route.lost().is_some() {
            return;
        }
        let mut woken = Vec::<Wake>::new();
        {
            // The holder of the lock does not need the interpreter to release it.
            let mut state = route.shared.state_detached();
            let id = self.id;
            let _given_up = with_http(&mut state, route, &mut woken, |driver, _, woken| {
                driver.close_session(id, SessionEnd::Cancelled, woken);
                Ok(())
            });
        }
        // A closed loop sends nothing more.
        Python::try_attach(|py| drop(route.shared.finish(py, woken)));
    }
}

/// The status of a response.
fn status(section: &Section) -> Option<u16> {
    let status = section.pseudo(b":status")?;
    str::from_utf8(status).ok()?.parse().ok()
}
