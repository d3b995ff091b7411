//! Signals as a sequence: each once, to every listener, never lost to a dropped future; on both
//! drivers.
#![allow(clippy::unwrap_used)]

use ringloop::signal::{Signal, Signals, ctrl_c};
use ringloop::{Runtime, spawn, time};
use ringloop_testing::PATIENCE;
use ringloop_testing::engine;
use ringloop_testing::engine::in_runtimes;
use std::future::poll_fn;
use std::task::Poll;
use std::time::{Duration, Instant};

fn run<T>(runtime: &Runtime, future: impl Future<Output = T>) -> T {
    runtime.block_on(future).unwrap()
}

/// Sends this thread a signal: it has been handled when this returns.
fn raise(signal: Signal) {
    // SAFETY: no pointer is passed.
    let sent = unsafe { libc::raise(signal.as_raw()) };
    assert_eq!(sent, 0);
}

/// Creates the listeners' descriptors, which are never closed.
fn warm_up() {
    let _alone = engine::alone();
    let listeners: Vec<_> = (0..4).map(|_| Signals::new(&[Signal::USER_1]).unwrap()).collect();
    drop(listeners);
}

async fn assert_silent(signals: &mut Signals) {
    let heard = time::timeout(Duration::from_millis(5), signals.next()).await;
    assert!(heard.is_err(), "{heard:?}");
}

#[test]
fn signals_come_once_each_to_every_listener() {
    warm_up();
    in_runtimes(|runtime| {
        run(runtime, async {
            let mut both = Signals::new(&[Signal::USER_1, Signal::USER_2]).unwrap();
            let mut one = Signals::new(&[Signal::USER_1]).unwrap();
            for _ in 0..5 {
                raise(Signal::USER_1);
                assert_eq!(both.next().await.unwrap(), Signal::USER_1);
                assert_eq!(one.next().await.unwrap(), Signal::USER_1);
                raise(Signal::USER_2);
                assert_eq!(both.next().await.unwrap(), Signal::USER_2);
                assert_silent(&mut one).await;
            }
            // Of signals that arrive together, the lowest first; the same one counts once.
            for signal in [Signal::USER_2, Signal::USER_1, Signal::USER_2] {
                raise(signal);
            }
            time::sleep(Duration::from_millis(2)).await;
            assert_eq!(both.next().await.unwrap(), Signal::USER_1);
            assert_eq!(both.next().await.unwrap(), Signal::USER_2);
            assert_silent(&mut both).await;
        });
    });
}

#[test]
fn signal_that_came_for_a_dropped_future_is_the_next_ones() {
    warm_up();
    in_runtimes(|runtime| {
        run(runtime, async {
            let mut signals = Signals::new(&[Signal::USER_1]).unwrap();
            for _ in 0..20 {
                {
                    let mut next = Box::pin(signals.next());
                    let first = poll_fn(|cx| Poll::Ready(next.as_mut().poll(cx))).await;
                    assert!(first.is_pending());
                    raise(Signal::USER_1);
                    time::sleep(Duration::from_micros(100)).await;
                }
                assert_eq!(signals.next().await.unwrap(), Signal::USER_1);
            }
        });
    });
}

#[test]
fn ctrl_c_ends_the_wait_and_not_the_process() {
    warm_up();
    in_runtimes(|runtime| {
        run(runtime, async {
            let waiting = spawn(ctrl_c());
            time::sleep(Duration::from_millis(2)).await;
            raise(Signal::INTERRUPT);
            waiting.await.unwrap().unwrap();
        });
    });
}

#[test]
fn signals_during_a_wait_in_the_kernel_disturb_nothing() {
    warm_up();
    in_runtimes(|runtime| {
        run(runtime, async {
            let mut signals = Signals::new(&[Signal::USER_1]).unwrap();
            let storm = std::thread::spawn(|| {
                for _ in 0..500 {
                    raise(Signal::USER_1);
                    std::thread::sleep(Duration::from_micros(20));
                }
            });
            // A sleep that a signal interrupts is not shorter.
            for _ in 0..10 {
                let started = Instant::now();
                time::sleep(Duration::from_millis(1)).await;
                assert!(started.elapsed() >= Duration::from_millis(1));
            }
            let started = Instant::now();
            while !storm.is_finished() {
                assert!(started.elapsed() < PATIENCE);
                drop(time::timeout(Duration::from_millis(1), signals.next()).await);
            }
            storm.join().unwrap();
        });
    });
}

#[test]
fn two_runtimes_receive_the_same_signal() {
    warm_up();
    in_runtimes(|runtime| {
        let (ready, is_ready) = std::sync::mpsc::channel();
        let other = std::thread::spawn(move || {
            let runtime = Runtime::new().unwrap();
            run(&runtime, async {
                let mut signals = Signals::new(&[Signal::USER_2]).unwrap();
                ready.send(()).unwrap();
                signals.next().await.unwrap()
            })
        });
        run(runtime, async {
            let mut signals = Signals::new(&[Signal::USER_2]).unwrap();
            is_ready.recv().unwrap();
            raise(Signal::USER_2);
            assert_eq!(signals.next().await.unwrap(), Signal::USER_2);
        });
        assert_eq!(other.join().unwrap(), Signal::USER_2);
    });
}

#[test]
fn what_cannot_be_listened_to_is_refused() {
    let _alone = engine::alone();
    for number in [0, 65, libc::SIGKILL, libc::SIGSTOP, libc::SIGSEGV] {
        let refused = Signals::new(&[Signal::from_raw(number)]).unwrap_err();
        assert_eq!(refused.raw_os_error(), Some(libc::EINVAL));
    }
    assert_eq!(format!("{:?} {:?}", Signal::HANGUP, Signal::from_raw(40)), "SIGHUP Signal(40)");
}
