//! A panic below the engine ends only the connection that it happened in, on both drivers.
#![allow(clippy::unwrap_used)]

use ringloop::future::join;
use ringloop::time::timeout;
use ringloop_quic::config::{ClientConfig, ServerConfig};
use ringloop_quic::error::{ConnectError, ConnectionError};
use ringloop_quic::{Connection, Endpoint};
use ringloop_testing::PATIENCE;
use ringloop_testing::quic::{any, client_config, client_tls, on_both, server_config, server_tls};
use rustls::NamedGroup;
use rustls::client::{ClientSessionStore, Tls12ClientSessionValue, Tls13ClientSessionValue};
use rustls::pki_types::ServerName;
use rustls::server::StoresServerSessions;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

const WHEN_BEGUN: &str = "the store panics as a connection begins";
const WHEN_STORED: &str = "the store panics over a ticket";

/// A store that panics once, as aws-lc-rs does if its C library runs out of memory.
#[derive(Debug)]
struct Faulty {
    message: &'static str,
    is_next: AtomicBool,
}

impl Faulty {
    fn new(message: &'static str) -> Arc<Self> {
        Arc::new(Self { message, is_next: AtomicBool::new(true) })
    }

    fn touch(&self, message: &'static str) {
        let fails = self.message == message && self.is_next.swap(false, Ordering::SeqCst);
        assert!(!fails, "{message}");
    }
}

impl ClientSessionStore for Faulty {
    fn set_kx_hint(&self, _: ServerName<'static>, _: NamedGroup) {}

    fn kx_hint(&self, _: &ServerName<'_>) -> Option<NamedGroup> {
        self.touch(WHEN_BEGUN);
        None
    }

    fn set_tls12_session(&self, _: ServerName<'static>, _: Tls12ClientSessionValue) {}

    fn tls12_session(&self, _: &ServerName<'_>) -> Option<Tls12ClientSessionValue> {
        None
    }

    fn remove_tls12_session(&self, _: &ServerName<'static>) {}

    fn insert_tls13_ticket(&self, _: ServerName<'static>, _: Tls13ClientSessionValue) {
        self.touch(WHEN_STORED);
    }

    fn take_tls13_ticket(&self, _: &ServerName<'static>) -> Option<Tls13ClientSessionValue> {
        None
    }
}

impl StoresServerSessions for Faulty {
    fn put(&self, _: Vec<u8>, _: Vec<u8>) -> bool {
        self.touch(WHEN_STORED);
        false
    }

    fn get(&self, _: &[u8]) -> Option<Vec<u8>> {
        None
    }

    fn take(&self, _: &[u8]) -> Option<Vec<u8>> {
        None
    }

    fn can_cache(&self) -> bool {
        true
    }
}

fn assert_internal(error: &ConnectionError, message: &str) {
    let ConnectionError::Transport { code: 1, reason } = error else {
        panic!("{error}");
    };
    assert!(reason.contains(message), "{reason}");
}

async fn connect(client: &Endpoint, address: SocketAddr) -> Connection {
    let connecting = client.connect(address, "localhost").unwrap();
    timeout(PATIENCE, connecting).await.unwrap().unwrap()
}

/// Accepts the server's next client.
async fn accept(server: &Endpoint) -> Result<Connection, ConnectionError> {
    let incoming = timeout(PATIENCE, server.accept()).await.unwrap().unwrap();
    timeout(PATIENCE, incoming.accept()?).await.unwrap()
}

async fn assert_carries(ours: &Connection, theirs: &Connection) {
    let mut stream = ours.open_uni().await.unwrap();
    stream.write_all(b"still here").await.unwrap();
    stream.finish().unwrap();
    let mut stream = theirs.accept_uni().await.unwrap();
    assert_eq!(stream.read_to_end(100).await.unwrap(), b"still here");
}

#[test]
fn panic_at_start_fails_that_connect() {
    on_both(|| async {
        let server = Endpoint::server(any(), server_config()).unwrap();
        let address = server.local_addr().unwrap();
        let tls = client_tls().sessions(Some(Faulty::new(WHEN_BEGUN)));
        let client = Endpoint::client(any(), ClientConfig::new(tls).unwrap()).unwrap();
        let refused = client.connect(address, "localhost").unwrap_err();
        let ConnectError::Failed(text) = &refused else {
            panic!("{refused}");
        };
        assert!(text.contains(WHEN_BEGUN), "{text}");
        let begun = client.connect(address, "localhost").unwrap();
        let theirs = accept(&server).await.unwrap();
        let ours = timeout(PATIENCE, begun).await.unwrap().unwrap();
        assert_carries(&ours, &theirs).await;
    });
}

#[test]
fn panic_in_a_client_ends_only_that_connection() {
    on_both(|| async {
        let server = Endpoint::server(any(), server_config()).unwrap();
        let address = server.local_addr().unwrap();
        let tls = client_tls().sessions(Some(Faulty::new(WHEN_STORED)));
        let client = Endpoint::client(any(), ClientConfig::new(tls).unwrap()).unwrap();
        let broken = client.connect(address, "localhost").unwrap();
        let theirs = accept(&server).await.unwrap();
        // The ticket comes after the handshake.
        let error = match timeout(PATIENCE, broken).await.unwrap() {
            Ok(connection) => timeout(PATIENCE, connection.closed()).await.unwrap(),
            Err(error) => error,
        };
        assert_internal(&error, WHEN_STORED);
        drop(theirs);
        let begun = client.connect(address, "localhost").unwrap();
        let theirs = accept(&server).await.unwrap();
        let ours = timeout(PATIENCE, begun).await.unwrap().unwrap();
        assert_carries(&ours, &theirs).await;
        drop((ours, theirs));
        timeout(PATIENCE, client.wait_idle()).await.unwrap();
    });
}

#[test]
fn panic_in_a_server_ends_only_that_client() {
    on_both(|| async {
        let tls = server_tls().sessions(Some(Faulty::new(WHEN_STORED)));
        let server = Endpoint::server(any(), ServerConfig::new(tls).unwrap()).unwrap();
        let address = server.local_addr().unwrap();
        let client = Endpoint::client(any(), client_config()).unwrap();
        let begun = client.connect(address, "localhost").unwrap();
        let error = accept(&server).await.unwrap_err();
        assert_internal(&error, WHEN_STORED);
        drop(begun);
        let (ours, theirs) = join(connect(&client, address), accept(&server)).await;
        assert_carries(&ours, &theirs.unwrap()).await;
        assert_eq!(server.stats().connections, 1);
    });
}
