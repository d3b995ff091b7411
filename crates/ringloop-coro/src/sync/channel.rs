//! Channels of many senders and many receivers, bounded or not.
//!
//! Owns: the queue, and who waits at either end. Never does: drop a value that was sent while there is a receiver.
//! Each value goes to one receiver. A mailbox is an [`unbounded`] channel: threads and callbacks of libraries may send to
//! it without ever parking. A signal handler may not, since a send takes a lock and may allocate: see [`crate::signal`].

use super::waiters::{Ticket, Waiters};
use crate::atomics::locked;
use crate::coop;
use crate::wait::block_on_anywhere;
use std::collections::VecDeque;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

pub use ringloop::sync::mpsc::{SendError, TryRecvError, TrySendError};

struct ChannelState<T> {
    queue: VecDeque<T>,
    capacity: usize,
    senders: usize,
    receivers: usize,
    /// Who waits for a place.
    sending: Waiters,
    /// Who waits for a value.
    receiving: Waiters,
}

/// A channel for at most `capacity` values (at least 1): a sender waits while it is full.
pub fn bounded<T>(capacity: usize) -> (Sender<T>, Receiver<T>) {
    let state = Arc::new(Mutex::new(ChannelState {
        queue: VecDeque::new(),
        capacity: capacity.max(1),
        senders: 1,
        receivers: 1,
        sending: Waiters::default(),
        receiving: Waiters::default(),
    }));
    let sender = Sender {
        state: Arc::clone(&state),
        may_wait: capacity != usize::MAX,
    };
    (sender, Receiver { state })
}

/// A channel whose senders never wait. Bound what goes in by other means.
pub fn unbounded<T>() -> (Sender<T>, Receiver<T>) {
    bounded(usize::MAX)
}

/// Sends to a channel; a clone sends to the same.
pub struct Sender<T> {
    state: Arc<Mutex<ChannelState<T>>>,
    /// Bounded: a call that may park.
    may_wait: bool,
}

/// Receives from a channel; a clone receives from the same, each value once.
pub struct Receiver<T> {
    state: Arc<Mutex<ChannelState<T>>>,
}

/// All senders are gone, and everything was received.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RecvError;

impl fmt::Display for RecvError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the channel is empty and its senders are gone")
    }
}

impl std::error::Error for RecvError {}

impl<T> ChannelState<T> {
    fn push(&mut self, value: T) -> Result<Option<Waker>, TrySendError<T>> {
        if self.receivers == 0 {
            return Err(TrySendError::Closed(value));
        }
        if self.queue.len() >= self.capacity {
            return Err(TrySendError::Full(value));
        }
        self.queue.push_back(value);
        Ok(self.receiving.first())
    }

    fn pop(&mut self) -> Result<(T, Option<Waker>), TryRecvError> {
        match self.queue.pop_front() {
            Some(value) => Ok((value, self.sending.first())),
            None if self.senders == 0 => Err(TryRecvError::Closed),
            None => Err(TryRecvError::Empty),
        }
    }
}

#[inline]
fn wake(waker: Option<Waker>) {
    if let Some(waker) = waker {
        waker.wake();
    }
}

impl<T> Sender<T> {
    /// Send `value` once there is a place. In a coroutine, and to a bounded channel, it gives the others a turn now and
    /// then where there always is one.
    ///
    /// Errors: [`SendError`] with the value, when every receiver is gone.
    #[track_caller]
    pub fn send(&self, value: T) -> Result<(), SendError<T>> {
        if self.may_wait {
            coop::consume_budget();
        }
        match self.try_send(value) {
            Ok(()) => Ok(()),
            Err(TrySendError::Closed(value)) => Err(SendError(value)),
            Err(TrySendError::Full(value)) => {
                coop::reset_budget();
                block_on_anywhere(self.send_async(value), "Sender::send_async()")
            }
        }
    }

