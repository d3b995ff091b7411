//! A connection's events in aioquic's form, queued until the application takes them.
//!
//! A pending event of a stream says only that there is something to read. The stream is read when
//! the event is taken: an application that takes no events gives the peer no credit, and everything
//! buffered here is bounded by the windows.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};

use ringloop_quic::core::{Connection, Read};
use ringloop_quic::error::StreamError;
use ringloop_quic::{Bytes, StreamId};

use crate::limits::{QUIC_EVENT_BYTES, QUIC_EVENTS_BYTES};

/// A pending event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pending {
    Negotiated,
    Completed,
    Readable(StreamId),
    Stopped(StreamId, u64),
    Datagrams,
    PingAcknowledged(u64),
    /// A connection id, which is in a queue of its own.
    Id,
    /// Streams of `Link::writable`; not an event itself.
    Writable,
    /// Tickets and tokens of a server, in the connection's memory; not an event itself.
    Given,
    Terminated,
}

/// A pending event with its contents.
#[derive(Debug)]
pub enum Taken {
    Negotiated,
    Completed,
    Data { stream: StreamId, pieces: Vec<Bytes>, is_end: bool },
    Reset(StreamId, u64),
    Stopped(StreamId, u64),
    Datagram(Bytes),
    PingAcknowledged(u64),
    Id(IdChange),
    Terminated,
}

/// A connection id that the peer may use from now on, or no longer.
#[derive(Debug)]
pub enum IdChange {
    Issued(Bytes),
    Retired(Bytes),
}

/// A connection's pending events, oldest first.
#[derive(Debug, Default)]
pub struct EventQueue {
    queue: VecDeque<Pending>,
    /// Streams with a pending event.
    readable: HashSet<StreamId>,
    has_datagrams: bool,
    ids: VecDeque<IdChange>,
    /// Streams that are not read for now, so that their windows close; `true`: there is something
    /// to read.
    paused: HashMap<StreamId, bool>,
    /// The connection's end is or was queued: no event follows it.
    is_ended: bool,
}

impl EventQueue {
    /// Appends an event, unless it is already pending.
    pub fn push(&mut self, pending: Pending) {
        if self.is_ended {
            return;
        }
        self.is_ended = pending == Pending::Terminated;
        let is_new = match pending {
            Pending::Readable(stream) if self.is_held(stream) => false,
            Pending::Readable(stream) => self.readable.insert(stream),
            Pending::Datagrams => !std::mem::replace(&mut self.has_datagrams, true),
            _ => true,
        };
        if is_new {
            self.queue.push_back(pending);
        }
    }

    /// A paused stream keeps its events back.
    fn is_held(&mut self, stream: StreamId) -> bool {
        if self.paused.is_empty() {
            return false;
        }
        match self.paused.get_mut(&stream) {
            Some(has_more) => {
                *has_more = true;
                true
            }
            None => false,
        }
    }

    /// Pauses reading of a stream until `resume`.
    pub fn pause(&mut self, stream: StreamId) {
        self.paused.entry(stream).or_insert(false);
    }

    /// Resumes reading of a stream; whether there is something to read.
    pub fn resume(&mut self, stream: StreamId) -> bool {
        self.paused.remove(&stream).unwrap_or(false)
    }

    /// Resumes all streams; returns those with something to read.
    pub fn resume_all(&mut self) -> Vec<StreamId> {
        let paused = std::mem::take(&mut self.paused).into_iter();
        let mut streams: Vec<_> =
            paused.filter_map(|(stream, has_more)| has_more.then_some(stream)).collect();
        streams.sort_unstable();
        streams
    }

    /// Queues an id for its pending event.
    pub fn keep(&mut self, id: IdChange) {
        self.ids.push_back(id);
    }

    /// Appends the next events to `taken`, at most `count_max`, and about as many bytes as a batch
    /// may have.
    pub fn take(
        &mut self,
        connection: &mut Connection<'_>,
        count_max: usize,
        taken: &mut Vec<Taken>,
    ) {
        let mut bytes_left = QUIC_EVENTS_BYTES;
        while taken.len() < count_max
            && bytes_left > 0
            && let Some(&pending) = self.queue.front()
        {
            let next = match pending {
                Pending::Readable(stream) => self.read(connection, stream),
                Pending::Datagrams => self.datagram(connection),
                Pending::Id => {
                    self.queue.pop_front();
                    self.ids.pop_front().map(Taken::Id)
                }
                pending => {
                    self.queue.pop_front();
                    plain(pending)
                }
            };
            bytes_left = bytes_left.saturating_sub(next.as_ref().map_or(0, Taken::len));
            taken.extend(next);
        }
    }

    /// The event stays in front until there is nothing more to read.
    fn read(&mut self, connection: &mut Connection<'_>, stream: StreamId) -> Option<Taken> {
        if self.is_held(stream) {
            self.queue.pop_front();
            self.readable.remove(&stream);
            return None;
        }
        let mut pieces = Vec::new();
        let read = connection.read(stream, QUIC_EVENT_BYTES, |piece| {
            pieces.push(piece);
            true
        });
        let (taken, is_over) = match read {
            Ok(Read::Some(count)) => (Some(false), count < QUIC_EVENT_BYTES),
            Ok(Read::End(_)) => (Some(true), true),
            Ok(Read::Blocked) | Err(_) => (None, true),
        };
        if is_over {
            self.queue.pop_front();
            self.readable.remove(&stream);
        }
        if let Err(StreamError::Reset(code)) = read {
            return Some(Taken::Reset(stream, code));
        }
        taken.map(|is_end| Taken::Data { stream, pieces, is_end })
    }

    fn datagram(&mut self, connection: &mut Connection<'_>) -> Option<Taken> {
        let datagram = connection.receive_datagram();
        if datagram.is_none() {
            self.queue.pop_front();
            self.has_datagrams = false;
        }
        datagram.map(Taken::Datagram)
    }

    pub fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }
}

/// Events taken from a connection but not delivered: it is gone, or there was no memory for them.
#[derive(Debug, Default)]
pub struct Untaken(Mutex<VecDeque<Taken>>);

impl Untaken {
    fn queue(&self) -> MutexGuard<'_, VecDeque<Taken>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the next ones.
    pub fn take(&self, count_max: usize) -> Vec<Taken> {
        let mut queue = self.queue();
        let count = queue.len().min(count_max);
        queue.drain(..count).collect()
    }

    /// Puts them before the others.
    pub fn put_back(&self, taken: Vec<Taken>) {
        let mut queue = self.queue();
        for event in taken.into_iter().rev() {
            queue.push_front(event);
        }
    }

    /// Appends them.
    pub fn extend(&self, taken: Vec<Taken>) {
        self.queue().extend(taken);
    }
}

fn plain(pending: Pending) -> Option<Taken> {
    match pending {
        Pending::Negotiated => Some(Taken::Negotiated),
        Pending::Completed => Some(Taken::Completed),
        Pending::Stopped(stream, code) => Some(Taken::Stopped(stream, code)),
        Pending::PingAcknowledged(uid) => Some(Taken::PingAcknowledged(uid)),
        Pending::Terminated => Some(Taken::Terminated),
        // They are read, or queued elsewhere.
        Pending::Readable(_)
        | Pending::Datagrams
        | Pending::Id
        | Pending::Writable
        | Pending::Given => None,
    }
}

impl Taken {
    fn len(&self) -> usize {
        match self {
            Self::Data { pieces, .. } => pieces.iter().map(Bytes::len).sum(),
            Self::Datagram(bytes) => bytes.len(),
            _ => 0,
        }
    }
}
