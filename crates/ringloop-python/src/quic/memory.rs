//! A client's sessions and address tokens, managed by the application.
//!
//! Owns: [`Memory`], in which a connection's TLS and transport store what the server sends and from
//! which the next connection takes; [`SessionTicket`], one session as an object. Called by:
//! `config`, Python's `QuicConnection`. Sessions cannot be saved to disk, because rustls does not
//! export them as bytes.

use std::collections::VecDeque;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::ffi::{self, Fallible};
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use ringloop_quic::Bytes;
use ringloop_quic::config::TokenStore;
use ringloop_quic::rustls::NamedGroup;
use ringloop_quic::rustls::client::{
    ClientSessionStore, Tls12ClientSessionValue, Tls13ClientSessionValue,
};
use ringloop_quic::rustls::pki_types::ServerName;

/// Sessions, and tokens, kept per server; further ones evict the oldest.
const KEPT_MAX: usize = 8;

/// RFC 8446 §4.6.1: the maximum lifetime of a ticket.
const LIFETIME: Duration = Duration::from_secs(7 * 24 * 3600);

/// A session to resume: a `session_ticket_handler` receives it, and `session_ticket` takes it.
///
/// Valid in this process and for one connection (RFC 8446 §C.4 advises against using one twice): further
/// connections do a full handshake, and get new tickets.
#[pyclass(frozen, module = "ringloop._native.quic")]
pub struct SessionTicket {
    server_name: String,
    received: SystemTime,
    cipher_suite: u16,
    max_early_data_size: u32,
    value: Mutex<Option<Box<Tls13ClientSessionValue>>>,
}

impl fmt::Debug for SessionTicket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SessionTicket")
            .field("server_name", &self.server_name)
            .finish_non_exhaustive()
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn seconds(time: SystemTime) -> f64 {
    let since = time.duration_since(UNIX_EPOCH);
    since.map_or(0.0, |since| since.as_secs_f64())
}

impl SessionTicket {
    fn new(server_name: &ServerName<'_>, value: Tls13ClientSessionValue) -> Self {
        Self {
            server_name: server_name.to_str().into_owned(),
            received: SystemTime::now(),
            cipher_suite: u16::from(value.suite().common.suite),
            max_early_data_size: value.max_early_data_size(),
            value: Mutex::new(Some(Box::new(value))),
        }
    }

    fn is_fresh(&self) -> bool {
        let age = SystemTime::now().duration_since(self.received);
        age.is_ok_and(|age| age < LIFETIME) && locked(&self.value).is_some()
    }
}

#[pymethods]
impl SessionTicket {
    /// The name of the server that issued it.
    #[getter]
    fn server_name(&self) -> Fallible<&str> {
        Fallible(&self.server_name)
    }

    /// The number of its cipher suite.
    #[getter]
    fn cipher_suite(&self) -> Fallible<u16> {
        Fallible(self.cipher_suite)
    }

    /// Bytes of early data that the server accepts: 0, or RFC 9001's 2^32 - 1.
    #[getter]
    fn max_early_data_size(&self) -> Fallible<u32> {
        Fallible(self.max_early_data_size)
    }

    /// When it was received, in seconds of `time.time()`.
    #[getter]
    fn received_at(&self) -> Fallible<f64> {
        Fallible(seconds(self.received))
    }

    /// Whether it is unused, and less than a week old.
    #[getter]
    fn is_valid(&self) -> bool {
        self.is_fresh()
    }

    fn __repr__(&self) -> Fallible<String> {
        Fallible(format!("<SessionTicket of {} valid={}>", self.server_name, self.is_fresh()))
    }
}

/// The store of sessions and tokens for one or more connections of a client.
///
/// `ticket`, `token`: those for the next connection. `keeps`: whether the next connections use new ones, too;
/// otherwise `take_tickets` and `take_tokens` return them.
#[pyclass(frozen, module = "ringloop._native.quic")]
pub struct Memory {
    state: Arc<Store>,
}

/// Contents of a memory.
#[derive(Default)]
pub struct Store {
    state: Mutex<State>,
    /// There are new ones to take.
    has_new: AtomicBool,
}

impl Store {
    /// Whether something new has arrived since the last call.
    pub fn take_new(&self) -> bool {
        self.has_new.load(Ordering::Relaxed) && self.has_new.swap(false, Ordering::Relaxed)
    }

    fn locked(&self) -> MutexGuard<'_, State> {
        locked(&self.state)
    }
}

