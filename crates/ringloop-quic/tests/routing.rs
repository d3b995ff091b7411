//! Events about connection ids for applications that route datagrams themselves: cores of one
//! connection, without I/O.
#![allow(clippy::unwrap_used)]

use bytes::BytesMut;
use ringloop_quic::config::{ClientConfig, EndpointConfig, ServerConfig};
use ringloop_quic::core::{Core, Datagram, Event, Handle};
use ringloop_quic::tls::{ClientTls, Roots, ServerTls};
use ringloop_testing::quic::authority;
use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

const FIRST: [u8; 8] = *b"firstone";

/// One end: its core, its connection, and the ids reported for it.
struct End {
    core: Core,
    address: SocketAddr,
    handle: Option<Handle>,
    is_connected: bool,
    issued: Vec<Vec<u8>>,
    retired: Vec<Vec<u8>>,
}

impl End {
    fn new(core: Core, port: u16) -> Self {
        Self {
            core,
            address: ([127, 0, 0, 1], port).into(),
            handle: None,
            is_connected: false,
            issued: Vec::new(),
            retired: Vec::new(),
        }
    }

    fn events(&mut self, now: Instant) {
        while let Some(event) = self.core.next_event() {
            match event {
                Event::Incoming(incoming) => {
                    self.handle = Some(self.core.accept(now, incoming, None).unwrap());
                }
                Event::Connected(_) => self.is_connected = true,
                Event::IdIssued(_, id) => self.issued.push(id.to_vec()),
                Event::IdRetired(_, id) => self.retired.push(id.to_vec()),
                _ => {}
            }
        }
    }

    /// Everything that is sent, as single datagrams.
    fn sent(&mut self, now: Instant) -> Vec<Vec<u8>> {
        let mut datagrams = Vec::new();
        let mut buf = Vec::new();
        while let Some(transmit) = self.core.transmit(now, 1, &mut buf) {
            assert_eq!(transmit.segment_len, None);
            datagrams.push(buf.clone());
        }
        datagrams
    }
}

/// The destination id of a datagram, for ids of eight bytes.
fn destination(datagram: &[u8]) -> Vec<u8> {
    let at = if datagram[0] & 0x80 == 0 { 1 } else { 6 };
    datagram[at..at + 8].to_vec()
}

/// Passes datagrams both ways until there are none; destinations at `server` are recorded in
/// `seen`.
fn exchange(client: &mut End, server: &mut End, now: Instant, seen: &mut Vec<Vec<u8>>) {
    loop {
        let (up, down) = (client.sent(now), server.sent(now));
        if up.is_empty() && down.is_empty() {
            return;
        }
        for bytes in up {
            let id = destination(&bytes);
            let is_first = id == FIRST || id == b"original";
            assert!(is_first || server.issued.contains(&id), "not told in time");
            seen.push(id);
            receive(server, client.address, &bytes, now);
        }
        for bytes in down {
            receive(client, server.address, &bytes, now);
        }
        client.events(now);
        server.events(now);
    }
}

fn receive(end: &mut End, source: SocketAddr, bytes: &[u8], now: Instant) {
    let datagram = Datagram { source, local_ip: None, ecn: 0, bytes: BytesMut::from(bytes) };
    end.core.receive(now, datagram);
}

fn pair(original: &[u8]) -> (End, End) {
    pair_with(&EndpointConfig::default().connection_ids(&FIRST).unwrap(), original)
}

/// A pair whose server uses this configuration of ids.
fn pair_with(ids: &EndpointConfig, original: &[u8]) -> (End, End) {
    let tls = ServerTls::new(authority().certificate(&["localhost"])).alpn(["test"]);
    let server = ServerConfig::new(tls).unwrap();
    let server = End::new(Core::new(ids, Some(server), false), 1);
    let roots = Roots::empty().add_pem(authority().pem.as_bytes()).unwrap();
    let config = ClientConfig::new(ClientTls::with_roots(roots).alpn(["test"])).unwrap();
    let config = config.initial_destination(original).unwrap();
    let core = Core::new(&EndpointConfig::default(), None, false);
    let mut client = End::new(core, 2);
    let now = Instant::now();
    let handle = client.core.connect(now, &config, server.address, "localhost");
    client.handle = Some(handle.unwrap());
    (client, server)
}

