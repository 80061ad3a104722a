//! What changed between two indexes, prefix by prefix.
//!
//! Both are walked side by side, in the order of names; of the prefixes that changed the ones that
//! changed most are kept.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;

use serde::Serialize;

use crate::format::histogram::Amount;
use crate::index::{Index, IndexError, Node};

/// By what changes are ranked.
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

/// What is asked of a comparison.
#[derive(Debug, Clone, Default)]
pub struct Question {
    /// By what changes are ranked.
    pub rank: Rank,
    /// How many are wanted.
    pub top: usize,
    /// Only prefixes so many components deep.
    pub depth: Option<u64>,
}

/// What happened to a prefix.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Status {
    /// It is in the new index alone.
    Added,
    /// It is in the old index alone.
    Removed,
    /// It is in both, with other numbers.
    Changed,
}

/// A prefix that changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// The prefix.
    pub prefix: Vec<u8>,
    /// What happened to it.
    pub status: Status,
    /// What it had.
    pub old: Amount,
    /// What it has.
    pub new: Amount,
}

impl Change {
    /// Bytes more, or less.
    #[must_use]
    pub fn bytes(&self) -> i128 {
        i128::from(self.new.bytes) - i128::from(self.old.bytes)
    }

    /// Objects more, or less.
    #[must_use]
    pub fn objects(&self) -> i128 {
        i128::from(self.new.objects) - i128::from(self.old.objects)
    }

    /// How far in front it is, and, of equals, that with the first name.
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
/// When one of the indexes is damaged.
pub fn diff(old: &Index, new: &Index, question: &Question) -> Result<Vec<Change>, IndexError> {
    let mut walk = Walk { question, kept: BinaryHeap::new(), delimiter: new.delimiter() };
    let mut open = vec![(Vec::new(), Some(old.root()?), Some(new.root()?))];
    while let Some((prefix, old, new)) = open.pop() {
        let node = new.or(old);
        let depth = node.map_or(0, |node| node.depth());
        walk.keep(&prefix, depth, old.as_ref(), new.as_ref())?;
        if question.depth.is_none_or(|wanted| depth < wanted) {
            walk.pair(&prefix, old.as_ref(), new.as_ref(), &mut open)?;
        }
    }
    let mut changes: Vec<Change> = walk.kept.into_iter().map(|Reverse(kept)| kept.change).collect();
    changes.sort_unstable_by(|a, b| b.key(question.rank).cmp(&a.key(question.rank)));
    Ok(changes)
}

/// A prefix to be compared, in one or both.
type Pair<'a> = (Vec<u8>, Option<Node<'a>>, Option<Node<'a>>);

struct Walk<'q> {
    question: &'q Question,
    /// The least changed of those kept on top.
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
    /// Keeps a prefix if it changed, and more than the least of those kept.
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
        if self.question.depth.is_some_and(|wanted| wanted != depth) {
            return Ok(());
        }
        let rank = self.question.rank;
        let change = Change { prefix: Vec::new(), status, old: before, new: after };
        let wrong_way = match rank {
            Rank::Change => false,
            Rank::Growth => (change.bytes(), change.objects()) <= (0, 0),
            Rank::Shrinkage => (change.bytes(), change.objects()) >= (0, 0),
        };
        if wrong_way || self.question.top == 0 {
            return Ok(());
        }
        let kept = Kept { change: Change { prefix: prefix.to_vec(), ..change }, rank };
        if self.kept.len() < self.question.top {
            self.kept.push(Reverse(kept));
        } else if self.kept.peek().is_some_and(|Reverse(least)| kept > *least) {
            self.kept.pop();
            self.kept.push(Reverse(kept));
        }
        Ok(())
    }

    /// Puts the children of both, side by side, where they are to be compared.
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
            // Both come from the last name to the first.
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

    /// The order of two names as that of the prefixes they end.
    fn order(&self, a: &[u8], b: &[u8]) -> Ordering {
        let end = [self.delimiter];
        a.iter().chain(&end).cmp(b.iter().chain(&end))
    }
}
