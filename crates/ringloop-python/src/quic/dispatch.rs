//! From what has happened to who has to hear of it.

use std::sync::{Arc, Mutex};
use std::time::Instant;

use ringloop::sys::reserve;
use ringloop_quic::core::{Event, Handle, Incoming};
use ringloop_quic::error::ConnectionError;
use ringloop_quic::{Direction, StreamId};

use super::notes::{Id, Note};
use super::shared::{Record, Unfinished};
use super::state::{Link, PeerStreams, Phase, Retry, State, Style};
use super::waiters::{Wait, Wake};
use crate::limits::QUIC_HANDSHAKES_BEFORE_RETRY;

impl State {
    /// Take all events out of the core.
    pub fn dispatch(&mut self, now: Instant, woken: &mut Vec<Wake>) {
        while let Some(event) = self.core.next_event() {
            match event {
                Event::Incoming(incoming) => self.admit(now, incoming),
                Event::Drained(handle) => self.drained(handle),
                event => {
                    if let Some(handle) = event.handle() {
                        match self.style {
                            Style::Futures => self.wake_for(handle, event, woken),
                            Style::Events => self.note_down(handle, event),
                        }
                    }
                }
            }
        }
        self.note_given();
        self.answer_pings(now, woken);
    }

    /// TLS and the transport tell a memory, and nobody else, of tickets and tokens.
    fn note_given(&mut self) {
        for at in 0..self.memories.len() {
            let (handle, memory) = &self.memories[at];
            if memory.take_news() {
                let handle = *handle;
                self.note(handle, Note::Given);
            }
        }
    }

    fn admit(&mut self, now: Instant, incoming: Incoming) {
        let rules = self.admission;
        if rules.is_closed
            || reserve::is_low()
            || self.core.connection_count() >= rules.connections_max
        {
            return self.core.refuse(incoming);
        }
        let asks = match rules.retry {
            Retry::Never => false,
            Retry::Always => true,
            Retry::Auto => self.handshake_count >= QUIC_HANDSHAKES_BEFORE_RETRY,
        };
        let incoming = if asks && !incoming.is_validated() {
            match self.core.retry(incoming) {
                Ok(()) => return,
                Err(incoming) => incoming,
            }
        } else {
            incoming
        };
        let address = incoming.remote_address();
        match self.core.accept(now, incoming, None) {
            Ok(handle) => {
                let is_told = self.style == Style::Events;
                self.insert(handle, is_told);
                if is_told {
                    self.news.accepted.push(handle.to_bits());
                }
            }
            Err(error) => {
                let record = Record::default();
                drop(record.lost.set(error));
                drop(record.unfinished.set(Unfinished {
                    address,
                    has_answered: true,
                }));
                self.note_failure(address, Arc::new(record));
            }
        }
    }

    /// Nothing of the connection will be sent or come any more.
    fn drained(&mut self, handle: Handle) {
        if let Some((mut connection, link)) = self.both(handle) {
            drop(link.record.lost.set(ConnectionError::Closed));
            link.record
                .remote
                .get_or_init(|| connection.remote_address());
            // Events that nobody has taken yet can still be taken.
            let mut left = Vec::new();
            while !link.notes.is_empty() {
                link.notes.take(&mut connection, usize::MAX, &mut left);
            }
            drop(link.record.left.set(Mutex::new(left.into())));
            let was_complete = link.phase == Phase::Complete;
            self.handshake_count -= usize::from(!was_complete);
            // Also one that the program never heard of: who waits for the last one's end waits for it, too.
            self.news.gone.push(handle.to_bits());
            self.links[handle.index()] = None;
            self.memories.retain(|(of, _)| *of != handle);
        }
        self.core.release(handle);
    }

    /// The program hears of a client once there is something to do for it.
    fn tell(&mut self, handle: Handle) {
        if let Some(link) = self.link(handle)
            && !std::mem::replace(&mut link.is_told, true)
        {
            self.news.accepted.push(handle.to_bits());
        }
    }

    /// What both styles keep about a connection.
    fn remember(&mut self, handle: Handle, event: &Event) {
        let Some((connection, link)) = self.both(handle) else {
            return;
        };
        let was_complete = link.phase == Phase::Complete;
        let is_client = connection.is_client();
        let mut failed = None;
        match event {
            Event::HandshakeData(_) => link.phase = link.phase.max(Phase::Agreed),
            Event::Connected(_) => {
                link.phase = Phase::Complete;
                link.early_rejected = connection.is_client()
                    && connection.has_early_data()
                    && !connection.early_data_accepted();
                if link.early_rejected {
                    link.opened = [0; 2];
                    link.queued.clear();
                }
            }
            Event::Lost(_, error) => {
                if !was_complete {
                    link.note_unfinished(&connection);
                }
                drop(link.record.lost.set(error.clone()));
                if !was_complete && !is_client {
                    failed = Some((connection.remote_address(), Arc::clone(&link.record)));
                }
                link.phase = Phase::Complete;
                link.queued.clear();
            }
            _ => {}
        }
        if !was_complete && link.phase == Phase::Complete {
            self.handshake_count -= 1;
        }
        if let Some((address, record)) = failed {
            self.note_failure(address, record);
        }
    }

