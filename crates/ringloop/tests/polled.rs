//! Polled streams: nothing is lost or sent twice when a task stops waiting; on both drivers.
#![allow(clippy::unwrap_used)]

use ringloop::embed::limits;
use ringloop::net::{Polled, TcpListener, TcpStream, UnixStream};
use ringloop::time::{sleep, timeout, yield_now};
use ringloop::{Runtime, spawn};
use ringloop_testing::PATIENCE;
use ringloop_testing::engine;
use std::cell::RefCell;
use std::future::{Future, poll_fn};
use std::io::{ErrorKind, IoSlice};
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;

fn on_both<F: Future<Output = ()>>(test: impl Fn() -> F) {
    for driver in ringloop_testing::drivers() {
        let runtime = Runtime::builder().driver(driver).build().unwrap();
        runtime.block_on(test()).unwrap();
    }
}

fn pair() -> (Polled<UnixStream>, UnixStream) {
    let (ours, peer) = UnixStream::pair().unwrap();
    (Polled::new(ours), peer)
}

async fn read(stream: &mut Polled<UnixStream>, len: usize) -> std::io::Result<Vec<u8>> {
    let mut bytes = vec![0; len];
    let count = poll_fn(|cx| stream.poll_read(cx, &mut bytes)).await?;
    bytes.truncate(count);
    Ok(bytes)
}

async fn write_all(stream: &mut Polled<UnixStream>, mut bytes: &[u8]) {
    while !bytes.is_empty() {
        let count = poll_fn(|cx| stream.poll_write(cx, bytes)).await.unwrap();
        assert!(count > 0 && count <= limits::POLLED_WRITE_BYTES);
        bytes = &bytes[count..];
    }
}

/// Everything until the end of the stream.
async fn read_to_end(peer: &UnixStream) -> Vec<u8> {
    let mut all = Vec::new();
    loop {
        let (count, bytes) = peer.read(Vec::with_capacity(1 << 16)).await;
        if count.unwrap() == 0 {
            return all;
        }
        all.extend_from_slice(&bytes);
    }
}

/// Bytes that show gaps and duplicates.
fn numbered(len: usize) -> Vec<u8> {
    (0..len).map(|index| (index * 7 / 5) as u8).collect()
}

#[test]
fn reader_that_stops_waiting_loses_no_byte() {
    on_both(|| async {
        let (mut stream, peer) = pair();
        for round in 0..50_u8 {
            let late = timeout(Duration::from_micros(50), read(&mut stream, 1)).await;
            assert!(late.is_err());
            peer.write_all(vec![round, round]).await.0.unwrap();
            assert_eq!(read(&mut stream, 1).await.unwrap(), [round]);
            assert_eq!(read(&mut stream, 9).await.unwrap(), [round]);
        }
        drop(peer);
        assert_eq!(read(&mut stream, 1).await.unwrap(), []);
        assert_eq!(read(&mut stream, 1).await.unwrap(), [], "the end stays");
    });
}

#[test]
fn writer_goes_on_past_what_the_peer_takes_and_every_byte_arrives_once() {
    on_both(|| async {
        let (mut stream, peer) = pair();
        let bytes = numbered(5_000_000);
        let sent = bytes.clone();
        let writer = spawn(async move {
            write_all(&mut stream, &sent).await;
            poll_fn(|cx| stream.poll_shutdown(cx)).await.unwrap();
            stream
        });
        assert_eq!(read_to_end(&peer).await, bytes);
        drop(writer.await.unwrap());
    });
}

#[test]
fn what_was_written_before_the_drop_still_arrives() {
    on_both(|| async {
        let (mut stream, peer) = pair();
        let bytes = numbered(400_000);
        let sent = bytes.clone();
        let writer = spawn(async move { write_all(&mut stream, &sent).await });
        // The writer drops the stream with its last bytes still queued.
        assert_eq!(read_to_end(&peer).await, bytes);
        writer.await.unwrap();
    });
}

