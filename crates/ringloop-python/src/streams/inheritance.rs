//! What the three classes have in common: they are made of asyncio's, and call its methods.
//!
//! Called by: the files of this folder.

use pyo3::exceptions::{PyBaseException, PyTypeError};
use pyo3::prelude::*;
use pyo3::types::{PyString, PyType};

use crate::ffi::{self, Argument, Core, Members, Obj, Raise as _, ShellRef, intern};

/// Makes the class of a core.
pub(super) fn shell<'py, T: Core>(
    base: &Bound<'py, PyType>,
    name: &Bound<'py, PyString>,
    members: Members<T>,
) -> PyResult<Bound<'py, PyType>> {
    let py = base.py();
    let attributes = ffi::new_dict(py)?;
    attributes.set_item(intern!(py, "__module__"), intern!(py, "ringloop._native"))?;
    attributes.set_item(intern!(py, "__doc__"), base.getattr(intern!(py, "__doc__"))?)?;
    T::shell().create(base, name, &attributes, members)
}

/// Calls the method of asyncio's own class.
pub(super) fn inherited<T: Core>(
    this: ShellRef<'_, '_, T>,
    method: &Bound<'_, PyString>,
    arguments: &[Argument<'_, '_>],
) -> PyResult<Obj> {
    let py = this.py();
    let Some(class) = T::shell().class(py) else {
        return Err(PyTypeError::raise("the class was not created"));
    };
    let base = class.getattr(intern!(py, "__base__"))?;
    let all = std::iter::once(this.object().to_owned());
    let all: Vec<_> = all.chain(arguments.iter().map(|argument| (*argument).to_owned())).collect();
    base.call_method1(method, ffi::new_tuple(py, all.into_iter())?).map(Obj::from)
}

/// The exception of a `throw()`.
pub(super) fn thrown(typ: Argument<'_, '_>, val: Option<Argument<'_, '_>>) -> PyErr {
    let raised = match val.filter(|val| !val.is_none()) {
        Some(val) if val.is_instance_of::<PyBaseException>() => Ok(val.to_owned()),
        Some(val) => typ.call1((val,)),
        None if typ.is_instance_of::<PyBaseException>() => Ok(typ.to_owned()),
        None => typ.call0(),
    };
    match raised {
        Ok(raised) if raised.is_instance_of::<PyBaseException>() => PyErr::from_value(raised),
        Ok(_) => PyTypeError::raise(
            "exceptions must be classes or instances deriving from BaseException",
        ),
        Err(error) => error,
    }
}
