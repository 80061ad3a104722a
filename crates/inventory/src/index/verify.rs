//! Checks a whole index: every byte by the checksums of its files, and that the records, the lists
//! and the table describe the same tree.

use forebay_base::checksum::extend;

use super::{Index, IndexError, Node};
use crate::format::histogram::Amount;
use crate::format::meta::FileMeta;
use crate::format::table::{ROOT_HASH, hash_child};

/// Bytes checked at once.
const CHUNK_SIZE: usize = 1 << 20;

/// The result of a check.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Verified {
    /// Number of prefixes.
    pub prefixes: u64,
    /// Total size of the files in bytes.
    pub bytes: u64,
}

impl Index {
    /// Checks all of it.
    ///
    /// # Errors
    /// The first damage found.
    pub fn verify(&self) -> Result<Verified, IndexError> {
        self.provenance()?;
        let files = &self.meta.files;
        self.check_file("nodes", &self.nodes, files.nodes)?;
        self.check_file("table", &self.table, files.table)?;
        self.check_file("order", &self.order, files.order)?;
        let mut verified = Verified {
            prefixes: 0,
            bytes: [files.nodes, files.table, files.order, files.provenance]
                .iter()
                .map(|file| file.size)
                .sum(),
        };
        let root = self.root()?;
        // Depth first, with the nodes still to visit.
        let mut open = vec![(root, ROOT_HASH)];
        while let Some((node, hash)) = open.pop() {
            verified.prefixes += 1;
            self.check_node(&node, hash, &mut open)?;
        }
        if verified.prefixes != self.meta.prefixes {
            return Err(self.damaged(
                "nodes",
                0,
                "the number of prefixes differs from that in index.json",
            ));
        }
        Ok(verified)
    }

    fn check_file(&self, name: &str, bytes: &[u8], file: FileMeta) -> Result<(), IndexError> {
        let sum = bytes.chunks(CHUNK_SIZE).fold(0, extend);
        if sum == file.crc32c {
            return Ok(());
        }
        Err(IndexError::Checksum { path: self.file(name) })
    }

    fn check_node<'a>(
        &'a self,
        node: &Node<'a>,
        hash: u64,
        open: &mut Vec<(Node<'a>, u64)>,
    ) -> Result<(), IndexError> {
        let wrong = |found| self.damaged("nodes", node.end, found);
        let stats = node.stats()?;
        node.histograms(&stats)?;
        if node.depth() > 0 && !self.table_has(hash, node.end) {
            return Err(wrong("the table does not contain the record that ends here"));
        }
        let (mut children, mut descendants, mut below) = (0, 0, [Some(Amount::default()); 2]);
        let mut markers = Some(0_u64);
        for child in node.children() {
            let child = child?;
            if !node.is_parent_of(&child) {
                return Err(wrong("a record below is not a child of this one"));
            }
            let totals = child.totals()?;
            children += 1;
            descendants += 1 + child.descendants();
            for (below, of) in below.iter_mut().zip([totals.current, totals.noncurrent]) {
                *below = below.and_then(|below| below.checked_add(of));
            }
            markers = markers.and_then(|sum| sum.checked_add(totals.delete_markers));
            open.push((child, hash_child(hash, child.name())));
        }
        if (children, descendants) != (node.child_count(), node.descendants()) {
            return Err(wrong("the record has a wrong number of prefixes below it"));
        }
        let fits = |below: Option<Amount>, own: Amount| {
            below.is_some_and(|below| below.objects <= own.objects && below.bytes <= own.bytes)
        };
        let [current, noncurrent] = below;
        if !fits(current, stats.total)
            || !fits(noncurrent, stats.noncurrent)
            || markers.is_none_or(|markers| markers > stats.delete_markers)
        {
            return Err(wrong("the totals of its children exceed its own"));
        }
        if let Some(lists) = node.lists()? {
            let damaged = || self.damaged("order", 0, "a list is damaged");
            let by_bytes = lists.by_bytes().ok_or_else(damaged)?;
            let by_objects = lists.by_objects().ok_or_else(damaged)?;
            let by_billed = lists.by_billed().ok_or_else(damaged)?;
            let by_name = lists.by_name().ok_or_else(damaged)?;
            for end in by_bytes.chain(by_objects).chain(by_billed).chain(by_name) {
                node.listed_child(end)?;
            }
        }
        Ok(())
    }
}
