//! Channels of many senders and one receiver, bounded: a sender waits while it is full.
//!
//! Owns: the queue, its permits (one per place), and the receiver's waker. No sent value is dropped
//! while there is a receiver. Senders get places first in, first out.

use super::place::{Place, has_share};
use super::semaphore::{PERMITS_MAX, Permits, Woken};
use super::waiters::{Ticket, keep, wake};
use crate::executor::{Local, waiting};
use std::collections::VecDeque;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

#[derive(Debug)]
struct ChannelState<T> {
    queue: VecDeque<T>,
    places: Permits,
    senders: usize,
    /// The receiver is dropped or closed.
    closed: bool,
    receiver: Option<Waker>,
}

/// Both ends of a channel for at most `capacity` values.
pub(super) fn channel<T, P: Place>(capacity: usize) -> (Sender<T, P>, Receiver<T, P>) {
    let state = P::share(P::cell(ChannelState {
        queue: VecDeque::new(),
        places: Permits::new(capacity.max(1), PERMITS_MAX),
        senders: 1,
        closed: false,
        receiver: None,
    }));
    let sender = Sender { state: state.clone() };
    (sender, Receiver { state })
}

/// Sends to a channel; see [`crate::sync::mpsc`] and [`crate::sync::local::mpsc`].
pub struct Sender<T, P: Place> {
    state: P::Shared<P::Cell<ChannelState<T>>>,
}

/// Receives from a channel; see [`crate::sync::mpsc`] and [`crate::sync::local::mpsc`].
pub struct Receiver<T, P: Place> {
    state: P::Shared<P::Cell<ChannelState<T>>>,
}

/// The receiver is dropped; returns the value.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct SendError<T>(pub T);

/// Why a value could not be sent at once; returns it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum TrySendError<T> {
    /// Every place is taken, or other senders wait.
    Full(T),
    /// The receiver is dropped.
    Closed(T),
}

/// Why there is no value now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TryRecvError {
    /// The channel is empty.
    Empty,
    /// The channel is empty, and all senders are dropped.
    Closed,
}

impl<T, P: Place> Sender<T, P> {
    /// Sends `value` once there is a place.
    ///
    /// # Errors
    /// [`SendError`] with the value if the receiver is dropped.
    ///
    /// # Cancel safety
    /// Cancel safe: a dropped send has sent nothing.
    pub fn send(&self, value: T) -> Send<'_, T, P> {
        Send { sender: self, value: Some(value), ticket: None }
    }

    /// Sends `value` if there is a place.
    pub fn try_send(&self, value: T) -> Result<(), TrySendError<T>> {
        let receiver = P::with(&self.state, |state| {
            if state.closed {
                return Err(TrySendError::Closed(value));
            }
            if !state.places.try_take(1) {
                return Err(TrySendError::Full(value));
            }
            state.queue.push_back(value);
            Ok(state.receiver.take())
        })?;
        wake(receiver);
        Ok(())
    }

    /// Whether the receiver is dropped or closed.
    pub fn is_closed(&self) -> bool {
        P::with(&self.state, |state| state.closed)
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
        let receiver = P::with(&self.state, |state| {
            state.senders -= 1;
            if state.senders > 0 {
                return None;
            }
            state.receiver.take()
        });
        wake(receiver);
    }
}

/// Waits for a place and sends.
#[must_use = "a value is sent when the future is awaited"]
pub struct Send<'a, T, P: Place> {
    sender: &'a Sender<T, P>,
    value: Option<T>,
    ticket: Option<Ticket>,
}

impl<T, P: Place> Unpin for Send<'_, T, P> {}

impl<T, P: Place> Future for Send<'_, T, P> {
    type Output = Result<(), SendError<T>>;

    ///
    /// # Panics
    /// If it is polled after it was ready.
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.get_mut();
        let (value, ticket) = (&mut this.value, &mut this.ticket);
        let sent = P::with(&this.sender.state, |state| {
            if state.places.is_past_share::<P>(1, *ticket) {
                return None;
            }
            let place = state.places.poll_take(1, ticket, cx.waker());
            if !place && !state.closed {
                return Some(waiting("room in a channel"));
            }
            let value = value.take().expect("a send was polled after it was over");
            if state.closed {
                return Some(Poll::Ready(Err(SendError(value))));
            }
            state.queue.push_back(value);
            Some(Poll::Ready(Ok(state.receiver.take())))
        });
        let Some(sent) = sent else {
            return Local::next_turn(cx);
        };
        sent.map(|sent| sent.map(wake))
    }
}

