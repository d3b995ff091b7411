//! Field sections between Python and QPACK.

use std::ops::Deref;

use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList, PyTuple};
use ringloop_h3::qpack::{Field, Line};

use crate::ffi::{self, Fallible, Raise as _};

/// A list of (name, value).
pub fn pairs<'py>(py: Python<'py>, fields: &[Field]) -> PyResult<Bound<'py, PyList>> {
    let list = ffi::new_list(py)?;
    for field in fields {
        let pair = [&field.name, &field.value].map(|bytes| ffi::new_bytes(py, bytes));
        let [name, value] = pair;
        let pair = [name?.into_any(), value?.into_any()];
        list.append(ffi::new_tuple(py, pair.into_iter())?)?;
    }
    Ok(list)
}

/// A name or a value: that of a `bytes` object, or a copy.
pub enum Text<'py> {
    Object(Bound<'py, PyBytes>),
    Copied(Vec<u8>),
}

impl Deref for Text<'_> {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        match self {
            Self::Object(bytes) => bytes.as_bytes(),
            Self::Copied(bytes) => bytes,
        }
    }
}

impl Text<'_> {
    fn make_ascii_lowercase(&mut self) -> PyResult<()> {
        if any(self, |byte| byte.is_ascii_uppercase()) {
            let mut copy = ffi::try_copy(self)?;
            copy.make_ascii_lowercase();
            *self = Self::Copied(copy);
        }
        Ok(())
    }
}

/// A field: its name and value.
pub type Pair<'py> = [Text<'py>; 2];

/// Names and values, of any objects that are like bytes.
pub fn fields<'py>(headers: &Bound<'py, PyAny>) -> PyResult<Vec<Pair<'py>>> {
    collected(headers, |pair| {
        let text = |item: Bound<'py, PyAny>| match item.cast_into_exact::<PyBytes>() {
            Ok(bytes) => Ok(Text::Object(bytes)),
            Err(error) => {
                let item = error.into_inner();
                ffi::with_bytes(item.as_borrowed(), ffi::try_copy)?.map(Text::Copied)
            }
        };
        let [name, value] = both(pair)?;
        Ok(Some([text(name)?, text(value)?]))
    })
}

/// Fields of an application of ASGI: pairs of `bytes`, checked as by [`checked`], without the names
/// that are not wanted.
pub fn fields_of_asgi<'py>(
    headers: &Bound<'py, PyAny>,
    is_wanted: impl Fn(&[u8]) -> bool,
) -> PyResult<Vec<Pair<'py>>> {
    collected(headers, |pair| {
        let bytes = both(pair)?.map(|item| item.cast_into::<PyBytes>().map(Text::Object));
        let [Ok(name), Ok(value)] = bytes else {
            let text = format!("a header is {}: give a name and a value in bytes", pair.repr()?);
            return Err(PyTypeError::raise(text));
        };
        let mut field = [name, value];
        check(&mut field)?;
        Ok(is_wanted(&field[0]).then_some(field))
    })
}

fn collected<'py>(
    headers: &Bound<'py, PyAny>,
    field: impl Fn(&Bound<'py, PyAny>) -> PyResult<Option<Pair<'py>>>,
) -> PyResult<Vec<Pair<'py>>> {
    let mut fields = Vec::new();
    for pair in headers.try_iter()? {
        if let Some(field) = field(&pair?)? {
            fields.try_reserve(1).map_err(ffi::no_memory)?;
            fields.push(field);
        }
    }
    Ok(fields)
}

/// The items of a pair.
fn both<'py>(pair: &Bound<'py, PyAny>) -> PyResult<[Bound<'py, PyAny>; 2]> {
    if let Ok(tuple) = pair.cast::<PyTuple>() {
        return Ok([tuple.get_item(0)?, tuple.get_item(1)?]);
    }
    Ok([pair.get_item(Fallible(0_u64))?, pair.get_item(Fallible(1_u64))?])
}

/// They, borrowed.
pub fn lines<'a>(fields: &'a [Pair<'_>]) -> impl Iterator<Item = Line<'a>> {
    fields.iter().map(|[name, value]| Line::new(name, value))
}

/// Fields of a message to be sent: names become lower-case (RFC 9114 §4.2), and what could be taken
/// for the end of a field is rejected (RFC 9110 §5.5).
pub fn checked<'py>(headers: &Bound<'py, PyAny>) -> PyResult<Vec<Pair<'py>>> {
    let mut fields = fields(headers)?;
    fields.iter_mut().try_for_each(check)?;
    Ok(fields)
}

fn check([name, value]: &mut Pair<'_>) -> PyResult<()> {
    name.make_ascii_lowercase()?;
    let is_name = !name.is_empty() && !any(name, |byte| !byte.is_ascii_graphic());
    if !is_name || any(value, |byte| matches!(byte, 0 | b'\n' | b'\r')) {
        let name = String::from_utf8_lossy(name);
        return Err(PyValueError::raise(format!(
            "{name:?} is no name of a field, or its value has a line break or a zero byte"
        )));
    }
    Ok(())
}

/// As `Iterator::any`, without an early end: many bytes are compared at once.
fn any(bytes: &[u8], is_found: impl Fn(u8) -> bool) -> bool {
    bytes.iter().fold(false, |found, byte| found | is_found(*byte))
}
