//! Sends in a loop that has other things to do, since a lone task sends at once; on both drivers.

use super::*;
use crate::driver::Choice;
use crate::sys::fd::OwnedFd;
use crate::sys::libc;
use crate::time::{self, timeout, yield_now};
use crate::{Options, Runtime, spawn};
use std::cell::Cell;
use std::future::poll_fn;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream as Peer;
use std::pin::pin;
use std::rc::Rc;
use std::thread;
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(60);
/// More than a socket takes at once.
const LONG: usize = 4 << 20;

fn runtime(driver: Choice) -> Runtime {
    let options = Options { driver, ..Options::default() };
    Runtime::with_options(options).expect("a runtime")
}

/// Runs a test beside a task that is always ready.
fn busy(runtime: &Runtime, test: impl Future<Output = ()>) {
    let busy = async {
        let is_over = Rc::new(Cell::new(false));
        let until = Rc::clone(&is_over);
        let other = spawn(async move {
            while !until.get() {
                yield_now().await;
            }
        });
        timeout(PATIENCE, test).await.expect("a test that ends");
        is_over.set(true);
        other.await.expect("it only yields");
    };
    runtime.block_on(busy).expect("the loop runs");
}

fn on_both(test: impl AsyncFn()) {
    for driver in [Choice::Auto, Choice::Epoll] {
        busy(&runtime(driver), test());
    }
}

/// A socket and its peer.
fn pair() -> (Socket, Peer) {
    let (ours, peer) = Peer::pair().expect("two sockets");
    ours.set_nonblocking(true).expect("a socket");
    (Socket::from(OwnedFd::from(ours)), peer)
}

fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at % 251) as u8).collect()
}

/// Polls a send for the first time; returns what it ended with, if it did.
async fn start<B: Outgoing>(sending: &mut SendAll<'_, B>) -> Option<Sent<B>> {
    poll_fn(|cx| match Pin::new(&mut *sending).poll(cx) {
        Poll::Ready(ended) => Poll::Ready(Some(ended)),
        Poll::Pending => Poll::Ready(None),
    })
    .await
}

/// Starts a send and see it out.
async fn send<B: Outgoing>(socket: &Socket, bytes: B) -> Sent<B> {
    let mut sending = socket.send_all(bytes);
    match start(&mut sending).await {
        Some(ended) => ended,
        None => sending.await,
    }
}

/// Starts a send that is more than the socket takes.
async fn start_long(sending: &mut SendAll<'_, Vec<u8>>) {
    assert!(start(sending).await.is_none());
    assert_eq!(sending.stage, Stage::Sending);
}

/// Takes so many bytes, on a thread: the loop is not to be kept waiting.
fn reader(mut peer: Peer, len: usize) -> thread::JoinHandle<(Vec<u8>, Peer)> {
    thread::spawn(move || {
        let mut bytes = vec![0; len];
        peer.read_exact(&mut bytes).expect("so many bytes");
        (bytes, peer)
    })
}

async fn joined<T>(handle: thread::JoinHandle<T>) -> T {
    while !handle.is_finished() {
        time::sleep(Duration::from_millis(1)).await;
    }
    handle.join().expect("a thread that ends")
}

#[test]
fn messages_go_one_after_the_other() {
    on_both(async || {
        let (socket, peer) = pair();
        let lens: Vec<_> = (0..500_usize).map(|round| 1 + round * 7919 % 9000).collect();
        let reading = reader(peer, lens.iter().sum());
        let mut all = Vec::new();
        for len in lens {
            let bytes = pattern(len);
            all.extend_from_slice(&bytes);
            let (result, back) = send(&socket, bytes).await;
            result.expect("an open socket");
            assert_eq!(back, pattern(len));
        }
        assert!(joined(reading).await.0 == all);
    });
}

