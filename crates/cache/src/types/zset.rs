//! A sorted set: members with one score each, ordered by score, then by member.
//!
//! Small ([`packing::ZSET`]: at most 128 members of at most 64 bytes): one ordered buffer
//! (`packed`). Large: a dictionary of members with their scores, and their positions in order in
//! chunks of a few hundred (`order`), so that a rank is computed by adding up the chunks before it.
//!
//! A rank is an index in ascending order. Limits of score or member are converted to ranges of
//! ranks ([`ZSet::score_range`], [`ZSet::lex_range`]), which all other methods use. NaN is not a
//! valid score: if a caller passes one, it is stored as 0.

mod order;
mod packed;

use std::cmp::Ordering;
use std::ops::Range;

use order::Order;
use packed::Packed;

use super::dict::{Dict, Keyed};
use super::{pack, packing};
use crate::number;

/// The result of an insertion.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Upsert {
    /// The member is new.
    Added,
    /// The member had another score.
    Updated,
    /// The member had this score.
    Same,
}

/// An end of a range of scores.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum ScoreBound {
    /// The score belongs to the range. Infinities leave the range open.
    Inclusive(f64),
    /// The score does not belong to the range.
    Exclusive(f64),
}

impl ScoreBound {
    /// Parses `1.5`, `(1.5`, `-inf`; `None` if it is not a float.
    #[must_use]
    pub fn parse(text: &[u8]) -> Option<Self> {
        match text {
            [b'(', score @ ..] => number::parse_range_f64(score).map(Self::Exclusive),
            score => number::parse_range_f64(score).map(Self::Inclusive),
        }
    }
}

