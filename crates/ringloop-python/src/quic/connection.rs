//! `Connection`: operations on one connection of an endpoint.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList};
use ringloop_quic::core::Handle;
use ringloop_quic::limits;
use ringloop_quic::session::Wait;
use ringloop_quic::{Bytes, Direction};

use super::address;
use super::endpoint::{Endpoint, Reason};
use super::errors;
use super::handshake::Handshake;
use super::loop_::LoopSide;
use super::numbers::{self, AtMost, Code};
use super::route::Route;
use super::state::PeerStreams;
use super::stats::Stats;
use super::waiter::Waiter;
use crate::ffi::{self, Fallible, IntoObject as _, Raise as _};

/// A connection of an endpoint, by its key. Several objects may refer to the same connection.
#[pyclass(frozen, subclass, weakref, dict, module = "ringloop._native.quic")]
pub struct Connection {
    pub route: Route,
    /// The peer's address as [`Connection::client`] last made it.
    client: Mutex<Option<(SocketAddr, Py<PyAny>)>>,
}

pub fn direction(unidirectional: bool) -> Direction {
    if unidirectional { Direction::Uni } else { Direction::Bi }
}

#[pymethods]
impl Connection {
    #[new]
    pub(super) fn new(py: Python<'_>, endpoint: &Bound<'_, Endpoint>, key: u64) -> PyResult<Self> {
        let shared = &endpoint.get().shared;
        let handle = Handle::from_bits(key);
        let kept = shared.state(py).sessions.get(handle).map(|session| {
            let untaken = Arc::clone(&session.attached.untaken);
            (Arc::clone(&session.end), untaken)
        });
        let (end, untaken) = kept.ok_or_else(|| {
            PyValueError::raise(format!("the endpoint has no connection with the key {key}"))
        })?;
        let route = Route { shared: Arc::clone(shared), handle, end, untaken };
        Ok(Self { route, client: Mutex::default() })
    }

    /// Its number in the endpoint, never reused.
    #[getter(_key)]
    fn key(&self) -> Fallible<u64> {
        Fallible(self.route.handle.to_bits())
    }

    /// Whether this end initiated it.
    #[getter]
    fn is_client(&self, py: Python<'_>) -> PyResult<bool> {
        self.route.look(py, |connection, _| connection.is_client())
    }

