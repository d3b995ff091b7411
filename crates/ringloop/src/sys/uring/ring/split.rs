//! A link that the kernel has taken in part.
//!
//! Called by: the ring driver, after an enter that left entries behind. Reports the operations of
//! the link; the driver ends them.
//!
//! The kernel stops in the middle of a submission if it has no memory for the next request. A link
//! is cut there: the entries taken begin, as a shorter link, and the rest would begin at the next
//! submission, as a link of its own, though nothing before it has succeeded.
//!
//! ```text
//!   write ─LINK─▸ fsync ─LINK─▸ rename            taken: write ─LINK─▸ fsync │ left: rename
//!                                                                          head
//! ```
//! So the rest is replaced by no-ops, and the driver ends those operations.

use super::Ring;
use crate::sys::uring::abi::{self, Sqe};

/// A link that was cut by the end of a submission.
#[derive(Debug, PartialEq, Eq)]
pub struct Split {
    /// The `user_data` of the last entry that the kernel has taken.
    pub begun: u64,
    /// The `user_data` of the entries that are never submitted, in order.
    pub lost: Vec<u64>,
    /// True if the first of them is the time-out of the last one taken.
    pub lost_timeout: bool,
}

impl Ring {
    /// Takes back the rest of a link that the kernel has taken in part; `None` if there is none.
    ///
    /// Call it after each [`Ring::submit`] and [`Ring::enter`] that left entries behind, before anything
    /// else is pushed. The entries become no-ops that complete with `stand_in`, and only if they fail. Not
    /// for a ring with a polling thread, which takes entries at any moment: submit no links there.
    pub fn take_back_split(&mut self, stand_in: u64) -> Option<Split> {
        let pending = self.pending();
        if self.polling || pending == 0 {
            return None;
        }
        let head = self.sq.next.wrapping_sub(pending);
        let mut begun = self.sq.read(head.wrapping_sub(1));
        if begun.flags & abi::IOSQE_IO_LINK == 0 {
            return None;
        }
        // So that the next call does not find it.
        begun.flags &= !abi::IOSQE_IO_LINK;
        self.sq.rewrite(head.wrapping_sub(1), begun);
        let mut split = Split {
            begun: begun.user_data,
            lost: Vec::new(),
            lost_timeout: self.sq.read(head).opcode == abi::IORING_OP_LINK_TIMEOUT,
        };
        for ahead in 0..pending {
            let at = head.wrapping_add(ahead);
            let lost = self.sq.read(at);
            split.lost.push(lost.user_data);
            let nothing = Sqe {
                opcode: abi::IORING_OP_NOP,
                flags: abi::IOSQE_CQE_SKIP_SUCCESS,
                user_data: stand_in,
                ..Sqe::default()
            };
            self.sq.rewrite(at, nothing);
            if lost.flags & abi::IOSQE_IO_LINK == 0 {
                break;
            }
        }
        Some(split)
    }
}
