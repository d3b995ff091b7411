//! The memory of tasks: wakers and handles dropped in every order, on this and other threads. `make
//! asan` runs these too. The numbers are the invariants of `executor/task/core.rs`.
#![allow(clippy::unwrap_used)]

use ringloop::JoinError;
use ringloop::embed::Local;
use ringloop::{JoinHandle, Options, Runtime, spawn, time};
use std::cell::{Cell, RefCell};
use std::future::{Future, poll_fn};
use std::marker::PhantomPinned;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::thread;

fn on_both(test: impl Fn(Runtime)) {
    for driver in ringloop_testing::drivers() {
        let options = Options { driver, ..Options::default() };
        test(Runtime::with_options(options).unwrap());
    }
}

/// Enough turns for tasks that wait for one.
fn turns(runtime: &Runtime) {
    let some = async {
        for _ in 0..4 {
            time::yield_now().await;
        }
    };
    runtime.block_on(some).unwrap();
}

/// A task that returns its waker and waits for a flag.
fn waker_of_a_task(runtime: &Runtime) -> (Waker, JoinHandle<&'static str>, Rc<Cell<bool>>) {
    let (slot, end) = (Rc::new(RefCell::new(None)), Rc::new(Cell::new(false)));
    let (to, ended) = (Rc::clone(&slot), Rc::clone(&end));
    let handle = runtime.spawn(poll_fn(move |cx| {
        if ended.get() {
            return Poll::Ready("over");
        }
        *to.borrow_mut() = Some(cx.waker().clone());
        Poll::Pending
    }));
    runtime.block_on(time::yield_now()).unwrap();
    (slot.take().unwrap(), handle, end)
}

#[test]
fn invariant_1_waker_outlives_its_task_its_handle_and_its_runtime() {
    on_both(|runtime| {
        let (waker, handle, end) = waker_of_a_task(&runtime);
        end.set(true);
        waker.wake_by_ref();
        assert_eq!(runtime.block_on(handle).unwrap().unwrap(), "over");
        waker.wake_by_ref();
        let copy = waker.clone();
        drop(runtime);
        copy.wake();
        thread::spawn(move || {
            let copy = waker.clone();
            waker.wake();
            copy.wake_by_ref();
        })
        .join()
        .unwrap();
    });
}

#[test]
fn invariant_1_wakers_end_in_every_order_on_two_threads() {
    on_both(|runtime| {
        for round in 0..64 {
            let (waker, handle, end) = waker_of_a_task(&runtime);
            let copies: Vec<_> = (0..4).map(|_| waker.clone()).collect();
            let away = thread::spawn(move || {
                for copy in copies {
                    copy.wake_by_ref();
                    drop(copy.clone());
                }
            });
            if round % 2 == 0 {
                drop(waker);
            }
            end.set(round % 4 < 2);
            if round % 8 < 4 {
                drop(handle);
            }
            runtime.block_on(time::yield_now()).unwrap();
            away.join().unwrap();
        }
    });
}

#[test]
fn invariant_1_handle_outlives_its_runtime() {
    on_both(|runtime| {
        let over = runtime.spawn(async { String::from("kept") });
        let pending = runtime.spawn(std::future::pending::<String>());
        runtime.block_on(time::yield_now()).unwrap();
        drop(runtime);
        assert!(over.is_finished() && pending.is_finished());
        let other = Runtime::new().unwrap();
        assert_eq!(other.block_on(over).unwrap().unwrap(), "kept");
        let ended = other.block_on(pending).unwrap();
        assert!(matches!(ended, Err(JoinError::Cancelled)), "{ended:?}");
    });
}

#[test]
fn invariant_1_task_cancelled_in_the_queue_is_not_run() {
    on_both(|runtime| {
        struct TurnOnDrop;
        impl Drop for TurnOnDrop {
            fn drop(&mut self) {
                // All queued tasks have ended.
                Local::current().run_tasks();
            }
        }
        let polls = Rc::new(Cell::new(0));
        let guard = TurnOnDrop;
        drop(runtime.spawn(async move {
            let _guard = guard;
            std::future::pending::<()>().await;
        }));
        runtime.block_on(time::yield_now()).unwrap();
        for _ in 0..3 {
            let polls = Rc::clone(&polls);
            drop(runtime.spawn(async move { polls.set(polls.get() + 1) }));
        }
        drop(runtime);
        // The first task's drop ran a turn, in which the others were alive or ended, never freed.
        assert!(polls.get() <= 3);
        assert_eq!(Rc::strong_count(&polls), 1);
    });
}

