//! A directory on disk as the place of a destination.
//!
//! ```text
//! PATH/STREAM/part-*.parquet             what readers see
//! PATH/_forebay/STREAM/ledger.json       the ledger, replaced by rename
//! PATH/_forebay/STREAM/lock              locked while a run writes
//! PATH/_forebay/STREAM/{next,dead,staging}/
//! ```
//!
//! A file is synced before it is renamed, and its directory after that.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use async_trait::async_trait;
use forebay_base::fs::{FileSystem as _, RealFs};
use forebay_sdk::bridge::blocking;
use forebay_sdk::error::ConnectorError;
use forebay_sdk::settings::Within;
use rustix::fs::{CWD, RenameFlags, renameat_with};

use super::ledger::{LEDGER_SIZE_MAX, is_ours};
use super::location::{Listed, Location};
use super::store::{Room, Staged, Store, Version};

type Result<T> = std::result::Result<T, ConnectorError>;

/// Distinguishes files that are staged concurrently.
static STAGED: AtomicU64 = AtomicU64::new(0);

/// A directory.
#[derive(Debug, Clone)]
pub(super) struct Disk {
    rooms: Arc<Rooms>,
}

#[derive(Debug)]
struct Rooms {
    shown: PathBuf,
    own: PathBuf,
    within: Within,
}

/// A file that is being written.
struct StagedFile {
    file: Option<Arc<File>>,
    path: PathBuf,
    to: PathBuf,
    size: u64,
}

impl Disk {
    /// The directory of a stream below `path`.
    pub(super) fn new(path: &Path, directory: &str, within: Within) -> Self {
        let shown = path.join(directory);
        let own = path.join("_forebay").join(directory);
        Self { rooms: Arc::new(Rooms { shown, own, within }) }
    }
}

impl Rooms {
    fn path(&self, room: Room) -> PathBuf {
        match room {
            Room::Shown => self.shown.clone(),
            Room::Next => self.own.join("next"),
            Room::Dead => self.own.join("dead"),
            Room::Staging => self.own.join("staging"),
            Room::Segments => self.own.join("segments"),
            Room::Removed => self.own.join("removed"),
        }
    }

    /// Checks that no directory that is written to is a link to another place.
    fn check(&self) -> Result<()> {
        let rooms =
            [Room::Shown, Room::Next, Room::Dead, Room::Staging, Room::Segments, Room::Removed];
        if !self.within.is_bounded() {
            return Ok(());
        }
        for path in rooms.map(|room| self.path(room)).iter().chain([&self.own]) {
            match self.within.check(path) {
                // Does not exist yet: it is created in a parent that was compared.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                checked => checked.map_err(failed("write to", path))?,
            }
        }
        Ok(())
    }
}

fn failed(act: &'static str, path: &Path) -> impl FnOnce(io::Error) -> ConnectorError + use<> {
    let path = path.to_owned();
    move |error| ConnectorError::file(act, path, error)
}

/// Creates a directory and its parents, each durable in its parent.
pub(super) fn create_directory(path: &Path) -> Result<()> {
    if path.is_dir() {
        return Ok(());
    }
    if let Some(above) = path.parent().filter(|above| !above.as_os_str().is_empty()) {
        create_directory(above)?;
    }
    match fs::create_dir(path) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists && path.is_dir() => {}
        Err(error) => return Err(failed("create the directory", path)(error)),
    }
    match path.parent().filter(|above| !above.as_os_str().is_empty()) {
        Some(above) => sync_directory(above),
        None => sync_directory(Path::new(".")),
    }
}

fn sync_directory(path: &Path) -> Result<()> {
    File::open(path).and_then(|directory| directory.sync_all()).map_err(failed("sync", path))
}

/// Removes a file if it exists.
fn remove_file(path: &Path) -> Result<()> {
    match fs::remove_file(path) {
        Ok(()) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(failed("remove", path)(error)),
    }
}

/// Writes a file to a temporary name, syncs it, and renames it over another.
fn replace_file(path: &Path, bytes: &[u8]) -> Result<()> {
    let aside = path.with_extension("new");
    let mut file = File::create(&aside).map_err(failed("create", &aside))?;
    file.write_all(bytes).map_err(failed("write", &aside))?;
    file.sync_all().map_err(failed("sync", &aside))?;
    fs::rename(&aside, path).map_err(failed("replace", path))?;
    path.parent().map_or(Ok(()), sync_directory)
}

/// The names in a directory; none if it does not exist.
fn names(path: &Path) -> Result<Vec<(String, fs::Metadata)>> {
    let entries = match fs::read_dir(path) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(failed("list", path)(error)),
    };
    let mut names = Vec::new();
    for entry in entries {
        let entry = entry.map_err(failed("list", path))?;
        let metadata = entry.metadata().map_err(failed("inspect", &entry.path()))?;
        names.push((entry.file_name().to_string_lossy().into_owned(), metadata));
    }
    Ok(names)
}

/// Exchanges the two directories, atomically if the system supports that; otherwise moves file by
/// file.
fn switch(rooms: &Rooms, names: &[String]) -> Result<()> {
    let (shown, next) = (rooms.path(Room::Shown), rooms.path(Room::Next));
    create_directory(&shown)?;
    create_directory(&next)?;
    let waiting: Vec<&String> = names.iter().filter(|name| next.join(name).exists()).collect();
    if waiting.is_empty() {
        return Ok(());
    }
    // Only a directory without other programs' files is exchanged.
    let is_all =
        waiting.len() == names.len() && self::names(&shown)?.iter().all(|(it, _)| is_ours(it));
    if !is_all || renameat_with(CWD, &next, CWD, &shown, RenameFlags::EXCHANGE).is_err() {
        for name in waiting {
            let (from, to) = (next.join(name), shown.join(name));
            fs::rename(&from, &to).map_err(failed("rename", &from))?;
        }
        sync_directory(&shown)?;
        return sync_directory(&next);
    }
    for above in [shown.parent(), next.parent()].into_iter().flatten() {
        let above = if above.as_os_str().is_empty() { Path::new(".") } else { above };
        sync_directory(above)?;
    }
    Ok(())
}

