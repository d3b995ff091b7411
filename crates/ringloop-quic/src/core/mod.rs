//! The protocol without I/O: no socket, no clock, no task.
//!
//! Owns: the engine's endpoint, its connections, and when each of them wants to be looked at. Called by:
//! [`crate::Endpoint`]; embedders with a loop and sockets of their own. Never does: read a clock (`now` is an
//! argument), send, wait, call back.
//!
//! One turn of whoever drives it:
//!
//! ```text
//!   receive(now, datagram)*      what came in
//!   handle_timeouts(now)         where next_timeout() has passed
//!   next_event()*                tell the program; it reads, writes, opens, closes by connection(handle)
//!   transmit(now, …)*            what goes out, one message (a train of datagrams) a call
//!   next_timeout()               when to come back at the latest
//! ```
//!
//! | file | the one thing it is about |
//! |---|---|
//! | `connection` | what a program does with one connection |
//! | `datagrams` | datagrams that wait and may be given up |
//! | `deadlines` | when a connection wants to be looked at, and what is done then |
//! | `event` | what has happened |
//! | `handle` | the name of a connection |
//! | `handshakes` | what becomes of a client that has come |
//! | `ids` | connection ids, for programs that route datagrams themselves |
//! | `live` | what is kept about each connection, and which have to be looked at |
//! | `staged` | small writes, gathered into one piece |
//! | `migration` | a client that has moved says so until it is answered |
//! | `tuning` | windows that follow what a connection does |
//! | `amplification` | what is sent to an address before it is validated |

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
mod staged;
mod tuning;

use crate::config::{ClientConfig, EndpointConfig, Kept, ServerConfig, Transport};
use crate::error::{ConnectError, ConnectionError};
use crate::limits::{MESSAGE_BYTES_MAX, RESPONSES_MAX};
use crate::proto::{self, keys, varint, version};
use crate::qlog::{self, Log, Qlog, Trace, VantagePoint};
use crate::stats::EndpointStats;
use bytes::Bytes;
use datagrams::Datagrams;
use ids::Ids;
use live::{Confirmation, End, Hearing, Live, Loss, Queues};
use ringloop::embed::Deadlines;
use ringloop::embed::slab::Slab;
use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;
use tuning::Tuning;

pub use crate::message::{Datagram, Transmit};
pub use connection::{Connection, Handshake, Read, Written};
pub use datagrams::DatagramRefusal;
pub use event::{Event, Incoming};
pub use handle::Handle;

/// What a connection has to send.
enum Next {
    Message(Transmit),
    /// It was closed now, which is to be sent.
    Closed,
    Nothing,
}

/// An endpoint without I/O. See the module's text for how it is driven.
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
    /// What is kept about the connections of clients.
    kept: Arc<Kept>,
    /// Where they are logged.
    qlog: Option<Qlog>,
    spare: Vec<u8>,
    live_count: usize,
    /// Connections of which nothing has been heard, but that are not over.
    unheard_count: usize,
    /// What has become of clients; what there is now is not in it.
    clients: EndpointStats,
    /// What is known of connection ids as they are made.
    ids: Option<proto::ids::Log>,
}

impl std::fmt::Debug for Core {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Core")
            .field("connections", &self.live_count)
            .finish_non_exhaustive()
    }
}

