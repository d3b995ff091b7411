//! Layer 2: the drivers, which carry operations to the kernel and completions back.
//!
//! Owns: the choice of driver, the in-flight table, and the types both drivers share ([`Key`],
//! [`Token`], [`Sink`], [`Completion`], [`Event`]). Called by: `executor`, once per turn, always on
//! the thread that bound the driver. Calls nothing but wakers; runs no timers or tasks.
//!
//! Byte path: from `sys::uring` (a completion) to an [`Event`] for the embedder's handler.
//!
//! Both drivers keep one contract:
//! * a submitted request is owned by the driver until its last completion, which returns it;
//! * `more` on a completion promises another one; a driver re-arms multishot operations itself, so that
//!   only an error, the end of a stream or a cancel ends them;
//! * after `cancel` the last completion still comes, with `ECANCELED` or the operation's own result;
//! * after `forget` none comes; the driver keeps what the kernel still uses, and closes what it yields.

mod blocking_pool;
mod completion;
mod either;
mod open;
mod provided;
mod readiness;
mod results;
mod table;
mod uring;
mod watches;
mod working;

pub(crate) use blocking_pool::{BlockingPool, Call, RoomWaiter};
pub use completion::{Completion, Event, Sink, Token};
pub use either::Driver;

pub use crate::choice::{Choice, Kind};
pub use crate::op::Key;
