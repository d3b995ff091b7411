//! Locks, conditions, barriers: between coroutines, workers and threads; panics and cancellation; on
//! both drivers.
#![allow(clippy::unwrap_used)]

use ringloop_coro::sync::{
    Barrier, Condvar, Mutex, MutexGuard, OnceLock, RwLock, Semaphore, WaitGroup, channel,
};
use ringloop_coro::{JoinError, JoinHandle, sleep, spawn, spawn_local, yield_now};
use ringloop_testing::coro::{LONG, on_both, on_other, on_workers};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

const SHORT: Duration = Duration::from_millis(5);

#[test]
fn plain_threads_use_channels_and_locks_too() {
    on_both(|| {
        let (request, requests) = channel::bounded::<u32>(1);
        let (reply, replies) = channel::unbounded();
        let sum = Arc::new(Mutex::new(0));
        let theirs = Arc::clone(&sum);
        let thread = std::thread::spawn(move || {
            for number in requests {
                *theirs.lock() += number;
                reply.send(number * 2).unwrap();
            }
        });
        for number in 0..100 {
            request.send(number).unwrap();
            assert_eq!(replies.recv().unwrap(), number * 2);
        }
        drop(request);
        ringloop_coro::offload(move || thread.join().unwrap()).unwrap();
        assert_eq!(*sum.lock(), 4950);
    });
}

#[test]
fn blocking_call_in_async_code_panics_with_remedy() {
    let runtime = ringloop::Runtime::new().unwrap();
    let panicked = runtime.block_on(async {
        let (_sender, receiver) = channel::unbounded::<u8>();
        std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| receiver.recv())).unwrap_err()
    });
    let said = panicked.unwrap().downcast::<String>().unwrap();
    assert!(said.contains("recv_async"), "{said}");
}

#[test]
fn mutex_excludes_across_parks_and_workers() {
    on_workers(2, || {
        let value = Arc::new(Mutex::new((0_u64, false)));
        let add = |value: Arc<Mutex<(u64, bool)>>, parks: bool| {
            for round in 0..500 {
                let mut guard = value.lock();
                assert!(!std::mem::replace(&mut guard.1, true));
                if parks && round % 50 == 0 {
                    sleep(Duration::from_micros(50));
                }
                guard.0 += 1;
                guard.1 = false;
            }
        };
        let mut there = Vec::new();
        let mut here = Vec::new();
        for _ in 0..4 {
            let theirs = Arc::clone(&value);
            there.push(on_other(move || add(theirs, true)));
            let ours = Arc::clone(&value);
            here.push(spawn(move || add(ours, true)));
        }
        for handle in there {
            ringloop_coro::block_on(handle).unwrap();
        }
        for handle in here {
            handle.join().unwrap();
        }
        assert_eq!(value.lock().0, 4000);
    });
}

/// Holds a lock across its waits, and relocks it at once.
fn hog(mutex: &Arc<Mutex<u64>>) -> JoinHandle<()> {
    let mutex = Arc::clone(mutex);
    spawn(move || {
        loop {
            let mut guard = mutex.lock();
            sleep(Duration::from_micros(100));
            *guard += 1;
        }
    })
}

#[test]
fn relocking_holder_does_not_starve_waiters() {
    on_both(|| {
        let mutex = Arc::new(Mutex::new(0));
        let (hogging, condition) = (hog(&mutex), Arc::new(Condvar::new()));
        yield_now();
        let theirs = (Arc::clone(&mutex), Arc::clone(&condition));
        let waiting = spawn(move || drop(theirs.1.wait(theirs.0.lock())));
        for _ in 0..5 {
            drop(mutex.lock());
        }
        while !waiting.is_finished() {
            condition.notify_all();
            sleep(Duration::from_micros(100));
        }
        waiting.join().unwrap();
        // It waits, was woken or was handed the lock: the next waiter gets it.
        for round in 0..20 {
            let given_up = hog(&mutex);
            sleep(Duration::from_micros(90 * round));
            given_up.cancel();
            drop(mutex.lock());
        }
        hogging.cancel();
        assert!(*mutex.lock() > 0);
    });
}

