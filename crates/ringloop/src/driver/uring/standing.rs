//! Operations that are made again and again in a slot that their owner keeps.
//!
//! Called by: `driver::Driver`, for `executor::Standing`. Never does: free a slot.

use super::{Entry, UringDriver};
use crate::driver::Key;
use crate::driver::table::Phase;
use crate::op::Renewed;
use crate::sys::uring::abi::Sqe;
use std::task::Waker;

impl UringDriver {
    /// See [`crate::driver::Driver::renew`].
    #[inline(always)]
    pub(in crate::driver) fn renew<K: Renewed>(
        &mut self,
        key: Key,
        waker: &Waker,
        make: &mut impl FnMut() -> K,
    ) -> Option<Key> {
        let may_arm = self.bound.is_some() && self.backlog.is_empty() && self.has_room();
        let (key, phase, request) = self.table.renew(key, waker)?;
        let kind = make().renew(request);
        if may_arm {
            self.unsubmitted.push(kind.fd());
            let fill = |sqe: &mut Sqe| {
                sqe.user_data = key.user_data();
                kind.prepare(sqe);
            };
            // SAFETY: invariant 1; what the entry points at lives in the table until the last completion.
            if unsafe { self.ring.push_with(fill) } {
                *phase = Phase::Armed;
                return Some(key);
            }
        }
        self.backlog.push_back(Entry::Operation(key));
        Some(key)
    }
}
