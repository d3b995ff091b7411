//! Futures that a task awaits: operations, links of them, streams of completions, blocking calls.
//!
//! They keep no buffers: the driver owns them from submission to completion.

pub(crate) mod blocking;
pub(crate) mod link;
pub(crate) mod multi;
pub(crate) mod operation;
pub(crate) mod received;
pub(crate) mod recv_into;
pub(crate) mod zero_copy;
