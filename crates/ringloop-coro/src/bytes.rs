//! Memory for an operation that may outlive its coroutine's wait, used again and again.
//!
//! Owns: the thread's spare buffers, and the count of readers that wait with one. Called by: `net`, `fs`. Never does: lend a coroutine's own memory to the kernel.
//!
//! A cancelled coroutine leaves its stack while the kernel may still write for it. So the kernel is given a buffer of
//! ours, which stays with the operation until that is over, and the bytes are copied: a few nanoseconds for what a
//! small message has. What is large goes by readiness and a system call on the caller's own memory
//! ([`crate::limits::COPIED_BYTES_MAX`]).

use crate::limits;
use std::cell::{Cell, RefCell};

thread_local! {
    static SPARE: RefCell<Vec<Vec<u8>>> = const { RefCell::new(Vec::new()) };
    /// Readers of the thread that wait with a buffer.
    static LENDING: Cell<usize> = const { Cell::new(0) };
}

/// A reader waits with a buffer of its own; on its own thread, as a coroutine is.
#[derive(Debug)]
pub(crate) struct Lending(());

impl Lending {
    /// `None` where enough of them do.
    pub fn new() -> Option<Self> {
        let count = LENDING.try_with(Cell::get).ok()?;
        if count >= limits::READERS_WITH_BUFFERS_MAX {
            return None;
        }
        LENDING.set(count + 1);
        Some(Self(()))
    }
}

impl Drop for Lending {
    fn drop(&mut self) {
        // A thread that ends counts no more.
        let _ = LENDING.try_with(|count| count.set(count.get() - 1));
    }
}

/// An empty buffer of [`limits::COPIED_BYTES_MAX`] bytes of capacity.
pub(crate) fn take() -> Vec<u8> {
    let spare = SPARE.try_with(|spare| spare.borrow_mut().pop());
    let spare = spare.ok().flatten();
    spare.unwrap_or_else(|| Vec::with_capacity(limits::COPIED_BYTES_MAX))
}

/// Keep a buffer for the next one who takes one.
pub(crate) fn give_back(mut buf: Vec<u8>) {
    if buf.capacity() < limits::COPIED_BYTES_MAX {
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
    fn so_many_readers_have_a_buffer_and_one_that_is_done_makes_room() {
        let mut lending: Vec<_> = std::iter::from_fn(Lending::new).collect();
        assert_eq!(lending.len(), limits::READERS_WITH_BUFFERS_MAX);
        lending.pop();
        assert!(Lending::new().is_some());
    }

    #[test]
    fn buffer_that_was_given_back_is_taken_again_and_others_are_not_kept() {
        let buf = take();
        let address = buf.as_ptr();
        give_back(buf);
        give_back(Vec::new());
        let again = take();
        assert_eq!(again.as_ptr(), address);
        assert!(take().capacity() >= limits::COPIED_BYTES_MAX);
    }
}
