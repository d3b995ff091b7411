//! A client that migrates over a lossy network: two cores, with a simulated network and clock.
#![allow(clippy::unwrap_used)]

use ringloop_quic::config::EndpointConfig;
use ringloop_quic::core::{Connection, Core, Datagram, Event, Handle, Read};
use ringloop_quic::{BytesMut, Direction};
use ringloop_testing::quic::{client_config, server_config};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

const DELAY: Duration = Duration::from_millis(10);

struct Network {
    now: Instant,
    client: Core,
    server: Core,
    ours: Handle,
    theirs: Option<Handle>,
    /// The client's address; what is sent elsewhere is lost.
    address: SocketAddr,
    dice: u64,
    lost_of_thousand: u64,
    /// By arrival time: whether it is for the server, the client's address, and the bytes.
    wire: BTreeMap<(Instant, u64), (bool, SocketAddr, Vec<u8>)>,
    sent_count: u64,
}

fn server_address() -> SocketAddr {
    ([192, 0, 2, 2], 443).into()
}

impl Network {
    fn new(seed: u64, lost_of_thousand: u64) -> Self {
        let now = Instant::now();
        let config = |end: u8| {
            let mut bytes = [end; 32];
            bytes[..8].copy_from_slice(&seed.to_le_bytes());
            EndpointConfig::default().seed(Some(bytes))
        };
        let mut client = Core::new(&config(1), None, true);
        let server = Core::new(&config(2), Some(server_config()), true);
        let ours = client.connect(now, &client_config(), server_address(), "localhost").unwrap();
        Self {
            now,
            client,
            server,
            ours,
            theirs: None,
            address: ([192, 0, 2, 1], 40_000).into(),
            dice: seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1,
            lost_of_thousand,
            wire: BTreeMap::new(),
            sent_count: 0,
        }
    }

    fn is_lost(&mut self) -> bool {
        self.dice ^= self.dice << 13;
        self.dice ^= self.dice >> 7;
        self.dice ^= self.dice << 17;
        (self.dice >> 20) % 1000 < self.lost_of_thousand
    }

    fn send(&mut self) {
        let mut buf = Vec::new();
        for to_server in [true, false] {
            loop {
                let core = if to_server { &mut self.client } else { &mut self.server };
                let Some(transmit) = core.transmit(self.now, 16, &mut buf) else {
                    break;
                };
                let segment_len = transmit.segment_len.unwrap_or(buf.len()).max(1);
                let client = if to_server { self.address } else { transmit.destination };
                for bytes in buf.chunks(segment_len) {
                    self.sent_count += 1;
                    if !self.is_lost() {
                        let arrival = (self.now + DELAY, self.sent_count);
                        self.wire.insert(arrival, (to_server, client, bytes.to_vec()));
                    }
                }
            }
        }
    }

    fn serve(&mut self) {
        while let Some(event) = self.server.next_event() {
            if let Event::Incoming(incoming) = event {
                self.theirs = self.server.accept(self.now, incoming, None).ok();
            }
        }
        while self.client.next_event().is_some() {}
        // The server echoes.
        let Some(mut connection) = self.theirs.and_then(|theirs| self.server.connection(theirs))
        else {
            return;
        };
        while let Some(stream) = connection.accept(Direction::Bi) {
            connection.write(stream, b"answer").unwrap();
        }
    }

    /// Advances to the next event.
    fn step(&mut self) {
        self.client.handle_timeouts(self.now);
        self.server.handle_timeouts(self.now);
        self.serve();
        self.send();
        self.serve();
        let arrival = self.wire.keys().next().map(|(at, _)| *at);
        let timeouts = [self.client.next_timeout(), self.server.next_timeout()];
        let next = timeouts.into_iter().flatten().chain(arrival).min();
        // There is no next event once the connection is closed.
        let next = next.unwrap_or(self.now + Duration::from_secs(1));
        self.now = self.now.max(next);
        while let Some(entry) = self.wire.first_entry()
            && entry.key().0 <= self.now
        {
            let (to_server, client, bytes) = entry.remove();
            let source = if to_server { client } else { server_address() };
            let datagram =
                Datagram { source, local_ip: None, ecn: 0, bytes: BytesMut::from(&bytes[..]) };
            if to_server {
                self.server.receive(self.now, datagram);
            } else if client == self.address {
                self.client.receive(self.now, datagram);
            }
        }
    }

    /// Steps until `condition`; returns how long that took, a minute at most.
    fn until(&mut self, mut condition: impl FnMut(&mut Self) -> bool) -> Option<Duration> {
        let begun = self.now;
        while !condition(self) {
            self.step();
            if self.now - begun > Duration::from_secs(60) {
                return None;
            }
        }
        Some(self.now - begun)
    }

    fn ours(&mut self) -> Option<Connection<'_>> {
        self.client.connection(self.ours)
    }
}

/// How long a client that migrated waits for an answer; `None`: forever. With `is_busy` much of its
/// data is in flight to the old address.
fn time_to_answer(net: &mut Network, to: SocketAddr, is_busy: bool) -> Option<Duration> {
    let busy_until = net.now + Duration::from_secs(u64::from(is_busy));
    net.until(|net| {
        if net.now < busy_until {
            net.ours().unwrap().ping();
        }
        net.now >= busy_until
    });
    net.address = to;
    let mut connection = net.ours().unwrap();
    assert!(connection.local_address_changed());
    let stream = connection.open(Direction::Bi).unwrap();
    connection.write(stream, b"question").unwrap();
    net.until(|net| {
        let Some(mut connection) = net.ours() else {
            return false;
        };
        matches!(connection.read(stream, usize::MAX, |_| true), Ok(Read::Some(count)) if count > 0)
    })
}

/// Of 200 clients that migrate, how many wait for longer than two seconds.
fn slow_count(lost_of_thousand: u64, to: SocketAddr, is_busy: bool) -> usize {
    let is_slow = |seed: &u64| {
        let mut net = Network::new(*seed, lost_of_thousand);
        let confirmed = net.until(|net| net.ours().is_some_and(|ours| ours.is_confirmed()));
        confirmed.is_some()
            && time_to_answer(&mut net, to, is_busy)
                .is_none_or(|time| time > Duration::from_secs(2))
    };
    (1..=200).filter(is_slow).count()
}

#[test]
fn migration_over_lossy_network_recovers_quickly() {
    let port: SocketAddr = ([192, 0, 2, 1], 40_001).into();
    let host: SocketAddr = ([192, 0, 2, 3], 40_000).into();
    for to in [port, host] {
        for is_busy in [false, true] {
            assert_eq!(slow_count(0, to, is_busy), 0);
            assert_eq!(slow_count(100, to, is_busy), 0, "{to} {is_busy}");
            // The remaining ones lost several probes in a row.
            let slow = slow_count(300, to, is_busy);
            assert!(slow <= 12, "{slow} of 200, {to} {is_busy}");
        }
    }
}
