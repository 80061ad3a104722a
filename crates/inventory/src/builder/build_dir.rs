//! The directory of an index while one is built in it.
//!
//! The files of an index have a number, its generation, in their names; `index.json` contains it.
//! It is written under a temporary name, and renamed when everything else is on stable storage: so
//! an index appears, or replaces the previous one, in one step. Files of other generations are the
//! remains of a killed build, or of a replaced index, and are removed.

use std::path::{Path, PathBuf};

use forebay_base::fs::{Access, FileSystem, Lock};

use super::BuildError;
use crate::format::meta::{INDEX, META_SIZE_MAX, Meta, file_name};

const LOCK: &str = "lock";

/// The directory an index is built in.
#[derive(Debug)]
pub(crate) struct BuildDir {
    dir: PathBuf,
    generation: u64,
    _lock: Box<dyn Lock>,
}

/// The generation in a file's name.
fn generation_of(name: &str) -> Option<u64> {
    let (stem, number) = name.rsplit_once('.')?;
    let known = ["nodes", "order", "spool", "table", "provenance.json", INDEX];
    (known.contains(&stem) || stem.starts_with("run-")).then_some(())?;
    number.parse().ok()
}

impl BuildDir {
    /// Creates the directory if it does not exist, and locks it.
    pub(crate) fn prepare(
        fs: &dyn FileSystem,
        dir: &Path,
        replace: bool,
    ) -> Result<Self, BuildError> {
        if fs.exists(dir).map_err(BuildError::io("check for", dir))? {
            let names = names(fs, dir)?;
            let is_ours =
                |name: &str| name == INDEX || name == LOCK || generation_of(name).is_some();
            if let Some(name) = names.iter().find(|name| !is_ours(name)) {
                return Err(BuildError::Foreign { dir: dir.to_owned(), name: name.clone() });
            }
            if !replace && names.iter().any(|name| name == INDEX) {
                return Err(BuildError::Exists(dir.to_owned()));
            }
        }
        fs.create_dir_all(dir).map_err(BuildError::io("create", dir))?;
        let lock = fs.lock_exclusive(&dir.join(LOCK)).map_err(BuildError::io("lock", dir))?;
        let last = names(fs, dir)?.iter().filter_map(|name| generation_of(name)).max();
        let generation = last.map_or(1, |last| last + 1);
        Ok(Self { dir: dir.to_owned(), generation, _lock: lock })
    }

    pub(crate) fn generation(&self) -> u64 {
        self.generation
    }

    /// A file of the new index.
    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.dir.join(file_name(name, self.generation))
    }

    /// Gives `index.json` its name.
    pub(crate) fn publish(&self, fs: &dyn FileSystem) -> Result<(), BuildError> {
        // The files have to exist before the one that names them.
        fs.sync_dir(&self.dir).map_err(BuildError::io("sync", &self.dir))?;
        let index = self.dir.join(INDEX);
        fs.rename(&self.file(INDEX), &index).map_err(BuildError::io("rename to", &index))?;
        fs.sync_dir(&self.dir).map_err(BuildError::io("sync", &self.dir))
    }

    /// Removes everything that does not belong to the current index of the directory.
    pub(crate) fn clear(&self, fs: &dyn FileSystem) -> Result<(), BuildError> {
        let names = names(fs, &self.dir)?;
        let index = names.iter().any(|name| name == INDEX);
        let living = if index { living(fs, &self.dir) } else { None };
        if index && living.is_none() {
            // The index cannot be read, so its files are unknown.
            return Ok(());
        }
        for name in names {
            if generation_of(&name).is_some_and(|generation| Some(generation) != living) {
                let path = self.dir.join(&name);
                fs.remove_file(&path).map_err(BuildError::io("remove", &path))?;
            }
        }
        Ok(())
    }
}

/// The generation of an index's files; `None` if it cannot be determined.
fn living(fs: &dyn FileSystem, dir: &Path) -> Option<u64> {
    let path = dir.join(INDEX);
    let file = fs.open(&path, Access::Read).ok()?;
    let size = file.len().ok().filter(|&size| size <= META_SIZE_MAX)?;
    let mut bytes = vec![0; usize::try_from(size).ok()?];
    file.read_exact_at(&mut bytes, 0).ok()?;
    Meta::from_bytes(&bytes).ok().map(|meta| meta.generation)
}

fn names(fs: &dyn FileSystem, dir: &Path) -> Result<Vec<String>, BuildError> {
    let entries = fs.list(dir).map_err(BuildError::io("list", dir))?;
    Ok(entries.into_iter().map(|entry| entry.name.to_string_lossy().into_owned()).collect())
}
