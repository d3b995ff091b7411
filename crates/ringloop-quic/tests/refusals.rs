//! Clients hear that they are refused also from an endpoint that goes, on both drivers.
#![allow(clippy::unwrap_used)]

mod support;

use ringloop::time::{sleep, timeout};
use ringloop_quic::error::ConnectionError;
use ringloop_quic::{Connecting, Endpoint};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Wake, Waker};
use std::time::Duration;
use support::{PATIENCE, any, client_config, on_both, server_config};

/// Notes that it was called.
#[derive(Default)]
struct Called(AtomicBool);

impl Wake for Called {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::SeqCst);
    }
}

async fn assert_refused(connecting: Connecting) {
    let refused = timeout(PATIENCE, connecting)
        .await
        .expect("the client hears");
    let refused = refused.unwrap_err();
    assert!(
        matches!(refused, ConnectionError::TransportByPeer { code: 2, .. }),
        "{refused}"
    );
}

#[test]
fn those_that_wait_are_refused_when_the_last_handle_goes() {
    on_both(|| async {
        let server = Endpoint::server(any(), server_config()).unwrap();
        let address = server.local_addr().unwrap();
        let client = Endpoint::client(any(), client_config()).unwrap();
        let taken = client.connect(address, "localhost").unwrap();
        let incoming = server.accept().await.unwrap();
        // The other one waits once whoever accepts is called; nobody takes it.
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
        // One that the program has in its hands, too.
        drop(incoming);
        assert_refused(taken).await;
    });
}

#[test]
fn an_endpoint_is_idle_once_the_refusals_are_sent() {
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
