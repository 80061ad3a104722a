//! The children of a prefix, one window at a time.
//!
//! At most [`WINDOW`] children are held. The exception is sorting by cost, for which the index has
//! no order: it reads all children, of which there may be at most [`BY_COST_MAX`].

use forebay_inventory::cost::Pricer;
use forebay_inventory::index::{Node, SortBy};

/// Number of children held.
pub(super) const WINDOW: usize = 512;
/// Maximum number of children that can be sorted by cost.
pub(super) const BY_COST_MAX: u64 = 2_000;

/// Order of the children.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Sort {
    /// Bytes of all versions.
    #[default]
    Billed,
    /// Bytes of the current objects.
    Bytes,
    Noncurrent,
    Objects,
    Name,
    Cost,
}

impl Sort {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Billed => "billed bytes",
            Self::Bytes => "current bytes",
            Self::Noncurrent => "noncurrent bytes",
            Self::Objects => "objects",
            Self::Name => "name",
            Self::Cost => "cost",
        }
    }

    /// The corresponding order of the index.
    pub(super) fn of_index(self) -> SortBy {
        match self {
            Self::Billed => SortBy::Billed,
            Self::Bytes => SortBy::Bytes,
            Self::Noncurrent => SortBy::Noncurrent,
            Self::Objects => SortBy::Objects,
            Self::Name => SortBy::Name,
            Self::Cost => SortBy::Cost,
        }
    }
}

/// A window of the children of a prefix, in order.
pub(super) struct List<'a> {
    node: Node<'a>,
    sort: Sort,
    /// Position of the first child held.
    first: u64,
    held: Vec<Node<'a>>,
}

impl<'a> List<'a> {
    /// Creates the list of the children of `node`. Nothing is read yet unless they are sorted by
    /// cost.
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
            // They are in reverse order of name, and the sort is stable.
            priced.reverse();
            priced.sort_by(|a, b| b.0.total_cmp(&a.0));
            list.held = priced.into_iter().map(|(_, child)| child).collect();
        }
        Ok(list)
    }

    pub(super) fn len(&self) -> u64 {
        self.node.child_count()
    }

    /// Returns at most `count` children from one position on.
    ///
    /// # Errors
    /// A node is damaged.
    pub(super) fn from(&mut self, place: u64, count: usize) -> anyhow::Result<&[Node<'a>]> {
        let count = count.min(WINDOW / 2);
        let end = place.saturating_add(count as u64).min(self.len());
        let held_end = self.first.saturating_add(self.held.len() as u64);
        if place < self.first || end > held_end {
            // Reads some before the position too, in case the user scrolls up.
            self.first = place.saturating_sub(WINDOW as u64 / 4);
            // Children sorted by cost are all held, so this is for the other orders.
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

/// Returns at most `count` names of children that begin with a text, in order.
///
/// # Errors
/// A node is damaged.
pub(super) fn named<'a>(
    node: &Node<'a>,
    begin: &[u8],
    limit: usize,
) -> anyhow::Result<Vec<&'a [u8]>> {
    let (mut low, mut high) = (0, node.child_count());
    // Children are in order of name.
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
