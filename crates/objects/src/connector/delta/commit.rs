//! Commits of a stream to its table.
//!
//! A commit has the version of the stream's transaction that it continues. If the next version of the table is
//! there already, the newest one is read: if the stream's transaction is still the same, another program
//! wrote it, and the commit is made again on top; otherwise it was another run, and the commit fails. If
//! the outcome is not known, the table is read: the record that the commit changes says whose it is.

use std::num::NonZero;
use std::sync::Arc;

use arrow::array::{ArrayRef, Int64Array, MapBuilder, RecordBatch, StringArray, StringBuilder};
use arrow::datatypes::{Field, Schema};
use delta_kernel::committer::FileSystemCommitter;
use delta_kernel::engine::arrow_data::ArrowEngineData;
use delta_kernel::schema::{SchemaRef, StructField};
use delta_kernel::transaction::{CommitResult, Transaction, UpdateTableOperation};
use delta_kernel::{Engine, EngineData, KernelError, SnapshotRef};
use forebay_sdk::connector::Result;
use forebay_sdk::error::ConnectorError;
use forebay_sdk::settings::TargetSettings;

use super::ledger::{self, DataFile};
use super::table::{ENGINE, State, Table, batch_of};

/// Maximum number of attempts of a commit, each of which meets another program's.
pub(super) const ATTEMPTS_MAX: u32 = 100;
/// Number of commits between two checkpoints, unless a property of the table sets another.
const CHECKPOINT_INTERVAL: u64 = 100;

/// What became of an attempt.
pub(super) enum Attempt {
    Done(SnapshotRef),
    /// The next version of the table is there already.
    Taken,
    /// Perhaps committed.
    Unknown(ConnectorError),
}

/// What a commit changes.
#[derive(Debug, Default)]
pub(super) struct Change {
    /// The record that the commit writes, and that no other commit writes alike: domain and contents.
    pub(super) record: (String, String),
    /// Domains that are removed.
    pub(super) removed: Vec<String>,
    /// Files that are added.
    pub(super) files: Vec<DataFile>,
    /// Whether all other files are removed.
    pub(super) is_replace: bool,
    /// Columns that are added.
    pub(super) columns: Vec<StructField>,
}

/// What is known of the table.
#[derive(Debug)]
pub(super) struct Known {
    /// The newest version; `None` if it has to be read.
    pub(super) snapshot: Option<SnapshotRef>,
    /// The version of the stream's last transaction.
    pub(super) version: i64,
    /// The columns for which files are written.
    pub(super) schema: SchemaRef,
    /// The number of the run that writes, once it has made a commit.
    run: Option<i64>,
    /// Whether the outcome of a commit was not known: a record may be there already.
    pub(super) is_doubtful: bool,
}

impl Known {
    /// * `run`: the number of the run, if it has made a commit.
    pub(super) fn new(state: &State, run: Option<i64>) -> Self {
        let snapshot = Arc::clone(&state.snapshot);
        let schema = snapshot.schema();
        let is_doubtful = false;
        Self { snapshot: Some(snapshot), version: state.version, schema, run, is_doubtful }
    }

    pub(super) fn keep(&mut self, snapshot: SnapshotRef) -> SnapshotRef {
        self.schema = snapshot.schema();
        self.snapshot = Some(Arc::clone(&snapshot));
        snapshot
    }

    /// From now on the commits are those of this run.
    pub(super) fn is_of(&mut self, run: i64) {
        self.run = Some(run);
    }
}

