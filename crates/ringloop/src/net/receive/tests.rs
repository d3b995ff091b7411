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
const MEDIUM: usize = limits::MEDIUM_BUFFER_BYTES;
const PATIENCE: Duration = Duration::from_secs(60);

fn insist(shots: Shots) {
    Local::current().engine().pace().insist(shots);
}

/// Run a test on each driver, in a loop that insists on single receives.
fn on_both(test: impl AsyncFn()) {
    on_both_with(limits::BATCH_BYTES, test);
}

/// As [`on_both`], on a processor whose cache holds so much.
fn on_both_with(cache_bytes: usize, test: impl AsyncFn()) {
    for driver in [Choice::Auto, Choice::Epoll] {
        let options = Options {
            driver,
            cache_bytes: Some(cache_bytes),
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
            let longer = if round % 11 < 2 { MEDIUM } else { 0 };
            let len = 1 + round * 37 % (3 * SMALL) + longer;
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
fn message_that_fills_a_small_buffer_brings_the_pool_back_and_then_medium_ones() {
    on_both(async || {
        let (stream, mut peer) = pair();
        let mut incoming = stream.receive();
        settle(&mut incoming).await;
        peer.write_all(&pattern(0, 3 * SMALL))
            .expect("an open stream");
        assert_eq!(next(&mut incoming).await.len(), SMALL);
        assert!(!is_single(&incoming));
        assert_eq!(&*next(&mut incoming).await, &*pattern(SMALL, 2 * SMALL));
        settle(&mut incoming).await;
        assert!(has_medium_buffers(&incoming));
        for len in [SMALL, MEDIUM - 1, SMALL - 1, 1, SMALL] {
            expect_nothing(&mut incoming).await;
            peer.write_all(&pattern(len, len)).expect("an open stream");
            assert_eq!(&*next(&mut incoming).await, &*pattern(len, len));
            assert!(has_medium_buffers(&incoming));
        }
    });
}

#[test]
fn short_messages_in_a_row_bring_small_buffers_back() {
    on_both(async || {
        let (stream, mut peer) = pair();
        let mut incoming = stream.receive();
        with_medium_buffers(&mut incoming, &mut peer).await;
        for left in (0..limits::SMALL_RECEIVES_MAX).rev() {
            expect_nothing(&mut incoming).await;
            peer.write_all(b"short").expect("an open stream");
            assert_eq!(&*next(&mut incoming).await, b"short");
            assert_eq!(has_medium_buffers(&incoming), left > 0);
        }
        settle(&mut incoming).await;
        assert!(!has_medium_buffers(&incoming));
    });
}

#[test]
fn message_that_fills_a_medium_buffer_brings_the_pool_back() {
    on_both(async || {
        let (stream, mut peer) = pair();
        let mut incoming = stream.receive();
        with_medium_buffers(&mut incoming, &mut peer).await;
        expect_nothing(&mut incoming).await;
        peer.write_all(&pattern(0, 2 * MEDIUM))
            .expect("an open stream");
        let mut came = Vec::new();
        while came.len() < 2 * MEDIUM {
            came.extend_from_slice(&next(&mut incoming).await);
            assert!(!is_single(&incoming));
        }
        assert_eq!(came, pattern(0, 2 * MEDIUM));
    });
}

/// There they go one by one through a large buffer, or by the pool.
#[test]
fn nobody_has_medium_buffers_where_the_cache_holds_no_batch() {
    on_both_with(limits::BATCH_BYTES - 1, async || {
        let (stream, mut peer) = pair();
        let mut incoming = stream.receive();
        for _ in 0..3 {
            peer.write_all(&pattern(0, SMALL)).expect("an open stream");
            assert_eq!(&*next(&mut incoming).await, &*pattern(0, SMALL));
            expect_nothing(&mut incoming).await;
        }
        assert!(matches!(incoming.way, Way::Pool(_)));
        peer.write_all(b"short").expect("an open stream");
        assert_eq!(&*next(&mut incoming).await, b"short");
        settle(&mut incoming).await;
        assert!(!has_medium_buffers(&incoming));
    });
}

fn has_medium_buffers(incoming: &Receive<'_>) -> bool {
    matches!(&incoming.way, Way::Single { seat, .. } if seat.is_long())
}

/// Long messages until one was received by the pool, and what follows goes into medium buffers.
async fn with_medium_buffers(incoming: &mut Receive<'_>, peer: &mut Peer) {
    while !has_medium_buffers(incoming) {
        peer.write_all(&pattern(0, SMALL)).expect("an open stream");
        assert_eq!(&*next(incoming).await, &*pattern(0, SMALL));
        settle(incoming).await;
    }
}

#[test]
fn with_too_many_streams_nobody_has_medium_buffers() {
    on_both(async || {
        let local = Local::current();
        let (stream, mut peer) = pair();
        let mut incoming = stream.receive();
        with_medium_buffers(&mut incoming, &mut peer).await;
        let others: Vec<_> = (1..=limits::SINGLE_LONG_STREAMS)
            .map(|_| local.count_stream())
            .collect();
        expect_nothing(&mut incoming).await;
        peer.write_all(&pattern(0, SMALL)).expect("an open stream");
        assert_eq!(&*next(&mut incoming).await, &*pattern(0, SMALL));
        for _ in 0..3 {
            expect_nothing(&mut incoming).await;
            assert!(matches!(incoming.way, Way::Pool(_)));
        }
        drop(others);
        settle(&mut incoming).await;
        assert!(has_medium_buffers(&incoming));
        drop(incoming);
        let (counted, streams) = (local.count_stream(), local.stream_count());
        assert_eq!(streams, 1, "who has gone is not counted");
        drop(counted);
    });
}

/// As on Intel's processors: messages that fill a pool buffer are kept warm for a few streams.
#[test]
fn full_messages_of_more_streams_than_the_cache_is_for_go_through_a_large_buffer() {
    on_both(async || {
        const FULL: usize = limits::POOL_BUFFER_BYTES as usize;
        let local = Local::current();
        local.keep_warm(2);
        let (stream, mut peer) = pair();
        let mut incoming = stream.receive();
        with_medium_buffers(&mut incoming, &mut peer).await;
        let mut is_echoed = async |len: usize, incoming: &mut Receive<'_>| {
            expect_nothing(incoming).await;
            peer.write_all(&pattern(len, len)).expect("an open stream");
            let mut came = Vec::new();
            while came.len() < len {
                came.extend_from_slice(&next(incoming).await);
            }
            came == pattern(len, len)
        };
        assert!(is_echoed(FULL, &mut incoming).await && has_medium_buffers(&incoming));
        let others = [local.count_stream(), local.count_stream()];
        assert!(is_echoed(FULL - 1, &mut incoming).await && has_medium_buffers(&incoming));
        assert!(is_echoed(FULL, &mut incoming).await && !is_single(&incoming));
        for _ in 0..limits::FULL_RECEIVES_MAX {
            assert!(is_echoed(FULL, &mut incoming).await);
        }
        while !matches!(incoming.way, Way::Large { .. }) {
            expect_nothing(&mut incoming).await;
            time::sleep(Duration::from_micros(100)).await;
        }
        drop(others);
    });
}

#[test]
fn only_so_many_streams_hold_buffers_and_who_ends_makes_room() {
    on_both(async || {
        expect_room_for(Shots::One).await;
        expect_room_for(Shots::Trial).await;
    });
}

/// As many streams receive message by message as is said, and one more once one of them ends.
async fn expect_room_for(shots: Shots) {
    insist(shots);
    let local = Local::current();
    let max = shots.single_max();
    let seats: Vec<_> = (1..max)
        .map(|_| local.single_seat(max, 0).expect("a seat"))
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
    drop(seats);
}

#[test]
fn receive_of_a_message_keeps_its_place_for_the_next_one() {
    on_both(async || {
        let (stream, mut peer) = pair();
        let mut incoming = stream.receive();
        settle(&mut incoming).await;
        let place = place_of(&incoming);
        assert!(place.is_some());
        for _ in 0..100 {
            peer.write_all(b"short").expect("an open stream");
            assert_eq!(&*next(&mut incoming).await, b"short");
            // Were the slot free, this would have it.
            let other = pair();
            let mut other_incoming = other.0.receive();
            expect_nothing(&mut other_incoming).await;
            expect_nothing(&mut incoming).await;
            assert_eq!(place_of(&incoming), place);
        }
    });
}

fn place_of(incoming: &Receive<'_>) -> Option<u32> {
    match &incoming.way {
        Way::Single { receive, .. } => receive.slot(),
        _ => None,
    }
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
fn what_came_into_a_medium_buffer_can_be_sent_and_its_memory_serves_the_next_one() {
    on_both(async || {
        let (stream, mut peer) = pair();
        let mut incoming = stream.receive();
        with_medium_buffers(&mut incoming, &mut peer).await;
        let mut places = Vec::new();
        for len in [SMALL, 3 * SMALL, SMALL + 1, 16 * 1024] {
            expect_nothing(&mut incoming).await;
            peer.write_all(&pattern(0, len)).expect("an open stream");
            let mut bytes = next(&mut incoming).await;
            assert_eq!(bytes.as_ptr().addr() % 4096, 0);
            places.push(bytes.as_ptr());
            bytes.advance(1);
            let (sent, bytes) = stream.write_all(bytes).await;
            sent.expect("an open stream");
            assert_eq!(&*bytes, &*pattern(1, len - 1));
            let mut back = vec![0; len - 1];
            std::io::Read::read_exact(&mut peer, &mut back).expect("an answer");
            assert_eq!(back, pattern(1, len - 1));
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
