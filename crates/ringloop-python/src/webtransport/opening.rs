//! Establishing sessions: connections that host them, requests for them, and their acceptance.

use http::{HeaderMap, HeaderName, HeaderValue, Uri};
use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use ringloop_h3::qpack::Field;
use ringloop_h3::webtransport::{Config, Error, Limits};
use ringloop_quic::{Bytes, Direction, StreamId};

use crate::ffi::{self, Fallible, Raise as _};
use crate::h3::{Exchange, Pair, checked, refused as refused_by_http, with_http};
use crate::quic::http::{OpenError, Section};
use crate::quic::{Connection, Endpoint, Route, State, errors, exception};

type Flow = Option<(u64, u64, u64)>;

fn config(sessions_max: usize, flow_control: Flow) -> Config {
    let limits = flow_control.map(|(data, bidirectional_streams, unidirectional_streams)| Limits {
        data,
        bidirectional_streams,
        unidirectional_streams,
    });
    Config { sessions_max, flow_control: limits, ..Config::default() }
}

/// Enable sessions on an endpoint's accepted connections, up to a number at a time. `flow_control`: initial limits of
/// each on bytes, bidirectional and unidirectional streams; None: no limits but QUIC's.
#[pyfunction]
#[pyo3(signature = (endpoint, sessions_max, flow_control=None))]
pub fn host(
    py: Python<'_>,
    endpoint: &Bound<'_, Endpoint>,
    sessions_max: usize,
    flow_control: Flow,
) {
    let mut state = endpoint.get().shared.state(py);
    state.serves_webtransport = Some(config(sessions_max, flow_control));
}

/// Drive a client's HTTP/3 natively, with sessions; as `ringloop._native.h3.drive`.
#[pyfunction]
#[pyo3(signature = (connection, sessions_max, flow_control=None))]
pub fn drive(
    py: Python<'_>,
    connection: &Bound<'_, Connection>,
    sessions_max: usize,
    flow_control: Flow,
) -> PyResult<()> {
    let route = &connection.get().route;
    let wanted = config(sessions_max, flow_control);
    let is_wanted = route.shared.state(py).want_http(route.handle, Some(wanted));
    if is_wanted || route.lost().is_some() {
        return Ok(());
    }
    Err(PyRuntimeError::raise("the handshake is complete, or the endpoint reports events"))
}

/// Whether the server accepts a session now; None before its settings have arrived. An error if it accepts none.
#[pyfunction]
pub fn takes_session(
    py: Python<'_>,
    connection: &Bound<'_, Connection>,
) -> PyResult<Fallible<Option<bool>>> {
    let route = &connection.get().route;
    if route.lost().is_some() {
        return Err(errors::connection(py, &route.end));
    }
    let takes = {
        let mut state = route.shared.state(py);
        let session = state.sessions.get(route.handle);
        let driver = session.and_then(|session| session.attached.http.as_ref());
        driver.and_then(|driver| driver.takes_session())
    };
    match takes {
        None => Ok(Fallible(None)),
        Some(Ok(())) => Ok(Fallible(Some(true))),
        Some(Err(Error::TooManySessions)) => Ok(Fallible(Some(false))),
        Some(Err(error)) => Err(refused(py, error)),
    }
}

