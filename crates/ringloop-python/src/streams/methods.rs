//! The Python surface of a reader: `asyncio.StreamReader`, and the attributes that its users touch.
//!
//! Called by: user code, the inherited methods, and protocols that are not native. What is not here is inherited.
//!
//! Arguments that are not plain (a subclass of `int`, a `memoryview` as a separator …) and subclasses take asyncio's own
//! coroutines, which work on the same attributes.

use pyo3::exceptions::{PyAssertionError, PyTypeError};
use pyo3::prelude::*;
use pyo3::types::{PyByteArray, PyBytes, PyFloat, PyInt, PyString, PyTuple};

use super::inheritance;
use super::reader::{self, Reader, Reader_, ReaderShell};
use super::reading::{self, Kind};
use crate::ffi::{self, Argument, IntoObject as _, Members, Obj, ObjCell, Raise as _, Shelled};
use crate::ffi::{Core as _, Payload as _, intern, members};

fn reader() -> Members<Reader> {
    let mut list = Members::new();
    members!(list, Shelled<Reader>;
        read(n=None) => read, "Read up to `n` bytes, or until EOF.";
        readexactly(n) => readexactly, "Read exactly `n` bytes.";
        readuntil(separator=None) => readuntil, "Read up to a separator, which is included.";
        readline() => |this| start(this, Some(Kind::Line), vec![], intern!(this.py(), "readline"), &[]), "Read a line.";
        __anext__() => |this| start(this, Some(Kind::Next), vec![], intern!(this.py(), "__anext__"), &[]), "Read the next line.";
        _feed_data(data) => feed_data, "Take bytes in.";
        set feed_data => feeder, |this, value| set_object(this, value, |core| &core.feeder), "Take bytes in: a method, or what was assigned in its place.";
        feed_eof() => |this| this.run(reader::feed_eof), "The end of the stream.";
        at_eof() => at_eof, "Say whether there is nothing to read any more.";
        exception() => |this| this.with(|core| core.exception.get_or_none(core.py())), "Return what every read raises, or None.";
        set_exception(exc) => set_exception, "Have every read raise this.";
        _wakeup_waiter() => |this| this.run(reader::wake), "Wake the coroutine that waits.";
        _maybe_resume_transport() => |this| this.run(reader::maybe_resume), "Read again once enough was taken.";
        set _buffer => |this| this.run(|core| core.buffer.expose(core.py())), set_buffer, "The bytes that were not read, as a bytearray.";
        set _limit => |this| this.with(|core| core.limit_object.get_or_none(core.py())), set_limit, "Half of what is buffered at most, and the longest line.";
        set _eof => |this| this.with(|core| core.eof.get()), |this, value| set_flag(this, value, |core| &core.eof), "Whether the stream has ended.";
        set _paused => |this| this.with(|core| core.paused.get()), |this, value| set_flag(this, value, |core| &core.paused), "Whether the transport was told not to read.";
        set _waiter => |this| this.with(|core| core.waiter.get_or_none(core.py())), |this, value| set_object(this, value, |core| &core.waiter), "The future of the coroutine that waits.";
        set _exception => |this| this.with(|core| core.exception.get_or_none(core.py())), |this, value| set_object(this, value, |core| &core.exception), "What every read raises.";
        set _transport => |this| this.with(|core| core.transport.get_or_none(core.py())), |this, value| set_object(this, value, |core| &core.transport), "The transport.";
        set _loop => |this| this.with(|core| core.loop_.get_or_none(core.py())), |this, value| set_object(this, value, |core| &core.loop_), "The loop.";
    );
    list
}

fn read(this: ReaderShell<'_, '_>, n: Option<Argument<'_, '_>>) -> PyResult<Obj> {
    let kind = match n.as_ref().map_or(Some(-1), |n| whole(n)) {
        Some(count @ 0..) => Some(Kind::Read(count as usize)),
        Some(_) => Some(Kind::ReadAll),
        None => None,
    };
    start(this, kind, vec![], intern!(this.py(), "read"), n.as_slice())
}

fn readexactly(this: ReaderShell<'_, '_>, n: Argument<'_, '_>) -> PyResult<Obj> {
    let kind = whole(&n).map(|count| Kind::Exactly(count as isize));
    start(this, kind, vec![], intern!(this.py(), "readexactly"), &[n])
}

/// An `int` of ordinary size.
#[inline]
fn whole(n: &Bound<'_, PyAny>) -> Option<i64> {
    n.is_exact_instance_of::<PyInt>().then(|| n.extract().ok()).flatten()
}

fn readuntil(this: ReaderShell<'_, '_>, separator: Option<Argument<'_, '_>>) -> PyResult<Obj> {
    let py = this.py();
    let separators = match separator {
        None => Some(vec![ffi::copy_bytes(py, b"\n")?]),
        Some(separator) => plain_separators(separator),
    };
    let kind = separators.is_some().then_some(Kind::Until);
    let name = intern!(py, "readuntil");
    start(this, kind, separators.unwrap_or_default(), name, separator.as_slice())
}

