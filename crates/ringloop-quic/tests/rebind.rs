//! Clients that migrate to another socket or port, on both drivers.
#![allow(clippy::unwrap_used)]

use ringloop::net::UdpSocket;
use ringloop_quic::config::EndpointConfig;
use ringloop_testing::quic::{
    Pair, any, client_config, endpoint, on_both, pair, pair_with, pattern, server_config,
};
use ringloop_testing::relay::{Faults, Relay};

#[test]
fn client_cannot_migrate_before_handshake_confirmed() {
    on_both(|| async {
        let server = endpoint(&EndpointConfig::default(), Some(server_config()));
        let client = endpoint(&EndpointConfig::default(), None);
        let address = server.local_addr().unwrap();
        let connecting = client.connect_with(&client_config(), address, "localhost").unwrap();
        let socket = || UdpSocket::bind_addr(any()).unwrap();
        let refused = client.rebind(socket()).unwrap_err();
        assert_eq!(refused.kind(), std::io::ErrorKind::WouldBlock);
        let accepting = ringloop::spawn(async move {
            let theirs = server.accept().await.unwrap().accept().unwrap().await.unwrap();
            (server, theirs)
        });
        let ours = connecting.await.unwrap();
        ours.confirmed().await.unwrap();
        client.rebind(socket()).unwrap();
        let (_server, theirs) = accepting.await.unwrap();
        let mut send = ours.open_uni().await.unwrap();
        send.write_all(b"after").await.unwrap();
        send.finish().unwrap();
        let mut received = theirs.accept_uni().await.unwrap();
        assert_eq!(received.read_to_end(9).await.unwrap(), b"after");
    });
}

#[test]
fn client_rebinds_to_another_socket_without_data_loss() {
    on_both(|| async {
        let Pair { ours, theirs, server: _server, client } = pair().await;
        let before = theirs.remote_address();
        let bytes = pattern(2 << 20, 5);
        let copy = bytes.clone();
        let sender = ringloop::spawn({
            let ours = ours.clone();
            async move {
                let mut send = ours.open_uni().await.unwrap();
                for (number, piece) in copy.chunks(64 << 10).enumerate() {
                    send.write_all(piece).await.unwrap();
                    if number == 10 {
                        ours.confirmed().await.unwrap();
                        client.rebind(UdpSocket::bind_addr(any()).unwrap()).unwrap();
                    }
                }
                send.finish().unwrap();
                drop(send.stopped().await);
                client
            }
        });
        let mut recv = theirs.accept_uni().await.unwrap();
        assert!(recv.read_to_end(2 << 20).await.unwrap() == bytes);
        let client = sender.await.unwrap();
        assert_eq!(theirs.remote_address(), client.local_addr().unwrap());
        assert_ne!(theirs.remote_address(), before);
    });
}

#[test]
fn client_cannot_rebind_to_other_address_family() {
    on_both(|| async {
        let pair = pair().await;
        let Ok(other) = UdpSocket::bind_addr(([0u16; 8], 0).into()) else {
            eprintln!("skipped: this machine has no IPv6");
            return;
        };
        let before = pair.client.local_addr().unwrap();
        let refused = pair.client.rebind(other).unwrap_err();
        assert_eq!(refused.kind(), std::io::ErrorKind::InvalidInput);
        assert!(refused.to_string().contains("IPv4"), "{refused}");
        // It continues on the old socket.
        assert_eq!(pair.client.local_addr().unwrap(), before);
        let mut send = pair.ours.open_uni().await.unwrap();
        send.write_all(b"here").await.unwrap();
        drop(send);
        let mut recv = pair.theirs.accept_uni().await.unwrap();
        assert_eq!(recv.read_to_end(4).await.unwrap(), b"here");
        // A closed connection does not prevent it.
        pair.ours.close(0, b"");
        let other = UdpSocket::bind_addr(([0u16; 8], 0).into()).unwrap();
        pair.client.rebind(other).unwrap();
        assert!(pair.client.local_addr().unwrap().is_ipv6());
    });
}

#[test]
fn nat_rebinding_is_followed() {
    on_both(|| async {
        let mut relay = None;
        let route = |server| {
            let started = Relay::start(server, Faults::default(), 1);
            relay.insert(started).address
        };
        let (ours, theirs, _ends) =
            pair_with(server_config(), client_config(), route).await.parts();
        let relay = relay.unwrap();
        let before = theirs.remote_address();
        for round in 0..3u8 {
            let mut send = ours.open_uni().await.unwrap();
            send.write_all(&vec![round; 50_000]).await.unwrap();
            drop(send);
            let read = theirs.accept_uni().await.unwrap().read_to_end(50_000).await.unwrap();
            assert_eq!(read, vec![round; 50_000]);
            relay.rebind();
        }
        assert_ne!(theirs.remote_address(), before);
    });
}
