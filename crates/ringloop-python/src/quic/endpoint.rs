//! `Endpoint`: the protocol with a UDP socket driven by a loop, or without I/O.

use ringloop::embed::sys::fd::RawFd;
use std::panic::{self, AssertUnwindSafe};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, MutexGuard, OnceLock};
use std::thread;
use std::time::Instant;

use pyo3::PyTraverseError;
use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::gc::PyVisit;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};
use ringloop_quic::BytesMut;
use ringloop_quic::config::EndpointConfig;
use ringloop_quic::core::Datagram;
use ringloop_quic::limits::{BUFFER_MAX, SEGMENTS_MAX};
use ringloop_quic::sender::Progress;
use ringloop_quic::session::Wake;

use super::address;
use super::config::{self, ClientConfig, ServerConfig};
use super::errors;
use super::keylog::Listeners;
use super::keywords::Keywords;
use super::loop_::{LoopSide, Methods};
use super::material::secret;
use super::numbers::Code;
use super::shared::Shared;
use super::socket::{Settings, Socket};
use super::state::{Admission, Notifications, Retry, State, Style};
use super::waiter::Way;
use super::waiters::Waiters;
use crate::ffi::{self, Fallible, Raise as _, intern};
use crate::limits::{QUIC_BRIEF_RUN, QUIC_CONNECTIONS_MAX};

/// Opens and accepts connections, on a UDP socket that a loop watches, or without I/O.
#[pyclass(frozen, weakref, module = "ringloop._native.quic")]
pub struct Endpoint {
    pub shared: Arc<Shared>,
    listeners: Listeners,
}

/// Lists of connection keys: accepted, eventful, gone.
type Keys = (Vec<u64>, Vec<u64>, Vec<u64>);

fn keys(notifications: Notifications) -> Option<Keys> {
    let is_empty = notifications.is_empty();
    let Notifications { accepted, eventful, gone, .. } = notifications;
    (!is_empty).then_some((accepted, eventful, gone))
}

#[pymethods]
impl Endpoint {
    #[new]
    #[pyo3(signature = (**keywords), text_signature = "(*, server=None, fd=None, events=False, versions=(1, 2), retry='never', max_connections=None, udp_payload_max=1472, socket_buffer=4194304, gso=True, gro=True, ecn=True, segments_max=64, reset_secret=None, connection_id=None, connection_id_length=None, worker=None, http=False)")]
    fn new(py: Python<'_>, keywords: Option<&Bound<'_, PyDict>>) -> PyResult<Self> {
        let keywords = Keywords::new(py, "Endpoint", keywords)?;
        let made = Self::made(py, &keywords);
        keywords.end(made)
    }

    /// Start a connection; return its key.
    #[pyo3(signature = (config, address, server_name, now=None))]
    fn connect(
        &self,
        py: Python<'_>,
        config: &Bound<'_, ClientConfig>,
        address: &Bound<'_, PyAny>,
        server_name: &str,
        now: Option<f64>,
    ) -> PyResult<Fallible<u64>> {
        ffi::spare()?;
        let remote = address::from_python(address)?;
        let server_name = address::dns_name(py, server_name)?;
        let config = config.get();
        self.listeners.add(py, config.listener.as_ref());
        let begun = {
            let mut state = self.shared.state(py);
            let now = state.clock.moment(now);
            let begun = state.connect(now, &config.inner, remote, &server_name);
            if let (Ok(handle), Some(memory), Style::Events) = (&begun, &config.memory, state.style)
            {
                state.memories.push((*handle, Arc::clone(memory)));
            }
            begun
        };
        let handle = begun.map_err(|error| errors::connect(py, &error))?;
        self.shared.arm_flush(py)?;
        Ok(Fallible(handle.to_bits()))
    }

