//! Field sections between Python and QPACK.

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyList;
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

/// Names and values, of any objects that are like bytes.
pub fn fields(headers: &Bound<'_, PyAny>) -> PyResult<Vec<[Vec<u8>; 2]>> {
    let copied = |pair: &Bound<'_, PyAny>, index: usize| {
        let item = pair.get_item(Fallible(index))?;
        ffi::with_bytes(item.as_borrowed(), ffi::try_copy)?
    };
    let mut fields = Vec::new();
    for pair in headers.try_iter()? {
        let pair = pair?;
        fields.try_reserve(1).map_err(ffi::no_memory)?;
        fields.push([copied(&pair, 0)?, copied(&pair, 1)?]);
    }
    Ok(fields)
}

/// They, borrowed.
pub fn lines(fields: &[[Vec<u8>; 2]]) -> Vec<Line<'_>> {
    let fields = fields.iter();
    fields.map(|[name, value]| Line::new(name, value)).collect()
}

/// Fields of a message to be sent: names become lower-case (RFC 9114 §4.2), and what could be taken
/// for the end of a field is rejected (RFC 9110 §5.5).
pub fn checked(headers: &Bound<'_, PyAny>) -> PyResult<Vec<[Vec<u8>; 2]>> {
    let mut fields = fields(headers)?;
    for [name, value] in &mut fields {
        name.make_ascii_lowercase();
        let is_token = |byte: &u8| byte.is_ascii_graphic();
        let is_name = !name.is_empty() && name.iter().all(is_token);
        if !is_name || value.iter().any(|byte| matches!(byte, 0 | b'\n' | b'\r')) {
            let name = String::from_utf8_lossy(name);
            return Err(PyValueError::raise(format!(
                "{name:?} is no name of a field, or its value has a line break or a zero byte"
            )));
        }
    }
    Ok(fields)
}
