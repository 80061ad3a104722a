//! Roots of earlier sizes, proofs, and tiles, computed from a tree and leaf hashes read from the
//! store.
//!
//! Every request for leaf hashes is for one tile. The hashes of a complete tile are requested
//! together and compared with its root, so a changed leaf is detected here and not when the proof
//! is verified.

use std::fmt::{self, Debug, Display};

use super::tree::{TILE_HEIGHT, TILE_WIDTH, range_root, subtree_root};
use super::{Hash, Tree, empty_root, node_hash};

/// A source of leaf hashes.
pub trait LeafHashes {
    /// Why they cannot be read.
    type Error;

    /// Returns the hashes of `count` leaves from index `first`; all belong to one tile.
    ///
    /// # Errors
    /// If one of them cannot be read.
    fn leaf_hashes(&self, first: u64, count: usize) -> Result<Vec<Hash>, Self::Error>;
}

impl<E, F: Fn(u64, usize) -> Result<Vec<Hash>, E>> LeafHashes for F {
    type Error = E;

    fn leaf_hashes(&self, first: u64, count: usize) -> Result<Vec<Hash>, E> {
        self(first, count)
    }
}

/// Why a root, a proof or a tile cannot be computed.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum PathError<E> {
    /// The tree has fewer leaves.
    Beyond {
        /// Requested number of leaves.
        asked: u64,
        /// Actual number of leaves.
        size: u64,
    },
    /// The leaf's index is not below the size of the tree for the proof.
    Index {
        /// The leaf's index.
        index: u64,
        /// The size.
        size: u64,
    },
    /// The earlier size is greater than the later one.
    Order {
        /// The earlier size.
        first: u64,
        /// The later size.
        second: u64,
    },
    /// A tile has 1 to 256 hashes, and levels are numbered 0 to 63.
    NoTile {
        /// The requested level.
        level: u32,
        /// The requested width.
        width: usize,
    },
    /// The leaves of a tile cannot be read.
    Leaves {
        /// Index of the first of them.
        first: u64,
        /// Why.
        source: E,
    },
    /// The source returned a wrong number of leaf hashes.
    Count {
        /// Index of the first of them.
        first: u64,
        /// Requested number.
        expected: usize,
        /// Returned number.
        found: usize,
    },
    /// The leaves of a tile do not match its root.
    Changed {
        /// Index of the tile's first leaf.
        first: u64,
        /// The stored root of the tile.
        expected: Hash,
        /// The root of its current leaves.
        found: Hash,
    },
}

impl<E> Display for PathError<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Beyond { asked, size } => {
                write!(f, "a tree of {asked} leaves was requested, but there are {size}")
            }
            Self::Index { index, size } => {
                write!(f, "leaf {index} is beyond the end of a tree of {size} leaves")
            }
            Self::Order { first, second } => {
                write!(f, "the earlier size {first} is greater than the later size {second}")
            }
            Self::NoTile { level, width } => {
                write!(f, "there is no tile of {width} hashes at level {level}")
            }
            Self::Leaves { first, .. } => {
                write!(f, "cannot get the leaf hashes of the tile at leaf {first}")
            }
            Self::Count { first, expected, found } => {
                write!(f, "the tile at leaf {first} has {found} leaf hashes, expected {expected}")
            }
            Self::Changed { first, expected, found } => write!(
                f,
                "the tile at leaf {first} was stored with root {expected}, but its leaves give {found}"
            ),
        }
    }
}

impl<E: std::error::Error + 'static> std::error::Error for PathError<E> {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Leaves { source, .. } => Some(source),
            _ => None,
        }
    }
}

impl Tree {
    /// Returns the root of the tree when it had `size` leaves.
    ///
    /// # Errors
    /// [`PathError`]; `source` is used only for a size that ends within a complete tile.
    pub fn root_at<S: LeafHashes>(
        &self,
        size: u64,
        source: &S,
    ) -> Result<Hash, PathError<S::Error>> {
        let mut view = View::new(self, size, source)?;
        if size == 0 { Ok(empty_root()) } else { view.root(0, size) }
    }

    /// The audit path of leaf `index` in the tree of `size` leaves (RFC 9162, section 2.1.3.1).
    ///
    /// # Errors
    /// [`PathError`].
    pub fn inclusion_path<S: LeafHashes>(
        &self,
        index: u64,
        size: u64,
        source: &S,
    ) -> Result<Vec<Hash>, PathError<S::Error>> {
        if index >= size {
            return Err(PathError::Index { index, size });
        }
        let mut view = View::new(self, size, source)?;
        let mut path = Vec::new();
        let (mut start, mut end) = (0, size);
        while end - start > 1 {
            let middle = start + split(end - start);
            if index < middle {
                path.push(view.root(middle, end)?);
                end = middle;
            } else {
                path.push(view.root(start, middle)?);
                start = middle;
            }
        }
        path.reverse();
        Ok(path)
    }

    /// The proof that the tree of `second` leaves begins with that of `first` (RFC 9162, section
    /// 2.1.4.1); empty when `first` is 0 or `second`.
    ///
    /// # Errors
    /// [`PathError`].
    pub fn consistency_path<S: LeafHashes>(
        &self,
        first: u64,
        second: u64,
        source: &S,
    ) -> Result<Vec<Hash>, PathError<S::Error>> {
        if first > second {
            return Err(PathError::Order { first, second });
        }
        let mut view = View::new(self, second, source)?;
        let mut path = Vec::new();
        if first == 0 || first == second {
            return Ok(path);
        }
        // Down to the subtree with which the earlier tree ends.
        let (mut start, mut end) = (0, second);
        while end != first {
            let middle = start + split(end - start);
            if first <= middle {
                path.push(view.root(middle, end)?);
                end = middle;
            } else {
                path.push(view.root(start, middle)?);
                start = middle;
            }
        }
        // That subtree itself, unless it is the whole earlier tree.
        if start != 0 {
            path.push(view.root(start, end)?);
        }
        path.reverse();
        Ok(path)
    }

