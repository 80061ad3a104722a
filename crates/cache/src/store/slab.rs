//! Memory of entries: slots of 4 KiB pages for small entries, a separate vector for each large one.
//!
//! A slot is a multiple of eight bytes and a page holds slots of one size, so an entry wastes at
//! most seven bytes and a page's tail. A reference is 32 bits: page and eight-byte unit inside it,
//! or, with the top bit set, the number of a large entry. Freed slots form a list inside their
//! page; a page without entries is returned to the system.
//!
//! Invariants: a reference is valid from [`Slab::insert`] to [`Slab::remove`] and may then be
//! reused; the contents of a slot never move; [`Slab::bytes`] counts every allocated page and
//! vector.

/// Bytes of a page.
const PAGE: usize = 4_096;
/// Bytes of the unit in which slots are measured and addressed.
const UNIT: usize = 8;
/// Bits of a reference that identify the unit inside its page.
const UNIT_BITS: u32 = 9;
/// Maximum number of pages: 16 GiB of them. Entries beyond that get a vector.
const PAGES_MAX: usize = 1 << (u32::BITS - 1 - UNIT_BITS);
/// Maximum size of an entry in a page; larger ones get a vector.
pub(crate) const SLOT_MAX: usize = 1_024;
/// Slot sizes: every multiple of a unit up to [`SLOT_MAX`].
const CLASSES: usize = SLOT_MAX / UNIT;
/// Marks a reference to a large entry.
const LARGE: u32 = 1 << 31;
/// Ends a list of pages or slots.
const NONE: u32 = u32::MAX;
const NO_SLOT: u16 = u16::MAX;

/// The location of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Ref(pub(crate) u32);

/// State of a page besides its bytes.
#[derive(Debug, Clone, Copy)]
struct Page {
    class: u16,
    used: u16,
    /// First freed slot, as a unit; its first two bytes hold the next.
    free: u16,
    /// First unit never used.
    fresh: u16,
    /// Neighbours among the pages of the class that have room.
    previous: u32,
    next: u32,
}

/// A large entry, or an unused number.
#[derive(Debug)]
enum Large {
    Entry(Vec<u8>),
    Free(u32),
}

/// The entries' memory; see the module.
#[derive(Debug)]
pub(crate) struct Slab {
    data: Vec<Option<Box<[u8; PAGE]>>>,
    pages: Vec<Page>,
    /// Numbers of pages returned to the system.
    empty: Vec<u32>,
    /// First page with room, for every class.
    open: Vec<u32>,
    large: Vec<Large>,
    large_free: u32,
    large_bytes: usize,
    page_count: usize,
    /// Incremented whenever [`Slab::bytes`] may have changed.
    pub(super) revision: u32,
}

impl Slab {
    pub(crate) fn new() -> Self {
        Self {
            data: Vec::new(),
            pages: Vec::new(),
            empty: Vec::new(),
            open: Vec::new(),
            large: Vec::new(),
            large_free: NONE,
            large_bytes: 0,
            page_count: 0,
            revision: 0,
        }
    }

    /// Memory allocated from the system in bytes.
    pub(crate) fn bytes(&self) -> usize {
        // The system's allocator adds sixteen bytes per page.
        self.page_count * (PAGE + 16)
            + self.data.capacity() * size_of::<Option<Box<[u8; PAGE]>>>()
            + self.pages.capacity() * size_of::<Page>()
            + self.empty.capacity() * size_of::<u32>()
            + self.open.capacity() * size_of::<u32>()
            + self.large.capacity() * size_of::<Large>()
            + self.large_bytes
    }

    /// Allocates `size` bytes, all of which the caller must write.
    pub(crate) fn insert(&mut self, size: usize) -> (Ref, &mut [u8]) {
        if size > SLOT_MAX {
            return self.insert_large(size);
        }
        let class = size.div_ceil(UNIT).max(1) - 1;
        if self.open.is_empty() {
            self.open = vec![NONE; CLASSES];
        }
        let number = match self.open.get(class).copied() {
            Some(NONE) | None if self.empty.is_empty() && self.pages.len() >= PAGES_MAX => {
                return self.insert_large(size);
            }
            Some(NONE) | None => self.add_page(class),
            Some(number) => number,
        };
        let units = class + 1;
        let page = &mut self.pages[number as usize];
        let data = self.data[number as usize].as_mut().expect("an open page has its bytes");
        let unit = if page.free == NO_SLOT {
            let unit = page.fresh;
            page.fresh += to_u16(units);
            unit
        } else {
            let unit = page.free;
            let at = usize::from(unit) * UNIT;
            page.free = u16::from_le_bytes([data[at], data[at + 1]]);
            unit
        };
        page.used += 1;
        let full = page.free == NO_SLOT && (usize::from(page.fresh) + units) * UNIT > PAGE;
        if full {
            self.close_page(number, class);
        }
        let at = usize::from(unit) * UNIT;
        let data = self.data[number as usize].as_mut().expect("it has its bytes");
        (Ref((number << UNIT_BITS) | u32::from(unit)), &mut data[at..at + units * UNIT])
    }

