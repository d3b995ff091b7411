//! Received buffers as values: held, dropped, forgotten, returned on another thread of control,
//! outliving their source; on both drivers.
#![allow(clippy::unwrap_used)]

use ringloop::embed::limits;
use ringloop::net::{Datagram, Receive, Received, TcpStream, UdpSocket};
use ringloop::{Runtime, time};
use ringloop_testing::PATIENCE;
use ringloop_testing::engine;
use ringloop_testing::engine::{first_memory, in_runtimes, tcp_pair};
use std::io::Write as _;

fn run<T>(runtime: &Runtime, future: impl Future<Output = T>) -> T {
    runtime.block_on(future).unwrap()
}

/// Number of bytes of each message.
const LEN: usize = 8_000;

/// True if the page of an address is memory of the process.
fn is_mapped(address: usize) -> bool {
    // SAFETY: sysconf(3) takes a number.
    let page_len = unsafe { libc::sysconf(libc::_SC_PAGESIZE) } as usize;
    let (page, mut resident) = ((address - address % page_len) as *mut _, 0_u8);
    // SAFETY: mincore(2) reads no memory, and writes one byte a page.
    unsafe { libc::mincore(page, 1, (&raw mut resident).cast()) == 0 }
}

/// Values that hold many times the pool's memory keep their bytes, and the pool is as large as it
/// was once they are dropped.
async fn hold_and_drop<T: AsRef<[u8]>>(mut next: impl AsyncFnMut(usize) -> Vec<T>) {
    let pool = first_memory(next(0).await[0].as_ref());
    for _ in 0..2 {
        let mut held = Vec::new();
        for number in 0..1_000 {
            held.push(next(number).await);
        }
        for (number, values) in held.iter().enumerate() {
            let mut bytes = values.iter().flat_map(AsRef::as_ref);
            assert!(bytes.all(|byte| *byte == number as u8), "{number}");
        }
        let addresses = held.iter().flatten().map(|value| value.as_ref().as_ptr().addr());
        let mut addresses: Vec<_> = addresses.collect();
        assert!(addresses.iter().any(|address| !pool.contains(address)));
        assert!(addresses.iter().all(|address| is_mapped(*address)));
        drop(held);
        addresses.retain(|address| is_mapped(*address));
        let range = addresses.iter().min().zip(addresses.iter().max());
        assert!(range.is_some_and(|(from, to)| to - from < pool.len()), "of one memory: {range:?}");
    }
}

#[test]
fn held_values_keep_their_bytes_and_take_memory_until_they_are_dropped() {
    let kinds: [fn(&TcpStream) -> Receive<'_>; 3] = [
        TcpStream::receive,
        |stream| stream.receive().bundled(),
        |stream| stream.receive().incremental(),
    ];
    for kind in kinds {
        in_runtimes(|runtime| {
            let (ours, mut peer) = tcp_pair();
            let stream = TcpStream::from(ours);
            let mut receive = kind(&stream);
            let next = async |number| {
                peer.write_all(&[number as u8; LEN]).unwrap();
                let (mut values, mut count) = (Vec::new(), 0);
                while count < LEN {
                    values.push(receive.next().await.unwrap().unwrap());
                    count += values.last().map_or(0, |value: &Received| value.len());
                }
                values
            };
            run(runtime, time::timeout(PATIENCE, hold_and_drop(next))).unwrap();
        });
    }
}

struct Payload(Datagram);

impl AsRef<[u8]> for Payload {
    fn as_ref(&self) -> &[u8] {
        self.0.payload()
    }
}

#[test]
fn held_datagrams_keep_their_bytes_and_take_memory_until_they_are_dropped() {
    in_runtimes(|runtime| {
        run(runtime, async {
            let peer = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
            let ours = UdpSocket::bind("127.0.0.1:0").await.unwrap();
            let mut datagrams = ours.datagrams();
            let next = async |number| {
                peer.send_to(&[number as u8; LEN], ours.local_addr().unwrap()).unwrap();
                vec![Payload(datagrams.next().await.unwrap())]
            };
            time::timeout(PATIENCE, hold_and_drop(next)).await.unwrap();
        });
    });
}

#[test]
fn dropped_value_is_used_before_there_is_more_memory() {
    in_runtimes(|runtime| {
        let (ours, mut peer) = tcp_pair();
        let stream = TcpStream::from(ours);
        run(runtime, async {
            let mut receive = stream.receive();
            let mut held = Vec::new();
            for at in 0..limits::POOL_BUFFERS {
                peer.write_all(&[at as u8]).unwrap();
                held.push(receive.next().await.unwrap().unwrap());
            }
            let address = held.pop().unwrap().as_ptr();
            peer.write_all(b"and on").unwrap();
            let mut bytes = receive.next().await.unwrap().unwrap();
            assert_eq!(bytes.as_ptr(), address);
            bytes.advance(4);
            assert_eq!(&*bytes, b"on");
            bytes.advance(9);
            assert!(bytes.is_empty());
        });
    });
}

#[test]
fn forgotten_buffer_is_lost_to_the_pool_and_nothing_else() {
    in_runtimes(|runtime| {
        let (ours, mut peer) = tcp_pair();
        let stream = TcpStream::from(ours);
        run(runtime, async {
            let mut receive = stream.receive();
            for _ in 0..limits::POOL_BUFFERS - 1 {
                peer.write_all(b"f").unwrap();
                engine::leak(receive.next().await.unwrap().unwrap());
            }
            // One is left, and is reused.
            let mut address = None;
            for round in 0..10_u8 {
                peer.write_all(&[round]).unwrap();
                let bytes = receive.next().await.unwrap().unwrap();
                assert_eq!(*bytes, [round]);
                assert_eq!(*address.get_or_insert(bytes.as_ptr()), bytes.as_ptr());
            }
        });
    });
}

#[test]
fn buffer_outlives_its_sequence_its_stream_and_its_runtime() {
    let _alone = engine::alone();
    for driver in ringloop_testing::drivers() {
        let before = engine::open_descriptors();
        let options = ringloop::Options { driver, ..ringloop::Options::default() };
        let runtime = Runtime::with_options(options).unwrap();
        let (ours, mut peer) = tcp_pair();
        let stream = TcpStream::from(ours);
        let bytes = run(&runtime, async {
            peer.write_all(b"kept").unwrap();
            stream.receive().next().await.unwrap().unwrap()
        });
        assert_eq!(&*bytes, b"kept");
        drop(stream);
        assert_eq!(&*bytes, b"kept");
        drop(runtime);
        drop(peer);
        assert_eq!(engine::open_descriptors(), before, "kept by a buffer");
        assert_eq!(&*bytes, b"kept");
    }
}

#[test]
fn buffer_given_back_by_another_runtime_goes_to_its_own() {
    in_runtimes(|runtime| {
        let (ours, mut peer) = tcp_pair();
        let stream = TcpStream::from(ours);
        let (mut held, mut pool) = (Vec::new(), None);
        for _ in 0..usize::from(limits::POOL_BUFFERS) * 2 {
            peer.write_all(b"one").unwrap();
            let bytes = run(runtime, async { stream.receive().next().await }).unwrap().unwrap();
            let pool = pool.get_or_insert_with(|| first_memory(&bytes));
            assert!(pool.contains(&bytes.as_ptr().addr()), "returned, and used again");
            held.push(bytes);
            let other = Runtime::new().unwrap();
            run(&other, async { held.clear() });
        }
    });
}
