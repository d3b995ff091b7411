//! Futures among the waiters of a connection or an endpoint.
//!
//! Owns: [`WaitSlot`], a future's registration as a waiter until it is dropped; a future dropped
//! early leaves nothing behind, or a long connection would keep every task that ever waited for its
//! end. Wakers are returned, to be woken once nothing is borrowed.

use crate::session::{Waiter, Waiters};
use std::cell::Cell;
use std::future::poll_fn;
use std::hash::Hash;
use std::ops::Deref;
use std::task::{Context, Poll, Waker};

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

/// Has waiters.
pub(crate) trait Waitable: Sized {
    /// What a waiter waits for.
    type Key: Copy + Eq + Hash;

    fn with_waiters<T>(&self, look: impl FnOnce(&mut Waiters<Self::Key, Waiting>) -> T) -> T;

    /// Waits until `look` returns a result; it is called again for each event of `key`.
    async fn wait_until<T>(&self, key: Self::Key, mut look: impl FnMut(&Self) -> Option<T>) -> T {
        let mut slot = WaitSlot::new(self, key);
        poll_fn(|cx| slot.poll(cx, &mut look)).await
    }

    /// Registers the task in its future's slot.
    fn register(&self, cx: &Context<'_>, key: Self::Key, slot: u64) {
        let waker = cx.waker();
        let old = self.with_waiters(|waiters| {
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
        });
        // While nothing is borrowed: the drop of a waker may run application code, which may call
        // back.
        drop(old);
    }
}

/// A future's registration as a waiter for `key`; removed on drop.
pub(crate) struct WaitSlot<P: Deref<Target: Waitable>> {
    on: P,
    key: <P::Target as Waitable>::Key,
    number: u64,
}

impl<P: Deref<Target: Waitable>> WaitSlot<P> {
    pub(crate) fn new(on: P, key: <P::Target as Waitable>::Key) -> Self {
        Self { on, key, number: UNREGISTERED }
    }

    /// Polls until `look` returns a result.
    pub(crate) fn poll<T>(
        &mut self,
        cx: &Context<'_>,
        look: impl FnOnce(&P::Target) -> Option<T>,
    ) -> Poll<T> {
        if let Some(result) = look(&self.on) {
            return Poll::Ready(result);
        }
        if self.number == UNREGISTERED {
            self.number = LAST_SLOT.get() + 1;
            LAST_SLOT.set(self.number);
        }
        self.on.register(cx, self.key, self.number);
        Poll::Pending
    }
}

impl<P: Deref<Target: Waitable>> Drop for WaitSlot<P> {
    fn drop(&mut self) {
        let (key, number) = (self.key, self.number);
        if number != UNREGISTERED {
            let left =
                self.on.with_waiters(|waiters| waiters.remove(&key, |known| known.slot == number));
            drop(left);
        }
    }
}