    /// Send `value` once there is a place, as a future: for `select!` and async code.
    ///
    /// Cancel safety: a send that is dropped before it is over has sent nothing.
    pub fn send_async(&self, value: T) -> impl Future<Output = Result<(), SendError<T>>> {
        SendFuture {
            sender: self,
            value: Some(value),
            ticket: None,
        }
    }

    /// Send `value` if there is a place.
    pub fn try_send(&self, value: T) -> Result<(), TrySendError<T>> {
        let receiver = locked(&self.state).push(value)?;
        wake(receiver);
        Ok(())
    }

    /// Whether every receiver is gone.
    pub fn is_closed(&self) -> bool {
        locked(&self.state).receivers == 0
    }
}

struct SendFuture<'a, T> {
    sender: &'a Sender<T>,
    value: Option<T>,
    ticket: Option<Ticket>,
}

impl<T> Unpin for SendFuture<'_, T> {}

impl<T> Future for SendFuture<'_, T> {
    type Output = Result<(), SendError<T>>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        let Some(value) = this.value.take() else {
            panic!("a send was polled after it was over");
        };
        let mut state = locked(&this.sender.state);
        let sent = match state.push(value) {
            Err(TrySendError::Full(value)) => {
                this.value = Some(value);
                state.sending.stand(&mut this.ticket, cx.waker());
                return Poll::Pending;
            }
            Ok(receiver) => Ok(receiver),
            Err(TrySendError::Closed(value)) => Err(SendError(value)),
        };
        if let Some(ticket) = this.ticket.take() {
            state.sending.leave(ticket);
        }
        drop(state);
        Poll::Ready(sent.map(wake))
    }
}

impl<T> Drop for SendFuture<'_, T> {
    fn drop(&mut self) {
        let Some(ticket) = self.ticket.take() else {
            return;
        };
        let mut state = locked(&self.sender.state);
        // One that was woken, and does not come, leaves its place to the next.
        let next = if state.sending.leave(ticket) || state.queue.len() >= state.capacity {
            None
        } else {
            state.sending.first()
        };
        drop(state);
        wake(next);
    }
}

impl<T> Receiver<T> {
    /// Wait for the next value. In a coroutine it gives the others a turn now and then where there always is one.
    ///
    /// Errors: [`RecvError`] once all senders are gone and everything was received.
    #[inline(always)]
    #[track_caller]
    pub fn recv(&self) -> Result<T, RecvError> {
        if crate::is_coroutine() {
            coop::consume_budget();
            // The first poll looks; a look before it would only take the lock once more.
            let mut receiving = self.receiving();
            let received = crate::block_on(&mut receiving);
            if receiving.has_waited {
                coop::reset_budget();
            }
            return received;
        }
        match self.try_recv() {
            Ok(value) => Ok(value),
            Err(TryRecvError::Closed) => Err(RecvError),
            Err(TryRecvError::Empty) => {
                block_on_anywhere(self.recv_async(), "Receiver::recv_async()")
            }
        }
    }

    /// Wait for the next value, as a future: for `select!` and async code.
    ///
    /// Cancel safety: a receive that is dropped has taken nothing.
    pub fn recv_async(&self) -> impl Future<Output = Result<T, RecvError>> {
        self.receiving()
    }

    fn receiving(&self) -> RecvFuture<'_, T> {
        RecvFuture {
            receiver: self,
            ticket: None,
            has_waited: false,
        }
    }

    /// Wait for the next value, for `limit` at most; `None` where none came. In a coroutine.
    pub fn recv_timeout(&self, limit: Duration) -> Result<Option<T>, RecvError> {
        coop::consume_budget();
        match crate::block_on(ringloop::time::timeout(limit, self.recv_async())) {
            Ok(received) => received.map(Some),
            Err(ringloop::time::Elapsed) => Ok(None),
        }
    }

    /// The next value, if there is one.
    pub fn try_recv(&self) -> Result<T, TryRecvError> {
        let (value, sender) = locked(&self.state).pop()?;
        wake(sender);
        Ok(value)
    }

    /// How many values wait.
    pub fn len(&self) -> usize {
        locked(&self.state).queue.len()
    }

    /// Whether none wait.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The values as they come, until all senders are gone.
    pub fn iter(&self) -> Iter<'_, T> {
        Iter { receiver: self }
    }
}

