//! What a backup copies: an image that the running server made, or the data directory of a stopped one.
//!
//! Invariant: nothing of it changes until the source is dropped. An image is removed then; a stopped data directory
//! is locked until then.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail, ensure};
use forebay_base::fs::{FileSystem as _, Lock, RealFs};
use forebay_base::image::{ImageFile, ImageList, is_safe};
use walkdir::{DirEntry, WalkDir};

use crate::data_dir::OURS;
use crate::out;

/// What a server that makes images and the commands that copy them agree on: see `serve/image.rs` of the API.
const IMAGE: &str = "backup-image";
const LOCK: &str = "backup.lock";

/// The subsystems' directories that one process has open at a time.
const LOCKED: [&str; 5] = ["intake", "jobs", "webhooks", "events", "cache"];

/// Files that are derived from others, belong to a running process or to this copy alone, by their paths.
const LEFT_OUT: [&str; 12] = [
    "intake/catalogue.sqlite",
    "intake/catalogue-fsck.sqlite",
    "intake/catalogue-damaged.sqlite",
    "intake/search.sqlite",
    "intake/documents.sqlite-shm",
    "intake/forward.json",
    "intake/reserve",
    "intake/spill",
    "intake/staging",
    "pipelines.sqlite-shm",
    "webhooks/state.sqlite-shm",
    "inventories/.temporary",
];

/// What is copied.
#[derive(Debug)]
pub(crate) struct Source {
    data: PathBuf,
    /// The image, if a server made one.
    image: Option<PathBuf>,
    /// Files that are in the data directory itself.
    stopped: Vec<ImageFile>,
    files: u64,
    bytes: u64,
    /// The first is that of the command.
    _locks: Vec<Box<dyn Lock>>,
}

impl Source {
    /// Prepares the data directory to be copied.
    ///
    /// * `image`: asks the running server for an image, and returns its path. Called only if there is one.
    ///
    /// # Errors
    /// There is no data, another backup runs, or the server does not make an image.
    pub(crate) fn prepare(
        data: &Path,
        image: impl FnOnce() -> anyhow::Result<PathBuf>,
    ) -> anyhow::Result<Self> {
        let data = std::fs::canonicalize(data)
            .with_context(|| format!("cannot find the data directory {}", data.display()))?;
        ensure!(
            OURS.iter().any(|name| data.join(name).exists()),
            "{} is not a data directory",
            data.display()
        );
        let own = match RealFs.lock_exclusive(&data.join(LOCK)) {
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                bail!("another backup of {} is being made", data.display())
            }
            lock => lock.with_context(|| format!("cannot lock {LOCK} in {}", data.display()))?,
        };
        let mut source =
            Self { data, image: None, stopped: Vec::new(), files: 0, bytes: 0, _locks: vec![own] };
        // The intake is always part of a running server.
        let is_online = match source.lock("intake")? {
            Locked::Ours(lock) => {
                source._locks.push(lock);
                false
            }
            Locked::Missing => false,
            Locked::Others => true,
        };
        let mut covered = vec!["intake".to_owned()];
        if is_online {
            covered = source.take_image(image()?)?;
        } else {
            covered.clear();
        }
        for name in OURS.iter().filter(|name| !covered.iter().any(|known| known == *name)) {
            source.take_stopped(name)?;
        }
        Ok(source)
    }

    /// Whether a server was running.
    pub(crate) fn is_online(&self) -> bool {
        self.image.is_some()
    }

    /// Bytes of all files.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// All files, and where each is read.
    pub(crate) fn files(
        &self,
    ) -> anyhow::Result<impl Iterator<Item = anyhow::Result<(ImageFile, PathBuf)>> + use<'_>> {
        let image = self.image.as_deref();
        let listed = image.map(ImageList::open).transpose()?.into_iter().flatten();
        let linked = image.map(|image| image.join("files")).unwrap_or_default();
        let at = |dir: &Path, file: ImageFile| {
            let path = dir.join(&file.path);
            (file, path)
        };
        let listed = listed.map(move |file| Ok(at(&linked, file?)));
        Ok(listed.chain(self.stopped.iter().map(move |file| Ok(at(&self.data, file.clone())))))
    }

    /// Takes the image that the server made; returns the names in the data directory that it has.
    fn take_image(&mut self, image: PathBuf) -> anyhow::Result<Vec<String>> {
        let expected = self.data.join(IMAGE);
        let found = std::fs::canonicalize(&image)
            .with_context(|| format!("cannot find the image of the server, {}", image.display()))?;
        ensure!(
            found == expected,
            "the server has made an image in {}, which is not in {}; name the data directory of \
             that server with --data, or another server with --server",
            found.display(),
            self.data.display()
        );
        self.image = Some(expected.clone());
        let mut covered: Vec<String> = Vec::new();
        for file in ImageList::open(&expected)? {
            let file = file?;
            self.files += 1;
            self.bytes += file.bytes;
            let name = file.path.split('/').next().unwrap_or_default();
            if !covered.iter().any(|known| known == name) {
                covered.push(name.to_owned());
            }
        }
        Ok(covered)
    }

    /// Takes a part of the data directory that no process has open.
    fn take_stopped(&mut self, name: &str) -> anyhow::Result<()> {
        let path = self.data.join(name);
        if !path.exists() {
            return Ok(());
        }
        // That of the intake was locked first.
        if LOCKED.contains(&name) && name != "intake" {
            match self.lock(name)? {
                Locked::Ours(lock) => self._locks.push(lock),
                Locked::Missing => {}
                Locked::Others => bail!(
                    "{} is in use by another process, which makes no image; stop it first",
                    path.display()
                ),
            }
        }
        let data = self.data.clone();
        let is_kept = |entry: &DirEntry| {
            let below = entry.path().strip_prefix(&data).unwrap_or(entry.path());
            !is_left_out(&below.to_string_lossy())
        };
        // A subsystem's directory may be a link to another disk.
        for entry in WalkDir::new(&path).sort_by_file_name().into_iter().filter_entry(is_kept) {
            let entry = entry.with_context(|| format!("cannot list {}", path.display()))?;
            if entry.file_type().is_dir() {
                continue;
            }
            let found = std::fs::metadata(entry.path())
                .with_context(|| format!("cannot inspect {}", entry.path().display()))?;
            if !found.is_file() {
                out::note(format_args!("left out: {:?} is no regular file", entry.path()));
                continue;
            }
            let below = entry.path().strip_prefix(&data).unwrap_or(entry.path());
            let text = below.to_str().filter(|text| is_safe(text)).with_context(|| {
                format!("{:?} has a name that is not UTF-8; rename it or move it away", below)
            })?;
            let bytes = found.len();
            self.stopped.push(ImageFile {
                path: text.to_owned(),
                bytes,
                size: bytes,
                may_shrink: false,
            });
            self.files += 1;
            self.bytes += bytes;
        }
        Ok(())
    }

    fn lock(&self, name: &str) -> anyhow::Result<Locked> {
        let dir = self.data.join(name);
        if !dir.is_dir() {
            return Ok(Locked::Missing);
        }
        match RealFs.lock_exclusive(&dir.join("lock")) {
            Ok(lock) => Ok(Locked::Ours(lock)),
            Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(Locked::Others),
            Err(error) => Err(error).with_context(|| format!("cannot lock {}", dir.display())),
        }
    }
}

