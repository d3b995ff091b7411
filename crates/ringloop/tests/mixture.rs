//! Random mixtures of links, sequences, timers and aborts on one loop, each compared with its
//! results alone; on both drivers.
//!
//! Every actor is a task. An undisturbed one must get exactly its results, whatever ends at the same
//! time; an aborted one must have done the beginning of its work and nothing else. At the end nothing
//! is in flight.
#![allow(clippy::unwrap_used)]

use proptest::prelude::*;
use ringloop::buf::{RecvBuf, SendBuf};
use ringloop::embed::op::{Recv, Write};
use ringloop::embed::{Link, Local};
use ringloop::net::UnixStream;
use ringloop::{spawn, time};
use ringloop_testing::PATIENCE;
use ringloop_testing::engine::in_runtimes;
use std::io::{self, Write as _};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::time::{Duration, Instant};

/// Bytes of the file that one step of one actor writes.
const PIECE: usize = 8;
const STEPS: usize = 3;
const HOUR: Duration = Duration::from_secs(3600);

#[derive(Debug, Clone)]
enum Actor {
    /// Three writes, of which number `fails`, if any, fails.
    Chain { fails: usize },
    /// A receive, bounded in time, and a write after it; the peer has sent something, or never
    /// will.
    Bounded { is_fed: bool },
    /// A multishot receive of `len` bytes, polled repeatedly with a timeout too short for it.
    Sequence { len: usize, pause_us: u64 },
    /// A sleep.
    Sleeper { sleep_us: u64 },
}

#[derive(Debug, Clone)]
struct Cast {
    actor: Actor,
    /// Aborted after this time.
    abort_us: Option<u64>,
}

fn cast() -> impl Strategy<Value = Cast> {
    let actor = prop_oneof![
        3 => (0..=STEPS).prop_map(|fails| Actor::Chain { fails }),
        3 => any::<bool>().prop_map(|is_fed| Actor::Bounded { is_fed }),
        2 => (1..60_000_usize, 0..300_u64)
            .prop_map(|(len, pause_us)| Actor::Sequence { len, pause_us }),
        1 => (0..4_000_u64).prop_map(|sleep_us| Actor::Sleeper { sleep_us }),
    ];
    let abort_us = prop_oneof![2 => Just(None), 1 => (0..2_000_u64).prop_map(Some)];
    (actor, abort_us).prop_map(|(actor, abort_us)| Cast { actor, abort_us })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, ..ProptestConfig::default() })]

    #[test]
    fn each_gets_its_own_results_whatever_else_ends(
        casts in proptest::collection::vec(cast(), 1..24),
    ) {
        in_runtimes(|runtime| {
            runtime.block_on(time::timeout(PATIENCE, play(casts.clone()))).unwrap().unwrap();
        });
    }
}

async fn play(casts: Vec<Cast>) {
    let mut options = std::fs::File::options();
    options.read(true).write(true).custom_flags(libc::O_TMPFILE);
    let file = options.open(std::env::temp_dir()).unwrap();
    file.set_len((casts.len() * STEPS * PIECE) as u64).unwrap();
    let fd = file.as_raw_fd();
    let mut tasks = Vec::new();
    for (place, cast) in casts.iter().enumerate() {
        let task = match cast.actor {
            Actor::Chain { fails } => spawn(chain(fd, place, fails)),
            Actor::Bounded { is_fed } => spawn(bounded(fd, place, is_fed)),
            Actor::Sequence { len, pause_us } => spawn(sequence(len, pause_us)),
            Actor::Sleeper { sleep_us } => spawn(sleeper(sleep_us)),
        };
        tasks.push(task);
    }
    let begun = Instant::now();
    let mut aborts: Vec<_> = casts.iter().zip(&tasks).collect();
    aborts.sort_by_key(|(cast, _)| cast.abort_us);
    for (cast, task) in aborts {
        if let Some(abort_us) = cast.abort_us {
            let left = Duration::from_micros(abort_us).saturating_sub(begun.elapsed());
            time::sleep(left).await;
            task.abort();
        }
    }
    for (cast, task) in casts.iter().zip(tasks) {
        let ended = task.await;
        assert!(ended.is_ok() || cast.abort_us.is_some(), "{cast:?}: {ended:?}");
    }
    while Local::current().engine().driver_mut().in_flight() > 0 {
        time::sleep(Duration::from_micros(100)).await;
    }
    for (place, cast) in casts.iter().enumerate() {
        assert_file(&file, place, cast);
    }
}

fn write(fd: RawFd, place: usize, step: usize) -> Write {
    Write {
        fd,
        buf: SendBuf::from(vec![1 + step as u8; PIECE]),
        offset: Some(((place * STEPS + step) * PIECE) as u64),
    }
}

