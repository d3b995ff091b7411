//! A timer, as an operation of the driver. The executor's own timers do not use it: their next
//! deadline is an argument of the wait. It is for links and for races inside the kernel.

use super::operation::{Need, Operation};
use crate::sys::clock;
use crate::sys::platform;
use crate::sys::uring::abi::{self, Sqe};
use std::io;
use std::time::Duration;

/// Completes once the monotonic clock has passed the deadline, never before.
#[derive(Debug)]
pub struct Timeout {
    deadline_ns: u64,
    /// It limits the operation before it in a link, from when that begins.
    limit: Option<Duration>,
    // Read by the kernel; filled in the slot, which does not move.
    timespec: [i64; 2],
}

impl Timeout {
    /// Completes `delay` from now.
    pub fn after(delay: Duration) -> Self {
        let delay_ns = u64::try_from(delay.as_nanos()).unwrap_or(u64::MAX);
        Self::at(clock::monotonic_ns().saturating_add(delay_ns))
    }

    /// Completes when the monotonic clock reaches `deadline_ns`.
    pub fn at(deadline_ns: u64) -> Self {
        Self { deadline_ns, limit: None, timespec: [0; 2] }
    }

    /// Limits the operation before it in a link of the ring; completes with 0 if the time ran out
    /// first, otherwise with `ECANCELED`.
    pub(crate) fn of_link(limit: Duration) -> Self {
        Self { limit: Some(limit), ..Self::after(limit) }
    }
}

impl Operation for Timeout {
    fn prepare(&mut self, sqe: &mut Sqe) {
        const NS: u64 = 1_000_000_000;
        if let Some(limit) = self.limit {
            let seconds = i64::try_from(limit.as_secs()).unwrap_or(i64::MAX);
            self.timespec = [seconds, i64::from(limit.subsec_nanos())];
            sqe.opcode = abi::IORING_OP_LINK_TIMEOUT;
            sqe.fd = -1;
            sqe.addr = (&raw const self.timespec) as u64;
            sqe.len = 1;
            return;
        }
        self.timespec = [(self.deadline_ns / NS) as i64, (self.deadline_ns % NS) as i64];
        sqe.opcode = abi::IORING_OP_TIMEOUT;
        sqe.fd = -1;
        sqe.addr = (&raw const self.timespec) as u64;
        sqe.len = 1;
        // Expiry is success, so that a link goes on.
        sqe.op_flags = abi::IORING_TIMEOUT_ABS | abi::IORING_TIMEOUT_ETIME_SUCCESS;
    }

    fn need(&self) -> Need {
        Need::Clock(self.deadline_ns)
    }

    fn attempt(&mut self) -> io::Result<u32> {
        if clock::monotonic_ns() < self.deadline_ns {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        Ok(0)
    }

    fn finish(&mut self, result: i32) -> i32 {
        // An expired time-out ends with ETIME on the ring; that is its success.
        if result == -platform::ETIME { 0 } else { result }
    }
}
