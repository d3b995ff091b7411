//! Ended operations release their file: before the completion is taken, and before the next wait. And its
//! number: the next file of that number is watched as if nothing had been.
#![allow(clippy::unwrap_used)]

use ringloop::embed::op::{Poll, Request};
use ringloop::embed::sys::file;
use ringloop::embed::sys::interest::Interest;
use ringloop::{fs, future, net, time};
use ringloop_testing::PATIENCE;
use ringloop_testing::engine::{in_runtimes, on_both};
use std::future::poll_fn;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::pin::{Pin, pin};
use std::task::Poll as Progress;
use std::time::Duration;

fn pair() -> (UnixStream, UnixStream) {
    let (ours, theirs) = UnixStream::pair().unwrap();
    let seconds = Some(ringloop_testing::PATIENCE);
    theirs.set_read_timeout(seconds).unwrap();
    (ours, theirs)
}

fn poll(socket: &UnixStream) -> Request {
    Request::Poll(Poll { fd: socket.as_raw_fd(), interest: Interest::READ, level: true })
}

fn sees_the_end(mut socket: UnixStream) -> bool {
    matches!(socket.read(&mut [0]), Ok(0))
}

#[test]
fn cancelled_operation_has_ended_before_its_completion_is_taken() {
    on_both(|bed| {
        let (ours, theirs) = pair();
        let (key, token) = bed.submit(poll(&ours));
        bed.engine.driver_mut().wait(Some(Duration::ZERO)).unwrap();
        assert!(!bed.engine.driver_mut().has_ended(key));
        bed.engine.driver_mut().cancel(key);
        bed.engine.driver_mut().wait(Some(Duration::ZERO)).unwrap();
        assert!(bed.engine.driver_mut().has_ended(key));
        // Its completion has not been taken, and the file is released.
        assert_eq!(bed.in_flight(), 1);
        bed.release(&ours);
        drop(ours);
        assert!(sees_the_end(theirs));
        assert_eq!(bed.expect(token).result, -libc::ECANCELED);
        assert_eq!(bed.in_flight(), 0);
        assert!(bed.engine.driver_mut().has_ended(key));
    });
}

#[test]
fn forget_now_releases_the_file() {
    on_both(|bed| {
        for is_armed in [true, false] {
            let (ours, theirs) = pair();
            let (key, _) = bed.submit(poll(&ours));
            if is_armed {
                bed.engine.driver_mut().wait(Some(Duration::ZERO)).unwrap();
            }
            bed.engine.driver_mut().forget_now(key);
            bed.release(&ours);
            drop(ours);
            assert!(sees_the_end(theirs), "armed: {is_armed}");
        }
    });
}

/// Ends after a moment without a result.
async fn brief(work: impl Future) {
    assert!(time::timeout(Duration::from_millis(2), work).await.is_err());
}

#[test]
fn socket_is_closed_with_its_drop_although_an_operation_was_just_cancelled() {
    in_runtimes(|runtime| {
        runtime
            .block_on(async {
                for is_twice in [false, true] {
                    let udp = net::UdpSocket::bind("127.0.0.1:0").await.unwrap();
                    let address = udp.local_addr().unwrap();
                    brief(udp.recv(Vec::with_capacity(8))).await;
                    if is_twice {
                        brief(future::join(
                            udp.recv(Vec::with_capacity(8)),
                            udp.peek(Vec::with_capacity(8)),
                        ))
                        .await;
                    }
                    drop(udp);
                    std::net::UdpSocket::bind(address).unwrap();

                    let listener = net::TcpListener::bind("127.0.0.1:0").await.unwrap();
                    let address = listener.local_addr().unwrap();
                    let mut incoming = listener.incoming();
                    brief(incoming.next()).await;
                    if is_twice {
                        brief(incoming.next()).await;
                    }
                    drop(incoming);
                    drop(listener);
                    assert!(std::net::TcpStream::connect(address).is_err());

                    let (ours, theirs) = UnixStream::pair().unwrap();
                    theirs.set_nonblocking(true).unwrap();
                    ours.set_nonblocking(true).unwrap();
                    let ours = net::UnixStream::from(OwnedFd::from(ours));
                    brief(ours.read(Vec::with_capacity(8))).await;
                    if is_twice {
                        ours.cancel();
                    }
                    drop(ours);
                    assert!(sees_the_end(theirs));
                }
            })
            .unwrap();
    });
}

#[test]
fn descriptor_of_the_owner_is_closed_with_its_drop_although_its_poll_was_just_cancelled() {
    in_runtimes(|runtime| {
        runtime
            .block_on(async {
                let (ours, theirs) = UnixStream::pair().unwrap();
                theirs.set_nonblocking(true).unwrap();
                let mut readiness = net::Readiness::new(ours.as_fd(), net::Interest::READ);
                brief(readiness.next()).await;
                drop(readiness);
                drop(ours);
                assert!(sees_the_end(theirs));
            })
            .unwrap();
    });
}

/// A stream with this number, which is free, and its peer.
fn stream_numbered(number: RawFd) -> (net::UnixStream, UnixStream) {
    let mut others = Vec::new();
    loop {
        let (one, two) = UnixStream::pair().unwrap();
        let (ours, theirs) = if two.as_raw_fd() == number { (two, one) } else { (one, two) };
        if ours.as_raw_fd() == number {
            ours.set_nonblocking(true).unwrap();
            return (OwnedFd::from(ours).into(), theirs);
        }
        assert!(ours.as_raw_fd() < number, "{number} is taken");
        others.push((ours, theirs));
    }
}

/// The new file of a number is read only once its bytes are there.
async fn expect_a_read(number: RawFd) {
    let (ours, mut theirs) = stream_numbered(number);
    let reading = async { time::timeout(PATIENCE, ours.read(Vec::with_capacity(8))).await };
    let writing = async {
        time::sleep(Duration::from_millis(5)).await;
        theirs.write_all(b"here").unwrap();
    };
    let (read, ()) = ringloop::join!(reading, writing);
    assert_eq!(read.unwrap().1, b"here");
}

/// Ends a wait for the input of a splice or a tee: by bytes, or by dropping the future.
async fn wait_for_input(moves: bool, is_dropped: bool) -> RawFd {
    let (input, mut feeder) =
        file::pipe().map(|(input, feeder)| (input, std::fs::File::from(feeder))).unwrap();
    let (_output, room) = file::pipe().unwrap();
    let splice = async { fs::splice(&input, None, &room, None, 16).await };
    let tee = async { fs::tee(&input, &room, 16).await };
    let mut waiting: Pin<&mut dyn Future<Output = io::Result<usize>>> =
        if moves { pin!(splice) } else { pin!(tee) };
    let first = poll_fn(|cx| Progress::Ready(waiting.as_mut().poll(cx))).await;
    assert!(first.is_pending());
    // The loop waits for the pipe.
    time::sleep(Duration::from_millis(5)).await;
    if !is_dropped {
        feeder.write_all(b"bytes").unwrap();
        assert_eq!(waiting.await.unwrap(), 5);
    }
    input.as_raw_fd()
}

#[test]
fn number_of_a_file_that_its_owner_closes_after_a_splice_can_be_used_again() {
    in_runtimes(|runtime| {
        for (moves, is_dropped) in [(true, false), (true, true), (false, false), (false, true)] {
            runtime
                .block_on(async {
                    let number = wait_for_input(moves, is_dropped).await;
                    expect_a_read(number).await;
                })
                .unwrap();
        }
    });
}
