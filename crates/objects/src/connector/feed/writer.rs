//! A unit becomes files, one for each of its tables and parts, and then an entry of the ledger that names them.
//!
//! Invariants:
//! - A file is published, complete and durable, before the ledger names it, and never changed after that.
//! - The ledger is replaced in the place of the one that was read, so files of all tables become valid at once, with
//!   the position, and of two runs one is refused.

use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::sync::Arc;

use async_trait::async_trait;
use forebay_sdk::bridge::blocking;
use forebay_sdk::changes::feed::{
    Applied, ChangeUnit, Changes, ColumnStep, Feed, FeedWriter, Redefinition,
};
use forebay_sdk::changes::{ChangeLog, Operation};
use forebay_sdk::connector::Result;
use forebay_sdk::error::ConnectorError;
use forebay_sdk::settings::{NewColumn, RemovedColumn, TargetSettings};

use super::super::format::{Encode, Layout};
use super::super::store::{Room, Store, Version};
use super::head::{Head, LogFile, Name, PartName, Previous, Unit, checksum};
use super::rows::LogColumns;

/// Number of changes that are encoded at once.
const ENCODED: usize = 4 << 10;

/// Appends the changes of a feed.
pub(super) struct FilesWriter {
    pub(super) ledger: Arc<dyn Store>,
    pub(super) layout: Arc<dyn Layout>,
    pub(super) head: Head,
    pub(super) version: Version,
    pub(super) tables: Vec<Table>,
    /// The files of the unit so far.
    pending: Vec<LogFile>,
    parts: u64,
    attempt: String,
}

/// A stream of the feed.
pub(super) struct Table {
    pub(super) store: Arc<dyn Store>,
    pub(super) target: TargetSettings,
    pub(super) columns: Arc<LogColumns>,
}

fn unknown() -> ConnectorError {
    ConnectorError::data("a feed", "a change of a stream that it has not".to_owned())
}

/// 16 digits that no other attempt has.
pub(super) fn random_id() -> String {
    format!("{:016x}", RandomState::new().build_hasher().finish())
}

impl FilesWriter {
    pub(super) fn new(
        ledger: Arc<dyn Store>,
        layout: Arc<dyn Layout>,
        (head, version): (Head, Version),
        tables: Vec<Table>,
    ) -> Self {
        let (pending, attempt) = (Vec::new(), random_id());
        Self { ledger, layout, head, version, tables, pending, parts: 0, attempt }
    }

    fn feed(&mut self) -> Result<&mut Feed> {
        self.head.feed.as_mut().ok_or_else(Feed::replaced)
    }

    /// Gives a stream other columns, which files from here on have.
    fn redefine(&mut self, at: usize, to: Redefinition) -> Result<()> {
        let may_differ = self.layout.columns_may_differ();
        let table = self.tables.get(at).ok_or_else(unknown)?;
        to.steps.iter().try_for_each(|step| permit(step, &table.target, may_differ))?;
        let stream = self.feed()?.streams.get_mut(at).ok_or_else(unknown)?;
        stream.columns = to.columns;
        let columns = Arc::new(LogColumns::of(stream)?);
        if let Some(table) = self.tables.get_mut(at) {
            table.columns = columns;
        }
        Ok(())
    }

    /// Writes changes of a table to a file.
    async fn write(&mut self, at: usize, log: ChangeLog) -> Result<Applied> {
        let unit = self.head.last.checked_add(1).ok_or_else(unknown)?;
        let ending = self.layout.ending();
        let name = Name::write(&self.head.log, unit, self.parts, &self.attempt, &ending);
        self.parts = self.parts.saturating_add(1);
        let table = self.tables.get(at).ok_or_else(unknown)?;
        let applied = counted(&log);
        let rows = log.changes().len() as u64;
        let mut encode = self.layout.encode(&table.columns.all)?;
        let mut file = table.store.stage(Room::Shown, &name).await?;
        let (columns, stream) = (Arc::clone(&table.columns), table.target.stream.clone());
        let log = Arc::new(log);
        for from in (0..log.changes().len()).step_by(ENCODED) {
            let (log, columns, stream) = (Arc::clone(&log), Arc::clone(&columns), stream.clone());
            let (back, mut out) = blocking(move || {
                let changes = log.changes().get(from..).unwrap_or_default();
                let changes = changes.get(..ENCODED).unwrap_or(changes);
                let mut out = Vec::new();
                encode.write(&columns.changed(&stream, changes)?, &mut out)?;
                Ok((encode, out))
            })
            .await?;
            encode = back;
            file.write(&mut out).await?;
        }
        let mut out = finished(encode).await?;
        file.write(&mut out).await?;
        let bytes = file.publish().await?;
        let into = table.target.into.clone();
        self.pending.push(LogFile { into, file: PartName { name, rows, bytes } });
        Ok(applied)
    }

