//! `Connection`: HTTP/3 with field sections as lists, for aioquic's API.
//!
//! Streams are named by number; events and output are tuples. Calls into Python, and allocations of
//! its objects, happen outside of the lock; an item that could not be made is retried.

use std::sync::{Mutex, MutexGuard, PoisonError};

use pyo3::prelude::*;
use pyo3::types::PyTuple;
use ringloop_h3::qpack::Line;
use ringloop_h3::{
    Code, Config, Connection as Http3, ConnectionError, Event, LocalStreams, Role, Settings,
    StreamError, StreamId, Transmit, settings,
};

use super::fields::{fields, lines, pairs};
use crate::ffi::{self, Fallible, IntoObject as _, intern};

/// Bytes after a blocked field section: events that QUIC had delivered before the stream was paused, at most a
/// megabyte.
const BLOCKED_BYTES_MAX: usize = 2 << 20;

/// `SETTINGS_ENABLE_WEBTRANSPORT` (draft-ietf-webtrans-http3-02 §10.1).
const ENABLE_WEBTRANSPORT: u64 = 0x2b60_3742;

/// Why QUIC must be closed: its code, and the reason.
type Violation = Fallible<Option<(u64, &'static str)>>;
/// Why nothing was sent: the kind, and a message.
type Refusal = Fallible<Option<(&'static str, String)>>;

/// HTTP/3 for a QUIC connection that the caller drives. Field sections are ordered lists of (name, value) in bytes:
/// checked on arrival, sent unchecked.
#[pyclass(frozen, module = "ringloop._native.h3")]
pub struct Connection {
    state: Mutex<State>,
}

struct State {
    http: Http3,
    /// An event that could not be made, and whether it ends its stream.
    untaken: Option<(Event, bool)>,
    /// The event after the last one.
    following: Option<Event>,
    /// Output that could not be made.
    unsent: Option<Transmit>,
}

#[pymethods]
impl Connection {
    /// The three streams are unidirectional ones that the caller opens with its first writes.
    #[new]
    #[pyo3(signature = (*, is_client, control, encoder, decoder, datagrams, webtransport))]
    fn new(
        is_client: bool,
        control: u64,
        encoder: u64,
        decoder: u64,
        datagrams: bool,
        webtransport: bool,
    ) -> PyResult<Self> {
        ffi::spare()?;
        let role = if is_client { Role::Client } else { Role::Server };
        let default = Config::default();
        let mut settings = Settings { extended_connect: true, datagrams, ..default.settings };
        if webtransport {
            settings.others.push((ENABLE_WEBTRANSPORT, 1));
        }
        let config = Config {
            settings,
            raw_streams: webtransport,
            raw_fields: true,
            blocked_bytes_max: BLOCKED_BYTES_MAX,
            ..default
        };
        let local = LocalStreams {
            control: StreamId(control),
            encoder: StreamId(encoder),
            decoder: StreamId(decoder),
        };
        let state = Mutex::new(State {
            http: Http3::new(role, config, local),
            untaken: None,
            following: None,
            unsent: None,
        });
        Ok(Self { state })
    }

    /// The local SETTINGS, by number.
    fn sent_settings<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let settings = self.lock().http.config().settings.clone();
        shown(py, &settings)
    }

    /// The peer's non-default SETTINGS; None until they arrive.
    fn received_settings<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        let settings = self.lock().http.peer_settings().cloned();
        settings.map(|settings| shown(py, &settings)).transpose()
    }

    /// Process received data of a stream; return None, or (code, reason) to close QUIC with.
    fn receive(&self, stream_id: u64, data: &[u8], end_stream: bool) -> PyResult<Violation> {
        ffi::spare()?;
        let data = ffi::try_copy(data)?;
        let http = &mut self.lock().http;
        let taken = http.receive(StreamId(stream_id), data.into(), end_stream);
        Ok(violation(taken))
    }

    /// Process `RESET_STREAM`; returns as `receive`.
    fn receive_reset(&self, stream_id: u64, error_code: u64) -> PyResult<Violation> {
        ffi::spare()?;
        let http = &mut self.lock().http;
        let taken = http.receive_reset(StreamId(stream_id), Code(error_code));
        Ok(violation(taken))
    }

    /// Process `STOP_SENDING`; returns as `receive`.
    fn receive_stop(&self, stream_id: u64, error_code: u64) -> PyResult<Violation> {
        ffi::spare()?;
        let http = &mut self.lock().http;
        let taken = http.receive_stop(StreamId(stream_id), Code(error_code));
        Ok(violation(taken))
    }

    /// Process a datagram; returns as `receive`.
    fn receive_datagram(&self, data: &[u8]) -> PyResult<Violation> {
        ffi::spare()?;
        let data = ffi::try_copy(data)?;
        let taken = self.lock().http.receive_datagram(data.into());
        Ok(violation(taken))
    }

    /// Whether a stream waits for the peer's encoder: deliver no more of it until the event `unblocked`.
    fn is_blocked(&self, stream_id: u64) -> bool {
        self.lock().http.is_blocked(StreamId(stream_id))
    }

    /// Send a request on a new stream. Like the other methods, return None, or (kind, text) if nothing was sent.
    fn send_request(
        &self,
        stream_id: u64,
        headers: &Bound<'_, PyAny>,
        end_stream: bool,
    ) -> PyResult<Refusal> {
        ffi::spare()?;
        let fields = fields(headers)?;
        let lines: Vec<Line<'_>> = lines(&fields).collect();
        let http = &mut self.lock().http;
        let sent = http.send_request_fields(StreamId(stream_id), &lines, end_stream);
        Ok(refusal(sent))
    }

    /// Send a response, interim or final, or trailers, which end the message.
    fn send_headers(
        &self,
        stream_id: u64,
        headers: &Bound<'_, PyAny>,
        end_stream: bool,
    ) -> PyResult<Refusal> {
        ffi::spare()?;
        let fields = fields(headers)?;
        let lines: Vec<Line<'_>> = lines(&fields).collect();
        let http = &mut self.lock().http;
        let sent = http.send_fields(StreamId(stream_id), &lines, end_stream);
        Ok(refusal(sent))
    }

    /// Send a part of the body.
    fn send_data(
        &self,
        stream_id: u64,
        data: &Bound<'_, PyAny>,
        end_stream: bool,
    ) -> PyResult<Refusal> {
        ffi::spare()?;
        let data = ffi::with_bytes(data.as_borrowed(), ffi::try_copy)??;
        let http = &mut self.lock().http;
        let sent = http.send_data(StreamId(stream_id), data.into(), end_stream);
        Ok(refusal(sent))
    }

    /// Record that the program has reset a stream.
    fn reset(&self, stream_id: u64, error_code: u64) -> PyResult<()> {
        ffi::spare()?;
        // Others are not HTTP/3's, or have ended.
        let _ = self.lock().http.reset(StreamId(stream_id), Code(error_code));
        Ok(())
    }

    /// Record that the program has stopped a stream.
    fn stop(&self, stream_id: u64, error_code: u64) -> PyResult<()> {
        ffi::spare()?;
        let _ = self.lock().http.stop(StreamId(stream_id), Code(error_code));
        Ok(())
    }

    /// The number of open requests.
    #[getter]
    fn request_count(&self) -> Fallible<usize> {
        Fallible(self.lock().http.request_count())
    }

    /// Return the next event as (kind, stream, what, end of the stream, session); None if there is none.
    fn next_event<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyTuple>>> {
        loop {
            let Some((event, ended)) = self.lock().next_event() else {
                return Ok(None);
            };
            match event_tuple(py, &event, ended) {
                Ok(None) => {}
                made => {
                    if made.is_err() {
                        self.lock().untaken = Some((event, ended));
                    }
                    return made;
                }
            }
        }
    }

    /// Return the next output for QUIC as (kind, stream, bytes or code, end of the stream); None if there is none.
    fn next_output<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyTuple>>> {
        let Some(transmit) = self.lock().next_transmit() else {
            return Ok(None);
        };
        let made = transmit_tuple(py, &transmit);
        if made.is_err() {
            self.lock().unsent = Some(transmit);
        }
        made.map(Some)
    }
}

