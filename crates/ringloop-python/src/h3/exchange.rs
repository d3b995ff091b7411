//! `Exchange`: a request and its response on one stream, of either end; the base of
//! `ringloop.h3.Exchange`.
//!
//! Nothing blocks here: waiting is done by futures, as with streams. An exchange that is dropped
//! before its message is complete cancels it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use pyo3::PyTraverseError;
use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::gc::PyVisit;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList, PyString};
use ringloop_h3::qpack::Line;
use ringloop_h3::webtransport::Error as SessionError;
use ringloop_h3::{Code as HttpCode, Priority, StreamError, StreamId as HttpStreamId};
use ringloop_quic::session::{Wait, Wake};
use ringloop_quic::{Bytes, StreamId};

use super::fields::{Head, checked, checked_section, lines, pairs};
use super::requests::{ended_by_peer, is_full, refused, with_http};
use super::scope;
use crate::ffi::{self, Fallible, IntoObject as _, Raise as _, intern};
use crate::quic::http::{Driver, Ending, Section, SharedReceived, Taken, lock};
use crate::quic::numbers::{self, AtMost, Code};
use crate::quic::{Connection, Route, Waiter, errors, exception};

/// A request and its response, by the number of their stream. Each exchange has one object.
#[pyclass(frozen, subclass, weakref, module = "ringloop._native.h3")]
pub struct Exchange {
    connection: Py<Connection>,
    stream: StreamId,
    received: SharedReceived,
    /// Our message is complete, or was cancelled.
    has_ended: AtomicBool,
    is_client: bool,
    /// The stream belongs to a session.
    is_session: AtomicBool,
    /// Our request or final response was sent: fields without a status are trailers.
    has_sent_head: AtomicBool,
}

#[pymethods]
impl Exchange {
    /// `has_ended`: the request's message is complete.
    #[new]
    #[pyo3(signature = (connection, stream_id, has_ended=false))]
    fn new(
        py: Python<'_>,
        connection: &Bound<'_, Connection>,
        stream_id: u64,
        has_ended: bool,
    ) -> PyResult<Self> {
        Self::of(py, connection, stream_id, has_ended)
    }

