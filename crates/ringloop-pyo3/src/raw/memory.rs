//! Buffers that an operation has.
//!
//! The bytes belong to the operation until its last completion, which may come long after its future was
//! dropped. So they are counted: one count is the future's, one is ringloop's, which it gives back by
//! `release`.
//!
//! Invariants:
//! 1. The first field is the `Owner`, so that its address is the lot's.
//! 2. `release` gets the count that was lent, once, on the loop's thread (contract 4), which is the thread of
//!    the future: neither type is `Send`.
//! 3. While it is lent, nothing refers to the value but the operation; it is on the heap and does not move.
//! 4. ringloop has written the bytes that it counts.

use std::cell::UnsafeCell;
use std::rc::Rc;

use ringloop_abi::{Memory, Owner};

use super::panics::contained;

#[repr(C)]
struct Lot<B> {
    owner: Owner,
    value: UnsafeCell<B>,
}

/// A value that an operation has.
pub struct Lent<B>(Rc<Lot<B>>);

impl<B: 'static> Lent<B> {
    fn new(value: B) -> Self {
        let owner = Owner { release: release::<B> };
        Self(Rc::new(Lot { owner, value: UnsafeCell::new(value) }))
    }

    fn memory(&self, ptr: *mut u8, len: usize) -> Memory {
        let owner = Rc::into_raw(Rc::clone(&self.0)).cast_mut().cast();
        Memory { ptr, len, owner }
    }

    /// The value; `None` while ringloop has it.
    fn into_value(self) -> Option<B> {
        Rc::into_inner(self.0).map(|lot| lot.value.into_inner())
    }
}

impl<B: AsRef<[u8]> + 'static> Lent<B> {
    /// Lends bytes to be read.
    pub fn bytes(value: B) -> (Self, Memory) {
        let lent = Self::new(value);
        // SAFETY: invariant 3: shared references alone, from here to the release.
        let bytes = unsafe { &*lent.0.value.get() }.as_ref();
        let (ptr, len) = (bytes.as_ptr().cast_mut(), bytes.len());
        let memory = lent.memory(ptr, len);
        (lent, memory)
    }
}

/// A vector that an operation fills.
pub struct LentRoom(Lent<Vec<u8>>);

impl LentRoom {
    /// Lends the whole capacity of `buf`, whose bytes are discarded.
    pub fn new(mut buf: Vec<u8>) -> (Self, Memory) {
        buf.clear();
        let lent = Lent::new(buf);
        // SAFETY: invariant 3: the last use before it is lent.
        let buf = unsafe { &mut *lent.0.value.get() };
        let (ptr, len) = (buf.as_mut_ptr(), buf.capacity());
        let memory = lent.memory(ptr, len);
        (Self(lent), memory)
    }

    /// The vector, with `count` bytes; an empty one if the operation has kept it.
    pub fn into_filled(self, count: usize) -> Vec<u8> {
        let mut buf = self.0.into_value().unwrap_or_default();
        let count = count.min(buf.capacity());
        // SAFETY: invariant 4.
        unsafe { buf.set_len(count) };
        buf
    }
}

unsafe extern "C" fn release<B>(owner: *mut Owner) {
    // SAFETY: invariants 1 and 2.
    let lot = unsafe { Rc::from_raw(owner.cast_const().cast::<Lot<B>>()) };
    contained(|| drop(lot));
}
