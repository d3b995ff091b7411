//! Channels with many senders and many receivers, bounded or unbounded.
//!
//! Owns: the queue, and the waiters at either end. Called by: coroutines, threads and async code.
//! Each value goes to one receiver, and none is dropped while there is a receiver.
//!
//! A mailbox is an [`unbounded`] channel: threads and library callbacks may send to it without ever
//! parking. A signal handler may not, since a send takes a lock and may allocate: see
//! [`crate::signal`].

use super::waiters::{Line, LineWait, Waiters, wake};
use crate::atomics::locked;
use crate::coop;
use crate::wait::{block_on, block_on_anywhere, is_coroutine};
use std::collections::VecDeque;
use std::fmt;
use std::future::{Future, poll_fn};
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
    /// Senders that wait for room.
    sending: Waiters,
    /// Receivers that wait for a value.
    receiving: Waiters,
}

/// Makes a channel for at most `capacity` values (at least 1): a sender waits while it is full.
pub fn bounded<T>(capacity: usize) -> (Sender<T>, Receiver<T>) {
    let state = Arc::new(Mutex::new(ChannelState {
        queue: VecDeque::new(),
        capacity: capacity.max(1),
        senders: 1,
        receivers: 1,
        sending: Waiters::default(),
        receiving: Waiters::default(),
    }));
    let sender = Sender { state: Arc::clone(&state), may_wait: capacity != usize::MAX };
    (sender, Receiver { state })
}

/// Makes a channel whose senders never wait. Bound its values by other means.
pub fn unbounded<T>() -> (Sender<T>, Receiver<T>) {
    bounded(usize::MAX)
}

/// Sends to a channel; a clone sends to the same channel.
pub struct Sender<T> {
    state: Arc<Mutex<ChannelState<T>>>,
    /// Bounded: a send may park.
    may_wait: bool,
}

/// Receives from a channel; a clone receives from the same channel, each value once.
pub struct Receiver<T> {
    state: Arc<Mutex<ChannelState<T>>>,
}

/// All senders are dropped, and every value was received.
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
        Ok(self.receiving.pop())
    }

    fn pop(&mut self) -> Result<(T, Option<Waker>), TryRecvError> {
        match self.queue.pop_front() {
            Some(value) => Ok((value, self.sending.pop())),
            None if self.senders == 0 => Err(TryRecvError::Closed),
            None => Err(TryRecvError::Empty),
        }
    }
}

struct Senders;

impl<T> Line<ChannelState<T>> for Senders {
    fn waiters(state: &mut ChannelState<T>) -> &mut Waiters {
        &mut state.sending
    }

    /// A sender that was woken and does not send leaves its room to the next.
    fn abandon(state: &mut ChannelState<T>, was_in_line: bool) -> Option<Waker> {
        let is_full = state.queue.len() >= state.capacity;
        if was_in_line || is_full { None } else { state.sending.pop() }
    }
}

struct Receivers;

impl<T> Line<ChannelState<T>> for Receivers {
    fn waiters(state: &mut ChannelState<T>) -> &mut Waiters {
        &mut state.receiving
    }

    /// A receiver that was woken and does not receive leaves the value to the next.
    fn abandon(state: &mut ChannelState<T>, was_in_line: bool) -> Option<Waker> {
        let is_empty = state.queue.is_empty();
        if was_in_line || is_empty { None } else { state.receiving.pop() }
    }
}

impl<T> Sender<T> {
    /// Sends `value` once there is room. In a coroutine, a send to a bounded channel yields now and
    /// then even if it never waits.
    ///
    /// # Errors
    /// [`SendError`] with the value if every receiver is dropped.
    ///
    /// # Cancel safety
    /// A send that is cancelled has sent nothing.
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

    /// As [`Sender::send`]: for `select!` and async code.
    ///
    /// # Errors
    /// As [`Sender::send`].
    ///
    /// # Panics
    /// If it is polled after it was ready.
    ///
    /// # Cancel safety
    /// A send that is dropped has sent nothing.
    pub fn send_async(&self, value: T) -> impl Future<Output = Result<(), SendError<T>>> {
        let mut value = Some(value);
        let mut wait = LineWait::<_, Senders>::new(&self.state);
        poll_fn(move |cx| {
            let Some(next) = value.take() else {
                panic!("a send was polled after it was over");
            };
            let sent = wait.poll(cx, |state, _| match state.push(next) {
                Ok(receiver) => Some(Ok(receiver)),
                Err(TrySendError::Closed(value)) => Some(Err(SendError(value))),
                Err(TrySendError::Full(back)) => {
                    value = Some(back);
                    None
                }
            });
            sent.map(|sent| sent.map(wake))
        })
    }

