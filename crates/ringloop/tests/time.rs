//! Sleeping, time-outs and intervals: never early, first in first out on ties, nothing lost to a dropped
//! future; on both drivers.
#![allow(clippy::unwrap_used)]

use proptest::prelude::*;
use ringloop::time::{
    Elapsed, MissedTick, interval, interval_at, sleep, sleep_until, timeout, timeout_at, yield_now,
};
use ringloop::{Options, Runtime, spawn};
use ringloop_testing::engine::{alone, in_runtimes};
use ringloop_testing::{PATIENCE, drivers};
use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::pin::pin;
use std::rc::Rc;
use std::task::Poll;
use std::time::{Duration, Instant};

fn run<T>(runtime: &Runtime, future: impl Future<Output = T>) -> T {
    runtime.block_on(future).unwrap()
}

const MS: Duration = Duration::from_millis(1);

#[test]
fn sleepers_of_one_deadline_wake_in_order_of_arrival() {
    in_runtimes(|runtime| {
        run(runtime, async {
            let order = Rc::new(RefCell::new(Vec::new()));
            // So long that all of them sleep before it: a late one does not sleep.
            let deadline = Instant::now() + 300 * MS;
            let sleepers: Vec<_> = (0..200)
                .map(|number| {
                    let order = Rc::clone(&order);
                    spawn(async move {
                        sleep_until(deadline).await;
                        assert!(Instant::now() >= deadline, "early");
                        order.borrow_mut().push(number);
                    })
                })
                .collect();
            for sleeper in sleepers {
                sleeper.await.unwrap();
            }
            let in_order: Vec<_> = (0..200).collect();
            assert_eq!(*order.borrow(), in_order);
        });
    });
}

#[test]
fn deadline_that_has_passed_is_no_wait() {
    in_runtimes(|runtime| {
        run(runtime, async {
            let past = Instant::now().checked_sub(Duration::from_secs(1)).unwrap();
            sleep_until(past).await;
            sleep(Duration::ZERO).await;
            // A future that is ready wins against a deadline that has passed.
            assert_eq!(timeout_at(past, async { 1 }).await, Ok(1));
            assert_eq!(timeout_at(past, std::future::pending::<()>()).await, Err(Elapsed));
            let never = timeout(Duration::MAX, async { 2 }).await;
            assert_eq!(never, Ok(2));
        });
    });
}

#[test]
fn calls_share_one_deadline() {
    in_runtimes(|runtime| {
        run(runtime, async {
            let started = Instant::now();
            let deadline = started + 10 * MS;
            let mut done_count = 0;
            while timeout_at(deadline, sleep(3 * MS)).await.is_ok() {
                done_count += 1;
            }
            // The last one may be due together with the deadline if the machine was late.
            assert!(started.elapsed() >= 10 * MS && done_count <= 4, "{done_count}");
        });
    });
}

#[test]
fn interval_ticks_at_its_times_and_never_before() {
    in_runtimes(|runtime| {
        run(runtime, async {
            let start = Instant::now() + 2 * MS;
            let mut ticks = interval_at(start, 2 * MS);
            for number in 0..10 {
                let due = ticks.tick().await;
                assert_eq!(due, start + number * 2 * MS);
                assert!(Instant::now() >= due, "early");
            }
            let mut now = interval(Duration::from_secs(3600));
            now.tick().await;
            assert!(timeout(MS, now.tick()).await.is_err());
            now.reset();
            assert!(timeout(MS, now.tick()).await.is_err());
        });
    });
}

#[test]
fn missed_ticks_follow_their_policy() {
    in_runtimes(|runtime| {
        run(runtime, async {
            let period = 20 * MS;
            for missed in [MissedTick::Burst, MissedTick::Delay, MissedTick::Skip] {
                let start = Instant::now();
                let mut ticks = interval_at(start, period).on_missed(missed);
                ticks.tick().await;
                if start.elapsed() >= period {
                    // A busy machine: the first one was missed already.
                    continue;
                }
                std::thread::sleep(4 * period);
                let busy_until = Instant::now();
                assert_eq!(ticks.tick().await, start + period, "it was due all along");
                let next = ticks.tick().await;
                match missed {
                    MissedTick::Burst => assert_eq!(next, start + 2 * period),
                    MissedTick::Delay => assert!(next >= busy_until + period),
                    MissedTick::Skip => {
                        assert!(next > busy_until);
                        let on_grid = next.duration_since(start).as_nanos() % period.as_nanos();
                        assert_eq!(on_grid, 0);
                    }
                }
            }
        });
    });
}