fn errno(result: &io::Result<usize>) -> Option<i32> {
    result.as_ref().err().and_then(io::Error::raw_os_error)
}

async fn chain(fd: RawFd, place: usize, fails: usize) {
    let target = |step| if step == fails { -1 } else { fd };
    let link = Link::new(write(target(0), place, 0)).then(write(target(1), place, 1)).then(write(
        target(2),
        place,
        2,
    ));
    let (((one, _), (two, _)), (three, buf)) = link.await;
    for (step, result) in [one, two, three].iter().enumerate() {
        match step.cmp(&fails) {
            std::cmp::Ordering::Less => assert_eq!(result.as_ref().ok(), Some(&PIECE)),
            std::cmp::Ordering::Equal => assert_eq!(errno(result), Some(libc::EBADF)),
            std::cmp::Ordering::Greater => assert_eq!(errno(result), Some(libc::ECANCELED)),
        }
    }
    assert_eq!(buf.as_slice(), [3; PIECE], "the buffer comes back as it was");
}

/// A socket that its loop releases before it is closed, whenever its task ends.
struct Socket {
    stream: std::os::unix::net::UnixStream,
    local: Local,
}

impl Drop for Socket {
    fn drop(&mut self) {
        self.local.release(self.stream.as_raw_fd());
    }
}

async fn bounded(fd: RawFd, place: usize, is_fed: bool) {
    let (stream, mut peer) = std::os::unix::net::UnixStream::pair().unwrap();
    stream.set_nonblocking(true).unwrap();
    let local = Local::current();
    let ours = Socket { stream, local };
    if is_fed {
        peer.write_all(b"fed").unwrap();
    }
    let recv = Recv { fd: ours.stream.as_raw_fd(), buf: RecvBuf::with_capacity(PIECE) };
    let limit = if is_fed { HOUR } else { Duration::from_micros(500) };
    let begun = Instant::now();
    let link = Link::new(recv).timeout(limit).then(write(fd, place, 0));
    let ((received, buf), (written, _)) = link.await;
    if is_fed {
        assert_eq!((received.ok(), buf.filled()), (Some(3), &b"fed"[..]));
        assert_eq!(written.ok(), Some(PIECE));
    } else {
        assert_eq!(errno(&received), Some(libc::ETIMEDOUT));
        assert_eq!(errno(&written), Some(libc::ECANCELED));
        assert!(begun.elapsed() >= limit, "never early");
    }
}

async fn sequence(len: usize, pause_us: u64) {
    let (ours, mut peer) = std::os::unix::net::UnixStream::pair().unwrap();
    ours.set_nonblocking(true).unwrap();
    let ours = UnixStream::from(OwnedFd::from(ours));
    let sent: Vec<u8> = (0..len).map(|at| (at % 251) as u8).collect();
    peer.write_all(&sent).unwrap();
    drop(peer);
    let mut sequence = ours.receive();
    let mut came = Vec::new();
    loop {
        // Bytes that arrive between calls go to the next one.
        match time::timeout(Duration::from_micros(pause_us), sequence.next()).await {
            Ok(Some(received)) => came.extend_from_slice(&received.unwrap()),
            Ok(None) => break,
            Err(_) => {}
        }
    }
    assert!(came == sent, "{} of {len} bytes", came.len());
}

async fn sleeper(sleep_us: u64) {
    let (begun, sleep) = (Instant::now(), Duration::from_micros(sleep_us));
    time::sleep(sleep).await;
    assert!(begun.elapsed() >= sleep, "never early");
}

/// Steps are complete, in order, and all there unless aborted.
fn assert_file(file: &std::fs::File, place: usize, cast: &Cast) {
    let done: Vec<_> = (0..STEPS)
        .map(|step| {
            let mut piece = [0; PIECE];
            let offset = ((place * STEPS + step) * PIECE) as u64;
            file.read_exact_at(&mut piece, offset).unwrap();
            assert!(piece == [0; PIECE] || piece == [1 + step as u8; PIECE]);
            piece[0] != 0
        })
        .collect();
    let done_count = done.iter().filter(|done| **done).count();
    assert!(done[..done_count].iter().all(|done| *done), "{cast:?}: {done:?}");
    let expected = match cast.actor {
        Actor::Chain { fails } => fails.min(STEPS),
        Actor::Bounded { is_fed } => usize::from(is_fed),
        Actor::Sequence { .. } | Actor::Sleeper { .. } => 0,
    };
    match cast.abort_us {
        None => assert_eq!(done_count, expected, "{cast:?}"),
        Some(_) => assert!(done_count <= expected, "{cast:?}: {done:?}"),
    }
}
