//! The columns of a table of prefixes, and the numbers in them
//! (`docs/formats/inventory-export.md`).

use std::collections::BTreeSet;

use crate::index::{Index, IndexError, Node};

/// The figures of every prefix, in the order of [`Columns::fill`].
const FIXED: [&str; 8] = [
    "depth",
    "objects",
    "bytes",
    "descendants",
    "noncurrent_objects",
    "noncurrent_bytes",
    "delete_markers",
    "billed_bytes",
];

/// The prefix as text.
pub(super) const PREFIX: &str = "prefix";
/// Its bytes, percent-encoded, if it is not UTF-8; otherwise empty.
pub(super) const ENCODED: &str = "prefix_encoded";

/// The columns with numbers.
#[derive(Debug)]
pub(super) struct Columns<'a> {
    index: &'a Index,
    /// Their names.
    pub(super) names: Vec<String>,
}

impl<'a> Columns<'a> {
    pub(super) fn new(index: &'a Index) -> Self {
        let mut names: Vec<String> = FIXED.iter().map(|&name| name.to_owned()).collect();
        let mut taken = BTreeSet::from([PREFIX.to_owned(), ENCODED.to_owned()]);
        taken.extend(names.iter().cloned());
        for slot in index.slots() {
            let version = if slot.noncurrent { "noncurrent_" } else { "" };
            let class = safe(&slot.class);
            let objects = format!("{version}objects_{class}");
            let bytes = format!("{version}bytes_{class}");
            let (objects, bytes) = free(&taken, &objects, &bytes);
            taken.extend([objects.to_ascii_lowercase(), bytes.to_ascii_lowercase()]);
            names.extend([objects, bytes]);
        }
        Self { index, names }
    }

    /// Appends a prefix's figures, one for each column.
    ///
    /// # Errors
    /// The node is damaged.
    pub(super) fn fill(&self, node: &Node<'_>, numbers: &mut Vec<u64>) -> Result<(), IndexError> {
        let stats = node.stats()?;
        numbers.clear();
        numbers.extend([
            node.depth(),
            stats.total.objects,
            stats.total.bytes,
            node.descendants(),
            stats.noncurrent.objects,
            stats.noncurrent.bytes,
            stats.delete_markers,
            stats.billed().bytes,
        ]);
        // Both are in the order of the index.
        let mut classes = node.classes(&stats).into_iter().peekable();
        for slot in self.index.slots() {
            let class = classes
                .next_if(|class| class.name == slot.class && class.noncurrent == slot.noncurrent);
            let total = class.map(|class| class.total).unwrap_or_default();
            numbers.extend([total.objects, total.bytes]);
        }
        Ok(())
    }
}

/// The name of a class as part of a column's name that needs no quotes in SQL.
fn safe(class: &str) -> String {
    let safe = |character: char| if character.is_ascii_alphanumeric() { character } else { '_' };
    class.chars().map(safe).collect()
}

/// Two names that no other column has, ignoring case as SQL does.
fn free(taken: &BTreeSet<String>, objects: &str, bytes: &str) -> (String, String) {
    let is_free = |name: &str| !taken.contains(&name.to_ascii_lowercase());
    let mut found = (objects.to_owned(), bytes.to_owned());
    let mut number = 2_u32;
    while !(is_free(&found.0) && is_free(&found.1)) {
        found = (format!("{objects}_{number}"), format!("{bytes}_{number}"));
        number += 1;
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_of_classes_are_safe_and_distinct() {
        assert_eq!(safe("INTELLIGENT_TIERING:ARCHIVE"), "INTELLIGENT_TIERING_ARCHIVE");
        assert_eq!(safe("é x"), "__x");
        let mut taken = BTreeSet::new();
        for expected in ["objects_a_b", "objects_A_b_2", "objects_a_b_3"] {
            let [objects, bytes] = ["objects", "bytes"].map(|of| {
                let class = if expected.contains('A') { "A_b" } else { "a_b" };
                format!("{of}_{class}")
            });
            let (objects, bytes) = free(&taken, &objects, &bytes);
            assert_eq!(objects, expected);
            taken.extend([objects.to_ascii_lowercase(), bytes.to_ascii_lowercase()]);
        }
    }
}
