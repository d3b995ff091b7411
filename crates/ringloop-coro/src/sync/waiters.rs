//! Who waits, in the order of asking.
//!
//! Called by: this folder, each under its own lock. Never does: wake; wakers are handed out, to be woken once the lock
//! is free. Whoever was woken is no longer in the line; one that comes back empty-handed stands where it stood.

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

    /// Stand in the line: where `ticket` says, before all that have asked later, or at its end, with a new ticket.
    pub fn stand(&mut self, ticket: &mut Option<Ticket>, waker: &Waker) {
        if let Some(ticket) = *ticket {
            match self.place(ticket) {
                Ok(place) => self.line[place].1.clone_from(waker),
                Err(place) => self.line.insert(place, (ticket, waker.clone())),
            }
            return;
        }
        let new = Ticket(self.next);
        self.next += 1;
        self.line.push_back((new, waker.clone()));
        *ticket = Some(new);
    }

    /// Whether it still stands in the line.
    pub fn stands(&self, ticket: Ticket) -> bool {
        self.place(ticket).is_ok()
    }

    /// Leave the line; `false` where it was woken already.
    #[inline]
    pub fn leave(&mut self, ticket: Ticket) -> bool {
        if self.line.is_empty() {
            return false;
        }
        let place = self.place(ticket).ok();
        place.and_then(|place| self.line.remove(place)).is_some()
    }

    /// Who is the first.
    pub fn front(&self) -> Option<Ticket> {
        self.line.front().map(|(ticket, _)| *ticket)
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

    /// Where it stands, or would.
    fn place(&self, ticket: Ticket) -> Result<usize, usize> {
        self.line
            .binary_search_by_key(&ticket, |(ticket, _)| *ticket)
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
        let mut back = Some(first);
        waiters.stand(&mut back, Waker::noop());
        assert_eq!((back, waiters.front()), (Some(first), Some(first)));
        assert!(waiters.first().is_some());
        assert_eq!(waiters.all().count(), 1);
        assert!(waiters.line.is_empty());
    }
}
