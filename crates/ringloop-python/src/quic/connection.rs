//! `Connection`: what a program does with one connection of an endpoint.

use pyo3::exceptions::{PyBufferError, PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList};
use ringloop_quic::core::{self, Handle};
use ringloop_quic::error::StreamError;
use ringloop_quic::limits;
use ringloop_quic::{Bytes, Direction, StreamId};

use super::address;
use super::endpoint::{Endpoint, Reason};
use super::errors;
use super::handshake::Handshake;
use super::loop_::LoopSide;
use super::notes::Note;
use super::shared::Route;
use super::state::{Link, PeerStreams, Phase};
use super::stats::Stats;
use super::waiter::Waiter;
use super::waiters::{Wait, wait_for};
use crate::ffi::{self, Fallible, Raise as _};

/// A connection of an endpoint, by its key. Several objects of one key are the same connection.
#[pyclass(frozen, subclass, weakref, dict, module = "ringloop._native.quic")]
pub struct Connection {
    pub route: Route,
}

type Ids<'py> = (Bound<'py, PyBytes>, Bound<'py, PyBytes>);

pub fn direction(unidirectional: bool) -> Direction {
    if unidirectional {
        Direction::Uni
    } else {
        Direction::Bi
    }
}

#[pymethods]
impl Connection {
    #[new]
    fn new(py: Python<'_>, endpoint: &Bound<'_, Endpoint>, key: u64) -> PyResult<Self> {
        let shared = &endpoint.get().shared;
        let handle = Handle::from_bits(key);
        let record = shared
            .state(py)
            .link(handle)
            .map(|link| link.record.clone());
        let record = record.ok_or_else(|| {
            PyValueError::raise(format!("the endpoint has no connection with the key {key}"))
        })?;
        let shared = shared.clone();
        Ok(Self {
            route: Route {
                shared,
                handle,
                record,
            },
        })
    }

    /// Its number in the endpoint, which is not given again.
    #[getter]
    fn key(&self) -> Fallible<u64> {
        Fallible(self.route.handle.to_bits())
    }

    /// Whether this end began it.
    #[getter]
    fn is_client(&self, py: Python<'_>) -> PyResult<bool> {
        self.look(py, |connection, _| connection.is_client())
    }

