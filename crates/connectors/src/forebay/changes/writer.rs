//! A unit becomes events of the streams of its tables, and then a record of its position.
//!
//! Invariants:
//! - Events are sent in the order of the changes, and the record only after all of them were acknowledged.
//! - What is sent again, after a failure or a kill, has the ids that it had, and is stored once.

use async_trait::async_trait;
use forebay_sdk::changes::feed::{
    Applied, ChangeUnit, Changes, ColumnStep, Feed, FeedWriter, Redefinition, StreamChanges,
};
use forebay_sdk::changes::{ChangeLog, Operation};
use forebay_sdk::connector::Result;
use forebay_sdk::error::ConnectorError;
use forebay_sdk::settings::{NewColumn, RemovedColumn, TargetSettings, TypeChange};

use super::super::client::Server;
use super::append::{Appended, Lines, append};
use super::event::Table;
use super::record::{Head, Records};

/// Number of changes that are encoded at once.
const ENCODED: usize = 1 << 10;

/// Appends the changes of a feed.
pub(super) struct EventsWriter {
    server: Server,
    records: Records,
    /// The last record.
    head: Head,
    feed: Feed,
    tables: Vec<Table>,
    targets: Vec<TargetSettings>,
    /// Whether columns have changed since the last record.
    is_redefined: bool,
}

fn unknown() -> ConnectorError {
    ConnectorError::data("a feed", "a change of a stream that it has not".to_owned())
}

impl EventsWriter {
    /// Prepares to append what follows the last record.
    ///
    /// # Errors
    /// It is another feed, or a stream has been given another name.
    pub(super) fn open(
        server: Server,
        records: Records,
        head: Head,
        feed: &Feed,
        targets: &[TargetSettings],
    ) -> Result<Self> {
        if head.feed.as_ref() != Some(feed) {
            return Err(Feed::replaced());
        }
        let mut tables = Vec::with_capacity(targets.len());
        for (stream, target) in feed.streams.iter().zip(targets) {
            let place = head.places.iter().find(|place| place.stream == stream.stream);
            let place = place.ok_or_else(unknown)?;
            if place.into != target.into {
                let (into, now) = (&place.into, &target.into);
                return Err(ConnectorError::unsupported(
                    format!("the log of {} is the stream {into:?}, not {now:?}", stream.stream),
                    "restore `into`, or run with `--from-scratch`, which begins another log",
                ));
            }
            tables.push(Table::new(&place.into, &place.load, stream)?);
        }
        let (feed, targets) = (feed.clone(), targets.to_vec());
        Ok(Self { server, records, head, feed, tables, targets, is_redefined: false })
    }

    /// Gives a stream other columns.
    async fn redefine(
        &mut self,
        at: usize,
        to: &Redefinition,
        unit: &[StreamChanges],
    ) -> Result<()> {
        let (Some(table), Some(target), Some(stream)) =
            (self.tables.get_mut(at), self.targets.get(at), self.feed.streams.get_mut(at))
        else {
            return Err(unknown());
        };
        to.steps.iter().try_for_each(|step| permit(step, target))?;
        stream.columns.clone_from(&to.columns);
        self.is_redefined = true;
        let of = unit.iter().find(|of| of.stream == at);
        let first = of.and_then(|of| match &of.changes {
            Changes::Log(log) => log.changes().first(),
            Changes::Net(_) | Changes::Bag(_) => None,
        });
        let mut lines = Lines::default();
        table.redefine(stream, to, first, &mut lines)?;
        // Where types were renamed since, an earlier attempt described the same columns with other words.
        let (Appended::All | Appended::Other) =
            append(&self.server, &table.into, &mut lines).await?;
        Ok(())
    }

    async fn commit(&mut self, position: &str) -> Result<()> {
        let feed = self.is_redefined.then_some(&self.feed);
        self.records.advance(&mut self.head, position, feed).await?;
        self.feed.position = Some(position.to_owned());
        self.is_redefined = false;
        Ok(())
    }
}

/// Checks that a step is permitted. Events need no other preparation: each has the names of its columns.
fn permit(step: &ColumnStep, target: &TargetSettings) -> Result<()> {
    let evolution = target.schema_evolution;
    let (found, setting) = match step {
        ColumnStep::Rename { from, to } if evolution.new_column != NewColumn::Add => {
            (format!("column {from:?} was renamed to {to:?}"), "new_column: add")
        }
        ColumnStep::Add { name, .. } if evolution.new_column != NewColumn::Add => {
            (format!("column {name:?} was added"), "new_column: add")
        }
        ColumnStep::Retype { name, sql_type } if evolution.type_change != TypeChange::Alter => {
            (format!("column {name:?} has the type {sql_type} now"), "type_change: alter")
        }
        ColumnStep::Drop { name } if evolution.removed_column == RemovedColumn::Fail => {
            (format!("column {name:?} was dropped"), "removed_column: ignore")
        }
        _ => return Ok(()),
    };
    Err(ConnectorError::unsupported(
        format!("{}: {found} at the source", target.into),
        format!("set `schema_evolution.{setting}`"),
    ))
}

/// Appends changes to the stream of their table.
async fn append_all(server: &Server, table: &Table, log: &ChangeLog) -> Result<Applied> {
    let (mut applied, mut lines) = (Applied::default(), Lines::default());
    for changes in log.changes().chunks(ENCODED) {
        table.encode(changes, &mut lines)?;
        for change in changes {
            match change.operation {
                Operation::Insert => applied.inserted += 1,
                Operation::Update => applied.updated += 1,
                Operation::Delete => applied.deleted += 1,
                Operation::Truncate => {}
            }
        }
        if lines.is_full() {
            send(server, &table.into, &mut lines).await?;
        }
    }
    send(server, &table.into, &mut lines).await?;
    Ok(applied)
}

/// Appends lines of which none may be stored with other contents.
pub(super) async fn send(server: &Server, stream: &str, lines: &mut Lines) -> Result<()> {
    match append(server, stream, lines).await? {
        Appended::All => Ok(()),
        Appended::Other => Err(ConnectorError::data(
            format!("the stream {stream:?}"),
            "an event of a change is there with other contents: the source reports a change that it reported \
             before, and not the same. Run with `--from-scratch`, which begins another log",
        )),
    }
}

#[async_trait]
impl FeedWriter for EventsWriter {
    async fn apply(&mut self, unit: ChangeUnit) -> Result<Vec<Applied>> {
        for (at, redefinition) in &unit.redefined {
            self.redefine(*at, redefinition, &unit.streams).await?;
        }
        let mut applied = vec![Applied::default(); self.tables.len()];
        for of in &unit.streams {
            let table = self.tables.get(of.stream).ok_or_else(unknown)?;
            let Changes::Log(log) = &of.changes else {
                let found = "changes in another form than the feed has".to_owned();
                return Err(ConnectorError::data("a feed", found));
            };
            let done = append_all(&self.server, table, log).await?;
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
