//! Model checks: no wake of a state behind a lock is lost, and the lock's value is never shared with a
//! writer.

use super::place::AnyThread;
use super::{barrier, cancel, fan_out, latest, rwlock};
use loom::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use loom::thread;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};

struct Flag(AtomicBool);

impl Wake for Flag {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Release);
    }
}

/// Polls again only when it is woken: a lost wake is a model that never ends.
fn block_on<F: Future>(future: F) -> F::Output {
    let woken = Arc::new(Flag(AtomicBool::new(false)));
    let waker = Waker::from(Arc::clone(&woken));
    let mut future = pin!(future);
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return output;
        }
        while !woken.0.load(Ordering::Acquire) {
            thread::yield_now();
        }
        // A wake that comes just before this is followed by a poll all the same.
        woken.0.store(false, Ordering::Relaxed);
    }
}

/// Polls once and drops the future: in the line, or granted.
fn poll_and_drop<F: Future>(future: F) {
    let waker = Waker::from(Arc::new(Flag(AtomicBool::new(false))));
    drop(pin!(future).poll(&mut Context::from_waker(&waker)));
}

fn check(model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(model);
}

#[test]
fn loom_writer_is_alone_and_waiters_are_woken() {
    check(|| {
        let lock = Arc::new(rwlock::RwLock::<_, AnyThread>::new(AtomicU32::new(0)));
        let writers: Vec<_> = (0..2)
            .map(|_| {
                let lock = Arc::clone(&lock);
                thread::spawn(move || {
                    let value = block_on(lock.write());
                    let before = value.load(Ordering::Relaxed);
                    value.store(before + 1, Ordering::Relaxed);
                })
            })
            .collect();
        poll_and_drop(lock.write());
        poll_and_drop(lock.read());
        for writer in writers {
            assert!(writer.join().is_ok());
        }
        assert_eq!(block_on(lock.read()).load(Ordering::Relaxed), 2, "two writers at once");
    });
}

#[test]
fn loom_barrier_has_one_leader_and_wakes_the_others() {
    check(|| {
        let barrier = barrier::Barrier::<AnyThread>::new(2);
        let other = barrier.clone();
        let other = thread::spawn(move || u32::from(block_on(other.wait()).is_leader()));
        poll_and_drop(barrier::Barrier::<AnyThread>::new(2).wait());
        let leads = u32::from(block_on(barrier.wait()).is_leader());
        assert_eq!(leads + other.join().expect("no panic"), 1);
    });
}

#[test]
fn loom_watched_change_and_end_are_seen() {
    check(|| {
        let (sender, mut receiver) = latest::channel::<_, AnyThread>(0);
        let sending = thread::spawn(move || {
            assert!(sender.send(1).is_ok());
            assert!(sender.send(2).is_ok());
        });
        poll_and_drop(receiver.changed());
        let last = block_on(async {
            while *receiver.get_and_update() != 2 {
                receiver.changed().await.expect("2 comes");
            }
            receiver.changed().await
        });
        assert!(last.is_err());
        assert!(sending.join().is_ok());
    });
}

#[test]
fn loom_broadcast_value_and_end_are_received() {
    check(|| {
        let (sender, mut receiver) = fan_out::channel::<_, AnyThread>(2);
        let sending = thread::spawn(move || assert!(sender.send(7).is_ok()));
        assert_eq!(block_on(receiver.recv()), Ok(7));
        assert_eq!(block_on(receiver.recv()), Err(fan_out::RecvError::Closed));
        assert!(sending.join().is_ok());
    });
}

#[test]
fn loom_cancellation_reaches_a_child_that_begins_to_wait() {
    check(|| {
        let token = cancel::CancellationToken::<AnyThread>::new();
        let child = token.child_token();
        let waiting = thread::spawn(move || {
            poll_and_drop(child.cancelled());
            block_on(child.cancelled());
        });
        token.cancel();
        drop(token);
        assert!(waiting.join().is_ok());
    });
}
