//! A value that changes, and coroutines that wait for its changes, over the engine's
//! (`ringloop::sync`).
//!
//! Owns: [`Receiver`]. Called by: coroutines, threads and async code.

use crate::wait::block_on_anywhere;
use std::sync::Arc;

pub use ringloop::sync::watch::{Closed, SendError, Sender};

/// Reads the value and waits for changes; a clone has seen what its original has. Those of
/// [`Sender::subscribe`] are the engine's: convert them.
#[derive(Debug)]
pub struct Receiver<T>(ringloop::sync::watch::Receiver<T>);

/// A value, which the receiver has seen.
///
/// ```
/// use ringloop_coro::sync::watch;
///
/// ringloop_coro::start(1, || {
///     let (sender, mut receiver) = watch::channel("starting");
///     drop(ringloop_coro::spawn(move || sender.send("ready")));
///     let state = receiver.wait_for(|state| *state == "ready").unwrap();
///     assert_eq!(*state, "ready");
///     assert!(receiver.changed().is_err(), "the sender is dropped");
/// })?;
/// # Ok::<(), ringloop::Error>(())
/// ```
pub fn channel<T>(value: T) -> (Sender<T>, Receiver<T>) {
    let (sender, receiver) = ringloop::sync::watch::channel(value);
    (sender, Receiver(receiver))
}

impl<T> Receiver<T> {
    /// The newest value, which stays unseen if it was.
    pub fn get(&self) -> Arc<T> {
        self.0.get()
    }

    /// The newest value, which is seen from now on.
    pub fn get_and_update(&mut self) -> Arc<T> {
        self.0.get_and_update()
    }

    /// Whether there is a value that this receiver has not seen.
    ///
    /// # Errors
    /// [`Closed`] if there is none and all senders are dropped.
    pub fn has_changed(&self) -> Result<bool, Closed> {
        self.0.has_changed()
    }

    /// Waits for a value that this receiver has not seen, and marks it as seen.
    ///
    /// # Errors
    /// [`Closed`].
    #[track_caller]
    pub fn changed(&mut self) -> Result<(), Closed> {
        block_on_anywhere(self.0.changed(), "Receiver::changed_async()")
    }

    /// As [`Receiver::changed`]: for `select!` and async code.
    ///
    /// # Errors
    /// [`Closed`].
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn changed_async(&mut self) -> Result<(), Closed> {
        self.0.changed().await
    }

    /// Waits until the value is as `is_wanted` says, now or after a change; returns it.
    ///
    /// # Errors
    /// [`Closed`] if no value can come.
    #[track_caller]
    pub fn wait_for(&mut self, is_wanted: impl FnMut(&T) -> bool) -> Result<Arc<T>, Closed> {
        block_on_anywhere(self.0.wait_for(is_wanted), "the engine's receiver")
    }
}

impl<T> Clone for Receiver<T> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<T> From<ringloop::sync::watch::Receiver<T>> for Receiver<T> {
    fn from(receiver: ringloop::sync::watch::Receiver<T>) -> Self {
        Self(receiver)
    }
}
