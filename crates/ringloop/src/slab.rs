//! Values by key, in slots that are used again.
//!
//! A key is an index, which stays small, and a generation, which tells the values of a slot apart: the key of a value that
//! was removed finds nothing.

use std::collections::TryReserveError;

/// Names a value, also after it was removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Key {
    /// The slot.
    pub index: u32,
    /// Which of the slot's values.
    pub generation: u32,
}

/// See the module's text.
#[derive(Debug)]
pub struct Slab<T> {
    slots: Vec<Slot<T>>,
    free: Vec<u32>,
}

#[derive(Debug)]
struct Slot<T> {
    generation: u32,
    value: Option<T>,
}

impl<T> Default for Slab<T> {
    fn default() -> Self {
        Self { slots: Vec::new(), free: Vec::new() }
    }
}

impl<T> Slab<T> {
    /// How many values there are.
    pub fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Get memory for one more value, and for its removal.
    ///
    /// # Errors
    /// There is none.
    pub fn try_reserve(&mut self) -> Result<(), TryReserveError> {
        if !self.free.is_empty() {
            return Ok(());
        }
        self.slots.try_reserve(1)?;
        self.free.try_reserve(self.slots.len() + 1)
    }

    /// Add a value.
    #[inline]
    pub fn insert(&mut self, value: T) -> Key {
        self.insert_with(|_| value)
    }

    /// Add a value that knows its key. If `value` panics, its slot is lost.
    #[inline]
    pub fn insert_with(&mut self, value: impl FnOnce(Key) -> T) -> Key {
        let index = self.free.pop().unwrap_or_else(|| {
            self.slots.push(Slot { generation: 0, value: None });
            self.slots.len() as u32 - 1
        });
        let slot = &mut self.slots[index as usize];
        let key = Key { index, generation: slot.generation };
        slot.value = Some(value(key));
        key
    }

    /// The value in a slot, with its key.
    #[inline]
    pub fn entry(&self, index: u32) -> Option<(Key, &T)> {
        let slot = self.slots.get(index as usize)?;
        let generation = slot.generation;
        let key = Key { index, generation };
        slot.value.as_ref().map(|value| (key, value))
    }

    /// The value in a slot.
    #[inline]
    pub fn at(&self, index: u32) -> Option<&T> {
        self.slots.get(index as usize)?.value.as_ref()
    }

    /// The value in a slot.
    #[inline]
    pub fn at_mut(&mut self, index: u32) -> Option<&mut T> {
        self.slots.get_mut(index as usize)?.value.as_mut()
    }

    /// A value by its key.
    #[inline]
    pub fn get(&self, key: Key) -> Option<&T> {
        let slot = self.slots.get(key.index as usize)?;
        slot.value.as_ref().filter(|_| slot.generation == key.generation)
    }

    /// A value by its key.
    #[inline]
    pub fn get_mut(&mut self, key: Key) -> Option<&mut T> {
        let slot = self.slots.get_mut(key.index as usize)?;
        let is_same = slot.generation == key.generation;
        slot.value.as_mut().filter(|_| is_same)
    }

    /// Take a value out; its slot is free.
    pub fn remove(&mut self, key: Key) -> Option<T> {
        self.get(key)?;
        let slot = &mut self.slots[key.index as usize];
        slot.generation = slot.generation.wrapping_add(1);
        self.free.push(key.index);
        slot.value.take()
    }

    /// All values.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        self.slots.iter().filter_map(|slot| slot.value.as_ref())
    }

    /// All values, with their slots.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = (u32, &mut T)> {
        let slots = (0..).zip(&mut self.slots);
        slots.filter_map(|(index, slot)| slot.value.as_mut().map(|value| (index, value)))
    }

    /// Take all values out, and forget the slots.
    pub fn take(&mut self) -> impl Iterator<Item = T> + use<T> {
        let slots = std::mem::take(self).slots;
        slots.into_iter().filter_map(|slot| slot.value)
    }
}

#[cfg(test)]
impl<T> Slab<T> {
    /// Number of slots, free ones included.
    pub fn slot_count(&self) -> usize {
        self.slots.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn key_of_a_removed_value_finds_nothing_in_its_slot() {
        let mut slab = Slab::default();
        let (first, second) = (slab.insert(1), slab.insert(2));
        assert_eq!(slab.remove(first), Some(1));
        assert_eq!((slab.remove(first), slab.len()), (None, 1));
        let third = slab.insert(3);
        assert_eq!(third.index, first.index);
        assert_eq!(slab.get(first), None);
        assert_eq!(slab.get_mut(third), Some(&mut 3));
        assert_eq!(slab.entry(third.index), Some((third, &3)));
        slab.remove(second);
        assert_eq!((slab.at(second.index), slab.entry(second.index)), (None, None));
        assert_eq!(
            slab.iter_mut().map(|(index, value)| (index, *value)).collect::<Vec<_>>(),
            [(0, 3)]
        );
        assert!(slab.take().eq([3]) && slab.is_empty());
    }
}
