//! A unit is staged, decided and completed.
//!
//! Columns that change before anything else of a unit are decided first, at the position that is recorded: what is
//! read then is what the rest of the unit concerns. Those that change in the middle of a transaction are decided with
//! it, and documents pass through these steps on their way.

use async_trait::async_trait;
use forebay_sdk::changes::feed::{
    Applied, ChangeUnit, Changes, Feed, FeedWriter, Redefinition, StreamChanges,
};
use forebay_sdk::connector::Result;
use forebay_sdk::error::ConnectorError;
use forebay_sdk::settings::{FeedForm, TargetSettings};

use super::super::encode::Forms;
use super::super::names;
use super::alter::{Altering, Step};
use super::log::Log;
use super::net::{Applying, Changing};
use super::pending::{Pending, Work};
use super::staged::Staged;
use super::table::Table;

/// What changes of a stream become.
enum Into {
    Table(Box<Table>),
    Log(Box<Log>),
}

/// Applies the changes of a feed.
pub(super) struct MongoFeed {
    work: Work,
    feed: Feed,
    targets: Vec<TargetSettings>,
    tables: Vec<Into>,
    changing: Vec<Changing>,
    /// The part of the unit that was staged last; 0: none.
    part: i64,
    /// Whether columns have changed in the unit.
    is_redefined: bool,
    /// Whether something failed: what is staged is not known then.
    has_failed: bool,
}

fn unknown() -> ConnectorError {
    ConnectorError::data("a feed", "a change of a stream that it has not".to_owned())
}

impl MongoFeed {
    pub(super) async fn open(work: Work, feed: Feed, targets: Vec<TargetSettings>) -> Result<Self> {
        work.take_over(&feed).await?;
        work.sweep().await?;
        let changing = (0..targets.len()).map(|at| Changing::new(Staged::new(&work, at))).collect();
        let (part, is_redefined, has_failed) = (0, false, false);
        let tables = Vec::new();
        let mut opened =
            Self { work, feed, targets, tables, changing, part, is_redefined, has_failed };
        opened.prepare().await?;
        Ok(opened)
    }

    /// Prepares all collections, as the columns are now.
    async fn prepare(&mut self) -> Result<()> {
        let keeps_deleted = self.feed.form == FeedForm::Mark;
        let mut tables = Vec::with_capacity(self.targets.len());
        for (stream, target) in self.feed.streams.iter().zip(&self.targets) {
            tables.push(match self.feed.form {
                FeedForm::Log => Into::Log(Box::new(Log::open(&self.work, target, stream).await?)),
                FeedForm::Apply | FeedForm::Mark => {
                    let table = Table::open(&self.work, target, stream, keeps_deleted).await?;
                    Into::Table(Box::new(table))
                }
            });
        }
        self.tables = tables;
        Ok(())
    }

    async fn take(&mut self, unit: ChangeUnit) -> Result<Vec<Applied>> {
        self.part += 1;
        if !unit.redefined.is_empty() {
            self.redefine(unit.redefined).await?;
        }
        let mut applied = vec![Applied::default(); self.tables.len()];
        for of in unit.streams {
            let stream = of.stream;
            let done = self.stage(of).await?;
            if let Some(applied) = applied.get_mut(stream) {
                *applied = done;
            }
        }
        if let Some(position) = &unit.position {
            self.commit(position).await?;
        }
        Ok(applied)
    }

    async fn stage(&mut self, of: StreamChanges) -> Result<Applied> {
        let found = self.tables.get(of.stream).zip(self.changing.get_mut(of.stream));
        let (table, changing) = found.ok_or_else(unknown)?;
        match (table, of.changes) {
            (Into::Log(log), Changes::Log(changes)) => log.append(&self.work, &changes).await,
            (Into::Table(table), Changes::Net(net)) => {
                changing.staged.begin(&self.work, self.part, &table.key_names).await?;
                let is_live = net.truncated_us().is_none();
                let (work, applied) = (&self.work, Applied::default());
                Applying { work, table, changing, is_live, applied }.apply(net).await
            }
            _ => {
                let found = "changes in another form than the feed has".to_owned();
                Err(ConnectorError::data("a feed", found))
            }
        }
    }

