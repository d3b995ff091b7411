//! The two halves of a stream, for Rust and Python streams.
//!
//! Owns: [`SendHalf`] and [`RecvHalf`], the states of RFC 9000 §3 as the application sees them: the
//! engine forgets how a stream ended once both ends know. Called by: streams, while they have
//! access to the connection.

use super::Session;
use crate::StreamId;
use crate::core::{Connection, Read};
use crate::error::StreamError;
use bytes::Bytes;
use std::collections::VecDeque;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Sending {
    Open,
    Finished,
    Reset,
    /// The stream has no such half.
    Absent,
}

/// The sending half of a stream.
#[derive(Debug)]
pub struct SendHalf {
    id: StreamId,
    is_early: bool,
    state: Sending,
    /// The code with which the peer stopped it or it was reset here, whichever came first.
    given_up: Option<u64>,
    /// It was finished behind bytes without credit: the session records a later stop.
    finishes_later: bool,
}

impl SendHalf {
    /// `is_early`: opened before the handshake was complete, so that the server may reject it.
    pub fn new(id: StreamId, is_early: bool) -> Self {
        Self { id, is_early, state: Sending::Open, given_up: None, finishes_later: false }
    }

    /// Of a stream that only receives.
    pub fn absent(id: StreamId) -> Self {
        Self { state: Sending::Absent, ..Self::new(id, false) }
    }

    /// The stream's id.
    pub fn id(&self) -> StreamId {
        self.id
    }

    /// Whether it was neither finished nor reset.
    pub fn is_open(&self) -> bool {
        self.state == Sending::Open
    }

    /// Whether it exists.
    pub fn is_present(&self) -> bool {
        self.state != Sending::Absent
    }

    /// Rejects a half of rejected early data: the id may have been reused.
    pub fn check_early<T>(&self, session: &Session<T>) -> Result<(), StreamError> {
        session.check_early(self.is_early)
    }

    /// The same, and rejects any half once the connection is closed.
    pub fn check<T>(&self, session: &Session<T>) -> Result<(), StreamError> {
        session.check_stream(self.is_early)
    }

    /// Remembers a stop by the peer that a result reports.
    pub fn note<R>(&mut self, result: &Result<R, StreamError>) {
        if let Err(StreamError::Stopped(code)) = result {
            self.given_up.get_or_insert(*code);
        }
    }

    /// It is finished; `false` without effect if it is not open.
    pub fn close(&mut self) -> bool {
        let was_open = self.is_open();
        if was_open {
            self.state = Sending::Finished;
        }
        was_open
    }

    /// Remembers the result of finishing it: whether that waits for credit.
    pub fn note_finish(&mut self, result: &Result<bool, StreamError>) {
        self.finishes_later = *result == Ok(true);
        self.note(result);
    }

    /// Whether the session may have a record of it ([`Session::forget_finish`]).
    pub fn finishes_later(&self) -> bool {
        self.finishes_later
    }

    /// Before a reset: remembers a stop by the peer. The peer ignores the code of our reset then
    /// (RFC 9000 §3.5), so its own code is the one to report.
    pub fn look_for_stop(&mut self, connection: &mut Connection<'_>) {
        if self.given_up.is_none() {
            self.given_up = connection.stopped(self.id).ok().flatten();
        }
    }

    /// Whether a reset has an effect.
    pub fn may_reset(&self) -> bool {
        matches!(self.state, Sending::Open | Sending::Finished)
    }

    /// It was reset.
    pub fn note_reset(&mut self, code: u64) {
        self.state = Sending::Reset;
        self.given_up.get_or_insert(code);
    }

    /// The code with which the peer stopped it or it was reset here, if known.
    pub fn given_up(&self) -> Option<u64> {
        self.given_up
    }

