//! Cancel another operation, with a result: the ring's `ASYNC_CANCEL`.
//!
//! `Driver::cancel` does the same without a result; in both cases the target's last completion still
//! comes.

use super::key::Key;
use super::operation::{Need, Operation};
use crate::sys::libc;
use crate::sys::uring::abi::{self, Sqe};
use std::io;

/// Completes with 0 if the target was found and cancelled, `ENOENT` if it had ended, `EALREADY` if
/// it could not be cancelled any more.
#[derive(Debug)]
pub struct Cancel {
    /// The operation to cancel.
    pub target: Key,
}

impl Operation for Cancel {
    fn prepare(&mut self, sqe: &mut Sqe) {
        sqe.opcode = abi::IORING_OP_ASYNC_CANCEL;
        sqe.fd = -1;
        sqe.addr = self.target.user_data();
    }

    fn need(&self) -> Need {
        Need::Cancel(self.target)
    }

    /// The readiness driver keeps the table, so it cancels the target itself.
    fn attempt(&mut self) -> io::Result<u32> {
        Err(io::Error::from_raw_os_error(libc::ENOENT))
    }
}
