//! Parts below a directory: written to a temporary file, synced, then renamed without replacing a
//! file.

use std::fs::{Permissions, read_dir};
use std::io::ErrorKind;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use forebay_base::fs::{FileSystem as _, RealFs};
use tempfile::NamedTempFile;

use super::{Staged, is_ours};

/// Prefix of temporary files: a dot, so that readers of tables skip them.
const TEMPORARY: &str = ".forebay-export-";

/// A directory, created if it does not exist.
#[derive(Debug)]
pub(crate) struct Directory {
    path: PathBuf,
}

impl Directory {
    /// Creates a target at `path`; the directory is created once something is written.
    pub(crate) fn new(path: &Path) -> Self {
        Self { path: path.to_owned() }
    }

    /// Returns a file of an earlier export, preferably the manifest.
    pub(super) fn first_part(&self) -> anyhow::Result<Option<String>> {
        let listed = || format!("cannot list {}", self.path.display());
        let mut found: Vec<PathBuf> = Vec::new();
        let entries = match read_dir(&self.path) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            entries => entries.with_context(listed)?,
        };
        for entry in entries {
            let entry = entry.with_context(listed)?;
            if entry.file_name().to_str().is_some_and(is_ours) {
                found.push(entry.path());
            }
        }
        // `_` sorts before letters, so the manifest comes first.
        found.sort();
        for path in found {
            let file = walkdir::WalkDir::new(path)
                .sort_by_file_name()
                .into_iter()
                .find(|entry| entry.as_ref().map_or(true, |entry| !entry.file_type().is_dir()));
            if let Some(file) = file {
                return Ok(Some(file.with_context(listed)?.path().display().to_string()));
            }
        }
        Ok(None)
    }

    pub(super) fn temporary(&self) -> anyhow::Result<NamedTempFile> {
        make(&self.path)?;
        tempfile::Builder::new()
            .prefix(TEMPORARY)
            // As for any file a program creates: the umask determines who may read it.
            .permissions(Permissions::from_mode(0o666))
            .tempfile_in(&self.path)
            .with_context(|| format!("cannot create a file in {}", self.path.display()))
    }

    pub(super) fn put(&self, staged: Staged, path: &str) -> anyhow::Result<()> {
        let target = self.path.join(path);
        let parent = target.parent().unwrap_or(&self.path);
        make(parent)?;
        let stored = || format!("cannot store {}", target.display());
        staged.file.as_file().sync_all().with_context(stored)?;
        match staged.file.persist_noclobber(&target) {
            Ok(_) => {}
            Err(failed) if failed.error.kind() == ErrorKind::AlreadyExists => {
                anyhow::bail!("{} already exists; an export replaces no files", target.display())
            }
            Err(failed) => return Err(failed.error).with_context(stored),
        }
        RealFs.sync_dir(parent).with_context(stored)
    }
}

fn make(path: &Path) -> anyhow::Result<()> {
    RealFs
        .create_dir_all(path)
        .with_context(|| format!("cannot create the directory {}", path.display()))
}
