//! Small writes of one stream, gathered into one piece.
//!
//! The protocol's engine keeps each write as a piece of its own until it is acknowledged, and looks for the next
//! byte to send from the first piece on; with thousands of small ones that search takes most of the time. So after
//! a small write that the engine has taken, the next ones of the same stream are gathered here, up to
//! [`STAGED_BYTES`], until something is sent or anything else is done with streams.
//!
//! Never does: gather in front of a write that could fail; the first one after each sending goes to the engine.

use crate::limits::STAGED_BYTES;
use crate::proto;
use bytes::BytesMut;

#[derive(Default)]
pub(super) struct Staged {
    /// Whose bytes they are; none are gathered for another stream meanwhile.
    stream: Option<proto::StreamId>,
    bytes: BytesMut,
    /// The stream was finished behind them.
    finishes: bool,
}

impl Staged {
    /// Gather `bytes`, if they are small and behind others of the stream.
    pub(super) fn push(&mut self, stream: proto::StreamId, bytes: &[u8]) -> bool {
        let fits = self.bytes.len() + bytes.len() <= STAGED_BYTES;
        let is_next = self.stream == Some(stream) && !self.finishes;
        if !is_next || !fits || bytes.len() > STAGED_BYTES / 4 {
            return false;
        }
        if self.bytes.is_empty() {
            self.bytes.reserve(STAGED_BYTES);
        }
        self.bytes.extend_from_slice(bytes);
        true
    }

    /// The engine has taken a write of this stream: the next small ones may be gathered.
    pub(super) fn push_after(&mut self, proto: &proto::Connection, stream: proto::StreamId) {
        // Early data may be refused, and its streams' numbers be used again.
        if self.bytes.is_empty() && !proto.is_handshaking() {
            self.stream = Some(stream);
        }
    }

    /// Give what was gathered to the engine; tells whether it has taken all of `stream`'s. What it has no room for
    /// stays, and the engine will say that the stream is writable.
    pub(super) fn flush(
        &mut self,
        proto: &mut proto::Connection,
        stream: Option<proto::StreamId>,
    ) -> bool {
        let Some(id) = self.stream else {
            return true;
        };
        let mut pieces = [self.bytes.split().freeze()];
        while !pieces[0].is_empty() {
            match proto.send_stream(id).write_chunks(&mut pieces) {
                Ok(_) => {}
                Err(proto::WriteError::Blocked) => {
                    self.bytes = BytesMut::from(&pieces[0][..]);
                    return stream != Some(id);
                }
                // Stopped or closed: the next word about the stream says so.
                Err(_) => break,
            }
        }
        if self.finishes {
            // The program was told that it is finished.
            drop(finish(proto, id));
        }
        *self = Self::default();
        true
    }

    /// Finish the stream behind what is gathered and has no room yet.
    pub(super) fn finish(&mut self) {
        self.finishes = true;
    }

    /// Whether this stream was finished behind what is gathered.
    pub(super) fn finishes(&self, stream: proto::StreamId) -> bool {
        self.finishes && self.stream == Some(stream)
    }

    /// Drop what was gathered of a stream that is given up.
    pub(super) fn clear(&mut self, stream: proto::StreamId) {
        if self.stream == Some(stream) {
            *self = Self::default();
        }
    }
}

/// Finish a stream in the engine, or reset it where the peer does not want more of it.
pub(super) fn finish(
    proto: &mut proto::Connection,
    stream: proto::StreamId,
) -> Result<(), proto::FinishError> {
    let mut send = proto.send_stream(stream);
    let result = send.finish();
    if let Err(proto::FinishError::Stopped(code)) = result {
        // It fails for one that was reset before, and one is enough.
        drop(send.reset(code));
    }
    result
}
