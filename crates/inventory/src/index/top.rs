//! The largest prefixes below one, exactly.
//!
//! No prefix is larger than its parent, so the largest are found by always expanding the largest
//! one seen so far. Of the many children of one, only as many are examined as needed, since the
//! index lists them in order.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::{IndexError, Node, Order};
use crate::format::listed;

/// Children taken from a list at first, and later: most nodes need no second batch.
const AT_FIRST: usize = 2;
const AT_ONCE: usize = 16;
/// Number of children of one node that are held whatever the number of results.
const MANY: usize = 1 << 12;

/// A prefix in the result.
#[derive(Debug, Clone)]
pub struct FoundPrefix<'a> {
    /// The whole prefix.
    pub prefix: Vec<u8>,
    /// Its node.
    pub node: Node<'a>,
}

/// A candidate for, or an ancestor of, one of the largest. Ordered by size, then by position in the
/// index.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Candidate {
    size: u64,
    order: Reverse<u64>,
    step: Step,
}

#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Step {
    /// The children of a node from this position in its list on; none is larger than `size`.
    Rest { parent: usize, from: usize },
    /// A node, by the end of its record, and its parent.
    Node { end: u64, parent: usize },
}

/// The search, with the nodes whose children were examined.
struct Search<'a, 'p> {
    sort: Order<'p>,
    /// Number of results.
    count: usize,
    /// Depth of the results; any without one.
    wanted: Option<u64>,
    heap: BinaryHeap<Candidate>,
    /// Those nodes, each with the index of its parent; the first is the start of the search.
    opened: Vec<(Node<'a>, usize)>,
}

impl<'a> Node<'a> {
    /// The `count` largest prefixes below this one, the largest first: those exactly `depth`
    /// components deeper, or at any depth. By [`SortBy::Name`](super::SortBy::Name) all are equal.
    ///
    /// * `prefix`: that of this node.
    ///
    /// # Errors
    /// Something there is damaged.
    pub fn top<'p>(
        &self,
        prefix: &[u8],
        sort: impl Into<Order<'p>>,
        count: usize,
        depth: Option<u64>,
    ) -> Result<Vec<FoundPrefix<'a>>, IndexError> {
        let wanted = depth.map(|depth| self.depth().saturating_add(depth));
        let (heap, opened) = (BinaryHeap::new(), Vec::new());
        let mut search = Search { sort: sort.into(), count, wanted, heap, opened };
        let mut found = Vec::new();
        if depth == Some(0) || count == 0 {
            return Ok(found);
        }
        search.open(*self, 0)?;
        while let Some(candidate) = search.heap.pop() {
            let (end, parent) = match candidate.step {
                Step::Rest { parent, from } => {
                    search.go_on(parent, from)?;
                    continue;
                }
                Step::Node { end, parent } => (end, parent),
            };
            let node = self.index.node(end)?;
            if wanted.is_none_or(|wanted| node.depth() == wanted) {
                found.push(FoundPrefix { prefix: search.prefix(prefix, &node, parent), node });
                if found.len() == count {
                    break;
                }
            }
            if node.child_count() > 0 && wanted.is_none_or(|wanted| node.depth() < wanted) {
                search.open(node, parent)?;
            }
        }
        Ok(found)
    }
}

impl<'a> Search<'a, '_> {
    /// Adds the children of a node.
    fn open(&mut self, node: Node<'a>, above: usize) -> Result<(), IndexError> {
        let place = self.opened.len();
        self.opened.push((node, above));
        match node.lists()? {
            Some(lists) if node.is_listed(&lists, self.sort) => self.go_on(place, 0),
            _ => self.all(place, 0),
        }
    }

    /// Adds the next few children of a node with lists.
    fn go_on(&mut self, parent: usize, from: usize) -> Result<(), IndexError> {
        let Some(&(node, _)) = self.opened.get(parent) else { return Ok(()) };
        let listed = listed(node.child_count());
        let Some(lists) = node.lists()?.filter(|_| from < listed) else {
            return self.all(parent, listed);
        };
        let at_once = if from == 0 { AT_FIRST } else { AT_ONCE };
        let children = node.listed(&lists, self.sort, from, at_once)?;
        let (mut least, mut last) = (0, 0);
        let next = from + children.len();
        for child in children {
            least = self.push(&child, parent)?;
            last = child.end;
        }
        if (next as u64) < node.child_count() {
            // Of the same size, the rest come after the last that was seen: so they are listed.
            let step = Step::Rest { parent, from: next };
            self.heap.push(Candidate { size: least, order: Reverse(last), step });
        }
        Ok(())
    }

    /// Adds all children of a node except those in its list.
    fn all(&mut self, parent: usize, listed: usize) -> Result<(), IndexError> {
        let Some(&(node, _)) = self.opened.get(parent) else { return Ok(()) };
        let mut seen = Vec::new();
        if listed > 0
            && let Some(lists) = node.lists()?
        {
            seen = node.listed(&lists, self.sort, 0, listed)?.iter().map(|node| node.end).collect();
            seen.sort_unstable();
        }
        // If each child is a result as soon as it is the largest candidate, at most `count` children
        // are results. The rest is not held.
        let each_counts = self.wanted.is_none_or(|wanted| wanted == node.depth() + 1);
        let held = if each_counts { self.count } else { usize::MAX };
        let mut largest = Vec::new();
        for child in node.children() {
            let child = child?;
            if seen.binary_search(&child.end).is_err() {
                largest.push((child.rank(self.sort)?, Reverse(child.end)));
            }
            if largest.len() >= held.saturating_mul(2).max(MANY) {
                largest.select_nth_unstable_by(held - 1, |a, b| b.cmp(a));
                largest.truncate(held);
            }
        }
        self.heap.extend(largest.into_iter().map(|(size, order)| {
            let step = Step::Node { end: order.0, parent };
            Candidate { size, order, step }
        }));
        Ok(())
    }

    fn push(&mut self, child: &Node<'a>, parent: usize) -> Result<u64, IndexError> {
        let size = child.rank(self.sort)?;
        let step = Step::Node { end: child.end, parent };
        self.heap.push(Candidate { size, order: Reverse(child.end), step });
        Ok(size)
    }

    /// The whole prefix of a node.
    fn prefix(&self, root: &[u8], node: &Node<'a>, parent: usize) -> Vec<u8> {
        let mut names = vec![node.name()];
        let mut at = parent;
        while let Some(&(node, above)) = self.opened.get(at)
            && at > 0
        {
            names.push(node.name());
            at = above;
        }
        let mut prefix = root.to_vec();
        for name in names.iter().rev() {
            prefix.extend_from_slice(name);
            prefix.push(node.index.delimiter);
        }
        prefix
    }
}
