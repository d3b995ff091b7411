//! Bundled and incremental receives: the same bytes as a plain one, on both drivers, and no buffer
//! kept longer than it is held.
#![allow(clippy::unwrap_used)]

use proptest::prelude::*;
use ringloop::embed::Local;
use ringloop::embed::limits;
use ringloop::embed::sys::uring::{Config, Feature, Features, Ring};
use ringloop::net::{Receive, UnixStream};
use ringloop::{Runtime, spawn, time};
use ringloop_testing::PATIENCE;
use ringloop_testing::engine::in_runtimes;
use std::collections::VecDeque;
use std::io::Write;
use std::os::fd::OwnedFd;
use std::sync::LazyLock;
use std::time::Duration;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mode {
    Plain,
    Bundled,
    Incremental,
}

const MODES: [Mode; 3] = [Mode::Plain, Mode::Bundled, Mode::Incremental];

fn receive(stream: &UnixStream, mode: Mode) -> Receive<'_> {
    match mode {
        Mode::Plain => stream.receive(),
        Mode::Bundled => stream.receive().bundled(),
        Mode::Incremental => stream.receive().incremental(),
    }
}

/// True if the kernel supports it, rather than using a plain receive.
fn is_real(runtime: &Runtime, mode: Mode) -> bool {
    let config = Config { entries: 1, cq_entries: 1, polling: None };
    let features = match runtime.kind() {
        ringloop::embed::Kind::Uring => Ring::new(&config).unwrap().features(),
        ringloop::embed::Kind::Epoll => Features::default(),
    };
    match mode {
        Mode::Plain => false,
        Mode::Bundled => features.has(Feature::RecvsendBundle),
        Mode::Incremental => features.has(Feature::IncrementalBuffers),
    }
}

/// Runs a test on every driver and with each kind of receive.
fn in_modes(test: impl AsyncFn(Mode, bool)) {
    in_runtimes(|runtime| {
        for mode in MODES {
            let real = is_real(runtime, mode);
            let bounded = time::timeout;
            runtime.block_on(async { bounded(PATIENCE, test(mode, real)).await.unwrap() }).unwrap();
        }
    });
}

/// Our end, and the peer's, which is blocking.
fn pair() -> (UnixStream, std::os::unix::net::UnixStream) {
    let (ours, peer) = std::os::unix::net::UnixStream::pair().unwrap();
    ours.set_nonblocking(true).unwrap();
    (OwnedFd::from(ours).into(), peer)
}

/// Part of a stream that has its own pattern.
fn bytes(stream: usize, from: usize, len: usize) -> &'static [u8] {
    const PERIOD: usize = 65_521;
    static PATTERN: LazyLock<Vec<u8>> = LazyLock::new(|| {
        let byte = |at: usize| ((at % PERIOD).wrapping_mul(0x9E37_79B1) >> 13) as u8;
        (0..PERIOD * 6).map(byte).collect()
    });
    let start = (from + stream * 977) % PERIOD;
    &PATTERN[start..start + len]
}

#[test]
fn concurrent_streams_get_every_byte_in_order_and_their_end() {
    const EACH: usize = 300_000;
    in_modes(async |mode, _| {
        let mut readers = Vec::new();
        let mut writers = Vec::new();
        for stream in 0..16 {
            let (ours, mut peer) = pair();
            writers.push(std::thread::spawn(move || {
                let mut sent = 0;
                while sent < EACH {
                    let len = (1 + (sent * 7 + stream * 13) % 40_000).min(EACH - sent);
                    peer.write_all(bytes(stream, sent, len)).unwrap();
                    sent += len;
                }
            }));
            readers.push(spawn(async move {
                let mut sequence = receive(&ours, mode);
                let (mut came, mut held) = (0, VecDeque::new());
                while let Some(received) = sequence.next().await {
                    let received = received.unwrap();
                    assert!(!received.is_empty());
                    let expected = bytes(stream, came, received.len());
                    assert!(*received == *expected, "{mode:?}, {stream} at {came}");
                    let start = came;
                    came += received.len();
                    // Some are held for a while, and returned in another order.
                    if came % 3 == 0 {
                        held.push_back((start, received));
                    }
                    if held.len() > 1 {
                        let (start, kept): (usize, ringloop::embed::Received) =
                            held.pop_back().unwrap();
                        let expected = bytes(stream, start, kept.len());
                        assert!(*kept == *expected, "held bytes changed");
                    }
                }
                assert_eq!(came, EACH);
                assert!(sequence.next().await.is_none());
            }));
        }
        for reader in readers {
            reader.await.unwrap();
        }
        for writer in writers {
            writer.join().unwrap();
        }
    });
}

