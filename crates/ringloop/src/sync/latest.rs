//! A value that changes, and tasks that wait for its changes.
//!
//! Owns: the newest value, its version, the line of receivers that wait for the next. The value is
//! shared, not locked, so a reader that keeps it blocks no sender.

use super::channel::SendError;
use super::place::Place;
use super::semaphore::Woken;
use super::wait::Wait;
use super::waiters::Waiters;
use std::fmt;
use std::future::poll_fn;

struct WatchState<T, P: Place> {
    value: P::Shared<T>,
    version: u64,
    senders: usize,
    receivers: usize,
    /// Receivers that have seen the newest value.
    waiters: Waiters,
    /// Senders that wait for the last receiver's end.
    ends: Waiters,
}

/// Both ends of a watched value.
pub(super) fn channel<T, P: Place>(value: T) -> (Sender<T, P>, Receiver<T, P>) {
    let state = P::share(P::cell(WatchState {
        value: P::share(value),
        version: 0,
        senders: 1,
        receivers: 1,
        waiters: Waiters::default(),
        ends: Waiters::default(),
    }));
    (Sender { state: state.clone() }, Receiver { state, seen: 0 })
}

/// Changes the value; see [`crate::sync::watch`] and [`crate::sync::local::watch`].
pub struct Sender<T, P: Place> {
    state: P::Shared<P::Cell<WatchState<T, P>>>,
}

/// Reads the value and waits for changes; a clone has seen what its original has.
pub struct Receiver<T, P: Place> {
    state: P::Shared<P::Cell<WatchState<T, P>>>,
    /// The newest version that was seen.
    seen: u64,
}

/// All senders are dropped, and the newest value was seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Closed;

impl<T, P: Place> Sender<T, P> {
    /// Replaces the value, and wakes the receivers.
    ///
    /// # Errors
    /// [`SendError`] with the value if all receivers are dropped.
    pub fn send(&self, value: T) -> Result<(), SendError<T>> {
        if self.is_closed() {
            return Err(SendError(value));
        }
        drop(self.send_replace(value));
        Ok(())
    }

    /// Replaces the value, also without receivers; returns the former one.
    pub fn send_replace(&self, value: T) -> P::Shared<T> {
        let value = P::share(value);
        let (former, woken) = P::with(&self.state, |state| {
            state.version += 1;
            let former = std::mem::replace(&mut state.value, value);
            (former, Woken::all(&mut state.waiters, 1))
        });
        woken.wake();
        former
    }

    /// The newest value.
    pub fn get(&self) -> P::Shared<T> {
        P::with(&self.state, |state| state.value.clone())
    }

    /// A new receiver, which has seen the newest value.
    pub fn subscribe(&self) -> Receiver<T, P> {
        let seen = P::with(&self.state, |state| {
            state.receivers += 1;
            state.version
        });
        Receiver { state: self.state.clone(), seen }
    }

    /// Whether all receivers are dropped.
    pub fn is_closed(&self) -> bool {
        P::with(&self.state, |state| state.receivers == 0)
    }

    /// Waits until all receivers are dropped.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn closed(&self) {
        let mut wait = Wait::<_, P>::new(&self.state, |state| &mut state.ends);
        poll_fn(|cx| wait.poll(cx, |state| (state.receivers == 0).then_some(()))).await;
    }
}

impl<T, P: Place> Clone for Sender<T, P> {
    fn clone(&self) -> Self {
        P::with(&self.state, |state| state.senders += 1);
        Self { state: self.state.clone() }
    }
}

impl<T, P: Place> Drop for Sender<T, P> {
    fn drop(&mut self) {
        let woken = P::with(&self.state, |state| {
            state.senders -= 1;
            (state.senders == 0).then(|| Woken::all(&mut state.waiters, 1))
        });
        woken.unwrap_or_default().wake();
    }
}

impl<T, P: Place> Receiver<T, P> {
    /// The newest value, which stays unseen if it was.
    pub fn get(&self) -> P::Shared<T> {
        P::with(&self.state, |state| state.value.clone())
    }

    /// The newest value, which is seen from now on.
    pub fn get_and_update(&mut self) -> P::Shared<T> {
        let (value, seen) = P::with(&self.state, |state| (state.value.clone(), state.version));
        self.seen = seen;
        value
    }

    /// Whether there is a value that this receiver has not seen.
    ///
    /// # Errors
    /// [`Closed`] if there is none and all senders are dropped.
    pub fn has_changed(&self) -> Result<bool, Closed> {
        P::with(&self.state, |state| {
            let has_changed = state.version != self.seen;
            if has_changed || state.senders > 0 { Ok(has_changed) } else { Err(Closed) }
        })
    }

    /// Waits for a value that this receiver has not seen, and marks it as seen. Of several changes it
    /// reports the last.
    ///
    /// # Errors
    /// [`Closed`].
    ///
    /// # Cancel safety
    /// Cancel safe: a change that was not reported stays unseen.
    pub async fn changed(&mut self) -> Result<(), Closed> {
        let seen = self.seen;
        let mut wait = Wait::<_, P>::new(&self.state, |state| &mut state.waiters);
        let changed = poll_fn(|cx| {
            wait.poll(cx, |state| {
                if state.version != seen {
                    return Some(Ok(state.version));
                }
                (state.senders == 0).then_some(Err(Closed))
            })
        });
        self.seen = changed.await?;
        Ok(())
    }

    /// Waits until the value is as `is_wanted` says, now or after a change; returns it.
    ///
    /// # Errors
    /// [`Closed`] if no value can come.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn wait_for(
        &mut self,
        mut is_wanted: impl FnMut(&T) -> bool,
    ) -> Result<P::Shared<T>, Closed> {
        loop {
            let value = self.get_and_update();
            if is_wanted(&value) {
                return Ok(value);
            }
            self.changed().await?;
        }
    }
}

impl<T, P: Place> Clone for Receiver<T, P> {
    fn clone(&self) -> Self {
        P::with(&self.state, |state| state.receivers += 1);
        Self { state: self.state.clone(), seen: self.seen }
    }
}

impl<T, P: Place> Drop for Receiver<T, P> {
    fn drop(&mut self) {
        let woken = P::with(&self.state, |state| {
            state.receivers -= 1;
            (state.receivers == 0).then(|| Woken::all(&mut state.ends, 1))
        });
        woken.unwrap_or_default().wake();
    }
}

impl<T, P: Place> fmt::Debug for Sender<T, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sender").field("is_closed", &self.is_closed()).finish()
    }
}

impl<T, P: Place> fmt::Debug for Receiver<T, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Receiver").field("has_changed", &self.has_changed()).finish()
    }
}

impl fmt::Display for Closed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("all senders are dropped, and no value is unseen")
    }
}

impl std::error::Error for Closed {}