    fn insert_large(&mut self, size: usize) -> (Ref, &mut [u8]) {
        self.revision = self.revision.wrapping_add(1);
        let entry = vec![0; size];
        self.large_bytes += entry.capacity() + 16;
        let number = if self.large_free == NONE {
            self.large.push(Large::Entry(entry));
            to_u32(self.large.len() - 1)
        } else {
            let number = self.large_free;
            if let Large::Free(next) = self.large[number as usize] {
                self.large_free = next;
            }
            self.large[number as usize] = Large::Entry(entry);
            number
        };
        (Ref(LARGE | number), self.get_mut(Ref(LARGE | number)))
    }

    /// Returns the bytes of an entry: the whole slot, or what was written of a large entry.
    #[inline]
    pub(crate) fn get(&self, at: Ref) -> &[u8] {
        if at.0 & LARGE != 0 {
            return self.get_large(at);
        }
        let (number, unit, units) = self.place(at);
        let data = self.data[number].as_ref().expect("a reference names a page in use");
        &data[unit * UNIT..(unit + units) * UNIT]
    }

    fn get_large(&self, at: Ref) -> &[u8] {
        match &self.large[(at.0 & !LARGE) as usize] {
            Large::Entry(entry) => entry,
            Large::Free(_) => &[],
        }
    }

    pub(crate) fn get_mut(&mut self, at: Ref) -> &mut [u8] {
        if at.0 & LARGE == 0 {
            let (number, unit, units) = self.place(at);
            let data = self.data[number].as_mut().expect("a reference names a page in use");
            return &mut data[unit * UNIT..(unit + units) * UNIT];
        }
        match &mut self.large[(at.0 & !LARGE) as usize] {
            Large::Entry(entry) => entry,
            Large::Free(_) => &mut [],
        }
    }

    /// Lengthens or truncates a large entry; `None` for an entry in a page.
    pub(crate) fn resize_large<R>(
        &mut self,
        at: Ref,
        change: impl FnOnce(&mut Vec<u8>) -> R,
    ) -> Option<R> {
        if at.0 & LARGE == 0 {
            return None;
        }
        self.revision = self.revision.wrapping_add(1);
        match &mut self.large[(at.0 & !LARGE) as usize] {
            Large::Entry(entry) => {
                let before = entry.capacity();
                let result = change(entry);
                self.large_bytes = self.large_bytes - before + entry.capacity();
                Some(result)
            }
            Large::Free(_) => None,
        }
    }

    /// Returns the memory of an entry in bytes.
    pub(crate) fn size(&self, at: Ref) -> usize {
        if at.0 & LARGE == 0 {
            return self.place(at).2 * UNIT;
        }
        match &self.large[(at.0 & !LARGE) as usize] {
            Large::Entry(entry) => entry.capacity() + 16,
            Large::Free(_) => 0,
        }
    }

    /// Frees an entry.
    pub(crate) fn remove(&mut self, at: Ref) {
        if at.0 & LARGE != 0 {
            self.revision = self.revision.wrapping_add(1);
            let number = at.0 & !LARGE;
            let free = Large::Free(self.large_free);
            let before = std::mem::replace(&mut self.large[number as usize], free);
            if let Large::Entry(entry) = before {
                self.large_bytes -= entry.capacity() + 16;
                self.large_free = number;
            } else {
                self.large[number as usize] = before;
            }
            return;
        }
        let (number, unit, units) = self.place(at);
        let page = &mut self.pages[number];
        let class = usize::from(page.class);
        let was_full = page.free == NO_SLOT && (usize::from(page.fresh) + units) * UNIT > PAGE;
        page.used -= 1;
        if page.used == 0 {
            if !was_full {
                self.close_page(to_u32(number), class);
            }
            self.data[number] = None;
            self.page_count -= 1;
            self.revision = self.revision.wrapping_add(1);
            self.empty.push(to_u32(number));
            return;
        }
        let data = self.data[number].as_mut().expect("a reference names a page in use");
        data[unit * UNIT..unit * UNIT + 2].copy_from_slice(&page.free.to_le_bytes());
        page.free = to_u16(unit);
        if was_full {
            self.open_page(to_u32(number), class);
        }
    }