    /// The exchange's connection.
    #[getter]
    fn connection<'py>(&self, py: Python<'py>) -> Bound<'py, Connection> {
        self.connection.bind(py).clone()
    }

    /// The number of its stream (RFC 9000 §2.1).
    #[getter]
    fn stream_id(&self) -> Fallible<u64> {
        Fallible(self.stream.0)
    }

    // The peer's message.

    /// Make the ASGI scope of the request: a copy of `template` with the request's own entries.
    #[pyo3(name = "_scope")]
    fn scope<'py>(
        &self,
        py: Python<'py>,
        template: &Bound<'py, PyDict>,
    ) -> PyResult<Bound<'py, PyDict>> {
        let client = self.connection.get().client(py)?;
        scope::made(py, template, &self.head().unwrap_or_default(), client)
    }

    /// Whether the request or the final response has arrived; raises if it will not arrive.
    #[pyo3(name = "_has_head")]
    fn has_head(&self, py: Python<'_>) -> PyResult<bool> {
        let (has_head, ending) = {
            let received = lock(&self.received);
            (received.head.is_some(), received.ending)
        };
        match (has_head, ending) {
            (true, _) => Ok(true),
            (false, Some(ending)) => Err(ended(py, ending)),
            (false, None) => self.check_open(py).map(|()| false),
        }
    }

    /// The fields of the request or the final response, without the pseudo-header fields; None before they arrive.
    #[getter]
    fn headers<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyList>>> {
        let head = self.head();
        head.map(|head| pairs(py, head.headers())).transpose()
    }

    /// Return the value of a field, by its case-insensitive name; several lines are joined by ", " (RFC 9110 §5.3). None
    /// if there is none.
    fn header<'py>(&self, py: Python<'py>, name: &str) -> PyResult<Option<Bound<'py, PyString>>> {
        let head = self.head();
        let value = head.as_deref().and_then(|head| head.value(name));
        value.map(|value| ffi::new_str(py, &value)).transpose()
    }

    /// The request's method; None for a response, like the following properties.
    #[getter]
    fn method<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyString>>> {
        self.pseudo(py, b":method")
    }

    /// The request's scheme; None for CONNECT.
    #[getter]
    fn scheme<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyString>>> {
        self.pseudo(py, b":scheme")
    }

    /// The request's host and port; None if only a field has them.
    #[getter]
    fn authority<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyString>>> {
        self.pseudo(py, b":authority")
    }

    /// The request's path and query; None for CONNECT.
    #[getter]
    fn path<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyString>>> {
        self.pseudo(py, b":path")
    }

    /// The protocol of an extended CONNECT (RFC 9220).
    #[getter]
    fn protocol<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyString>>> {
        self.pseudo(py, b":protocol")
    }

    /// The sub-protocols that a request for a WebTransport session offers, the preferred first.
    #[getter(_offered_protocols)]
    fn offered_protocols<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        let protocols = lock(&self.received).protocols.clone();
        let list = ffi::new_list(py)?;
        for protocol in &protocols {
            list.append(ffi::new_str(py, protocol)?)?;
        }
        Ok(list)
    }

    /// The final response's status; None before it arrives, and for a request.
    #[getter]
    fn status(&self) -> Fallible<Option<u16>> {
        Fallible(self.head().as_deref().and_then(status))
    }

    /// Take the received interim responses (1xx): pairs of a status and fields.
    fn take_interim<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        let interim = std::mem::take(&mut lock(&self.received).interim);
        let list = ffi::new_list(py)?;
        for section in &interim {
            let status = u64::from(status(section).unwrap_or_default()).into_object(py)?;
            let fields = pairs(py, section.headers())?.into_any();
            list.append(ffi::new_tuple(py, [status, fields].into_iter())?)?;
        }
        Ok(list)
    }

    /// The trailers; None if there are none, or not yet.
    #[getter]
    fn trailers<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyList>>> {
        let trailers = lock(&self.received).trailers.clone();
        trailers.map(|trailers| pairs(py, trailers.headers())).transpose()
    }

    /// Whether all of the peer's message was read.
    #[getter]
    pub(super) fn is_read(&self) -> bool {
        lock(&self.received).is_read()
    }

    /// Read the received body, at most `count` bytes; `b""` at the end, None if there is no data now.
    #[pyo3(name = "_take")]
    pub(super) fn take<'py>(
        &self,
        py: Python<'py>,
        count: AtMost,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        ffi::arm();
        let mut pieces: Vec<Bytes> = Vec::new();
        let taken = lock(&self.received).take(count.0, |piece| pieces.push(piece));
        let resumed = match taken {
            Taken::None => return self.check_open(py).map(|()| None),
            Taken::Some { resumes: true } => self.resume(py),
            Taken::Some { resumes: false } | Taken::Over(Ending::Complete) => Ok(()),
            Taken::Over(ending) => return Err(ended(py, ending)),
        };
        let joined = resumed.and_then(|()| ffi::join_bytes(py, &pieces));
        if joined.is_err() {
            lock(&self.received).put_back(pieces);
        }
        joined.map(|joined| Some(joined.into_bound(py)))
    }

    /// The waiter for more data.
    #[pyo3(name = "_read_waiter")]
    fn read_waiter<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, Waiter>> {
        self.route().wait_for(py, Wait::Read(self.stream))
    }

    /// Stop reading the peer's message (RFC 9114 §4.1.1). Does nothing if it is complete.
    #[pyo3(signature = (code=Code(HttpCode::H3_NO_ERROR.0)), text_signature = "($self, code=256)")]
    fn stop(&self, py: Python<'_>, code: Code) -> PyResult<()> {
        lock(&self.received).stop();
        self.end_with(py, |driver, stream| driver.connection.stop(stream, HttpCode(code.0)))?;
        let woken = Wake::For(self.route().handle, Wait::Read(self.stream));
        self.route().shared.finish(py, vec![woken])
    }

    // Datagrams (RFC 9297).

    /// Send a datagram of the exchange; a full queue drops its oldest ones.
    fn send_datagram(&self, py: Python<'_>, data: &Bound<'_, PyAny>) -> PyResult<()> {
        let data = Bytes::from(ffi::with_bytes(data.as_borrowed(), ffi::try_copy)??);
        self.send_with(py, false, |driver, stream| driver.connection.send_datagram(stream, data))?;
        Ok(())
    }

    /// Take a received datagram; None if there is none. Beyond 256 KiB the oldest are dropped.
    fn take_datagram<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyBytes>>> {
        let datagram = lock(&self.received).datagrams.pop();
        datagram.map(|datagram| ffi::new_bytes(py, &datagram)).transpose()
    }

    /// The waiter for a datagram.
    #[pyo3(name = "_datagram_waiter")]
    fn datagram_waiter<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, Waiter>> {
        self.check_open(py)?;
        self.route().wait_for(py, Wait::StreamDatagram(self.stream))
    }

    // Our message.

    /// Whether our message is complete, or was cancelled.
    #[getter]
    fn has_ended(&self) -> bool {
        self.has_ended.load(Ordering::Relaxed)
    }

    /// Send the fields of a response: interim ones (`:status` is 1xx), then the final one; or trailers, which end the
    /// message. `end` ends the message.
    #[pyo3(signature = (headers, end=false))]
    fn send_headers(&self, py: Python<'_>, headers: &Bound<'_, PyAny>, end: bool) -> PyResult<()> {
        let fields = checked_section(headers, Head::Response)?;
        let lines: Vec<Line<'_>> = lines(&fields).collect();
        self.send_lines(py, &lines, end)
    }

    /// Send trailers; they end the message, with the same error as `send` if the body is too short.
    fn send_trailers(&self, py: Python<'_>, trailers: &Bound<'_, PyAny>) -> PyResult<()> {
        let fields = checked(trailers)?;
        let lines: Vec<Line<'_>> = lines(&fields).collect();
        self.send_lines(py, &lines, true)
    }

    /// Send part of the body, the last one with `end`; await the result for space in the send window. `ValueError` if the
    /// body is longer than the `content-length` that was sent: nothing of `data` is sent; or shorter at its end: the
    /// exchange is cancelled (RFC 9114 §4.1.2).
    #[pyo3(signature = (data, end=false))]
    fn send<'py>(
        slf: &Bound<'py, Self>,
        data: &Bound<'py, PyAny>,
        end: bool,
    ) -> PyResult<Bound<'py, PyAny>> {
        let (py, this) = (slf.py(), slf.get());
        let data = Bytes::from(ffi::with_bytes(data.as_borrowed(), ffi::try_copy)??);
        let is_full = this
            .send_with(py, end, |driver, stream| driver.connection.send_data(stream, data, end))?;
        if is_full {
            return slf.call_method0(intern!(py, "_drain"));
        }
        Ok(this.route().shared.ready(py))
    }

    /// The waiter for space for all sent data; None if there is space.
    #[pyo3(name = "_drain_waiter")]
    fn drain_waiter<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, Waiter>>> {
        self.check_open(py)?;
        if let Some(code) = lock(&self.received).stopped {
            return Err(ended_by_peer(py, "StreamStoppedError", code));
        }
        let is_full = is_full(&mut self.route().shared.state(py), self.route(), self.stream);
        if !is_full {
            return Ok(None);
        }
        self.route().wait_for(py, Wait::Write(self.stream)).map(Some)
    }

    /// The waiter for the acknowledgement of all sent data, or for a stop by the peer.
    #[pyo3(name = "_end_waiter")]
    fn end_waiter<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, Waiter>> {
        self.check_open(py)?;
        if let Some(code) = lock(&self.received).stopped {
            return Err(ended_by_peer(py, "StreamStoppedError", code));
        }
        self.route().wait_for(py, Wait::Finished(self.stream))
    }

    /// Change the priority of a client's request (RFC 9218 §7.1): `urgency` is 0 to 7, lowest first.
    #[pyo3(name = "_send_priority")]
    fn send_priority(
        &self,
        py: Python<'_>,
        urgency: &Bound<'_, PyAny>,
        incremental: bool,
    ) -> PyResult<()> {
        let urgency = numbers::whole("urgency", urgency, &(0..=7), "")?;
        let priority = Priority { urgency, incremental };
        self.send_with(py, false, |driver, stream| {
            driver.connection.send_priority(stream, priority)
        })?;
        Ok(())
    }

    /// Cancel both messages. Does nothing if they are complete.
    #[pyo3(signature = (code=Code(HttpCode::H3_REQUEST_CANCELLED.0)), text_signature = "($self, code=268)")]
    fn cancel(&self, py: Python<'_>, code: Code) -> PyResult<()> {
        lock(&self.received).stop();
        self.has_ended.store(true, Ordering::Relaxed);
        self.end_with(py, |driver, stream| driver.cancel(StreamId(stream.0), HttpCode(code.0)))?;
        let waits =
            [Wait::Read(self.stream), Wait::Write(self.stream), Wait::Finished(self.stream)];
        let woken = waits.map(|wait| Wake::For(self.route().handle, wait));
        self.route().shared.finish(py, woken.into())
    }

    /// No reference cycle has only exchanges and connections: attributes set by the application are
    /// cleared there.
    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.connection)
    }
}

