//! The protocol without I/O: no socket, clock or task.
//!
//! Owns: the engine's endpoint, its connections, and their deadlines. Called by:
//! [`crate::Endpoint`]; embedders with their own loop and sockets. Never reads a clock (`now` is an
//! argument), sends, waits or calls back.
//!
//! One turn of the driver:
//!
//! ```text
//!   receive(now, datagram)*      datagrams that arrived
//!   handle_timeouts(now)         if next_timeout() has passed
//!   next_event()*                the application reads, writes, opens, closes by connection(handle)
//!   transmit(now, …)*            one message (GSO batch of datagrams) per call
//!   next_timeout()               when to call again at the latest
//! ```
//!
//! | file | contents |
//! |---|---|
//! | `connection` | operations on one connection |
//! | `datagrams` | queue of outgoing datagrams |
//! | `deadlines` | deadlines of connections, and the work due at them |
//! | `event` | events |
//! | `handle` | handle of a connection |
//! | `handshakes` | decisions about a new client |
//! | `ids` | connection ids, for applications that route datagrams themselves |
//! | `live` | state of each connection, and the queues of those to look at |
//! | `staged` | small writes, merged into one chunk |
//! | `migration` | probes of a client that migrated |
//! | `outcome` | what reads and writes come to |
//! | `resets` | resets that deliver a stream's first bytes |
//! | `tuning` | windows that adapt to a connection |
//! | `amplification` | limit on what is sent to an unvalidated address |

mod amplification;
mod connection;
mod contain;
mod datagrams;
mod deadlines;
mod event;
mod handle;
mod handshakes;
mod ids;
mod live;
mod migration;
mod outcome;
mod resets;
mod staged;
mod tuning;

use crate::config::{ClientConfig, EndpointConfig, Kept, ServerConfig, Transport};
use crate::error::{ConnectError, ConnectionError};
use crate::limits::{MESSAGE_BYTES_MAX, RESPONSES_MAX};
use crate::proto::unprotected::{self, FirstPackets};
use crate::proto::{self, final_sizes, keys, varint, version};
use crate::qlog::{self, Log, Qlog, Trace, VantagePoint};
use crate::stats::EndpointStats;
use bytes::Bytes;
use datagrams::Datagrams;
use ids::Ids;
use live::{Confirmation, End, FirstPacket, Idle, Live, Loss, Queues};
use resets::Resets;
use ringloop::embed::Deadlines;
use ringloop::embed::slab::Slab;
use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;
use tuning::Tuning;

pub use crate::message::{BatchMemory, Datagram, Transmit};
pub use connection::{Connection, Handshake};
pub use datagrams::DatagramRefusal;
pub use event::{Event, Incoming};
pub use handle::Handle;
pub use outcome::{Read, Written};

/// What a connection has to send.
enum Next {
    Message(Transmit),
    /// Closed just now; send that.
    Closed,
    Nothing,
}

/// An endpoint without I/O; the module docs show how to drive it.
pub struct Core {
    endpoint: proto::Endpoint,
    connections: Slab<Box<Live>>,
    /// The slot of each of the engine's connections.
    by_key: Vec<u32>,
    queues: Queues,
    /// By the connections' slots; the one that counts is `Live::armed`.
    deadlines: Deadlines<Instant, u32>,
    incoming: VecDeque<Incoming>,
    responses: VecDeque<(Transmit, Vec<u8>)>,
    /// Settings for clients' connections.
    kept: Arc<Kept>,
    /// Their log.
    qlog: Option<Qlog>,
    spare: Vec<u8>,
    live_count: usize,
    /// Clients' connections that are open and have received nothing yet.
    unanswered_count: usize,
    /// Counters of clients' handshakes, without the current gauges.
    clients: EndpointStats,
    /// Connection ids recorded as they are made.
    ids: Option<proto::ids::Log>,
}

impl std::fmt::Debug for Core {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Core").field("connections", &self.live_count).finish_non_exhaustive()
    }
}

