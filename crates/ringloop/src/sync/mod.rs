//! Channels and locks for tasks, on one thread or between threads.
//!
//! Owns: [`mpsc`], [`oneshot`], [`broadcast`] and [`watch`] channels, [`Mutex`], [`RwLock`],
//! [`Semaphore`], [`Notify`], [`Barrier`], [`CancellationToken`]. Called by: tasks of any runtime, since
//! they use `Waker` only. A thread is blocked for a few instructions at most.
//!
//! Each exists twice, with the same methods: here between threads, and in [`local`] for one thread,
//! without locks, not `Send`, and faster:
//!
//! | | between threads | on one thread |
//! |---|---|---|
//! | the state is | behind a lock that is held for a few instructions | in a cell |
//! | handles are | `Arc`, [`Send`] where the values are | `Rc` |
//! | an uncontended `Mutex` costs | two exchanges of a byte | two of a cell |
//! | a send to a waiting receiver costs | a lock, and a notification if that loop sleeps | a push on two queues |
//!
//! Waiters are served first in, first out (`waiters`). Every wait is cancel safe: the grant of a dropped
//! wait goes to the next waiter.
//!
//! ```
//! use ringloop::sync::local::mpsc;
//! # ringloop::Runtime::new()?.block_on(async {
//! let (sender, mut receiver) = mpsc::channel(16);
//! ringloop::spawn(async move {
//!     for number in 0..3 {
//!         if sender.send(number).await.is_err() {
//!             return; // the receiver is dropped
//!         }
//!     }
//! });
//! let mut sum = 0;
//! while let Some(number) = receiver.recv().await {
//!     sum += number;
//! }
//! assert_eq!(sum, 3);
//! # })?;
//! # Ok::<(), ringloop::Error>(())
//! ```
//! A local one stays on its thread:
//! ```compile_fail,E0277
//! fn may_leave_the_thread<T: Send>(_: T) {}
//! may_leave_the_thread(ringloop::sync::local::mpsc::channel::<u8>(1));
//! ```
//! One between threads carries `Send` values only:
//! ```compile_fail,E0277
//! fn may_leave_the_thread<T: Send>(_: T) {}
//! may_leave_the_thread(ringloop::sync::mpsc::channel::<std::rc::Rc<u8>>(1));
//! ```

mod barrier;
mod cancel;
mod channel;
mod fan_out;
mod latest;
mod mutex;
mod notify;
mod once;
mod place;
mod rwlock;
mod semaphore;
mod wait;
mod waiters;

#[cfg(all(test, loom))]
mod loom_tests;

pub use place::{AnyThread, OneThread, Place};

pub use barrier::{BarrierWait, BarrierWaitResult};
pub use cancel::{Cancelled, DropGuard};
pub use mutex::MutexGuard;
pub use notify::Notified;
pub use rwlock::{RwLockReadGuard, RwLockWriteGuard};
pub use semaphore::{Acquire, Permit};

