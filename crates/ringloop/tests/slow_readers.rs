//! Readers that take nothing for a while: others of the loop still get buffers of the pool that all
//! share, and the slow ones every byte in order; on both drivers.
#![allow(clippy::unwrap_used)]

use ringloop::embed::sys::fd::AsRawFd;
use ringloop::embed::{RecvInto, limits};
use ringloop::net::{Receive, UdpSocket, UnixStream};
use ringloop::{spawn, time};
use ringloop_testing::PATIENCE;
use ringloop_testing::engine::{first_memory, in_runtimes};
use std::future::{Future, poll_fn};
use std::io::{ErrorKind, Write};
use std::os::fd::OwnedFd;
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

type Wanted = fn(&UnixStream) -> Receive<'_>;

const KINDS: [Wanted; 3] = [
    UnixStream::receive,
    |stream| stream.receive().bundled(),
    |stream| stream.receive().incremental(),
];

/// Runs a test on every driver, for no longer than a test may wait.
fn on_both(test: impl AsyncFn()) {
    in_runtimes(|runtime| {
        runtime.block_on(async { time::timeout(PATIENCE, test()).await.unwrap() }).unwrap();
    });
}

/// Our end, and the peer's, which is blocking.
fn pair() -> (UnixStream, std::os::unix::net::UnixStream) {
    let (ours, peer) = std::os::unix::net::UnixStream::pair().unwrap();
    ours.set_nonblocking(true).unwrap();
    (OwnedFd::from(ours).into(), peer)
}

/// Begins what then waits, as a task does that waits for something else first.
async fn poll_once<T>(future: impl Future<Output = T>) -> Option<T> {
    let mut future = pin!(future);
    poll_fn(|cx| {
        Poll::Ready(match future.as_mut().poll(cx) {
            Poll::Ready(value) => Some(value),
            Poll::Pending => None,
        })
    })
    .await
}

fn byte(stream: usize, at: usize) -> u8 {
    (at / 7 + stream * 31) as u8
}

/// Fills what the peer's socket takes without waiting; returns how much that is.
fn fill(peer: &mut std::os::unix::net::UnixStream, stream: usize, from: usize) -> usize {
    peer.set_nonblocking(true).unwrap();
    let mut sent = from;
    loop {
        let bytes: Vec<u8> = (sent..sent + 4_000).map(|at| byte(stream, at)).collect();
        match peer.write(&bytes) {
            Ok(count) => sent += count,
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::WouldBlock);
                return sent;
            }
        }
    }
}

/// Lets the loop turn, with nothing to do in between.
async fn some_turns() {
    for _ in 0..5 {
        time::sleep(Duration::from_millis(2)).await;
    }
}

#[test]
fn streams_that_are_not_read_leave_buffers_to_others() {
    const SLOW: usize = 60;
    for wanted in KINDS {
        on_both(async || {
            let (other, mut others_peer) = pair();
            let mut quick = wanted(&other);
            others_peer.write_all(b"first").unwrap();
            let pool = first_memory(&quick.next().await.unwrap().unwrap());
            let mut pairs: Vec<_> = (0..SLOW).map(|_| pair()).collect();
            let mut sent = [0; SLOW];
            let (ours, mut peers): (Vec<_>, Vec<_>) = pairs.drain(..).unzip();
            let mut slow: Vec<_> = ours.iter().map(wanted).collect();
            for sequence in &mut slow {
                assert!(poll_once(sequence.next()).await.is_none());
            }
            for _ in 0..3 {
                for (stream, peer) in peers.iter_mut().enumerate() {
                    sent[stream] = fill(peer, stream, sent[stream]);
                }
                some_turns().await;
            }
            for _ in 0..3 {
                others_peer.write_all(b"waits").unwrap();
                let waits = quick.next().await.unwrap().unwrap();
                assert_eq!(&*waits, b"waits");
                assert!(pool.contains(&waits.as_ptr().addr()), "more memory for slow readers");
            }
            drop(peers);
            for (stream, sequence) in slow.iter_mut().enumerate() {
                let mut came = 0;
                while let Some(received) = sequence.next().await {
                    let received = received.unwrap();
                    let expected = (came..).map(|at| byte(stream, at));
                    assert!(
                        received.iter().copied().eq(expected.take(received.len())),
                        "{stream} at {came}"
                    );
                    came += received.len();
                }
                assert_eq!(came, sent[stream], "{stream}");
            }
        });
    }
}

