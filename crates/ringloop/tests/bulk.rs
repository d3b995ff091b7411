//! Bulk receives, and received bytes that are sent as they came.

#![allow(clippy::unwrap_used)]

use ringloop::embed::limits::{
    FULL_RECEIVES_MAX, LARGE_BUFFERS, POOL_BUFFER_BYTES, SMALL_RECEIVES_MAX,
};
use ringloop::embed::op::{Recv, Send};
use ringloop::embed::{Local, Op};
use ringloop::net::{Receive, Received, TcpStream, UnixStream};
use ringloop::{spawn, time};
use ringloop_testing::PATIENCE;
use ringloop_testing::engine::in_runtimes;
use std::future::{Future, poll_fn};
use std::io::{ErrorKind, Read, Write};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::pin::pin;
use std::sync::LazyLock;
use std::task::Poll;
use std::time::Duration;

type Peer = std::os::unix::net::UnixStream;

const POOL: usize = POOL_BUFFER_BYTES as usize;

fn pair() -> (UnixStream, Peer) {
    let (ours, peer) = Peer::pair().unwrap();
    ours.set_nonblocking(true).unwrap();
    (OwnedFd::from(ours).into(), peer)
}

fn pattern(len: usize) -> &'static [u8] {
    static PATTERN: LazyLock<Vec<u8>> =
        LazyLock::new(|| (0..4_000_000).map(|at| (at % 251) as u8).collect());
    &PATTERN[..len]
}

fn run(test: impl AsyncFn()) {
    in_runtimes(|runtime| {
        let bounded = async { time::timeout(PATIENCE, test()).await.unwrap() };
        runtime.block_on(bounded).unwrap();
    });
}

/// Sends as much as the socket has room for; returns how much that was.
fn fill(peer: &Peer) -> usize {
    peer.set_nonblocking(true).unwrap();
    let sent = fill_at_once(peer);
    peer.set_nonblocking(false).unwrap();
    sent
}

/// As [`fill`], by a non-blocking socket.
fn fill_at_once(mut socket: &Peer) -> usize {
    let mut sent = 0;
    while let Ok(count) = socket.write(&pattern(4_000_000)[sent..]) {
        sent += count;
    }
    sent
}

/// Has the peer send `len` bytes and more, and takes them; returns the first large buffer. The
/// socket is always full before it is read, so that no receive is short because the peer is slow.
async fn first_large(stream: &UnixStream, peer: Peer, len: usize) -> (Received, Peer) {
    let mut incoming = stream.receive();
    let mut came = 0;
    let mut large = None;
    while came < len || large.is_none() {
        let sent = fill(&peer);
        let mut taken = 0;
        while taken < sent {
            let bytes = incoming.next().await.unwrap().unwrap();
            assert!(*bytes == pattern(sent)[taken..taken + bytes.len()], "at {came}");
            taken += bytes.len();
            if bytes.len() > POOL {
                large = Some(bytes);
            }
        }
        came += sent;
    }
    (large.unwrap(), peer)
}

#[test]
fn a_stream_that_comes_in_bulk_gets_large_buffers_and_loses_nothing() {
    run(async || {
        let (stream, peer) = pair();
        let (large, peer) = first_large(&stream, peer, 4_000_000).await;
        assert!(large.len() > POOL);
        drop((large, peer));
        assert!(stream.receive().next().await.is_none());
    });
}

#[test]
fn a_stream_of_bulk_and_of_messages_by_turns_comes_in_order() {
    run(async || {
        let (stream, mut peer) = pair();
        let lens = [1, 200_000, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 70_000, 5, 300_000];
        let mut incoming = stream.receive();
        for round in 0..6 {
            for len in lens {
                let theirs = std::thread::spawn(move || {
                    peer.write_all(pattern(len)).unwrap();
                    peer
                });
                let mut came = Vec::new();
                while came.len() < len {
                    came.extend_from_slice(&incoming.next().await.unwrap().unwrap());
                }
                assert!(came == pattern(len), "round {round}, {len}");
                peer = theirs.join().unwrap();
            }
        }
    });
}

