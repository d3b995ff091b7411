//! Blocking calls of the application, on the loop's pool threads.
//!
//! Owns: [`Blocking`], the future of a call's result. Called by: applications ([`spawn_blocking`])
//! and `net` (name look-up).

use crate::driver::{Call, RoomWaiter};
use crate::executor::runtime::local::Local;
use crate::executor::task::error::JoinError;
use crate::executor::task::remote::{self, RemoteJoinHandle};
use crate::sys::libc;
use std::fmt;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

/// The result of [`spawn_blocking`]. Dropping it detaches the call, or drops a call that still
/// waits for room in the queue.
#[must_use = "the result of the call is lost without it"]
pub struct Blocking<T> {
    result: RemoteJoinHandle<T>,
    /// The call, if the queue was full: retried when there is room.
    waiting: Option<(Local, Call)>,
    /// Its entry among the waiters for room.
    waiter: Option<RoomWaiter>,
}

impl<T> fmt::Debug for Blocking<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut blocking = f.debug_struct("Blocking");
        blocking.field("waiting", &self.waiting.is_some());
        blocking.finish_non_exhaustive()
    }
}

/// Runs `call`, which may block, on a pool thread.
///
/// It begins at once if one of at most [`crate::limits::BLOCKING_THREADS`] threads is free, otherwise
/// as soon as one is. With [`crate::limits::BLOCKING_QUEUE`] calls queued, it is not queued before the
/// future is polled.
///
/// # Errors
/// [`JoinError::Panicked`] with the call's panic, [`JoinError::Cancelled`] if the runtime ended before
/// the call began, [`JoinError::Refused`] if the system has no thread for it.
///
/// # Cancel safety
/// A call cannot be stopped: dropping the future detaches it. If the queue was full, the future keeps
/// the call until there is room, and drops it unrun if it is dropped before that.
///
/// ```
/// let runtime = ringloop::Runtime::new()?;
/// let answer = runtime.block_on(async { ringloop::spawn_blocking(|| 6 * 7).await })?;
/// assert_eq!(answer.ok(), Some(42));
/// # Ok::<(), ringloop::Error>(())
/// ```
///
/// # Panics
/// Outside of a runtime.
#[track_caller]
pub fn spawn_blocking<T: Send + 'static>(call: impl FnOnce() -> T + Send + 'static) -> Blocking<T> {
    let (settle, result) = remote::pair();
    let call = Box::new(move || {
        let result = catch_unwind(AssertUnwindSafe(call));
        settle.finish(result.map_err(JoinError::Panicked));
    });
    let mut blocking = Blocking { result, waiting: None, waiter: None };
    blocking.start(Local::current(), call, None);
    blocking
}

impl<T> Blocking<T> {
    fn start(&mut self, local: Local, call: Call, waker: Option<&Waker>) {
        let pool = local.engine().blocking_pool().clone();
        let asks = waker.map(|waker| (waker, &mut self.waiter));
        match pool.call(call, asks) {
            Ok(()) => self.waiter = None,
            Err((call, None)) => self.waiting = Some((local, call)),
            Err((call, Some(error))) => {
                self.result.refuse(match error.raw_os_error() {
                    Some(libc::ECANCELED) => JoinError::Cancelled,
                    _ => JoinError::Refused(error),
                });
                // Last: it settles as cancelled what has no result.
                drop(call);
            }
        }
    }
}

impl<T> Future for Blocking<T> {
    type Output = Result<T, JoinError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        if let Some((local, call)) = self.waiting.take() {
            self.start(local, call, Some(cx.waker()));
        }
        Pin::new(&mut self.result).poll(cx)
    }
}
