//! Routes the core's events to waiters, event queues and the endpoint's callbacks.

use std::time::Instant;

use ringloop::embed::sys::reserve;
use ringloop_quic::core::{Event, Handle, Incoming};
use ringloop_quic::error::StreamError;
use ringloop_quic::session::{Wait, Wake, wakes};
use ringloop_quic::{Direction, StreamId};

use super::event_queue::{IdChange, Pending};
use super::state::{Attached, PeerStreams, Retry, State, Style};
use crate::limits::{QUIC_FAILURES_MAX, QUIC_HANDSHAKES_BEFORE_RETRY};

impl State {
    /// Takes all events from the core.
    pub fn dispatch(&mut self, now: Instant, woken: &mut Vec<Wake>) {
        let failure_count = self.sessions.failures.len();
        while let Some(event) = self.sessions.next_event() {
            match event {
                Event::Incoming(incoming) => self.admit(now, incoming),
                Event::Drained(handle) => self.drained(handle),
                event => {
                    if let Some(handle) = event.handle() {
                        self.forget_streams(handle, &event);
                        if self.has_http && self.route_http(now, handle, &event, woken) {
                            continue;
                        }
                        match self.style {
                            Style::Futures => self.wake_for(handle, &event, woken),
                            Style::Events => self.queue_event(handle, event),
                        }
                    }
                }
            }
        }
        self.notifications.has_failures |= self.sessions.failures.len() > failure_count;
        // With a socket a loop takes them every turn, and a turn has at most as many failures as
        // connections.
        if self.socket.is_none() {
            self.sessions.failures.truncate(QUIC_FAILURES_MAX);
        }
        self.queue_given();
        self.answer_pings(now, woken);
    }

    /// TLS and the transport store tickets and tokens in a memory without reporting an event.
    fn queue_given(&mut self) {
        for at in 0..self.memories.len() {
            let (handle, memory) = &self.memories[at];
            if memory.take_new() {
                let handle = *handle;
                self.push_event(handle, Pending::Given);
            }
        }
    }

    fn admit(&mut self, now: Instant, incoming: Incoming) {
        let (rules, core) = (self.admission, &mut self.sessions.core);
        if rules.is_closed || reserve::is_low() || core.connection_count() >= rules.connections_max
        {
            return core.refuse(incoming);
        }
        let asks = match rules.retry {
            Retry::Never => false,
            Retry::Always => true,
            Retry::Auto => self.sessions.handshake_count() >= QUIC_HANDSHAKES_BEFORE_RETRY,
        };
        let incoming = if asks && !incoming.is_validated() {
            match self.sessions.core.retry(incoming) {
                Ok(()) => return,
                Err(incoming) => incoming,
            }
        } else {
            incoming
        };
        let attached = Attached {
            is_announced: self.style == Style::Events,
            wants_http: self.serves_http,
            webtransport: self.serves_webtransport.clone().map(Box::new),
            ..Attached::default()
        };
        // Otherwise it is among the failures.
        if let Ok(handle) = self.sessions.accept(now, incoming, None, attached)
            && self.style == Style::Events
        {
            self.notifications.accepted.push(handle.to_bits());
        }
    }

    /// Nothing more will be sent or received on the connection.
    fn drained(&mut self, handle: Handle) {
        if let Some((mut connection, session)) = self.sessions.both(handle) {
            // Pending events can still be taken.
            let (mut left, events) = (Vec::new(), &mut session.attached.events);
            while !events.is_empty() {
                events.take(&mut connection, usize::MAX, &mut left);
            }
            session.attached.untaken.extend(left);
            // Also for a connection that was never announced: a wait for the last connection's end
            // includes it.
            self.notifications.gone.push(handle.to_bits());
            self.memories.retain(|(of, _)| *of != handle);
        }
        drop(self.sessions.release(handle));
    }

    /// Announces a client's connection once there is something to do for it.
    pub fn announce(&mut self, handle: Handle) {
        if let Some(session) = self.sessions.get(handle)
            && !std::mem::replace(&mut session.attached.is_announced, true)
        {
            self.notifications.accepted.push(handle.to_bits());
        }
    }

    /// Drops the streams of a closed connection, or of rejected early data.
    fn forget_streams(&mut self, handle: Handle, event: &Event) {
        let Some(session) = self.sessions.get(handle) else {
            return;
        };
        match event {
            Event::Connected(_) if session.early_rejected => {
                session.attached.opened = [0; 2];
                session.attached.queued.clear();
            }
            Event::Lost(..) => session.attached.queued.clear(),
            _ => {}
        }
    }

