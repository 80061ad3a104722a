//! Reading everything again, offline, to see whether it is still what was written.

use std::path::Path;

use forebay_base::error_chain::chain;
use forebay_base::fs::FileSystem;
use forebay_log::{Cut, Lsn, Verified};

use super::directory;
use super::error::OpenError;
use super::snapshot::read::{Found, Sink, SnapshotFile};
use crate::store::{Key, Rules};

/// What was read.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Checked {
    /// Snapshots that are whole.
    pub snapshots: u64,
    /// Of them, those the log reaches back to: opening can begin with any of these.
    pub usable: u64,
    /// Keys in the whole snapshots.
    pub keys: u64,
    /// Entries of the log that are whole.
    pub entries: u64,
    /// Bytes of them.
    pub log_bytes: u64,
    /// Damaged places told.
    pub damages: u64,
    /// A torn tail of the log that opening would cut off, as a crash leaves it. Not damage.
    pub tail: Option<Cut>,
    /// Snapshots that were not finished, which opening would remove. Not damage.
    pub unfinished: u64,
}

struct Nothing;

impl Sink for Nothing {
    fn put(&mut self, _: usize, _: &Key<'_>, _: Found<'_>, _: Option<u64>) {}
}

/// Reads the data in `dir`, which nobody may have open, and tells what is damaged. Changes nothing.
///
/// * `on_damage`: told of each damaged place, with its file and offset where there is one.
///
/// # Errors
/// [`OpenError::Locked`]: it is in use. [`OpenError::Io`]: the device failed, or there is no such
/// directory.
pub fn check(
    fs: &dyn FileSystem,
    dir: &Path,
    on_damage: &mut dyn FnMut(String),
) -> Result<Checked, OpenError> {
    let _lock = directory::lock(fs, dir)?;
    let mut checked = Checked::default();
    let log_dir = directory::log_dir(dir);
    let has_log = directory::has_log(fs, dir).map_err(OpenError::Io)?;
    let mut verified = Verified::default();
    if has_log {
        let read = forebay_log::check(fs, &log_dir, &mut |damage| on_damage(damage.to_string()));
        verified = read.map_err(|source| OpenError::Log { path: log_dir, source })?;
    }
    checked.entries = verified.entries;
    checked.log_bytes = verified.bytes;
    checked.damages = verified.damages;
    checked.tail = verified.tail.clone();
    let (found, unfinished) = directory::list(fs, dir).map_err(OpenError::Io)?;
    checked.unfinished = unfinished.len() as u64;
    let some = !found.is_empty();
    for (_, path) in found {
        let read = SnapshotFile::open(fs, &path).and_then(|file| {
            let rules = Rules::new(file.header.seed);
            file.read(&rules, &mut Nothing)?;
            Ok(file)
        });
        let complaint = match read {
            Err(error) => Some(chain(&error).to_string()),
            Ok(file) => {
                checked.snapshots += 1;
                checked.keys += file.end.keys;
                let complaint = judge(&file, &verified);
                let reached = file.end.lowest >= verified.start;
                checked.usable += u64::from(complaint.is_none() && reached);
                complaint
            }
        };
        if let Some(complaint) = complaint {
            checked.damages += 1;
            on_damage(complaint);
        }
    }
    if some && !has_log {
        checked.damages += 1;
        on_damage(OpenError::NoLog { path: dir.to_path_buf() }.to_string());
    } else if verified.start > Lsn(0) && checked.usable == 0 {
        checked.damages += 1;
        let (path, start) = (dir.to_path_buf(), verified.start);
        on_damage(OpenError::NoSnapshot { path, start, reasons: Vec::new() }.to_string());
    }
    Ok(checked)
}

/// What is wrong with a whole snapshot beside this log.
fn judge(file: &SnapshotFile, verified: &Verified) -> Option<String> {
    let path = file.path().to_path_buf();
    match verified.log_id {
        Some(log_id) if log_id != file.header.log_id => {
            Some(OpenError::Foreign { path }.to_string())
        }
        _ => None,
    }
}
