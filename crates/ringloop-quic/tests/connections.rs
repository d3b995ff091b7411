//! Connections, on both drivers: how they start and end, what they agree on.
#![allow(clippy::unwrap_used)]

use ringloop::net::UdpSocket;
use ringloop::time::{sleep, timeout};
use ringloop_quic::Bytes;
use ringloop_quic::config::{EndpointConfig, ServerConfig, Transport, Version};
use ringloop_quic::error::{ConnectError, ConnectionError, StreamError};
use ringloop_quic::{Connection, Endpoint};
use ringloop_testing::quic::{
    Pair, any, client_config, endpoint, on_both, pair, pair_as, pair_with, pattern, server_config,
    server_tls,
};
use std::time::{Duration, Instant};

#[test]
fn both_ends_report_the_same_handshake() {
    on_both(|| async {
        let (ours, theirs, _ends) = pair().await.parts();
        let (here, there) = (ours.handshake_data().unwrap(), theirs.handshake_data().unwrap());
        assert_eq!(here.protocol.as_deref(), Some(&b"test"[..]));
        assert_eq!(there.protocol.as_deref(), Some(&b"test"[..]));
        assert_eq!((here.server_name, there.server_name.as_deref()), (None, Some("localhost")));
        assert_eq!(here.cipher_suite, there.cipher_suite);
        #[cfg(feature = "aws-lc-rs")]
        assert_eq!(here.key_exchange.as_deref(), Some("X25519MLKEM768"));
        assert_eq!(ours.peer_identity().unwrap().len(), 1);
        assert_eq!(theirs.peer_identity(), None);
        let (mut a, mut b) = ([0; 32], [0; 32]);
        assert!(ours.export_keying_material(&mut a, b"label", b"context"));
        assert!(theirs.export_keying_material(&mut b, b"label", b"context"));
        assert!(a == b && a != [0; 32]);
        assert!(theirs.export_keying_material(&mut b, b"label", b"other"));
        assert!(a != b);
        assert!(!ours.export_keying_material(&mut vec![0; 1 << 20], b"label", b""));
        assert_eq!(theirs.local_ip().unwrap().to_string(), "127.0.0.1");
        assert!(ours.stats().rtt < ringloop_testing::PATIENCE);
    });
}

#[test]
fn server_sees_a_client_that_closes_at_once() {
    on_both(|| async {
        let server = Endpoint::server(any(), server_config()).unwrap();
        let client = Endpoint::client(any(), client_config()).unwrap();
        let address = server.local_addr().unwrap();
        for code in 0..20 {
            let accepting = ringloop::spawn({
                let server = server.clone();
                async move { server.accept().await.unwrap().accept().unwrap().await }
            });
            let ours = client.connect(address, "localhost").unwrap().await;
            ours.unwrap().close(code, b"done");
            let theirs = accepting.await.unwrap().unwrap();
            let reason = Bytes::from_static(b"done");
            let closed = ConnectionError::ClosedByPeer { code, reason };
            assert_eq!(theirs.closed().await, closed);
        }
    });
}

#[test]
fn close_carries_code_and_reason_and_ends_all_waits() {
    on_both(|| async {
        let Pair { ours, theirs, server, client } = pair().await;
        let (mut send, _recv) = ours.open_bi().await.unwrap();
        theirs.close(0x1234_5678, b"no more");
        let reason = Bytes::from_static(b"no more");
        let error = ConnectionError::ClosedByPeer { code: 0x1234_5678, reason };
        assert_eq!(ours.closed().await, error);
        assert_eq!(ours.close_reason(), Some(error.clone()));
        assert_eq!(theirs.closed().await, ConnectionError::Closed);
        assert_eq!(send.write(b"x").await, Err(StreamError::Connection(error.clone())));
        assert_eq!(ours.open_bi().await.unwrap_err(), error);
        assert_eq!(ours.accept_uni().await.unwrap_err(), error);
        // A second close changes nothing.
        ours.close(9, b"");
        assert_eq!(ours.close_reason(), Some(error));
        server.wait_idle().await;
        client.wait_idle().await;
        assert_eq!(client.connection_count(), 0);
    });
}

