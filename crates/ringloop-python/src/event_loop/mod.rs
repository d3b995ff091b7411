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
//! | `clock`      | what timers go by                                                         |
//! | `handlers`, `watchers` | who gets a completion; `add_reader` and `add_writer`            |
//! | `engine`     | the engine behind its cell                                                |
//! | `exceptions`, `debug`  | a callback's error; slow callbacks and source tracebacks        |

mod callback;
mod clock;
mod core;
mod debug;
mod engine;
mod exceptions;
mod handle;
pub(crate) mod handlers;
mod host;
mod ready;
mod schedule;
mod threadsafe;
mod timers;
mod turn;
mod watchers;

pub use core::LoopCore;
pub use handlers::{Behaviour, Handler};
pub(crate) use host::Watch;

use pyo3::prelude::*;
use pyo3::types::IntoPyDict;

use crate::ffi;

/// Make the types and put the fast methods on the class.
pub fn initialise(module: &Bound<'_, PyModule>) -> PyResult<()> {
    let py = module.py();
    ffi::calibrate(py)?;
    handle::create_types(module)?;
    let after_fork = wrap_pyfunction!(engine::after_fork, module)?;
    let keywords = [("after_in_child", after_fork)].into_py_dict(py)?;
    py.import("os")?
        .call_method("register_at_fork", (), Some(&keywords))?;
    schedule::install(py)
}
