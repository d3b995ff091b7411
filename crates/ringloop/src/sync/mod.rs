//! Channels and locks for tasks, on one thread or between threads.
//!
//! Owns: [`mpsc`] and [`oneshot`] channels, [`Mutex`], [`Semaphore`], [`Notify`]. Called by: tasks of
//! any runtime, since they use `Waker` only. A thread is blocked for a few instructions at most.
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

mod channel;
mod mutex;
mod notify;
mod once;
mod place;
mod semaphore;
mod waiters;

pub use place::{AnyThread, OneThread, Place};

pub use mutex::MutexGuard;
pub use notify::Notified;
pub use semaphore::{Acquire, Permit};

/// The types of a place.
macro_rules! types_of {
    ($place:ident) => {
        /// A lock for a value that tasks change, which may be held across `await`.
        pub type Mutex<T> = $crate::sync::mutex::Mutex<T, $crate::sync::$place>;
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

types_of!(AnyThread);

/// The same for one thread: no lock, and not `Send`.
pub mod local {
    types_of!(OneThread);
}
