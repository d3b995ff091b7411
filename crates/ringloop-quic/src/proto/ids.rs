//! Connection ids that are recorded as they are made.
//!
//! Owns: a generator of random ids that records them. Called by: the engine, when it needs ids;
//! `core::ids`, which reports them to applications that route datagrams themselves. The caller
//! takes the ids after each step that may make some, since the record does not contain their
//! connection.

use super::{ConnectionId, ConnectionIdGenerator, EndpointEvent, RandomConnectionIdGenerator};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Shared by a generator and the reader of its ids.
#[derive(Clone, Default)]
pub(crate) struct Log {
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    first: Option<ConnectionId>,
    made: Vec<ConnectionId>,
}

impl Log {
    /// The next id will be `first`, if given.
    pub(crate) fn begin_with(first: Option<&[u8]>) -> Self {
        let log = Self::default();
        log.state().first = first.map(ConnectionId::new);
        log
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The ids made since the last call.
    pub(crate) fn take(&self) -> Vec<ConnectionId> {
        std::mem::take(&mut self.state().made)
    }

    /// Creates a generator of ids of this length, 1 to 20 bytes.
    pub(crate) fn generator(&self, len: usize) -> Box<dyn ConnectionIdGenerator> {
        Box::new(Generator { log: self.clone(), random: RandomConnectionIdGenerator::new(len) })
    }
}

struct Generator {
    log: Log,
    random: RandomConnectionIdGenerator,
}

impl ConnectionIdGenerator for Generator {
    fn generate_cid(&mut self) -> ConnectionId {
        let mut state = self.log.state();
        let id = state.first.take().unwrap_or_else(|| self.random.generate_cid());
        state.made.push(id);
        id
    }

    fn cid_len(&self) -> usize {
        self.random.cid_len()
    }

    fn cid_lifetime(&self) -> Option<Duration> {
        None
    }
}

/// The sequence number of an id that the peer retires with this event. The engine exposes it only
/// in the event's debug text: `EndpointEvent(RetireConnectionId(Instant { … }, 1, true))`; a test
/// checks that text.
pub(crate) fn retired(event: &EndpointEvent) -> Option<u64> {
    let text = format!("{event:?}");
    let (_, arguments) = text.split_once("RetireConnectionId(")?;
    let (_, after_time) = arguments.split_once("}, ")?;
    let (number, _) = after_time.split_once(',')?;
    number.parse().ok()
}
