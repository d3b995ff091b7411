//! Coroutines that borrow: however a scope ends, they end before what they borrow; on both drivers.
#![allow(clippy::unwrap_used)]

use ringloop::Choice;
use ringloop_coro::sync::{Mutex, WaitGroup};
use ringloop_coro::{JoinError, Spawn, scope, sleep, spawn, spawn_local, yield_now};
use ringloop_testing::coro::{LONG, is_part, on_both, on_workers, panic_message, run_part};
use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// A borrowed value: counts its users, and checks in its drop that there are none.
struct Lent {
    users: AtomicUsize,
    begun: AtomicUsize,
    ended: Arc<AtomicUsize>,
}

impl Lent {
    fn new(ended: &Arc<AtomicUsize>) -> Self {
        Self { users: AtomicUsize::new(0), begun: AtomicUsize::new(0), ended: Arc::clone(ended) }
    }

    fn take(&self) -> User<'_> {
        self.users.fetch_add(1, Ordering::SeqCst);
        self.begun.fetch_add(1, Ordering::SeqCst);
        User(self)
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        assert_eq!(*self.users.get_mut(), 0, "borrowed past its end");
        self.ended.fetch_add(1, Ordering::SeqCst);
    }
}

struct User<'a>(&'a Lent);

impl Drop for User<'_> {
    fn drop(&mut self) {
        self.0.users.fetch_sub(1, Ordering::SeqCst);
    }
}

#[test]
fn borrows_are_read_and_written_and_results_come_back() {
    for workers in [1, 2] {
        on_workers(workers, || {
            let words = vec!["a".to_owned(), "bc".to_owned()];
            let mut parts = [0_usize; 2];
            let (mine, theirs) = parts.split_at_mut(1);
            let sum = scope(|scope| {
                scope.spawn(|| mine[0] = words[0].len());
                let other = scope.spawn(|| {
                    yield_now();
                    theirs[0] = words[1].len();
                    &words[1]
                });
                other.join().unwrap().len()
            });
            assert_eq!((sum, parts), (2, [1, 2]));
            drop(words);
        });
    }
}

#[test]
fn unjoined_coroutines_are_waited_for() {
    on_workers(2, || {
        let count = AtomicUsize::new(0);
        scope(|scope| {
            for delay in 0..20 {
                let count = &count;
                drop(scope.spawn(move || {
                    sleep(Duration::from_millis(delay % 4));
                    count.fetch_add(1, Ordering::Relaxed);
                }));
            }
        });
        assert_eq!(count.into_inner(), 20);
    });
}

#[test]
fn scopes_nest_and_their_coroutines_spawn() {
    on_workers(2, || {
        let total = Mutex::new(0);
        scope(|outer| {
            outer.spawn(|| {
                outer.spawn(|| *total.lock() += 1);
                let own = Cell::new(0);
                scope(|inner| {
                    for _ in 0..3 {
                        inner.spawn_local(|| own.set(own.get() + 10));
                    }
                });
                *total.lock() += own.get();
            });
        });
        assert_eq!(total.into_inner(), 31);
    });
}

#[test]
fn local_coroutines_share_values_that_are_not_sync() {
    on_both(|| {
        let order = RefCell::new(Vec::new());
        let last = scope(|scope| {
            for number in 0..3 {
                let order = &order;
                drop(scope.spawn_local(move || {
                    yield_now();
                    order.borrow_mut().push(number);
                }));
            }
            scope.spawn_local(|| std::rc::Rc::new(7)).join().unwrap()
        });
        assert_eq!((order.into_inner(), *last), (vec![0, 1, 2], 7));
    });
}

#[test]
fn unjoined_panic_panics_the_scope() {
    on_both(|| {
        let count = Cell::new(0);
        let ended = catch_unwind(AssertUnwindSafe(|| {
            scope(|scope| {
                drop(scope.spawn(|| assert!(!ringloop_coro::is_coroutine(), "lost")));
                scope.spawn_local(|| {
                    sleep(Duration::from_millis(2));
                    count.set(1);
                });
            });
        }));
        let payload = ended.unwrap_err();
        assert_eq!(panic_message(&*payload), "a coroutine of the scope panicked");
        assert_eq!(count.get(), 1, "the others are waited for");
        let said = scope(|scope| {
            let joined = scope.spawn(|| assert!(!ringloop_coro::is_coroutine(), "told"));
            joined.join().unwrap_err().to_string()
        });
        assert_eq!(said, "the task panicked: told");
    });
}

#[test]
fn panicking_scope_waits_for_its_coroutines() {
    on_workers(2, || {
        let ended = Arc::new(AtomicUsize::new(0));
        let caught = catch_unwind(AssertUnwindSafe(|| {
            let lent = Lent::new(&ended);
            scope(|scope| {
                drop(scope.spawn(|| {
                    let _user = lent.take();
                    sleep(Duration::from_millis(5));
                }));
                while lent.begun.load(Ordering::SeqCst) == 0 {
                    yield_now();
                }
                assert!(!ringloop_coro::is_coroutine(), "its own");
            });
        }));
        assert_eq!(panic_message(&*caught.unwrap_err()), "its own");
        assert_eq!(ended.load(Ordering::SeqCst), 1);
    });
}

