//! Stackful coroutines on [ringloop]: code that looks blocking, and parks only itself.
//!
//! A coroutine is a closure with a stack of its own. To wait, it polls a future on that stack
//! ([`block_on`]) and leaves the stack until it is woken. A wait allocates nothing, and a coroutine
//! can wait for everything that `ringloop` can await.
//!
//! ```
//! use std::time::Duration;
//!
//! let text = ringloop_coro::start(1, || {
//!     let slow = ringloop_coro::spawn(|| {
//!         ringloop_coro::sleep(Duration::from_millis(2));
//!         "world"
//!     });
//!     let quick = ringloop_coro::spawn(|| "hello");
//!     format!("{} {}", quick.join().unwrap(), slow.join().unwrap())
//! })?;
//! assert_eq!(text, "hello world");
//! # Ok::<(), ringloop::Error>(())
//! ```

// Below the public modules, from the top down: scope ▸ runtime ▸ join, coop ▸ wait ▸ scheduler ▸
// workers, inbox ▸ switch ▸ stack, parked_op, task

mod atomics;
mod coop;
mod deadlock;
mod error;
pub mod event;
pub mod fs;
mod inbox;
mod join;
pub mod limits;
mod local;
pub mod net;
mod offload;
mod overflow;
mod parked_op;
pub mod process;
mod runtime;
mod scheduler;
mod scope;
mod select;
mod shared_fd;
pub mod signal;
mod stack;
mod switch;
pub mod sync;
mod sys;
mod task;
pub mod time;
mod unwind;
mod wait;
mod workers;

#[doc(no_inline)]
pub use ringloop;

pub use error::{JoinError, WaitError};
pub use join::JoinHandle;
pub use local::LocalKey;
pub use offload::offload;
pub use runtime::{Builder, Spawn, Spawner, name, spawn, spawn_local, spawner, start};
pub use scope::{Scope, ScopedJoinHandle, scope};
pub use wait::{block_on, is_coroutine, sleep, try_block_on, yield_now};

/// The examples of the readme of the repository and of the guide are compiled with the tests.
#[cfg(doctest)]
mod readme {
    #[doc = include_str!("../../../README.md")]
    mod of_the_repository {}
    #[doc = include_str!("../../../docs/coroutines.md")]
    mod guide {}
}