/// The separators, the shortest first; `None` if not all are exact `bytes`.
fn plain_separators(separator: Argument<'_, '_>) -> Option<Vec<Obj>> {
    if separator.is_exact_instance_of::<PyBytes>() {
        return Some(vec![Obj::from_borrowed(separator)]);
    }
    let several = separator.cast_exact::<PyTuple>().ok().filter(|_| cfg!(Py_3_13))?;
    if !several.iter_borrowed().all(|one| one.is_exact_instance_of::<PyBytes>()) {
        return None;
    }
    let mut several: Vec<Obj> = several.iter_borrowed().map(Obj::from_borrowed).collect();
    several.sort_by_key(ffi::bytes_len);
    Some(several)
}

/// A native coroutine; asyncio's own where the arguments are not plain, and for a subclass, which
/// may have overridden what that calls.
#[inline]
fn start(
    this: ReaderShell<'_, '_>,
    kind: Option<Kind>,
    separators: Vec<Obj>,
    method: &Bound<'_, PyString>,
    arguments: &[Argument<'_, '_>],
) -> PyResult<Obj> {
    match kind {
        Some(kind) if Reader::shell().is_exactly(&this.object()) => {
            reading::call(this, kind, separators)
        }
        _ => inheritance::inherited::<Reader>(this, method, arguments),
    }
}

/// A property, so that transports notice a replacement: libraries listen to a stream that way.
fn feeder<'py>(this: ReaderShell<'_, 'py>) -> PyResult<Bound<'py, PyAny>> {
    let feeder = this.with(|core| core.feeder.get(core.py()))?;
    match feeder {
        Some(feeder) => Ok(feeder.into_bound(this.py())),
        None => this.object().getattr(intern!(this.py(), "_feed_data")),
    }
}

fn feed_data(this: ReaderShell<'_, '_>, data: Argument<'_, '_>) -> PyResult<()> {
    if this.with(|core| core.eof.get())? {
        return Err(PyAssertionError::raise("feed_data after feed_eof"));
    }
    let bytes = if data.is_exact_instance_of::<PyBytes>() {
        Obj::from_borrowed(data)
    } else {
        if !data.is_truthy()? {
            return Ok(());
        }
        // Whatever `bytearray.extend` takes, with its errors.
        let py = this.py();
        let array = PyByteArray::new_with(py, 0, |_| Ok(()))?;
        array.call_method1(intern!(py, "extend"), (data,))?;
        ffi::array_take(&array, array.len())?
    };
    if ffi::bytes_len(&bytes) == 0 {
        return Ok(());
    }
    this.run(|core| reader::feed(core, bytes))
}

fn at_eof(this: ReaderShell<'_, '_>) -> PyResult<bool> {
    this.with(|core| core.eof.get() && core.buffer.is_empty(core.py()))
}

fn set_exception(this: ReaderShell<'_, '_>, exception: Argument<'_, '_>) -> PyResult<()> {
    this.run(|core| reader::set_exception(core, Obj::from_borrowed(exception)))
}

fn set_buffer(this: ReaderShell<'_, '_>, array: Argument<'_, '_>) -> PyResult<()> {
    this.run(|core| core.buffer.replace(&array))
}

/// As the comparisons of asyncio would have it, which take any number.
fn set_limit(this: ReaderShell<'_, '_>, limit: Argument<'_, '_>) -> PyResult<()> {
    let py = this.py();
    let bytes = match limit.extract::<i64>() {
        Ok(bytes) => usize::try_from(bytes).unwrap_or(0),
        Err(_) if limit.is_instance_of::<PyFloat>() => limit.extract::<f64>()? as usize,
        Err(_) if limit.is_instance_of::<PyInt>() => {
            if limit.gt(0_i32.into_object(py)?)? {
                usize::MAX
            } else {
                0
            }
        }
        Err(_) => {
            let kind = limit.get_type().name()?;
            return Err(PyTypeError::raise(format!("limit must be a number, not {kind}")));
        }
    };
    this.with(|core| {
        core.limit.set(bytes);
        drop(core.limit_object.replace(Some(Obj::from_borrowed(limit))));
    })
}

fn set_flag(
    this: ReaderShell<'_, '_>,
    value: Argument<'_, '_>,
    place: impl for<'a> Fn(&'a Reader) -> &'a std::cell::Cell<bool>,
) -> PyResult<()> {
    let value = value.is_truthy()?;
    this.with(|core: Reader_<'_, '_>| place(core.payload()).set(value))
}

fn set_object(
    this: ReaderShell<'_, '_>,
    value: Argument<'_, '_>,
    place: impl for<'a> Fn(&'a Reader) -> &'a ObjCell,
) -> PyResult<()> {
    let value = (!value.is_none()).then(|| Obj::from_borrowed(value));
    let old = this.with(|core: Reader_<'_, '_>| place(core.payload()).replace(value))?;
    drop(old);
    Ok(())
}

/// Creates the types; returns the class.
pub(super) fn create(py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
    Reader::native().create(py, &py.get_type::<PyAny>())?;
    let name = intern!(py, "StreamReader");
    let base = py.import(intern!(py, "asyncio.streams"))?.getattr(name)?;
    inheritance::shell::<Reader>(base.cast()?, name, reader()).map(Bound::into_any)
}
