//! The growing tree: leaf hashes in, roots out.
//!
//! Kept in memory: the root of every complete tile (256 leaves), of every complete tile of those
//! (so at heights 8, 16, 24 and so on: 32 bytes for each 256 leaves, plus a 255th of that), and the
//! leaf hashes after the last complete tile. Everything else is computed from these on request.
//!
//! Invariants:
//! - `levels[n]` has the root of every complete subtree of `256^(n+1)` leaves, in order.
//! - `edge` has fewer than 256 leaf hashes: those of the leaves that no complete tile covers.

use super::{Hash, empty_root, node_hash, node_hashes};

/// Leaves of a tile.
pub const TILE_WIDTH: usize = 256;
/// Levels of nodes a tile spans.
pub const TILE_HEIGHT: u32 = 8;

/// Maximum number of lowest-level nodes that are processed together: those of sixteen tiles, 64
/// KiB.
const ROW_MAX: usize = 16 * TILE_WIDTH / 2;

/// An append-only Merkle tree.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Tree {
    pub(super) levels: Vec<Vec<Hash>>,
    pub(super) edge: Vec<Hash>,
}

/// Parts that do not form a tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{edge} leaf hashes follow the last complete tile; a tile has {TILE_WIDTH}")]
pub struct PartsError {
    /// Number of leaf hashes given.
    pub edge: usize,
}

impl Tree {
    /// A tree without leaves.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Restores a tree.
    ///
    /// * `tile_roots`: from [`Tree::tile_roots`].
    /// * `edge`: from [`Tree::edge`].
    ///
    /// # Errors
    /// If `edge` has enough hashes for a tile.
    pub fn from_parts(tile_roots: Vec<Hash>, edge: Vec<Hash>) -> Result<Self, PartsError> {
        if edge.len() >= TILE_WIDTH {
            return Err(PartsError { edge: edge.len() });
        }
        let mut levels = Vec::new();
        let mut roots = tile_roots;
        while !roots.is_empty() {
            let above = roots.chunks_exact(TILE_WIDTH).map(subtree_root).collect();
            levels.push(std::mem::replace(&mut roots, above));
        }
        Ok(Self { levels, edge })
    }

    /// Adds leaves, by their hashes, in order.
    pub fn push(&mut self, leaves: &[Hash]) {
        let mut rest = leaves;
        let mut row = Vec::new();
        if !self.edge.is_empty() {
            let missing = TILE_WIDTH - self.edge.len();
            let (first, after) = rest.split_at(missing.min(rest.len()));
            self.edge.extend_from_slice(first);
            rest = after;
            if self.edge.len() < TILE_WIDTH {
                return;
            }
            node_hashes(&self.edge, &mut row);
            self.edge.clear();
        }
        let (tiles, rest) = rest.as_chunks::<TILE_WIDTH>();
        for tile in tiles {
            node_hashes(tile, &mut row);
            if row.len() >= ROW_MAX {
                self.push_tiles(&mut row);
            }
        }
        self.push_tiles(&mut row);
        self.edge.extend_from_slice(rest);
    }

    /// Adds complete tiles by the nodes just above their leaves, and consumes these. Tiles are
    /// processed together level by level, so that their few nodes near the top are hashed at once.
    fn push_tiles(&mut self, row: &mut Vec<Hash>) {
        let mut above = Vec::with_capacity(row.len() / 2);
        for _ in 1..TILE_HEIGHT {
            node_hashes(row, &mut above);
            std::mem::swap(row, &mut above);
            above.clear();
        }
        for root in row.drain(..) {
            self.push_root(root);
        }
    }

    /// Adds the root of a complete tile, and of the larger subtrees it completes.
    fn push_root(&mut self, root: Hash) {
        let mut root = root;
        for level in 0.. {
            if level == self.levels.len() {
                self.levels.push(Vec::new());
            }
            let Some(roots) = self.levels.get_mut(level) else { return };
            roots.push(root);
            if roots.len() % TILE_WIDTH != 0 {
                return;
            }
            root = subtree_root(&roots[roots.len() - TILE_WIDTH..]);
        }
    }

    /// Number of leaves.
    #[must_use]
    pub fn size(&self) -> u64 {
        self.tiles() * TILE_WIDTH as u64 + self.edge.len() as u64
    }

    /// Its root.
    #[must_use]
    pub fn root(&self) -> Hash {
        // From the right: first the leaves at the edge, then, level by level, the roots that no
        // larger subtree covers.
        let mut right = range_root(&self.edge);
        for roots in &self.levels {
            let whole = roots.len() - roots.len() % TILE_WIDTH;
            right = join_left(&roots[whole..], right);
        }
        right.unwrap_or_else(empty_root)
    }

    /// Number of complete tiles.
    pub(super) fn tiles(&self) -> u64 {
        self.tile_roots().len() as u64
    }

    /// The root of each complete tile, in order.
    #[must_use]
    pub fn tile_roots(&self) -> &[Hash] {
        self.levels.first().map_or(&[], Vec::as_slice)
    }

    /// The hashes of the leaves after the last complete tile, in order.
    #[must_use]
    pub fn edge(&self) -> &[Hash] {
        &self.edge
    }
}

/// The root over `hashes` as leaves, a power of two of them, at most a tile.
pub(crate) fn subtree_root(hashes: &[Hash]) -> Hash {
    debug_assert!(hashes.len().is_power_of_two(), "a complete subtree");
    let mut row = Vec::with_capacity(hashes.len() / 2);
    let mut above = Vec::with_capacity(hashes.len() / 4);
    let mut at = hashes;
    while at.len() > 1 {
        above.clear();
        node_hashes(at, &mut above);
        std::mem::swap(&mut row, &mut above);
        at = &row;
    }
    at.first().copied().unwrap_or_default()
}

/// The root over `hashes` as leaves, any number of them; `None` if there are none.
pub(super) fn range_root(hashes: &[Hash]) -> Option<Hash> {
    join_left(hashes, None)
}

/// The root over `hashes` as leaves, followed by `right`.
fn join_left(hashes: &[Hash], right: Option<Hash>) -> Option<Hash> {
    let mut right = right;
    let mut rest = hashes;
    // The complete subtrees of a range grow to the left, as the bits of its length say.
    while !rest.is_empty() {
        let width = 1 << rest.len().trailing_zeros();
        let (before, last) = rest.split_at(rest.len() - width);
        let root = subtree_root(last);
        right = Some(right.map_or(root, |right| node_hash(&root, &right)));
        rest = before;
    }
    right
}
