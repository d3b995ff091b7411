//! `RwLock`, `Barrier`, `broadcast`, `watch` and cancellation tokens, on one thread and between threads.
#![allow(clippy::unwrap_used)]

use ringloop::sync::{self, local};
use ringloop::time::{timeout, yield_now};
use ringloop::{Runtime, spawn, spawn_on};
use ringloop_testing::PATIENCE;
use std::cell::RefCell;
use std::future::pending;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Waker};

fn block_on<T>(future: impl Future<Output = T>) -> T {
    Runtime::new().unwrap().block_on(async { timeout(PATIENCE, future).await.unwrap() }).unwrap()
}

fn poll_once<F: Future>(future: Pin<&mut F>) -> Poll<F::Output> {
    future.poll(&mut Context::from_waker(Waker::noop()))
}

fn is_ready<F: Future>(future: F) -> bool {
    poll_once(pin!(future)).is_ready()
}

async fn turns(count: u32) {
    for _ in 0..count {
        yield_now().await;
    }
}

/// The same tests for `OneThread` and `AnyThread`.
macro_rules! in_place {
    ($place:ident, $sync:path) => {
        mod $place {
            use super::*;
            use $sync as sync;

            #[test]
            fn readers_share_and_a_writer_is_alone() {
                let lock = sync::RwLock::new(1);
                {
                    let (one, two) = (lock.try_read().unwrap(), lock.try_read().unwrap());
                    assert_eq!(*one + *two, 2);
                    assert!(lock.try_write().is_none());
                }
                {
                    let mut writer = lock.try_write().unwrap();
                    assert!(lock.try_read().is_none() && lock.try_write().is_none());
                    *writer = 2;
                }
                assert_eq!(lock.into_inner(), 2);
            }

            #[test]
            fn waiting_writer_blocks_later_readers_and_comes_first() {
                block_on(async {
                    let lock = Rc::new(sync::RwLock::new(Vec::new()));
                    let reader = lock.read().await;
                    let order = Rc::new(RefCell::new(Vec::new()));
                    let enter = |name: &'static str, writes: bool| {
                        let (lock, order) = (Rc::clone(&lock), Rc::clone(&order));
                        spawn(async move {
                            if writes {
                                lock.write().await.push(name);
                            } else {
                                drop(lock.read().await);
                            }
                            order.borrow_mut().push(name);
                        })
                    };
                    let tasks = [
                        enter("writer", true),
                        enter("reader 1", false),
                        enter("reader 2", false),
                        enter("last writer", true),
                    ];
                    turns(3).await;
                    assert!(order.borrow().is_empty());
                    assert!(lock.try_read().is_none(), "it overtook the waiting writer");
                    drop(reader);
                    for task in tasks {
                        task.await.unwrap();
                    }
                    assert_eq!(*order.borrow(), ["writer", "reader 1", "reader 2", "last writer"]);
                    assert_eq!(*lock.read().await, ["writer", "last writer"]);
                });
            }

            #[test]
            fn dropped_wait_for_a_lock_hands_its_turn_on() {
                let lock = sync::RwLock::new(());
                let writer = lock.try_write().unwrap();
                let mut reader = pin!(lock.read());
                {
                    let mut second = pin!(lock.write());
                    assert!(poll_once(second.as_mut()).is_pending());
                    assert!(poll_once(reader.as_mut()).is_pending());
                    // Granted to the second writer, which is dropped without having used it.
                    drop(writer);
                }
                assert!(poll_once(reader.as_mut()).is_ready());
                assert!(lock.try_write().is_some());
            }

            #[test]
            fn barrier_opens_for_the_last_and_closes_again() {
                block_on(async {
                    let barrier = sync::Barrier::new(3);
                    for _ in 0..2 {
                        let wait = || {
                            let barrier = barrier.clone();
                            spawn(async move { barrier.wait().await.is_leader() })
                        };
                        let tasks = [wait(), wait()];
                        turns(3).await;
                        assert!(!tasks.iter().any(ringloop::JoinHandle::is_finished));
                        assert!(barrier.wait().await.is_leader());
                        for task in tasks {
                            assert!(!task.await.unwrap());
                        }
                    }
                });
                assert!(is_ready(sync::Barrier::new(0).wait()));
            }

            #[test]
            fn dropped_wait_at_a_barrier_has_not_arrived() {
                let barrier = sync::Barrier::new(2);
                assert!(!is_ready(barrier.wait()));
                let mut first = pin!(barrier.wait());
                assert!(poll_once(first.as_mut()).is_pending());
                assert!(is_ready(barrier.wait()));
                // Dropped after it opened: the next round starts at none.
                let mut late = Box::pin(barrier.wait());
                assert!(poll_once(late.as_mut()).is_pending());
                assert!(is_ready(barrier.wait()));
                drop(late);
                assert!(!is_ready(barrier.wait()));
                assert!(poll_once(first.as_mut()).is_ready());
            }

            #[test]
            fn every_receiver_gets_every_value() {
                block_on(async {
                    let (sender, receiver) = sync::broadcast::channel(4);
                    let receive = |mut receiver: sync::broadcast::Receiver<u32>| {
                        spawn(async move {
                            let mut values = Vec::new();
                            loop {
                                match receiver.recv().await {
                                    Ok(value) => values.push(value),
                                    Err(error) => {
                                        assert_eq!(error, sync::broadcast::RecvError::Closed);
                                        return values;
                                    }
                                }
                            }
                        })
                    };
                    let tasks = [receive(sender.subscribe()), receive(receiver)];
                    assert_eq!(sender.receiver_count(), 2);
                    for value in 0..100 {
                        assert_eq!(sender.send(value), Ok(2));
                        turns(3).await;
                    }
                    drop(sender);
                    for task in tasks {
                        assert_eq!(task.await.unwrap(), (0..100).collect::<Vec<_>>());
                    }
                });
            }

            #[test]
            fn slow_receiver_learns_how_much_it_missed_and_blocks_no_sender() {
                let (sender, mut fast) = sync::broadcast::channel(2);
                let mut slow = sender.subscribe();
                for value in 0..5 {
                    sender.send(value).unwrap();
                    assert_eq!(fast.try_recv(), Ok(value));
                }
                assert_eq!(slow.len(), 5);
                assert_eq!(slow.try_recv(), Err(sync::broadcast::RecvError::Lagged(3)));
                assert_eq!((slow.try_recv(), slow.try_recv()), (Ok(3), Ok(4)));
                assert_eq!(slow.try_recv(), Err(sync::broadcast::RecvError::Empty));
                let mut late = sender.subscribe();
                drop(sender.clone());
                drop(sender);
                assert_eq!(late.try_recv(), Err(sync::broadcast::RecvError::Closed));
            }

            #[test]
            fn received_and_unwanted_values_are_dropped() {
                let value = Rc::new(());
                let left = || Rc::strong_count(&value) - 1;
                let (sender, mut one) = local::broadcast::channel(8);
                let other = sender.subscribe();
                for _ in 0..3 {
                    sender.send(Rc::clone(&value)).unwrap();
                }
                drop(one.try_recv().unwrap());
                assert_eq!(left(), 3);
                drop(other);
                assert_eq!(left(), 2, "nothing waits for the first any more");
                drop(one);
                assert_eq!(left(), 0);
                assert!(sender.send(Rc::clone(&value)).is_err());
                assert_eq!(left(), 0);
            }

            #[test]
            fn value_may_use_its_own_channel_when_it_is_cloned_or_dropped() {
                struct Nosy(RefCell<Option<local::broadcast::Sender<Rc<Nosy>>>>);
                impl Drop for Nosy {
                    fn drop(&mut self) {
                        let sender = self.0.take().unwrap();
                        assert!(sender.receiver_count() < 9);
                    }
                }
                let (sender, mut receiver) = local::broadcast::channel(1);
                for _ in 0..3 {
                    let nosy = Nosy(RefCell::new(Some(sender.clone())));
                    sender.send(Rc::new(nosy)).unwrap();
                }
                drop(receiver.try_recv());
                drop(receiver.try_recv());
            }

            #[test]
            fn dropped_receive_has_taken_nothing() {
                let (sender, mut receiver) = sync::broadcast::channel(2);
                assert!(!is_ready(receiver.recv()));
                sender.send(1).unwrap();
                assert_eq!(poll_once(pin!(receiver.recv())), Poll::Ready(Ok(1)));
                let (sender, mut receiver) = sync::watch::channel(0);
                assert!(!is_ready(receiver.changed()));
                sender.send(1).unwrap();
                assert!(is_ready(receiver.changed()));
                assert!(!is_ready(receiver.changed()));
            }

            #[test]
            fn watcher_sees_the_newest_value_once() {
                let (sender, mut receiver) = sync::watch::channel(0);
                assert_eq!((*receiver.get(), receiver.has_changed()), (0, Ok(false)));
                sender.send(1).unwrap();
                sender.send(2).unwrap();
                let mut other = receiver.clone();
                assert_eq!((*receiver.get(), receiver.has_changed()), (2, Ok(true)));
                assert!(is_ready(receiver.changed()));
                assert!(!is_ready(receiver.changed()));
                assert_eq!(*other.get_and_update(), 2);
                assert_eq!(other.has_changed(), Ok(false));
                assert_eq!(*sender.send_replace(3), 2);
                assert_eq!(*sender.get(), 3);
                drop(sender);
                // The last value is reported before the end.
                assert_eq!(poll_once(pin!(other.changed())), Poll::Ready(Ok(())));
                assert_eq!(poll_once(pin!(other.changed())), Poll::Ready(Err(sync::watch::Closed)));
                assert_eq!(*other.get(), 3);
            }

            #[test]
            fn watchers_and_senders_are_woken_by_the_ends_of_the_others() {
                block_on(async {
                    let (sender, mut receiver) = sync::watch::channel(0);
                    let waiting =
                        spawn(async move { receiver.wait_for(|value| *value == 9).await });
                    let ended = {
                        let sender = sender.clone();
                        spawn(async move { sender.closed().await })
                    };
                    for value in 1..=9 {
                        turns(2).await;
                        assert!(!waiting.is_finished() && !ended.is_finished());
                        sender.send(value).unwrap();
                    }
                    assert_eq!(*waiting.await.unwrap().unwrap(), 9);
                    ended.await.unwrap();
                    assert!(sender.is_closed() && sender.send(10).is_err());
                    let mut late = sender.subscribe();
                    let waiting = spawn(async move { late.changed().await });
                    turns(2).await;
                    drop(sender);
                    assert_eq!(waiting.await.unwrap(), Err(sync::watch::Closed));
                });
            }

            #[test]
            fn cancellation_goes_down_and_not_up() {
                let root = sync::CancellationToken::new();
                let (left, right) = (root.child_token(), root.child_token());
                let leaf = left.child_token();
                let tokens = || [&root, &left, &right, &leaf].map(|token| token.is_cancelled());
                left.cancel();
                assert_eq!(tokens(), [false, true, false, true]);
                assert!(left.child_token().is_cancelled());
                root.cancel();
                root.cancel();
                assert_eq!(tokens(), [true; 4]);
            }

            #[test]
            fn cancellation_passes_through_tokens_without_handles() {
                let root = sync::CancellationToken::new();
                let leaf = root.child_token().child_token();
                let other = root.child_token();
                drop(root.child_token());
                drop(other);
                let mut cancelled = pin!(leaf.cancelled());
                assert!(poll_once(cancelled.as_mut()).is_pending());
                root.cancel();
                assert!(poll_once(cancelled.as_mut()).is_ready() && leaf.is_cancelled());
            }

            #[test]
            fn orphaned_child_is_cancelled_by_itself_only() {
                let root = sync::CancellationToken::new();
                let child = root.child_token();
                drop(root);
                assert!(!child.is_cancelled());
                child.cancel();
                assert!(child.is_cancelled());
            }

            #[test]
            fn everything_that_waits_for_a_token_is_woken_and_a_dropped_wait_is_not_missed() {
                block_on(async {
                    let token = sync::CancellationToken::new();
                    let wait = |token: &sync::CancellationToken| spawn(token.cancelled());
                    let tasks = [wait(&token), wait(&token.child_token()), wait(&token)];
                    turns(2).await;
                    tasks[0].abort();
                    turns(2).await;
                    token.clone().cancel();
                    let [first, second, third] = tasks;
                    assert!(first.await.is_err());
                    second.await.unwrap();
                    third.await.unwrap();
                    assert_eq!(token.run_until_cancelled(async { 1 }).await, None);
                    let token = sync::CancellationToken::new();
                    assert_eq!(token.run_until_cancelled(async { 1 }).await, Some(1));
                });
            }

            #[test]
            fn guard_cancels_unless_it_is_disarmed() {
                let token = sync::CancellationToken::new();
                drop(token.clone().drop_guard().disarm());
                assert!(!token.is_cancelled());
                drop(token.clone().drop_guard());
                assert!(token.is_cancelled());
            }

            #[test]
            fn waker_that_drops_a_token_or_a_receiver_does_not_deadlock() {
                block_on(async {
                    let token = sync::CancellationToken::new();
                    let child = token.child_token();
                    let select = spawn(async move {
                        ringloop::select! {
                            () = child.cancelled() => {}
                            () = pending() => {}
                        }
                    });
                    turns(1).await;
                    token.cancel();
                    drop(token);
                    select.await.unwrap();
                });
            }
        }
    };
}

