//! Datagrams, on both drivers: whole, bounded, with a policy.
#![allow(clippy::unwrap_used)]

use ringloop::time::timeout;
use ringloop_quic::config::{ClientConfig, Transport};
use ringloop_quic::error::DatagramError;
use ringloop_quic::{Bytes, Endpoint, Policy};
use ringloop_testing::PATIENCE;
use ringloop_testing::quic::{
    Pair, any, client_config, on_both, pair, pair_as, pair_with, server_config,
};
use ringloop_testing::relay::{Faults, Relay};
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::time::Duration;

const SHORT: Duration = Duration::from_millis(50);

#[test]
fn datagrams_arrive_whole_and_in_batches() {
    on_both(|| async {
        let (ours, theirs, _ends) = pair().await.parts();
        let longest = ours.max_datagram_len().unwrap();
        assert!((1100..1500).contains(&longest));
        for len in [0, 1, longest] {
            assert!(ours.send_datagram(vec![7; len].into(), Policy::Wait).await.unwrap());
            assert_eq!(theirs.recv_datagram().await.unwrap(), vec![7; len]);
        }
        for number in 0..50u8 {
            assert!(ours.try_send_datagram(vec![number; 100].into()).unwrap());
        }
        let mut seen = Vec::new();
        while seen.len() < 50 {
            theirs.recv_datagrams(64, &mut seen).await.unwrap();
        }
        assert_eq!(seen, (0..50u8).map(|number| vec![number; 100]).collect::<Vec<_>>());
        let too_long = ours.send_datagram(vec![0; longest + 500].into(), Policy::Wait).await;
        let Err(DatagramError::TooLong { len, len_max }) = too_long else {
            panic!("{too_long:?}");
        };
        assert_eq!(len, longest + 500);
        // The MTU search ran meanwhile.
        assert!((longest..len).contains(&len_max), "{len_max}");
        ours.close(4, b"");
        assert!(matches!(theirs.recv_datagram().await, Err(DatagramError::Connection(_))));
        assert!(matches!(ours.try_send_datagram(Bytes::new()), Err(DatagramError::Connection(_))));
    });
}

#[test]
fn datagram_settings_are_those_at_client_arrival() {
    on_both(|| async {
        let with_buffer = |bytes| {
            let transport = Transport { datagram_send_buffer: bytes, ..Transport::default() };
            server_config().transport(&transport).unwrap()
        };
        for (before, after) in [(64 << 10, 1 << 20), (1 << 20, 64 << 10)] {
            let server = Endpoint::server(any(), with_buffer(before)).unwrap();
            let client = Endpoint::client(any(), client_config()).unwrap();
            let address = server.local_addr().unwrap();
            let connecting = client.connect(address, "localhost").unwrap();
            let incoming = server.accept().await.unwrap();
            server.set_server_config(Some(with_buffer(after)));
            let accepting = incoming.accept().unwrap();
            let ours = connecting.await.unwrap();
            let theirs = accepting.await.unwrap();
            assert!(theirs.datagram_room() <= before);
            for number in 0..3 {
                let bytes = Bytes::from(vec![number; 1000]);
                assert!(theirs.try_send_datagram(bytes.clone()).unwrap());
                let came = timeout(PATIENCE, ours.recv_datagram()).await;
                assert_eq!(came.expect("it leaves"), Ok(bytes));
            }
        }
    });
}

#[test]
fn full_send_buffer_follows_the_policy() {
    on_both(|| async {
        let transport = Transport { datagram_send_buffer: 4_000, ..Transport::default() };
        let (ours, theirs, _ends) = pair_as(&transport).await.parts();
        // Nothing is awaited while it is filled, so nothing is sent.
        let mut count = 0;
        while ours.try_send_datagram(vec![count; 1000].into()).unwrap() {
            count += 1;
        }
        assert!((2..=4).contains(&count), "{count}");
        assert!(ours.datagram_room() < 1000);
        assert_eq!(ours.send_datagram(vec![9; 1000].into(), Policy::DropNew).await, Ok(false));
        assert_eq!(ours.send_datagram(vec![10; 1000].into(), Policy::DropOldest).await, Ok(true));
        // This one waits for the others to leave.
        assert_eq!(ours.send_datagram(vec![11; 1000].into(), Policy::Wait).await, Ok(true));
        let mut seen = Vec::new();
        while seen.last() != Some(&11) {
            seen.push(theirs.recv_datagram().await.unwrap()[0]);
        }
        let mut expected: Vec<u8> = (1..count).collect();
        expected.extend([10, 11]);
        assert_eq!(seen, expected);
    });
}

