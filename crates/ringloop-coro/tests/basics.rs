//! Spawning, joining, waiting; on both drivers.
#![allow(clippy::unwrap_used)]
// `block_on` returns a coroutine's handle, to join it outside of the runtime.
#![allow(clippy::async_yields_async)]

use ringloop_coro::sync::channel;
use ringloop_coro::{
    JoinError, WaitError, block_on, is_coroutine, sleep, spawn, spawn_local, start, try_block_on,
    yield_now,
};
use ringloop_testing::coro::{LONG, on_both, panic_message, stream_pair};
use ringloop_testing::{PATIENCE, drivers};
use std::cell::{Cell, RefCell};
use std::future::IntoFuture;
use std::io::{Read, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::sync::mpsc;
use std::time::{Duration, Instant};

#[test]
fn start_returns_what_its_closure_returns() {
    assert_eq!(start(1, || 7).unwrap(), 7);
    assert!(start(1, is_coroutine).unwrap());
    assert!(!is_coroutine());
}

#[test]
fn thousands_of_coroutines_return_their_results() {
    on_both(|| {
        let handles: Vec<_> = (0..5000).map(|n| spawn(move || n * 2)).collect();
        for (n, handle) in handles.into_iter().enumerate() {
            assert_eq!(handle.join().unwrap(), n * 2);
        }
    });
}

#[test]
fn coroutines_take_turns_where_they_yield() {
    on_both(|| {
        let order = Rc::new(RefCell::new(Vec::new()));
        let handles: Vec<_> = (0..3)
            .map(|number| {
                let order = Rc::clone(&order);
                spawn_local(move || {
                    for turn in 0..3 {
                        order.borrow_mut().push((turn, number));
                        yield_now();
                    }
                })
            })
            .collect();
        for handle in handles {
            handle.join().unwrap();
        }
        let expected: Vec<_> = (0..3).flat_map(|turn| (0..3).map(move |n| (turn, n))).collect();
        assert_eq!(*order.borrow(), expected);
    });
}

/// Steps until a coroutine that waits for a socket and then for a timer is served, each step of 20
/// microseconds and a call that does not wait.
fn steps_beside_a_waiting_coroutine(mut step: impl FnMut()) -> usize {
    const STEP: Duration = Duration::from_micros(20);
    let (ours, theirs) = stream_pair();
    let served = Rc::new(Cell::new(false));
    let waiting = Rc::clone(&served);
    let waiter = spawn_local(move || {
        (&theirs).read_exact(&mut [0]).unwrap();
        sleep(50 * STEP);
        waiting.set(true);
    });
    yield_now();
    (&ours).write_all(&[7]).unwrap();
    let mut count = 0;
    while !served.get() {
        let start = Instant::now();
        while start.elapsed() < STEP {}
        step();
        count += 1;
    }
    waiter.join().unwrap();
    count
}

#[test]
fn coroutine_that_yields_lets_the_driver_be_polled() {
    on_both(|| {
        // The 50 steps that the timer lasts, and those of a few turns.
        let count = steps_beside_a_waiting_coroutine(yield_now);
        assert!(count < 200, "{count}");
    });
}

#[test]
fn coroutine_that_never_waits_lets_the_driver_be_polled() {
    on_both(|| {
        let (sender, receiver) = channel::bounded(1);
        let count = steps_beside_a_waiting_coroutine(|| {
            sender.send(7).unwrap();
            assert_eq!(receiver.recv(), Ok(7));
        });
        // The 50 steps of the timer, and a few turns of such calls.
        assert!(count < 300, "{count}");
    });
}

#[test]
fn sleeps_pass_side_by_side() {
    const EACH: Duration = Duration::from_millis(200);
    on_both(|| {
        let begin = Instant::now();
        let handles: Vec<_> = (0..100).map(|_| spawn(|| sleep(EACH))).collect();
        for handle in handles {
            handle.join().unwrap();
        }
        let took = begin.elapsed();
        assert!(took >= EACH, "{took:?}");
        // A hundred in sequence would take twice this bound, which allows for a busy machine.
        assert!(took < EACH * 50, "{took:?}");
    });
}

#[test]
fn panic_reaches_only_the_handle() {
    on_both(|| {
        let handle = spawn(|| {
            yield_now();
            assert!(!is_coroutine(), "gone");
        });
        let other = spawn(|| 1);
        let error = handle.join().unwrap_err();
        assert_eq!(error.to_string(), "the task panicked: gone");
        assert_eq!(other.join().unwrap(), 1);
    });
}

#[test]
fn thread_wakes_a_parked_coroutine() {
    on_both(|| {
        let call = ringloop::spawn_blocking(|| {
            std::thread::sleep(Duration::from_millis(5));
            9
        });
        assert_eq!(block_on(call).unwrap(), 9);
    });
}

#[test]
fn handle_is_joined_by_a_plain_thread() {
    on_both(|| {
        let (send, receive) = mpsc::channel();
        let handle = spawn(|| {
            sleep(Duration::from_millis(5));
            3
        });
        let thread = std::thread::spawn(move || send.send(handle.join().unwrap()).unwrap());
        assert_eq!(block_on(ringloop::spawn_blocking(move || receive.recv().unwrap())).unwrap(), 3);
        thread.join().unwrap();
    });
}

#[test]
fn async_code_on_the_plain_runtime_awaits_a_coroutine() {
    for driver in drivers() {
        let runtime = ringloop::Runtime::builder().driver(driver).build().unwrap();
        let sum = runtime.block_on(async {
            let local = Rc::new(4);
            let handle = spawn_local(move || {
                sleep(Duration::from_millis(1));
                *local
            });
            handle.await.unwrap() + 1
        });
        assert_eq!(sum.unwrap(), 5);
    }
}

#[test]
fn wait_outside_of_a_coroutine_is_an_error_that_says_what_to_do() {
    assert_eq!(try_block_on(async {}), Err(WaitError::NoCoroutine));
    let said = std::panic::catch_unwind(|| block_on(async {})).unwrap_err();
    assert!(said.downcast_ref::<String>().unwrap().contains("ringloop_coro::start"));
}

#[test]
fn cancelled_coroutine_unwinds_at_its_park() {
    on_both(|| {
        struct Note(Rc<RefCell<u32>>);
        impl Drop for Note {
            fn drop(&mut self) {
                *self.0.borrow_mut() += 1;
            }
        }
        let dropped = Rc::new(RefCell::new(0));
        let note = Note(Rc::clone(&dropped));
        let handle = spawn_local(move || {
            let _note = note;
            sleep(LONG);
        });
        yield_now();
        assert_eq!(*dropped.borrow(), 0);
        handle.cancel();
        assert!(matches!(handle.join(), Err(JoinError::Cancelled)));
        assert_eq!(*dropped.borrow(), 1);
    });
}

#[test]
fn runtimes_on_one_thread_alternate() {
    for driver in drivers() {
        let runtimes = [(); 2].map(|()| {
            let builder = ringloop::Runtime::builder().driver(driver);
            builder.build().unwrap()
        });
        let begun = Rc::new(Cell::new(0));
        let parked = runtimes.each_ref().map(|runtime| {
            let (told, tell) = ringloop_coro::sync::channel::unbounded::<u32>();
            let begun = Rc::clone(&begun);
            let handle = runtime.block_on(async move {
                let handle = spawn_local(move || {
                    begun.set(begun.get() + 1);
                    // What it spawns runs on its own loop, whichever loop ran last.
                    let number = tell.recv().unwrap();
                    spawn_local(move || {
                        yield_now();
                        sleep(Duration::from_millis(1));
                        number
                    })
                    .join()
                    .unwrap()
                });
                ringloop::time::sleep(Duration::from_millis(1)).await;
                handle
            });
            (told, handle.unwrap())
        });
        assert_eq!(begun.get(), 2);
        for (number, (runtime, (told, handle))) in (0..).zip(runtimes.iter().zip(parked)) {
            told.send(number).unwrap();
            let joined = runtime
                .block_on(async { ringloop::time::timeout(PATIENCE, handle.into_future()).await });
            let joined = joined.unwrap();
            assert_eq!(joined.unwrap().unwrap(), number);
        }
        // Each ends after the other's coroutines ran last.
        let [first, second] = runtimes;
        let cancelled = first.block_on(async {
            let handle = spawn_local(|| spawn_local(|| sleep(LONG)).join().is_err());
            ringloop::time::sleep(Duration::from_millis(1)).await;
            handle
        });
        second.block_on(async { spawn_local(yield_now).await.unwrap() }).unwrap();
        drop(first);
        assert!(cancelled.unwrap().is_finished());
        let sum = second.block_on(async { spawn_local(|| spawn(|| 2).join().unwrap()).await });
        assert_eq!(sum.unwrap().unwrap(), 2);
    }
}

#[test]
fn start_inside_of_a_coroutine_is_refused() {
    on_both(|| {
        let refused = catch_unwind(|| start(1, || ())).unwrap_err();
        let said = refused.downcast_ref::<&str>().copied().unwrap_or_default();
        assert!(said.contains("inside of a coroutine"), "{said}");
        // The outer runtime continues.
        assert_eq!(spawn(|| 3).join().unwrap(), 3);
        sleep(Duration::from_millis(1));
    });
}

#[test]
fn parking_in_a_nested_loop_is_refused() {
    on_both(|| {
        let (sender, receiver) = ringloop_coro::sync::channel::unbounded();
        drop(spawn(move || {
            sleep(Duration::from_millis(10));
            sender.send(1).unwrap();
        }));
        let runtime = || ringloop::Runtime::new().unwrap();
        // As in async code, it would block the worker.
        for park in [
            &(|| assert!(receiver.recv().is_err())) as &dyn Fn(),
            &|| sleep(Duration::ZERO),
            &|| drop(spawn(|| ()).join()),
            &|| ringloop_coro::scope(|_| ()),
        ] {
            let inner = runtime();
            let refused = catch_unwind(AssertUnwindSafe(|| inner.block_on(async { park() })));
            let said = panic_message(&*refused.unwrap_err());
            assert!(
                said.contains("in async code")
                    || said.contains("await the handle")
                    || said.contains("scope"),
                "{said}"
            );
        }
        let entered = runtime().block_on(async {
            assert!(!is_coroutine());
            assert_eq!(try_block_on(async {}), Err(WaitError::NoCoroutine));
            // The loop's own calls work.
            ringloop::time::sleep(Duration::from_millis(1)).await;
            yield_now();
            spawn(is_coroutine)
        });
        assert!(is_coroutine());
        assert!(entered.unwrap().join().unwrap(), "it was started outside");
        assert_eq!(receiver.recv(), Ok(1));
    });
}

#[test]
fn socket_in_a_nested_loop_is_refused_and_works_outside() {
    use std::io::{Read, Write};
    on_both(|| {
        let (mut near, mut far) = stream_pair();
        let runtime = ringloop::Runtime::new().unwrap();
        let refused =
            catch_unwind(AssertUnwindSafe(|| runtime.block_on(async { near.read(&mut [0; 8]) })));
        assert!(panic_message(&*refused.unwrap_err()).contains("outside of a coroutine"));
        drop(runtime);
        let reader = spawn(move || {
            let mut bytes = [0; 8];
            let count = near.read(&mut bytes).unwrap();
            bytes[..count].to_vec()
        });
        yield_now();
        far.write_all(b"bytes").unwrap();
        assert_eq!(reader.join().unwrap(), b"bytes");
    });
}
