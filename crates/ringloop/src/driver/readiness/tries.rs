//! One non-blocking try of an operation, in the table or before it is put there. Notes which descriptors
//! would block.
//!
//! Called by: `driver::readiness`, `Driver`. Never waits.

use super::super::table::flag;
use super::ReadinessDriver;
use super::attempt::{attempt, blocked_after, outcome};
use crate::op::{Key, Need, Operation, Request};
use crate::sys::fd::RawFd;
use crate::sys::interest::Interest;

impl ReadinessDriver {
    /// One non-blocking try; `None` is "would block".
    pub(super) fn attempt(&mut self, key: Key) -> Option<i32> {
        let slot = self.table.slot(key)?;
        let is_nonblocking = slot.is(flag::NONBLOCKING);
        let request = slot.request_mut()?;
        let result = match request {
            Request::Accept(accept) if is_nonblocking => outcome(accept.accept()),
            request => attempt(request),
        };
        let request = slot.request_mut()?;
        let blocked = blocked_after(request, result);
        self.note(blocked);
        result
    }

    /// Tries a request that is not in the table, unless it is known to block or others wait before
    /// it.
    pub(in crate::driver) fn attempt_first(&mut self, request: &mut Request) -> Option<i32> {
        let (fd, interest) = match request.need() {
            Need::Ready(fd, interest) => (fd, interest),
            // Data that is already in memory.
            Need::Pool(_) => return attempt(request).map(|result| request.finish(result)),
            _ => return None,
        };
        if !request.shape().is_single() || self.watches.is_blocked(fd, interest) {
            return None;
        }
        let result = attempt(request);
        self.note(blocked_after(request, result));
        result.map(|result| request.finish(result))
    }

    /// Notes that a direction of a descriptor would block.
    fn note(&mut self, blocked: Option<(RawFd, Interest)>) {
        if let Some((fd, interest)) = blocked {
            self.watches.note_blocked(fd, interest);
        }
    }
}
