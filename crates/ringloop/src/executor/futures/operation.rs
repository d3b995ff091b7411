//! An operation as a future: submitted at its first poll, cancelled on drop.
//!
//! Owns: [`Op`], and [`Flight`], its state once submitted. Called by: `net`, `time`, and users of
//! the operation set. The driver owns the buffer from submission to completion.

use crate::driver::Key;
use crate::executor::futures::link::{First, Limited, Link, Linked};
use crate::executor::runtime::local::Local;
use crate::executor::runtime::local::{Begun, StartMode, poll_outcome};
use crate::executor::task::listed::{waiting, waits_for};
use crate::op::Kind;
use std::any::type_name;
use std::future::{Future, IntoFuture};
use std::marker::PhantomData;
use std::pin::Pin;
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

/// An operation as a future, on the runtime that polls it first.
///
/// # Cancel safety
/// Dropping it cancels the operation. Bytes that a dropped receive had already taken are lost; use a
/// stream of receives if that matters.
#[derive(Debug)]
#[must_use = "an operation does nothing until it is awaited"]
pub struct Op<K: Kind> {
    state: State<K>,
    mode: StartMode,
}

#[derive(Debug)]
enum State<K: Kind> {
    Unsubmitted(K),
    InFlight(Flight<K>),
    Over,
}

/// An operation in flight, whose request the driver has. Dropping it cancels the operation.
#[derive(Debug)]
pub(crate) struct Flight<K> {
    /// Present until the outcome is taken.
    local: Option<Local>,
    key: Key,
    kind: PhantomData<fn() -> K>,
}

impl<K: Kind> Flight<K> {
    /// Begins an operation on the current loop; returns the output if it completes at once.
    #[inline]
    pub fn begin(local: Local, kind: K, mode: StartMode, waker: &Waker) -> Result<Self, K::Output> {
        match local.begin(kind.into_request(), mode, waker) {
            Begun::Over(outcome) => Err(K::output(outcome)),
            Begun::InFlight(key) => {
                waits_for(type_name::<K>());
                Ok(Self { local: Some(local), key, kind: PhantomData })
            }
        }
    }

    /// The output, once.
    #[inline]
    pub fn poll(&mut self, waker: &Waker) -> Poll<K::Output> {
        let Some(local) = &self.local else {
            panic!("an operation was polled after it was over");
        };
        let Poll::Ready(outcome) = poll_outcome(local, self.key, waker) else {
            return waiting(type_name::<K>());
        };
        self.local = None;
        Poll::Ready(K::output(outcome))
    }
}

impl<K> Drop for Flight<K> {
    #[inline]
    fn drop(&mut self) {
        if let Some(local) = &self.local {
            local.forget(self.key);
        }
    }
}

impl<K: Kind> Op<K> {
    /// Wrap an operation; it is submitted at the first poll.
    pub fn new(kind: K) -> Self {
        Self { state: State::Unsubmitted(kind), mode: StartMode::DriverDefault }
    }

    /// Like [`Op::new`], but tries the system call at the first poll, and submits only if it would
    /// block: for large copies, and for descriptors known to be ready.
    pub fn try_first(kind: K) -> Self {
        Self { state: State::Unsubmitted(kind), mode: StartMode::TryFirst }
    }

    /// Like [`Op::new`], but polls first: for a descriptor known not to be ready (a receive from a
    /// drained socket, a wait for readiness). Saves the try; if the descriptor is ready after all,
    /// the operation goes on at once.
    ///
    /// See `io_uring_prep_recv(3)`, `IORING_RECVSEND_POLL_FIRST`, kernel 5.19.
    pub fn poll_first(kind: K) -> Self {
        Self { state: State::Unsubmitted(kind), mode: StartMode::PollFirst }
    }

    /// Limits the operation: if it has not ended `limit` after it began, it is cancelled and ends
    /// with `ETIMEDOUT`. On the ring the kernel runs the timer ([`Link::timeout`]).
    ///
    /// # Panics
    /// If it has been polled.
    #[track_caller]
    pub fn timeout(mut self, limit: Duration) -> Linked<Limited<First<K>>> {
        match std::mem::replace(&mut self.state, State::Over) {
            State::Unsubmitted(kind) => Link::new(kind).timeout(limit).into_future(),
            _ => panic!("an operation was bounded in time after it was polled"),
        }
    }

    /// The key, once the operation is in flight; for [`crate::op::Cancel`].
    pub fn key(&self) -> Option<Key> {
        match &self.state {
            State::InFlight(flight) => Some(flight.key),
            _ => None,
        }
    }
}

impl<K: Kind> Future for Op<K> {
    type Output = K::Output;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<K::Output> {
        if let State::InFlight(flight) = &mut self.state {
            let output = ready!(flight.poll(cx.waker()));
            self.state = State::Over;
            return Poll::Ready(output);
        }
        let State::Unsubmitted(kind) = std::mem::replace(&mut self.state, State::Over) else {
            panic!("an operation was polled after it was over");
        };
        match Flight::begin(Local::current(), kind, self.mode, cx.waker()) {
            Err(output) => Poll::Ready(output),
            Ok(flight) => {
                self.state = State::InFlight(flight);
                Poll::Pending
            }
        }
    }
}
