//! Watched values, broadcasts and cancellation tokens of coroutines, with threads and async code beside
//! them; on both drivers.
#![allow(clippy::unwrap_used)]

use ringloop_coro::sync::{CancellationToken, WaitGroup, broadcast, watch};
use ringloop_coro::{block_on, select, spawn, time};
use ringloop_testing::coro::{LONG, on_workers};
use std::thread;

#[test]
fn watchers_of_every_kind_see_the_last_value() {
    on_workers(2, || {
        let (sender, receiver) = watch::channel(0);
        let wait =
            |mut receiver: watch::Receiver<u32>| move || *receiver.wait_for(|v| *v == 9).unwrap();
        let coroutines = [spawn(wait(receiver.clone())), spawn(wait(sender.subscribe().into()))];
        let on_thread = thread::spawn(wait(receiver.clone()));
        let mut in_async = receiver.clone();
        let in_async = spawn(move || {
            block_on(async {
                while *in_async.get_and_update() != 9 {
                    in_async.changed_async().await.unwrap();
                }
            });
        });
        for value in 1..=9 {
            sender.send(value).unwrap();
            ringloop_coro::sleep(std::time::Duration::from_micros(100));
        }
        for coroutine in coroutines {
            assert_eq!(coroutine.join().unwrap(), 9);
        }
        in_async.join().unwrap();
        assert_eq!(ringloop_coro::offload(move || on_thread.join().unwrap()).unwrap(), 9);
        drop(sender);
        let mut receiver = receiver;
        assert_eq!(receiver.changed(), Ok(()));
        assert_eq!(receiver.changed(), Err(watch::Closed));
        assert!(receiver.has_changed().is_err() && *receiver.get() == 9);
    });
}

#[test]
fn every_coroutine_gets_every_value_and_the_end() {
    on_workers(2, || {
        let (sender, receiver) = broadcast::channel(100);
        let receivers = [receiver, sender.subscribe().into(), sender.subscribe().into()];
        let coroutines = receivers.map(|mut receiver: broadcast::Receiver<u32>| {
            spawn(move || {
                let mut sum = 0;
                while let Ok(value) = receiver.recv() {
                    sum += value;
                }
                assert_eq!(receiver.try_recv(), Err(broadcast::RecvError::Closed));
                sum
            })
        });
        for value in 1..=100 {
            assert_eq!(sender.send(value), Ok(3));
        }
        drop(sender);
        for coroutine in coroutines {
            assert_eq!(coroutine.join().unwrap(), 5050);
        }
    });
}

#[test]
fn cancelled_wait_leaves_the_others_theirs() {
    on_workers(1, || {
        let (sender, mut receiver) = broadcast::channel(2);
        let mut other = broadcast::Receiver::from(sender.subscribe());
        let waiting = spawn(move || other.recv());
        ringloop_coro::yield_now();
        waiting.cancel();
        assert!(waiting.join().is_err());
        let won = select! {
            value = receiver.recv_async() => value.ok(),
            () = time::after(std::time::Duration::from_millis(1)) => None,
        };
        assert_eq!(won, None);
        assert_eq!(sender.send(1), Ok(1), "the cancelled one is gone");
        assert_eq!(receiver.recv(), Ok(1));
    });
}

#[test]
fn token_stops_coroutines_of_every_worker() {
    on_workers(2, || {
        let (token, group) = (CancellationToken::new(), WaitGroup::new());
        for number in 0..20 {
            let (child, member) = (token.child_token(), group.clone());
            drop(spawn(move || {
                if number % 2 == 0 {
                    block_on(child.cancelled());
                } else {
                    select! {
                        () = child.cancelled() => {}
                        () = time::after(LONG) => unreachable!(),
                    }
                }
                drop(member);
            }));
        }
        token.cancel();
        group.wait();
        let guarded = select! {
            () = time::after(LONG), if !token.is_cancelled() => "slept",
            Some(()) = async { None::<()> } => "matched",
            else => "neither",
        };
        assert_eq!(guarded, "neither");
    });
}
