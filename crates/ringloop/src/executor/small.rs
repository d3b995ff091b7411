//! The few small buffers of a loop, for short messages on their way out.
//!
//! Owns: [`Small`]. Called by: `local`, for received bytes that are sent. Never does: I/O.
//!
//! An allocator gives the one that was freed last, too, but by a longer way: with dozens of messages between two turns
//! it leaves its shortest one.

use crate::limits;

/// Small buffers, made when they are needed; the last one back on top.
#[derive(Debug, Default)]
pub(super) struct Small {
    free: Vec<Vec<u8>>,
}

impl Small {
    /// An empty vector for `len` bytes; one of its own where they are not few.
    #[inline]
    pub fn take(&mut self, len: usize) -> Vec<u8> {
        if len > limits::SMALL_BUFFER_BYTES {
            return Vec::with_capacity(len);
        }
        let known = self.free.pop();
        known.unwrap_or_else(|| Vec::with_capacity(limits::SMALL_BUFFER_BYTES))
    }

    /// Take one back; what is not one of these, or one too many, is freed.
    #[inline]
    pub fn keep(&mut self, mut buffer: Vec<u8>) {
        if buffer.capacity() == limits::SMALL_BUFFER_BYTES
            && self.free.len() < limits::SMALL_BUFFERS
        {
            buffer.clear();
            self.free.push(buffer);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_one_back_is_the_next_one_and_its_bytes_are_forgotten() {
        let mut small = Small::default();
        let mut first = small.take(1);
        let second = small.take(limits::SMALL_BUFFER_BYTES);
        let at = first.as_ptr();
        first.push(1);
        small.keep(second);
        small.keep(first);
        let again = small.take(1);
        assert_eq!((again.as_ptr(), again.len()), (at, 0));
    }

    #[test]
    fn only_so_many_are_kept_and_none_of_another_size() {
        let mut small = Small::default();
        let long = small.take(limits::SMALL_BUFFER_BYTES + 1);
        assert!(long.capacity() > limits::SMALL_BUFFER_BYTES);
        small.keep(long);
        assert!(small.free.is_empty());
        let taken: Vec<_> = (0..=limits::SMALL_BUFFERS).map(|_| small.take(1)).collect();
        for buffer in taken {
            small.keep(buffer);
        }
        assert_eq!(small.free.len(), limits::SMALL_BUFFERS);
    }
}
