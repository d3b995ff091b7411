//! Deadlines of connections, and the work that is due at them.

use super::live::{End, FirstPacket, Live};
use super::{Core, contain};
use crate::error::ConnectionError;
use ringloop::embed::slab::Slab;
use std::collections::HashSet;
use std::net::{IpAddr, SocketAddr};
use std::time::Instant;

impl Core {
    /// Nothing is left to send: set the next deadline.
    pub(super) fn settle(&mut self, now: Instant, slot: u32) {
        let Some(live) = self.connections.at_mut(slot) else {
            return;
        };
        Self::exchange(&mut self.endpoint, live);
        if let Some(log) = &live.log
            && !live.is_broken
        {
            log.standing(&live.proto.stats().into());
        }
        if live.end == End::Drained {
            live.armed = None;
            self.queues.mark_eventful(live, slot);
            return;
        }
        if live.end == End::NotYet && live.tuning.tune(&mut live.proto, now) {
            // The peer gets its larger window.
            self.queues.mark(live, slot);
        }
        if let Some(migration) = &mut live.migration {
            migration.sent(now);
        }
        if live.end == End::NotYet
            && let Some(deadline) = live.deadline()
            && live.armed.is_none_or(|armed| deadline < armed)
        {
            live.armed = Some(deadline);
            self.deadlines.push(deadline, slot);
            let (connections, mut seen) = (&self.connections, HashSet::new());
            // A connection that is armed again has two entries.
            self.deadlines.tidy(connections.len(), |deadline, slot| {
                is_armed(connections, slot, deadline) && seen.insert(slot)
            });
        }
    }

    /// When [`Core::handle_timeouts`] must be called at the latest; valid once [`Core::transmit`]
    /// returned `None`. May be earlier than necessary, never later.
    pub fn next_timeout(&mut self) -> Option<Instant> {
        let connections = &self.connections;
        let armed = |deadline, slot| is_armed(connections, slot, deadline);
        self.deadlines.first_live(armed).map(|(first, _)| first)
    }

    /// Handles expired deadlines.
    pub fn handle_timeouts(&mut self, now: Instant) {
        while let Some((deadline, slot)) = self.deadlines.pop_due(now) {
            let Some(live) = self.connections.at_mut(slot) else {
                continue;
            };
            if live.armed != Some(deadline) {
                continue;
            }
            live.armed = None;
            // The deadline may have moved since the entry was pushed.
            match live.deadline() {
                Some(real) if real > now => {
                    live.armed = Some(real);
                    self.deadlines.push(real, slot);
                }
                Some(_) => {
                    live.log_now(now);
                    if live.is_late(now) {
                        let error = ConnectionError::HandshakeTimedOut {
                            address: canonical(live.proto.remote_address()),
                            has_answered: live.first_packet == FirstPacket::Received,
                        };
                        self.unanswered_count -=
                            Self::give_up(&mut self.endpoint, live, now, error);
                    } else {
                        contain::step(&mut self.endpoint, live, |_, live| {
                            live.repeat_migration(now);
                            live.proto.handle_timeout(now);
                        });
                    }
                    self.queues.mark(live, slot);
                }
                None => {}
            }
        }
    }
}

/// An IPv4 address instead of its IPv4-mapped IPv6 form.
fn canonical(address: SocketAddr) -> SocketAddr {
    match address.ip().to_canonical() {
        IpAddr::V4(ip) => (ip, address.port()).into(),
        IpAddr::V6(_) => address,
    }
}

/// Whether this deadline is the connection's current heap entry.
fn is_armed(connections: &Slab<Box<Live>>, slot: u32, deadline: Instant) -> bool {
    let live = connections.at(slot);
    live.is_some_and(|live| live.armed == Some(deadline))
}