#[test]
fn tick_that_was_given_up_is_the_next_calls() {
    in_runtimes(|runtime| {
        run(runtime, async {
            let start = Instant::now();
            let mut ticks = interval_at(start, 3 * MS);
            ticks.tick().await;
            while timeout(MS / 2, ticks.tick()).await.is_err() {}
            assert!(ticks.tick().await >= start + 6 * MS);
        });
    });
}

#[test]
fn dropped_sleeps_leave_no_timer_that_wakes_the_loop() {
    in_runtimes(|runtime| {
        run(runtime, async {
            for _ in 0..1_000 {
                // On a machine that is late it may have slept.
                let _ended_or_not = timeout(Duration::ZERO, sleep(10 * MS)).await;
            }
            yield_now().await;
            let started = Instant::now();
            sleep(20 * MS).await;
            assert!(started.elapsed() >= 20 * MS);
        });
    });
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(16) })]

    /// However tasks sleep, drop and race: wakes come in order of deadline, ties in order of
    /// arrival, none early.
    #[test]
    fn wakes_come_in_order_of_deadline(
        naps in prop::collection::vec((0_u64..12, any::<bool>()), 1..40),
    ) {
        let _alone = alone();
        for driver in drivers() {
            let runtime = Runtime::with_options(Options { driver, ..Options::default() }).unwrap();
            let woken = Rc::new(RefCell::new(Vec::new()));
            // A task that begins after its deadline does not sleep: the machine was late, and the
            // case proves nothing.
            let is_late = Rc::new(Cell::new(false));
            run(&runtime, async {
                let start = Instant::now() + 2 * MS;
                let sleepers: Vec<_> = naps.iter().enumerate().map(|(number, (delay, given_up))| {
                    let (woken, deadline) = (Rc::clone(&woken), start + *delay as u32 * MS / 4);
                    let given_up = *given_up;
                    let is_late = Rc::clone(&is_late);
                    spawn(async move {
                        if Instant::now() >= start {
                            is_late.set(true);
                        }
                        if given_up {
                            // Its timer must not disturb the others.
                            let _late_or_not = timeout(Duration::ZERO, sleep_until(deadline)).await;
                            return;
                        }
                        let mut nap = pin!(sleep_until(deadline));
                        let lay_down = poll_fn(|cx| Poll::Ready(nap.as_mut().poll(cx).is_pending()));
                        if lay_down.await {
                            nap.await;
                        } else {
                            is_late.set(true);
                        }
                        assert!(Instant::now() >= deadline);
                        woken.borrow_mut().push((deadline, number));
                    })
                }).collect();
                for sleeper in sleepers {
                    sleeper.await.unwrap();
                }
            });
            let woken = woken.borrow();
            assert!(is_late.get() || woken.is_sorted(), "{woken:?}");
        }
    }
}

#[test]
fn expired_time_outs_do_not_starve_other_tasks() {
    in_runtimes(|runtime| {
        run(runtime, async {
            let is_done = Rc::new(Cell::new(false));
            let other = spawn({
                let is_done = Rc::clone(&is_done);
                async move {
                    sleep(MS).await;
                    is_done.set(true);
                }
            });
            let begun = Instant::now();
            while !is_done.get() {
                let ended = timeout(Duration::ZERO, std::future::pending::<()>()).await;
                assert_eq!(ended, Err(Elapsed));
                assert!(begun.elapsed() < ringloop_testing::PATIENCE, "nobody else had a turn");
            }
            other.await.unwrap();
        });
    });
}

/// A sleep begun on one loop and awaited on another.
#[test]
fn sleep_that_moves_to_another_loop_fires_there_in_time() {
    in_runtimes(|first| {
        let second = Runtime::new().unwrap();
        let delay = Duration::from_millis(20);
        let began = Instant::now();
        let mut moved = sleep(delay);
        let armed =
            async { poll_fn(|cx| Poll::Ready(pin!(&mut moved).poll(cx).is_pending())).await };
        assert!(run(first, armed));
        let elapsed = run(&second, async {
            let late = timeout(PATIENCE, &mut moved).await;
            late.map(|()| began.elapsed())
        });
        assert!(elapsed.unwrap() >= delay);
        // And an interval, back and forth.
        let mut ticks = interval(Duration::from_millis(2));
        for runtime in [first, &second, first, &second] {
            let ticked = async { timeout(PATIENCE, ticks.tick()).await };
            run(runtime, ticked).unwrap();
            // Begun here and dropped; on a busy machine the next tick may be due already.
            let given_up = async { timeout(Duration::from_micros(1), ticks.tick()).await };
            let _ = run(runtime, given_up);
        }
    });
}
