//! Sends by an operation that keeps its place: the same bytes, errors and cancels as by one of their own; on both drivers,
//! in a loop that has other things to do, since a lone task sends at once.

use super::*;
use crate::driver::Choice;
use crate::executor::Home;
use crate::time::{self, timeout, yield_now};
use crate::{Options, Runtime, spawn};
use std::cell::Cell;
use std::future::poll_fn;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream as Peer;
use std::pin::pin;
use std::rc::Rc;
use std::thread;
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(60);
/// More than a socket takes at once.
const LONG: usize = 4 << 20;

fn runtime(driver: Choice) -> Runtime {
    let options = Options {
        driver,
        ..Options::default()
    };
    Runtime::with_options(options).expect("a runtime")
}

/// Run a test beside a task that is always ready.
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

/// A socket that keeps its sender, and its peer.
fn pair() -> (Socket, Peer) {
    let (ours, peer) = Peer::pair().expect("two sockets");
    ours.set_nonblocking(true).expect("a socket");
    let socket = Socket::from(OwnedFd::from(ours));
    socket.keep_sender();
    (socket, peer)
}

fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at % 251) as u8).collect()
}

/// Poll a send for the first time: it goes by the socket's operation.
async fn start<B: Outgoing>(send: &mut SendAll<'_, B>) {
    let is_over = poll_fn(|cx| Poll::Ready(Pin::new(&mut *send).poll(cx).is_ready())).await;
    assert!(!is_over);
    assert_eq!(send.stage, Stage::Standing);
}

/// Take so many bytes, on a thread: the loop is not to be kept waiting.
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
fn messages_go_one_after_the_other_in_the_same_place() {
    on_both(async || {
        let (socket, peer) = pair();
        let lens: Vec<_> = (0..500_usize)
            .map(|round| 1 + round * 7919 % 9000)
            .collect();
        let reading = reader(peer, lens.iter().sum());
        let mut all = Vec::new();
        for len in lens {
            let bytes = pattern(len);
            all.extend_from_slice(&bytes);
            let mut send = socket.send_all(bytes);
            start(&mut send).await;
            let (result, back) = send.await;
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
        let mut send = socket.send_all(pattern(LONG));
        start(&mut send).await;
        let reading = reader(peer, LONG);
        let (result, back) = send.await;
        result.expect("an open socket");
        assert!(back == pattern(LONG) && joined(reading).await.0 == back);
    });
}

#[test]
fn send_that_is_given_up_keeps_its_memory_and_leaves_the_next_one_a_place() {
    on_both(async || {
        let (socket, peer) = pair();
        let mut send = socket.send_all(pattern(LONG));
        start(&mut send).await;
        for _ in 0..3 {
            yield_now().await;
        }
        drop(send);
        // What went out is a beginning of the message. A sleep is a turn of the loop at least, and the kernel hears of the
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
        let mut send = socket.send_all(b"next".to_vec());
        start(&mut send).await;
        send.await.0.expect("an open socket");
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
            let mut send = socket.send_all(pattern(LONG));
            start(&mut send).await;
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
            let (result, back) = send.await;
            let error = result.expect_err("nobody reads");
            assert_eq!(error.raw_os_error(), Some(libc::ECANCELED));
            assert_eq!(back.len(), LONG);
            drop(peer);
        }
    });
}

#[test]
fn second_send_at_a_time_has_an_operation_of_its_own() {
    on_both(async || {
        let (socket, peer) = pair();
        let mut first = socket.send_all(vec![1; 1000]);
        start(&mut first).await;
        let mut second = socket.send_all(vec![2; 1000]);
        let mut is_over =
            poll_fn(|cx| Poll::Ready(Pin::new(&mut second).poll(cx).is_ready())).await;
        if !is_over {
            assert_eq!(second.stage, Stage::Sending);
            is_over = second.await.0.is_ok();
        }
        assert!(is_over && first.await.0.is_ok());
        let (mut bytes, _peer) = joined(reader(peer, 2000)).await;
        bytes.sort_unstable();
        assert_eq!(bytes.partition_point(|byte| *byte == 1), 1000);
    });
}

#[test]
fn peer_that_has_gone_is_an_error_and_the_bytes_come_back() {
    on_both(async || {
        let (socket, peer) = pair();
        drop(peer);
        let mut send = socket.send_all(b"nobody".to_vec());
        start(&mut send).await;
        let (result, back) = send.await;
        let error = result.expect_err("the peer has gone");
        assert_eq!(error.raw_os_error(), Some(libc::EPIPE));
        assert_eq!(back, b"nobody");
    });
}

#[test]
fn socket_that_goes_to_another_loop_takes_a_place_there() {
    let (socket, mut peer) = pair();
    for driver in [Choice::Auto, Choice::Epoll, Choice::Auto] {
        let runtime = runtime(driver);
        busy(&runtime, async {
            for _ in 0..3 {
                let mut send = socket.send_all(b"moved".to_vec());
                start(&mut send).await;
                send.await.0.expect("an open socket");
                let mut bytes = [0; 5];
                peer.read_exact(&mut bytes).expect("five bytes");
                assert_eq!(&bytes, b"moved");
            }
        });
    }
    peer.write_all(b"still open").expect("an open socket");
}

#[test]
fn socket_that_keeps_its_sender_does_not_keep_the_loop() {
    for driver in [Choice::Auto, Choice::Epoll] {
        let (socket, _peer) = pair();
        let runtime = runtime(driver);
        let home = Cell::default();
        busy(&runtime, async {
            home.set(Home::of_current());
            let mut send = socket.send_all(b"sent".to_vec());
            start(&mut send).await;
            send.await.0.expect("an open socket");
        });
        let home = home.into_inner().expect("a loop");
        assert!(home.local().is_some());
        drop(runtime);
        assert!(home.local().is_none(), "the socket is still there");
        drop(socket);
    }
}

#[test]
fn runtime_that_ends_under_a_send_frees_what_it_held() {
    for driver in [Choice::Auto, Choice::Epoll] {
        let (socket, peer) = pair();
        let runtime = runtime(driver);
        busy(&runtime, async {
            spawn(async move {
                let mut send = pin!(socket.send_all(pattern(LONG)));
                start(&mut send).await;
                send.await.0.expect_err("the runtime ends");
            });
            for _ in 0..5 {
                yield_now().await;
            }
        });
        drop(runtime);
        drop(peer);
    }
}
