//! Contents of a handle: a callable, its arguments and its context.
//!
//! Handles are created and freed millions of times a second, and millions may be pending, so they
//! use the words that `asyncio.Handle.__slots__` reserves anyway. `CPython` orders slots by name:
//!
//! | word | asyncio's slot       | here                                                        |
//! |------|----------------------|-------------------------------------------------------------|
//! | 0    | `_args`              | the first argument, or the tuple of more than three         |
//! | 1    | `_callback`          | the callable                                                |
//! | 2    | `_cancelled`         | the second argument                                         |
//! | 3    | `_context`           | the context; none while it would be an empty one            |
//! | 4    | `_loop`              | the loop                                                    |
//! | 5    | `_repr`              | the third argument; once cancelled in debug mode, the repr  |
//! | 6    | `_source_traceback`  | the source traceback, in debug mode                         |
//!
//! The handle types hide these slots behind properties with asyncio's meaning.
//!
//! Any thread may cancel a handle, so all of this is accessed only under the handle's lock
//! (`ffi::locked`), and the turn takes its own references before it calls: a cancelling thread must
//! neither wait for the callback nor clear what is being called. Two exceptions: a handle being
//! filled is not visible to other threads yet, and `cancelled` is atomic, because the queues read
//! it.

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use pyo3::prelude::*;
use pyo3::types::PyTuple;

use crate::ffi::{self, Args, Confined, Obj, ObjCell, Payload, This};
use crate::limits;

/// The slots of `asyncio.Handle` that hold objects.
pub const SLOTS: usize = 7;

const ARGUMENTS: [usize; 3] = [0, 2, 5];
const CALLABLE: usize = 1;
const CONTEXT: usize = 3;
const LOOP: usize = 4;
const REPR: usize = ARGUMENTS[2];
const SOURCE_TRACEBACK: usize = 6;

/// Marks that the first argument's word holds a tuple of all arguments.
const TUPLE: u8 = u8::MAX;

/// The payload that all handle types start with.
#[derive(Default)]
pub struct State {
    argument_count: Cell<u8>,
    cancelled: AtomicBool,
}

impl State {
    #[inline]
    pub fn is_cancelled(&self) -> bool {
        self.cancelled.load(Relaxed)
    }
}

/// A handle type.
pub trait AsHandle: Payload {
    fn state(&self) -> &State;
}

/// The callback of a handle.
#[derive(Clone, Copy)]
pub struct Callback<'a> {
    cells: &'a [ObjCell; SLOTS],
    state: &'a State,
}

impl<'a> Callback<'a> {
    /// The callback of `this`.
    #[inline]
    pub fn of<T: AsHandle>(this: This<'a, '_, T>) -> Self {
        let state = this.payload().state();
        Self { cells: this.base_slots(), state }
    }

    /// Fills a new handle.
    #[inline(always)]
    pub fn fill(self, parts: Parts<'_, '_>) {
        let [first, second, third] = ARGUMENTS.map(|word| &self.cells[word]);
        let argument = |index| parts.args.get(parts.skip + index).map(Obj::from_borrowed);
        let count = parts.args.len().saturating_sub(parts.skip);
        if let Some(tuple) = parts.tuple {
            self.state.argument_count.set(TUPLE);
            self.put(first, Some(tuple));
        } else if count > 0 {
            self.state.argument_count.set(count as u8);
            self.put(first, argument(0));
            self.put(second, argument(1));
            self.put(third, argument(2));
        }
        self.put(&self.cells[CALLABLE], Some(parts.callable));
        self.put(&self.cells[CONTEXT], parts.context);
        self.put(&self.cells[LOOP], Some(parts.loop_));
        self.put(&self.cells[SOURCE_TRACEBACK], parts.source_traceback);
    }

    /// Fills a new handle with a task's step.
    pub fn fill_step(self, callable: Obj, argument: Option<Obj>, context: Obj, loop_: Obj) {
        self.state.argument_count.set(u8::from(argument.is_some()));
        self.put(&self.cells[ARGUMENTS[0]], argument);
        self.put(&self.cells[CALLABLE], Some(callable));
        self.put(&self.cells[CONTEXT], Some(context));
        self.put(&self.cells[LOOP], Some(loop_));
    }

    #[inline]
    #[expect(clippy::unused_self, reason = "reads as what it does to a new handle")]
    fn put(self, cell: &ObjCell, object: Option<Obj>) {
        // A new handle's cells are empty, so this drops nothing.
        std::mem::forget(cell.replace(object));
    }

