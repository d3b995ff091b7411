//! Finding ringloop's table.
//!
//! Invariants:
//! 1. The capsule of that name holds a table that is never freed, and every version begins with a `Head`
//!    (contract 1).
//! 2. The whole table is read only if its version and its size are what this crate was built for.

use std::ffi::CStr;
use std::sync::OnceLock;

use pyo3::exceptions::PyImportError;
use pyo3::prelude::*;
use pyo3::types::PyCapsule;
use ringloop_abi::{CAPSULE, Head, Table, VERSION};

static TABLE: OnceLock<&'static Table> = OnceLock::new();

/// The table, once it was loaded.
pub fn loaded() -> Option<&'static Table> {
    TABLE.get().copied()
}

/// The table.
///
/// # Errors
/// `ImportError` with the versions and what to do.
pub fn load(py: Python<'_>) -> PyResult<&'static Table> {
    if let Some(table) = loaded() {
        return Ok(table);
    }
    let found = find(py)?;
    Ok(TABLE.get_or_init(|| found))
}

fn find(py: Python<'_>) -> PyResult<&'static Table> {
    let remedy = format!(
        "this extension uses ringloop's event loop by version {VERSION} of its table, {} bytes: \
         pip install --upgrade 'ringloop>={}'",
        size_of::<Table>(),
        env!("CARGO_PKG_VERSION"),
    );
    let refused = |why: String, cause: Option<PyErr>| {
        let error = PyImportError::new_err(format!("{why}; {remedy}"));
        error.set_cause(py, cause);
        error
    };
    let package = py
        .import("ringloop")
        .map_err(|error| refused(format!("cannot import ringloop ({error})"), Some(error)))?;
    let pointer = PyCapsule::import_pointer(py, CAPSULE).map_err(|error| {
        let installed = package.getattr("__version__").map(|version| version.to_string());
        let installed = installed.unwrap_or_else(|_| "of an unknown version".to_owned());
        let name = CAPSULE.to_string_lossy();
        refused(format!("the installed ringloop {installed} has no {name}"), Some(error))
    })?;
    // SAFETY: invariant 1.
    let Head { version, size, release } = unsafe { *pointer.cast::<Head>().as_ptr() };
    // SAFETY: invariant 1: text that is never freed.
    let release = unsafe { CStr::from_ptr(release) }.to_string_lossy();
    if version != VERSION || (size as usize) < size_of::<Table>() {
        let why = format!("the installed ringloop {release} has version {version}, {size} bytes");
        return Err(refused(why, None));
    }
    // SAFETY: invariants 1 and 2.
    Ok(unsafe { pointer.cast::<Table>().as_ref() })
}
