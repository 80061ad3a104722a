//! Which files `forebay ingest` takes, and under which names.
//!
//! A file that is named on the command line is stored under its own name, what is below a directory
//! under its path from there, with `/` between the parts; `--prefix` precedes both. So the same command
//! gives the same names wherever it runs.
//!
//! Invariants: no link is followed and no directory entered twice, unless links are followed on
//! request, where cycles are found; what cannot be stored is reported with its path and reason, and
//! nothing else is affected.

use std::fs::Metadata;
use std::path::{Component, Path, PathBuf};

use forebay_intake::names::{FileName, Namespace};
use walkdir::{DirEntry, WalkDir};

use super::file_client::Target;

/// A file to be stored.
#[derive(Debug, Clone)]
pub(super) struct Item {
    pub(super) path: PathBuf,
    pub(super) target: Target,
    pub(super) size: u64,
    /// When it was changed last, as the system says.
    pub(super) modified: Option<std::time::SystemTime>,
}

/// What was found at a path.
#[derive(Debug)]
pub(super) enum Found {
    /// A file to be stored.
    File(Item),
    /// Something that is no regular file, such as a link or a socket.
    Skipped { path: PathBuf, reason: &'static str },
    /// Something that cannot be read or named.
    Failed { path: PathBuf, reason: String },
}

/// How files are found and named.
#[derive(Debug, Clone)]
pub(super) struct Walk {
    pub(super) namespace: Namespace,
    /// Precedes every name; empty or ends with a slash.
    pub(super) prefix: String,
    pub(super) follow_links: bool,
}

/// The prefix of names, with one slash at its end.
pub(super) fn prefix(text: &str) -> String {
    match text.trim_end_matches('/') {
        "" => String::new(),
        text => format!("{text}/"),
    }
}

impl Walk {
    /// Everything at and below a path, in the order of names.
    pub(super) fn below(&self, root: &Path) -> impl Iterator<Item = Found> {
        let walk = WalkDir::new(root).follow_links(self.follow_links).sort_by_file_name();
        // What the user names is meant, whether or not it is a link.
        let walk = walk.follow_root_links(true);
        let (walk, this, root) = (walk.into_iter(), self.clone(), root.to_owned());
        walk.filter_map(move |entry| match entry {
            Ok(entry) => this.found(&root, &entry),
            Err(error) => {
                let path = error.path().map_or_else(|| root.clone(), Path::to_owned);
                let reason = match error.io_error() {
                    Some(error) => error.to_string(),
                    None => "it is a link to a directory that contains it".to_owned(),
                };
                Some(Found::Failed { path, reason })
            }
        })
    }

    fn found(&self, root: &Path, entry: &DirEntry) -> Option<Found> {
        let path = entry.path().to_owned();
        let kind = entry.file_type();
        if kind.is_dir() {
            return None;
        }
        let failed = |reason: String| Some(Found::Failed { path: path.clone(), reason });
        if entry.path_is_symlink() && entry.depth() > 0 && !self.follow_links {
            return Some(Found::Skipped { path, reason: "it is a symbolic link" });
        }
        let metadata: Metadata = match std::fs::metadata(&path) {
            Ok(metadata) => metadata,
            Err(error) => return failed(error.to_string()),
        };
        if !metadata.is_file() {
            return Some(Found::Skipped { path, reason: "it is not a regular file" });
        }
        match self.target(root, entry) {
            Err(reason) => failed(reason),
            Ok(target) => {
                let (size, modified) = (metadata.len(), metadata.modified().ok());
                Some(Found::File(Item { path, target, size, modified }))
            }
        }
    }

    /// The name of a file.
    fn target(&self, root: &Path, entry: &DirEntry) -> Result<Target, String> {
        let below = match entry.depth() {
            0 => entry.path().file_name().map(Path::new).ok_or("it has no name")?,
            _ => entry.path().strip_prefix(root).map_err(|error| error.to_string())?,
        };
        let mut name = self.prefix.clone();
        for (at, part) in below.components().enumerate() {
            let Component::Normal(part) = part else { return Err("its path is not plain".into()) };
            let part = part.to_str().ok_or("its name is not UTF-8")?;
            if at > 0 {
                name.push('/');
            }
            name.push_str(part);
        }
        let name = FileName::parse(&name).map_err(|error| error.to_string())?;
        Ok(Target { namespace: self.namespace.clone(), name })
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::ffi::OsStrExt as _;

    use super::*;

    #[test]
    fn names_are_paths_below_the_directory_and_what_has_none_is_reported() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("root");
        std::fs::create_dir_all(root.join("b/c")).unwrap();
        for path in ["z.txt", "b/c/d e.txt", "b/back\\slash", "a.txt"] {
            std::fs::write(root.join(path), path).unwrap();
        }
        std::fs::write(root.join(std::ffi::OsStr::from_bytes(b"b/\xff")), "x").unwrap();
        std::os::unix::fs::symlink("a.txt", root.join("link")).unwrap();
        std::os::unix::fs::symlink(".", root.join("b/loop")).unwrap();
        let namespace = Namespace::parse("n").unwrap();
        let mut walk = Walk { namespace, prefix: prefix("in//"), follow_links: false };
        let seen = |walk: &Walk, root: &Path| {
            let found = walk.below(root).map(|found| match found {
                Found::File(item) => item.target.to_string(),
                Found::Skipped { path, .. } => {
                    format!("skipped {}", path.file_name().unwrap().display())
                }
                Found::Failed { path, .. } => {
                    format!("failed {}", path.file_name().unwrap().to_string_lossy())
                }
            });
            found.collect::<Vec<_>>()
        };
        let expected = [
            "n/in/a.txt",
            "failed back\\slash",
            "n/in/b/c/d e.txt",
            "skipped loop",
            "failed \u{FFFD}",
            "skipped link",
            "n/in/z.txt",
        ];
        assert_eq!(seen(&walk, &root), expected);
        assert_eq!(seen(&walk, &root.join("a.txt")), ["n/in/a.txt"]);
        assert_eq!(seen(&walk, &root.join("link")), ["n/in/link"]);
        assert_eq!(seen(&walk, &root.join("none")), ["failed none"]);
        walk.follow_links = true;
        let followed = seen(&walk, &root);
        assert!(followed.contains(&"n/in/link".to_owned()), "{followed:?}");
        assert!(followed.contains(&"failed loop".to_owned()), "{followed:?}");
    }

    #[test]
    fn a_prefix_ends_with_one_slash() {
        assert_eq!([prefix(""), prefix("/"), prefix("a/b"), prefix("a//")], ["", "", "a/b/", "a/"]);
    }
}
