//! Channels: between coroutines, workers and threads; cancellation, and yields of calls that never
//! wait; on both drivers.
#![allow(clippy::unwrap_used)]

use ringloop_coro::event::{EventSource, Interest};
use ringloop_coro::sync::{channel, oneshot};
use ringloop_coro::{JoinError, sleep, spawn, spawn_local, yield_now};
use ringloop_testing::coro::{LONG, on_both, on_other, on_workers};
use ringloop_testing::engine::tcp_pair;
use std::cell::Cell;
use std::io::{Read, Write};
use std::rc::Rc;
use std::thread;
use std::time::{Duration, Instant};

const SHORT: Duration = Duration::from_millis(5);

#[test]
fn bounded_channel_makes_its_senders_wait() {
    on_both(|| {
        let (sender, receiver) = channel::bounded(2);
        let sent = Rc::new(Cell::new(0));
        let count = Rc::clone(&sent);
        let sending = spawn_local(move || {
            for number in 0..10 {
                sender.send(number).unwrap();
                count.set(number + 1);
            }
        });
        while sent.get() < 2 {
            yield_now();
        }
        for _ in 0..3 {
            yield_now();
        }
        assert_eq!(sent.get(), 2);
        let all: Vec<i32> = receiver.into_iter().collect();
        assert_eq!(all, (0..10).collect::<Vec<_>>());
        sending.join().unwrap();
    });
}

#[test]
fn each_value_goes_to_one_of_many_receivers() {
    on_workers(2, || {
        let (sender, receiver) = channel::bounded(8);
        let mut receiving = Vec::new();
        for _ in 0..4 {
            let receiver = receiver.clone();
            receiving.push(on_other(move || receiver.into_iter().sum::<u64>()));
        }
        let here: Vec<_> = (0..4)
            .map(|_| {
                let receiver = receiver.clone();
                spawn(move || receiver.into_iter().sum::<u64>())
            })
            .collect();
        drop(receiver);
        let senders: Vec<_> = (0..4)
            .map(|_| {
                let sender = sender.clone();
                std::thread::spawn(move || (1..=1000).for_each(|n| sender.send(n).unwrap()))
            })
            .collect();
        drop(sender);
        let mut sum = 0;
        for handle in here {
            sum += handle.join().unwrap();
        }
        for handle in receiving {
            sum += ringloop_coro::block_on(handle).unwrap();
        }
        for thread in senders {
            thread.join().unwrap();
        }
        assert_eq!(sum, 4 * 500_500);
    });
}

#[test]
fn dropped_end_closes_the_channel() {
    on_both(|| {
        let (sender, receiver) = channel::bounded(1);
        let waiting = spawn(move || receiver.recv());
        yield_now();
        drop::<channel::Sender<u8>>(sender);
        assert_eq!(waiting.join().unwrap(), Err(channel::RecvError));
        let (sender, receiver) = channel::bounded(1);
        sender.send(1).unwrap();
        let waiting = spawn(move || sender.send(2));
        yield_now();
        drop(receiver);
        assert_eq!(waiting.join().unwrap(), Err(channel::SendError(2)));
    });
}

#[test]
fn cancelled_receiver_leaves_the_value_to_the_next() {
    on_both(|| {
        let (sender, receiver) = channel::unbounded();
        let theirs = receiver.clone();
        let first = spawn(move || theirs.recv());
        let second = spawn(move || receiver.recv());
        yield_now();
        // The first is woken for the value, and unwinds instead of taking it.
        sender.send(7).unwrap();
        first.cancel();
        assert!(matches!(first.join(), Err(JoinError::Cancelled) | Ok(Ok(7))));
        sender.send(8).unwrap();
        assert!(matches!(second.join().unwrap(), Ok(7 | 8)));
    });
}

#[test]
fn oneshot_brings_a_value_or_reports_a_dropped_sender() {
    on_both(|| {
        let (sender, receiver) = oneshot::channel();
        std::thread::spawn(move || sender.send("value").unwrap());
        assert_eq!(receiver.recv().ok(), Some("value"));
        let (sender, receiver) = oneshot::channel::<u8>();
        drop(sender);
        assert!(receiver.recv().is_err());
    });
}

#[test]
fn receive_and_send_loop_does_not_starve_senders() {
    on_both(|| {
        let (sender, receiver) = channel::bounded(1);
        sender.send(0).unwrap();
        let (own, theirs) = (sender.clone(), receiver.clone());
        let turning = spawn(move || {
            while let Ok(value) = theirs.recv() {
                if own.send(value).is_err() {
                    break;
                }
            }
        });
        sender.send(1).unwrap();
        turning.cancel();
    });
}

/// Checks that a coroutine that repeats a call that never waits yields to others, and sees its
/// cancel.
fn leaves_room(mut call: impl FnMut() + 'static) {
    let busy = spawn_local(move || {
        let start = Instant::now();
        while start.elapsed() < Duration::from_secs(20) {
            call();
        }
    });
    sleep(Duration::from_millis(1));
    assert!(!busy.is_finished(), "the sleeper came last");
    busy.cancel();
    assert!(matches!(busy.join(), Err(JoinError::Cancelled)));
}

#[test]
fn receiver_that_never_waits_yields() {
    on_both(|| {
        let (sender, receiver) = channel::bounded(16);
        let sending = thread::spawn(move || while sender.send(()).is_ok() {});
        leaves_room(move || {
            receiver.recv().unwrap();
            while receiver.is_empty() {
                std::hint::spin_loop();
            }
        });
        sending.join().unwrap();
        let (sender, receiver) = channel::bounded(1);
        sender.send(7).unwrap();
        leaves_room(move || {
            let value = receiver.recv_timeout(LONG);
            sender.try_send(value.unwrap().unwrap()).unwrap();
        });
    });
}

#[test]
fn sender_that_never_waits_yields() {
    on_both(|| {
        let (sender, receiver) = channel::bounded(1);
        leaves_room(move || {
            sender.send(7).unwrap();
            assert_eq!(receiver.try_recv(), Ok(7));
        });
    });
}

#[test]
fn event_source_that_never_waits_yields() {
    on_both(|| {
        let (ours, theirs) = tcp_pair();
        let source = EventSource::new(ours).unwrap();
        leaves_room(move || {
            let count = source.when(Interest::READ, |mut ours| {
                (&theirs).write_all(b"!")?;
                ours.read(&mut [0])
            });
            assert_eq!(count.unwrap(), 1);
        });
    });
}

#[test]
fn receive_within_a_limit() {
    on_both(|| {
        let (sender, receiver) = channel::unbounded();
        let start = Instant::now();
        assert_eq!(receiver.recv_timeout(SHORT), Ok(None));
        assert!(start.elapsed() >= SHORT);
        let sending = thread::spawn(move || sender.send(3).unwrap());
        let long = LONG;
        assert_eq!(receiver.recv_timeout(long), Ok(Some(3)));
        assert_eq!(receiver.recv_timeout(long), Err(channel::RecvError));
        sending.join().unwrap();
    });
}
