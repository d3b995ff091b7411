//! What rejected early data leaves behind, on both drivers.
#![allow(clippy::unwrap_used)]

use ringloop::time::timeout;
use ringloop_quic::config::ServerConfig;
use ringloop_quic::error::StreamError;
use ringloop_quic::{Connection, Endpoint, ZeroRtt};
use ringloop_testing::PATIENCE;
use ringloop_testing::quic::{any, client_config, on_both, server_config, server_tls};
use std::time::Duration;

const SHORT: Duration = Duration::from_millis(20);

struct Refused {
    server: Endpoint,
    _client: Endpoint,
    early: Connection,
    answer: ZeroRtt,
}

/// A first connection, which gives the client a session.
async fn know_a_session(server: &Endpoint, client: &Endpoint) {
    let address = server.local_addr().unwrap();
    let connecting = client.connect(address, "localhost").unwrap();
    let accepting = server.accept().await.unwrap().accept().unwrap();
    let (ours, theirs) = (connecting.await.unwrap(), accepting.await.unwrap());
    // The ticket comes after the handshake, before this.
    let mut send = theirs.open_uni().await.unwrap();
    send.write_all(b"x").await.unwrap();
    drop(send);
    let mut recv = ours.accept_uni().await.unwrap();
    recv.read_to_end(1).await.unwrap();
}

/// A client with a session that sends early data to a server that rejects it.
async fn refused() -> Refused {
    let tls = server_tls().early_data(true);
    let server = Endpoint::server(any(), ServerConfig::new(tls.clone()).unwrap()).unwrap();
    let address = server.local_addr().unwrap();
    let client = Endpoint::client(any(), client_config()).unwrap();
    know_a_session(&server, &client).await;
    let without = tls.early_data(false);
    server.set_server_config(Some(ServerConfig::new(without).unwrap()));
    let connecting = client.connect(address, "localhost").unwrap();
    let (early, answer) = connecting.into_0rtt().unwrap();
    Refused { server, _client: client, early, answer }
}

#[test]
fn stale_early_stream_does_not_affect_later_streams() {
    on_both(|| async {
        let refused = refused().await;
        let (mut stale_send, stale_recv) = refused.early.open_bi().await.unwrap();
        stale_send.write_all(b"early").await.unwrap();
        let accepting = refused.server.accept().await.unwrap().accept().unwrap();
        assert!(!refused.answer.await);
        let theirs = accepting.await.unwrap();
        let (mut send, mut recv) = refused.early.open_bi().await.unwrap();
        assert_eq!(send.id(), stale_send.id());
        send.write_all(b"again").await.unwrap();
        let reader = ringloop::spawn(async move { recv.read_to_end(10).await });
        let watcher = ringloop::spawn(async move { send.stopped().await });
        let (mut answer, mut asked) = theirs.accept_bi().await.unwrap();
        ringloop::time::sleep(SHORT).await;
        assert_eq!(stale_send.set_priority(7), Err(StreamError::EarlyDataRejected));
        drop((stale_send, stale_recv));
        asked.stop(9).unwrap();
        answer.write_all(b"answer").await.unwrap();
        drop(answer);
        let read = timeout(PATIENCE, reader).await.expect("the reader is woken");
        assert_eq!(read.unwrap().unwrap(), b"answer");
        let stopped = timeout(PATIENCE, watcher).await.expect("the writer is woken");
        assert_eq!(stopped.unwrap(), Ok(Some(9)));
    });
}

#[test]
fn blocked_open_continues_after_early_data_rejection() {
    on_both(|| async {
        let refused = refused().await;
        let mut opened = Vec::new();
        while let Some(stream) = refused.early.try_open_bi().unwrap() {
            opened.push(stream);
        }
        assert!(!opened.is_empty());
        let early = refused.early.clone();
        let waiter = ringloop::spawn(async move { early.open_bi().await.map(drop) });
        let accepting = refused.server.accept().await.unwrap().accept().unwrap();
        assert!(!refused.answer.await);
        let _theirs = accepting.await.unwrap();
        let opened_again = timeout(PATIENCE, waiter).await.expect("it is woken");
        assert_eq!(opened_again.unwrap(), Ok(()));
    });
}

#[test]
fn early_data_outcome_is_known_after_close() {
    on_both(|| async {
        let tls = server_tls().early_data(true);
        let server = Endpoint::server(any(), ServerConfig::new(tls).unwrap()).unwrap();
        let address = server.local_addr().unwrap();
        let client = Endpoint::client(any(), client_config()).unwrap();
        know_a_session(&server, &client).await;
        let connecting = client.connect(address, "localhost").unwrap();
        let (early, answer) = connecting.into_0rtt().unwrap();
        let mut send = early.open_uni().await.unwrap();
        send.write_all(b"early").await.unwrap();
        send.finish().unwrap();
        let accepting = server.accept().await.unwrap().accept().unwrap();
        let theirs = accepting.await.unwrap();
        let mut recv = theirs.accept_uni().await.unwrap();
        assert_eq!(recv.read_to_end(10).await.unwrap(), b"early");
        theirs.close(7, b"read");
        early.closed().await;
        assert!(answer.await);
    });
}

#[test]
fn handshake_data_is_known_after_close() {
    on_both(|| async {
        let server = Endpoint::server(any(), server_config()).unwrap();
        let address = server.local_addr().unwrap();
        let client = Endpoint::client(any(), client_config()).unwrap();
        let connecting = client.connect(address, "localhost").unwrap();
        let accepting = server.accept().await.unwrap().accept().unwrap();
        accepting.await.unwrap().close(7, b"");
        client.wait_idle().await;
        let agreed = connecting.handshake_data().await.unwrap();
        assert_eq!(agreed.protocol.as_deref(), Some(&b"test"[..]));
        connecting.await.unwrap();
    });
}
