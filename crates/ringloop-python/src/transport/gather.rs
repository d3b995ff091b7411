//! Whether what is written may wait for the end of the turn.
//!
//! Owns: what a transport of a socket knows of that. Called by: `write` of streams and of datagram endpoints, before
//! anything is gathered. Never does: send.
//!
//! asyncio sends inside of `write`. Gathering is worth a third of a server's time, and must not show, so it is kept to
//! sockets that the program cannot reach past the transport: those that the loop has made, and whose descriptor it has
//! not been given since. What else could show it sends first what was gathered: an option of the socket, the start of
//! a process, a signal (`event_loop/outward.rs`), `close`, and every question about the queue.
//!
//! A stream begins without gathering: it is not worth anything to a connection of a few messages, and a greeting or a
//! login is where a callback may well wait for the answer by itself.

use std::cell::Cell;

use crate::event_loop::forks;

/// What is known of one socket.
pub(crate) struct Gathering {
    /// The program has no descriptor of the socket, and did not ask for `writes="eager"`.
    allowed: Cell<bool>,
    /// Turns with writes until the first that may gather.
    opening_turns: Cell<u8>,
    /// [`forks`] when the socket came: a child of fork gathers nothing, its loop does not turn.
    forks: u32,
}

impl Gathering {
    /// `allowed` says that nothing speaks against it yet.
    pub fn new(allowed: bool, opening_turns: u8) -> Self {
        Self {
            allowed: Cell::new(allowed),
            opening_turns: Cell::new(opening_turns),
            forks: forks(),
        }
    }

    /// Whether what is written now may wait.
    #[inline]
    pub fn is_allowed(&self) -> bool {
        self.allowed.get() && self.opening_turns.get() == 0 && !self.is_inherited()
    }

    /// Whether turns with writes have to be counted still.
    #[inline]
    pub fn is_opening(&self) -> bool {
        self.allowed.get() && self.opening_turns.get() > 0
    }

    /// A turn with writes has ended.
    #[inline]
    pub fn turn_ended(&self) {
        self.opening_turns
            .set(self.opening_turns.get().saturating_sub(1));
    }

    /// The program has got the descriptor.
    pub fn refuse(&self) {
        self.allowed.set(false);
    }

    /// Whether this is a child of the process that the socket came to: what is queued is the parent's to send.
    #[inline]
    pub fn is_inherited(&self) -> bool {
        self.forks != forks()
    }
}
