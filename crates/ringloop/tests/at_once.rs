//! Operations that complete at the first poll, without a wait: they are fair, keep their order, and
//! carry every byte.

#![allow(clippy::unwrap_used)]

use ringloop::Runtime;
use ringloop::embed::Kind;
use ringloop::embed::Op;
use ringloop::embed::op::{Send, Splice};
use ringloop::embed::sys::file;
use ringloop::net::{TcpListener, TcpStream};
use ringloop_testing::engine::in_runtimes;
use std::cell::Cell;
use std::future::{Future, poll_fn};
use std::io::Read;
use std::os::fd::AsRawFd;
use std::pin::Pin;
use std::rc::Rc;
use std::task::Poll;

/// More rounds than one poll may complete.
const ROUNDS_MAX: u32 = 100_000;
const BULK_LEN: usize = 8 << 20;
const CHUNK_LEN: usize = 100 * 1024;

fn run<T>(runtime: &Runtime, future: impl Future<Output = T>) -> T {
    runtime.block_on(future).unwrap()
}

async fn pair() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind_addr(([127, 0, 0, 1], 0).into()).unwrap();
    let client = TcpStream::connect(listener.local_addr().unwrap());
    let client = client.await.unwrap();
    (client, listener.accept().await.unwrap())
}

/// The next data is the single byte 7.
async fn arrives(stream: &TcpStream) {
    let (count, byte) = stream.read(Vec::with_capacity(2)).await;
    assert_eq!((count.unwrap(), byte), (1, vec![7]));
}

#[test]
fn a_task_whose_operations_never_wait_lets_the_others_run() {
    in_runtimes(|runtime| {
        run(runtime, async {
            let (one, other) = pair().await;
            let has_run = Rc::new(Cell::new(false));
            let flag = Rc::clone(&has_run);
            let neighbour = ringloop::spawn(async move { flag.set(true) });
            let mut rounds = 0;
            while !has_run.get() && rounds < ROUNDS_MAX {
                // There is always room to send, and data to receive.
                one.write_all(vec![7]).await.0.unwrap();
                arrives(&other).await;
                rounds += 1;
            }
            assert!(rounds < ROUNDS_MAX, "the neighbour never ran");
            neighbour.await.unwrap();
        });
    });
}

#[test]
fn a_read_does_not_overtake_one_that_waits() {
    in_runtimes(|runtime| {
        let kind = runtime.kind();
        run(runtime, async {
            let (one, other) = pair().await;
            let other = Rc::new(other);
            let first = Rc::clone(&other);
            let first = ringloop::spawn(async move { first.read(Vec::with_capacity(1)).await.1 });
            // The first one waits for the socket before the second one is submitted.
            ringloop::time::yield_now().await;
            let second = ringloop::spawn(async move { other.read(Vec::with_capacity(1)).await.1 });
            one.write_all(vec![1, 2]).await.0.unwrap();
            let read = [first.await.unwrap(), second.await.unwrap()].concat();
            // On the ring both wait inside the kernel, which serves them in any order.
            if kind == Kind::Epoll {
                assert_eq!(read, [1, 2]);
            }
            assert_eq!(read.iter().sum::<u8>(), 3);
        });
    });
}

#[test]
fn bulk_reads_and_writes_carry_every_byte_and_the_end() {
    in_runtimes(|runtime| {
        run(runtime, async {
            let (one, other) = pair().await;
            let sent: Vec<u8> = (0..BULK_LEN as u32).map(|at| (at % 251) as u8).collect();
            let chunks = sent.clone();
            let writer = ringloop::spawn(async move {
                for chunk in chunks.chunks(CHUNK_LEN) {
                    one.write_all(chunk.to_vec()).await.0.unwrap();
                }
                // A little after a lot: the reader has to return from bulk receives.
                one.write_all(vec![255]).await.0.unwrap();
            });
            let mut received = Vec::new();
            let mut buf = Vec::with_capacity(CHUNK_LEN);
            loop {
                let (count, filled) = other.read(buf).await;
                if count.unwrap() == 0 {
                    break;
                }
                received.extend_from_slice(&filled);
                buf = filled;
            }
            writer.await.unwrap();
            assert_eq!(received.pop(), Some(255));
            assert!(received == sent, "other bytes came than were sent");
        });
    });
}