#[test]
fn long_writes_come_in_buffers_of_the_kind_that_was_asked_for() {
    in_modes(async |mode, is_real| {
        let (ours, mut peer) = pair();
        let len = 60_000;
        let writer = std::thread::spawn(move || {
            peer.write_all(bytes(0, 0, len)).unwrap();
            peer
        });
        // All of it is in the socket when the receive begins.
        let peer = writer.join().unwrap();
        let mut sequence = receive(&ours, mode);
        let (mut came, mut longest) = (0, 0);
        while came < len {
            let received = sequence.next().await.unwrap().unwrap();
            came += received.len();
            longest = longest.max(received.len());
        }
        let bound = match (mode, is_real) {
            (Mode::Bundled, true) => limits::BUNDLE_POOL_BUFFER_BYTES as usize,
            (Mode::Incremental, true) => limits::PIECE_POOL_BUFFER_BYTES as usize,
            // After two full pool buffers.
            _ => limits::LARGE_BUFFER_BYTES,
        };
        assert!(longest <= bound && longest >= bound / 16, "{mode:?}: {longest}");
        drop(peer);
        assert!(sequence.next().await.is_none());
    });
}

#[test]
fn values_hold_more_than_a_pool_and_nothing_waits_for_them() {
    const EACH: usize = 4 << 20;
    in_modes(async |mode, _| {
        let mut readers = Vec::new();
        let mut writers = Vec::new();
        for stream in 0..4 {
            let (ours, mut peer) = pair();
            writers.push(std::thread::spawn(move || {
                // Of lengths that fill no buffer.
                for sent in (0..EACH).step_by(4_096) {
                    peer.write_all(bytes(stream, sent, 4_096)).unwrap();
                }
            }));
            readers.push(spawn(async move {
                let mut held = Vec::new();
                let mut sequence = receive(&ours, mode);
                while let Some(received) = sequence.next().await {
                    held.push(received.unwrap());
                }
                held
            }));
        }
        let mut all = Vec::new();
        for reader in readers {
            all.push(reader.await.unwrap());
        }
        for (stream, held) in all.iter().enumerate() {
            let mut at = 0;
            for received in held {
                assert!(
                    **received == *bytes(stream, at, received.len()),
                    "{mode:?} {stream}: {at}"
                );
                at += received.len();
            }
            assert_eq!(at, EACH, "{mode:?} {stream}");
        }
        drop(all);
        let (ours, mut peer) = pair();
        peer.write_all(b"after").unwrap();
        assert_eq!(&*receive(&ours, mode).next().await.unwrap().unwrap(), b"after");
        for writer in writers {
            writer.join().unwrap();
        }
    });
}

#[test]
fn dropped_sequences_return_untaken_buffers() {
    in_modes(async |mode, _| {
        for round in 0..60 {
            let (ours, mut peer) = pair();
            peer.write_all(bytes(round, 0, 100_000)).unwrap();
            let mut sequence = receive(&ours, mode);
            let received = sequence.next().await.unwrap().unwrap();
            if round % 2 == 0 {
                time::sleep(Duration::from_micros(200)).await;
            }
            drop(sequence);
            assert!(*received == *bytes(round, 0, received.len()));
        }
        while Local::current().engine().driver_mut().in_flight() > 0 {
            time::sleep(Duration::from_millis(1)).await;
        }
        // All of the pool is free again.
        let (ours, mut peer) = pair();
        let writer = std::thread::spawn(move || {
            for at in 0..32 {
                peer.write_all(bytes(7, at * 65_536, 65_536)).unwrap();
            }
        });
        let (mut came, mut sequence) = (0, receive(&ours, mode));
        while let Some(received) = sequence.next().await {
            came += received.unwrap().len();
        }
        assert_eq!(came, 32 * 65_536);
        writer.join().unwrap();
    });
}

