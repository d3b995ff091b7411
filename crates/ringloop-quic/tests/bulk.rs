//! Sends a gigabyte each way through a network with 1 % loss, byte for byte: `make quic-bulk`.
#![allow(clippy::unwrap_used, clippy::print_stdout)]

use ringloop_quic::config::{Congestion, Transport};
use ringloop_quic::{RecvStream, SendStream};
use ringloop_testing::drivers;
use ringloop_testing::quic::{client_config, pair_with, server_config};
use ringloop_testing::relay::{Faults, Relay};
use std::time::{Duration, Instant};

/// How many bytes go each way.
fn total() -> u64 {
    let given = std::env::var("BYTES").ok();
    given.map_or(1 << 30, |bytes| bytes.parse().unwrap())
}

/// A non-repeating pseudo-random sequence, the same at both ends.
struct Pattern(u64);

impl Pattern {
    fn fill(&mut self, bytes: &mut [u8]) {
        for word in bytes.chunks_mut(8) {
            self.0 ^= self.0 << 13;
            self.0 ^= self.0 >> 7;
            self.0 ^= self.0 << 17;
            word.copy_from_slice(&self.0.to_le_bytes()[..word.len()]);
        }
    }
}

const PIECE: usize = 64 << 10;

async fn write(mut stream: SendStream, seed: u64) {
    let (mut pattern, mut piece) = (Pattern(seed), vec![0; PIECE]);
    for _ in 0..total() / PIECE as u64 {
        pattern.fill(&mut piece);
        stream.write_all(&piece).await.unwrap();
    }
    stream.finish().unwrap();
    assert_eq!(stream.stopped().await, Ok(None));
}

async fn verify(mut stream: RecvStream, seed: u64) {
    let (mut pattern, mut piece, mut read) = (Pattern(seed), vec![0; PIECE], vec![0; PIECE]);
    for number in 0..total() / PIECE as u64 {
        pattern.fill(&mut piece);
        stream.read_exact(&mut read).await.unwrap();
        assert!(piece == read, "piece {number}");
    }
    assert_eq!(stream.read(&mut read).await, Ok(None));
}

#[test]
#[ignore = "half a minute a driver, optimised: make quic-bulk"]
fn gigabyte_each_way_with_one_percent_loss() {
    for driver in drivers() {
        let options = ringloop::Options { driver, ..ringloop::Options::default() };
        let runtime = ringloop::Runtime::with_options(options).unwrap();
        runtime
            .block_on(async {
                let faults = Faults {
                    lost: 10,
                    ..Faults::default()
                };
                let transport = Transport {
                    congestion: Congestion::Cubic,
                    ..Transport::default()
                };
                let mut relay = None;
                let route = |server| relay.insert(Relay::start(server, faults, 9)).address;
                let server = server_config().transport(&transport).unwrap();
                let client = client_config().transport(&transport).unwrap();
                let pair = pair_with(server, client, route).await;
                let began = Instant::now();
                let (there, back) = pair.ours.open_bi().await.unwrap();
                let ours = ringloop::spawn(write(there, 5));
                let (answer, asked) = pair.theirs.accept_bi().await.unwrap();
                let theirs = ringloop::spawn(write(answer, 7));
                let arrived = ringloop::spawn(verify(asked, 5));
                verify(back, 7).await;
                for task in [ours, theirs, arrived] {
                    task.await.unwrap();
                }
                let took = began.elapsed().max(Duration::from_millis(1));
                let (ours, theirs) = (pair.ours.stats(), pair.theirs.stats());
                println!(
                    "{driver:?}: {} MiB each way in {took:.1?}, {} and {} of {} and {} packets lost",
                    total() >> 20,
                    ours.packets_lost,
                    theirs.packets_lost,
                    ours.packets_sent,
                    theirs.packets_sent,
                );
                assert!(ours.packets_lost * 1000 > ours.packets_sent * 5);
            })
            .unwrap();
    }
}