#[test]
fn panic_or_cancel_unlocks() {
    on_both(|| {
        let value = Arc::new(Mutex::new(1));
        let shared = Arc::new(RwLock::new(1));
        let (theirs, their_shared) = (Arc::clone(&value), Arc::clone(&shared));
        let panics = spawn(move || {
            let mut guard = theirs.lock();
            let mut written = their_shared.write();
            (*guard, *written) = (2, 2);
            yield_now();
            panic!("with both locks held");
        });
        assert!(matches!(panics.join(), Err(JoinError::Panicked(_))));
        assert_eq!((*value.lock(), *shared.read()), (2, 2));
        let theirs = Arc::clone(&value);
        let cancelled = spawn(move || {
            let _guard = theirs.lock();
            sleep(LONG);
        });
        let theirs = Arc::clone(&value);
        let waiting = spawn(move || *theirs.lock());
        yield_now();
        assert!(value.try_lock().is_none());
        cancelled.cancel();
        assert_eq!(waiting.join().unwrap(), 2);
    });
}

#[test]
fn cancelled_mutex_waiter_wakes_the_next() {
    on_both(|| {
        let value = Arc::new(Mutex::new(()));
        let guard = value.lock();
        let [first, second] = [(); 2].map(|()| {
            let value = Arc::clone(&value);
            spawn(move || drop(value.lock()))
        });
        yield_now();
        drop(guard);
        first.cancel();
        drop(first.join());
        second.join().unwrap();
    });
}

#[test]
fn condvar_wakes_one_or_all_and_relocks() {
    on_both(|| {
        let pair = Arc::new((Mutex::new(0), Condvar::new()));
        let waiting: Vec<_> = (0..3)
            .map(|_| {
                let pair = Arc::clone(&pair);
                spawn(move || {
                    let guard = pair.1.wait_while(pair.0.lock(), |tickets| *tickets == 0);
                    let mut guard = guard;
                    *guard -= 1;
                })
            })
            .collect();
        yield_now();
        *pair.0.lock() = 1;
        pair.1.notify_one();
        sleep(SHORT);
        assert_eq!(waiting.iter().filter(|one| one.is_finished()).count(), 1);
        *pair.0.lock() = 2;
        pair.1.notify_all();
        for handle in waiting {
            handle.join().unwrap();
        }
        let (guard, ended) = pair.1.wait_timeout(pair.0.lock(), SHORT);
        assert!(ended.timed_out());
        assert_eq!(*guard, 0);
    });
}

#[test]
fn cancelled_condvar_wait_passes_its_notification_on() {
    on_both(|| {
        let pair = Arc::new((Mutex::new(()), Condvar::new()));
        let [first, second] = [(); 2].map(|()| {
            let pair = Arc::clone(&pair);
            spawn(move || drop(pair.1.wait(pair.0.lock())))
        });
        yield_now();
        pair.1.notify_one();
        first.cancel();
        if first.join().is_ok() {
            pair.1.notify_one();
        }
        second.join().unwrap();
        assert!(pair.0.try_lock().is_some());
    });
}

#[test]
fn mutex_and_condvar_work_as_statics() {
    static NUMBER: Mutex<u32> = Mutex::new(0);
    static CHANGED: Condvar = Condvar::new();
    on_both(|| {
        drop(spawn(|| {
            *NUMBER.lock() = 1;
            CHANGED.notify_one();
        }));
        let mut number = CHANGED.wait_while(NUMBER.lock(), |number| *number == 0);
        assert_eq!(std::mem::take(&mut *number), 1);
    });
}

/// A way to wait for a number other than zero.
type Waiting = for<'a> fn(&'a Condvar, MutexGuard<'a, u32>) -> MutexGuard<'a, u32>;

#[test]
fn cancelled_relock_passes_its_notification_on() {
    on_both(|| {
        let ways: [Waiting; 3] = [
            |condvar, guard| condvar.wait(guard),
            |condvar, guard| condvar.wait_timeout(guard, LONG).0,
            |condvar, guard| ringloop_coro::block_on(condvar.wait_async(guard)),
        ];
        for wait in ways {
            let pair = Arc::new((Mutex::new(0_u32), Condvar::new()));
            let [first, second] = [(); 2].map(|()| {
                let pair = Arc::clone(&pair);
                spawn_local(move || {
                    let mut number = pair.0.lock();
                    while *number == 0 {
                        number = wait(&pair.1, number);
                    }
                })
            });
            yield_now();
            let mut number = pair.0.lock();
            *number = 1;
            pair.1.notify_one();
            yield_now();
            first.cancel();
            assert!(matches!(first.join(), Err(JoinError::Cancelled)));
            drop(number);
            let told = ringloop::time::timeout(Duration::from_secs(20), second.into_future());
            ringloop_coro::block_on(told).unwrap().unwrap();
        }
    });
}

