//! Objects that the loop calls without a handle: receivers of completions, by the token of each
//! operation, and methods for which there was no callback, for lack of memory.
//!
//! Owns: the slab of handlers and its generations. Called by: the turn (`dispatch`), and code that
//! submits operations (`register`, `remove`). Operation keys are kept by their owners.
//!
//! A token is the slot's index and generation: a completion for a removed handler finds nothing and
//! is dropped, without a search.

use pyo3::prelude::*;
use ringloop::embed::slab::{Key as SlabKey, Slab};
use ringloop::embed::{Event, Key, Token};

use super::exceptions;
use super::ready::{Entry, Ready};
use crate::ffi::{self, Obj, Payload, This, Visited, Visitor};

/// Generations have 24 bits: the top byte of a token is for its owner.
const GENERATION_MASK: u32 = (1 << 24) - 1;
const ROLE_SHIFT: u32 = 56;

/// The token of a handler's operation, with a number that identifies the operation.
pub fn with_role(token: Token, role: u8) -> Token {
    Token(token.0 | u64::from(role) << ROLE_SHIFT)
}

/// The number given to [`with_role`].
#[inline]
pub fn role(token: Token) -> u8 {
    (token.0 >> ROLE_SHIFT) as u8
}

/// Why to flush.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flush {
    /// The turn ends.
    TurnEnds,
    /// In the middle of a callback, which must find the bytes sent next.
    Now,
}

