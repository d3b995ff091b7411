//! The result's way from a task of the engine to an asyncio future, and the cancel's way back.
//!
//! Called by: `start`. The promise stays on the loop's thread; what the asyncio future has of
//! it ([`Canceller`]) may be dropped on any.

use std::cell::{Cell, RefCell};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Waker;

use pyo3::exceptions::PyMemoryError;
use pyo3::exceptions::asyncio::CancelledError;
use pyo3::prelude::*;

use crate::event_loop::LoopCore;
use crate::ffi::{self, Obj, intern};

/// A future that was polled once.
pub enum Started {
    /// It is over.
    Done(Obj),
    /// It goes on: an asyncio future of the loop.
    Pending(Obj),
}

impl Started {
    /// The result, or the asyncio future.
    pub fn into_either(self) -> Obj {
        match self {
            Self::Done(object) | Self::Pending(object) => object,
        }
    }
}

/// Where the result of a future goes.
#[derive(Default)]
enum Goal {
    /// The caller still polls it, and looks here afterwards.
    #[default]
    Caller,
    /// It was ready at once.
    Settled(PyResult<Obj>),
    /// An asyncio future, and the loop it belongs to.
    Future(Obj, Obj),
    /// It was taken.
    Over,
}

/// One result.
pub struct Promise {
    /// Gets a result whose asyncio future was cancelled.
    lost: fn(Obj),
    goal: Cell<Goal>,
    waker: RefCell<Option<Waker>>,
    link: RefCell<Option<Arc<Link>>>,
}

/// Shared with the asyncio future.
#[derive(Default)]
struct Link {
    is_cancelled: AtomicBool,
    waker: Mutex<Option<Waker>>,
}

/// Done callback of the asyncio future: if it was cancelled, the Rust future is dropped.
#[pyclass(frozen, module = "ringloop._native")]
pub struct Canceller(Arc<Link>);

#[pymethods]
impl Canceller {
    /// Called with the future, which is done.
    fn __call__(&self, _future: &Bound<'_, PyAny>) {
        // Of a future that has its result there is no task left to be woken.
        self.0.is_cancelled.store(true, Relaxed);
        let waker = self.0.waker.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

impl Promise {
    pub fn new(lost: fn(Obj)) -> Self {
        Self { lost, goal: Cell::default(), waker: RefCell::default(), link: RefCell::default() }
    }

    /// Whether the asyncio future was cancelled.
    pub fn is_cancelled(&self) -> bool {
        self.link.borrow().as_ref().is_some_and(|link| link.is_cancelled.load(Relaxed))
    }

    /// Keeps the task's waker for a cancel; all of a task's wakers are alike.
    pub fn keep_waker(&self, waker: &Waker) {
        let mut kept = self.waker.borrow_mut();
        if self.link.borrow().is_none() && kept.is_none() {
            *kept = Some(waker.clone());
        }
    }

    /// The result, or an asyncio future of the loop that gets it.
    pub fn started(&self, loop_: &Bound<'_, LoopCore>) -> PyResult<Started> {
        match self.goal.replace(Goal::Over) {
            Goal::Settled(result) => result.map(Started::Done),
            // It is pending; a promise is asked once.
            _ => self.wait(loop_).map(Started::Pending),
        }
    }

    fn wait(&self, loop_: &Bound<'_, LoopCore>) -> PyResult<Obj> {
        let link = Arc::new(Link::default());
        *link.waker.lock().unwrap_or_else(PoisonError::into_inner) = self.waker.take();
        *self.link.borrow_mut() = Some(Arc::clone(&link));
        let made = self.connect(loop_, Arc::clone(&link));
        if made.is_err() {
            // There is no asyncio future: the task ends.
            let waker = link.waker.lock().unwrap_or_else(PoisonError::into_inner).take();
            link.is_cancelled.store(true, Relaxed);
            if let Some(waker) = waker {
                waker.wake();
            }
        }
        made
    }

    fn connect(&self, loop_: &Bound<'_, LoopCore>, link: Arc<Link>) -> PyResult<Obj> {
        let py = loop_.py();
        let future = loop_.call_method0(intern!(py, "create_future"))?;
        let canceller = Bound::new(py, Canceller(link))?;
        future.call_method1(intern!(py, "add_done_callback"), (canceller,))?;
        let ours = Goal::Future(future.clone().into(), loop_.clone().into_any().into());
        drop(self.goal.replace(ours));
        Ok(future.into())
    }

    /// The future has ended.
    pub fn settle(&self, result: PyResult<Obj>) {
        match self.goal.replace(Goal::Over) {
            Goal::Caller => drop(self.goal.replace(Goal::Settled(result))),
            Goal::Future(future, loop_) => Python::attach(|py| {
                if is_done(py, &future) {
                    result.into_iter().for_each(self.lost);
                } else {
                    resolve(py, &future, &loop_, result);
                }
            }),
            Goal::Settled(_) | Goal::Over => result.into_iter().for_each(self.lost),
        }
    }
}

/// Whether an asyncio future was cancelled.
fn is_done(py: Python<'_>, future: &Obj) -> bool {
    let done = future.bind(py).call_method0(intern!(py, "done"));
    done.and_then(|done| done.is_truthy()).unwrap_or(false)
}

/// An asyncio future of the loop that has its result.
pub fn settled(loop_: &Bound<'_, LoopCore>, result: PyResult<Obj>) -> PyResult<Obj> {
    let py = loop_.py();
    let future = Obj::from(loop_.call_method0(intern!(py, "create_future"))?);
    resolve(py, &future, &loop_.clone().into_any().into(), result);
    Ok(future)
}

/// Gives an asyncio future its result; `CancelledError` cancels it, as it does a task. Without memory the
/// loop does it later.
fn resolve(py: Python<'_>, future: &Obj, loop_: &Obj, result: PyResult<Obj>) {
    let (name, value) = match result {
        Ok(value) => (intern!(py, "set_result"), value),
        Err(error) if error.is_instance_of::<CancelledError>(py) => {
            let args = error.value(py).getattr(intern!(py, "args"));
            let message = args.and_then(|args| args.get_item(0));
            (intern!(py, "cancel"), message.unwrap_or_else(|_| py.None().into_bound(py)).into())
        }
        Err(error) => (intern!(py, "set_exception"), error.into_value(py).into_bound(py).into()),
    };
    let bound = future.bind(py);
    let Err(error) = ffi::call_method(py, name, &[future, &value]) else { return };
    let owed = match loop_.bind(py).cast::<LoopCore>() {
        Ok(core) if error.is_instance_of::<PyMemoryError>(py) => {
            core.get().owe(bound.as_borrowed(), name, Some(value))
        }
        // A future refuses some errors, such as StopIteration: it gets the refusal instead.
        _ => bound.call_method1(intern!(py, "set_exception"), (error.into_value(py),)).map(drop),
    };
    if let Err(error) = owed {
        error.write_unraisable(py, Some(bound));
    }
}
