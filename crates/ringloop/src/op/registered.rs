//! Files and buffers that the ring knows already: what operations on them carry.
//!
//! Owns: [`RegisteredBuf`], [`RegisteredFd`]. Called by: `read_fixed`, `write_fixed`, `fs`.
//! Never does: register; that is the driver's, and where it could not, the same operations work without.

use crate::sys::uring::Slot;
use crate::sys::uring::abi::{self, Sqe};
use std::fmt;
use std::ops::Deref;
use std::os::fd::RawFd;
use std::rc::Rc;

/// A buffer of a fixed size that the kernel has at hand: it looks its pages up once, when the buffer is made,
/// and not at each operation. It reads as the bytes that are in it.
///
/// It belongs to the loop that it was made on. The kernel keeps its pages for itself (`RLIMIT_MEMLOCK`
/// counts them) until some time after it was dropped.
pub struct RegisteredBuf {
    memory: Box<[u8]>,
    filled: usize,
    slot: Option<Slot>,
}

impl RegisteredBuf {
    pub(crate) fn new(memory: Box<[u8]>, slot: Option<Slot>) -> Self {
        Self {
            memory,
            filled: 0,
            slot,
        }
    }

    /// Whether the kernel has it at hand; without, everything works the same, a little slower.
    pub fn is_registered(&self) -> bool {
        self.slot.is_some()
    }

    /// How many bytes it can hold.
    pub fn capacity(&self) -> usize {
        self.memory.len()
    }

    /// Have it hold a copy of as many of `bytes` as fit; returns how many.
    pub fn fill(&mut self, bytes: &[u8]) -> usize {
        self.filled = bytes.len().min(self.memory.len());
        self.memory[..self.filled].copy_from_slice(&bytes[..self.filled]);
        self.filled
    }

    /// Its whole room.
    pub(super) fn room(&mut self) -> (*mut u8, usize) {
        (self.memory.as_mut_ptr(), self.memory.len())
    }

    pub(super) fn set_filled(&mut self, count: usize) {
        self.filled = count.min(self.memory.len());
    }

    /// Name it in an entry whose opcode is `plain`, or `fixed` where it is registered.
    pub(super) fn name(&mut self, sqe: &mut Sqe, plain: u8, fixed: u8, len: usize) {
        sqe.addr = self.memory.as_mut_ptr() as u64;
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
        &self.memory[..self.filled]
    }
}

impl fmt::Debug for RegisteredBuf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RegisteredBuf")
            .field("filled", &self.filled)
            .field("capacity", &self.memory.len())
            .field("is_registered", &self.is_registered())
            .finish_non_exhaustive()
    }
}

/// A descriptor that the ring holds on to: it looks the file up once, and not at each operation.
#[derive(Debug, Clone)]
pub struct RegisteredFd {
    fd: RawFd,
    slot: Option<Rc<Slot>>,
}

impl RegisteredFd {
    pub(crate) fn new(fd: RawFd, slot: Option<Slot>) -> Self {
        let slot = slot.map(Rc::new);
        Self { fd, slot }
    }

    /// Whether the ring has it.
    pub fn is_registered(&self) -> bool {
        self.slot.is_some()
    }

    /// The descriptor.
    pub(super) fn fd(&self) -> RawFd {
        self.fd
    }

    /// Name it in an entry.
    pub(super) fn name(&self, sqe: &mut Sqe) {
        sqe.fd = self.fd;
        if let Some(slot) = &self.slot {
            sqe.fd = slot.index() as i32;
            sqe.flags |= abi::SQE_FIXED_FILE;
        }
    }
}
