//! The BIO that replaces the object's two `MemoryBIO`s, and its buffers.
//!
//! Owns: ciphertext in both directions. Called by: [`super`], and by libssl. Calls neither Python
//! nor libssl functions on an `SSL`.
//!
//! The invariants are those of [`super`].

use std::collections::TryReserveError;
use std::ffi::{CStr, c_char, c_int, c_long, c_void};
use std::mem::MaybeUninit;
use std::ptr::NonNull;

use super::functions::{Bio, BioMethod, Functions};
use crate::ffi::bytes::copy_into;
use crate::ffi::confined::Confined;

// openssl/bio.h
const BIO_TYPE_SOURCE_SINK: c_int = 0x0400;
const BIO_FLAGS_RWS: c_int = 0x07;
const BIO_FLAGS_READ: c_int = 0x01;
const BIO_FLAGS_SHOULD_RETRY: c_int = 0x08;
const BIO_CTRL_PENDING: c_int = 10;
const BIO_CTRL_FLUSH: c_int = 11;
const BIO_CTRL_WPENDING: c_int = 13;

/// Capacity that an empty incoming buffer keeps: idle connections own next to nothing.
const INCOMING_KEPT: usize = 2048;

/// Makes the method table of our BIOs, which libssl keeps forever.
pub(super) fn make_method(functions: &Functions) -> Option<NonNull<BioMethod>> {
    // SAFETY: invariant 1: no arguments.
    let index = unsafe { (functions.BIO_get_new_index)() };
    if index == -1 {
        return None;
    }
    let kind = index | BIO_TYPE_SOURCE_SINK;
    let name: &'static CStr = c"ringloop";
    // SAFETY: the name is static.
    let method = NonNull::new(unsafe { (functions.BIO_meth_new)(kind, name.as_ptr()) })?;
    let method_ptr = method.as_ptr();
    // SAFETY: the table was made above, and the function has the setter's type.
    let read = unsafe { (functions.BIO_meth_set_read_ex)(method_ptr, bio_read) };
    // SAFETY: as above.
    let write = unsafe { (functions.BIO_meth_set_write_ex)(method_ptr, bio_write) };
    // SAFETY: as above.
    let control = unsafe { (functions.BIO_meth_set_ctrl)(method_ptr, bio_control) };
    // SAFETY: as above.
    let destroy = unsafe { (functions.BIO_meth_set_destroy)(method_ptr, bio_destroy) };
    (read == 1 && write == 1 && control == 1 && destroy == 1).then_some(method)
}

/// Makes a BIO that owns its empty buffers.
pub(super) fn make(
    functions: &Functions,
    method: NonNull<BioMethod>,
) -> Option<(NonNull<Bio>, NonNull<Confined<Buffers>>)> {
    // SAFETY: invariant 1: the method table lives forever.
    let bio = NonNull::new(unsafe { (functions.BIO_new)(method.as_ptr()) })?;
    let buffers = NonNull::from(Box::leak(Box::new(Confined::new(Buffers::default()))));
    // SAFETY: the BIO is ours, and owns the cell from here on (invariant 5).
    unsafe { (functions.BIO_set_data)(bio.as_ptr(), buffers.as_ptr().cast()) };
    Some((bio, buffers))
}

/// Ciphertext in transit.
#[derive(Default)]
pub(super) struct Buffers {
    incoming: Vec<u8>,
    /// How much of `incoming` libssl has read.
    consumed: usize,
    pub(super) outgoing: Vec<u8>,
}

impl Buffers {
    pub fn incoming_len(&self) -> usize {
        self.incoming.len() - self.consumed
    }

    pub fn feed(&mut self, ciphertext: &[u8]) -> Result<(), TryReserveError> {
        if self.consumed > 0 {
            // What is left is at most a partial record, unless reading is paused.
            self.incoming.drain(..self.consumed);
            self.consumed = 0;
        }
        self.incoming.try_reserve(ciphertext.len())?;
        self.incoming.extend_from_slice(ciphertext);
        Ok(())
    }

