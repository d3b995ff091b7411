//! `AsgiRequest`: a request whose body and response are ASGI messages (HTTP spec 2.4).
//!
//! Owns: which message an application may send next. Called by: `ringloop.serve`, whose request is
//! a subclass: its coroutines wait, and send what is not a plain response: files, trailers, hints.

use std::sync::{Mutex, MutexGuard, PoisonError};

use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyInt, PyString};
use ringloop_h3::qpack::Line;
use ringloop_quic::Bytes;

use super::exchange::Exchange;
use super::fields::{HOP_BY_HOP, Pair, fields, fields_of_asgi, lines};
use crate::ffi::{self, Fallible, Raise as _, intern};
use crate::quic::Connection;
use crate::quic::numbers::AtMost;

/// Bytes of the request's body per message.
const PART_BYTES: usize = 64 << 10;

/// The message that the application must send next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Start,
    Body,
    Trailers,
    Complete,
}

#[derive(Debug)]
struct Response {
    phase: Phase,
    /// It has no content (RFC 9110 §6.4.1).
    is_bodiless: bool,
    has_trailers: bool,
    /// Bytes left of its declared length.
    bytes_left: Option<u64>,
}

/// A request that an ASGI application answers.
#[pyclass(frozen, subclass, extends = Exchange, module = "ringloop._native.h3")]
pub struct AsgiRequest {
    response: Mutex<Response>,
    /// Fields added to a response unless the application gives them: pairs of bytes.
    defaults: Py<PyAny>,
    logs_access: bool,
}

#[pymethods]
impl AsgiRequest {
    /// `default_headers`: fields added to a response unless the application gives them.
    #[new]
    fn new(
        py: Python<'_>,
        connection: &Bound<'_, Connection>,
        stream_id: u64,
        default_headers: Py<PyAny>,
        logs_access: bool,
    ) -> PyResult<PyClassInitializer<Self>> {
        let exchange = Exchange::of(py, connection, stream_id, false)?;
        let head = exchange.head();
        let method = head.as_ref().and_then(|head| head.pseudo(b":method"));
        let response = Response {
            phase: Phase::Start,
            is_bodiless: method.is_some_and(|method| method == "HEAD"),
            has_trailers: false,
            bytes_left: None,
        };
        let this = Self { response: Mutex::new(response), defaults: default_headers, logs_access };
        Ok(PyClassInitializer::from(exchange).add_subclass(this))
    }

    /// Whether a proxy has added fields about its client, such as `x-forwarded-for`.
    #[getter(_is_forwarded)]
    fn is_forwarded(slf: &Bound<'_, Self>) -> bool {
        let head = slf.as_super().get().head().unwrap_or_default();
        head.headers().iter().any(|field| field.name.starts_with(b"x-forwarded-"))
    }

    /// What the application must send next: "start", "body", "trailers", or nothing: "complete".
    #[getter(_phase)]
    fn phase<'py>(&self, py: Python<'py>) -> &Bound<'py, PyString> {
        match self.response().phase {
            Phase::Start => intern!(py, "start"),
            Phase::Body => intern!(py, "body"),
            Phase::Trailers => intern!(py, "trailers"),
            Phase::Complete => intern!(py, "complete"),
        }
    }

    /// Mark the response as complete.
    #[pyo3(name = "_complete")]
    fn complete(&self) {
        self.response().phase = Phase::Complete;
    }

    /// The next message with a part of the request's body; None if none has arrived.
    #[pyo3(name = "_receive")]
    fn receive<'py>(slf: &Bound<'py, Self>) -> PyResult<Option<Bound<'py, PyDict>>> {
        let py = slf.py();
        let exchange = slf.as_super().get();
        let Some(body) = exchange.take(py, AtMost(PART_BYTES))? else {
            return Ok(None);
        };
        let message = ffi::new_dict(py)?;
        message.set_item(intern!(py, "type"), intern!(py, "http.request"))?;
        let more_body = !exchange.is_read();
        message.set_item(intern!(py, "body"), body)?;
        message.set_item(intern!(py, "more_body"), Fallible(more_body))?;
        Ok(Some(message))
    }

    /// Process a message of the application. Return None, or an awaitable: for space in the send window, or that of
    /// `_send_other`, which then processes the message.
    #[pyo3(name = "_send")]
    fn send<'py>(
        slf: &Bound<'py, Self>,
        message: &Bound<'py, PyAny>,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        let py = slf.py();
        let kind = message.get_item(intern!(py, "type"))?;
        let phase = slf.get().response().phase;
        let is_kind = |name: &Bound<'py, PyString>| Ok::<_, PyErr>(kind.is(name) || kind.eq(name)?);
        if phase == Phase::Start && is_kind(intern!(py, "http.response.start"))? {
            return respond(slf, &Message::of(message)?).map(|()| None);
        }
        if phase == Phase::Body && is_kind(intern!(py, "http.response.body"))? {
            return send_body(slf, &Message::of(message)?);
        }
        slf.call_method1(intern!(py, "_send_other"), (message,)).map(Some)
    }
}

