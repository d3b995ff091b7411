//! A TCP proxy that stops gracefully: `tier3_proxy TARGET` prints its port, then passes connections on.
//!
//! SIGTERM and Ctrl-C cancel a token. The listener stops at once; connections in progress may finish
//! within a grace period, and are cut after it. The last line says how many there were.

// It prints its port.
#![allow(clippy::print_stdout)]

use ringloop::io::copy_bidirectional;
use ringloop::net::{TcpListener, TcpStream};
use ringloop::signal::{Signal, Signals};
use ringloop::sync::local::CancellationToken;
use ringloop::task::JoinSet;
use ringloop::time::timeout;
use std::io;
use std::time::Duration;

const GRACE: Duration = Duration::from_secs(10);

#[ringloop::main]
async fn main() -> io::Result<()> {
    let target = std::env::args().nth(1).unwrap_or_else(|| "localhost:8080".to_owned());
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let mut signals = Signals::new(&[Signal::TERMINATE, Signal::INTERRUPT])?;
    println!("{}", listener.local_addr()?.port());

    let stop = CancellationToken::new();
    let on_signal = stop.clone();
    ringloop::spawn(async move {
        let _ended = signals.next().await;
        on_signal.cancel();
    });
    let mut connections = JoinSet::new();
    accept(&listener, &target, &stop, &mut connections).await;

    drop(listener);
    let finishing = async { while connections.join_next().await.is_some() {} };
    if timeout(GRACE, finishing).await.is_err() {
        eprintln!("{} connections are cut", connections.len());
        connections.shutdown().await;
    }
    println!("stopped");
    Ok(())
}

/// Accepts until the token is cancelled.
async fn accept(
    listener: &TcpListener,
    target: &str,
    stop: &CancellationToken,
    connections: &mut JoinSet<()>,
) {
    // Not `accept()`: one that loses the race would close the connection that it has just got.
    let mut incoming = listener.incoming();
    loop {
        ringloop::select! {
            () = stop.cancelled() => return,
            // Results are taken as they come, so that they do not pile up.
            Some(_ended) = connections.join_next(), if !connections.is_empty() => {}
            accepted = incoming.next() => match accepted {
                Ok(client) => connections.spawn(pass(client, target.to_owned())),
                Err(error) => eprintln!("accept: {error}"),
            },
            else => {}
        }
    }
}

/// Passes one connection on.
async fn pass(client: TcpStream, target: String) {
    let passed = async {
        let server = TcpStream::connect(&target).await?;
        copy_bidirectional(&client, &server).await.map_err(io::Error::other)
    };
    match passed.await {
        Ok((sent, received)) => eprintln!("{sent} bytes to {target}, {received} back"),
        Err(error) => eprintln!("{target}: {error}"),
    }
}
