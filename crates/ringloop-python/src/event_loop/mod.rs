//! The event loop: scheduling, the turn, and where completions go.
//!
//! Owns: the ready ring, timers, inbox, handlers and engine of one loop ([`LoopCore`]).
//! Called by: `ringloop.Loop`, the Python class on top, and by transports (`handlers`).
//! Never does: anything that runs once a connection; that is Python's, or the standard library's.
//!
//! | file         | what it is                                                                |
//! |--------------|---------------------------------------------------------------------------|
//! | `core`       | the class, its state and what runs rarely                                 |
//! | `schedule`   | `call_soon`, `call_later`, `create_task`, … : what runs once a callback   |
//! | `turn`       | one turn: park, dispatch, timers, inbox, ready                            |
//! | `handle`, `threadsafe`, `callback` | what a scheduled callback is                        |
//! | `ready`, `timers`    | the queues                                                        |
//! | `outward`    | what a program does that shows whether its writes have left                |
//! | `give_way`   | the interpreter for other threads                                         |
//! | `clock`      | what timers go by                                                         |
//! | `handlers`, `watchers` | who gets a completion; `add_reader` and `add_writer`            |
//! | `engine`     | the engine behind its cell                                                |
//! | `owed`       | what transports are owed where there was no memory for a callback         |
//! | `exceptions`, `debug`  | a callback's error; slow callbacks and source tracebacks        |

mod callback;
mod clock;
mod core;
mod debug;
mod engine;
pub(crate) mod exceptions;
mod give_way;
mod handle;
pub(crate) mod handlers;
mod host;
mod outward;
mod owed;
mod ready;
mod schedule;
mod threadsafe;
mod timers;
mod turn;
mod watchers;

pub use core::LoopCore;
pub use engine::forks;
pub(crate) use handlers::Completes;
pub use handlers::{Flush, Handler};
pub(crate) use host::Watch;
pub(crate) use owed::Pay;

use pyo3::prelude::*;

use crate::ffi;

/// Make the types and put the fast methods on the class.
pub fn initialise(module: &Bound<'_, PyModule>) -> PyResult<()> {
    let py = module.py();
    ffi::calibrate(py)?;
    handle::create_types(module)?;
    schedule::install(py)
}
