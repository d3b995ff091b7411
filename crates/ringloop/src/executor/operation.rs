//! An operation as a future: submitted at its first poll, cancelled when it is dropped.
//!
//! Owns: [`Op`]. Called by: `net`, `time`, and users of the operation set.
//! Never does: keep the buffer; that is the driver's from submission to completion.

use super::local::Begun;
use super::{First, Limited, Link, Linked, Local};
use crate::driver::Key;
use crate::op::{Kind, Outcome};
use std::future::{Future, IntoFuture};
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

/// An operation as a future, on the runtime that polls it first.
///
/// Cancel safety: dropping it cancels the operation. Bytes a dropped receive had already taken are
/// lost; use a stream of receives where that matters.
#[derive(Debug)]
#[must_use = "an operation does nothing until it is awaited"]
pub struct Op<K: Kind> {
    state: State<K>,
    beginning: Beginning,
}

/// When an operation is tried for the first time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Beginning {
    /// As its driver does it.
    Plain,
    /// At once, by the system call.
    Eager,
    /// Once its descriptor is ready.
    Patient,
}

#[derive(Debug)]
enum State<K> {
    Unsubmitted(K),
    InFlight(Local, Key),
    Over,
}

impl<K: Kind> Op<K> {
    /// Wrap an operation; it is submitted at the first poll.
    pub fn new(kind: K) -> Self {
        Self {
            state: State::Unsubmitted(kind),
            beginning: Beginning::Plain,
        }
    }

    /// As [`Op::new`], but the system call is tried at the first poll, and only what would block is submitted:
    /// for large copies, and where the descriptor is known to be ready.
    pub fn eager(kind: K) -> Self {
        Self {
            state: State::Unsubmitted(kind),
            beginning: Beginning::Eager,
        }
    }

    /// As [`Op::new`], for a descriptor that is known not to be ready: a receive from a socket that was emptied, a
    /// wait for readiness. It is not tried before the descriptor is ready, which saves the try; where it is ready
    /// after all, it goes on at once.
    ///
    /// Source: `io_uring_prep_recv(3)`, `IORING_RECVSEND_POLL_FIRST`, kernel 5.19.
    pub fn patient(kind: K) -> Self {
        Self {
            state: State::Unsubmitted(kind),
            beginning: Beginning::Patient,
        }
    }

    /// Cancel the operation where it is not over `limit` after it began: it ends with `ETIMEDOUT` then. On
    /// the ring the kernel keeps the time ([`Link::timeout`]).
    ///
    /// # Panics
    /// Where it has been polled.
    pub fn timeout(mut self, limit: Duration) -> Linked<Limited<First<K>>> {
        match std::mem::replace(&mut self.state, State::Over) {
            State::Unsubmitted(kind) => Link::new(kind).timeout(limit).into_future(),
            _ => panic!("an operation was bounded in time after it was polled"),
        }
    }

    /// The key, once it is in flight; for [`crate::op::Cancel`].
    pub fn key(&self) -> Option<Key> {
        match &self.state {
            State::InFlight(_, key) => Some(*key),
            _ => None,
        }
    }
}

impl<K: Kind> Future for Op<K> {
    type Output = K::Output;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<K::Output> {
        if let State::InFlight(local, key) = &self.state {
            let completion = ready!(local.engine().driver_mut().poll(*key, cx.waker()));
            self.state = State::Over;
            return Poll::Ready(K::output(match completion {
                Some(completion) => completion.into(),
                // The driver was torn down under the future.
                None => Outcome {
                    result: Err(io::Error::from_raw_os_error(libc::ECANCELED)),
                    request: None,
                },
            }));
        }
        match std::mem::replace(&mut self.state, State::Over) {
            State::Unsubmitted(kind) => {
                let local = Local::current();
                match local.begin(kind.into_request(), self.beginning, cx.waker()) {
                    Begun::Over(outcome) => Poll::Ready(K::output(outcome)),
                    Begun::InFlight(key) => {
                        self.state = State::InFlight(local, key);
                        Poll::Pending
                    }
                }
            }
            _ => panic!("an operation was polled after it was over"),
        }
    }
}

impl<K: Kind> Drop for Op<K> {
    fn drop(&mut self) {
        if let State::InFlight(local, key) = &self.state {
            local.forget(*key);
        }
    }
}