#[test]
fn streams_that_are_not_read_leave_buffers_to_others_of_a_busy_loop() {
    on_both(async || {
        let (other, mut others_peer) = pair();
        let mut quick = other.receive();
        others_peer.write_all(b"first").unwrap();
        let pool = first_memory(&quick.next().await.unwrap().unwrap());
        let pairs: Vec<_> = (0..20).map(|_| pair()).collect();
        let busy = spawn(async {
            loop {
                time::yield_now().await;
            }
        });
        let (ours, mut peers): (Vec<_>, Vec<_>) = pairs.into_iter().unzip();
        let mut slow: Vec<_> = ours.iter().map(UnixStream::receive).collect();
        for (stream, sequence) in slow.iter_mut().enumerate() {
            assert!(poll_once(sequence.next()).await.is_none());
            fill(&mut peers[stream], stream, 0);
            some_turns().await;
            fill(&mut peers[stream], stream, 0);
        }
        some_turns().await;
        others_peer.write_all(b"waits").unwrap();
        let waits = quick.next().await.unwrap().unwrap();
        assert_eq!(&*waits, b"waits");
        assert!(pool.contains(&waits.as_ptr().addr()), "more memory for slow readers");
        busy.abort();
    });
}

#[test]
fn single_receives_that_are_not_taken_leave_buffers_to_others() {
    const SLOW: usize = limits::SINGLE_POOL_BUFFERS as usize + 40;
    on_both(async || {
        let (ours, mut peers): (Vec<_>, Vec<_>) = (0..SLOW).map(|_| pair()).unzip();
        let mut places = vec![[0; 4]; SLOW];
        let slow = ours.iter().zip(&mut places);
        let mut slow: Vec<_> =
            slow.map(|(ours, into)| Box::pin(RecvInto::new(ours.as_raw_fd(), into))).collect();
        for (receive, peer) in slow.iter_mut().zip(&mut peers) {
            assert!(poll_once(receive.as_mut()).await.is_none());
            peer.write_all(b"slow").unwrap();
        }
        some_turns().await;
        let (other, mut others_peer) = pair();
        let mut into = [0; 8];
        let mut quick = Box::pin(RecvInto::new(other.as_raw_fd(), &mut into));
        assert!(poll_once(quick.as_mut()).await.is_none());
        others_peer.write_all(b"waits").unwrap();
        assert_eq!(quick.await.unwrap(), 5);
        for receive in slow {
            assert_eq!(receive.await.unwrap(), 4);
        }
        assert!(places.iter().all(|place| place == b"slow"));
    });
}

#[test]
fn datagrams_that_are_not_read_leave_buffers_to_others() {
    const SLOW: usize = 12;
    on_both(async || {
        let bound = || UdpSocket::bind("127.0.0.1:0");
        let peer = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        let other = bound().await.unwrap();
        let mut quick = other.datagrams();
        peer.send_to(b"first", other.local_addr().unwrap()).unwrap();
        let pool = first_memory(quick.next().await.unwrap().payload());
        let mut ours = Vec::new();
        for _ in 0..SLOW {
            ours.push(bound().await.unwrap());
        }
        let mut slow: Vec<_> = ours.iter().map(UdpSocket::datagrams).collect();
        for (socket, datagrams) in slow.iter_mut().enumerate() {
            assert!(poll_once(datagrams.next()).await.is_none());
            for number in 0..20 {
                let address = ours[socket].local_addr().unwrap();
                peer.send_to(&[socket as u8, number], address).unwrap();
            }
        }
        some_turns().await;
        for number in 0..3 {
            peer.send_to(&[number], other.local_addr().unwrap()).unwrap();
            let datagram = quick.next().await.unwrap();
            assert_eq!(datagram.payload(), [number]);
            assert!(pool.contains(&datagram.payload().as_ptr().addr()), "more memory");
        }
        for (socket, datagrams) in slow.iter_mut().enumerate() {
            for number in 0..20 {
                let datagram = datagrams.next().await.unwrap();
                assert_eq!(datagram.payload(), [socket as u8, number]);
            }
        }
    });
}
