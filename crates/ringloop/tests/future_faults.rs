//! Failures under futures and sequences: completions that overflow, a hundred thousand operations,
//! short reads and writes, random orders of everything; on both drivers.
#![allow(clippy::unwrap_used)]

use proptest::prelude::*;
use ringloop::Choice;
use ringloop::embed::Op;
use ringloop::embed::op::Timeout;
use ringloop::embed::sys::libc;
use ringloop::future::join_all;
use ringloop::net::{Received, TcpListener, TcpStream};
use ringloop::{Options, Runtime, spawn, time};
use ringloop_testing::engine;
use ringloop_testing::engine::{alone, connect_to, in_runtimes, open_descriptors, tcp_pair};
use ringloop_testing::{PATIENCE, drivers};
use std::future::poll_fn;
use std::io::{Read as _, Write as _};
use std::rc::Rc;
use std::task::Poll;
use std::time::{Duration, Instant};

fn run<T>(runtime: &Runtime, future: impl Future<Output = T>) -> T {
    runtime.block_on(future).unwrap()
}

/// A ring so small that every burst overflows it.
fn small(driver: Choice) -> Runtime {
    let options = Options { driver, ring_entries: 4, completion_entries: 8, ..Options::default() };
    Runtime::with_options(options).unwrap()
}

#[test]
fn overflowing_completions_lose_no_byte_and_no_connection() {
    let _alone = alone();
    for driver in drivers() {
        let runtime = small(driver);
        run(&runtime, async {
            let std = engine::listener();
            let listener: TcpListener = std.try_clone().unwrap().into();
            let mut incoming = listener.incoming();
            drop(time::timeout(Duration::ZERO, incoming.next()).await);
            let mut clients: Vec<_> = (0..60).map(|_| connect_to(&std)).collect();
            let mut readers = Vec::new();
            for client in &clients {
                let stream = incoming.next().await.unwrap();
                assert_eq!(stream.peer_addr().unwrap(), client.local_addr().unwrap());
                readers.push(spawn(async move {
                    let mut receive = stream.receive();
                    let mut arrived = Vec::new();
                    while let Some(bytes) = receive.next().await {
                        arrived.extend_from_slice(&bytes.unwrap());
                    }
                    arrived
                }));
            }
            time::sleep(Duration::from_millis(1)).await;
            // All at once, while the loop is blocked: far more than eight completions.
            for round in 0..20_u8 {
                for client in &mut clients {
                    client.write_all(&[round]).unwrap();
                }
            }
            drop(clients);
            let expected: Vec<u8> = (0..20).collect();
            for reader in readers {
                assert_eq!(reader.await.unwrap(), expected, "{driver:?}");
            }
        });
    }
}

#[test]
fn hundred_thousand_futures_complete_or_are_dropped() {
    const COUNT: usize = 100_000;
    in_runtimes(|runtime| {
        run(runtime, async {
            let soon = (0..COUNT).map(|_| Op::new(Timeout::after(Duration::from_millis(1))));
            let started = Instant::now();
            let tasks: Vec<_> = soon.map(spawn).collect();
            for task in tasks {
                task.await.unwrap().unwrap();
            }
            assert!(started.elapsed() >= Duration::from_millis(1));
            let never = (0..COUNT).map(|_| Op::new(Timeout::after(Duration::from_secs(3600))));
            let mut never: Vec<_> = never.collect();
            let all_pending = poll_fn(|cx| {
                let mut ops = never.iter_mut();
                Poll::Ready(ops.all(|op| std::pin::pin!(op).poll(cx).is_pending()))
            });
            assert!(all_pending.await);
            time::sleep(Duration::from_millis(1)).await;
            drop(never);
        });
        // Dropped operations end soon.
        let started = Instant::now();
        while run(runtime, async { in_flight() }) > 0 {
            assert!(started.elapsed() < PATIENCE);
            run(runtime, time::sleep(Duration::from_millis(1)));
        }
    });
}

fn in_flight() -> usize {
    let local = ringloop::embed::Local::current();
    let mut engine = local.engine();
    engine.driver_mut().in_flight()
}

/// Buffers of the smallest size: every read and every write is short.
#[test]
fn short_reads_and_writes_make_the_whole() {
    in_runtimes(|runtime| {
        run(runtime, async {
            let (ours, mut peer) = tcp_pair();
            let stream = Rc::new(TcpStream::from(ours));
            stream.set_send_buffer(1).unwrap();
            let sent: Vec<u8> = (0..400_000_u32).map(|at| (at % 251) as u8).collect();
            let expected = sent.clone();
            let reader = std::thread::spawn(move || {
                let mut arrived = vec![0; expected.len()];
                for chunk in arrived.chunks_mut(777) {
                    peer.read_exact(chunk).unwrap();
                }
                assert!(arrived == expected);
                peer.write_all(&arrived).unwrap();
            });
            let bufs = sent.chunks(3_333).map(<[u8]>::to_vec).collect();
            let writer = Rc::clone(&stream);
            let writing = spawn(async move { writer.write_all_vectored(bufs).await.0 });
            let mut back = Vec::new();
            let mut size = 0;
            while back.len() < sent.len() {
                size = size % 97 + 1;
                let (count, bytes) = stream.read(Vec::with_capacity(size)).await;
                assert!((1..=bytes.capacity()).contains(&count.unwrap()));
                back.extend(bytes);
            }
            writing.await.unwrap().unwrap();
            assert!(back == sent);
            reader.join().unwrap();
        });
    });
}

