//! Small writes of one stream, merged into one chunk.
//!
//! The engine keeps each write as a separate chunk until it is acknowledged, and searches for the
//! next byte to send from the first chunk on; with thousands of small chunks that search dominates.
//! So after a small write that the engine accepted, the next ones of the same stream are merged
//! here, up to [`STAGED_BYTES`], until something is sent or another stream operation follows.
//!
//! Only writes that cannot fail are staged: the first one after each transmit goes to the engine.

use crate::limits::STAGED_BYTES;
use crate::proto;
use bytes::BytesMut;

#[derive(Default)]
pub(super) struct Staged {
    /// The stream of the staged bytes; no other is staged meanwhile.
    stream: Option<proto::StreamId>,
    bytes: BytesMut,
    /// The stream was finished after them.
    finishes: bool,
}

impl Staged {
    /// Stages `bytes` if they are small and continue the stream's staged bytes.
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

    /// The engine accepted a write of this stream: the next small ones may be staged.
    pub(super) fn push_after(&mut self, proto: &proto::Connection, stream: proto::StreamId) {
        // Early data may be rejected and its stream ids reused.
        if self.bytes.is_empty() && !proto.is_handshaking() {
            self.stream = Some(stream);
        }
    }

    /// Passes staged bytes to the engine; whether it took all of `stream`'s. The rest stays until
    /// the engine reports the stream writable.
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
                // Stopped or closed: the stream's next operation reports it.
                Err(_) => break,
            }
        }
        if self.finishes {
            // The caller was told that it is finished.
            drop(finish(proto, id));
        }
        *self = Self::default();
        true
    }

    /// Finishes the stream after the staged bytes, for which there is no room yet.
    pub(super) fn finish(&mut self) {
        self.finishes = true;
    }

    /// Whether the stream was finished after staged bytes.
    pub(super) fn finishes(&self, stream: proto::StreamId) -> bool {
        self.finishes && self.stream == Some(stream)
    }

    /// Drops the staged bytes of a stream that is reset.
    pub(super) fn clear(&mut self, stream: proto::StreamId) {
        if self.stream == Some(stream) {
            *self = Self::default();
        }
    }
}

/// Finishes a stream in the engine, or resets it if the peer stopped it.
pub(super) fn finish(
    proto: &mut proto::Connection,
    stream: proto::StreamId,
) -> Result<(), proto::FinishError> {
    let mut send = proto.send_stream(stream);
    let result = send.finish();
    if let Err(proto::FinishError::Stopped(code)) = result {
        // Fails if it was reset before; one reset is enough.
        drop(send.reset(code));
    }
    result
}