/// Request a session on a new stream; return its number, or None while the peer allows no more streams.
#[pyfunction]
pub fn open_session(
    py: Python<'_>,
    connection: &Bound<'_, Connection>,
    authority: &str,
    path: &str,
    headers: &Bound<'_, PyAny>,
    protocols: &Bound<'_, PyAny>,
) -> PyResult<Fallible<Option<u64>>> {
    ffi::spare()?;
    let fields = checked(headers)?;
    let headers = header_map(&fields)?;
    let uri = format!("https://{authority}{path}");
    let uri = Uri::try_from(&uri[..]).ok().filter(|_| path.starts_with('/'));
    let uri = uri.ok_or_else(|| {
        PyValueError::raise(format!(
            "{authority:?} is not a host and port, or {path:?} does not begin with '/'"
        ))
    })?;
    let mut wanted = Vec::new();
    for protocol in protocols.try_iter()? {
        wanted.push(protocol?.extract::<String>()?);
    }
    let protocols: Vec<&str> = wanted.iter().map(String::as_str).collect();
    let section = section(authority, path, &fields);
    let route = &connection.get().route;
    let mut woken = Vec::new();
    let opened = {
        let mut state = route.shared.state(py);
        with_http(&mut state, route, &mut woken, |driver, state, _| {
            let stream = match state.open_stream(route.handle, Direction::Bi) {
                Ok(Some(stream)) => stream,
                Ok(None) => return Ok(Ok(None)),
                Err(error) => return Ok(Err(OpenError::Quic(error))),
            };
            let asked = driver.connect_session(stream, (&uri, headers, section), &protocols);
            if asked.is_err() {
                give_up(state, route, stream);
            }
            Ok(asked.map(|()| Some(stream)).map_err(OpenError::Session))
        })
    };
    route.shared.finish(py, woken)?;
    match opened {
        Some(Ok(opened)) => Ok(Fallible(opened.map(|stream| stream.0))),
        Some(Err(OpenError::Session(error))) => Err(refused(py, error)),
        Some(Err(OpenError::Quic(error))) => Err(route.refused(py, &error)),
        None => Err(errors::connection(py, &route.end)),
    }
}

fn give_up(state: &mut State, route: &Route, stream: StreamId) {
    let code = ringloop_h3::Code::H3_REQUEST_CANCELLED.0;
    drop(state.reset(route.handle, stream, code));
    drop(state.stop(route.handle, stream, code));
}

/// The request as the session shows it.
fn section(authority: &str, path: &str, fields: &[Pair<'_>]) -> Section {
    let field = |name: &[u8], value: &[u8]| Field {
        name: Bytes::copy_from_slice(name),
        value: Bytes::copy_from_slice(value),
        is_sensitive: false,
    };
    let mut lines =
        vec![field(b":authority", authority.as_bytes()), field(b":path", path.as_bytes())];
    lines.extend(fields.iter().map(|[name, value]| field(name, value)));
    Section(lines)
}

/// Accept a requested session, with status 200, further fields, and one of the sub-protocols that the request
/// offers. The request's stream then belongs to the session.
#[pyfunction]
#[pyo3(signature = (request, headers, protocol=None))]
pub fn accept(
    py: Python<'_>,
    request: &Bound<'_, Exchange>,
    headers: &Bound<'_, PyAny>,
    protocol: Option<&str>,
) -> PyResult<()> {
    let headers = header_map(&checked(headers)?)?;
    let accepted = request
        .get()
        .hand_over(py, |driver, stream| driver.accept_session(stream, headers, protocol))?;
    accepted.map_err(|error| match error {
        Error::NotSupported => PyRuntimeError::raise(
            "the server accepts no sessions: give ringloop.h3.serve() webtransport=True, and do not disable datagrams",
        ),
        error => refused(py, error),
    })
}

fn header_map(fields: &[Pair<'_>]) -> PyResult<HeaderMap> {
    let mut headers = HeaderMap::new();
    for [name, value] in fields {
        let parsed = HeaderName::from_bytes(name).ok().zip(HeaderValue::from_bytes(value).ok());
        let (name, value) = parsed.ok_or_else(|| {
            let name = String::from_utf8_lossy(name);
            PyValueError::raise(format!(
                "{name:?} is not a valid field name, or has an invalid value"
            ))
        })?;
        let appended = headers.try_append(name, value);
        appended.map_err(|_| PyValueError::raise("too many fields"))?;
    }
    Ok(headers)
}

/// The error of a failed call.
pub fn refused(py: Python<'_>, error: Error) -> PyErr {
    match error {
        Error::Invalid(_) => PyValueError::raise(error.to_string()),
        Error::Stream(error) => refused_by_http(py, error),
        Error::NotSupported => {
            let text = "the peer accepts no WebTransport sessions: it has not announced them in its settings";
            exception::exception(py, "ConnectError", (text,))
        }
        Error::TooManySessions => exception::exception(py, "ConnectError", (error.to_string(),)),
        Error::UnknownSession => {
            let text = "the request asks for no session, was answered, or has ended";
            exception::exception(py, "StreamClosedError", (text,))
        }
        error => PyRuntimeError::raise(error.to_string()),
    }
}
