//! Channels of many senders and many receivers, each of which gets every value.
//!
//! Owns: the values that some receiver has not received, at most the capacity. A full channel drops
//! the oldest: a slow receiver blocks no sender, and learns how many values it has missed.

use super::channel::SendError;
use super::place::Place;
use super::semaphore::Woken;
use super::wait::Wait;
use super::waiters::Waiters;
use std::collections::VecDeque;
use std::fmt;
use std::future::poll_fn;

struct BroadcastState<T, P: Place> {
    /// Values with the number of receivers that have not received them.
    queue: VecDeque<(P::Shared<T>, usize)>,
    /// Number of the queue's first value.
    first: u64,
    capacity: usize,
    senders: usize,
    receivers: usize,
    /// Receivers that have received every value.
    waiters: Waiters,
}

/// Both ends of a broadcast channel.
pub(super) fn channel<T, P: Place>(capacity: usize) -> (Sender<T, P>, Receiver<T, P>) {
    let state = P::share(P::cell(BroadcastState {
        queue: VecDeque::new(),
        first: 0,
        capacity: capacity.max(1),
        senders: 1,
        receivers: 1,
        waiters: Waiters::default(),
    }));
    (Sender { state: state.clone() }, Receiver { state, next: 0 })
}

/// Sends to all receivers; see [`crate::sync::broadcast`] and [`crate::sync::local::broadcast`].
pub struct Sender<T, P: Place> {
    state: P::Shared<P::Cell<BroadcastState<T, P>>>,
}

/// Receives every value that is sent from its creation on.
pub struct Receiver<T, P: Place> {
    state: P::Shared<P::Cell<BroadcastState<T, P>>>,
    /// Number of the next value.
    next: u64,
}

/// Why a receiver got no value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RecvError {
    /// This many values were dropped before it received them; the next call returns the oldest that is
    /// left.
    Lagged(u64),
    /// All senders are dropped, and every value was received.
    Closed,
    /// There is no value now: of `try_recv` only.
    Empty,
}

impl<T, P: Place> BroadcastState<T, P> {
    /// Removes the values that every receiver has received; the caller drops them once the cell is free.
    fn remove_received(&mut self) -> Vec<P::Shared<T>> {
        let mut received = Vec::new();
        while self.queue.front().is_some_and(|(_, left)| *left == 0) {
            received.extend(self.queue.pop_front().map(|(value, _)| value));
            self.first += 1;
        }
        received
    }

    /// The value with the number `next`, which is one more then; `None` if it is not sent yet.
    fn receive(&mut self, next: &mut u64) -> Option<Result<P::Shared<T>, RecvError>> {
        if let Some(missed) = self.first.checked_sub(*next).filter(|missed| *missed > 0) {
            *next = self.first;
            return Some(Err(RecvError::Lagged(missed)));
        }
        let index = (*next - self.first) as usize;
        let Some((value, left)) = self.queue.get_mut(index) else {
            return (self.senders == 0).then_some(Err(RecvError::Closed));
        };
        *left -= 1;
        *next += 1;
        Some(Ok(value.clone()))
    }
}

impl<T, P: Place> Sender<T, P> {
    /// Sends `value` to all receivers; returns their number. Never waits: of a full channel the oldest
    /// value is dropped.
    ///
    /// # Errors
    /// [`SendError`] with the value if all receivers are dropped.
    pub fn send(&self, value: T) -> Result<usize, SendError<T>> {
        if self.receiver_count() == 0 {
            return Err(SendError(value));
        }
        // What is left here is dropped once the cell is free.
        let mut value = Some(P::share(value));
        let (count, woken, _oldest) = P::with(&self.state, |state| {
            let (count, is_full) = (state.receivers, state.queue.len() == state.capacity);
            let oldest = is_full.then(|| state.queue.pop_front()).flatten();
            state.first += u64::from(is_full);
            // None if the last receiver has just been dropped: nothing would take the value.
            if count > 0 {
                state.queue.extend(value.take().map(|value| (value, count)));
            }
            (count, Woken::all(&mut state.waiters, 1), oldest)
        });
        woken.wake();
        Ok(count)
    }

    /// A new receiver, for values sent from now on.
    pub fn subscribe(&self) -> Receiver<T, P> {
        let next = P::with(&self.state, |state| {
            state.receivers += 1;
            state.first + state.queue.len() as u64
        });
        Receiver { state: self.state.clone(), next }
    }

    /// Number of receivers.
    pub fn receiver_count(&self) -> usize {
        P::with(&self.state, |state| state.receivers)
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

impl<T: Clone, P: Place> Receiver<T, P> {
    /// Waits for the next value.
    ///
    /// # Errors
    /// [`RecvError::Lagged`] after values were dropped, once; [`RecvError::Closed`].
    ///
    /// # Cancel safety
    /// Cancel safe: a dropped receive has taken nothing.
    pub async fn recv(&mut self) -> Result<T, RecvError> {
        let mut next = self.next;
        let mut wait = Wait::<_, P>::new(&self.state, |state| &mut state.waiters);
        let (value, _dropped) = poll_fn(|cx| {
            wait.poll(cx, |state| {
                let value = state.receive(&mut next)?;
                Some((value, state.remove_received()))
            })
        })
        .await;
        self.next = next;
        // The user's `clone` runs with the cell free.
        value.map(|value| (*value).clone())
    }

    /// The next value, if it was sent.
    ///
    /// # Errors
    /// As [`Receiver::recv`]; [`RecvError::Empty`].
    pub fn try_recv(&mut self) -> Result<T, RecvError> {
        let next = &mut self.next;
        let (value, _dropped) = P::with(&self.state, |state| {
            let value = state.receive(next).unwrap_or(Err(RecvError::Empty));
            (value, state.remove_received())
        });
        value.map(|value| (*value).clone())
    }
}

impl<T, P: Place> Receiver<T, P> {
    /// Number of values that it has not received, missed ones included.
    pub fn len(&self) -> u64 {
        P::with(&self.state, |state| state.first + state.queue.len() as u64 - self.next)
    }

    /// Whether it has received every value that was sent.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl<T, P: Place> Drop for Receiver<T, P> {
    fn drop(&mut self) {
        let _dropped = P::with(&self.state, |state| {
            state.receivers -= 1;
            let received = self.next.saturating_sub(state.first) as usize;
            for (_, left) in state.queue.iter_mut().skip(received) {
                *left -= 1;
            }
            state.remove_received()
        });
    }
}

impl<T, P: Place> fmt::Debug for Sender<T, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sender").field("receiver_count", &self.receiver_count()).finish()
    }
}

impl<T, P: Place> fmt::Debug for Receiver<T, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Receiver").field("len", &self.len()).finish()
    }
}

impl fmt::Display for RecvError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Lagged(count) => {
                write!(
                    f,
                    "{count} values were dropped before they were received: receive faster, or raise the capacity"
                )
            }
            Self::Closed => f.write_str("all senders are dropped, and every value was received"),
            Self::Empty => f.write_str("no value was sent"),
        }
    }
}

impl std::error::Error for RecvError {}
