//! Resets that deliver a stream's first bytes (`RESET_STREAM_AT`).
//!
//! Owns: how far each stream was read, resets that wait, and what the connection shares with its
//! packet keys. Called by: `connection` and `live`. How it works is written in `proto::reset_at`.
//!
//! A received reset is reported once its reliable bytes were read and nothing contiguous is left,
//! or at the end of the stream. A reset to be sent waits until the reliable bytes are acknowledged,
//! as an acknowledged reset makes the engine forget them.

use super::outcome::Read;
use crate::StreamId;
use crate::config::Kept;
use crate::error::StreamError;
use crate::proto::reset_at::{self, RELIABLE_MAX, ROOM_MAX, Shared};
use crate::proto::{self, varint};
use std::collections::HashMap;
use std::sync::Arc;

#[derive(Debug)]
pub(super) struct Resets {
    shared: Arc<Shared>,
    /// Bytes read of each stream that has more.
    read: HashMap<StreamId, u64>,
    /// Streams that were read to their end, and whose reset is the result of the next read.
    ended: HashMap<StreamId, u64>,
    /// Bytes to be written of streams whose first bytes are not all written.
    unwritten: HashMap<StreamId, usize>,
    /// Codes of streams whose reset waits.
    waiting: HashMap<StreamId, u64>,
}

/// The result of a read.
pub(super) enum Outcome {
    Read(Result<Read, StreamError>),
    /// A reset; the engine's half must be stopped.
    Reset(u64),
}

/// Makes the connection that `begin` creates announce the extension.
pub(super) fn announced<T>(resets: Option<&Resets>, begin: impl FnOnce() -> T) -> T {
    reset_at::with(resets.map(|resets| Arc::clone(&resets.shared)), begin)
}

fn id_of(stream: StreamId) -> proto::StreamId {
    proto::StreamId::from(varint(stream.0))
}

impl Resets {
    /// For a connection with these settings, if they ask for it.
    pub(super) fn of(kept: &Kept, side: proto::Side) -> Option<Box<Self>> {
        kept.reset_stream_at.then(|| {
            Box::new(Self {
                shared: Shared::new(side),
                read: HashMap::new(),
                ended: HashMap::new(),
                unwritten: HashMap::new(),
                waiting: HashMap::new(),
            })
        })
    }

    pub(super) fn is_taken_by_peer(&self) -> bool {
        self.shared.is_taken_by_peer()
    }

    /// Looks at what the engine did with a datagram: frees what belongs to streams that it forgot,
    /// and sends resets that waited for an acknowledgement.
    pub(super) fn settle(&mut self, proto: &mut proto::Connection) {
        for stream in self.shared.take_arrived() {
            if !is_receiving(proto, StreamId(stream)) {
                self.shared.forget_received(stream);
            }
        }
        // The engine ignores a late acknowledgement of a packet that it declared lost: it sends the
        // frame again.
        for stream in self.shared.resetting() {
            if proto.send_stream(id_of(StreamId(stream))).stopped().is_err() {
                self.shared.end_reset(stream);
            }
        }
        let waiting: Vec<_> = self.waiting.iter().map(|(&stream, &code)| (stream, code)).collect();
        for (stream, code) in waiting {
            self.advance(proto, stream, code);
        }
    }

    /// Sends a reset that waits, if it may be sent now.
    fn advance(&mut self, proto: &mut proto::Connection, stream: StreamId, code: u64) {
        let mut send = proto.send_stream(id_of(stream));
        let is_due = match send.stopped() {
            // Everything was acknowledged.
            Err(_) => true,
            // The response to a stop by the peer is a plain reset.
            Ok(Some(_)) => {
                drop(send.reset(varint(code)));
                true
            }
            Ok(None) => {
                let is_acknowledged = self.shared.head(stream.0).is_none_or(|(_, done)| done);
                let is_due = is_acknowledged && self.shared.begin_reset(stream.0);
                if is_due {
                    drop(send.reset(varint(code)));
                }
                is_due
            }
        };
        if is_due {
            self.waiting.remove(&stream);
            self.forget_head(stream);
        }
    }