    /// Close all connections with a code and a reason, and refuse new ones.
    #[pyo3(signature = (code=Code::default(), reason=Reason::default(), now=None), text_signature = "($self, code=0, reason='', now=None)")]
    fn close(&self, py: Python<'_>, code: Code, reason: Reason, now: Option<f64>) -> PyResult<()> {
        LoopSide::check_open(&self.shared.loop_, py)?;
        let mut woken = Vec::new();
        {
            let mut state = self.shared.state(py);
            let now = state.clock.moment(now);
            state.close_all(now, code.0, &reason.0, &mut woken);
        }
        self.shared.finish(py, woken)
    }

    /// Set the server's configuration from now on; None: accept no connections.
    fn set_server(&self, py: Python<'_>, server: Option<&Bound<'_, ServerConfig>>) {
        let inner = server.map(|server| {
            self.listeners.add(py, server.get().listener.as_ref());
            server.get().inner.clone()
        });
        self.shared.state(py).sessions.core.set_server(inner);
    }

    /// The number of connections, including closed ones that may still send close frames.
    #[getter]
    fn connection_count(&self, py: Python<'_>) -> Fallible<usize> {
        Fallible(self.shared.state(py).sessions.core.connection_count())
    }

    /// Connections, handshakes in progress; clients accepted, completed, failed, refused, retried; failed by reason:
    /// timed out, TLS, by the peer, others.
    fn counts(&self, py: Python<'_>) -> Fallible<Vec<u64>> {
        let state = self.shared.state(py);
        let all = state.sessions.core.stats();
        Fallible(vec![
            all.connections as u64,
            state.sessions.handshake_count() as u64,
            all.accepted,
            all.completed,
            all.failed.total(),
            all.refused,
            all.retried,
            all.failed.timed_out,
            all.failed.tls,
            all.failed.by_peer,
            all.failed.other,
        ])
    }