    /// Gives streams other columns.
    async fn redefine(&mut self, redefined: Vec<(usize, Redefinition)>) -> Result<()> {
        let forms = Forms::of(self.work.server.settings());
        let mut pending = Vec::new();
        for (at, redefinition) in redefined {
            let (Some(target), Some(stream), Some(changing)) =
                (self.targets.get(at), self.feed.streams.get_mut(at), self.changing.get_mut(at))
            else {
                return Err(unknown());
            };
            let unique = match self.tables.get(at) {
                Some(Into::Table(table)) => &*table.unique,
                _ => &[],
            };
            let (before, is_log) = (&*stream.columns, self.feed.form == FeedForm::Log);
            let altering =
                Altering { target, forms: &forms, before, unique, is_log, part: self.part };
            let steps: Vec<Step> = altering.steps(&redefinition)?;
            stream.columns = redefinition.columns;
            if self.part > 1 {
                changing.steps.extend(steps);
            } else if !steps.is_empty() {
                let into = names::collection(&target.into)?;
                pending.push(Pending { into, steps, ..Pending::default() });
            }
        }
        self.is_redefined = true;
        if self.part == 1 && !pending.is_empty() {
            let position = self.feed.position.clone().unwrap_or_default();
            self.decide(&position, &pending).await?;
        }
        // In the middle of a unit the documents, and their indexes, are not changed yet.
        if self.part > 1 { self.prepare_columns() } else { self.prepare().await }
    }

    /// Gives the tables their columns, and leaves the collections as they are.
    fn prepare_columns(&mut self) -> Result<()> {
        for (table, stream) in self.tables.iter_mut().zip(&self.feed.streams) {
            match table {
                Into::Table(table) => table.redefine(stream)?,
                Into::Log(log) => log.redefine(stream)?,
            }
        }
        Ok(())
    }

    /// Records a position, and does what is to be done for it.
    async fn decide(&mut self, position: &str, pending: &[Pending]) -> Result<()> {
        self.work.check()?;
        let before = self.feed.position.clone().unwrap_or_default();
        let feed = if self.is_redefined { Some(self.feed.encoded()?) } else { None };
        let (work, positions) = (&self.work, (before.as_str(), position));
        work.records.decide(&work.writer, positions, feed, pending).await?;
        self.feed.position = Some(position.to_owned());
        self.is_redefined = false;
        if pending.is_empty() { Ok(()) } else { work.complete(pending, 0).await }
    }

    /// Decides what is staged, and completes it.
    async fn commit(&mut self, position: &str) -> Result<()> {
        let mut pending = Vec::new();
        for (table, changing) in self.tables.iter().zip(&self.changing) {
            if let Into::Table(table) = table {
                pending.extend(changing.pending(&table.collection));
            }
        }
        let has_steps = pending.iter().any(|of| !of.steps.is_empty());
        self.decide(position, &pending).await?;
        if has_steps {
            self.prepare().await?;
        }
        for changing in &mut self.changing {
            changing.clear(&self.work).await?;
        }
        self.part = 0;
        Ok(())
    }

    /// Checks that nothing failed before; what follows has failed until it is done.
    fn begin(&mut self) -> Result<()> {
        match std::mem::replace(&mut self.has_failed, true) {
            true => Err(ConnectorError::Stopped),
            false => Ok(()),
        }
    }
}

#[async_trait]
impl FeedWriter for MongoFeed {
    async fn apply(&mut self, unit: ChangeUnit) -> Result<Vec<Applied>> {
        self.begin()?;
        let applied = self.take(unit).await?;
        self.has_failed = false;
        Ok(applied)
    }

    async fn advance(&mut self, position: &str) -> Result<()> {
        self.begin()?;
        self.decide(position, &[]).await?;
        self.has_failed = false;
        Ok(())
    }
}