    /// A reset of the stream will deliver its first bytes.
    pub(super) fn keep_head(&mut self, stream: StreamId, len: usize) -> bool {
        if !self.is_taken_by_peer() || !(1..=RELIABLE_MAX).contains(&len) {
            return false;
        }
        self.shared.keep_head(stream.0, len as u8);
        self.unwritten.insert(stream, len);
        true
    }

    pub(super) fn note_written(&mut self, stream: StreamId, count: usize) {
        if let Some(len) = self.unwritten.get_mut(&stream) {
            *len = len.saturating_sub(count);
            if *len == 0 {
                self.unwritten.remove(&stream);
            }
        }
    }

    /// The stream is no longer to be reset, or need not deliver anything.
    pub(super) fn forget_head(&mut self, stream: StreamId) {
        self.shared.forget_head(stream.0);
        self.unwritten.remove(&stream);
    }

    /// Resets a stream whose first bytes are to be delivered; `false`, without effect, if there are
    /// none, or not all were written, since the peer cannot get them then.
    pub(super) fn reset(
        &mut self,
        proto: &mut proto::Connection,
        stream: StreamId,
        code: u64,
    ) -> bool {
        if self.shared.head(stream.0).is_none() {
            return false;
        }
        if self.unwritten.contains_key(&stream) {
            self.forget_head(stream);
            return false;
        }
        self.waiting.insert(stream, code);
        self.advance(proto, stream, code);
        true
    }

    pub(super) fn is_waiting(&self, stream: StreamId) -> bool {
        self.waiting.contains_key(&stream)
    }

    /// Leaves room in the next packets for the resets in flight.
    pub(super) fn make_room(&self) {
        self.shared.make_room();
    }

    /// Bytes of a packet that more resets may need.
    pub(super) fn reserved_len(&self) -> usize {
        ROOM_MAX - self.shared.room()
    }

    /// The application stops the stream: whether the engine has forgotten it already, since only
    /// its reset was left to report.
    pub(super) fn forget_received(&mut self, stream: StreamId) -> bool {
        self.read.remove(&stream);
        self.shared.forget_received(stream.0);
        self.ended.remove(&stream).is_some()
    }

    /// Translates the engine's result of a read.
    pub(super) fn on_read(&mut self, stream: StreamId, read: Result<Read, StreamError>) -> Outcome {
        match read {
            Ok(Read::Some(count)) => {
                *self.read.entry(stream).or_default() += count as u64;
                Outcome::Read(read)
            }
            Ok(Read::Blocked) => {
                let read_len = self.read.get(&stream).copied().unwrap_or(0);
                match self.shared.received(stream.0) {
                    Some(reset) if reset.reliable_size <= read_len => Outcome::Reset(reset.code),
                    _ => Outcome::Read(read),
                }
            }
            Ok(Read::End(count)) => {
                self.read.remove(&stream);
                match self.shared.forget_received(stream.0) {
                    None => Outcome::Read(read),
                    Some(reset) if count == 0 => Outcome::Read(Err(StreamError::Reset(reset.code))),
                    Some(reset) => {
                        self.ended.insert(stream, reset.code);
                        Outcome::Read(Ok(Read::Some(count)))
                    }
                }
            }
            Err(error) => {
                let code = self.ended.get(&stream).copied();
                self.forget_received(stream);
                Outcome::Read(Err(code.map_or(error, StreamError::Reset)))
            }
        }
    }

    /// Numbers of entries, which must not grow with the number of ended streams.
    #[cfg(test)]
    pub(super) fn counts(&self) -> [usize; 8] {
        let [received, heads, packets, resetting] = self.shared.counts();
        let Self { read, ended, unwritten, waiting, .. } = self;
        let own = [read.len(), ended.len(), unwritten.len(), waiting.len()];
        [received, heads, packets, resetting, own[0], own[1], own[2], own[3]]
    }
}

/// Whether the engine has the stream's receiving half.
fn is_receiving(proto: &mut proto::Connection, stream: StreamId) -> bool {
    let by_us = stream.is_by_client() == (proto.side() == proto::Side::Client);
    let receives = stream.direction() == crate::Direction::Bi || !by_us;
    receives && proto.recv_stream(id_of(stream)).read(true).is_ok()
}
