//! Buffers provided to the kernel, which picks one when bytes arrive.
//!
//! Owns: the buffers and the ring of entries that provides them. Called by: the ring driver, which
//! claims a buffer by its completion and recycles it once the bytes are copied. Never hands out a
//! buffer that the kernel may be writing to.
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
//!   a buffer:   offered ──completion: claim──▸ claimed ──recycle──▸ offered
//!              (kernel writes)                (we read)
//!                                             │   ▲
//!                                      detach ▼   │ take_back
//!                                            detached: a value of its own reads it
//! ```
//! The ring is first in, first out, so all of its memory passes through the cache: keep it small (2
//! MiB per loop). With an empty ring a receive completes at once with `ENOBUFS`, even without data:
//! re-arm after a recycle, not before.
//!
//! # Invariants
//! - **B1** The entries and the buffers are inside their mappings and aligned while the
//!   `BufferRing` lives.
//! - **B2** A buffer is either offered (the kernel may write it) or claimed (we may read it, the
//!   kernel does not have it). A detached one has exactly one [`Detached`], and is offered again
//!   only by returning that.
//! - **B3** No request that names the group is in flight when the `BufferRing` is dropped: the
//!   contract of [`Ring::push`]'s caller.
//! - **B4** An entry is written before the tail that offers it; only the low fields of entry 0 are
//!   written, never the tail in its last two bytes.
//! - **B5** The argument of a registration is a live local; the entries it names are page-aligned
//!   and live as long as `self`.

use super::abi::{self, Buf, BufReg, Cqe};
use super::ring::Ring;
use crate::sys::memory::Mapping;
use std::io;
use std::mem::offset_of;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};

/// Receiving to an odd offset makes the copy four times slower on Zen 3 and 4.
const BUFFER_ALIGN: usize = 64;

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
    /// Bytes from one buffer to the next.
    stride: usize,
    /// The holder of each buffer (B2).
    holders: Box<[Holder]>,
    /// The [`Detached`] of each buffer, allocated on first use and kept here while it is not handed
    /// out.
    values: Box<[Option<Detached>]>,
    _entry_memory: Mapping,
    buffers: Arc<Mapping>,
}

/// The holder of a buffer (B2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Holder {
    /// Offered to the kernel, in this entry.
    Kernel { slot: u16 },
    /// Claimed, known by its number.
    Ring,
    /// Claimed, and held by its [`Detached`].
    Detached,
}

/// A claimed buffer as a value, which may outlive the ring: it keeps the memory of all buffers
/// mapped. Dropping it loses the buffer to its group; use [`BufferRing::take_back`].
// One word, as it is moved often.
#[derive(Debug)]
pub struct Detached(Box<Part>);

#[derive(Debug)]
struct Part {
    memory: Arc<Mapping>,
    at: NonNull<u8>,
    len: usize,
    id: u32,
    group: u16,
}

// SAFETY: B2: what it reads is not written, on any thread.
unsafe impl Send for Detached {}

impl Detached {
    /// The id that [`BufferRing::detached`] gave it.
    pub(super) fn id(&self) -> u32 {
        self.0.id
    }

    /// The group it belongs to.
    pub fn group(&self) -> u16 {
        self.0.group
    }

    /// The whole buffer.
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: B1, B2: `memory` keeps it mapped, and the kernel writes no detached buffer.
        unsafe { std::slice::from_raw_parts(self.0.at.as_ptr(), self.0.len) }
    }
}

// SAFETY: B2: the value may change threads; what the kernel writes does not depend on its thread.
unsafe impl Send for BufferRing {}

impl BufferRing {
    /// Allocates `count` buffers of `buf_len` bytes and provides all of them as `group`.
    ///
    /// `count` is a power of two, at most 32768; `buf_len` is not 0. Takes `count` × `buf_len` bytes of memory, each buffer rounded up to 64, touched only when used.
    ///
    /// Source: `io_uring_register(2)`, `IORING_REGISTER_PBUF_RING`.
    ///
    /// # Errors
    /// `EINVAL` for other numbers; `EEXIST` if the group exists, or on another thread than the
    /// ring's; `ENOMEM`.
    pub fn register(ring: &Ring, group: u16, count: u16, buf_len: u32) -> io::Result<Self> {
        Self::register_with(ring, group, count, buf_len, 0)
    }