    /// Calls it in its context; no effect if cleared. If the context is empty, one from `contexts`
    /// is used. `handle` is the callback's handle.
    #[inline(always)]
    pub fn run(self, handle: &Bound<'_, PyAny>, contexts: &Contexts) -> PyResult<()> {
        let py = handle.py();
        if ffi::is_unique_without_lock(handle) {
            return self.run_unseen(handle, contexts);
        }
        let Some(call) = ffi::locked(handle, || self.prepare(py, contexts))? else {
            return Ok(());
        };
        let result = call.run(py);
        // The exception handler gets the handle, and runs in its context.
        if call.is_context_lent && result.is_ok() {
            ffi::locked(handle, || self.return_context(py, call.context, contexts))?;
        }
        result
    }

    /// As `run`, for a handle without other references: its contents are moved out. Incrementing
    /// the count of a callable that other loops increment too is the main cost of a callback.
    #[inline(always)]
    fn run_unseen(self, handle: &Bound<'_, PyAny>, contexts: &Contexts) -> PyResult<()> {
        let py = handle.py();
        let Some(callable) = self.cells[CALLABLE].take() else {
            return Ok(());
        };
        let own = self.cells[CONTEXT].take();
        let is_context_lent = own.is_none();
        let context = own.map_or_else(|| contexts.lend(py), Ok)?;
        let call = Call {
            callable,
            arguments: ARGUMENTS.map(|word| self.cells[word].take()),
            argument_count: self.state.argument_count.get(),
            context,
            is_context_lent,
        };
        let result = call.run(py);
        if result.is_err() {
            // The exception handler gets the handle.
            ffi::locked(handle, || self.put_back(call));
        } else if is_context_lent {
            drop(contexts.give_back(py, call.context)?);
        }
        result
    }

    fn put_back(self, call: Call) {
        self.put(&self.cells[CALLABLE], Some(call.callable));
        self.put(&self.cells[CONTEXT], Some(call.context));
        for (word, argument) in ARGUMENTS.into_iter().zip(call.arguments) {
            self.put(&self.cells[word], argument);
        }
    }

    /// Takes what is to be called; `None` if cleared.
    #[inline(always)]
    fn prepare(self, py: Python<'_>, contexts: &Contexts) -> PyResult<Option<Call>> {
        let Some(callable) = self.cells[CALLABLE].get(py) else {
            return Ok(None);
        };
        let is_context_lent = !self.cells[CONTEXT].is_some();
        if is_context_lent {
            self.put(&self.cells[CONTEXT], Some(contexts.lend(py)?));
        }
        let Some(context) = self.cells[CONTEXT].get(py) else {
            return Ok(None);
        };
        let argument_count = self.state.argument_count.get();
        let argument = |index: usize| {
            let given = index < usize::from(argument_count);
            given.then(|| self.cells[ARGUMENTS[index]].get(py)).flatten()
        };
        Ok(Some(Call {
            callable,
            arguments: [argument(0), argument(1), argument(2)],
            argument_count,
            context,
            is_context_lent,
        }))
    }

    /// After a call in a context of `contexts`: the handle keeps it if it was used.
    #[inline(always)]
    fn return_context(self, py: Python<'_>, context: Obj, contexts: &Contexts) -> PyResult<()> {
        // Not the last reference: `context` is one.
        drop(self.cells[CONTEXT].take());
        let used = contexts.give_back(py, context)?;
        self.put(&self.cells[CONTEXT], used);
        Ok(())
    }

    /// Cancels; whether it was not cancelled before.
    pub fn mark_cancelled(self) -> bool {
        !self.state.cancelled.swap(true, Relaxed)
    }

    /// Drops callable and arguments, and keeps the handle's repr; the context stays.
    pub fn empty(self, repr: Option<Obj>) {
        let old = (self.cells[CALLABLE].take(), ARGUMENTS.map(|word| self.cells[word].take()));
        self.state.argument_count.set(0);
        let none = self.cells[REPR].replace(repr);
        drop((old, none));
    }

