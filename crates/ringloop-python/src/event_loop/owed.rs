//! Steps of a transport's lifecycle that lacked memory for a callback.
//!
//! Owns: their list. Called by: `host` (`call_soon_or_owe`, `bring_or_owe`), and the turn (`pay`).
//! Makes no Python objects: closing a connection that is out of memory must not need any.

use std::sync::atomic::Ordering::Relaxed;

use pyo3::prelude::*;

use super::core::LoopCore;
use super::exceptions;
use crate::ffi::{self, Obj, Visited, Visitor};

/// Does the step without a callback; called with the object's lock held (`ffi::locked`).
pub(crate) type Pay = fn(&Bound<'_, PyAny>, Option<&Obj>) -> PyResult<()>;

/// One pending step.
pub struct Owed {
    pub object: Obj,
    pub argument: Option<Obj>,
    pub pay: Pay,
}

impl Owed {
    pub fn visit(&self, visitor: &mut dyn Visitor) -> Visited {
        visitor.visit(&self.object)?;
        match &self.argument {
            Some(argument) => visitor.visit(argument),
            None => Visited::Continue(()),
        }
    }
}

impl LoopCore {
    /// Queues a step without a callback.
    #[cold]
    pub(super) fn owe(&self, owed: Owed) -> PyResult<()> {
        self.owes.store(true, Relaxed);
        Ok(self.owed.with(|list| list.push(owed))?)
    }

    /// Keeps the loop from sleeping long: something waits for memory.
    #[cold]
    pub(super) fn owe_a_turn(&self) {
        self.owes.store(true, Relaxed);
    }

    /// Whether there are pending steps.
    #[inline]
    pub(super) fn owes(&self) -> bool {
        self.owes.load(Relaxed)
    }

    /// Runs them. A step that lacks memory itself is queued again, for a later turn.
    #[cold]
    pub(super) fn pay(&self, loop_: &Bound<'_, LoopCore>) -> PyResult<()> {
        self.owes.store(false, Relaxed);
        let mut list = self.owed.with(std::mem::take)?.into_iter();
        for owed in list.by_ref() {
            let object = owed.object.bind(loop_.py());
            let paid = ffi::locked(object, || (owed.pay)(object, owed.argument.as_ref()));
            let Err(error) = paid else { continue };
            if let Err(left) = exceptions::handler_failed(loop_, object, error) {
                // The rest is for the next run.
                for owed in list {
                    self.owe(owed)?;
                }
                return Err(left);
            }
        }
        Ok(())
    }
}