#[test]
fn what_a_lone_task_writes_is_sent_without_another_poll() {
    let _alone = engine::alone();
    for driver in ringloop_testing::drivers() {
        let runtime = Runtime::builder().driver(driver).build().unwrap();
        let (ours, mut peer) = std::os::unix::net::UnixStream::pair().unwrap();
        let stream = runtime.block_on(async {
            let mut stream = Polled::new(UnixStream::from(ours));
            for part in [b"one", b"two", b"six"] {
                write_all(&mut stream, part).await;
            }
            stream
        });
        peer.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut bytes = [0; 9];
        std::io::Read::read_exact(&mut peer, &mut bytes).unwrap();
        assert_eq!(&bytes, b"onetwosix");
        drop(stream);
    }
}

#[test]
fn writer_is_held_at_the_bound_when_the_peer_does_not_read() {
    on_both(|| async {
        let (mut stream, peer) = pair();
        let chunk = [7; 10_000];
        let mut taken = 0;
        loop {
            let wrote =
                timeout(Duration::from_millis(50), poll_fn(|cx| stream.poll_write(cx, &chunk)));
            match wrote.await {
                Ok(count) => taken += count.unwrap(),
                Err(_) => break,
            }
            assert!(taken < 4 << 20, "nothing held the writer");
        }
        let flushed = timeout(Duration::from_millis(5), poll_fn(|cx| stream.poll_flush(cx)));
        assert!(flushed.await.is_err());
        let reader = spawn(async move { read_to_end(&peer).await });
        poll_fn(|cx| stream.poll_shutdown(cx)).await.unwrap();
        assert_eq!(reader.await.unwrap().len(), taken);
    });
}

#[test]
fn several_buffers_go_out_in_order() {
    on_both(|| async {
        let (mut stream, peer) = pair();
        let bufs = [IoSlice::new(b"one "), IoSlice::new(b""), IoSlice::new(b"two")];
        let count = poll_fn(|cx| stream.poll_write_vectored(cx, &bufs)).await;
        assert_eq!(count.unwrap(), 7);
        poll_fn(|cx| stream.poll_shutdown(cx)).await.unwrap();
        poll_fn(|cx| stream.poll_shutdown(cx)).await.unwrap();
        assert_eq!(read_to_end(&peer).await, b"one two");
    });
}

#[test]
fn reader_moves_on_what_the_writer_left_behind() {
    on_both(|| async {
        let (mut stream, peer) = pair();
        let bytes = numbered(120_000);
        // Accepted at once, not sent at once; there is no flush.
        write_all(&mut stream, &bytes).await;
        let peer = spawn(answer(peer, bytes.len()));
        assert_eq!(read(&mut stream, 8).await.unwrap(), b"!");
        assert_eq!(peer.await.unwrap(), bytes);
    });
}

/// Reads this much before it replies.
async fn answer(peer: UnixStream, len: usize) -> Vec<u8> {
    let mut all = Vec::new();
    while all.len() < len {
        let (count, bytes) = peer.read(Vec::with_capacity(9000)).await;
        assert!(count.unwrap() > 0);
        all.extend_from_slice(&bytes);
    }
    peer.write_all(b"!".to_vec()).await.0.unwrap();
    all
}

const SOON: Duration = Duration::from_millis(5);

/// Writes, flushing or not, until that has to wait, and drops it; returns what was written.
async fn write_until_given_up(stream: &RefCell<Polled<UnixStream>>, is_flushed: bool) -> Vec<u8> {
    let all = numbered(4_000_000);
    let mut count = 0;
    loop {
        let write = poll_fn(|cx| stream.borrow_mut().poll_write(cx, &all[count..]));
        match timeout(SOON, write).await {
            Ok(taken) => count += taken.unwrap(),
            Err(_) => break,
        }
        let flush = poll_fn(|cx| stream.borrow_mut().poll_flush(cx));
        if is_flushed && timeout(SOON, flush).await.is_err() {
            break;
        }
    }
    all[..count].to_vec()
}

