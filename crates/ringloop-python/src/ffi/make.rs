//! Fallible construction of Python objects.
//!
//! `PyO3`'s constructors of strings, bytes, numbers and containers panic if the interpreter is out
//! of memory, and so do its lazy exceptions once their arguments are made. A loop continues after a
//! `MemoryError`, so everything that runs in one makes its objects here; `tools/check-fallible`
//! forbids the others. Called by every part of the extension.
//!
//! Invariants:
//! 1. Exceptions are made by attached threads.

use std::collections::TryReserveError;
use std::ffi::OsStr;

use pyo3::exceptions::{PyMemoryError, PyOSError};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyBool, PyBytes, PyDict, PyList, PyString, PyTuple, PyType};
use pyo3::{PyTypeInfo, ffi};
use ringloop::embed::sys::{platform, reserve};

use super::names::intern;
use super::object::Obj;
use crate::limits;

/// Takes ownership of a result of the interpreter.
///
/// # Safety
/// `pointer` is a new reference to an object of type `T`, or null with an exception set.
unsafe fn owned<T>(py: Python<'_>, pointer: *mut ffi::PyObject) -> PyResult<Bound<'_, T>> {
    // SAFETY: the caller's contract.
    let object = unsafe { Bound::from_owned_ptr_or_err(py, pointer) }?;
    // SAFETY: the caller's contract.
    Ok(unsafe { object.cast_into_unchecked() })
}

pub fn new_str<'py>(py: Python<'py>, text: &str) -> PyResult<Bound<'py, PyString>> {
    PyString::from_bytes(py, text.as_bytes())
}

/// Makes the `str` of a file's name, as `os.fsdecode` does.
pub fn new_path<'py>(py: Python<'py>, path: &OsStr) -> PyResult<Bound<'py, PyString>> {
    // On Windows UTF-8 with lone surrogates, which is the interpreter's encoding there (PEP 529).
    let bytes = path.as_encoded_bytes();
    let len = bytes.len().cast_signed();
    // SAFETY: the pointer is valid for that length.
    let pointer = unsafe { ffi::PyUnicode_DecodeFSDefaultAndSize(bytes.as_ptr().cast(), len) };
    // SAFETY: the result is a new reference of that type, or null.
    unsafe { owned(py, pointer) }
}

/// Makes a `bytes`. Allocates no GC-tracked object, so it may be called with a cell open.
#[inline]
pub fn new_bytes<'py>(py: Python<'py>, bytes: &[u8]) -> PyResult<Bound<'py, PyBytes>> {
    // SAFETY: the pointer is valid for that length.
    let pointer =
        unsafe { ffi::PyBytes_FromStringAndSize(bytes.as_ptr().cast(), bytes.len().cast_signed()) };
    // SAFETY: the result is a new reference of that type, or null.
    unsafe { owned(py, pointer) }
}

pub fn new_dict(py: Python<'_>) -> PyResult<Bound<'_, PyDict>> {
    // SAFETY: no preconditions.
    let pointer = unsafe { ffi::PyDict_New() };
    // SAFETY: the result is a new reference of that type, or null.
    unsafe { owned(py, pointer) }
}

pub fn new_list(py: Python<'_>) -> PyResult<Bound<'_, PyList>> {
    // SAFETY: no preconditions.
    let pointer = unsafe { ffi::PyList_New(0) };
    // SAFETY: the result is a new reference of that type, or null.
    unsafe { owned(py, pointer) }
}

/// A Rust value that becomes a Python object.
pub trait IntoObject<'py> {
    fn into_object(self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>>;
}

/// Such a value for `PyO3`: as a method's result, an argument or an attribute.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fallible<T>(pub T);

impl<T> From<T> for Fallible<T> {
    fn from(value: T) -> Self {
        Self(value)
    }
}

impl<'a, 'py, T: FromPyObject<'a, 'py>> FromPyObject<'a, 'py> for Fallible<T> {
    type Error = T::Error;

    fn extract(object: Borrowed<'a, 'py, PyAny>) -> Result<Self, Self::Error> {
        T::extract(object).map(Self)
    }
}

impl<'py, T: IntoObject<'py>> IntoPyObject<'py> for Fallible<T> {
    type Target = PyAny;
    type Output = Bound<'py, PyAny>;
    type Error = PyErr;

    fn into_pyobject(self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.0.into_object(py)
    }
}

/// Numbers, with the function that makes each.
macro_rules! numbers {
    ($($type:ty => $make:ident as $wide:ty),* $(,)?) => { $(
        impl<'py> IntoObject<'py> for $type {
            fn into_object(self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
                // SAFETY: no preconditions.
                let pointer = unsafe { ffi::$make(<$wide>::from(self)) };
                // SAFETY: the result is a new reference of that type, or null.
                unsafe { owned(py, pointer) }
            }
        }
    )* };
}

numbers! {
    i32 => PyLong_FromLongLong as i64, i64 => PyLong_FromLongLong as i64,
    u16 => PyLong_FromUnsignedLongLong as u64, u32 => PyLong_FromUnsignedLongLong as u64,
    u64 => PyLong_FromUnsignedLongLong as u64, f64 => PyFloat_FromDouble as f64,
}

impl<'py> IntoObject<'py> for bool {
    fn into_object(self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        Ok(PyBool::new(py, self).to_owned().into_any())
    }
}

impl<'py> IntoObject<'py> for usize {
    fn into_object(self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        (self as u64).into_object(py)
    }
}

impl<'py> IntoObject<'py> for &str {
    fn into_object(self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        new_str(py, self).map(Bound::into_any)
    }
}

impl<'py> IntoObject<'py> for String {
    fn into_object(self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.as_str().into_object(py)
    }
}

impl<'py> IntoObject<'py> for Obj {
    #[inline]
    fn into_object(self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        Ok(self.into_bound(py))
    }
}

impl<'py, T> IntoObject<'py> for Bound<'py, T> {
    #[inline]
    fn into_object(self, _py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        Ok(self.into_any())
    }
}

