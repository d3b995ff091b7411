//! Equal buffers in one mapping, handed out as owned values.
//!
//! Owns: the memory of a receive pool, and the list of buffers that came back. Called by: the
//! buffer rings and the readiness driver, which hand buffers out and collect them.
//!
//! ```text
//!   a buffer:   free ──hand_out──▸ held by its values ──last drop──▸ returned ──collect──▸ free
//!              (the pool or           (they read)
//!            the kernel writes)
//! ```
//!
//! # Invariants
//! - **P1** A value's range is inside the mapping, which it keeps mapped, and belongs to it alone:
//!   nothing else reads or writes it until the value is dropped.
//! - **P2** `holds` counts who may still use a buffer: its values, and the pool while it can hand
//!   out another part of it. The pool passes its hold to the last part. Dropping the last hold
//!   puts the buffer on the list of returned ones, once.
//! - **P3** A pool changes to other memory only while it has no buffer of the current one: none that
//!   it could hand out, or the kernel write.

use super::memory::Mapping;
use crate::sys::libc;
#[cfg(loom)]
use loom::sync::atomic::{AtomicU32, Ordering};
use std::fmt;
use std::io;
use std::ops::Deref;
#[cfg(not(loom))]
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Weak};

/// Receiving to an odd offset makes the copy four times slower on Zen 3 and 4.
pub(super) const BUFFER_ALIGN: usize = 64;

/// The memory of a pool.
#[derive(Debug)]
pub(super) struct PoolMemory {
    mapping: Mapping,
    /// Bytes from one buffer to the next.
    stride: u32,
    buffers: Box<[Buffer]>,
    /// The buffer that was returned last, counted from one; 0: none.
    returned: AtomicU32,
}

#[derive(Debug)]
struct Buffer {
    holds: AtomicU32,
    /// Of a returned buffer: the one returned before it, as in `PoolMemory::returned`.
    before: AtomicU32,
}

impl PoolMemory {
    /// Maps `count` buffers of `buf_len` bytes; `EINVAL` if they are 4 GiB or more.
    pub fn new(count: u16, buf_len: u32) -> io::Result<Arc<Self>> {
        let stride = u64::from(buf_len).next_multiple_of(BUFFER_ALIGN as u64);
        let Ok(len) = u32::try_from(stride * u64::from(count)) else {
            return Err(io::Error::from_raw_os_error(libc::EINVAL));
        };
        let buffers =
            (0..count).map(|_| Buffer { holds: AtomicU32::new(1), before: AtomicU32::new(0) });
        Ok(Arc::new(Self {
            mapping: Mapping::copied_by_fork(len as usize)?,
            stride: stride as u32,
            buffers: buffers.collect(),
            returned: AtomicU32::new(0),
        }))
    }

    /// Where a buffer starts.
    pub fn address(&self, index: u16) -> *mut u8 {
        let start = usize::from(index) * self.stride as usize;
        self.mapping.as_ptr().wrapping_add(start)
    }

    /// Hands out a part of a buffer, and with it the pool's hold, or with `more` parts to come
    /// another one.
    ///
    /// # Safety
    /// The pool has its hold, the range is inside the buffer, and nothing else uses it (P1).
    pub unsafe fn hand_out(
        self: &Arc<Self>,
        index: u16,
        start: u32,
        len: u32,
        more: bool,
    ) -> PoolBuffer {
        if more {
            let buffer = &self.buffers[usize::from(index)];
            buffer.holds.fetch_add(1, Ordering::Relaxed);
        }
        PoolBuffer { memory: Arc::clone(self), start: u32::from(index) * self.stride + start, len }
    }

    /// True if the buffer, or the part of one, is of this pool.
    pub fn has_handed_out(&self, buffer: &PoolBuffer) -> bool {
        std::ptr::eq(self, Arc::as_ptr(&buffer.memory))
    }

    /// True if buffers came back.
    pub fn has_returned(&self) -> bool {
        self.returned.load(Ordering::Relaxed) != 0
    }

    /// Passes the pool's hold of each returned buffer to `take`.
    pub fn collect(&self, mut take: impl FnMut(u16)) {
        // Acquire: what was read from the buffers was read before they are written again.
        let mut next = self.returned.swap(0, Ordering::Acquire);
        while next != 0 {
            let index = (next - 1) as u16;
            next = self.buffers[usize::from(index)].before.load(Ordering::Relaxed);
            take(index);
        }
    }

    /// Drops a hold (P2).
    fn release(&self, index: u32) {
        let buffer = &self.buffers[index as usize];
        // A last hold is left as it is: it becomes the pool's again.
        let is_last = buffer.holds.load(Ordering::Acquire) == 1;
        if !is_last {
            if buffer.holds.fetch_sub(1, Ordering::AcqRel) != 1 {
                return;
            }
            buffer.holds.store(1, Ordering::Relaxed);
        }
        self.put_back(index);
    }

