//! A filter of possibly stored items: answers "certainly new" without a query of the catalogue.
//!
//! Names and digests are kept in a growing stack of Bloom filters. A new layer of twice the size is
//! started when the newest is full, so the share of false positives stays near one in a hundred for
//! each layer, and there are at most about thirty layers whatever the number of items.
//!
//! Invariant: an item that was inserted is never reported as new. Deleted items stay in; they only
//! cost a lookup.

use std::hash::Hash;

use fastbloom::BloomFilter;

use crate::digest::Digest;
use crate::names::{FileName, Namespace};

const FALSE_POSITIVE: f64 = 0.01;
const FIRST_LAYER: usize = 1 << 18;

/// The filter. Not synchronised: the lock that orders appends protects it.
#[derive(Debug)]
pub struct Known {
    layers: Vec<Layer>,
}

#[derive(Debug)]
struct Layer {
    filter: BloomFilter,
    items: usize,
    items_max: usize,
}

impl Known {
    /// A filter with room for `items` before it grows.
    #[must_use]
    pub fn with_room_for(items: usize) -> Self {
        Self { layers: vec![Layer::new(items.max(FIRST_LAYER))] }
    }

    /// Inserts a name.
    pub fn insert_name(&mut self, namespace: &Namespace, name: &FileName) {
        self.insert_pair(namespace.as_str(), name.as_str());
    }

    /// Inserts a namespace and a name.
    pub fn insert_pair(&mut self, namespace: &str, name: &str) {
        self.insert(&(namespace, name));
    }

    /// Inserts a blob's digest.
    pub fn insert_digest(&mut self, digest: Digest) {
        self.insert(&digest.0);
    }

    /// Whether the name may have been inserted; `false` is certain.
    #[must_use]
    pub fn may_have_name(&self, namespace: &Namespace, name: &FileName) -> bool {
        self.may_have(&(namespace.as_str(), name.as_str()))
    }

    /// Whether the digest may have been inserted; `false` is certain.
    #[must_use]
    pub fn may_have_digest(&self, digest: Digest) -> bool {
        self.may_have(&digest.0)
    }

    fn insert(&mut self, item: &impl Hash) {
        if self.layers.last().is_none_or(|layer| layer.items >= layer.items_max) {
            let size = self.layers.last().map_or(FIRST_LAYER, |layer| layer.items_max * 2);
            self.layers.push(Layer::new(size));
        }
        if let Some(layer) = self.layers.last_mut() {
            layer.filter.insert(item);
            layer.items += 1;
        }
    }

    fn may_have(&self, item: &impl Hash) -> bool {
        self.layers.iter().any(|layer| layer.filter.contains(item))
    }
}

impl Layer {
    fn new(items_max: usize) -> Self {
        let filter = BloomFilter::with_false_pos(FALSE_POSITIVE).expected_items(items_max);
        Self { filter, items: 0, items_max }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_inserted_is_known_across_layers_and_little_else_is() {
        let mut known = Known { layers: vec![Layer::new(64)] };
        let digest = |n: u64| Digest::of(&n.to_le_bytes());
        for n in 0..5_000 {
            known.insert_digest(digest(n));
        }
        assert!(known.layers.len() > 3);
        assert!((0..5_000).all(|n| known.may_have_digest(digest(n))));
        let wrong = (10_000..20_000).filter(|&n| known.may_have_digest(digest(n))).count();
        assert!(wrong < 1_500, "{wrong} of 10000 falsely known");
    }
}
