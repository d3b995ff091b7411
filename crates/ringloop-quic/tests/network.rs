//! Packet faults, on both drivers, through a relay in this process; bytes are verified.
#![allow(clippy::unwrap_used)]

use ringloop_quic::Endpoint;
use ringloop_quic::config::{Congestion, Transport};
use ringloop_quic::error::ConnectionError;
use ringloop_testing::quic::{
    Pair, any, client_config, on_both, pair_with, pattern, server_config,
};
use ringloop_testing::relay::{Faults, Relay};
use std::net::{Ipv6Addr, SocketAddr};
use std::time::Duration;

async fn through(faults: Faults, seed: u64, transport: &Transport) -> (Pair, Relay) {
    let mut relay = None;
    let server = server_config().transport(transport).unwrap();
    let client = client_config().transport(transport).unwrap();
    let route = |server| relay.insert(Relay::start(server, faults, seed)).address;
    let pair = pair_with(server, client, route).await;
    (pair, relay.unwrap())
}

/// Sends `len` bytes each way at once, and verifies all of them.
async fn exchange(pair: &Pair, len: usize) {
    let echo = ringloop::spawn({
        let theirs = pair.theirs.clone();
        async move {
            let (mut send, mut recv) = theirs.accept_bi().await.unwrap();
            while let Some(chunk) = recv.read_chunk(usize::MAX).await.unwrap() {
                send.write_chunk(chunk).await.unwrap();
            }
            send.finish().unwrap();
            send.stopped().await.unwrap();
        }
    });
    let (mut send, mut recv) = pair.ours.open_bi().await.unwrap();
    let bytes = pattern(len, 11);
    let copy = bytes.clone();
    let writer = ringloop::spawn(async move {
        send.write_all(&copy).await.unwrap();
        send.finish().unwrap();
        send.stopped().await.unwrap();
    });
    assert!(recv.read_to_end(len).await.unwrap() == bytes);
    writer.await.unwrap();
    echo.await.unwrap();
}

#[test]
fn all_faults_at_once_change_no_byte() {
    on_both(|| async {
        for (seed, congestion) in
            [(1, Congestion::Cubic), (2, Congestion::NewReno), (3, Congestion::Bbr)]
        {
            let faults = Faults {
                lost: 10,
                doubled: 10,
                corrupted: 10,
                reordered: 20,
                delay: Duration::from_millis(1),
                len_max: None,
            };
            let transport = Transport { congestion, ..Transport::default() };
            let (pair, relay) = through(faults, seed, &transport).await;
            exchange(&pair, 2 << 20).await;
            assert!(relay.harmed() > 20, "{} of {}", relay.harmed(), relay.passed());
            assert!(pair.ours.stats().packets_lost > 0);
        }
    });
}

#[test]
fn one_percent_loss_changes_no_byte_of_a_long_transfer() {
    on_both(|| async {
        let faults = Faults { lost: 10, ..Faults::default() };
        let (pair, relay) = through(faults, 7, &Transport::default()).await;
        exchange(&pair, 16 << 20).await;
        assert!(relay.harmed() > 100);
    });
}

#[test]
fn handshake_survives_heavy_loss() {
    on_both(|| async {
        for seed in 0..5 {
            let faults = Faults { lost: 200, ..Faults::default() };
            let transport =
                Transport { initial_rtt: Duration::from_millis(20), ..Transport::default() };
            let (pair, _relay) = through(faults, seed, &transport).await;
            exchange(&pair, 10_000).await;
        }
    });
}

#[test]
fn dead_path_times_out_and_temporary_hole_does_not() {
    on_both(|| async {
        let transport = Transport {
            // Long enough for a busy machine that stalls the test while the hole is open.
            idle_timeout: Some(Duration::from_secs(10)),
            ..Transport::default()
        };
        let (pair, relay) = through(Faults::default(), 1, &transport).await;
        relay.set_hole(true);
        let mut send = pair.ours.open_uni().await.unwrap();
        send.write_all(b"into the hole").await.unwrap();
        ringloop::time::sleep(Duration::from_millis(300)).await;
        relay.set_hole(false);
        let mut recv = pair.theirs.accept_uni().await.unwrap();
        let mut buf = [0; 13];
        recv.read_exact(&mut buf).await.unwrap();
        assert_eq!(&buf, b"into the hole");
        relay.set_hole(true);
        send.write_all(b"x").await.unwrap();
        assert_eq!(pair.ours.closed().await, ConnectionError::TimedOut);
    });
}

