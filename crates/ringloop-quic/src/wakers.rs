//! Futures among the waiters of a connection or an endpoint.
//!
//! Owns: [`WaitSlot`], a future's registration as a waiter until it is dropped; a future dropped
//! early leaves nothing behind, or a long connection would keep every task that ever waited for its
//! end. Wakers are returned, to be woken once nothing is borrowed.

use crate::session::{Waiter, Waiters};
use std::cell::Cell;
use std::hash::Hash;
use std::ops::Deref;
use std::task::{Context, Waker};

/// A waiting task.
#[derive(Debug)]
pub(crate) struct Waiting {
    slot: u64,
    waker: Waker,
}

impl Waiting {
    pub(crate) fn wake(self) {
        self.waker.wake();
    }
}

impl Waiter for Waiting {
    /// Always false: a future that no longer waits has removed its waiter.
    fn is_done(&self) -> bool {
        false
    }
}

/// Slot of a future that is not registered yet.
const UNREGISTERED: u64 = 0;
/// Slot of the one future that reads, writes or finishes a stream.
pub(crate) const STREAM_SLOT: u64 = 1;

thread_local! {
    static LAST_SLOT: Cell<u64> = const { Cell::new(STREAM_SLOT) };
}

/// Registers a waker in its future's slot. Returns the waker of an earlier poll, to be dropped once
/// nothing is borrowed: its drop may run application code, which may call back.
#[must_use = "it is to be dropped once nothing is borrowed"]
pub(crate) fn wait<K: Eq + Hash>(
    waiters: &mut Waiters<K, Waiting>,
    key: K,
    slot: u64,
    cx: &Context<'_>,
) -> Option<Waiting> {
    let waker = cx.waker();
    if let Some(known) = waiters.find(&key, |known| known.slot == slot) {
        if known.waker.will_wake(waker) {
            return None;
        }
        let waker = waker.clone();
        return Some(std::mem::replace(known, Waiting { slot, waker }));
    }
    let waker = waker.clone();
    // These are never done.
    drop(waiters.add(key, Waiting { slot, waker }));
    None
}

/// Has waiters.
pub(crate) trait Waitable {
    /// What a waiter waits for.
    type Key: Copy + Eq + Hash;
    fn with_waiters<T>(&self, look: impl FnOnce(&mut Waiters<Self::Key, Waiting>) -> T) -> T;
}

/// A future's registration as a waiter for `key`; removed on drop.
pub(crate) struct WaitSlot<P: Deref<Target: Waitable>> {
    on: P,
    key: <P::Target as Waitable>::Key,
    number: u64,
}

impl<P: Deref<Target: Waitable>> WaitSlot<P> {
    pub(crate) fn new(on: P, key: <P::Target as Waitable>::Key) -> Self {
        Self {
            on,
            key,
            number: UNREGISTERED,
        }
    }

    pub(crate) fn on(&self) -> &P::Target {
        &self.on
    }

    /// The key, and the slot of the future.
    pub(crate) fn key_and_slot(&mut self) -> (<P::Target as Waitable>::Key, u64) {
        if self.number == UNREGISTERED {
            self.number = LAST_SLOT.get() + 1;
            LAST_SLOT.set(self.number);
        }
        (self.key, self.number)
    }
}

impl<P: Deref<Target: Waitable>> Drop for WaitSlot<P> {
    fn drop(&mut self) {
        let (key, number) = (self.key, self.number);
        if number != UNREGISTERED {
            let left = self
                .on
                .with_waiters(|waiters| waiters.remove(&key, |known| known.slot == number));
            drop(left);
        }
    }
}
