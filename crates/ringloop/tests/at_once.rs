//! Operations that are done at the first poll, without a wait: they are fair, keep their order, and carry
//! every byte.

#![allow(clippy::unwrap_used)]

mod support;

use ringloop::Runtime;
use ringloop::driver::Kind;
use ringloop::net::{TcpListener, TcpStream};
use std::cell::Cell;
use std::future::Future;
use std::rc::Rc;
use support::in_runtimes;

/// More rounds than any one poll may do.
const ROUNDS_MAX: u32 = 100_000;
const BULK_LEN: usize = 8 << 20;
const CHUNK_LEN: usize = 100 * 1024;

fn run<T>(runtime: &Runtime, future: impl Future<Output = T>) -> T {
    runtime.block_on(future).unwrap()
}

async fn pair() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind(([127, 0, 0, 1], 0).into()).unwrap();
    let client = TcpStream::connect(listener.local_addr().unwrap());
    let client = client.await.unwrap();
    (client, listener.accept().await.unwrap())
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
                // There is always room to send, and something to receive.
                one.write_all(vec![7]).await.0.unwrap();
                let (count, byte) = other.read(Vec::with_capacity(1)).await;
                assert_eq!((count.unwrap(), byte), (1, vec![7]));
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
            // The first one waits for the socket before the second one is asked for.
            ringloop::time::yield_now().await;
            let second = ringloop::spawn(async move { other.read(Vec::with_capacity(1)).await.1 });
            one.write_all(vec![1, 2]).await.0.unwrap();
            let read = [first.await.unwrap(), second.await.unwrap()].concat();
            // On the ring both wait inside of the kernel, which serves them as it likes.
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
                // Little after much: the reader has to come back from bulk.
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