#[test]
fn path_mtu_is_found_and_its_decrease_survived() {
    on_both(|| async {
        let narrow = Faults { len_max: Some(1300), ..Faults::default() };
        let (pair, _relay) = through(narrow, 1, &Transport::default()).await;
        exchange(&pair, 1 << 20).await;
        let mtu = pair.ours.stats().mtu_bytes;
        assert!((1200..=1300).contains(&mtu), "{mtu}");
        // Probes may be lost when the relay is not scheduled and its queue is full; three lost
        // probes of one length count as a narrow path. One success shows that the search works.
        let mut found = 0;
        for seed in 1..=5 {
            let (pair, _relay) = through(Faults::default(), seed, &Transport::default()).await;
            exchange(&pair, 1 << 20).await;
            found = pair.ours.stats().mtu_bytes;
            assert!((1200..=1452).contains(&found), "{found}");
            if found == 1452 {
                break;
            }
        }
        assert_eq!(found, 1452);
    });
}

#[test]
fn windows_adapt_to_path_and_readers() {
    on_both(|| async {
        let far = Faults { delay: Duration::from_millis(10), ..Faults::default() };
        let transport = Transport {
            receive_window: 100_000,
            receive_window_max: 1 << 20,
            send_window_min: 50_000,
            send_window: 1 << 20,
            ..Transport::default()
        };
        let (pair, _relay) = through(far, 1, &transport).await;
        let stats = pair.ours.stats();
        assert_eq!(stats.receive_window_bytes, 100_000);
        // A relay that is not scheduled is a slow path, which does not need a large window.
        while pair.ours.stats().receive_window_bytes < 1 << 20 {
            exchange(&pair, 4 << 20).await;
        }
        assert_eq!(pair.ours.stats().receive_window_bytes, 1 << 20);
        // The relay is a queue too, and the send window is small.
        while pair.ours.stats().send_window_bytes <= 100_000 {
            exchange(&pair, 1 << 20).await;
        }
        // Here the data is not read, and the window stays.
        let (pair, _relay) = through(far, 1, &transport).await;
        let mut send = pair.ours.open_uni().await.unwrap();
        let bytes = vec![1; 400_000];
        let writing = send.write_all(&bytes);
        let writing = ringloop::time::timeout(Duration::from_millis(300), writing);
        assert!(writing.await.is_err());
        assert_eq!(pair.theirs.stats().receive_window_bytes, 100_000);
        pair.theirs.set_receive_window(300_000);
        assert_eq!(pair.theirs.stats().receive_window_bytes, 300_000);
    });
}

#[test]
fn both_address_families_reach_a_dual_stack_server() {
    on_both(|| async {
        let Ok(server) = Endpoint::server(([0u16; 8], 0).into(), server_config()) else {
            eprintln!("skipped: this machine has no IPv6");
            return;
        };
        let port = server.local_addr().unwrap().port();
        let v4: SocketAddr = ([127, 0, 0, 1], port).into();
        let v6: SocketAddr = (Ipv6Addr::LOCALHOST, port).into();
        let of_both: SocketAddr = ([0u16; 8], 0).into();
        for (local, to) in [(any(), v4), (of_both, v4), (of_both, v6)] {
            let client = Endpoint::client(local, client_config()).unwrap();
            let connecting = client.connect(to, "localhost").unwrap();
            let theirs = server.accept().await.unwrap().accept().unwrap();
            let (ours, theirs) = (connecting.await.unwrap(), theirs.await.unwrap());
            assert_eq!(ours.remote_address(), to, "as it was given, not mapped");
            assert_eq!(theirs.remote_address().is_ipv4(), to.is_ipv4());
            assert_eq!(theirs.local_ip(), Some(to.ip()));
            let pair = Pair { server: server.clone(), client, theirs, ours };
            exchange(&pair, 200_000).await;
        }
    });
}
