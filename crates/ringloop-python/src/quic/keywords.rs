//! Keyword arguments of configurations, which are many: read by name, and strangers refused.

use std::fmt::Display;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

use pyo3::conversion::FromPyObjectOwned;
use pyo3::exceptions::{PyOverflowError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyDictMethods};

use super::errors;
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

    /// The value of `name`, if it was given, also where it is None.
    pub fn take(&self, name: &str) -> PyResult<Option<Bound<'py, PyAny>>> {
        let value = self.left.get_item(name)?;
        if value.is_some() {
            self.left.del_item(name)?;
        }
        Ok(value)
    }

    /// The same, None being as good as nothing.
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

    /// A path; None is as good as nothing.
    pub fn take_path(&self, name: &str) -> PyResult<Option<PathBuf>> {
        let path = self.take_some(name)?.map(|value| value.extract());
        path.transpose()
            .map_err(|error| self.explained(name, error))
    }

    /// A whole number within bounds.
    pub fn take_in<T>(&self, name: &str, default: T, bounds: RangeInclusive<T>) -> PyResult<T>
    where
        T: FromPyObjectOwned<'py> + PartialOrd + Display,
    {
        match self.take(name)? {
            Some(value) => self.within(name, &value, &bounds, ""),
            None => Ok(default),
        }
    }

    /// The same, where None means none.
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
            Some(value) => self.within(name, &value, &bounds, ", or None").map(Some),
            None => Ok(default),
        }
    }

    fn within<T>(
        &self,
        name: &str,
        value: &Bound<'py, PyAny>,
        bounds: &RangeInclusive<T>,
        or: &str,
    ) -> PyResult<T>
    where
        T: FromPyObjectOwned<'py> + PartialOrd + Display,
    {
        let extracted: PyResult<T> = value.extract::<T>().map_err(Into::into);
        match extracted {
            Ok(number) if bounds.contains(&number) => Ok(number),
            Err(error) if !error.is_instance_of::<PyOverflowError>(value.py()) => {
                Err(self.explained(name, error))
            }
            _ => {
                let (min, max) = (bounds.start(), bounds.end());
                let text = format!("{name} is {value}: give {min} to {max}{or}");
                Err(errors::configuration(value.py(), text))
            }
        }
    }

    /// Seconds within bounds; None means none.
    pub fn take_seconds(
        &self,
        name: &str,
        default: Option<Duration>,
        bounds: RangeInclusive<Duration>,
    ) -> PyResult<Option<Duration>> {
        match self.take(name)? {
            None => Ok(default),
            Some(value) if value.is_none() => Ok(None),
            Some(value) => {
                let seconds: f64 = value
                    .extract()
                    .map_err(|error| self.explained(name, error))?;
                let duration = Duration::try_from_secs_f64(seconds).ok();
                let duration = duration.filter(|duration| bounds.contains(duration));
                duration.map(Some).ok_or_else(|| {
                    let [min, max] = [bounds.start(), bounds.end()].map(Duration::as_secs_f64);
                    let text = format!("{name} is {value}: give {min} to {max} seconds, or None");
                    errors::configuration(value.py(), text)
                })
            }
        }
    }

    /// The error with the keyword that it is about.
    pub fn explained(&self, name: &str, error: PyErr) -> PyErr {
        let py = self.left.py();
        let text = format!("{}({name}=…): {}", self.function, error.value(py));
        if error.is_instance_of::<PyTypeError>(py) {
            PyTypeError::raise(text)
        } else {
            PyValueError::raise(text)
        }
    }

    /// What was made with them. A keyword that there is not is told first, whatever else is wrong.
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
            // Shown, and not taken.
            Some(name) => Err(PyTypeError::raise(format!(
                "{}() does not take {name} here",
                self.function
            ))),
        }
    }
}
