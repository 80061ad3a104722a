//! What changed between two indexes, prefix by prefix.
//!
//! Both are walked in parallel, in the order of names. The most changed prefixes are kept.
//!
//! Invariant: all versions are compared, in every storage class: a prefix whose current objects are
//! the same, but whose noncurrent versions, delete markers or classes are not, has changed.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;

use smallvec::SmallVec;

use crate::cost::{CostError, Pricer, Prices};
use crate::format::histogram::Amount;
use crate::index::{Index, IndexError, Node, SortBy};

mod change;

pub use change::{Change, ClassChange, Rank, Status};

use change::{Key, is_same_cost};

/// Options of a comparison.
#[derive(Debug, Clone, Default)]
pub struct DiffOptions<'q> {
    /// Which changes are ranked highest.
    pub rank: Rank,
    /// The figure whose changes are ranked. [`SortBy::Cost`] needs prices, and reports also the
    /// prefixes of which nothing but the cost changed.
    pub by: SortBy,
    /// Maximum number of results.
    pub top: usize,
    /// Only prefixes with exactly this many components.
    pub depth: Option<u64>,
    /// Only changes of the objects of this class.
    pub class: Option<&'q str>,
    /// The prices of the costs before and after; no costs without them.
    pub prices: Option<&'q Prices>,
}

/// The prefixes that changed most from `old` to `new`, the most changed first.
///
/// # Errors
/// One of the indexes is damaged, or costs are ranked and cannot be computed.
pub fn diff(old: &Index, new: &Index, options: &DiffOptions<'_>) -> Result<Vec<Change>, CostError> {
    let mut walk = Walk::new(old, new, options)?;
    let mut open = vec![(Vec::new(), Some(old.root()?), Some(new.root()?))];
    while let Some((prefix, old, new)) = open.pop() {
        let node = new.or(old);
        let depth = node.map_or(0, |node| node.depth());
        walk.keep(&prefix, depth, old.as_ref(), new.as_ref())?;
        if options.depth.is_none_or(|wanted| depth < wanted) {
            walk.pair(&prefix, old.as_ref(), new.as_ref(), &mut open)?;
        }
    }
    walk.finish(old, new)
}

/// A prefix to compare, in one index or both.
type Pair<'a> = (Vec<u8>, Option<Node<'a>>, Option<Node<'a>>);

/// The totals of a prefix by class, in the order of the classes of both indexes together, and its
/// delete markers.
#[derive(Debug, Default, PartialEq, Eq)]
struct Amounts {
    classes: SmallVec<[(usize, Amount); 6]>,
    delete_markers: u64,
}

/// One of the indexes.
struct Side<'q> {
    /// For each slot, its place among the classes of both.
    places: Vec<usize>,
    /// If there are costs.
    pricer: Option<Pricer<'q>>,
    /// The slots of the class that is ranked, one bit each; all without one.
    ranked: u64,
}

struct Walk<'q> {
    options: &'q DiffOptions<'q>,
    /// The least changed of the kept ones is on top.
    kept: BinaryHeap<Reverse<Kept>>,
    delimiter: u8,
    /// The classes of both indexes, and whether each is of noncurrent versions.
    classes: Vec<(String, bool)>,
    old: Side<'q>,
    new: Side<'q>,
}

/// A change as it is ranked.
#[derive(Debug)]
struct Kept {
    key: Key,
    change: Change,
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
        self.key.cmp(&other.key).then_with(|| other.change.prefix.cmp(&self.change.prefix))
    }
}

impl<'q> Side<'q> {
    fn new(
        index: &Index,
        classes: &mut Vec<(String, bool)>,
        options: &DiffOptions<'q>,
    ) -> Result<Self, CostError> {
        let mut places = Vec::new();
        for slot in index.slots() {
            let is_slot = |(class, noncurrent): &(String, bool)| {
                *class == slot.class && *noncurrent == slot.noncurrent
            };
            places.push(classes.iter().position(is_slot).unwrap_or_else(|| {
                classes.push((slot.class.clone(), slot.noncurrent));
                classes.len() - 1
            }));
        }
        let pricer = match options.prices.map(|prices| Pricer::new(index, prices)) {
            Some(Err(CostError::NoHistograms)) | None if options.by != SortBy::Cost => None,
            Some(pricer) => Some(pricer?),
            None => return Err(IndexError::Cost("there are no prices").into()),
        };
        let slots = index.slots().iter().enumerate();
        let ranked = options.class.map_or(u64::MAX, |class| {
            slots.filter(|(_, slot)| slot.class == class).fold(0, |mask, (at, _)| mask | 1 << at)
        });
        Ok(Self { places, pricer, ranked })
    }

    fn amounts(&self, node: Option<&Node<'_>>) -> Result<Amounts, IndexError> {
        let Some(node) = node else { return Ok(Amounts::default()) };
        let numbers = node.numbers()?;
        let place = |slot: usize| self.places.get(slot).copied();
        let classes = numbers.iter().filter(|(_, amount)| amount.objects > 0);
        let mut classes: SmallVec<_> =
            classes.filter_map(|(slot, amount)| Some((place(slot)?, amount))).collect();
        classes.sort_unstable_by_key(|(place, _)| *place);
        Ok(Amounts { classes, delete_markers: numbers.delete_markers })
    }

