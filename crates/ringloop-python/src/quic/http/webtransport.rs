//! WebTransport on a connection's HTTP/3: its sessions, and their events for the application.
//!
//! Owns: sessions that the application has accepted or opened, by the stream of their CONNECT
//! request; streams for which the application has not made an object yet. Called by: the driver
//! with events of HTTP/3, and session objects.
//!
//! HTTP/3 reads the first bytes of each stream of the peer. Once these name a session, the stream
//! is a plain QUIC stream: data read after them is put back in front of it ([`Handed`]).
//!
//! Bounds: streams that are not accepted count against QUIC's limits on open streams;
//! datagrams are bounded by [`DatagramQueue`].

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ringloop_h3::Role;
use ringloop_h3::webtransport::{self, Sessions};
use ringloop_quic::core::Handle;
use ringloop_quic::session::{Wait, Wake};
use ringloop_quic::{Bytes, Direction, StreamId};

use super::received::{DatagramQueue, Section};

/// How a session ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SessionEnd {
    /// Closed with the application's code and reason.
    Closed { code: u32, reason: String, by_peer: bool },
    /// The server refused it; see the response.
    Rejected,
    /// The peer reset its stream, with this HTTP/3 code.
    Reset(u64),
    /// The peer violated the protocol, and was sent this code.
    Failed(u64, &'static str),
    /// Cancelled here.
    Cancelled,
}

#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub enum SessionPhase {
    /// A client's session without a response yet.
    #[default]
    Pending,
    Open,
    Over(SessionEnd),
}

/// The state of a session for the application.
#[derive(Debug, Default)]
pub struct SessionState {
    pub phase: SessionPhase,
    pub request: Arc<Section>,
    /// Clients: the server's response.
    pub response: Option<Arc<Section>>,
    /// The negotiated sub-protocol.
    pub protocol: Option<String>,
    /// The peer requested the session's end.
    pub is_draining: bool,
    /// The application has an object of it.
    pub is_taken: bool,
    pub datagrams: DatagramQueue,
    /// The peer's streams that the application has not accepted.
    pub(super) streams: VecDeque<StreamId>,
}

/// The same, shared by the driver and the session object.
pub type SharedSession = Arc<Mutex<SessionState>>;

pub fn lock_session(session: &SharedSession) -> MutexGuard<'_, SessionState> {
    // A panic leaves no change incomplete: each is a few assignments.
    session.lock().unwrap_or_else(PoisonError::into_inner)
}

impl SessionState {
    /// Takes the oldest of the peer's streams, of one kind or of both.
    pub fn take_stream(&mut self, direction: Option<Direction>) -> Option<StreamId> {
        let is_wanted =
            |stream: &StreamId| direction.is_none_or(|wanted| stream.direction() == wanted);
        let index = self.streams.iter().position(is_wanted)?;
        self.streams.remove(index)
    }

    fn end(&mut self, end: SessionEnd) {
        if !matches!(self.phase, SessionPhase::Over(_)) {
            self.phase = SessionPhase::Over(end);
        }
        // They are being reset.
        self.streams.clear();
    }
}

/// A stream of a session, for the object that the application makes of it.
#[derive(Debug)]
pub struct Handed {
    pub session: StreamId,
    /// Data read after the stream's header.
    pub data: Bytes,
    /// The end was read.
    pub fin: bool,
}

/// See the module docs.
#[derive(Debug)]
pub struct WebTransport {
    pub(super) sessions: Sessions,
    pub(super) known: HashMap<StreamId, SharedSession>,
    pub(super) handed: HashMap<StreamId, Handed>,
}

impl WebTransport {
    pub(super) fn new(role: Role, config: webtransport::Config) -> Self {
        Self {
            sessions: Sessions::new(role, config),
            known: HashMap::new(),
            handed: HashMap::new(),
        }
    }

    /// Entries of each table.
    pub(super) fn kept(&self) -> impl Iterator<Item = usize> {
        [self.known.len(), self.handed.len()].into_iter().chain(self.sessions.kept())
    }

    /// Whether a stream carries a session's CONNECT request.
    pub(super) fn is_session(&self, stream: StreamId) -> bool {
        self.known.contains_key(&stream)
    }

    /// Stops reading a stream.
    pub(super) fn note_read_end(&mut self, stream: StreamId) {
        self.known.remove(&stream);
    }

    /// A stream is reset or stopped here before the application has an object of it.
    pub(super) fn discard(&mut self, stream: StreamId) {
        self.handed.remove(&stream);
    }

    pub(super) fn update(
        &mut self,
        handle: Handle,
        session: StreamId,
        wait: Wait,
        woken: &mut Vec<Wake>,
        change: impl FnOnce(&mut SessionState),
    ) {
        if let Some(state) = self.known.get(&session) {
            change(&mut lock_session(state));
            woken.push(Wake::For(handle, wait));
        }
    }

    pub(super) fn end(
        &mut self,
        handle: Handle,
        session: StreamId,
        end: SessionEnd,
        woken: &mut Vec<Wake>,
    ) {
        let change = |state: &mut SessionState| state.end(end);
        self.update(handle, session, Wait::Session(session), woken, change);
        let waits = [
            Wait::SessionStream(session),
            Wait::StreamDatagram(session),
            Wait::Open(Direction::Bi),
            Wait::Open(Direction::Uni),
        ];
        woken.extend(waits.map(|wait| Wake::For(handle, wait)));
    }
}
