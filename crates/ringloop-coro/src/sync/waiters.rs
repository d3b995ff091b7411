//! Who waits, in the order of asking.
//!
//! Called by: this folder, each under its own lock. Never does: wake; wakers are handed out, to be woken once the lock
//! is free. Whoever was woken is no longer in the line.

use std::collections::VecDeque;
use std::task::Waker;

/// A place in the line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Ticket(u64);

/// The line.
#[derive(Debug, Default)]
pub(super) struct Waiters {
    /// In the order of their tickets.
    line: VecDeque<(Ticket, Waker)>,
    next: u64,
}

impl Waiters {
    /// With nobody in it.
    pub const fn new() -> Self {
        Self {
            line: VecDeque::new(),
            next: 0,
        }
    }

    /// Stand in the line: where `ticket` says, or at its end, with a new ticket.
    pub fn stand(&mut self, ticket: &mut Option<Ticket>, waker: &Waker) {
        if let Some(place) = ticket.and_then(|ticket| self.place(ticket)) {
            self.line[place].1.clone_from(waker);
            return;
        }
        let new = Ticket(self.next);
        self.next += 1;
        self.line.push_back((new, waker.clone()));
        *ticket = Some(new);
    }

    /// Whether it still stands in the line.
    pub fn stands(&self, ticket: Ticket) -> bool {
        self.place(ticket).is_some()
    }

    /// Leave the line; `false` where it was woken already.
    #[inline]
    pub fn leave(&mut self, ticket: Ticket) -> bool {
        if self.line.is_empty() {
            return false;
        }
        let place = self.place(ticket);
        place.and_then(|place| self.line.remove(place)).is_some()
    }

    /// Take the first out of the line, to be woken.
    pub fn first(&mut self) -> Option<Waker> {
        self.line.pop_front().map(|(_, waker)| waker)
    }

    /// Take all out of the line, to be woken.
    pub fn all(&mut self) -> impl Iterator<Item = Waker> + use<> {
        std::mem::take(&mut self.line)
            .into_iter()
            .map(|(_, waker)| waker)
    }

    fn place(&self, ticket: Ticket) -> Option<usize> {
        let found = self
            .line
            .binary_search_by_key(&ticket, |(ticket, _)| *ticket);
        found.ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn line_keeps_its_order_whoever_leaves() {
        let mut waiters = Waiters::default();
        let mut tickets = [None; 3];
        for ticket in &mut tickets {
            waiters.stand(ticket, Waker::noop());
        }
        let [first, second, third] = tickets.map(Option::unwrap);
        assert!(waiters.leave(second));
        assert!(!waiters.leave(second));
        assert!(waiters.first().is_some());
        assert!(!waiters.stands(first) && waiters.stands(third));
        let mut again = Some(third);
        waiters.stand(&mut again, Waker::noop());
        assert_eq!((again, waiters.line.len()), (Some(third), 1));
        assert_eq!(waiters.all().count(), 1);
        assert!(waiters.line.is_empty());
    }
}
