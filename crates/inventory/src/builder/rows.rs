//! Checks of rows before they are counted: rows with invalid keys are invalid, and invalid rows are
//! counted, kept as samples, or end the build.

use std::sync::Mutex;

use forebay_base::fs::FileSystem;

use super::BuildError;
use super::monitor::Monitor;
use crate::format::{DEPTH_MAX, KEY_SIZE_MAX};
use crate::object::Batch;
use crate::source::{BadRow, Stopped};

/// Maximum number of sampled invalid rows.
const SHOWN_MAX: usize = 10;

/// How an invalid row, or a key listed twice, is handled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OnBadRow {
    /// The build fails.
    #[default]
    Fail,
    /// The row is skipped and counted.
    Skip,
}

/// The invalid rows of a build, and the first error. Shared by its readers.
#[derive(Debug, Default)]
pub(crate) struct Verdicts {
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    error: Option<BuildError>,
    bad_rows: u64,
    shown: Vec<BadRow>,
}

impl Verdicts {
    fn lock(&self) -> std::sync::MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// Records an error; the first one is kept.
    pub(crate) fn fail(&self, error: BuildError) -> Stopped {
        self.lock().error.get_or_insert(error);
        Stopped
    }

    pub(crate) fn has_failed(&self) -> bool {
        self.lock().error.is_some()
    }

    pub(crate) fn bad_row(&self, row: BadRow, policy: OnBadRow) -> Result<(), Stopped> {
        if policy == OnBadRow::Fail {
            return Err(self.fail(BuildError::BadRow(Box::new(row))));
        }
        let mut inner = self.lock();
        inner.bad_rows += 1;
        if inner.shown.len() < SHOWN_MAX {
            inner.shown.push(row);
        }
        Ok(())
    }

    /// The error, or the number of invalid rows and the first of them.
    pub(crate) fn into_result(self) -> Result<(u64, Vec<BadRow>), BuildError> {
        let inner = self.inner.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
        match inner.error {
            Some(error) => Err(error),
            None => Ok((inner.bad_rows, inner.shown)),
        }
    }
}

/// Why a key is invalid; `None` if it is valid.
#[inline]
pub(crate) fn key_fault(key: &[u8], delimiter: u8) -> Option<String> {
    // A short key cannot be deep.
    if !key.is_empty() && key.len() <= DEPTH_MAX {
        return None;
    }
    if key.is_empty() {
        return Some("the key is empty".to_owned());
    }
    if key.len() > KEY_SIZE_MAX {
        return Some(format!("the key has {} bytes; the limit is {KEY_SIZE_MAX}", key.len()));
    }
    let depth = memchr::memchr_iter(delimiter, key).count();
    (depth > DEPTH_MAX).then(|| format!("the key has {depth} delimiters; the limit is {DEPTH_MAX}"))
}

/// State shared by all readers of a build.
pub(crate) struct Shared<'a> {
    pub(crate) fs: &'a dyn FileSystem,
    pub(crate) monitor: &'a Monitor,
    pub(crate) verdicts: &'a Verdicts,
    pub(crate) delimiter: u8,
    pub(crate) on_bad_row: OnBadRow,
}

impl Shared<'_> {
    /// Removes the rows with invalid keys from a batch. `before`: number of rows of the part before
    /// it.
    pub(crate) fn sift(&self, batch: &mut Batch, part: &str, before: u64) -> Result<(), Stopped> {
        if self.monitor.is_cancelled() {
            return Err(self.verdicts.fail(BuildError::Cancelled));
        }
        let is_good = |key: &[u8]| key_fault(key, self.delimiter).is_none();
        if batch.iter().all(|(key, _)| is_good(key)) {
            return Ok(());
        }
        let mut good = Batch::default();
        for (i, (key, object)) in batch.iter().enumerate() {
            match key_fault(key, self.delimiter) {
                Some(reason) => self.verdicts.bad_row(
                    BadRow {
                        part: part.to_owned(),
                        row: before + i as u64 + 1,
                        field: "key".to_owned(),
                        reason,
                    },
                    self.on_bad_row,
                )?,
                None => {
                    if good.push(key, *object).is_err() {
                        return Err(Stopped);
                    }
                }
            }
        }
        *batch = good;
        Ok(())
    }
}
