//! Reading everything again, offline, to see whether it is still what was written.

use std::cell::{Cell, RefCell};
use std::path::Path;

use forebay_base::error_chain::chain;
use forebay_base::fs::FileSystem;
use forebay_log::{CheckedEntry, Cut, Lsn, Verified};

use super::directory;
use super::error::{LogFault, OpenError};
use super::join::Joiner;
use super::ops::{FLUSH, OpsReader};
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
    /// Operations in them that can be done again.
    pub operations: u64,
    /// Damaged places told.
    pub damages: u64,
    /// A torn tail of the log that opening would cut off, as a crash leaves it. Not damage.
    pub tail: Option<Cut>,
    /// Snapshots that were not finished, which opening would remove. Not damage.
    pub unfinished: u64,
}

/// What is wrong with the words of an operation, which [`FLUSH`] is not asked about.
pub type Judge<'a> = dyn Fn(&[&[u8]]) -> Result<(), String> + 'a;

struct Nothing;

impl Sink for Nothing {
    fn put(&mut self, _: usize, _: &Key<'_>, _: Found<'_>, _: Option<u64>) {}
}

/// Reads the data in `dir`, which nobody may have open, and tells what is damaged. Changes nothing.
///
/// * `judge`: says what is wrong with an operation whose form is right: a command nobody knows, too
///   few words.
/// * `on_damage`: told of each damaged place, with its file and offset where there is one.
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

/// Reads the log: frames, entries, and the operations in them.
fn check_log(
    fs: &dyn FileSystem,
    log_dir: &Path,
    judge: &Judge<'_>,
    on_damage: &mut dyn FnMut(String),
    checked: &mut Checked,
) -> Result<Verified, OpenError> {
    let told = RefCell::new(on_damage);
    let (gap, mut joiner) = (Cell::new(true), Joiner::new(Lsn(0)));
    let mut on_entry = |entry: CheckedEntry<'_>| {
        // Of what was begun before the log's start, or is lost in a damaged place, there are parts
        // without a beginning: that was told already.
        if gap.take() {
            joiner = Joiner::new(entry.lsn);
        }
        if let Err(error) = operations(&mut joiner, &entry, judge, &mut checked.operations) {
            checked.damages += 1;
            (told.borrow_mut())(error.to_string());
        }
    };
    let mut on_damage = |damage: forebay_log::Damage| {
        gap.set(true);
        (told.borrow_mut())(damage.to_string());
    };
    forebay_log::check_entries(fs, log_dir, &mut on_entry, &mut on_damage)
        .map_err(|source| OpenError::Log { path: log_dir.to_path_buf(), source })
}

/// Counts the operations that an entry completes, up to the first that is none.
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

/// The name of an operation's command, as it can be told.
pub(super) fn shown(name: Option<&&[u8]>) -> String {
    let name = name.copied().unwrap_or(FLUSH);
    name.get(..64).unwrap_or(name).escape_ascii().to_string()
}

/// What is wrong with a whole snapshot beside this log.
fn belongs(file: &SnapshotFile, verified: &Verified) -> Option<String> {
    let path = file.path().to_path_buf();
    match verified.log_id {
        Some(log_id) if log_id != file.header.log_id => {
            Some(OpenError::Foreign { path }.to_string())
        }
        _ => None,
    }
}
