//! Lookup of a prefix.
//!
//! The hash of a prefix is computed from that of its parent, so all ancestors are looked up
//! together: first every bucket is prefetched, then every candidate record, and then they are
//! compared from the top down: a record matches if its name does and it lies within the node above
//! it, one level deeper. So no match relies on a hash alone.

use smallvec::SmallVec;

use super::{Index, IndexError, Node};
use crate::format::table::{
    self, BUCKET_SIZE, Bucket, DIRECTORY_SIZE, ROOT_HASH, bucket, candidates, hash_child, is_full,
    is_sound, partition,
};
use crate::map::prefetch;

/// A component of the prefix, and the hash of the prefix that ends with it.
struct Level<'p> {
    name: &'p [u8],
    hash: u64,
    /// The first bucket for it: its index in the table.
    at: usize,
}

impl Index {
    /// The node of a prefix: empty, or ending in the delimiter. `None` if it does not exist.
    ///
    /// # Errors
    /// A part of the path is damaged, so the answer is unknown.
    pub fn get(&self, prefix: &[u8]) -> Result<Option<Node<'_>>, IndexError> {
        let root = self.root()?;
        if prefix.is_empty() {
            return Ok(Some(root));
        }
        let Some((&last, components)) = prefix.split_last() else { return Ok(Some(root)) };
        if last != self.delimiter {
            return Ok(None);
        }
        let mut levels = SmallVec::<[Level<'_>; 16]>::new();
        let mut hash = ROOT_HASH;
        for name in components.split(|&byte| byte == self.delimiter) {
            hash = hash_child(hash, name);
            let at = self.bucket_place(hash);
            prefetch(&self.table, at);
            levels.push(Level { name, hash, at });
        }
        for level in &levels {
            if let Some(bucket) = self.bucket(level.at) {
                for end in candidates(bucket, level.hash) {
                    self.prefetch_record(end);
                }
            }
        }
        let mut node = root;
        for level in &levels {
            match self.child_by_hash(&node, level)? {
                Some(child) => node = child,
                None => return Ok(None),
            }
        }
        Ok(Some(node))
    }

    /// Prefetches the record that ends at `end`, which is read backwards from there.
    #[inline]
    fn prefetch_record(&self, end: u64) {
        let Ok(end) = usize::try_from(end) else { return };
        prefetch(&self.nodes, end.wrapping_sub(1));
        prefetch(&self.nodes, end.wrapping_sub(1 + 64));
    }

    /// Offset in the table of the first bucket for a hash.
    #[inline]
    fn bucket_place(&self, hash: u64) -> usize {
        let partition = partition(hash);
        let [first, end] = [self.partitions[partition], self.partitions[partition + 1]];
        let bucket = first + bucket(hash, end - first);
        usize::try_from(bucket).unwrap_or(usize::MAX / BUCKET_SIZE / 2) * BUCKET_SIZE
            + DIRECTORY_SIZE
    }

    #[inline]
    fn bucket(&self, at: usize) -> Option<&Bucket> {
        self.table.get(at..)?.first_chunk::<BUCKET_SIZE>()
    }

    /// The child with a name.
    #[inline]
    fn child_by_hash<'a>(
        &'a self,
        parent: &Node<'a>,
        level: &Level<'_>,
    ) -> Result<Option<Node<'a>>, IndexError> {
        let mut at = level.at;
        let mut looked_at = SmallVec::<[usize; 4]>::new();
        loop {
            let Some(bucket) = self.bucket(at) else {
                return Err(self.damaged("table", at as u64, "it ends before this bucket"));
            };
            for end in candidates(bucket, level.hash) {
                match self.node(end) {
                    Ok(node) if node.record.name == level.name && parent.is_parent_of(&node) => {
                        return Ok(Some(node));
                    }
                    Ok(_) => {}
                    Err(error) => {
                        // The positions in a damaged bucket are invalid; its own error is the
                        // better message.
                        self.check_bucket(at)?;
                        return Err(error);
                    }
                }
            }
            looked_at.push(at);
            match self.next_bucket(level.hash, at) {
                Some(next) if is_full(bucket) && next != level.at => at = next,
                _ => break,
            }
        }
        // It does not exist, unless one of the buckets is damaged.
        looked_at.into_iter().try_for_each(|at| self.check_bucket(at))?;
        Ok(None)
    }

    fn check_bucket(&self, at: usize) -> Result<(), IndexError> {
        match self.bucket(at) {
            Some(bucket) if is_sound(bucket) => Ok(()),
            _ => Err(self.damaged("table", at as u64, "the bucket is damaged")),
        }
    }

    /// The next bucket in the same partition.
    fn next_bucket(&self, hash: u64, at: usize) -> Option<usize> {
        let partition = table::partition(hash);
        let [first, end] = [self.partitions[partition], self.partitions[partition + 1]];
        let number = (at.checked_sub(DIRECTORY_SIZE)? / BUCKET_SIZE) as u64;
        let next = if number + 1 < end { number + 1 } else { first };
        Some(usize::try_from(next).ok()? * BUCKET_SIZE + DIRECTORY_SIZE)
    }

    /// Whether the table contains a node under the hash of its prefix.
    pub(super) fn table_has(&self, hash: u64, end: u64) -> bool {
        let first = self.bucket_place(hash);
        let mut at = first;
        loop {
            let Some(bucket) = self.bucket(at) else { return false };
            if candidates(bucket, hash).any(|found| found == end) {
                return true;
            }
            match self.next_bucket(hash, at) {
                Some(next) if is_full(bucket) && next != first => at = next,
                _ => return false,
            }
        }
    }
}
