//! Connection ids of one connection, for applications that route datagrams themselves or want
//! events about ids.
//!
//! Owns: the ids that the peer may use, by sequence number, and unreported changes. Called by:
//! `core`, around each step in which the engine may issue ids. Routing is the engine's.

use crate::Bytes;
use crate::proto::ids::{Log, retired};
use crate::proto::{ConnectionId, EndpointEvent};
use std::collections::{BTreeMap, VecDeque};

/// What happened to an id.
#[derive(Debug)]
pub(super) enum Change {
    /// The peer may use it.
    Issued(Bytes),
    /// It will not be used any more.
    Retired(Bytes),
}

pub(super) struct Ids {
    log: Log,
    /// Ids in use, as many as the engine allows per connection.
    by_sequence: BTreeMap<u64, ConnectionId>,
    next: u64,
    changes: VecDeque<Change>,
    /// The id that the peer uses first.
    first: Bytes,
    /// The client's original destination id.
    original: Bytes,
}

impl Ids {
    /// For a connection just created, with the ids that `log` recorded; the first id is not
    /// reported.
    pub(super) fn new(log: &Log, original: &ConnectionId) -> Self {
        let mut ids = Self {
            log: log.clone(),
            by_sequence: BTreeMap::new(),
            next: 0,
            changes: VecDeque::new(),
            first: Bytes::new(),
            original: bytes(original),
        };
        ids.issued();
        if let Some(Change::Issued(first)) = ids.changes.pop_front() {
            ids.first = first;
        }
        ids
    }

    pub(super) fn known(&self) -> (Bytes, Bytes) {
        (self.first.clone(), self.original.clone())
    }

    /// Before the engine handles this event.
    pub(super) fn before(&mut self, event: &EndpointEvent) {
        if let Some(id) = retired(event).and_then(|sequence| self.by_sequence.remove(&sequence)) {
            self.changes.push_back(Change::Retired(bytes(&id)));
        }
    }

    /// After the engine handled an event: ids issued meanwhile are this connection's.
    pub(super) fn issued(&mut self) {
        for id in self.log.take() {
            self.by_sequence.insert(self.next, id);
            self.next += 1;
            self.changes.push_back(Change::Issued(bytes(&id)));
        }
    }

    pub(super) fn next_change(&mut self) -> Option<Change> {
        self.changes.pop_front()
    }
}

fn bytes(id: &ConnectionId) -> Bytes {
    Bytes::copy_from_slice(id)
}
