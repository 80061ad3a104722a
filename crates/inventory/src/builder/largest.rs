//! The largest of many children, in limited memory.

use crate::format::LISTED_MAX;

/// A child: its size, and the end of its record. Of two of equal size the one that ends first,
/// whose name comes first, counts as larger.
type Child = (u64, std::cmp::Reverse<u64>);

/// Keeps the largest [`LISTED_MAX`].
#[derive(Debug, Clone, Default)]
pub(crate) struct Largest {
    /// At most twice as many as the result.
    children: Vec<Child>,
    /// Smaller children cannot be in the result.
    least: u64,
}

impl Largest {
    pub(crate) fn clear(&mut self) {
        // Few prefixes have many children; their buffer is not kept for the next.
        if self.children.capacity() > 1024 {
            self.children = Vec::new();
        }
        self.children.clear();
        self.least = 0;
    }

    #[inline]
    pub(crate) fn push(&mut self, size: u64, end: u64) {
        if size < self.least {
            return;
        }
        self.children.push((size, std::cmp::Reverse(end)));
        if self.children.len() == 2 * LISTED_MAX {
            self.children.select_nth_unstable_by(LISTED_MAX - 1, |a, b| b.cmp(a));
            self.children.truncate(LISTED_MAX);
            self.least = self.children.last().map_or(0, |child| child.0);
        }
    }

    /// The ends of the records of the `count` largest, at most [`LISTED_MAX`], the largest first.
    pub(crate) fn ends(&mut self, count: usize) -> Vec<u64> {
        if count < self.children.len() {
            self.children.select_nth_unstable_by(count, |a, b| b.cmp(a));
            self.children.truncate(count);
        }
        self.children.sort_unstable_by(|a, b| b.cmp(a));
        self.children.iter().map(|(_, std::cmp::Reverse(end))| *end).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_of_many_are_kept_in_order() {
        let mut largest = Largest::default();
        let size = |i: u64| i.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 50;
        (1..=50_000).for_each(|i| largest.push(size(i), i));
        let mut all: Vec<u64> = (1..=50_000).collect();
        all.sort_by_key(|&i| (std::cmp::Reverse(size(i)), i));
        all.truncate(LISTED_MAX);
        assert_eq!(largest.ends(LISTED_MAX), all);
    }
}
