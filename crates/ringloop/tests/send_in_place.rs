//! Many received bytes are sent in place from their pool buffer, which is held until then: the
//! limit, the return of buffers, and sends that are cancelled or fail.

#![allow(clippy::unwrap_used)]

use ringloop::embed::limits::{HELD_BUFFERS_MAX, POOL_BUFFERS};
use ringloop::net::{Received, UnixStream};
use ringloop::{JoinHandle, Options, Runtime, spawn, time};
use ringloop_testing::engine::{alone, first_memory, in_runtimes};
use ringloop_testing::{PATIENCE, drivers};
use std::cell::Cell;
use std::future::{Future, poll_fn};
use std::io::{self, ErrorKind, Read, Write};
use std::ops::Range;
use std::os::fd::{AsFd, OwnedFd};
use std::pin::pin;
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;

type Peer = std::os::unix::net::UnixStream;

/// Less than a pool buffer, and too long to be copied.
const LEN: usize = 10_000;

fn pair() -> (UnixStream, Peer) {
    let (ours, peer) = Peer::pair().unwrap();
    ours.set_nonblocking(true).unwrap();
    (OwnedFd::from(ours).into(), peer)
}

fn pattern() -> Vec<u8> {
    (0..LEN).map(|at| (at % 251) as u8).collect()
}

fn run(test: impl AsyncFn()) {
    in_runtimes(|runtime| {
        let bounded = async { time::timeout(PATIENCE, test()).await.unwrap() };
        runtime.block_on(bounded).unwrap();
    });
}

/// A message of [`LEN`] bytes, and how many the socket took before it was full: the next send has
/// to wait.
async fn message_and_full_socket(stream: &UnixStream, peer: &mut Peer) -> (Received, usize) {
    peer.write_all(&pattern()).unwrap();
    let message = stream.receive().next().await.unwrap().unwrap();
    assert_eq!(*message, *pattern());
    let before = fill(stream);
    (message, before)
}

/// Sends until the socket is full; returns how many bytes it took.
fn fill(stream: &UnixStream) -> usize {
    let mut socket = Peer::from(stream.as_fd().try_clone_to_owned().unwrap());
    let mut before = 0;
    while let Ok(count) = socket.write(&[0; LEN]) {
        before += count;
    }
    before
}

struct Waiting {
    peer: Peer,
    /// Bytes before those of the message.
    before: usize,
    sending: JoinHandle<(io::Result<()>, Received)>,
}

/// Sends a message back to a peer that does not read; in flight once this returns.
async fn send_to_full_socket() -> Waiting {
    let (stream, mut peer) = pair();
    let (message, before) = message_and_full_socket(&stream, &mut peer).await;
    let sending = begin_send(stream, message).await;
    Waiting { peer, before, sending }
}

/// Sends a message; in flight once this returns.
async fn begin_send(
    stream: UnixStream,
    message: Received,
) -> JoinHandle<(io::Result<()>, Received)> {
    let begun = Rc::new(Cell::new(false));
    let begins = Rc::clone(&begun);
    let sending = spawn(async move {
        let mut sending = pin!(stream.write_all(message));
        poll_fn(|cx| {
            begins.set(true);
            sending.as_mut().poll(cx)
        })
        .await
    });
    while !begun.get() {
        time::sleep(Duration::ZERO).await;
    }
    sending
}

/// Where the memory of a new runtime's pool is.
async fn new_pool() -> Range<usize> {
    let (stream, mut peer) = pair();
    peer.write_all(b"x").unwrap();
    first_memory(&stream.receive().next().await.unwrap().unwrap())
}

/// Takes all buffers of the pool, which then has other memory: once a runtime. Returns how many
/// there were.
async fn free_buffers(pool: Range<usize>) -> usize {
    let (stream, mut peer) = pair();
    let mut incoming = stream.receive();
    let mut held = Vec::new();
    loop {
        peer.write_all(b"x").unwrap();
        let bytes = incoming.next().await.unwrap().unwrap();
        if !pool.contains(&bytes.as_ptr().addr()) {
            return held.len();
        }
        held.push(bytes);
    }
}

/// Reads each queued message, on its own thread, and awaits the sends.
async fn deliver(waiting: Vec<Waiting>) {
    let (mut peers, mut sendings) = (Vec::new(), Vec::new());
    for one in waiting {
        peers.push((one.peer, one.before));
        sendings.push(one.sending);
    }
    let reading = std::thread::spawn(move || {
        for (mut peer, before) in peers {
            let mut got = vec![0; before + LEN];
            peer.read_exact(&mut got).unwrap();
            assert!(got[before..] == *pattern());
        }
    });
    for sending in sendings {
        let (sent, message) = sending.await.unwrap();
        sent.unwrap();
        assert!(*message == *pattern());
    }
    reading.join().unwrap();
}

