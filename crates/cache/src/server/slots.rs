//! A thread's connections by number.
//!
//! A number consists of a slot and of how often the slot was reused, so a late message for a closed
//! connection never reaches its successor.

/// Slots for connections.
#[derive(Debug)]
pub(super) struct Slots<T> {
    slots: Vec<Slot<T>>,
    free: Vec<u32>,
}

#[derive(Debug)]
struct Slot<T> {
    generation: u32,
    held: Option<T>,
}

/// Numbers stay below 2^62: callers may use the upper two bits.
const GENERATION_MAX: u32 = u32::MAX >> 2;

impl<T> Slots<T> {
    pub(super) fn new() -> Self {
        Self { slots: Vec::new(), free: Vec::new() }
    }

    /// Reserves a number for the next connection; [`Slots::put`] stores the connection.
    pub(super) fn reserve(&mut self) -> u64 {
        let index = self.free.pop().unwrap_or_else(|| {
            self.slots.push(Slot { generation: 0, held: None });
            // Limited by the number of connections and of descriptors, far below 2^32.
            u32::try_from(self.slots.len() - 1).unwrap_or(u32::MAX)
        });
        let generation = self.slots.get(index as usize).map_or(0, |slot| slot.generation);
        u64::from(generation) << 32 | u64::from(index)
    }

    pub(super) fn put(&mut self, id: u64, held: T) {
        if let Some(slot) = self.slots.get_mut(index(id)) {
            slot.held = Some(held);
        }
    }

    pub(super) fn get_mut(&mut self, id: u64) -> Option<&mut T> {
        let slot = self.slots.get_mut(index(id))?;
        slot.held.as_mut().filter(|_| u64::from(slot.generation) == id >> 32)
    }

    /// Removes a connection; its number is never used again.
    pub(super) fn remove(&mut self, id: u64) -> Option<T> {
        let slot = self.slots.get_mut(index(id))?;
        if u64::from(slot.generation) != id >> 32 {
            return None;
        }
        slot.generation = if slot.generation == GENERATION_MAX { 0 } else { slot.generation + 1 };
        // The low half of a number is the slot.
        self.free.push(u32::try_from(index(id)).ok()?);
        slot.held.take()
    }

    /// Iterates over all connections with their numbers.
    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = (u64, &mut T)> {
        self.slots.iter_mut().enumerate().filter_map(|(index, slot)| {
            let id = u64::from(slot.generation) << 32 | index as u64;
            Some((id, slot.held.as_mut()?))
        })
    }

    /// Returns the number of connections.
    pub(super) fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }
}

fn index(id: u64) -> usize {
    usize::try_from(id & u64::from(u32::MAX)).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::Slots;

    #[test]
    fn a_late_number_never_reaches_the_successor_in_its_place() {
        let mut slots = Slots::new();
        let first = slots.reserve();
        slots.put(first, "first");
        assert_eq!(slots.remove(first), Some("first"));
        let second = slots.reserve();
        slots.put(second, "second");
        assert_ne!(first, second);
        assert_eq!(slots.get_mut(first), None);
        assert_eq!(slots.remove(first), None);
        assert_eq!(slots.get_mut(second), Some(&mut "second"));
        assert_eq!(slots.len(), 1);
    }
}
