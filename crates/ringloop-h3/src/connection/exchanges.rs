//! The request streams of a connection by id.

use super::exchange::Exchange;
use super::shared::Shared;
use crate::error::{Code, ConnectionError, StreamError};
use crate::event::Event;
use crate::priority::Priority;
use crate::stream_id::{Role, StreamId, StreamMap};
use bytes::Bytes;
use std::collections::hash_map::Entry;

/// Request streams, and bidirectional streams whose type is not known yet. Streams are removed once both sides have
/// ended.
#[derive(Debug, Default)]
pub(super) struct Exchanges(StreamMap<StreamId, Exchange>);

impl Exchanges {
    pub(super) fn count(&self) -> usize {
        self.0.len()
    }

    pub(super) fn get(&self, stream: StreamId) -> Option<&Exchange> {
        self.0.get(&stream)
    }

    /// Adds a request of ours, unless `send` fails.
    pub(super) fn open(
        &mut self,
        mut exchange: Exchange,
        stream: StreamId,
        send: impl FnOnce(&mut Exchange) -> Result<(), StreamError>,
    ) -> Result<(), StreamError> {
        let Entry::Vacant(entry) = self.0.entry(stream) else {
            return Err(StreamError::Unexpected("the stream already has a request"));
        };
        send(&mut exchange)?;
        entry.insert(exchange);
        Ok(())
    }

    /// Runs an operation of the application on an open request.
    pub(super) fn with(
        &mut self,
        shared: &mut Shared,
        stream: StreamId,
        act: impl FnOnce(&mut Exchange, &mut Shared) -> Result<(), StreamError>,
    ) -> Result<(), StreamError> {
        let exchange = self.0.get_mut(&stream);
        let result = act(exchange.ok_or(StreamError::Unknown)?, shared);
        self.remove_if_over(shared, stream);
        result
    }

    /// Takes what has arrived on a bidirectional stream.
    pub(super) fn receive(
        &mut self,
        shared: &mut Shared,
        stream: StreamId,
        data: Bytes,
        fin: bool,
    ) -> Result<(), ConnectionError> {
        let is_ours = stream.initiator() == shared.role;
        let exchange = match self.0.entry(stream) {
            Entry::Occupied(entry) => entry.into_mut(),
            // A request of ours that has ended, or a stream that the caller uses otherwise.
            Entry::Vacant(_) if is_ours => return Ok(()),
            Entry::Vacant(_) if shared.role == Role::Client && !shared.config.raw_streams => {
                return Err(ConnectionError::new(
                    Code::H3_STREAM_CREATION_ERROR,
                    "a bidirectional stream opened by a server",
                ));
            }
            Entry::Vacant(entry) => entry.insert(Exchange::incoming(stream)),
        };
        exchange.receive(shared, data, fin)?;
        self.remove_if_over(shared, stream);
        Ok(())
    }

    /// Takes `RESET_STREAM`.
    pub(super) fn receive_reset(
        &mut self,
        shared: &mut Shared,
        stream: StreamId,
        code: Code,
    ) -> Result<(), ConnectionError> {
        if let Some(exchange) = self.0.get_mut(&stream) {
            exchange.receive_reset(shared, code)?;
            self.remove_if_over(shared, stream);
        } else if shared.role == Role::Server && stream.is_request() {
            // Reset before any of its data arrived; the peer's encoder may refer to its sections.
            shared.decoder.cancel(stream.0);
            shared.reset(stream, Code::H3_REQUEST_CANCELLED);
            shared.request_cancelled()?;
        }
        Ok(())
    }

    /// Takes `STOP_SENDING`.
    pub(super) fn receive_stop(
        &mut self,
        shared: &mut Shared,
        stream: StreamId,
        code: Code,
    ) -> Result<(), ConnectionError> {
        if let Some(exchange) = self.0.get_mut(&stream) {
            exchange.receive_stop(shared, code)?;
            self.remove_if_over(shared, stream);
        }
        Ok(())
    }

    /// Continues streams whose sections no longer wait for the encoder stream.
    pub(super) fn unblock(&mut self, shared: &mut Shared) -> Result<(), ConnectionError> {
        while let Some((stream, fields)) = shared.decoder.next_unblocked() {
            let stream = StreamId(stream);
            if let Some(exchange) = self.0.get_mut(&stream) {
                exchange.unblock(shared, fields)?;
                self.remove_if_over(shared, stream);
            }
        }
        Ok(())
    }

    /// Ends the requests that the server does not process.
    pub(super) fn abandon_from(&mut self, shared: &mut Shared, end: StreamId) {
        let streams = self.0.keys().copied();
        let mut streams: Vec<StreamId> =
            streams.filter(|stream| stream.is_request() && *stream >= end).collect();
        streams.sort_unstable();
        for stream in streams {
            if let Some(mut exchange) = self.0.remove(&stream) {
                exchange.cancel(shared, Code::H3_REQUEST_CANCELLED);
                let code = Code::H3_REQUEST_REJECTED;
                shared.events.push_back(Event::Reset { stream, code });
            }
        }
    }

    /// Takes a priority of the peer: for an open request, or a later one.
    pub(super) fn prioritise(&mut self, shared: &mut Shared, stream: StreamId, priority: Priority) {
        let known = self.0.get_mut(&stream);
        match known.filter(|exchange| exchange.is_known(shared)) {
            Some(exchange) => {
                exchange.priority = priority;
                let event = Event::PriorityUpdate { stream, priority };
                shared.events.push_back(event);
            }
            None => shared.keep_early_priority(stream, priority),
        }
    }

    fn remove_if_over(&mut self, shared: &mut Shared, stream: StreamId) {
        if let Entry::Occupied(entry) = self.0.entry(stream)
            && entry.get().is_over()
        {
            if entry.get().is_answered() {
                shared.request_answered();
            }
            entry.remove();
        }
    }
}