impl<'py, T: IntoObject<'py>> IntoObject<'py> for Option<T> {
    fn into_object(self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        match self {
            Some(value) => value.into_object(py),
            None => Ok(py.None().into_bound(py)),
        }
    }
}

/// A list.
impl<'py, T: IntoObject<'py>> IntoObject<'py> for Vec<T> {
    fn into_object(self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let list = new_list(py)?;
        for value in self {
            list.append(value.into_object(py)?)?;
        }
        Ok(list.into_any())
    }
}

/// Tuples.
macro_rules! tuples {
    ($(($($type:ident $field:tt),*)),* $(,)?) => { $(
        impl<'py, $($type: IntoObject<'py>),*> IntoObject<'py> for ($($type,)*) {
            fn into_object(self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
                let items = [$(self.$field.into_object(py)?),*];
                new_tuple(py, items.into_iter()).map(Bound::into_any)
            }
        }
    )* };
}

/// An empty tuple; `()` as a method's result is None.
pub struct EmptyTuple;

impl<'py> IntoObject<'py> for EmptyTuple {
    fn into_object(self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        new_tuple(py, std::iter::empty()).map(Bound::into_any)
    }
}

tuples!(
    (A 0),
    (A 0, B 1),
    (A 0, B 1, C 2),
    (A 0, B 1, C 2, D 3),
    (A 0, B 1, C 2, D 3, E 4)
);

/// Makes the `slice` from `start` to the end.
pub fn new_slice(py: Python<'_>, start: usize) -> PyResult<Bound<'_, PyAny>> {
    let start = start.into_object(py)?;
    let null = std::ptr::null_mut();
    // SAFETY: an object, and null, which stands for None.
    let pointer = unsafe { ffi::PySlice_New(start.as_ptr(), null, null) };
    // SAFETY: the result is a new reference of that type, or null.
    unsafe { owned(py, pointer) }
}

/// Makes a class without state of its own, the base of a native type that needs several.
pub fn new_base<'py>(
    name: &Bound<'py, PyString>,
    bases: [Bound<'py, PyAny>; 2],
) -> PyResult<Bound<'py, PyAny>> {
    let py = name.py();
    let members = new_dict(py)?;
    members.set_item(intern!(py, "__slots__"), new_tuple(py, std::iter::empty())?)?;
    members.set_item(intern!(py, "__module__"), intern!(py, "ringloop._native"))?;
    let bases = new_tuple(py, bases.into_iter())?;
    py.get_type::<PyType>().call1((name, bases, members))
}

pub fn new_tuple<'py>(
    py: Python<'py>,
    items: impl ExactSizeIterator<Item = Bound<'py, PyAny>>,
) -> PyResult<Bound<'py, PyTuple>> {
    let len = items.len();
    // SAFETY: no preconditions.
    let pointer = unsafe { ffi::PyTuple_New(len.cast_signed()) };
    // SAFETY: the result is a new reference of that type, or null.
    let tuple = unsafe { owned::<PyTuple>(py, pointer) }?;
    for (index, item) in items.take(len).enumerate() {
        // SAFETY: no other code knows the tuple, and the index is below its length.
        unsafe { ffi::PyTuple_SET_ITEM(tuple.as_ptr(), index.cast_signed(), item.into_ptr()) };
    }
    Ok(tuple)
}

/// Formats the `%r` and `%s` of a template with Python's `%`: the interpreter makes representations
/// of any size.
pub fn fill_template<'py>(
    template: &Bound<'py, PyString>,
    values: &[&Bound<'py, PyAny>],
) -> PyResult<Bound<'py, PyString>> {
    let py = template.py();
    let values = new_tuple(py, values.iter().map(|&value| value.clone()))?;
    // SAFETY: a `str` and a `tuple`.
    let pointer = unsafe { ffi::PyUnicode_Format(template.as_ptr(), values.as_ptr()) };
    // SAFETY: the result is a new reference of that type, or null.
    unsafe { owned(py, pointer) }
}

