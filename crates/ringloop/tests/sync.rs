//! Channels, locks and the futures that join and select: on one thread and between threads.
#![allow(clippy::unwrap_used)]

use ringloop::future::{Either, join_all, select};
use ringloop::sync::{self, local};
use ringloop::time::{timeout, yield_now};
use ringloop::{Runtime, join, select, spawn, spawn_on};
use std::cell::{Cell, RefCell};
use std::future::{Future, pending};
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

fn block_on<T>(future: impl Future<Output = T>) -> T {
    Runtime::new().unwrap().block_on(future).unwrap()
}

fn poll_once<F: Future>(future: std::pin::Pin<&mut F>) -> Poll<F::Output> {
    future.poll(&mut Context::from_waker(Waker::noop()))
}

/// A value that counts its drops.
struct Counted(Rc<Cell<u32>>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.set(self.0.get() + 1);
    }
}

/// The same tests for `OneThread` and `AnyThread`.
macro_rules! in_place {
    ($place:ident, $sync:path) => {
        mod $place {
            use super::*;
            use $sync as sync;

            #[test]
            fn values_come_in_order_and_then_the_end() {
                block_on(async {
                    let (sender, mut receiver) = sync::mpsc::channel(2);
                    let task = spawn(async move {
                        for number in 0..100 {
                            sender.send(number).await.unwrap();
                        }
                    });
                    for number in 0..100 {
                        assert_eq!(receiver.recv().await, Some(number));
                    }
                    task.await.unwrap();
                    assert_eq!(receiver.recv().await, None);
                    assert_eq!(receiver.recv().await, None);
                });
            }

            #[test]
            fn added_permits_never_overflow() {
                let semaphore = sync::Semaphore::new(5);
                semaphore.add(usize::MAX);
                assert!(semaphore.available() > 5);
            }

            #[test]
            fn notification_returned_next_to_a_kept_one_is_one() {
                let notify = sync::Notify::new();
                let mut first = Box::pin(notify.notified());
                assert_eq!(poll_once(first.as_mut()), Poll::Pending);
                notify.notify_one();
                notify.notify_one();
                drop(first);
                assert_eq!(poll_once(pin!(notify.notified())), Poll::Ready(()));
                assert_eq!(poll_once(pin!(notify.notified())), Poll::Pending);
            }

            #[test]
            fn full_channel_holds_its_senders_in_order() {
                block_on(async {
                    let (sender, mut receiver) = sync::mpsc::channel(1);
                    sender.try_send(0).unwrap();
                    assert_eq!(sender.try_send(9), Err(sync::mpsc::TrySendError::Full(9)));
                    let tasks: Vec<_> = (1..4)
                        .map(|number| {
                            let sender = sender.clone();
                            spawn(async move { sender.send(number).await })
                        })
                        .collect();
                    yield_now().await;
                    assert_eq!(receiver.len(), 1);
                    for number in 0..4 {
                        assert_eq!(receiver.recv().await, Some(number));
                    }
                    for task in tasks {
                        task.await.unwrap().unwrap();
                    }
                    assert_eq!(receiver.try_recv(), Err(sync::mpsc::TryRecvError::Empty));
                });
            }

            #[test]
            fn send_that_was_given_up_hands_its_place_on() {
                let (sender, mut receiver) = sync::mpsc::channel(1);
                sender.try_send(0).unwrap();
                let mut second = pin!(sender.send(2));
                {
                    let mut first = pin!(sender.send(1));
                    assert!(poll_once(first.as_mut()).is_pending());
                    assert!(poll_once(second.as_mut()).is_pending());
                    // The permit is the first one's now, which is dropped without having used it.
                    assert_eq!(receiver.try_recv(), Ok(0));
                }
                assert!(poll_once(second.as_mut()).is_ready());
                assert_eq!(receiver.try_recv(), Ok(2));
                assert!(receiver.is_empty());
            }

            #[test]
            fn closed_channel_returns_values_and_wakes_waiters() {
                block_on(async {
                    let (sender, mut receiver) = sync::mpsc::channel(1);
                    sender.try_send(1).unwrap();
                    let waiting = {
                        let sender = sender.clone();
                        spawn(async move { sender.send(2).await })
                    };
                    yield_now().await;
                    receiver.close();
                    assert_eq!(waiting.await.unwrap(), Err(sync::mpsc::SendError(2)));
                    assert!(sender.is_closed());
                    assert_eq!(receiver.recv().await, Some(1));
                    assert_eq!(receiver.recv().await, None);
                    assert_eq!(sender.try_send(3), Err(sync::mpsc::TrySendError::Closed(3)));
                });
            }

            #[test]
            fn dropped_receiver_drops_untaken_values() {
                let drops = Rc::new(Cell::new(0));
                let (sender, receiver) = sync::mpsc::unbounded();
                for _ in 0..3 {
                    sender.try_send(Counted(Rc::clone(&drops))).unwrap();
                }
                drop(receiver);
                assert_eq!(drops.get(), 3);
                assert!(sender.try_send(Counted(Rc::clone(&drops))).is_err());
                assert_eq!(drops.get(), 4);
            }

            #[test]
            fn value_that_is_a_sender_of_its_own_channel_is_dropped_in_peace() {
                struct Own(
                    #[expect(dead_code, reason = "held to be dropped")]
                    Option<sync::mpsc::Sender<Own>>,
                );
                let (sender, receiver) = sync::mpsc::unbounded();
                let own = sender.clone();
                assert!(sender.try_send(Own(Some(own))).is_ok());
                drop(sender);
                drop(receiver);
            }

            #[test]
            fn receive_that_times_out_loses_nothing() {
                block_on(async {
                    let (sender, mut receiver) = sync::mpsc::channel(1);
                    let late = timeout(Duration::from_millis(1), receiver.recv()).await;
                    assert!(late.is_err());
                    sender.send(5).await.unwrap();
                    assert_eq!(receiver.recv().await, Some(5));
                });
            }

            #[test]
            fn one_value_is_received_or_comes_back() {
                block_on(async {
                    let (sender, receiver) = sync::oneshot::channel();
                    let task = spawn(receiver);
                    yield_now().await;
                    sender.send(1).unwrap();
                    assert_eq!(task.await.unwrap(), Ok(1));

                    let (sender, receiver) = sync::oneshot::channel();
                    drop(receiver);
                    assert!(sender.is_closed());
                    assert_eq!(sender.send(2), Err(2));

                    let (sender, mut receiver) = sync::oneshot::channel::<u8>();
                    assert!(receiver.try_recv().is_none());
                    let task = spawn(receiver);
                    yield_now().await;
                    drop(sender);
                    assert_eq!(task.await.unwrap(), Err(sync::oneshot::Dropped));
                });
            }

            #[test]
            fn mutex_lets_one_in_at_a_time_in_the_order_of_asking() {
                block_on(async {
                    let lock = Rc::new(sync::Mutex::new(Vec::new()));
                    let held = lock.lock().await;
                    assert!(lock.try_lock().is_none());
                    let tasks: Vec<_> = (0..4)
                        .map(|number| {
                            let lock = Rc::clone(&lock);
                            spawn(async move {
                                let mut list = lock.lock().await;
                                let len = list.len();
                                yield_now().await;
                                assert_eq!(list.len(), len, "somebody else was in");
                                list.push(number);
                            })
                        })
                        .collect();
                    yield_now().await;
                    drop(held);
                    // Others wait: a new locker does not pass them.
                    assert!(lock.try_lock().is_none());
                    for task in tasks {
                        task.await.unwrap();
                    }
                    assert_eq!(*lock.lock().await, [0, 1, 2, 3]);
                });
            }

            #[test]
            fn lock_of_a_task_that_panicked_is_free_again() {
                block_on(async {
                    let lock = Rc::new(sync::Mutex::new(1));
                    let holder = Rc::clone(&lock);
                    let ended = spawn(async move {
                        let _held = holder.lock().await;
                        panic!("with the lock held");
                    });
                    assert!(ended.await.is_err());
                    assert_eq!(*lock.lock().await, 1);
                });
            }

            #[test]
            fn semaphore_serves_a_large_request_before_later_small_ones() {
                let semaphore = sync::Semaphore::new(2);
                let held = semaphore.try_acquire(1).unwrap();
                let mut large = pin!(semaphore.acquire(2));
                let mut small = pin!(semaphore.acquire(1));
                assert!(poll_once(large.as_mut()).is_pending());
                assert!(poll_once(small.as_mut()).is_pending());
                assert!(semaphore.try_acquire(1).is_none());
                drop(held);
                let Poll::Ready(permits) = poll_once(large.as_mut()) else {
                    panic!("both permits are free");
                };
                assert!(poll_once(small.as_mut()).is_pending());
                drop(permits);
                assert!(poll_once(small.as_mut()).is_ready());
                assert_eq!(semaphore.available(), 2);
            }

            #[test]
            fn permits_granted_to_a_dropped_future_go_to_the_next() {
                let semaphore = sync::Semaphore::new(0);
                let mut second = pin!(semaphore.acquire(1));
                {
                    let mut first = pin!(semaphore.acquire(1));
                    assert!(poll_once(first.as_mut()).is_pending());
                    assert!(poll_once(second.as_mut()).is_pending());
                    semaphore.add(1);
                }
                let Poll::Ready(permit) = poll_once(second.as_mut()) else {
                    panic!("the permit was lost");
                };
                permit.forget();
                assert_eq!(semaphore.available(), 0);
            }

            #[test]
            fn notify_one_is_kept_and_notify_all_wakes_only_waiters() {
                let notify = sync::Notify::new();
                notify.notify_one();
                notify.notify_one();
                assert!(poll_once(pin!(notify.notified())).is_ready());
                assert!(poll_once(pin!(notify.notified())).is_pending());
                let (mut first, mut second) = (pin!(notify.notified()), pin!(notify.notified()));
                assert!(poll_once(first.as_mut()).is_pending());
                assert!(poll_once(second.as_mut()).is_pending());
                notify.notify_all();
                assert!(poll_once(first.as_mut()).is_ready());
                assert!(poll_once(second.as_mut()).is_ready());
                assert!(poll_once(pin!(notify.notified())).is_pending());
            }

            #[test]
            fn dropped_waiter_keeps_no_notification_of_all_and_hands_on_one_of_its_own() {
                let notify = sync::Notify::new();
                {
                    let mut waiter = pin!(notify.notified());
                    assert!(poll_once(waiter.as_mut()).is_pending());
                    notify.notify_all();
                }
                assert!(poll_once(pin!(notify.notified())).is_pending());
                {
                    let mut waiter = pin!(notify.notified());
                    assert!(poll_once(waiter.as_mut()).is_pending());
                    notify.notify_one();
                }
                assert!(poll_once(pin!(notify.notified())).is_ready());
            }
        }
    };
}

