//! One session: its state, its streams and its capsules.

use super::capsules::{self, Message, Violation};
use super::config::{Config, Direction};
use super::dialect::Negotiated;
use super::flow::{Flow, Resource};
use crate::StreamId;
use crate::capsule::Reader;
use bytes::{Bytes, BytesMut};
use http::request;
use std::collections::HashMap;

/// The state of a session; the parent module has the diagram.
#[derive(Debug)]
pub(super) enum State {
    /// A server's: requested before the client's SETTINGS, which determine the dialect.
    Held(Box<request::Parts>),
    /// Waits for the server's response.
    Pending,
    Open,
    /// Closed, and the peer has not ended its side of the CONNECT stream.
    Ended {
        by_peer: bool,
        /// Bytes discarded since.
        discarded_bytes: usize,
    },
}

/// Body bytes of one stream; counted with flow control only.
#[derive(Debug, Default)]
pub(super) struct Counts {
    pub(super) received: u64,
    pub(super) read: u64,
    /// The final size, once known.
    final_size: Option<u64>,
    /// The application has finished with the stream.
    is_left: bool,
}

#[derive(Debug)]
pub(super) struct Session {
    pub(super) state: State,
    /// Sub-protocols that the client offers.
    pub(super) protocols: Vec<String>,
    /// A draft 02 client expects a response to its header field.
    pub(super) is_draft02_named: bool,
    pub(super) is_draining_told: bool,
    pub(super) flow: Option<Flow>,
    pub(super) streams: HashMap<StreamId, Counts>,
    /// Capsules that arrived before the session was accepted (§3.2).
    pub(super) held: BytesMut,
    reader: Reader,
}

impl Session {
    pub(super) fn new(state: State) -> Self {
        Self {
            state,
            protocols: Vec::new(),
            is_draft02_named: false,
            is_draining_told: false,
            flow: None,
            streams: HashMap::new(),
            held: BytesMut::new(),
            reader: Reader::new(),
        }
    }

    /// Sets the limits announced by both ends.
    pub(super) fn set_limits(&mut self, config: &Config, terms: Option<&Negotiated>) {
        let peers = terms.and_then(|terms| terms.peer_limits);
        self.flow = config.flow_control.zip(peers).map(|(ours, peers)| Flow::new(&ours, &peers));
    }

    pub(super) fn is_open(&self) -> bool {
        matches!(self.state, State::Open)
    }

    pub(super) fn is_ended(&self) -> bool {
        matches!(self.state, State::Ended { .. })
    }

    /// Takes the peer's next capsule off the front of `body`.
    pub(super) fn read(&mut self, body: &mut Bytes) -> Result<Option<Message>, Violation> {
        let has_flow_control = self.flow.is_some();
        let capsule =
            self.reader.read(body, |kind, len| capsules::decide(kind, len, has_flow_control))?;
        capsule.map(capsules::parse).transpose()
    }

    /// True if the body may end here.
    pub(super) fn is_at_boundary(&self) -> bool {
        self.reader.is_at_boundary()
    }

    /// The peer has opened a stream; it belongs to the session even if that is a violation.
    pub(super) fn add_peers_stream(&mut self, stream: StreamId) -> Result<(), u64> {
        self.streams.insert(stream, Counts::default());
        match &mut self.flow {
            Some(flow) => flow.receive(Resource::Streams(Direction::of(stream)), 1),
            None => Ok(()),
        }
    }

    /// Body bytes of a stream have arrived.
    pub(super) fn receive(&mut self, stream: StreamId, len: u64) -> Result<(), u64> {
        let Some(flow) = &mut self.flow else {
            return Ok(());
        };
        if let Some(counts) = self.streams.get_mut(&stream) {
            counts.received += len;
            flow.receive(Resource::Data, len)?;
        }
        Ok(())
    }

    /// The application has taken bytes of a stream: the new limit to announce.
    pub(super) fn take(&mut self, stream: StreamId, len: u64) -> Option<Bytes> {
        let flow = self.flow.as_mut()?;
        let counts = self.streams.get_mut(&stream)?;
        let len = len.min(counts.received - counts.read);
        counts.read += len;
        release(flow, Resource::Data, len)
    }

    /// Records a stream's final size: true if that ends the stream.
    pub(super) fn note_final_size(&mut self, stream: StreamId, final_size: u64) -> bool {
        let Some(counts) = self.streams.get_mut(&stream) else {
            return false;
        };
        counts.final_size.get_or_insert(final_size);
        counts.is_left
    }

    /// The application has finished with a stream: true if that ends the stream.
    pub(super) fn leave(&mut self, stream: StreamId, is_peers: bool) -> bool {
        let is_received = is_peers || stream.is_bidirectional();
        let Some(counts) = self.streams.get_mut(&stream).filter(|_| is_received) else {
            return true;
        };
        counts.is_left = true;
        self.flow.is_none() || counts.final_size.is_some()
    }

    /// A stream has ended: returns the limits to announce.
    pub(super) fn remove_stream(
        &mut self,
        stream: StreamId,
        final_size: Option<u64>,
        is_peers: bool,
    ) -> Result<Vec<Bytes>, u64> {
        let Some(counts) = self.streams.remove(&stream) else {
            return Ok(Vec::new());
        };
        let Some(flow) = &mut self.flow else {
            return Ok(Vec::new());
        };
        let total = final_size.or(counts.final_size).unwrap_or(0).max(counts.received);
        flow.receive(Resource::Data, total - counts.received)?;
        let mut announced: Vec<Bytes> =
            release(flow, Resource::Data, total - counts.read).into_iter().collect();
        if is_peers {
            announced.extend(release(flow, Resource::Streams(Direction::of(stream)), 1));
        }
        Ok(announced)
    }
}

fn release(flow: &mut Flow, resource: Resource, count: u64) -> Option<Bytes> {
    let limit = flow.release(resource, count)?;
    Some(capsules::max(resource, limit))
}
