//! asyncio's modules whose globals the loop reads each time, since programs replace some of them
//! (`asyncio.tasks.Task`).
//!
//! Owns: the dictionaries of these modules, from the initialisation on: at the end of the
//! interpreter, where destructors still use loops, nothing can be imported. Called by: `schedule`,
//! `exceptions`, `debug` and `slow`.

use pyo3::exceptions::PyNameError;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyString};

use crate::ffi::Raise as _;

/// A module of asyncio.
pub struct Module {
    name: &'static str,
    globals: PyOnceLock<Py<PyDict>>,
}

pub static BASE_EVENTS: Module = Module::of("asyncio.base_events");
pub static FORMAT_HELPERS: Module = Module::of("asyncio.format_helpers");
pub static FUTURES: Module = Module::of("asyncio.futures");
pub static LOG: Module = Module::of("asyncio.log");
pub static TASKS: Module = Module::of("asyncio.tasks");

/// Finds them all.
pub fn initialise(py: Python<'_>) -> PyResult<()> {
    for module in [&BASE_EVENTS, &FORMAT_HELPERS, &FUTURES, &LOG, &TASKS] {
        module.globals(py)?;
    }
    Ok(())
}

impl Module {
    const fn of(name: &'static str) -> Self {
        Self { name, globals: PyOnceLock::new() }
    }

    fn globals<'py>(&self, py: Python<'py>) -> PyResult<&Bound<'py, PyDict>> {
        let load = || Ok::<_, PyErr>(py.import(self.name)?.dict().unbind());
        Ok(self.globals.get_or_try_init(py, load)?.bind(py))
    }

    /// A global of the module.
    ///
    /// # Errors
    /// `NameError` where a program has removed it.
    #[inline]
    pub fn get<'py>(&self, name: &Bound<'py, PyString>) -> PyResult<Bound<'py, PyAny>> {
        self.globals(name.py())?
            .get_item(name)?
            .ok_or_else(|| PyNameError::raise(format!("name '{name}' is not defined")))
    }
}