impl Drop for Source {
    fn drop(&mut self) {
        let Some(image) = &self.image else { return };
        // The server removes it otherwise, once the lock is free.
        if let Err(error) = std::fs::remove_dir_all(image) {
            out::note(format_args!("cannot remove {}: {error}", image.display()));
        }
    }
}

/// Who has a directory open.
enum Locked {
    Ours(Box<dyn Lock>),
    Others,
    /// There is none.
    Missing,
}

/// Whether a file or directory is not part of a backup.
fn is_left_out(path: &str) -> bool {
    let name = path.rsplit('/').next().unwrap_or(path);
    // A journal of SQLite has the name of its database with an ending.
    let database = path.strip_suffix("-wal").or(path.strip_suffix("-journal")).unwrap_or(path);
    let database = database.strip_suffix("-shm").unwrap_or(database);
    name == "lock"
        || [".new", ".prepared", ".erase", ".tmp"].iter().any(|ending| name.ends_with(ending))
        || LEFT_OUT.iter().any(|left| path == *left || database == *left)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn data() -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        for (path, text) in [
            ("intake/lock", ""),
            ("intake/log/0000000000000000.log", "log"),
            ("intake/catalogue.sqlite", "derived"),
            ("intake/catalogue.sqlite-wal", "derived"),
            ("intake/documents.sqlite", "documents"),
            ("intake/documents.sqlite-wal", "more"),
            ("intake/documents.sqlite-shm", "shared"),
            ("intake/spill/0.ndjson", "waiting"),
            ("jobs/bodies/x.new", "half"),
            ("keys.toml", "keys"),
            ("notes.txt", "of the user"),
        ] {
            let path = dir.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        dir
    }

    #[test]
    fn of_a_stopped_directory_what_is_derived_is_left_out() {
        let dir = data();
        let source = Source::prepare(dir.path(), || bail!("not asked")).unwrap();
        let paths: Vec<_> = source.files().unwrap().map(|file| file.unwrap().0.path).collect();
        assert_eq!(
            paths,
            [
                "intake/documents.sqlite",
                "intake/documents.sqlite-wal",
                "intake/log/0000000000000000.log",
                "keys.toml"
            ]
        );
        // One at a time, and no process opens the data meanwhile.
        assert!(Source::prepare(dir.path(), || bail!("not asked")).is_err());
        assert!(RealFs.lock_exclusive(&dir.path().join("intake/lock")).is_err());
    }

    #[test]
    fn an_image_of_another_directory_is_refused() {
        let (dir, other) = (data(), data());
        let _server = RealFs.lock_exclusive(&dir.path().join("intake/lock")).unwrap();
        let image = other.path().join(IMAGE);
        std::fs::create_dir(&image).unwrap();
        let error = Source::prepare(dir.path(), || Ok(image.clone())).unwrap_err();
        assert!(format!("{error:#}").contains("--data"), "{error:#}");
        assert!(image.exists());
    }
}