#[test]
fn closed_connection_with_handles_stays_usable_and_keeps_its_slot() {
    on_both(|| async {
        let Pair { ours, theirs, server, client } = pair().await;
        let (mut send, mut recv) = ours.open_bi().await.unwrap();
        let error = ConnectionError::Closed;
        ours.close(3, b"");
        drop(theirs);
        client.wait_idle().await;
        // Another one would reuse the slot if it were free.
        let address = server.local_addr().unwrap();
        let other = client.connect(address, "localhost").unwrap();
        let accepted = server.accept().await.unwrap().accept().unwrap();
        let (other, accepted) = (other.await.unwrap(), accepted.await.unwrap());
        assert_ne!(other.stable_id(), ours.stable_id());
        assert_eq!(ours.close_reason(), Some(error.clone()));
        assert!(ours.stats().packets_sent > 0);
        assert_eq!(ours.remote_address(), address);
        ours.ping();
        let gone = StreamError::Connection(error);
        assert_eq!(send.write(b"x").await, Err(gone.clone()));
        assert_eq!(recv.read(&mut [0]).await, Err(gone));
        assert_eq!(other.close_reason(), None);
        drop((send, recv, ours, other, accepted));
        client.wait_idle().await;
    });
}

#[test]
fn dropping_all_handles_closes_and_ends_endpoints() {
    on_both(|| async {
        let Pair { ours, theirs, server, client } = pair().await;
        drop((ours, client));
        assert!(matches!(theirs.closed().await, ConnectionError::ClosedByPeer { code: 0, .. }));
        server.close(5, b"bye");
        assert!(server.accept().await.is_none());
        server.wait_idle().await;
    });
}

#[test]
fn clients_are_refused_ignored_and_retried() {
    on_both(|| async {
        let server = Endpoint::server(any(), server_config()).unwrap();
        let address = server.local_addr().unwrap();
        let client = Endpoint::client(any(), client_config()).unwrap();
        let connecting = client.connect(address, "localhost").unwrap();
        server.accept().await.unwrap().refuse();
        let refused = connecting.await.unwrap_err();
        assert!(matches!(refused, ConnectionError::TransportByPeer { code: 2, .. }), "{refused}");

        // After a Retry the client connects again, with a validated address.
        let connecting = client.connect(address, "localhost").unwrap();
        let incoming = server.accept().await.unwrap();
        assert!(!incoming.is_validated() && incoming.may_retry());
        incoming.retry().unwrap();
        let incoming = server.accept().await.unwrap();
        assert!(incoming.is_validated() && !incoming.may_retry());
        let incoming = incoming.retry().unwrap_err();
        let accepting = incoming.accept().unwrap();
        let (ours, theirs) = (connecting.await.unwrap(), accepting.await.unwrap());
        // The token of that connection validates it in the next one.
        while ours.stats().frames_received.new_token == 0 {
            sleep(Duration::from_millis(1)).await;
        }
        let connecting = client.connect(address, "localhost").unwrap();
        let incoming = server.accept().await.unwrap();
        assert!(incoming.is_validated() && incoming.may_retry());
        incoming.ignore();
        assert!(timeout(Duration::from_millis(100), connecting).await.is_err());
        drop(theirs);
    });
}

#[test]
fn invalid_destinations_fail_at_once() {
    on_both(|| async {
        let client = Endpoint::client(any(), client_config()).unwrap();
        let error =
            |address: &str, name| client.connect(address.parse().unwrap(), name).unwrap_err();
        assert!(matches!(error("127.0.0.1:0", "localhost"), ConnectError::InvalidAddress(_)));
        assert!(matches!(error("[::1]:1", "localhost"), ConnectError::InvalidAddress(_)));
        assert!(matches!(error("127.0.0.1:1", "not a name"), ConnectError::InvalidServerName(_)));
        client.close(0, b"");
        assert_eq!(error("127.0.0.1:1", "localhost"), ConnectError::EndpointClosed);
        let server = Endpoint::server(any(), server_config()).unwrap();
        assert_eq!(server.connect(any(), "localhost").unwrap_err(), ConnectError::NoConfig);
    });
}

/// Answers each stream on one of ours, from the client's first packet on.
async fn answer_early(server: Endpoint) {
    while let Some(incoming) = server.accept().await {
        let (theirs, _) = incoming.accept().unwrap().into_0rtt().unwrap();
        ringloop::spawn(answer_streams(theirs));
    }
}

async fn answer_streams(theirs: Connection) {
    while let Ok(mut recv) = theirs.accept_uni().await {
        let request = recv.read_to_end(100).await.unwrap_or_default();
        let mut send = theirs.open_uni().await.unwrap();
        send.write_all(&request).await.unwrap();
    }
}

