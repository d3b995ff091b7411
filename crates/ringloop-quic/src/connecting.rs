//! Connection establishment, as futures.
//!
//! Owns: [`Incoming`] (a client that waits for a decision), [`Connecting`] (a handshake),
//! [`ZeroRtt`]. Called by: applications. The socket is left to the endpoint's task.

use crate::config::ServerConfig;
use crate::connection::Connection;
use crate::core::{self, Handle, Handshake};
use crate::error::ConnectionError;
use crate::session::{Phase, Wait};
use crate::shared::{Futures, Inner, Session, Shared};
use crate::wakers::WaitSlot;
use std::fmt;
use std::future::Future;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Instant;

/// A client that waits to be accepted. Dropping it refuses the client.
#[must_use = "dropping it refuses the client"]
pub struct Incoming {
    shared: Rc<Shared>,
    inner: Option<core::Incoming>,
}

impl fmt::Debug for Incoming {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Incoming").field("remote", &self.remote_address()).finish_non_exhaustive()
    }
}

impl Incoming {
    pub(crate) fn new(shared: &Rc<Shared>, inner: core::Incoming) -> Self {
        shared.state().undecided_count += 1;
        Self { shared: Rc::clone(shared), inner: Some(inner) }
    }

    /// Starts the handshake.
    ///
    /// # Errors
    /// What was wrong with the client's first packet.
    pub fn accept(self) -> Result<Connecting, ConnectionError> {
        self.accept_as(None)
    }

    /// Starts the handshake with another configuration.
    pub fn accept_with(self, config: ServerConfig) -> Result<Connecting, ConnectionError> {
        self.accept_as(Some(config))
    }

    fn accept_as(mut self, config: Option<ServerConfig>) -> Result<Connecting, ConnectionError> {
        let Some(inner) = self.inner.take() else {
            return Err(ConnectionError::Closed);
        };
        let accepted = {
            let sessions = &mut self.shared.state().sessions;
            sessions.accept(Instant::now(), inner, config, Futures::new())
        };
        self.shared.report_failures();
        self.shared.wake();
        accepted.map(|handle| Connecting::new(&self.shared, handle))
    }

    /// Refuses the client with an error code.
    pub fn refuse(self) {}

    /// Asks the client to validate its address first; it connects again, with `is_validated()`.
    ///
    /// # Errors
    /// Returns itself if the client already answered a Retry.
    pub fn retry(mut self) -> Result<(), Self> {
        let Some(inner) = self.inner.take() else {
            return Ok(());
        };
        let result = self.shared.state().sessions.core.retry(inner);
        self.shared.wake();
        match result {
            Ok(()) => Ok(()),
            Err(inner) => Err(Self::new(&self.shared, inner)),
        }
    }

    /// Drops the attempt silently.
    pub fn ignore(mut self) {
        if let Some(inner) = self.inner.take() {
            self.shared.state().sessions.core.ignore(inner);
        }
    }

    /// The client's address; may be spoofed unless `is_validated()`.
    pub fn remote_address(&self) -> Option<SocketAddr> {
        self.inner.as_ref().map(core::Incoming::remote_address)
    }

    /// The address that the client sent to.
    pub fn local_ip(&self) -> Option<IpAddr> {
        self.inner.as_ref().and_then(core::Incoming::local_ip)
    }

    /// Whether the client validated its address, by a Retry or a token of an earlier connection.
    pub fn is_validated(&self) -> bool {
        self.inner.as_ref().is_some_and(core::Incoming::is_validated)
    }

    /// Whether [`Incoming::retry`] is possible.
    pub fn may_retry(&self) -> bool {
        self.inner.as_ref().is_some_and(core::Incoming::may_retry)
    }
}

impl Drop for Incoming {
    fn drop(&mut self) {
        let mut state = self.shared.state();
        state.undecided_count -= 1;
        if let Some(inner) = self.inner.take() {
            state.sessions.core.refuse(inner);
        }
        drop(state);
        self.shared.wake();
    }
}

/// A handshake in progress; awaiting it returns the connection. Dropping it closes the connection.
///
/// Keeps the connection open like a clone of it, until it is awaited.
#[must_use = "dropping it closes the connection"]
pub struct Connecting {
    slot: Watching,
    connection: Connection,
}

/// Registration as a waiter for a handshake's steps.
type Watching = WaitSlot<Rc<Inner>>;

fn watching(connection: &Connection) -> Watching {
    WaitSlot::new(Rc::clone(&connection.inner), Wait::Progress)
}

impl fmt::Debug for Connecting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connecting").field("connection", &self.connection).finish_non_exhaustive()
    }
}

impl Connecting {
    pub(crate) fn new(shared: &Rc<Shared>, handle: Handle) -> Self {
        let connection = Connection::new(shared, handle);
        Self { slot: watching(&connection), connection }
    }

    /// Returns the connection before the handshake is complete: a client that resumes a session may
    /// send early data, which an attacker can replay; a server may answer a client that is not yet
    /// verified. [`ZeroRtt`] reports the outcome.
    ///
    /// # Errors
    /// Returns itself if early data is not possible; then await it.
    pub fn into_0rtt(self) -> Result<(Connection, ZeroRtt), Self> {
        let is_possible = self
            .connection
            .inner
            .with(|connection, _| !connection.is_client() || connection.has_early_data());
        if !is_possible {
            return Err(self);
        }
        let connection = self.connection.clone();
        let zero_rtt = ZeroRtt { slot: watching(&connection), connection: self.connection };
        Ok((connection, zero_rtt))
    }

    /// What the handshake agreed on so far; a server waits for the name that the client requests.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn handshake_data(&self) -> Result<Handshake, ConnectionError> {
        let agreed = |connection: &mut core::Connection<'_>, session: &mut Session| {
            if session.phase != Phase::Complete
                && let Some(error) = session.error()
            {
                return Some(Err(error.clone()));
            }
            let is_known = session.phase >= Phase::Agreed;
            is_known.then(|| Ok(connection.handshake().unwrap_or_default()))
        };
        self.connection.inner.until(Wait::Progress, agreed).await
    }

    /// The peer's address.
    pub fn remote_address(&self) -> SocketAddr {
        self.connection.remote_address()
    }
}

impl Future for Connecting {
    type Output = Result<Connection, ConnectionError>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.get_mut();
        let complete = |_: &mut core::Connection<'_>, session: &mut Session| {
            // Even if it is closed by now: what a client sent before it closed can still be read.
            if session.phase == Phase::Complete {
                return Some(Ok(()));
            }
            session.error().cloned().map(Err)
        };
        let result = this.slot.poll(cx, |inner| inner.with(complete));
        result.map_ok(|()| this.connection.clone())
    }
}

/// Outcome of early data: awaiting it returns whether the server accepted it; `false` if the
/// handshake failed.
#[must_use = "whether early data arrived is known when it is awaited"]
pub struct ZeroRtt {
    slot: Watching,
    connection: Connection,
}

impl fmt::Debug for ZeroRtt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ZeroRtt").field(&self.connection).finish()
    }
}

impl Future for ZeroRtt {
    type Output = bool;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<bool> {
        let accepted = |connection: &mut core::Connection<'_>, session: &mut Session| {
            // Even if it is closed by now.
            if session.phase == Phase::Complete {
                return Some(!connection.is_client() || connection.early_data_accepted());
            }
            session.error().map(|_| false)
        };
        let slot = &mut self.get_mut().slot;
        slot.poll(cx, |inner| inner.with(accepted))
    }
}
