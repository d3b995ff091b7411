//! Tasks: their memory, their wakers, and what other threads send to them.
//!
//! Reading order: [`core`] a task ▸ [`hub`] the state that a loop's tasks share ▸ [`join`] and
//! [`remote`] their results ▸ [`inbox`] and [`park`] messages of other threads, and how they wake a
//! loop. Knows no drivers, operations or turns.

pub(crate) mod core;
pub(crate) mod count;
pub(crate) mod error;
pub(crate) mod hub;
pub(crate) mod inbox;
pub(crate) mod join;
pub(crate) mod listed;
pub(crate) mod owned;
pub(crate) mod park;
pub(crate) mod remote;
pub(crate) mod remote_wake;
mod stage;
pub(crate) mod waiter;