    pub fn callable(self, py: Python<'_>) -> Bound<'_, PyAny> {
        self.cells[CALLABLE].get_or_none(py)
    }

    /// The context; created here if it was an empty one.
    pub fn context(self, py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
        if !self.cells[CONTEXT].is_some() {
            let context = ffi::context_new(py)?;
            drop(self.cells[CONTEXT].replace(Some(context)));
        }
        Ok(self.cells[CONTEXT].get_or_none(py))
    }

    pub fn loop_(self, py: Python<'_>) -> Bound<'_, PyAny> {
        self.cells[LOOP].get_or_none(py)
    }

    /// The stack that scheduled it, or None.
    pub fn source_traceback(self, py: Python<'_>) -> Bound<'_, PyAny> {
        self.cells[SOURCE_TRACEBACK].get_or_none(py)
    }

    /// The repr at cancellation, in debug mode.
    pub fn repr(self, py: Python<'_>) -> Option<Obj> {
        // Until the handle is cleared, the word may hold an argument.
        if self.state.is_cancelled() && !self.cells[CALLABLE].is_some() {
            self.cells[REPR].get(py)
        } else {
            None
        }
    }

    /// The arguments as a tuple; None once cancelled, as in asyncio.
    pub fn arguments(self, py: Python<'_>) -> PyResult<Option<Bound<'_, PyTuple>>> {
        if !self.cells[CALLABLE].is_some() {
            return Ok(None);
        }
        let first = &self.cells[ARGUMENTS[0]];
        match self.state.argument_count.get() {
            TUPLE => Ok(first.get_or_none(py).cast_into::<PyTuple>().ok()),
            count => {
                let words = &ARGUMENTS[..usize::from(count)];
                let objects = words.iter().map(|&word| self.cells[word].get_or_none(py));
                ffi::new_tuple(py, objects).map(Some)
            }
        }
    }
}

/// One call of a callback, with its own references, since the callback may cancel its handle.
struct Call {
    callable: Obj,
    /// As in the handle's words.
    arguments: [Option<Obj>; ARGUMENTS.len()],
    argument_count: u8,
    context: Obj,
    /// The context belongs to the loop's pool of empty ones.
    is_context_lent: bool,
}

impl Call {
    #[inline(always)]
    fn run(&self, py: Python<'_>) -> PyResult<()> {
        ffi::context_enter(py, &self.context)?;
        let result = self.call(py);
        ffi::context_exit(py, &self.context)?;
        result.map(drop)
    }

    #[inline]
    fn call(&self, py: Python<'_>) -> PyResult<Obj> {
        let callable = &self.callable;
        match (self.argument_count, &self.arguments) {
            (1, [Some(a), ..]) => ffi::call(py, callable, &[a]),
            (2, [Some(a), Some(b), _]) => ffi::call(py, callable, &[a, b]),
            (3, [Some(a), Some(b), Some(c)]) => ffi::call(py, callable, &[a, b, c]),
            (TUPLE, [Some(all), ..]) => ffi::call_tuple(callable, all.bind(py).cast::<PyTuple>()?),
            _ => ffi::call_no_args(py, callable),
        }
    }
}

/// Copies the current context for a new handle; None stands for an empty one.
#[inline]
pub fn current_context(py: Python<'_>) -> PyResult<Option<Obj>> {
    if ffi::current_context_is_empty(py) {
        return Ok(None);
    }
    ffi::context_copy_current(py).map(Some)
}

/// Pool of empty contexts for callbacks.
#[derive(Default)]
pub struct Contexts(Confined<Vec<Obj>>);

impl Contexts {
    #[inline]
    fn lend(&self, py: Python<'_>) -> PyResult<Obj> {
        match self.0.with(Vec::pop)? {
            Some(context) => Ok(context),
            None => ffi::context_new(py),
        }
    }

    /// Returns a context to the pool; a changed or referenced one is handed back instead.
    #[inline]
    fn give_back(&self, py: Python<'_>, context: Obj) -> PyResult<Option<Obj>> {
        if !ffi::context_is_fresh(py, &context) {
            return Ok(Some(context));
        }
        Ok(self.0.with(|pool| {
            if pool.len() < limits::CONTEXTS_KEPT {
                pool.push(context);
                return None;
            }
            Some(context)
        })?)
    }

    pub fn clear(&self) -> PyResult<()> {
        drop(self.0.with(std::mem::take)?);
        Ok(())
    }
}

/// Contents of a new handle.
pub struct Parts<'a, 'py> {
    callable: Obj,
    args: Args<'a, 'py>,
    skip: usize,
    /// All arguments, if there are too many for the words.
    tuple: Option<Obj>,
    /// None stands for an empty one.
    context: Option<Obj>,
    loop_: Obj,
    source_traceback: Option<Obj>,
}

impl<'a, 'py> Parts<'a, 'py> {
    /// A callable with the arguments from `skip` on.
    #[inline]
    pub fn new(
        callable: Obj,
        args: Args<'a, 'py>,
        skip: usize,
        context: Option<Obj>,
        loop_: Obj,
    ) -> PyResult<Self> {
        let many = args.len() > skip + ARGUMENTS.len();
        let tuple = if many { Some(args.tuple(skip)?.into()) } else { None };
        let source_traceback = None;
        Ok(Self { callable, args, skip, tuple, context, loop_, source_traceback })
    }

    /// With the stack that scheduled it.
    pub fn scheduled_by(mut self, source_traceback: Obj) -> Self {
        self.source_traceback = Some(source_traceback);
        self
    }
}
