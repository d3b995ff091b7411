//! The coroutines of a reader's methods.
//!
//! Owns: [`Call`], one call of `read()` or its kin. Called by: `methods`, which makes them; a task, or the `await` of
//! another coroutine, through the slots of `ffi/coroutine.rs`.
//!
//! A call does nothing before its first step. Where the bytes are there it returns at that step, without a future and
//! without a suspension; else it waits for a future of the loop, as asyncio's does. It takes bytes in the step
//! that returns them, so a call that is cancelled or thrown away has taken none.
//!
//! Source: `asyncio.streams.StreamReader`.

use std::cell::{Cell, RefCell};
use std::ffi::CStr;

use memchr::{memchr, memmem};
use pyo3::exceptions::{
    PyAssertionError, PyRuntimeError, PyRuntimeWarning, PyStopAsyncIteration, PyStopIteration,
    PyTypeError, PyValueError,
};
use pyo3::prelude::*;
use pyo3::types::PyType;

use super::inheritance;
use super::reader::{self, Reader, Reader_, ReaderShell};
use crate::ffi::{
    self, Argument, Core as _, Coroutine, Definition, Fallible, IntoObject as _, Obj, ObjCell,
    Payload, Raise as _, Step, This, imported, intern, members, payload,
};
use crate::transport::base::warn_function;

/// What a call reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// At most so many bytes.
    Read(usize),
    /// Everything up to EOF.
    ReadAll,
    /// As given: it may be negative.
    Exactly(isize),
    Until,
    Line,
    /// The next line of `async for`.
    Next,
}

impl Kind {
    /// The method, as its coroutine is called.
    fn name(self) -> &'static str {
        match self {
            Self::Read(_) | Self::ReadAll => "read",
            Self::Exactly(_) => "readexactly",
            Self::Until => "readuntil",
            Self::Line => "readline",
            Self::Next => "__anext__",
        }
    }

    /// The method whose name an error has: the one that waits for another.
    fn waiting_name(self) -> &'static str {
        match self {
            Self::Line | Self::Next => Self::Until.name(),
            other => other.name(),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Created,
    Running,
    Suspended,
    Over,
}

/// One call.
pub struct Call {
    kind: Kind,
    state: Cell<State>,
    /// The `StreamReader`, until the call is over.
    reader: ObjCell,
    /// The separators of `readuntil()`, exact `bytes`, the shortest first.
    separators: Vec<Obj>,
    /// The future that it waits for.
    waiter: ObjCell,
    /// Where the search goes on.
    offset: Cell<usize>,
    /// What `read()` has so far.
    blocks: RefCell<Vec<Obj>>,
}

type Call_<'a, 'py> = This<'a, 'py, Call>;

impl Payload for Call {
    const NAME: &'static CStr = c"ringloop._native.StreamRead";
    const DOC: &'static CStr = c"A coroutine that reads from a stream.";
    payload!(Call; define define;
        visit reader, waiter;
        clear reader, waiter; finalize finalize);
}

fn define(type_: &mut Definition<Call>) {
    members!(type_, Call;
        send(value) => send, "Run up to the next suspension.";
        throw(typ, val=None, tb=None) => throw, "Raise an exception where it waits.";
        close() => close, "End it.";
        get __name__ => |this| this.kind.name(), "The method's name.";
        get __qualname__ => |this| format!("StreamReader.{}", this.kind.name()), "The method's qualified name.";
        get cr_running => |this| this.state.get() == State::Running, "Whether it is running.";
        get cr_suspended => |this| this.state.get() == State::Suspended, "Whether it waits.";
        get cr_frame => |this| this.py().None().into_bound(this.py()), "None: it has no Python frame.";
    );
    type_.coroutine();
}

