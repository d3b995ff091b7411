//! Close a descriptor: close(2), after the last completion of every operation on it.

use super::operation::{Need, Operation};
use crate::sys::fd::RawFd;
use crate::sys::file;
use crate::sys::libc;
use crate::sys::uring::abi::{self, Sqe};
use std::io;

/// Closes `fd`, even if the kernel reports an error.
#[derive(Debug)]
pub struct Close {
    /// The descriptor, owned by this request.
    pub fd: RawFd,
}

impl Operation for Close {
    fn prepare(&mut self, sqe: &mut Sqe) {
        sqe.opcode = abi::IORING_OP_CLOSE;
        sqe.fd = self.fd;
    }

    fn need(&self) -> Need {
        Need::Nothing
    }

    fn attempt(&mut self) -> io::Result<u32> {
        file::close(self.fd).map(|()| 0)
    }

    /// Cancelled before it ran: the descriptor is this request's to close.
    fn discard(&mut self, result: i32) {
        if result == -libc::ECANCELED {
            drop(file::close(self.fd));
        }
    }
}