#[derive(Default)]
struct State {
    keeps: bool,
    group: Option<NamedGroup>,
    sessions: VecDeque<Tls13ClientSessionValue>,
    tokens: VecDeque<Bytes>,
    new_sessions: VecDeque<SessionTicket>,
    new_tokens: VecDeque<Bytes>,
}

impl fmt::Debug for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Memory")
    }
}

fn push<T>(queue: &mut VecDeque<T>, item: T) {
    if queue.len() == KEPT_MAX {
        queue.pop_front();
    }
    queue.push_back(item);
}

impl ClientSessionStore for Store {
    fn set_kx_hint(&self, _: ServerName<'static>, group: NamedGroup) {
        self.locked().group = Some(group);
    }

    fn kx_hint(&self, _: &ServerName<'_>) -> Option<NamedGroup> {
        self.locked().group
    }

    // QUIC has no TLS 1.2.
    fn set_tls12_session(&self, _: ServerName<'static>, _: Tls12ClientSessionValue) {}

    fn tls12_session(&self, _: &ServerName<'_>) -> Option<Tls12ClientSessionValue> {
        None
    }

    fn remove_tls12_session(&self, _: &ServerName<'static>) {}

    fn insert_tls13_ticket(
        &self,
        server_name: ServerName<'static>,
        value: Tls13ClientSessionValue,
    ) {
        let mut state = self.locked();
        if state.keeps {
            push(&mut state.sessions, value);
        } else {
            push(&mut state.new_sessions, SessionTicket::new(&server_name, value));
            self.has_new.store(true, Ordering::Relaxed);
        }
    }

    fn take_tls13_ticket(&self, _: &ServerName<'static>) -> Option<Tls13ClientSessionValue> {
        self.locked().sessions.pop_back()
    }
}

impl TokenStore for Store {
    fn insert(&self, _: &str, token: Bytes) {
        let mut state = self.locked();
        if state.keeps {
            push(&mut state.tokens, token);
        } else {
            push(&mut state.new_tokens, token);
            self.has_new.store(true, Ordering::Relaxed);
        }
    }

    fn take(&self, _: &str) -> Option<Bytes> {
        self.locked().tokens.pop_back()
    }
}

impl Memory {
    /// As TLS's session store.
    pub(super) fn sessions(&self) -> Arc<dyn ClientSessionStore> {
        Arc::<Store>::clone(&self.state)
    }

    /// As the store of an endpoint that reports events.
    pub(super) fn store(&self) -> Arc<Store> {
        Arc::clone(&self.state)
    }

    /// As the transport's token store.
    pub(super) fn tokens(&self) -> Arc<dyn TokenStore> {
        Arc::<Store>::clone(&self.state)
    }
}

#[pymethods]
impl Memory {
    #[new]
    #[pyo3(signature = (*, ticket=None, token=None, keeps=false))]
    fn new(ticket: Option<&SessionTicket>, token: Option<Vec<u8>>, keeps: bool) -> Self {
        let session = ticket.and_then(|ticket| locked(&ticket.value).take());
        let token = token.filter(|token| !token.is_empty());
        let state = State {
            keeps,
            sessions: session.map(|session| *session).into_iter().collect(),
            tokens: token.map(Bytes::from).into_iter().collect(),
            ..State::default()
        };
        Self {
            state: Arc::new(Store { state: Mutex::new(state), has_new: AtomicBool::new(false) }),
        }
    }

    /// Take the sessions received since the last call, the oldest first.
    fn take_tickets<'py>(
        &self,
        py: Python<'py>,
    ) -> PyResult<Fallible<Vec<Bound<'py, SessionTicket>>>> {
        let tickets: Vec<SessionTicket> = self.state.locked().new_sessions.drain(..).collect();
        let made = tickets.into_iter().map(|ticket| Bound::new(py, ticket));
        made.collect::<PyResult<_>>().map(Fallible)
    }

    /// Take the address tokens received since the last call, the oldest first.
    fn take_tokens<'py>(&self, py: Python<'py>) -> PyResult<Fallible<Vec<Bound<'py, PyBytes>>>> {
        let tokens: Vec<Bytes> = self.state.locked().new_tokens.drain(..).collect();
        let as_object = |token: &Bytes| ffi::new_bytes(py, token);
        tokens.iter().map(as_object).collect::<PyResult<_>>().map(Fallible)
    }
}