in_place!(between_threads, super::sync);
in_place!(on_one_thread, super::local);

#[test]
fn values_go_round_between_workers_and_none_is_lost() {
    let runtime = Runtime::builder().workers(3).build().unwrap();
    runtime
        .block_on(async {
            let (to_first, mut first) = sync::mpsc::channel::<u64>(4);
            let (to_second, mut second) = sync::mpsc::channel::<u64>(4);
            let adder = spawn_on(1, move || async move {
                while let Some(number) = first.recv().await {
                    to_second.send(number + 1).await.unwrap();
                }
            })
            .unwrap();
            let sender = spawn_on(2, move || async move {
                for number in 0..10_000 {
                    to_first.send(number).await.unwrap();
                }
            })
            .unwrap();
            for number in 0..10_000 {
                assert_eq!(second.recv().await, Some(number + 1));
            }
            assert_eq!(second.recv().await, None);
            adder.await.unwrap();
            sender.await.unwrap();
        })
        .unwrap();
}

/// Runs `busy` in a task while the loop's other tasks run.
fn busy_beside_others(busy: impl Future<Output = ()> + 'static) {
    block_on(async {
        let task = spawn(busy);
        for _ in 0..20 {
            yield_now().await;
        }
        assert!(!task.is_finished(), "the others were kept waiting");
        task.abort();
    });
}

