//! A cancelled wait leaves no waker behind, and a wait that moves to another task leaves nothing
//! borrowed, on both drivers.
#![allow(clippy::unwrap_used)]

use ringloop::time::{sleep, timeout};
use ringloop_quic::config::Transport;
use ringloop_quic::{Connection, Endpoint, Policy, SendStream};
use ringloop_testing::PATIENCE;
use ringloop_testing::quic::{any, on_both, pair_as};
use std::cell::RefCell;
use std::future::Future;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

struct Nobody;

impl Wake for Nobody {
    fn wake(self: Arc<Self>) {}
}

/// Polls the future once, drops it, and checks that its waker is gone.
fn assert_forgotten<T>(name: &str, future: impl Future<Output = T>) {
    let nobody = Arc::new(Nobody);
    {
        let waker = Waker::from(Arc::clone(&nobody));
        let mut future = pin!(future);
        let mut cx = Context::from_waker(&waker);
        for _ in 0..2 {
            assert!(matches!(future.as_mut().poll(&mut cx), Poll::Pending));
        }
    }
    assert_eq!(Arc::strong_count(&nobody), 1, "{name}");
}

#[test]
fn dropped_waits_leave_no_waker() {
    on_both(|| async {
        let transport =
            Transport { bi_streams_max: 0, datagram_send_buffer: 2000, ..Transport::default() };
        let pair = pair_as(&transport).await;
        let (ours, client) = (&pair.ours, &pair.client);
        for _ in 0..3 {
            assert_forgotten("closed", ours.closed());
            assert_forgotten("recv_datagram", ours.recv_datagram());
            assert_forgotten("accept_uni", ours.accept_uni());
            assert_forgotten("open_bi", ours.open_bi());
            assert_forgotten("wait_idle", client.wait_idle());
            assert_forgotten("accept", pair.server.accept());
        }
        while ours.try_send_datagram(vec![1; 500].into()).unwrap() {}
        let full = ours.send_datagram(vec![1; 500].into(), Policy::Wait);
        assert_forgotten("send_datagram", full);
        // A handshake without an answer, and one that continues without the wait.
        let (socket, _silent) = silent();
        assert_forgotten("connecting", client.connect(socket, "localhost").unwrap());
        let address = pair.server.local_addr().unwrap();
        let connecting = client.connect(address, "localhost").unwrap();
        let accepting = pair.server.accept().await.unwrap().accept().unwrap();
        let (_early, accepted) = accepting.into_0rtt().unwrap();
        assert_forgotten("0-RTT", accepted);
        connecting.await.unwrap();
        // Other waiters for the same are still woken.
        let (one, other) = (ours.clone(), ours.clone());
        let waiting = ringloop::spawn(async move { one.accept_uni().await.map(drop) });
        ringloop::time::yield_now().await;
        assert_forgotten("accept_uni", other.accept_uni());
        let mut send: SendStream = pair.theirs.open_uni().await.unwrap();
        send.write_all(b"x").await.unwrap();
        waiting.await.unwrap().unwrap();
    });
}

/// An address that does not answer, and the socket that holds it.
fn silent() -> (SocketAddr, std::net::UdpSocket) {
    let socket = std::net::UdpSocket::bind(any()).unwrap();
    (socket.local_addr().unwrap(), socket)
}

thread_local! {
    /// What the drop of wakers uses.
    static SEEN: RefCell<Option<(Connection, Endpoint)>> = const { RefCell::new(None) };
}

/// A waker whose drop calls back into the connection, as a task with another handle of it may.
struct Returning;

impl Wake for Returning {
    fn wake(self: Arc<Self>) {}
}

impl Drop for Returning {
    fn drop(&mut self) {
        SEEN.with_borrow(|seen| {
            if let Some((connection, endpoint)) = seen {
                assert!(connection.close_reason().is_none());
                assert!(endpoint.connection_count() > 0);
            }
        });
    }
}

/// Polls the future in one task after another.
fn go_over<T>(future: impl Future<Output = T>) {
    let mut future = pin!(future);
    for _ in 0..3 {
        let waker = Waker::from(Arc::new(Returning));
        let mut cx = Context::from_waker(&waker);
        assert!(matches!(future.as_mut().poll(&mut cx), Poll::Pending));
    }
}

#[test]
fn replaced_waker_is_dropped_while_nothing_is_borrowed() {
    on_both(|| async {
        let transport =
            Transport { bi_streams_max: 0, datagram_send_buffer: 2000, ..Transport::default() };
        let pair = pair_as(&transport).await;
        let ours = &pair.ours;
        let mut sent = ours.open_uni().await.unwrap();
        sent.write_all(b"x").await.unwrap();
        let mut received = pair.theirs.accept_uni().await.unwrap();
        assert_eq!(received.read(&mut [0; 2]).await.unwrap(), Some(1));
        while ours.try_send_datagram(vec![1; 500].into()).unwrap() {}
        for (connection, endpoint) in [(ours, &pair.client), (&pair.theirs, &pair.server)] {
            SEEN.set(Some((connection.clone(), endpoint.clone())));
            go_over(connection.closed());
            go_over(connection.recv_datagram());
            go_over(connection.accept_bi());
            go_over(endpoint.wait_idle());
            go_over(endpoint.accept());
            SEEN.set(None);
        }
        SEEN.set(Some((ours.clone(), pair.client.clone())));
        go_over(ours.open_bi());
        go_over(ours.send_datagram(vec![1; 500].into(), Policy::Wait));
        go_over(sent.stopped());
        go_over(sent.write_chunk(vec![1; 1 << 26].into()));
        SEEN.set(Some((pair.theirs.clone(), pair.server.clone())));
        go_over(received.read(&mut [0; 2]));
        SEEN.set(None);
    });
}

#[test]
fn waker_of_dropped_handshake_is_dropped_while_nothing_is_borrowed() {
    on_both(|| async {
        let transport =
            Transport { initial_rtt: Duration::from_millis(10), ..Transport::default() };
        let pair = pair_as(&transport).await;
        let (socket, _silent) = silent();
        let connecting = pair.client.connect(socket, "localhost").unwrap();
        SEEN.set(Some((pair.ours.clone(), pair.client.clone())));
        go_over(connecting);
        let forgotten = async {
            while pair.client.connection_count() > 1 {
                sleep(Duration::from_millis(1)).await;
            }
        };
        let forgotten = timeout(PATIENCE, forgotten).await;
        forgotten.expect("it is drained");
        SEEN.set(None);
        // The endpoint still works.
        let mut send = pair.ours.open_uni().await.unwrap();
        send.write_all(b"x").await.unwrap();
        let received = timeout(PATIENCE, pair.theirs.accept_uni()).await;
        received.expect("it comes").unwrap();
    });
}
