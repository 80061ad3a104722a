//! The prefixes below one, in the order of their names.
//!
//! A prefix that is too small is skipped with everything below it, since nothing below is larger.

use super::{Filter, FoundPrefix, IndexError, Node};

/// Walks everything below a prefix.
#[derive(Debug, Clone)]
pub struct Below<'a> {
    /// Ends of the records still to visit, the next one last.
    open: Vec<u64>,
    /// Number of them before the children of the last visited one were added.
    above: usize,
    root: Node<'a>,
    /// The last visited prefix.
    path: Vec<u8>,
    /// The end in `path` of the prefix of each depth, starting with the root.
    ends: Vec<usize>,
    depth_max: u64,
    filter: Filter<'a>,
}

impl<'a> Node<'a> {
    /// This prefix and those at most `depth` components deeper with at least this many objects and
    /// bytes, in the order of their names.
    ///
    /// * `prefix`: that of this node.
    #[must_use]
    pub fn below(
        &self,
        prefix: &[u8],
        depth: Option<u64>,
        min_objects: u64,
        min_bytes: u64,
    ) -> Below<'a> {
        self.below_where(prefix, Filter { depth, min_objects, min_bytes, ..Filter::default() })
    }

    /// This prefix and those below it that pass a filter, in the order of their names.
    ///
    /// * `prefix`: that of this node.
    #[must_use]
    pub fn below_where(&self, prefix: &[u8], filter: Filter<'a>) -> Below<'a> {
        let depth = filter.depth;
        Below {
            open: vec![self.end],
            above: 1,
            root: *self,
            path: prefix.to_vec(),
            ends: vec![prefix.len()],
            depth_max: depth.map_or(u64::MAX, |depth| self.depth().saturating_add(depth)),
            filter,
        }
    }
}

impl<'a> Iterator for Below<'a> {
    type Item = Result<FoundPrefix<'a>, IndexError>;

    fn next(&mut self) -> Option<Self::Item> {
        let end = self.open.pop()?;
        let found = self.visit(end);
        if found.is_err() {
            self.open.clear();
        }
        Some(found)
    }
}

impl<'a> Below<'a> {
    /// Skips everything below the last visited prefix.
    pub fn pass_over(&mut self) {
        self.open.truncate(self.above);
    }

    fn visit(&mut self, end: u64) -> Result<FoundPrefix<'a>, IndexError> {
        let node = self.root.index.node(end)?;
        self.above = self.open.len();
        let deeper = node.depth().saturating_sub(self.root.depth());
        let deeper = usize::try_from(deeper).unwrap_or(usize::MAX);
        if deeper > 0 {
            // A record outside of the previous one would mean a damaged index.
            let Some(&above) = self.ends.get(deeper - 1) else {
                return Err(node.index.damaged_node(end));
            };
            self.ends.truncate(deeper);
            self.path.truncate(above);
            self.path.extend_from_slice(node.name());
            self.path.push(node.index.delimiter);
            self.ends.push(self.path.len());
        }
        if node.depth() < self.depth_max {
            // From the last name to the first, so that the first is on top.
            for child in node.children() {
                let child = child?;
                if self.filter.passes(&child)? {
                    self.open.push(child.end);
                }
            }
        }
        Ok(FoundPrefix { prefix: self.path.clone(), node })
    }
}
