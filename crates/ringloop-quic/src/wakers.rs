//! Futures among the waiters of a connection or an endpoint.
//!
//! Owns: [`Seat`], the place of a future among those that wait, until it is dropped: of one that is dropped before its
//! event nothing stays, or a long connection would keep every task that ever waited for its end. Never does: wake;
//! wakers are handed out, and woken once nothing is borrowed.

use crate::session::{Waiter, Waiters};
use std::cell::Cell;
use std::hash::Hash;
use std::ops::Deref;
use std::task::{Context, Waker};

/// A task that waits.
#[derive(Debug)]
pub(crate) struct Waiting {
    seat: u64,
    waker: Waker,
}

impl Waiting {
    pub(crate) fn wake(self) {
        self.waker.wake();
    }
}

impl Waiter for Waiting {
    /// A future that waits no more has left.
    fn is_done(&self) -> bool {
        false
    }
}

/// The seat of a future that does not wait yet.
const NO_SEAT: u64 = 0;
/// The seat of the one future that reads, writes or finishes a stream.
pub(crate) const STREAM_SEAT: u64 = 1;

thread_local! {
    static LAST_SEAT: Cell<u64> = const { Cell::new(STREAM_SEAT) };
}

/// Wait in a seat; one future each, by the waker of its last poll. The waker of an earlier poll is handed out to be
/// dropped once nothing is borrowed: its end may run a program's code, which may come back here.
#[must_use = "it is to be dropped once nothing is borrowed"]
pub(crate) fn wait<K: Eq + Hash>(
    waiters: &mut Waiters<K, Waiting>,
    key: K,
    seat: u64,
    cx: &Context<'_>,
) -> Option<Waiting> {
    let waker = cx.waker();
    if let Some(known) = waiters.find(&key, |known| known.seat == seat) {
        if known.waker.will_wake(waker) {
            return None;
        }
        let waker = waker.clone();
        return Some(std::mem::replace(known, Waiting { seat, waker }));
    }
    let waker = waker.clone();
    // None of them is ever done.
    drop(waiters.add(key, Waiting { seat, waker }));
    None
}

/// Has waiters.
pub(crate) trait Waitable {
    /// What is waited for.
    type Key: Copy + Eq + Hash;
    fn with_waiters<T>(&self, look: impl FnOnce(&mut Waiters<Self::Key, Waiting>) -> T) -> T;
}

/// A future's place among those that wait for `key`; left when it is dropped.
pub(crate) struct Seat<P: Deref<Target: Waitable>> {
    on: P,
    key: <P::Target as Waitable>::Key,
    number: u64,
}

impl<P: Deref<Target: Waitable>> Seat<P> {
    pub(crate) fn new(on: P, key: <P::Target as Waitable>::Key) -> Self {
        Self {
            on,
            key,
            number: NO_SEAT,
        }
    }

    pub(crate) fn on(&self) -> &P::Target {
        &self.on
    }

    /// What is waited for, and the number of the seat.
    pub(crate) fn place(&mut self) -> (<P::Target as Waitable>::Key, u64) {
        if self.number == NO_SEAT {
            self.number = LAST_SEAT.get() + 1;
            LAST_SEAT.set(self.number);
        }
        (self.key, self.number)
    }
}

impl<P: Deref<Target: Waitable>> Drop for Seat<P> {
    fn drop(&mut self) {
        let (key, number) = (self.key, self.number);
        if number != NO_SEAT {
            let left = self
                .on
                .with_waiters(|waiters| waiters.remove(&key, |known| known.seat == number));
            drop(left);
        }
    }
}