    /// The first `width` hashes of a tile as C2SP tlog-tiles numbers them.
    ///
    /// * `level`: 0 for leaf hashes, which may be read from `source`; hash `i` of tile `index` at
    ///   level `l` is the root of the `256^l` leaves from `(index * 256 + i) * 256^l`.
    ///
    /// # Errors
    /// [`PathError::Beyond`] if the tree does not have all of them yet.
    pub fn tile<S: LeafHashes>(
        &self,
        level: u32,
        index: u64,
        width: usize,
        source: &S,
    ) -> Result<Vec<Hash>, PathError<S::Error>> {
        if level > 63 || width == 0 || width > TILE_WIDTH {
            return Err(PathError::NoTile { level, width });
        }
        let first = index.saturating_mul(TILE_WIDTH as u64);
        let Some(above) = (level as usize).checked_sub(1) else {
            let size = first.saturating_add(width as u64);
            let mut view = View::new(self, size, source)?;
            return view.leaves(first, size).map(<[Hash]>::to_vec);
        };
        let roots = self.levels.get(above).map_or(&[][..], Vec::as_slice);
        let found = usize::try_from(first).ok().and_then(|first| {
            roots.get(first..first.checked_add(width)?) //
        });
        found.map(<[Hash]>::to_vec).ok_or_else(|| {
            let leaves = first.saturating_add(width as u64).checked_shl(TILE_HEIGHT * level);
            PathError::Beyond { asked: leaves.unwrap_or(u64::MAX), size: self.size() }
        })
    }
}

/// Number of leaves in the left part of a tree of `size` leaves, at least 2: the greatest smaller
/// power of two.
fn split(size: u64) -> u64 {
    1 << (size - 1).ilog2()
}

/// A tree at an earlier size, with the leaf hashes fetched so far.
struct View<'a, S> {
    tree: &'a Tree,
    size: u64,
    source: &'a S,
    /// Fetched tiles, each with the index of its first leaf: a proof needs at most two.
    fetched: Vec<(u64, Vec<Hash>)>,
}

impl<'a, S: LeafHashes> View<'a, S> {
    fn new(tree: &'a Tree, size: u64, source: &'a S) -> Result<Self, PathError<S::Error>> {
        if size > tree.size() {
            return Err(PathError::Beyond { asked: size, size: tree.size() });
        }
        Ok(Self { tree, size, source, fetched: Vec::new() })
    }

    /// The root over the leaves from `start` up to `end`, at least one: a node of the tree.
    fn root(&mut self, start: u64, end: u64) -> Result<Hash, PathError<S::Error>> {
        let count = end - start;
        if count > 1 && !count.is_power_of_two() {
            let middle = start + split(count);
            // The tiles of a range are complete except for the last, which one request fetches.
            if count > TILE_WIDTH as u64 {
                let left = self.root(start, middle)?;
                return Ok(node_hash(&left, &self.root(middle, end)?));
            }
        } else if let Some(roots) = self.roots_above(start, count) {
            return Ok(subtree_root(roots));
        }
        let leaves = self.leaves(start, end)?;
        Ok(range_root(leaves).unwrap_or_else(empty_root))
    }

    /// The stored roots that form a complete subtree; `None` for one smaller than a tile.
    fn roots_above(&self, start: u64, count: u64) -> Option<&'a [Hash]> {
        let height = count.trailing_zeros();
        let level = (height / TILE_HEIGHT).checked_sub(1)?;
        let shift = TILE_HEIGHT * (level + 1);
        let first = usize::try_from(start >> shift).ok()?;
        let width = 1 << (height - shift);
        self.tree.levels.get(level as usize)?.get(first..first.checked_add(width)?)
    }

    /// Leaf hashes from `start` up to `end`, all of one tile.
    fn leaves(&mut self, start: u64, end: u64) -> Result<&[Hash], PathError<S::Error>> {
        let first = start - start % TILE_WIDTH as u64;
        let tile = first / TILE_WIDTH as u64;
        let hashes = if tile >= self.tree.tiles() {
            &self.tree.edge
        } else {
            let known = self.fetched.iter().position(|(at, _)| *at == first);
            let known = match known {
                Some(known) => known,
                None => {
                    self.fetched.push((first, self.fetch(first, tile)?));
                    self.fetched.len() - 1
                }
            };
            &self.fetched[known].1
        };
        let size = self.size;
        let within = within(start, first)..within(end, first);
        hashes.get(within).ok_or(PathError::Beyond { asked: end, size })
    }

    /// The leaf hashes of a complete tile, compared with its root.
    fn fetch(&self, first: u64, tile: u64) -> Result<Vec<Hash>, PathError<S::Error>> {
        let hashes = self
            .source
            .leaf_hashes(first, TILE_WIDTH)
            .map_err(|source| PathError::Leaves { first, source })?;
        if hashes.len() != TILE_WIDTH {
            let found = hashes.len();
            return Err(PathError::Count { first, expected: TILE_WIDTH, found });
        }
        let found = subtree_root(&hashes);
        let root = usize::try_from(tile).ok().and_then(|tile| self.tree.tile_roots().get(tile));
        match root {
            Some(&expected) if expected != found => {
                Err(PathError::Changed { first, expected, found })
            }
            _ => Ok(hashes),
        }
    }
}

/// The index of a leaf in its tile, at most 256 for the end of a range.
fn within(leaf: u64, first: u64) -> usize {
    usize::try_from(leaf - first).unwrap_or(usize::MAX)
}
