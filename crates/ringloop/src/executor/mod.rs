//! Layer 3: one turn of the loop, and the tasks that run in it.
//!
//! Owns: [`Engine`] (driver, timers and the flag by which other threads wake it), [`Local`] (an
//! engine with its tasks) and [`Runtime`] (a thread's own loop around a `Local`). Called by:
//! applications through [`Runtime`]; embedders, which run the turn themselves, through [`Local`]
//! and [`Engine`]. Makes no system call, and has no I/O policy.
//!
//! One turn: due timers → ready tasks, within a budget → submit and wait → reap → deliver. A
//! completion goes to one of the sinks of `driver::Sink`.
//!
//! Byte path: from [`Engine::next_event`] to the embedder's handler, or to the task that is woken.

mod futures;
mod runtime;
mod sync;
mod task;

pub use futures::blocking::{Blocking, spawn_blocking};
pub use futures::link::{Chain, First, Limited, Link, Linked, ReadThenWrite, Step, Then};
pub(crate) use futures::multi::Multi;
pub(crate) use futures::operation::Flight;
pub use futures::operation::Op;
pub use futures::received::Received;
pub use futures::recv_into::RecvInto;
pub use futures::zero_copy::{Returned, SendZeroCopy, ZeroCopyBufs};
pub use runtime::builder::{Builder, Runtime};
pub use runtime::engine::{Engine, Options};
pub(crate) use runtime::local::StartMode;
pub use runtime::local::{Entered, Local, spawn};
pub(crate) use runtime::loop_fd::LoopFd;
pub(crate) use runtime::timer::TimerKey;
pub use runtime::timer::Timers;
pub(crate) use runtime::weak::WeakLocal;
pub use runtime::workers::{Workers, spawn_on, worker};
pub use task::error::JoinError;
pub use task::inbox::Inbox;
pub use task::join::JoinHandle;
#[cfg(feature = "task-dump")]
pub use task::listed::{TaskInfo, dump};
pub(crate) use task::listed::{listed, waiting};
pub use task::park::Unpark;
pub use task::remote::RemoteJoinHandle;