#[test]
fn many_futures_of_one_task_each_get_their_own_result() {
    in_runtimes(|runtime| {
        run(runtime, async {
            let (pairs, mut peers): (Vec<_>, Vec<_>) = (0..50).map(|_| tcp_pair()).unzip();
            let streams: Vec<_> = pairs.into_iter().map(TcpStream::from).collect();
            for (number, peer) in peers.iter_mut().enumerate() {
                peer.write_all(&[number as u8]).unwrap();
            }
            let reads = streams.iter().map(|stream| stream.read(Vec::with_capacity(8)));
            for (number, (count, bytes)) in join_all(reads).await.into_iter().enumerate() {
                assert_eq!((count.unwrap(), bytes), (1, vec![number as u8]));
            }
        });
    });
}

const CONNECTIONS: usize = 3;

/// A step of a random sequence.
#[derive(Debug, Clone)]
enum Step {
    /// The peer of a connection sends this many bytes.
    Feed(usize, usize),
    /// The next items of its sequence are taken.
    Take(usize, usize),
    /// Received buffers are held, or returned.
    Hold(bool),
    /// Everything on its descriptor is cancelled.
    Cancel(usize),
    /// The loop runs a turn.
    Turn,
}

fn step() -> impl Strategy<Value = Step> {
    let connection = 0..CONNECTIONS;
    prop_oneof![
        4 => (connection.clone(), 1..40_000_usize).prop_map(|(at, len)| Step::Feed(at, len)),
        4 => (connection.clone(), 1..12_usize).prop_map(|(at, times)| Step::Take(at, times)),
        1 => any::<bool>().prop_map(Step::Hold),
        1 => connection.prop_map(Step::Cancel),
        2 => Just(Step::Turn),
    ]
}

/// A connection, and how much of an endless pattern was sent and received.
struct Connection {
    stream: TcpStream,
    peer: std::net::TcpStream,
    fed_count: usize,
    arrived_count: usize,
}

fn pattern(at: usize) -> u8 {
    (at % 249) as u8
}

impl Connection {
    fn feed(&mut self, len: usize) {
        // Bytes that do not fit are not sent.
        let bytes: Vec<u8> = (self.fed_count..self.fed_count + len).map(pattern).collect();
        if let Ok(count) = self.peer.write(&bytes) {
            self.fed_count += count;
        }
    }

    fn arrived(&mut self, bytes: &[u8]) {
        for byte in bytes {
            assert_eq!(*byte, pattern(self.arrived_count), "at {}", self.arrived_count);
            self.arrived_count += 1;
        }
        assert!(self.arrived_count <= self.fed_count);
    }
}

/// Plays the steps, on sequences that live until they are cancelled.
async fn play(steps: &[Step]) {
    let mut connections: Vec<_> = (0..CONNECTIONS)
        .map(|_| {
            let (ours, peer) = tcp_pair();
            peer.set_nonblocking(true).unwrap();
            Connection { stream: ours.into(), peer, fed_count: 0, arrived_count: 0 }
        })
        .collect();
    let streams: Vec<TcpStream> = connections
        .iter()
        .map(|c| {
            ringloop::embed::sys::fd::AsFd::as_fd(&c.stream).try_clone_to_owned().unwrap().into()
        })
        .collect();
    let mut sequences: Vec<_> = streams.iter().map(TcpStream::receive).collect();
    let (mut kept, mut keeps) = (Vec::<Received>::new(), false);
    for action in steps {
        match *action {
            Step::Feed(at, len) => connections[at].feed(len),
            Step::Turn => time::sleep(Duration::from_micros(50)).await,
            Step::Hold(hold) => {
                kept.clear();
                keeps = hold;
            }
            Step::Cancel(at) => {
                streams[at].cancel();
            }
            Step::Take(at, times) => {
                for _ in 0..times {
                    let limit = Duration::from_micros(200);
                    let Ok(next) = time::timeout(limit, sequences[at].next()).await else {
                        break;
                    };
                    match next {
                        Some(Ok(bytes)) => {
                            connections[at].arrived(&bytes);
                            kept.extend(keeps.then_some(bytes));
                        }
                        Some(Err(error)) => {
                            assert_eq!(error.raw_os_error(), Some(libc::ECANCELED));
                            sequences[at] = streams[at].receive();
                        }
                        None => panic!("an end that was not sent"),
                    }
                }
            }
        }
    }
    drop(kept);
    // In any case, every byte arrives.
    for (at, connection) in connections.iter_mut().enumerate() {
        while connection.arrived_count < connection.fed_count {
            match time::timeout(PATIENCE, sequences[at].next()).await {
                Ok(Some(Ok(bytes))) => connection.arrived(&bytes),
                Ok(Some(Err(_))) => sequences[at] = streams[at].receive(),
                other => panic!("{other:?}"),
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        failure_persistence: None,
        max_shrink_time: 60_000,
        ..ProptestConfig::with_cases(
            std::env::var("PROPTEST_CASES").ok().and_then(|n| n.parse().ok()).unwrap_or(24)
        )
    })]

    #[test]
    fn sequences_deliver_every_byte_once_whatever_happens(
        steps in prop::collection::vec(step(), 1..60),
        is_small in any::<bool>(),
    ) {
        let _alone = alone();
        for driver in drivers() {
            let before = open_descriptors();
            let runtime = if is_small {
                small(driver)
            } else {
                Runtime::with_options(Options { driver, ..Options::default() }).unwrap()
            };
            run(&runtime, play(&steps));
            drop(runtime);
            assert_eq!(open_descriptors(), before, "descriptors, {driver:?}");
        }
    }
}
