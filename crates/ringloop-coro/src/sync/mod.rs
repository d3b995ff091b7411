//! Channels and locks between coroutines of any worker, plain threads and async code.
//!
//! Owns: [`channel`], [`oneshot`], [`broadcast`], [`watch`], [`Mutex`], [`RwLock`], [`Condvar`],
//! [`Semaphore`], [`Barrier`], [`WaitGroup`], [`OnceLock`], [`CancellationToken`]. Called by:
//! coroutines; threads, which block; async code, which awaits the methods that end in `_async`.
//!
//! * Names follow `std::sync`. `lock()` returns the guard itself, since there is no poisoning: a
//!   coroutine that panics or is cancelled unlocks while it unwinds. Keep an invariant that must
//!   survive this in the value.
//! * Guards may be held while a coroutine parks. A [`MutexGuard`] stays on its thread.
//! * Every wait may be cancelled. It has taken nothing then, and its wake goes to the next waiter.
//! * A thread may call everything here except [`Condvar::wait_timeout`] and
//!   [`channel::Receiver::recv_timeout`], which use the loop's timers and need a coroutine. Async
//!   code on a runtime's thread would block the loop: it panics, and names the `_async` method.
//!
//! ```
//! use ringloop_coro::sync::{Mutex, WaitGroup, channel};
//! use std::sync::Arc;
//!
//! ringloop_coro::start(2, || {
//!     let (sender, receiver) = channel::bounded(4);
//!     let (sum, group) = (Arc::new(Mutex::new(0)), WaitGroup::new());
//!     for _ in 0..3 {
//!         let (receiver, sum, group) = (receiver.clone(), Arc::clone(&sum), group.clone());
//!         drop(ringloop_coro::spawn(move || {
//!             for number in receiver {
//!                 *sum.lock() += number;
//!             }
//!             drop(group);
//!         }));
//!     }
//!     for number in 1..=100 {
//!         sender.send(number).unwrap();
//!     }
//!     drop(sender);
//!     group.wait();
//!     assert_eq!(*sum.lock(), 5050);
//! })?;
//! # Ok::<(), ringloop::Error>(())
//! ```

mod barrier;
pub mod broadcast;
pub mod channel;
mod condvar;
mod mutex;
mod once;
pub mod oneshot;
mod rwlock;
mod semaphore;
mod waiters;
pub mod watch;

pub use barrier::{Barrier, BarrierWaitResult, WaitGroup};
pub use condvar::{Condvar, WaitTimeoutResult};
pub use mutex::{Mutex, MutexGuard};
pub use once::OnceLock;
pub use rwlock::{RwLock, RwLockReadGuard, RwLockWriteGuard};
pub use semaphore::{Permit, Semaphore};

/// Tells coroutines and tasks to stop: wait by `block_on(token.cancelled())`, or in `select!`.
pub use ringloop::sync::CancellationToken;
