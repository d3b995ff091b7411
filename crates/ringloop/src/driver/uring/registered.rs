//! Files and buffers that the ring has at hand.
//!
//! Called by: `driver::uring`. Never does: insist; where the kernel does not register something, operations
//! on it go without.

use super::UringDriver;
use crate::limits;
use crate::sys::uring::{Ring, Slot, SlotTable, Slots};
use std::io;
use std::os::fd::RawFd;

/// The two tables, each made when it is first needed.
#[derive(Debug, Default)]
pub(super) struct Registered {
    files: Option<Slots>,
    buffers: Option<Slots>,
}

impl Registered {
    /// Have the kernel let go of what is not used any more.
    pub fn empty_returned(&mut self, ring: &Ring) {
        for slots in [&mut self.files, &mut self.buffers].into_iter().flatten() {
            slots.empty_returned(ring);
        }
    }
}

impl UringDriver {
    /// Register a descriptor, where that can be.
    pub fn register_file(&mut self, fd: RawFd) -> Option<Slot> {
        let tables = &mut self.registered.files;
        let files = table(
            &self.ring,
            tables,
            SlotTable::Files,
            limits::REGISTERED_FILES,
        );
        files.ok()?.put_file(&self.ring, fd).ok().flatten()
    }

    /// Register memory, where that can be.
    pub fn register_buffer(&mut self, memory: &mut [u8]) -> Option<Slot> {
        let count = limits::REGISTERED_BUFFERS;
        let tables = &mut self.registered.buffers;
        let buffers = table(&self.ring, tables, SlotTable::Buffers, count);
        buffers.ok()?.put_buffer(&self.ring, memory).ok().flatten()
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
