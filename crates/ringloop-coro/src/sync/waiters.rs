//! Waiters in first-in-first-out order.
//!
//! Owns: [`Waiters`], one line, and [`LineWait`], one wait in it. Called by: this folder, each
//! under the lock of its own state. Wakers are handed out, to be woken once the lock is free. A
//! woken waiter has left the line; if it finds nothing, it returns to its former place.

use crate::atomics::locked;
use std::collections::VecDeque;
use std::marker::PhantomData;
use std::sync::Mutex;
use std::task::{Context, Poll, Waker};

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
    pub const fn new() -> Self {
        Self { line: VecDeque::new(), next: 0 }
    }

    /// Enters the line at its end, with a new ticket, or at the place of `ticket`, or updates the
    /// waker there.
    pub fn enter(&mut self, ticket: &mut Option<Ticket>, waker: &Waker) {
        if let Some(ticket) = *ticket {
            match self.index_of(ticket) {
                Ok(index) => self.line[index].1.clone_from(waker),
                Err(index) => self.line.insert(index, (ticket, waker.clone())),
            }
            return;
        }
        let new = Ticket(self.next);
        self.next += 1;
        self.line.push_back((new, waker.clone()));
        *ticket = Some(new);
    }

    /// `false` once it was woken.
    pub fn contains(&self, ticket: Ticket) -> bool {
        self.index_of(ticket).is_ok()
    }

    /// Leaves the line; `false` if it was woken before.
    #[inline]
    pub fn leave(&mut self, ticket: Ticket) -> bool {
        if self.line.is_empty() {
            return false;
        }
        let index = self.index_of(ticket).ok();
        index.and_then(|index| self.line.remove(index)).is_some()
    }

    pub fn front(&self) -> Option<Ticket> {
        self.line.front().map(|(ticket, _)| *ticket)
    }

    /// Takes the first out of the line, to be woken.
    pub fn pop(&mut self) -> Option<Waker> {
        self.line.pop_front().map(|(_, waker)| waker)
    }

    /// Takes all out of the line, to be woken.
    pub fn take_all(&mut self) -> impl Iterator<Item = Waker> + use<> {
        let line = std::mem::take(&mut self.line);
        line.into_iter().map(|(_, waker)| waker)
    }

    /// Where it is in the line, or would be.
    fn index_of(&self, ticket: Ticket) -> Result<usize, usize> {
        self.line.binary_search_by_key(&ticket, |(ticket, _)| *ticket)
    }
}

/// A line that is part of the state `S`, under that state's lock.
pub(super) trait Line<S> {
    fn waiters(state: &mut S) -> &mut Waiters;

    /// A wait was dropped before it was over, with `was_in_line` if it was not woken. Returns who
    /// gets the wake that it did not use.
    fn abandon(state: &mut S, was_in_line: bool) -> Option<Waker>;
}

/// One wait in the line `L`.
pub(super) struct LineWait<'a, S, L: Line<S>> {
    state: &'a Mutex<S>,
    ticket: Option<Ticket>,
    line: PhantomData<L>,
}

impl<'a, S, L: Line<S>> LineWait<'a, S, L> {
    #[inline]
    pub fn new(state: &'a Mutex<S>) -> Self {
        Self { state, ticket: None, line: PhantomData }
    }

    /// Makes an attempt with the state locked; enters the line if that has no result.
    #[inline(always)]
    pub fn poll<R>(
        &mut self,
        cx: &mut Context<'_>,
        attempt: impl FnOnce(&mut S, Option<Ticket>) -> Option<R>,
    ) -> Poll<R> {
        let mut state = locked(self.state);
        let Some(result) = attempt(&mut state, self.ticket) else {
            L::waiters(&mut state).enter(&mut self.ticket, cx.waker());
            return Poll::Pending;
        };
        if let Some(ticket) = self.ticket.take() {
            L::waiters(&mut state).leave(ticket);
        }
        Poll::Ready(result)
    }
}

impl<S, L: Line<S>> Drop for LineWait<'_, S, L> {
    #[inline(always)]
    fn drop(&mut self) {
        if let Some(ticket) = self.ticket.take() {
            let mut state = locked(self.state);
            let was_in_line = L::waiters(&mut state).leave(ticket);
            let next = L::abandon(&mut state, was_in_line);
            drop(state);
            wake(next);
        }
    }
}

#[inline]
pub(super) fn wake(waker: Option<Waker>) {
    if let Some(waker) = waker {
        waker.wake();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn line_keeps_its_order_as_waiters_leave_and_return() {
        let mut waiters = Waiters::default();
        let mut tickets = [None; 3];
        for ticket in &mut tickets {
            waiters.enter(ticket, Waker::noop());
        }
        let [first, second, third] = tickets.map(Option::unwrap);
        assert!(waiters.leave(second));
        assert!(!waiters.leave(second));
        assert!(waiters.pop().is_some());
        assert!(!waiters.contains(first) && waiters.contains(third));
        let mut again = Some(third);
        waiters.enter(&mut again, Waker::noop());
        assert_eq!((again, waiters.line.len()), (Some(third), 1));
        let mut back = Some(first);
        waiters.enter(&mut back, Waker::noop());
        assert_eq!((back, waiters.front()), (Some(first), Some(first)));
        assert!(waiters.pop().is_some());
        assert_eq!(waiters.take_all().count(), 1);
        assert!(waiters.line.is_empty());
    }
}