    /// Adds a buffer, with the pool's hold, to the returned ones.
    fn put_back(&self, index: u32) {
        let buffer = &self.buffers[index as usize];
        let mut head = self.returned.load(Ordering::Relaxed);
        loop {
            buffer.before.store(head, Ordering::Relaxed);
            let (done, failed) = (Ordering::Release, Ordering::Relaxed);
            let pushed = self.returned.compare_exchange_weak(head, index + 1, done, failed);
            match pushed {
                Ok(_) => return,
                Err(now) => head = now,
            }
        }
    }
}

/// The memory of a pool, and what it had before, as long as values hold that.
#[derive(Debug)]
pub(super) struct PoolMemories {
    current: Arc<PoolMemory>,
    all: Vec<Weak<PoolMemory>>,
}

impl PoolMemories {
    /// See [`PoolMemory::new`].
    pub fn new(count: u16, buf_len: u32) -> io::Result<Self> {
        let current = PoolMemory::new(count, buf_len)?;
        Ok(Self { all: vec![Arc::downgrade(&current)], current })
    }

    #[inline]
    pub fn current(&self) -> &Arc<PoolMemory> {
        &self.current
    }

    /// Changes to memory of which buffers came back, or to new memory as large, all of it returned.
    /// Only while values hold every buffer of the current one (P3).
    pub fn renew(&mut self) -> io::Result<()> {
        self.all.retain(|memory| memory.strong_count() > 0);
        let mut all = self.all.iter().filter_map(Weak::upgrade);
        if let Some(returned) = all.find(|memory| memory.has_returned()) {
            self.current = returned;
            return Ok(());
        }
        let count = self.current.buffers.len();
        self.current = PoolMemory::new(count as u16, self.current.stride)?;
        (0..count as u32).rev().for_each(|index| self.current.put_back(index));
        self.all.push(Arc::downgrade(&self.current));
        Ok(())
    }
}

/// Received bytes in a buffer of a receive pool, or in a part of one.
///
/// Dropping it returns the buffer, which its driver reuses from the next wait on: drop it on the
/// thread of the loop, as a wait that has begun does not notice. It may outlive the driver, and
/// keeps the memory of the whole pool meanwhile.
pub struct PoolBuffer {
    memory: Arc<PoolMemory>,
    /// Offset in the mapping.
    start: u32,
    len: u32,
}

impl PoolBuffer {
    /// Moves the bytes of these buffers into one mapping of their own, which returns the buffers to
    /// their pool.
    pub(crate) fn move_out(buffers: &mut [&mut Self]) -> io::Result<()> {
        let count = u16::try_from(buffers.len()).unwrap_or(u16::MAX);
        let longest = buffers.iter().map(|buffer| buffer.len).max().unwrap_or(0);
        let memory = PoolMemory::new(count, longest.max(1))?;
        for (index, buffer) in (0..count).zip(buffers) {
            // SAFETY: P1, P2: each buffer of this new memory is handed out once, and is long enough.
            let mut copy = unsafe { memory.hand_out(index, 0, buffer.len, false) };
            copy.bytes_mut().copy_from_slice(buffer);
            **buffer = copy;
        }
        Ok(())
    }

    /// Number of buffers in its pool.
    pub(crate) fn pool_count(&self) -> usize {
        self.memory.buffers.len()
    }

    /// Keeps the first `len` bytes.
    pub(crate) fn truncate(&mut self, len: usize) {
        self.len = self.len.min(u32::try_from(len).unwrap_or(u32::MAX));
    }

    /// The bytes, for a system call to fill.
    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: P1; fresh mappings are zeros.
        unsafe { std::slice::from_raw_parts_mut(self.address(), self.len as usize) }
    }

    #[inline]
    fn address(&self) -> *mut u8 {
        self.memory.mapping.as_ptr().wrapping_add(self.start as usize)
    }
}

impl Deref for PoolBuffer {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        // SAFETY: P1; fresh mappings are zeros.
        unsafe { std::slice::from_raw_parts(self.address(), self.len as usize) }
    }
}

impl fmt::Debug for PoolBuffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PoolBuffer")
            .field("start", &self.start)
            .field("len", &self.len)
            .finish_non_exhaustive()
    }
}

impl Drop for PoolBuffer {
    #[inline]
    fn drop(&mut self) {
        self.memory.release(self.start / self.memory.stride);
    }
}

/// Buffers that we fill ourselves.
#[derive(Debug)]
pub(crate) struct BufferPool {
    memories: PoolMemories,
    buf_len: u32,
    /// Buffers of the current memory of which the pool has the only hold.
    free: Vec<u16>,
}

