//! Requests running on the blocking pool.
//!
//! Owns: which operations [`BlockingPool`] has and which descriptors those name, the operations
//! that wait for room in its queue, and descriptors to close when no thread can name them any more.
//! Called by: `driver::readiness`, which handles the results.
//!
//! # Invariants
//! 1. A slot has no request exactly while its phase is `Working`; then its key is in `in_pool`.
//! 2. A descriptor is not closed while a thread may still name its number: the next file could get
//!    it.

use super::blocking_pool::{BlockingPool, Finished};
use super::table::{Phase, Table};
use crate::limits;
use crate::op::Key;
use crate::sys::fd::{AsRawFd, OwnedFd, RawFd};
use std::collections::VecDeque;
use std::io;
use std::time::{Duration, Instant};

/// The operations on pool threads, or waiting for one.
#[derive(Debug)]
pub(super) struct Working {
    pool: BlockingPool,
    in_pool: Vec<(Key, [RawFd; 2])>,
    waiting: VecDeque<Key>,
    closing: Vec<OwnedFd>,
}

impl Working {
    pub fn new(pool: BlockingPool) -> Self {
        Self { pool, in_pool: Vec::new(), waiting: VecDeque::new(), closing: Vec::new() }
    }

    /// True if no operation is with the pool.
    pub fn is_idle(&self) -> bool {
        self.in_pool.is_empty()
    }

    /// Hands an operation to the pool, or queues it for room there.
    pub fn submit(&mut self, table: &mut Table, key: Key, fds: [RawFd; 2]) -> io::Result<()> {
        let Some(slot) = table.slot(key) else {
            return Ok(());
        };
        let Some(request) = slot.take_request() else {
            return Ok(());
        };
        match self.pool.hand_over(key, request) {
            Ok(()) => {
                slot.phase = Phase::Working;
                self.in_pool.push((key, fds));
                Ok(())
            }
            Err((request, error)) => {
                slot.restore_request(request);
                if let Some(error) = error {
                    return Err(error);
                }
                slot.phase = Phase::Queued;
                self.waiting.push_back(key);
                Ok(())
            }
        }
    }

    /// Takes back an operation that no thread has begun; `false` if one has.
    pub fn revoke(&mut self, table: &mut Table, key: Key) -> bool {
        let Some(request) = self.pool.revoke(key) else {
            return false;
        };
        self.in_pool.retain(|(other, _)| *other != key);
        if let Some(slot) = table.slot(key) {
            slot.restore_request(request);
        }
        self.close_unnamed();
        true
    }

    /// Takes the results of finished operations; their requests are in their slots again.
    pub fn collect(&mut self, table: &mut Table) -> Vec<(Key, io::Result<u32>)> {
        let finished = self.pool.collect();
        self.take_back(table, finished)
    }

    /// Like [`Working::collect`], but waits for the first one, until `deadline`.
    pub fn collect_until(
        &mut self,
        table: &mut Table,
        deadline: Instant,
    ) -> Vec<(Key, io::Result<u32>)> {
        let finished = self.pool.collect_until(deadline);
        self.take_back(table, finished)
    }

    fn take_back(
        &mut self,
        table: &mut Table,
        finished: Vec<Finished>,
    ) -> Vec<(Key, io::Result<u32>)> {
        let mut results = Vec::with_capacity(finished.len());
        for Finished { key, request, result } in finished {
            if let Some(at) = self.in_pool.iter().position(|(other, _)| *other == key) {
                self.in_pool.swap_remove(at);
            }
            if let Some(slot) = table.slot(key) {
                slot.restore_request(request);
            }
            results.push((key, result));
        }
        self.close_unnamed();
        results
    }

    /// Operations are back: closes descriptors that only they named.
    fn close_unnamed(&mut self) {
        for fd in std::mem::take(&mut self.closing) {
            self.close(fd);
        }
    }

    /// An operation that waited for room, if there is some now.
    pub fn next_waiting(&mut self) -> Option<Key> {
        if self.waiting.is_empty() || !self.pool.has_room() {
            return None;
        }
        self.waiting.pop_front()
    }

    /// The operations that wait for room, and some that did.
    pub fn waiting(&self) -> impl Iterator<Item = Key> {
        self.waiting.iter().copied()
    }

    /// Moves the last waiting operation to the front: it found no room again.
    pub fn move_last_to_front(&mut self) {
        if let Some(key) = self.waiting.pop_back() {
            self.waiting.push_front(key);
        }
    }

    /// True if a thread may name `fd`.
    pub fn names(&self, fd: RawFd) -> bool {
        self.in_pool.iter().any(|(_, fds)| fds.contains(&fd))
    }

    /// The operations on threads that name `fd`.
    pub fn naming(&self, fd: RawFd) -> Vec<Key> {
        let naming = self.in_pool.iter().filter(|(_, fds)| fds.contains(&fd));
        naming.map(|(key, _)| *key).collect()
    }

    /// Closes a descriptor, now or when no thread names it (invariant 2).
    pub fn close(&mut self, fd: OwnedFd) {
        if self.names(fd.as_raw_fd()) {
            self.closing.push(fd);
        }
    }

    /// How long to wait at most for calls that cannot be stopped.
    pub fn drain_deadline() -> Instant {
        Instant::now() + Duration::from_millis(limits::DRAIN_TIMEOUT_MS)
    }

    /// Leaves running calls to their threads, which leak their requests.
    pub fn abandon(&mut self) {
        self.pool.abandon();
        eprintln!(
            "ringloop: {} system calls on pool threads did not end within {} ms of the driver's drop; \
             their buffers are leaked",
            self.in_pool.len(),
            limits::DRAIN_TIMEOUT_MS
        );
        // Their descriptors stay open: a thread may be about to name one.
        self.closing.drain(..).for_each(std::mem::forget);
    }
}
