//! Channels of many senders and many receivers, each of which gets every value, over the engine's
//! (`ringloop::sync`).
//!
//! Owns: [`Receiver`]. Called by: coroutines, threads and async code.

use crate::wait::block_on_anywhere;

pub use ringloop::sync::broadcast::{RecvError, SendError, Sender};

/// Receives every value that is sent from its creation on. Those of [`Sender::subscribe`] are the
/// engine's: convert them.
#[derive(Debug)]
pub struct Receiver<T>(ringloop::sync::broadcast::Receiver<T>);

/// A channel that keeps at most `capacity` values (at least 1) for slow receivers.
///
/// ```
/// use ringloop_coro::sync::broadcast::{self, Receiver};
///
/// ringloop_coro::start(1, || {
///     let (sender, mut one) = broadcast::channel(4);
///     let mut other = Receiver::from(sender.subscribe());
///     drop(ringloop_coro::spawn(move || sender.send(7)));
///     assert_eq!((one.recv(), other.recv()), (Ok(7), Ok(7)));
/// })?;
/// # Ok::<(), ringloop::Error>(())
/// ```
pub fn channel<T>(capacity: usize) -> (Sender<T>, Receiver<T>) {
    let (sender, receiver) = ringloop::sync::broadcast::channel(capacity);
    (sender, Receiver(receiver))
}

impl<T: Clone> Receiver<T> {
    /// Waits for the next value.
    ///
    /// # Errors
    /// [`RecvError::Lagged`] after values were dropped, once; [`RecvError::Closed`].
    #[track_caller]
    pub fn recv(&mut self) -> Result<T, RecvError> {
        block_on_anywhere(self.0.recv(), "Receiver::recv_async()")
    }

    /// As [`Receiver::recv`]: for `select!` and async code.
    ///
    /// # Errors
    /// As [`Receiver::recv`].
    ///
    /// # Cancel safety
    /// Cancel safe: a dropped receive has taken nothing.
    pub async fn recv_async(&mut self) -> Result<T, RecvError> {
        self.0.recv().await
    }

    /// The next value, if it was sent.
    ///
    /// # Errors
    /// As [`Receiver::recv`]; [`RecvError::Empty`].
    pub fn try_recv(&mut self) -> Result<T, RecvError> {
        self.0.try_recv()
    }
}

impl<T> From<ringloop::sync::broadcast::Receiver<T>> for Receiver<T> {
    fn from(receiver: ringloop::sync::broadcast::Receiver<T>) -> Self {
        Self(receiver)
    }
}
