//! The end of a runtime while destructors wait, for what comes and for what never does; on both
//! drivers.
#![allow(clippy::unwrap_used)]

use ringloop::Choice;
use ringloop_coro::net::TcpStream;
use ringloop_coro::{
    Builder, JoinError, JoinHandle, block_on, sleep, spawn, spawn_local, start, yield_now,
};
use ringloop_testing::coro::{LONG, OnDrop};
use ringloop_testing::drivers;
use ringloop_testing::engine::tcp_pair;
use std::cell::Cell;
use std::future::pending;
use std::io::{BufWriter, Read, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// A coroutine on another worker whose destructor takes some time.
fn slow_elsewhere(ended: &Arc<AtomicUsize>) -> JoinHandle<()> {
    let here = thread::current().id();
    let is_elsewhere = Arc::new(AtomicBool::new(false));
    let (ended, begun) = (Arc::clone(ended), Arc::clone(&is_elsewhere));
    let child = spawn(move || {
        assert_ne!(thread::current().id(), here);
        let _slow = OnDrop(|| {
            sleep(Duration::from_millis(20));
            ended.fetch_add(1, Ordering::SeqCst);
        });
        begun.store(true, Ordering::SeqCst);
        sleep(LONG);
    });
    // The coroutine spawned last stays here, and this worker is busy until the other worker has the
    // first.
    drop(spawn(|| ()));
    while !is_elsewhere.load(Ordering::SeqCst) {
        thread::yield_now();
    }
    child
}

#[test]
fn destructor_waits_for_its_child_on_another_worker() {
    for driver in drivers() {
        let ended = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&ended);
        let main = move || {
            drop(spawn_local(move || {
                let mut child = Some(slow_elsewhere(&count));
                let _parent = OnDrop(|| {
                    let child = child.take().unwrap();
                    child.cancel();
                    assert!(matches!(child.join(), Err(JoinError::Cancelled)));
                    count.fetch_add(1, Ordering::SeqCst);
                });
                sleep(LONG);
            }));
            yield_now();
        };
        Builder::new().driver(driver).workers(2).start(main).unwrap();
        assert_eq!(ended.load(Ordering::SeqCst), 2, "one was left behind");
    }
}

/// Runs a runtime on the calling thread, one of whose destructors waits for what never comes.
fn leave_one_unwinding(driver: Choice) {
    let main = || {
        drop(spawn_local(|| {
            let _endless = OnDrop(|| block_on(pending()));
            sleep(LONG);
        }));
        yield_now();
    };
    Builder::new().driver(driver).start(main).unwrap();
}

#[test]
#[cfg_attr(feature = "sanitizer", ignore = "what is on the stack that is left is a leak")]
fn thread_with_abandoned_unwinding_is_refused() {
    for driver in drivers() {
        let thread = thread::spawn(move || {
            leave_one_unwinding(driver);
            // A cancelled coroutine would wait forever here for the end of that unwinding.
            let again = Builder::new().driver(driver).start(|| 1);
            let refused = again.unwrap_err().to_string();
            assert!(refused.contains("use another thread"), "{refused}");
            let runtime = ringloop::Runtime::builder().driver(driver).build().unwrap();
            let spawned = runtime.block_on(async {
                catch_unwind(AssertUnwindSafe(|| drop(spawn_local(|| ())))).map_err(|payload| {
                    let said = payload.downcast_ref::<String>();
                    assert!(said.is_some_and(|said| said.contains("use another thread")));
                })
            });
            assert_eq!(spawned.unwrap(), Err(()));
        });
        thread.join().unwrap();
        assert_eq!(start(1, || 1).unwrap(), 1);
    }
}

#[test]
fn thread_without_abandoned_stacks_is_accepted() {
    for driver in drivers() {
        thread::spawn(move || {
            for _ in 0..2 {
                let main = || {
                    drop(spawn_local(|| {
                        let _slow = OnDrop(|| sleep(Duration::from_millis(1)));
                        sleep(LONG);
                    }));
                    yield_now();
                };
                Builder::new().driver(driver).start(main).unwrap();
            }
        })
        .join()
        .unwrap();
    }
}

