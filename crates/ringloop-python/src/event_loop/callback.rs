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

use super::contexts::Entered;
use crate::ffi::{self, Args, Obj, ObjCell, Payload, This};

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

    /// Fills a new handle with `call` and the arguments from `skip` on.
    ///
    /// # Errors
    /// Without memory for what does not fit into words; the handle is then to be dropped.
    #[inline(always)]
    pub fn fill(
        self,
        loop_: Obj,
        call: Call<'_, '_>,
        args: Args<'_, '_>,
        skip: usize,
    ) -> PyResult<()> {
        match args.len() - skip.min(args.len()) {
            0 => (),
            count if count <= ARGUMENTS.len() => {
                self.state.argument_count.set(count as u8);
                for (word, argument) in ARGUMENTS.into_iter().zip(args.skip(skip)) {
                    self.put(&self.cells[word], Some(Obj::from_borrowed(argument)));
                }
            }
            _ => self.fill_tuple(args.tuple(skip)?.into()),
        }
        self.put(&self.cells[CALLABLE], Some(Obj::from_borrowed(call.callback)));
        self.put(&self.cells[CONTEXT], call.context);
        self.put(&self.cells[LOOP], Some(loop_));
        Ok(())
    }

    /// Records the stack that schedules a new handle.
    pub fn fill_source_traceback(self, stack: Obj) {
        self.put(&self.cells[SOURCE_TRACEBACK], Some(stack));
    }

    fn fill_tuple(self, arguments: Obj) {
        self.state.argument_count.set(TUPLE);
        self.put(&self.cells[ARGUMENTS[0]], Some(arguments));
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
        // The cells are empty, so this drops nothing.
        std::mem::forget(cell.replace(object));
    }

    /// Calls it in its context; no effect if cleared. `handle` is the callback's handle.
    #[inline(always)]
    pub fn run(self, handle: &Bound<'_, PyAny>, entered: &mut Entered<'_>) -> PyResult<()> {
        if ffi::is_unique(handle) {
            self.run_unseen(handle, entered)
        } else {
            self.run_seen(handle, entered)
        }
    }

    /// For a handle without other references, which cannot be cancelled meanwhile: its contents are
    /// moved out. Incrementing the count of a callable that other loops increment too is the main
    /// cost of a callback without the interpreter lock.
    #[inline(always)]
    fn run_unseen(self, handle: &Bound<'_, PyAny>, entered: &mut Entered<'_>) -> PyResult<()> {
        let py = handle.py();
        let Some(callable) = self.cells[CALLABLE].take() else {
            return Ok(());
        };
        let argument_count = self.state.argument_count.get();
        let context = self.cells[CONTEXT].take();
        let arguments = if argument_count == 0 {
            [const { None }; ARGUMENTS.len()]
        } else {
            ARGUMENTS.map(|word| self.cells[word].take())
        };
        let called = Called { callable, arguments, argument_count };
        let result = match &context {
            Some(context) => entered.call_in(py, context, || called.call(py)),
            None => entered.call(py, || called.call(py)),
        };
        let Err(error) = result else { return Ok(()) };
        // The exception handler gets the handle, and runs in its context.
        let (context, error) = match entered.take(py) {
            Ok(entered) => (context.or(entered), error),
            Err(left_by_callback) => (context, left_by_callback),
        };
        drop(ffi::locked(handle, || self.put_back(called, context)));
        Err(error)
    }

    /// Returns what the words hold meanwhile, if a weak reference has led to the handle.
    #[cold]
    fn put_back(self, called: Called, context: Option<Obj>) -> [Option<Obj>; 5] {
        let [first, second, third] = called.arguments;
        [
            self.cells[CALLABLE].replace(Some(called.callable)),
            self.cells[CONTEXT].replace(context),
            self.cells[ARGUMENTS[0]].replace(first),
            self.cells[ARGUMENTS[1]].replace(second),
            self.cells[ARGUMENTS[2]].replace(third),
        ]
    }

    /// For a handle that others know: they may cancel it meanwhile, and ask for its context.
    fn run_seen(self, handle: &Bound<'_, PyAny>, entered: &mut Entered<'_>) -> PyResult<()> {
        let py = handle.py();
        let prepare = || Some((self.called(py)?, self.cells[CONTEXT].get(py)));
        let Some((called, own)) = ffi::locked(handle, prepare) else {
            return Ok(());
        };
        let (context, is_lent) = if let Some(own) = own {
            (own, false)
        } else {
            let lent = entered.lend(py)?;
            ffi::locked(handle, || self.lend(py, lent))
        };
        let result = entered.call_in(py, &context, || called.call(py));
        // The exception handler gets the handle, and runs in its context.
        if is_lent && result.is_ok() {
            ffi::locked(handle, || self.return_context(py, context, entered))?;
        }
        result
    }

    /// Gives the handle `context`, unless it has one by now; also whether it was given.
    fn lend(self, py: Python<'_>, context: Obj) -> (Obj, bool) {
        if let Some(own) = self.cells[CONTEXT].get(py) {
            return (own, false);
        }
        self.put(&self.cells[CONTEXT], Some(context.clone_ref(py)));
        (context, true)
    }

    /// Own references to what is to be called; `None` if cleared.
    #[inline(always)]
    fn called(self, py: Python<'_>) -> Option<Called> {
        let callable = self.cells[CALLABLE].get(py)?;
        let argument_count = self.state.argument_count.get();
        let argument = |index: usize| {
            let given = index < usize::from(argument_count);
            given.then(|| self.cells[ARGUMENTS[index]].get(py)).flatten()
        };
        Some(Called {
            callable,
            arguments: [argument(0), argument(1), argument(2)],
            argument_count,
        })
    }

    /// After a call in a lent context: the handle keeps it if it was used.
    #[inline(always)]
    fn return_context(self, py: Python<'_>, context: Obj, entered: &Entered<'_>) -> PyResult<()> {
        // Not the last reference: `context` is one.
        drop(self.cells[CONTEXT].take());
        let used = entered.contexts.give_back(py, context)?;
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

/// What a callback calls, with its own references, since the callback may cancel its handle.
struct Called {
    callable: Obj,
    /// As in the handle's words.
    arguments: [Option<Obj>; ARGUMENTS.len()],
    argument_count: u8,
}

impl Called {
    #[inline]
    fn call(&self, py: Python<'_>) -> PyResult<Obj> {
        let callable = &self.callable;
        match (self.argument_count, &self.arguments) {
            (0, _) => ffi::call_no_args(py, callable),
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

/// What is to be scheduled; the arguments are still in the vector of the call.
pub struct Call<'a, 'py> {
    pub callback: Borrowed<'a, 'py, PyAny>,
    /// None stands for an empty one.
    pub context: Option<Obj>,
}