#[test]
fn readers_share_and_a_writer_is_alone() {
    on_workers(2, || {
        let value = Arc::new(RwLock::new((0_u64, 0_u64)));
        let theirs = Arc::clone(&value);
        let reading = on_other(move || {
            for _ in 0..2000 {
                let seen = theirs.read();
                assert_eq!(seen.0, seen.1);
            }
        });
        for _ in 0..2000 {
            let mut both = value.write();
            both.0 += 1;
            both.1 += 1;
        }
        ringloop_coro::block_on(reading).unwrap();
        let (one, other) = (value.read(), value.try_read().unwrap());
        assert!(value.try_write().is_none());
        assert_eq!((one.0, other.1), (2000, 2000));
    });
}

/// A waiting writer, and a reader that came after it.
type Waiters = (JoinHandle<()>, JoinHandle<u32>);

/// Makes them wait behind a reader.
fn behind_a_reader(value: &Arc<RwLock<u32>>) -> Waiters {
    let (ours, theirs) = (Arc::clone(value), Arc::clone(value));
    let writer = spawn(move || *ours.write() += 1);
    yield_now();
    let later = spawn(move || *theirs.read());
    yield_now();
    assert!(!writer.is_finished() && !later.is_finished());
    (writer, later)
}

#[test]
fn waiting_writer_blocks_later_readers() {
    on_both(|| {
        let value = Arc::new(RwLock::new(0));
        let first = value.read();
        let (writer, later) = behind_a_reader(&value);
        assert!(value.try_read().is_none());
        drop(first);
        assert_eq!(later.join().unwrap(), 1);
        writer.join().unwrap();
    });
}

#[test]
fn cancelled_waiting_writer_admits_readers() {
    on_both(|| {
        let value = Arc::new(RwLock::new(0));
        let first = value.read();
        let (writer, later) = behind_a_reader(&value);
        writer.cancel();
        assert!(matches!(writer.join(), Err(JoinError::Cancelled)));
        assert_eq!(later.join().unwrap(), 0);
        assert_eq!((*value.try_read().unwrap(), *first), (0, 0));
        drop(first);
        *value.try_write().unwrap() += 1;
    });
}

#[test]
fn semaphore_barrier_and_wait_group() {
    on_both(|| {
        let (at_once, most) = (Semaphore::new(3), Arc::new(AtomicUsize::new(0)));
        let (group, leaders) = (WaitGroup::new(), Arc::new(AtomicUsize::new(0)));
        let barrier = Arc::new(Barrier::new(10));
        for _ in 0..10 {
            let (at_once, most) = (at_once.clone(), Arc::clone(&most));
            let (group, leaders) = (group.clone(), Arc::clone(&leaders));
            let barrier = Arc::clone(&barrier);
            drop(spawn(move || {
                let permit = at_once.acquire(1);
                most.fetch_max(3 - at_once.available(), Ordering::Relaxed);
                sleep(Duration::from_micros(100));
                drop(permit);
                if barrier.wait().is_leader() {
                    leaders.fetch_add(1, Ordering::Relaxed);
                }
                drop(group);
            }));
        }
        group.wait();
        assert_eq!(most.load(Ordering::Relaxed), 3);
        assert_eq!(leaders.load(Ordering::Relaxed), 1);
    });
}

#[test]
fn cancelled_barrier_wait_has_not_arrived() {
    on_both(|| {
        let barrier = Arc::new(Barrier::new(2));
        let theirs = Arc::clone(&barrier);
        let gone = spawn(move || theirs.wait());
        yield_now();
        gone.cancel();
        assert!(gone.join().is_err());
        let theirs = Arc::clone(&barrier);
        let other = spawn(move || theirs.wait().is_leader());
        sleep(SHORT);
        assert!(!other.is_finished());
        assert!(barrier.wait().is_leader());
        assert!(!other.join().unwrap());
    });
}

#[test]
fn once_lock_initializes_once_and_retries_after_failure() {
    on_both(|| {
        let value = Arc::new(OnceLock::new());
        let theirs = Arc::clone(&value);
        let fails = spawn(move || {
            theirs.get_or_init(|| -> u32 {
                yield_now();
                panic!("not made");
            });
        });
        let makers: Vec<_> = (0..3)
            .map(|number| {
                let value = Arc::clone(&value);
                spawn(move || {
                    *value.get_or_init(|| {
                        sleep(Duration::from_micros(100));
                        number
                    })
                })
            })
            .collect();
        assert!(fails.join().is_err());
        let made: Vec<u32> = makers.into_iter().map(|one| one.join().unwrap()).collect();
        assert!(made.iter().all(|one| *one == made[0]));
    });
}
