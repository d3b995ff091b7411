//! Cancelling a coroutine in each state; on both drivers.
#![allow(clippy::unwrap_used)]
// `block_on` returns a coroutine's handle, to join it outside of the runtime.
#![allow(clippy::async_yields_async)]

use ringloop_coro::{
    Builder, JoinError, JoinHandle, WaitError, block_on, sleep, spawn, spawn_local, spawner, start,
    try_block_on, yield_now,
};
use ringloop_testing::coro::{LONG, OnDrop, is_cancelled, on_both, stream_pair};
use ringloop_testing::drivers;
use std::cell::{Cell, RefCell};
use std::future::pending;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

/// Counts its drops.
struct Note(Arc<AtomicUsize>);

impl Drop for Note {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

fn notes() -> (Arc<AtomicUsize>, impl Fn() -> Note) {
    let count = Arc::new(AtomicUsize::new(0));
    let more = Arc::clone(&count);
    (count, move || Note(Arc::clone(&more)))
}

#[test]
fn cancel_before_it_begins_drops_the_closure() {
    on_both(|| {
        let (dropped, note) = notes();
        let held = note();
        let handle = spawn(move || {
            drop(held);
            unreachable!("cancelled before it began");
        });
        handle.cancel();
        assert!(is_cancelled(handle));
        assert_eq!(dropped.load(Ordering::SeqCst), 1);
    });
}

#[test]
fn cancel_unwinds_any_parked_wait() {
    on_both(|| {
        let waits: [fn(); 4] = [
            || sleep(LONG),
            || block_on(pending()),
            || drop(spawn(|| sleep(LONG)).join()),
            || {
                let (mut ours, _theirs) = stream_pair();
                drop(std::io::Read::read(&mut ours, &mut [0; 8]));
            },
        ];
        for wait in waits {
            let (dropped, note) = notes();
            let held = note();
            let handle = spawn_local(move || {
                let _held = held;
                wait();
                unreachable!("cancelled in its wait");
            });
            for _ in 0..3 {
                yield_now();
            }
            assert_eq!(dropped.load(Ordering::SeqCst), 0);
            handle.cancel();
            handle.cancel();
            assert!(is_cancelled(handle));
            assert_eq!(dropped.load(Ordering::SeqCst), 1);
        }
    });
}

#[test]
fn running_coroutine_unwinds_at_its_next_park() {
    on_both(|| {
        let reached = Rc::new(Cell::new(0));
        let own: Rc<RefCell<Option<JoinHandle<()>>>> = Rc::default();
        let (steps, handle) = (Rc::clone(&reached), Rc::clone(&own));
        *own.borrow_mut() = Some(spawn_local(move || {
            handle.borrow().as_ref().unwrap().cancel();
            steps.set(1);
            // Ready at once: no park.
            block_on(async {});
            steps.set(2);
            yield_now();
            steps.set(3);
        }));
        yield_now();
        assert!(is_cancelled(own.take().unwrap()));
        assert_eq!(reached.get(), 2);
    });
}

#[test]
fn finished_coroutine_keeps_its_result() {
    on_both(|| {
        let handle = spawn(|| 5);
        while !handle.is_finished() {
            yield_now();
        }
        handle.cancel();
        assert_eq!(handle.join().unwrap(), 5);
    });
}

#[test]
fn caught_cancel_unwinds_again_at_the_next_park() {
    on_both(|| {
        let caught = Rc::new(Cell::new(0));
        let count = Rc::clone(&caught);
        let handle = spawn_local(move || {
            for _ in 0..3 {
                let unwound = catch_unwind(AssertUnwindSafe(|| sleep(LONG)));
                count.set(count.get() + u32::from(unwound.is_err()));
            }
            "its own end"
        });
        yield_now();
        handle.cancel();
        assert_eq!(handle.join().unwrap(), "its own end");
        assert_eq!(caught.get(), 3);
    });
}

#[test]
fn destructor_waits_fail_or_block_during_unwinding() {
    on_both(|| {
        let seen = Rc::new(RefCell::new(Vec::new()));
        let log = Rc::clone(&seen);
        let handle = spawn_local(move || {
            let _at_end = OnDrop(|| {
                let refused = try_block_on(ringloop::time::sleep(LONG));
                assert_eq!(refused, Err(WaitError::Cancelled));
                // What is ready needs no wait.
                assert_eq!(try_block_on(async { 3 }), Ok(3));
                yield_now();
                sleep(Duration::from_millis(1));
                assert_eq!(spawn(|| 4).join().unwrap(), 4);
                log.borrow_mut().push("end");
            });
            block_on(pending::<()>());
        });
        yield_now();
        handle.cancel();
        // Others run while the destructor waits, and can be cancelled.
        let other = spawn(|| sleep(LONG));
        yield_now();
        other.cancel();
        assert!(is_cancelled(handle));
        assert!(is_cancelled(other));
        assert_eq!(*seen.borrow(), ["end"]);
    });
}

#[test]
fn panic_while_it_unwinds_from_a_park_is_its_result() {
    on_both(|| {
        let handle = spawn(|| {
            let caught = catch_unwind(|| sleep(LONG));
            assert!(caught.is_ok(), "a panic after the unwinding");
        });
        yield_now();
        handle.cancel();
        let error = handle.join().unwrap_err();
        assert!(error.to_string().contains("a panic after the unwinding"), "{error}");
    });
}

#[test]
fn runtime_end_unwinds_coroutines_on_their_threads() {
    for driver in drivers() {
        let (dropped, note) = notes();
        let builder = Builder::new().driver(driver).workers(3);
        builder
            .start(move || {
                for number in 0..60 {
                    let held = note();
                    drop(spawn(move || {
                        let _held = held;
                        let begun_on = thread::current().id();
                        let _at_end = OnDrop(move || assert_eq!(thread::current().id(), begun_on));
                        match number % 3 {
                            0 => sleep(LONG),
                            1 => block_on(pending()),
                            _ => yield_now(),
                        }
                    }));
                }
                for _ in 0..5 {
                    yield_now();
                }
                // These have not begun when the runtime ends.
                for _ in 0..10 {
                    let held = note();
                    drop(spawn_local(move || drop(held)));
                }
            })
            .unwrap();
        assert_eq!(dropped.load(Ordering::SeqCst), 70, "{driver:?}");
    }
}

#[test]
fn runtime_end_wakes_remote_joiners() {
    for driver in drivers() {
        let builder = Builder::new().driver(driver);
        let waiting = builder
            .start(|| {
                let handle = spawn(|| sleep(LONG));
                yield_now();
                let thread = thread::spawn(move || is_cancelled(handle));
                // The thread waits, or begins to wait after the end.
                sleep(Duration::from_millis(5));
                thread
            })
            .unwrap();
        assert!(waiting.join().unwrap());
    }
}

#[test]
fn plain_runtime_that_is_dropped_unwinds_its_coroutines() {
    for driver in drivers() {
        let (dropped, note) = notes();
        let held = note();
        let runtime = ringloop::Runtime::builder().driver(driver).build().unwrap();
        let handle = runtime
            .block_on(async move {
                let handle = spawn_local(move || {
                    let _held = held;
                    sleep(LONG);
                });
                ringloop::time::sleep(Duration::from_millis(2)).await;
                handle
            })
            .unwrap();
        assert_eq!(dropped.load(Ordering::SeqCst), 0);
        drop(runtime);
        assert_eq!(dropped.load(Ordering::SeqCst), 1);
        assert!(is_cancelled(handle));
    }
}

#[test]
#[cfg_attr(feature = "sanitizer", ignore = "what is on the stack that is left is a leak")]
fn endless_destructor_wait_does_not_block_shutdown() {
    for driver in drivers() {
        // On a thread of its own: std counts it as panicking from then on.
        let thread = thread::spawn(move || {
            let builder = Builder::new().driver(driver);
            builder.start(|| {
                let handle = spawn(|| {
                    let _at_end = OnDrop(|| block_on(pending()));
                    sleep(LONG);
                });
                yield_now();
                handle
            })
        });
        assert!(is_cancelled(thread.join().unwrap().unwrap()));
    }
}

#[test]
fn cancel_from_plain_threads_races_with_the_end() {
    on_both(|| {
        for round in 0..50 {
            let handle = spawn(move || {
                for _ in 0..round % 4 {
                    yield_now();
                }
                sleep(Duration::from_micros(round));
            });
            let starter = spawner();
            let thread = thread::spawn(move || {
                handle.cancel();
                let more = starter.spawn(|| sleep(LONG));
                more.cancel();
                (handle.join(), more.join())
            });
            let ended = block_on(ringloop::spawn_blocking(move || thread.join().unwrap()));
            let (first, more) = ended.unwrap();
            assert!(matches!(first, Ok(()) | Err(JoinError::Cancelled)));
            assert!(matches!(more, Err(JoinError::Cancelled)));
        }
    });
}

#[test]
fn panic_of_main_is_resumed_and_others_unwind() {
    let (dropped, note) = notes();
    let held = note();
    let panicked = catch_unwind(AssertUnwindSafe(|| {
        start(1, move || {
            drop(spawn(move || {
                let _held = held;
                sleep(LONG);
            }));
            yield_now();
            panic!("main is gone");
        })
        .map(|(): ()| ())
    }));
    assert_eq!(panicked.unwrap_err().downcast_ref(), Some(&"main is gone"));
    assert_eq!(dropped.load(Ordering::SeqCst), 1);
}

/// Cancels a coroutine and waits for its end.
struct Child(Option<JoinHandle<()>>);

impl Drop for Child {
    fn drop(&mut self) {
        let child = self.0.take().unwrap();
        child.cancel();
        assert!(is_cancelled(child));
    }
}

/// Endless waits of many kinds.
fn endless_waits() -> [fn(); 6] {
    [
        || sleep(LONG),
        || loop {
            yield_now();
        },
        || {
            let (mut ours, _theirs) = stream_pair();
            drop(std::io::Read::read(&mut ours, &mut [0; 8]));
        },
        || {
            let (mut ours, _theirs) = stream_pair();
            drop(std::io::Write::write_all(&mut ours, &vec![0; 64 << 20]));
        },
        || {
            drop(ringloop_coro::net::TcpListener::bind("127.0.0.1:0").unwrap().accept());
        },
        || {
            ringloop_coro::scope(|scope| {
                drop(scope.spawn(|| sleep(LONG)));
            });
        },
    ]
}

#[test]
fn destructor_cancels_and_joins_another_while_its_own_coroutine_unwinds() {
    on_both(|| {
        for wait in endless_waits() {
            for panics in [false, true] {
                let (dropped, note) = notes();
                let held = note();
                let parent = spawn_local(move || {
                    let _child = Child(Some(spawn_local(move || {
                        let _held = held;
                        wait();
                        unreachable!("cancelled in its wait");
                    })));
                    for _ in 0..3 {
                        yield_now();
                    }
                    assert!(!panics, "with a child");
                    sleep(LONG);
                });
                for _ in 0..8 {
                    yield_now();
                }
                parent.cancel();
                match parent.join().unwrap_err() {
                    JoinError::Panicked(_) => assert!(panics),
                    _ => assert!(!panics),
                }
                assert_eq!(dropped.load(Ordering::SeqCst), 1);
                assert!(!thread::panicking());
            }
        }
    });
}

#[test]
fn wait_begun_during_another_unwinding_is_cancelled_later() {
    on_both(|| {
        let in_scope: fn() = || {
            ringloop_coro::scope(|_| {
                sleep(Duration::from_millis(10));
                sleep(LONG);
            });
        };
        for wait in endless_waits().into_iter().chain([in_scope]) {
            let first = spawn_local(|| {
                let _slow = OnDrop(|| sleep(Duration::from_millis(5)));
                sleep(LONG);
            });
            yield_now();
            first.cancel();
            yield_now();
            assert!(thread::panicking() && !first.is_finished());
            let (dropped, note) = notes();
            let held = note();
            let second = spawn_local(move || {
                let _held = held;
                wait();
                unreachable!("cancelled in its wait");
            });
            yield_now();
            assert!(is_cancelled(first));
            sleep(Duration::from_millis(20));
            let third = spawn_local(move || {
                let _child = Child(Some(second));
                sleep(LONG);
            });
            yield_now();
            third.cancel();
            assert!(is_cancelled(third));
            assert_eq!(dropped.load(Ordering::SeqCst), 1);
            assert!(!thread::panicking());
        }
    });
}

#[test]
fn caught_unwinding_releases_deferred_cancels() {
    on_both(|| {
        for wait in endless_waits() {
            let child: Rc<RefCell<Option<Child>>> = Rc::default();
            let given = Rc::clone(&child);
            let parent = spawn_local(move || {
                let caught = catch_unwind(AssertUnwindSafe(|| {
                    let _slow = OnDrop(|| sleep(Duration::from_millis(5)));
                    sleep(LONG);
                }));
                assert!(caught.is_err());
                let _child = given.take();
                sleep(LONG);
            });
            yield_now();
            parent.cancel();
            yield_now();
            assert!(thread::panicking());
            let waiting = spawn_local(move || {
                wait();
                unreachable!("cancelled in its wait");
            });
            *child.borrow_mut() = Some(Child(Some(waiting)));
            assert!(is_cancelled(parent));
            assert!(!thread::panicking());
        }
    });
}

#[test]
fn several_unwindings_nest_in_any_order() {
    on_both(|| {
        let (dropped, note) = notes();
        // Each unwinds while all before it do; the first ends last.
        let mut chain = spawn_local(|| sleep(LONG));
        for _ in 0..5 {
            let (child, held) = (Child(Some(chain)), note());
            chain = spawn_local(move || {
                let _held = held;
                let _child = child;
                let _late = OnDrop(|| sleep(Duration::from_millis(1)));
                sleep(LONG);
            });
        }
        let others: Vec<_> = (1..4)
            .map(|delay| {
                let held = note();
                spawn_local(move || {
                    let _held = held;
                    let _late = OnDrop(|| sleep(Duration::from_millis(delay)));
                    sleep(LONG);
                })
            })
            .collect();
        yield_now();
        for other in &others {
            other.cancel();
        }
        drop(Child(Some(chain)));
        assert!(others.into_iter().all(is_cancelled));
        assert_eq!(dropped.load(Ordering::SeqCst), 8);
        // Nothing unwinds any more: a panic works as usual.
        assert!(!thread::panicking());
        let panicked = spawn(|| assert!(!ringloop_coro::is_coroutine(), "as ever")).join();
        assert!(panicked.unwrap_err().to_string().contains("as ever"));
    });
}
