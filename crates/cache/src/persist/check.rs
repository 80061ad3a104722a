//! Offline verification: reads everything again and checks that it is what was written.

use std::cell::{Cell, RefCell};
use std::path::Path;

use forebay_base::error_chain::chain;
use forebay_base::fs::FileSystem;
use forebay_log::{CheckedEntry, Cut, Lsn, Verified};

use super::directory;
use super::error::{LogFault, OpenError};
use super::join::Joiner;
use super::ops::{FLUSH, OpsReader};
use super::snapshot::read::{ReadValue, Sink, SnapshotFile};
use crate::store::{Key, Rules};

/// The result of a check.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Checked {
    /// Snapshots that are complete.
    pub snapshots: u64,
    /// Of these, snapshots that the log reaches back to: opening can start with any of them.
    pub usable: u64,
    /// Keys in the complete snapshots.
    pub keys: u64,
    /// Entries of the log that are complete.
    pub entries: u64,
    /// Total size of these entries in bytes.
    pub log_bytes: u64,
    /// Operations in them that can be replayed.
    pub operations: u64,
    /// Number of reported damages.
    pub damages: u64,
    /// A torn tail of the log that opening would cut off, as a crash leaves it. Not counted as
    /// damage.
    pub tail: Option<Cut>,
    /// Unfinished snapshots, which opening would remove. Not counted as damage.
    pub unfinished: u64,
}

/// Returns what is wrong with the words of an operation; not called for [`FLUSH`].
pub type Judge<'a> = dyn Fn(&[&[u8]]) -> Result<(), String> + 'a;

struct Nothing;

impl Sink for Nothing {
    fn put(&mut self, _: usize, _: &Key<'_>, _: ReadValue<'_>, _: Option<u64>) {}
}

/// Reads the data in `dir`, which no process may have open, and reports damage. Changes nothing.
///
/// * `judge`: returns what is wrong with a well-formed operation: an unknown command, too few
///   words.
/// * `on_damage`: called for each damage found, with its file and offset if known.
///
/// # Errors
/// [`OpenError::Locked`]: it is in use. [`OpenError::Io`]: the device failed, or there is no such
/// directory.
pub fn check(
    fs: &dyn FileSystem,
    dir: &Path,
    judge: &Judge<'_>,
    on_damage: &mut dyn FnMut(String),
) -> Result<Checked, OpenError> {
    let _lock = directory::lock(fs, dir)?;
    let mut checked = Checked::default();
    let log_dir = directory::log_dir(dir);
    let has_log = directory::has_log(fs, dir).map_err(OpenError::Io)?;
    let mut verified = Verified::default();
    if has_log {
        verified = check_log(fs, &log_dir, judge, on_damage, &mut checked)?;
    }
    checked.entries = verified.entries;
    checked.log_bytes = verified.bytes;
    checked.damages += verified.damages;
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
                let complaint = belongs(&file, &verified);
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

/// Checks the log: frames, entries, and the operations in them.
fn check_log(
    fs: &dyn FileSystem,
    log_dir: &Path,
    judge: &Judge<'_>,
    on_damage: &mut dyn FnMut(String),
    checked: &mut Checked,
) -> Result<Verified, OpenError> {
    let report = RefCell::new(on_damage);
    let (gap, mut joiner) = (Cell::new(true), Joiner::new(Lsn(0)));
    let mut on_entry = |entry: CheckedEntry<'_>| {
        // Parts without a beginning belong to an operation that began before the log's start or
        // was lost to damage, which has already been reported.
        if gap.take() {
            joiner = Joiner::new(entry.lsn);
        }
        if let Err(error) = operations(&mut joiner, &entry, judge, &mut checked.operations) {
            checked.damages += 1;
            (report.borrow_mut())(error.to_string());
        }
    };
    let mut on_damage = |damage: forebay_log::Damage| {
        gap.set(true);
        (report.borrow_mut())(damage.to_string());
    };
    forebay_log::check_entries(fs, log_dir, &mut on_entry, &mut on_damage)
        .map_err(|source| OpenError::Log { path: log_dir.to_path_buf(), source })
}

/// Counts the operations that an entry completes, up to the first invalid one.
fn operations(
    joiner: &mut Joiner,
    entry: &CheckedEntry<'_>,
    judge: &Judge<'_>,
    count: &mut u64,
) -> Result<(), OpenError> {
    let place = || (entry.path.to_path_buf(), entry.offset);
    let wrong = |fault| {
        let (path, offset) = place();
        OpenError::Entry { path, offset, fault }
    };
    let Some(whole) = joiner.take(entry.lsn, entry.payload).map_err(wrong)? else { return Ok(()) };
    let mut ops = OpsReader::new(whole.bytes);
    while let Some(op) = ops.next().map_err(|fault| wrong(LogFault::Ops(fault)))? {
        let judged = if op.key().is_some() { judge(&op.words) } else { Ok(()) };
        judged.map_err(|reason| {
            let (path, offset) = place();
            OpenError::Replay { path, offset, command: shown(op.words.first()), reason }
        })?;
        *count += 1;
    }
    Ok(())
}

/// The name of an operation's command, for display.
pub(super) fn shown(name: Option<&&[u8]>) -> String {
    let name = name.copied().unwrap_or(FLUSH);
    name.get(..64).unwrap_or(name).escape_ascii().to_string()
}

/// Returns why a complete snapshot cannot be used with this log, if it cannot.
fn belongs(file: &SnapshotFile, verified: &Verified) -> Option<String> {
    let path = file.path().to_path_buf();
    match verified.log_id {
        Some(log_id) if log_id != file.header.log_id => {
            Some(OpenError::Foreign { path }.to_string())
        }
        _ => None,
    }
}