/// What the loop does with a completion.
pub enum Completed {
    /// Calls this function with the object; an error goes to the loop's exception handler.
    Call(fn(&Bound<'_, PyAny>, Event) -> PyResult<()>),
    /// The object is a handle: puts it into the ready ring by this function.
    Bring(fn(&mut Ready, Entry)),
}

/// Functions of one kind of handler. Each kind has its own static, next to its code, so that the
/// loop knows none of them. They are called with the object's lock held (`ffi::locked`).
pub struct Behaviour {
    /// What to do with a completion of an operation.
    pub completed: Completed,
    /// Flushes gathered writes, in a turn in which `flush_later` was called.
    pub flush: fn(&Bound<'_, PyAny>, Flush) -> PyResult<()>,
    /// The engine is closed: no completion will arrive.
    pub abandoned: fn(&Bound<'_, PyAny>),
}

impl Behaviour {
    /// [`Behaviour::flush`] of kinds that gather nothing.
    pub const NEVER_FLUSHED: fn(&Bound<'_, PyAny>, Flush) -> PyResult<()> = |_, _| Ok(());
    /// [`Behaviour::abandoned`] of kinds with nothing to do.
    pub const NOTHING_LEFT: fn(&Bound<'_, PyAny>) = |_| ();
}

/// A native type whose instances receive completions.
pub(crate) trait Completes: Payload {
    /// The functions that the loop calls.
    const BEHAVIOUR: &'static Behaviour = &Behaviour {
        completed: Completed::Call(|object, event| {
            Self::native().with(object, |this| Self::completed(this, event))
        }),
        flush: |object, why| Self::native().with(object, |this| Self::flush(this, why)),
        abandoned: |object| {
            if let Some(this) = Self::native().get(object) {
                Self::abandoned(this);
            }
        },
    };

    /// As [`Completed::Call`].
    fn completed(this: This<'_, '_, Self>, event: Event) -> PyResult<()>;
    /// As [`Behaviour::flush`].
    fn flush(_this: This<'_, '_, Self>, _why: Flush) -> PyResult<()> {
        Ok(())
    }
    /// As [`Behaviour::abandoned`].
    fn abandoned(_this: This<'_, '_, Self>) {}
}

/// An object that receives completions.
pub struct Handler {
    /// The object.
    pub object: Obj,
    /// Its functions.
    pub behaviour: &'static Behaviour,
}

impl Handler {
    /// For an instance of a native type.
    pub(crate) fn of<T: Completes>(this: This<'_, '_, T>) -> Self {
        Self { object: Obj::from_borrowed(this.object()), behaviour: T::BEHAVIOUR }
    }

    /// Flushes its gathered writes.
    #[inline]
    pub fn flush(&self, loop_: &Bound<'_, PyAny>, why: Flush) -> PyResult<()> {
        let object = self.object.bind(loop_.py());
        let done = ffi::locked(object, || (self.behaviour.flush)(object, why));
        contained(loop_, object, done)
    }

    /// Reports that the engine is closed.
    pub fn abandon(&self, py: Python<'_>) {
        let object = self.object.bind(py);
        ffi::locked(object, || (self.behaviour.abandoned)(object));
    }

    pub fn clone_ref(&self, py: Python<'_>) -> Self {
        Self { object: self.object.clone_ref(py), behaviour: self.behaviour }
    }
}

/// Contains the errors of one handler: they are reported, and only exceptions that leave
/// `asyncio.Handle._run` leave the loop.
#[inline]
pub fn contained(
    loop_: &Bound<'_, PyAny>,
    object: &Bound<'_, PyAny>,
    done: PyResult<()>,
) -> PyResult<()> {
    match done {
        Ok(()) => Ok(()),
        Err(error) => exceptions::handler_failed(loop_, object, error),
    }
}

/// A method that the loop has to call and for which there was no callback, for lack of memory.
pub struct Owed {
    pub object: Obj,
    pub method: Obj,
    pub argument: Option<Obj>,
}

impl Owed {
    /// Calls it. Makes no Python objects: closing a connection that is out of memory must not need any.
    pub fn call(&self, py: Python<'_>) -> PyResult<()> {
        let method = self.method.bind(py).cast()?;
        match &self.argument {
            Some(argument) => ffi::call_method(py, method, &[&self.object, argument]),
            None => ffi::call_method(py, method, &[&self.object]),
        }
        .map(drop)
    }

    pub fn visit(&self, visitor: &mut dyn Visitor) -> Visited {
        visitor.visit(&self.object)?;
        self.argument.iter().try_for_each(|argument| visitor.visit(argument))
    }
}

/// A poll and its handler's slot. Dropping it without `LoopCore::unwatch` leaks both.
#[derive(Clone, Copy)]
pub(crate) struct Watch {
    pub token: Token,
    pub key: Key,
}

/// The handlers by token.
#[derive(Default)]
pub struct Handlers {
    slab: Slab<Handler>,
}

/// A token has room for a part of the generation.
fn token_of(key: SlabKey) -> Token {
    Token(u64::from(key.generation & GENERATION_MASK) << 32 | u64::from(key.index))
}

impl Handlers {
    pub fn len(&self) -> usize {
        self.slab.len()
    }

    /// Takes a slot; returns its token.
    pub fn register(&mut self, handler: Handler) -> PyResult<Token> {
        ffi::spare()?;
        self.slab.try_reserve().map_err(ffi::no_memory)?;
        Ok(token_of(self.slab.insert(handler)))
    }

    #[inline]
    fn entry(&self, token: Token) -> Option<(SlabKey, &Handler)> {
        let generation = (token.0 >> 32) as u32 & GENERATION_MASK;
        let found = self.slab.entry(token.0 as u32);
        found.filter(|(key, _)| key.generation & GENERATION_MASK == generation)
    }

    #[inline]
    pub fn get(&self, token: Token) -> Option<&Handler> {
        self.entry(token).map(|(_, handler)| handler)
    }

    /// Frees a slot; the caller drops the handler outside the cell.
    pub fn remove(&mut self, token: Token) -> Option<Handler> {
        let (key, _) = self.entry(token)?;
        self.slab.remove(key)
    }

    /// Moves everything out, to be dropped outside the cell.
    pub fn take(&mut self) -> Vec<Handler> {
        self.slab.take().collect()
    }

    pub fn visit(&self, visitor: &mut dyn Visitor) -> Visited {
        for handler in self.slab.iter() {
            visitor.visit(&handler.object)?;
        }
        Visited::Continue(())
    }
}
