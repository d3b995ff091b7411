//! Buffers provided to the kernel, which picks one when bytes arrive.
//!
//! Owns: the ring of entries that provides the buffers. Called by: the ring driver, which claims a
//! buffer by its completion as a [`PoolBuffer`], and collects the dropped ones.
//!
//! Byte path: from the socket to the receiver's copy.
//!
//! ```text
//!   entries (a page or more)                       buffers (each starts at a multiple of 64 bytes)
//!   ┌────────────────────────────────┐             ┌──────────────┬───┬──────────────┬───┐
//!   │ 0: addr len bid │ tail (2 B)   │── addr ───▸ │ buffer 0     │pad│ buffer 1     │pad│ …
//!   │ 1: addr len bid │              │             └──────────────┴───┴──────────────┴───┘
//!   │ …                              │
//!   └────────────────────────────────┘
//!      we write entries, then tail (Release); the kernel takes from its own head, in order.
//!
//!   a buffer:   offered ──completion: claim──▸ claimed ──dropped, then collect──▸ offered
//!              (kernel writes)                (we read)
//!
//!   in pieces:  │ piece │ piece      │ piece    │ the kernel's so far           │
//!               └───────┴────────────┴──────────┴───────────────────────────────┘
//!               a completion without `BUF_MORE` ends its buffer: no more bytes come into it
//! ```
//! The ring is first in, first out, so all of its memory passes through the cache: keep it small (2
//! MiB per loop). With an empty ring a receive completes at once with `ENOBUFS`, even without data:
//! re-arm after a collect, not before.
//!
//! A completion counts the bytes it has added to a buffer used in pieces, but not their offset: they
//! follow those of the completion before it. So completions must be claimed in the order in which the
//! buffers were filled. Linux 6.13 and 6.14 can report a sequence's last completion late; the driver
//! requires 6.15.
//!
//! # Invariants
//! - **B1** The entries and the buffers are inside their mappings and aligned while the
//!   `BufferRing` lives.
//! - **B2** A buffer is either offered (the kernel may write it) or claimed (the kernel does not have
//!   it); a piece is a range that a completion has counted, and the kernel writes after it, never into
//!   it. A buffer is offered again when the kernel has ended it and all values of it were dropped.
//!   Their memory changes only while none is offered.
//! - **B3** No request that names the group is in flight when the `BufferRing` is dropped: the
//!   contract of [`Ring::push`]'s caller.
//! - **B4** An entry is written before the tail that offers it; only the low fields of entry 0 are
//!   written, never the tail in its last two bytes.
//! - **B5** The argument of a registration is a live local; the entries it names are page-aligned
//!   and live as long as `self`.

use super::abi::{self, Buf, BufReg, Cqe};
use super::ring::Ring;
use crate::sys::libc;
use crate::sys::memory::Mapping;
use crate::sys::pool::{PoolBuffer, PoolMemories};
use std::io;
use std::mem::offset_of;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};

/// A group of equal buffers provided to the kernel.
///
/// Drop it without [`BufferRing::unregister`] only after, or together with, the ring.
#[derive(Debug)]
pub struct BufferRing {
    entries: NonNull<Buf>,
    tail: NonNull<AtomicU16>,
    /// Our copy of `tail`.
    next: u16,
    group: u16,
    count: u16,
    buf_len: u32,
    /// By buffer.
    offers: Box<[Offer]>,
    offered_count: usize,
    _entry_memory: Mapping,
    memories: PoolMemories,
}

/// Of a buffer: whether the kernel has it, and how much it has filled (B2).
#[derive(Debug, Clone, Copy)]
struct Offer {
    /// The entry that offers it, or has offered it.
    slot: u16,
    is_offered: bool,
    filled: u32,
}

// SAFETY: B2: the value may change threads; what the kernel writes does not depend on its thread.
unsafe impl Send for BufferRing {}

impl BufferRing {
    /// Allocates `count` buffers of `buf_len` bytes and provides all of them as `group`.
    ///
    /// `count` is a power of two, at most 32768; `buf_len` is not 0. Takes `count` × `buf_len`
    /// bytes of memory, each buffer rounded up to 64, touched only when used. See
    /// `io_uring_register(2)`, `IORING_REGISTER_PBUF_RING`.
    ///
    /// With `IOU_PBUF_RING_INC` in `flags` the kernel fills the buffers piece by piece.
    ///
    /// # Errors
    /// `EINVAL` for other numbers, or flags that the kernel does not have (before 6.12); `EEXIST` if
    /// the group exists, or on another thread than the ring's; `ENOMEM`.
    pub fn register(
        ring: &Ring,
        group: u16,
        count: u16,
        buf_len: u32,
        flags: u16,
    ) -> io::Result<Self> {
        if !count.is_power_of_two() || buf_len == 0 {
            return Err(io::Error::from_raw_os_error(libc::EINVAL));
        }
        let out_of_range = || io::Error::from_raw_os_error(libc::EINVAL);
        let slots = usize::from(count);
        let memories = PoolMemories::new(count, buf_len)?;
        let entry_memory = Mapping::anonymous(slots * size_of::<Buf>())?;
        let entries = entry_memory.locate::<Buf>(0).ok_or_else(out_of_range)?;
        let tail = entry_memory.locate(offset_of!(Buf, resv)).ok_or_else(out_of_range)?;
        let mut argument = BufReg {
            ring_addr: entries.as_ptr() as u64,
            ring_entries: u32::from(count),
            bgid: group,
            flags,
            resv: [0; 3],
        };
        let at = (&raw mut argument).cast();
        // SAFETY: B5.
        unsafe { ring.register(abi::IORING_REGISTER_PBUF_RING, at, 1) }?;
        let offer = Offer { slot: 0, is_offered: false, filled: 0 };
        let mut this = Self {
            entries,
            tail,
            next: 0,
            group,
            count,
            buf_len,
            offers: vec![offer; slots].into_boxed_slice(),
            offered_count: 0,
            _entry_memory: entry_memory,
            memories,
        };
        for id in 0..count {
            this.offer(id);
        }
        Ok(this)
    }

