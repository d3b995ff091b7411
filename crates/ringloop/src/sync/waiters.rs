//! Waiters in first-in-first-out order.
//!
//! Owns: the wakers, in reused slots. Called by: `semaphore`, `notify` and `mutex`, under their cell. It
//! returns wakers, to be woken once the cell is free.
//!
//! ```text
//!   push ──▶ Waiting ──grant (the first in the line)──▶ Granted ──leave──▶ free
//!               └──────────────leave──────────────────────────────────────▶
//! ```

use std::task::Waker;

/// Wakes a waiter, if there is one.
pub(super) fn wake(waker: Option<Waker>) {
    if let Some(waker) = waker {
        waker.wake();
    }
}

/// Keeps the waker of the only waiter.
pub(super) fn keep(kept: &mut Option<Waker>, waker: &Waker) {
    match kept {
        Some(known) => known.clone_from(waker),
        None => *kept = Some(waker.clone()),
    }
}

/// A waiter's slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Ticket(u32);

/// The line; each waiter wants a number of permits.
#[derive(Debug, Default)]
pub(super) struct Waiters {
    slots: Vec<Slot>,
    free: Option<u32>,
    first: Option<u32>,
    last: Option<u32>,
}

#[derive(Debug)]
enum Slot {
    Waiting {
        waker: Waker,
        want: usize,
        before: Option<u32>,
        after: Option<u32>,
    },
    /// Granted this number, and woken.
    Granted(usize),
    Free {
        next: Option<u32>,
    },
}

impl Waiters {
    pub fn is_empty(&self) -> bool {
        self.first.is_none()
    }

    /// Enters the line at its end.
    pub fn push(&mut self, waker: &Waker, want: usize) -> Ticket {
        let slot = Slot::Waiting { waker: waker.clone(), want, before: self.last, after: None };
        let index = self.free.unwrap_or(self.slots.len() as u32);
        match self.slots.get_mut(index as usize) {
            Some(known) => {
                if let Slot::Free { next } = *known {
                    self.free = next;
                }
                *known = slot;
            }
            None => self.slots.push(slot),
        }
        self.link(self.last, Some(index));
        self.last = Some(index);
        Ticket(index)
    }

    /// Whether it was granted; else updates its waker.
    pub fn poll(&mut self, ticket: Ticket, waker: &Waker) -> bool {
        match &mut self.slots[ticket.0 as usize] {
            Slot::Granted(_) => true,
            Slot::Waiting { waker: known, .. } => {
                known.clone_from(waker);
                false
            }
            Slot::Free { .. } => false,
        }
    }

    /// Frees the slot if it was granted; else updates its waker and returns `false`.
    pub fn take_grant(&mut self, ticket: Ticket, waker: &Waker) -> bool {
        let is_granted = self.poll(ticket, waker);
        if is_granted {
            self.leave(ticket);
        }
        is_granted
    }

    /// The number that the first waiter wants.
    pub fn first_wants(&self) -> Option<usize> {
        match self.slots.get(self.first? as usize) {
            Some(Slot::Waiting { want, .. }) => Some(*want),
            _ => None,
        }
    }

    /// Grants `count` to the first waiter, which the caller wakes.
    pub fn grant(&mut self, count: usize) -> Option<Waker> {
        let index = self.first?;
        self.unlink(index);
        match std::mem::replace(&mut self.slots[index as usize], Slot::Granted(count)) {
            Slot::Waiting { waker, .. } => Some(waker),
            _ => None,
        }
    }

    /// Frees the slot; returns the number granted.
    pub fn leave(&mut self, ticket: Ticket) -> usize {
        self.unlink(ticket.0);
        let granted = match self.slots[ticket.0 as usize] {
            Slot::Granted(count) => count,
            Slot::Waiting { .. } | Slot::Free { .. } => 0,
        };
        self.slots[ticket.0 as usize] = Slot::Free { next: self.free };
        self.free = Some(ticket.0);
        granted
    }

    /// Removes a slot from the line, if it is there.
    fn unlink(&mut self, index: u32) {
        let Slot::Waiting { before, after, .. } = self.slots[index as usize] else {
            return;
        };
        self.link(before, after);
        if self.last == Some(index) {
            self.last = before;
        }
    }

    /// Links two slots; `None` is the end of the line.
    fn link(&mut self, left: Option<u32>, right: Option<u32>) {
        match left {
            Some(left) => {
                if let Slot::Waiting { after, .. } = &mut self.slots[left as usize] {
                    *after = right;
                }
            }
            None => self.first = right,
        }
        if let Some(right) = right
            && let Slot::Waiting { before, .. } = &mut self.slots[right as usize]
        {
            *before = left;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wants(waiters: &mut Waiters) -> Vec<usize> {
        let mut wants = Vec::new();
        while let Some(want) = waiters.first_wants() {
            wants.push(want);
            assert!(waiters.grant(1).is_some());
        }
        wants
    }

    #[test]
    fn line_keeps_its_order_as_waiters_leave() {
        for leaver in 0..4 {
            let mut waiters = Waiters::default();
            let tickets: Vec<_> = (0..4).map(|want| waiters.push(Waker::noop(), want)).collect();
            assert_eq!(waiters.leave(tickets[leaver]), 0);
            waiters.push(Waker::noop(), 9);
            let mut expected: Vec<_> = (0..4).filter(|want| *want != leaver).collect();
            expected.push(9);
            assert_eq!(wants(&mut waiters), expected);
            assert!(waiters.is_empty());
        }
    }

    #[test]
    fn granted_slot_is_kept_until_it_is_left_and_used_again_after_that() {
        let mut waiters = Waiters::default();
        let first = waiters.push(Waker::noop(), 1);
        assert!(!waiters.poll(first, Waker::noop()));
        assert!(waiters.grant(1).is_some());
        assert!(waiters.poll(first, Waker::noop()));
        let second = waiters.push(Waker::noop(), 2);
        assert_ne!(first, second);
        assert_eq!(waiters.leave(first), 1);
        assert_eq!(waiters.push(Waker::noop(), 3), first);
        assert_eq!(wants(&mut waiters), [2, 3]);
    }
}
