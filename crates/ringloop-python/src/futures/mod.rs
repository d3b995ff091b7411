//! Rust futures on the loop's own thread and ring, as Python awaitables, and the other way.
//!
//! Owns: what stands between a task of the engine and an asyncio future. Called by: `fs`, and other
//! extensions by the capsule. A future here is a task of the loop's [`Local`](ringloop::embed::Local), so all of
//! `ringloop::{net, fs, time}` works in it. It is polled while no cell of the loop is open and may call
//! Python; it need not be `Send`.
//!
//! * It is polled once at once. If it is ready the caller's coroutine is not suspended, and `fs` needs no
//!   asyncio future ([`Started::Done`]).
//! * Otherwise it goes on in the loop's turns, after the completions. Cancelling the asyncio future
//!   drops it, in the next turn at the latest.
//! * Later polls run in a copy of the caller's context ([`start::future_into_py`]), or in none
//!   ([`start()`]: for futures that do not call Python).
//! * A panic becomes a `RuntimeError`.
//! * It never leaves its thread: closing the loop there drops it; a loop that is dropped in another
//!   thread leaks it; a child process abandons it with the engine.
//!
//! | file        | contents                                                  |
//! |-------------|-----------------------------------------------------------|
//! | `start`     | starting and polling a future                             |
//! | `promise`   | the result's way to an asyncio future, and the cancel back |
//! | `awaitable` | awaiting a Python object from Rust                        |
//! | `exported`  | all of it for other extensions (decision 25)              |

mod awaitable;
mod exported;
mod promise;
mod start;

use pyo3::prelude::*;

pub use promise::Started;
pub use start::{start, start_owning};

/// Creates the types and functions.
pub fn initialise(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<promise::Canceller>()?;
    module.add_class::<awaitable::Done>()?;
    exported::initialise(module)
}
