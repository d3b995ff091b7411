//! Clients are refused even by an endpoint that is dropped, on both drivers.
#![allow(clippy::unwrap_used)]

use ringloop::time::{sleep, timeout};
use ringloop_quic::config::EndpointConfig;
use ringloop_quic::core::Core;
use ringloop_quic::error::ConnectionError;
use ringloop_quic::limits::RECEIVES_PER_TURN;
use ringloop_quic::{Connecting, Endpoint};
use ringloop_testing::PATIENCE;
use ringloop_testing::quic::{any, client_config, on_both, server_config};
use std::net::{SocketAddr, UdpSocket};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Wake, Waker};
use std::time::{Duration, Instant};

/// Records that it was called.
#[derive(Default)]
struct Called(AtomicBool);

impl Wake for Called {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::SeqCst);
    }
}

async fn assert_refused(connecting: Connecting) {
    let refused = timeout(PATIENCE, connecting).await.expect("the client hears");
    let refused = refused.unwrap_err();
    assert!(matches!(refused, ConnectionError::TransportByPeer { code: 2, .. }), "{refused}");
}

#[test]
fn waiting_clients_are_refused_when_the_last_handle_drops() {
    on_both(|| async {
        let server = Endpoint::server(any(), server_config()).unwrap();
        let address = server.local_addr().unwrap();
        let client = Endpoint::client(any(), client_config()).unwrap();
        let taken = client.connect(address, "localhost").unwrap();
        let incoming = server.accept().await.unwrap();
        // The second client is queued when the acceptor is woken, and stays there.
        let called = Arc::new(Called::default());
        let waiting = {
            let waker = Waker::from(Arc::clone(&called));
            let mut accepting = pin!(server.accept());
            let polled = accepting.as_mut().poll(&mut Context::from_waker(&waker));
            assert!(polled.is_pending());
            let other = client.connect(address, "localhost").unwrap();
            while !called.0.load(Ordering::SeqCst) {
                sleep(Duration::from_millis(1)).await;
            }
            other
        };
        drop(server);
        assert_refused(waiting).await;
        // Also a client that the application has accepted but not decided on.
        drop(incoming);
        assert_refused(taken).await;
    });
}

#[test]
fn endpoint_is_idle_once_refusals_are_sent() {
    on_both(|| async {
        let server = Endpoint::server(any(), server_config()).unwrap();
        let address = server.local_addr().unwrap();
        let client = Endpoint::client(any(), client_config()).unwrap();
        let connecting = client.connect(address, "localhost").unwrap();
        let incoming = server.accept().await.unwrap();
        incoming.refuse();
        let mut idle = std::pin::pin!(server.wait_idle());
        let first = std::future::poll_fn(|cx| {
            std::task::Poll::Ready(std::future::Future::poll(idle.as_mut(), cx))
        });
        assert!(first.await.is_pending(), "the refusal is not yet sent");
        timeout(PATIENCE, idle).await.expect("it is idle");
        assert_refused(connecting).await;
    });
}

/// A local port without a listener.
fn closed_port() -> std::net::SocketAddr {
    let socket = std::net::UdpSocket::bind(any()).unwrap();
    socket.local_addr().unwrap()
}

#[test]
fn closed_port_fails_unanswered_clients_at_once() {
    on_both(|| async {
        let server = Endpoint::server(any(), server_config()).unwrap();
        let address = server.local_addr().unwrap();
        let client = Endpoint::client(any(), client_config()).unwrap();
        let silent = std::net::UdpSocket::bind(any()).unwrap();
        let waiting = client.connect(silent.local_addr().unwrap(), "localhost").unwrap();
        let good = client.connect(address, "localhost").unwrap();
        let closed = closed_port();
        for _ in 0..3 {
            let bad = client.connect(closed, "localhost").unwrap();
            let error = timeout(Duration::from_secs(20), bad).await.expect("it hears");
            let error = error.unwrap_err();
            assert!(
                matches!(error, ConnectionError::Unreachable { address, .. } if address == closed),
                "{error}"
            );
            let kind = std::io::Error::from(error).kind();
            assert_eq!(kind, std::io::ErrorKind::ConnectionRefused);
        }
        let accepting = async { server.accept().await.unwrap().accept().unwrap().await.unwrap() };
        let accepted = timeout(PATIENCE, accepting).await.unwrap();
        let connection = timeout(PATIENCE, good).await.unwrap().unwrap();
        let mut waiting = pin!(waiting);
        let mut context = Context::from_waker(Waker::noop());
        assert!(waiting.as_mut().poll(&mut context).is_pending());
        drop((accepted, connection));
    });
}

