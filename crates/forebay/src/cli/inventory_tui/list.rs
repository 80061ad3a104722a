//! The children of a prefix, a window of them at a time.
//!
//! However many there are, no more than [`WINDOW`] are held; only by cost, which no list of the index
//! is in the order of, all are looked at, and then there may be no more than [`BY_COST_MAX`].

use forebay_inventory::cost::Pricer;
use forebay_inventory::index::{Node, SortBy};

/// Children held at a time.
pub(super) const WINDOW: usize = 512;
/// Children that can be sorted by cost.
pub(super) const BY_COST_MAX: u64 = 2_000;

/// By what children are sorted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Sort {
    #[default]
    Bytes,
    Objects,
    Name,
    Cost,
}

impl Sort {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Bytes => "bytes",
            Self::Objects => "objects",
            Self::Name => "name",
            Self::Cost => "cost",
        }
    }

    /// The order of the index.
    fn of_index(self) -> SortBy {
        match self {
            Self::Objects => SortBy::Objects,
            Self::Name => SortBy::Name,
            // Those sorted by cost are all held, and never asked for again.
            Self::Bytes | Self::Cost => SortBy::Bytes,
        }
    }
}

/// Some of the children of a prefix, in order.
pub(super) struct List<'a> {
    node: Node<'a>,
    sort: Sort,
    /// The place of the first that is held.
    first: u64,
    held: Vec<Node<'a>>,
}

impl<'a> List<'a> {
    /// The children of `node`; nothing is read yet, unless they are sorted by cost.
    ///
    /// # Errors
    /// A node is damaged.
    pub(super) fn new(
        node: Node<'a>,
        sort: Sort,
        pricer: Option<&Pricer<'_>>,
    ) -> anyhow::Result<Self> {
        let mut list = Self { node, sort, first: 0, held: Vec::new() };
        if let (Sort::Cost, Some(pricer)) = (sort, pricer) {
            let mut priced = Vec::new();
            for child in node.children() {
                let child = child?;
                priced.push((pricer.cost(&child)?.total, child));
            }
            // They come from the last name to the first, and sorting keeps equals as they are.
            priced.reverse();
            priced.sort_by(|a, b| b.0.total_cmp(&a.0));
            list.held = priced.into_iter().map(|(_, child)| child).collect();
        }
        Ok(list)
    }

    pub(super) fn len(&self) -> u64 {
        self.node.child_count()
    }

    /// The children from one place on, at most so many.
    ///
    /// # Errors
    /// A node is damaged.
    pub(super) fn from(&mut self, place: u64, count: usize) -> anyhow::Result<&[Node<'a>]> {
        let count = count.min(WINDOW / 2);
        let end = place.saturating_add(count as u64).min(self.len());
        let held_end = self.first.saturating_add(self.held.len() as u64);
        if place < self.first || end > held_end {
            // Some before it as well, for whoever goes up again.
            self.first = place.saturating_sub(WINDOW as u64 / 4);
            self.held = self.node.page(self.sort.of_index(), self.first, WINDOW)?.nodes;
        }
        let from = usize::try_from(place.saturating_sub(self.first)).unwrap_or(usize::MAX);
        let from = from.min(self.held.len());
        let until = from.saturating_add(count).min(self.held.len());
        Ok(self.held.get(from..until).unwrap_or_default())
    }

    #[cfg(test)]
    pub(super) fn held(&self) -> usize {
        self.held.len()
    }
}

/// Names of children that begin with a text, at most so many, in order.
///
/// # Errors
/// A node is damaged.
pub(super) fn named<'a>(
    node: &Node<'a>,
    begin: &[u8],
    limit: usize,
) -> anyhow::Result<Vec<&'a [u8]>> {
    let (mut low, mut high) = (0, node.child_count());
    // Children are in the order of the prefixes their names end.
    let end = [node.delimiter()];
    while low < high {
        let middle = low + (high - low) / 2;
        let page = node.page(SortBy::Name, middle, 1)?;
        let is_before = |child: &Node<'_>| child.name().iter().chain(&end).lt(begin);
        if page.nodes.first().is_some_and(is_before) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    let page = node.page(SortBy::Name, low, limit)?;
    let names = page.nodes.into_iter().map(|child| child.name());
    Ok(names.take_while(|name| name.starts_with(begin)).collect())
}