impl Table {
    /// Commits a change, unless it is committed already. Returns the version that has it.
    ///
    /// # Errors
    /// [`ConnectorError::Refused`]: another run writes this stream, or another program changed the table
    /// so that the change does not fit. Otherwise the change is perhaps committed.
    pub(super) fn commit(
        &self,
        known: &mut Known,
        change: &Change,
        settings: &TargetSettings,
    ) -> Result<SnapshotRef> {
        // What the last commit left is the stream's own, if its outcome was known.
        let mut own = known.snapshot.take();
        for _ in 0..ATTEMPTS_MAX {
            let (snapshot, is_read) = match own.take() {
                Some(snapshot) => (snapshot, known.is_doubtful),
                None => (self.present()?, true),
            };
            if is_read && self.is_settled(&snapshot, known, change, settings)? {
                return Ok(known.keep(snapshot));
            }
            if snapshot.schema() != known.schema {
                return Err(self.refused(
                    "write to",
                    "another program changed its columns; run again to use the new ones".into(),
                ));
            }
            match self.attempt(&snapshot, known.version, change, settings)? {
                Attempt::Done(snapshot) => {
                    known.version += 1;
                    return Ok(known.keep(snapshot));
                }
                Attempt::Taken => {}
                Attempt::Unknown(error) => {
                    known.is_doubtful = true;
                    // An answer that was lost is found in the log.
                    let Ok(now) = self.present() else { return Err(error) };
                    return match self.is_settled(&now, known, change, settings) {
                        Ok(true) => Ok(known.keep(now)),
                        _ => Err(error),
                    };
                }
            }
        }
        Err(ConnectorError::Busy {
            act: format!("commit to {}", self.display()),
            source: format!("other programs made {ATTEMPTS_MAX} commits in between").into(),
        })
    }

    /// Whether a version has a change already. Takes over the version of the last transaction if that is
    /// of the same run.
    ///
    /// # Errors
    /// [`ConnectorError::Refused`]: it is of another run.
    fn is_settled(
        &self,
        snapshot: &SnapshotRef,
        known: &mut Known,
        change: &Change,
        settings: &TargetSettings,
    ) -> Result<bool> {
        let version = self.version_of(snapshot, settings)?;
        let (domain, contents) = &change.record;
        let load = ledger::load_domain(settings);
        let found = self.record(snapshot, domain)?;
        let is_own = found.as_ref() == Some(contents);
        if version == known.version && !known.is_doubtful || is_own {
            known.version = version;
            return Ok(is_own);
        }
        let head = self.record(snapshot, &load)?;
        let head = head.map(|head| ledger::decode_head(&head, self.display())).transpose()?;
        let is_same = match (known.run, &head) {
            (Some(run), Some(head)) => head.run == run,
            _ => version == known.version,
        };
        if !is_same {
            return Err(self.refused("write to", "another run has started to write there".into()));
        }
        known.version = version;
        // An earlier attempt of this run had the same effect.
        Ok(match *domain == load {
            true => known.run.is_some() && head.is_some_and(|head| head.is_finished()),
            false => found.is_some(),
        })
    }

    /// The newest version of the table, which exists.
    pub(super) fn present(&self) -> Result<SnapshotRef> {
        let gone = || self.refused("write to", "the table was removed; run again".into());
        self.snapshot()?.ok_or_else(gone)
    }

    /// Makes one attempt on top of a version.
    fn attempt(
        &self,
        snapshot: &SnapshotRef,
        version: i64,
        change: &Change,
        settings: &TargetSettings,
    ) -> Result<Attempt> {
        let failed = |error| self.failed("commit to", error);
        let engine = self.engine()?;
        let is_data = !change.files.is_empty() || change.is_replace;
        let mut update =
            Arc::clone(snapshot).update_table(UpdateTableOperation::Write, ENGINE, is_data);
        for column in &change.columns {
            update = update.add_column(column.clone());
        }
        let built = update.build(&*engine, Box::new(FileSystemCommitter::new()));
        let mut transaction = built
            .map_err(failed)?
            .with_transaction_id(ledger::app_id(settings), version + 1)
            .with_domain_metadata(change.record.0.clone(), change.record.1.clone());
        for domain in &change.removed {
            transaction = transaction.with_domain_metadata_removed(domain.clone());
        }
        if change.is_replace {
            // All rows are new: none has an identity to keep.
            transaction.ack_row_tracking_preservation();
            self.remove_all(snapshot, &mut transaction, &*engine)?;
        }
        self.add(&change.files, &mut transaction, &*engine)?;
        self.made(transaction, &*engine)
    }

    /// Adds files.
    pub(super) fn add(
        &self,
        files: &[DataFile],
        transaction: &mut Transaction,
        engine: &dyn Engine,
    ) -> Result<()> {
        if files.is_empty() {
            return Ok(());
        }
        let failed = |error| self.failed("add files to", error);
        let stats = transaction.stats_schema().map_err(failed)?;
        transaction.add_files(adds(files, stats, engine).map_err(failed)?);
        Ok(())
    }

