//! Waiting for each other: a number of coroutines at one point, or until the last handle is gone.
//!
//! Owns: [`Barrier`], over the engine's (`ringloop::sync`), and [`WaitGroup`]. Called by: coroutines,
//! threads and async code.

use super::channel::{Receiver, Sender, bounded};
use crate::wait::block_on_anywhere;
use std::convert::Infallible;
use std::future::Future;

pub use ringloop::sync::BarrierWaitResult;

/// Lets a number of coroutines wait for each other, repeatedly.
///
/// ```
/// use ringloop_coro::sync::Barrier;
/// use std::sync::Arc;
///
/// ringloop_coro::start(1, || {
///     let barrier = Arc::new(Barrier::new(2));
///     let theirs = Arc::clone(&barrier);
///     let other = ringloop_coro::spawn(move || theirs.wait().is_leader());
///     let leads = barrier.wait().is_leader();
///     assert!(leads != other.join().unwrap());
/// })?;
/// # Ok::<(), ringloop::Error>(())
/// ```
#[derive(Debug)]
pub struct Barrier(ringloop::sync::Barrier);

impl Barrier {
    /// A barrier for `count` waits; 0 counts as 1.
    pub fn new(count: usize) -> Self {
        Self(ringloop::sync::Barrier::new(count))
    }

    /// Waits until `count` have arrived.
    ///
    /// # Cancel safety
    /// A wait that is cancelled has not arrived.
    #[track_caller]
    pub fn wait(&self) -> BarrierWaitResult {
        block_on_anywhere(self.wait_async(), "Barrier::wait_async()")
    }

    /// As [`Barrier::wait`]: for `select!` and async code.
    ///
    /// # Cancel safety
    /// A wait that is dropped has not arrived.
    pub fn wait_async(&self) -> impl Future<Output = BarrierWaitResult> + use<> {
        self.0.wait()
    }
}

/// Waits until every clone of it was dropped.
///
/// ```
/// use ringloop_coro::sync::WaitGroup;
///
/// ringloop_coro::start(1, || {
///     let group = WaitGroup::new();
///     for _ in 0..3 {
///         let member = group.clone();
///         drop(ringloop_coro::spawn(move || drop(member)));
///     }
///     group.wait();
/// })?;
/// # Ok::<(), ringloop::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct WaitGroup {
    // A channel without values: it is closed when the last sender is dropped.
    member: Sender<Infallible>,
    closed: Receiver<Infallible>,
}

impl WaitGroup {
    /// A group with one handle.
    pub fn new() -> Self {
        let (member, closed) = bounded(1);
        Self { member, closed }
    }

    /// Drops this handle and waits until the last one is dropped.
    #[track_caller]
    pub fn wait(self) {
        block_on_anywhere(self.wait_async(), "WaitGroup::wait_async()");
    }

    /// As [`WaitGroup::wait`]: for `select!` and async code. The handle is dropped by the call.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub fn wait_async(self) -> impl Future<Output = ()> {
        let Self { member, closed } = self;
        drop(member);
        async move {
            let _closed = closed.recv_async().await;
        }
    }
}

impl Default for WaitGroup {
    fn default() -> Self {
        Self::new()
    }
}
