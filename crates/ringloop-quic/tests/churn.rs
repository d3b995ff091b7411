//! Memory over thousands of connections, on both drivers.
#![allow(clippy::unwrap_used)]

use ringloop_quic::Endpoint;
use ringloop_testing::quic::{any, client_config, on_both, server_config};

/// Private memory of this process: shared file mappings depend on other processes.
fn resident_kib() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("RssAnon:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

/// Connections that start, carry a request and its answer, and are closed in several ways.
async fn churn(client: &Endpoint, server: &Endpoint, count: usize) {
    let address = server.local_addr().unwrap();
    for number in 0..count {
        let connecting = client.connect(address, "localhost").unwrap();
        let accepting = server.accept().await.unwrap().accept().unwrap();
        let (ours, theirs) = (connecting.await.unwrap(), accepting.await.unwrap());
        let (mut send, mut recv) = ours.open_bi().await.unwrap();
        send.write_all(&[1; 100]).await.unwrap();
        send.finish().unwrap();
        let (mut answer, mut asked) = theirs.accept_bi().await.unwrap();
        assert_eq!(asked.read_to_end(100).await.unwrap().len(), 100);
        answer.write_all(&[2; 3000]).await.unwrap();
        answer.finish().unwrap();
        assert_eq!(recv.read_to_end(3000).await.unwrap().len(), 3000);
        match number % 3 {
            0 => ours.close(1, b"done"),
            1 => theirs.close(2, b"done"),
            _ => {}
        }
    }
    client.wait_idle().await;
    server.wait_idle().await;
}

#[test]
fn thousand_connections_do_not_leak_memory() {
    on_both(|| async {
        let server = Endpoint::server(any(), server_config()).unwrap();
        let client = Endpoint::client(any(), client_config()).unwrap();
        churn(&client, &server, 300).await;
        // The allocator's tables grow once; leaked connections would add up in each round.
        let mut grown = Vec::new();
        for _ in 0..3 {
            let before = resident_kib();
            churn(&client, &server, 1000).await;
            grown.push(resident_kib().saturating_sub(before));
            // A live connection takes about 30 KiB: leaks would add 30 MiB.
            if grown.last() < Some(&(8 << 10)) {
                break;
            }
        }
        assert!(grown.last() < Some(&(8 << 10)), "{grown:?} KiB more, each after 1000 connections");
        assert_eq!((client.connection_count(), server.connection_count()), (0, 0));
    });
}
