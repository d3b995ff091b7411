//! Sessions: the state of each connection above the protocol, for both Rust and Python futures.
//!
//! Owns: [`Sessions`], a core with one [`Session`] per connection: handshake phase, how the
//! connection ended, unreported failures; the halves of a stream. Called by: this crate's endpoint, and embedders that
//! drive a core themselves. Generic over the state that its user attaches to a connection. Wakes no
//! waiters itself: [`wakes`] says which ones to wake once nothing is borrowed or locked.

mod end;
mod half;
mod wait;

pub use end::{End, Unfinished};
pub use half::{RecvHalf, SendHalf};
pub use wait::{Wait, WaitHasher, Waiter, Waiters, Wake, wakes};

use crate::config::{ClientConfig, ServerConfig};
use crate::core::{self, Core, Event, Handle, Incoming};
use crate::error::{ConnectError, ConnectionError, StreamError};
use crate::{Direction, StreamId};
use bytes::Bytes;
use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Instant;

/// Phase of a handshake.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    /// Started.
    Handshaking,
    /// Its parameters are known.
    Agreed,
    /// Complete.
    Complete,
}

/// When a closed connection stops sending.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Closing {
    /// At once.
    Now,
    /// After written data that may be sent now, if the connection has sent anything.
    Behind,
}

/// The state of one connection.
#[derive(Debug)]
pub struct Session<T> {
    /// Its handle in the core.
    pub handle: Handle,
    /// Handshake phase.
    pub phase: Phase,
    /// How it ended; outlives the session.
    pub end: Arc<End>,
    /// The server rejected early data: streams opened for it are gone.
    pub early_rejected: bool,
    /// Streams finished after queued bytes, with the code of a later stop: the engine forgets the
    /// code with the stream.
    finishing: HashMap<StreamId, Option<u64>>,
    /// State of the layer's user.
    pub attached: T,
}

impl<T> Session<T> {
    /// Why it ended, if it did.
    pub fn error(&self) -> Option<&ConnectionError> {
        self.end.error()
    }

    /// Whether the handshake is in progress.
    pub fn is_handshaking(&self) -> bool {
        self.phase != Phase::Complete && self.error().is_none()
    }

    /// Rejects a stream that was opened as rejected early data: its id may have been reused.
    pub fn check_early(&self, is_early: bool) -> Result<(), StreamError> {
        if is_early && self.early_rejected {
            return Err(StreamError::EarlyDataRejected);
        }
        Ok(())
    }

    /// The same, and rejects any stream once the connection is closed.
    pub fn check_stream(&self, is_early: bool) -> Result<(), StreamError> {
        self.check_early(is_early)?;
        match self.error() {
            Some(error) => Err(error.clone().into()),
            None => Ok(()),
        }
    }

    /// Finishes a stream ([`core::Connection::finish`]); whether that waits for credit.
    pub fn finish(
        &mut self,
        connection: &mut core::Connection<'_>,
        stream: StreamId,
    ) -> Result<bool, StreamError> {
        connection.finish(stream)?;
        let is_later = connection.finishes_later(stream);
        if is_later {
            self.note_finish(stream);
        }
        Ok(is_later)
    }

    /// The stream was finished after queued bytes: keeps the code of a stop until
    /// [`Session::forget_finish`].
    pub fn note_finish(&mut self, stream: StreamId) {
        self.finishing.entry(stream).or_default();
    }

    /// The user dropped the stream.
    pub fn forget_finish(&mut self, stream: StreamId) {
        if !self.finishing.is_empty() {
            self.finishing.remove(&stream);
        }
    }

    /// The code of a stop that arrived after the stream's finish.
    pub fn stopped_after_finish(&self, stream: StreamId) -> Option<u64> {
        self.finishing.get(&stream).copied().flatten()
    }
}

/// A core with a session for each connection, from its start to its release.
#[derive(Debug)]
pub struct Sessions<T> {
    /// The protocol.
    pub core: Core,
    /// By index of the core's handle.
    list: Vec<Option<Box<Session<T>>>>,
    handshake_count: usize,
    /// Clients whose handshake failed, not yet reported.
    pub failures: Vec<(SocketAddr, Arc<End>)>,
}

impl<T> Sessions<T> {
    /// For a core without connections.
    pub fn new(core: Core) -> Self {
        Self { core, list: Vec::new(), handshake_count: 0, failures: Vec::new() }
    }

    /// Handshakes in progress, of both sides.
    pub fn handshake_count(&self) -> usize {
        self.handshake_count
    }

    /// Starts a connection from a socket of the given family; `None`: without a socket.
    pub fn connect(
        &mut self,
        now: Instant,
        config: &ClientConfig,
        (address, is_v6): (SocketAddr, Option<bool>),
        server_name: &str,
        attached: T,
    ) -> Result<Handle, ConnectError> {
        let remote = match (address.ip(), is_v6) {
            (IpAddr::V4(v4), Some(true)) => (v4.to_ipv6_mapped(), address.port()).into(),
            (IpAddr::V6(_), Some(false)) => return Err(ConnectError::InvalidAddress(address)),
            _ => address,
        };
        let handle = self.core.connect(now, config, remote, server_name)?;
        self.insert(handle, attached);
        Ok(handle)
    }

