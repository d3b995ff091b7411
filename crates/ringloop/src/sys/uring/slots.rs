//! Registered files and buffers: a ring's two tables, whose slots an entry may name instead of a
//! descriptor or an address.
//!
//! Owns: which slots are taken. Called by: the ring driver. The kernel keeps the file, or the
//! memory's pages, until the slot is emptied.
//!
//! Dropping a [`Slot`], on the ring's thread, frees it; the driver empties it before its next wait.
//!
//! # Invariants
//! - **G1** An argument passed to the kernel is a live local of the form that the opcode requires;
//!   registered memory is pinned page by page, so that the kernel never uses the address again.

use super::abi::{self, RsrcRegister, RsrcUpdate2};
use super::ring::Ring;
use crate::sys::libc;
use std::cell::RefCell;
use std::io;
use std::rc::Rc;

/// The contents of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Table {
    /// Descriptors.
    Files,
    /// Memory.
    Buffers,
}

impl Table {
    const fn register(self) -> u32 {
        match self {
            Self::Files => abi::IORING_REGISTER_FILES2,
            Self::Buffers => abi::IORING_REGISTER_BUFFERS2,
        }
    }

    const fn update(self) -> u32 {
        match self {
            Self::Files => abi::IORING_REGISTER_FILES_UPDATE2,
            Self::Buffers => abi::IORING_REGISTER_BUFFERS_UPDATE,
        }
    }
}

/// A taken slot; freed on drop.
#[derive(Debug)]
pub struct Slot {
    index: u32,
    returned: Rc<RefCell<Vec<u32>>>,
}

impl Slot {
    /// Its number, for an entry.
    pub fn index(&self) -> u32 {
        self.index
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.returned.borrow_mut().push(self.index);
    }
}

/// One of a ring's tables.
#[derive(Debug)]
pub struct Slots {
    table: Table,
    free: Vec<u32>,
    /// Freed slots that are to be emptied.
    returned: Rc<RefCell<Vec<u32>>>,
}

impl Slots {
    /// Creates an empty table of `count` slots. See `io_uring_register(2)`,
    /// `IORING_REGISTER_FILES2`, `IORING_REGISTER_BUFFERS2` (5.13), sparse (5.19).
    ///
    /// # Errors
    /// `EMFILE` for more files than the process may have open; `EBUSY` if the ring has one.
    pub fn new(ring: &Ring, table: Table, count: u32) -> io::Result<Self> {
        let mut argument = RsrcRegister {
            nr: count,
            flags: abi::IORING_RSRC_REGISTER_SPARSE,
            resv2: 0,
            data: 0,
            tags: 0,
        };
        let (at, len) = ((&raw mut argument).cast(), size_of::<RsrcRegister>() as u32);
        // SAFETY: G1.
        unsafe { ring.register(table.register(), at, len) }?;
        Ok(Self { table, free: (0..count).rev().collect(), returned: Rc::default() })
    }

    /// Registers a descriptor; `None` if every slot is taken.
    ///
    /// # Errors
    /// `EBADF`.
    pub fn put_file(&mut self, ring: &Ring, fd: i32) -> io::Result<Option<Slot>> {
        self.put(ring, (&raw const fd) as u64)
    }

    /// Registers memory; `None` if every slot is taken.
    ///
    /// # Errors
    /// `ENOMEM` if more than `RLIMIT_MEMLOCK`; `EFAULT`.
    pub fn put_buffer(&mut self, ring: &Ring, memory: &mut [u8]) -> io::Result<Option<Slot>> {
        let entry = libc::iovec { iov_base: memory.as_mut_ptr().cast(), iov_len: memory.len() };
        self.put(ring, (&raw const entry) as u64)
    }

    fn put(&mut self, ring: &Ring, data: u64) -> io::Result<Option<Slot>> {
        self.empty_returned(ring);
        let Some(index) = self.free.pop() else {
            return Ok(None);
        };
        if let Err(error) = self.update(ring, index, data) {
            self.free.push(index);
            return Err(error);
        }
        Ok(Some(Slot { index, returned: Rc::clone(&self.returned) }))
    }