    /// Like [`BufferRing::register`], with `PBUF_RING_*` flags.
    pub(super) fn register_with(
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
        let stride = (buf_len as usize).next_multiple_of(BUFFER_ALIGN);
        let buffers = Mapping::copied_by_fork(stride.checked_mul(slots).ok_or_else(out_of_range)?)?;
        let entry_memory = Mapping::anonymous(slots * size_of::<Buf>())?;
        let entries = entry_memory.locate::<Buf>(0).ok_or_else(out_of_range)?;
        let tail = entry_memory
            .locate(offset_of!(Buf, resv))
            .ok_or_else(out_of_range)?;
        let mut argument = BufReg {
            ring_addr: entries.as_ptr() as u64,
            ring_entries: u32::from(count),
            bgid: group,
            flags,
            ..BufReg::default()
        };
        let at = (&raw mut argument).cast();
        // SAFETY: B5.
        unsafe { ring.register(abi::REGISTER_PBUF_RING, at, 1) }?;
        let mut this = Self {
            entries,
            tail,
            next: 0,
            group,
            count,
            buf_len,
            stride,
            holders: vec![Holder::Ring; slots].into_boxed_slice(),
            values: (0..count).map(|_| None).collect(),
            _entry_memory: entry_memory,
            buffers: Arc::new(buffers),
        };
        for id in 0..count {
            this.recycle(id);
        }
        Ok(this)
    }

    /// Claims the buffer that a completion names; `None` if it used none.
    ///
    /// Return it by [`BufferRing::recycle`] in any case: completions of cancelled operations have buffers
    /// too.
    ///
    /// # Safety
    /// `cqe` was popped from the ring this group is registered with, belongs to an entry that named this
    /// group, and is claimed once.
    pub unsafe fn claim(&mut self, cqe: &Cqe) -> Option<u16> {
        let id = cqe.buffer()?;
        *self.holders.get_mut(usize::from(id))? = Holder::Ring;
        Some(id)
    }

    /// Claims the buffers of a bundle: the one that the completion names, and those offered after
    /// it, as many as `cqe.res` bytes fill. All but the last are full.
    ///
    /// # Safety
    /// As [`BufferRing::claim`].
    pub unsafe fn claim_bundle(&mut self, cqe: &Cqe, ids: &mut Vec<u16>) {
        let count = usize::try_from(cqe.res)
            .unwrap_or(0)
            .div_ceil(self.buf_len as usize);
        let Some(first) = cqe.buffer() else {
            return;
        };
        let Some(Holder::Kernel { slot }) = self.holders.get(usize::from(first)).copied() else {
            return;
        };
        // The entries have the order in which the buffers were offered, wherever the kernel's head
        // is by now.
        for ahead in 0..count.clamp(1, usize::from(self.count)) as u16 {
            let id = self.offered_at(slot.wrapping_add(ahead) & (self.count - 1));
            let Some(holder @ Holder::Kernel { .. }) = self.holders.get_mut(usize::from(id)) else {
                debug_assert!(
                    false,
                    "a bundle goes over buffer {id}, which is not the kernel's"
                );
                return;
            };
            *holder = Holder::Ring;
            ids.push(id);
        }
    }

    fn offered_at(&self, slot: u16) -> u16 {
        // SAFETY: B1: `slot` was masked.
        let entry = unsafe { self.entries.add(usize::from(slot)) };
        // SAFETY: B1, B4: the kernel changes address and length at most, and not during the read.
        unsafe { entry.as_ref() }.bid
    }