#[test]
fn blocked_datagram_expires() {
    on_both(|| async {
        let transport = Transport { datagram_send_buffer: 4_000, ..Transport::default() };
        let Pair { ours, theirs, server, client } = pair_as(&transport).await;
        // Nothing leaves any more: the peer is gone.
        drop((theirs, server));
        let mut expired = None;
        for _ in 0..1000 {
            let policy = Policy::WaitFor(Duration::from_millis(30));
            if let Err(error) = ours.send_datagram(vec![1; 1000].into(), policy).await {
                expired = Some(error);
                break;
            }
        }
        let expired = expired.unwrap();
        assert!(
            matches!(expired, DatagramError::Expired | DatagramError::Connection(_)),
            "{expired}"
        );
        drop(client);
    });
}

#[test]
fn unread_datagrams_are_bounded() {
    on_both(|| async {
        let transport = Transport { datagram_receive_buffer: Some(10_000), ..Transport::default() };
        let (ours, theirs, _ends) = pair_as(&transport).await.parts();
        for number in 0..200u8 {
            ours.send_datagram(vec![number; 1000].into(), Policy::Wait).await.unwrap();
        }
        while theirs.stats().datagrams_received < 200 {
            ringloop::time::sleep(Duration::from_millis(1)).await;
        }
        let mut seen = Vec::new();
        theirs.recv_datagrams(1000, &mut seen).await.unwrap();
        assert!((5..=10).contains(&seen.len()), "{}", seen.len());
        assert_eq!(seen.last().unwrap()[0], 199, "the newest are kept");
    });
}

#[test]
fn peer_without_datagram_support_gets_none() {
    on_both(|| async {
        let without = Transport { datagram_receive_buffer: None, ..Transport::default() };
        let server = server_config().transport(&without).unwrap();
        let (ours, theirs, _ends) =
            pair_with(server, client_config(), |address| address).await.parts();
        assert_eq!(ours.max_datagram_len(), None);
        let refused = ours.try_send_datagram(Bytes::from_static(b"x"));
        assert_eq!(refused, Err(DatagramError::UnsupportedByPeer));
        assert_eq!(
            theirs.try_send_datagram(Bytes::from_static(b"x")),
            Err(DatagramError::Disabled)
        );
        assert!(timeout(SHORT, theirs.recv_datagram()).await.is_err());
    });
}

/// A pair with a relay between, without faults at first.
async fn relayed(client: ClientConfig) -> (Pair, Relay) {
    let mut relay = None;
    let route = |server| relay.insert(Relay::start(server, Faults::default(), 1)).address;
    let pair = pair_with(server_config(), client, route).await;
    (pair, relay.unwrap())
}

#[test]
fn queued_datagram_expires_and_is_counted() {
    on_both(|| async {
        let (pair, relay) = relayed(client_config()).await;
        let (ours, theirs, _ends) = pair.parts();
        // Nothing is acknowledged, so the window fills up.
        relay.set_hole(true);
        let policy = Policy::WaitFor(Duration::from_millis(100));
        let count = 150u64;
        for _ in 0..count {
            drop(ours.send_datagram(vec![1; 1000].into(), policy).await);
        }
        ringloop::time::sleep(Duration::from_millis(150)).await;
        relay.set_hole(false);
        ours.send_datagram(vec![2; 1000].into(), Policy::Wait).await.unwrap();
        while theirs.recv_datagram().await.unwrap()[0] != 2 {}
        let stats = ours.stats();
        assert!(stats.datagrams_expired > 50, "{stats:?}");
        assert_eq!(stats.datagrams_sent + stats.datagrams_expired, count + 1);
        assert_eq!(stats.datagrams_dropped, 0);
    });
}