impl Core {
    /// Creates a core that accepts connections if `server` is given, and makes them.
    ///
    /// `finds_mtu`: packets are never fragmented on the path, so it may probe for the MTU.
    pub fn new(config: &EndpointConfig, server: Option<ServerConfig>, finds_mtu: bool) -> Self {
        let qlog = server.as_ref().and_then(|server| server.qlog.clone());
        let kept = server.as_ref().map(|server| server.kept);
        let kept = kept.unwrap_or_else(|| Kept::from(&Transport::default()));
        let server = server.map(|server| Arc::new(server.config));
        let ids = config.ids.clone();
        let config = Arc::new(config.config.clone());
        Self {
            endpoint: proto::Endpoint::new(config, server, finds_mtu, None),
            connections: Slab::default(),
            by_key: Vec::new(),
            queues: Queues::default(),
            deadlines: Deadlines::default(),
            incoming: VecDeque::new(),
            responses: VecDeque::new(),
            kept: Arc::new(kept),
            qlog,
            spare: Vec::new(),
            live_count: 0,
            unanswered_count: 0,
            clients: EndpointStats::default(),
            ids,
        }
    }

    /// Sets how new clients are accepted; `None`: not at all.
    pub fn set_server(&mut self, server: Option<ServerConfig>) {
        if let Some(server) = &server {
            self.kept = Arc::new(server.kept);
            self.qlog.clone_from(&server.qlog);
        }
        self.endpoint.set_server_config(server.map(|server| Arc::new(server.config)));
    }

    /// The number of connections, including closed ones that are not yet drained.
    pub fn connection_count(&self) -> usize {
        self.live_count
    }

    /// Statistics of handshakes.
    pub fn stats(&self) -> EndpointStats {
        let connections = self.connections.iter();
        let handshaking = connections.filter(|live| live.proto.is_handshaking());
        EndpointStats {
            connections: self.live_count,
            handshakes: handshaking.count(),
            ..self.clients
        }
    }

    /// Whether packets that belong to no connection, such as refusals, are pending.
    pub fn has_responses(&self) -> bool {
        !self.responses.is_empty()
    }

    /// Whether there may be something to send; `false` once [`Core::transmit`] returned `None`.
    pub fn may_send(&self) -> bool {
        self.has_responses() || !self.queues.active.is_empty()
    }

    /// Checks whether outgoing connections can continue on another socket.
    ///
    /// # Errors
    /// `InvalidInput` if there are any and the new address is of another family; `WouldBlock` while
    /// one of their handshakes is not confirmed (RFC 9000 §9).
    pub fn check_move(&self, from: SocketAddr, to: SocketAddr) -> io::Result<()> {
        let mut movers = self.connections.iter().filter(|live| {
            let is_open = !live.proto.is_closed();
            is_open && live.proto.side() == proto::Side::Client
        });
        if from.is_ipv4() == to.is_ipv4() {
            if movers.all(|live| live.is_confirmed()) {
                return Ok(());
            }
            return Err(io::Error::new(
                io::ErrorKind::WouldBlock,
                "the handshake of an outgoing connection is not confirmed, and the connection would be lost: wait until \
                 Connection::is_confirmed",
            ));
        }
        if movers.next().is_none() {
            return Ok(());
        }
        let (old, new) = if from.is_ipv4() { ("IPv4", "IPv6") } else { ("IPv6", "IPv4") };
        let reason = format!(
            "the new socket is of {new}, and outgoing connections use {old}: \
             bind it to an address of {old}, or close them first"
        );
        Err(io::Error::new(io::ErrorKind::InvalidInput, reason))
    }