#[test]
fn message_that_the_socket_takes_in_parts_arrives_whole() {
    on_both(async || {
        let (socket, peer) = pair();
        let mut sending = socket.send_all(pattern(LONG));
        start_long(&mut sending).await;
        let reading = reader(peer, LONG);
        let (result, back) = sending.await;
        result.expect("an open socket");
        assert!(back == pattern(LONG) && joined(reading).await.0 == back);
    });
}

#[test]
fn send_that_is_given_up_keeps_its_memory_and_leaves_the_socket_to_the_next_one() {
    on_both(async || {
        let (socket, peer) = pair();
        let mut sending = socket.send_all(pattern(LONG));
        start_long(&mut sending).await;
        for _ in 0..3 {
            yield_now().await;
        }
        drop(sending);
        // The sent bytes are a prefix of the message. A sleep is a turn of the loop at least, and the kernel receives the
        // send and of its cancel in one: after several without a byte none comes.
        peer.set_nonblocking(true).expect("a socket");
        let (mut peer, mut came) = (peer, Vec::new());
        let mut idle_sleeps = 0;
        while idle_sleeps < 10 {
            let mut part = vec![0; 1 << 16];
            if let Ok(count) = peer.read(&mut part) {
                came.extend_from_slice(&part[..count]);
                idle_sleeps = 0;
            } else {
                idle_sleeps += 1;
                time::sleep(Duration::from_millis(1)).await;
            }
        }
        assert!(pattern(LONG).starts_with(&came));
        let ended = send(&socket, b"next".to_vec()).await;
        ended.0.expect("an open socket");
        let mut next = [0; 4];
        peer.read_exact(&mut next).expect("four bytes");
        assert_eq!(&next, b"next");
    });
}

#[test]
fn cancelled_send_gives_its_bytes_back() {
    on_both(async || {
        for everything in [false, true] {
            let (socket, peer) = pair();
            let mut sending = socket.send_all(pattern(LONG));
            start_long(&mut sending).await;
            for _ in 0..3 {
                yield_now().await;
            }
            if everything {
                Local::current().cancel_all();
            } else {
                // None where the socket took a part at once, as on epoll.
                assert!(socket.cancel() <= 1);
            }
            // Also where a part of them had gone out.
            let (result, back) = sending.await;
            let error = result.expect_err("nobody reads");
            assert_eq!(error.raw_os_error(), Some(libc::ECANCELED));
            assert_eq!(back.len(), LONG);
            drop(peer);
        }
    });
}

#[test]
fn peer_that_has_gone_is_an_error_and_the_bytes_come_back() {
    on_both(async || {
        let (socket, peer) = pair();
        drop(peer);
        let (result, back) = send(&socket, b"nobody".to_vec()).await;
        let error = result.expect_err("the peer has gone");
        assert_eq!(error.raw_os_error(), Some(libc::EPIPE));
        assert_eq!(back, b"nobody");
    });
}

#[test]
fn socket_that_goes_to_another_loop_sends_there() {
    let (socket, mut peer) = pair();
    for driver in [Choice::Auto, Choice::Epoll, Choice::Auto] {
        let runtime = runtime(driver);
        busy(&runtime, async {
            for _ in 0..3 {
                let ended = send(&socket, b"moved".to_vec()).await;
                ended.0.expect("an open socket");
                let mut bytes = [0; 5];
                peer.read_exact(&mut bytes).expect("five bytes");
                assert_eq!(&bytes, b"moved");
            }
        });
    }
    peer.write_all(b"still open").expect("an open socket");
}

#[test]
fn runtime_that_ends_under_a_send_frees_what_it_held() {
    for driver in [Choice::Auto, Choice::Epoll] {
        let (socket, peer) = pair();
        let runtime = runtime(driver);
        busy(&runtime, async {
            spawn(async move {
                let mut sending = pin!(socket.send_all(pattern(LONG)));
                assert!(start(&mut sending).await.is_none());
                sending.await.0.expect_err("the runtime ends");
            });
            for _ in 0..5 {
                yield_now().await;
            }
        });
        drop(runtime);
        drop(peer);
    }
}