#[test]
fn resumed_session_sends_early_data_and_learns_the_outcome() {
    on_both(|| async {
        for takes_early_data in [true, false] {
            let tls = server_tls().early_data(true);
            let server = Endpoint::server(any(), ServerConfig::new(tls.clone()).unwrap()).unwrap();
            let address = server.local_addr().unwrap();
            let client = Endpoint::client(any(), client_config()).unwrap();
            ringloop::spawn(answer_early(server.clone()));
            let first = client.connect(address, "localhost").unwrap();
            let first = first.into_0rtt().expect_err("nothing to resume").await.unwrap();
            assert!(!first.handshake_data().unwrap().is_resumed);
            // The ticket comes after the handshake, before this.
            let mut send = first.open_uni().await.unwrap();
            send.write_all(b"x").await.unwrap();
            drop(send);
            first.accept_uni().await.unwrap().read_to_end(1).await.unwrap();
            if !takes_early_data {
                // The sessions remain valid, but early data is no longer accepted.
                let tls = tls.clone().early_data(false);
                server.set_server_config(Some(ServerConfig::new(tls).unwrap()));
            }
            let (early, accepted) =
                client.connect(address, "localhost").unwrap().into_0rtt().unwrap();
            let mut send = early.open_uni().await.unwrap();
            send.write_all(b"early").await.unwrap();
            drop(send.finish());
            let accepted = accepted.await;
            assert!(early.handshake_data().unwrap().is_resumed);
            assert_eq!(accepted, takes_early_data);
            if !accepted {
                assert_eq!(send.write(b"more").await, Err(StreamError::EarlyDataRejected));
                drop(send);
                let mut again = early.open_uni().await.unwrap();
                again.write_all(b"early").await.unwrap();
            }
            let answer = early.accept_uni().await.unwrap().read_to_end(100).await.unwrap();
            assert_eq!(answer, b"early");
        }
    });
}

#[test]
fn both_versions_work_with_retry_and_coalesced_packets() {
    on_both(|| async {
        for (version, number) in [(Version::V1, 1), (Version::V2, 0x6b33_43cf)] {
            assert_eq!(version.number(), number);
            let server = Endpoint::server(any(), server_config()).unwrap();
            let address = server.local_addr().unwrap();
            let client = Endpoint::client(any(), client_config().version(version)).unwrap();
            let connecting = client.connect(address, "localhost").unwrap();
            server.accept().await.unwrap().retry().unwrap();
            let accepting = server.accept().await.unwrap().accept().unwrap();
            let (ours, theirs) = (connecting.await.unwrap(), accepting.await.unwrap());
            let bytes = pattern(200_000, 9);
            let mut send = ours.open_uni().await.unwrap();
            send.write_all(&bytes).await.unwrap();
            drop(send);
            ours.update_keys();
            let read = theirs.accept_uni().await.unwrap().read_to_end(1 << 20).await.unwrap();
            assert!(read == bytes);
        }
    });
}

#[test]
fn early_data_works_in_version_2() {
    on_both(|| async {
        let tls = server_tls().early_data(true);
        let server = Endpoint::server(any(), ServerConfig::new(tls).unwrap()).unwrap();
        let address = server.local_addr().unwrap();
        let client = Endpoint::client(any(), client_config().version(Version::V2)).unwrap();
        let serve = async || server.accept().await.unwrap().accept().unwrap().await.unwrap();
        let connecting = client.connect(address, "localhost").unwrap();
        let theirs = serve().await;
        let ours = connecting.await.unwrap();
        // The ticket comes before this.
        drop(theirs.open_uni().await.unwrap());
        drop(ours.accept_uni().await.unwrap());
        let (ours, accepted) = client.connect(address, "localhost").unwrap().into_0rtt().unwrap();
        let mut send = ours.open_uni().await.unwrap();
        send.write_all(b"early").await.unwrap();
        let theirs = serve().await;
        assert!(accepted.await);
        let mut buf = [0; 5];
        theirs.accept_uni().await.unwrap().read_exact(&mut buf).await.unwrap();
        assert_eq!(&buf, b"early");
    });
}

#[test]
fn unsupported_version_is_reported() {
    on_both(|| async {
        let config = EndpointConfig::default().versions(&[Version::V1]).unwrap();
        let server = endpoint(&config, Some(server_config()));
        let client = Endpoint::client(any(), client_config().version(Version::V2)).unwrap();
        let ended = client.connect(server.local_addr().unwrap(), "localhost").unwrap().await;
        assert_eq!(ended.unwrap_err(), ConnectionError::VersionMismatch);
        let old = endpoint(&config, None);
        let v2 = client_config().version(Version::V2);
        let refused = old.connect_with(&v2, any(), "localhost").unwrap_err();
        assert!(matches!(
            refused,
            ConnectError::UnsupportedVersion | ConnectError::InvalidAddress(_)
        ));
    });
}

