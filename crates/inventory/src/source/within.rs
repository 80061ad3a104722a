//! Restrictions on where a source may read, for a source that another user specifies.
//!
//! Invariant: nothing outside is read, whatever symbolic links or manifests refer to. A file is
//! checked after it was opened, by the path that the system reports for it then, so changing a link
//! meanwhile has no effect.

use std::fs::{File, OpenOptions, ReadDir};
use std::io;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// `O_NONBLOCK` of Linux: opening a pipe without a writer would wait forever.
const NONBLOCK: i32 = 0o4000;

/// Directories and bucket prefixes that may be read. The default permits all.
#[derive(Debug, Clone, Default)]
pub struct Within(Option<Arc<Places>>);

#[derive(Debug)]
struct Places {
    directories: Vec<PathBuf>,
    /// Buckets and prefixes of keys in them.
    prefixes: Vec<(String, String)>,
}

impl Within {
    /// Permits only files below these directories, and objects whose keys have these prefixes.
    #[must_use]
    pub fn new(directories: Vec<PathBuf>, prefixes: Vec<(String, String)>) -> Self {
        Self(Some(Arc::new(Places { directories, prefixes })))
    }

    /// Opens a file if it may be read.
    pub(crate) fn open(&self, path: &Path) -> io::Result<File> {
        let Some(places) = &self.0 else { return File::open(path) };
        let file = open_at_once(path)?;
        let found = std::fs::read_link(held(&file))?;
        if !places.has(&found) {
            return Err(outside());
        }
        match file.metadata()?.is_file() {
            true => Ok(file),
            false => Err(io::Error::new(io::ErrorKind::InvalidInput, "it is not a regular file")),
        }
    }

    /// Whether a directory may be listed; its path without links, for [`list`].
    pub(crate) fn check_directory(&self, path: &Path) -> io::Result<PathBuf> {
        let found = path.canonicalize()?;
        match &self.0 {
            Some(places) if !places.has(&found) => Err(outside()),
            _ => Ok(found),
        }
    }

    /// Whether an object may be read, or a prefix listed.
    pub(crate) fn has_key(&self, bucket: &str, key: &str) -> bool {
        let Some(places) = &self.0 else { return true };
        let is_plain = key.split('/').all(|name| name != "." && name != "..");
        is_plain
            && places.prefixes.iter().any(|(of, prefix)| of == bucket && key.starts_with(prefix))
    }
}

impl Places {
    fn has(&self, found: &Path) -> bool {
        // A permitted path may itself contain a link.
        let mut roots = self.directories.iter().filter_map(|root| root.canonicalize().ok());
        roots.any(|root| found.starts_with(root))
    }
}

/// Lists a directory whose path has no links, and refuses one that has become a link since. The
/// listed directory is the one that was checked, whatever its name refers to meanwhile.
pub(crate) fn list(path: &Path) -> io::Result<ReadDir> {
    let directory = open_at_once(path)?;
    if std::fs::read_link(held(&directory))? != path {
        let text = "it was moved, or replaced by a link, while the tree was read";
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, text));
    }
    std::fs::read_dir(held(&directory))
}

fn open_at_once(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).custom_flags(NONBLOCK).open(path)
}

/// The path of an open file on Linux.
fn held(file: &File) -> String {
    format!("/proc/self/fd/{}", file.as_raw_fd())
}

fn outside() -> io::Error {
    io::Error::new(io::ErrorKind::PermissionDenied, "it is outside the permitted locations")
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn a_link_that_leads_outside_is_not_followed_and_one_inside_is() {
        let dir = tempfile::tempdir().unwrap();
        let (inside, outside) = (dir.path().join("in"), dir.path().join("out"));
        fs::create_dir_all(inside.join("a")).unwrap();
        fs::create_dir_all(&outside).unwrap();
        fs::write(inside.join("a/plain.csv"), "key,size\n").unwrap();
        fs::write(outside.join("secret.csv"), "key,size\n").unwrap();
        symlink(inside.join("a/plain.csv"), inside.join("near.csv")).unwrap();
        symlink(outside.join("secret.csv"), inside.join("far.csv")).unwrap();
        symlink(&outside, inside.join("b")).unwrap();
        let within = Within::new(vec![inside.clone()], Vec::new());
        for good in ["a/plain.csv", "near.csv"] {
            assert!(within.open(&inside.join(good)).is_ok(), "{good}");
        }
        for bad in ["far.csv", "b/secret.csv", "../out/secret.csv"] {
            let error = within.open(&inside.join(bad)).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::PermissionDenied, "{bad}");
        }
        assert!(within.open(&inside.join("a")).is_err(), "a directory is no file");
        assert!(within.check_directory(&inside.join("a")).is_ok());
        assert!(within.check_directory(&inside.join("b")).is_err());
        assert!(Within::default().open(&inside.join("far.csv")).is_ok());
    }

    #[test]
    fn a_prefix_of_a_bucket_ends_where_its_name_does() {
        let within = Within::new(Vec::new(), vec![("b".to_owned(), "reports/".to_owned())]);
        assert!(within.has_key("b", "reports/2024/manifest.json"));
        for (bucket, key) in [
            ("b", "reports-secret/manifest.json"),
            ("b", "other"),
            ("b", "reports/../other"),
            ("c", "reports/x"),
        ] {
            assert!(!within.has_key(bucket, key), "{bucket} {key}");
        }
    }
}
