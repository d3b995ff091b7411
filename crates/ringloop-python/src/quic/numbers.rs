//! Numbers from applications: errors name the argument, its value and its bounds.
//!
//! Called by: configurations and settings of a running connection. An object with `__index__` is an
//! integer; True and False are rejected, as they are usually meant for another argument.

use std::fmt::Display;
use std::ops::RangeInclusive;
use std::time::Duration;

use pyo3::conversion::FromPyObjectOwned;
use pyo3::exceptions::{PyOverflowError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyBool;
use ringloop_quic::limits;

use super::exception;
use crate::ffi::{Fallible, Raise as _};

/// An integer within bounds; `or` is appended to them in the message.
pub fn whole<'py, T>(
    name: &str,
    value: &Bound<'py, PyAny>,
    bounds: &RangeInclusive<T>,
    or: &str,
) -> PyResult<T>
where
    T: FromPyObjectOwned<'py> + PartialOrd + Display,
{
    let py = value.py();
    let (min, max) = (bounds.start(), bounds.end());
    let is_kind = |error: &PyErr| error.is_instance_of::<PyTypeError>(py);
    let extracted: PyResult<T> = value.extract::<T>().map_err(Into::into);
    match extracted {
        _ if value.is_instance_of::<PyBool>() => {}
        Ok(number) if bounds.contains(&number) => return Ok(number),
        Err(error) if is_kind(&error) => {}
        // Raised by a user-defined `__index__`.
        Err(error) if !error.is_instance_of::<PyOverflowError>(py) => return Err(error),
        _ => {
            let text = format!("{name} is {value}: give {min} to {max}{or}");
            return Err(exception::configuration(py, text));
        }
    }
    Err(PyTypeError::raise(format!("{name} is {value:?}: give a whole number, {min} to {max}{or}")))
}

/// Seconds within bounds.
pub fn seconds(
    name: &str,
    value: &Bound<'_, PyAny>,
    bounds: &RangeInclusive<Duration>,
) -> PyResult<Duration> {
    let [min, max] = [bounds.start(), bounds.end()].map(Duration::as_secs_f64);
    let duration = float(name, value)?.and_then(|given| Duration::try_from_secs_f64(given).ok());
    let duration = duration.filter(|duration| bounds.contains(duration));
    duration.ok_or_else(|| {
        let text = format!("{name} is {value}: give {min} to {max} seconds, or None");
        exception::configuration(value.py(), text)
    })
}

/// A time limit; `None`: no limit, longer than a clock can represent.
pub fn lifetime(name: &str, value: Option<&Bound<'_, PyAny>>) -> PyResult<Option<Duration>> {
    let Some(value) = value else {
        return Ok(None);
    };
    match float(name, value)? {
        Some(given) if given >= limits::TIME_MAX.as_secs_f64() => Ok(None),
        Some(given) if given >= 0.0 => Ok(Duration::try_from_secs_f64(given).ok()),
        _ => {
            Err(PyValueError::raise(format!("{name} is {value}: give 0 seconds or more, or None")))
        }
    }
}

/// A float; `None` if it is too large.
fn float(name: &str, value: &Bound<'_, PyAny>) -> PyResult<Option<f64>> {
    let py = value.py();
    match value.extract::<f64>() {
        _ if value.is_instance_of::<PyBool>() => {}
        Ok(given) => return Ok(Some(given)),
        Err(error) if error.is_instance_of::<PyOverflowError>(py) => return Ok(None),
        Err(error) if error.is_instance_of::<PyTypeError>(py) => {}
        Err(error) => return Err(error),
    }
    Err(PyTypeError::raise(format!("{name} is {value:?}: give seconds")))
}

/// An application error code (RFC 9000 §20.2).
#[derive(Default)]
pub struct Code(pub u64);

impl<'py> FromPyObject<'_, 'py> for Code {
    type Error = PyErr;

    fn extract(object: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        match object.extract::<u64>() {
            Ok(code) if code <= limits::NUMBER_MAX => Ok(Self(code)),
            Err(error) if !error.is_instance_of::<PyOverflowError>(object.py()) => {
                Err(PyTypeError::raise(format!(
                    "{object:?} is not an error code: give a whole number, 0 to 2**62 - 1"
                )))
            }
            _ => Err(PyValueError::raise(format!(
                "{object:?} is not an error code: give 0 to 2**62 - 1"
            ))),
        }
    }
}

/// A maximum count: any number from 0 on.
pub struct AtMost(pub usize);

impl<'py> FromPyObject<'_, 'py> for AtMost {
    type Error = PyErr;

    #[inline]
    fn extract(object: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        match object.extract::<usize>() {
            Ok(count) => Ok(Self(count)),
            Err(error) if !error.is_instance_of::<PyOverflowError>(object.py()) => Err(error),
            Err(_) if object.lt(Fallible(0_u64))? => {
                Err(PyValueError::raise(format!("{object:?} is too few: give 0 or more")))
            }
            Err(_) => Ok(Self(usize::MAX)),
        }
    }
}
