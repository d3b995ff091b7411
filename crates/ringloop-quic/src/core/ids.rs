//! The connection ids of one connection, for programs that route datagrams to connections themselves or want to hear
//! of ids.
//!
//! Owns: which ids the peer may use, by their sequence numbers, and what of that the program has not heard yet.
//! Called by: `core`, around each step in which the engine may make ids. Never does: route; the engine does.

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
    /// Those in use. Bounded by the engine's own number of ids a connection.
    by_sequence: BTreeMap<u64, ConnectionId>,
    next: u64,
    changes: VecDeque<Change>,
    /// What the peer uses first.
    first: Bytes,
    /// What the client has named the server by at first.
    original: Bytes,
}

impl Ids {
    /// For the connection that was made just now, with what `log` has from that; its first id is no news.
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

    /// The engine is about to handle this event.
    pub(super) fn before(&mut self, event: &EndpointEvent) {
        if let Some(id) = retired(event).and_then(|sequence| self.by_sequence.remove(&sequence)) {
            self.changes.push_back(Change::Retired(bytes(&id)));
        }
    }

    /// The engine has handled an event: what it made is this connection's.
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