impl Connection {
    fn lock(&self) -> MutexGuard<'_, State> {
        // No call panics during a change.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// The next event, and whether its stream ends with it.
    fn next_event(&mut self) -> Option<(Event, bool)> {
        if let Some(untaken) = self.untaken.take() {
            return Some(untaken);
        }
        let event = self.following.take().or_else(|| self.http.poll_event())?;
        let ended = match &event {
            Event::Fields { stream, .. } | Event::Data { stream, .. } => {
                self.following = self.http.poll_event();
                let end = self.following.take_if(
                    |next| matches!(next, Event::End { stream: ended } if ended == stream),
                );
                end.is_some()
            }
            Event::Raw { fin, .. } => *fin,
            Event::End { .. } => true,
            _ => false,
        };
        Some((event, ended))
    }

    fn next_transmit(&mut self) -> Option<Transmit> {
        self.unsent.take().or_else(|| self.http.poll_transmit())
    }
}

/// An event as a tuple; `None` if aioquic's API has none for it.
fn event_tuple<'py>(
    py: Python<'py>,
    event: &Event,
    ended: bool,
) -> PyResult<Option<Bound<'py, PyTuple>>> {
    let none = || py.None().into_bound(py);
    let bytes = |bytes: &[u8]| ffi::new_bytes(py, bytes).map(Bound::into_any);
    let (kind, stream, what, number) = match event {
        Event::Fields { stream, fields } => {
            let list = pairs(py, fields)?.into_any();
            (intern!(py, "headers"), stream, list, none())
        }
        Event::Data { stream, data } => (intern!(py, "data"), stream, bytes(data)?, none()),
        Event::Datagram { stream, data } => (intern!(py, "datagram"), stream, bytes(data)?, none()),
        Event::Raw { stream, session, data, .. } => {
            let session = session.0.into_object(py)?;
            (intern!(py, "webtransport"), stream, bytes(data)?, session)
        }
        Event::Failed { stream, code, reason } => {
            let reason = reason.into_object(py)?;
            let code = code.0.into_object(py)?;
            (intern!(py, "failed"), stream, reason, code)
        }
        Event::Reset { stream, code } => {
            let code = code.0.into_object(py)?;
            (intern!(py, "reset"), stream, none(), code)
        }
        Event::Unblocked { stream } => (intern!(py, "unblocked"), stream, none(), none()),
        Event::End { stream } => (intern!(py, "data"), stream, bytes(b"")?, none()),
        _ => return Ok(None),
    };
    let items =
        [kind.clone().into_any(), stream.0.into_object(py)?, what, ended.into_object(py)?, number];
    ffi::new_tuple(py, items.into_iter()).map(Some)
}

