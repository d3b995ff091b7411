//! Busy polling: a loop that polls before it sleeps misses no wake-up, and stops polling when that
//! is in vain; on both drivers.
#![allow(clippy::unwrap_used)]

use ringloop::Choice;
use ringloop::embed::sys::libc;
use ringloop::net::{TcpListener, TcpStream};
use ringloop::{Runtime, spawn, spawn_blocking, time};
use ringloop_testing::drivers;
use ringloop_testing::engine::{alone, processor_time};
use std::os::unix::net::UnixStream;
use std::thread;
use std::time::{Duration, Instant};

/// So long that a test which waited for it would fail.
const FOR_EVER: Duration = Duration::from_secs(600);
const SOON: Duration = Duration::from_secs(60);

fn busy_polling(driver: Choice, workers: usize, bound: Duration) -> Runtime {
    let builder = Runtime::builder().driver(driver).workers(workers);
    builder.busy_polling(Some(bound)).build().unwrap()
}

/// Runs a test on each driver with a loop that would poll for ten minutes; the event it waits for
/// must end that.
fn on_both(workers: usize, test: impl Fn(Runtime)) {
    let _alone = alone();
    for driver in drivers() {
        let began = Instant::now();
        test(busy_polling(driver, workers, FOR_EVER));
        assert!(began.elapsed() < SOON, "{driver:?}");
    }
}

#[test]
fn bytes_that_arrive_during_busy_polling_are_taken() {
    on_both(1, |runtime| {
        runtime
            .block_on(async {
                let listener = TcpListener::bind_addr(([127, 0, 0, 1], 0).into()).unwrap();
                let address = listener.local_addr().unwrap();
                let client = thread::spawn(move || {
                    use std::io::{Read, Write};
                    let mut stream = std::net::TcpStream::connect(address).unwrap();
                    for round in 0..100_u8 {
                        stream.write_all(&[round; 100]).unwrap();
                        let mut back = [0; 100];
                        stream.read_exact(&mut back).unwrap();
                        assert_eq!(back, [round; 100]);
                    }
                });
                let stream = listener.accept().await.unwrap();
                let mut incoming = stream.receive();
                while let Some(bytes) = incoming.next().await {
                    stream.write_all(bytes.unwrap()).await.0.unwrap();
                }
                client.join().unwrap();
            })
            .unwrap();
    });
}

#[test]
fn timer_ends_busy_polling_and_is_not_early() {
    on_both(1, |runtime| {
        runtime
            .block_on(async {
                for _ in 0..10 {
                    let began = Instant::now();
                    time::sleep(Duration::from_millis(3)).await;
                    assert!(began.elapsed() >= Duration::from_millis(3));
                }
            })
            .unwrap();
    });
}

#[test]
fn task_of_another_thread_and_its_result_end_busy_polling() {
    on_both(2, |runtime| {
        let workers = runtime.workers();
        runtime
            .block_on(async move {
                for number in 0..100 {
                    let handle = workers.spawn_on(1, move || async move { number }).unwrap();
                    assert_eq!(handle.await.unwrap(), number);
                }
            })
            .unwrap();
    });
}

#[test]
fn call_of_a_pool_thread_ends_busy_polling() {
    on_both(1, |runtime| {
        let answer = runtime.block_on(async { spawn_blocking(|| 42).await.unwrap() });
        assert_eq!(answer.unwrap(), 42);
    });
}

#[test]
fn operation_cancelled_by_another_task_ends_busy_polling() {
    on_both(1, |runtime| {
        runtime
            .block_on(async {
                let (near, _far) = UnixStream::pair().unwrap();
                let near = std::rc::Rc::new(ringloop::net::UnixStream::from(near));
                let reader = std::rc::Rc::clone(&near);
                let waiting = spawn(async move { reader.read(Vec::with_capacity(8)).await.0 });
                time::sleep(Duration::from_millis(1)).await;
                near.cancel();
                let ended = waiting.await.unwrap().unwrap_err();
                assert_eq!(ended.raw_os_error(), Some(libc::ECANCELED));
            })
            .unwrap();
    });
}

/// Fifty waits of 10 ms, of which 2 ms at most are polled: polling each would take 100 ms of CPU time.
#[test]
fn loop_whose_waits_are_long_stops_polling() {
    let _alone = alone();
    for driver in drivers() {
        let runtime = busy_polling(driver, 1, Duration::from_millis(2));
        let spent = runtime.block_on(async {
            let started = processor_time();
            for _ in 0..50 {
                time::sleep(Duration::from_millis(10)).await;
            }
            processor_time().abs_diff(started)
        });
        assert!(spent.unwrap() < Duration::from_millis(50), "{driver:?}");
    }
}

#[test]
fn connection_made_during_busy_polling_is_served() {
    on_both(1, |runtime| {
        runtime
            .block_on(async {
                let listener = TcpListener::bind_addr(([127, 0, 0, 1], 0).into()).unwrap();
                let address = listener.local_addr().unwrap();
                let server = spawn(async move { listener.accept().await.unwrap() });
                let client = TcpStream::connect(address).await.unwrap();
                let accepted = server.await.unwrap();
                client.write_all(&b"hello"[..]).await.0.unwrap();
                let (_, bytes) = accepted.read(Vec::with_capacity(8)).await;
                assert_eq!(bytes, b"hello");
            })
            .unwrap();
    });
}

/// How often this thread has slept.
fn sleeps() -> u64 {
    let status = std::fs::read_to_string("/proc/thread-self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("voluntary_ctxt_switches"));
    let count = line.unwrap().split_whitespace().last();
    count.unwrap().parse().unwrap()
}

#[test]
fn busy_polling_loop_does_not_sleep_and_another_does() {
    let _alone = alone();
    for driver in drivers() {
        let busy_polling = busy_polling(driver, 1, FOR_EVER);
        let plain = Runtime::builder().driver(driver).build().unwrap();
        for (runtime, polls) in [(busy_polling, true), (plain, false)] {
            let slept = runtime.block_on(async {
                let before = sleeps();
                for _ in 0..20 {
                    time::sleep(Duration::from_millis(5)).await;
                }
                sleeps() - before
            });
            // The kernel may sometimes put a thread to sleep for other reasons.
            assert_eq!(slept.unwrap() < 10, polls, "{driver:?}");
        }
    }
}
