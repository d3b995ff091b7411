//! Keyword arguments of configurations, which are many: read by name, and strangers refused.

use std::time::Duration;

use pyo3::conversion::FromPyObjectOwned;
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyDictMethods};

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
        let left = match keywords {
            Some(keywords) => keywords.copy()?,
            None => PyDict::new(py),
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

    /// Seconds; None means none, and so does 0 where `default` is not given.
    pub fn take_seconds(
        &self,
        name: &str,
        default: Option<Duration>,
    ) -> PyResult<Option<Duration>> {
        match self.take(name)? {
            None => Ok(default),
            Some(value) if value.is_none() => Ok(None),
            Some(value) => {
                let seconds: f64 = value
                    .extract()
                    .map_err(|error| self.explained(name, error))?;
                let duration = Duration::try_from_secs_f64(seconds).map_err(|_| {
                    PyValueError::new_err(format!(
                        "{name} is {seconds}, which is no time in seconds"
                    ))
                })?;
                Ok(Some(duration))
            }
        }
    }

    fn explained(&self, name: &str, error: PyErr) -> PyErr {
        let py = self.left.py();
        let text = format!("{}({name}=…): {}", self.function, error.value(py));
        if error.is_instance_of::<PyTypeError>(py) {
            PyTypeError::new_err(text)
        } else {
            PyValueError::new_err(text)
        }
    }

    /// Refuse what nobody has taken.
    pub fn end(self) -> PyResult<()> {
        match self.left.keys().iter().next() {
            None => Ok(()),
            Some(name) => Err(PyTypeError::new_err(format!(
                "{}() got an unexpected keyword argument '{name}'",
                self.function
            ))),
        }
    }
}
