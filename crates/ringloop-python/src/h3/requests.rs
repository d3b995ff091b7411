//! Requests of a connection: sent, or accepted from the peer.

use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use ringloop_h3::qpack::Line;
use ringloop_h3::{Code, ConnectionError, StreamError, StreamId as HttpStreamId};
use ringloop_quic::error::StreamError as QuicStreamError;
use ringloop_quic::session::{Phase, Wake};
use ringloop_quic::{Direction, StreamId};

use super::fields::{Head, checked_section, lines};
use crate::ffi::{self, Fallible, Raise as _};
use crate::quic::http::Driver;
use crate::quic::{Connection, Route, State, errors, exception};

/// HTTP/3's own unidirectional streams, of either end.
const OWN_STREAMS: usize = 3;

/// Drive a connection's HTTP/3 natively once its handshake has negotiated it; call before the handshake is complete.
#[pyfunction]
pub fn drive(py: Python<'_>, connection: &Bound<'_, Connection>) -> PyResult<()> {
    let route = &connection.get().route;
    let is_wanted = route.shared.state(py).want_http(route.handle, None);
    if is_wanted || route.lost().is_some() {
        return Ok(());
    }
    Err(PyRuntimeError::raise("the handshake is complete, or the endpoint reports events"))
}

/// Send a request on a new stream; return its number, or None during the handshake and while the peer allows no
/// more.
#[pyfunction]
#[pyo3(signature = (connection, headers, end=false))]
pub fn open_exchange(
    py: Python<'_>,
    connection: &Bound<'_, Connection>,
    headers: &Bound<'_, PyAny>,
    end: bool,
) -> PyResult<Fallible<Option<u64>>> {
    ffi::spare()?;
    let fields = checked_section(headers, Head::Request)?;
    let lines: Vec<Line<'_>> = lines(&fields).collect();
    let route = &connection.get().route;
    let mut woken = Vec::new();
    let (opened, is_complete) = {
        let mut state = route.shared.state(py);
        let opened = with_http(&mut state, route, &mut woken, |driver, state, _| {
            Ok(open(driver, state, route, &lines, end))
        });
        let session = state.sessions.get(route.handle);
        let phase = session.map(|session| session.phase);
        (opened, phase == Some(Phase::Complete))
    };
    route.shared.finish(py, woken)?;
    if route.lost().is_some() {
        return Err(errors::connection(py, &route.end));
    }
    match opened {
        Some(Ok(opened)) => Ok(Fallible(opened.map(|stream| stream.0))),
        Some(Err(Refusal::Http(error))) => Err(refused(py, error)),
        Some(Err(Refusal::Quic(error))) => Err(route.refused(py, &error)),
        None if is_complete => Err(PyRuntimeError::raise(
            "the connection has no HTTP/3: the handshake did not negotiate 'h3', or drive() was not called before it was complete",
        )),
        None => Ok(Fallible(None)),
    }
}

enum Refusal {
    Http(StreamError),
    Quic(QuicStreamError),
}

