//! The dynamic table of one direction (RFC 9204 §3.2), the same at both ends.
//!
//! Owns: entries by absolute number (Q1), and their size in bytes. Called by: the encoder and the decoder; the encoder
//! decides which entries may be evicted.

use super::size_of_field;
use bytes::Bytes;
use std::collections::VecDeque;

pub(super) struct Entry {
    pub(super) name: Bytes,
    pub(super) value: Bytes,
}

impl Entry {
    fn size(&self) -> u64 {
        size_of_field(&self.name, &self.value)
    }
}

#[derive(Default)]
pub(super) struct DynamicTable {
    /// The oldest first.
    entries: VecDeque<Entry>,
    /// Total number of inserted entries, including evicted ones: the next one's number.
    inserted_count: u64,
    capacity: u64,
    size: u64,
}

impl DynamicTable {
    pub(super) fn inserted_count(&self) -> u64 {
        self.inserted_count
    }

    pub(super) fn capacity(&self) -> u64 {
        self.capacity
    }

    /// The number of the oldest entry.
    pub(super) fn first(&self) -> u64 {
        self.inserted_count - self.entries.len() as u64
    }

    /// An entry by its number; `None`: it was evicted, or is not inserted yet.
    pub(super) fn get(&self, number: u64) -> Option<&Entry> {
        let index = number.checked_sub(self.first())?;
        self.entries.get(usize::try_from(index).ok()?)
    }

    /// Entries with their numbers, the newest first.
    pub(super) fn newest_first(&self) -> impl Iterator<Item = (u64, &Entry)> {
        let numbers = (self.first()..self.inserted_count).rev();
        numbers.zip(self.entries.iter().rev())
    }

    /// How many of the oldest entries must be evicted before another `size` bytes fit; `None`: they never fit.
    pub(super) fn evictions_for(&self, size: u64) -> Option<usize> {
        let room = self.capacity.checked_sub(size)?;
        let mut left = self.size;
        let mut sizes = self.entries.iter().map(Entry::size);
        let mut count = 0;
        while left > room {
            left -= sizes.next()?;
            count += 1;
        }
        Some(count)
    }

    /// Insert an entry, evicting the oldest ones as needed. `false`: it is larger than the table, which is unchanged.
    pub(super) fn insert(&mut self, name: Bytes, value: Bytes) -> bool {
        let entry = Entry { name, value };
        let size = entry.size();
        if size > self.capacity {
            return false;
        }
        self.shrink_to(self.capacity - size);
        self.size += size;
        self.entries.push_back(entry);
        self.inserted_count += 1;
        true
    }

    /// Change the capacity, and evict entries that no longer fit.
    pub(super) fn set_capacity(&mut self, capacity: u64) {
        self.capacity = capacity;
        self.shrink_to(capacity);
    }

    fn shrink_to(&mut self, size: u64) {
        while self.size > size
            && let Some(oldest) = self.entries.pop_front()
        {
            self.size -= oldest.size();
        }
    }
}

/// `MaxEntries` of a table (RFC 9204 §4.5.1.1).
pub(super) fn entries_max(capacity_max: u64) -> u64 {
    capacity_max / 32
}

#[cfg(test)]
mod tests {
    use super::*;

    fn insert(table: &mut DynamicTable, name: &'static str) -> bool {
        table.insert(Bytes::from_static(name.as_bytes()), Bytes::new())
    }

    #[test]
    fn oldest_entries_make_room_and_numbers_go_on() {
        let mut table = DynamicTable::default();
        assert!(!insert(&mut table, "a"), "it has no capacity yet");
        table.set_capacity(70);
        assert!(insert(&mut table, "aa") && insert(&mut table, "bb"));
        assert_eq!(table.evictions_for(34), Some(1));
        assert_eq!(table.evictions_for(71), None);
        assert!(insert(&mut table, "cc"));
        assert!(table.get(0).is_none());
        assert_eq!(table.get(1).unwrap().name, "bb");
        assert_eq!(table.get(2).unwrap().name, "cc");
        assert!(table.get(3).is_none());
        let numbers: Vec<_> = table.newest_first().map(|(number, _)| number).collect();
        assert_eq!(numbers, [2, 1]);
        assert!(!insert(&mut table, "much too long for a table of seventy bytes"));
        table.set_capacity(34);
        assert_eq!((table.first(), table.inserted_count()), (2, 3));
        table.set_capacity(0);
        assert_eq!((table.first(), table.size), (3, 0));
    }
}