/// A module's attribute, cached where the macro stands: `imported!(py, PyType, "module", "name")`.
macro_rules! imported {
    ($py:expr, $type:ty, $module:literal, $attribute:literal) => {{
        static PLACE: ::pyo3::sync::PyOnceLock<::pyo3::Py<$type>> = ::pyo3::sync::PyOnceLock::new();
        let (module, attribute) =
            ($crate::ffi::intern!($py, $module), $crate::ffi::intern!($py, $attribute));
        $crate::ffi::import_once(&PLACE, module, attribute)
    }};
}
pub(crate) use imported;

/// The function of [`imported!`].
pub fn import_once<'py, T>(
    place: &'static PyOnceLock<Py<T>>,
    module: &Bound<'py, PyString>,
    attribute: &Bound<'py, PyString>,
) -> PyResult<&'py Bound<'py, T>>
where
    T: PyTypeInfo,
{
    let py = module.py();
    let found = place.get_or_try_init(py, || {
        let object = py.import(module)?.getattr(attribute)?;
        Ok::<_, PyErr>(object.cast_into::<T>()?.unbind())
    })?;
    Ok(found.bind(py))
}

/// An exception class whose instance is made at once: a lazy one of `PyO3` panics without memory
/// for its arguments, while this becomes a `MemoryError`.
pub trait Raise: PyTypeInfo {
    /// Makes an exception with a text.
    #[cold]
    fn raise(text: impl AsRef<str>) -> PyErr {
        // SAFETY: invariant 1.
        let py = unsafe { Python::assume_attached() };
        match new_str(py, text.as_ref()) {
            Ok(text) => Self::raise_with(&text),
            Err(error) => error,
        }
    }

    /// Makes an exception with any argument; a tuple is several.
    #[cold]
    fn raise_with<T>(argument: &Bound<'_, T>) -> PyErr {
        let class = Self::type_object_raw(argument.py());
        // SAFETY: both are alive; the call sets this exception, or the error of making it.
        unsafe { ffi::PyErr_SetObject(class.cast(), argument.as_ptr()) };
        PyErr::fetch(argument.py())
    }

    /// Makes an exception without an argument.
    #[cold]
    fn raise_bare() -> PyErr {
        // SAFETY: invariant 1.
        let py = unsafe { Python::assume_attached() };
        // SAFETY: as above.
        unsafe { ffi::PyErr_SetNone(Self::type_object_raw(py).cast()) };
        PyErr::fetch(py)
    }
}

impl<T: PyTypeInfo> Raise for T {}

/// The error of a failed Rust allocation whose size depends on a user or a peer.
#[cold]
pub fn no_memory(_: TryReserveError) -> PyErr {
    PyMemoryError::raise_bare()
}

/// Fails if the allocator's reserve is in use, before starting something new.
#[inline]
pub fn spare() -> PyResult<()> {
    if reserve::is_low() {
        return Err(PyMemoryError::raise_bare());
    }
    Ok(())
}

/// Application data is not allocated from the reserve.
fn of_the_system(room: Vec<u8>) -> PyResult<Vec<u8>> {
    if reserve::holds(room.as_ptr()) {
        return Err(PyMemoryError::raise_bare());
    }
    Ok(room)
}

/// Memory for that many bytes; empty (Rust's own) for small sizes.
pub fn room_for(len: usize) -> PyResult<Vec<u8>> {
    let mut room = Vec::new();
    if len > limits::COPIED_BYTES_UNCHECKED {
        room.try_reserve_exact(len).map_err(no_memory)?;
    }
    of_the_system(room)
}

/// A copy of bytes.
pub fn try_copy(bytes: &[u8]) -> PyResult<Vec<u8>> {
    let mut copy = Vec::new();
    copy.try_reserve_exact(bytes.len()).map_err(no_memory)?;
    let mut copy = of_the_system(copy)?;
    copy.extend_from_slice(bytes);
    Ok(copy)
}

/// Makes the `OSError`, or its subclass, of an errno.
#[cold]
pub fn raise_os(errno: i32, text: &str) -> PyErr {
    // SAFETY: invariant 1.
    let py = unsafe { Python::assume_attached() };
    let arguments = if platform::ERRORS_ARE_WINDOWS {
        // OSError makes errno of the fourth, `winerror`, as it does for an error of a socket's method.
        (0, text, py.None().into_bound(py), errno).into_object(py)
    } else {
        (errno, text).into_object(py)
    };
    match arguments {
        Ok(arguments) => PyOSError::raise_with(&arguments),
        Err(error) => error,
    }
}