/// Creates the type.
pub(super) fn create(py: Python<'_>) -> PyResult<Bound<'_, PyType>> {
    Call::native().create(py, &py.get_type::<PyAny>())
}

/// The coroutine of a method's call.
#[inline]
pub(super) fn call(reader: ReaderShell<'_, '_>, kind: Kind, separators: Vec<Obj>) -> PyResult<Obj> {
    let call = Call {
        kind,
        state: Cell::new(State::Created),
        reader: ObjCell::new(Some(Obj::from_borrowed(reader.object()))),
        separators,
        waiter: ObjCell::new(None),
        offset: Cell::new(0),
        blocks: RefCell::new(Vec::new()),
    };
    Call::native().instantiate(reader.py(), call).map(Obj::from)
}

/// What an attempt came to.
enum Attempt {
    Done(Obj),
    Wait,
}

impl Coroutine for Call {
    fn resume(this: Call_<'_, '_>, sends_none: bool) -> PyResult<Step> {
        let state = this.state.get();
        match state {
            State::Created if !sends_none => {
                let text = "can't send non-None value to a just-started coroutine";
                return Err(PyTypeError::raise(text));
            }
            State::Created | State::Suspended => this.state.set(State::Running),
            State::Running => return Err(PyValueError::raise("coroutine already executing")),
            State::Over => {
                return Err(PyRuntimeError::raise("cannot reuse already awaited coroutine"));
            }
        }
        let step = with_reader(this, |reader| step(this, reader, state == State::Created));
        match &step {
            Ok(Step::Suspend(_)) => this.state.set(State::Suspended),
            Ok(Step::Return(_)) => over(this),
            Err(_) => {
                give_back(this)?;
                over(this);
            }
        }
        step
    }
}

fn with_reader<R>(
    this: Call_<'_, '_>,
    body: impl FnOnce(Reader_<'_, '_>) -> PyResult<R>,
) -> PyResult<R> {
    let reader = this.reader.get_or_none(this.py());
    let shell = Reader::shell();
    match shell.get(&reader).or_else(|| shell.get_instance(&reader)) {
        Some(reader) => reader.run(body),
        None => Err(PyRuntimeError::raise("the garbage collector has taken this coroutine apart")),
    }
}

fn over(this: Call_<'_, '_>) {
    this.state.set(State::Over);
    drop(this.waiter.take());
    drop(this.reader.take());
}

fn step(this: Call_<'_, '_>, reader: Reader_<'_, '_>, is_first: bool) -> PyResult<Step> {
    let attempt = if is_first {
        begin(this, reader)
    } else {
        settle(this, reader).and_then(|()| attempt(this, reader, true))
    };
    match attempt.or_else(|error| line_of(this, reader, error)) {
        Ok(Attempt::Done(result)) if this.kind == Kind::Next && ffi::bytes_len(&result) == 0 => {
            Err(PyStopAsyncIteration::raise_bare())
        }
        Ok(Attempt::Done(result)) => Ok(Step::Return(result)),
        Ok(Attempt::Wait) => wait(this, reader),
        Err(error) => Err(error),
    }
}

/// The first step.
fn begin(this: Call_<'_, '_>, reader: Reader_<'_, '_>) -> PyResult<Attempt> {
    match this.kind {
        Kind::Exactly(..0) => {
            return Err(PyValueError::raise("readexactly size can not be less than zero"));
        }
        Kind::Until => check_separators(this)?,
        _ => {}
    }
    if let Some(exception) = reader.exception.get(this.py()) {
        return Err(PyErr::from_value(exception.into_bound(this.py())));
    }
    if matches!(this.kind, Kind::Read(0) | Kind::Exactly(0)) {
        return ffi::copy_bytes(this.py(), b"").map(Attempt::Done);
    }
    attempt(this, reader, false)
}

/// Takes what was asked for, if it is there.
fn attempt(this: Call_<'_, '_>, reader: Reader_<'_, '_>, has_waited: bool) -> PyResult<Attempt> {
    let py = this.py();
    match this.kind {
        Kind::Read(count) => {
            if !has_waited && reader.buffer.is_empty(py) && !reader.eof.get() {
                return Ok(Attempt::Wait);
            }
            taken(reader, count)
        }
        Kind::ReadAll => read_all(this, reader, has_waited),
        Kind::Exactly(count) => {
            let count = count.unsigned_abs();
            if reader.buffer.len(py) >= count {
                return taken(reader, count);
            }
            if !reader.eof.get() {
                return Ok(Attempt::Wait);
            }
            Err(incomplete(reader, Some(count))?)
        }
        Kind::Until | Kind::Line | Kind::Next => read_until(this, reader),
    }
}

#[inline]
fn taken(reader: Reader_<'_, '_>, count: usize) -> PyResult<Attempt> {
    let bytes = reader.buffer.take(reader.py(), count)?;
    reader::maybe_resume(reader)?;
    Ok(Attempt::Done(bytes))
}

/// Collects blocks until there is none.
fn read_all(
    this: Call_<'_, '_>,
    reader: Reader_<'_, '_>,
    mut has_waited: bool,
) -> PyResult<Attempt> {
    let py = this.py();
    loop {
        if let Some(exception) = reader.exception.get(py).filter(|_| !has_waited) {
            return Err(PyErr::from_value(exception.into_bound(py)));
        }
        if !has_waited && reader.buffer.is_empty(py) && !reader.eof.get() {
            return Ok(Attempt::Wait);
        }
        has_waited = false;
        let block = reader.buffer.take(py, usize::MAX)?;
        if ffi::bytes_len(&block) > 0 {
            let mut blocks = this.blocks.borrow_mut();
            blocks.try_reserve(1).map_err(ffi::no_memory)?;
            blocks.push(block);
            drop(blocks);
            reader::maybe_resume(reader)?;
            continue;
        }
        reader::maybe_resume(reader)?;
        let mut blocks = this.blocks.take();
        if blocks.len() == 1 {
            return Ok(Attempt::Done(blocks.remove(0)));
        }
        let pieces: Vec<&[u8]> = blocks.iter().map(|block| ffi::bytes_from(py, block, 0)).collect();
        return ffi::join_bytes(py, &pieces).map(Attempt::Done);
    }
}

/// The first separator in the buffer, or what its absence means.
fn read_until(this: Call_<'_, '_>, reader: Reader_<'_, '_>) -> PyResult<Attempt> {
    let py = this.py();
    let newline: &[u8] = b"\n";
    let given: Vec<&[u8]>;
    let separators = if this.kind == Kind::Until {
        given = this.separators.iter().map(|one| ffi::bytes_from(py, one, 0)).collect();
        given.as_slice()
    } else {
        std::slice::from_ref(&newline)
    };
    let (shortest, longest) = match (separators.first(), separators.last()) {
        (Some(shortest), Some(longest)) => (shortest.len(), longest.len()),
        _ => (0, 0),
    };
    let (offset, limit) = (this.offset.get(), reader.limit.get());
    let len = reader.buffer.len(py);
    if len >= offset + shortest {
        let found = reader.buffer.with(py, |bytes| find(bytes, offset, separators))?;
        if let Some((start, end)) = found {
            if start > limit {
                let text = "Separator is found, but chunk is longer than limit";
                return Err(overrun(py, text, start)?);
            }
            return taken(reader, end);
        }
        // The rest may be the beginning of a separator.
        let offset = (len + 1).saturating_sub(longest);
        this.offset.set(offset);
        if offset > limit {
            let text = "Separator is not found, and chunk exceed the limit";
            return Err(overrun(py, text, offset)?);
        }
    }
    if !reader.eof.get() {
        return Ok(Attempt::Wait);
    }
    if this.kind != Kind::Until {
        return reader.buffer.take(py, usize::MAX).map(Attempt::Done);
    }
    Err(incomplete(reader, None)?)
}

/// Start and end of the separator that ends first.
fn find(bytes: &[u8], offset: usize, separators: &[&[u8]]) -> Option<(usize, usize)> {
    let rest = bytes.get(offset..)?;
    let mut found: Option<(usize, usize)> = None;
    for separator in separators {
        let at = match separator {
            [byte] => memchr(*byte, rest),
            _ => memmem::find(rest, separator),
        };
        let Some(at) = at else { continue };
        let end = offset + at + separator.len();
        if found.is_none_or(|(_, known)| end < known) {
            found = Some((offset + at, end));
        }
    }
    found
}

fn check_separators(this: Call_<'_, '_>) -> PyResult<()> {
    let Some(shortest) = this.separators.first() else {
        return Err(PyValueError::raise("Separator should contain at least one element"));
    };
    if ffi::bytes_len(shortest) == 0 {
        return Err(PyValueError::raise("Separator should be at least one-byte string"));
    }
    Ok(())
}

/// The error of a stream that ended too early; it has what was there.
fn incomplete(reader: Reader_<'_, '_>, expected: Option<usize>) -> PyResult<PyErr> {
    let py = reader.py();
    let class = imported!(py, PyType, "asyncio.exceptions", "IncompleteReadError")?;
    let partial = reader.buffer.take(py, usize::MAX)?.into_bound(py);
    Ok(PyErr::from_value(class.call1((partial, expected.into_object(py)?))?))
}

fn overrun(py: Python<'_>, text: &str, consumed: usize) -> PyResult<PyErr> {
    let class = imported!(py, PyType, "asyncio.exceptions", "LimitOverrunError")?;
    let text = ffi::new_str(py, text)?;
    Ok(PyErr::from_value(class.call1((text, Fallible(consumed)))?))
}

/// What `readline()` makes of the errors of `readuntil()`.
fn line_of(this: Call_<'_, '_>, reader: Reader_<'_, '_>, error: PyErr) -> PyResult<Attempt> {
    let py = this.py();
    if !matches!(this.kind, Kind::Line | Kind::Next) {
        return Err(error);
    }
    let incomplete = imported!(py, PyType, "asyncio.exceptions", "IncompleteReadError")?;
    let overrun = imported!(py, PyType, "asyncio.exceptions", "LimitOverrunError")?;
    if error.matches(py, incomplete)? {
        let partial = error.value(py).getattr(intern!(py, "partial"))?;
        return Ok(Attempt::Done(partial.into()));
    }
    if !error.matches(py, overrun)? {
        return Err(error);
    }
    let error = error.into_value(py).into_bound(py);
    let consumed: usize = error.getattr(intern!(py, "consumed"))?.extract()?;
    let is_found = reader
        .buffer
        .with(py, |bytes| bytes.get(consumed..).is_some_and(|rest| rest.starts_with(b"\n")))?;
    reader.buffer.skip(py, if is_found { consumed + 1 } else { usize::MAX })?;
    reader::maybe_resume(reader)?;
    let text = error.getattr(intern!(py, "args"))?.get_item(0)?;
    let raised = PyValueError::raise_with(&text);
    raised.value(py).setattr(intern!(py, "__context__"), error)?;
    Err(raised)
}

/// Waits for bytes.
fn wait(this: Call_<'_, '_>, reader: Reader_<'_, '_>) -> PyResult<Step> {
    let py = this.py();
    if reader.waiter.is_some() {
        return Err(PyRuntimeError::raise(format!(
            "{}() called while another coroutine is already waiting for incoming data",
            this.kind.waiting_name()
        )));
    }
    if reader.eof.get() {
        return Err(PyAssertionError::raise("_wait_for_data after EOF"));
    }
    // What is asked for may be longer than the limit.
    if reader.paused.get() {
        reader::resume(reader)?;
    }
    let loop_ = reader.loop_.get_or_none(py);
    let future: Obj = loop_.call_method0(intern!(py, "create_future"))?.into();
    future.bind(py).setattr(intern!(py, "_asyncio_future_blocking"), Fallible(true))?;
    match this.kind {
        Kind::Exactly(count) => reader.buffer.begin_filling(py, count.unsigned_abs())?,
        _ => reader.buffer.stop_filling(py)?,
    }
    drop(this.waiter.replace(Some(future.clone_ref(py))));
    drop(reader.waiter.replace(Some(future.clone_ref(py))));
    Ok(Step::Suspend(future))
}

/// After a wait: the future is done. A task raises its exception by `throw()`; another driver may not.
fn settle(this: Call_<'_, '_>, reader: Reader_<'_, '_>) -> PyResult<()> {
    let py = this.py();
    let Some(waiter) = this.waiter.take() else {
        return Ok(());
    };
    let is_ours = reader.waiter.is(&waiter);
    if !is_ours && !reader.exception.is_some() {
        return Ok(());
    }
    let done = ffi::call_method(py, intern!(py, "done"), &[&waiter])?;
    if is_ours {
        drop(reader.waiter.take());
    }
    if !done.bind(py).is_truthy()? {
        return Err(PyRuntimeError::raise("await wasn't used with future"));
    }
    ffi::call_method(py, intern!(py, "result"), &[&waiter]).map(drop)
}

/// Ends the wait, and gives back what was received for this call alone.
fn give_back(this: Call_<'_, '_>) -> PyResult<()> {
    let py = this.py();
    let (waiter, blocks) = (this.waiter.take(), this.blocks.take());
    if waiter.is_none() && blocks.is_empty() {
        return Ok(());
    }
    with_reader(this, |reader| {
        if waiter.is_some_and(|waiter| reader.waiter.is(&waiter)) {
            drop(reader.waiter.take());
            reader.buffer.stop_filling(py)?;
        }
        blocks.into_iter().rev().try_for_each(|block| reader.buffer.push_front(py, block))
    })
}

fn send(this: Call_<'_, '_>, value: Argument<'_, '_>) -> PyResult<Obj> {
    match Call::resume(this, value.is_none())? {
        Step::Suspend(awaited) => Ok(awaited),
        Step::Return(result) => Err(PyStopIteration::raise_with(result.bind(this.py()))),
    }
}

fn throw(
    this: Call_<'_, '_>,
    typ: Argument<'_, '_>,
    val: Option<Argument<'_, '_>>,
    _tb: Option<Argument<'_, '_>>,
) -> PyResult<Obj> {
    let error = inheritance::thrown(typ, val);
    match this.state.get() {
        State::Running => return Err(PyValueError::raise("coroutine already executing")),
        State::Over => {
            return Err(PyRuntimeError::raise("cannot reuse already awaited coroutine"));
        }
        State::Created => {
            over(this);
            return Err(error);
        }
        State::Suspended => this.state.set(State::Running),
    }
    let ended = give_back(this);
    let mapped = ended.and_then(|()| with_reader(this, |reader| line_of(this, reader, error)));
    over(this);
    match mapped {
        Ok(Attempt::Done(line)) => Err(PyStopIteration::raise_with(line.bind(this.py()))),
        Ok(Attempt::Wait) => Err(PyRuntimeError::raise("a coroutine that has ended cannot wait")),
        Err(error) => Err(error),
    }
}

fn close(this: Call_<'_, '_>) -> PyResult<()> {
    match this.state.get() {
        State::Running => Err(PyValueError::raise("coroutine already executing")),
        State::Over => Ok(()),
        State::Created | State::Suspended => {
            let given_back = give_back(this);
            over(this);
            given_back
        }
    }
}

/// It has no reference any more.
fn finalize(this: Call_<'_, '_>) {
    let py = this.py();
    let done = match this.state.get() {
        State::Running | State::Over => return,
        State::Created => never_awaited(this),
        State::Suspended => give_back(this),
    };
    if let Err(error) = done {
        error.write_unraisable(py, Some(&this.object()));
    }
}

/// The warning of every coroutine.
#[cold]
fn never_awaited(this: Call_<'_, '_>) -> PyResult<()> {
    let py = this.py();
    let name = this.kind.name();
    let text = format!("coroutine 'StreamReader.{name}' was never awaited");
    let text = ffi::new_str(py, &text)?;
    warn_function(py)?.call1((text, py.get_type::<PyRuntimeWarning>())).map(drop)
}