impl BufferPool {
    /// Maps `count` buffers of `buf_len` bytes; what is never used takes no memory.
    pub fn new(count: u16, buf_len: u32) -> io::Result<Self> {
        Ok(Self {
            memories: PoolMemories::new(count, buf_len)?,
            buf_len,
            free: (0..count).rev().collect(),
        })
    }

    /// Takes the buffer that was returned last, which is still in the cache.
    pub fn take(&mut self) -> Option<PoolBuffer> {
        let memory = self.memories.current();
        if memory.has_returned() {
            memory.collect(|index| self.free.push(index));
        }
        let index = self.free.pop()?;
        // SAFETY: P1, P2: a free buffer is the pool's, and is handed out whole.
        Some(unsafe { memory.hand_out(index, 0, self.buf_len, false) })
    }

    /// Changes to other memory if values hold every buffer.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub fn renew(&mut self) -> io::Result<()> {
        if self.has_free() { Ok(()) } else { self.memories.renew() }
    }

    /// True if the buffer, or the part of one, is of the current memory.
    pub fn has_handed_out(&self, buffer: &PoolBuffer) -> bool {
        self.memories.current().has_handed_out(buffer)
    }

    /// True if a buffer can be taken.
    pub fn has_free(&self) -> bool {
        !self.free.is_empty() || self.memories.current().has_returned()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::collections::HashSet;
    use std::thread;

    #[test]
    fn p1_buffers_are_aligned_disjoint_and_outlive_their_pool() {
        let mut pool = BufferPool::new(4, 100).expect("memory");
        let mut taken: Vec<_> = std::iter::from_fn(|| pool.take()).collect();
        assert!(taken.len() == 4 && !pool.has_free());
        for (fill, buffer) in taken.iter_mut().enumerate() {
            assert_eq!(buffer.as_ptr() as usize % BUFFER_ALIGN, 0);
            buffer.bytes_mut().fill(fill as u8);
        }
        drop(pool);
        for (fill, buffer) in taken.iter_mut().enumerate() {
            assert_eq!(**buffer, [fill as u8; 100]);
            buffer.truncate(7);
            assert_eq!(buffer.len(), 7);
        }
    }

    #[test]
    fn p1_moved_out_buffers_are_back_and_their_bytes_stay() {
        let mut pool = BufferPool::new(3, 100).expect("memory");
        let mut taken: Vec<_> = std::iter::from_fn(|| pool.take()).collect();
        for (fill, buffer) in taken.iter_mut().enumerate() {
            buffer.bytes_mut().fill(fill as u8);
            buffer.truncate(fill * 30);
        }
        assert!(taken.iter().all(|buffer| pool.has_handed_out(buffer)));
        PoolBuffer::move_out(&mut taken.iter_mut().collect::<Vec<_>>()).expect("memory");
        assert!(!taken.iter().any(|buffer| pool.has_handed_out(buffer)));
        let again: Vec<_> = std::iter::from_fn(|| pool.take()).collect();
        assert_eq!(again.len(), 3);
        drop((again, pool));
        for (fill, buffer) in taken.iter().enumerate() {
            assert_eq!(**buffer, vec![fill as u8; fill * 30]);
        }
    }

    #[test]
    fn p3_other_memory_is_taken_while_all_is_held_and_freed_with_its_values() {
        let mut pool = BufferPool::new(2, 100).expect("memory");
        let fill = |pool: &mut BufferPool, byte: u8| -> Vec<PoolBuffer> {
            let mut taken: Vec<_> = std::iter::from_fn(|| pool.take()).collect();
            for buffer in &mut taken {
                buffer.bytes_mut().fill(byte);
            }
            taken
        };
        let one = pool.take().expect("free");
        pool.renew().expect("nothing to do");
        assert!(pool.has_handed_out(&one), "one is free still");
        drop(one);
        let mut first = fill(&mut pool, 1);
        pool.renew().expect("memory");
        let second = fill(&mut pool, 2);
        assert_eq!((first.len(), second.len()), (2, 2));
        let address = first.pop().map(|buffer| buffer.as_ptr());
        // Of the first memory one buffer is held, and one is back.
        pool.renew().expect("memory");
        let again = fill(&mut pool, 3);
        assert_eq!(again.len(), 1);
        assert_eq!(again.first().map(|buffer| buffer.as_ptr()), address);
        assert_eq!(*first[0], [1; 100]);
        assert!(second.iter().all(|buffer| **buffer == [2; 100]));
        let alive = || pool.memories.all.iter().filter(|one| one.strong_count() > 0).count();
        assert_eq!(alive(), 2);
        drop(second);
        assert_eq!(alive(), 1);
        drop((first, again));
        assert_eq!(fill(&mut pool, 4).len(), 2);
    }

    #[test]
    fn the_buffer_returned_last_is_taken_first() {
        let mut pool = BufferPool::new(3, 64).expect("memory");
        let [one, two] = [pool.take(), pool.take()].map(|buffer| buffer.expect("free"));
        let address = one.as_ptr();
        drop(one);
        assert_eq!(pool.take().expect("free").as_ptr(), address);
        drop(two);
    }

    #[test]
    fn p2_a_buffer_comes_back_once_after_its_last_part() {
        let memory = PoolMemory::new(2, 64).expect("memory");
        let part = |start, more| {
            // SAFETY: the parts are inside buffer 1, and disjoint.
            unsafe { memory.hand_out(1, start, 16, more) }
        };
        let returned = || {
            let mut all = Vec::new();
            memory.collect(|index| all.push(index));
            all
        };
        for _ in 0..3 {
            let (first, second) = (part(0, true), part(16, true));
            drop(first);
            drop(second);
            assert!(returned().is_empty(), "the pool holds it");
            let (third, last) = (part(32, true), part(48, false));
            drop(last);
            assert!(returned().is_empty(), "a part is held");
            drop(third);
            assert_eq!(returned(), [1]);
            assert!(returned().is_empty());
        }
    }

    #[test]
    fn p2_no_buffer_is_lost_or_doubled_between_threads() {
        let mut pool = BufferPool::new(32, 64).expect("memory");
        let (send, receive) = std::sync::mpsc::sync_channel::<PoolBuffer>(8);
        let receive = std::sync::Mutex::new(receive);
        thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    let next = || receive.lock().expect("no panic").recv();
                    while let Ok(buffer) = next() {
                        assert_eq!(buffer[0], buffer[63]);
                    }
                });
            }
            for round in 0..20_000_u32 {
                if let Some(mut buffer) = pool.take() {
                    buffer.bytes_mut().fill(round as u8);
                    send.send(buffer).expect("a receiver");
                }
            }
            drop(send);
        });
        let all: Vec<_> = std::iter::from_fn(|| pool.take()).collect();
        let distinct: HashSet<_> = all.iter().map(|buffer| buffer.as_ptr()).collect();
        assert_eq!((all.len(), distinct.len()), (32, 32));
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use loom::cell::UnsafeCell;
    use loom::thread;

    const COUNT: usize = 2;

    /// Stands for the memory of each buffer: loom reports an access that races with another.
    struct Contents([UnsafeCell<()>; COUNT]);

    // SAFETY: loom checks each access.
    unsafe impl Sync for Contents {}

    /// Two threads read and drop what they are handed, while the owner writes to buffers that came
    /// back, hands each out once more and drops it. Each buffer of `expected` comes back once for
    /// each time that it was handed out.
    fn model(hand_out: fn(&Arc<PoolMemory>) -> [PoolBuffer; 2], expected: &'static [u16]) {
        loom::model(move || {
            let memory = PoolMemory::new(COUNT as u16, 64).expect("memory");
            let contents = Arc::new(Contents([UnsafeCell::new(()), UnsafeCell::new(())]));
            let readers = hand_out(&memory).map(|buffer| {
                let contents = Arc::clone(&contents);
                thread::spawn(move || {
                    let index = buffer.start / buffer.memory.stride;
                    contents.0[index as usize].with(|_| ());
                    drop(buffer);
                })
            });
            let collect = || {
                let mut returned = Vec::new();
                memory.collect(|index| {
                    contents.0[usize::from(index)].with_mut(|_| ());
                    returned.push(index);
                });
                returned
            };
            let early = collect();
            for index in &early {
                // SAFETY: the buffer came back, and is handed out whole.
                drop(unsafe { memory.hand_out(*index, 0, 64, false) });
            }
            for reader in readers {
                reader.join().expect("no panic");
            }
            let mut all = collect();
            all.sort_unstable();
            assert_eq!(all, expected, "after {early:?}");
        });
    }

    #[test]
    fn p2_each_buffer_comes_back_once_and_after_its_last_read() {
        // SAFETY: whole buffers, each handed out once.
        let whole = |memory: &Arc<PoolMemory>| {
            [0, 1].map(|index| unsafe { memory.hand_out(index, 0, 64, false) })
        };
        model(whole, &[0, 1]);
    }

    #[test]
    fn p2_a_buffer_in_parts_comes_back_once_and_after_the_last_read_of_each() {
        let parts = |memory: &Arc<PoolMemory>| {
            // SAFETY: the parts are inside buffer 1, and disjoint.
            [(0, true), (32, false)]
                .map(|(start, more)| unsafe { memory.hand_out(1, start, 32, more) })
        };
        model(parts, &[1]);
    }
}
