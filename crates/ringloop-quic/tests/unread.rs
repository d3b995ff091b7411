//! Unread datagrams: how many of the batches they came in they keep.
#![allow(clippy::unwrap_used)]

use ringloop_quic::config::{EndpointConfig, Transport};
use ringloop_quic::core::{Core, Datagram, Event, Handle};
use ringloop_quic::{Bytes, BytesMut};
use ringloop_testing::quic::{client_config, server_config};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

const BATCH_BYTES: usize = 64 << 10;
const KEPT_BATCHES_MAX: usize = 400;

/// Two ends that are connected, with a network that loses nothing.
struct Pair {
    now: Instant,
    client: Core,
    server: Core,
    ours: Handle,
    theirs: Handle,
    /// The rest of each batch that the server got, in which there was one packet.
    batches: Vec<BytesMut>,
}

fn address(end: u8) -> SocketAddr {
    ([192, 0, 2, end], 4433).into()
}

fn packets(core: &mut Core, now: Instant) -> Vec<Vec<u8>> {
    let mut packets = Vec::new();
    let mut buf = Vec::new();
    while core.transmit(now, 1, &mut buf).is_some() {
        packets.push(buf.clone());
    }
    packets
}

impl Pair {
    fn new(transport: &Transport) -> Self {
        let now = Instant::now();
        let config = EndpointConfig::default();
        let mut client = Core::new(&config, None, false);
        let server_config = server_config().transport(transport).unwrap();
        let server = Core::new(&config, Some(server_config), false);
        let ours = client.connect(now, &client_config(), address(2), "localhost").unwrap();
        let mut pair = Self { now, client, server, ours, theirs: ours, batches: Vec::new() };
        for _ in 0..20 {
            pair.exchange();
        }
        assert!(!pair.client.connection(ours).unwrap().is_handshaking());
        pair
    }

    fn exchange(&mut self) {
        for packet in packets(&mut self.client, self.now) {
            let mut batch = BytesMut::with_capacity(BATCH_BYTES);
            batch.extend_from_slice(&packet);
            let bytes = batch.split();
            self.batches.push(batch);
            let datagram = Datagram { source: address(1), local_ip: None, ecn: 0, bytes };
            self.server.receive(self.now, datagram);
        }
        while let Some(event) = self.server.next_event() {
            if let Event::Incoming(incoming) = event {
                self.theirs = self.server.accept(self.now, incoming, None).unwrap();
            }
        }
        for packet in packets(&mut self.server, self.now) {
            let bytes = BytesMut::from(&packet[..]);
            let datagram = Datagram { source: address(2), local_ip: None, ecn: 0, bytes };
            self.client.receive(self.now, datagram);
        }
        while self.client.next_event().is_some() {}
        self.now += Duration::from_millis(1);
        self.client.handle_timeouts(self.now);
        self.server.handle_timeouts(self.now);
    }

    /// Sends datagrams, each in a packet of its own.
    fn send(&mut self, numbers: std::ops::Range<u32>) {
        for number in numbers {
            let bytes = Bytes::copy_from_slice(&number.to_be_bytes());
            self.client.connection(self.ours).unwrap().send_datagram(bytes, false).unwrap();
            self.exchange();
        }
    }

    fn read(&mut self) -> Option<u32> {
        let bytes = self.server.connection(self.theirs).unwrap().receive_datagram()?;
        Some(u32::from_be_bytes(bytes[..].try_into().unwrap()))
    }

    /// Batches whose memory is still used.
    fn kept_count(&mut self) -> usize {
        self.batches
            .iter_mut()
            .filter_map(|rest| (!rest.try_reclaim(BATCH_BYTES)).then_some(()))
            .count()
    }
}

#[test]
fn unread_datagrams_do_not_keep_their_batches() {
    let mut pair = Pair::new(&Transport::default());
    pair.send(0..3000);
    let kept_count = pair.kept_count();
    assert!(kept_count <= KEPT_BATCHES_MAX, "{kept_count} batches are kept");
    for number in 0..3000 {
        assert_eq!(pair.read(), Some(number));
    }
    assert_eq!(pair.read(), None);
    assert_eq!(pair.kept_count(), 0);
}

#[test]
fn order_is_kept_where_some_are_read_between() {
    let mut pair = Pair::new(&Transport::default());
    let mut next = 0;
    for round in 0..12 {
        pair.send(round * 200..(round + 1) * 200);
        for _ in 0..150 {
            assert_eq!(pair.read(), Some(next));
            next += 1;
        }
    }
    while let Some(number) = pair.read() {
        assert_eq!(number, next);
        next += 1;
    }
    assert_eq!(next, 2400);
    let stats = pair.server.connection(pair.theirs).unwrap().stats();
    assert_eq!((stats.datagrams_received, stats.datagrams_unread), (2400, 0));
}

#[test]
fn oldest_beyond_the_buffer_are_dropped_and_counted() {
    let transport = Transport { datagram_receive_buffer: Some(20_000), ..Transport::default() };
    let mut pair = Pair::new(&transport);
    pair.send(0..3000);
    let first = pair.read().unwrap();
    // Each counts more than its own four bytes.
    assert!((1000..2700).contains(&first), "{first}");
    for number in first + 1..3000 {
        assert_eq!(pair.read(), Some(number));
    }
    assert_eq!(pair.read(), None);
    let stats = pair.server.connection(pair.theirs).unwrap().stats();
    assert_eq!(stats.datagrams_unread, u64::from(first));
}