#[test]
fn received_bytes_are_sent_and_come_back() {
    run(async || {
        for len in [5, 10_000, 2_000_000] {
            let (stream, peer) = pair();
            let mut reader = peer.try_clone().unwrap();
            let echoed = std::thread::spawn(move || {
                let mut all = vec![0; len];
                reader.read_exact(&mut all).unwrap();
                all
            });
            let writer = std::thread::spawn(move || {
                (&peer).write_all(pattern(len)).unwrap();
                peer
            });
            let mut incoming = stream.receive();
            let mut came = 0;
            while came < len {
                let mut bytes = incoming.next().await.unwrap().unwrap();
                came += bytes.len();
                if bytes.len() > 2 {
                    // A part of them by itself: the rest is sent next.
                    let head = bytes[..1].to_vec();
                    bytes.advance(1);
                    stream.write_all(head).await.0.unwrap();
                }
                let expected = bytes.to_vec();
                let (sent, back) = stream.write_all(bytes).await;
                sent.unwrap();
                assert!(*back == *expected);
            }
            assert!(echoed.join().unwrap() == pattern(len));
            drop(writer.join().unwrap());
        }
    });
}

#[test]
fn received_bytes_that_the_socket_takes_in_part_are_sent_to_the_end() {
    run(async || {
        let (stream, peer) = pair();
        let (mut large, mut peer) = first_large(&stream, peer, 1_000_000).await;
        large.advance(9);
        let expected = large.to_vec();
        let socket = stream.as_fd().try_clone_to_owned().unwrap();
        TcpStream::from(socket).set_send_buffer(1).unwrap();
        let mut sending = pin!(stream.write_all(large));
        // The peer reads nothing: some of it stays queued here.
        let polled = poll_fn(|cx| Poll::Ready(sending.as_mut().poll(cx))).await;
        assert!(polled.is_pending());
        let mut got = vec![0; expected.len()];
        let reading = std::thread::spawn(move || {
            peer.read_exact(&mut got).unwrap();
            got
        });
        let (sent, back) = sending.await;
        sent.unwrap();
        assert!(*back == *expected);
        assert!(reading.join().unwrap() == expected);
    });
}

#[test]
fn advanced_bytes_do_not_come_back_after_a_send() {
    run(async || {
        let (stream, mut peer) = pair();
        peer.write_all(b"head: and a body").unwrap();
        let mut bytes = stream.receive().next().await.unwrap().unwrap();
        for dropped in ["h", "ead", ": ", "and a"] {
            bytes.advance(dropped.len());
            let expected = bytes.to_vec();
            // Full, so that they wait, and are not sent in place.
            let before = {
                let ours = stream.as_fd().try_clone_to_owned().unwrap();
                fill_at_once(&Peer::from(ours))
            };
            let mut sending = pin!(stream.write_all(bytes));
            let polled = poll_fn(|cx| Poll::Ready(sending.as_mut().poll(cx))).await;
            assert!(polled.is_pending());
            let mut got = vec![0; before + expected.len()];
            let reading = std::thread::spawn(move || {
                peer.read_exact(&mut got).unwrap();
                (got, peer)
            });
            let (sent, back) = sending.await;
            sent.unwrap();
            assert_eq!(back.to_vec(), expected);
            let (got, back_peer) = reading.join().unwrap();
            assert_eq!(got[before..], expected);
            (bytes, peer) = (back, back_peer);
        }
        assert_eq!(*bytes, *b" body");
    });
}