    /// Starts a connection to a server of this name.
    pub fn connect(
        &mut self,
        now: Instant,
        config: &ClientConfig,
        remote: SocketAddr,
        server_name: &str,
    ) -> Result<Handle, ConnectError> {
        let mut engine = config.of_one();
        let id = config.first_id.unwrap_or_else(proto::first_id);
        engine.initial_dst_cid_provider(Arc::new(move || id));
        let log = config.qlog.as_ref().and_then(|qlog| {
            let trace =
                Trace { vantage_point: VantagePoint::Client, original_id: id.to_string(), remote };
            qlog.open(now, &trace)
        });
        self.forget_ids();
        let resets = Resets::of(&config.kept, proto::Side::Client);
        let begun = resets::announced(resets.as_deref(), || {
            qlog::with_log(log.clone(), || {
                contain::attempt(|| self.endpoint.connect(now, engine, remote, server_name))
            })
        });
        let (key, proto) = begun.map_err(|lost| ConnectError::Failed(lost.to_string()))??;
        let handle = self.insert(now, (key, proto), &id, &config.kept, log);
        if let Some(live) = self.connections.get_mut(handle.0) {
            live.first_packet = FirstPacket::Awaited;
            let version = config.version;
            live.first_sent = Some(Box::new(FirstPackets { destination: id, version }));
            live.resets = resets;
            self.unanswered_count += 1;
        }
        Ok(handle)
    }

    /// Whether there are clients that received nothing yet, which [`Core::unreachable`] can end.
    pub fn has_unanswered(&self) -> bool {
        self.unanswered_count > 0
    }

    /// Reports that an address is unreachable (a send or ICMP error): clients of it that received
    /// nothing end with [`ConnectionError::Unreachable`]. For all other connections it counts as
    /// packet loss.
    pub fn unreachable(&mut self, now: Instant, address: SocketAddr, errno: i32) {
        if self.unanswered_count == 0 {
            return;
        }
        for (slot, live) in self.connections.iter_mut() {
            let remote = live.proto.remote_address();
            // The scope id may have been chosen since.
            let is_there = (remote.ip(), remote.port()) == (address.ip(), address.port());
            if live.first_packet == FirstPacket::Received || !is_there {
                continue;
            }
            let error = ConnectionError::Unreachable { address, errno };
            self.unanswered_count -= Self::give_up(&mut self.endpoint, live, now, error);
            self.queues.mark(live, slot);
        }
    }

    /// Ends a connection whose handshake failed locally; returns how many unanswered connections
    /// that were. If nothing was received from the peer, no close is sent: it would not arrive either.
    fn give_up(
        endpoint: &mut proto::Endpoint,
        live: &mut Live,
        now: Instant,
        error: ConnectionError,
    ) -> usize {
        live.loss = Loss::Unreported(Box::new(error));
        live.proto.close(now, varint(0), Bytes::new());
        let was_unanswered = live.note_answered();
        if was_unanswered {
            endpoint.handle_event(live.key, proto::EndpointEvent::drained());
            live.end = End::Drained;
            live.armed = None;
        }
        usize::from(was_unanswered)
    }

    /// Processes a received datagram.
    pub fn receive(&mut self, now: Instant, mut datagram: Datagram) {
        version::receive(&mut datagram.bytes);
        let (len, is_unprotected) = unprotected::look(&datagram.bytes);
        datagram.bytes.truncate(len);
        let unprotected = is_unprotected.then(|| datagram.bytes.to_vec());
        let ecn = proto::EcnCodepoint::from_bits(datagram.ecn);
        let (source, local_ip) = (datagram.source, datagram.local_ip);
        let mut buf = std::mem::take(&mut self.spare);
        buf.clear();
        let (endpoint, bytes) = (&mut self.endpoint, datagram.bytes);
        // A datagram that makes the engine panic counts as lost.
        let event =
            contain::attempt(|| endpoint.handle(now, source, local_ip, ecn, bytes, &mut buf));
        match event.ok().flatten() {
            Some(proto::DatagramEvent::ConnectionEvent(key, event)) => {
                // No slot: the engine panicked while creating it, out of memory.
                let slot = self.by_key.get(key.0).copied().unwrap_or(u32::MAX);
                if let Some(live) = self.connections.at_mut(slot)
                    && unprotected
                        .is_none_or(|packet| contain::attempt(|| live.heeds(&packet)) == Ok(true))
                {
                    live.log_now(now);
                    live.idle.note_heard(now);
                    self.unanswered_count -= usize::from(live.note_answered());
                    keys::take_handshake_opened();
                    if live.final_sizes.is_some() {
                        final_sizes::watch();
                    }
                    contain::step(&mut self.endpoint, live, |_, live| {
                        live.proto.handle_event(event);
                        live.settle_resets();
                        live.datagrams.note_packet(&mut live.proto);
                    });
                    if let Some(sizes) = &mut live.final_sizes {
                        sizes.extend(final_sizes::take());
                    }
                    if let Some(amplification) = &mut live.amplification {
                        amplification.is_over |= keys::take_handshake_opened();
                    }
                    self.queues.mark(live, slot);
                }
            }
            Some(proto::DatagramEvent::NewConnection(inner)) => {
                self.incoming.push_back(Incoming {
                    inner: Box::new(inner),
                    len,
                    kept: Arc::clone(&self.kept),
                    qlog: self.qlog.clone(),
                });
            }
            Some(proto::DatagramEvent::Response(transmit)) => {
                self.respond(&transmit, std::mem::take(&mut buf));
            }
            None => {}
        }
        self.spare = buf;
    }

