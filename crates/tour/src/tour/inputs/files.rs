//! Chooses the files of a tree.
//!
//! A tree within the limits is taken completely. Of a larger one every kind is represented: files
//! are put into groups of the same extension and size class, the groups take turns, and within a
//! group the order is that of the names' checksums, which spreads the choice over the tree.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use forebay_base::checksum::crc32c;
use forebay_intake::names::FileName;
use walkdir::WalkDir;

/// Maximum number of entries considered; in a larger tree the rest is ignored, which is reported.
pub(in crate::tour) const SEEN_MAX: usize = 1_000_000;
/// A file may take this many times the space left for each file still wanted.
const SHARE_MAX: u64 = 64;

/// A file to send.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::tour) struct Source {
    pub(in crate::tour) path: PathBuf,
    /// Its path below the tree, which becomes its name.
    pub(in crate::tour) name: String,
    pub(in crate::tour) size: u64,
}

/// The chosen files, and what was omitted and why.
#[derive(Debug, Default, serde::Serialize)]
pub(in crate::tour) struct Files {
    pub(in crate::tour) tree: PathBuf,
    #[serde(skip)]
    pub(in crate::tour) chosen: Vec<Source>,
    pub(in crate::tour) chosen_bytes: u64,
    /// Number of regular files found.
    pub(in crate::tour) found: u64,
    /// Files and directories that could not be read.
    pub(in crate::tour) unreadable: u64,
    /// Symbolic links, sockets, devices.
    pub(in crate::tour) special: u64,
    /// Names with control characters and the like, which the server would refuse.
    pub(in crate::tour) unfit_names: u64,
    /// Whether the whole tree was read.
    pub(in crate::tour) seen_all: bool,
    /// Files beyond the limits.
    pub(in crate::tour) beyond_limits: u64,
}

impl Files {
    /// Reads `tree` and chooses at most `files_max` files of at most `bytes_max` in total.
    ///
    /// # Errors
    /// `tree` is not a directory, or has nothing to send.
    pub(in crate::tour) fn choose(
        tree: &Path,
        files_max: usize,
        bytes_max: u64,
    ) -> anyhow::Result<Self> {
        let tree = std::fs::canonicalize(tree).with_context(|| {
            format!("cannot read {}; name a directory with --files", tree.display())
        })?;
        if !tree.is_dir() {
            bail!("{} is not a directory; name a directory with --files", tree.display());
        }
        let mut files = Self { tree: tree.clone(), ..Self::default() };
        let mut found = Vec::new();
        let mut looked_at = 0;
        for entry in WalkDir::new(&tree).min_depth(1).sort_by_file_name().into_iter().take(SEEN_MAX)
        {
            looked_at += 1;
            files.look_at(&tree, entry, &mut found);
        }
        files.seen_all = looked_at < SEEN_MAX;
        let seen = found.len() as u64;
        let bytes: u64 = found.iter().map(|source| source.size).sum();
        files.chosen = if found.len() <= files_max && bytes <= bytes_max {
            found
        } else {
            pick(found, files_max, bytes_max)
        };
        files.beyond_limits = seen - files.chosen.len() as u64;
        files.chosen_bytes = files.chosen.iter().map(|source| source.size).sum();
        if files.chosen.is_empty() {
            bail!("{} has no file to send; name another directory with --files", tree.display());
        }
        Ok(files)
    }

    fn look_at(
        &mut self,
        tree: &Path,
        entry: walkdir::Result<walkdir::DirEntry>,
        found: &mut Vec<Source>,
    ) {
        let Ok(entry) = entry else {
            self.unreadable += 1;
            return;
        };
        if entry.file_type().is_dir() {
            return;
        }
        if !entry.file_type().is_file() {
            self.special += 1;
            return;
        }
        self.found += 1;
        let name = entry.path().strip_prefix(tree).ok().and_then(Path::to_str);
        let Some(name) = name.filter(|name| FileName::parse(name).is_ok()) else {
            self.unfit_names += 1;
            return;
        };
        match entry.metadata().ok().filter(|_| std::fs::File::open(entry.path()).is_ok()) {
            Some(metadata) => found.push(Source {
                path: entry.path().to_owned(),
                name: name.to_owned(),
                size: metadata.len(),
            }),
            None => self.unreadable += 1,
        }
    }
}