    /// Clients whose handshake failed since the last call: addresses and errors.
    fn take_failures<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        let failures = std::mem::take(&mut self.shared.state(py).sessions.failures);
        let list = ffi::new_list(py)?;
        for (address, end) in failures {
            let address = address::to_python(py, address)?;
            let error = errors::connection(py, &end).into_value(py);
            let error = error.into_bound(py).into_any();
            list.append(ffi::new_tuple(py, [address, error].into_iter())?)?;
        }
        Ok(list)
    }

    /// The socket's address.
    #[getter]
    fn local_address<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        let address = self.shared.state(py).socket.as_ref().and_then(Socket::local_addr);
        address.map(|address| address::to_python(py, address)).transpose()
    }

    /// Switch to another socket; connections opened here move with it.
    fn rebind(&self, py: Python<'_>, fd: RawFd) -> PyResult<()> {
        let rebound = {
            let mut state = self.shared.state(py);
            let settings = state.socket.as_ref().map(Socket::settings);
            settings.map(|settings| state.rebind(fd, settings))
        };
        // Not under the lock: the garbage collector may run here, and finalisers may call back.
        let Some(rebound) = rebound else {
            return Err(PyValueError::raise("this endpoint has no socket"));
        };
        rebound?;
        self.shared.arm_flush(py)
    }

    /// Attach it to a loop: `on_events(accepted, eventful, gone)` gets lists of keys, and returns True if it has queued
    /// callbacks in the loop; `on_full()` arranges for `flush` to be called once the socket is writable.
    fn attach(
        slf: &Bound<'_, Self>,
        r#loop: &Bound<'_, PyAny>,
        on_events: Py<PyAny>,
        on_full: Py<PyAny>,
    ) -> PyResult<()> {
        let py = slf.py();
        let methods = Methods {
            thread: thread::current().id(),
            call_soon: r#loop.getattr(intern!(py, "call_soon"))?.unbind(),
            call_soon_threadsafe: r#loop.getattr(intern!(py, "call_soon_threadsafe"))?.unbind(),
            call_later: r#loop.getattr(intern!(py, "call_later"))?.unbind(),
            loop_: r#loop.clone().unbind(),
            flush: slf.getattr(intern!(py, "flush"))?.unbind(),
            expire: slf.getattr(intern!(py, "expire"))?.unbind(),
            on_events,
            on_full,
            done: OnceLock::new(),
        };
        let shared = &slf.get().shared;
        LoopSide::attach(&shared.loop_, methods);
        shared.is_flush_armed.store(false, Ordering::Release);
        shared.has_sent.store(false, Ordering::Release);
        Ok(())
    }

    /// Detach it from the loop and the socket, and cancel what is scheduled in the loop. Later writes are not sent: the
    /// descriptor's number may belong to another file by then. Open connections end without notifying the peers, and
    /// their waiters are woken.
    fn detach(&self, py: Python<'_>) -> PyResult<()> {
        let mut woken = Vec::new();
        {
            let mut state = self.shared.state(py);
            state.socket = None;
            state.close_all(Instant::now(), 0, &[], &mut woken);
        }
        let roused = Waiters::wake(&self.shared.waiters, py, &woken, Way::Queue);
        LoopSide::detach(&self.shared.loop_, py)?;
        roused.map(drop)
    }

    /// Receive, run due timers, dispatch events and wake waiters; releases the interpreter while that takes long.
    fn turn(&self, py: Python<'_>) -> PyResult<()> {
        let (woken, notifications) =
            self.driven(py, &self.shared.was_turn_brief, |state, now| {
                if let Some(socket) = &mut state.socket {
                    socket.receive(now, &mut state.sessions.core);
                }
                state.sessions.core.handle_timeouts(now);
                let mut woken = Vec::new();
                state.dispatch(now, &mut woken);
                (woken, state.take_notifications())
            })?;
        // Writes from now on are sent together with the acknowledgements of what was received.
        if self.shared.is_flush_armed.swap(true, Ordering::AcqRel) {
            return self.hand_out(py, &woken, notifications).map(drop);
        }
        match self.hand_out(py, &woken, notifications) {
            Ok(false) => self.flush(py).map(drop),
            handed => {
                let armed = LoopSide::call_soon_flush(&self.shared.loop_, py);
                if armed.is_err() {
                    self.shared.is_flush_armed.store(false, Ordering::Release);
                }
                handed?;
                armed
            }
        }
    }

    /// The timer has fired.
    fn expire(&self, py: Python<'_>) -> PyResult<()> {
        LoopSide::expired(&self.shared.loop_);
        self.turn(py)
    }

    /// Send what may be sent now, and set the timer; return whether all of it was sent. If not, the loop calls this
    /// again.
    fn flush(&self, py: Python<'_>) -> PyResult<bool> {
        self.shared.is_flush_armed.store(false, Ordering::Release);
        self.shared.has_sent.store(false, Ordering::Release);
        let run = |state: &mut State, now: Instant| {
            let progress = match &mut state.socket {
                Some(socket) => socket.transmit(now, &mut state.sessions.core),
                None => Progress::Done,
            };
            state.note_sent_pings(now);
            // Sending ends connections: they may be drained now.
            let mut woken = Vec::new();
            state.dispatch(now, &mut woken);
            let deadline = state.sessions.core.next_timeout();
            (now, progress, deadline, woken, state.take_notifications())
        };
        let (now, progress, deadline, woken, notifications) =
            self.driven(py, &self.shared.was_flush_brief, run)?;
        LoopSide::arm_timer(&self.shared.loop_, py, now, deadline)?;
        match progress {
            Progress::Done => {}
            Progress::More => self.shared.arm_flush(py)?,
            Progress::Full => {
                if let Some(methods) = LoopSide::methods(&self.shared.loop_) {
                    methods.on_full.call0(py)?;
                }
            }
        }
        let mut finished = Ok(());
        if !woken.is_empty() {
            finished = self.shared.finish(py, woken);
        }
        self.notify(py, notifications)?;
        finished.map(|()| progress == Progress::Done)
    }

    /// Send what may be sent now, from within a call of the program. Wakes no waiter, so that none of the program's code
    /// runs before this returns; waking, the timer and the rest are left to the loop's next pass. With `once` only the
    /// first call of a pass sends: small writes leave together with the rest.
    #[pyo3(signature = (once=false))]
    fn send(&self, py: Python<'_>, once: bool) -> PyResult<()> {
        let shared = &self.shared;
        if !shared.state(py).sessions.core.may_send() {
            return Ok(());
        }
        if !(shared.has_sent.swap(true, Ordering::AcqRel) && once) {
            without_panics(py, || {
                let mut guard = shared.state_detached();
                let state = &mut *guard;
                if let Some(socket) = &mut state.socket {
                    let now = Instant::now();
                    socket.transmit(now, &mut state.sessions.core);
                    state.note_sent_pings(now);
                }
            })?;
        }
        shared.arm_flush(py)
    }

    /// Process a received datagram. `now` is the time of a monotonic clock, always the same one.
    #[pyo3(signature = (data, address, now, ecn=0))]
    fn receive_datagram(
        &self,
        py: Python<'_>,
        data: &Bound<'_, PyAny>,
        address: &Bound<'_, PyAny>,
        now: f64,
        ecn: u8,
    ) -> PyResult<()> {
        let source = address::from_python(address)?;
        let bytes = ffi::with_bytes(data.as_borrowed(), |bytes| BytesMut::from(bytes))?;
        let woken = without_panics(py, || {
            let mut state = self.shared.state_detached();
            let now = state.clock.moment(Some(now));
            let mut woken = Vec::new();
            if !bytes.is_empty() {
                let datagram = Datagram { source, local_ip: None, ecn, bytes };
                state.sessions.core.receive(now, datagram);
                state.dispatch(now, &mut woken);
            }
            woken
        })?;
        self.listeners.deliver(py, &self.shared.loop_);
        self.shared.finish(py, woken)
    }

    /// The datagrams to send now, each with its destination.
    fn datagrams_to_send<'py>(&self, py: Python<'py>, now: f64) -> PyResult<Bound<'py, PyList>> {
        let (made, woken) = without_panics(py, || {
            let mut state = self.shared.state_detached();
            let now = state.clock.moment(Some(now));
            let (mut packets, mut made) = (Vec::new(), Vec::new());
            while let Some(transmit) = state.sessions.core.transmit(now, SEGMENTS_MAX, &mut packets)
            {
                let segment_len = transmit.segment_len.unwrap_or(packets.len()).max(1);
                made.push((std::mem::take(&mut packets), segment_len, transmit.destination));
            }
            state.note_sent_pings(now);
            let mut woken = Vec::new();
            state.dispatch(now, &mut woken);
            (made, woken)
        })?;
        let list = ffi::new_list(py)?;
        for (packets, segment_len, destination) in &made {
            let destination = address::to_python(py, *destination)?;
            for datagram in packets.chunks(*segment_len) {
                let datagram = ffi::new_bytes(py, datagram)?.into_any();
                let destination = destination.clone().into_any();
                list.append(ffi::new_tuple(py, [datagram, destination].into_iter())?)?;
            }
        }
        self.listeners.deliver(py, &self.shared.loop_);
        self.shared.finish(py, woken)?;
        Ok(list)
    }

    /// The latest time to call `handle_timer`, in the caller's clock; valid after `datagrams_to_send`. It may be
    /// earlier than needed, never later.
    fn next_timeout(&self, py: Python<'_>) -> Fallible<Option<f64>> {
        let mut state = self.shared.state(py);
        let deadline = state.sessions.core.next_timeout();
        Fallible(deadline.map(|deadline| state.clock.reading(deadline)))
    }

    /// Run the timers that are due.
    fn handle_timer(&self, py: Python<'_>, now: f64) -> PyResult<()> {
        let woken = {
            let mut state = self.shared.state(py);
            let now = state.clock.moment(Some(now));
            state.sessions.core.handle_timeouts(now);
            let mut woken = Vec::new();
            state.dispatch(now, &mut woken);
            woken
        };
        self.shared.finish(py, woken)
    }

    /// Keys of connections that were accepted, have events, or are gone; None if there are none.
    fn take(&self, py: Python<'_>) -> Fallible<Option<Keys>> {
        let notifications = self.shared.state(py).take_notifications();
        Fallible(keys(notifications))
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        // A thread that holds the lock will release it: the next collection visits what it guards.
        if let Ok(waiters) = self.shared.waiters.try_lock() {
            for waiter in waiters.all() {
                visit.call(waiter)?;
            }
        }
        self.listeners.visit(&visit)?;
        match self.shared.loop_.try_lock() {
            Ok(side) => side.visit(&visit),
            Err(_) => Ok(()),
        }
    }

    fn __clear__(&self) {
        if let Ok(mut side) = self.shared.loop_.try_lock() {
            let old = std::mem::take(&mut *side);
            drop(side);
            drop(old);
        }
    }
}