fn open(
    driver: &mut Driver,
    state: &mut State,
    route: &Route,
    fields: &[Line<'_>],
    end: bool,
) -> Result<Option<StreamId>, Refusal> {
    if driver.go_away.is_some() {
        return Err(Refusal::Http(StreamError::GoingAway));
    }
    let opened = state.open_stream(route.handle, Direction::Bi);
    let Some(stream) = opened.map_err(Refusal::Quic)? else {
        return Ok(None);
    };
    let http = &mut driver.connection;
    if let Err(error) = http.send_request_fields(HttpStreamId(stream.0), fields, end) {
        let code = Code::H3_REQUEST_CANCELLED.0;
        drop(state.reset(route.handle, stream, code));
        drop(state.stop(route.handle, stream, code));
        return Err(Refusal::Http(error));
    }
    driver.add(stream);
    Ok(Some(stream))
}

/// Take the received requests: the numbers of their streams.
#[pyfunction]
pub fn take_ready(py: Python<'_>, connection: &Bound<'_, Connection>) -> Fallible<Vec<u64>> {
    let ready = look(py, connection, Driver::take_ready).unwrap_or_default();
    Fallible(ready.iter().map(|stream| stream.0).collect())
}

/// Accept no further requests: GOAWAY (RFC 9114 §5.2). With `announce` it sets no limit yet: requests in flight are
/// accepted.
#[pyfunction]
#[pyo3(signature = (connection, announce=false))]
pub fn go_away(py: Python<'_>, connection: &Bound<'_, Connection>, announce: bool) -> PyResult<()> {
    let route = &connection.get().route;
    let mut woken = Vec::new();
    {
        let mut state = route.shared.state(py);
        with_http(&mut state, route, &mut woken, |driver, _, _| {
            if announce {
                driver.connection.announce_go_away();
            } else {
                driver.connection.go_away();
            }
            Ok(())
        });
    }
    route.shared.finish(py, woken)
}

/// Whether the peer accepts no more requests on the connection.
#[pyfunction]
pub fn is_going_away(py: Python<'_>, connection: &Bound<'_, Connection>) -> bool {
    look(py, connection, |driver| driver.go_away.is_some()).unwrap_or_default()
}

/// The number of incomplete exchanges of the connection.
#[pyfunction]
pub fn request_count(py: Python<'_>, connection: &Bound<'_, Connection>) -> Fallible<usize> {
    let count = look(py, connection, |driver| driver.connection.request_count());
    Fallible(count.unwrap_or_default())
}

/// Count the entries of the connection's HTTP/3 tables, in a fixed order, for leak tests.
#[pyfunction]
pub fn kept(py: Python<'_>, connection: &Bound<'_, Connection>) -> Fallible<Vec<usize>> {
    let route = &connection.get().route;
    let mut state = route.shared.state(py);
    let session = state.sessions.get(route.handle);
    let kept = session.and_then(|session| {
        let attached = &session.attached;
        let mut kept = vec![attached.queued.len(), attached.limited.len()];
        kept.extend(attached.http.as_ref()?.kept());
        Some(kept)
    });
    Fallible(kept.unwrap_or_default())
}

/// Count our messages that the peer has not acknowledged to their end.
#[pyfunction]
pub fn unacknowledged_count(py: Python<'_>, connection: &Bound<'_, Connection>) -> Fallible<usize> {
    let route = &connection.get().route;
    let mut state = route.shared.state(py);
    let streams = state
        .sessions
        .both(route.handle)
        .map_or(0, |(mut connection, _)| connection.unacknowledged_streams());
    // The control stream and those of QPACK never end (RFC 9114 §6.2.1).
    Fallible(streams.saturating_sub(OWN_STREAMS))
}

fn look<T>(
    py: Python<'_>,
    connection: &Bound<'_, Connection>,
    look: impl FnOnce(&mut Driver) -> T,
) -> Option<T> {
    let route = &connection.get().route;
    let mut state = route.shared.state(py);
    let session = state.sessions.get(route.handle)?;
    session.attached.http.as_deref_mut().map(look)
}

/// Lets `act` use a connection's HTTP/3; `None` if it has none, or was closed by an error of `act`.
pub fn with_http<T>(
    state: &mut State,
    route: &Route,
    woken: &mut Vec<Wake>,
    act: impl FnOnce(&mut Driver, &mut State, &mut Vec<Wake>) -> Result<T, ConnectionError>,
) -> Option<T> {
    let now = state.clock.moment(None);
    state.with_http(now, route.handle, woken, act)?.ok()
}

/// Whether written bytes of a stream wait for space in the send window.
pub fn is_full(state: &mut State, route: &Route, stream: StreamId) -> bool {
    let session = state.sessions.get(route.handle);
    session.is_some_and(|session| session.attached.queued.contains_key(&stream))
}

/// The peer has reset or stopped a stream, by `class`.
pub fn ended_by_peer(py: Python<'_>, class: &str, code: u64) -> PyErr {
    if code == Code::H3_REQUEST_REJECTED.0 {
        return exception::http_exception(py, "RequestRejected", ffi::EmptyTuple);
    }
    exception::exception(py, class, (code,))
}

/// The error of a failed call.
pub fn refused(py: Python<'_>, error: StreamError) -> PyErr {
    match error {
        StreamError::Closed | StreamError::Unknown => {
            exception::exception(py, "StreamClosedError", ffi::EmptyTuple)
        }
        StreamError::GoingAway => exception::http_exception(py, "RequestRejected", ffi::EmptyTuple),
        StreamError::Invalid(_)
        | StreamError::SectionTooLong
        | StreamError::BodyTooLong { .. }
        | StreamError::BodyTooShort { .. } => PyValueError::raise(error.to_string()),
        _ => PyRuntimeError::raise(error.to_string()),
    }
}
