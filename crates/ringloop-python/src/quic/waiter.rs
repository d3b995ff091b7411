//! `Waiter`: the awaitable of a coroutine that waits for an event of a connection.
//!
//! It is a future to asyncio: tasks, `wait_for` and `shield` accept it by the protocol of
//! `_asyncio_future_blocking` (`asyncio/base_futures.py`, `isfuture`). asyncio's own future wakes
//! its task through the loop's queue, and the loop polls the kernel again before the task's step;
//! when the loop itself calls the endpoint, no other task is on the stack, and the step is made at
//! once. Callbacks other than a task's own always use the queue.

use std::iter::Chain;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::{option, vec};

use pyo3::PyTraverseError;
use pyo3::exceptions::asyncio::{CancelledError, InvalidStateError};
use pyo3::gc::PyVisit;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;

use super::loop_::Methods;
use crate::ffi::{self, Fallible, Obj, Raise as _, StepTypes, intern};

#[derive(Debug)]
enum Outcome {
    Pending,
    Done,
    /// With its message.
    Cancelled(Option<Py<PyAny>>),
}

struct Callback {
    callable: Obj,
    context: Obj,
}

struct Inner {
    outcome: Outcome,
    callbacks: Callbacks,
}

/// Usually one, a task's, which needs no memory of its own.
#[derive(Default)]
struct Callbacks {
    first: Option<Callback>,
    others: Vec<Callback>,
}

impl Callbacks {
    fn push(&mut self, callback: Callback) {
        match self.first {
            None => self.first = Some(callback),
            Some(_) => self.others.push(callback),
        }
    }

    fn iter(&self) -> impl Iterator<Item = &Callback> {
        self.first.iter().chain(&self.others)
    }
}

impl IntoIterator for Callbacks {
    type Item = Callback;
    type IntoIter = Chain<option::IntoIter<Callback>, vec::IntoIter<Callback>>;

    fn into_iter(self) -> Self::IntoIter {
        self.first.into_iter().chain(self.others)
    }
}

/// A future of the loop that drives an endpoint; its result is None.
#[pyclass(frozen, weakref, module = "ringloop._native.quic")]
pub struct Waiter {
    loop_: Py<PyAny>,
    is_blocking: AtomicBool,
    inner: Mutex<Inner>,
}

/// How callbacks are run.
#[derive(Clone, Copy)]
pub enum Way<'a> {
    /// A task's step at once. It is given a future of asyncio's own that is done: the step looks at
    /// nothing but the outcome, and takes that of its own class without a call.
    Direct(&'a Py<PyAny>),
    /// Through the loop's queue.
    Queue,
}

impl<'a> Way<'a> {
    /// Direct, if no task is running.
    pub fn from_the_loop(py: Python<'_>, methods: &'a Methods) -> PyResult<Self> {
        static CURRENT_TASK: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
        let current_task = CURRENT_TASK.get_or_try_init(py, || {
            let found = py.import(intern!(py, "asyncio"))?.getattr(intern!(py, "current_task"))?;
            Ok::<_, PyErr>(found.unbind())
        })?;
        // An error: no loop runs in this thread.
        match current_task.bind(py).call0() {
            // The queue, if there is no memory for the future.
            Ok(task) if task.is_none() => Ok(methods.done(py).map_or(Self::Queue, Self::Direct)),
            _ => Ok(Self::Queue),
        }
    }
}

