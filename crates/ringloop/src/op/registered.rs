//! Registered files and buffers: what operations on them carry.
//!
//! Owns: [`RegisteredBuf`], [`RegisteredFd`]. Called by: `read`, `write`, `fs`. The driver
//! registers them; if it cannot, the same operations work without.

use crate::sys::fd::RawFd;
use crate::sys::uring::Slot;
use crate::sys::uring::abi::{self, Sqe};
use std::fmt;
use std::ops::Deref;
use std::rc::Rc;

/// At least the alignment that any disk needs.
const PAGE_BYTES: usize = 4096;
/// Lengths are 32 bits. The kernel registers no more than 1 GiB.
const CAPACITY_MAX: usize = u32::MAX as usize;

/// A fixed-size buffer that the kernel has registered: it pins the pages once, when the buffer is
/// made, rather than for each operation. Derefs to the bytes in it.
///
/// It belongs to the loop that made it. The kernel keeps the pages (`RLIMIT_MEMLOCK` counts them)
/// until some time after the buffer is dropped.
pub struct RegisteredBuf {
    /// A page less one byte longer than the buffer, so that the buffer can begin at a page.
    memory: Box<[u8]>,
    start: usize,
    /// As `written`, 32 bits: two words would make every operation's slot a cache line longer.
    filled: u32,
    /// How many of these bytes have been written, during a write of all.
    written: u32,
    /// Boxed for the same reason.
    slot: Option<Box<Slot>>,
}

impl RegisteredBuf {
    /// A buffer that is not registered yet.
    pub(crate) fn unregistered(capacity: usize) -> Self {
        let memory = match capacity.min(CAPACITY_MAX) {
            0 => Box::default(),
            capacity => vec![0; capacity + PAGE_BYTES - 1].into_boxed_slice(),
        };
        let start = match memory.len() {
            0 => 0,
            _ => memory.as_ptr().align_offset(PAGE_BYTES),
        };
        Self { memory, start, filled: 0, written: 0, slot: None }
    }

    /// Stores the driver's registration.
    pub(crate) fn set_slot(&mut self, slot: Option<Slot>) {
        self.slot = slot.map(Box::new);
    }

    /// The whole buffer.
    pub(crate) fn whole(&mut self) -> &mut [u8] {
        let capacity = self.capacity();
        &mut self.memory[self.start..][..capacity]
    }

    /// True if the kernel has registered it; otherwise everything works the same, a little slower.
    pub fn is_registered(&self) -> bool {
        self.slot.is_some()
    }

    /// Its size in bytes.
    pub fn capacity(&self) -> usize {
        self.memory.len().saturating_sub(PAGE_BYTES - 1)
    }

    /// Copies as many of `bytes` as fit; returns how many.
    pub fn fill(&mut self, bytes: &[u8]) -> usize {
        let count = bytes.len().min(self.capacity());
        self.whole()[..count].copy_from_slice(&bytes[..count]);
        self.filled = count as u32;
        count
    }

    /// Bytes still to be written.
    pub(crate) fn rest(&self) -> &[u8] {
        &self[self.written as usize..]
    }

    /// Marks `count` more bytes as written.
    pub(crate) fn advance(&mut self, count: usize) {
        self.written += count.min(self.rest().len()) as u32;
    }

    /// Starts writing from the first byte again.
    pub(crate) fn rewind(&mut self) {
        self.written = 0;
    }

    pub(super) fn set_filled(&mut self, count: usize) {
        self.filled = count.min(self.capacity()) as u32;
    }

    /// Fills an entry with `len` bytes from `from`; the opcode is `plain`, or `fixed` if it is
    /// registered.
    pub(super) fn name(&self, sqe: &mut Sqe, (plain, fixed): (u8, u8), from: usize, len: usize) {
        sqe.addr = self.memory[self.start + from..].as_ptr() as u64;
        sqe.len = len.min(i32::MAX as usize) as u32;
        sqe.opcode = plain;
        if let Some(slot) = &self.slot {
            sqe.opcode = fixed;
            sqe.buf_index = slot.index() as u16;
        }
    }
}

impl Deref for RegisteredBuf {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.memory[self.start..][..self.filled as usize]
    }
}

impl fmt::Debug for RegisteredBuf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RegisteredBuf")
            .field("filled", &self.filled)
            .field("capacity", &self.capacity())
            .field("is_registered", &self.is_registered())
            .finish_non_exhaustive()
    }
}

/// A descriptor registered with the ring, which looks the file up once rather than for each
/// operation.
#[derive(Debug, Clone)]
pub struct RegisteredFd {
    fd: RawFd,
    /// It is pollable, like a pipe; without a ring, files are read and written on a pool thread.
    is_waited_for: bool,
    slot: Option<Rc<Slot>>,
}

impl RegisteredFd {
    pub(crate) fn new(fd: RawFd, slot: Option<Slot>) -> Self {
        let slot = slot.map(Rc::new);
        Self { fd, is_waited_for: false, slot }
    }

    /// The same, for pollable files: a pipe, a socket.
    pub(crate) fn waited_for(mut self) -> Self {
        self.is_waited_for = true;
        self
    }

    pub(super) fn is_waited_for(&self) -> bool {
        self.is_waited_for
    }

    /// True if the ring has registered it.
    pub fn is_registered(&self) -> bool {
        self.slot.is_some()
    }

    /// The descriptor.
    pub(super) fn fd(&self) -> RawFd {
        self.fd
    }

    /// Fills the file of an entry.
    pub(super) fn name(&self, sqe: &mut Sqe) {
        sqe.fd = self.fd;
        if let Some(slot) = &self.slot {
            sqe.fd = slot.index() as i32;
            sqe.flags |= abi::IOSQE_FIXED_FILE;
        }
    }
}
