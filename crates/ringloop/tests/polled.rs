//! Streams that are polled: nothing is lost or sent twice, whoever stops waiting; on both drivers.
#![allow(clippy::unwrap_used)]

mod support;

use ringloop::net::{Polled, TcpListener, TcpStream, UnixStream};
use ringloop::time::{sleep, timeout, yield_now};
use ringloop::{Runtime, limits, spawn};
use std::future::{Future, poll_fn};
use std::io::{ErrorKind, IoSlice};
use std::task::Poll;
use std::time::Duration;

fn on_both<F: Future<Output = ()>>(test: impl Fn() -> F) {
    for driver in support::drivers() {
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

/// Bytes that show what is missing or doubled.
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
        // The writer ends, and drops the stream, with its last bytes still queued.
        assert_eq!(read_to_end(&peer).await, bytes);
        writer.await.unwrap();
    });
}

#[test]
fn writer_is_held_at_the_bound_when_the_peer_does_not_read() {
    on_both(|| async {
        let (mut stream, peer) = pair();
        let chunk = [7; 10_000];
        let mut taken = 0;
        loop {
            let wrote = timeout(
                Duration::from_millis(50),
                poll_fn(|cx| stream.poll_write(cx, &chunk)),
            );
            match wrote.await {
                Ok(count) => taken += count.unwrap(),
                Err(_) => break,
            }
            assert!(taken < 4 << 20, "nothing held the writer");
        }
        let flushed = timeout(
            Duration::from_millis(5),
            poll_fn(|cx| stream.poll_flush(cx)),
        );
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
        let bufs = [
            IoSlice::new(b"one "),
            IoSlice::new(b""),
            IoSlice::new(b"two"),
        ];
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
        // Taken at once, not sent at once; nobody flushes.
        write_all(&mut stream, &bytes).await;
        let peer = spawn(async move {
            let mut all = Vec::new();
            while all.len() < 120_000 {
                let (count, bytes) = peer.read(Vec::with_capacity(9000)).await;
                assert!(count.unwrap() > 0);
                all.extend_from_slice(&bytes);
            }
            peer.write_all(b"!".to_vec()).await.0.unwrap();
            all
        });
        assert_eq!(read(&mut stream, 8).await.unwrap(), b"!");
        assert_eq!(peer.await.unwrap(), bytes);
    });
}

#[test]
fn error_of_an_earlier_write_is_told() {
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
    for driver in support::drivers() {
        let runtime = Runtime::builder().driver(driver).build().unwrap();
        let peer = runtime
            .block_on(async {
                let listener = TcpListener::bind(([127, 0, 0, 1], 0).into()).unwrap();
                let addr = listener.local_addr().unwrap();
                let peer = std::net::TcpStream::connect(addr).unwrap();
                let mut stream = Polled::<TcpStream>::new(listener.accept().await.unwrap());
                let chunk = vec![7; 60_000];
                while let Ok(wrote) = timeout(
                    Duration::from_millis(20),
                    poll_fn(|cx| stream.poll_write(cx, &chunk)),
                )
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
