//! Memory that an operation owns until its last completion.
//!
//! Owns: [`SendBuf`] (bytes the kernel reads) and [`RecvBuf`] (memory the kernel writes).
//! Called by: `op`, which keeps one in each request, and embedders. No I/O and no pooling (that is
//! `sys::pool`).
//!
//! # Invariants
//! 1. Moving a buffer does not move its memory: it is on the heap, or a foreign owner keeps it in place,
//!    so an address passed to the kernel stays valid.
//! 2. A foreign owner is released exactly once, when the buffer is dropped.
//! 3. Only bytes that a completion counted become readable (`RecvBuf::filled`): `RecvBuf::finish` gets the
//!    result of the operation that owns the buffer, only from that operation's `finish`.

mod outgoing;
mod pool;

use std::mem::MaybeUninit;
use std::ptr;
use std::rc::Rc;

pub use outgoing::Outgoing;
pub(crate) use pool::PoolKind;

/// Releases a foreign owner; called once, with the pointer given to `from_raw`.
pub type Release = unsafe fn(*mut ());

/// Foreign memory (such as a Python `bytes`), kept in place by `owner`.
#[derive(Debug)]
struct Foreign {
    ptr: *mut u8,
    len: usize,
    owner: *mut (),
    release: Release,
}

impl Drop for Foreign {
    fn drop(&mut self) {
        // SAFETY: invariant 2; `from_raw`'s caller promised that this call is sound once.
        unsafe { (self.release)(self.owner) }
    }
}

#[derive(Debug)]
enum Memory {
    Vec(Vec<u8>),
    Foreign(Foreign),
}

/// Bytes that neither move nor change while a reference to their owner exists.
pub(crate) trait Held: AsRef<[u8]> {}

impl Held for String {}
impl Held for std::sync::Arc<[u8]> {}
#[cfg(feature = "bytes")]
impl Held for bytes::Bytes {}

/// Bytes to send, with a count of those sent.
#[derive(Debug)]
pub struct SendBuf {
    memory: Memory,
    start: usize,
}

impl SendBuf {
    /// Wraps bytes that `owner` keeps alive and unchanged.
    ///
    /// # Safety
    /// `ptr..ptr+len` stays readable and unchanged until `release(owner)` is called, which
    /// happens exactly once, on the thread that owns the driver.
    pub unsafe fn from_raw(ptr: *const u8, len: usize, owner: *mut (), release: Release) -> Self {
        let ptr = ptr.cast_mut();
        Self { memory: Memory::Foreign(Foreign { ptr, len, owner, release }), start: 0 }
    }

    /// Wraps bytes, and keeps their owner until this is dropped.
    pub(crate) fn of_held<T: Held>(bytes: &Rc<T>) -> Self {
        let slice: &[u8] = (**bytes).as_ref();
        let (ptr, len) = (slice.as_ptr(), slice.len());
        let owner = Rc::into_raw(Rc::clone(bytes)).cast_mut().cast();
        // SAFETY: guaranteed by `Held`; the reference in `owner` keeps them, on the driver's own thread.
        unsafe { Self::from_raw(ptr, len, owner, release_held::<T>) }
    }

    /// The unsent bytes.
    #[inline]
    pub fn as_slice(&self) -> &[u8] {
        match &self.memory {
            Memory::Vec(vec) => &vec[self.start..],
            Memory::Foreign(foreign) => {
                // SAFETY: `from_raw`'s caller promised `len` readable, unchanging bytes at `ptr`.
                let all = unsafe { std::slice::from_raw_parts(foreign.ptr, foreign.len) };
                &all[self.start..]
            }
        }
    }

    /// Address and length; also valid before a linked operation has written the bytes.
    pub fn as_ptr(&self) -> (*const u8, usize) {
        match &self.memory {
            Memory::Vec(vec) => (vec.as_ptr().wrapping_add(self.start), vec.len() - self.start),
            Memory::Foreign(foreign) => {
                let at = foreign.ptr.cast_const().wrapping_add(self.start);
                (at, foreign.len - self.start)
            }
        }
    }

    /// Number of unsent bytes.
    pub fn len(&self) -> usize {
        self.as_ptr().1
    }

    /// Whether all bytes are sent.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Drops the first `sent` bytes, at most all.
    pub fn advance(&mut self, sent: usize) {
        self.start += sent.min(self.len());
    }

    /// The whole vector that the buffer was made from; `None` for foreign memory.
    pub fn into_vec(self) -> Option<Vec<u8>> {
        match self.memory {
            Memory::Vec(vec) => Some(vec),
            Memory::Foreign(_) => None,
        }
    }
}

unsafe fn release_held<T>(owner: *mut ()) {
    // SAFETY: `owner` came from `Rc::into_raw` in `of_held`, on this thread, and is released once.
    drop(unsafe { Rc::from_raw(owner.cast_const().cast::<T>()) });
}