    fn respond(&mut self, transmit: &proto::Transmit, mut buf: Vec<u8>) {
        self.forget_ids();
        if self.responses.len() < RESPONSES_MAX {
            buf.truncate(transmit.size);
            self.responses.push_back((transmit.into(), buf));
        }
    }

    /// Ids made for a Retry or a refusal belong to no connection.
    fn forget_ids(&self) {
        if let Some(ids) = &self.ids {
            ids.take();
        }
    }

    fn insert(
        &mut self,
        now: Instant,
        (key, proto): (proto::ConnectionHandle, proto::Connection),
        original: &proto::ConnectionId,
        kept: &Kept,
        log: Option<Arc<Log>>,
    ) -> Handle {
        let ids = self.ids.as_ref().map(|log| Ids::new(log, original));
        let live = Box::new(Live {
            proto,
            key,
            is_active: false,
            is_eventful: false,
            armed: None,
            end: End::NotYet,
            closing: None,
            staged: staged::Staged::default(),
            ids: ids.map(Box::new),
            log,
            tuning: Tuning::new(kept, now),
            datagrams: Datagrams::new(kept),
            confirmation: Confirmation::Incomplete,
            first_packet: FirstPacket::Received,
            first_sent: None,
            migration: None,
            final_sizes: None,
            handshake_deadline: kept.handshake_timeout.and_then(|timeout| now.checked_add(timeout)),
            loss: Loss::None,
            idle: Idle::new(kept, now),
            is_broken: false,
            amplification: None,
            resets: None,
            issues: 0,
        });
        let handle = self.connections.insert(live);
        if self.by_key.len() <= key.0 {
            self.by_key.resize(key.0 + 1, u32::MAX);
        }
        self.by_key[key.0] = handle.index;
        if let Some(live) = self.connections.get_mut(handle) {
            self.queues.mark(live, handle.index);
        }
        self.live_count += 1;
        Handle(handle)
    }

