//! The loop: an engine with its tasks, turn after turn, on one thread or several.
//!
//! Reading order: [`local`] the loop ▸ [`builder`] a runtime ▸ [`workers`] its other threads. I/O
//! is in `futures`.

pub(crate) mod builder;
pub(crate) mod busy;
pub(crate) mod engine;
pub(crate) mod large;
pub(crate) mod local;
pub(crate) mod loop_fd;
pub(crate) mod shared;
pub(crate) mod team;
pub(crate) mod timer;
pub(crate) mod turn;
pub(crate) mod weak;
pub(crate) mod workers;
