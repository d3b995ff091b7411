//! Channels for one value.
//!
//! Owns: the value, in one shared cell.

use super::place::Place;
use super::waiters::{keep, wake};
use crate::executor::waiting;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

/// State of the value.
#[derive(Debug)]
enum OneshotState<T> {
    /// Not sent yet; the receiver's waker.
    Waiting(Option<Waker>),
    Sent(T),
    /// Received, or one end is dropped.
    Over,
}

/// Both ends of a channel for one value.
pub(super) fn channel<T, P: Place>() -> (Sender<T, P>, Receiver<T, P>) {
    let state = P::share(P::cell(OneshotState::Waiting(None)));
    let sender = Sender { state: state.clone() };
    (sender, Receiver { state })
}

/// Sends one value; see [`crate::sync::oneshot`] and [`crate::sync::local::oneshot`].
pub struct Sender<T, P: Place> {
    state: P::Shared<P::Cell<OneshotState<T>>>,
}

/// Waits for one value; see [`crate::sync::oneshot`] and [`crate::sync::local::oneshot`].
///
/// # Cancel safety
/// A receiver that was polled can be awaited again.
pub struct Receiver<T, P: Place> {
    state: P::Shared<P::Cell<OneshotState<T>>>,
}

/// The sender was dropped before it sent the value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Dropped;

impl<T, P: Place> Sender<T, P> {
    /// Sends the value; returns it if the receiver is dropped.
    pub fn send(self, value: T) -> Result<(), T> {
        let waiter = P::with(&self.state, |state| match state {
            OneshotState::Waiting(waiter) => {
                let waiter = waiter.take();
                *state = OneshotState::Sent(value);
                Ok(waiter)
            }
            OneshotState::Sent(_) | OneshotState::Over => Err(value),
        })?;
        wake(waiter);
        Ok(())
    }

    /// Whether the receiver is dropped.
    pub fn is_closed(&self) -> bool {
        P::with(&self.state, |state| matches!(state, OneshotState::Over))
    }
}

impl<T, P: Place> Drop for Sender<T, P> {
    fn drop(&mut self) {
        let waiter = P::with(&self.state, |state| match state {
            OneshotState::Waiting(waiter) => {
                let waiter = waiter.take();
                *state = OneshotState::Over;
                waiter
            }
            OneshotState::Sent(_) | OneshotState::Over => None,
        });
        wake(waiter);
    }
}

impl<T, P: Place> Receiver<T, P> {
    /// The value, if it was sent; `None` if it may still come.
    pub fn try_recv(&mut self) -> Option<Result<T, Dropped>> {
        P::with(&self.state, |state| {
            if matches!(state, OneshotState::Waiting(_)) {
                return None;
            }
            match std::mem::replace(state, OneshotState::Over) {
                OneshotState::Sent(value) => Some(Ok(value)),
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
        // It may have been sent between the two locks, from another thread.
        let waits = P::with(&this.state, |state| match state {
            OneshotState::Waiting(waiter) => {
                keep(waiter, cx.waker());
                true
            }
            OneshotState::Sent(_) | OneshotState::Over => false,
        });
        if waits {
            return waiting("a channel");
        }
        Poll::Ready(this.try_recv().unwrap_or(Err(Dropped)))
    }
}

impl<T, P: Place> Drop for Receiver<T, P> {
    fn drop(&mut self) {
        // Dropped with the cell free.
        let _unreceived =
            P::with(&self.state, |state| std::mem::replace(state, OneshotState::Over));
    }
}

impl<T, P: Place> fmt::Debug for Sender<T, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sender").field("is_closed", &self.is_closed()).finish()
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
