//! Received buffers as values: held, dropped, forgotten, returned on another thread of control,
//! outliving their source; on both drivers.
#![allow(clippy::unwrap_used)]

use ringloop::embed::limits;
use ringloop::net::TcpStream;
use ringloop::{Runtime, time};
use ringloop_testing::engine;
use ringloop_testing::engine::{in_runtimes, tcp_pair};
use std::io::Write as _;
use std::time::Duration;

fn run<T>(runtime: &Runtime, future: impl Future<Output = T>) -> T {
    runtime.block_on(future).unwrap()
}

#[test]
fn held_buffers_keep_their_bytes_and_starve_others_until_they_are_dropped() {
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
            peer.write_all(b"more").unwrap();
            let starved = time::timeout(Duration::from_millis(5), receive.next()).await;
            assert!(starved.is_err());
            for (at, bytes) in held.iter().enumerate() {
                assert_eq!(**bytes, [at as u8]);
            }
            held.pop();
            assert_eq!(&*receive.next().await.unwrap().unwrap(), b"more");
            drop(held);
            peer.write_all(b"and on").unwrap();
            let mut bytes = receive.next().await.unwrap().unwrap();
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
            for round in 0..10_u8 {
                peer.write_all(&[round]).unwrap();
                assert_eq!(*receive.next().await.unwrap().unwrap(), [round]);
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
        let mut held = Vec::new();
        for _ in 0..usize::from(limits::POOL_BUFFERS) * 2 {
            peer.write_all(b"one").unwrap();
            let bytes = run(runtime, async { stream.receive().next().await });
            held.push(bytes.unwrap().unwrap());
            let other = Runtime::new().unwrap();
            run(&other, async { held.clear() });
        }
    });
}