async fn read_answer(stream: &RefCell<Polled<UnixStream>>) -> Vec<u8> {
    let mut into = [0; 8];
    let read = poll_fn(|cx| stream.borrow_mut().poll_read(cx, &mut into));
    let count = timeout(PATIENCE, read).await.expect("all stands still");
    into[..count.unwrap()].to_vec()
}

#[test]
fn reader_moves_on_what_a_flush_or_write_waited_for_that_was_given_up() {
    on_both(|| async {
        for is_flushed in [false, true] {
            let (stream, peer) = pair();
            let stream = RefCell::new(stream);
            let bytes = write_until_given_up(&stream, is_flushed).await;
            let peer = spawn(answer(peer, bytes.len()));
            assert_eq!(read_answer(&stream).await, b"!");
            assert!(peer.await.unwrap() == bytes);
        }
    });
}

#[test]
fn reader_in_one_task_moves_on_what_another_has_given_up() {
    on_both(|| async {
        for is_flushed in [false, true] {
            let (stream, peer) = pair();
            let stream = Rc::new(RefCell::new(stream));
            let reader = Rc::clone(&stream);
            let reader = spawn(async move { read_answer(&reader).await });
            // It waits before anything is written.
            sleep(SOON).await;
            let bytes = write_until_given_up(&stream, is_flushed).await;
            let peer = spawn(answer(peer, bytes.len()));
            assert_eq!(reader.await.unwrap(), b"!");
            assert!(peer.await.unwrap() == bytes);
        }
    });
}

#[test]
fn writer_is_woken_by_room_that_a_reader_in_another_task_made() {
    on_both(|| async {
        let (stream, peer) = pair();
        let stream = Rc::new(RefCell::new(stream));
        let writer = {
            let stream = Rc::clone(&stream);
            spawn(async move {
                let bytes = numbered(1_000_000);
                let mut left = bytes.as_slice();
                while !left.is_empty() {
                    let write = poll_fn(|cx| stream.borrow_mut().poll_write(cx, left));
                    left = &left[timeout(PATIENCE, write).await.unwrap().unwrap()..];
                }
                let flush = poll_fn(|cx| stream.borrow_mut().poll_flush(cx));
                timeout(PATIENCE, flush).await.unwrap().unwrap();
            })
        };
        // It waits for room when the reader runs.
        sleep(SOON).await;
        let reader = spawn(async move { read_answer(&stream).await });
        sleep(SOON).await;
        let mut came = 0;
        while came < 1_000_000 {
            came += peer.read(Vec::with_capacity(30_000)).await.0.unwrap();
        }
        writer.await.unwrap();
        peer.write_all(b"!".to_vec()).await.0.unwrap();
        assert_eq!(reader.await.unwrap(), b"!");
    });
}

/// Everything that will arrive, from a peer that is not polled any more.
async fn arrives(peer: &UnixStream, len: usize) -> Vec<u8> {
    let mut all = Vec::new();
    while all.len() < len {
        let read = timeout(PATIENCE, peer.read(Vec::with_capacity(9000)));
        let (count, bytes) = read.await.expect("the rest is not sent");
        assert!(count.unwrap() > 0);
        all.extend_from_slice(&bytes);
    }
    all
}

#[test]
fn two_writes_without_a_flush_arrive_while_their_writer_waits_for_something_else() {
    on_both(|| async {
        let busy = spawn(async {
            loop {
                yield_now().await;
            }
        });
        let (mut stream, peer) = pair();
        let writer = spawn(async move {
            for part in [b"one", b"two", b"six"] {
                write_all(&mut stream, part).await;
            }
            std::future::pending::<()>().await;
            drop(stream);
        });
        assert_eq!(arrives(&peer, 9).await, b"onetwosix");
        writer.abort();
        busy.abort();
    });
}

