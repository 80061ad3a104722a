//! Commits that put one file in the place of several, with the same rows.
//!
//! Invariants:
//! - Such a commit changes no data, and has the next version of the stream's transaction: only the run that may
//!   write the stream makes it.
//! - Every file that it takes out is in the version below it as it was read, without a deletion vector. Otherwise
//!   nothing is committed: its rows may have been changed or removed by another program.

use std::collections::HashSet;
use std::sync::Arc;

use arrow::array::AsArray as _;
use delta_kernel::committer::FileSystemCommitter;
use delta_kernel::engine::arrow_data::ArrowEngineData;
use delta_kernel::scan::state::ScanFile;
use delta_kernel::table_features::TableFeature;
use delta_kernel::transaction::{Transaction, UpdateTableOperation};
use delta_kernel::{Engine, FilteredEngineData, KernelError, SnapshotRef};
use forebay_sdk::connector::Result;
use forebay_sdk::error::ConnectorError;
use forebay_sdk::settings::TargetSettings;

use super::commit::{ATTEMPTS_MAX, Attempt, Known};
use super::ledger::{self, DataFile};
use super::table::{ENGINE, Table, batch_of};

/// The column of a scan with the names of files.
const PATH: &str = "path";

/// A data file of a version.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct StoredFile {
    pub(super) path: String,
    pub(super) bytes: u64,
    /// When it was written, in ms since 1970.
    pub(super) at_ms: i64,
    /// Number of its rows, if the log has it.
    pub(super) rows: Option<u64>,
    /// Whether all of them count: no deletion vector takes some out.
    pub(super) is_whole: bool,
}

/// What became of a commit that rearranges files.
pub(super) enum Rearranged {
    Done,
    /// Nothing was committed, and nothing will be: why.
    Left(&'static str),
    /// Perhaps committed.
    Unknown(ConnectorError),
}

impl Table {
    /// The data files of a version.
    pub(super) fn files(&self, snapshot: &SnapshotRef) -> Result<Vec<StoredFile>> {
        let failed = |error| self.failed("list the files of", error);
        let mut files = Vec::new();
        let scan = Arc::clone(snapshot).scan_builder().build().map_err(failed)?;
        for metadata in scan.scan_metadata(&*self.engine()?).map_err(failed)? {
            let found = metadata.map_err(failed)?.visit_scan_files(files, take);
            files = found.map_err(failed)?;
        }
        Ok(files)
    }

    /// Whether files of a table can be rearranged: nothing besides its rows depends on where they are.
    pub(super) fn may_rearrange(snapshot: &SnapshotRef) -> bool {
        let table = snapshot.table_configuration();
        let bound = [TableFeature::ChangeDataFeed, TableFeature::RowTracking];
        bound.iter().all(|feature| !table.is_feature_enabled(feature))
    }

    /// Puts a file in the place of others, which have the same rows together.
    ///
    /// # Errors
    /// Nothing was committed.
    pub(super) fn rearrange(
        &self,
        known: &mut Known,
        settings: &TargetSettings,
        out: &[StoredFile],
        into: &DataFile,
    ) -> Result<Rearranged> {
        let mut own = known.snapshot.clone();
        for _ in 0..ATTEMPTS_MAX {
            let snapshot = match own.take() {
                Some(snapshot) => snapshot,
                None => self.present()?,
            };
            if self.version_of(&snapshot, settings)? != known.version {
                return Ok(Rearranged::Left("another run writes the stream"));
            }
            if snapshot.schema() != known.schema || !Self::may_rearrange(&snapshot) {
                return Ok(Rearranged::Left("another program has changed the table"));
            }
            let there: HashSet<StoredFile> = self.files(&snapshot)?.into_iter().collect();
            if out.iter().any(|file| !there.contains(file)) {
                return Ok(Rearranged::Left("another program has changed its files"));
            }
            let domain = ledger::load_domain(settings);
            let Some(head) = self.record(&snapshot, &domain)? else {
                return Ok(Rearranged::Left("the record of the load is gone"));
            };
            let head = ledger::encode(&ledger::decode_head(&head, self.display())?.again())?;
            let engine = self.engine()?;
            let failed = |error| self.failed("commit to", error);
            let operation = UpdateTableOperation::Optimize;
            let update = Arc::clone(&snapshot).update_table(operation, ENGINE, false);
            let built = update.build(&*engine, Box::new(FileSystemCommitter::new()));
            let mut transaction = built
                .map_err(failed)?
                .with_transaction_id(ledger::app_id(settings), known.version + 1)
                .with_domain_metadata(domain.clone(), head.clone());
            self.remove(&snapshot, out, &mut transaction, &*engine)?;
            self.add(std::slice::from_ref(into), &mut transaction, &*engine)?;
            match self.made(transaction, &*engine)? {
                Attempt::Done(snapshot) => {
                    known.version += 1;
                    known.keep(snapshot);
                    return Ok(Rearranged::Done);
                }
                Attempt::Taken => {}
                Attempt::Unknown(error) => {
                    known.is_doubtful = true;
                    known.snapshot = None;
                    let found = self.present().and_then(|now| self.record(&now, &domain));
                    return Ok(match found {
                        Ok(Some(found)) if found == head => Rearranged::Done,
                        _ => Rearranged::Unknown(error),
                    });
                }
            }
        }
        Ok(Rearranged::Left("other programs write the table without a pause"))
    }

    /// Removes some of the files of a version.
    fn remove(
        &self,
        snapshot: &SnapshotRef,
        out: &[StoredFile],
        transaction: &mut Transaction,
        engine: &dyn Engine,
    ) -> Result<()> {
        let failed = |error| self.failed("list the files of", error);
        let out: HashSet<&str> = out.iter().map(|file| &*file.path).collect();
        let scan = Arc::clone(snapshot).scan_builder().build().map_err(failed)?;
        for metadata in scan.scan_metadata(engine).map_err(failed)? {
            let files = metadata.map_err(failed)?.scan_files;
            transaction.remove_files(chosen(files, &out).map_err(failed)?);
        }
        Ok(())
    }
}

/// Takes a file of a scan.
fn take(files: &mut Vec<StoredFile>, file: ScanFile) {
    files.push(StoredFile {
        bytes: u64::try_from(file.size).unwrap_or(0),
        at_ms: file.modification_time,
        rows: file.stats.map(|stats| stats.num_records),
        is_whole: !file.dv_info.has_vector(),
        path: file.path,
    });
}

/// The files of a scan that have one of these names.
fn chosen(
    files: FilteredEngineData,
    names: &HashSet<&str>,
) -> std::result::Result<FilteredEngineData, KernelError> {
    let (data, selected) = files.into_parts();
    let batch = batch_of(data)?;
    let paths = batch.column_by_name(PATH).and_then(|paths| paths.as_string_opt::<i32>());
    let paths = paths.ok_or_else(|| KernelError::generic("a scan has no names of files"))?;
    let is_chosen = |(at, path): (usize, Option<&str>)| {
        selected.get(at).copied().unwrap_or(true) && path.is_some_and(|path| names.contains(path))
    };
    let chosen = paths.iter().enumerate().map(is_chosen).collect();
    FilteredEngineData::try_new(Box::new(ArrowEngineData::new(batch)), chosen)
}
