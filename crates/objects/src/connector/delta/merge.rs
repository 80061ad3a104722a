//! Merging small files, so that a table to which each run adds some has few.
//!
//! Only files that this stream wrote are merged, and only with others of about the same size: a large one is not
//! written again for every few small ones.
//!
//! Invariant: a merge that fails, is interrupted or meets another program leaves the table as it is.

use std::sync::Arc;

use arrow::array::{RecordBatch, RecordBatchOptions};
use delta_kernel::{FileDataReadResultIterator, FileMeta};
use forebay_sdk::bridge::{Encoder, blocking};
use forebay_sdk::cast::exact;
use forebay_sdk::connector::{Load, Result};
use forebay_sdk::error::ConnectorError;

use super::super::store::Room;
use super::encoding::Encoding;
use super::ledger::{self, DataFile};
use super::rearrange::{Rearranged, StoredFile};
use super::table::{ROOT, Shape, Table, batch_of};
use super::target::Shared;
use super::writer::now_ms;

/// Sizes in bytes at which a class of small files ends. Larger files stay.
const CLASSES: [u64; 3] = [1 << 20, 16 << 20, 128 << 20];
/// Number and bytes of files that become one, at most, but for the last of them.
const FILES_MAX: usize = 1_000;
const SIZE_MAX: u64 = 128 << 20;
/// Maximum number of merges at the end of a load.
const MERGES_MAX: usize = 4;
/// Bytes that are encoded before they are written.
const WRITTEN: usize = 1 << 20;

/// Files that become one.
struct Plan {
    table: Table,
    shape: Shape,
    files: Vec<StoredFile>,
}

/// Rows that are read from files and written to another.
struct Rewriting {
    table: Table,
    rows: FileDataReadResultIterator,
    file: Encoding,
    count: u64,
}

impl Shared {
    /// Merges small files after a load has ended. Returns how many there were.
    pub(super) async fn merge(self: &Arc<Self>, load: &Load) -> Result<usize> {
        let mut merged = 0;
        for _ in 0..MERGES_MAX {
            if self.context.is_cancelled() {
                break;
            }
            let Some(plan) = self.plan_merge(load).await? else { break };
            let out: Vec<String> = plan.files.iter().map(|file| file.path.clone()).collect();
            let (count, path) = (out.len(), ledger::merged_name(&self.settings));
            self.note_removed(&out, Some(&path)).await?;
            let into = self.rewrite(&plan, path.clone()).await?;
            let outcome = self.with_prepared(load, move |shared, prepared| {
                let (table, known) = (&prepared.table, &mut prepared.known);
                table.rearrange(known, &shared.settings, &plan.files, &into)
            });
            match outcome.await? {
                Rearranged::Done => merged += count,
                Rearranged::Left(reason) => {
                    tracing::info!(table = self.display(), reason, "small files were not merged");
                    self.store.remove(Room::Shown, vec![path]).await?;
                    break;
                }
                Rearranged::Unknown(error) => return Err(error),
            }
        }
        Ok(merged)
    }

    /// Chooses the files that are merged next.
    async fn plan_merge(self: &Arc<Self>, load: &Load) -> Result<Option<Plan>> {
        self.with_prepared(load, |shared, prepared| {
            let snapshot = prepared.known.snapshot.as_ref();
            let snapshot = snapshot.filter(|snapshot| Table::may_rearrange(snapshot));
            let Some(snapshot) = snapshot.filter(|_| !prepared.known.is_doubtful) else {
                return Ok(None);
            };
            let mut files = prepared.table.files(snapshot)?;
            let is_own = |file: &StoredFile| ledger::is_data_file(&shared.settings, &file.path);
            files.retain(|file| file.is_whole && is_own(file));
            let files = choose(files, shared.upkeep.merge_files);
            let (table, shape) = (prepared.table.clone(), prepared.shape.clone());
            Ok((!files.is_empty()).then_some(Plan { table, shape, files }))
        })
        .await
    }

    /// Writes the rows of files to another one, which is complete and durable on return, and not in the table.
    async fn rewrite(&self, plan: &Plan, path: String) -> Result<DataFile> {
        let (table, shape) = (plan.table.clone(), plan.shape.clone());
        let (files, properties) = (plan.files.clone(), self.properties.clone());
        let begun = blocking(move || {
            let rows = table.read(&files, &shape)?;
            let fields = shape.fields.iter().map(|(_, field)| Arc::clone(field)).collect();
            let file = Encoding::new(fields, &shape, &properties)?;
            Ok(Rewriting { table, rows, file, count: 0 })
        });
        let mut encoder = Encoder::new(begun.await?);
        let mut staged = self.store.stage(Room::Shown, &path).await?;
        let mut stats = None;
        while stats.is_none() {
            if self.context.is_cancelled() {
                return Err(ConnectorError::Stopped);
            }
            stats = encoder.run(&self.context.phases, Rewriting::step).await?;
            staged.write(&mut encoder.state_mut()?.file.out).await?;
        }
        let count = encoder.state()?.count;
        let recorded: Option<u64> = plan.files.iter().map(|file| file.rows).sum();
        if recorded.is_some_and(|recorded| recorded != count) {
            return Err(ConnectorError::data(
                self.display(),
                format!(
                    "{} of its files have {count} rows, and the log has another number",
                    plan.files.len()
                ),
            ));
        }
        let bytes = staged.publish().await?;
        Ok(DataFile { path, bytes, at_ms: now_ms(), stats: stats.unwrap_or_default() })
    }
}