    /// Makes an attempt that is complete.
    pub(super) fn made(&self, transaction: Transaction, engine: &dyn Engine) -> Result<Attempt> {
        let failed = |error| self.failed("commit to", error);
        match transaction.commit(engine) {
            Ok(CommitResult::Committed(committed)) => {
                let after = match committed.post_commit_snapshot() {
                    Some(snapshot) => Arc::clone(snapshot),
                    None => self.present()?,
                };
                let since = committed.post_commit_stats().commits_since_checkpoint;
                Ok(Attempt::Done(self.checkpoint(after, since, engine)))
            }
            Ok(CommitResult::Conflicted(_)) => Ok(Attempt::Taken),
            Ok(CommitResult::Retryable(retryable)) => Ok(Attempt::Unknown(failed(retryable.error))),
            Err(error) => Ok(Attempt::Unknown(failed(error))),
        }
    }

    /// Removes all files that a version has.
    fn remove_all(
        &self,
        snapshot: &SnapshotRef,
        transaction: &mut Transaction,
        engine: &dyn Engine,
    ) -> Result<()> {
        let failed = |error| self.failed("list the files of", error);
        let scan = Arc::clone(snapshot).scan_builder().build().map_err(failed)?;
        for metadata in scan.scan_metadata(engine).map_err(failed)? {
            transaction.remove_files(metadata.map_err(failed)?.scan_files);
        }
        Ok(())
    }

    /// Writes a checkpoint if one is due, and returns the version with it. Without it only reading the log
    /// takes longer.
    ///
    /// * `since`: number of commits since the last one.
    fn checkpoint(&self, snapshot: SnapshotRef, since: u64, engine: &dyn Engine) -> SnapshotRef {
        let interval = snapshot.table_properties().checkpoint_interval;
        if since < interval.map_or(CHECKPOINT_INTERVAL, NonZero::get) {
            return snapshot;
        }
        match snapshot.checkpoint(engine, None) {
            Ok((_, with_checkpoint)) => with_checkpoint,
            Err(error) => {
                let (table, version) = (self.display(), snapshot.version());
                tracing::warn!(table, version, %error, "a checkpoint was not written");
                snapshot
            }
        }
    }
}

/// The rows of `add` actions.
fn adds(
    files: &[DataFile],
    stats: SchemaRef,
    engine: &dyn Engine,
) -> std::result::Result<Box<dyn EngineData>, KernelError> {
    let paths = StringArray::from_iter_values(files.iter().map(|file| &file.path));
    let sizes: Int64Array =
        files.iter().map(|file| i64::try_from(file.bytes).unwrap_or(i64::MAX)).collect();
    let at: Int64Array = files.iter().map(|file| file.at_ms).collect();
    let names = arrow::array::MapFieldNames {
        entry: "key_value".into(),
        key: "key".into(),
        value: "value".into(),
    };
    let mut partitions = MapBuilder::new(Some(names), StringBuilder::new(), StringBuilder::new());
    for _ in files {
        partitions.append(true)?;
    }
    let texts = StringArray::from_iter_values(files.iter().map(|file| &file.stats));
    let field = Field::new("stats", arrow::datatypes::DataType::Utf8, false);
    let texts = RecordBatch::try_new(Arc::new(Schema::new(vec![field])), vec![Arc::new(texts)])?;
    let texts = Box::new(ArrowEngineData::new(texts));
    let stats = batch_of(engine.json_handler().parse_json(texts, stats)?)?;
    let stats = arrow::array::StructArray::from(stats);
    let columns: Vec<(&str, ArrayRef, bool)> = vec![
        ("path", Arc::new(paths), false),
        ("partitionValues", Arc::new(partitions.finish()), false),
        ("size", Arc::new(sizes), false),
        ("modificationTime", Arc::new(at), false),
        ("stats", Arc::new(stats), true),
    ];
    let batch = RecordBatch::try_from_iter_with_nullable(columns)?;
    Ok(Box::new(ArrowEngineData::new(batch)))
}