#[test]
fn more_than_the_socket_takes_arrives_without_a_flush() {
    on_both(|| async {
        for is_flushed in [false, true] {
            let (stream, peer) = pair();
            let stream = RefCell::new(stream);
            for _ in 0..2 {
                let bytes = write_until_given_up(&stream, is_flushed).await;
                assert!(arrives(&peer, bytes.len()).await == bytes);
            }
            // The last byte is the shutdown's, after all of it.
            let bytes = write_until_given_up(&stream, is_flushed).await;
            drop(stream);
            assert!(timeout(PATIENCE, read_to_end(&peer)).await.unwrap() == bytes);
        }
    });
}

#[test]
fn error_of_a_write_that_was_not_awaited_is_returned_by_the_next() {
    on_both(|| async {
        let (stream, peer) = pair();
        let stream = RefCell::new(stream);
        drop(write_until_given_up(&stream, false).await);
        drop(peer);
        // The queued bytes fail while this task sleeps.
        sleep(SOON).await;
        let flush = poll_fn(|cx| stream.borrow_mut().poll_flush(cx));
        let error = timeout(PATIENCE, flush).await.unwrap().unwrap_err();
        assert!(
            [ErrorKind::BrokenPipe, ErrorKind::ConnectionReset].contains(&error.kind()),
            "{error:?}"
        );
    });
}

#[test]
fn stream_whose_rest_was_lost_with_its_runtime_goes_with_it() {
    let _alone = engine::alone();
    for driver in ringloop_testing::drivers() {
        let before = engine::open_descriptors();
        let runtime = Runtime::builder().driver(driver).build().unwrap();
        let (stream, peer) = runtime
            .block_on(async {
                let (stream, peer) = pair();
                let stream = RefCell::new(stream);
                drop(write_until_given_up(&stream, false).await);
                (stream, peer)
            })
            .unwrap();
        drop(runtime);
        drop((stream, peer));
        engine::expect_descriptors(before);
    }
}

#[test]
fn error_of_an_earlier_write_is_returned() {
    on_both(|| async {
        let (mut stream, peer) = pair();
        drop(peer);
        let error = loop {
            match poll_fn(|cx| stream.poll_write(cx, b"into the void")).await {
                Ok(_) => yield_now().await,
                Err(error) => break error,
            }
        };
        assert!(
            [ErrorKind::BrokenPipe, ErrorKind::ConnectionReset].contains(&error.kind()),
            "{error:?}"
        );
    });
}

#[test]
fn filled_bytes_stay_until_they_are_taken() {
    on_both(|| async {
        let (mut stream, peer) = pair();
        peer.write_all(b"abcdef".to_vec()).await.0.unwrap();
        let first = poll_fn(|cx| stream.poll_fill(cx).map(|filled| filled.unwrap().to_vec()));
        assert_eq!(first.await, b"abcdef");
        stream.consume(4);
        assert_eq!(read(&mut stream, 9).await.unwrap(), b"ef");
        let none = poll_fn(|cx| Poll::Ready(stream.poll_read(cx, &mut []))).await;
        assert!(matches!(none, Poll::Ready(Ok(0))));
    });
}

#[test]
fn stream_dropped_with_a_peer_that_never_reads_is_closed_with_its_runtime() {
    for driver in ringloop_testing::drivers() {
        let runtime = Runtime::builder().driver(driver).build().unwrap();
        let peer = runtime
            .block_on(async {
                let listener = TcpListener::bind_addr(([127, 0, 0, 1], 0).into()).unwrap();
                let addr = listener.local_addr().unwrap();
                let peer = std::net::TcpStream::connect(addr).unwrap();
                let mut stream = Polled::<TcpStream>::new(listener.accept().await.unwrap());
                let chunk = vec![7; 60_000];
                while let Ok(wrote) =
                    timeout(Duration::from_millis(20), poll_fn(|cx| stream.poll_write(cx, &chunk)))
                        .await
                {
                    wrote.unwrap();
                }
                drop(stream);
                sleep(Duration::from_millis(1)).await;
                peer
            })
            .unwrap();
        drop(runtime);
        drop(peer);
    }
}
