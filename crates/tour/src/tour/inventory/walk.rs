//! Counts what is below every directory of a tree in the simplest way: each file at each prefix
//! above it.

use std::collections::BTreeMap;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

/// Files and bytes below every prefix, the empty one included.
pub(super) type Counted = BTreeMap<Vec<u8>, (u64, u64)>;

/// Counts a file at every prefix above it.
pub(super) fn count(counted: &mut Counted, key: &[u8], size: u64) {
    let ends = key.iter().enumerate().filter(|(_, byte)| **byte == b'/').map(|(at, _)| at + 1);
    for end in std::iter::once(0).chain(ends) {
        let prefix = key.get(..end).unwrap_or_default();
        let total = match counted.get_mut(prefix) {
            Some(total) => total,
            None => counted.entry(prefix.to_vec()).or_default(),
        };
        total.0 += 1;
        total.1 += size;
    }
}

/// Walks a tree. Unreadable entries are skipped, as the index skips them.
pub(super) fn walk(tree: &Path) -> anyhow::Result<Counted> {
    let mut counted = Counted::new();
    for entry in walkdir::WalkDir::new(tree).into_iter().filter_map(Result::ok) {
        if !entry.file_type().is_file() {
            continue;
        }
        let Ok(metadata) = entry.metadata() else { continue };
        let key = entry.path().strip_prefix(tree)?;
        count(&mut counted, key.as_os_str().as_bytes(), metadata.len());
    }
    Ok(counted)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_counts_at_every_prefix_above_it() {
        let mut counted = Counted::new();
        count(&mut counted, b"a/b/c", 3);
        count(&mut counted, b"d", 1);
        let expected = [(&b""[..], (2, 4)), (b"a/", (1, 3)), (b"a/b/", (1, 3))];
        let expected = expected.map(|(prefix, total)| (prefix.to_vec(), total));
        assert_eq!(counted, Counted::from(expected));
    }
}