#[test]
fn invariant_2_task_that_holds_its_own_handle_ends_once() {
    on_both(|runtime| {
        let (slot, marker) = (Rc::new(RefCell::new(None)), Rc::new(()));
        let (own, mark) = (Rc::clone(&slot), Rc::clone(&marker));
        let handle = runtime.spawn(async move {
            time::yield_now().await;
            let _own: Option<JoinHandle<Rc<()>>> = own.borrow_mut().take();
            mark
        });
        *slot.borrow_mut() = Some(handle);
        turns(&runtime);
        // The handle was dropped first, so the result was dropped.
        assert_eq!(Rc::strong_count(&marker), 1);
    });
}

#[test]
fn invariant_2_turn_within_a_poll_does_not_poll_the_same_task() {
    on_both(|runtime| {
        let depth = Rc::new(Cell::new(0));
        let inner = Rc::clone(&depth);
        let handle = runtime.spawn(poll_fn(move |cx| {
            inner.set(inner.get() + 1);
            assert_eq!(inner.get(), 1, "polled within its own poll");
            cx.waker().wake_by_ref();
            Local::current().run_tasks();
            inner.set(inner.get() - 1);
            Poll::Ready(())
        }));
        runtime.block_on(handle).unwrap().unwrap();
    });
}

#[test]
fn invariant_2_turn_within_a_drop_does_not_poll_the_future_that_is_dropped() {
    struct TurnOnDrop {
        is_dropped: Rc<Cell<bool>>,
    }
    impl Future for TurnOnDrop {
        type Output = ();
        fn poll(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<()> {
            assert!(!self.is_dropped.get(), "polled while it was dropped");
            Poll::Pending
        }
    }
    impl Drop for TurnOnDrop {
        fn drop(&mut self) {
            assert!(!self.is_dropped.replace(true), "dropped twice");
            Local::current().run_tasks();
        }
    }
    on_both(|runtime| {
        for is_waiting in [false, true] {
            let is_dropped = Rc::new(Cell::new(false));
            let (waker, _handle, _) = waker_of_a_task(&runtime);
            let task = runtime.spawn(TurnOnDrop { is_dropped: Rc::clone(&is_dropped) });
            if is_waiting {
                runtime.block_on(time::yield_now()).unwrap();
            }
            // In the queue when it is aborted, or never polled at all.
            waker.wake();
            task.abort();
            runtime.block_on(time::yield_now()).unwrap();
            assert!(is_dropped.get() && task.is_finished());
        }
        // Both queued when the loop ends: the first one's drop runs a turn over the second, and
        // itself.
        let flags: Vec<_> = (0..2).map(|_| Rc::new(Cell::new(false))).collect();
        for is_dropped in &flags {
            let is_dropped = Rc::clone(is_dropped);
            drop(runtime.spawn(TurnOnDrop { is_dropped }));
        }
        let woken: Rc<RefCell<Option<Waker>>> = Rc::default();
        let to = Rc::clone(&woken);
        let is_dropped = Rc::new(Cell::new(false));
        let guard = TurnOnDrop { is_dropped: Rc::clone(&is_dropped) };
        drop(runtime.spawn(poll_fn(move |cx| {
            let _guard = &guard;
            *to.borrow_mut() = Some(cx.waker().clone());
            Poll::<()>::Pending
        })));
        runtime.block_on(time::yield_now()).unwrap();
        woken.take().unwrap().wake();
        drop(runtime);
        assert!(is_dropped.get() && flags.iter().all(|flag| flag.get()));
    });
}

#[test]
fn waiter_of_any_kind_is_woken_once_and_dropped() {
    struct Counted(std::sync::atomic::AtomicU32);
    impl Wake for Counted {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }
    on_both(|runtime| {
        let counted = Arc::new(Counted(0.into()));
        let foreign = Waker::from(Arc::clone(&counted));
        let (own, _own_task, _) = waker_of_a_task(&runtime);
        for order in [[&foreign, &own, &foreign], [&own, &foreign, &own]] {
            let before = counted.0.load(Ordering::SeqCst);
            let mut waited_for = pin!(runtime.spawn(time::yield_now()));
            let mut given_up = runtime.spawn(time::yield_now());
            for waker in order {
                let mut cx = Context::from_waker(waker);
                assert!(waited_for.as_mut().poll(&mut cx).is_pending());
                assert!(Pin::new(&mut given_up).poll(&mut cx).is_pending());
            }
            drop(given_up);
            turns(&runtime);
            let woken = counted.0.load(Ordering::SeqCst) - before;
            assert_eq!(woken, u32::from(std::ptr::eq(order[2], &raw const foreign)));
        }
        drop(foreign);
        assert_eq!(Arc::strong_count(&counted), 1);
    });
}

#[test]
fn invariant_2_panics_in_a_poll_a_drop_and_a_result_end_one_task_each() {
    struct Loud;
    impl Drop for Loud {
        fn drop(&mut self) {
            assert!(thread::panicking(), "dropped loudly");
        }
    }
    on_both(|runtime| {
        let future = Loud;
        let in_drop = runtime.spawn(async move {
            let _future = future;
            std::future::pending::<()>().await;
        });
        let unread = runtime.spawn(async { Loud });
        drop(unread);
        runtime
            .block_on(async {
                time::yield_now().await;
                in_drop.abort();
                let ended = in_drop.await;
                assert_eq!(ended.unwrap_err().to_string(), "the task panicked: dropped loudly");
                assert_eq!(spawn(async { 1 }).await.unwrap(), 1);
            })
            .unwrap();
    });
}

#[test]
fn invariant_3_results_of_any_size_and_alignment_come_out_whole() {
    #[derive(Debug, PartialEq)]
    #[repr(align(64))]
    struct Wide([u8; 192]);
    on_both(|runtime| {
        runtime
            .block_on(async {
                assert_eq!(spawn(async {}).await.unwrap(), ());
                let wide = spawn(async {
                    time::yield_now().await;
                    Wide([7; 192])
                });
                assert_eq!(wide.await.unwrap(), Wide([7; 192]));
                assert_eq!(spawn(async { "x".repeat(9) }).await.unwrap(), "xxxxxxxxx");
            })
            .unwrap();
    });
}

#[test]
fn invariant_4_future_stays_in_place_until_it_is_dropped() {
    struct Pinned {
        first_at: Option<usize>,
        polls: u32,
        moved: Rc<Cell<bool>>,
        _in_place: PhantomPinned,
    }
    impl Future for Pinned {
        type Output = ();
        fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
            // SAFETY: nothing is moved out of it.
            let this = unsafe { self.get_unchecked_mut() };
            let at = std::ptr::from_ref(this).addr();
            if *this.first_at.get_or_insert(at) != at {
                this.moved.set(true);
            }
            this.polls += 1;
            cx.waker().wake_by_ref();
            if this.polls == 5 { Poll::Ready(()) } else { Poll::Pending }
        }
    }
    impl Drop for Pinned {
        fn drop(&mut self) {
            if self.first_at != Some(std::ptr::from_ref(self).addr()) {
                self.moved.set(true);
            }
        }
    }
    on_both(|runtime| {
        let moved = Rc::new(Cell::new(false));
        let handle = runtime.spawn(Pinned {
            first_at: None,
            polls: 0,
            moved: Rc::clone(&moved),
            _in_place: PhantomPinned,
        });
        for _ in 0..300 {
            drop(runtime.spawn(async {}));
        }
        runtime.block_on(handle).unwrap().unwrap();
        assert!(!moved.get());
    });
}