#[test]
fn keys_update_during_a_transfer() {
    on_both(|| async {
        let (ours, theirs, _ends) = pair().await.parts();
        let bytes = pattern(4 << 20, 4);
        let copy = bytes.clone();
        let sender = ringloop::spawn({
            let ours = ours.clone();
            async move {
                let mut send = ours.open_uni().await.unwrap();
                for (number, piece) in copy.chunks(100_000).enumerate() {
                    send.write_all(piece).await.unwrap();
                    if number % 10 == 5 {
                        ours.update_keys();
                    }
                }
            }
        });
        let mut recv = theirs.accept_uni().await.unwrap();
        theirs.update_keys();
        assert!(recv.read_to_end(4 << 20).await.unwrap() == bytes);
        sender.await.unwrap();
    });
}

#[test]
fn idle_timeout_closes_and_keep_alive_prevents_it() {
    // Long enough for a busy machine that stalls the test in the middle of a handshake.
    const IDLE: Duration = Duration::from_secs(3);
    on_both(|| async {
        let transport = Transport { idle_timeout: Some(IDLE), ..Transport::default() };
        let kept = pair_as(&Transport { keep_alive: Some(IDLE / 20), ..transport.clone() }).await;
        let began = Instant::now();
        let silent = pair_as(&transport).await;
        assert_eq!(silent.ours.closed().await, ConnectionError::TimedOut);
        assert_eq!(silent.theirs.closed().await, ConnectionError::TimedOut);
        assert!(began.elapsed() >= IDLE, "{:?}", began.elapsed());
        // It has been idle for that long by now.
        sleep(IDLE / 4).await;
        assert_eq!(kept.ours.close_reason(), None);
    });
}

#[test]
fn idle_timeout_is_the_smaller_one_and_idle_time_ends_with_a_packet() {
    let seconds = |count| Some(Duration::from_secs(count));
    on_both(|| async move {
        for (server, client, effective) in [
            (seconds(40), seconds(70), seconds(40)),
            (seconds(70), seconds(40), seconds(40)),
            (None, seconds(50), seconds(50)),
            (seconds(50), None, seconds(50)),
            (None, None, None),
        ] {
            let [server, client] = [server, client]
                .map(|idle_timeout| Transport { idle_timeout, ..Transport::default() });
            let server = server_config().transport(&server).unwrap();
            let client = client_config().transport(&client).unwrap();
            let (ours, theirs, _ends) = pair_with(server, client, |address| address).await.parts();
            assert_eq!((ours.idle_timeout(), theirs.idle_timeout()), (effective, effective));
            ours.confirmed().await.unwrap();
            while ours.idle_for() < Duration::from_millis(30) {
                sleep(Duration::from_millis(10)).await;
            }
            let before = Instant::now();
            let (mut send, _recv) = ours.open_bi().await.unwrap();
            send.write_all(b"x").await.unwrap();
            theirs.accept_bi().await.unwrap();
            assert!(theirs.idle_for() <= before.elapsed());
        }
    });
}

#[test]
fn restarted_server_resets_unknown_connections() {
    on_both(|| async {
        let config = EndpointConfig::default().reset_secret(&[7; 64]);
        let socket = UdpSocket::bind_addr(any()).unwrap();
        let again: UdpSocket =
            std::os::fd::AsFd::as_fd(&socket).try_clone_to_owned().unwrap().into();
        let server = Endpoint::with_socket(socket, &config, Some(server_config()), None).unwrap();
        let address = server.local_addr().unwrap();
        let client = Endpoint::client(any(), client_config()).unwrap();
        let connecting = client.connect(address, "localhost").unwrap();
        let theirs = server.accept().await.unwrap().accept().unwrap();
        let (ours, theirs) = (connecting.await.unwrap(), theirs.await.unwrap());
        // Another process with the same secret takes over the address; the old one no longer
        // receives.
        server.rebind(UdpSocket::bind_addr(any()).unwrap()).unwrap();
        let _successor =
            Endpoint::with_socket(again, &config, Some(server_config()), None).unwrap();
        let mut send = ours.open_uni().await.unwrap();
        send.write_all(&[1; 1000]).await.unwrap();
        assert_eq!(ours.closed().await, ConnectionError::Reset);
        drop(theirs);
    });
}