    /// A connection by its handle; `None` once it was released.
    pub fn connection(&mut self, handle: Handle) -> Option<Connection<'_>> {
        let live = self.connections.get_mut(handle.0)?;
        Some(Connection::new(live, &mut self.queues, handle.0.index))
    }

    /// Forgets a drained connection; returns `false` without effect if it is not drained.
    pub fn release(&mut self, handle: Handle) -> bool {
        let live = self.connections.get(handle.0);
        let is_over = live.is_some_and(|live| live.end == End::Reported);
        is_over && self.connections.remove(handle.0).is_some()
    }

    /// The next event.
    pub fn next_event(&mut self) -> Option<Event> {
        if let Some(incoming) = self.incoming.pop_front() {
            return Some(Event::Incoming(incoming));
        }
        while let Some(&slot) = self.queues.eventful.front() {
            let handle = self.connections.entry(slot).map(|(key, _)| Handle(key));
            if let (Some(handle), Some(live)) = (handle, self.connections.at_mut(slot)) {
                // Before the peer learns of an id and may use it.
                if live.ids.is_some() {
                    Self::exchange(&mut self.endpoint, live);
                }
                if let Some(change) = live.ids.as_mut().and_then(|ids| ids.next_change()) {
                    return Some(event::id_changed(handle, change));
                }
                let before = live.confirmation;
                if let Some(event) = live.next_event(handle) {
                    if live.proto.side().is_server() && before == Confirmation::Incomplete {
                        Self::count(&mut self.clients, &event);
                    }
                    return Some(event);
                }
                live.is_eventful = false;
                if live.end == End::Drained {
                    live.end = End::Reported;
                    self.live_count -= 1;
                    self.unanswered_count -= usize::from(live.note_answered());
                    self.queues.eventful.pop_front();
                    return Some(Event::Drained(handle));
                }
            }
            self.queues.eventful.pop_front();
        }
        None
    }

    /// Counts the outcome of a client's handshake.
    fn count(clients: &mut EndpointStats, event: &Event) {
        match event {
            Event::Connected(_) => clients.completed += 1,
            Event::Lost(_, error) => clients.failed.count(error),
            _ => {}
        }
    }

    /// Writes the next message into `buf`, which is cleared first: at most `segments_max` datagrams
    /// of one length. `None`: nothing may be sent now.
    pub fn transmit(
        &mut self,
        now: Instant,
        segments_max: usize,
        buf: &mut Vec<u8>,
    ) -> Option<Transmit> {
        buf.clear();
        if let Some((transmit, bytes)) = self.responses.pop_front() {
            buf.extend_from_slice(&bytes);
            return Some(transmit);
        }
        while let Some(&slot) = self.queues.active.front() {
            let Some(live) = self.connections.at_mut(slot) else {
                self.queues.active.pop_front();
                continue;
            };
            live.log_now(now);
            let next = contain::step(&mut self.endpoint, live, |endpoint, live| {
                Self::next_of(endpoint, live, now, segments_max, buf)
            });
            if live.datagrams.is_unblocked() {
                self.queues.mark_eventful(live, slot);
            }
            match next {
                // One message per connection and turn, so that a busy connection does not delay the
                // others.
                Some(Next::Message(transmit)) => {
                    self.queues.active.rotate_left(1);
                    return Some(transmit);
                }
                Some(Next::Closed) => continue,
                Some(Next::Nothing) | None => {}
            }
            live.is_active = false;
            self.queues.active.pop_front();
            self.settle(now, slot);
        }
        None
    }

    /// What a connection has to send.
    fn next_of(
        endpoint: &mut proto::Endpoint,
        live: &mut Live,
        now: Instant,
        segments_max: usize,
        buf: &mut Vec<u8>,
    ) -> Next {
        Self::exchange(endpoint, live);
        if live.retires_unsent_ids() && !live.proto.is_closed() {
            live.fail(now, "it retired connection ids that were not sent to it");
        }
        live.flush(None);
        live.datagrams.feed(&mut live.proto, now);
        let fitting = MESSAGE_BYTES_MAX / usize::from(live.proto.current_mtu()).max(1);
        let segments_max = segments_max.min(fitting).max(1);
        if let Some(resets) = &live.resets {
            resets.make_room();
        }
        if live.end == End::NotYet
            && let Some(transmit) = live.next_message(now, segments_max, buf)
        {
            return Next::Message(transmit);
        }
        if live.close_now(now) { Next::Closed } else { Next::Nothing }
    }

    /// Passes the connection's events to the endpoint, and its replies back.
    fn exchange(endpoint: &mut proto::Endpoint, live: &mut Live) {
        while !live.is_broken
            && let Some(event) = live.proto.poll_endpoint_events()
        {
            if live.end != End::NotYet {
                continue;
            }
            if event.is_drained() {
                live.end = End::Drained;
            }
            if let Some(ids) = &mut live.ids {
                ids.before(&event);
            }
            if let Some(answer) = endpoint.handle_event(live.key, event) {
                live.issues += 1;
                live.proto.handle_event(answer);
            }
            if let Some(ids) = &mut live.ids {
                ids.issued();
            }
        }
    }
}