impl Default for SendBuf {
    /// Nothing to send.
    fn default() -> Self {
        Vec::new().into()
    }
}

impl From<Vec<u8>> for SendBuf {
    fn from(vec: Vec<u8>) -> Self {
        Self { memory: Memory::Vec(vec), start: 0 }
    }
}

impl From<Box<[u8]>> for SendBuf {
    fn from(bytes: Box<[u8]>) -> Self {
        Vec::from(bytes).into()
    }
}

unsafe fn keep(_: *mut ()) {}

impl From<&'static [u8]> for SendBuf {
    fn from(bytes: &'static [u8]) -> Self {
        // SAFETY: static bytes need no owner.
        unsafe { Self::from_raw(bytes.as_ptr(), bytes.len(), ptr::null_mut(), keep) }
    }
}

/// Memory for bytes to receive.
#[derive(Debug)]
pub struct RecvBuf {
    memory: Memory,
    /// Length of a vector's bytes before the room.
    start: usize,
    /// Length of the room to use; one operation moves 2 GiB at most.
    limit: u32,
    filled: u32,
}

impl Default for RecvBuf {
    fn default() -> Self {
        Self::with_capacity(0)
    }
}

impl RecvBuf {
    /// A buffer with room for `capacity` bytes.
    pub fn with_capacity(capacity: usize) -> Self {
        Vec::with_capacity(capacity).into()
    }

    /// Appends to `vec`, at most `limit` bytes of its capacity.
    pub fn append(vec: Vec<u8>, limit: usize) -> Self {
        Self {
            start: vec.len(),
            limit: u32::try_from(limit).unwrap_or(u32::MAX),
            memory: Memory::Vec(vec),
            filled: 0,
        }
    }

    /// Wraps writable memory that `owner` keeps in place.
    ///
    /// # Safety
    /// `ptr..ptr+capacity` stays writable, and nothing else accesses it, until `release(owner)` is
    /// called, which happens exactly once, on the thread that owns the driver.
    pub unsafe fn from_raw(
        ptr: *mut u8,
        capacity: usize,
        owner: *mut (),
        release: Release,
    ) -> Self {
        let foreign = Foreign { ptr, len: capacity, owner, release };
        Self { memory: Memory::Foreign(foreign), start: 0, limit: u32::MAX, filled: 0 }
    }

    /// Address and length of the room.
    pub fn as_mut_ptr(&mut self) -> (*mut u8, usize) {
        match &mut self.memory {
            Memory::Vec(vec) => {
                let room = vec.capacity() - self.start;
                let at = vec.as_mut_ptr().wrapping_add(self.start);
                (at, room.min(self.limit as usize))
            }
            Memory::Foreign(foreign) => (foreign.ptr, foreign.len),
        }
    }

    /// The whole memory, for an immediate system call; discards what was written.
    pub fn as_uninit(&mut self) -> &mut [MaybeUninit<u8>] {
        // The caller could make bytes uninitialised again without `unsafe`.
        self.filled = 0;
        let (ptr, capacity) = self.as_mut_ptr();
        // SAFETY: both forms own `capacity` writable bytes; `MaybeUninit` asks for no contents.
        unsafe { std::slice::from_raw_parts_mut(ptr.cast(), capacity) }
    }

    /// Records that the first `count` bytes have been written.
    ///
    /// # Safety
    /// The kernel, or the caller, has written at least `count` bytes from the start.
    pub unsafe fn set_filled(&mut self, count: usize) {
        let (_, capacity) = self.as_mut_ptr();
        self.filled = u32::try_from(count.min(capacity)).unwrap_or(u32::MAX);
    }

    /// Records the result of the operation that owns the buffer: a count of bytes from the start, or an
    /// error.
    #[inline]
    pub(crate) fn finish(&mut self, result: i32) -> i32 {
        // SAFETY: invariant 3: the kernel has counted the bytes that it wrote.
        unsafe { self.set_filled(result.max(0) as usize) };
        result
    }

    /// The received bytes.
    pub fn filled(&self) -> &[u8] {
        let ptr = match &self.memory {
            Memory::Vec(vec) => vec.as_ptr().wrapping_add(self.start),
            Memory::Foreign(foreign) => foreign.ptr.cast_const(),
        };
        // SAFETY: invariant 3; `set_filled` bounds the count by the capacity.
        unsafe { std::slice::from_raw_parts(ptr, self.filled as usize) }
    }

    /// The received bytes as a vector, after its former bytes for [`RecvBuf::append`]; copies foreign
    /// memory.
    pub fn into_vec(self) -> Vec<u8> {
        match self.memory {
            Memory::Vec(mut vec) => {
                // SAFETY: invariant 3; `filled` never exceeds the room behind `start`.
                unsafe { vec.set_len(self.start + self.filled as usize) };
                vec
            }
            Memory::Foreign(_) => self.filled().to_vec(),
        }
    }
}

