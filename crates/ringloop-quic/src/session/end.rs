//! How a connection ended; outlives the connection, for remaining handles.

use crate::core::Connection;
use crate::error::ConnectionError;
use bytes::Bytes;
use std::net::SocketAddr;
use std::sync::OnceLock;

/// How a connection ended. The first value set stays.
#[derive(Debug, Default)]
pub struct End {
    error: OnceLock<ConnectionError>,
    unfinished: OnceLock<Unfinished>,
    closed_with: OnceLock<(u64, Bytes)>,
    last_address: OnceLock<SocketAddr>,
}

/// A handshake that was incomplete when the connection ended.
#[derive(Debug, Clone, Copy)]
pub struct Unfinished {
    /// The peer's address.
    pub address: SocketAddr,
    /// Something was received from there.
    pub has_answered: bool,
}

impl Unfinished {
    pub(super) fn of(connection: &Connection<'_>) -> Self {
        Self {
            address: connection.remote_address(),
            has_answered: connection.stats().udp_received > 0,
        }
    }
}

impl End {
    /// For a client whose first packet was invalid.
    pub(super) fn of_first_packet(error: ConnectionError, address: SocketAddr) -> Self {
        let end = Self::default();
        let has_answered = true;
        end.set(error, Some(Unfinished { address, has_answered }));
        end
    }

    pub(super) fn set(&self, error: ConnectionError, unfinished: Option<Unfinished>) {
        if self.error.set(error).is_ok()
            && let Some(unfinished) = unfinished
        {
            let _first = self.unfinished.set(unfinished);
        }
    }

    pub(super) fn set_closed(&self, said: (u64, Bytes), unfinished: Option<Unfinished>) {
        drop(self.closed_with.set(said));
        self.set(ConnectionError::Closed, unfinished);
    }

    /// The connection is released.
    pub(super) fn release(&self, address: SocketAddr) {
        self.set(ConnectionError::Closed, None);
        let _first = self.last_address.set(address);
    }

    /// The peer's address at release; `None` before.
    pub fn last_address(&self) -> Option<SocketAddr> {
        self.last_address.get().copied()
    }

    /// Why it ended, if it did.
    #[inline]
    pub fn error(&self) -> Option<&ConnectionError> {
        self.error.get()
    }

    /// The handshake's state, if it was incomplete.
    pub fn unfinished(&self) -> Option<&Unfinished> {
        self.unfinished.get()
    }

    /// The code and reason, if it was closed locally.
    pub fn closed_with(&self) -> Option<&(u64, Bytes)> {
        self.closed_with.get()
    }
}