    /// The peer's address now.
    #[getter]
    fn remote_address<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let address = match self.route.record.remote.get() {
            Some(address) => *address,
            None => self.look(py, |connection, _| connection.remote_address())?,
        };
        address::to_python(py, address)
    }

    /// Servers: the address that the client has connected to, where it is known.
    #[getter]
    fn local_ip(&self, py: Python<'_>) -> PyResult<Fallible<Option<String>>> {
        let ip = self.look(py, |connection, _| connection.local_ip())?;
        Ok(Fallible(ip.map(|ip| ip.to_string())))
    }

    /// Whether the handshake is under way.
    #[getter]
    fn is_handshaking(&self, py: Python<'_>) -> bool {
        let mut state = self.route.shared.state(py);
        state
            .link(self.route.handle)
            .is_some_and(|link| link.phase != Phase::Complete)
    }

    /// Whether it is over: nothing can be sent or will come any more.
    #[getter]
    fn is_closed(&self) -> bool {
        self.route.lost().is_some()
    }

    /// How it ended: an exception that was not raised; None while it has not.
    #[getter]
    fn error<'py>(&self, py: Python<'py>) -> Option<Bound<'py, PyAny>> {
        self.route.lost()?;
        let error = errors::connection(py, &self.route.record);
        Some(error.into_value(py).into_bound(py).into_any())
    }

    /// The same as aioquic's event.
    #[getter]
    fn close_info<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        match self.route.lost() {
            Some(_) => self.terminated(py).map(Some),
            None => Ok(None),
        }
    }

    /// What the handshake has agreed on; None before it has.
    pub(super) fn handshake(&self, py: Python<'_>) -> PyResult<Option<Handshake>> {
        let (agreed, early) = self.look(py, |connection, _| {
            let agreed = connection.handshake();
            (agreed, connection.early_data_accepted())
        })?;
        Ok(agreed.map(|agreed| Handshake {
            alpn: agreed.protocol.as_deref().map(text).into(),
            server_name: agreed.server_name.into(),
            cipher_suite: agreed.cipher_suite.into(),
            key_exchange: agreed.key_exchange.into(),
            is_resumed: agreed.is_resumed,
            early_data_accepted: early,
        }))
    }

    /// The peer's certificates in DER, its own first; empty where it has shown none.
    fn peer_certificates<'py>(
        &self,
        py: Python<'py>,
    ) -> PyResult<Fallible<Vec<Bound<'py, PyBytes>>>> {
        let chain = self.look(py, |connection, _| connection.peer_certificates())?;
        let chain = chain.unwrap_or_default();
        let made = chain.iter().map(|der| ffi::new_bytes(py, der));
        made.collect::<PyResult<_>>().map(Fallible)
    }

    /// The peer's transport parameters, encoded (RFC 9000 §18); None before they are known.
    fn peer_transport_parameters<'py>(
        &self,
        py: Python<'py>,
    ) -> PyResult<Option<Bound<'py, PyBytes>>> {
        let encoded = self.look(py, |connection, _| connection.peer_transport_parameters())?;
        encoded
            .map(|encoded| ffi::new_bytes(py, &encoded))
            .transpose()
    }

    /// The connection id that the peer uses first, and that which the client has named the server by at first; None
    /// of endpoints that do not tell ids.
    fn ids<'py>(&self, py: Python<'py>) -> PyResult<Fallible<Option<Ids<'py>>>> {
        let ids = self.look(py, |connection, _| connection.ids())?;
        ids.map(|(first, original)| {
            Ok((ffi::new_bytes(py, &first)?, ffi::new_bytes(py, &original)?))
        })
        .transpose()
        .map(Fallible)
    }

    /// Whether the handshake is confirmed (RFC 9001 §4.1.2): keys may be changed.
    #[getter]
    fn is_confirmed(&self, py: Python<'_>) -> PyResult<bool> {
        self.look(py, |connection, _| connection.is_confirmed())
    }

    /// Whether early data was sent that the server refused: its streams are not there.
    #[getter]
    fn early_data_rejected(&self, py: Python<'_>) -> PyResult<bool> {
        self.look(py, |_, link| link.early_rejected)
    }

    /// Hold back a stream's events, so that its window closes. Only of endpoints that keep events. Nothing happens
    /// where the connection is over: what has come is told, and nothing comes after the last event.
    fn pause_stream(&self, py: Python<'_>, stream_id: u64) -> PyResult<()> {
        if self.route.lost().is_some() {
            return Ok(());
        }
        self.look(py, |_, link| link.notes.pause(StreamId(stream_id)))
    }

    /// Go on with a stream's events.
    fn resume_stream(&self, py: Python<'_>, stream_id: u64) {
        let stream = StreamId(stream_id);
        let mut state = self.route.shared.state(py);
        let link = state.link(self.route.handle);
        if link.is_some_and(|link| link.notes.resume(stream)) {
            state.note(self.route.handle, Note::Readable(stream));
        }
    }

    /// Have `take_writable` name a stream once nothing of it is queued; False where nothing is.
    fn want_writable(&self, py: Python<'_>, stream_id: u64) -> PyResult<bool> {
        let stream = StreamId(stream_id);
        self.look(py, |_, link| {
            let is_queued = link.queued.contains_key(&stream);
            if is_queued {
                link.wanted.insert(stream);
            }
            is_queued
        })
    }

    /// The streams of `want_writable` that have nothing queued by now.
    fn take_writable(&self, py: Python<'_>) -> Fallible<Vec<u64>> {
        let mut state = self.route.shared.state(py);
        let link = state.link(self.route.handle);
        let taken = link.map(|link| std::mem::take(&mut link.writable));
        let taken = taken.unwrap_or_default();
        Fallible(taken.into_iter().map(|stream| stream.0).collect())
    }

    /// Whether a stream that was written to waits until the peer allows more streams.
    #[pyo3(signature = (unidirectional=false))]
    fn waits_for_credit(&self, py: Python<'_>, unidirectional: bool) -> PyResult<bool> {
        self.look(py, |connection, link| {
            let opened = link.opened[usize::from(unidirectional)];
            link.queued.keys().any(|stream| {
                stream.is_by_client() == connection.is_client()
                    && stream.direction() == direction(unidirectional)
                    && stream.0 >> 2 >= opened
            })
        })
    }

    /// Bytes that may be queued by `send_stream_data` before it raises `BufferError`; None: any number.
    fn set_queued_max(&self, py: Python<'_>, count: Option<usize>) -> PyResult<()> {
        self.look(py, |_, link| link.queued_max = count)
    }

    /// Bytes that only both ends of this connection can know (RFC 8446 §7.5).
    #[pyo3(signature = (label, context, length))]
    fn export_keying_material<'py>(
        &self,
        py: Python<'py>,
        label: Reason,
        context: &[u8],
        length: usize,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let mut output = vec![0; length.min(usize::from(u16::MAX))];
        let done = self.look(py, |connection, _| {
            connection.export_keying_material(&mut output, &label.0, context)
        })?;
        if !done || output.len() != length {
            return Err(PyValueError::raise(format!(
                "{length} bytes of keying material cannot be had: the handshake is not complete, or that is too long"
            )));
        }
        ffi::new_bytes(py, &output)
    }

    /// Figures.
    fn stats(&self, py: Python<'_>) -> PyResult<Stats> {
        Ok(self.look(py, |connection, _| connection.stats())?.into())
    }

    /// The smoothed round-trip time in seconds.
    #[getter]
    fn rtt(&self, py: Python<'_>) -> PyResult<Fallible<f64>> {
        let rtt = self.look(py, |connection, _| connection.rtt())?;
        Ok(Fallible(rtt.as_secs_f64()))
    }

    /// Whether early data may be sent, or was.
    #[getter]
    fn has_early_data(&self, py: Python<'_>) -> PyResult<bool> {
        self.look(py, |connection, _| connection.has_early_data())
    }

    /// Close it with the program's code and reason, behind what was written and may be sent now; the rest is dropped.
    #[pyo3(signature = (code=0, reason=Reason::default(), now=None))]
    fn close(&self, py: Python<'_>, code: u64, reason: Reason, now: Option<f64>) -> PyResult<()> {
        let code = errors::check_code(code)?;
        if self.route.lost().is_none() {
            LoopSide::check_open(&self.route.shared.loop_, py)?;
        }
        let mut woken = Vec::new();
        {
            let mut state = self.route.shared.state(py);
            let now = state.clock.moment(now);
            state.close(now, self.route.handle, code, &reason.0, &mut woken);
        }
        self.route.shared.finish(py, woken)
    }

    /// Have the peer acknowledge something; `PingAcknowledged(uid)` tells when it has.
    #[pyo3(signature = (uid=0))]
    fn ping(&self, py: Python<'_>, uid: u64) -> PyResult<Fallible<u64>> {
        let number = self.route.shared.state(py).ping(self.route.handle, uid);
        let number = number.map_err(|error| self.refused(py, &error))?;
        self.route.shared.arm_flush(py)?;
        Ok(Fallible(number))
    }

    /// How many pings were acknowledged, in order.
    #[getter]
    fn answered_pings(&self, py: Python<'_>) -> PyResult<Fallible<u64>> {
        self.look(py, |_, link| link.pings.answered_count)
            .map(Fallible)
    }

    /// Change the keys.
    fn update_keys(&self, py: Python<'_>) -> PyResult<()> {
        self.act(py, |connection| {
            connection.update_keys();
        })
    }

    /// Packets leave from another address from now on: use another connection id, tell the peer. An error until the
    /// handshake is confirmed (RFC 9000 §9).
    fn local_address_changed(&self, py: Python<'_>) -> PyResult<()> {
        if self.act(py, |connection| !connection.local_address_changed())? {
            return Err(PyRuntimeError::raise(
                "the handshake is not confirmed: until then the connection has to stay at its address",
            ));
        }
        Ok(())
    }

    /// How many streams of a direction the peer may have open at a time.
    #[pyo3(signature = (count, unidirectional=false))]
    fn set_max_streams(&self, py: Python<'_>, count: u64, unidirectional: bool) -> PyResult<()> {
        errors::check_count(py, "max_streams", count, limits::STREAMS_LIMIT)?;
        let direction = direction(unidirectional);
        self.act(py, |connection| {
            connection.set_streams_max(direction, count);
        })
    }

    /// How many bytes the peer may send ahead of the readers, all streams together.
    fn set_max_data(&self, py: Python<'_>, count: u64) -> PyResult<()> {
        errors::check_count(py, "max_data", count, limits::NUMBER_MAX)?;
        self.act(py, |connection| connection.set_receive_window(count))
    }

    /// How many bytes may be written and not acknowledged, all streams together.
    fn set_send_window(&self, py: Python<'_>, count: u64) -> PyResult<()> {
        errors::check_count(py, "send_window", count, limits::NUMBER_MAX)?;
        self.act(py, |connection| connection.set_send_window(count))
    }

    /// Send a datagram; False where there is no room for it. With `drop_oldest`, those that wait the longest
    /// make room. One that has not left after `expires` seconds is dropped.
    #[pyo3(signature = (data, drop_oldest=false, expires=None))]
    fn send_datagram(
        &self,
        py: Python<'_>,
        data: &Bound<'_, PyAny>,
        drop_oldest: bool,
        expires: Option<f64>,
    ) -> PyResult<bool> {
        let bytes = Bytes::from(ffi::with_bytes(data.as_borrowed(), ffi::try_copy)??);
        let sent = self.send_all(py, std::iter::once(bytes), drop_oldest, expires)?;
        Ok(sent == 1)
    }

    /// Send several datagrams; tells how many of them, from the first on, found room.
    #[pyo3(signature = (datagrams, drop_oldest=false))]
    fn send_datagrams(
        &self,
        py: Python<'_>,
        datagrams: &Bound<'_, PyAny>,
        drop_oldest: bool,
    ) -> PyResult<Fallible<usize>> {
        self.send_fitting(py, datagrams, drop_oldest).map(Fallible)
    }

    /// Take the datagrams that have come, at most `count` (0: all).
    #[pyo3(signature = (count=0))]
    fn receive_datagrams<'py>(
        &self,
        py: Python<'py>,
        count: usize,
    ) -> PyResult<Bound<'py, PyList>> {
        let taken = self.take_datagrams(py, if count == 0 { usize::MAX } else { count })?;
        let list = ffi::new_list(py)?;
        for bytes in &taken {
            list.append(ffi::new_bytes(py, bytes)?)?;
        }
        Ok(list)
    }

    /// The longest datagram that may be sent now; None: the peer takes none.
    #[getter]
    fn max_datagram_size(&self, py: Python<'_>) -> PyResult<Fallible<Option<usize>>> {
        self.look(py, |connection, _| connection.max_datagram_len())
            .map(Fallible)
    }

    /// Bytes of datagrams that may be sent now without waiting.
    #[getter]
    fn datagram_room(&self, py: Python<'_>) -> PyResult<Fallible<usize>> {
        self.look(py, |connection, _| connection.datagram_room())
            .map(Fallible)
    }

    /// Open a stream; None while the peer allows no more.
    #[pyo3(signature = (unidirectional=false))]
    fn open_stream_nowait(
        &self,
        py: Python<'_>,
        unidirectional: bool,
    ) -> PyResult<Fallible<Option<u64>>> {
        let direction = direction(unidirectional);
        let opened = self
            .route
            .shared
            .state(py)
            .open(self.route.handle, direction);
        let opened = opened.map_err(|error| self.refused(py, &error))?;
        Ok(Fallible(opened.map(|stream| stream.0)))
    }

    /// Take a stream that the peer has opened; None where there is none.
    #[pyo3(signature = (unidirectional=false))]
    fn accept_stream_nowait(
        &self,
        py: Python<'_>,
        unidirectional: bool,
    ) -> PyResult<Fallible<Option<u64>>> {
        let accepted = {
            let mut state = self.route.shared.state(py);
            state.accept(self.route.handle, direction(unidirectional))
        };
        if accepted.is_none() && self.route.lost().is_some() {
            return Err(errors::connection(py, &self.route.record));
        }
        Ok(Fallible(accepted.map(|stream| stream.0)))
    }

    /// Take all streams that the peer has opened, those both ways first; none where the connection is over.
    fn accept_streams(&self, py: Python<'_>) -> Fallible<Vec<u64>> {
        if self.route.lost().is_some() {
            return Fallible(Vec::new());
        }
        let handle = self.route.handle;
        let mut state = self.route.shared.state(py);
        let mut accepted = Vec::new();
        for direction in [Direction::Bi, Direction::Uni] {
            while let Some(stream) = state.accept(handle, direction) {
                accepted.push(stream.0);
            }
        }
        Fallible(accepted)
    }

    /// From now on, streams that the peer opens are news of the endpoint's: the key is among the eventful.
    fn announce_streams(&self, py: Python<'_>) -> PyResult<()> {
        let handle = self.route.handle;
        self.look(py, |_, link| {
            link.peer_streams = PeerStreams::Announced;
        })?;
        self.route.shared.state(py).tell_eventful(handle);
        self.route.shared.arm_flush(py)
    }

    /// The number of the next stream that would be opened.
    #[pyo3(signature = (unidirectional=false))]
    fn next_stream_id(&self, py: Python<'_>, unidirectional: bool) -> PyResult<Fallible<u64>> {
        self.look(py, |connection, link| {
            let opened = link.opened[usize::from(unidirectional)];
            let waiting = link.queued.keys().filter(|stream| {
                stream.is_by_client() == connection.is_client()
                    && stream.direction() == direction(unidirectional)
            });
            let next = waiting
                .map(|stream| (stream.0 >> 2) + 1)
                .fold(opened, u64::max);
            next << 2 | u64::from(unidirectional) << 1 | u64::from(!connection.is_client())
        })
        .map(Fallible)
    }

    /// Send on a stream by its number, which is opened with the first write. What has no room, or belongs to a
    /// stream that the peer does not allow yet, waits here.
    #[pyo3(signature = (stream_id, data, end_stream=false))]
    fn send_stream_data(
        &self,
        py: Python<'_>,
        stream_id: u64,
        data: &Bound<'_, PyAny>,
        end_stream: bool,
    ) -> PyResult<()> {
        let (handle, stream) = (self.route.handle, StreamId(stream_id));
        let sent = ffi::with_bytes(data.as_borrowed(), |bytes| {
            let room = ffi::room_for(bytes.len())?;
            let send = || {
                let mut state = self.route.shared.state(py);
                if !bytes.is_empty() && state.link(handle).is_some_and(|link| link.is_full()) {
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
            send().map_err(|error| self.refused(py, &error))
        })??;
        if !sent {
            return Err(PyBufferError::raise(
                "too much is queued already: wait until the peer takes it, or raise tx_max_queued_bytes",
            ));
        }
        self.route.shared.arm_flush(py)
    }

    /// Give up sending on a stream.
    fn reset_stream(&self, py: Python<'_>, stream_id: u64, error_code: u64) -> PyResult<()> {
        let code = errors::check_code(error_code)?;
        let (handle, stream) = (self.route.handle, StreamId(stream_id));
        let done = self.route.shared.state(py).reset(handle, stream, code);
        done.map_err(|error| self.refused(py, &error))?;
        self.route.shared.arm_flush(py)
    }

    /// Have the peer stop sending on a stream, and drop what has come.
    fn stop_stream(&self, py: Python<'_>, stream_id: u64, error_code: u64) -> PyResult<()> {
        let code = errors::check_code(error_code)?;
        let done = {
            let mut state = self.route.shared.state(py);
            state.stop(self.route.handle, StreamId(stream_id), code)
        };
        done.map_err(|error| self.refused(py, &error))?;
        self.route.shared.arm_flush(py)
    }

    /// Streams of a higher priority send first; 0 at the start.
    fn set_stream_priority(&self, py: Python<'_>, stream_id: u64, priority: i32) -> PyResult<()> {
        let done = {
            let mut state = self.route.shared.state(py);
            let both = state.open_both(self.route.handle);
            both.and_then(|(mut connection, _)| {
                connection.set_priority(StreamId(stream_id), priority)
            })
        };
        done.map_err(|error| self.refused(py, &error))
    }

    /// Bytes of a stream that wait for room in the send window.
    fn stream_queued(&self, py: Python<'_>, stream_id: u64) -> PyResult<Fallible<usize>> {
        self.look(py, |_, link| {
            let queued = link.queued.get(&StreamId(stream_id));
            queued.map_or(0, super::queued::Queued::len)
        })
        .map(Fallible)
    }

    /// The same of all streams.
    #[getter]
    fn streams_queued(&self, py: Python<'_>) -> PyResult<Fallible<usize>> {
        self.look(py, |_, link| {
            link.queued.values().map(super::queued::Queued::len).sum()
        })
        .map(Fallible)
    }

    /// The next event; None where there is none. Only of endpoints that keep events.
    fn next_event<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        let told = self.take_told(py, 1);
        let Some(first) = told.first() else {
            return Ok(None);
        };
        let event = self.event(py, first);
        if event.is_err() {
            self.keep_untold(told);
        }
        event.map(Some)
    }

    /// All events that there are, about a megabyte of stream data at most.
    fn take_events<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        let list = ffi::new_list(py)?;
        let told = self.take_told(py, usize::MAX);
        let listed = told
            .iter()
            .try_for_each(|told| list.append(self.event(py, told)?));
        if let Err(error) = listed {
            self.keep_untold(told);
            return Err(error);
        }
        Ok(list)
    }

    /// What to await for: `"open"`, `"accept"` (each with `unidirectional`), `"datagram_in"`, `"datagram_out"`,
    /// `"progress"`.
    #[pyo3(signature = (what, unidirectional=false))]
    fn waiter<'py>(
        &self,
        py: Python<'py>,
        what: &str,
        unidirectional: bool,
    ) -> PyResult<Bound<'py, Waiter>> {
        let wait = match what {
            "open" => Wait::Open(direction(unidirectional)),
            "accept" => Wait::Accept(direction(unidirectional)),
            "datagram_in" => Wait::DatagramIn,
            "datagram_out" => Wait::DatagramOut,
            "progress" => Wait::Progress,
            _ => return Err(PyValueError::raise(format!("nobody tells {what:?}"))),
        };
        wait_for(&self.route, py, wait)
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

impl Connection {
    /// Look at the connection, also where it is over.
    pub(super) fn look<T>(
        &self,
        py: Python<'_>,
        look: impl FnOnce(&mut core::Connection<'_>, &mut Link) -> T,
    ) -> PyResult<T> {
        let mut state = self.route.shared.state(py);
        let seen = state
            .both(self.route.handle)
            .map(|(mut connection, link)| look(&mut connection, link));
        drop(state);
        seen.ok_or_else(|| errors::connection(py, &self.route.record))
    }

    /// Do something that may have to be sent.
    fn act<R>(
        &self,
        py: Python<'_>,
        act: impl FnOnce(&mut core::Connection<'_>) -> R,
    ) -> PyResult<R> {
        let done = {
            let mut state = self.route.shared.state(py);
            let both = state.open_both(self.route.handle);
            both.map(|(mut connection, _)| act(&mut connection))
        };
        let done = done.map_err(|error| self.refused(py, &error))?;
        self.route.shared.arm_flush(py)?;
        Ok(done)
    }

    fn refused(&self, py: Python<'_>, error: &StreamError) -> PyErr {
        errors::stream(py, &self.route.record, error)
    }
}
