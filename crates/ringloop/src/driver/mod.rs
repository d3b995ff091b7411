//! Layer 2: the drivers, which carry operations to the kernel and completions back.
//!
//! Owns: the choice of driver, the in-flight table, and the words both drivers share
//! ([`Key`], [`Token`], [`Sink`], [`Completion`], [`Event`]).
//! Called by: `executor`, one turn after another, always on the thread that bound the driver.
//! Never does: call out, except to wake a waker; run timers or tasks.
//!
//! Byte path: from `sys::uring` (a completion) to an [`Event`] for the embedder's handler.
//!
//! Both drivers keep one contract:
//! * a submitted request is owned by the driver until its last completion, which gives it back;
//! * `more` on a completion promises another one; a driver re-arms multishot operations itself, so
//!   that only an error, the end of a stream or a cancel ends them;
//! * after `cancel` the last completion still comes, with `ECANCELED` or with the result that won;
//! * after `forget` none comes; what the kernel still holds is kept, and what it yields is closed.

mod blocking_pool;
mod completion;
mod either;
mod inherited;
mod lease;
mod lent;
mod open;
mod pool;
mod readiness;
mod results;
mod setup;
mod table;
mod uring;
mod working;

pub(crate) use blocking_pool::{BlockingPool, Call, Place};
pub use completion::{BufferId, Completion, Event, Sink, Token};
pub use either::Driver;
pub(crate) use lease::Lease;
pub(crate) use setup::Setup;

pub use crate::choice::{Choice, Kind};
pub use crate::op::Key;
