//! Who gets a completion: a slab of handlers, named by the token of each operation.
//!
//! Owns: the slab and its generations. Called by: the turn (`dispatch`), and by whoever submits
//! operations (`register`, `remove`). Never does: keep an operation's key; that is its owner's.
//!
//! A token is the slot's index and its generation: a completion for a handler that is gone finds
//! nothing and is dropped, without a search.

use std::mem;

use pyo3::prelude::*;
use ringloop::driver::{Event, Token};

use super::core::LoopCore;
use super::watchers;
use crate::ffi::{Obj, Payload, Visited, Visitor};
use crate::sock::{self, Operation};
use crate::transport::{self, Listener, Stream};

/// Generations are 24 bits wide: the top byte of a token is the owner's.
const GENERATION_MASK: u32 = (1 << 24) - 1;
const ROLE_SHIFT: u32 = 56;

/// The token of a handler's operation, with a number that says which one it is.
pub fn with_role(token: Token, role: u8) -> Token {
    Token(token.0 | u64::from(role) << ROLE_SHIFT)
}

/// The number given to [`with_role`].
#[inline]
pub fn role(token: Token) -> u8 {
    (token.0 >> ROLE_SHIFT) as u8
}

/// What a completion is for. Transports add their kinds here and in [`dispatch`].
pub enum Handler {
    /// `add_reader` and `add_writer`: the native `Handle` to put into the ready ring.
    Watcher(Obj),
    /// A stream transport.
    Stream(Obj),
    /// A listening socket.
    Listener(Obj),
    /// `sock_recv` and its kin.
    Socket(Obj),
}

impl Handler {
    fn object(&self) -> &Obj {
        match self {
            Self::Watcher(object)
            | Self::Stream(object)
            | Self::Listener(object)
            | Self::Socket(object) => object,
        }
    }

    fn clone_ref(&self, py: Python<'_>) -> Self {
        match self {
            Self::Watcher(object) => Self::Watcher(object.clone_ref(py)),
            Self::Stream(object) => Self::Stream(object.clone_ref(py)),
            Self::Listener(object) => Self::Listener(object.clone_ref(py)),
            Self::Socket(object) => Self::Socket(object.clone_ref(py)),
        }
    }
}

/// Hand a completion to its handler; an error leaves the loop.
#[inline]
pub fn dispatch(core: &LoopCore, loop_: &Bound<'_, LoopCore>, event: Event) -> PyResult<()> {
    let py = loop_.py();
    // A reference of our own: the handler may remove itself.
    let handler = core
        .handlers
        .with(|slab| slab.get(event.token).map(|found| found.clone_ref(py)))?;
    match handler {
        Some(Handler::Watcher(handle)) => watchers::ready(core, py, handle, &event.completion),
        Some(Handler::Stream(object)) => match Stream::native().get(object.bind(py)) {
            Some(this) => transport::completed(this, event),
            None => Ok(()),
        },
        Some(Handler::Listener(object)) => match Listener::native().get(object.bind(py)) {
            Some(this) => transport::accept_completed(this, event),
            None => Ok(()),
        },
        Some(Handler::Socket(object)) => match Operation::native().get(object.bind(py)) {
            Some(this) => sock::completed(this, &event),
            None => Ok(()),
        },
        None => Ok(()),
    }
}

/// The slab.
#[derive(Default)]
pub struct Handlers {
    slots: Vec<Slot>,
    free: Vec<u32>,
}

struct Slot {
    generation: u32,
    handler: Option<Handler>,
}

impl Handlers {
    /// How many handlers there are.
    pub fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// Take a slot; the token names it.
    pub fn register(&mut self, handler: Handler) -> Token {
        let index = self.free.pop().unwrap_or_else(|| {
            self.slots.push(Slot {
                generation: 0,
                handler: None,
            });
            self.slots.len() as u32 - 1
        });
        let slot = &mut self.slots[index as usize];
        slot.handler = Some(handler);
        Token(u64::from(slot.generation) << 32 | u64::from(index))
    }

    /// Find a handler.
    #[inline]
    pub fn get(&self, token: Token) -> Option<&Handler> {
        let slot = self.slots.get(token.0 as u32 as usize)?;
        (slot.generation == (token.0 >> 32) as u32 & GENERATION_MASK)
            .then_some(slot.handler.as_ref())?
    }

    /// Put another handler into the same slot; the old one is dropped outside of the cell.
    pub fn replace(&mut self, token: Token, handler: Handler) -> Option<Handler> {
        self.get(token)?;
        self.slots[token.0 as u32 as usize].handler.replace(handler)
    }

    /// Free a slot; the handler is dropped outside of the cell.
    pub fn remove(&mut self, token: Token) -> Option<Handler> {
        self.get(token)?;
        let index = token.0 as u32;
        let slot = &mut self.slots[index as usize];
        slot.generation = (slot.generation + 1) & GENERATION_MASK;
        self.free.push(index);
        slot.handler.take()
    }

    /// Move everything out, to be dropped outside of the cell.
    pub fn take(&mut self) -> Vec<Handler> {
        self.free.clear();
        mem::take(&mut self.slots)
            .into_iter()
            .filter_map(|slot| slot.handler)
            .collect()
    }

    /// Show the references to the collector.
    pub fn visit(&self, visitor: &mut dyn Visitor) -> Visited {
        for handler in self.slots.iter().filter_map(|slot| slot.handler.as_ref()) {
            visitor.visit(handler.object())?;
        }
        Visited::Continue(())
    }
}