    /// Replaces the ledger by one with the position and the files of the unit.
    async fn commit(&mut self, position: &str) -> Result<()> {
        let mut next = self.head.clone();
        next.feed.as_mut().ok_or_else(Feed::replaced)?.position = Some(position.to_owned());
        let files = std::mem::take(&mut self.pending);
        if !files.is_empty() {
            next.last = next.last.checked_add(1).ok_or_else(unknown)?;
            next.tail.push(Unit { number: next.last, position: position.to_owned(), files });
        }
        if let Some((segment, last)) = next.surplus() {
            let bytes = segment.encode()?;
            let (name, checksum) = (format!("{last:012}-{}.json", random_id()), checksum(&bytes));
            let mut file = self.ledger.stage(Room::Segments, &name).await?;
            let mut bytes = bytes;
            file.write(&mut bytes).await?;
            file.publish().await?;
            next.previous = Some(Previous { name, last, checksum });
            next.tail.clear();
        }
        self.version = self.ledger.put_ledger(next.encode()?, Some(&self.version)).await?;
        self.head = next;
        (self.parts, self.attempt) = (0, random_id());
        Ok(())
    }
}

async fn finished(mut encode: Box<dyn Encode>) -> Result<Vec<u8>> {
    blocking(move || {
        let mut out = Vec::new();
        encode.finish(&mut out)?;
        Ok(out)
    })
    .await
}

/// The number of changes by their operation.
fn counted(log: &ChangeLog) -> Applied {
    let mut applied = Applied::default();
    for change in log.changes() {
        match change.operation {
            Operation::Insert => applied.inserted += 1,
            Operation::Update => applied.updated += 1,
            Operation::Delete => applied.deleted += 1,
            Operation::Truncate => {}
        }
    }
    applied
}

/// Checks that a step is permitted.
///
/// * `may_differ`: whether files of a directory may have different columns.
fn permit(step: &ColumnStep, target: &TargetSettings, may_differ: bool) -> Result<()> {
    let evolution = target.schema_evolution;
    let (found, way_out) = match step {
        ColumnStep::Retype { name, sql_type } => (
            format!("column {name:?} has the type {sql_type} now"),
            "run with `--from-scratch`: files of a stream have one type for each column",
        ),
        ColumnStep::Rename { from, to } if evolution.new_column != NewColumn::Add => (
            format!("column {from:?} was renamed to {to:?}"),
            "set `schema_evolution.new_column: add`",
        ),
        ColumnStep::Add { name, .. } if evolution.new_column != NewColumn::Add => {
            (format!("column {name:?} was added"), "set `schema_evolution.new_column: add`")
        }
        ColumnStep::Drop { name } if evolution.removed_column == RemovedColumn::Fail => (
            format!("column {name:?} was dropped"),
            "set `schema_evolution.removed_column: ignore`",
        ),
        _ if !may_differ => (
            "its columns have changed".to_owned(),
            "run with `--from-scratch`: files of this format have the same columns",
        ),
        _ => return Ok(()),
    };
    Err(ConnectorError::unsupported(format!("{}: {found} at the source", target.into), way_out))
}

#[async_trait]
impl FeedWriter for FilesWriter {
    async fn apply(&mut self, unit: ChangeUnit) -> Result<Vec<Applied>> {
        for (at, redefinition) in unit.redefined {
            self.redefine(at, redefinition)?;
        }
        let mut applied = vec![Applied::default(); self.tables.len()];
        for of in unit.streams {
            let Changes::Log(log) = of.changes else {
                let found = "changes in another form than the feed has".to_owned();
                return Err(ConnectorError::data("a feed", found));
            };
            let done = self.write(of.stream, log).await?;
            if let Some(applied) = applied.get_mut(of.stream) {
                *applied = done;
            }
        }
        if let Some(position) = &unit.position {
            self.commit(position).await?;
        }
        Ok(applied)
    }

    async fn advance(&mut self, position: &str) -> Result<()> {
        self.commit(position).await
    }
}
