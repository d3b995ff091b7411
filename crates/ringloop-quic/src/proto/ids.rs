//! Connection ids that are written down as they are made.
//!
//! Owns: a generator of random ids that keeps what it has made until somebody takes it. Called by: the engine,
//! when it needs ids; `core::ids`, which tells programs that route datagrams themselves. Never does: know whose
//! they are; the caller takes them after each step that may have made some.

use super::{ConnectionId, ConnectionIdGenerator, EndpointEvent, RandomConnectionIdGenerator};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// What a generator and those who want its ids share.
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
    /// The next id shall be this one, where there is one.
    pub(crate) fn begin_with(first: Option<&[u8]>) -> Self {
        let log = Self::default();
        log.state().first = first.map(ConnectionId::new);
        log
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What was made since the last call.
    pub(crate) fn take(&self) -> Vec<ConnectionId> {
        std::mem::take(&mut self.state().made)
    }

    /// A generator of ids of this length, 1 to 20 bytes.
    pub(crate) fn generator(&self, len: usize) -> Box<dyn ConnectionIdGenerator> {
        Box::new(Generator {
            log: self.clone(),
            random: RandomConnectionIdGenerator::new(len),
        })
    }
}

struct Generator {
    log: Log,
    random: RandomConnectionIdGenerator,
}

impl ConnectionIdGenerator for Generator {
    fn generate_cid(&mut self) -> ConnectionId {
        let mut state = self.log.state();
        let id = state
            .first
            .take()
            .unwrap_or_else(|| self.random.generate_cid());
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

/// The sequence number of an id that the peer retires with this event. The engine shows it in the event's debug
/// text alone: `EndpointEvent(RetireConnectionId(Instant { … }, 1, true))`; a test watches that text.
pub(crate) fn retired(event: &EndpointEvent) -> Option<u64> {
    let text = format!("{event:?}");
    let (_, arguments) = text.split_once("RetireConnectionId(")?;
    let (_, after_time) = arguments.split_once("}, ")?;
    let (number, _) = after_time.split_once(',')?;
    number.parse().ok()
}
