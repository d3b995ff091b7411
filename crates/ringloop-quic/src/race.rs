//! Several addresses of one server: the first handshake to complete wins (RFC 8305).
//!
//! Owns: the order of attempts, and those in progress. Called by: [`crate::Endpoint::connect_any`],
//! with resolved addresses.

use crate::connecting::Connecting;
use crate::connection::Connection;
use crate::error::{ConnectError, ConnectionError};
use crate::limits::ATTEMPT_DELAY;
use ringloop::time::timeout;
use std::future::{Future, poll_fn};
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::Poll;

type Ended = (SocketAddr, Result<Connection, ConnectionError>);

pub(crate) async fn first_of(
    addresses: &[SocketAddr],
    connect: impl Fn(SocketAddr) -> Result<Connecting, ConnectError>,
) -> io::Result<Connection> {
    let mut waiting = alternated(addresses).into_iter();
    let mut running = Vec::new();
    let mut failures: Vec<(SocketAddr, io::Error)> = Vec::new();
    loop {
        if let Some(address) = waiting.next() {
            match connect(address) {
                Ok(connecting) => running.push((address, connecting)),
                Err(error) => {
                    failures.push((address, error.into()));
                    continue;
                }
            }
        }
        if running.is_empty() {
            // All remaining attempts failed to start.
            return Err(all_failed(&failures));
        }
        let next = next_end(&mut running);
        let ended = if waiting.len() > 0 {
            timeout(ATTEMPT_DELAY, next).await.ok()
        } else {
            Some(next.await)
        };
        match ended {
            Some((_, Ok(connection))) => return Ok(connection),
            Some((address, Err(error))) => failures.push((address, error.into())),
            None => {}
        }
    }
}

/// Alternates address families, starting with the first one's (RFC 8305 §4); removes duplicates.
fn alternated(addresses: &[SocketAddr]) -> Vec<SocketAddr> {
    let mut queues = [Vec::new(), Vec::new()];
    for address in addresses {
        let is_other = address.is_ipv4() != addresses[0].is_ipv4();
        let queue = &mut queues[usize::from(is_other)];
        if !queue.contains(address) {
            queue.push(*address);
        }
    }
    let [preferred, others] = queues;
    let longest = preferred.len().max(others.len());
    let pairs = (0..longest).flat_map(|at| [preferred.get(at), others.get(at)]);
    pairs.flatten().copied().collect()
}

/// Waits for any of the attempts, and removes it.
fn next_end(running: &mut Vec<(SocketAddr, Connecting)>) -> impl Future<Output = Ended> {
    poll_fn(move |cx| {
        for at in 0..running.len() {
            if let Poll::Ready(result) = Pin::new(&mut running[at].1).poll(cx) {
                return Poll::Ready((running.remove(at).0, result));
            }
        }
        Poll::Pending
    })
}

/// The last failure's kind, with all of them in the text.
fn all_failed(failures: &[(SocketAddr, io::Error)]) -> io::Error {
    let Some((_, last)) = failures.last() else {
        return io::Error::new(io::ErrorKind::InvalidInput, "no address to connect to");
    };
    let tried: Vec<String> =
        failures.iter().map(|(address, error)| format!("{address}: {error}")).collect();
    let text = format!("all {} addresses failed: {}", failures.len(), tried.join("; "));
    io::Error::new(last.kind(), text)
}
