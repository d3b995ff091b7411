//! Descriptors that the kernel looks up when it begins an operation, not when it takes the entry.
//!
//! Owns: which operations those are, and the descriptors that are closed once none of them names their number.
//! Called by: `driver::uring`. Never does: decide that an operation is over; the table says so.
//!
//! Of most entries the kernel has found the file when it has taken them. Not of these (since 5.18 and 6.14):
//! * what is behind another operation in a link begins when that one is over;
//! * what only a thread of the kernel's can do (to cut a file, write it out, open one, move bytes by a pipe) begins when one
//!   is free;
//! * what is [`Shape::Retried`](crate::op::Shape::Retried) may have to be armed again, and so was a send that the kernel
//!   stopped waiting for.
//!
//! A cancel may find them too late, or not at all (`uring::link`). So their numbers stay taken until they are over.

use super::number::DESCRIPTORS_MAX;
use crate::driver::table::{Phase, Table};
use crate::op::Key;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};

/// So many operations are noted before those that are over are looked for.
const TIDY_MIN: usize = 64;

/// Operations whose descriptors are looked up late.
#[derive(Debug, Default)]
pub(super) struct Late {
    /// Those that were handed to the kernel; some are over.
    pub noted: Vec<(Key, [RawFd; DESCRIPTORS_MAX])>,
    tidy_at: usize,
    closing: Vec<OwnedFd>,
}

impl Late {
    /// Note an operation that goes to the kernel.
    pub fn note(&mut self, key: Key, fds: [RawFd; DESCRIPTORS_MAX]) {
        self.noted.push((key, fds));
    }

    /// Whether something that is under way names `fd`.
    fn names(&self, table: &mut Table, fd: RawFd) -> bool {
        let mut naming = self.noted.iter().filter(|(_, fds)| fds.contains(&fd));
        naming.any(|(key, _)| is_under_way(table, *key))
    }

    /// Close a descriptor, now or when nothing that is under way names it.
    pub fn close(&mut self, table: &mut Table, fd: OwnedFd) {
        if self.names(table, fd.as_raw_fd()) {
            self.closing.push(fd);
        }
    }

    /// Completions were taken: close what they have freed, and forget what is over, now and then.
    #[inline]
    pub fn tidy(&mut self, table: &mut Table) {
        if !self.closing.is_empty() || self.noted.len() > self.tidy_at {
            self.tidy_now(table);
        }
    }

    #[cold]
    fn tidy_now(&mut self, table: &mut Table) {
        self.noted.retain(|(key, _)| is_under_way(table, *key));
        self.tidy_at = 2 * self.noted.len().max(TIDY_MIN);
        for fd in std::mem::take(&mut self.closing) {
            self.close(table, fd);
        }
    }

    /// Leave open what may be named still: the driver ends.
    pub fn abandon(&mut self) {
        self.closing.drain(..).for_each(std::mem::forget);
    }
}

fn is_under_way(table: &mut Table, key: Key) -> bool {
    let slot = table.slot(key);
    slot.is_some_and(|slot| slot.phase == Phase::Armed)
}