impl Table {
    /// Reads the rows of files in their order, with the columns that the table has now.
    fn read(&self, files: &[StoredFile], shape: &Shape) -> Result<FileDataReadResultIterator> {
        let failed = |error| self.failed("read", error);
        let mut named = Vec::with_capacity(files.len());
        for file in files {
            let location = delta_kernel::try_parse_uri(format!("{ROOT}{}", file.path));
            let location = location.map_err(failed)?;
            named.push(FileMeta { location, last_modified: file.at_ms, size: file.bytes });
        }
        let parquet = self.engine()?.parquet_handler();
        parquet.read_parquet_files(&named, Arc::clone(&shape.physical), None).map_err(failed)
    }
}

impl Rewriting {
    /// Reads and encodes rows until some can be written. Returns the statistics of the file at its end.
    fn step(&mut self) -> Result<Option<String>> {
        while self.file.out.len() < WRITTEN {
            let Some(rows) = self.rows.next() else { return self.file.finish().map(Some) };
            let failed = |error| self.table.failed("read", error);
            let rows = batch_of(rows.map_err(failed)?).map_err(failed)?;
            self.count += rows.num_rows() as u64;
            self.file.write(&self.fitted(&rows)?)?;
        }
        Ok(None)
    }

    /// Rows with the very types that the file has.
    fn fitted(&self, rows: &RecordBatch) -> Result<RecordBatch> {
        let place = self.table.display();
        let fields = self.file.schema.fields();
        let arrays = fields.iter().map(|field| {
            let array = rows.column_by_name(field.name());
            let array = array.ok_or_else(|| format!("column {:?} is missing", field.name()));
            exact(array?, field.data_type())
        });
        let arrays = arrays.collect::<std::result::Result<Vec<_>, String>>();
        let arrays = arrays.map_err(|found| ConnectorError::data(place, found))?;
        let options = RecordBatchOptions::new().with_row_count(Some(rows.num_rows()));
        let schema = Arc::clone(&self.file.schema);
        RecordBatch::try_new_with_options(schema, arrays, &options)
            .map_err(|error| ConnectorError::data(place, error.to_string()))
    }
}

/// The files that become one: those of the smallest class that has enough of them, the oldest first.
///
/// * `least`: how many are enough; zero: none are merged.
fn choose(files: Vec<StoredFile>, least: u32) -> Vec<StoredFile> {
    let least = usize::try_from(least).unwrap_or(usize::MAX);
    if least < 2 {
        return Vec::new();
    }
    let mut classes: [Vec<StoredFile>; CLASSES.len()] = Default::default();
    for file in files {
        let class = CLASSES.iter().position(|end| file.bytes < *end);
        if let Some(class) = class.and_then(|class| classes.get_mut(class)) {
            class.push(file);
        }
    }
    let Some(mut class) = classes.into_iter().find(|class| class.len() >= least) else {
        return Vec::new();
    };
    class.sort_unstable_by(|a, b| (a.at_ms, &a.path).cmp(&(b.at_ms, &b.path)));
    let mut size = 0_u64;
    let is_within = |file: &StoredFile| {
        let fits = size < SIZE_MAX;
        size = size.saturating_add(file.bytes);
        fits
    };
    let within = class.iter().take(FILES_MAX).map(is_within).take_while(|fits| *fits).count();
    class.truncate(within);
    class
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(at_ms: i64, bytes: u64) -> StoredFile {
        let path = format!("{at_ms}.parquet");
        StoredFile { path, bytes, at_ms, rows: Some(1), is_whole: true }
    }

    #[test]
    fn files_of_one_class_are_merged_once_there_are_enough_of_them() {
        let mib = 1 << 20;
        let times = |files: Vec<StoredFile>, least| -> Vec<i64> {
            choose(files, least).iter().map(|file| file.at_ms).collect()
        };
        let small = || vec![file(3, 10), file(1, 20), file(2, mib), file(5, 30), file(4, 17 * mib)];
        assert_eq!(times(small(), 3), [1, 3, 5]);
        assert_eq!(times(small(), 4), [0; 0]);
        assert_eq!(times(small(), 0), [0; 0]);
        // As much as one file may have, and the files after it next time.
        let large = (1..=20).map(|at| file(at, 60 * mib)).collect();
        assert_eq!(times(large, 2), [1, 2, 3]);
        assert_eq!(times(vec![file(1, 128 * mib), file(2, 200 * mib)], 2), [0; 0]);
        let many = (1..=5_000).map(|at| file(at, 10)).collect();
        assert_eq!(times(many, 100).len(), FILES_MAX);
    }
}
