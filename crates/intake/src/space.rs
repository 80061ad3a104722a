//! Continuing when the disk is full or no descriptor is left: a transient failure stops nothing.
//!
//! The log holds what it could not write and writes it when it can ([`Options::hold_when_full`]).
//! Until then writes are refused with [`Full`], and reads show what was acknowledged. A view that
//! cannot write tries again. A file of [`RESERVE_SIZE`] bytes is kept and removed when it is
//! needed, so that views have room to show what was acknowledged before the disk was full.
//!
//! Invariant: nothing is acknowledged while the log is stalled, and nothing that was not acknowledged
//! is shown.
//!
//! [`Options::hold_when_full`]: forebay_log::Options::hold_when_full
//! [`Full`]: crate::error::IntakeError::Full

use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use forebay_base::fs::FileSystem;
use parking_lot::Mutex;

use crate::error::CatalogueFault;

/// Space reserved for the views: a full batch of changes, and the logs of two SQLite databases.
const RESERVE_SIZE: u64 = 16 << 20;
/// Its name below the intake's directory.
const RESERVE_NAME: &str = "reserve";
/// Delay after a failure before the same is tried again.
pub(crate) const RETRY_AFTER: Duration = Duration::from_millis(250);

/// `ENFILE` and `EMFILE`, which the standard library has no kind for.
const NO_DESCRIPTORS: [i32; 2] = [23, 24];

/// Whether a failure of the system can pass without a restart.
pub(crate) fn passes(error: &io::Error) -> bool {
    is_full(error) || error.raw_os_error().is_some_and(|code| NO_DESCRIPTORS.contains(&code))
}

/// Whether a failure is due to a lack of space.
pub(crate) fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::StorageFull | ErrorKind::QuotaExceeded)
}

/// Whether SQLite failed for lack of space or descriptors. Its transaction is then rolled back and
/// may be repeated. A failed sync is not among these.
pub(crate) fn sqlite_passes(error: &rusqlite::Error) -> bool {
    use rusqlite::ErrorCode::{CannotOpen, DiskFull};
    /// The shared memory beside a database could not be made large enough.
    const SHM_SIZE: i32 = rusqlite::ffi::SQLITE_IOERR_SHMSIZE;
    matches!(
        error,
        rusqlite::Error::SqliteFailure(error, _)
            if matches!(error.code, DiskFull | CannotOpen) || error.extended_code == SHM_SIZE
    )
}

/// As [`sqlite_passes`], for the catalogue.
pub(crate) fn catalogue_passes(fault: &CatalogueFault) -> bool {
    matches!(fault, CatalogueFault::Sqlite(error) if sqlite_passes(error))
}

/// Whether the cause is a lack of space, in a file or in a database.
pub(crate) fn is_wanted(error: &(dyn std::error::Error + 'static)) -> bool {
    let mut next = Some(error);
    while let Some(error) = next {
        if error.downcast_ref().is_some_and(is_full)
            || error.downcast_ref().is_some_and(sqlite_passes)
            || error.downcast_ref().is_some_and(catalogue_passes)
        {
            return true;
        }
        next = error.source();
    }
    false
}

/// Space that is reserved until it is needed.
#[derive(Debug)]
pub(crate) struct Reserve {
    fs: Arc<dyn FileSystem>,
    path: PathBuf,
    kept: Mutex<bool>,
}

impl Reserve {
    /// Reserves space in `dir`, as far as there is some.
    pub(crate) fn keep(fs: Arc<dyn FileSystem>, dir: &Path) -> Self {
        let reserve = Self { fs, path: dir.join(RESERVE_NAME), kept: Mutex::new(false) };
        reserve.restore();
        reserve
    }

    /// Releases the space. Returns whether there was any.
    pub(crate) fn release(&self) -> bool {
        let mut kept = self.kept.lock();
        if !*kept {
            return false;
        }
        *kept = false;
        match self.fs.remove_file(&self.path) {
            Ok(()) => {
                tracing::warn!("the disk is full: released the reserved space");
                true
            }
            Err(error) => {
                tracing::warn!(%error, "could not release the reserved space");
                false
            }
        }
    }

    /// Whether the reserve exists; creates it again if that is possible now.
    pub(crate) fn is_kept(&self) -> bool {
        if !*self.kept.lock() {
            self.restore();
        }
        *self.kept.lock()
    }

    /// Reserves space again, if there is some. The next call tries again after a failure.
    pub(crate) fn restore(&self) {
        let mut kept = self.kept.lock();
        if *kept {
            return;
        }
        *kept = match self.fs.len(&self.path) {
            Ok(size) if size >= RESERVE_SIZE => true,
            Ok(_) => self.fs.remove_file(&self.path).and_then(|()| self.make()).is_ok(),
            Err(_) => self.make().is_ok(),
        };
    }

    fn make(&self) -> io::Result<()> {
        let made = self.fs.create_new(&self.path)?;
        made.allocate(RESERVE_SIZE).or_else(|error| {
            // A part of it would be useless.
            self.fs.remove_file(&self.path)?;
            Err(error)
        })
    }
}

#[cfg(test)]
mod tests {
    use forebay_base::fs::RealFs;

    use super::*;

    #[test]
    fn the_reserve_is_given_up_once_and_kept_again() {
        let dir = tempfile::tempdir().unwrap();
        let size =
            || std::fs::metadata(dir.path().join(RESERVE_NAME)).map(|found| found.len()).ok();
        let reserve = Reserve::keep(Arc::new(RealFs), dir.path());
        assert_eq!(size(), Some(RESERVE_SIZE));
        assert!(reserve.release() && !reserve.release());
        assert_eq!(size(), None);
        reserve.restore();
        assert_eq!(size(), Some(RESERVE_SIZE));
        drop(reserve);
        let again = Reserve::keep(Arc::new(RealFs), dir.path());
        assert!(again.release(), "one that is there already is taken over");
    }

    #[test]
    fn want_of_space_and_of_descriptors_pass_and_a_failed_device_does_not() {
        for code in [28, 122, 23, 24] {
            assert!(passes(&io::Error::from_raw_os_error(code)), "{code}");
        }
        assert!(!passes(&io::Error::from_raw_os_error(5)));
        let failure = |code| rusqlite::Error::SqliteFailure(rusqlite::ffi::Error::new(code), None);
        assert!(sqlite_passes(&failure(rusqlite::ffi::SQLITE_FULL)));
        assert!(sqlite_passes(&failure(rusqlite::ffi::SQLITE_CANTOPEN)));
        assert!(!sqlite_passes(&failure(rusqlite::ffi::SQLITE_IOERR_FSYNC)));
        assert!(!sqlite_passes(&failure(rusqlite::ffi::SQLITE_CORRUPT)));
    }
}