#[async_trait]
impl Store for Disk {
    fn place(&self, room: Room) -> Location {
        Location::Disk(self.rooms.path(room), self.rooms.within.clone())
    }

    fn display(&self, room: Room, name: &str) -> String {
        self.rooms.path(room).join(name).display().to_string()
    }

    async fn claim(&self) -> Result<Box<dyn std::any::Any + Send + Sync>> {
        let rooms = Arc::clone(&self.rooms);
        blocking(move || {
            rooms.check()?;
            create_directory(&rooms.own)?;
            let path = rooms.own.join("lock");
            match RealFs.lock_exclusive(&path) {
                Ok(lock) => Ok(Box::new(lock) as Box<dyn std::any::Any + Send + Sync>),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    Err(ConnectorError::Busy {
                        act: format!("write to {}", rooms.shown.display()),
                        source: "another run is writing there".into(),
                    })
                }
                Err(error) => Err(failed("lock", &path)(error)),
            }
        })
        .await
    }

    async fn ledger(&self) -> Result<Option<(Vec<u8>, Version)>> {
        let path = self.rooms.own.join("ledger.json");
        blocking(move || match fs::metadata(&path) {
            Ok(metadata) if metadata.len() > LEDGER_SIZE_MAX => Err(ConnectorError::data(
                path.display().to_string(),
                format!("it is larger than {LEDGER_SIZE_MAX} bytes: not a ledger"),
            )),
            Ok(_) => fs::read(&path)
                .map(|bytes| Some((bytes, Version::default())))
                .map_err(failed("read", &path)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(failed("read", &path)(error)),
        })
        .await
    }

    async fn put_ledger(&self, bytes: Vec<u8>, _was: Option<&Version>) -> Result<Version> {
        let rooms = Arc::clone(&self.rooms);
        blocking(move || {
            create_directory(&rooms.own)?;
            replace_file(&rooms.own.join("ledger.json"), &bytes)?;
            Ok(Version::default())
        })
        .await
    }

    async fn stage(&self, room: Room, name: &str) -> Result<Box<dyn Staged>> {
        let number = STAGED.fetch_add(1, Ordering::Relaxed);
        let staging = self.rooms.path(Room::Staging);
        let path = staging.join(format!("{name}.{number}"));
        let to = self.rooms.path(room).join(name);
        blocking(move || {
            create_directory(&staging)?;
            let file = File::create(&path).map_err(failed("create", &path))?;
            Ok(Box::new(StagedFile { file: Some(Arc::new(file)), path, to, size: 0 })
                as Box<dyn Staged>)
        })
        .await
    }

    async fn list(&self, room: Room) -> Result<Vec<Listed>> {
        let path = self.rooms.path(room);
        blocking(move || {
            let names = names(&path)?;
            Ok(names.iter().map(|(name, metadata)| Location::listed_file(name, metadata)).collect())
        })
        .await
    }

    async fn remove(&self, room: Room, names: Vec<String>) -> Result<()> {
        if names.is_empty() {
            return Ok(());
        }
        let path = self.rooms.path(room);
        blocking(move || {
            names.iter().try_for_each(|name| remove_file(&path.join(name)))?;
            sync_directory(&path)
        })
        .await
    }

    async fn switch(&self, names: Vec<String>) -> Result<()> {
        let rooms = Arc::clone(&self.rooms);
        blocking(move || switch(&rooms, &names)).await
    }
}

#[async_trait]
impl Staged for StagedFile {
    async fn write(&mut self, bytes: &mut Vec<u8>) -> Result<()> {
        let Some(file) = self.file.clone() else { return Err(ConnectorError::Stopped) };
        let (path, chunk) = (self.path.clone(), std::mem::take(bytes));
        self.size += chunk.len() as u64;
        let write = move || {
            (&*file).write_all(&chunk).map_err(failed("write", &path))?;
            Ok(chunk)
        };
        // The buffer is returned, to be filled again.
        *bytes = blocking(write).await?;
        bytes.clear();
        Ok(())
    }

    async fn publish(mut self: Box<Self>) -> Result<u64> {
        let Some(file) = self.file.take() else { return Err(ConnectorError::Stopped) };
        let (path, to, size) = (self.path.clone(), self.to.clone(), self.size);
        let publish = move || {
            let published = (|| {
                file.sync_all().map_err(failed("sync", &path))?;
                let directory = to.parent().unwrap_or(Path::new("."));
                create_directory(directory)?;
                fs::rename(&path, &to).map_err(failed("rename", &path))?;
                sync_directory(directory)
            })();
            if published.is_err() {
                // The failure itself is reported; the next load removes what this leaves.
                drop(fs::remove_file(&path));
            }
            published
        };
        blocking(publish).await?;
        Ok(size)
    }
}

impl Drop for StagedFile {
    fn drop(&mut self) {
        if self.file.take().is_some()
            && let Err(error) = fs::remove_file(&self.path)
        {
            let path = self.path.display();
            tracing::debug!(%path, %error, "a staged file remains until the next load removes it");
        }
    }
}