impl Core {
    /// A core that takes connections where `server` says how, and makes them.
    ///
    /// `finds_mtu`: whether what it sends is never fragmented on the way, so that it may look for the path's MTU.
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
            unheard_count: 0,
            clients: EndpointStats::default(),
            ids,
        }
    }

    /// How clients that come from now on are taken; `None`: not at all.
    pub fn set_server(&mut self, server: Option<ServerConfig>) {
        if let Some(server) = &server {
            self.kept = Arc::new(server.kept);
            self.qlog.clone_from(&server.qlog);
        }
        self.endpoint
            .set_server_config(server.map(|server| Arc::new(server.config)));
    }

    /// How many connections there are, those included that are over and not yet drained.
    pub fn connection_count(&self) -> usize {
        self.live_count
    }

    /// What has become of handshakes.
    pub fn stats(&self) -> EndpointStats {
        let connections = self.connections.iter();
        let handshaking = connections.filter(|live| live.proto.is_handshaking());
        EndpointStats {
            connections: self.live_count,
            handshakes: handshaking.count(),
            ..self.clients
        }
    }

    /// Whether answers that belong to no connection, such as refusals, wait to be sent.
    pub fn has_responses(&self) -> bool {
        !self.responses.is_empty()
    }

    /// Whether there may be something to send; after [`Core::transmit`] had nothing more, there is not.
    pub fn may_send(&self) -> bool {
        self.has_responses() || !self.queues.active.is_empty()
    }

    /// Whether the connections that were made here can go on from another socket.
    ///
    /// Errors: `InvalidInput` where there are some and the socket's address is of another family than the last one's;
    /// `WouldBlock` while the handshake of one of them is not confirmed (RFC 9000 §9).
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
                "the handshake of a connection that was made here is not confirmed, and it would be lost: wait until \
                 Connection::is_confirmed",
            ));
        }
        if movers.next().is_none() {
            return Ok(());
        }
        let (old, new) = if from.is_ipv4() {
            ("IPv4", "IPv6")
        } else {
            ("IPv6", "IPv4")
        };
        let reason = format!(
            "the new socket is of {new}, and connections that were made here go on over {old}: \
             bind it to an address of {old}, or close them first"
        );
        Err(io::Error::new(io::ErrorKind::InvalidInput, reason))
    }

    /// Begin a connection to a server of this name.
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
            let trace = Trace {
                vantage_point: VantagePoint::Client,
                original_id: id.to_string(),
                remote,
            };
            qlog.open(now, &trace)
        });
        self.forget_ids();
        let begun = qlog::with_log(log.clone(), || {
            contain::attempt(|| self.endpoint.connect(now, engine, remote, server_name))
        });
        let (key, proto) = begun.map_err(|lost| ConnectError::Failed(lost.to_string()))??;
        let handle = self.insert(now, (key, proto), &id, &config.kept, log);
        if let Some(live) = self.connections.get_mut(handle.0) {
            live.hearing = Hearing::Nothing;
            self.unheard_count += 1;
        }
        Ok(handle)
    }

    /// Whether there are clients that have received nothing: [`Core::unreachable`] wants to be told of them.
    pub fn waits_for_first_answers(&self) -> bool {
        self.unheard_count > 0
    }

    /// Say that what was sent to an address was refused, here or on the way: clients of it that have received nothing are
    /// over, with [`ConnectionError::Unreachable`]. For all others it is a lost packet.
    pub fn unreachable(&mut self, now: Instant, address: SocketAddr, errno: i32) {
        if self.unheard_count == 0 {
            return;
        }
        for (slot, live) in self.connections.iter_mut() {
            let remote = live.proto.remote_address();
            // A scope may have been chosen since.
            let is_there = (remote.ip(), remote.port()) == (address.ip(), address.port());
            if live.hearing != Hearing::Nothing || !is_there {
                continue;
            }
            let error = ConnectionError::Unreachable { address, errno };
            self.unheard_count -= Self::give_up(&mut self.endpoint, live, now, error);
            self.queues.mark(live, slot);
        }
    }

    /// End a connection whose handshake leads nowhere; tells how many of those that are unheard that were. Where nothing was
    /// heard of the peer, it is not told either: that would go the same way.
    fn give_up(
        endpoint: &mut proto::Endpoint,
        live: &mut Live,
        now: Instant,
        error: ConnectionError,
    ) -> usize {
        live.loss = Loss::Unreported(Box::new(error));
        live.proto.close(now, varint(0), Bytes::new());
        let was_unheard = live.hear();
        if was_unheard {
            endpoint.handle_event(live.key, proto::EndpointEvent::drained());
            live.end = End::Drained;
            live.armed = None;
        }
        usize::from(was_unheard)
    }

    /// Take a datagram from the network.
    pub fn receive(&mut self, now: Instant, mut datagram: Datagram) {
        version::receive(&mut datagram.bytes);
        let len = datagram.bytes.len();
        let ecn = proto::EcnCodepoint::from_bits(datagram.ecn);
        let (source, local_ip) = (datagram.source, datagram.local_ip);
        let mut buf = std::mem::take(&mut self.spare);
        buf.clear();
        let (endpoint, bytes) = (&mut self.endpoint, datagram.bytes);
        // A datagram that it panics over is as good as lost.
        let event =
            contain::attempt(|| endpoint.handle(now, source, local_ip, ecn, bytes, &mut buf));
        match event.ok().flatten() {
            Some(proto::DatagramEvent::ConnectionEvent(key, event)) => {
                // None: the engine has panicked while it made this one, for want of memory.
                let slot = self.by_key.get(key.0).copied().unwrap_or(u32::MAX);
                if let Some(live) = self.connections.at_mut(slot) {
                    live.log_now(now);
                    self.unheard_count -= usize::from(live.hear());
                    keys::take_handshake_opened();
                    contain::step(&mut self.endpoint, live, |_, live| {
                        live.proto.handle_event(event);
                    });
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

    /// Ids that were made for a Retry or a refusal belong to no connection.
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
            hearing: Hearing::Heard,
            migration: None,
            handshake_deadline: kept
                .handshake_timeout
                .and_then(|timeout| now.checked_add(timeout)),
            loss: Loss::None,
            is_broken: false,
            amplification: None,
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

    /// What a program does with a connection; `None` once it was released.
    pub fn connection(&mut self, handle: Handle) -> Option<Connection<'_>> {
        let live = self.connections.get_mut(handle.0)?;
        Some(Connection::new(live, &mut self.queues, handle.0.index))
    }

    /// Forget a connection that is drained; returns `false`, and forgets nothing, where it is not yet.
    pub fn release(&mut self, handle: Handle) -> bool {
        let live = self.connections.get(handle.0);
        let is_over = live.is_some_and(|live| live.end == End::Reported);
        is_over && self.connections.remove(handle.0).is_some()
    }

    /// The next thing that has happened.
    pub fn next_event(&mut self) -> Option<Event> {
        if let Some(incoming) = self.incoming.pop_front() {
            return Some(Event::Incoming(incoming));
        }
        while let Some(&slot) = self.queues.eventful.front() {
            let handle = self.connections.entry(slot).map(|(key, _)| Handle(key));
            if let (Some(handle), Some(live)) = (handle, self.connections.at_mut(slot)) {
                // Before the peer is told of an id, and may use it.
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
                    self.unheard_count -= usize::from(live.hear());
                    self.queues.eventful.pop_front();
                    return Some(Event::Drained(handle));
                }
            }
            self.queues.eventful.pop_front();
        }
        None
    }

    /// Count what becomes of a client's handshake that was under way.
    fn count(clients: &mut EndpointStats, event: &Event) {
        match event {
            Event::Connected(_) => clients.completed += 1,
            Event::Lost(_, error) => clients.failed.count(error),
            _ => {}
        }
    }

    /// Put the next message into `buf`, which is cleared first: at most `segments_max` datagrams of one length.
    /// `None`: nothing may be sent now.
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
                // One message each: a connection that always has more does not hold up the others.
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

    /// Have a connection say what it has to send.
    fn next_of(
        endpoint: &mut proto::Endpoint,
        live: &mut Live,
        now: Instant,
        segments_max: usize,
        buf: &mut Vec<u8>,
    ) -> Next {
        Self::exchange(endpoint, live);
        live.flush(None);
        live.datagrams.feed(&mut live.proto, now);
        let fitting = MESSAGE_BYTES_MAX / usize::from(live.proto.current_mtu()).max(1);
        let segments_max = segments_max.min(fitting).max(1);
        if live.end == End::NotYet
            && let Some(transmit) = live.next_message(now, segments_max, buf)
        {
            return Next::Message(transmit);
        }
        if live.close_now(now) {
            Next::Closed
        } else {
            Next::Nothing
        }
    }

    /// Carry the connection's words to the endpoint, and its answers back.
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
                live.proto.handle_event(answer);
            }
            if let Some(ids) = &mut live.ids {
                ids.issued();
            }
        }
    }
}