impl AsgiRequest {
    fn response(&self) -> MutexGuard<'_, Response> {
        // A panic leaves no change incomplete: each is a few assignments.
        self.response.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A message of the application.
struct Message<'a, 'py>(&'a Bound<'py, PyDict>);

impl<'a, 'py> Message<'a, 'py> {
    fn of(message: &'a Bound<'py, PyAny>) -> PyResult<Self> {
        Ok(Self(message.cast()?))
    }

    fn is_true(&self, name: &Bound<'py, PyString>) -> PyResult<bool> {
        self.0.get_item(name)?.map_or(Ok(false), |value| value.is_truthy())
    }
}

/// Sends the fields of a response.
fn respond(slf: &Bound<'_, AsgiRequest>, message: &Message<'_, '_>) -> PyResult<()> {
    let (py, this) = (slf.py(), slf.get());
    let status = message.0.as_any().get_item(intern!(py, "status"))?;
    let code = status.cast::<PyInt>().ok().and_then(|status| status.extract::<u16>().ok());
    let Some(code) = code.filter(|code| (200..=999).contains(code)) else {
        let text = format!("the response's status is {}: 200 to 999", status.repr()?);
        return Err(PyValueError::raise(text));
    };
    let given = match message.0.get_item(intern!(py, "headers"))? {
        Some(given) => fields_of_asgi(&given, |name| !HOP_BY_HOP.contains(&name))?,
        None => Vec::new(),
    };
    let mut defaults = fields(this.defaults.bind(py))?;
    defaults.retain(|[name, _]| given.iter().all(|[other, _]| **other != **name));
    let has_trailers = message.is_true(intern!(py, "trailers"))?;
    let is_bodiless = this.response().is_bodiless || matches!(code, 204 | 304);
    let bytes_left = if is_bodiless { None } else { declared_length(&given)? };
    let digits = [code / 100, code / 10 % 10, code % 10].map(|digit| b'0' + digit as u8);
    let mut all = Vec::with_capacity(1 + defaults.len() + given.len());
    all.push(Line::new(b":status", &digits));
    all.extend(lines(&defaults).chain(lines(&given)));
    slf.as_super().get().send_lines(py, &all, false)?;
    *this.response() = Response { phase: Phase::Body, is_bodiless, has_trailers, bytes_left };
    if this.logs_access {
        slf.call_method1(intern!(py, "_log"), (status,))?;
    }
    Ok(())
}

fn declared_length(fields: &[Pair<'_>]) -> PyResult<Option<u64>> {
    let Some([_, value]) = fields.iter().find(|[name, _]| **name == *b"content-length") else {
        return Ok(None);
    };
    let number = str::from_utf8(value).ok().and_then(|text| text.trim().parse().ok());
    number.map(Some).ok_or_else(|| {
        let value = String::from_utf8_lossy(value);
        PyValueError::raise(format!("content-length is {value:?}: give a number"))
    })
}

/// Sends a part of the response's body; returns the waiter for space in the send window.
fn send_body<'py>(
    slf: &Bound<'py, AsgiRequest>,
    message: &Message<'_, 'py>,
) -> PyResult<Option<Bound<'py, PyAny>>> {
    let (py, this) = (slf.py(), slf.get());
    let is_last = !message.is_true(intern!(py, "more_body"))?;
    let body = match message.0.get_item(intern!(py, "body"))? {
        Some(body) => Bytes::from(ffi::with_bytes(body.as_borrowed(), ffi::try_copy)??),
        None => Bytes::new(),
    };
    let counted = this.response().count(body, is_last);
    let (body, ends) = counted.map_err(PyRuntimeError::raise)?;
    if body.is_empty() && !ends {
        return Ok(None);
    }
    let is_full = slf
        .as_super()
        .get()
        .send_with(py, ends, |driver, stream| driver.connection.send_data(stream, body, ends))?;
    is_full.then(|| slf.call_method0(intern!(py, "_drain"))).transpose()
}

impl Response {
    /// Counts a part of the body; returns the part to send, and whether the message ends with it.
    fn count(&mut self, body: Bytes, is_last: bool) -> Result<(Bytes, bool), &'static str> {
        let body = if self.is_bodiless { Bytes::new() } else { body };
        if let Some(left) = &mut self.bytes_left {
            let Some(rest) = left.checked_sub(body.len() as u64) else {
                return Err("Response content longer than Content-Length");
            };
            *left = rest;
            if is_last && rest > 0 {
                return Err("Response content shorter than Content-Length");
            }
        }
        if is_last {
            self.phase = if self.has_trailers { Phase::Trailers } else { Phase::Complete };
        }
        Ok((body, is_last && !self.has_trailers))
    }
}
