//! Finding small objects.

use serde::Serialize;

use crate::format::cells;
use crate::format::histogram::Amount;
use crate::index::{FoundPrefix, IndexError, Node};

/// The small objects of a prefix.
#[derive(Debug, Clone)]
pub struct SmallFiles<'a> {
    /// The name of the prefix.
    pub found: FoundPrefix<'a>,
    /// The small ones, including noncurrent versions.
    pub small: Small,
}

/// Small objects, and all objects.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct Small {
    /// Objects smaller than the limit.
    pub small: Amount,
    /// All objects.
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
    #[error("the index has no histograms, so sizes are unknown; build it with histograms")]
    NoHistograms,
    /// The limit is not a power of two.
    #[error("sizes are counted between powers of two; use {} or {} bytes as the limit", .0.0, .0.1)]
    Between((u64, u64)),
}

/// The objects of a prefix that are smaller than `under` bytes, a power of two.
///
/// # Errors
/// `under` is not a power of two, the index has no histograms, or it is damaged.
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
/// smaller than `under` bytes, in descending order.
///
/// # Errors
/// As for [`small`].
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
            // No prefix below has more of them than this one.
            below.pass_over();
            continue;
        }
        let at = most.partition_point(|other| other.small.small.objects >= here.small.objects);
        most.insert(at, SmallFiles { found, small: here });
        most.truncate(count);
    }
    Ok(most)
}