#[test]
fn invariant_5_last_waker_on_another_thread_frees_the_task_and_its_hub() {
    on_both(|runtime| {
        let (waker, handle, _) = waker_of_a_task(&runtime);
        drop(handle);
        drop(runtime);
        thread::spawn(move || {
            waker.wake_by_ref();
            drop(waker);
        })
        .join()
        .unwrap();
    });
}

#[test]
fn waiter_of_a_handle_is_the_last_to_poll() {
    struct Flag(AtomicBool);
    impl Wake for Flag {
        fn wake(self: Arc<Self>) {
            self.0.store(true, Ordering::SeqCst);
        }
    }
    on_both(|runtime| {
        let (early, late) =
            (Arc::new(Flag(AtomicBool::new(false))), Arc::new(Flag(AtomicBool::new(false))));
        let mut handle = pin!(runtime.spawn(time::yield_now()));
        for flag in [&early, &early, &late] {
            let waker = Waker::from(Arc::clone(flag));
            let polled = handle.as_mut().poll(&mut Context::from_waker(&waker));
            assert!(polled.is_pending());
        }
        turns(&runtime);
        assert!(late.0.load(Ordering::SeqCst) && !early.0.load(Ordering::SeqCst));
    });
}

#[test]
fn hundred_wakes_from_another_thread_poll_once_a_turn() {
    on_both(|runtime| {
        let (waker, handle, end) = waker_of_a_task(&runtime);
        thread::spawn(move || {
            for _ in 0..100 {
                waker.wake_by_ref();
            }
        })
        .join()
        .unwrap();
        end.set(true);
        assert_eq!(runtime.block_on(handle).unwrap().unwrap(), "over");
    });
}
