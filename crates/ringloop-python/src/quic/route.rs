//! `Route`: a connection as its objects refer to it, with access to it.

use std::net::SocketAddr;
use std::sync::Arc;

use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use ringloop_quic::Direction;
use ringloop_quic::core::{self, Handle};
use ringloop_quic::error::{ConnectionError, StreamError};
use ringloop_quic::session::{End, Wait};

use super::errors;
use super::event_queue::Untaken;
use super::handshake::Handshake;
use super::loop_::LoopSide;
use super::shared::Shared;
use super::state::Session;
use super::waiter::{Waiter, Way};
use super::waiters::Waiters;
use crate::ffi::{Fallible, Raise as _};

/// A connection of an endpoint, as its objects refer to it.
#[derive(Clone)]
pub struct Route {
    pub shared: Arc<Shared>,
    pub handle: Handle,
    pub end: Arc<End>,
    pub untaken: Arc<Untaken>,
}

impl Route {
    /// Why the connection ended, if it did.
    pub fn lost(&self) -> Option<&ConnectionError> {
        self.end.error()
    }

    /// Inspects the connection, even after its end.
    pub fn look<T>(
        &self,
        py: Python<'_>,
        look: impl FnOnce(&mut core::Connection<'_>, &mut Session) -> T,
    ) -> PyResult<T> {
        let mut state = self.shared.state(py);
        let seen = state
            .sessions
            .both(self.handle)
            .map(|(mut connection, session)| look(&mut connection, session));
        drop(state);
        seen.ok_or_else(|| errors::connection(py, &self.end))
    }

    /// The peer's address, even after the connection's end.
    pub fn remote_address(&self, py: Python<'_>) -> PyResult<SocketAddr> {
        match self.end.last_address() {
            Some(address) => Ok(address),
            None => self.look(py, |connection, _| connection.remote_address()),
        }
    }

    /// Operates on the connection; something may have to be sent.
    pub fn act<R>(
        &self,
        py: Python<'_>,
        act: impl FnOnce(&mut core::Connection<'_>) -> R,
    ) -> PyResult<R> {
        let done = {
            let mut state = self.shared.state(py);
            let both = state.sessions.open(self.handle);
            both.map(|(mut connection, _)| act(&mut connection))
        };
        let done = done.map_err(|error| self.refused(py, &error))?;
        self.shared.arm_flush(py)?;
        Ok(done)
    }

    /// What the handshake agreed on; None before that.
    pub fn handshake(&self, py: Python<'_>) -> PyResult<Option<Handshake>> {
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

    pub fn refused(&self, py: Python<'_>, error: &StreamError) -> PyErr {
        errors::stream(py, &self.end, error)
    }

    /// Opens a stream; None while the peer allows no more.
    pub fn open(&self, py: Python<'_>, direction: Direction) -> PyResult<Fallible<Option<u64>>> {
        let opened = self.shared.state(py).open_stream(self.handle, direction);
        let opened = opened.map_err(|error| self.refused(py, &error))?;
        Ok(Fallible(opened.map(|stream| stream.0)))
    }

    /// Makes a waiter for something of the connection.
    pub fn wait_for<'py>(&self, py: Python<'py>, wait: Wait) -> PyResult<Bound<'py, Waiter>> {
        let methods = LoopSide::methods(&self.shared.loop_)
            .ok_or_else(|| errors::connection(py, &self.end))?;
        let waiter = Bound::new(py, Waiter::new(methods.loop_.clone_ref(py)))?;
        if self.lost().is_some() {
            // No event would wake it.
            Waiter::wake(&waiter, Way::Queue)?;
            return Ok(waiter);
        }
        let added = waiter.clone().unbind();
        if !Waiters::add(&self.shared.waiters, self.handle, wait, added) {
            return Err(PyRuntimeError::raise(
                "read() called while another coroutine is already waiting for incoming data",
            ));
        }
        Ok(waiter)
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
