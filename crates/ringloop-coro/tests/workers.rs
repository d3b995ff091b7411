//! Several workers: what moves between them, and what does not; on both drivers.
#![allow(clippy::unwrap_used)]

use ringloop_coro::{JoinError, sleep, spawn, spawn_local, spawner, yield_now};
use ringloop_testing::coro::{LONG, on_workers};
use std::collections::HashSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::Duration;

#[test]
fn idle_workers_take_coroutines_that_have_not_begun() {
    on_workers(3, || {
        // Each occupies its worker until all three run.
        let barrier = Arc::new(Barrier::new(3));
        let handles: Vec<_> = (0..3)
            .map(|_| {
                let barrier = Arc::clone(&barrier);
                spawn(move || {
                    barrier.wait();
                    thread::current().id()
                })
            })
            .collect();
        let threads: HashSet<_> = handles.into_iter().map(|it| it.join().unwrap()).collect();
        assert_eq!(threads.len(), 3);
    });
}

#[test]
fn begun_coroutine_stays_on_its_thread() {
    on_workers(2, || {
        let handles: Vec<_> = (0..200)
            .map(|number| {
                spawn(move || {
                    let local = std::rc::Rc::new(thread::current().id());
                    for _ in 0..20 {
                        yield_now();
                        if number % 10 == 0 {
                            sleep(Duration::from_micros(50));
                        }
                        assert_eq!(*local, thread::current().id());
                    }
                })
            })
            .collect();
        for handle in handles {
            handle.join().unwrap();
        }
    });
}

#[test]
fn local_coroutine_runs_on_its_spawners_thread() {
    on_workers(2, || {
        let here = thread::current().id();
        let handles: Vec<_> = (0..100).map(|_| spawn_local(|| thread::current().id())).collect();
        for handle in handles {
            assert_eq!(handle.join().unwrap(), here);
        }
    });
}

/// Fifty coroutines that count, spawned both ways, some of which yield first.
fn fan_out(count: &Arc<AtomicUsize>) {
    let one = |number: usize| {
        let count = Arc::clone(count);
        let work = move || {
            (0..number % 3).for_each(|_| yield_now());
            count.fetch_add(1, Ordering::Relaxed);
        };
        if number.is_multiple_of(2) { spawn(work) } else { spawn_local(work) }
    };
    let handles: Vec<_> = (0..50).map(one).collect();
    for handle in handles {
        handle.join().unwrap();
    }
}

#[test]
fn every_coroutine_runs_once_however_they_are_spawned() {
    on_workers(3, || {
        let count = Arc::new(AtomicUsize::new(0));
        let outer = |_| {
            let count = Arc::clone(&count);
            spawn(move || fan_out(&count))
        };
        let handles: Vec<_> = (0..50).map(outer).collect();
        for handle in handles {
            handle.join().unwrap();
        }
        assert_eq!(count.load(Ordering::Relaxed), 2500);
    });
}

#[test]
fn coroutine_is_cancelled_from_another_worker_in_every_state() {
    on_workers(2, || {
        for round in 0..300 {
            let handle = spawn(move || {
                for _ in 0..round % 5 {
                    yield_now();
                }
                sleep(LONG);
            });
            // The canceller and the coroutine race: not begun, running, queued, parked.
            let canceller = spawn(move || {
                for _ in 0..round % 3 {
                    yield_now();
                }
                handle.cancel();
                handle.join()
            });
            assert!(matches!(canceller.join().unwrap(), Err(JoinError::Cancelled)));
        }
    });
}

#[test]
fn spawner_of_an_ended_runtime_cancels() {
    on_workers(2, || {
        let left = thread::spawn(|| ringloop_coro::start(1, spawner).unwrap().spawn(|| 1).join());
        assert!(matches!(left.join().unwrap(), Err(JoinError::Cancelled)));
    });
}