/// Ends a runtime in which a destructor calls `last`; returns whether that returned, and the time
/// it took. On a thread of its own: std counts it as panicking once a coroutine was abandoned
/// there.
fn ends_with(driver: Choice, last: fn()) -> (bool, Duration) {
    thread::spawn(move || ends_here_with(driver, last)).join().unwrap()
}

fn ends_here_with(driver: Choice, last: fn()) -> (bool, Duration) {
    let ended = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&ended);
    let began = Rc::new(Cell::new(Instant::now()));
    let at_end = Rc::clone(&began);
    let main = move || {
        drop(spawn_local(move || {
            let _last = OnDrop(|| {
                last();
                count.fetch_add(1, Ordering::SeqCst);
            });
            sleep(LONG);
        }));
        yield_now();
        at_end.set(Instant::now());
    };
    Builder::new().driver(driver).start(main).unwrap();
    (ended.load(Ordering::SeqCst) == 1, began.get().elapsed())
}

#[test]
fn finite_destructor_wait_completes_at_runtime_end() {
    let lasts: [fn(); 5] = [
        || sleep(Duration::from_millis(20)),
        || {
            drop(block_on(ringloop::spawn_blocking(|| {
                thread::sleep(Duration::from_millis(20));
            })));
        },
        || {
            let (ours, mut far) = tcp_pair();
            let mut ours = TcpStream::try_from(ours).unwrap();
            let far = thread::spawn(move || {
                thread::sleep(Duration::from_millis(5));
                far.write_all(b"late").unwrap();
                far
            });
            // It parks on the loop, which a plain thread wakes.
            assert_eq!(ours.read(&mut [0; 8]).unwrap(), 4);
            drop(far);
        },
        || {
            for _ in 0..1000 {
                yield_now();
            }
        },
        || {
            for _ in 0..3 {
                sleep(Duration::from_millis(1));
                yield_now();
            }
        },
    ];
    for driver in drivers() {
        for (number, last) in lasts.into_iter().enumerate() {
            let (has_ended, took) = ends_with(driver, last);
            assert!(has_ended, "wait {number} given up after {took:?}");
        }
    }
}

#[test]
fn buffered_file_is_flushed_at_runtime_end() {
    for driver in drivers() {
        let path = std::env::temp_dir().join(format!("ringloop-coro-{}", std::process::id()));
        let place = path.clone();
        let main = move || {
            let is_written = Rc::new(Cell::new(false));
            let told = Rc::clone(&is_written);
            drop(spawn_local(move || {
                let file = ringloop_coro::fs::File::create(place).unwrap();
                let mut buffered = BufWriter::new(file);
                buffered.write_all(b"said last").unwrap();
                told.set(true);
                sleep(LONG);
            }));
            while !is_written.get() {
                sleep(Duration::from_millis(1));
            }
            path
        };
        let path = Builder::new().driver(driver).start(main).unwrap();
        let written = std::fs::read(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        assert_eq!(written, b"said last");
    }
}

#[test]
#[cfg_attr(feature = "sanitizer", ignore = "what is on the stack that is left is a leak")]
fn endless_destructor_is_abandoned() {
    for driver in drivers() {
        let (has_ended, took) = ends_with(driver, || block_on(pending()));
        assert!(!has_ended);
        assert!(took < ringloop_coro::limits::SHUTDOWN_STALL_MAX, "{took:?} for what cannot come");
    }
    let driver = drivers()[0];
    let (has_ended, took) = ends_with(driver, || {
        loop {
            yield_now();
        }
    });
    assert!(!has_ended);
    assert!(took >= ringloop_coro::limits::SHUTDOWN_STALL_MAX, "{took:?}");
}