    /// Sends `value` if there is room.
    ///
    /// # Errors
    /// [`TrySendError`] with the value if the channel is full or every receiver is dropped.
    pub fn try_send(&self, value: T) -> Result<(), TrySendError<T>> {
        let receiver = locked(&self.state).push(value)?;
        wake(receiver);
        Ok(())
    }

    /// Whether every receiver is dropped.
    pub fn is_closed(&self) -> bool {
        locked(&self.state).receivers == 0
    }
}

impl<T> Receiver<T> {
    /// Waits for the next value. In a coroutine, it yields now and then even if it never waits.
    ///
    /// # Errors
    /// [`RecvError`] once all senders are dropped and every value was received.
    ///
    /// # Cancel safety
    /// A receive that is cancelled has taken nothing.
    #[inline(always)]
    #[track_caller]
    pub fn recv(&self) -> Result<T, RecvError> {
        if is_coroutine() {
            coop::consume_budget();
            // No `try_recv` first: the first poll would lock the state once more.
            let mut receive = self.receive();
            let received = block_on(&mut receive);
            if receive.has_waited {
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

    /// As [`Receiver::recv`]: for `select!` and async code.
    ///
    /// # Errors
    /// As [`Receiver::recv`].
    ///
    /// # Cancel safety
    /// A receive that is dropped has taken nothing.
    pub fn recv_async(&self) -> impl Future<Output = Result<T, RecvError>> {
        self.receive()
    }

    fn receive(&self) -> RecvFuture<'_, T> {
        RecvFuture { wait: LineWait::new(&self.state), has_waited: false }
    }

    /// Waits for the next value, for at most `limit`; `None` if none came.
    ///
    /// # Errors
    /// As [`Receiver::recv`].
    ///
    /// # Panics
    /// Outside of a coroutine.
    pub fn recv_timeout(&self, limit: Duration) -> Result<Option<T>, RecvError> {
        coop::consume_budget();
        match block_on(ringloop::time::timeout(limit, self.recv_async())) {
            Ok(received) => received.map(Some),
            Err(ringloop::time::Elapsed) => Ok(None),
        }
    }

    /// Takes the next value, if there is one.
    ///
    /// # Errors
    /// [`TryRecvError`] if the channel is empty, or also closed.
    pub fn try_recv(&self) -> Result<T, TryRecvError> {
        let (value, sender) = locked(&self.state).pop()?;
        wake(sender);
        Ok(value)
    }

    /// Number of values in the queue.
    pub fn len(&self) -> usize {
        locked(&self.state).queue.len()
    }

    /// Whether the queue is empty.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The values in turn, until all senders are dropped.
    pub fn iter(&self) -> Iter<'_, T> {
        Iter { receiver: self }
    }
}

struct RecvFuture<'a, T> {
    wait: LineWait<'a, ChannelState<T>, Receivers>,
    has_waited: bool,
}

impl<T> Future for RecvFuture<'_, T> {
    type Output = Result<T, RecvError>;

    #[inline(always)]
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let received = self.wait.poll(cx, |state, _| match state.pop() {
            Ok(received) => Some(Ok(received)),
            Err(TryRecvError::Closed) => Some(Err(RecvError)),
            Err(TryRecvError::Empty) => None,
        });
        self.has_waited |= received.is_pending();
        received.map_ok(|(value, sender)| {
            wake(sender);
            value
        })
    }
}

/// The values of a channel in turn.
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

/// The values of a channel in turn, with their receiver.
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
        Self { state: Arc::clone(&self.state), may_wait: self.may_wait }
    }
}

impl<T> Clone for Receiver<T> {
    fn clone(&self) -> Self {
        locked(&self.state).receivers += 1;
        Self { state: Arc::clone(&self.state) }
    }
}

impl<T> Drop for Sender<T> {
    fn drop(&mut self) {
        let mut state = locked(&self.state);
        state.senders -= 1;
        if state.senders == 0 {
            let all = state.receiving.take_all();
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
            let all = state.sending.take_all();
            // Dropped with the lock free: the values may hold senders of this channel.
            let unreceived = std::mem::take(&mut state.queue);
            drop(state);
            all.for_each(Waker::wake);
            drop(unreceived);
        }
    }
}

impl<T> fmt::Debug for Sender<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sender").field("is_closed", &self.is_closed()).finish()
    }
}

impl<T> fmt::Debug for Receiver<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Receiver").field("len", &self.len()).finish()
    }
}
