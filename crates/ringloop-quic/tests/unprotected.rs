//! Packets without keys that are not the peer's: they are ignored, and the handshake goes on.
#![allow(clippy::unwrap_used)]

use ringloop_quic::BytesMut;
use ringloop_quic::config::{EndpointConfig, Version};
use ringloop_quic::core::{Core, Datagram, Event};
use ringloop_testing::quic::{client_config, server_config};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

fn address(end: u8) -> SocketAddr {
    ([192, 0, 2, end], 4433).into()
}

fn deliver(core: &mut Core, now: Instant, source: SocketAddr, bytes: &[u8]) {
    let bytes = BytesMut::from(bytes);
    core.receive(now, Datagram { source, local_ip: None, ecn: 0, bytes });
}

/// What an end has to send.
fn sent(core: &mut Core, now: Instant) -> Vec<Vec<u8>> {
    let mut sent = Vec::new();
    let mut buf = Vec::new();
    while let Some(transmit) = core.transmit(now, 1, &mut buf) {
        assert_eq!(transmit.segment_len.unwrap_or(buf.len()), buf.len());
        sent.push(buf.clone());
    }
    sent
}

/// The ids of a long header: destination and source, each behind its length.
fn ids(packet: &[u8]) -> (Vec<u8>, Vec<u8>) {
    let (destination, rest) = packet[5..].split_at(1 + usize::from(packet[5]));
    (destination.to_vec(), rest[..=usize::from(rest[0])].to_vec())
}

/// Packets that anybody can make who saw the client's first packet and, of a Retry, the server's.
fn forged(initial: &[u8], retry: &[u8]) -> Vec<(String, Vec<u8>)> {
    let (server, client) = ids(initial);
    let negotiation =
        |source: &[u8], list: &[u8]| [&[0xc0, 0, 0, 0, 0][..], &client, source, list].concat();
    let (own, other) = (&initial[1..5], &[0x0a, 0x1a, 0x2a, 0x3a][..]);
    let mut wrong = server.clone();
    *wrong.last_mut().unwrap() ^= 1;
    let mut packets = vec![
        ("versions with the client's".to_owned(), negotiation(&server, &[other, own].concat())),
        ("no versions".to_owned(), negotiation(&server, &[])),
        ("versions that are cut off".to_owned(), negotiation(&server, &[other, &[1]].concat())),
        ("versions of another server".to_owned(), negotiation(&wrong, other)),
    ];
    let head = 5 + client.len();
    packets.push(("no token".to_owned(), retry[..head + usize::from(retry[head]) + 17].to_vec()));
    for at in (0..retry.len()).filter(|at| !(1..head).contains(at)) {
        let mut packet = retry.to_vec();
        // Of the first byte, a bit without a meaning.
        packet[at] ^= 1;
        packets.push((format!("Retry with a wrong byte {at}"), packet));
    }
    // Handshake packets of this version, of one byte, to which the client has no keys yet.
    let kind = if own == [0, 0, 0, 1] { 0xe0 } else { 0xf0 };
    let cover = [&[kind][..], own, &client, &server, &[0x14], &[0; 20]].concat();
    for (name, packet) in packets.clone() {
        packets.push((format!("{name}, behind another packet"), [&cover[..], &packet].concat()));
    }
    packets
}

/// The same for a server, as answers to its own packet.
fn to_server(answer: &[u8]) -> [Vec<u8>; 2] {
    let (client, server) = ids(answer);
    let version = &answer[1..5];
    let kind = if version == [0, 0, 0, 1] { 0xf0 } else { 0xc0 };
    let retry = [&[kind][..], version, &server, &client, &[7; 40]].concat();
    let negotiation = [&[0xc0, 0, 0, 0, 0][..], &server, &client, &[0x0a, 0x1a, 0x2a, 0x3a]];
    [retry, negotiation.concat()]
}

/// A handshake in which the server receives what [`to_server`] makes of each of its packets, and the
/// client what `forge` makes of its first packet and the Retry, before that; how it ends.
fn shake(
    version: Version,
    forge: impl Fn(&[u8], &[u8]) -> Vec<Vec<u8>>,
) -> Result<(), Option<String>> {
    let mut now = Instant::now();
    let config = EndpointConfig::default();
    let mut client = Core::new(&config, None, false);
    let mut server = Core::new(&config, Some(server_config()), false);
    let ours = client_config().version(version);
    client.connect(now, &ours, address(2), "localhost").unwrap();
    let initial = sent(&mut client, now);
    for packet in &initial {
        deliver(&mut server, now, address(1), packet);
    }
    while let Some(event) = server.next_event() {
        if let Event::Incoming(incoming) = event {
            server.retry(incoming).unwrap();
        }
    }
    let retry = sent(&mut server, now);
    for packet in forge(&initial[0], &retry[0]) {
        deliver(&mut client, now, address(2), &packet);
    }
    for packet in &retry {
        deliver(&mut client, now, address(2), packet);
    }
    let mut connected_count = 0;
    for _round in 0..20 {
        while let Some(event) = client.next_event() {
            match event {
                Event::Connected(_) => connected_count += 1,
                Event::Lost(_, error) => return Err(Some(error.to_string())),
                _ => {}
            }
        }
        if connected_count == 2 {
            return Ok(());
        }
        for packet in sent(&mut client, now) {
            deliver(&mut server, now, address(1), &packet);
        }
        while let Some(event) = server.next_event() {
            match event {
                Event::Incoming(incoming) if !incoming.may_retry() => {
                    server.accept(now, incoming, None).unwrap();
                }
                Event::Connected(_) => connected_count += 1,
                Event::Lost(_, error) => return Err(Some(error.to_string())),
                _ => {}
            }
        }
        let answers = sent(&mut server, now);
        for answer in answers.iter().filter(|answer| answer[0] & 0x80 != 0) {
            for packet in to_server(answer) {
                deliver(&mut server, now, address(1), &packet);
            }
        }
        for packet in answers {
            deliver(&mut client, now, address(2), &packet);
        }
        now += Duration::from_millis(1);
        client.handle_timeouts(now);
        server.handle_timeouts(now);
    }
    Err(None)
}

#[test]
fn forged_packets_do_not_end_the_handshake() {
    for version in [Version::V1, Version::V2] {
        assert_eq!(shake(version, |_, _| Vec::new()), Ok(()));
        let names = std::cell::RefCell::default();
        let each = |initial: &[u8], retry: &[u8]| {
            let packets = forged(initial, retry);
            *names.borrow_mut() = packets.iter().map(|(name, _)| name.clone()).collect::<Vec<_>>();
            packets.into_iter().map(|(_, packet)| packet).collect()
        };
        assert_eq!(shake(version, each), Ok(()), "all");
        for (at, name) in names.borrow().clone().iter().enumerate() {
            let one = |initial: &[u8], retry: &[u8]| vec![forged(initial, retry)[at].1.clone()];
            assert_eq!(shake(version, one), Ok(()), "{version:?}: {name}");
        }
    }
}

#[test]
fn versions_without_the_clients_still_end_the_handshake() {
    let honest = |initial: &[u8], _: &[u8]| {
        let (server, client) = ids(initial);
        vec![[&[0xc0, 0, 0, 0, 0][..], &client, &server, &[0x0a, 0x1a, 0x2a, 0x3a]].concat()]
    };
    let error = shake(Version::V1, honest).unwrap_err().unwrap();
    assert!(error.contains("version"), "{error}");
}