    fn wake_for(&mut self, handle: Handle, event: &Event, woken: &mut Vec<Wake>) {
        match event {
            Event::Connected(_) => self.announce(handle),
            Event::Opened(..) => {
                self.announce(handle);
                let session = self.sessions.get(handle);
                let reported = session.map(|session| session.attached.peer_streams);
                if reported == Some(PeerStreams::Announced) {
                    return self.notify_eventful(handle);
                }
            }
            Event::Writable(_, stream) if !self.pour(handle, *stream) => return,
            Event::Stopped(_, stream, code) => self.unqueue(handle, *stream, *code),
            _ => {}
        }
        let session = self.sessions.get(handle);
        let early_rejected = session.is_some_and(|session| session.early_rejected);
        for wake in wakes(event, early_rejected) {
            // A stream with many frames has as many events.
            if woken.last() != Some(&wake) {
                woken.push(wake);
            }
        }
    }

    /// The peer stopped the stream: drops what is queued. After a finish the answer is a reset (RFC
    /// 9000 §3.5); otherwise that is left to the application.
    fn unqueue(&mut self, handle: Handle, stream: StreamId, code: u64) {
        let Some((mut connection, session)) = self.sessions.both(handle) else {
            return;
        };
        if let Some(queued) = session.attached.queued.remove(&stream)
            && queued.is_finishing()
        {
            drop(connection.reset(stream, code));
        }
    }

    fn queue_event(&mut self, handle: Handle, event: Event) {
        let pending = match event {
            Event::HandshakeData(_) | Event::Connected(_) => {
                // The peer's limits are known: what was written before may be sent.
                for direction in [Direction::Bi, Direction::Uni] {
                    self.open_queued(handle, direction);
                }
                self.note_writable(handle);
                match event {
                    Event::Connected(_) => Pending::Completed,
                    _ => Pending::Negotiated,
                }
            }
            Event::Lost(..) => return self.push_end(handle),
            Event::Opened(_, direction) => {
                // The core has no readable event for a new stream.
                while let Some(stream) = self.accept(handle, direction) {
                    self.push_event(handle, Pending::Readable(stream));
                }
                return;
            }
            Event::Available(_, direction) => {
                self.open_queued(handle, direction);
                return self.note_writable(handle);
            }
            Event::Readable(_, stream) => Pending::Readable(stream),
            Event::Writable(_, stream) => {
                self.pour(handle, stream);
                return self.note_writable(handle);
            }
            Event::IdIssued(_, id) => return self.push_id(handle, IdChange::Issued(id)),
            Event::IdRetired(_, id) => return self.push_id(handle, IdChange::Retired(id)),
            Event::Stopped(_, stream, code) => {
                // RFC 9000 §3.5: answer with a reset of the same code.
                drop(self.reset(handle, stream, code));
                Pending::Stopped(stream, code)
            }
            Event::DatagramReceived(_) => Pending::Datagrams,
            _ => return,
        };
        self.push_event(handle, pending);
    }

    fn push_id(&mut self, handle: Handle, change: IdChange) {
        if let Some(session) = self.sessions.get(handle) {
            session.attached.events.keep(change);
        }
        self.push_event(handle, Pending::Id);
    }

    /// Sends a ping; returns its number in the connection, from 1.
    pub fn ping(&mut self, handle: Handle, uid: u64) -> Result<u64, StreamError> {
        let (mut connection, session) = self.sessions.open(handle)?;
        let number = session.attached.pings.ask(&mut connection, uid);
        if !self.pinging.contains(&handle) {
            self.pinging.push(handle);
        }
        Ok(number)
    }

    /// Records which pings were sent. Call it with the time of each transmission, and before
    /// anything is received: an acknowledgement that is already counted would be missed.
    pub fn note_sent_pings(&mut self, now: Instant) {
        for handle in &self.pinging {
            if let Some((connection, session)) = self.sessions.both(*handle) {
                session.attached.pings.note_sent(&connection, now);
            }
        }
    }

    /// Reports the pings that are acknowledged by now.
    fn answer_pings(&mut self, now: Instant, woken: &mut Vec<Wake>) {
        let mut pinging = std::mem::take(&mut self.pinging);
        pinging.retain(|&handle| {
            let Some((mut connection, session)) = self.sessions.both(handle) else {
                return false;
            };
            let pings = &mut session.attached.pings;
            let answered = pings.take_answered(&mut connection, now);
            let is_waiting = pings.is_waiting();
            for uid in answered {
                match self.style {
                    Style::Futures => woken.push(Wake::For(handle, Wait::Progress)),
                    Style::Events => self.push_event(handle, Pending::PingAcknowledged(uid)),
                }
            }
            is_waiting
        });
        self.pinging = pinging;
    }
}