impl From<Vec<u8>> for RecvBuf {
    /// Uses the whole capacity; discards the vector's bytes.
    fn from(mut vec: Vec<u8>) -> Self {
        vec.clear();
        Self::append(vec, usize::MAX)
    }
}

/// A receive buffer shared by two linked operations: the first fills it, the second sends it.
#[derive(Debug)]
pub(crate) struct Shared(Rc<RecvBuf>);

unsafe fn release_shared(owner: *mut ()) {
    // SAFETY: `owner` came from `Rc::into_raw` in `share`, on this thread, and is released once per view (invariant 2).
    drop(unsafe { Rc::from_raw(owner.cast_const().cast::<RecvBuf>()) });
}

impl Shared {
    /// A receive and a send view of the whole room of `buf`, and a reference to it.
    ///
    /// # Safety
    /// The second is not read (`as_slice`) before the first is filled to its end.
    pub unsafe fn share(mut buf: RecvBuf) -> (RecvBuf, SendBuf, Self) {
        let (ptr, len) = buf.as_mut_ptr();
        let shared = Rc::new(buf);
        let owner = || Rc::into_raw(Rc::clone(&shared)).cast_mut().cast();
        // SAFETY: the owner, an `Rc`, keeps the memory (invariant 1), and is not used until both
        // views are dropped.
        let into = unsafe { RecvBuf::from_raw(ptr, len, owner(), release_shared) };
        // SAFETY: as above; this function's contract makes it readable.
        let from = unsafe { SendBuf::from_raw(ptr, len, owner(), release_shared) };
        (into, from, Self(shared))
    }

    /// The buffer with `filled` bytes, once both views are dropped; `None` before.
    ///
    /// # Safety
    /// As [`RecvBuf::set_filled`].
    pub unsafe fn into_buf(self, filled: usize) -> Option<RecvBuf> {
        let mut buf = Rc::into_inner(self.0)?;
        // SAFETY: this function's contract.
        unsafe { buf.set_filled(filled) };
        Some(buf)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    unsafe fn count(owner: *mut ()) {
        // SAFETY: the tests pass a pointer to a live `Cell`.
        let cell = unsafe { &*owner.cast::<Cell<u32>>() };
        cell.set(cell.get() + 1);
    }

    #[test]
    fn invariant_1_address_survives_a_move() {
        let mut buf = RecvBuf::with_capacity(64);
        let (before, _) = buf.as_mut_ptr();
        let mut moved = Box::new(buf);
        assert_eq!(moved.as_mut_ptr().0, before);
    }

    #[test]
    fn invariant_2_foreign_owner_is_released_once() {
        let released = Cell::new(0);
        let owner = (&raw const released).cast_mut().cast::<()>();
        let bytes = b"hello";
        // SAFETY: `bytes` is static and `released` outlives the buffer.
        let mut buf = unsafe { SendBuf::from_raw(bytes.as_ptr(), 5, owner, count) };
        buf.advance(2);
        assert_eq!(buf.as_slice(), b"llo");
        buf.advance(99);
        assert!(buf.is_empty());
        assert_eq!(released.get(), 0);
        drop(buf);
        assert_eq!(released.get(), 1);
    }

    #[test]
    fn invariant_3_only_counted_bytes_become_readable() {
        let mut buf = RecvBuf::with_capacity(8);
        assert!(buf.filled().is_empty());
        buf.as_uninit()[0].write(b'x');
        // SAFETY: one byte was written above.
        unsafe { buf.set_filled(1) };
        assert_eq!(buf.filled(), b"x");
        assert_eq!(buf.into_vec(), b"x");
    }

    #[test]
    fn invariant_3_memory_that_is_lent_again_counts_as_unwritten() {
        let mut buf = RecvBuf::with_capacity(8);
        buf.as_uninit()[0].write(b'x');
        // SAFETY: one byte was written above.
        unsafe { buf.set_filled(1) };
        buf.as_uninit()[0] = MaybeUninit::uninit();
        assert!(buf.filled().is_empty());
        assert!(buf.into_vec().is_empty());
    }

    #[test]
    fn appended_bytes_follow_what_was_there_and_the_limit_holds() {
        let mut vec = Vec::with_capacity(16);
        vec.extend_from_slice(b"head");
        let mut buf = RecvBuf::append(vec, 3);
        assert_eq!(buf.as_mut_ptr().1, 3);
        for (room, byte) in buf.as_uninit().iter_mut().zip(b"xyz") {
            room.write(*byte);
        }
        // SAFETY: three bytes were written above.
        unsafe { buf.set_filled(99) };
        assert_eq!(buf.filled(), b"xyz");
        assert_eq!(buf.into_vec(), b"headxyz");
    }
}
