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

impl Text<'_> {
    /// Strips spaces and tabs around it.
    fn trim(&mut self) -> PyResult<()> {
        let is_space = |byte: &u8| matches!(byte, b' ' | b'\t');
        if self.first().is_some_and(is_space) || self.last().is_some_and(is_space) {
            let start = self.iter().position(|byte| !is_space(byte)).unwrap_or(self.len());
            let len = self
                .iter()
                .rev()
                .position(|byte| !is_space(byte))
                .map_or(0, |behind| self.len() - behind - start);
            let copy = ffi::try_copy(&self[start..start + len])?;
            *self = Self::Copied(copy);
        }
        Ok(())
    }
}

/// Connection-specific fields of HTTP/1.1 (RFC 9114 §4.2).
pub const HOP_BY_HOP: [&[u8]; 5] =
    [b"connection", b"keep-alive", b"proxy-connection", b"transfer-encoding", b"upgrade"];

/// A field: its name and value.
pub type Pair<'py> = [Text<'py>; 2];

/// Names and values, from any bytes-like objects.
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

/// Fields of an ASGI application: pairs of `bytes`, checked as by [`checked`], without the excluded
/// names.
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

/// The same, borrowed.
pub fn lines<'a>(fields: &'a [Pair<'_>]) -> impl Iterator<Item = Line<'a>> {
    fields.iter().map(|[name, value]| Line::new(name, value))
}

/// Fields of a message to send, without pseudo-header fields: names become lower case (RFC 9114 §4.2),
/// whitespace around values is stripped (RFC 9110 §5.5), and invalid fields are refused.
pub fn checked<'py>(headers: &Bound<'py, PyAny>) -> PyResult<Vec<Pair<'py>>> {
    let mut fields = fields(headers)?;
    fields.iter_mut().try_for_each(check_in_message)?;
    Ok(fields)
}

/// Whose fields follow the pseudo-header fields.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Head {
    Request,
    Response,
}

/// The same for a message's head; without pseudo-header fields they are trailers.
pub fn checked_section<'py>(headers: &Bound<'py, PyAny>, head: Head) -> PyResult<Vec<Pair<'py>>> {
    let mut fields = fields(headers)?;
    let is_pseudo = |pair: &&Pair<'_>| pair[0].first() == Some(&b':');
    let count = fields.iter().take_while(is_pseudo).count();
    let (pseudo, regular) = fields.split_at_mut(count);
    regular.iter_mut().try_for_each(check_in_message)?;
    match head {
        Head::Request => check_request(pseudo, regular)?,
        Head::Response if count > 0 => check_status(pseudo)?,
        Head::Response => {}
    }
    Ok(fields)
}

/// Checks a regular field.
fn check([name, value]: &mut Pair<'_>) -> PyResult<()> {
    name.make_ascii_lowercase()?;
    value.trim()?;
    if !is_token(name) || any(value, is_control) {
        let name = String::from_utf8_lossy(name);
        return Err(PyValueError::raise(format!(
            "{name:?} is not a valid field name, or its value has a line break or another control character"
        )));
    }
    Ok(())
}

/// The same, and that HTTP/3 has it (RFC 9114 §4.2).
fn check_in_message(field: &mut Pair<'_>) -> PyResult<()> {
    check(field)?;
    let [name, value] = field;
    let is_hop_by_hop = HOP_BY_HOP.contains(&&**name);
    if is_hop_by_hop || **name == *b"te" && !value.eq_ignore_ascii_case(b"trailers") {
        let name = String::from_utf8_lossy(name);
        return Err(PyValueError::raise(format!(
            "HTTP/3 does not allow the connection-specific field {name:?} (RFC 9114 §4.2): leave it out"
        )));
    }
    Ok(())
}

