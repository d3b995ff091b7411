//! What a handle runs: a callable, its arguments and its context.
//!
//! Owned by both handle types. Arguments lie inline up to [`INLINE`], so that an ordinary callback
//! needs no tuple; a longer list is kept as the tuple that the call needs anyway.

use std::cell::Cell;

use pyo3::prelude::*;
use pyo3::types::PyTuple;

use crate::ffi::{self, Args, Obj, ObjCell, Visited, Visitor};

/// Arguments kept without a tuple.
const INLINE: usize = 3;

/// Marks that the first cell holds a tuple of all arguments.
const TUPLE: u8 = u8::MAX;

/// A callable with its arguments and context; empty after `clear`.
pub struct Callback {
    callable: ObjCell,
    arguments: [ObjCell; INLINE],
    count: Cell<u8>,
    context: ObjCell,
}

impl Callback {
    /// Keep `callable` and the arguments from `skip` on.
    #[inline]
    pub fn new(callable: Obj, args: Args<'_, '_>, skip: usize, context: Obj) -> PyResult<Self> {
        let mut arguments = [const { ObjCell::new(None) }; INLINE];
        let count = args.len().saturating_sub(skip);
        let count = if count <= INLINE {
            for (cell, argument) in arguments.iter_mut().zip(args.skip(skip)) {
                *cell = ObjCell::new(Some(Obj::from_borrowed(argument)));
            }
            count as u8
        } else {
            arguments[0] = ObjCell::new(Some(args.tuple(skip)?.into()));
            TUPLE
        };
        Ok(Self {
            callable: ObjCell::new(Some(callable)),
            arguments,
            count: Cell::new(count),
            context: ObjCell::new(Some(context)),
        })
    }

    /// Keep a callable with at most one argument.
    pub fn of_step(callable: Obj, argument: Option<Obj>, context: Obj) -> Self {
        let count = Cell::new(u8::from(argument.is_some()));
        let arguments = [
            ObjCell::new(argument),
            ObjCell::default(),
            ObjCell::default(),
        ];
        let callable = ObjCell::new(Some(callable));
        Self {
            callable,
            arguments,
            count,
            context: ObjCell::new(Some(context)),
        }
    }

    /// Call it in its context; nothing when it was cleared.
    #[inline]
    pub fn run(&self, py: Python<'_>) -> PyResult<()> {
        let (Some(callable), Some(context)) = (self.callable.get(py), self.context.get(py)) else {
            return Ok(());
        };
        ffi::context_enter(py, &context)?;
        let result = self.call(py, &callable);
        ffi::context_exit(py, &context)?;
        result.map(drop)
    }

    #[inline]
    fn call(&self, py: Python<'_>, callable: &Obj) -> PyResult<Obj> {
        // Own references: the callback may cancel its handle, which empties the cells.
        let argument = |index: usize| self.arguments[index].get(py);
        match (self.count.get(), argument(0), argument(1), argument(2)) {
            (1, Some(a), ..) => ffi::call(py, callable, &[&a]),
            (2, Some(a), Some(b), _) => ffi::call(py, callable, &[&a, &b]),
            (3, Some(a), Some(b), Some(c)) => ffi::call(py, callable, &[&a, &b, &c]),
            (TUPLE, Some(all), ..) => ffi::call_tuple(callable, all.bind(py).cast::<PyTuple>()?),
            _ => ffi::call_no_args(py, callable),
        }
    }

    /// The callable, or None.
    pub fn callable<'py>(&self, py: Python<'py>) -> Bound<'py, PyAny> {
        self.callable.get_or_none(py)
    }

    /// The context.
    pub fn context<'py>(&self, py: Python<'py>) -> Bound<'py, PyAny> {
        self.context.get_or_none(py)
    }

    /// The arguments as a tuple; None once cancelled, as in asyncio.
    pub fn arguments<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyTuple>>> {
        if !self.callable.is_some() {
            return Ok(None);
        }
        if self.count.get() == TUPLE {
            return Ok(self.arguments[0]
                .get_or_none(py)
                .cast_into::<PyTuple>()
                .ok());
        }
        PyTuple::new(
            py,
            self.arguments
                .iter()
                .filter_map(|cell| cell.get(py))
                .map(|o| o.into_bound(py))
                .collect::<Vec<_>>(),
        )
        .map(Some)
    }

    /// Let go of callable and arguments; the context stays, as in asyncio.
    pub fn cancel(&self) {
        let old = (
            self.callable.take(),
            self.arguments.each_ref().map(ObjCell::take),
        );
        self.count.set(0);
        drop(old);
    }

    /// Let go of everything.
    pub fn clear(&self) {
        self.cancel();
        drop(self.context.take());
    }

    /// Show the references to the collector.
    pub fn visit(&self, visitor: &mut dyn Visitor) -> Visited {
        self.callable.visit(visitor)?;
        for argument in &self.arguments {
            argument.visit(visitor)?;
        }
        self.context.visit(visitor)
    }
}
