//! What changed between two indexes, prefix by prefix.
//!
//! Both are walked in parallel, in the order of names. The most changed prefixes are kept.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;

use serde::Serialize;

use crate::format::histogram::Amount;
use crate::index::{Index, IndexError, Node};

/// The ranking of changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Rank {
    /// The largest change of bytes, up or down.
    #[default]
    Change,
    /// What grew most.
    Growth,
    /// What shrank most.
    Shrinkage,
}

/// Options of a comparison.
#[derive(Debug, Clone, Default)]
pub struct DiffOptions {
    /// The ranking of changes.
    pub rank: Rank,
    /// Maximum number of results.
    pub top: usize,
    /// Only prefixes with exactly this many components.
    pub depth: Option<u64>,
}

/// The kind of a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "lowercase")]
#[schema(as = InventoryChangeStatus)]
pub enum Status {
    /// Only the new index has it.
    Added,
    /// Only the old index has it.
    Removed,
    /// Both have it, with different figures.
    Changed,
}

/// A prefix that changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// The name of the prefix.
    pub prefix: Vec<u8>,
    /// The kind of change.
    pub status: Status,
    /// Its old figures.
    pub old: Amount,
    /// Its new figures.
    pub new: Amount,
}

impl Change {
    /// Difference in bytes.
    #[must_use]
    pub fn bytes(&self) -> i128 {
        i128::from(self.new.bytes) - i128::from(self.old.bytes)
    }

    /// Difference in objects.
    #[must_use]
    pub fn objects(&self) -> i128 {
        i128::from(self.new.objects) - i128::from(self.old.objects)
    }

    /// Its rank; of equals the first name is ahead.
    fn key(&self, rank: Rank) -> (i128, i128, Reverse<&[u8]>) {
        let sign = |change: i128| match rank {
            Rank::Change => change.abs(),
            Rank::Growth => change,
            Rank::Shrinkage => -change,
        };
        (sign(self.bytes()), sign(self.objects()), Reverse(&self.prefix))
    }
}

/// The prefixes that changed most from `old` to `new`, the most changed first.
///
/// # Errors
/// One of the indexes is damaged.
pub fn diff(old: &Index, new: &Index, options: &DiffOptions) -> Result<Vec<Change>, IndexError> {
    let mut walk = Walk { options, kept: BinaryHeap::new(), delimiter: new.delimiter() };
    let mut open = vec![(Vec::new(), Some(old.root()?), Some(new.root()?))];
    while let Some((prefix, old, new)) = open.pop() {
        let node = new.or(old);
        let depth = node.map_or(0, |node| node.depth());
        walk.keep(&prefix, depth, old.as_ref(), new.as_ref())?;
        if options.depth.is_none_or(|wanted| depth < wanted) {
            walk.pair(&prefix, old.as_ref(), new.as_ref(), &mut open)?;
        }
    }
    let mut changes: Vec<Change> = walk.kept.into_iter().map(|Reverse(kept)| kept.change).collect();
    changes.sort_unstable_by(|a, b| b.key(options.rank).cmp(&a.key(options.rank)));
    Ok(changes)
}

/// A prefix to compare, in one index or both.
type Pair<'a> = (Vec<u8>, Option<Node<'a>>, Option<Node<'a>>);

struct Walk<'q> {
    options: &'q DiffOptions,
    /// The least changed of the kept ones is on top.
    kept: BinaryHeap<Reverse<Kept>>,
    delimiter: u8,
}

#[derive(Debug)]
struct Kept {
    change: Change,
    rank: Rank,
}

impl PartialEq for Kept {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Kept {}

impl PartialOrd for Kept {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Kept {
    fn cmp(&self, other: &Self) -> Ordering {
        self.change.key(self.rank).cmp(&other.change.key(other.rank))
    }
}

impl Walk<'_> {
    /// Keeps a prefix if it changed more than the least of those kept.
    fn keep(
        &mut self,
        prefix: &[u8],
        depth: u64,
        old: Option<&Node<'_>>,
        new: Option<&Node<'_>>,
    ) -> Result<(), IndexError> {
        let total = |node: Option<&Node<'_>>| node.map_or(Ok(Amount::default()), Node::total);
        let (before, after) = (total(old)?, total(new)?);
        let status = match (old, new) {
            (None, _) => Status::Added,
            (_, None) => Status::Removed,
            _ if before == after => return Ok(()),
            _ => Status::Changed,
        };
        if self.options.depth.is_some_and(|wanted| wanted != depth) {
            return Ok(());
        }
        let rank = self.options.rank;
        let change = Change { prefix: Vec::new(), status, old: before, new: after };
        let wrong_way = match rank {
            Rank::Change => false,
            Rank::Growth => (change.bytes(), change.objects()) <= (0, 0),
            Rank::Shrinkage => (change.bytes(), change.objects()) >= (0, 0),
        };
        if wrong_way || self.options.top == 0 {
            return Ok(());
        }
        let kept = Kept { change: Change { prefix: prefix.to_vec(), ..change }, rank };
        if self.kept.len() < self.options.top {
            self.kept.push(Reverse(kept));
        } else if self.kept.peek().is_some_and(|Reverse(least)| kept > *least) {
            self.kept.pop();
            self.kept.push(Reverse(kept));
        }
        Ok(())
    }

    /// Pushes the children of both, matched by name, for comparison.
    fn pair<'a>(
        &self,
        prefix: &[u8],
        old: Option<&Node<'a>>,
        new: Option<&Node<'a>>,
        open: &mut Vec<Pair<'a>>,
    ) -> Result<(), IndexError> {
        let mut olds = old.into_iter().flat_map(|node| node.children()).peekable();
        let mut news = new.into_iter().flat_map(|node| node.children()).peekable();
        loop {
            // Both are read from the last name to the first.
            let order = match (olds.peek(), news.peek()) {
                (None, None) => return Ok(()),
                (Some(_), None) => Ordering::Greater,
                (None, Some(_)) => Ordering::Less,
                (Some(Ok(old)), Some(Ok(new))) => self.order(old.name(), new.name()),
                (Some(Err(_)), _) => Ordering::Greater,
                (_, Some(Err(_))) => Ordering::Less,
            };
            let old = if order.is_ge() { olds.next().transpose()? } else { None };
            let new = if order.is_le() { news.next().transpose()? } else { None };
            let name = new.or(old).map_or(&[][..], |node| node.name());
            open.push(([prefix, name, &[self.delimiter]].concat(), old, new));
        }
    }

    /// Compares two names like the prefixes that end in them.
    fn order(&self, a: &[u8], b: &[u8]) -> Ordering {
        let end = [self.delimiter];
        a.iter().chain(&end).cmp(b.iter().chain(&end))
    }
}
