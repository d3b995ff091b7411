//! The results of one operation that its future has not taken.
//!
//! Owns: [`Results`] (a queue whose first entry is inline) and [`Kept`]. Called by: `table`. Not
//! bounded here; the operation's shape says how many may wait.
//!
//! Nearly every operation, multishot ones included, has one result at a time, and so needs no
//! memory beyond its slot.

use crate::sys::pool::PoolBuffer;
use std::collections::VecDeque;

/// A result that its future has not taken, in two words. The request of the last one stays in the
/// slot.
#[derive(Debug)]
pub(super) enum Kept {
    /// As the kernel reports it.
    Result(i32),
    /// Received bytes: their count is the result.
    Bytes(PoolBuffer),
}

impl Kept {
    #[inline]
    pub fn new(result: i32, buffer: Option<PoolBuffer>) -> Self {
        let Some(bytes) = buffer else {
            return Self::Result(result);
        };
        debug_assert_eq!(bytes.len(), result as usize);
        Self::Bytes(bytes)
    }

    #[inline]
    pub fn into_parts(self) -> (i32, Option<PoolBuffer>) {
        match self {
            Self::Result(result) => (result, None),
            Self::Bytes(bytes) => (bytes.len() as i32, Some(bytes)),
        }
    }
}

/// Stands for no result: the kernel reports none such.
const NONE: i32 = i32::MIN;
const EMPTY: Kept = Kept::Result(NONE);

/// Results, the oldest first.
#[derive(Debug)]
pub(super) struct Results {
    /// `EMPTY`, or the oldest.
    first: Kept,
    /// The others; empty if there is no first one.
    // A pointer wide, for the slot's size.
    #[allow(clippy::box_collection)]
    rest: Option<Box<VecDeque<Kept>>>,
}

impl Default for Results {
    fn default() -> Self {
        Self { first: EMPTY, rest: None }
    }
}

impl Results {
    #[inline]
    pub fn push(&mut self, kept: Kept) {
        if self.is_empty() {
            self.first = kept;
        } else {
            self.rest.get_or_insert_default().push_back(kept);
        }
    }

    #[inline]
    pub fn pop(&mut self) -> Option<Kept> {
        if self.is_empty() {
            return None;
        }
        let next = self.rest.as_mut().and_then(|rest| rest.pop_front());
        Some(std::mem::replace(&mut self.first, next.unwrap_or(EMPTY)))
    }

    /// The newest result.
    pub fn newest(&mut self) -> Option<&mut Kept> {
        if self.is_empty() {
            return None;
        }
        let newest = self.rest.as_mut().and_then(|rest| rest.back_mut());
        newest.or(Some(&mut self.first))
    }

    /// The buffers of the results.
    pub fn buffers_mut(&mut self) -> impl Iterator<Item = &mut PoolBuffer> {
        let rest = self.rest.iter_mut().flat_map(|rest| rest.iter_mut());
        std::iter::once(&mut self.first).chain(rest).filter_map(|kept| match kept {
            Kept::Bytes(buffer) => Some(buffer),
            Kept::Result(_) => None,
        })
    }

    #[inline]
    pub fn is_empty(&self) -> bool {
        matches!(self.first, Kept::Result(NONE))
    }

    pub fn len(&self) -> usize {
        usize::from(!self.is_empty()) + self.rest.as_ref().map_or(0, |rest| rest.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn popped(results: &mut Results) -> Option<i32> {
        results.pop().map(|kept| kept.into_parts().0)
    }

    #[test]
    fn results_come_in_order_whatever_is_pushed_between() {
        let mut results = Results::default();
        assert!(results.is_empty() && results.pop().is_none() && results.newest().is_none());
        let (mut pushed, mut popped) = (0, 0);
        for round in [1, 2, 5, 1, 3] {
            for _ in 0..round {
                results.push(Kept::new(pushed, None));
                pushed += 1;
                let newest = results.newest();
                assert!(matches!(newest, Some(Kept::Result(last)) if *last == pushed - 1));
            }
            for _ in 0..round.min(2) {
                assert_eq!(self::popped(&mut results), Some(popped));
                popped += 1;
            }
            assert_eq!(results.len(), (pushed - popped) as usize);
        }
        while let Some(next) = self::popped(&mut results) {
            assert_eq!(next, popped);
            popped += 1;
        }
        assert_eq!(popped, pushed);
        assert!(results.is_empty());
    }
}