const MANY: u32 = 100_000;

#[test]
fn receiver_of_a_channel_that_is_never_empty_lets_others_run() {
    let (sender, mut receiver) = sync::mpsc::channel(MANY as usize);
    for number in 0..MANY {
        sender.try_send(number).unwrap();
    }
    busy_beside_others(async move {
        for number in 0..MANY {
            assert_eq!(receiver.recv().await, Some(number));
        }
    });
}

#[test]
fn sender_of_a_channel_that_is_never_full_lets_others_run() {
    let (sender, receiver) = sync::mpsc::channel(MANY as usize);
    busy_beside_others(async move {
        for number in 0..MANY {
            sender.send(number).await.unwrap();
        }
        drop(receiver);
    });
}

#[test]
fn executor_inside_of_a_task_goes_on_past_the_tasks_share() {
    let (sender, mut receiver) = sync::mpsc::channel(1000);
    block_on(async {
        let mut inner = pin!(async {
            for number in 0..1000 {
                sender.send(number).await.unwrap();
                assert_eq!(receiver.recv().await, Some(number));
            }
        });
        while poll_once(inner.as_mut()).is_pending() {}
    });
}

#[test]
fn taker_of_permits_and_notifications_that_are_always_there_lets_others_run() {
    busy_beside_others(async {
        let semaphore = sync::Semaphore::new(1);
        for _ in 0..MANY {
            drop(semaphore.acquire(1).await);
        }
    });
    busy_beside_others(async {
        let notify = sync::Notify::new();
        for _ in 0..MANY {
            notify.notify_one();
            notify.notified().await;
        }
    });
}

