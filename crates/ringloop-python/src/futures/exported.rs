//! What other extension modules get of the loop: the capsule `ringloop._native.embed_v1`.
//!
//! Called by: their code, through the table of `ffi/exported.rs`.

use std::future::Future;

use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::types::PyCFunction;

use super::{awaitable, start};
use crate::event_loop::LoopCore;
use crate::ffi::{Exports, ForeignCall, Obj, Raise as _, capsule, imported, intern};

struct Exported;

impl Exports for Exported {
    fn future_into_py(py: Python<'_>, future: ForeignCall) -> PyResult<Obj> {
        start::future_into_py(running(py)?.cast::<LoopCore>()?, future)
    }

    fn into_future(
        awaitable: &Bound<'_, PyAny>,
    ) -> PyResult<impl Future<Output = PyResult<Obj>> + 'static> {
        running(awaitable.py())?;
        awaitable::into_future(awaitable)
    }
}

/// The loop that runs in this thread.
fn running(py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
    let current = imported!(py, PyCFunction, "asyncio.events", "_get_running_loop")?.call0()?;
    if current.is_instance_of::<LoopCore>() {
        return Ok(current);
    }
    let found = if current.is_none() {
        "no event loop runs in this thread".to_owned()
    } else {
        format!("the running event loop is {}", current.get_type().fully_qualified_name()?)
    };
    Err(PyRuntimeError::raise(format!(
        "{found}, and a Rust future of this extension needs a loop of ringloop's: call this in a coroutine \
         that runs by ringloop.run(main()) or asyncio.run(main(), loop_factory=ringloop.new_event_loop)"
    )))
}

/// Adds the capsule to the module.
pub fn initialise(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add(intern!(module.py(), "embed_v1"), capsule::<Exported>(module.py())?)
}
