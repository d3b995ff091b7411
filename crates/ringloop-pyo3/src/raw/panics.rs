//! Panics, which end at the table: unwinding does not cross it (contract 7).

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

use pyo3::PyErr;
use pyo3::exceptions::PyRuntimeError;

/// A panic in a destructor or a waker has nowhere to go: the hook has shown it.
pub fn contained(body: impl FnOnce()) {
    drop(catch_unwind(AssertUnwindSafe(body)));
}

/// The exception of a future that has panicked.
pub fn panicked(payload: &(dyn Any + Send)) -> PyErr {
    let text = payload.downcast_ref::<&str>().copied();
    let text = text.or_else(|| payload.downcast_ref::<String>().map(String::as_str));
    let text = text.unwrap_or("no message");
    PyRuntimeError::new_err(format!("a Rust future panicked: {text}"))
}
