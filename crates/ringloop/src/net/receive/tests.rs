//! Receives message by message: the same bytes, ends and errors as by one multishot receive; on both drivers.

use super::*;
use crate::driver::Choice;
use crate::net::UnixStream;
use crate::{Options, Runtime, time};
use std::io::Write;
use std::os::fd::OwnedFd;
use std::pin::pin;
use std::time::Duration;

type Peer = std::os::unix::net::UnixStream;

const SMALL: usize = limits::SMALL_BUFFER_BYTES;
const PATIENCE: Duration = Duration::from_secs(60);

fn insist(shots: Shots) {
    Local::current().engine().pace().insist(shots);
}

/// Run a test on each driver, in a loop that insists on single receives.
fn on_both(test: impl AsyncFn()) {
    for driver in [Choice::Auto, Choice::Epoll] {
        let options = Options {
            driver,
            ..Options::default()
        };
        let runtime = Runtime::with_options(options).expect("a runtime");
        let insisting = async {
            insist(Shots::One);
            test().await;
        };
        let bounded = async { time::timeout(PATIENCE, insisting).await };
        let ended = runtime.block_on(bounded).expect("the loop runs");
        ended.expect("a test that ends");
    }
}

fn pair() -> (UnixStream, Peer) {
    let (ours, peer) = Peer::pair().expect("two sockets");
    ours.set_nonblocking(true).expect("a socket");
    (OwnedFd::from(ours).into(), peer)
}

fn pattern(from: usize, len: usize) -> Vec<u8> {
    (from..from + len).map(|at| (at % 251) as u8).collect()
}

fn is_single(incoming: &Receive<'_>) -> bool {
    matches!(incoming.way, Way::Single { .. })
}

/// Poll once, and find nothing.
async fn expect_nothing(incoming: &mut Receive<'_>) {
    let mut next = pin!(incoming.next());
    let found = poll_fn(|cx| Ready(next.as_mut().poll(cx).is_ready())).await;
    assert!(!found, "nothing was sent");
}

/// Wait for what is there until the stream receives message by message, as it does once it has waited in vain.
async fn settle(incoming: &mut Receive<'_>) {
    while !is_single(incoming) {
        expect_nothing(incoming).await;
        time::sleep(Duration::from_micros(100)).await;
    }
}

async fn next(incoming: &mut Receive<'_>) -> Received {
    let bytes = incoming.next().await.expect("a message");
    bytes.expect("no error")
}

#[test]
fn stream_that_goes_over_and_back_all_the_time_yields_every_byte_in_order() {
    on_both(async || {
        let (stream, mut peer) = pair();
        let mut incoming = stream.receive();
        let (mut sent, mut came, mut was_single) = (0, 0, 0);
        for round in 0..2_000_usize {
            insist(if round % 7 < 4 {
                Shots::One
            } else {
                Shots::Many
            });
            let len = 1 + round * 37 % (3 * SMALL);
            peer.write_all(&pattern(sent, len))
                .expect("the stream is open");
            sent += len;
            // Now and then it waits with nothing there.
            while came < sent {
                let bytes = next(&mut incoming).await;
                assert_eq!(&*bytes, &*pattern(came, bytes.len()));
                came += bytes.len();
            }
            expect_nothing(&mut incoming).await;
            was_single += u32::from(is_single(&incoming));
        }
        assert!(was_single > 100, "{was_single}");
    });
}

#[test]
fn message_that_fills_a_small_buffer_brings_the_pool_back_until_a_short_one_comes() {
    on_both(async || {
        let (stream, mut peer) = pair();
        let mut incoming = stream.receive();
        settle(&mut incoming).await;
        peer.write_all(&pattern(0, 3 * SMALL))
            .expect("an open stream");
        assert_eq!(next(&mut incoming).await.len(), SMALL);
        assert!(!is_single(&incoming));
        assert_eq!(&*next(&mut incoming).await, &*pattern(SMALL, 2 * SMALL));
        expect_nothing(&mut incoming).await;
        assert!(matches!(incoming.way, Way::Pool(_)), "long ones stay there");
        peer.write_all(b"short").expect("an open stream");
        assert_eq!(&*next(&mut incoming).await, b"short");
        settle(&mut incoming).await;
    });
}

