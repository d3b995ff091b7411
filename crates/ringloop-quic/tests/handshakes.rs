//! The time that a handshake has, on both drivers: whatever the peer sends, and however long silence is borne.
#![allow(clippy::unwrap_used)]

mod support;

use ringloop::net::UdpSocket;
use ringloop_quic::Endpoint;
use ringloop_quic::config::Transport;
use ringloop_quic::error::ConnectionError;
use std::net::SocketAddr;
use std::time::Duration;
use support::{any, client_config, on_both, server_config};

fn hurried() -> Transport {
    Transport {
        idle_timeout: None,
        handshake_timeout: Some(Duration::from_millis(300)),
        initial_rtt: Duration::from_millis(50),
        ..Transport::default()
    }
}

fn client() -> Endpoint {
    let config = client_config().transport(&hurried()).unwrap();
    Endpoint::client(any(), config).unwrap()
}

fn timed_out(address: SocketAddr, has_answered: bool) -> ConnectionError {
    ConnectionError::HandshakeTimedOut {
        address,
        has_answered,
    }
}

#[test]
fn nobody_answers() {
    on_both(|| async {
        let silent = UdpSocket::bind(any()).unwrap();
        let address = silent.local_addr().unwrap();
        let client = client();
        let error = client
            .connect(address, "localhost")
            .unwrap()
            .await
            .unwrap_err();
        assert_eq!(error, timed_out(address, false));
        assert!(error.to_string().contains(&address.to_string()));
        assert_eq!(
            std::io::Error::from(error).kind(),
            std::io::ErrorKind::TimedOut
        );
        client.wait_idle().await;
    });
}

#[test]
fn a_client_that_falls_silent() {
    on_both(|| async {
        let config = server_config().transport(&hurried()).unwrap();
        let server = Endpoint::server(any(), config).unwrap();
        // The server hears its first words, and it hears nothing.
        let between = UdpSocket::bind(any()).unwrap();
        let client = Endpoint::client(any(), client_config()).unwrap();
        let connecting = client
            .connect(between.local_addr().unwrap(), "localhost")
            .unwrap();
        for _ in 0..2 {
            let (result, bytes) = between.recv_from(vec![0; 2000]).await;
            let (len, _) = result.unwrap();
            let hello = bytes[..len].to_vec();
            let (result, _) = between.send_to(hello, server.local_addr().unwrap()).await;
            result.unwrap();
        }
        let accepted = server.accept().await.unwrap().accept().unwrap();
        let address = accepted.remote_address();
        assert_eq!(accepted.await.unwrap_err(), timed_out(address, true));
        drop(connecting);
    });
}
