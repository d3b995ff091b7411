//! Buffers of file reads.
//!
//! Owns: the thread's spare buffers. Called by: `file`.
//!
//! A read of a file takes as long as its disk, and cannot be cancelled; a cancelled coroutine does
//! not wait for it. So the operation owns a buffer until it is over, and the bytes are copied.

use crate::limits;
use std::cell::RefCell;

thread_local! {
    static SPARE: RefCell<Vec<Vec<u8>>> = const { RefCell::new(Vec::new()) };
}

/// An empty buffer of [`limits::COPIED_BYTES_MAX`] bytes of capacity.
pub(super) fn take() -> Vec<u8> {
    let spare = SPARE.try_with(|spare| spare.borrow_mut().pop());
    let spare = spare.ok().flatten();
    spare.unwrap_or_else(|| Vec::with_capacity(limits::COPIED_BYTES_MAX))
}

/// Keeps a buffer for the next read. Buffers of another length are dropped, which bounds the bytes
/// kept.
pub(super) fn recycle(mut buf: Vec<u8>) {
    let lengths = limits::COPIED_BYTES_MAX..2 * limits::COPIED_BYTES_MAX;
    if !lengths.contains(&buf.capacity()) {
        return;
    }
    buf.clear();
    // A thread that ends keeps none.
    let _ = SPARE.try_with(|spare| {
        let mut spare = spare.borrow_mut();
        if spare.len() < limits::SPARE_BUFFERS_MAX {
            spare.push(buf);
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recycled_buffer_is_taken_again_and_other_lengths_are_dropped() {
        let buf = take();
        let address = buf.as_ptr();
        recycle(buf);
        recycle(Vec::new());
        recycle(Vec::with_capacity(limits::FILE_BYTES_MAX));
        let again = take();
        assert_eq!(again.as_ptr(), address);
        let other = take().capacity();
        assert!((limits::COPIED_BYTES_MAX..limits::FILE_BYTES_MAX).contains(&other));
    }
}