    /// Whether an entry exists now. Costs a search through its page's freed slots.
    pub(crate) fn is_live(&self, at: Ref) -> bool {
        if at.0 & LARGE != 0 {
            let number = (at.0 & !LARGE) as usize;
            return matches!(self.large.get(number), Some(Large::Entry(_)));
        }
        let number = (at.0 >> UNIT_BITS) as usize;
        let Some(Some(data)) = self.data.get(number) else { return false };
        let unit = to_u16((at.0 & ((1 << UNIT_BITS) - 1)) as usize);
        let page = &self.pages[number];
        if unit >= page.fresh || !unit.is_multiple_of(page.class + 1) {
            return false;
        }
        let mut free = page.free;
        while free != NO_SLOT {
            if free == unit {
                return false;
            }
            let at = usize::from(free) * UNIT;
            free = u16::from_le_bytes([data[at], data[at + 1]]);
        }
        true
    }

    /// Returns page, unit in it, and units of a slot.
    #[inline]
    fn place(&self, at: Ref) -> (usize, usize, usize) {
        let number = (at.0 >> UNIT_BITS) as usize;
        let unit = (at.0 & ((1 << UNIT_BITS) - 1)) as usize;
        (number, unit, usize::from(self.pages[number].class) + 1)
    }

    fn add_page(&mut self, class: usize) -> u32 {
        let page = Page {
            class: to_u16(class),
            used: 0,
            free: NO_SLOT,
            fresh: 0,
            previous: NONE,
            next: NONE,
        };
        let number = match self.empty.pop() {
            Some(number) => {
                self.pages[number as usize] = page;
                self.data[number as usize] = Some(Box::new([0; PAGE]));
                number
            }
            None => {
                self.pages.push(page);
                self.data.push(Some(Box::new([0; PAGE])));
                to_u32(self.pages.len() - 1)
            }
        };
        self.page_count += 1;
        self.revision = self.revision.wrapping_add(1);
        self.open_page(number, class);
        number
    }

    fn open_page(&mut self, number: u32, class: usize) {
        let first = self.open[class];
        let page = &mut self.pages[number as usize];
        (page.previous, page.next) = (NONE, first);
        if let Some(first) = self.pages.get_mut(first as usize) {
            first.previous = number;
        }
        self.open[class] = number;
    }

    fn close_page(&mut self, number: u32, class: usize) {
        let Page { previous, next, .. } = self.pages[number as usize];
        match self.pages.get_mut(previous as usize) {
            Some(previous) => previous.next = next,
            None => self.open[class] = next,
        }
        if let Some(next) = self.pages.get_mut(next as usize) {
            next.previous = previous;
        }
    }
}

fn to_u16(number: usize) -> u16 {
    u16::try_from(number).expect("a page has fewer than 65536 units")
}

fn to_u32(number: usize) -> u32 {
    // 31 bits for large entries, and pages up to PAGES_MAX.
    u32::try_from(number).expect("a shard never holds four billion entries")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_page_without_entries_is_given_back() {
        let mut slab = Slab::new();
        let before = slab.bytes();
        let refs: Vec<Ref> = (0..1_000).map(|_| slab.insert(120).0).collect();
        assert!(slab.bytes() - before >= 1_000 * 120);
        for at in refs {
            slab.remove(at);
        }
        assert_eq!(slab.page_count, 0);
    }

    #[test]
    fn a_hundred_and_twenty_bytes_waste_less_than_one_percent() {
        let mut slab = Slab::new();
        for _ in 0..100_000 {
            slab.insert(120);
        }
        assert!(slab.bytes() < 100_000 * 122, "{}", slab.bytes());
    }

    proptest! {
        #[test]
        fn entries_keep_their_bytes_while_others_are_added_and_removed(
            ops in proptest::collection::vec((any::<u8>(), 1usize..3_000, any::<u8>()), 1..400)
        ) {
            let mut slab = Slab::new();
            let mut held: Vec<(Ref, usize, u8)> = Vec::new();
            for (pick, size, fill) in ops {
                if pick % 3 == 0 && !held.is_empty() {
                    let (at, size, fill) = held.swap_remove(usize::from(pick) % held.len());
                    prop_assert!(slab.get(at)[..size].iter().all(|&b| b == fill));
                    slab.remove(at);
                } else {
                    let (at, bytes) = slab.insert(size);
                    bytes[..size].fill(fill);
                    held.push((at, size, fill));
                }
            }
            for (at, size, fill) in held {
                prop_assert!(slab.get(at)[..size].iter().all(|&b| b == fill));
                slab.remove(at);
            }
            prop_assert_eq!((slab.page_count, slab.large_bytes), (0, 0));
        }
    }
}
