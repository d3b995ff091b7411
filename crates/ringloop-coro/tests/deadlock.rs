//! Deadlocks are reported in debug builds; on both drivers. Each part runs in a process of its own,
//! without the test harness, whose threads could wake a coroutine.
#![allow(clippy::unwrap_used, clippy::print_stdout)]

use ringloop_coro::{Spawn, block_on, sleep, spawn, start, yield_now};
use std::future::pending;
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// The most time for a part.
const PATIENCE: Duration = Duration::from_secs(20);

/// A part: its name, what its process runs, and what its message contains.
type Part = (&'static str, fn(), &'static [&'static str]);

const PARTS: [Part; 3] = [
    (
        "coroutines_that_wait_for_each_other_are_named",
        wait_for_each_other,
        &["deadlock: all 2 coroutines are parked", "'main' (spawned at", "'stuck' (spawned at"],
    ),
    (
        "deadlock_over_several_workers_is_found",
        over_several_workers,
        &["deadlock: all 21 coroutines are parked"],
    ),
    ("what_can_still_be_woken_is_no_deadlock", still_woken, &[]),
];

fn wait_for_each_other() {
    start(1, || {
        sleep(Duration::from_millis(1));
        let stuck = Spawn::new().name("stuck").spawn(|| block_on(pending::<()>()));
        drop(stuck.join());
    })
    .unwrap();
}

fn over_several_workers() {
    start(3, || {
        let stuck = |_| {
            spawn(|| {
                yield_now();
                sleep(Duration::from_millis(2));
                block_on(pending::<()>());
            })
        };
        let stuck: Vec<_> = (0..20).map(stuck).collect();
        for stuck in stuck {
            drop(stuck.join());
        }
    })
    .unwrap();
}

fn still_woken() {
    for workers in [1, 3] {
        start(workers, || {
            sleep(Duration::from_millis(30));
            let call = ringloop::spawn_blocking(|| std::thread::sleep(Duration::from_millis(30)));
            block_on(call).unwrap();
            // A thread outside of the runtime.
            let (send, receive) = ringloop::sync::oneshot::channel();
            let thread = std::thread::spawn(move || {
                std::thread::sleep(Duration::from_millis(30));
                send.send(1).unwrap();
            });
            assert_eq!(block_on(receive).ok(), Some(1));
            thread.join().unwrap();
            for _ in 0..200 {
                let handle = spawn(|| spawn(yield_now).join());
                handle.join().unwrap().unwrap();
            }
        })
        .unwrap();
    }
}

/// Runs a part in a process of its own; returns its status and message.
fn child(part: &str, driver: &str) -> (ExitStatus, String) {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .env("RINGLOOP_CORO_TEST_PART", part)
        .env("RINGLOOP_DRIVER", driver)
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let begin = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait().unwrap() {
            break status;
        }
        if begin.elapsed() > PATIENCE {
            child.kill().unwrap();
        }
        std::thread::sleep(Duration::from_millis(5));
    };
    let said = std::io::read_to_string(child.stderr.take().unwrap()).unwrap();
    (status, said)
}

fn main() {
    if !cfg!(debug_assertions) {
        return println!("deadlocks are not looked for in a release build");
    }
    if let Ok(part) = std::env::var("RINGLOOP_CORO_TEST_PART") {
        let known = PARTS.iter().find(|(name, ..)| *name == part);
        return known.map_or((), |(_, run, _)| run());
    }
    let uring = std::env::var_os("RINGLOOP_ALLOW_NO_URING").is_none();
    for driver in ["epoll"].into_iter().chain(uring.then_some("uring")) {
        for (name, _, words) in PARTS {
            let (status, said) = child(name, driver);
            assert_eq!(status.success(), words.is_empty(), "{name}, {driver}: {status}\n{said}");
            for word in words {
                assert!(said.contains(word), "{name}, {driver}: {word} is missing\n{said}");
            }
            println!("{name}, {driver}: ok");
        }
    }
}
