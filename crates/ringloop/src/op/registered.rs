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

/// At least what any disk wants a transfer to be aligned to.
const PAGE_BYTES: usize = 4096;
/// What the numbers of a buffer's bytes can say. The kernel registers no more than 1 GiB.
const CAPACITY_MAX: usize = u32::MAX as usize;

/// A buffer of a fixed size that the kernel has at hand: it looks its pages up once, when the buffer is made,
/// and not at each operation. It reads as the bytes that are in it.
///
/// It belongs to the loop that it was made on. The kernel keeps its pages for itself (`RLIMIT_MEMLOCK`
/// counts them) until some time after it was dropped.
pub struct RegisteredBuf {
    /// Longer than the buffer by a page but one byte, so that the buffer can begin with a page.
    memory: Box<[u8]>,
    start: usize,
    /// As `written`, in 32 bits: two fields of a word each would make every operation's slot a line longer.
    filled: u32,
    /// Bytes of these that are written already, while all are being written.
    written: u32,
    /// In a box of its own for the same reason.
    slot: Option<Box<Slot>>,
}

impl RegisteredBuf {
    /// One that is not registered yet.
    pub(crate) fn unregistered(capacity: usize) -> Self {
        let memory = match capacity.min(CAPACITY_MAX) {
            0 => Box::default(),
            capacity => vec![0; capacity + PAGE_BYTES - 1].into_boxed_slice(),
        };
        let start = match memory.len() {
            0 => 0,
            _ => memory.as_ptr().align_offset(PAGE_BYTES),
        };
        Self {
            memory,
            start,
            filled: 0,
            written: 0,
            slot: None,
        }
    }

    /// The driver has registered its room.
    pub(crate) fn set_slot(&mut self, slot: Option<Slot>) {
        self.slot = slot.map(Box::new);
    }

    /// All of its bytes.
    pub(crate) fn whole(&mut self) -> &mut [u8] {
        let capacity = self.capacity();
        &mut self.memory[self.start..][..capacity]
    }

    /// Whether the kernel has it at hand; without, everything works the same, a little slower.
    pub fn is_registered(&self) -> bool {
        self.slot.is_some()
    }

    /// How many bytes it can hold.
    pub fn capacity(&self) -> usize {
        self.memory.len().saturating_sub(PAGE_BYTES - 1)
    }

    /// Have it hold a copy of as many of `bytes` as fit; returns how many.
    pub fn fill(&mut self, bytes: &[u8]) -> usize {
        let count = bytes.len().min(self.capacity());
        self.whole()[..count].copy_from_slice(&bytes[..count]);
        self.filled = count as u32;
        count
    }

    /// What is yet to be written.
    pub(crate) fn rest(&self) -> &[u8] {
        &self[self.written as usize..]
    }

    /// So much of the rest is written.
    pub(crate) fn advance(&mut self, count: usize) {
        self.written += count.min(self.rest().len()) as u32;
    }

    /// The next write begins with the first byte again.
    pub(crate) fn rewind(&mut self) {
        self.written = 0;
    }

    pub(super) fn set_filled(&mut self, count: usize) {
        self.filled = count.min(self.capacity()) as u32;
    }

    /// Name `len` bytes of it, from `from`, in an entry whose opcode is `plain`, or `fixed` where it is registered.
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

/// A descriptor that the ring holds on to: it looks the file up once, and not at each operation.
#[derive(Debug, Clone)]
pub struct RegisteredFd {
    fd: RawFd,
    /// It is waited for, as a pipe is; a file is read and written on a pool thread where there is no ring.
    is_waited_for: bool,
    slot: Option<Rc<Slot>>,
}

impl RegisteredFd {
    pub(crate) fn new(fd: RawFd, slot: Option<Slot>) -> Self {
        let slot = slot.map(Rc::new);
        Self {
            fd,
            is_waited_for: false,
            slot,
        }
    }

    /// The same, for what can be waited for: a pipe, a socket.
    pub(crate) fn waited_for(mut self) -> Self {
        self.is_waited_for = true;
        self
    }

    pub(super) fn is_waited_for(&self) -> bool {
        self.is_waited_for
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
