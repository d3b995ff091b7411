//! Memory for an operation that may outlive its coroutine's wait, used again and again.
//!
//! Owns: the thread's spare buffers. Called by: `fs`. Never does: lend a coroutine's own memory to the kernel.
//!
//! A read of a file may take as long as its disk, and cannot be called off: a cancelled coroutine does not wait for it.
//! So the kernel is given a buffer of ours, which stays with the operation until that is over, and the bytes are copied.

use crate::limits;
use std::cell::RefCell;

thread_local! {
    static SPARE: RefCell<Vec<Vec<u8>>> = const { RefCell::new(Vec::new()) };
}

/// An empty buffer of [`limits::COPIED_BYTES_MAX`] bytes of capacity.
pub(crate) fn take() -> Vec<u8> {
    let spare = SPARE.try_with(|spare| spare.borrow_mut().pop());
    let spare = spare.ok().flatten();
    spare.unwrap_or_else(|| Vec::with_capacity(limits::COPIED_BYTES_MAX))
}

/// Keep a buffer for the next one who takes one; a longer one is not kept, or the bound on them would be none in bytes.
pub(crate) fn give_back(mut buf: Vec<u8>) {
    let lengths = limits::COPIED_BYTES_MAX..2 * limits::COPIED_BYTES_MAX;
    if !lengths.contains(&buf.capacity()) {
        return;
    }
    buf.clear();
    // A thread that ends needs none.
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
    fn buffer_that_was_given_back_is_taken_again_and_others_are_not_kept() {
        let buf = take();
        let address = buf.as_ptr();
        give_back(buf);
        give_back(Vec::new());
        give_back(Vec::with_capacity(limits::FILE_BYTES_MAX));
        let again = take();
        assert_eq!(again.as_ptr(), address);
        let other = take().capacity();
        assert!((limits::COPIED_BYTES_MAX..limits::FILE_BYTES_MAX).contains(&other));
    }
}
