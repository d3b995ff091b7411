//! Recognises the steps of `CPython`'s C tasks.
//!
//! `_asynciomodule.c` passes two private callables to `loop.call_soon`, the step wrapper and the
//! bound builtin `task_wakeup`, and drops the returned handle at once (`call_soon()` there). So a
//! loop that recognises them needs no handle. User code cannot reach either of them.
//!
//! Invariants:
//! 1. `PyCFunction_GetFunction` and `_GetSelf` are called only after an exact type check.

use std::ffi::CStr;
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyModule;

use super::names::intern;
use super::object::Obj;

/// A task on this loop exposes its step wrapper and never runs. It has a name, so that it does not
/// advance the counter behind the default names of tasks, and it is gone when the probe returns.
const PROBE: &CStr = c"
import asyncio

class Probe:
    step = None
    def call_soon(self, callback, *args, context=None):
        self.step = callback
    def get_debug(self):
        return False

async def nothing():
    pass

def step_type():
    probe, coroutine = Probe(), nothing()
    task = asyncio.Task(coroutine, loop=probe, name='ringloop probe')
    task._log_destroy_pending = False
    step = type(probe.step)
    probe.step = None
    coroutine.close()
    return step if step.__name__ == 'TaskStepMethWrapper' else None
";

/// The callables of the C task, as found in this interpreter.
pub struct StepTypes {
    step: Option<Obj>,
    task: Option<Obj>,
    /// The C function behind `task_wakeup`, recorded when it is first seen.
    wakeup: AtomicPtr<()>,
}

impl Default for &'static StepTypes {
    fn default() -> Self {
        static NOTHING: StepTypes = StepTypes::nothing();
        &NOTHING
    }
}

impl StepTypes {
    const fn nothing() -> Self {
        Self { step: None, task: None, wakeup: AtomicPtr::new(ptr::null_mut()) }
    }

    /// The types of this interpreter.
    pub fn shared(py: Python<'_>) -> PyResult<&'static Self> {
        static SHARED: PyOnceLock<StepTypes> = PyOnceLock::new();
        SHARED.get_or_try_init(py, || Self::find(py))
    }

    /// Finds the types; without `_asyncio` there are none, and every callback gets a handle.
    fn find(py: Python<'_>) -> PyResult<Self> {
        let Ok(module) = py.import(intern!(py, "_asyncio")) else {
            return Ok(Self::nothing());
        };
        let probe = PyModule::from_code(py, PROBE, c"<ringloop probe>", c"ringloop._probe")?;
        let step = probe.getattr(intern!(py, "step_type"))?.call0()?;
        Ok(Self {
            step: (!step.is_none()).then(|| step.into()),
            task: Some(module.getattr(intern!(py, "Task"))?.into()),
            ..Self::nothing()
        })
    }

    /// Whether a class is the C task's, and not a replacement.
    #[inline]
    pub fn is_task_type(&self, class: &Bound<'_, PyAny>) -> bool {
        self.task.as_ref().is_some_and(|task| task.as_ptr() == class.as_ptr())
    }

    /// Whether the handle of a `call_soon(callable)` cannot be kept.
    #[inline]
    pub fn is_step(&self, callable: Borrowed<'_, '_, PyAny>) -> bool {
        let class = callable.get_type_ptr();
        self.step.as_ref().is_some_and(|step| step.as_ptr().cast() == class)
            || self.is_wakeup(callable)
    }

    /// Whether it is a task's bound `task_wakeup`.
    #[inline]
    pub fn is_wakeup(&self, callable: Borrowed<'_, '_, PyAny>) -> bool {
        let pointer = callable.as_ptr();
        if callable.get_type_ptr() != &raw mut ffi::PyCFunction_Type {
            return false;
        }
        // SAFETY: invariant 1.
        let Some(function) = (unsafe { ffi::PyCFunction_GetFunction(pointer) }) else {
            return false;
        };
        let known = self.wakeup.load(Ordering::Relaxed);
        if known.is_null() {
            self.learn(callable, function as *mut ())
        } else {
            ptr::eq(known, function as *mut ())
        }
    }

    #[cold]
    fn learn(&self, callable: Borrowed<'_, '_, PyAny>, function: *mut ()) -> bool {
        // SAFETY: invariant 1: the only caller has checked the type.
        let receiver = unsafe { ffi::PyCFunction_GetSelf(callable.as_ptr()) };
        // SAFETY: a builtin's self is null or alive with it.
        let receiver = unsafe { Borrowed::from_ptr_or_opt(callable.py(), receiver) };
        let (Some(receiver), Some(task)) = (receiver, &self.task) else {
            return false;
        };
        let found = receiver.is_instance(task.bind(callable.py())).unwrap_or(false)
            && callable
                .getattr(intern!(callable.py(), "__name__"))
                .is_ok_and(|name| name.eq(intern!(callable.py(), "task_wakeup")).unwrap_or(false));
        if found {
            self.wakeup.store(function, Ordering::Relaxed);
        }
        found
    }
}
