//! Water marks of flow control: any numbers, as in asyncio, including floats, infinity and huge
//! integers.
//!
//! Owns: a pair of marks, as given and in whole bytes. Called by: [`super::flow`], and TLS, which
//! has a pair for each direction.
//!
//! Source: `_FlowControlMixin._set_write_buffer_limits`, `sslproto.add_flowcontrol_defaults`.

use std::cell::Cell;

use pyo3::exceptions::{PyOverflowError, PyTypeError, PyValueError};
use pyo3::prelude::*;

use crate::ffi::{self, Argument, IntoObject as _, Obj, ObjCell, Raise as _, Visited, Visitor};

/// A high and a low mark.
pub(crate) struct Marks {
    /// Both rounded down: sizes are whole.
    high: Cell<usize>,
    low: Cell<usize>,
    /// The high mark was not rounded.
    is_whole: Cell<bool>,
    /// `(low, high)`, once set.
    given: ObjCell,
}

/// The arguments of `set_*_buffer_limits`.
pub(crate) type Given<'a, 'py> = [Option<Argument<'a, 'py>>; 2];

impl Marks {
    pub fn new(high: usize) -> Self {
        Self {
            high: Cell::new(high),
            low: Cell::new(high / 4),
            is_whole: Cell::new(true),
            given: ObjCell::new(None),
        }
    }

    /// Whether `size` is above the high mark.
    pub fn is_above(&self, size: usize) -> bool {
        size > self.high.get()
    }

    /// Whether `size` is above the high mark, or at it.
    pub fn is_reached(&self, size: usize) -> bool {
        self.is_above(size) || self.is_whole.get() && size == self.high.get()
    }

    /// Whether `size` is at most the low mark.
    pub fn is_low(&self, size: usize) -> bool {
        size <= self.low.get()
    }

    /// `(low, high)`, as the numbers given.
    pub fn to_python<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        match self.given.get(py) {
            Some(given) => Ok(given.into_bound(py)),
            None => (self.low.get(), self.high.get()).into_object(py),
        }
    }

    /// Sets new marks; a missing one is derived from the other, or from `default`.
    pub fn set(&self, py: Python<'_>, [high, low]: Given<'_, '_>, default: usize) -> PyResult<()> {
        let high = match (high, low) {
            (Some(high), _) => high.to_owned(),
            (None, Some(low)) => 4_u64.into_object(py)?.mul(low)?,
            (None, None) => default.into_object(py)?,
        };
        let low = match low {
            Some(low) => low.to_owned(),
            None => high.floor_div(4_u64.into_object(py)?)?,
        };
        if !(high.ge(&low)? && low.ge(0_u64.into_object(py)?)?) {
            let text = ffi::new_str(py, "high (%r) must be >= low (%r) must be >= 0")?;
            return Err(PyValueError::raise_with(&ffi::fill_template(&text, &[&high, &low])?));
        }
        let (high_bytes, low_bytes) = (whole(&high)?, whole(&low)?);
        self.is_whole.set(high.eq(high_bytes.into_object(py)?)?);
        self.high.set(high_bytes);
        self.low.set(low_bytes);
        let given: Obj = (low, high).into_object(py)?.into();
        drop(self.given.replace(Some(given)));
        Ok(())
    }

    pub fn visit(&self, visitor: &mut dyn Visitor) -> Visited {
        self.given.visit(visitor)
    }
}

/// A non-negative number, rounded down; huge ones stand for "never".
fn whole(number: &Bound<'_, PyAny>) -> PyResult<usize> {
    match number.extract::<usize>() {
        Ok(whole) => Ok(whole),
        Err(_) => match number.extract::<f64>() {
            // The cast rounds towards zero and saturates.
            Ok(float) => Ok(float as usize),
            Err(error) if error.is_instance_of::<PyOverflowError>(number.py()) => Ok(usize::MAX),
            Err(error) => Err(error),
        },
    }
}

/// The arguments of `function(high=None, low=None)`, which must be numbers.
pub(crate) fn given<'a, 'py>(
    function: &str,
    high: Option<Argument<'a, 'py>>,
    low: Option<Argument<'a, 'py>>,
) -> PyResult<Given<'a, 'py>> {
    let mut values = [high, low];
    for (value, name) in values.iter_mut().zip(["high", "low"]) {
        *value = value.filter(|value| !value.is_none());
        if let Some(value) = value
            && let Err(error) = whole(&value.to_owned())
            && error.is_instance_of::<PyTypeError>(value.py())
        {
            return Err(PyTypeError::raise(format!(
                "{function}() argument '{name}' must be a number, not {}",
                value.get_type().name()?
            )));
        }
    }
    Ok(values)
}