    /// The peer's answer: `None` before it, `Some(None)` if everything is acknowledged, else the
    /// code of a stop or reset.
    pub fn outcome<T>(
        &mut self,
        connection: &mut Connection<'_>,
        session: &Session<T>,
    ) -> Result<Option<Option<u64>>, StreamError> {
        self.check_early(session)?;
        if self.given_up.is_none() {
            self.given_up = match connection.stopped(self.id) {
                Ok(None) => return self.check(session).map(|()| None),
                Ok(stopped) => stopped,
                Err(_) => session.stopped_after_finish(self.id),
            };
        }
        Ok(Some(self.given_up))
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Receiving {
    Open,
    /// The end was read.
    Finished,
    /// The peer reset it with this code.
    Reset(u64),
    /// Stopped locally.
    Stopped,
    /// The stream has no such half.
    Absent,
}

/// The receiving half of a stream.
#[derive(Debug)]
pub struct RecvHalf {
    id: StreamId,
    is_early: bool,
    state: Receiving,
    /// Returned by the reader, for the next read.
    unread: VecDeque<Bytes>,
}

impl RecvHalf {
    /// `is_early`: opened before the handshake was complete, so that the server may reject it.
    pub fn new(id: StreamId, is_early: bool) -> Self {
        Self { id, is_early, state: Receiving::Open, unread: VecDeque::new() }
    }

    /// Of a stream that only sends.
    pub fn absent(id: StreamId) -> Self {
        Self { state: Receiving::Absent, ..Self::new(id, false) }
    }

    /// The stream's id.
    pub fn id(&self) -> StreamId {
        self.id
    }

    /// Whether it was neither stopped, nor was its end or reset read.
    pub fn is_open(&self) -> bool {
        self.state == Receiving::Open
    }

    /// Whether there may be something to read.
    pub fn is_readable(&self) -> bool {
        self.is_open() || !self.unread.is_empty()
    }

    /// Rejects a half of rejected early data: the id may have been reused.
    pub fn check_early<T>(&self, session: &Session<T>) -> Result<(), StreamError> {
        session.check_early(self.is_early)
    }

    /// The same, and rejects any half once the connection is closed.
    pub fn check<T>(&self, session: &Session<T>) -> Result<(), StreamError> {
        session.check_stream(self.is_early)
    }

    /// Puts read bytes back, in front of everything else.
    pub fn put_back(&mut self, pieces: impl DoubleEndedIterator<Item = Bytes>) {
        for piece in pieces.rev().filter(|piece| !piece.is_empty()) {
            self.unread.push_front(piece);
        }
    }

    /// Its end was read already; bytes put back come before it.
    pub fn note_end(&mut self) {
        self.state = Receiving::Finished;
    }

    /// Reads what needs no access to the connection: bytes put back, then the end if it was read.
    /// `None`: use [`RecvHalf::read`].
    pub fn read_known(
        &mut self,
        bytes_max: usize,
        take: impl FnMut(Bytes) -> bool,
    ) -> Option<Result<Read, StreamError>> {
        if !self.unread.is_empty() {
            return Some(Ok(Read::Some(self.take_unread(bytes_max, take))));
        }
        match self.state {
            Receiving::Open => None,
            Receiving::Finished => Some(Ok(Read::End(0))),
            Receiving::Reset(code) => Some(Err(StreamError::Reset(code))),
            Receiving::Stopped | Receiving::Absent => Some(Err(StreamError::Closed)),
        }
    }

    fn take_unread(&mut self, bytes_max: usize, mut take: impl FnMut(Bytes) -> bool) -> usize {
        let mut count = 0;
        while count < bytes_max
            && let Some(piece) = self.unread.front_mut()
        {
            let next = piece.split_to(piece.len().min(bytes_max - count));
            if piece.is_empty() {
                self.unread.pop_front();
            }
            count += next.len();
            if !take(next) {
                break;
            }
        }
        count
    }

    /// Reads as [`Connection::read`], which has no memory of an end. Data received before the
    /// connection was closed is read first.
    pub fn read<T>(
        &mut self,
        connection: &mut Connection<'_>,
        session: &Session<T>,
        bytes_max: usize,
        mut take: impl FnMut(Bytes) -> bool,
    ) -> Result<Read, StreamError> {
        if let Some(known) = self.read_known(bytes_max, &mut take) {
            return known;
        }
        self.check_early(session)?;
        let read = connection.read(self.id, bytes_max, take);
        match &read {
            Ok(Read::End(_)) => self.state = Receiving::Finished,
            Err(StreamError::Reset(code)) => self.state = Receiving::Reset(*code),
            Ok(Read::Blocked) | Err(StreamError::Closed) => self.check(session)?,
            _ => {}
        }
        read
    }

    /// It is stopped, and drops bytes put back; `false` without effect if it is not open.
    pub fn close(&mut self) -> bool {
        let was_open = self.is_open();
        if was_open {
            self.state = Receiving::Stopped;
            self.unread.clear();
        }
        was_open
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(half: &mut RecvHalf, bytes_max: usize) -> (Option<Result<Read, StreamError>>, Vec<u8>) {
        let mut all = Vec::new();
        let known = half.read_known(bytes_max, |piece| {
            all.extend_from_slice(&piece);
            true
        });
        (known, all)
    }

    #[test]
    fn bytes_put_back_are_read_first_and_in_order() {
        let mut half = RecvHalf::new(StreamId(0), false);
        assert_eq!(read(&mut half, 9).0, None);
        half.put_back([&b"cd"[..], b"", b"ef"].map(Bytes::from_static).into_iter());
        half.put_back([Bytes::from_static(b"ab")].into_iter());
        assert_eq!(read(&mut half, 0), (Some(Ok(Read::Some(0))), vec![]));
        assert_eq!(read(&mut half, 3), (Some(Ok(Read::Some(3))), b"abc".to_vec()));
        let first = half.read_known(9, |piece| piece == b"not this one"[..]);
        assert_eq!(first, Some(Ok(Read::Some(1))));
        // Even after the end.
        half.state = Receiving::Finished;
        assert!(half.is_readable());
        assert_eq!(read(&mut half, 9), (Some(Ok(Read::Some(2))), b"ef".to_vec()));
        assert_eq!(read(&mut half, 9), (Some(Ok(Read::End(0))), vec![]));
        assert!(!half.is_readable() && !half.close());
    }
}
