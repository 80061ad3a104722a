//! Whether a file is still the one that was compared with its hash, by what the file system says of it.
//!
//! Comparing a file takes as long as reading it; its inode, size and times take microseconds. The kernel sets the time of
//! change whenever bytes, owner or permissions change, and no call sets it to another.
//!
//! Invariants: a time of change that is not yet [`SETTLED`] proves nothing, because the next change could get the same;
//! a file that belongs to another user, or that others may write, is never used.

use std::fs::{File, Metadata};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

/// Permissions of group and others to write.
const OTHERS_WRITE: u32 = 0o022;
/// How long ago a change must be: far more than the clock of a file system takes to advance.
const SETTLED: Duration = Duration::from_secs(1);
/// Maximum size of a record, in bytes.
const RECORD_SIZE_MAX: u64 = 4 << 10;

/// What a file system says of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
struct Stamp {
    device: u64,
    inode: u64,
    size: u64,
    /// Seconds and nanoseconds.
    modified: (i64, i64),
    /// When bytes, owner or permissions changed.
    changed: (i64, i64),
}

impl Stamp {
    fn of(found: &Metadata) -> Self {
        Self {
            device: found.dev(),
            inode: found.ino(),
            size: found.len(),
            modified: (found.mtime(), found.mtime_nsec()),
            changed: (found.ctime(), found.ctime_nsec()),
        }
    }

    /// Whether the change is long enough ago. A clock that was set back makes it none.
    fn is_settled(&self, now: SystemTime) -> bool {
        let seconds = u64::try_from(self.changed.0).unwrap_or_default();
        let nanoseconds = u32::try_from(self.changed.1).unwrap_or_default();
        let changed = UNIX_EPOCH.checked_add(Duration::new(seconds, nanoseconds));
        changed
            .and_then(|changed| now.duration_since(changed).ok())
            .is_some_and(|age| age >= SETTLED)
    }
}

/// What was found when a file was last compared with its hash.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Seen {
    /// The hash it had, in hexadecimal.
    pub(crate) hash: String,
    /// How the file system described it, if that proves anything.
    stamp: Option<Stamp>,
}

impl Seen {
    /// A file that has this hash.
    pub(crate) fn new(hash: String, found: &Metadata) -> Self {
        let stamp = Some(Stamp::of(found)).filter(|stamp| stamp.is_settled(SystemTime::now()));
        Self { hash, stamp }
    }

    /// Whether the file has not changed since.
    pub(crate) fn is(&self, found: &Metadata) -> bool {
        self.stamp == Some(Stamp::of(found))
    }

    /// Whether a record of the unchanged file is worth writing.
    pub(crate) fn proves(&self) -> bool {
        self.stamp.is_some()
    }

    /// The record in a file; `None` if there is none, or it is damaged.
    ///
    /// # Errors
    /// It cannot be read, or others may write it.
    pub(crate) fn read(path: &Path) -> io::Result<Option<Self>> {
        let Some((file, _)) = open(path)? else { return Ok(None) };
        let mut text = Vec::new();
        file.take(RECORD_SIZE_MAX).read_to_end(&mut text)?;
        Ok(serde_json::from_slice(&text).ok())
    }

    /// Writes the record.
    pub(crate) fn write(&self, path: &Path) -> io::Result<()> {
        put(path, &serde_json::to_vec(self)?)
    }
}

/// Opens a file of this user that no other may write; `None` if there is none.
///
/// # Errors
/// It is a link, not a file, another user's, or it cannot be read.
pub(crate) fn open(path: &Path) -> io::Result<Option<(File, Metadata)>> {
    let no_follow = rustix::fs::OFlags::NOFOLLOW.bits().cast_signed();
    let file = match File::options().read(true).custom_flags(no_follow).open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let found = file.metadata()?;
    check_owner(&found)?;
    if !found.is_file() {
        return Err(io::Error::other("it is not a file"));
    }
    Ok(Some((file, found)))
}

/// Fails unless a file or directory belongs to this user, and no other may write it.
pub(crate) fn check_owner(found: &Metadata) -> io::Result<()> {
    let own = rustix::process::geteuid().as_raw();
    if found.uid() != own || found.mode() & OTHERS_WRITE != 0 {
        return Err(io::Error::new(
            io::ErrorKind::PermissionDenied,
            "it belongs to another user, or others may write it",
        ));
    }
    Ok(())
}

/// Replaces a file. It is on the disk before it has its name.
pub(crate) fn put(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let dir = path.parent().ok_or_else(|| io::Error::other("it has no directory"))?;
    let mut file = tempfile::Builder::new().prefix(".new-").tempfile_in(dir)?;
    file.write_all(bytes)?;
    file.as_file().sync_all()?;
    file.persist(path).map_err(|error| error.error)?;
    File::open(dir)?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn age(stamp: &Stamp, age: Duration) -> SystemTime {
        let seconds = u64::try_from(stamp.changed.0).unwrap();
        UNIX_EPOCH + Duration::new(seconds, u32::try_from(stamp.changed.1).unwrap()) + age
    }

    #[test]
    fn a_recent_change_proves_nothing_and_neither_does_one_of_the_future() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        std::fs::write(&path, "a").unwrap();
        let stamp = Stamp::of(&std::fs::metadata(&path).unwrap());
        assert!(!stamp.is_settled(age(&stamp, Duration::ZERO)));
        assert!(!stamp.is_settled(age(&stamp, SETTLED / 2)));
        assert!(stamp.is_settled(age(&stamp, SETTLED)));
        let earlier = age(&stamp, Duration::ZERO) - Duration::from_secs(3600);
        assert!(!stamp.is_settled(earlier), "the clock was set back");
    }

    #[test]
    fn a_file_that_was_changed_or_replaced_is_another() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        std::fs::write(&path, "a").unwrap();
        let found = || std::fs::metadata(&path).unwrap();
        let seen = Seen { hash: "1".into(), stamp: Some(Stamp::of(&found())) };
        assert!(seen.is(&found()));
        std::fs::write(dir.path().join("new"), "b").unwrap();
        let times = std::fs::FileTimes::new().set_modified(found().modified().unwrap());
        File::options().write(true).open(dir.path().join("new")).unwrap().set_times(times).unwrap();
        std::fs::rename(dir.path().join("new"), &path).unwrap();
        assert!(!seen.is(&found()), "another file of the same size and time of modification");
        assert!(!Seen { stamp: None, ..seen }.is(&found()), "a record without a stamp");
    }

    #[test]
    fn a_damaged_record_is_none_and_that_of_others_an_error() {
        use std::os::unix::fs::PermissionsExt as _;
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("record");
        assert_eq!(Seen::read(&path).unwrap(), None);
        let found = std::fs::metadata(dir.path()).unwrap();
        let seen = Seen::new("2".into(), &found);
        seen.write(&path).unwrap();
        assert_eq!(Seen::read(&path).unwrap(), Some(seen));
        for text in ["", "{", "{}", "[1]", &"x".repeat(1 << 16)] {
            std::fs::write(&path, text).unwrap();
            assert_eq!(Seen::read(&path).unwrap(), None, "{text:?}");
        }
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o666)).unwrap();
        assert!(Seen::read(&path).is_err());
    }
}