    /// Starts the handshake with a client. An invalid first packet becomes a failure to report.
    pub fn accept(
        &mut self,
        now: Instant,
        incoming: Incoming,
        config: Option<ServerConfig>,
        attached: T,
    ) -> Result<Handle, ConnectionError> {
        let address = incoming.remote_address();
        match self.core.accept(now, incoming, config) {
            Ok(handle) => {
                self.insert(handle, attached);
                Ok(handle)
            }
            Err(error) => {
                let end = End::of_first_packet(error.clone(), address);
                self.failures.push((address, Arc::new(end)));
                Err(error)
            }
        }
    }

    fn insert(&mut self, handle: Handle, attached: T) {
        let index = handle.index();
        if self.list.len() <= index {
            self.list.resize_with(index + 1, || None);
        }
        self.handshake_count += 1;
        self.list[index] = Some(Box::new(Session {
            handle,
            phase: Phase::Handshaking,
            end: Arc::default(),
            early_rejected: false,
            finishing: HashMap::new(),
            attached,
        }));
    }

    /// A connection's session; `None` once released.
    #[inline]
    pub fn get(&mut self, handle: Handle) -> Option<&mut Session<T>> {
        let session = self.list.get_mut(handle.index())?.as_deref_mut()?;
        (session.handle == handle).then_some(session)
    }

    /// A connection of the core with its session.
    #[inline]
    pub fn both(&mut self, handle: Handle) -> Option<(core::Connection<'_>, &mut Session<T>)> {
        let session = self.list.get_mut(handle.index())?.as_deref_mut()?;
        let connection = self.core.connection(handle)?;
        (session.handle == handle).then_some((connection, session))
    }

    /// The same, unless the connection is closed.
    pub fn open(
        &mut self,
        handle: Handle,
    ) -> Result<(core::Connection<'_>, &mut Session<T>), StreamError> {
        let Some((connection, session)) = self.both(handle) else {
            return Err(ConnectionError::Closed.into());
        };
        match session.error() {
            None => Ok((connection, session)),
            Some(error) => Err(error.clone().into()),
        }
    }

    /// The connections that are not closed.
    pub fn handles(&self) -> Vec<Handle> {
        let sessions = self.list.iter().flatten();
        let open = sessions.filter(|session| session.error().is_none());
        open.map(|session| session.handle).collect()
    }

    /// The core's next event, after updating its session.
    pub fn next_event(&mut self) -> Option<Event> {
        let event = self.core.next_event()?;
        let Some(handle) = event.handle() else {
            return Some(event);
        };
        let Some((connection, session)) = self.both(handle) else {
            return Some(event);
        };
        let was_handshaking = session.is_handshaking();
        match &event {
            Event::HandshakeData(_) => session.phase = session.phase.max(Phase::Agreed),
            Event::Connected(_) => {
                session.phase = Phase::Complete;
                session.early_rejected = connection.is_client()
                    && connection.has_early_data()
                    && !connection.early_data_accepted();
            }
            Event::Lost(_, error) => {
                let unfinished = was_handshaking.then(|| Unfinished::of(&connection));
                let failed = unfinished
                    .filter(|_| !connection.is_client())
                    .map(|unfinished| (unfinished.address, Arc::clone(&session.end)));
                session.end.set(error.clone(), unfinished);
                self.failures.extend(failed);
            }
            Event::Stopped(_, stream, code) => {
                if let Some(stopped) = session.finishing.get_mut(stream) {
                    *stopped = Some(*code);
                }
            }
            _ => {}
        }
        self.count_handshake(handle, was_handshaking);
        Some(event)
    }

    fn count_handshake(&mut self, handle: Handle, was_handshaking: bool) {
        let is_handshaking = self.get(handle).is_some_and(|session| session.is_handshaking());
        self.handshake_count -= usize::from(was_handshaking && !is_handshaking);
    }

    /// Closes a connection with the application's code and reason; `false` if it is already closed.
    pub fn close(
        &mut self,
        now: Instant,
        handle: Handle,
        (code, reason): (u64, Bytes),
        closing: Closing,
    ) -> bool {
        let Ok((mut connection, session)) = self.open(handle) else {
            return false;
        };
        let was_handshaking = session.is_handshaking();
        let unfinished = was_handshaking.then(|| Unfinished::of(&connection));
        session.end.set_closed((code, reason.clone()), unfinished);
        match closing {
            Closing::Now => connection.close(now, code, reason),
            Closing::Behind => connection.close_behind(now, code, reason),
        }
        self.count_handshake(handle, was_handshaking);
        true
    }

    /// Forgets a drained connection. Returns the attached state, to be dropped once nothing is
    /// borrowed: its drop may run application code that calls back.
    #[must_use = "it is to be dropped once nothing is borrowed"]
    pub fn release(&mut self, handle: Handle) -> Option<Box<Session<T>>> {
        let address = self.core.connection(handle)?.remote_address();
        if !self.core.release(handle) {
            return None;
        }
        let session = self.list.get_mut(handle.index())?.take()?;
        self.handshake_count -= usize::from(session.is_handshaking());
        session.end.release(address);
        Some(session)
    }

    /// Checks whether outgoing connections can continue on another socket ([`Core::check_move`]).
    pub fn check_move(&self, from: SocketAddr, to: SocketAddr) -> io::Result<()> {
        self.core.check_move(from, to)
    }

    /// Outgoing connections leave from another address from now on.
    pub fn moved(&mut self) {
        for handle in self.handles() {
            if let Some(mut connection) = self.core.connection(handle)
                && connection.is_client()
            {
                // A closed connection does not migrate.
                let _ = connection.local_address_changed();
            }
        }
    }
}

/// The index of a direction in a pair.
pub fn index_of(direction: Direction) -> usize {
    usize::from(direction == Direction::Uni)
}
