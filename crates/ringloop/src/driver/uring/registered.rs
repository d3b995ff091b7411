//! Files and buffers registered with the ring.
//!
//! Called by: `driver::uring`. If the kernel does not register something, operations use it
//! unregistered.

use super::UringDriver;
use crate::limits;
use crate::sys::uring::{Ring, Slot, SlotTable, Slots};
use std::io;
use std::os::fd::RawFd;

/// The two tables, each created on first use.
#[derive(Debug, Default)]
pub(super) struct Registered {
    files: Option<Slots>,
    buffers: Option<Slots>,
}

impl UringDriver {
    /// Unregisters what is no longer used.
    pub(super) fn empty_returned(&mut self) {
        let Registered { files, buffers } = &mut self.registered;
        for slots in [files, buffers].into_iter().flatten() {
            slots.empty_returned(&self.ring);
        }
    }

    /// Registers a descriptor, if possible.
    pub(in crate::driver) fn register_file(&mut self, fd: RawFd) -> Option<Slot> {
        let (slots, count) = (&mut self.registered.files, limits::REGISTERED_FILES);
        let files = table(&self.ring, slots, SlotTable::Files, count);
        files.ok()?.put_file(&self.ring, fd).ok().flatten()
    }

    /// Registers memory, if possible.
    pub(in crate::driver) fn register_buffer(&mut self, memory: &mut [u8]) -> Option<Slot> {
        let (slots, count) = (&mut self.registered.buffers, limits::REGISTERED_BUFFERS);
        let buffers = table(&self.ring, slots, SlotTable::Buffers, count);
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
