//! Who waits for what of a connection, and how it stands.
//!
//! Owns: [`Link`], the part of a connection that futures look at, beside the core's. Called by: `endpoint` with
//! events, the futures of connections and streams. Never does: wake; wakers are handed out, and woken once nothing is
//! borrowed.

use crate::core::{Event, Handle};
use crate::error::{ConnectionError, StreamError};
use crate::wakers::Wakers;
use crate::{Direction, StreamId};
use std::collections::HashMap;
use std::task::Waker;

/// Who waits for what of a connection, and how it stands.
pub(crate) struct Link {
    pub handle: Handle,
    /// A program has it.
    pub is_held: bool,
    pub lost: Option<ConnectionError>,
    /// The server refused early data: the streams that were opened for it are not there.
    pub early_rejected: bool,
    pub phase: Phase,
    /// For the handshake's steps and the end.
    pub watching: Wakers,
    pub opening: [Wakers; 2],
    pub accepting: [Wakers; 2],
    pub reading: HashMap<StreamId, Waker>,
    pub writing: HashMap<StreamId, Waker>,
    pub stopping: HashMap<StreamId, Waker>,
    /// Streams that were finished behind what has no room yet, with the code of a stop that came since.
    pub finishing: HashMap<StreamId, Option<u64>>,
    pub datagrams_in: Wakers,
    pub datagrams_out: Wakers,
}

/// How far a handshake is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Phase {
    Begun,
    /// What it agrees on is known.
    Agreed,
    Complete,
}

/// The place of what is kept a direction.
pub(crate) fn at(direction: Direction) -> usize {
    match direction {
        Direction::Bi => 0,
        Direction::Uni => 1,
    }
}

impl Link {
    pub(crate) fn new(handle: Handle) -> Self {
        Self {
            handle,
            is_held: true,
            lost: None,
            early_rejected: false,
            phase: Phase::Begun,
            watching: Wakers::default(),
            opening: Default::default(),
            accepting: Default::default(),
            reading: HashMap::new(),
            writing: HashMap::new(),
            stopping: HashMap::new(),
            finishing: HashMap::new(),
            datagrams_in: Wakers::default(),
            datagrams_out: Wakers::default(),
        }
    }

    pub(crate) fn event(&mut self, event: Event, woken: &mut Vec<Waker>) {
        match event {
            Event::HandshakeData(_) => {
                self.phase = self.phase.max(Phase::Agreed);
                self.watching.drain_into(woken);
            }
            Event::Connected(_) => {
                self.phase = Phase::Complete;
                if self.early_rejected {
                    // Their streams are gone, and say so.
                    self.wake_streams(woken);
                }
                self.watching.drain_into(woken);
                self.datagrams_out.drain_into(woken);
                // The peer's word on how many streams there may be is in: it may be another one than the last time's, and after
                // a refusal the first ones are free again.
                for opening in &mut self.opening {
                    opening.drain_into(woken);
                }
            }
            Event::Confirmed(_) => self.watching.drain_into(woken),
            Event::Lost(_, error) => {
                self.lost.get_or_insert(error);
                self.wake_all(woken);
            }
            Event::Opened(_, direction) => self.accepting[at(direction)].drain_into(woken),
            Event::Available(_, direction) => self.opening[at(direction)].drain_into(woken),
            Event::Readable(_, id) => woken.extend(self.reading.remove(&id)),
            Event::Writable(_, id) => woken.extend(self.writing.remove(&id)),
            Event::Finished(_, id) => woken.extend(self.stopping.remove(&id)),
            Event::Stopped(_, id, code) => {
                if let Some(stopped) = self.finishing.get_mut(&id) {
                    *stopped = Some(code);
                }
                woken.extend(self.stopping.remove(&id));
                woken.extend(self.writing.remove(&id));
            }
            Event::DatagramReceived(_) => self.datagrams_in.drain_into(woken),
            Event::DatagramsUnblocked(_) => self.datagrams_out.drain_into(woken),
            Event::Incoming(_) | Event::Drained(_) | Event::IdIssued(..) | Event::IdRetired(..) => {
            }
        }
    }

    fn wake_streams(&mut self, woken: &mut Vec<Waker>) {
        for waiting in [&mut self.reading, &mut self.writing, &mut self.stopping] {
            woken.extend(waiting.drain().map(|(_, waker)| waker));
        }
    }

    pub(crate) fn wake_all(&mut self, woken: &mut Vec<Waker>) {
        self.wake_streams(woken);
        for waiting in self.opening.iter_mut().chain(&mut self.accepting) {
            waiting.drain_into(woken);
        }
        for waiting in [
            &mut self.watching,
            &mut self.datagrams_in,
            &mut self.datagrams_out,
        ] {
            waiting.drain_into(woken);
        }
    }
}

/// A stream whose early data was refused is not there, and its number may be another's.
pub(crate) fn present(link: &Link, is_early: bool) -> Result<(), StreamError> {
    if is_early && link.early_rejected {
        return Err(StreamError::EarlyDataRejected);
    }
    Ok(())
}

/// Why a stream of this connection does not move, if the connection is the reason.
pub(crate) fn barrier(link: &Link, is_early: bool) -> Result<(), StreamError> {
    present(link, is_early)?;
    match &link.lost {
        Some(error) => Err(StreamError::Connection(error.clone())),
        None => Ok(()),
    }
}
