//! Cancel another operation, and learn whether it could be: the ring's `ASYNC_CANCEL`.
//!
//! `Driver::cancel` asks the same without an answer; both leave the target's last completion to come.

use super::key::Key;
use super::operation::{Completable, Ended, Need, Operation};
use crate::sys::uring::abi::{self, Sqe};
use std::io;

/// Completes with 0 when the target was found and stopped, `ENOENT` when it was over already,
/// `EALREADY` when it was too far gone.
#[derive(Debug)]
pub struct Cancel {
    /// The operation to stop.
    pub target: Key,
}

impl Operation for Cancel {
    fn prepare(&mut self, sqe: &mut Sqe) {
        sqe.opcode = abi::OP_ASYNC_CANCEL;
        sqe.fd = -1;
        sqe.addr = self.target.user_data();
    }

    fn need(&self) -> Need {
        Need::Cancel(self.target)
    }

    /// The readiness driver keeps the table, so it does the work itself.
    fn attempt(&mut self) -> io::Result<u32> {
        Err(io::Error::from_raw_os_error(libc::ENOENT))
    }
}

impl Completable for Cancel {
    type Output = io::Result<()>;

    fn complete(ended: Ended<Self>) -> Self::Output {
        ended.result.map(drop)
    }
}