/// An end of a range of members, for sets whose members all have the same score.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LexBound<'a> {
    /// Before all members: `-`.
    Min,
    /// After all members: `+`.
    Max,
    /// The member belongs to the range: `[member`.
    Inclusive(&'a [u8]),
    /// The member does not belong to the range: `(member`.
    Exclusive(&'a [u8]),
}

impl<'a> LexBound<'a> {
    /// Parses `-`, `+`, `[member`, `(member`; `None` for anything else.
    #[must_use]
    pub fn parse(text: &'a [u8]) -> Option<Self> {
        match text {
            [b'-'] => Some(Self::Min),
            [b'+'] => Some(Self::Max),
            [b'[', member @ ..] => Some(Self::Inclusive(member)),
            [b'(', member @ ..] => Some(Self::Exclusive(member)),
            _ => None,
        }
    }
}

/// Members in order of their scores.
#[derive(Debug, Clone)]
pub struct ZSet(Repr);

#[derive(Debug, Clone)]
enum Repr {
    Packed(Packed),
    Tree(Box<Tree>),
}

/// `heap`: bytes of the members' own allocations.
#[derive(Debug, Clone)]
struct Tree {
    dict: Dict<Scored>,
    order: Order,
    heap: usize,
}

#[derive(Debug, Clone, Default)]
struct Scored {
    member: Box<[u8]>,
    score: f64,
}

impl Keyed for Scored {
    fn key(&self) -> &[u8] {
        &self.member
    }
}

/// The order of a sorted set. Both zeros are the same score.
fn compare(left: (f64, &[u8]), right: (f64, &[u8])) -> Ordering {
    left.0.partial_cmp(&right.0).unwrap_or(Ordering::Equal).then_with(|| left.1.cmp(right.1))
}

impl Tree {
    fn new(packed: &Packed) -> Self {
        let dict = Dict::with_capacity(packed.len() + 1);
        let mut tree = Self { dict, order: Order::default(), heap: 0 };
        let mut at = 0;
        while let Some((member, score, next)) = packed.entry_at(at) {
            tree.add(member, score);
            at = next;
        }
        tree
    }

    fn add(&mut self, member: &[u8], score: f64) {
        let place = self.dict.push(Scored { member: member.into(), score });
        self.heap += pack::allocated(member.len());
        self.order.insert(&self.dict, score, place);
    }

    fn update(&mut self, place: usize, score: f64) {
        let place_kept = self.order.remove(&self.dict, place);
        self.dict.at_mut(place).score = score;
        if let Some(place) = place_kept {
            self.order.insert(&self.dict, score, place);
        }
    }

    fn remove(&mut self, place: usize) -> Scored {
        self.order.remove(&self.dict, place);
        self.take(place)
    }

    /// Removes an entry that is not in the order any more.
    fn take(&mut self, place: usize) -> Scored {
        let last = self.dict.len() - 1;
        if place != last {
            self.order.moved(&self.dict, last, place);
        }
        let removed = self.dict.swap_remove(place);
        self.heap -= pack::allocated(removed.member.len());
        removed
    }

    /// Builds the tree again without a range of ranks. Returns what is left of the previous one,
    /// which can only be freed.
    fn cut(&mut self, ranks: Range<usize>) -> Self {
        let dict = Dict::with_capacity(self.dict.len() - ranks.len());
        let mut old = std::mem::replace(self, Self { dict, order: Order::default(), heap: 0 });
        let (head, tail) = (old.order.places(0).take(ranks.start), old.order.places(ranks.end));
        for place in head.chain(tail) {
            let entry = old.dict.take_out(place);
            self.heap += pack::allocated(entry.member.len());
            let score = entry.score;
            let place = self.dict.push(entry);
            self.order.push(score, place);
        }
        old.heap -= self.heap;
        old
    }

    /// Removes some entries from a rank on.
    fn remove_some(&mut self, rank: usize, count: usize) {
        let mut places = self.order.cut(rank, count);
        // The last first: the entry that takes a place is one that stays, and thus in the order.
        places.sort_unstable_by_key(|place| std::cmp::Reverse(*place));
        for place in places {
            self.take(place as usize);
        }
    }

    fn get(&self, position: order::Position) -> (&[u8], f64) {
        let entry = &self.dict.entries()[self.order.place(position)];
        (&entry.member, entry.score)
    }
}

impl Default for ZSet {
    fn default() -> Self {
        Self::new()
    }
}

impl ZSet {
    /// No members.
    #[must_use]
    pub const fn new() -> Self {
        Self(Repr::Packed(Packed::new()))
    }

    /// Returns the number of members.
    #[must_use]
    pub fn len(&self) -> usize {
        match &self.0 {
            Repr::Packed(packed) => packed.len(),
            Repr::Tree(tree) => tree.dict.len(),
        }
    }

    /// Whether there are no members.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Heap memory, in bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        match &self.0 {
            Repr::Packed(packed) => packed.bytes(),
            Repr::Tree(tree) => {
                size_of::<Tree>() + tree.dict.bytes() + tree.order.bytes() + tree.heap
            }
        }
    }

    /// The name in `OBJECT ENCODING`.
    #[must_use]
    pub const fn encoding(&self) -> &'static str {
        match self.0 {
            Repr::Packed(_) => "listpack",
            Repr::Tree(_) => "skiplist",
        }
    }

    /// The score of `member`.
    #[must_use]
    pub fn score(&self, member: &[u8]) -> Option<f64> {
        match &self.0 {
            Repr::Packed(packed) => packed.find(member).map(|found| found.score),
            Repr::Tree(tree) => tree.dict.get(member).map(|entry| entry.score),
        }
    }

    /// Sets the score of `member`.
    pub fn insert(&mut self, member: &[u8], score: f64) -> Upsert {
        // Negative zero is shown as 0, as in Redis.
        let score = if score.is_nan() || score == 0.0 { 0.0 } else { score };
        if let Repr::Packed(packed) = &mut self.0 {
            let found = packed.find(member);
            if let Some(found) = &found {
                if found.score == score {
                    return Upsert::Same;
                }
                packed.remove(found);
            } else if member.len() > packing::ZSET.item_size.get()
                || packed.len() >= packing::ZSET.len.get()
            {
                let mut tree = Tree::new(packed);
                tree.add(member, score);
                self.0 = Repr::Tree(Box::new(tree));
                return Upsert::Added;
            }
            packed.insert(member, score);
            return if found.is_some() { Upsert::Updated } else { Upsert::Added };
        }
        let Repr::Tree(tree) = &mut self.0 else { return Upsert::Same };
        match tree.dict.find(member) {
            None => {
                tree.add(member, score);
                Upsert::Added
            }
            Some(place) if tree.dict.entries()[place].score == score => Upsert::Same,
            Some(place) => {
                tree.update(place, score);
                Upsert::Updated
            }
        }
    }

    /// Removes a member and returns the score it had.
    pub fn remove(&mut self, member: &[u8]) -> Option<f64> {
        match &mut self.0 {
            Repr::Packed(packed) => {
                let found = packed.find(member)?;
                packed.remove(&found);
                packed.shrink();
                Some(found.score)
            }
            Repr::Tree(tree) => {
                let place = tree.dict.find(member)?;
                Some(tree.remove(place).score)
            }
        }
    }

    /// The rank of `member`: the number of members before it. From the other end:
    /// `len() - 1 - rank`.
    #[must_use]
    pub fn rank(&self, member: &[u8]) -> Option<usize> {
        match &self.0 {
            Repr::Packed(packed) => packed.find(member).map(|found| found.rank),
            Repr::Tree(tree) => {
                let place = tree.dict.find(member)?;
                let score = tree.dict.entries()[place].score;
                let before =
                    |entry: &Scored| compare((entry.score, &entry.member), (score, member)).is_lt();
                Some(tree.order.count_while(&tree.dict, before))
            }
        }
    }

    /// Number of members, from the first on, for which `before` holds; it must hold for a prefix of
    /// the order.
    fn count_while(&self, before: impl Fn(&[u8], f64) -> bool) -> usize {
        match &self.0 {
            Repr::Packed(packed) => packed.count_while(before),
            Repr::Tree(tree) => {
                let before = |entry: &Scored| before(&entry.member, entry.score);
                tree.order.count_while(&tree.dict, before)
            }
        }
    }

    /// The ranks of the scores from `min` to `max`. Its length is the result of `ZCOUNT`.
    #[must_use]
    pub fn score_range(&self, min: ScoreBound, max: ScoreBound) -> Range<usize> {
        let from = self.count_while(|_, score| match min {
            ScoreBound::Inclusive(min) => score < min,
            ScoreBound::Exclusive(min) => score <= min,
        });
        let to = self.count_while(|_, score| match max {
            ScoreBound::Inclusive(max) => score <= max,
            ScoreBound::Exclusive(max) => score < max,
        });
        from..to.max(from)
    }

    /// The ranks of the members from `min` to `max`, if all scores are the same.
    #[must_use]
    pub fn lex_range(&self, min: LexBound<'_>, max: LexBound<'_>) -> Range<usize> {
        let from = self.count_while(|member, _| match min {
            LexBound::Min => false,
            LexBound::Max => true,
            LexBound::Inclusive(min) => member < min,
            LexBound::Exclusive(min) => member <= min,
        });
        let to = self.count_while(|member, _| match max {
            LexBound::Min => false,
            LexBound::Max => true,
            LexBound::Inclusive(max) => member <= max,
            LexBound::Exclusive(max) => member < max,
        });
        from..to.max(from)
    }

    /// The members in a range of ranks with their scores, in order; `rev()` for the other
    /// direction. Ranks beyond the end are left out.
    #[must_use]
    pub fn range(&self, ranks: Range<usize>) -> ZSetIter<'_> {
        let to = ranks.end.min(self.len());
        let left = to.saturating_sub(ranks.start);
        let from = to - left;
        let walk = match &self.0 {
            Repr::Packed(packed) => {
                Walk::Packed { packed, front: packed.offset(from), back: packed.offset(to) }
            }
            Repr::Tree(tree) => {
                Walk::Tree { tree, front: tree.order.position(from), back: tree.order.position(to) }
            }
        };
        ZSetIter { walk, left }
    }

    /// All members with their scores, in order.
    #[must_use]
    pub fn iter(&self) -> ZSetIter<'_> {
        self.range(0..self.len())
    }

    /// The member at a rank, with its score.
    #[must_use]
    pub fn nth(&self, rank: usize) -> Option<(&[u8], f64)> {
        self.range(rank..rank.saturating_add(1)).next()
    }

    /// Removes the members in a range of ranks and returns their number. Also returns what has to
    /// be freed of many: that takes time.
    pub fn remove_range(&mut self, ranks: Range<usize>) -> (usize, Self) {
        let to = ranks.end.min(self.len());
        let count = to.saturating_sub(ranks.start);
        if count == self.len() {
            return (count, std::mem::take(self));
        }
        let mut removed = Self::new();
        match &mut self.0 {
            Repr::Packed(packed) => packed.remove_range(to - count, count),
            // Removing a member costs several times as much as keeping one.
            Repr::Tree(tree) if count > tree.dict.len() / 8 => {
                removed = Self(Repr::Tree(Box::new(tree.cut(to - count..to))));
            }
            Repr::Tree(tree) => tree.remove_some(to - count, count),
        }
        (count, removed)
    }

    /// Removes the member with the lowest score and returns both.
    pub fn pop_min(&mut self) -> Option<(Box<[u8]>, f64)> {
        self.pop(0)
    }

    /// Removes the member with the highest score and returns both.
    pub fn pop_max(&mut self) -> Option<(Box<[u8]>, f64)> {
        self.pop(self.len().checked_sub(1)?)
    }

    fn pop(&mut self, rank: usize) -> Option<(Box<[u8]>, f64)> {
        if let Repr::Tree(tree) = &mut self.0 {
            if rank >= tree.dict.len() {
                return None;
            }
            let removed = tree.remove(tree.order.place(tree.order.position(rank)));
            return Some((removed.member, removed.score));
        }
        let (member, score) = self.nth(rank)?;
        let member: Box<[u8]> = member.into();
        self.remove_range(rank..rank + 1);
        Some((member, score))
    }

    /// Visits about `count` members from `cursor` (0: the start), in no particular order, and
    /// returns the cursor to continue with (0: finished). A small set is visited completely.
    pub fn scan(&self, cursor: u64, count: usize, mut visit: impl FnMut(&[u8], f64)) -> u64 {
        if let Repr::Tree(tree) = &self.0 {
            return tree.dict.scan(cursor, count, |entry| visit(&entry.member, entry.score));
        }
        self.iter().for_each(|(member, score)| visit(member, score));
        0
    }
}

