//! Keyword arguments of configurations: read by name; unknown ones are rejected.

use std::fmt::Display;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

use pyo3::conversion::FromPyObjectOwned;
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyDictMethods};

use super::numbers;
use crate::ffi::{self, Raise as _, intern};

/// The keywords of one call.
pub struct Keywords<'py> {
    function: &'static str,
    left: Bound<'py, PyDict>,
}

impl<'py> Keywords<'py> {
    pub fn new(
        py: Python<'py>,
        function: &'static str,
        keywords: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Self> {
        ffi::arm();
        let left = match keywords {
            Some(keywords) => keywords.copy()?,
            None => ffi::new_dict(py)?,
        };
        Ok(Self { function, left })
    }

    /// The value of `name`, if given, even if it is None.
    pub fn take(&self, name: &str) -> PyResult<Option<Bound<'py, PyAny>>> {
        let value = self.left.get_item(name)?;
        if value.is_some() {
            self.left.del_item(name)?;
        }
        Ok(value)
    }

    /// The same, with None as not given.
    pub fn take_some(&self, name: &str) -> PyResult<Option<Bound<'py, PyAny>>> {
        Ok(self.take(name)?.filter(|value| !value.is_none()))
    }

    pub fn take_or<T>(&self, name: &str, default: T) -> PyResult<T>
    where
        T: FromPyObjectOwned<'py>,
    {
        match self.take(name)? {
            Some(value) => {
                let extracted: PyResult<T> = value.extract::<T>().map_err(Into::into);
                extracted.map_err(|error| self.explained(name, error))
            }
            None => Ok(default),
        }
    }

    /// A path; None as not given.
    pub fn take_path(&self, name: &str) -> PyResult<Option<PathBuf>> {
        let path = self.take_some(name)?.map(|value| value.extract());
        path.transpose().map_err(|error| self.explained(name, error))
    }

    /// An integer within bounds.
    pub fn take_in<T>(&self, name: &str, default: T, bounds: RangeInclusive<T>) -> PyResult<T>
    where
        T: FromPyObjectOwned<'py> + PartialOrd + Display,
    {
        match self.take(name)? {
            Some(value) => numbers::whole(name, &value, &bounds, ""),
            None => Ok(default),
        }
    }

    /// The same, with None for none.
    pub fn take_in_or_none<T>(
        &self,
        name: &str,
        default: Option<T>,
        bounds: RangeInclusive<T>,
    ) -> PyResult<Option<T>>
    where
        T: FromPyObjectOwned<'py> + PartialOrd + Display,
    {
        match self.take(name)? {
            Some(value) if value.is_none() => Ok(None),
            Some(value) => numbers::whole(name, &value, &bounds, ", or None").map(Some),
            None => Ok(default),
        }
    }

    /// Seconds within bounds; None for none.
    pub fn take_seconds(
        &self,
        name: &str,
        default: Option<Duration>,
        bounds: RangeInclusive<Duration>,
    ) -> PyResult<Option<Duration>> {
        match self.take(name)? {
            None => Ok(default),
            Some(value) if value.is_none() => Ok(None),
            Some(value) => numbers::seconds(name, &value, &bounds).map(Some),
        }
    }

    /// Adds `name` to a type error of its value.
    pub fn named<T, E: Into<PyErr>>(&self, name: &str, made: Result<T, E>) -> PyResult<T> {
        let py = self.left.py();
        made.map_err(|error| {
            let error: PyErr = error.into();
            let is_type = error.get_type(py).is(py.get_type::<PyTypeError>());
            let is_named = || error.value(py).to_string().contains(name);
            if is_type && !is_named() { self.explained(name, error) } else { error }
        })
    }

    /// The error, naming the keyword.
    pub fn explained(&self, name: &str, error: PyErr) -> PyErr {
        let py = self.left.py();
        let text = format!("{}({name}=…): {}", self.function, error.value(py));
        if error.is_instance_of::<PyTypeError>(py) {
            PyTypeError::raise(text)
        } else {
            PyValueError::raise(text)
        }
    }

    /// Checks for unknown keywords, whose error comes before all others, and returns `made`.
    pub fn end<T>(self, made: PyResult<T>) -> PyResult<T> {
        if self.left.is_empty() {
            return made;
        }
        let py = self.left.py();
        let function = ffi::new_str(py, self.function)?;
        let unexpected = py
            .import(intern!(py, "ringloop.quic._keywords"))?
            .call_method1(intern!(py, "unexpected_of"), (function, &self.left))?;
        if !unexpected.is_none() {
            return Err(PyErr::from_value(unexpected));
        }
        let made = made?;
        match self.left.keys().iter().next() {
            None => Ok(made),
            // Shown by repr, but not an argument.
            Some(name) => {
                Err(PyTypeError::raise(format!("{}() does not take {name} here", self.function)))
            }
        }
    }
}
