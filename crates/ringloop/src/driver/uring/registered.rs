//! Files and buffers registered with the ring.
//!
//! Called by: `driver::uring`. If the kernel does not register something, operations use it
//! unregistered.

use crate::limits;
use crate::sys::fd::RawFd;
use crate::sys::uring::{Ring, Slot, SlotTable, Slots};
use std::io;

/// The two tables, each created on first use.
#[derive(Debug, Default)]
pub(super) struct Registered {
    files: Option<Slots>,
    buffers: Option<Slots>,
}

impl Registered {
    /// True if anything has been registered.
    pub fn is_used(&self) -> bool {
        self.files.is_some() || self.buffers.is_some()
    }

    /// Unregisters what is no longer used.
    pub fn empty_returned(&mut self, ring: &Ring) {
        for slots in [&mut self.files, &mut self.buffers].into_iter().flatten() {
            slots.empty_returned(ring);
        }
    }

    /// Registers a descriptor, if possible.
    pub fn file(&mut self, ring: &Ring, fd: RawFd) -> Option<Slot> {
        let count = limits::REGISTERED_FILES;
        let files = table(ring, &mut self.files, SlotTable::Files, count);
        files.ok()?.put_file(ring, fd).ok().flatten()
    }

    /// Registers memory, if possible.
    pub fn buffer(&mut self, ring: &Ring, memory: &mut [u8]) -> Option<Slot> {
        let count = limits::REGISTERED_BUFFERS;
        let buffers = table(ring, &mut self.buffers, SlotTable::Buffers, count);
        buffers.ok()?.put_buffer(ring, memory).ok().flatten()
    }
}

fn table<'a>(
    ring: &Ring,
    slots: &'a mut Option<Slots>,
    table: SlotTable,
    count: u32,
) -> io::Result<&'a mut Slots> {
    match slots {
        Some(slots) => Ok(slots),
        None => Ok(slots.insert(Slots::new(ring, table, count)?)),
    }
}