impl Endpoint {
    /// Runs the protocol. Without the interpreter, unless the last run of the kind was brief: to
    /// take it again costs as much as a packet, and 5 ms if another thread computes.
    fn driven<T: Send>(
        &self,
        py: Python<'_>,
        was_brief: &AtomicBool,
        run: impl FnOnce(&mut State, Instant) -> T + Send,
    ) -> PyResult<T> {
        let timed = |mut state: MutexGuard<'_, State>| {
            let began = Instant::now();
            let done = run(&mut state, began);
            was_brief.store(began.elapsed() < QUIC_BRIEF_RUN, Ordering::Relaxed);
            done
        };
        let done = if was_brief.load(Ordering::Relaxed) {
            caught(|| timed(self.shared.state(py)))
        } else {
            py.detach(|| caught(|| timed(self.shared.state_detached())))
        };
        done.map_err(|_| failed())
    }

    fn made(py: Python<'_>, keywords: &Keywords<'_>) -> PyResult<Self> {
        let server = keywords.take_some("server")?;
        let server = server.map(Bound::cast_into::<ServerConfig>);
        let server = keywords.named("server", server.transpose())?;
        let style = if keywords.take_or("events", false)? { Style::Events } else { Style::Futures };
        let admission = admission(keywords)?;
        let (config, settings) = endpoint_config(py, keywords)?;
        let fd: Option<RawFd> = keywords.take_or("fd", None)?;
        let socket = fd.map(|fd| Socket::new(fd, settings)).transpose()?;
        let listeners = Listeners::default();
        let inner = server.map(|server| {
            listeners.add(py, server.get().listener.as_ref());
            server.get().inner.clone()
        });
        let mut state = State::new(&config, inner, style, admission, socket);
        // Events of aioquic's shape are for a program that drives HTTP/3 itself.
        let has_http = keywords.take_or("http", false)?;
        state.serves_http = has_http && style == Style::Futures;
        state.has_http = state.serves_http;
        Ok(Self { shared: Shared::new(py, state)?, listeners })
    }

    /// Wakes waiters and calls callbacks; whether the loop's queue now has something of theirs.
    fn hand_out(
        &self,
        py: Python<'_>,
        woken: &[Wake],
        notifications: Notifications,
    ) -> PyResult<bool> {
        let mut queued = Ok(false);
        if !woken.is_empty() {
            let methods = LoopSide::methods(&self.shared.loop_);
            let way = match &methods {
                Some(methods) => Way::from_the_loop(py, methods)?,
                None => Way::Queue,
            };
            queued = Waiters::wake(&self.shared.waiters, py, woken, way);
        }
        let has_notified = self.notify(py, notifications);
        Ok(queued? | has_notified?)
    }

    /// Whether the loop's queue now has something of the application's.
    fn notify(&self, py: Python<'_>, notifications: Notifications) -> PyResult<bool> {
        let mut has_queued = Ok(false);
        if let Some(keys) = keys(notifications)
            && let Some(methods) = LoopSide::methods(&self.shared.loop_)
        {
            let answer = methods.on_events.call1(py, keys);
            has_queued = answer.and_then(|answer| answer.is_truthy(py));
        }
        self.listeners.deliver(py, &self.shared.loop_);
        has_queued
    }
}