impl Waiter {
    pub fn new(loop_: Py<PyAny>) -> Self {
        Self {
            loop_,
            is_blocking: AtomicBool::new(false),
            inner: Mutex::new(Inner { outcome: Outcome::Pending, callbacks: Callbacks::default() }),
        }
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn is_done(&self) -> bool {
        !matches!(self.inner().outcome, Outcome::Pending)
    }

    /// Completes it, unless it is done; whether the loop's queue now has something of it.
    pub fn wake(slf: &Bound<'_, Self>, way: Way<'_>) -> PyResult<bool> {
        call_all(slf, slf.get().end(Outcome::Done), way)
    }

    fn end(&self, outcome: Outcome) -> Callbacks {
        let mut inner = self.inner();
        if !matches!(inner.outcome, Outcome::Pending) {
            return Callbacks::default();
        }
        inner.outcome = outcome;
        std::mem::take(&mut inner.callbacks)
    }

    /// Its result; an error if there is none.
    fn outcome(&self, py: Python<'_>) -> PyResult<()> {
        let message = match &self.inner().outcome {
            Outcome::Done => return Ok(()),
            Outcome::Pending => None,
            Outcome::Cancelled(message) => {
                Some(message.as_ref().map(|message| message.clone_ref(py)))
            }
        };
        Err(match message {
            None => InvalidStateError::raise("Result is not set."),
            Some(None) => CancelledError::raise_bare(),
            Some(Some(message)) => CancelledError::raise_with(message.bind(py)),
        })
    }
}

/// Calls all of them, even if one raises; whether the loop's queue now has one of them.
fn call_all(
    waiter: &Bound<'_, Waiter>,
    callbacks: impl IntoIterator<Item = Callback>,
    way: Way<'_>,
) -> PyResult<bool> {
    let (mut queued, mut failed) = (false, Ok(()));
    for callback in callbacks {
        let way = if failed.is_ok() { way } else { Way::Queue };
        match call(waiter, &callback, way) {
            Ok(is_queued) => queued |= is_queued,
            Err(error) => failed = failed.and(Err(error)),
        }
    }
    failed.map(|()| queued)
}

/// Returns whether it is in the loop's queue now.
fn call(waiter: &Bound<'_, Waiter>, callback: &Callback, way: Way<'_>) -> PyResult<bool> {
    let py = waiter.py();
    let Callback { callable, context } = callback;
    if let Way::Direct(done) = way
        && StepTypes::shared(py)?.is_wakeup(callable.bind(py).as_borrowed())
        && ffi::context_enter(py, context).is_ok()
    {
        let result = ffi::call_one(py, callable, &Obj::from_borrowed(done.bind_borrowed(py)));
        ffi::context_exit(py, context)?;
        return result.map(|_| false);
    }
    let named = ffi::new_dict(py)?;
    named.set_item(intern!(py, "context"), context.bind(py))?;
    let loop_ = waiter.get().loop_.bind(py);
    loop_.call_method(intern!(py, "call_soon"), (callable.bind(py), waiter), Some(&named))?;
    Ok(true)
}

#[pymethods]
impl Waiter {
    fn __await__<'py>(slf: &Bound<'py, Self>) -> Bound<'py, Self> {
        slf.clone()
    }

    fn __iter__<'py>(slf: &Bound<'py, Self>) -> Bound<'py, Self> {
        slf.clone()
    }

    /// To the task, until there is a result.
    fn __next__<'py>(slf: &Bound<'py, Self>) -> PyResult<Option<Bound<'py, Self>>> {
        ffi::arm();
        let this = slf.get();
        if !this.is_done() {
            this.is_blocking.store(true, Ordering::Relaxed);
            return Ok(Some(slf.clone()));
        }
        this.outcome(slf.py()).map(|()| None)
    }

    #[getter(_asyncio_future_blocking)]
    fn is_blocking(&self) -> bool {
        self.is_blocking.load(Ordering::Relaxed)
    }

    #[setter(_asyncio_future_blocking)]
    fn set_blocking(&self, blocking: bool) {
        self.is_blocking.store(blocking, Ordering::Relaxed);
    }

    /// The loop.
    fn get_loop<'py>(&self, py: Python<'py>) -> &Bound<'py, PyAny> {
        self.loop_.bind(py)
    }

    /// Whether there is a result, or it was cancelled.
    fn done(&self) -> bool {
        self.is_done()
    }

    /// Whether it was cancelled.
    fn cancelled(&self) -> bool {
        matches!(self.inner().outcome, Outcome::Cancelled(_))
    }

    /// None once it is done; else an error.
    fn result(&self, py: Python<'_>) -> PyResult<()> {
        self.outcome(py)
    }

    /// None once it is done; else an error.
    fn exception(&self, py: Python<'_>) -> PyResult<()> {
        self.outcome(py)
    }

    /// Schedule `callback(self)` in the loop, in a context, when it is done.
    #[pyo3(signature = (callback, /, *, context=None))]
    fn add_done_callback(
        slf: &Bound<'_, Self>,
        callback: Py<PyAny>,
        context: Option<Py<PyAny>>,
    ) -> PyResult<()> {
        let py = slf.py();
        let context = match context {
            Some(context) => context.into_bound(py).into(),
            None => ffi::context_copy_current(py)?,
        };
        let callback = Callback { callable: callback.into_bound(py).into(), context };
        let mut inner = slf.get().inner();
        if matches!(inner.outcome, Outcome::Pending) {
            inner.callbacks.push(callback);
            return Ok(());
        }
        drop(inner);
        call(slf, &callback, Way::Queue).map(drop)
    }

    /// Remove a callback; return how many times it was registered.
    fn remove_done_callback(
        slf: &Bound<'_, Self>,
        callback: &Bound<'_, PyAny>,
    ) -> PyResult<Fallible<usize>> {
        let kept = std::mem::take(&mut slf.get().inner().callbacks);
        let mut kept = Vec::from_iter(kept);
        let count = kept.len();
        let mut failed = Ok(());
        kept.retain(|known| match known.callable.bind(slf.py()).eq(callback) {
            Ok(is_same) => !is_same,
            Err(error) => {
                failed = Err(error);
                true
            }
        });
        let removed = count - kept.len();
        let mut inner = slf.get().inner();
        if matches!(inner.outcome, Outcome::Pending) {
            // Those added meanwhile come after them.
            let added = std::mem::take(&mut inner.callbacks);
            for callback in kept.into_iter().chain(added) {
                inner.callbacks.push(callback);
            }
            return failed.map(|()| Fallible(removed));
        }
        drop(inner);
        // It completed during the comparison of callbacks, which may run any code: these were not
        // called.
        let called = call_all(slf, kept, Way::Queue);
        failed.and(called).map(|_| Fallible(removed))
    }

    /// Cancel it; False if it is already done.
    #[pyo3(signature = (msg=None))]
    fn cancel(slf: &Bound<'_, Self>, msg: Option<Py<PyAny>>) -> PyResult<bool> {
        if slf.get().is_done() {
            return Ok(false);
        }
        call_all(slf, slf.get().end(Outcome::Cancelled(msg)), Way::Queue)?;
        Ok(true)
    }

    fn __repr__(&self) -> Fallible<&'static str> {
        Fallible(match self.inner().outcome {
            Outcome::Pending => "<Waiter pending>",
            Outcome::Done => "<Waiter finished result=None>",
            Outcome::Cancelled(_) => "<Waiter cancelled>",
        })
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.loop_)?;
        // A thread that holds the lock will release it: the next collection visits what it guards.
        let Ok(inner) = self.inner.try_lock() else {
            return Ok(());
        };
        for callback in inner.callbacks.iter() {
            visit.call(callback.callable.as_py())?;
            visit.call(callback.context.as_py())?;
        }
        match &inner.outcome {
            Outcome::Cancelled(Some(message)) => visit.call(message),
            _ => Ok(()),
        }
    }

    fn __clear__(&self) {
        if let Ok(mut inner) = self.inner.try_lock() {
            let callbacks = std::mem::take(&mut inner.callbacks);
            drop(inner);
            drop(callbacks);
        }
    }
}