#[test]
fn lock_and_permits_hold_between_workers() {
    let runtime = Runtime::builder().workers(3).build().unwrap();
    let lock = Arc::new(sync::Mutex::new(0_u64));
    let (permits, inside) = (sync::Semaphore::new(2), Arc::new(AtomicUsize::new(0)));
    let (shared, counter) = (Arc::clone(&lock), Arc::clone(&inside));
    let work = move |_| async move {
        for _ in 0..500 {
            let permit = permits.acquire(1).await;
            assert!(counter.fetch_add(1, Ordering::SeqCst) < 2);
            *shared.lock().await += 1;
            counter.fetch_sub(1, Ordering::SeqCst);
            drop(permit);
        }
    };
    let handles = runtime.workers().spawn_on_all(work).unwrap();
    runtime
        .block_on(async {
            for handle in handles {
                handle.await.unwrap();
            }
            assert_eq!(*lock.lock().await, 1500);
        })
        .unwrap();
}

#[test]
fn notification_crosses_threads_and_is_not_lost() {
    let runtime = Runtime::builder().workers(2).build().unwrap();
    let (ask, replied) = (sync::Notify::new(), sync::Notify::new());
    let (asked, answer) = (ask.clone(), replied.clone());
    let echo = move || async move {
        for _ in 0..1000 {
            asked.notified().await;
            answer.notify_one();
        }
    };
    runtime
        .block_on(async {
            let echo = spawn_on(1, echo).unwrap();
            for _ in 0..1000 {
                ask.notify_one();
                replied.notified().await;
            }
            echo.await.unwrap();
        })
        .unwrap();
}

#[test]
fn join_polls_all_and_drops_none_early() {
    block_on(async {
        let order = RefCell::new(Vec::new());
        let wait = |turns, name| {
            let order = &order;
            async move {
                for _ in 0..turns {
                    yield_now().await;
                }
                order.borrow_mut().push(name);
                name
            }
        };
        let joined = join!(wait(9, "a"), wait(1, "b"), wait(5, "c"), async { "d" });
        assert_eq!(joined, ("a", "b", "c", "d"));
        assert_eq!(*order.borrow(), ["b", "c", "a"]);
        assert_eq!(join!(async { 1 }), (1,));
        assert_eq!(join!(async { 1 }, async { 2 }), (1, 2));
        let all = join_all((0..5).map(|number| async move {
            for _ in number..5 {
                yield_now().await;
            }
            number
        }));
        assert_eq!(all.await, [0, 1, 2, 3, 4]);
        assert!(join_all(Vec::<std::future::Ready<()>>::new()).await.is_empty());
    });
}

#[test]
fn select_takes_the_first_that_is_ready_and_drops_the_others_before_it_goes_on() {
    block_on(async {
        let drops = Rc::new(Cell::new(0));
        let counted = Counted(Rc::clone(&drops));
        let loser = async move {
            let _counted = counted;
            pending::<()>().await;
        };
        let won = select! {
            () = loser => "never",
            text = async { "both are ready" } => {
                assert_eq!(drops.get(), 1, "the loser was still there");
                text
            }
            _ = async { 3 } => "later in the list",
        };
        assert_eq!(won, "both are ready");
        assert_eq!(select(pending::<u8>(), async { 1 }).await, Either::Right(1));
    });
}

#[test]
fn select_goes_on_with_a_borrowed_future_and_leaves_the_loop() {
    async fn first_failure() -> Result<u32, &'static str> {
        let mut slow = pin!(async {
            for _ in 0..5 {
                yield_now().await;
            }
            Err("slow")
        });
        let mut ticks = 0;
        loop {
            select! {
                result = slow.as_mut() => {
                    assert_eq!(ticks, 5);
                    result?;
                    break Ok(ticks)
                }
                () = async {} => ticks += 1,
            }
        }
    }
    assert_eq!(block_on(first_failure()), Err("slow"));
}
