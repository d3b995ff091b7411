//! The large buffers of a loop, for bulk receives.
//!
//! Owns: [`Large`] (the free ones, and how many are held). Called by: `local`, for streams of
//! receives.
//!
//! A buffer is a vector whose room begins on a page, after a lead that is never read. Allocators place
//! a large block 16 bytes after the beginning of a page, and the kernel mostly copies from the
//! beginning of one: on AMD's Zen 3 and 4, `rep movsb` runs at a third to a seventh of its speed if
//! source and destination are up to 63 bytes apart within a page.

use crate::limits;

const PAGE: usize = 4096;

/// Large buffers, allocated on demand.
#[derive(Debug, Default)]
pub(crate) struct Large {
    /// The most recently returned is last: it is still in the cache.
    free: Vec<Vec<u8>>,
    held_count: usize,
}

impl Large {
    /// The most recently used one, filled up to its room ([`limits::LARGE_BUFFER_BYTES`]); `None`
    /// if all are held.
    pub fn take(&mut self) -> Option<Vec<u8>> {
        if self.held_count == limits::LARGE_BUFFERS {
            return None;
        }
        self.held_count += 1;
        let Some(mut buffer) = self.free.pop() else {
            return Some(on_a_page(limits::LARGE_BUFFER_BYTES + PAGE));
        };
        buffer.truncate(lead_len(&buffer));
        Some(buffer)
    }

    /// Takes a buffer back; an empty vector replaces a lost buffer.
    pub fn keep(&mut self, buffer: Vec<u8>) {
        self.held_count -= 1;
        if buffer.capacity() >= limits::LARGE_BUFFER_BYTES + PAGE {
            self.free.push(buffer);
        }
    }
}

/// A buffer of `capacity` bytes after a lead of up to a page, filled up to its room.
fn on_a_page(capacity: usize) -> Vec<u8> {
    let mut buffer = Vec::with_capacity(capacity);
    buffer.resize(lead_len(&buffer), 0);
    buffer
}

/// Length of the lead of such a buffer.
pub(crate) fn lead_len(buffer: &[u8]) -> usize {
    buffer.as_ptr().align_offset(PAGE).min(PAGE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn room_begins_on_a_page_and_has_the_stated_length() {
        let mut large = Large::default();
        let first = large.take().expect("none is held");
        let second = large.take().expect("one is held");
        for buffer in [&first, &second] {
            let room = buffer.as_ptr().wrapping_add(buffer.len());
            assert_eq!(room.addr() % PAGE, 0);
            assert!(buffer.capacity() - buffer.len() >= limits::LARGE_BUFFER_BYTES);
        }
    }

    #[test]
    fn the_last_one_back_is_the_next_one_and_its_bytes_are_forgotten() {
        let mut large = Large::default();
        let mut first = large.take().expect("none is held");
        let second = large.take().expect("one is held");
        let (at, lead_len) = (first.as_ptr(), first.len());
        first.extend_from_slice(b"received");
        large.keep(second);
        large.keep(first);
        let again = large.take().expect("all are back");
        assert_eq!((again.as_ptr(), again.len()), (at, lead_len));
    }

    #[test]
    fn all_held_is_none_and_a_lost_one_makes_room() {
        let mut large = Large::default();
        let held: Vec<_> = (0..limits::LARGE_BUFFERS).map(|_| large.take()).collect();
        assert!(held.iter().all(Option::is_some));
        assert!(large.take().is_none());
        large.keep(Vec::new());
        assert!(large.take().is_some());
    }
}