    /// Detaches a claimed buffer; its value is allocated once and reused. `None` if it is not
    /// claimed, or detached already.
    pub fn detach(&mut self, id: u16) -> Option<Detached> {
        if !self.is_claimed(id) {
            return None;
        }
        self.holders[usize::from(id)] = Holder::Detached;
        match self.values[usize::from(id)].take() {
            Some(value) => Some(value),
            None => self.detached(id, 0, self.buf_len as usize, u32::from(id)),
        }
    }

    /// A part of a buffer as a value, with the id `as_id`.
    pub(super) fn detached(
        &self,
        id: u16,
        start: usize,
        len: usize,
        as_id: u32,
    ) -> Option<Detached> {
        let at = NonNull::new(self.address(id).wrapping_add(start).cast_mut())?;
        Some(Detached(Box::new(Part {
            memory: Arc::clone(&self.buffers),
            at,
            len,
            id: as_id,
            group: self.group,
        })))
    }

    /// True if a value is of this group.
    pub(super) fn is_own(&self, buffer: &Detached) -> bool {
        Arc::ptr_eq(&buffer.0.memory, &self.buffers)
    }

    /// Offers a detached buffer to the kernel again; one of another group is dropped.
    pub fn take_back(&mut self, buffer: Detached) -> bool {
        let own = self.is_own(&buffer);
        if own {
            let id = buffer.id() as u16;
            if let Some(place) = self.values.get_mut(usize::from(id)) {
                // Empty until now: a buffer has one value.
                drop(place.replace(buffer));
            }
            self.offer(id);
        }
        own
    }

    /// The first `len` bytes of a claimed buffer.
    ///
    /// `len` is the completion's result; it and the id are checked, and a buffer that is not claimed reads
    /// as empty.
    pub fn bytes(&self, id: u16, len: usize) -> &[u8] {
        debug_assert!(self.is_claimed(id), "buffer {id} is the kernel's");
        if !self.is_claimed(id) {
            return &[];
        }
        let len = len.min(self.buf_len as usize);
        // SAFETY: B1, B2: initialised, as fresh mappings are zeros; the kernel writes no claimed
        // buffer.
        unsafe { std::slice::from_raw_parts(self.address(id), len) }
    }

    /// Offers a claimed buffer to the kernel again; no effect if it is offered already.
    pub fn recycle(&mut self, id: u16) {
        debug_assert!(self.is_claimed(id), "buffer {id} is recycled twice");
        if self.is_claimed(id) {
            self.offer(id);
        }
    }

    /// Offers a buffer that is claimed, or was detached until now.
    fn offer(&mut self, id: u16) {
        let slot = self.next & (self.count - 1);
        self.holders[usize::from(id)] = Holder::Kernel { slot };
        let address = self.address(id) as u64;
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

    pub(super) fn is_claimed(&self, id: u16) -> bool {
        self.holders.get(usize::from(id)) == Some(&Holder::Ring)
    }

    pub(super) fn address(&self, id: u16) -> *const u8 {
        self.buffers
            .as_ptr()
            .wrapping_add(usize::from(id) * self.stride)
    }

    /// The group's number, for [`super::abi::Sqe::buf_index`].
    pub fn group(&self) -> u16 {
        self.group
    }

    /// Number of buffers.
    pub fn count(&self) -> u16 {
        self.count
    }

    /// Size of each buffer in bytes.
    pub fn buf_len(&self) -> u32 {
        self.buf_len
    }

    /// Unregisters the group and frees the memory. Call it only when no request that names the
    /// group is in flight (the contract of [`Ring::push`]).
    ///
    /// # Errors
    /// `ENOENT`, `EINVAL` if it is not registered with this ring; the memory is freed all the same.
    pub fn unregister(self, ring: &Ring) -> io::Result<()> {
        let mut argument = BufReg {
            bgid: self.group,
            ..BufReg::default()
        };
        let at = (&raw mut argument).cast();
        // SAFETY: B3, B5.
        unsafe { ring.register(abi::UNREGISTER_PBUF_RING, at, 1) }?;
        Ok(())
    }
}

#[cfg(test)]
mod tests;