#[test]
fn a_send_tried_at_once_does_not_overtake_one_that_is_queued() {
    second_is_second(false);
}

#[test]
fn a_splice_tried_at_once_does_not_overtake_a_send_that_is_queued() {
    second_is_second(true);
}

fn second_is_second(by_splice: bool) {
    in_runtimes(|runtime| {
        run(runtime, async {
            let (one, other) = std::os::unix::net::UnixStream::pair().unwrap();
            let send = |bytes: &[u8]| Send { fd: one.as_raw_fd(), buf: bytes.to_vec().into() };
            // Earlier entries of the queue are submitted.
            ringloop::time::yield_now().await;
            let mut first = std::pin::pin!(Op::new(send(b"first ")));
            let is_over = is_ready_at_once(first.as_mut()).await.is_some();
            let result = if by_splice {
                let (reader, writer) = file::pipe().unwrap();
                file::write(writer.as_raw_fd(), b"second", None).unwrap();
                let ends = (reader.as_raw_fd(), one.as_raw_fd());
                Op::try_first(Splice::new((ends.0, None), (ends.1, None), 6)).await
            } else {
                Op::try_first(send(b"second")).await.0
            };
            assert_eq!(result.unwrap(), 6);
            if !is_over {
                assert_eq!(first.await.0.unwrap(), 6);
            }
            let mut received = [0; 12];
            (&other).read_exact(&mut received).unwrap();
            assert_eq!(received, *b"first second");
        });
    });
}

/// The output, if one poll of `future` completes it.
async fn is_ready_at_once<T>(future: Pin<&mut impl Future<Output = T>>) -> Option<T> {
    let mut future = Some(future);
    poll_fn(|cx| {
        Poll::Ready(match future.take().map(|future| future.poll(cx)) {
            Some(Poll::Ready(value)) => Some(value),
            _ => None,
        })
    })
    .await
}

#[test]
fn a_small_write_of_the_only_ready_task_is_out_at_once() {
    in_runtimes(|runtime| {
        run(runtime, async {
            let (one, other) = pair().await;
            // Entries that the pair has left on the queue are submitted.
            ringloop::time::yield_now().await;
            let mut write = std::pin::pin!(one.write_all(vec![7]));
            let (sent, bytes) = is_ready_at_once(write.as_mut()).await.unwrap();
            assert_eq!((sent.unwrap(), bytes), ((), vec![7]));
            arrives(&other).await;
        });
    });
}

#[test]
fn small_write_with_another_task_ready_is_batched() {
    in_runtimes(|runtime| {
        let kind = runtime.kind();
        run(runtime, async {
            let (one, other) = pair().await;
            ringloop::time::yield_now().await;
            let neighbour = ringloop::spawn(async {});
            {
                let mut write = std::pin::pin!(one.write_all(vec![7]));
                let now = is_ready_at_once(write.as_mut()).await;
                assert_eq!(now.is_some(), kind == Kind::Epoll);
                if now.is_none() {
                    write.await.0.unwrap();
                }
            }
            neighbour.await.unwrap();
            arrives(&other).await;
        });
    });
}

#[test]
fn a_write_at_once_to_a_socket_without_room_waits_for_it() {
    const LEN: usize = 1024;
    in_runtimes(|runtime| {
        run(runtime, async {
            let (one, other) = pair().await;
            let mut sent_len = 0;
            let mut write = loop {
                assert!(sent_len < 1 << 30, "the socket never filled");
                ringloop::time::yield_now().await;
                let mut write = Box::pin(one.write_all(vec![7; LEN]));
                match is_ready_at_once(write.as_mut()).await {
                    Some((sent, _)) => sent.unwrap(),
                    None => break write,
                }
                sent_len += LEN;
            };
            let reader = ringloop::spawn(async move {
                let mut received_len = 0;
                loop {
                    let (count, bytes) = other.read(Vec::with_capacity(CHUNK_LEN)).await;
                    if count.unwrap() == 0 {
                        return received_len;
                    }
                    assert!(bytes.iter().all(|byte| *byte == 7));
                    received_len += bytes.len();
                }
            });
            write.as_mut().await.0.unwrap();
            drop(write);
            drop(one);
            assert_eq!(reader.await.unwrap(), sent_len + LEN);
        });
    });
}
