//! Checks all of an index: every byte by the checksums of its files, and that the records, the lists
//! and the table tell of one tree.

use forebay_base::checksum::extend;

use super::{Index, IndexError, Node};
use crate::format::meta::FileMeta;
use crate::format::table::{ROOT_HASH, hash_child};

/// Bytes checked in one go.
const CHUNK_SIZE: usize = 1 << 20;

/// What was checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Verified {
    /// Prefixes.
    pub prefixes: u64,
    /// Bytes of all files.
    pub bytes: u64,
}

impl Index {
    /// Checks all of it.
    ///
    /// # Errors
    /// The first damage that is found.
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
        // Depth first, with what is still to be visited.
        let mut open = vec![(root, ROOT_HASH)];
        while let Some((node, hash)) = open.pop() {
            verified.prefixes += 1;
            self.check_node(&node, hash, &mut open)?;
        }
        if verified.prefixes != self.meta.prefixes {
            return Err(self.damaged(
                "nodes",
                0,
                "there are not as many prefixes as index.json says",
            ));
        }
        Ok(verified)
    }

    fn check_file(&self, name: &str, bytes: &[u8], file: FileMeta) -> Result<(), IndexError> {
        let sum = bytes.chunks(CHUNK_SIZE).fold(0, extend);
        if sum == file.crc32c {
            return Ok(());
        }
        Err(self.damaged(name, 0, "the checksum of the file is not that of what was written"))
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
            return Err(wrong("the table does not lead to the record that ends here"));
        }
        let (mut children, mut descendants, mut objects, mut bytes) = (0, 0, 0_u64, 0_u64);
        for child in node.children() {
            let child = child?;
            if !node.is_parent_of(&child) {
                return Err(wrong("a record below does not belong there"));
            }
            let total = child.total()?;
            children += 1;
            descendants += 1 + child.descendants();
            objects = objects.saturating_add(total.objects);
            bytes = bytes.saturating_add(total.bytes);
            open.push((child, hash_child(hash, child.name())));
        }
        if (children, descendants) != (node.child_count(), node.descendants()) {
            return Err(wrong("the record says another number of prefixes below it"));
        }
        if objects > stats.total.objects || bytes > stats.total.bytes {
            return Err(wrong("the prefixes below have more than it has"));
        }
        if let Some(lists) = node.lists()? {
            let damaged = || self.damaged("order", 0, "a list is not what was written");
            let by_bytes = lists.by_bytes().ok_or_else(damaged)?;
            let by_objects = lists.by_objects().ok_or_else(damaged)?;
            let by_name = lists.by_name().ok_or_else(damaged)?;
            for end in by_bytes.chain(by_objects).chain(by_name) {
                node.listed_child(end)?;
            }
        }
        Ok(())
    }
}
