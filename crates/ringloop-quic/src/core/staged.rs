//! Small writes of one stream, gathered into one piece.
//!
//! The protocol's engine keeps each write as a piece of its own until it is acknowledged, and looks for the next
//! byte to send from the first piece on; with thousands of small ones that search takes most of the time. So after
//! a small write that the engine has taken, the next ones of the same stream are gathered here, up to
//! [`STAGED_BYTES`], until something is sent or anything else is done with streams.
//!
//! Never does: gather in front of a write that could fail; the first one after each sending goes to the engine.

use super::live::Live;
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

impl Live {
    /// Gather `bytes`, if they are small and behind others of the stream.
    pub(super) fn stage(&mut self, stream: proto::StreamId, bytes: &[u8]) -> bool {
        let staged = &mut self.staged;
        let fits = staged.bytes.len() + bytes.len() <= STAGED_BYTES;
        let is_next = staged.stream == Some(stream) && !staged.finishes;
        if !is_next || !fits || bytes.len() > STAGED_BYTES / 4 {
            return false;
        }
        if staged.bytes.is_empty() {
            staged.bytes.reserve(STAGED_BYTES);
        }
        staged.bytes.extend_from_slice(bytes);
        true
    }

    /// The engine has taken a write of this stream: the next small ones may be gathered.
    pub(super) fn stage_after(&mut self, stream: proto::StreamId) {
        // Early data may be refused, and its streams' numbers be used again.
        if self.staged.bytes.is_empty() && !self.proto.is_handshaking() {
            self.staged.stream = Some(stream);
        }
    }

    /// Give what was gathered to the engine; tells whether it has taken all of `stream`'s. What it has no room for
    /// stays, and the engine will say that the stream is writable.
    pub(super) fn flush(&mut self, stream: Option<proto::StreamId>) -> bool {
        let Some(id) = self.staged.stream else {
            return true;
        };
        let mut pieces = [self.staged.bytes.split().freeze()];
        while !pieces[0].is_empty() {
            match self.proto.send_stream(id).write_chunks(&mut pieces) {
                Ok(_) => {}
                Err(proto::WriteError::Blocked) => {
                    self.staged.bytes = BytesMut::from(&pieces[0][..]);
                    return stream != Some(id);
                }
                // Stopped or closed: the next word about the stream says so.
                Err(_) => break,
            }
        }
        if self.staged.finishes {
            // The program was told that it is finished.
            drop(self.finish(id));
        }
        self.staged = Staged::default();
        true
    }

    /// Finish a stream in the engine, or reset it where the peer does not want more of it.
    pub(super) fn finish(&mut self, stream: proto::StreamId) -> Result<(), proto::FinishError> {
        let mut send = self.proto.send_stream(stream);
        let result = send.finish();
        if let Err(proto::FinishError::Stopped(code)) = result {
            // It fails for one that was reset before, and one is enough.
            drop(send.reset(code));
        }
        result
    }

    /// Finish the stream behind what is gathered and has no room yet.
    pub(super) fn finish_staged(&mut self) {
        self.staged.finishes = true;
    }

    /// Whether this stream was finished behind what is gathered.
    pub(super) fn finishes_later(&self, stream: proto::StreamId) -> bool {
        self.staged.finishes && self.staged.stream == Some(stream)
    }

    /// Drop what was gathered of a stream that is given up.
    pub(super) fn unstage(&mut self, stream: proto::StreamId) {
        if self.staged.stream == Some(stream) {
            self.staged = Staged::default();
        }
    }
}