#[test]
fn received_bytes_do_not_overtake_what_was_sent_before_them() {
    run(async || {
        let (stream, peer) = pair();
        let (large, mut peer) = first_large(&stream, peer, 1_000_000).await;
        let len = large.len();
        let (fd, buf) = (stream.as_raw_fd(), b"first ".to_vec().into());
        // Submitted with the next batch, if the driver has batches.
        let mut first = pin!(Op::new(Send { fd, buf }));
        let mut then = pin!(stream.write_all(large));
        let reading = std::thread::spawn(move || {
            let mut got = vec![0; 6 + len];
            peer.read_exact(&mut got).unwrap();
            got
        });
        let (mut is_sent, mut are_sent) = (false, false);
        poll_fn(|cx| {
            is_sent = is_sent || first.as_mut().poll(cx).is_ready();
            are_sent = are_sent || then.as_mut().poll(cx).is_ready();
            if is_sent && are_sent { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
        assert_eq!(reading.join().unwrap()[..6], *b"first ");
    });
}

#[test]
fn received_bytes_for_a_peer_that_is_gone_come_back_with_the_error() {
    run(async || {
        let (stream, peer) = pair();
        let (large, peer) = first_large(&stream, peer, 1_000_000).await;
        let expected = large.to_vec();
        drop(peer);
        let (sent, back) = stream.write_all(large).await;
        assert_eq!(sent.unwrap_err().kind(), ErrorKind::BrokenPipe);
        assert!(*back == *expected);
    });
}

#[test]
fn large_buffers_that_are_all_held_leave_the_others_the_pool() {
    run(async || {
        let mut held = Vec::new();
        for _ in 0..LARGE_BUFFERS {
            let (stream, peer) = pair();
            held.push(first_large(&stream, peer, 1_000_000).await.0);
        }
        let (stream, peer) = pair();
        let writer = std::thread::spawn(move || (&peer).write_all(pattern(1_000_000)).unwrap());
        let mut incoming = stream.receive();
        let mut came = 0;
        while let Some(bytes) = incoming.next().await {
            let bytes = bytes.unwrap();
            assert!(bytes.len() <= POOL);
            came += bytes.len();
        }
        assert_eq!(came, 1_000_000);
        writer.join().unwrap();
        drop(held);
        let (stream, peer) = pair();
        assert!(first_large(&stream, peer, 1_000_000).await.0.len() > POOL);
    });
}

#[test]
fn messages_that_a_pool_buffer_holds_leave_the_large_ones_to_others() {
    run(async || {
        let (stream, mut peer) = pair();
        let mut incoming = stream.receive();
        let mut held = Vec::new();
        for _ in 0..LARGE_BUFFERS + 4 {
            peer.write_all(pattern(POOL - 1)).unwrap();
            let bytes = incoming.next().await.unwrap().unwrap();
            assert_eq!(bytes.len(), POOL - 1);
            held.push(bytes);
        }
        let (other, others_peer) = pair();
        let (large, _peer) = first_large(&other, others_peer, 1_000_000).await;
        assert!(large.len() > POOL);
    });
}

#[test]
fn short_messages_in_a_row_bring_the_pool_back() {
    run(async || {
        let (stream, peer) = pair();
        let mut incoming = stream.receive();
        let mut peer = take_in_bulk(&mut incoming, peer).await;
        let mut places = Vec::new();
        for _ in 0..=SMALL_RECEIVES_MAX {
            peer.write_all(b"short").unwrap();
            let bytes = incoming.next().await.unwrap().unwrap();
            assert_eq!(*bytes, *b"short");
            places.push(bytes.as_ptr());
        }
        let pool = places.pop().unwrap();
        // The most recently used large buffer is reused until then.
        assert!(places.iter().all(|place| *place == places[0]));
        assert_ne!(pool, places[0]);
    });
}

/// Has the peer send a lot, and takes it.
async fn take_in_bulk(incoming: &mut Receive<'_>, peer: Peer) -> Peer {
    let sending = std::thread::spawn(move || {
        (&peer).write_all(pattern(4_000_000)).unwrap();
        peer
    });
    let (mut came, mut longest) = (0, 0);
    while came < 4_000_000 {
        let len = incoming.next().await.unwrap().unwrap().len();
        (came, longest) = (came + len, longest.max(len));
    }
    assert!(longest > POOL);
    sending.join().unwrap()
}

#[test]
fn cancel_that_meets_a_receive_on_its_way_to_large_buffers_is_not_lost() {
    run(async || {
        for everything in [false, true] {
            let (stream, peer) = pair();
            let sent = fill(&peer);
            assert!(sent >= 4 * POOL);
            let mut incoming = stream.receive();
            for _ in 0..FULL_RECEIVES_MAX {
                let bytes = incoming.next().await.unwrap().unwrap();
                assert_eq!(bytes.len(), POOL);
            }
            // It has been cancelled, and its last completion is not taken yet.
            if everything {
                Local::current().cancel_all();
            } else {
                stream.cancel();
            }
            let error = loop {
                match incoming.next().await.expect("an error comes first") {
                    Ok(bytes) => assert!(bytes.len() <= POOL),
                    Err(error) => break error,
                }
            };
            assert_eq!(error.raw_os_error(), Some(libc::ECANCELED));
            assert!(incoming.next().await.is_none());
        }
    });
}

#[test]
fn a_send_of_a_large_buffer_that_is_given_up_does_not_lose_it_for_good() {
    run(async || {
        for _ in 0..LARGE_BUFFERS + 2 {
            let (stream, peer) = pair();
            let (large, _peer) = first_large(&stream, peer, 1_000_000).await;
            // The peer reads nothing: the socket fills up, and a send waits.
            while let Ok((sent, _)) =
                time::timeout(Duration::from_millis(2), stream.write_all(pattern(100_000))).await
            {
                sent.unwrap();
            }
            let given_up = time::timeout(Duration::from_millis(2), stream.write_all(large)).await;
            assert!(given_up.is_err());
        }
    });
}

#[test]
fn static_bytes_are_sent_as_they_are() {
    run(async || {
        let (stream, mut peer) = pair();
        let (sent, back) = stream.write_all(b"hello, ").await;
        sent.unwrap();
        assert_eq!(back, b"hello, ");
        let all: &'static [u8] = b"world";
        stream.write_all(all).await.0.unwrap();
        let mut got = [0; 12];
        peer.read_exact(&mut got).unwrap();
        assert_eq!(&got, b"hello, world");
    });
}

#[test]
fn reads_after_a_short_one_wait_and_miss_nothing() {
    run(async || {
        let (stream, mut peer) = pair();
        let mut buf = Vec::with_capacity(64);
        for round in 0..50_u8 {
            // Alternately there before the read begins, and after it.
            if round % 2 == 0 {
                peer.write_all(&[round; 5]).unwrap();
                (_, buf) = stream.read(buf).await;
                assert_eq!(buf, [round; 5]);
            } else {
                let (fd, room) = (stream.as_raw_fd(), std::mem::take(&mut buf));
                let recv = Recv { fd, buf: room.into() };
                let reading = spawn(async move { Op::poll_first(recv).await });
                time::sleep(Duration::from_micros(200)).await;
                peer.write_all(&[round; 64]).unwrap();
                let (read, back) = reading.await.unwrap();
                assert_eq!(read.unwrap(), 64);
                buf = back.into_vec();
                assert_eq!(buf, [round; 64]);
            }
        }
        drop(peer);
        assert_eq!(stream.read(buf).await.0.unwrap(), 0);
    });
}

/// Lets other tasks run.
async fn yield_to_others() {
    let mut is_over = false;
    poll_fn(|cx| {
        if std::mem::replace(&mut is_over, true) {
            return Poll::Ready(());
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

/// A TCP stream that has switched to large buffers and has taken everything, and its peer.
fn tcp_pair() -> (TcpStream, std::net::TcpStream) {
    let listener = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let peer = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (ours, _) = listener.accept().unwrap();
    ours.set_nonblocking(true).unwrap();
    (TcpStream::from(OwnedFd::from(ours)), peer)
}

/// Has the peer send a lot, and takes it.
async fn take_bulk(incoming: &mut Receive<'_>, peer: &std::net::TcpStream) {
    let mut writer = peer.try_clone().unwrap();
    let sending = std::thread::spawn(move || writer.write_all(pattern(4_000_000)).unwrap());
    let mut came = 0;
    while came < 4_000_000 {
        came += incoming.next().await.unwrap().unwrap().len();
    }
    sending.join().unwrap();
}

/// A task that keeps the loop from sleeping, for ever or for a moment.
fn busy(for_ever: bool) -> ringloop::JoinHandle<()> {
    spawn(async move {
        let mut left = 3;
        while for_ever || left > 0 {
            yield_to_others().await;
            left -= 1 - i32::from(for_ever);
        }
    })
}

/// A receive stops at urgent data; no further event reports the bytes after it (tcp(7)).
#[test]
fn bytes_after_urgent_data_arrive_in_an_idle_and_in_a_busy_loop() {
    run(async || {
        for for_ever in [false, true] {
            let (stream, mut peer) = tcp_pair();
            let mut incoming = stream.receive();
            take_bulk(&mut incoming, &peer).await;
            for _ in 0..10 {
                let others = busy(for_ever);
                let waits = poll_fn(|cx| Poll::Ready(incoming.poll_next(cx).is_pending()));
                assert!(waits.await, "everything was taken");
                peer.write_all(b"before").unwrap();
                let urgent = b"!".as_ptr().cast();
                // SAFETY: one byte at a live address.
                let sent = unsafe { libc::send(peer.as_raw_fd(), urgent, 1, libc::MSG_OOB) };
                assert_eq!(sent, 1);
                peer.write_all(b"behind").unwrap();
                let mut came = Vec::new();
                while came.len() < 12 {
                    came.extend_from_slice(&incoming.next().await.unwrap().unwrap());
                }
                assert_eq!(came, b"beforebehind");
                others.abort();
            }
        }
    });
}

#[test]
fn end_that_came_with_the_last_bytes_is_seen_in_a_busy_loop() {
    run(async || {
        for for_ever in [false, true] {
            let (stream, mut peer) = tcp_pair();
            let mut incoming = stream.receive();
            take_bulk(&mut incoming, &peer).await;
            let others = busy(for_ever);
            let waits = poll_fn(|cx| Poll::Ready(incoming.poll_next(cx).is_pending()));
            assert!(waits.await, "everything was taken");
            peer.write_all(pattern(2 * POOL)).unwrap();
            peer.shutdown(std::net::Shutdown::Write).unwrap();
            let mut came = 0;
            while let Some(bytes) = incoming.next().await {
                came += bytes.unwrap().len();
            }
            assert_eq!(came, 2 * POOL);
            others.abort();
        }
    });
}