/// Takes one file of each group in turn until a limit is reached.
fn pick(found: Vec<Source>, files_max: usize, bytes_max: u64) -> Vec<Source> {
    let mut groups: BTreeMap<(String, u32), Vec<Source>> = BTreeMap::new();
    for source in found {
        groups.entry(group(&source)).or_default().push(source);
    }
    for group in groups.values_mut() {
        // Taken from the end of each group.
        group.sort_by_cached_key(|source| {
            (std::cmp::Reverse(crc32c(source.name.as_bytes())), source.name.clone())
        });
    }
    let (mut chosen, mut bytes_left) = (Vec::new(), bytes_max);
    while chosen.len() < files_max && !groups.is_empty() {
        for group in groups.values_mut() {
            let Some(source) = group.pop().filter(|_| chosen.len() < files_max) else { continue };
            let fair = (bytes_left / (files_max - chosen.len()) as u64).saturating_mul(SHARE_MAX);
            if source.size <= fair.min(bytes_left) {
                bytes_left -= source.size;
                chosen.push(source);
            }
        }
        groups.retain(|_, group| !group.is_empty());
    }
    chosen.sort_by(|a, b| a.name.cmp(&b.name));
    chosen
}

/// Returns extension, and 0 B / up to 4 KiB / 64 KiB / 1 MiB / larger.
fn group(source: &Source) -> (String, u32) {
    let extension = Path::new(&source.name).extension().and_then(|extension| extension.to_str());
    // A long extension is a part of a name ("libc.so.6-gdb"), not a kind.
    let extension = extension.filter(|extension| extension.len() <= 8).unwrap_or_default();
    let class = match source.size {
        0 => 0,
        1..=4_096 => 1,
        4_097..=65_536 => 2,
        65_537..=1_048_576 => 3,
        _ => 4,
    };
    (extension.to_ascii_lowercase(), class)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree(files: &[(&str, usize)]) -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        for (name, size) in files {
            let path = dir.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, vec![b'x'; *size]).unwrap();
        }
        dir
    }

    fn names(files: &Files) -> Vec<&str> {
        files.chosen.iter().map(|source| source.name.as_str()).collect()
    }

    #[test]
    fn a_tree_within_the_limits_is_taken_whole_without_links() {
        let dir = tree(&[("a/b.txt", 3), ("c", 0)]);
        std::os::unix::fs::symlink("c", dir.path().join("link")).unwrap();
        std::fs::write(dir.path().join("new\nline"), "x").unwrap();
        let files = Files::choose(dir.path(), 10, 1_000).unwrap();
        assert_eq!(names(&files), ["a/b.txt", "c"]);
        assert_eq!((files.found, files.special, files.unfit_names), (3, 1, 1));
        assert_eq!((files.chosen_bytes, files.beyond_limits), (3, 0));
    }

    #[test]
    fn a_larger_tree_gives_every_kind_its_turn_and_the_same_choice_each_time() {
        let many: Vec<String> = (0..300).map(|n| format!("src/{n:03}.rs")).collect();
        let mut all: Vec<(&str, usize)> = many.iter().map(|name| (name.as_str(), 100)).collect();
        all.extend([("logo.png", 5_000), ("README.md", 200), ("big.rs", 70_000)]);
        let dir = tree(&all);
        let files = Files::choose(dir.path(), 20, 1 << 20).unwrap();
        assert_eq!(files.chosen.len(), 20);
        assert_eq!(files.beyond_limits, 283);
        for kind in ["logo.png", "README.md", "big.rs"] {
            assert!(names(&files).contains(&kind), "{kind}");
        }
        let sources = names(&files).iter().filter(|name| name.starts_with("src/2")).count();
        assert!(sources > 0, "the end of the tree has its share");
        assert_eq!(files.chosen, Files::choose(dir.path(), 20, 1 << 20).unwrap().chosen);
    }

    #[test]
    fn the_limit_on_bytes_holds() {
        let many: Vec<String> = (0..50).map(|n| format!("{n}.bin")).collect();
        let all: Vec<(&str, usize)> = many.iter().map(|name| (name.as_str(), 1_000)).collect();
        let files = Files::choose(tree(&all).path(), 100, 10_500).unwrap();
        assert_eq!(files.chosen_bytes, 10_000);
    }

    #[test]
    fn a_missing_tree_is_an_error_with_the_remedy() {
        let error = Files::choose(Path::new("/no/such/tree"), 1, 1).unwrap_err();
        assert!(error.to_string().contains("--files"), "{error}");
    }
}