    /// The cost of what a prefix has in some slots; 0 of one that does not exist.
    fn cost(&self, node: Option<&Node<'_>>, slots: u64) -> Result<Option<f64>, CostError> {
        let cost = |pricer: &Pricer<'_>| node.map_or(Ok(0.0), |node| pricer.total(node, slots));
        self.pricer.as_ref().map(cost).transpose()
    }
}

impl<'q> Walk<'q> {
    fn new(old: &Index, new: &Index, options: &'q DiffOptions<'q>) -> Result<Self, CostError> {
        let mut classes = Vec::new();
        let of_old = Side::new(old, &mut classes, options)?;
        let of_new = Side::new(new, &mut classes, options)?;
        let (kept, delimiter) = (BinaryHeap::new(), new.delimiter());
        Ok(Self { options, kept, delimiter, classes, old: of_old, new: of_new })
    }

    /// Keeps a prefix if it changed more than the least of those kept.
    fn keep(
        &mut self,
        prefix: &[u8],
        depth: u64,
        old: Option<&Node<'_>>,
        new: Option<&Node<'_>>,
    ) -> Result<(), CostError> {
        if self.options.depth.is_some_and(|wanted| wanted != depth) || self.options.top == 0 {
            return Ok(());
        }
        let (before, after) = (self.old.amounts(old)?, self.new.amounts(new)?);
        let by_cost = self.options.by == SortBy::Cost;
        // Otherwise the costs of the changes that are kept are computed at the end.
        let cost = if by_cost {
            self.costs((old, self.old.ranked), (new, self.new.ranked))?
        } else {
            None
        };
        let status = match (old, new) {
            (None, _) => Status::Added,
            (_, None) => Status::Removed,
            _ if before == after && cost.is_none_or(is_same_cost) => return Ok(()),
            _ => Status::Changed,
        };
        let mut change = self.change(&before, &after, status);
        if self.options.class.is_some() && !change.classes.iter().any(|class| self.counts(class)) {
            return Ok(());
        }
        change.cost = cost;
        let counted = change.classes.iter().filter(|class| self.counts(class));
        let Some(key) = change.key(self.options.by, self.options.rank, counted) else {
            return Ok(());
        };
        if self.options.class.is_some() {
            // What was ranked is the cost of the class, and the change shows that of the prefix.
            change.cost = None;
        }
        let is_full = self.kept.len() >= self.options.top;
        if is_full && self.kept.peek().is_some_and(|Reverse(least)| key < least.key) {
            return Ok(());
        }
        change.prefix = prefix.to_vec();
        self.kept.push(Reverse(Kept { key, change }));
        if is_full {
            self.kept.pop();
        }
        Ok(())
    }

    /// Whether the change of a class is ranked.
    fn counts(&self, class: &ClassChange) -> bool {
        self.options.class.is_none_or(|wanted| wanted == class.class)
    }

    fn costs(
        &self,
        (old, of_old): (Option<&Node<'_>>, u64),
        (new, of_new): (Option<&Node<'_>>, u64),
    ) -> Result<Option<(f64, f64)>, CostError> {
        Ok(self.old.cost(old, of_old)?.zip(self.new.cost(new, of_new)?))
    }

    /// A change, without its prefix and its cost.
    fn change(&self, before: &Amounts, after: &Amounts, status: Status) -> Change {
        let mut change = Change { status, ..Change::default() };
        change.old.delete_markers = before.delete_markers;
        change.new.delete_markers = after.delete_markers;
        let (mut olds, mut news) =
            (before.classes.iter().copied().peekable(), after.classes.iter().copied().peekable());
        while let Some(place) =
            [olds.peek(), news.peek()].into_iter().flatten().map(|(place, _)| *place).min()
        {
            let old = olds.next_if(|(at, _)| *at == place).map_or(Amount::default(), |of| of.1);
            let new = news.next_if(|(at, _)| *at == place).map_or(Amount::default(), |of| of.1);
            let Some((class, noncurrent)) = self.classes.get(place) else { continue };
            let (of_old, of_new) = (&mut change.old, &mut change.new);
            for (totals, amount) in [(of_old, old), (of_new, new)] {
                let part = if *noncurrent { &mut totals.noncurrent } else { &mut totals.current };
                part.add(amount);
            }
            if old != new {
                let (class, noncurrent) = (class.clone(), *noncurrent);
                change.classes.push(ClassChange { class, noncurrent, old, new });
            }
        }
        change
    }

    /// The kept changes, the most changed first, with their costs.
    fn finish(mut self, old: &Index, new: &Index) -> Result<Vec<Change>, CostError> {
        let kept = std::mem::take(&mut self.kept).into_sorted_vec();
        let mut changes: Vec<Change> = kept.into_iter().map(|Reverse(kept)| kept.change).collect();
        for change in &mut changes {
            if change.cost.is_none() && self.old.pricer.is_some() && self.new.pricer.is_some() {
                let (old, new) = (old.get(&change.prefix)?, new.get(&change.prefix)?);
                change.cost = self.costs((old.as_ref(), u64::MAX), (new.as_ref(), u64::MAX))?;
            }
            let by_name = |of: &ClassChange| (of.class.clone(), of.noncurrent);
            change.classes.sort_by_key(by_name);
        }
        Ok(changes)
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