    fn wake_for(&mut self, handle: Handle, event: Event, woken: &mut Vec<Wake>) {
        self.remember(handle, &event);
        let wait = match event {
            Event::HandshakeData(_) | Event::Confirmed(_) => Wait::Progress,
            Event::Connected(_) => {
                self.tell(handle);
                let is_rejected = self.link(handle).is_some_and(|link| link.early_rejected);
                if is_rejected {
                    // Its streams are gone, and say so.
                    woken.push(Wake::All(handle.to_bits()));
                    return;
                }
                // The peer's word on streams and datagrams is in; how many streams it allows is told by no other event.
                let told = [
                    Wait::DatagramOut,
                    Wait::Open(Direction::Bi),
                    Wait::Open(Direction::Uni),
                ];
                woken.extend(told.map(|wait| Wake::For(handle.to_bits(), wait)));
                Wait::Progress
            }
            Event::Lost(..) => {
                woken.push(Wake::All(handle.to_bits()));
                return;
            }
            Event::Opened(_, direction) => {
                self.tell(handle);
                let announced = |link: &mut Link| link.peer_streams == PeerStreams::Announced;
                if self.link(handle).is_some_and(announced) {
                    self.tell_eventful(handle);
                    return;
                }
                Wait::Accept(direction)
            }
            Event::Available(_, direction) => Wait::Open(direction),
            Event::Readable(_, stream) => Wait::Read(stream),
            Event::Writable(_, stream) => match self.writable(handle, stream) {
                Some(wait) => wait,
                None => return,
            },
            Event::Finished(_, stream) => Wait::Ended(stream),
            Event::Stopped(_, stream, code) => {
                self.unqueue(handle, stream, code);
                woken.push(Wake::For(handle.to_bits(), Wait::Write(stream)));
                Wait::Ended(stream)
            }
            Event::DatagramReceived(_) => Wait::DatagramIn,
            Event::DatagramsUnblocked(_) => Wait::DatagramOut,
            _ => return,
        };
        let wake = Wake::For(handle.to_bits(), wait);
        // A stream that many frames came for has as many events.
        if woken.last() != Some(&wake) {
            woken.push(wake);
        }
    }

    /// The peer wants nothing of what is queued. Where the program has said its last word the answer is a reset
    /// (RFC 9000 §3.5); else that is left to it.
    fn unqueue(&mut self, handle: Handle, stream: StreamId, code: u64) {
        let Some((mut connection, link)) = self.both(handle) else {
            return;
        };
        if let Some(queued) = link.queued.remove(&stream)
            && queued.is_finishing()
        {
            drop(connection.reset(stream, code));
            if !queued.is_orphan() {
                link.stopped.insert(stream, code);
            }
        }
    }

    fn note_down(&mut self, handle: Handle, event: Event) {
        self.remember(handle, &event);
        let note = match event {
            Event::HandshakeData(_) | Event::Connected(_) => {
                // The peer's limits are known: what was written before may go out.
                for direction in [Direction::Bi, Direction::Uni] {
                    self.open_queued(handle, direction);
                }
                self.note_writable(handle);
                match event {
                    Event::Connected(_) => Note::Completed,
                    _ => Note::Negotiated,
                }
            }
            Event::Lost(..) => return self.note_end(handle),
            Event::Opened(_, direction) => return self.note_opened(handle, direction),
            Event::Available(_, direction) => {
                self.open_queued(handle, direction);
                return self.note_writable(handle);
            }
            Event::Readable(_, stream) => Note::Readable(stream),
            Event::Writable(_, stream) => {
                self.writable(handle, stream);
                return self.note_writable(handle);
            }
            Event::IdIssued(_, id) => return self.note_id(handle, Id::Issued(id)),
            Event::IdRetired(_, id) => return self.note_id(handle, Id::Retired(id)),
            Event::Stopped(_, stream, code) => {
                // RFC 9000 §3.5: the answer to it is a reset, with its code.
                drop(self.reset(handle, stream, code));
                Note::Stopped(stream, code)
            }
            Event::DatagramReceived(_) => Note::Datagrams,
            _ => return,
        };
        self.note(handle, note);
    }

    fn note_id(&mut self, handle: Handle, id: Id) {
        if let Some(link) = self.link(handle) {
            link.notes.keep(id);
        }
        self.note(handle, Note::Id);
    }

    /// The core does not say what can be read of a stream that is new.
    fn note_opened(&mut self, handle: Handle, direction: Direction) {
        while let Some(stream) = self.accept(handle, direction) {
            self.note(handle, Note::Readable(stream));
        }
    }
}