impl<T, P: Place> Drop for Send<'_, T, P> {
    fn drop(&mut self) {
        if let Some(ticket) = self.ticket.take() {
            let state = &self.sender.state;
            P::with(state, |state| state.places.leave(ticket)).wake();
        }
    }
}

impl<T, P: Place> Receiver<T, P> {
    /// Waits for the next value; `None` once all senders are dropped and every value was received.
    ///
    /// # Cancel safety
    /// Cancel safe: a dropped receive has taken nothing.
    pub async fn recv(&mut self) -> Option<T> {
        std::future::poll_fn(|cx| self.poll_recv(cx)).await
    }

    /// [`Receiver::recv`] as a poll function.
    pub fn poll_recv(&mut self, cx: &mut Context<'_>) -> Poll<Option<T>> {
        let polled = P::with(&self.state, |state| {
            if P::IS_SHARED && !state.queue.is_empty() && !has_share::<P>() {
                return None;
            }
            if let Some(value) = state.queue.pop_front() {
                return Some((Poll::Ready(Some(value)), state.places.give(1)));
            }
            if state.senders == 0 || state.closed {
                return Some((Poll::Ready(None), Woken::default()));
            }
            keep(&mut state.receiver, cx.waker());
            Some((waiting("a channel"), Woken::default()))
        });
        let Some((value, woken)) = polled else {
            return Local::next_turn(cx);
        };
        woken.wake();
        value
    }

    /// The next value, if there is one.
    pub fn try_recv(&mut self) -> Result<T, TryRecvError> {
        let (value, woken) = P::with(&self.state, |state| match state.queue.pop_front() {
            Some(value) => (Ok(value), state.places.give(1)),
            None if state.senders == 0 || state.closed => {
                (Err(TryRecvError::Closed), Woken::default())
            }
            None => (Err(TryRecvError::Empty), Woken::default()),
        });
        woken.wake();
        value
    }

    /// Refuses further sends; sent values are still received.
    pub fn close(&mut self) {
        P::with(&self.state, |state| {
            state.closed = true;
            state.places.grant_all()
        })
        .wake();
    }

    /// Number of queued values.
    pub fn len(&self) -> usize {
        P::with(&self.state, |state| state.queue.len())
    }

    /// Whether no value is queued.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl<T, P: Place> Drop for Receiver<T, P> {
    fn drop(&mut self) {
        self.close();
        // Dropped with the cell free: a value may contain a sender of this channel.
        let _unreceived = P::with(&self.state, |state| std::mem::take(&mut state.queue));
    }
}

impl<T, P: Place> fmt::Debug for Sender<T, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sender").field("is_closed", &self.is_closed()).finish()
    }
}

impl<T, P: Place> fmt::Debug for Receiver<T, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Receiver").field("len", &self.len()).finish()
    }
}

impl<T, P: Place> fmt::Debug for Send<'_, T, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Send").finish_non_exhaustive()
    }
}

impl<T> fmt::Debug for SendError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SendError(..)")
    }
}

impl<T> fmt::Display for SendError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the channel's receiver is gone")
    }
}

impl<T> std::error::Error for SendError<T> {}

impl<T> fmt::Debug for TrySendError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Full(_) => "Full(..)",
            Self::Closed(_) => "Closed(..)",
        })
    }
}

impl<T> fmt::Display for TrySendError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Full(_) => "the channel is full",
            Self::Closed(_) => "the channel's receiver is gone",
        })
    }
}

impl<T> std::error::Error for TrySendError<T> {}

impl fmt::Display for TryRecvError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Empty => "the channel is empty",
            Self::Closed => "the channel is empty and its senders are gone",
        })
    }
}

impl std::error::Error for TryRecvError {}