in_place!(between_threads, super::sync);
in_place!(on_one_thread, super::local);

#[test]
fn readers_and_writers_of_several_workers_see_whole_values() {
    let runtime = Runtime::builder().workers(3).build().unwrap();
    let lock = Arc::new(sync::RwLock::new((0_u64, 0_u64)));
    let inside = Arc::new(AtomicUsize::new(0));
    let (shared, writers) = (Arc::clone(&lock), Arc::clone(&inside));
    let work = move |worker: usize| async move {
        for round in 0..400 {
            if (round + worker).is_multiple_of(4) {
                let mut value = shared.write().await;
                assert_eq!(writers.fetch_add(1, Ordering::SeqCst), 0);
                value.0 += 1;
                value.1 += 1;
                writers.fetch_sub(1, Ordering::SeqCst);
            } else {
                let value = shared.read().await;
                assert_eq!(writers.load(Ordering::SeqCst), 0);
                assert_eq!(value.0, value.1);
            }
        }
    };
    let handles = runtime.workers().spawn_on_all(work).unwrap();
    runtime
        .block_on(async {
            for handle in handles {
                handle.await.unwrap();
            }
            assert_eq!(*lock.read().await, (300, 300));
        })
        .unwrap();
}

#[test]
fn values_are_broadcast_between_workers() {
    let runtime = Runtime::builder().workers(3).build().unwrap();
    let (sender, _kept) = sync::broadcast::channel(1000);
    let (ready, done) = (sync::Barrier::new(3), sync::Barrier::new(3));
    let receive = |worker| {
        let (mut receiver, ready, done) = (sender.subscribe(), ready.clone(), done.clone());
        runtime.workers().spawn_on(worker, move || async move {
            ready.wait().await;
            for value in 0..1000 {
                assert_eq!(receiver.recv().await, Ok(value));
            }
            done.wait().await;
        })
    };
    let handles = [1, 2].map(|worker| receive(worker).unwrap());
    runtime
        .block_on(async {
            ready.wait().await;
            for value in 0..1000 {
                assert_eq!(sender.send(value), Ok(3));
            }
            done.wait().await;
            for handle in handles {
                handle.await.unwrap();
            }
        })
        .unwrap();
}