    /// The peer's address now.
    #[getter]
    fn remote_address<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        address::to_python(py, self.route.remote_address(py)?)
    }

    /// Servers: the address that the client connected to, if known.
    #[getter]
    fn local_ip(&self, py: Python<'_>) -> PyResult<Fallible<Option<String>>> {
        let ip = self.route.look(py, |connection, _| connection.local_ip())?;
        Ok(Fallible(ip.map(|ip| ip.to_string())))
    }

    /// Whether the handshake is in progress.
    #[getter]
    fn is_handshaking(&self, py: Python<'_>) -> bool {
        let mut state = self.route.shared.state(py);
        let session = state.sessions.get(self.route.handle);
        session.is_some_and(|session| session.is_handshaking())
    }

    /// Whether it is closed: nothing can be sent or received any more.
    #[getter]
    fn is_closed(&self) -> bool {
        self.route.lost().is_some()
    }

    /// Why it ended, as an exception that was not raised; None while it is open.
    #[getter]
    fn error<'py>(&self, py: Python<'py>) -> Option<Bound<'py, PyAny>> {
        self.route.lost()?;
        let error = errors::connection(py, &self.route.end);
        Some(error.into_value(py).into_bound(py).into_any())
    }

    /// What the handshake negotiated; None before.
    fn handshake(&self, py: Python<'_>) -> PyResult<Option<Handshake>> {
        self.route.handshake(py)
    }

    /// The peer's certificates in DER, leaf first; empty if it presented none.
    fn peer_certificates<'py>(
        &self,
        py: Python<'py>,
    ) -> PyResult<Fallible<Vec<Bound<'py, PyBytes>>>> {
        let chain = self.route.look(py, |connection, _| connection.peer_certificates())?;
        let chain = chain.unwrap_or_default();
        let made = chain.iter().map(|der| ffi::new_bytes(py, der));
        made.collect::<PyResult<_>>().map(Fallible)
    }

    /// The peer's encoded transport parameters (RFC 9000 §18); None before they are known.
    fn peer_transport_parameters<'py>(
        &self,
        py: Python<'py>,
    ) -> PyResult<Option<Bound<'py, PyBytes>>> {
        let encoded =
            self.route.look(py, |connection, _| connection.peer_transport_parameters())?;
        encoded.map(|encoded| ffi::new_bytes(py, &encoded)).transpose()
    }

    /// Whether the handshake is confirmed (RFC 9001 §4.1.2): keys may be changed.
    #[getter]
    fn is_confirmed(&self, py: Python<'_>) -> PyResult<bool> {
        self.route.look(py, |connection, _| connection.is_confirmed())
    }

    /// Exported keying material: bytes known only to both ends of this connection (RFC 8446 §7.5).
    #[pyo3(signature = (label, context, length))]
    fn export_keying_material<'py>(
        &self,
        py: Python<'py>,
        label: Reason,
        context: &[u8],
        length: AtMost,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let length = length.0;
        let mut output = vec![0; length.min(usize::from(u16::MAX))];
        let done = self.route.look(py, |connection, _| {
            connection.export_keying_material(&mut output, &label.0, context)
        })?;
        if !done || output.len() != length {
            return Err(PyValueError::raise(format!(
                "{length} bytes of keying material cannot be exported: the handshake is not complete, or that is too long"
            )));
        }
        ffi::new_bytes(py, &output)
    }

    /// The connection's statistics.
    fn stats(&self, py: Python<'_>) -> PyResult<Stats> {
        Ok(self.route.look(py, |connection, _| connection.stats())?.into())
    }

    /// The smoothed round-trip time in seconds.
    #[getter]
    fn rtt(&self, py: Python<'_>) -> PyResult<Fallible<f64>> {
        let rtt = self.route.look(py, |connection, _| connection.rtt())?;
        Ok(Fallible(rtt.as_secs_f64()))
    }

    /// The idle time-out in seconds: the smaller of both ends' limits (RFC 9000 §10.1). None: neither has one, or the
    /// handshake is not complete.
    #[getter]
    fn idle_timeout(&self, py: Python<'_>) -> PyResult<Fallible<Option<f64>>> {
        let timeout = self.route.look(py, |connection, _| connection.idle_timeout())?;
        Ok(Fallible(timeout.map(|timeout| timeout.as_secs_f64())))
    }

    /// Return the seconds since the peer's last packet.
    #[pyo3(signature = (now=None))]
    fn idle_for(&self, py: Python<'_>, now: Option<f64>) -> PyResult<Fallible<f64>> {
        let now = self.route.shared.state(py).clock.moment(now);
        let passed = self.route.look(py, |connection, _| connection.idle_for(now))?;
        Ok(Fallible(passed.as_secs_f64()))
    }

    /// Whether early data may be sent, or was.
    #[getter]
    fn has_early_data(&self, py: Python<'_>) -> PyResult<bool> {
        self.route.look(py, |connection, _| connection.has_early_data())
    }

    /// Close it with the program's code and reason, after the written data that may be sent now; the rest is dropped.
    #[pyo3(signature = (code=Code::default(), reason=Reason::default(), now=None), text_signature = "($self, code=0, reason='', now=None)")]
    fn close(&self, py: Python<'_>, code: Code, reason: Reason, now: Option<f64>) -> PyResult<()> {
        if self.route.lost().is_none() {
            LoopSide::check_open(&self.route.shared.loop_, py)?;
        }
        let mut woken = Vec::new();
        {
            let mut state = self.route.shared.state(py);
            let now = state.clock.moment(now);
            state.close(now, self.route.handle, code.0, &reason.0, &mut woken);
        }
        self.route.shared.finish(py, woken)
    }

    /// Send a ping; `PingAcknowledged(uid)` reports the acknowledgement.
    #[pyo3(signature = (uid=0))]
    fn ping(&self, py: Python<'_>, uid: u64) -> PyResult<Fallible<u64>> {
        let number = self.route.shared.state(py).ping(self.route.handle, uid);
        let number = number.map_err(|error| self.route.refused(py, &error))?;
        self.route.shared.arm_flush(py)?;
        Ok(Fallible(number))
    }

    /// The number of acknowledged pings, in order.
    #[getter(_answered_pings)]
    fn answered_pings(&self, py: Python<'_>) -> PyResult<Fallible<u64>> {
        self.route.look(py, |_, session| session.attached.pings.answered_count).map(Fallible)
    }

    /// Change the keys.
    fn update_keys(&self, py: Python<'_>) -> PyResult<()> {
        self.route.act(py, |connection| {
            connection.update_keys();
        })
    }

    /// The number of streams of a direction that the peer may have open at a time.
    #[pyo3(signature = (count, unidirectional=false))]
    fn set_max_streams(
        &self,
        py: Python<'_>,
        count: &Bound<'_, PyAny>,
        unidirectional: bool,
    ) -> PyResult<()> {
        let count = numbers::whole("max_streams", count, &(0..=limits::STREAMS_LIMIT), "")?;
        let direction = direction(unidirectional);
        self.route.act(py, |connection| {
            connection.set_streams_max(direction, count);
        })
    }

    /// Bytes that the peer may send ahead of the readers, all streams together.
    fn set_max_data(&self, py: Python<'_>, count: &Bound<'_, PyAny>) -> PyResult<()> {
        let count = numbers::whole("max_data", count, &(0..=limits::NUMBER_MAX), "")?;
        self.route.act(py, |connection| connection.set_receive_window(count))
    }

    /// Bytes that may be written and not acknowledged, all streams together.
    fn set_send_window(&self, py: Python<'_>, count: &Bound<'_, PyAny>) -> PyResult<()> {
        let count = numbers::whole("send_window", count, &(0..=limits::NUMBER_MAX), "")?;
        self.route.act(py, |connection| connection.set_send_window(count))
    }

    /// Send a datagram; False if the buffer is full. With `drop_oldest`, the oldest queued datagrams make room. A
    /// datagram not sent within `expires` seconds is dropped.
    #[pyo3(signature = (data, drop_oldest=false, expires=None))]
    fn send_datagram(
        &self,
        py: Python<'_>,
        data: &Bound<'_, PyAny>,
        drop_oldest: bool,
        expires: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<bool> {
        let lifetime = numbers::lifetime("expires", expires)?;
        let bytes = Bytes::from(ffi::with_bytes(data.as_borrowed(), ffi::try_copy)??);
        let sent = self.send_all(py, std::iter::once(bytes), drop_oldest, lifetime)?;
        Ok(sent == 1)
    }

    /// Send several datagrams in order; return how many were accepted.
    #[pyo3(signature = (datagrams, drop_oldest=false))]
    fn send_datagrams(
        &self,
        py: Python<'_>,
        datagrams: &Bound<'_, PyAny>,
        drop_oldest: bool,
    ) -> PyResult<Fallible<usize>> {
        self.send_fitting(py, datagrams, drop_oldest).map(Fallible)
    }

    /// Take the received datagrams, at most `count` (0: all).
    #[pyo3(signature = (count=AtMost(0)), text_signature = "($self, count=0)")]
    fn receive_datagrams<'py>(
        &self,
        py: Python<'py>,
        count: AtMost,
    ) -> PyResult<Bound<'py, PyList>> {
        let taken = self.take_datagrams(py, if count.0 == 0 { usize::MAX } else { count.0 })?;
        let list = ffi::new_list(py)?;
        for bytes in &taken {
            list.append(ffi::new_bytes(py, bytes)?)?;
        }
        Ok(list)
    }

    /// The longest datagram that may be sent now; None: the peer accepts none.
    #[getter]
    fn max_datagram_size(&self, py: Python<'_>) -> PyResult<Fallible<Option<usize>>> {
        self.route.look(py, |connection, _| connection.max_datagram_len()).map(Fallible)
    }

    /// Bytes of datagrams that may be sent now without waiting.
    #[getter]
    fn datagram_room(&self, py: Python<'_>) -> PyResult<Fallible<usize>> {
        self.route.look(py, |connection, _| connection.datagram_room()).map(Fallible)
    }

    /// Open a stream; None while the peer allows no more.
    #[pyo3(name = "_open_stream", signature = (unidirectional=false))]
    fn open_stream_nowait(
        &self,
        py: Python<'_>,
        unidirectional: bool,
    ) -> PyResult<Fallible<Option<u64>>> {
        self.route.open(py, direction(unidirectional))
    }

    /// Accept a stream that the peer has opened; None if there is none.
    #[pyo3(name = "_accept_stream", signature = (unidirectional=false))]
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
            return Err(errors::connection(py, &self.route.end));
        }
        Ok(Fallible(accepted.map(|stream| stream.0)))
    }

    /// Accept all streams that the peer has opened, bidirectional ones first; none if the connection is closed.
    #[pyo3(name = "_accept_streams")]
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

    /// From now on the endpoint reports streams that the peer opens: the key is among the eventful ones.
    #[pyo3(name = "_announce_streams")]
    fn announce_streams(&self, py: Python<'_>) -> PyResult<()> {
        let handle = self.route.handle;
        self.route.look(py, |_, session| {
            session.attached.peer_streams = PeerStreams::Announced;
        })?;
        self.route.shared.state(py).notify_eventful(handle);
        self.route.shared.arm_flush(py)
    }

    /// The waiter for an event: `"open"`, `"accept"` (each with `unidirectional`), `"datagram_in"`, `"datagram_out"`,
    /// `"progress"`.
    #[pyo3(name = "_waiter", signature = (what, unidirectional=false))]
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
            _ => return Err(PyValueError::raise(format!("there is no waiter for {what:?}"))),
        };
        self.route.wait_for(py, wait)
    }
}

impl Connection {
    /// The peer's address as `(host, port)`, IPv4-mapped ones as IPv4; the same object as long as the address is the
    /// same.
    pub fn client<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let address = self.route.remote_address(py)?;
        let known = |known: &Option<(SocketAddr, Py<PyAny>)>| {
            let (of, made) = known.as_ref()?;
            (*of == address).then(|| made.clone_ref(py))
        };
        let found = known(&self.client.lock().unwrap_or_else(PoisonError::into_inner));
        if let Some(found) = found {
            return Ok(found.into_bound(py));
        }
        let canonical = address::canonical(address);
        let made = (canonical.ip().to_string(), canonical.port()).into_object(py)?;
        let new = Some((address, made.clone().unbind()));
        // Dropped after the lock is released.
        let old = {
            let mut client = self.client.lock().unwrap_or_else(PoisonError::into_inner);
            std::mem::replace(&mut *client, new)
        };
        drop(old);
        Ok(made)
    }
}
