//! The input of a tour: a tree of real files and real JSON documents.
//!
//! Invariant: the same tree and limits give the same selection; nothing is written or followed.

pub(super) mod documents;
pub(super) mod files;

use std::path::{Path, PathBuf};

use anyhow::Context as _;

pub(super) use documents::Documents;
pub(super) use files::Files;

/// By default, a tree with fewer files is not used.
const TREE_FILES_MIN: usize = 200;

/// Returns a tree on this machine: the sources cargo unpacked, or /usr/share, or the current
/// directory.
pub(super) fn default_tree() -> anyhow::Result<PathBuf> {
    let cargo = std::env::var_os("CARGO_HOME")
        .map(PathBuf::from)
        .or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".cargo")));
    let candidates = cargo.map(|home| home.join("registry/src"));
    let mut candidates = candidates.into_iter().chain([PathBuf::from("/usr/share")]);
    match candidates.find(|tree| is_large(tree)) {
        Some(tree) => Ok(tree),
        None => std::env::current_dir().context("there is no current directory"),
    }
}

fn is_large(tree: &Path) -> bool {
    let files = walkdir::WalkDir::new(tree)
        .into_iter()
        .filter(|entry| entry.as_ref().is_ok_and(|entry| entry.file_type().is_file()));
    files.take(TREE_FILES_MIN).count() == TREE_FILES_MIN
}