#[test]
fn watched_value_and_cancellation_cross_threads() {
    let runtime = Runtime::builder().workers(2).build().unwrap();
    let (sender, mut receiver) = sync::watch::channel(0_u32);
    let stop = sync::CancellationToken::new();
    let child = stop.child_token();
    runtime
        .block_on(async {
            let counter = spawn_on(1, move || async move {
                let mut value = 0;
                let counting = async {
                    loop {
                        value += 1;
                        sender.send(value).unwrap();
                        yield_now().await;
                    }
                };
                assert!(child.run_until_cancelled(counting).await.is_none());
                value
            })
            .unwrap();
            let mut last = 0;
            while last < 100 {
                receiver.changed().await.unwrap();
                let value = *receiver.get();
                assert!(value >= last);
                last = value;
            }
            stop.cancel();
            let value = counter.await.unwrap();
            let last = receiver.changed().await.map_or(value, |()| *receiver.get());
            assert_eq!(last, value);
        })
        .unwrap();
}

/// Runs `busy` in a task while the loop's other tasks run.
fn busy_beside_others(busy: impl Future<Output = ()> + 'static) {
    block_on(async {
        let task = spawn(busy);
        turns(20).await;
        assert!(!task.is_finished(), "the others were kept waiting");
        task.abort();
    });
}

#[test]
fn what_is_always_there_does_not_starve_other_tasks() {
    busy_beside_others(async {
        let lock = sync::RwLock::new(());
        for _ in 0..100_000 {
            drop(lock.read().await);
        }
    });
    busy_beside_others(async {
        let (sender, mut receiver) = sync::broadcast::channel(1);
        for _ in 0..100_000 {
            sender.send(()).unwrap();
            receiver.recv().await.unwrap();
        }
    });
    busy_beside_others(async {
        let (sender, mut receiver) = sync::watch::channel(());
        for _ in 0..100_000 {
            sender.send(()).unwrap();
            receiver.changed().await.unwrap();
        }
    });
}