    fn consume(&mut self, memory: &mut [MaybeUninit<u8>]) -> usize {
        let left = &self.incoming[self.consumed..];
        let count = copy_into(memory, left);
        self.consumed += count;
        if self.consumed == self.incoming.len() {
            self.consumed = 0;
            self.incoming.clear();
            if self.incoming.capacity() > INCOMING_KEPT {
                self.incoming = Vec::new();
            }
        }
        count
    }
}

/// The cell that a BIO owns; `None` before it is set.
fn buffers_of<'a>(bio: *mut Bio) -> Option<(&'a Confined<Buffers>, &'static Functions)> {
    let functions = Functions::known()?;
    // SAFETY: libssl calls with a live BIO of ours.
    let data = unsafe { (functions.BIO_get_data)(bio) };
    // SAFETY: invariant 5: null, or the cell set by `make`.
    let buffers = unsafe { data.cast::<Confined<Buffers>>().as_ref() }?;
    Some((buffers, functions))
}

unsafe extern "C" fn bio_read(
    bio: *mut Bio,
    memory: *mut c_char,
    len: usize,
    count: *mut usize,
) -> c_int {
    let Some((buffers, functions)) = buffers_of(bio) else {
        return -1;
    };
    // SAFETY: libssl passes `len` writable bytes.
    let memory = unsafe { std::slice::from_raw_parts_mut(memory.cast::<MaybeUninit<u8>>(), len) };
    let taken = buffers.with(|buffers| buffers.consume(memory)).unwrap_or(0);
    // SAFETY: the BIO of this call.
    unsafe { (functions.BIO_clear_flags)(bio, BIO_FLAGS_RWS | BIO_FLAGS_SHOULD_RETRY) };
    // SAFETY: libssl's pointer to the count.
    unsafe { count.write(taken) };
    if taken > 0 {
        return 1;
    }
    // SAFETY: the BIO of this call.
    unsafe { (functions.BIO_set_flags)(bio, BIO_FLAGS_READ | BIO_FLAGS_SHOULD_RETRY) };
    -1
}

unsafe extern "C" fn bio_write(
    bio: *mut Bio,
    memory: *const c_char,
    len: usize,
    count: *mut usize,
) -> c_int {
    let Some((buffers, functions)) = buffers_of(bio) else {
        return -1;
    };
    // SAFETY: libssl passes `len` bytes.
    let ciphertext = unsafe { std::slice::from_raw_parts(memory.cast::<u8>(), len) };
    // SAFETY: the BIO of this call.
    unsafe { (functions.BIO_clear_flags)(bio, BIO_FLAGS_RWS | BIO_FLAGS_SHOULD_RETRY) };
    let written = buffers.with(|buffers| {
        let room = buffers.outgoing.try_reserve(len);
        room.map(|()| buffers.outgoing.extend_from_slice(ciphertext))
    });
    if !matches!(written, Ok(Ok(()))) {
        return -1;
    }
    // SAFETY: libssl's pointer to the count.
    unsafe { count.write(len) };
    1
}

unsafe extern "C" fn bio_control(
    bio: *mut Bio,
    command: c_int,
    _number: c_long,
    _pointer: *mut c_void,
) -> c_long {
    let len = |part: fn(&Buffers) -> usize| {
        buffers_of(bio)
            .map_or(0, |(buffers, _)| buffers.with(|buffers| part(buffers)).unwrap_or(0) as c_long)
    };
    match command {
        BIO_CTRL_FLUSH => 1,
        BIO_CTRL_PENDING => len(Buffers::incoming_len),
        BIO_CTRL_WPENDING => len(|buffers| buffers.outgoing.len()),
        // Neither end of stream nor any other query is supported.
        _ => 0,
    }
}

unsafe extern "C" fn bio_destroy(bio: *mut Bio) -> c_int {
    if let Some((buffers, _)) = buffers_of(bio) {
        let owned = std::ptr::from_ref(buffers).cast_mut();
        // SAFETY: invariant 5: the BIO owns the cell, and no references to the BIO are left.
        drop(unsafe { Box::from_raw(owned) });
    }
    1
}
