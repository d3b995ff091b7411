//! What all transports of a loop have in common.
//!
//! Owns: nothing; each transport holds the parts that it needs. Called by: `stream`, `datagram`,
//! `pipe`, `tls` and `streams`, which are built on it. No file here knows one of those.
//!
//! | file      | contents                                                                    |
//! |-----------|-----------------------------------------------------------------------------|
//! | `base`    | protocol, state, context and endings                                        |
//! | `thread`  | the loop's thread, and calls from other threads                             |
//! | `flow`, `marks` | when the protocol is told to stop writing                             |
//! | `queue`   | bytes to be sent                                                            |
//! | `socket`  | a socket's registration with the loop, its creation and its end             |
//! | `gather`  | whether a write may wait for the end of the turn                            |
//! | `address` | addresses in Python's form and the kernel's                                 |
//! | `reader`  | how bytes reach the protocols of native streams                             |

pub(crate) mod address;
pub(crate) mod base;
pub(crate) mod flow;
pub(crate) mod gather;
pub(crate) mod marks;
pub(crate) mod queue;
pub(crate) mod reader;
pub(crate) mod socket;
pub(crate) mod thread;
