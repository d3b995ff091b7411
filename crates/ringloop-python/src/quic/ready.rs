//! `Ready`: a completed awaitable, for calls that need not wait.
//!
//! Called by: streams, for `drain()` and `send()` if there is room. An endpoint has one for all
//! such calls: it has no state, and completes at each first step.

use pyo3::exceptions::{PyBaseException, PyStopIteration};
use pyo3::prelude::*;

use crate::ffi::{Fallible, Raise as _};

/// A coroutine (`collections.abc.Coroutine`) that ends at its first step, with None.
#[pyclass(frozen, module = "ringloop._native.quic")]
pub struct Ready;

#[pymethods]
impl Ready {
    fn __await__<'py>(slf: &Bound<'py, Self>) -> Bound<'py, Self> {
        slf.clone()
    }

    fn __iter__<'py>(slf: &Bound<'py, Self>) -> Bound<'py, Self> {
        slf.clone()
    }

    /// None: it is complete.
    #[expect(clippy::unused_self)]
    fn __next__(&self) -> Option<Py<PyAny>> {
        None
    }

    /// As `__next__`.
    #[expect(clippy::unused_self)]
    #[pyo3(signature = (value, /))]
    fn send(&self, value: &Bound<'_, PyAny>) -> PyResult<()> {
        let _ = value;
        Err(PyStopIteration::raise_bare())
    }

    /// Raise the exception: a completed awaitable cannot handle it.
    #[expect(clippy::unused_self)]
    #[pyo3(signature = (typ, val=None, tb=None, /))]
    fn throw(
        &self,
        typ: Bound<'_, PyAny>,
        val: Option<Bound<'_, PyAny>>,
        tb: Option<Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        drop(tb);
        let raised = match val {
            Some(val) if !val.is_instance_of::<PyBaseException>() => typ.call1((val,))?,
            Some(val) => val,
            None => typ,
        };
        Err(PyErr::from_value(raised))
    }

    /// Do nothing: it is complete.
    #[expect(clippy::unused_self)]
    fn close(&self) {}

    #[expect(clippy::unused_self)]
    fn __repr__(&self) -> Fallible<&'static str> {
        Fallible("<Ready>")
    }
}
