//! Many streams of one loop that all have data: none starves while others are served repeatedly. Tasks
//! that always have more to do: the driver is polled between their polls.

#![allow(clippy::unwrap_used)]

use ringloop::embed::limits::{
    ATTEMPTS_PER_POLL, POLLS_PER_YIELD, POOL_BUFFER_BYTES, TASKS_PER_TURN,
};
use ringloop::embed::sys::fd::OwnedFd;
use ringloop::net::UnixStream;
use ringloop::sync::Semaphore;
use ringloop::{spawn, time};
use ringloop_testing::PATIENCE;
use ringloop_testing::engine::in_runtimes;
use std::cell::Cell;
use std::io::Write;
use std::rc::Rc;
use std::sync::LazyLock;
use std::sync::mpsc::channel;
use std::thread;
use std::time::{Duration, Instant};

type Peer = std::os::unix::net::UnixStream;

type Message = &'static [u8];

/// A message after which the loop tries to receive more, and a message that drains it.
const FULL: Message = &[7; POOL_BUFFER_BYTES as usize];
const SHORT: Message = &[7; POOL_BUFFER_BYTES as usize - 1];
/// Several times the completions of one turn, and the buffers of the pool.
const STREAMS: usize = 400;

fn pair() -> (UnixStream, Peer) {
    let (ours, peer) = Peer::pair().unwrap();
    ours.set_nonblocking(true).unwrap();
    (OwnedFd::from(ours).into(), peer)
}

/// Run a test on each driver.
fn run(test: impl AsyncFn()) {
    in_runtimes(|runtime| {
        let bounded = async { time::timeout(PATIENCE, test()).await.unwrap() };
        runtime.block_on(bounded).unwrap();
    });
}

/// A stream that requests the next message from its peer once one has arrived.
async fn asking(stream: UnixStream, len: usize, ask: impl Fn(), count: Rc<Cell<usize>>) {
    let mut incoming = stream.receive();
    let mut missing = len;
    while let Some(bytes) = incoming.next().await {
        missing -= bytes.unwrap().len();
        if missing == 0 {
            missing = len;
            count.set(count.get() + 1);
            ask();
        }
    }
}

/// Starts streams whose peers, on a thread, reply before the loop has served all of them; waits
/// until all have had several messages. They go on counting.
async fn busy_streams(message: Message) -> Rc<Cell<usize>> {
    let count = Rc::new(Cell::new(0));
    let (asks, asked) = channel();
    let mut peers = Vec::new();
    for index in 0..STREAMS {
        let (stream, mut peer) = pair();
        peer.write_all(message).unwrap();
        peers.push(peer);
        let asks = asks.clone();
        let ask = move || asks.send(index).unwrap();
        spawn(asking(stream, message.len(), ask, Rc::clone(&count)));
    }
    // Ends with the loop's tasks.
    thread::spawn(move || {
        for index in asked {
            if peers[index].write_all(message).is_err() {
                break;
            }
        }
    });
    while count.get() < 20 * STREAMS {
        time::sleep(Duration::from_millis(1)).await;
    }
    count
}

/// Messages that the others receive until a stream of the same kind gets its message.
async fn overtaken_by(count: &Cell<usize>, message: Message) -> usize {
    let (stream, mut peer) = pair();
    let mut incoming = stream.receive();
    let mut worst = 0;
    for _ in 0..20 {
        let mut missing = message.len();
        peer.write_all(message).unwrap();
        let before = count.get();
        while missing > 0 {
            missing -= incoming.next().await.unwrap().unwrap().len();
        }
        worst = worst.max(count.get() - before);
        time::sleep(Duration::from_millis(2)).await;
    }
    worst
}

#[test]
fn streams_in_bulk_whose_peers_answer_at_once_do_not_keep_another_waiting() {
    run(async || {
        let count = busy_streams(FULL).await;
        let worst = overtaken_by(&count, FULL).await;
        assert!(worst <= 3 * STREAMS, "{worst} messages overtook one");
    });
}

#[test]
fn streams_that_share_too_few_buffers_do_not_keep_another_waiting() {
    run(async || {
        let count = busy_streams(SHORT).await;
        let worst = overtaken_by(&count, SHORT).await;
        assert!(worst <= 3 * STREAMS, "{worst} messages overtook one");
    });
}

/// Steps until a task that waits for a socket and then for a timer is served, each step of 20
/// microseconds and one that the caller may complete at once.
async fn steps_beside_a_waiting_task(mut step: impl AsyncFnMut()) -> usize {
    const STEP: Duration = Duration::from_micros(20);
    let (stream, mut peer) = pair();
    let served = Rc::new(Cell::new(false));
    let waiting = Rc::clone(&served);
    spawn(async move {
        stream.read(vec![0; 1]).await.0.unwrap();
        time::sleep(50 * STEP).await;
        waiting.set(true);
    });
    time::yield_now().await;
    peer.write_all(&[7]).unwrap();
    let mut count = 0;
    while !served.get() {
        let start = Instant::now();
        while start.elapsed() < STEP {}
        step().await;
        count += 1;
    }
    count
}

/// Checks that the driver is polled at least as often as the task has used its budget: there are the 50
/// steps that the timer lasts, and those of a few turns.
fn has_short_turns(steps_per_turn: usize, step: impl AsyncFn() + Copy + 'static) {
    let steps_max = 100 + 8 * steps_per_turn;
    run(async || {
        let of_the_root = steps_beside_a_waiting_task(step).await;
        let of_a_task = spawn(steps_beside_a_waiting_task(step)).await.unwrap();
        assert!(of_the_root <= steps_max && of_a_task <= steps_max, "{of_the_root}, {of_a_task}");
    });
}

#[test]
fn task_that_yields_lets_the_driver_be_polled() {
    has_short_turns(TASKS_PER_TURN / POLLS_PER_YIELD, async || time::yield_now().await);
}

#[test]
fn task_that_waits_for_past_deadlines_lets_the_driver_be_polled() {
    has_short_turns(ATTEMPTS_PER_POLL as usize, async || time::sleep(Duration::ZERO).await);
}

#[test]
fn task_that_takes_free_permits_lets_the_driver_be_polled() {
    static FREE: LazyLock<Semaphore> = LazyLock::new(|| Semaphore::new(1));
    has_short_turns(ATTEMPTS_PER_POLL as usize, async || drop(FREE.acquire(1).await));
}