struct RecvFuture<'a, T> {
    receiver: &'a Receiver<T>,
    ticket: Option<Ticket>,
    has_waited: bool,
}

impl<T> Future for RecvFuture<'_, T> {
    type Output = Result<T, RecvError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let receiver = self.receiver;
        let mut state = locked(&receiver.state);
        let taken = match state.pop() {
            Err(TryRecvError::Empty) => {
                state.receiving.stand(&mut self.ticket, cx.waker());
                self.has_waited = true;
                return Poll::Pending;
            }
            Ok(taken) => Ok(taken),
            Err(TryRecvError::Closed) => Err(RecvError),
        };
        if let Some(ticket) = self.ticket.take() {
            state.receiving.leave(ticket);
        }
        drop(state);
        Poll::Ready(taken.map(|(value, sender)| {
            wake(sender);
            value
        }))
    }
}

impl<T> Drop for RecvFuture<'_, T> {
    fn drop(&mut self) {
        let Some(ticket) = self.ticket.take() else {
            return;
        };
        let mut state = locked(&self.receiver.state);
        // One that was woken, and does not come, leaves the value to the next.
        let next = if state.receiving.leave(ticket) || state.queue.is_empty() {
            None
        } else {
            state.receiving.first()
        };
        drop(state);
        wake(next);
    }
}

/// The values of a channel as they come.
#[derive(Debug)]
pub struct Iter<'a, T> {
    receiver: &'a Receiver<T>,
}

impl<T> Iterator for Iter<'_, T> {
    type Item = T;

    fn next(&mut self) -> Option<T> {
        self.receiver.recv().ok()
    }
}

impl<'a, T> IntoIterator for &'a Receiver<T> {
    type Item = T;
    type IntoIter = Iter<'a, T>;

    fn into_iter(self) -> Iter<'a, T> {
        self.iter()
    }
}

/// The values of a channel as they come, with their receiver.
#[derive(Debug)]
pub struct IntoIter<T> {
    receiver: Receiver<T>,
}

impl<T> Iterator for IntoIter<T> {
    type Item = T;

    fn next(&mut self) -> Option<T> {
        self.receiver.recv().ok()
    }
}

impl<T> IntoIterator for Receiver<T> {
    type Item = T;
    type IntoIter = IntoIter<T>;

    fn into_iter(self) -> IntoIter<T> {
        IntoIter { receiver: self }
    }
}

impl<T> Clone for Sender<T> {
    fn clone(&self) -> Self {
        locked(&self.state).senders += 1;
        Self {
            state: Arc::clone(&self.state),
            may_wait: self.may_wait,
        }
    }
}

impl<T> Clone for Receiver<T> {
    fn clone(&self) -> Self {
        locked(&self.state).receivers += 1;
        Self {
            state: Arc::clone(&self.state),
        }
    }
}

impl<T> Drop for Sender<T> {
    fn drop(&mut self) {
        let mut state = locked(&self.state);
        state.senders -= 1;
        if state.senders == 0 {
            let all = state.receiving.all();
            drop(state);
            all.for_each(Waker::wake);
        }
    }
}

impl<T> Drop for Receiver<T> {
    fn drop(&mut self) {
        let mut state = locked(&self.state);
        state.receivers -= 1;
        if state.receivers == 0 {
            let all = state.sending.all();
            // Dropped with the lock free: a value's drop may be a sender of this channel.
            let unreceived = std::mem::take(&mut state.queue);
            drop(state);
            all.for_each(Waker::wake);
            drop(unreceived);
        }
    }
}

impl<T> fmt::Debug for Sender<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sender")
            .field("is_closed", &self.is_closed())
            .finish()
    }
}

impl<T> fmt::Debug for Receiver<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Receiver")
            .field("len", &self.len())
            .finish()
    }
}