impl<'a> IntoIterator for &'a ZSet {
    type Item = (&'a [u8], f64);
    type IntoIter = ZSetIter<'a>;

    fn into_iter(self) -> ZSetIter<'a> {
        self.iter()
    }
}

/// Members of a sorted set with their scores, from both ends.
#[derive(Debug, Clone)]
pub struct ZSetIter<'a> {
    walk: Walk<'a>,
    left: usize,
}

#[derive(Debug, Clone)]
enum Walk<'a> {
    Packed { packed: &'a Packed, front: usize, back: usize },
    Tree { tree: &'a Tree, front: order::Position, back: order::Position },
}

impl<'a> Iterator for ZSetIter<'a> {
    type Item = (&'a [u8], f64);

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        self.left = self.left.checked_sub(1)?;
        match &mut self.walk {
            Walk::Packed { packed, front, .. } => {
                let (member, score, next) = packed.entry_at(*front)?;
                *front = next;
                Some((member, score))
            }
            Walk::Tree { tree, front, .. } => {
                let entry = tree.get(*front);
                *front = tree.order.after(*front);
                Some(entry)
            }
        }
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left, Some(self.left))
    }
}

impl DoubleEndedIterator for ZSetIter<'_> {
    #[inline]
    fn next_back(&mut self) -> Option<Self::Item> {
        self.left = self.left.checked_sub(1)?;
        match &mut self.walk {
            Walk::Packed { packed, back, .. } => {
                let (member, score, start) = packed.entry_before(*back)?;
                *back = start;
                Some((member, score))
            }
            Walk::Tree { tree, back, .. } => {
                *back = tree.order.before(*back);
                Some(tree.get(*back))
            }
        }
    }
}

impl ExactSizeIterator for ZSetIter<'_> {}

#[cfg(test)]
mod tests;
