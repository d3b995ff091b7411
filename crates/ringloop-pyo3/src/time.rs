//! Timers of the event loop.

use std::future::{Future, poll_fn};
use std::io;
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use crate::raw::{Operation, no_loop};

/// Waits for `delay`, from the first poll on.
///
/// # Panics
/// If it is polled where no loop of ringloop's runs; in a future of [`future_into_py`](crate::future_into_py)
/// that is nowhere.
pub async fn sleep(delay: Duration) {
    let Some(sleep) = Operation::sleep(delay) else {
        panic!("{}", no_loop());
    };
    // It has no errors.
    drop(sleep.await);
}

/// Waits for `future` for at most `limit`.
///
/// # Errors
/// `TimedOut`.
///
/// # Panics
/// As [`sleep`].
///
/// # Cancel safety
/// The future is dropped at the limit, so that its own cancel safety applies.
pub async fn timeout<F: Future>(limit: Duration, future: F) -> io::Result<F::Output> {
    let mut future = pin!(future);
    let mut sleep = pin!(sleep(limit));
    poll_fn(|cx| {
        if let Poll::Ready(value) = future.as_mut().poll(cx) {
            return Poll::Ready(Ok(value));
        }
        sleep.as_mut().poll(cx).map(|()| Err(io::ErrorKind::TimedOut.into()))
    })
    .await
}