/// A reason: text or bytes.
#[derive(Default)]
pub struct Reason(pub Vec<u8>);

impl<'py> FromPyObject<'_, 'py> for Reason {
    type Error = PyErr;

    fn extract(object: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        match object.extract::<String>() {
            Ok(text) => Ok(Self(text.into_bytes())),
            Err(_) => Ok(Self(ffi::with_bytes(object, <[u8]>::to_vec)?)),
        }
    }
}

fn admission(keywords: &Keywords<'_>) -> PyResult<Admission> {
    let retry: String = keywords.take_or("retry", "never".to_owned())?;
    let retry = match retry.as_str() {
        "never" => Retry::Never,
        "always" => Retry::Always,
        "auto" => Retry::Auto,
        _ => {
            return Err(PyValueError::raise(format!(
                "retry is {retry:?}: give 'never', 'always' or 'auto'"
            )));
        }
    };
    let connections_max =
        keywords.take_in_or_none("max_connections", None, 1..=isize::MAX as usize)?;
    Ok(Admission {
        retry,
        connections_max: connections_max.unwrap_or(QUIC_CONNECTIONS_MAX),
        is_closed: false,
    })
}

fn endpoint_config(
    py: Python<'_>,
    keywords: &Keywords<'_>,
) -> PyResult<(EndpointConfig, Settings)> {
    let mut config = EndpointConfig::default();
    if let Some(numbers) = keywords.take_some("versions")? {
        let versions = keywords.named("versions", config::versions(&numbers))?;
        let made = config.versions(&versions);
        config = made.map_err(|error| errors::config(py, error))?;
    }
    let payload = keywords.take_in_or_none("udp_payload_max", None, 1200..=65_527)?;
    if let Some(bytes) = payload {
        let made = config.udp_payload_max(bytes);
        config = made.map_err(|error| errors::config(py, error))?;
    }
    if let Some(first) = keywords.take_some("connection_id")? {
        let first = keywords.named("connection_id", first.extract::<Vec<u8>>())?;
        let made = config.connection_ids(&first);
        config = made.map_err(|error| errors::config(py, error))?;
    }
    let len = keywords.take_in_or_none("connection_id_length", None, 4..=20)?;
    if let Some(len) = len {
        let made = config.connection_id_len(len);
        config = made.map_err(|error| errors::config(py, error))?;
    }
    if let Some(secret) = secret(keywords, "reset_secret")? {
        config = config.reset_secret(&secret);
    }
    // Use its ids, not those derived from the secret.
    if let Some(worker) = keywords.take_some("worker")? {
        let (number, count, key) = keywords.named("worker", worker.extract())?;
        let made = config.worker(number, count, key);
        config = made.map_err(|error| errors::config(py, error))?;
    }
    let gso: bool = keywords.take_or("gso", true)?;
    let segments_max = keywords.take_in("segments_max", SEGMENTS_MAX, 1..=SEGMENTS_MAX)?;
    let settings = Settings {
        segments_max: if gso { segments_max } else { 1 },
        gro: keywords.take_or("gro", true)?,
        ecn: keywords.take_or("ecn", true)?,
        buffer: keywords.take_in("socket_buffer", config.socket_buffer, 1..=BUFFER_MAX)?,
    };
    Ok((config, settings))
}

/// Runs the protocol without the interpreter.
fn without_panics<T: Send>(py: Python<'_>, body: impl FnOnce() -> T + Send) -> PyResult<T> {
    py.detach(|| caught(body)).map_err(|_| failed())
}

/// The protocol's libraries panic if they run out of memory, and a panic would leave the loop: it
/// becomes an error of the call, which the loop reports, and the connection loses a packet or ends.
fn caught<T>(body: impl FnOnce() -> T) -> thread::Result<T> {
    panic::catch_unwind(AssertUnwindSafe(body))
}

fn failed() -> PyErr {
    PyRuntimeError::raise("the QUIC engine has failed, perhaps out of memory")
}