#[test]
fn pieces_and_bundles_outlive_their_sequence_their_stream_and_their_runtime() {
    in_runtimes(|runtime| {
        let mut kept = Vec::new();
        let inner = Runtime::with_options(ringloop::Options {
            driver: if runtime.kind() == ringloop::embed::Kind::Uring {
                ringloop::Choice::Uring
            } else {
                ringloop::Choice::Epoll
            },
            ..ringloop::Options::default()
        })
        .unwrap();
        for mode in MODES {
            let received = inner.block_on(async {
                let (ours, mut peer) = pair();
                peer.write_all(b"kept").unwrap();
                receive(&ours, mode).next().await.unwrap().unwrap()
            });
            kept.push(received.unwrap());
        }
        drop(inner);
        for received in kept {
            assert_eq!(&*received, b"kept");
        }
    });
}

#[derive(Debug, Clone)]
enum Step {
    /// The peer of a stream sends this many bytes.
    Send(usize, usize),
    /// Take up to this many buffers of a stream, and hold them.
    Take(usize, usize),
    /// Return the held buffer of this index.
    GiveBack(usize),
    /// Use some bytes of it.
    Advance(usize, usize),
    /// The peer ends a stream.
    End(usize),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0..4_usize, 1..50_000_usize).prop_map(|(stream, len)| Step::Send(stream, len)),
        4 => (0..4_usize, 1..20_usize).prop_map(|(stream, count)| Step::Take(stream, count)),
        3 => (0..64_usize).prop_map(Step::GiveBack),
        1 => (0..64_usize, 0..5000_usize).prop_map(|(at, count)| Step::Advance(at, count)),
        1 => (0..4_usize).prop_map(Step::End),
    ]
}

/// How far a stream is.
struct Model {
    peer: Option<std::os::unix::net::UnixStream>,
    sent: usize,
    taken: usize,
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    /// Random sends, receives of all three kinds concurrently, buffers held and returned in any
    /// order: each stream's bytes arrive once, in order, and do not change while they are held.
    #[test]
    fn any_mixture_of_receives_keeps_to_the_model(
        modes in proptest::array::uniform4(0..3_usize),
        steps in proptest::collection::vec(step(), 1..60),
    ) {
        in_runtimes(|runtime| {
            runtime.block_on(time::timeout(PATIENCE, play(modes, steps.clone()))).unwrap().unwrap();
        });
    }
}

async fn play(kinds: [usize; 4], steps: Vec<Step>) {
    let (streams, peers): (Vec<_>, Vec<_>) = (0..4).map(|_| pair()).unzip();
    let mut models: Vec<_> = peers
        .into_iter()
        .map(|peer| {
            peer.set_nonblocking(true).unwrap();
            Model { peer: Some(peer), sent: 0, taken: 0 }
        })
        .collect();
    let mut sequences: Vec<_> =
        streams.iter().zip(kinds).map(|(stream, mode)| receive(stream, MODES[mode])).collect();
    let mut held: Vec<(usize, usize, ringloop::embed::Received)> = Vec::new();
    let check = |(stream, from, received): &(usize, usize, ringloop::embed::Received)| {
        assert!(**received == *bytes(*stream, *from, received.len()), "stream {stream} at {from}");
    };
    for step in steps {
        match step {
            Step::Send(stream, len) => {
                let model = &mut models[stream];
                if let Some(peer) = &mut model.peer {
                    model.sent += peer.write(bytes(stream, model.sent, len)).unwrap_or(0);
                }
            }
            Step::Take(stream, count) => {
                for _ in 0..count {
                    let model = &mut models[stream];
                    if model.taken == model.sent {
                        break;
                    }
                    let received = sequences[stream].next().await.unwrap().unwrap();
                    let item = (stream, model.taken, received);
                    check(&item);
                    model.taken += item.2.len();
                    assert!(model.taken <= model.sent);
                    held.push(item);
                }
            }
            Step::GiveBack(at) if !held.is_empty() => {
                let item = held.swap_remove(at % held.len());
                check(&item);
            }
            Step::Advance(at, count) if !held.is_empty() => {
                let at = at % held.len();
                let (_, from, received) = &mut held[at];
                *from += count.min(received.len());
                received.advance(count);
                check(&held[at]);
            }
            Step::End(stream) => models[stream].peer = None,
            Step::GiveBack(_) | Step::Advance(..) => {}
        }
    }
    held.iter().for_each(check);
    held.clear();
    for model in &mut models {
        model.peer = None;
    }
    for (stream, (mut sequence, mut model)) in sequences.into_iter().zip(models).enumerate() {
        while let Some(received) = sequence.next().await {
            let item = (stream, model.taken, received.unwrap());
            check(&item);
            model.taken += item.2.len();
        }
        assert_eq!(model.taken, model.sent, "stream {stream}");
    }
}
