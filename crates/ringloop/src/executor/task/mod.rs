//! Tasks: their memory, their wakers, and what other threads send to them.
//!
//! Reading order: [`core`] a task ▸ [`hub`] where a loop's tasks meet ▸ [`join`] and [`remote`] their results ▸ [`inbox`] and
//! [`park`] what other threads send, and how they wake a loop.
//! Never does: know a driver, an operation or a loop's turn.

pub(crate) mod core;
pub(crate) mod count;
pub(crate) mod error;
pub(crate) mod hub;
pub(crate) mod inbox;
pub(crate) mod join;
pub(crate) mod knock;
pub(crate) mod owned;
pub(crate) mod park;
pub(crate) mod remote;
pub(crate) mod waiter;
