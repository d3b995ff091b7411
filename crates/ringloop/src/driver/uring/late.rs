//! Descriptors that the kernel looks up when it begins an operation, not when it takes the entry.
//!
//! Owns: which operations those are, and the descriptors to close once none of them names their
//! number. Called by: `driver::uring`. The table says if an operation has ended.
//!
//! For most entries the kernel looks up the file as it takes them. The exceptions (since 5.18 and 6.14):
//! * an operation behind another one in a link, which begins when that one has ended;
//! * an operation that needs a kernel thread (truncating, syncing or opening a file, moving bytes
//!   through a pipe), which begins when a thread is free;
//! * [`Shape::Retried`](crate::op::Shape::Retried), which may have to be re-armed, and a send that was
//!   re-armed because the kernel stopped waiting.
//!
//! A cancel may find them too late, or not at all (`uring::link`). So their numbers stay in use until
//! they have ended.

use super::number::DESCRIPTORS_MAX;
use crate::driver::table::{Phase, Table};
use crate::op::Key;
use crate::sys::fd::{AsRawFd, OwnedFd, RawFd};

/// Operations to note before ended ones are removed.
const TIDY_MIN: usize = 64;

/// Operations whose descriptors are looked up late.
#[derive(Debug, Default)]
pub(super) struct LateLookups {
    /// Operations handed to the kernel; some have ended.
    pub noted: Vec<(Key, [RawFd; DESCRIPTORS_MAX])>,
    tidy_at: usize,
    closing: Vec<OwnedFd>,
}

impl LateLookups {
    /// Notes an operation that goes to the kernel.
    pub fn note(&mut self, key: Key, fds: [RawFd; DESCRIPTORS_MAX]) {
        self.noted.push((key, fds));
    }

    /// True if an operation in flight names `fd`.
    fn names(&self, table: &mut Table, fd: RawFd) -> bool {
        let mut naming = self.noted.iter().filter(|(_, fds)| fds.contains(&fd));
        naming.any(|(key, _)| table.is_in(*key, Phase::Armed))
    }

    /// Closes a descriptor, now or when no operation in flight names it.
    pub fn close(&mut self, table: &mut Table, fd: OwnedFd) {
        if self.names(table, fd.as_raw_fd()) {
            self.closing.push(fd);
        }
    }

    /// Completions were taken: closes what they have freed, and sometimes removes ended operations.
    #[inline]
    pub fn tidy(&mut self, table: &mut Table) {
        if !self.closing.is_empty() || self.noted.len() > self.tidy_at {
            self.tidy_now(table);
        }
    }

    #[cold]
    fn tidy_now(&mut self, table: &mut Table) {
        self.noted.retain(|(key, _)| table.is_in(*key, Phase::Armed));
        self.tidy_at = 2 * self.noted.len().max(TIDY_MIN);
        for fd in std::mem::take(&mut self.closing) {
            self.close(table, fd);
        }
    }

    /// Leaves open what may still be named, as the driver is dropped.
    pub fn abandon(&mut self) {
        self.closing.drain(..).for_each(std::mem::forget);
    }
}