impl Exchange {
    /// The exchange that waits on a stream.
    pub(super) fn of(
        py: Python<'_>,
        connection: &Bound<'_, Connection>,
        stream_id: u64,
        has_ended: bool,
    ) -> PyResult<Self> {
        let stream = StreamId(stream_id);
        let route = &connection.get().route;
        let (received, is_client) = {
            let mut state = route.shared.state(py);
            let session = state.sessions.get(route.handle);
            let driver = session.and_then(|session| session.attached.http.as_ref());
            let is_client = driver.is_some_and(|driver| driver.is_client());
            (driver.and_then(|driver| driver.received(stream)), is_client)
        };
        let received = received.ok_or_else(|| {
            PyValueError::raise(format!("no exchange waits on stream {stream_id}"))
        })?;
        Ok(Self {
            connection: connection.clone().unbind(),
            stream,
            received,
            has_ended: AtomicBool::new(has_ended),
            is_client,
            is_session: AtomicBool::new(false),
            has_sent_head: AtomicBool::new(is_client),
        })
    }

    fn route(&self) -> &Route {
        &self.connection.get().route
    }

    pub(super) fn head(&self) -> Option<Arc<Section>> {
        lock(&self.received).head.clone()
    }

    fn pseudo<'py>(&self, py: Python<'py>, name: &[u8]) -> PyResult<Option<Bound<'py, PyString>>> {
        let head = self.head();
        let value = head.as_deref().and_then(|head| head.pseudo(name));
        value.map(|value| ffi::new_str(py, &String::from_utf8_lossy(value))).transpose()
    }

    /// Passes the stream to the session that `accept` makes from the request.
    pub fn hand_over(
        &self,
        py: Python<'_>,
        accept: impl FnOnce(&mut Driver, StreamId) -> Result<(), SessionError>,
    ) -> PyResult<Result<(), SessionError>> {
        self.check_open(py)?;
        let mut woken = Vec::new();
        let accepted = {
            let mut state = self.route().shared.state(py);
            with_http(&mut state, self.route(), &mut woken, |driver, _, _| {
                Ok(accept(driver, self.stream))
            })
        };
        self.route().shared.finish(py, woken)?;
        let accepted = accepted.ok_or_else(|| errors::connection(py, &self.route().end))?;
        if accepted.is_ok() {
            self.is_session.store(true, Ordering::Relaxed);
            self.has_ended.store(true, Ordering::Relaxed);
        }
        Ok(accepted)
    }

    /// Raises the error of an exchange whose stream belongs to a session.
    fn check_no_session(&self, py: Python<'_>) -> PyResult<()> {
        if self.is_session.load(Ordering::Relaxed) {
            let text = "the request was accepted as a session, which owns its stream";
            return Err(exception::exception(py, "StreamClosedError", (text,)));
        }
        Ok(())
    }

    fn check_open(&self, py: Python<'_>) -> PyResult<()> {
        if self.route().lost().is_some() {
            return Err(errors::connection(py, &self.route().end));
        }
        Ok(())
    }

    /// The error of a failed call.
    fn refused(&self, py: Python<'_>, error: StreamError) -> PyErr {
        let stopped = lock(&self.received).stopped;
        match (error, stopped) {
            (StreamError::Closed | StreamError::Unknown, Some(code)) => {
                ended_by_peer(py, "StreamStoppedError", code)
            }
            _ => refused(py, error),
        }
    }

    /// The code with which this end cancels a message that it cannot complete (RFC 9114 §4.1.1).
    fn failed(&self) -> Code {
        let ours = HttpCode::H3_REQUEST_CANCELLED;
        Code(if self.is_client { ours.0 } else { HttpCode::H3_INTERNAL_ERROR.0 })
    }

    /// Sends something; whether it waits for space in the send window.
    pub(super) fn send_with(
        &self,
        py: Python<'_>,
        end: bool,
        act: impl FnOnce(&mut Driver, HttpStreamId) -> Result<(), StreamError>,
    ) -> PyResult<bool> {
        self.check_open(py)?;
        self.check_no_session(py)?;
        ffi::spare()?;
        let mut woken = Vec::new();
        let (sent, is_full) = {
            let mut state = self.route().shared.state(py);
            let sent = with_http(&mut state, self.route(), &mut woken, |driver, _, _| {
                Ok(act(driver, HttpStreamId(self.stream.0)))
            });
            (sent, is_full(&mut state, self.route(), self.stream))
        };
        self.route().shared.finish(py, woken)?;
        match sent {
            Some(Ok(())) => {}
            Some(Err(error)) => {
                let is_short = matches!(error, StreamError::BodyTooShort { .. });
                if is_short && self.has_sent_head.load(Ordering::Relaxed) {
                    self.cancel(py, self.failed())?;
                }
                return Err(self.refused(py, error));
            }
            None => return Err(errors::connection(py, &self.route().end)),
        }
        if end {
            self.has_ended.store(true, Ordering::Relaxed);
        }
        Ok(is_full)
    }

    pub(super) fn send_lines(&self, py: Python<'_>, lines: &[Line<'_>], end: bool) -> PyResult<()> {
        let status = lines.first().filter(|line| *line.name == *b":status");
        let has_sent_head = self.has_sent_head.load(Ordering::Relaxed);
        if !self.has_ended() && has_sent_head == status.is_some() {
            let text =
                if has_sent_head { "the final response was sent" } else { "no response was sent" };
            self.check_open(py)?;
            return Err(PyRuntimeError::raise(text));
        }
        let is_final = status.is_some_and(|status| !status.value.starts_with(b"1"));
        let send = |driver: &mut Driver, stream: HttpStreamId| {
            driver.send_fields(StreamId(stream.0), lines, end)
        };
        self.send_with(py, end, send)?;
        self.has_sent_head.fetch_or(is_final, Ordering::Relaxed);
        Ok(())
    }

    /// Ends a part of the exchange; not an error if that, or the connection, has already ended.
    fn end_with(
        &self,
        py: Python<'_>,
        end: impl FnOnce(&mut Driver, HttpStreamId) -> Result<(), StreamError>,
    ) -> PyResult<()> {
        if self.is_session.load(Ordering::Relaxed) {
            return Ok(());
        }
        let mut woken = Vec::new();
        let _known = {
            let mut state = self.route().shared.state(py);
            with_http(&mut state, self.route(), &mut woken, |driver, _, _| {
                Ok(end(driver, HttpStreamId(self.stream.0)))
            })
        };
        self.route().shared.finish(py, woken)
    }

    /// The body's queue has room again.
    fn resume(&self, py: Python<'_>) -> PyResult<()> {
        let mut woken = Vec::new();
        {
            let mut state = self.route().shared.state(py);
            let stream = self.stream;
            // An error has closed the connection, and is raised after the data that was read.
            let _resumed =
                with_http(&mut state, self.route(), &mut woken, |driver, state, woken| {
                    driver.resume(state, stream, woken)
                });
        }
        self.route().shared.finish(py, woken)
    }
}

impl Drop for Exchange {
    fn drop(&mut self) {
        let route = self.route();
        if route.lost().is_some() || self.is_session.load(Ordering::Relaxed) {
            return;
        }
        let mut woken = Vec::new();
        {
            // The holder of the lock does not need the interpreter to release it.
            let mut state = route.shared.state_detached();
            let (stream, has_ended) = (self.stream, self.has_ended());
            let _forgotten = with_http(&mut state, route, &mut woken, |driver, state, _| {
                driver.forget(state, stream, has_ended);
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

/// The error of a message that is not complete.
fn ended(py: Python<'_>, ending: Ending) -> PyErr {
    match ending {
        Ending::Reset(code) => ended_by_peer(py, "StreamResetError", code),
        Ending::Failed(code, reason) => {
            let text = format!("{reason} ({})", HttpCode(code));
            exception::http_exception(py, "MessageError", (text, code))
        }
        Ending::Stopped | Ending::Complete => {
            exception::exception(py, "StreamClosedError", ffi::EmptyTuple)
        }
    }
}