/// The pseudo-header fields of a request (RFC 9114 §4.3.1, §4.4; RFC 9220 §3).
fn check_request(pseudo: &[Pair<'_>], regular: &[Pair<'_>]) -> PyResult<()> {
    const KNOWN: [&[u8]; 5] = [b":method", b":scheme", b":authority", b":path", b":protocol"];
    let mut found: [Option<&[u8]>; 5] = [None; 5];
    for [name, value] in pseudo {
        let known = KNOWN.iter().position(|known| **known == **name);
        let slot = known.map(|index| &mut found[index]).filter(|slot| slot.is_none());
        let is_text = !value.is_empty() && !any(value, |byte| byte <= b' ' || byte == 0x7f);
        let (Some(slot), true) = (slot, is_text) else {
            return Err(wrong_pseudo(name, value));
        };
        *slot = Some(value);
    }
    let [method, scheme, authority, path, protocol] = found;
    let method = method.filter(|method| is_token(method));
    let method = method.ok_or_else(|| PyValueError::raise("a request needs a :method"))?;
    let is_web = scheme.is_some_and(|scheme| matches!(scheme, b"https" | b"http"));
    let is_asterisk = |path: &[u8]| path == b"*" && method == b"OPTIONS";
    let host = regular.iter().find(|[name, _]| **name == *b"host").map(|[_, value]| &**value);
    let is_plain_connect = method == b"CONNECT" && protocol.is_none();
    let wrong = if protocol.is_some() && method != b"CONNECT" {
        Some("only CONNECT may have a :protocol")
    } else if is_plain_connect && (scheme.is_some() || path.is_some()) {
        Some("CONNECT must have no :scheme and no :path")
    } else if !is_plain_connect && (scheme.is_none() || path.is_none()) {
        Some("a request needs a :scheme and a :path")
    } else if path.is_some_and(|path| path.contains(&b'#')) {
        Some("a :path must not have a fragment")
    } else if is_web && !path.is_some_and(|path| path.starts_with(b"/") || is_asterisk(path)) {
        Some("a :path must begin with '/'")
    } else if authority.is_none() && host.is_none() {
        Some("a request needs an :authority, or a field 'host'")
    } else if authority.zip(host).is_some_and(|(one, other)| !one.eq_ignore_ascii_case(other)) {
        Some("a field 'host' must equal :authority (RFC 9114 §4.3.1)")
    } else {
        None
    };
    wrong.map_or(Ok(()), |wrong| Err(PyValueError::raise(wrong)))
}

/// The status of a response (RFC 9114 §4.3.2, §4.5).
fn check_status(pseudo: &[Pair<'_>]) -> PyResult<()> {
    if let [[name, _], [other, value], ..] = pseudo
        && **name == *b":status"
    {
        return Err(wrong_pseudo(other, value));
    }
    let [[name, value], ..] = pseudo else {
        return Ok(());
    };
    if **name != *b":status" {
        return Err(wrong_pseudo(name, value));
    }
    let is_number = value.len() == 3 && value.iter().all(u8::is_ascii_digit);
    if !is_number || value[0] == b'0' || **value == *b"101" {
        let value = String::from_utf8_lossy(value);
        return Err(PyValueError::raise(format!(
            "status is {value}: give 100 to 999, but not 101, which HTTP/3 does not have"
        )));
    }
    Ok(())
}

fn wrong_pseudo(name: &[u8], value: &[u8]) -> PyErr {
    let (name, value) = (String::from_utf8_lossy(name), String::from_utf8_lossy(value));
    PyValueError::raise(format!(
        "the pseudo-header field {name:?} is not allowed here, is repeated, or {value:?} is not a valid value"
    ))
}

/// A token (RFC 9110 §5.6.2).
fn is_token(name: &[u8]) -> bool {
    let is_char = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    !name.is_empty() && name.iter().copied().all(is_char)
}

fn is_control(byte: u8) -> bool {
    byte < b' ' && byte != b'\t' || byte == 0x7f
}

/// As `Iterator::any`, without early exit: many bytes are compared at once.
fn any(bytes: &[u8], is_found: impl Fn(u8) -> bool) -> bool {
    bytes.iter().fold(false, |found, byte| found | is_found(*byte))
}