#[test]
fn used_and_retired_ids_are_reported() {
    let (mut client, mut server) = pair(b"original");
    let mut now = Instant::now();
    let mut seen = Vec::new();
    exchange(&mut client, &mut server, now, &mut seen);
    assert!(client.is_connected && server.is_connected);
    assert_eq!(seen[0], b"original", "the first packets have the chosen id");
    assert!(!server.issued.is_empty(), "ids were issued");
    assert!(server.retired.is_empty());
    assert!(!server.issued.contains(&FIRST.to_vec()), "the first is no news");

    // The client switches to another id three times, and retires the last one each time.
    for round in 1..=3 {
        let handle = client.handle.unwrap();
        let mut connection = client.core.connection(handle).unwrap();
        assert!(connection.local_address_changed());
        connection.ping();
        for _acknowledgement in 0..3 {
            now += Duration::from_millis(30);
            client.core.handle_timeouts(now);
            server.core.handle_timeouts(now);
            exchange(&mut client, &mut server, now, &mut seen);
        }
        assert_eq!(server.retired.len(), round, "{:?}", server.retired);
    }
    assert_eq!(server.retired[0], FIRST);
    let known: BTreeSet<_> = server.issued.iter().cloned().chain([FIRST.to_vec()]).collect();
    assert_eq!(known.len(), server.issued.len() + 1, "no id is told twice");
    assert!(server.retired.iter().all(|id| known.contains(id)));
    let used: BTreeSet<_> = seen.into_iter().filter(|id| id != b"original").collect();
    assert!(used.is_subset(&known), "{used:?} of {known:?}");
    assert!(used.len() > 3);
}

#[test]
fn reset_secret_keeps_chosen_connection_ids() {
    let config = EndpointConfig::default;
    for (ids, first) in [
        (config().connection_ids(&FIRST).unwrap(), Some(FIRST)),
        (config().connection_id_len(8).unwrap(), None),
    ] {
        let ids = ids.reset_secret(&[3; 64]);
        let (mut client, mut server) = pair_with(&ids, b"original");
        let now = Instant::now();
        let datagrams = client.sent(now);
        for bytes in datagrams {
            receive(&mut server, client.address, &bytes, now);
        }
        server.events(now);
        let handle = server.handle.unwrap();
        let (theirs, original) = server.core.connection(handle).unwrap().ids().unwrap();
        assert_eq!(theirs.len(), 8, "as long as it was chosen, and known");
        assert!(first.is_none_or(|first| theirs == first[..]));
        assert_eq!(original, b"original"[..]);
    }
}

#[test]
fn invalid_id_lengths_are_rejected() {
    for len in [0, 3, 21] {
        assert!(EndpointConfig::default().connection_ids(&vec![1; len]).is_err());
    }
    let tls = ClientTls::without_verification;
    for len in [0, 7, 21] {
        let config = ClientConfig::new(tls()).unwrap();
        assert!(config.initial_destination(&vec![1; len]).is_err());
    }
}

#[test]
fn peer_transport_parameters_are_known_after_handshake() {
    let (mut client, mut server) = pair(b"original");
    let handle = client.handle.unwrap();
    let before = client.core.connection(handle).unwrap();
    assert_eq!(before.peer_transport_parameters(), None);
    exchange(&mut client, &mut server, Instant::now(), &mut Vec::new());
    let after = client.core.connection(handle).unwrap();
    let encoded = after.peer_transport_parameters().unwrap();
    // original_destination_connection_id (RFC 9000 §18.2): number 0, eight bytes.
    let wanted = [&[0, 8][..], b"original"].concat();
    assert!(encoded.windows(wanted.len()).any(|part| part == wanted));
}

#[test]
fn forged_handshake_packet_does_not_validate_address() {
    let (mut client, mut server) = pair(b"original");
    let mut now = Instant::now();
    let (mut received_len, mut sent_len) = (0, 0);
    for bytes in client.sent(now) {
        received_len += bytes.len();
        receive(&mut server, client.address, &bytes, now);
    }
    server.events(now);
    sent_len += server.sent(now).iter().map(Vec::len).sum::<usize>();
    assert!(sent_len > 0);
    // An off-path attacker can forge this: a long header with the type bits.
    let mut forged = vec![0xe0, 0, 0, 0, 1, 8];
    forged.extend_from_slice(&FIRST);
    forged.extend_from_slice(&[0, 30]);
    forged.extend_from_slice(&[7; 30]);
    received_len += forged.len();
    receive(&mut server, client.address, &forged, now);
    for _ in 0..20 {
        sent_len += server.sent(now).iter().map(Vec::len).sum::<usize>();
        now += Duration::from_secs(1);
        server.core.handle_timeouts(now);
        server.events(now);
    }
    assert!(sent_len <= 3 * received_len, "{sent_len} of {received_len}");
}
