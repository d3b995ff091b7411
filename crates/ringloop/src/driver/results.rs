//! The results of one operation that its future has not taken.
//!
//! Owns: [`Results`] (a queue whose first entry is inline) and [`Kept`]. Called by: `table`. Not
//! bounded here; the operation's shape says how many may wait.
//!
//! Nearly every operation, multishot ones included, has one result at a time, and so needs no
//! memory beyond its slot.

use super::completion::BufferId;
use std::collections::VecDeque;

/// A result that its future has not taken. The request of the last one stays in the slot.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Kept {
    pub result: i32,
    pub buffer: Option<BufferId>,
}

/// Results, the oldest first.
#[derive(Debug, Default)]
pub(super) struct Results {
    first: Option<Kept>,
    /// The others; empty if there is no first one.
    // A pointer wide, for the slot's size.
    #[allow(clippy::box_collection)]
    rest: Option<Box<VecDeque<Kept>>>,
}

impl Results {
    #[inline]
    pub fn push(&mut self, kept: Kept) {
        if self.first.is_none() {
            self.first = Some(kept);
        } else {
            self.rest.get_or_insert_default().push_back(kept);
        }
    }

    #[inline]
    pub fn pop(&mut self) -> Option<Kept> {
        let first = self.first.take();
        if self.rest.is_some() {
            self.move_up();
        }
        first
    }

    /// Fills the empty first entry with the next result.
    fn move_up(&mut self) {
        self.first = self.rest.as_mut().and_then(|rest| rest.pop_front());
    }

    /// The newest result.
    pub fn newest(&mut self) -> Option<&mut Kept> {
        let newest = self.rest.as_mut().and_then(|rest| rest.back_mut());
        newest.or(self.first.as_mut())
    }

    #[inline]
    pub fn is_empty(&self) -> bool {
        self.first.is_none()
    }

    pub fn len(&self) -> usize {
        usize::from(self.first.is_some()) + self.rest.as_ref().map_or(0, |rest| rest.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept(result: i32) -> Kept {
        Kept {
            result,
            buffer: None,
        }
    }

    #[test]
    fn results_come_in_order_whatever_is_pushed_between() {
        let mut results = Results::default();
        assert!(results.is_empty() && results.pop().is_none() && results.newest().is_none());
        let (mut pushed, mut popped) = (0, 0);
        for round in [1, 2, 5, 1, 3] {
            for _ in 0..round {
                results.push(kept(pushed));
                pushed += 1;
                assert_eq!(results.newest(), Some(&mut kept(pushed - 1)));
            }
            for _ in 0..round.min(2) {
                assert_eq!(results.pop(), Some(kept(popped)));
                popped += 1;
            }
            assert_eq!(results.len(), (pushed - popped) as usize);
        }
        while let Some(next) = results.pop() {
            assert_eq!(next, kept(popped));
            popped += 1;
        }
        assert_eq!(popped, pushed);
        assert!(results.is_empty());
    }
}
