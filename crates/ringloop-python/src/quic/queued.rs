//! Written bytes of a stream that have no room in the send window yet.
//!
//! Bounded by the writer: code that awaits `drain()` after each write has at most one write queued.
//! Moved into the protocol as soon as it reports the stream writable.

use std::collections::VecDeque;

use ringloop_quic::core::{Connection, Written};
use ringloop_quic::error::StreamError;
use ringloop_quic::{Bytes, StreamId};

#[derive(Debug, Default)]
pub struct Queued {
    pieces: VecDeque<Bytes>,
    len: usize,
    /// The stream is to be finished after them.
    finishes: bool,
    /// It is to be reset instead, once opened.
    gives_up: Option<u64>,
}

/// Progress of moving bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Poured {
    All,
    /// The window is full again; or the peer has stopped a stream to be finished, which an event
    /// reports.
    Some,
    /// The stream accepts nothing any more.
    Never,
}

impl Queued {
    pub fn len(&self) -> usize {
        self.len
    }

    pub fn is_finishing(&self) -> bool {
        self.finishes
    }

    /// Appends bytes, using `room` as their memory.
    pub fn push(&mut self, bytes: &[u8], mut room: Vec<u8>) {
        room.extend_from_slice(bytes);
        self.push_piece(Bytes::from(room));
    }

    /// Appends bytes that are already copied.
    pub fn push_piece(&mut self, piece: Bytes) {
        if self.gives_up.is_some() {
            return;
        }
        self.len += piece.len();
        self.pieces.push_back(piece);
    }

    pub fn give_up(&mut self, code: u64) {
        self.pieces.clear();
        self.len = 0;
        self.gives_up = Some(code);
    }

    pub fn finish(&mut self) {
        self.finishes = true;
    }

    /// Passes the protocol at most `bytes_max`; returns how many it has taken.
    pub fn pour_at_most(
        &mut self,
        connection: &mut Connection<'_>,
        stream: StreamId,
        bytes_max: usize,
    ) -> (Poured, usize) {
        let mut left = bytes_max;
        while left > 0
            && let Some(piece) = self.pieces.front_mut()
        {
            let mut part = [piece.slice(..piece.len().min(left))];
            match connection.write_chunks(stream, &mut part) {
                Ok(Written::Some(count)) => {
                    drop(piece.split_to(count));
                    if piece.is_empty() {
                        self.pieces.pop_front();
                    }
                    self.len -= count;
                    left -= count;
                }
                Ok(Written::Blocked) => break,
                Err(StreamError::Stopped(_)) if self.finishes => break,
                Err(_) => return (Poured::Never, bytes_max - left),
            }
        }
        let poured =
            if self.pieces.is_empty() { self.pour(connection, stream) } else { Poured::Some };
        (poured, bytes_max - left)
    }

    /// Passes the protocol what it has room for.
    pub fn pour(&mut self, connection: &mut Connection<'_>, stream: StreamId) -> Poured {
        if let Some(code) = self.gives_up {
            drop(connection.reset(stream, code));
            return Poured::Never;
        }
        while !self.pieces.is_empty() {
            let pieces = self.pieces.make_contiguous();
            match connection.write_chunks(stream, pieces) {
                Ok(Written::Some(count)) => {
                    self.len -= count;
                    while self.pieces.front().is_some_and(Bytes::is_empty) {
                        self.pieces.pop_front();
                    }
                }
                Ok(Written::Blocked) => return Poured::Some,
                Err(StreamError::Stopped(_)) if self.finishes => return Poured::Some,
                Err(_) => return Poured::Never,
            }
        }
        if self.finishes {
            return match connection.finish(stream) {
                Ok(()) => Poured::All,
                Err(StreamError::Stopped(_)) => Poured::Some,
                Err(_) => Poured::Never,
            };
        }
        Poured::All
    }
}
