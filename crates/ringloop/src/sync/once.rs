//! Channels for one value.
//!
//! Owns: the value on its way. Never does: allocate more than its one cell.

use super::place::Place;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

/// Where the value is.
#[derive(Debug)]
enum State<T> {
    /// Not sent yet; who waits for it.
    Waiting(Option<Waker>),
    Sent(T),
    /// Received, or one end is gone.
    Over,
}

/// Both ends of a channel for one value.
pub(super) fn channel<T, P: Place>() -> (Sender<T, P>, Receiver<T, P>) {
    let state = P::share(P::cell(State::Waiting(None)));
    let sender = Sender {
        state: state.clone(),
    };
    (sender, Receiver { state })
}

/// Sends one value; see [`crate::sync::oneshot`] and [`crate::sync::local::oneshot`].
pub struct Sender<T, P: Place> {
    state: P::Shared<P::Cell<State<T>>>,
}

/// Waits for one value; see [`crate::sync::oneshot`] and [`crate::sync::local::oneshot`].
///
/// Cancel safety: a receiver that was polled can be awaited again.
pub struct Receiver<T, P: Place> {
    state: P::Shared<P::Cell<State<T>>>,
}

/// The sender was dropped before it sent the value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Dropped;

impl<T, P: Place> Sender<T, P> {
    /// Send the value. It comes back when nobody waits for it any more.
    pub fn send(self, value: T) -> Result<(), T> {
        let waiter = P::with(&self.state, |state| match state {
            State::Waiting(waiter) => {
                let waiter = waiter.take();
                *state = State::Sent(value);
                Ok(waiter)
            }
            State::Sent(_) | State::Over => Err(value),
        })?;
        if let Some(waiter) = waiter {
            waiter.wake();
        }
        Ok(())
    }

    /// Whether nobody waits any more.
    pub fn is_closed(&self) -> bool {
        P::with(&self.state, |state| matches!(state, State::Over))
    }
}

impl<T, P: Place> Drop for Sender<T, P> {
    fn drop(&mut self) {
        let waiter = P::with(&self.state, |state| match state {
            State::Waiting(waiter) => {
                let waiter = waiter.take();
                *state = State::Over;
                waiter
            }
            State::Sent(_) | State::Over => None,
        });
        if let Some(waiter) = waiter {
            waiter.wake();
        }
    }
}

impl<T, P: Place> Receiver<T, P> {
    /// The value, if it was sent; `None` if it may still come.
    pub fn try_recv(&mut self) -> Option<Result<T, Dropped>> {
        P::with(&self.state, |state| {
            if matches!(state, State::Waiting(_)) {
                return None;
            }
            match std::mem::replace(state, State::Over) {
                State::Sent(value) => Some(Ok(value)),
                _ => Some(Err(Dropped)),
            }
        })
    }
}

impl<T, P: Place> Unpin for Receiver<T, P> {}

impl<T, P: Place> Future for Receiver<T, P> {
    type Output = Result<T, Dropped>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.get_mut();
        if let Some(received) = this.try_recv() {
            return Poll::Ready(received);
        }
        // Between the two looks it may have been sent, from another thread.
        let waits = P::with(&this.state, |state| match state {
            State::Waiting(waiter) => {
                match waiter {
                    Some(known) => known.clone_from(cx.waker()),
                    none => *none = Some(cx.waker().clone()),
                }
                true
            }
            State::Sent(_) | State::Over => false,
        });
        if waits {
            return Poll::Pending;
        }
        Poll::Ready(this.try_recv().unwrap_or(Err(Dropped)))
    }
}

impl<T, P: Place> Drop for Receiver<T, P> {
    fn drop(&mut self) {
        // Dropped with the cell free.
        let _unreceived = P::with(&self.state, |state| std::mem::replace(state, State::Over));
    }
}

impl<T, P: Place> fmt::Debug for Sender<T, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sender")
            .field("is_closed", &self.is_closed())
            .finish()
    }
}

impl<T, P: Place> fmt::Debug for Receiver<T, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Receiver").finish_non_exhaustive()
    }
}

impl fmt::Display for Dropped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the sender was dropped before it sent the value")
    }
}

impl std::error::Error for Dropped {}
