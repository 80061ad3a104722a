//! The direct children of a prefix: all of them, or a page of the largest.

use super::{Index, IndexError, Node, Order, SortBy};
use crate::format::order::Lists;
use crate::format::{NAMES_STRIDE, listed};

/// Some of a node's children.
#[derive(Debug, Clone)]
pub struct Page<'a> {
    /// The children, sorted.
    pub nodes: Vec<Node<'a>>,
    /// Total number of children.
    pub total: u64,
}

/// All children of a node, from the last name to the first.
#[derive(Debug, Clone)]
pub struct Children<'a> {
    index: &'a Index,
    /// End of the next one's record.
    at: u64,
    /// Where the children end.
    end: u64,
}

impl<'a> Iterator for Children<'a> {
    type Item = Result<Node<'a>, IndexError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.at <= self.end {
            return None;
        }
        let node = self.index.node(self.at).and_then(|node| {
            self.at = node.before()?;
            // Each ends before the previously read one; otherwise this would never end.
            if self.at < self.end { Err(self.index.damaged_node(node.end)) } else { Ok(node) }
        });
        if node.is_err() {
            self.at = self.end;
        }
        Some(node)
    }
}

impl<'a> Node<'a> {
    /// All children, from the last name to the first.
    #[must_use]
    pub fn children(&self) -> Children<'a> {
        let start = self.record.start;
        let end = start.saturating_sub(self.record.subtree.size);
        Children { index: self.index, at: start, end }
    }

    /// A page of the children.
    ///
    /// # Errors
    /// Something there is damaged.
    pub fn page<'p>(
        &self,
        sort: impl Into<Order<'p>>,
        offset: u64,
        limit: usize,
    ) -> Result<Page<'a>, IndexError> {
        let sort = sort.into();
        let total = self.child_count();
        let left = usize::try_from(total.saturating_sub(offset)).unwrap_or(usize::MAX);
        let limit = limit.min(left);
        let nodes = match (self.lists()?, sort) {
            _ if limit == 0 => Vec::new(),
            (Some(lists), by) if by.by == SortBy::Name => {
                self.page_by_name(&lists, offset, limit)?
            }
            (Some(lists), _)
                if self.is_listed(&lists, sort)
                    && offset.saturating_add(limit as u64) <= listed(total) as u64 =>
            {
                let offset = usize::try_from(offset).unwrap_or(usize::MAX);
                self.listed(&lists, sort, offset, limit)?
            }
            _ => self.page_of_all(sort, offset, limit)?,
        };
        Ok(Page { nodes, total })
    }

    /// Whether the lists have the largest by this order.
    pub(super) fn is_listed(&self, lists: &Lists<'a>, sort: Order<'_>) -> bool {
        let by = matches!(sort.by, SortBy::Bytes | SortBy::Objects)
            || sort.by == SortBy::Billed && self.has_billed(lists);
        by && !sort.is_in_class()
    }

    /// Whether a list has the children with the most billed bytes: a separate one, or, without
    /// noncurrent versions, that of the current bytes.
    fn has_billed(&self, lists: &Lists<'a>) -> bool {
        lists.has_billed() || self.index.current_only()
    }

    /// Some of the largest, from the lists, which have them.
    pub(super) fn listed(
        &self,
        lists: &Lists<'a>,
        sort: Order<'_>,
        offset: usize,
        limit: usize,
    ) -> Result<Vec<Node<'a>>, IndexError> {
        let damaged = || self.damaged_lists();
        let take = |ends: &mut dyn Iterator<Item = u64>| {
            ends.skip(offset).take(limit).map(|end| self.listed_child(end)).collect()
        };
        match sort.by {
            SortBy::Objects => take(&mut lists.by_objects().ok_or_else(damaged)?),
            SortBy::Billed => take(&mut lists.by_billed().ok_or_else(damaged)?),
            _ => take(&mut lists.by_bytes().ok_or_else(damaged)?),
        }
    }

    /// The child at a position in a list.
    pub(super) fn listed_child(&self, end: u64) -> Result<Node<'a>, IndexError> {
        let node = self.index.node(end)?;
        if self.is_parent_of(&node) { Ok(node) } else { Err(self.damaged_lists()) }
    }

    /// The lists of a node with many children.
    pub(super) fn lists(&self) -> Result<Option<Lists<'a>>, IndexError> {
        let Some(at) = self.record.subtree.lists else { return Ok(None) };
        let order = usize::try_from(at).ok().and_then(|at| self.index.order.get(at..));
        let version = self.index.meta.version;
        let lists = order.and_then(|order| Lists::read(order, version));
        let lists = lists.ok_or_else(|| self.damaged_lists())?;
        Ok(Some(lists))
    }

    fn damaged_lists(&self) -> IndexError {
        let at = self.record.subtree.lists.unwrap_or(0);
        self.index.damaged("order", at, "the lists are damaged")
    }

    /// From the nearest named child after the page, backwards.
    fn page_by_name(
        &self,
        lists: &Lists<'a>,
        offset: u64,
        limit: usize,
    ) -> Result<Vec<Node<'a>>, IndexError> {
        let after = offset.saturating_add(limit as u64);
        let mut named = lists.by_name().ok_or_else(|| self.damaged_lists())?;
        let stride = NAMES_STRIDE as u64;
        // The child at this index in the order of names is the first one not before the page's end.
        let place = after.div_ceil(stride);
        let found = usize::try_from(place).ok().and_then(|place| named.nth(place));
        let (mut children, beyond) = match found {
            Some(end) => {
                let node = self.listed_child(end)?;
                (Children { at: node.before()?, ..self.children() }, place * stride - after)
            }
            None => (self.children(), self.child_count() - after),
        };
        for _ in 0..beyond {
            children.next().transpose()?;
        }
        let mut nodes = children.take(limit).collect::<Result<Vec<_>, _>>()?;
        nodes.reverse();
        Ok(nodes)
    }

    /// A page by examining every child.
    fn page_of_all(
        &self,
        sort: Order<'_>,
        offset: u64,
        limit: usize,
    ) -> Result<Vec<Node<'a>>, IndexError> {
        let mut all = Vec::new();
        for (from_last, node) in (0_u64..).zip(self.children()) {
            let node = node?;
            let size = node.rank(sort)?;
            // Of equals the first name precedes.
            all.push((std::cmp::Reverse(size), std::cmp::Reverse(from_last), node.end));
        }
        let offset = usize::try_from(offset).unwrap_or(usize::MAX);
        let after = offset.saturating_add(limit);
        if after < all.len() {
            all.select_nth_unstable(after);
            all.truncate(after);
        }
        all.sort_unstable();
        all.iter().skip(offset).map(|&(.., end)| self.index.node(end)).collect()
    }
}