#[test]
fn only_so_many_streams_hold_buffers_and_who_ends_makes_room() {
    on_both(async || {
        let local = Local::current();
        let mut seats: Vec<_> = (1..limits::SINGLE_STREAMS)
            .map(|_| local.single_seat().expect("a seat"))
            .collect();
        let ((first, _first_peer), (second, mut peer)) = (pair(), pair());
        let mut of_first = first.receive();
        settle(&mut of_first).await;
        let mut of_second = second.receive();
        for _ in 0..3 {
            peer.write_all(b"by the pool").expect("an open stream");
            assert_eq!(&*next(&mut of_second).await, b"by the pool");
            expect_nothing(&mut of_second).await;
            assert!(matches!(of_second.way, Way::Pool(_)), "there is no seat");
        }
        drop(of_first);
        settle(&mut of_second).await;
        seats.clear();
    });
}

#[test]
fn end_error_and_cancel_of_a_single_receive_are_those_of_the_stream() {
    on_both(async || {
        let (stream, peer) = pair();
        let mut incoming = stream.receive();
        settle(&mut incoming).await;
        drop(peer);
        assert!(incoming.next().await.is_none());
        assert!(incoming.next().await.is_none());

        let (stream, _peer) = pair();
        let mut incoming = stream.receive();
        settle(&mut incoming).await;
        assert_eq!(stream.cancel(), 1);
        let error = incoming
            .next()
            .await
            .expect("an error")
            .expect_err("it was cancelled");
        assert!(is_cancelled(&error));
        assert!(incoming.next().await.is_none());
    });
}

#[test]
fn wait_that_is_given_up_leaves_its_bytes_to_the_next_one() {
    on_both(async || {
        let (stream, mut peer) = pair();
        let mut incoming = stream.receive();
        settle(&mut incoming).await;
        let limit = Duration::from_millis(1);
        assert!(time::timeout(limit, incoming.next()).await.is_err());
        peer.write_all(b"kept").expect("an open stream");
        time::sleep(limit).await;
        assert_eq!(&*next(&mut incoming).await, b"kept");
    });
}

#[test]
fn what_a_single_receive_took_can_be_sent_and_its_memory_serves_the_next_one() {
    on_both(async || {
        let (stream, mut peer) = pair();
        let mut incoming = stream.receive();
        settle(&mut incoming).await;
        let mut places = Vec::new();
        for _ in 0..4 {
            peer.write_all(b"<echo>").expect("an open stream");
            let mut bytes = next(&mut incoming).await;
            bytes.advance(1);
            let (sent, bytes) = stream.write_all(bytes).await;
            sent.expect("an open stream");
            assert_eq!(&*bytes, b"echo>");
            places.push(bytes.as_ptr());
            let mut back = [0; 5];
            std::io::Read::read_exact(&mut peer, &mut back).expect("an answer");
            assert_eq!(&back, b"echo>");
        }
        assert!(places[2..].contains(&places[0]) || places[2..].contains(&places[1]));
    });
}

#[test]
fn cancel_that_meets_a_receive_on_its_way_to_another_is_not_lost() {
    on_both(async || {
        for everything in [false, true] {
            let (stream, _peer) = pair();
            let mut incoming = stream.receive();
            insist(Shots::Many);
            expect_nothing(&mut incoming).await;
            insist(Shots::One);
            expect_nothing(&mut incoming).await;
            assert!(matches!(incoming.way, Way::Leaving { .. }));
            if everything {
                Local::current().cancel_all();
            } else {
                stream.cancel();
            }
            let ended = incoming.next().await.expect("an error");
            assert!(is_cancelled(&ended.expect_err("it was cancelled")));
        }
    });
}