    /// Empties the freed slots.
    pub fn empty_returned(&mut self, ring: &Ring) {
        if self.returned.borrow().is_empty() {
            return;
        }
        for index in self.returned.take() {
            let (no_file, no_buffer) =
                (-1_i32, libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 });
            let data = match self.table {
                Table::Files => (&raw const no_file) as u64,
                Table::Buffers => (&raw const no_buffer) as u64,
            };
            // If it cannot be emptied, the slot is reused all the same.
            drop(self.update(ring, index, data));
            self.free.push(index);
        }
    }

    fn update(&self, ring: &Ring, index: u32, data: u64) -> io::Result<()> {
        let mut argument = RsrcUpdate2 { offset: index, resv: 0, data, tags: 0, nr: 1, resv2: 0 };
        let (at, len) = ((&raw mut argument).cast(), size_of::<RsrcUpdate2>() as u32);
        // SAFETY: G1; `data` is the address of a live local of the callers above.
        unsafe { ring.register(self.table.update(), at, len) }?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::fd::AsRawFd;
    use crate::sys::file::pipe;
    use crate::sys::uring::Config;
    use crate::sys::uring::abi::Sqe;

    fn ring() -> Ring {
        let config = Config { entries: 4, cq_entries: 8, polling: None };
        let mut ring = Ring::new(&config).unwrap();
        ring.enable().unwrap();
        ring
    }

    fn run(ring: &mut Ring, sqe: Sqe) -> i32 {
        // SAFETY: the tests keep what they name until this returns.
        unsafe { ring.push(sqe) }.unwrap();
        ring.enter(1, None).unwrap();
        ring.pop().unwrap().res
    }

    #[test]
    fn g1_slots_are_named_in_place_of_descriptor_and_address() {
        let mut ring = ring();
        let mut files = Slots::new(&ring, Table::Files, 2).unwrap();
        let mut buffers = Slots::new(&ring, Table::Buffers, 2).unwrap();
        let (reader, writer) = pipe().unwrap();
        let mut memory = *b"hello...";
        let file = files.put_file(&ring, writer.as_raw_fd()).unwrap().unwrap();
        let buffer = buffers.put_buffer(&ring, &mut memory).unwrap().unwrap();
        let sqe = Sqe {
            opcode: abi::IORING_OP_WRITE_FIXED,
            flags: abi::IOSQE_FIXED_FILE,
            fd: file.index() as i32,
            addr: memory.as_ptr() as u64 + 1,
            len: 4,
            off: u64::MAX,
            buf_index: buffer.index() as u16,
            ..Sqe::default()
        };
        assert_eq!(run(&mut ring, sqe), 4);
        let mut bytes = [std::mem::MaybeUninit::uninit(); 8];
        assert_eq!(crate::sys::file::read(reader.as_raw_fd(), &mut bytes, None).unwrap(), 4);
        drop((file, buffer));
        files.empty_returned(&ring);
        buffers.empty_returned(&ring);
        assert_eq!(run(&mut ring, sqe), -libc::EBADF, "the slot is empty");
    }

    #[test]
    fn full_table_is_none_and_a_freed_slot_is_reused() {
        let ring = ring();
        let mut files = Slots::new(&ring, Table::Files, 1).unwrap();
        let (reader, _writer) = pipe().unwrap();
        let slot = files.put_file(&ring, reader.as_raw_fd()).unwrap().unwrap();
        assert!(files.put_file(&ring, reader.as_raw_fd()).unwrap().is_none());
        drop(slot);
        let bad = files.put_file(&ring, 1 << 24).unwrap_err();
        assert_eq!(bad.raw_os_error(), Some(libc::EBADF));
        assert!(files.put_file(&ring, reader.as_raw_fd()).unwrap().is_some());
    }
}
