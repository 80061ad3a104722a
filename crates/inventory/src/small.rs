//! Where the small objects are.

use serde::Serialize;

use crate::format::cells;
use crate::format::histogram::Amount;
use crate::index::{Found, IndexError, Node};

/// What a prefix has of small objects.
#[derive(Debug, Clone)]
pub struct SmallFiles<'a> {
    /// The prefix.
    pub found: Found<'a>,
    /// The small ones, noncurrent versions included.
    pub small: Small,
}

/// Small objects, and all of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct Small {
    /// Those smaller than was asked.
    pub small: Amount,
    /// All.
    pub all: Amount,
}

/// Why small objects cannot be counted.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SmallError {
    /// The index.
    #[error(transparent)]
    Index(#[from] IndexError),
    /// The index has no histograms.
    #[error("the index was built without histograms, by which sizes are known; build it with them")]
    NoHistograms,
    /// Sizes are counted between powers of two.
    #[error("objects are counted between powers of two; ask for those under {} or {} bytes", .0.0, .0.1)]
    Between((u64, u64)),
}

/// The objects of a prefix that are smaller than `under` bytes, a power of two.
///
/// # Errors
/// When `under` is none, the index has no histograms, or is damaged.
pub fn small(node: &Node<'_>, under: u64) -> Result<Small, SmallError> {
    if !under.is_power_of_two() {
        let above = under.checked_next_power_of_two().unwrap_or(1 << 63);
        return Err(SmallError::Between(((above / 2).max(1), above)));
    }
    let stats = node.stats()?;
    let (classes, _) = node.histograms(&stats)?.ok_or(SmallError::NoHistograms)?;
    let mut found = Small::default();
    for (cell, amount) in classes.iter().flat_map(|class| class.sizes.iter().flat_map(|s| s.iter()))
    {
        found.all.add(amount);
        if cells::ceiling(cell) <= under {
            found.small.add(amount);
        }
    }
    Ok(found)
}

/// The `count` prefixes at or below one, at most `depth` components deeper, with the most objects
/// smaller than `under` bytes, the most first.
///
/// # Errors
/// As [`small`].
pub fn most_small<'a>(
    node: &Node<'a>,
    prefix: &[u8],
    under: u64,
    count: usize,
    depth: Option<u64>,
) -> Result<Vec<SmallFiles<'a>>, SmallError> {
    let mut most: Vec<SmallFiles<'a>> = Vec::new();
    if count == 0 {
        return Ok(most);
    }
    let mut below = node.below(prefix, depth, 0, 0);
    while let Some(found) = below.next().transpose()? {
        let here = small(&found.node, under)?;
        let is_full = most.len() >= count;
        let least = most.last().filter(|_| is_full).map_or(0, |last| last.small.small.objects);
        if here.small.objects <= least {
            // Nothing below a prefix has more of them than it has.
            below.pass_over();
            continue;
        }
        let at = most.partition_point(|other| other.small.small.objects >= here.small.objects);
        most.insert(at, SmallFiles { found, small: here });
        most.truncate(count);
    }
    Ok(most)
}