/// Output as a tuple.
fn transmit_tuple<'py>(py: Python<'py>, transmit: &Transmit) -> PyResult<Bound<'py, PyTuple>> {
    let (kind, stream, what, end) = match transmit {
        Transmit::Stream { stream, data, fin } => {
            let data = ffi::new_bytes(py, data)?.into_any();
            (intern!(py, "data"), *stream, data, *fin)
        }
        Transmit::Reset { stream, code } => {
            (intern!(py, "reset"), *stream, code.0.into_object(py)?, false)
        }
        Transmit::Stop { stream, code } => {
            (intern!(py, "stop"), *stream, code.0.into_object(py)?, false)
        }
        Transmit::Datagram(data) => {
            let data = ffi::new_bytes(py, data)?.into_any();
            (intern!(py, "datagram"), StreamId(0), data, false)
        }
    };
    let items = [kind.clone().into_any(), stream.0.into_object(py)?, what, end.into_object(py)?];
    ffi::new_tuple(py, items.into_iter())
}

/// Settings as a dictionary.
fn shown<'py>(py: Python<'py>, settings: &Settings) -> PyResult<Bound<'py, PyAny>> {
    let shown = ffi::new_dict(py)?;
    let known = [
        (settings::QPACK_MAX_TABLE_CAPACITY, settings.qpack_table_bytes_max),
        (settings::QPACK_BLOCKED_STREAMS, settings.qpack_blocked_streams_max),
        (settings::ENABLE_CONNECT_PROTOCOL, settings.extended_connect.into()),
        (settings::H3_DATAGRAM, settings.datagrams.into()),
    ];
    let known = known.into_iter().filter(|(_, value)| *value != 0);
    let bytes_max = settings.field_section_bytes_max;
    let bytes_max = bytes_max.map(|bytes_max| (settings::MAX_FIELD_SECTION_SIZE, bytes_max));
    for (id, value) in known.chain(bytes_max).chain(settings.others.iter().copied()) {
        shown.set_item(Fallible(id), Fallible(value))?;
    }
    Ok(shown.into_any())
}

fn violation(taken: Result<(), ConnectionError>) -> Violation {
    Fallible(taken.err().map(|error| (error.code.0, error.reason)))
}

fn refusal(sent: Result<(), StreamError>) -> Refusal {
    let kind = |error: &StreamError| match error {
        StreamError::Unknown => "unknown",
        StreamError::Closed => "closed",
        StreamError::Unexpected(_) | StreamError::Invalid(_) => "unexpected",
        _ => "refused",
    };
    Fallible(sent.err().map(|error| (kind(&error), error.to_string())))
}
