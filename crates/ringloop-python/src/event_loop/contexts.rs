//! The contexts in which a turn runs callbacks.
//!
//! Owns: the loop's pool of empty contexts, and the one of them that a turn has entered. Called by: the
//! turn and the handles.
//!
//! Most callbacks run in an empty context, and to exit one and enter the next is a tenth of what a
//! callback costs. So a turn stays in an empty context from one callback to the next while it is empty
//! and unreferenced: nothing but destructors and handlers of signals runs in between, and they see a
//! context without variables as well. A context that an application may know, such as a task's, is
//! entered for each callback and exited after it: its owner may run something in it at any time.

use pyo3::prelude::*;

use crate::ffi::{self, Confined, Obj};
use crate::limits;

/// Pool of empty contexts for callbacks.
#[derive(Default)]
pub struct Contexts(Confined<Vec<Obj>>);

impl Contexts {
    fn lend(&self, py: Python<'_>) -> PyResult<Obj> {
        match self.0.with(Vec::pop)? {
            Some(context) => Ok(context),
            None => ffi::context_new(py),
        }
    }

    /// Returns a context to the pool; a changed or referenced one is handed back instead.
    pub fn give_back(&self, py: Python<'_>, context: Obj) -> PyResult<Option<Obj>> {
        if !ffi::context_is_fresh(py, &context, 1) {
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

/// The empty context that a turn has entered, if any.
pub struct Entered<'a> {
    pub contexts: &'a Contexts,
    current: Option<Obj>,
}

impl<'a> Entered<'a> {
    pub fn new(contexts: &'a Contexts) -> Self {
        Self { contexts, current: None }
    }

    /// Runs `call` in an empty context, which stays current: after an error the caller takes it, or
    /// leaves.
    ///
    /// # Errors
    /// The call's, and that it has left its context.
    #[inline(always)]
    pub fn call(&mut self, py: Python<'_>, call: impl FnOnce() -> PyResult<Obj>) -> PyResult<()> {
        // The interpreter has the second reference.
        let is_fresh = |current: &Obj| ffi::context_is_fresh(py, current, 2);
        if !self.current.as_ref().is_some_and(is_fresh) {
            self.enter(py)?;
        }
        call()?;
        if self.current.as_ref().is_some_and(|current| ffi::context_is_current(py, current)) {
            return Ok(());
        }
        // The error for a callback that has left its context, or entered another.
        self.leave(py)
    }

    /// Runs `call` in `context`.
    ///
    /// # Errors
    /// The call's, and that `context` is entered elsewhere or is no context.
    #[inline]
    pub fn call_in(
        &mut self,
        py: Python<'_>,
        context: &Obj,
        call: impl FnOnce() -> PyResult<Obj>,
    ) -> PyResult<()> {
        self.leave(py)?;
        ffi::context_enter(py, context)?;
        let result = call();
        ffi::context_exit(py, context)?;
        result.map(drop)
    }

    fn enter(&mut self, py: Python<'_>) -> PyResult<()> {
        self.leave(py)?;
        let context = self.lend(py)?;
        ffi::context_enter(py, &context)?;
        self.current = Some(context);
        Ok(())
    }

    /// An empty context.
    pub fn lend(&self, py: Python<'_>) -> PyResult<Obj> {
        self.contexts.lend(py)
    }

    /// Exits the current context.
    #[inline]
    pub fn leave(&mut self, py: Python<'_>) -> PyResult<()> {
        if self.current.is_none() {
            return Ok(());
        }
        if let Some(context) = self.take(py)? {
            drop(self.contexts.give_back(py, context)?);
        }
        Ok(())
    }

    /// Exits the current context, and leaves it to the caller.
    pub fn take(&mut self, py: Python<'_>) -> PyResult<Option<Obj>> {
        let context = self.current.take();
        if let Some(context) = &context {
            ffi::context_exit(py, context)?;
        }
        Ok(context)
    }
}
