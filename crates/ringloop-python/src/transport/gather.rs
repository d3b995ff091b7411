//! Decides whether writes may wait for the end of the turn.
//!
//! Owns: a socket transport's state for that. Called by: `write` of streams and of datagram
//! endpoints, before anything is gathered.
//!
//! asyncio sends inside `write`. Gathering saves a third of a server's time, and must not be
//! observable, so it is limited to sockets that the application reaches only through the transport:
//! created by the loop, with a descriptor that was never handed out. Other observable operations
//! first send what was gathered: a socket option, starting a process, a signal
//! (`event_loop/outward.rs`), `close`, and every query of the queue.
//!
//! A stream starts without gathering: it gains nothing on a connection of a few messages, and in a
//! greeting or login a callback may well block for the answer.

use std::cell::Cell;

use crate::event_loop::forks;

/// Gathering state of one socket.
pub(crate) struct Gathering {
    /// The application has no descriptor of the socket, and did not request `writes="eager"`.
    allowed: Cell<bool>,
    /// Turns with writes left before gathering starts.
    opening_turns: Cell<u8>,
    /// [`forks`] when the socket was created: a forked child does not gather, since its loop does
    /// not turn.
    forks: u32,
}

impl Gathering {
    /// `allowed`: gathering is possible so far.
    pub fn new(allowed: bool, opening_turns: u8) -> Self {
        Self {
            allowed: Cell::new(allowed),
            opening_turns: Cell::new(opening_turns),
            forks: forks(),
        }
    }

    /// Whether a write may be deferred now.
    #[inline]
    pub fn is_allowed(&self) -> bool {
        self.allowed.get() && self.opening_turns.get() == 0 && !self.is_inherited()
    }

    /// Whether turns with writes still have to be counted.
    #[inline]
    pub fn is_opening(&self) -> bool {
        self.allowed.get() && self.opening_turns.get() > 0
    }

    /// A turn with writes ended.
    #[inline]
    pub fn turn_ended(&self) {
        self.opening_turns.set(self.opening_turns.get().saturating_sub(1));
    }

    /// The descriptor was handed to the application.
    pub fn refuse(&self) {
        self.allowed.set(false);
    }

    /// Whether this is a child of the socket's process: queued data belongs to the parent.
    #[inline]
    pub fn is_inherited(&self) -> bool {
        self.forks != forks()
    }
}
