//! The event loop: scheduling, the turn, and routing of completions.
//!
//! Owns: the ready ring, timers, inbox, handlers and engine of one loop ([`LoopCore`]). Called by:
//! `ringloop.Loop`, the Python class on top, and by transports (`handlers`). Work done once per
//! connection is left to Python or the standard library.
//!
//! | file         | contents                                                                  |
//! |--------------|---------------------------------------------------------------------------|
//! | `core`       | the class and its state                                                   |
//! | `methods`    | its rare methods                                                          |
//! | `schedule`   | `call_soon`, `call_later`, `create_task`, …: once per callback            |
//! | `turn`       | one turn: park, dispatch, timers, inbox, ready                            |
//! | `handle`, `threadsafe`, `callback` | a scheduled callback                                |
//! | `contexts`           | the contexts in which a turn runs callbacks                       |
//! | `ready`, `timers`, `inbox` | the queues                                                  |
//! | `outward`    | operations that make unsent writes observable                             |
//! | `give_way`   | releases the interpreter to other threads                                 |
//! | `at_once`    | how long operations may complete at once in a turn                        |
//! | `clock`      | clock of the timers                                                       |
//! | `handlers`   | routing of completions; steps that lacked memory for a callback           |
//! | `watched`, `watchers` | `add_reader` and `add_writer`                                    |
//! | `engine`     | the engine behind its cell                                                |
//! | `exceptions`, `debug`, `slow` | a callback's error; source tracebacks; slow callbacks     |
//! | `pulse`, `meters`, `observe` | what other threads may read of a running loop             |

mod at_once;
mod callback;
mod clock;
mod contexts;
mod core;
mod debug;
mod engine;
pub(crate) mod exceptions;
mod give_way;
mod handle;
pub(crate) mod handlers;
mod host;
mod inbox;
mod meters;
mod methods;
mod observe;
mod outward;
mod pulse;
mod ready;
mod schedule;
mod slow;
mod standard;
mod threadsafe;
mod timers;
mod turn;
mod watched;
mod watchers;

pub use core::LoopCore;
pub use engine::forks;
pub(crate) use handlers::{Completes, Watch};
pub use handlers::{Flush, Handler};
pub(crate) use host::poll;
pub(crate) use pulse::Shared;

use pyo3::prelude::*;

use crate::ffi::{self, Payload as _, intern};
use handle::{Handle, TimerHandle};
use threadsafe::ThreadSafeHandle;

/// Creates the types and puts the fast methods on the class.
pub fn initialise(module: &Bound<'_, PyModule>) -> PyResult<()> {
    let py = module.py();
    ffi::calibrate(py)?;
    standard::initialise(py)?;
    let events = py.import(intern!(py, "asyncio.events"))?;
    let base = events.getattr(intern!(py, "Handle"))?;
    module.add("Handle", Handle::native().create(py, base.cast()?)?)?;
    let base = events.getattr(intern!(py, "TimerHandle"))?;
    module.add("TimerHandle", TimerHandle::native().create(py, base.cast()?)?)?;
    // From 3.14 on.
    if let Some(base) = events.getattr_opt(intern!(py, "_ThreadSafeHandle"))? {
        let class = ThreadSafeHandle::native().create(py, base.cast()?)?;
        module.add("_ThreadSafeHandle", class)?;
    }
    module.add_function(wrap_pyfunction!(observe::pulses, module)?)?;
    module.add_function(wrap_pyfunction!(observe::call_stacks, module)?)?;
    schedule::install(py)
}
