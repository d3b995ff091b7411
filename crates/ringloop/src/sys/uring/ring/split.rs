//! A link that the kernel has taken in part.
//!
//! Called by: the ring driver, after an enter that left entries behind. Never does: decide what becomes of
//! the operations; it says which they are.
//!
//! The kernel stops in the middle of a submission where it has no memory for the next request. A link that
//! it is inside of ends there: what it has taken begins, as a shorter link; and what is left would begin at
//! the next submission, as a link of its own, though nothing before it has succeeded.
//!
//! ```text
//!   write ─LINK─▸ fsync ─LINK─▸ rename            taken: write ─LINK─▸ fsync │ left: rename
//!                                                                          head
//! ```
//! So what is left is turned into entries that do nothing, and its owner ends those operations.

use super::Ring;
use crate::sys::uring::abi::{self, Sqe};

/// A link that ended where a submission did.
#[derive(Debug, PartialEq, Eq)]
pub struct Split {
    /// The `user_data` of the last entry that the kernel has taken.
    pub begun: u64,
    /// The `user_data` of the entries that it will never see, in order.
    pub lost: Vec<u64>,
    /// Whether the first of them was the time-out of the one that was begun.
    pub lost_timeout: bool,
}

impl Ring {
    /// Take back what is left of a link that the kernel has taken in part; `None` where it has not.
    ///
    /// Shape: to be asked after each [`Ring::submit`] and [`Ring::enter`] that left entries behind, before
    /// anything else is pushed. In place of the entries the kernel gets some that complete with
    /// `stand_in`, and only where they fail. Not for a ring with a polling thread, which takes entries at any
    /// moment: never a link there.
    pub fn take_back_split(&mut self, stand_in: u64) -> Option<Split> {
        let pending = self.pending();
        if self.polling || pending == 0 {
            return None;
        }
        let head = self.sq.next.wrapping_sub(pending);
        let mut begun = self.sq.read(head.wrapping_sub(1));
        if begun.flags & abi::SQE_IO_LINK == 0 {
            return None;
        }
        // Not to be found again.
        begun.flags &= !abi::SQE_IO_LINK;
        self.sq.rewrite(head.wrapping_sub(1), begun);
        let mut split = Split {
            begun: begun.user_data,
            lost: Vec::new(),
            lost_timeout: self.sq.read(head).opcode == abi::OP_LINK_TIMEOUT,
        };
        for ahead in 0..pending {
            let at = head.wrapping_add(ahead);
            let lost = self.sq.read(at);
            split.lost.push(lost.user_data);
            let nothing = Sqe {
                opcode: abi::OP_NOP,
                flags: abi::SQE_CQE_SKIP_SUCCESS,
                user_data: stand_in,
                ..Sqe::default()
            };
            self.sq.rewrite(at, nothing);
            if lost.flags & abi::SQE_IO_LINK == 0 {
                break;
            }
        }
        Some(split)
    }
}
