//! Who waits for something, in the order of asking.
//!
//! Owns: the wakers, in slots that are used again. Called by: `semaphore` and `notify`, under their cell.
//! Never does: wake; it returns the waker, to be woken once the cell is free.
//!
//! ```text
//!   push ──▶ Waiting ──grant (the first in the line)──▶ Granted ──leave──▶ free
//!               └──────────────leave──────────────────────────────────────▶
//! ```

use std::task::Waker;

/// Names one who waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Ticket(u32);

/// The line of those who wait; each wants so many of something.
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
    /// So many are its own; it has been woken to take them.
    Granted(usize),
    Free {
        next: Option<u32>,
    },
}

impl Waiters {
    pub fn is_empty(&self) -> bool {
        self.first.is_none()
    }

    /// Join the end of the line.
    pub fn push(&mut self, waker: &Waker, want: usize) -> Ticket {
        let slot = Slot::Waiting {
            waker: waker.clone(),
            want,
            before: self.last,
            after: None,
        };
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

    /// Whether it was granted; else its waker from now on is `waker`.
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

    /// What the first in the line wants.
    pub fn first_wants(&self) -> Option<usize> {
        match self.slots.get(self.first? as usize) {
            Some(Slot::Waiting { want, .. }) => Some(*want),
            _ => None,
        }
    }

    /// End the wait of the first, with `count` for its own; the caller wakes it.
    pub fn grant(&mut self, count: usize) -> Option<Waker> {
        let index = self.first?;
        self.unlink(index);
        match std::mem::replace(&mut self.slots[index as usize], Slot::Granted(count)) {
            Slot::Waiting { waker, .. } => Some(waker),
            _ => None,
        }
    }

    /// Leave, for good; returns how many had been granted.
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

    /// Take one out of the line, if it stands there.
    fn unlink(&mut self, index: u32) {
        let Slot::Waiting { before, after, .. } = self.slots[index as usize] else {
            return;
        };
        self.link(before, after);
        if self.last == Some(index) {
            self.last = before;
        }
    }

    /// Make two stand side by side; `None` is the end of the line.
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
    fn line_keeps_its_order_whoever_leaves() {
        for leaver in 0..4 {
            let mut waiters = Waiters::default();
            let tickets: Vec<_> = (0..4)
                .map(|want| waiters.push(Waker::noop(), want))
                .collect();
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
