//! When a connection wants to be looked at, and what is done then.

use super::live::{End, Hearing, Live};
use super::{Core, contain};
use crate::error::ConnectionError;
use ringloop::embed::slab::Slab;
use std::collections::HashSet;
use std::net::{IpAddr, SocketAddr};
use std::time::Instant;

impl Core {
    /// Nothing is left to be sent: see when to look again.
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
            // The peer is to hear of its larger window.
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
            // One that is armed again stands there twice.
            self.deadlines.tidy(connections.len(), |deadline, slot| {
                is_armed(connections, slot, deadline) && seen.insert(slot)
            });
        }
    }

    /// When [`Core::handle_timeouts`] has to be called at the latest; ask after [`Core::transmit`] had nothing more.
    /// It may be earlier than needed, never later.
    pub fn next_timeout(&mut self) -> Option<Instant> {
        let connections = &self.connections;
        let armed = |deadline, slot| is_armed(connections, slot, deadline);
        self.deadlines.first_live(armed).map(|(first, _)| first)
    }

    /// Do what is due.
    pub fn handle_timeouts(&mut self, now: Instant) {
        while let Some((deadline, slot)) = self.deadlines.pop_due(now) {
            let Some(live) = self.connections.at_mut(slot) else {
                continue;
            };
            if live.armed != Some(deadline) {
                continue;
            }
            live.armed = None;
            // The deadline may have moved on since it was put down.
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
                            has_answered: live.hearing == Hearing::Heard,
                        };
                        self.unheard_count -= Self::give_up(&mut self.endpoint, live, now, error);
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

/// An address as people know it: not as a socket of IPv6 names a peer of IPv4.
fn canonical(address: SocketAddr) -> SocketAddr {
    match address.ip().to_canonical() {
        IpAddr::V4(ip) => (ip, address.port()).into(),
        IpAddr::V6(_) => address,
    }
}

/// Whether it is this deadline that stands in the heap for a connection.
fn is_armed(connections: &Slab<Box<Live>>, slot: u32, deadline: Instant) -> bool {
    let live = connections.at(slot);
    live.is_some_and(|live| live.armed == Some(deadline))
}