#[test]
fn endpoint_with_unreachable_peer_is_idle_at_once() {
    on_both(|| async {
        let client = Endpoint::client(any(), client_config()).unwrap();
        let bad = client.connect(closed_port(), "localhost").unwrap();
        timeout(PATIENCE, bad).await.unwrap().unwrap_err();
        timeout(PATIENCE, client.wait_idle()).await.expect("idle");
        assert_eq!(client.connection_count(), 0);
    });
}

#[test]
fn first_address_to_answer_wins() {
    on_both(|| async {
        let server = Endpoint::server(any(), server_config()).unwrap();
        let address = server.local_addr().unwrap();
        let client = Endpoint::client(any(), client_config()).unwrap();
        let silent = std::net::UdpSocket::bind(any()).unwrap();
        let v6 = "[::1]:9".parse().unwrap();
        let addresses = [v6, closed_port(), silent.local_addr().unwrap(), address];
        let serving = ringloop::spawn(async move {
            let connection = server.accept().await.unwrap().accept().unwrap().await;
            connection.unwrap().closed().await
        });
        let connection =
            timeout(PATIENCE, client.connect_any(&addresses, "localhost")).await.unwrap().unwrap();
        assert_eq!(connection.remote_address(), address);
        connection.close(0, b"");
        serving.await.unwrap();
    });
}

#[test]
fn error_names_all_addresses() {
    on_both(|| async {
        let client = Endpoint::client(any(), client_config()).unwrap();
        let addresses = [closed_port(), "[::1]:9".parse().unwrap(), closed_port()];
        let connecting = client.connect_any(&addresses, "localhost");
        let error = timeout(PATIENCE, connecting).await.unwrap().unwrap_err();
        let text = error.to_string();
        assert!(addresses.iter().all(|it| text.contains(&it.to_string())), "{text}");
        let none = client.connect_any(&[], "localhost").await.unwrap_err();
        assert_eq!(none.kind(), std::io::ErrorKind::InvalidInput);
    });
}

/// First packets of clients that are still in the server's socket, and each client's socket.
fn unread_clients(address: SocketAddr) -> Vec<UdpSocket> {
    let config = client_config();
    let now = Instant::now();
    let client = |_| {
        let mut core = Core::new(&EndpointConfig::default(), None, false);
        let socket = UdpSocket::bind(any()).unwrap();
        socket.set_nonblocking(true).unwrap();
        core.connect(now, &config, address, "localhost").unwrap();
        let mut packet = Vec::new();
        let transmit = core.transmit(now, 1, &mut packet).unwrap();
        socket.send_to(&packet, transmit.destination).unwrap();
        socket
    };
    // More than the server's task receives in one turn.
    (0..3 * RECEIVES_PER_TURN).map(client).collect()
}

fn has_heard(client: &UdpSocket) -> bool {
    client.recv(&mut [0; 1500]).is_ok()
}

#[test]
fn unread_clients_are_refused_before_closed_endpoint_is_idle() {
    on_both(|| async {
        for wait_first in [false, true] {
            let server = Endpoint::server(any(), server_config()).unwrap();
            if wait_first {
                // Its task runs and receives.
                sleep(Duration::from_millis(1)).await;
            }
            let clients = unread_clients(server.local_addr().unwrap());
            server.close(0, b"");
            timeout(PATIENCE, server.wait_idle()).await.expect("idle");
            let heard = clients.iter().filter(|client| has_heard(client)).count();
            assert_eq!(heard, clients.len());
            assert_eq!(server.stats().refused, clients.len() as u64);
        }
    });
}

#[test]
fn unread_clients_are_refused_when_the_last_handle_drops() {
    on_both(|| async {
        let server = Endpoint::server(any(), server_config()).unwrap();
        let clients = unread_clients(server.local_addr().unwrap());
        drop(server);
        for client in clients {
            let hears = async {
                while !has_heard(&client) {
                    sleep(Duration::from_millis(1)).await;
                }
            };
            timeout(PATIENCE, hears).await.expect("it hears");
        }
    });
}

/// A client that keeps sending does not keep a closed endpoint open.
#[test]
fn closed_endpoint_is_idle_despite_endless_packets() {
    on_both(|| async {
        let server = Endpoint::server(any(), server_config()).unwrap();
        let address = server.local_addr().unwrap();
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let flood = std::thread::spawn(move || {
            let socket = UdpSocket::bind(any()).unwrap();
            while !stopped.load(Ordering::SeqCst) {
                drop(socket.send_to(&[0; 64], address));
            }
        });
        server.close(0, b"");
        let idle = timeout(PATIENCE, server.wait_idle()).await;
        stop.store(true, Ordering::SeqCst);
        flood.join().unwrap();
        idle.expect("it is idle");
    });
}
