//! Arguments of one call of a native method.
//!
//! Called by: the entries of `method.rs`, which make [`Args`], and methods that parse their
//! arguments.
//!
//! Invariants:
//! 1. The values and the tuple of keyword names come from the caller of a vectorcall: `CPython`
//!    keeps them alive for `'a`, and each name has one value after the positional ones.

use pyo3::exceptions::PyTypeError;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyString, PyTuple};

use super::make::{Raise as _, new_tuple};

/// One argument of a call, borrowed from the caller.
pub type Argument<'a, 'py> = Borrowed<'a, 'py, PyAny>;

/// The arguments of one call, borrowed from the caller.
#[derive(Clone, Copy)]
pub struct Args<'a, 'py> {
    pub(super) all: &'a [*mut ffi::PyObject],
    pub(super) positional_count: usize,
    pub(super) keyword_names: *mut ffi::PyObject,
    pub(super) py: Python<'py>,
}

impl<'a, 'py> Args<'a, 'py> {
    #[inline]
    pub fn len(&self) -> usize {
        self.positional_count
    }

    #[inline]
    pub fn py(&self) -> Python<'py> {
        self.py
    }

    #[inline]
    pub fn get(&self, index: usize) -> Option<Argument<'a, 'py>> {
        (index < self.positional_count).then(|| self.at(index))
    }

    /// The positional arguments from `index` on.
    #[inline]
    pub fn skip(
        &self,
        index: usize,
    ) -> impl ExactSizeIterator<Item = Borrowed<'a, 'py, PyAny>> + use<'a, 'py> {
        let this = *self;
        (index.min(this.positional_count)..this.positional_count).map(move |place| this.at(place))
    }

    /// The positional arguments from `index` on, as a tuple.
    pub fn tuple(&self, index: usize) -> PyResult<Bound<'py, PyTuple>> {
        new_tuple(self.py, self.skip(index).map(Borrowed::to_owned))
    }

    #[inline]
    pub fn keyword_count(&self) -> usize {
        self.all.len() - self.positional_count
    }

    pub fn keywords(
        &self,
    ) -> impl ExactSizeIterator<Item = (Borrowed<'a, 'py, PyAny>, Borrowed<'a, 'py, PyAny>)> + use<'a, 'py>
    {
        let this = *self;
        (0..this.keyword_count()).map(move |index| {
            // SAFETY: invariant 1: the tuple has one name for each keyword argument.
            let name = unsafe { ffi::PyTuple_GET_ITEM(this.keyword_names, index as isize) };
            // SAFETY: invariant 1: the tuple keeps the name alive for 'a.
            (unsafe { Borrowed::from_ptr(this.py, name) }, this.at(this.positional_count + index))
        })
    }

    /// The keyword argument `name`, if no other is allowed.
    ///
    /// `name` should be interned; otherwise `TypeError` names the function and the unexpected
    /// keyword.
    #[inline(always)]
    pub fn only_keyword(
        &self,
        function: &str,
        name: &Bound<'py, PyString>,
    ) -> PyResult<Option<Argument<'a, 'py>>> {
        if self.keyword_count() == 0 {
            return Ok(None);
        }
        let mut found = None;
        for (given, value) in self.keywords() {
            if given.as_ptr() == name.as_ptr() || given.eq(name)? {
                found = Some(value);
            } else {
                return Err(unexpected(function, given));
            }
        }
        Ok(found)
    }

    /// The arguments called `names`, by position or by name; `None` for missing ones.
    #[inline]
    pub fn named<const N: usize>(
        &self,
        function: &str,
        names: [&str; N],
    ) -> PyResult<[Option<Argument<'a, 'py>>; N]> {
        if self.len() > N {
            return Err(too_many(function, N, self.len()));
        }
        let mut values = std::array::from_fn(|index| self.get(index));
        if self.keyword_count() != 0 {
            self.take_keywords(function, &names, &mut values)?;
        }
        Ok(values)
    }

    #[cold]
    fn take_keywords(
        &self,
        function: &str,
        names: &[&str],
        values: &mut [Option<Argument<'a, 'py>>],
    ) -> PyResult<()> {
        for (given, value) in self.keywords() {
            let text = given.cast::<PyString>()?;
            let text = text.to_str()?;
            let Some(index) = names.iter().position(|name| *name == text) else {
                return Err(unexpected(function, given));
            };
            if values[index].replace(value).is_some() {
                return Err(PyTypeError::raise(format!(
                    "{function}() got multiple values for argument '{text}'"
                )));
            }
        }
        Ok(())
    }

    /// Rejects keywords and any other number of positional arguments than `count`.
    pub fn expect_positional(&self, function: &str, count: usize) -> PyResult<()> {
        if self.keyword_count() != 0 {
            return Err(PyTypeError::raise(format!("{function}() takes no keyword arguments")));
        }
        if self.len() != count {
            let given = self.len();
            return Err(PyTypeError::raise(format!(
                "{function}() takes {count} positional arguments but {given} were given"
            )));
        }
        Ok(())
    }

    #[inline]
    fn at(&self, index: usize) -> Borrowed<'a, 'py, PyAny> {
        // SAFETY: invariant 1: the caller keeps the arguments alive for 'a.
        unsafe { Borrowed::from_ptr(self.py, self.all[index]) }
    }
}

#[cold]
fn unexpected(function: &str, keyword: Borrowed<'_, '_, PyAny>) -> PyErr {
    PyTypeError::raise(format!(
        "{function}() got an unexpected keyword argument '{}'",
        keyword.to_owned()
    ))
}

#[cold]
fn too_many(function: &str, most: usize, given: usize) -> PyErr {
    PyTypeError::raise(format!(
        "{function}() takes at most {most} positional arguments but {given} were given"
    ))
}

/// The error for a missing required argument.
#[doc(hidden)]
#[cold]
pub fn missing(function: &str, name: &str) -> PyErr {
    PyTypeError::raise(format!("{function}() missing 1 required positional argument: '{name}'"))
}