    /// Claims the buffer that a completion names, or the piece of it that the completion has added.
    /// `None` if it used none.
    ///
    /// # Safety
    /// `cqe` was popped from the ring this group is registered with and belongs to an entry that named
    /// this group; all such completions are claimed, once, in the order in which they were popped.
    pub unsafe fn claim(&mut self, cqe: &Cqe) -> Option<PoolBuffer> {
        let id = cqe.buffer()?;
        let offer = self.offers.get_mut(usize::from(id))?;
        if !offer.is_offered {
            debug_assert!(false, "buffer {id} is not the kernel's");
            return None;
        }
        let start = offer.filled;
        let len = u32::try_from(cqe.res).unwrap_or(0);
        let len = len.min(self.buf_len - start);
        let more = cqe.buffer_more();
        if more {
            offer.filled += len;
        } else {
            offer.is_offered = false;
            self.offered_count -= 1;
        }
        // SAFETY: B1, B2.
        Some(unsafe { self.memories.current().hand_out(id, start, len, more) })
    }

    /// Claims the buffers of a bundle: the one that the completion names, and those offered after
    /// it, as many as `cqe.res` bytes fill. All but the last are full.
    ///
    /// # Safety
    /// As [`BufferRing::claim`].
    pub unsafe fn claim_bundle(&mut self, cqe: &Cqe) -> Vec<PoolBuffer> {
        let mut buffers = Vec::new();
        let Some(first) = cqe.buffer() else {
            return buffers;
        };
        let Some(Offer { slot, .. }) = self.offers.get(usize::from(first)).copied() else {
            return buffers;
        };
        let mut left = cqe.res;
        // The entries have the order in which the buffers were offered, wherever the kernel's head
        // is by now.
        for ahead in 0..self.count {
            let id = self.offered_at(slot.wrapping_add(ahead) & (self.count - 1));
            let part = Cqe {
                res: left,
                flags: abi::IORING_CQE_F_BUFFER | u32::from(id) << abi::IORING_CQE_BUFFER_SHIFT,
                ..*cqe
            };
            // SAFETY: this function's contract: the bundle has filled this buffer too.
            let Some(buffer) = (unsafe { self.claim(&part) }) else {
                break;
            };
            buffers.push(buffer);
            left -= self.buf_len as i32;
            if left <= 0 {
                break;
            }
        }
        buffers
    }

    fn offered_at(&self, slot: u16) -> u16 {
        // SAFETY: B1: `slot` was masked.
        let entry = unsafe { self.entries.add(usize::from(slot)) };
        // SAFETY: B1, B4: the kernel changes address and length at most, and not during the read.
        unsafe { entry.as_ref() }.bid
    }

    /// True if the buffer, or the part of one, is of the current memory.
    pub fn has_handed_out(&self, buffer: &PoolBuffer) -> bool {
        self.memories.current().has_handed_out(buffer)
    }

    /// True if buffers were dropped since the last [`BufferRing::collect`].
    pub fn has_returned(&self) -> bool {
        self.memories.current().has_returned()
    }

    /// Offers the buffers that were dropped to the kernel again.
    pub fn collect(&mut self) {
        if self.has_returned() {
            let memory = Arc::clone(self.memories.current());
            memory.collect(|id| self.offer(id));
        }
    }

    /// Changes to other memory if values hold every buffer, and offers that to the kernel.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub fn renew(&mut self) -> io::Result<()> {
        // P3: the kernel has no buffer, so no completion will name one of the current memory.
        if self.offered_count == 0 && !self.has_returned() {
            self.memories.renew()?;
            self.collect();
        }
        Ok(())
    }

    /// Offers a buffer that the kernel does not have, and of which there is no value.
    fn offer(&mut self, id: u16) {
        let slot = self.next & (self.count - 1);
        self.offers[usize::from(id)] = Offer { slot, is_offered: true, filled: 0 };
        self.offered_count += 1;
        let address = self.memories.current().address(id) as u64;
        // SAFETY: B1: the masked index is below the number of entries.
        let mut entry = unsafe { self.entries.add(usize::from(slot)) };
        // SAFETY: B1, B4: the kernel only reads entries, and only after the tail offers them.
        let entry = unsafe { entry.as_mut() };
        entry.addr = address;
        entry.len = self.buf_len;
        entry.bid = id;
        self.next = self.next.wrapping_add(1);
        // SAFETY: B1, B4.
        unsafe { self.tail.as_ref() }.store(self.next, Ordering::Release);
    }

    /// Number of buffers that the kernel has.
    pub fn offered_count(&self) -> usize {
        self.offered_count
    }

    /// Unregisters the group and frees the memory. Call it only when no request that names the
    /// group is in flight (the contract of [`Ring::push`]).
    ///
    /// # Errors
    /// `ENOENT`, `EINVAL` if it is not registered with this ring; the memory is freed all the same.
    pub fn unregister(self, ring: &Ring) -> io::Result<()> {
        let mut argument =
            BufReg { ring_addr: 0, ring_entries: 0, bgid: self.group, flags: 0, resv: [0; 3] };
        let at = (&raw mut argument).cast();
        // SAFETY: B3, B5.
        unsafe { ring.register(abi::IORING_UNREGISTER_PBUF_RING, at, 1) }?;
        Ok(())
    }
}

#[cfg(test)]
mod tests;
