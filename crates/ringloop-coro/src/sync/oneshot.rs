//! Channels for one value, over the engine's (`ringloop::sync`).
//!
//! Owns: [`Receiver`]. Called by: coroutines, threads and async code.

use crate::wait::block_on_anywhere;
use std::fmt;
use std::future::IntoFuture;

pub use ringloop::sync::oneshot::{Dropped, Sender};

/// Receives the value; `select!` and async code await it.
#[must_use = "the value is lost without it"]
pub struct Receiver<T>(ringloop::sync::oneshot::Receiver<T>);

/// Makes a channel for one value.
///
/// ```
/// use ringloop_coro::sync::oneshot;
///
/// ringloop_coro::start(1, || {
///     let (sender, receiver) = oneshot::channel();
///     drop(ringloop_coro::spawn(move || sender.send(7)));
///     assert_eq!(receiver.recv().ok(), Some(7));
/// })?;
/// # Ok::<(), ringloop::Error>(())
/// ```
pub fn channel<T>() -> (Sender<T>, Receiver<T>) {
    let (sender, receiver) = ringloop::sync::oneshot::channel();
    (sender, Receiver(receiver))
}

impl<T> Receiver<T> {
    /// Waits for the value.
    ///
    /// # Errors
    /// [`Dropped`] if the sender was dropped without sending.
    #[track_caller]
    pub fn recv(self) -> Result<T, Dropped> {
        block_on_anywhere(self.into_future(), "the receiver")
    }
}

impl<T> IntoFuture for Receiver<T> {
    type Output = Result<T, Dropped>;
    type IntoFuture = ringloop::sync::oneshot::Receiver<T>;

    fn into_future(self) -> Self::IntoFuture {
        self.0
    }
}

impl<T> fmt::Debug for Receiver<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Receiver").finish_non_exhaustive()
    }
}
