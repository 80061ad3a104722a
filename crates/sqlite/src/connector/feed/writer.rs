//! A unit becomes one transaction: the rows of all its tables, and the position.
//!
//! Foreign keys are not enforced while changes are applied: the rows were checked at the source, and arrive table by
//! table. Triggers fire, as for every row that is written.

use async_trait::async_trait;
use forebay_sdk::bridge::blocking;
use forebay_sdk::changes::feed::{Applied, ChangeUnit, Changes, Feed, FeedWriter, Redefinition};
use forebay_sdk::connector::Result;
use forebay_sdk::error::ConnectorError;
use forebay_sdk::settings::{FeedForm, TargetSettings};
use rusqlite::Connection;

use super::super::{Access, Database};
use super::advance;
use super::alter::Altering;
use super::table::Table;

/// Applies the changes of a feed.
pub(super) struct SqliteFeed {
    /// What is moved to the thread that may block, and back. After an error there is none.
    work: Option<Work>,
}

struct Work {
    database: Database,
    connection: Connection,
    pipeline: String,
    feed: Feed,
    tables: Vec<Table>,
    targets: Vec<TargetSettings>,
    /// Whether a transaction has begun, with a part of a large one.
    is_begun: bool,
    /// Whether it has changed columns.
    is_redefined: bool,
}

fn unknown() -> ConnectorError {
    ConnectorError::data("a feed", "a change of a stream that it has not".to_owned())
}

impl SqliteFeed {
    pub(super) fn open(
        database: Database,
        pipeline: String,
        feed: Feed,
        targets: Vec<TargetSettings>,
    ) -> Result<Self> {
        let connection = database.open(Access::Write)?;
        let failed = |error| database.failed("prepare to apply changes to", error);
        connection.pragma_update(None, "foreign_keys", false).map_err(failed)?;
        let keeps_deleted = feed.form == FeedForm::Mark;
        let mut tables = Vec::with_capacity(targets.len());
        for (stream, target) in feed.streams.iter().zip(&targets) {
            tables.push(Table::open(&database, &connection, target, stream, keeps_deleted)?);
        }
        let (is_begun, is_redefined) = (false, false);
        let work =
            Work { database, connection, pipeline, feed, tables, targets, is_begun, is_redefined };
        Ok(Self { work: Some(work) })
    }

    async fn work<T: Send + 'static>(
        &mut self,
        act: impl FnOnce(&mut Work) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let Some(mut work) = self.work.take() else { return Err(ConnectorError::Stopped) };
        let (work, done) = blocking(move || {
            let done = act(&mut work)?;
            Ok((work, done))
        })
        .await?;
        self.work = Some(work);
        Ok(done)
    }
}

impl Work {
    fn execute(&self, act: &'static str, statements: &str) -> Result<()> {
        let done = self.connection.execute_batch(statements);
        done.map_err(|error| self.database.failed(act, error))
    }

    fn apply(&mut self, unit: ChangeUnit) -> Result<Vec<Applied>> {
        if !self.is_begun {
            self.execute("begin to apply changes to", "BEGIN IMMEDIATE")?;
            self.is_begun = true;
        }
        let mut applied = vec![Applied::default(); self.tables.len()];
        for (at, redefinition) in unit.redefined {
            self.redefine(at, redefinition)?;
        }
        for of in unit.streams {
            let Changes::Net(net) = of.changes else {
                let found = "changes in another form than the feed has".to_owned();
                return Err(ConnectorError::data("a feed", found));
            };
            let table = self.tables.get(of.stream).ok_or_else(unknown)?;
            let done = table.apply(&self.database, &self.connection, net)?;
            if let Some(applied) = applied.get_mut(of.stream) {
                *applied = done;
            }
        }
        if let Some(position) = &unit.position {
            self.commit(position)?;
            self.is_begun = false;
        }
        Ok(applied)
    }

    /// Gives a table other columns, in the transaction of the connection.
    fn redefine(&mut self, at: usize, redefinition: Redefinition) -> Result<()> {
        let (Some(table), Some(target), Some(stream)) =
            (self.tables.get_mut(at), self.targets.get(at), self.feed.streams.get_mut(at))
        else {
            return Err(unknown());
        };
        let altering = Altering { database: &self.database, connection: &self.connection, target };
        for step in &redefinition.steps {
            altering.take(step, &redefinition.columns)?;
        }
        stream.columns = redefinition.columns;
        let keeps_deleted = self.feed.form == FeedForm::Mark;
        *table = Table::open(&self.database, &self.connection, target, stream, keeps_deleted)?;
        self.is_redefined = true;
        Ok(())
    }

    /// Records a position in the transaction of the connection, and commits it.
    fn commit(&mut self, position: &str) -> Result<()> {
        let before = self.feed.position.clone().unwrap_or_default();
        let feed = if self.is_redefined { Some(self.feed.encoded()?) } else { None };
        let positions = (before.as_str(), position);
        advance(&self.database, &self.connection, &self.pipeline, positions, feed)?;
        self.execute("commit changes to", "COMMIT")?;
        self.feed.position = Some(position.to_owned());
        self.is_redefined = false;
        Ok(())
    }
}

#[async_trait]
impl FeedWriter for SqliteFeed {
    async fn apply(&mut self, unit: ChangeUnit) -> Result<Vec<Applied>> {
        self.work(|work| work.apply(unit)).await
    }

    async fn advance(&mut self, position: &str) -> Result<()> {
        let position = position.to_owned();
        self.work(move |work| {
            work.execute("begin to record a position in", "BEGIN IMMEDIATE")?;
            work.commit(&position)
        })
        .await
    }
}
