//! The sessions of a connection.
//!
//! Owns: [`Sessions`]. `receive` handles the connection's events, `calls` the application's calls; both end sessions by
//! the functions here.

mod calls;
mod receive;

use super::codes;
use super::config::Config;
use super::dialect::{Dialect, Negotiated};
use super::early::Early;
use super::event::{Ending, Event};
use super::session::{Session, State};
use crate::limits::{SESSIONS_ENDED_MAX, SESSIONS_REMEMBERED_MAX};
use crate::{Code, Connection, Role, StreamId, Transmit};
use bytes::Bytes;
use std::collections::{HashMap, VecDeque};

const SESSION_GONE: Code = Code(codes::SESSION_GONE);

/// All WebTransport sessions of a connection; see the [module](super).
///
/// After each call the caller drains [`Sessions::poll_event`] and [`Sessions::poll_transmit`], and those of the connection.
#[derive(Debug)]
pub struct Sessions {
    role: Role,
    config: Config,
    has_settings: bool,
    /// `None` before the peer's SETTINGS, and if they have no dialect that we support.
    terms: Option<Negotiated>,
    /// By the stream of the CONNECT request.
    by_id: HashMap<StreamId, Session>,
    /// Sessions in [`State::Ended`], the oldest first.
    ended: VecDeque<StreamId>,
    /// Ids of forgotten sessions, the oldest first.
    remembered: VecDeque<StreamId>,
    /// The highest stream of any request so far.
    last_request: Option<StreamId>,
    early: Early,
    events: VecDeque<Event>,
    transmits: VecDeque<Transmit>,
}

impl Sessions {
    /// Creates the sessions of a connection that [`Config::enable`] has prepared.
    pub fn new(role: Role, config: Config) -> Self {
        Self {
            role,
            has_settings: false,
            terms: None,
            by_id: HashMap::new(),
            ended: VecDeque::new(),
            remembered: VecDeque::new(),
            last_request: None,
            early: Early::new(&config),
            events: VecDeque::new(),
            transmits: VecDeque::new(),
            config,
        }
    }

    /// The common dialect; `None` before the peer's SETTINGS, and if there is none.
    pub fn dialect(&self) -> Option<Dialect> {
        self.terms.map(|terms| terms.dialect)
    }

    /// True if the sessions of this connection have their own flow control. Otherwise [`Sessions::received`],
    /// [`Sessions::read`] and [`Sessions::reserve`] need not be called.
    pub fn has_flow_control(&self) -> bool {
        self.terms.is_some_and(|terms| terms.peer_limits.is_some())
    }

    /// Sessions that are pending or open.
    pub fn count(&self) -> usize {
        self.by_id.len() - self.ended.len()
    }

    /// True if another one may be requested.
    pub fn has_room(&self) -> bool {
        self.count() < self.sessions_max()
    }

    /// True if a stream waits for its session.
    pub fn is_early(&self, stream: StreamId) -> bool {
        self.early.has_stream(stream)
    }

    /// Numbers of entries, for leak tests: sessions, their streams, and streams, datagrams and their bytes that wait for a
    /// session.
    pub fn kept(&self) -> [usize; 5] {
        let streams = self.by_id.values().map(|session| session.streams.len()).sum();
        let (early_streams, early_datagrams, early_bytes) = self.early.counts();
        [self.by_id.len(), streams, early_streams, early_datagrams, early_bytes]
    }

    /// Their ids, in no order.
    pub fn ids(&self) -> impl Iterator<Item = StreamId> {
        let live = self.by_id.iter().filter(|(_, session)| !session.is_ended());
        live.map(|(id, _)| *id)
    }

    /// Takes the next event.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// Takes the next output for streams of sessions: [`Transmit::Reset`] and [`Transmit::Stop`] only. Ignore it if that
    /// side of the stream has already ended.
    pub fn poll_transmit(&mut self) -> Option<Transmit> {
        self.transmits.pop_front()
    }

    /// Sessions at a time. A client without WebTransport settings is treated as one of draft 02.
    fn sessions_max(&self) -> usize {
        let max = self.config.sessions_max;
        self.terms.map_or(max, |terms| terms.sessions_max)
    }

    /// Resets the streams of a session, also the early ones.
    fn release(&mut self, id: StreamId) {
        let Some(session) = self.by_id.get_mut(&id) else {
            return;
        };
        session.held.clear();
        let streams = std::mem::take(&mut session.streams);
        let (early, _) = self.early.take(id);
        let early = early.into_iter().map(|early| early.stream);
        for stream in streams.into_keys().chain(early) {
            self.refuse_stream(stream, SESSION_GONE);
        }
    }

    /// Ends a session whose CONNECT stream has ended.
    fn forget(&mut self, id: StreamId) {
        self.release(id);
        self.by_id.remove(&id);
        self.ended.retain(|ended| *ended != id);
        if self.remembered.len() == SESSIONS_REMEMBERED_MAX {
            self.remembered.pop_front();
        }
        self.remembered.push_back(id);
    }

    /// Ends a session whose CONNECT stream the peer has not ended yet.
    fn end(&mut self, h3: &mut Connection, id: StreamId, by_peer: bool) {
        self.release(id);
        if let Some(session) = self.by_id.get_mut(&id) {
            session.state = State::Ended { by_peer, discarded_bytes: 0 };
            self.ended.push_back(id);
        }
        if self.ended.len() > SESSIONS_ENDED_MAX
            && let Some(&oldest) = self.ended.front()
        {
            h3.stop(oldest, SESSION_GONE).ok();
            self.forget(oldest);
        }
    }

    /// Ends a session by a reset of its CONNECT stream.
    fn reset(&mut self, h3: &mut Connection, id: StreamId, code: Code) {
        // The stream may have ended on its own.
        h3.cancel(id, code).ok();
        self.forget(id);
    }

    /// Ends a session whose peer violates the protocol.
    fn fail(&mut self, h3: &mut Connection, id: StreamId, code: Code, reason: &'static str) {
        self.tell_closed(id, Ending::Failed { code, reason });
        self.reset(h3, id, code);
    }

    fn fail_flow_control(&mut self, h3: &mut Connection, id: StreamId, code: u64) {
        self.fail(h3, id, Code(code), "a limit of the session was exceeded");
    }

    /// Reports a session's end, if the session was reported and its end was not.
    fn tell_closed(&mut self, id: StreamId, ending: Ending) {
        let state = self.by_id.get(&id).map(|session| &session.state);
        if let Some(State::Pending | State::Open) = state {
            self.events.push_back(Event::Closed { session: id, ending });
        }
    }

    fn tell_draining(&mut self, id: StreamId) {
        if let Some(session) = self.by_id.get_mut(&id)
            && matches!(session.state, State::Pending | State::Open)
            && !session.is_draining_told
        {
            session.is_draining_told = true;
            self.events.push_back(Event::Draining { session: id });
        }
    }

    /// Ends both sides of a stream, as far as it has them.
    fn refuse_stream(&mut self, stream: StreamId, code: Code) {
        let is_ours = stream.initiator() == self.role;
        if is_ours || stream.is_bidirectional() {
            self.transmits.push_back(Transmit::Reset { stream, code });
        }
        if !is_ours || stream.is_bidirectional() {
            self.transmits.push_back(Transmit::Stop { stream, code });
        }
    }

    /// Sends flow control capsules, unless the peer has stopped reading.
    fn send_capsules(h3: &mut Connection, id: StreamId, capsules: impl IntoIterator<Item = Bytes>) {
        for capsule in capsules {
            h3.send_data(id, capsule, false).ok();
        }
    }
}
