//! The driver of a loop in a forked child: what was in flight is the parent's, and nothing is
//! submitted.
//!
//! Called by: `Driver`. Makes no system call but to close the child's own descriptors.
//!
//! A request submitted here never completes; the loop's next turn reports why (`Engine::park`).

use super::completion::{Event, Sink};
use super::table::{Phase, Table};
use crate::op::Key;
use crate::op::Request;
use std::io;
use std::os::fd::{OwnedFd, RawFd};
use std::time::Duration;

/// Requests that never run.
#[derive(Debug)]
pub struct InheritedDriver {
    table: Table,
}

// One signature serves all drivers.
#[allow(
    clippy::unused_self,
    clippy::needless_pass_by_value,
    clippy::unnecessary_wraps
)]
impl InheritedDriver {
    pub(super) fn new() -> Self {
        Self {
            table: Table::new(),
        }
    }

    pub(super) fn bind(&mut self) -> io::Result<()> {
        Err(refusal())
    }

    pub(super) fn wait(&mut self, _timeout: Option<Duration>) -> io::Result<()> {
        Err(refusal())
    }

    pub(super) fn table_mut(&mut self) -> &mut Table {
        &mut self.table
    }

    pub(super) fn in_flight(&self) -> usize {
        self.table.len()
    }

    pub(super) fn submit_as(&mut self, request: Request, sink: Sink, flags: u8) -> Key {
        self.table.insert(request, sink, flags).0
    }

    pub(super) fn resume(&mut self, _key: Key) {}

    pub(super) fn cancel(&mut self, _key: Key) {}

    pub(super) fn cancel_descriptor(&mut self, _fd: RawFd) -> usize {
        0
    }

    pub(super) fn cancel_all(&mut self) -> usize {
        0
    }

    pub(super) fn forget(&mut self, key: Key) {
        if let Some(slot) = self.table.slot(key) {
            slot.phase = Phase::Done;
            self.table.orphan(key);
        }
    }

    pub(super) fn forget_now(&mut self, key: Key) {
        self.forget(key);
    }

    pub(super) fn has_ended(&mut self, key: Key) -> bool {
        self.table.slot(key).is_none()
    }

    pub(super) fn release(&mut self, _fd: RawFd) {}

    pub(super) fn close(&mut self, fd: OwnedFd) {
        drop(fd);
    }

    pub(super) fn has_events(&self) -> bool {
        false
    }

    pub(super) fn has_work(&self) -> bool {
        false
    }

    pub(super) fn next_event(&mut self) -> Option<Event> {
        None
    }
}

fn refusal() -> io::Error {
    crate::Error::Inherited.into()
}