/// Opens a scope with coroutines that wait forever, and waits in it or at its end.
fn holds_for_ever(ended: &Arc<AtomicUsize>, begun: WaitGroup, waits_inside: bool) {
    let lent = Lent::new(ended);
    scope(|scope| {
        for _ in 0..4 {
            let (lent, begun) = (&lent, begun.clone());
            drop(scope.spawn(move || {
                let _user = lent.take();
                drop(begun);
                sleep(LONG);
            }));
        }
        drop(begun);
        if waits_inside {
            sleep(LONG);
        }
    });
    unreachable!("it was cancelled in its scope");
}

#[test]
fn cancelled_scope_cancels_and_waits_for_its_coroutines() {
    for (workers, waits_inside) in [(1, true), (1, false), (2, true), (2, false)] {
        let run = move || {
            let ended = Arc::new(AtomicUsize::new(0));
            let begun = WaitGroup::new();
            let waiter = begun.clone();
            let count = Arc::clone(&ended);
            let handle = spawn(move || holds_for_ever(&count, begun, waits_inside));
            waiter.wait();
            handle.cancel();
            assert!(matches!(handle.join(), Err(JoinError::Cancelled)));
            assert_eq!(ended.load(Ordering::SeqCst), 1);
        };
        for driver in ringloop_testing::drivers() {
            let builder = ringloop_coro::Builder::new().driver(driver);
            builder.workers(workers).start(run).unwrap();
        }
    }
}

#[test]
fn unbegun_coroutine_drops_its_borrows() {
    on_both(|| {
        let ended = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&ended);
        let handle = spawn_local(move || {
            let lent = Lent::new(&count);
            let user = lent.take();
            scope(|scope| {
                drop(scope.spawn(move || drop(user)));
                // No coroutine has begun when this is cancelled.
                spawn_local(|| ()).join().unwrap();
            });
        });
        yield_now();
        handle.cancel();
        drop(handle.join());
        assert_eq!(ended.load(Ordering::SeqCst), 1);
    });
}

#[test]
fn scoped_coroutine_is_cancelled_alone() {
    on_both(|| {
        let number = 3;
        scope(|scope| {
            let parked = scope.spawn(|| {
                sleep(LONG);
                &number
            });
            yield_now();
            assert!(!parked.is_finished());
            parked.cancel();
            assert!(matches!(parked.join(), Err(JoinError::Cancelled)));
            let named = Spawn::new().name("borrower");
            let name = named.spawn_scoped(scope, ringloop_coro::name);
            assert_eq!(name.join().unwrap().as_deref(), Some("borrower"));
        });
    });
}

#[test]
fn runtime_end_ends_scopes_on_several_workers() {
    for driver in ringloop_testing::drivers() {
        let ended = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&ended);
        let builder = ringloop_coro::Builder::new().driver(driver);
        let main = move || {
            let begun = WaitGroup::new();
            let waiter = begun.clone();
            for _ in 0..8 {
                let (count, begun) = (Arc::clone(&count), begun.clone());
                drop(spawn(move || holds_for_ever(&count, begun, false)));
            }
            drop(begun);
            waiter.wait();
        };
        builder.workers(3).start(main).unwrap();
        assert_eq!(ended.load(Ordering::SeqCst), 8, "one was left behind");
    }
}

#[test]
fn scope_outside_of_a_coroutine_is_refused() {
    let refused = catch_unwind(|| scope(|_| ())).unwrap_err();
    assert!(panic_message(&*refused).contains("outside of a coroutine"));
}

/// Opens a scope on this worker, one of whose coroutines computes on the other worker beyond every
/// limit.
fn lends_to_another_worker() {
    let is_elsewhere = AtomicUsize::new(0);
    let here = std::thread::current().id();
    scope(|scope| {
        for _ in 0..2 {
            // The coroutine spawned last stays here, and this worker is busy until the other worker
            // has the first.
            drop(scope.spawn(|| {
                if std::thread::current().id() != here {
                    is_elsewhere.store(1, Ordering::SeqCst);
                    std::thread::sleep(Duration::from_secs(60));
                }
            }));
        }
        while is_elsewhere.load(Ordering::SeqCst) == 0 {
            std::thread::yield_now();
        }
    });
}

#[test]
fn borrow_in_use_by_another_worker_aborts_the_process() {
    let part = "borrow_in_use_by_another_worker_aborts_the_process";
    if is_part(part) {
        let main = || {
            drop(spawn_local(lends_to_another_worker));
            yield_now();
        };
        let builder = ringloop_coro::Builder::new().workers(2);
        return builder.start(main).unwrap();
    }
    // The limit is long, and does not depend on the driver.
    let output = run_part(part, Choice::Epoll);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("coroutines of a scope"), "{said}");
    assert!(ringloop_testing::sys::has_aborted(output.status), "{said}");
}
