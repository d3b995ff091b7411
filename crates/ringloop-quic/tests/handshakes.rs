//! Handshake timeouts, on both drivers: whatever the peer sends, and however long the idle timeout
//! is.
#![allow(clippy::unwrap_used)]

use ringloop::net::UdpSocket;
use ringloop::time::timeout;
use ringloop_quic::Endpoint;
use ringloop_quic::config::ClientConfig;
use ringloop_quic::config::Transport;
use ringloop_quic::error::ConnectionError;
use ringloop_testing::PATIENCE;
use ringloop_testing::quic::{any, client_config, client_tls, on_both, server_config};
use std::cell::RefCell;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

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
    ConnectionError::HandshakeTimedOut { address, has_answered }
}

type Told = Rc<RefCell<Vec<(SocketAddr, ConnectionError)>>>;

/// Records the failed handshakes that the server reports.
fn failures_of(server: &Endpoint) -> Told {
    let told = Told::default();
    let copy = Rc::clone(&told);
    server.on_handshake_failed(move |address, error| {
        copy.borrow_mut().push((address, error.clone()));
    });
    told
}

async fn until(condition: impl Fn() -> bool) {
    let waiting = async {
        while !condition() {
            ringloop::time::sleep(Duration::from_millis(1)).await;
        }
    };
    timeout(PATIENCE, waiting).await.unwrap();
}

#[test]
fn nobody_answers() {
    on_both(|| async {
        let silent = UdpSocket::bind_addr(any()).unwrap();
        let address = silent.local_addr().unwrap();
        let client = client();
        let error = client.connect(address, "localhost").unwrap().await.unwrap_err();
        assert_eq!(error, timed_out(address, false));
        assert!(error.to_string().contains(&address.to_string()));
        assert_eq!(std::io::Error::from(error).kind(), std::io::ErrorKind::TimedOut);
        client.wait_idle().await;
    });
}

#[test]
fn silent_client_times_out_in_handshake() {
    on_both(|| async {
        let config = server_config().transport(&hurried()).unwrap();
        let server = Endpoint::server(any(), config).unwrap();
        // The server gets the client's first packets, and the client gets no answer.
        let between = UdpSocket::bind_addr(any()).unwrap();
        let client = Endpoint::client(any(), client_config()).unwrap();
        let connecting = client.connect(between.local_addr().unwrap(), "localhost").unwrap();
        for _ in 0..2 {
            let (result, bytes) = between.recv_from(vec![0; 2000]).await;
            let (len, _) = result.unwrap();
            let hello = bytes[..len].to_vec();
            let (result, _) = between.send_to(hello, server.local_addr().unwrap()).await;
            result.unwrap();
        }
        let told = failures_of(&server);
        let accepted = server.accept().await.unwrap().accept().unwrap();
        let address = accepted.remote_address();
        assert_eq!(server.stats().handshakes, 1);
        assert_eq!(accepted.await.unwrap_err(), timed_out(address, true));
        until(|| !told.borrow().is_empty()).await;
        assert_eq!(*told.borrow(), [(address, timed_out(address, true))]);
        let stats = server.stats();
        assert_eq!((stats.accepted, stats.completed, stats.handshakes), (1, 0, 0));
        assert_eq!((stats.failed.timed_out, stats.failed.total()), (1, 1));
        drop(connecting);
    });
}

#[test]
fn handshake_failures_are_counted_and_reported_without_waiters() {
    on_both(|| async {
        let server = Endpoint::server(any(), server_config()).unwrap();
        let told = failures_of(&server);
        let address = server.local_addr().unwrap();
        let client = Endpoint::client(any(), client_config()).unwrap();
        let other = ClientConfig::new(client_tls().alpn(["other"])).unwrap();
        // Clients: unknown protocol, refused, connected.
        let refused = client.connect_with(&other, address, "localhost").unwrap();
        // Its handshake is not awaited.
        let held = server.accept().await.unwrap().accept();
        refused.await.unwrap_err();
        let refused = client.connect(address, "localhost").unwrap();
        server.accept().await.unwrap().refuse();
        let error = refused.await.unwrap_err();
        assert!(error.to_string().contains("CONNECTION_REFUSED (0x2)"), "{error}");
        let connecting = client.connect(address, "localhost").unwrap();
        let accepting = server.accept().await.unwrap().accept().unwrap();
        let ours = connecting.await.unwrap();
        drop((accepting.await.unwrap(), ours));
        let stats = server.stats();
        assert_eq!((stats.accepted, stats.completed, stats.refused), (2, 1, 1));
        assert_eq!((stats.failed.tls, stats.failed.total()), (1, 1));
        drop(held);
        let told = told.borrow();
        assert_eq!(told.len(), 1);
        assert!(told[0].1.to_string().contains("no_application_protocol"));
    });
}
