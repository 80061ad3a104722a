//! A thread's connections by number.
//!
//! A number names a place and how often it was given anew, so a late word for a connection that is
//! gone never reaches its successor.

/// Places for connections.
#[derive(Debug)]
pub(super) struct Slots<T> {
    places: Vec<Place<T>>,
    free: Vec<u32>,
}

#[derive(Debug)]
struct Place<T> {
    generation: u32,
    held: Option<T>,
}

/// Numbers stay below 2^62: the upper two bits are free for whoever passes them around.
const GENERATION_MAX: u32 = u32::MAX >> 2;

impl<T> Slots<T> {
    pub(super) fn new() -> Self {
        Self { places: Vec::new(), free: Vec::new() }
    }

    /// A number for the next to come; [`Slots::put`] gives it its holder.
    pub(super) fn reserve(&mut self) -> u64 {
        let index = self.free.pop().unwrap_or_else(|| {
            self.places.push(Place { generation: 0, held: None });
            // Bounded by the limit on connections, and by descriptors, far below 2^32.
            u32::try_from(self.places.len() - 1).unwrap_or(u32::MAX)
        });
        let generation = self.places.get(index as usize).map_or(0, |place| place.generation);
        u64::from(generation) << 32 | u64::from(index)
    }

    pub(super) fn put(&mut self, id: u64, held: T) {
        if let Some(place) = self.places.get_mut(index(id)) {
            place.held = Some(held);
        }
    }

    pub(super) fn get_mut(&mut self, id: u64) -> Option<&mut T> {
        let place = self.places.get_mut(index(id))?;
        place.held.as_mut().filter(|_| u64::from(place.generation) == id >> 32)
    }

    /// Takes it out; its number is never used again.
    pub(super) fn remove(&mut self, id: u64) -> Option<T> {
        let place = self.places.get_mut(index(id))?;
        if u64::from(place.generation) != id >> 32 {
            return None;
        }
        place.generation =
            if place.generation == GENERATION_MAX { 0 } else { place.generation + 1 };
        // The low half of a number is the place.
        self.free.push(u32::try_from(index(id)).ok()?);
        place.held.take()
    }

    /// Everything held, with its number.
    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = (u64, &mut T)> {
        self.places.iter_mut().enumerate().filter_map(|(index, place)| {
            let id = u64::from(place.generation) << 32 | index as u64;
            Some((id, place.held.as_mut()?))
        })
    }

    /// How many are held.
    pub(super) fn len(&self) -> usize {
        self.places.len() - self.free.len()
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
