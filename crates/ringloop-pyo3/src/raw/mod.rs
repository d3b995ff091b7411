//! The table, behind safe types: the only folder of this crate with `unsafe` code.
//!
//! Called by: every other module of the crate. The contract that its files name is the one of
//! [`ringloop_abi`].
//!
//! | file        | contents                                        |
//! |-------------|-------------------------------------------------|
//! | `table`     | finding the table, and judging its version      |
//! | `operation` | a future of ringloop's, and its output          |
//! | `task`      | a future of ours, on its way to the loop        |
//! | `waker`     | wakers, in both directions                      |
//! | `memory`    | buffers that an operation has                   |
//! | `panics`    | where they end                                  |
//! | `tcp`       | a connection's handle                           |

mod memory;
mod operation;
mod panics;
mod table;
mod task;
mod tcp;
mod waker;

pub use operation::{Operation, no_loop};
pub use table::load;
pub use task::start;
pub use tcp::Tcp;