/// The types of a place.
macro_rules! types_of {
    ($place:ident, $path:literal) => {
        /// A lock for a value that tasks change, which may be held across `await`.
        pub type Mutex<T> = $crate::sync::mutex::Mutex<T, $crate::sync::$place>;
        /// A value with many readers or one writer, which may be held across `await`.
        pub type RwLock<T> = $crate::sync::rwlock::RwLock<T, $crate::sync::$place>;
        /// A point where a number of tasks wait for each other.
        pub type Barrier = $crate::sync::barrier::Barrier<$crate::sync::$place>;
        /// Tells tasks to stop; children are told with their parents.
        pub type CancellationToken = $crate::sync::cancel::CancellationToken<$crate::sync::$place>;
        /// Permits that tasks acquire and release.
        pub type Semaphore = $crate::sync::semaphore::Semaphore<$crate::sync::$place>;
        /// Notifies tasks.
        pub type Notify = $crate::sync::notify::Notify<$crate::sync::$place>;

        /// Channels of many senders and one receiver.
        pub mod mpsc {
            pub use channel::{SendError, TryRecvError, TrySendError};
            use $crate::sync::{channel, semaphore, $place};

            /// Sends to a channel; a clone sends to the same channel.
            pub type Sender<T> = channel::Sender<T, $place>;
            /// Receives from a channel.
            pub type Receiver<T> = channel::Receiver<T, $place>;

            /// A channel for at most `capacity` values (at least 1): a sender waits while it is full.
            pub fn channel<T>(capacity: usize) -> (Sender<T>, Receiver<T>) {
                channel::channel(capacity)
            }

            /// A channel whose senders never wait. Bound its values by other means.
            pub fn unbounded<T>() -> (Sender<T>, Receiver<T>) {
                channel::channel(semaphore::PERMITS_MAX)
            }
        }

        /// Channels of many senders and many receivers, each of which gets every value.
        ///
        /// ```
        /// # ringloop::Runtime::new()?.block_on(async {
        #[doc = concat!("use ringloop::sync::", $path, "broadcast::{self, RecvError};")]
        /// let (sender, mut one) = broadcast::channel(2);
        /// let mut other = sender.subscribe();
        /// for number in 1..=3 {
        ///     sender.send(number).unwrap();
        ///     assert_eq!(one.recv().await, Ok(number));
        /// }
        /// assert_eq!(other.recv().await, Err(RecvError::Lagged(1)));
        /// assert_eq!(other.recv().await, Ok(2));
        /// # })?;
        /// # Ok::<(), ringloop::Error>(())
        /// ```
        pub mod broadcast {
            pub use fan_out::RecvError;
            pub use $crate::sync::channel::SendError;
            use $crate::sync::{fan_out, $place};

            /// Sends to all receivers; a clone sends to the same channel.
            pub type Sender<T> = fan_out::Sender<T, $place>;
            /// Receives every value that is sent from its creation on.
            pub type Receiver<T> = fan_out::Receiver<T, $place>;

            /// A channel that keeps at most `capacity` values (at least 1) for slow receivers.
            pub fn channel<T>(capacity: usize) -> (Sender<T>, Receiver<T>) {
                fan_out::channel(capacity)
            }
        }

        /// A value that changes, and tasks that wait for its changes.
        ///
        /// ```
        /// # ringloop::Runtime::new()?.block_on(async {
        #[doc = concat!("use ringloop::sync::", $path, "watch;")]
        /// let (sender, mut receiver) = watch::channel("starting");
        /// ringloop::spawn(async move {
        ///     sender.send("ready").unwrap();
        /// });
        /// let state = receiver.wait_for(|state| *state == "ready").await.unwrap();
        /// assert_eq!(*state, "ready");
        /// assert!(receiver.changed().await.is_err(), "the sender is dropped");
        /// # })?;
        /// # Ok::<(), ringloop::Error>(())
        /// ```
        pub mod watch {
            pub use latest::Closed;
            pub use $crate::sync::channel::SendError;
            use $crate::sync::{latest, $place};

            /// Changes the value; a clone changes the same.
            pub type Sender<T> = latest::Sender<T, $place>;
            /// Reads the value and waits for changes; a clone has seen what its original has.
            pub type Receiver<T> = latest::Receiver<T, $place>;

            /// A value, which the receiver has seen.
            pub fn channel<T>(value: T) -> (Sender<T>, Receiver<T>) {
                latest::channel(value)
            }
        }

        /// Channels for one value.
        pub mod oneshot {
            pub use once::Dropped;
            use $crate::sync::{once, $place};

            /// Sends the value.
            pub type Sender<T> = once::Sender<T, $place>;
            /// Waits for the value.
            pub type Receiver<T> = once::Receiver<T, $place>;

            /// A channel for one value.
            pub fn channel<T>() -> (Sender<T>, Receiver<T>) {
                once::channel()
            }
        }
    };
}

types_of!(AnyThread, "");

/// The same for one thread: no lock, and not `Send`.
pub mod local {
    types_of!(OneThread, "local::");
}