#[test]
fn datagrams_dropped_for_newer_ones_are_counted_at_both_ends() {
    on_both(|| async {
        let transport = Transport {
            datagram_send_buffer: 10_320,
            datagram_receive_buffer: Some(5_160),
            ..Transport::default()
        };
        let (ours, theirs, _ends) = pair_as(&transport).await.parts();
        // Nothing is awaited that blocks, so nothing is sent.
        for number in 0..30u8 {
            let sent = ours.send_datagram(vec![number; 1000].into(), Policy::DropOldest);
            assert_eq!(sent.await, Ok(true));
        }
        let dropped = ours.stats().datagrams_dropped;
        assert!((20..=21).contains(&dropped), "{dropped}");
        while theirs.stats().datagrams_received < 30 - dropped {
            ringloop::time::sleep(Duration::from_millis(1)).await;
        }
        let mut seen = Vec::new();
        theirs.recv_datagrams(100, &mut seen).await.unwrap();
        assert_eq!(seen.last().unwrap()[0], 29);
        assert_eq!(theirs.stats().datagrams_unread + seen.len() as u64, 30 - dropped);
        let frames = (ours.stats().frames_sent, theirs.stats().frames_received);
        assert_eq!((frames.0.datagram, frames.1.datagram), (30 - dropped, 30 - dropped));
    });
}

/// A pair with a full, small send buffer at one end: everything it sends is lost, so nothing is
/// acknowledged.
async fn filled() -> (Pair, Relay) {
    let transport = Transport { datagram_send_buffer: 4_000, ..Transport::default() };
    let config = client_config().transport(&transport).unwrap();
    let (pair, relay) = relayed(config).await;
    relay.set_hole(true);
    // Probes are sent all the same, at doubling intervals.
    let fill = || pair.ours.send_datagram(vec![1; 1000].into(), Policy::Wait);
    while timeout(SHORT * 8, fill()).await.is_ok() {}
    (pair, relay)
}

/// Waits for a moment; a sender waiting for room must not be woken repeatedly. Returns whether it
/// was sent.
async fn sleeps_unless_sent<T>(mut send: Pin<&mut impl Future<Output = T>>) -> bool {
    let mut polls = 0;
    let counted = poll_fn(|cx| {
        polls += 1;
        send.as_mut().poll(cx)
    });
    let is_sent = timeout(SHORT * 2, counted).await.is_ok();
    assert!(polls < 20, "{polls}");
    is_sent
}

#[test]
fn blocked_sender_is_woken_once_its_datagram_fits() {
    on_both(|| async {
        let (pair, relay) = filled().await;
        let (ours, theirs, _ends) = pair.parts();
        assert!((100..1000).contains(&ours.datagram_room()));
        let mut long = pin!(ours.send_datagram(vec![2; 1100].into(), Policy::Wait));
        let is_sent = sleeps_unless_sent(long.as_mut()).await;
        let short = ours.send_datagram(vec![3; 100].into(), Policy::Wait);
        assert!(timeout(SHORT, short).await.unwrap().unwrap());
        relay.set_hole(false);
        assert!(is_sent || long.await == Ok(true));
        while theirs.recv_datagram().await.unwrap()[0] != 2 {}
    });
}

#[test]
fn empty_datagrams_count_against_the_buffer() {
    on_both(|| async {
        let transport = Transport { datagram_send_buffer: 4_000, ..Transport::default() };
        let (ours, theirs, _ends) = pair_as(&transport).await.parts();
        // Nothing is awaited while it is filled, so nothing is sent.
        let count = (0..1000).take_while(|_| ours.try_send_datagram(Bytes::new()).unwrap()).count();
        assert!((100..=125).contains(&count), "{count}");
        for _ in 0..50 {
            let sent = ours.send_datagram(Bytes::new(), Policy::DropOldest);
            assert_eq!(sent.await, Ok(true));
        }
        assert_eq!(ours.stats().datagrams_dropped, 50);
        // These wait for the others to leave.
        for _ in 0..200 {
            let sent = ours.send_datagram(Bytes::new(), Policy::Wait);
            assert_eq!(sent.await, Ok(true));
        }
        for _ in 0..count + 200 {
            assert!(theirs.recv_datagram().await.unwrap().is_empty());
        }
    });
}

#[test]
fn blocked_sender_of_empty_datagram_is_woken_once_there_is_room() {
    on_both(|| async {
        let (pair, relay) = filled().await;
        let (ours, _theirs, _ends) = pair.parts();
        while ours.try_send_datagram(Bytes::new()).unwrap() {}
        let mut empty = pin!(ours.send_datagram(Bytes::new(), Policy::Wait));
        let is_sent = sleeps_unless_sent(empty.as_mut()).await;
        relay.set_hole(false);
        assert!(is_sent || empty.await == Ok(true));
    });
}