#[test]
fn half_of_the_pool_may_be_sent_in_place_and_is_returned() {
    let all = usize::from(POOL_BUFFERS);
    for (is_delivered, again, free) in
        [(false, 0, all - HELD_BUFFERS_MAX), (true, 0, all), (true, 1, all - 1)]
    {
        run(async || {
            let pool = new_pool().await;
            let mut waiting = Vec::new();
            for _ in 0..HELD_BUFFERS_MAX + 10 {
                waiting.push(send_to_full_socket().await);
            }
            if is_delivered {
                deliver(std::mem::take(&mut waiting)).await;
            }
            // They may be held again.
            for _ in 0..again {
                waiting.push(send_to_full_socket().await);
            }
            assert_eq!(free_buffers(pool).await, free);
            deliver(waiting).await;
        });
    }
}

/// Few buffers that many streams share, and most of each in one message.
#[test]
fn pieces_of_messages_that_peers_do_not_read_leave_buffers_to_others() {
    const MESSAGE_LEN: usize = 60_000;
    run(async || {
        let (mut waiting, mut pool) = (Vec::new(), None);
        for number in 0..2 * HELD_BUFFERS_MAX {
            let (stream, mut peer) = pair();
            peer.write_all(&vec![number as u8; MESSAGE_LEN]).unwrap();
            let (mut longest, mut count) = (None::<Received>, 0);
            let mut incoming = stream.receive().incremental();
            while count < MESSAGE_LEN {
                let piece = incoming.next().await.unwrap().unwrap();
                let pool = pool.get_or_insert_with(|| first_memory(&piece));
                assert!(count > 0 || pool.contains(&piece.as_ptr().addr()), "{number}");
                count += piece.len();
                if longest.as_ref().is_none_or(|longest| longest.len() < piece.len()) {
                    longest = Some(piece);
                }
            }
            drop(incoming);
            let (before, longest) = (fill(&stream), longest.unwrap());
            let expected = longest.to_vec();
            waiting.push((peer, before, expected, begin_send(stream, longest).await));
        }
        for (mut peer, before, expected, sending) in waiting {
            let reading = std::thread::spawn(move || {
                let mut got = vec![0; before + expected.len()];
                peer.read_exact(&mut got).unwrap();
                assert!(got[before..] == expected);
            });
            sending.await.unwrap().0.unwrap();
            reading.join().unwrap();
        }
    });
}

#[test]
fn rest_of_a_message_is_sent_in_place_and_returned() {
    run(async || {
        let pool = new_pool().await;
        let (stream, mut peer) = pair();
        let (mut message, before) = message_and_full_socket(&stream, &mut peer).await;
        message.advance(17);
        let mut sending = pin!(stream.write_all(message));
        let polled = poll_fn(|cx| Poll::Ready(sending.as_mut().poll(cx))).await;
        assert!(polled.is_pending());
        let reading = std::thread::spawn(move || {
            let mut got = vec![0; before + LEN - 17];
            peer.read_exact(&mut got).unwrap();
            (got, peer)
        });
        let (sent, mut back) = sending.await;
        sent.unwrap();
        assert!(*back == pattern()[17..]);
        let (got, mut peer) = reading.join().unwrap();
        assert!(got[before..] == pattern()[17..]);
        // It may be sent again, and is a pool buffer as before.
        back.advance(LEN - 17 - 5);
        let (sent, back) = stream.write_all(back).await;
        sent.unwrap();
        let mut got = [0; 5];
        peer.read_exact(&mut got).unwrap();
        assert_eq!(got, pattern()[LEN - 5..]);
        drop(back);
        assert_eq!(free_buffers(pool).await, usize::from(POOL_BUFFERS));
    });
}

#[test]
fn cancelled_send_in_place_returns_the_buffer() {
    run(async || {
        let pool = new_pool().await;
        for _ in 0..3 {
            let (stream, mut peer) = pair();
            let (message, _) = message_and_full_socket(&stream, &mut peer).await;
            let sending = stream.write_all(message);
            let given_up = time::timeout(Duration::from_millis(2), sending).await;
            assert!(given_up.is_err());
        }
        assert_eq!(free_buffers(pool).await, usize::from(POOL_BUFFERS));
    });
}

#[test]
fn a_send_that_fails_gives_the_message_back_with_the_error() {
    run(async || {
        let pool = new_pool().await;
        let waiting = send_to_full_socket().await;
        drop(waiting.peer);
        let (sent, message) = waiting.sending.await.unwrap();
        let kind = sent.unwrap_err().kind();
        assert!(matches!(kind, ErrorKind::BrokenPipe | ErrorKind::ConnectionReset));
        assert!(*message == *pattern());
        drop(message);
        assert_eq!(free_buffers(pool).await, usize::from(POOL_BUFFERS));
    });
}

#[test]
fn buffer_sent_in_place_is_not_touched_while_its_send_outlives_the_runtime() {
    let _alone = alone();
    for driver in drivers() {
        let options = Options { driver, ..Options::default() };
        let runtime = Runtime::with_options(options).unwrap();
        let Waiting { mut peer, before, .. } = runtime.block_on(send_to_full_socket()).unwrap();
        drop(runtime);
        let mut got = Vec::new();
        peer.read_to_end(&mut got).unwrap();
        assert!(got.len() >= before && pattern().starts_with(&got[before..]));
    }
}
