//! Changes of another database, applied to the tables of a file (decision 0027).
//!
//! | module | |
//! |---|---|
//! | this one | the position, in a table of the same file |
//! | [`writer`] | a unit becomes one transaction |
//! | [`table`] | a table, prepared for changes |
//! | [`rows`] | its changes, row by row |
//! | [`alter`] | other columns of a table |
//!
//! ```sql
//! _forebay_feeds(pipeline, feed, position, committed_at)     -- feed: JSON; committed_at: UTC
//! ```
//!
//! Invariant: a position is recorded in the transaction that has the rows up to it, and only in the place of the one
//! before it.

mod alter;
mod rows;
mod table;
mod writer;

use async_trait::async_trait;
use forebay_sdk::bridge::blocking;
use forebay_sdk::changes::feed::{Feed, FeedStream, FeedTarget, FeedWriter};
use forebay_sdk::connector::Result;
use forebay_sdk::settings::{FeedForm, TargetSettings};
use rusqlite::{Connection, OptionalExtension as _, params};

use super::destination::SqliteDestination;
use super::{Access, Database};

pub(super) use table::DELETED_AT;

const CREATE: &str = "
CREATE TABLE IF NOT EXISTS _forebay_feeds (
    pipeline TEXT NOT NULL PRIMARY KEY, feed TEXT NOT NULL, position TEXT, committed_at TEXT NOT NULL
) STRICT, WITHOUT ROWID";
const NOW: &str = "strftime('%Y-%m-%dT%H:%M:%fZ')";

/// The recorded feed of a pipeline.
fn find(database: &Database, connection: &Connection, pipeline: &str) -> Result<Option<Feed>> {
    let failed = |error| database.failed("read the feed in", error);
    let exists =
        "SELECT count(*) FROM sqlite_schema WHERE type = 'table' AND name = '_forebay_feeds'";
    let exists: u32 = connection.query_row(exists, [], |row| row.get(0)).map_err(failed)?;
    if exists == 0 {
        return Ok(None);
    }
    let query = "SELECT feed, position FROM _forebay_feeds WHERE pipeline = ?1";
    let found = connection.query_row(query, [pipeline], |row| {
        Ok((row.get::<_, String>(0)?, row.get::<_, Option<String>>(1)?))
    });
    let Some((feed, position)) = found.optional().map_err(failed)? else { return Ok(None) };
    Feed::decoded(&feed, position).map(Some)
}

/// Records a feed in the place of another.
fn record(
    database: &Database,
    pipeline: &str,
    before: Option<&Feed>,
    feed: Option<&Feed>,
) -> Result<()> {
    let failed = |error| database.failed("record the feed in", error);
    let connection = database.open(Access::Write)?;
    connection.execute_batch("BEGIN IMMEDIATE").map_err(failed)?;
    connection.execute_batch(CREATE).map_err(failed)?;
    if find(database, &connection, pipeline)?.as_ref() != before {
        return Err(Feed::replaced());
    }
    match feed {
        Some(feed) => {
            let insert =
                format!("INSERT OR REPLACE INTO _forebay_feeds VALUES (?1, ?2, ?3, {NOW})");
            let values = params![pipeline, feed.encoded()?, feed.position];
            connection.execute(&insert, values).map_err(failed)?;
        }
        None => {
            let delete = "DELETE FROM _forebay_feeds WHERE pipeline = ?1";
            connection.execute(delete, [pipeline]).map_err(failed)?;
        }
    }
    connection.execute_batch("COMMIT").map_err(failed)
}

/// Records a position in the transaction of the connection.
///
/// * `feed`: the feed, if it has other columns than were recorded.
fn advance(
    database: &Database,
    connection: &Connection,
    pipeline: &str,
    (before, position): (&str, &str),
    feed: Option<String>,
) -> Result<()> {
    let update = format!(
        "UPDATE _forebay_feeds SET position = ?3, feed = coalesce(?4, feed), committed_at = {NOW}
         WHERE pipeline = ?1 AND position = ?2"
    );
    let failed = |error| database.failed("record the position in", error);
    let mut update = connection.prepare_cached(&update).map_err(failed)?;
    let rows = update.execute(params![pipeline, before, position, feed]).map_err(failed)?;
    if rows == 1 { Ok(()) } else { Err(Feed::replaced()) }
}

#[async_trait]
impl FeedTarget for SqliteDestination {
    fn forms(&self) -> &'static [FeedForm] {
        // A log needs columns that take NULL, and ALTER TABLE cannot make them so.
        &[FeedForm::Apply, FeedForm::Mark]
    }

    fn check(&self, streams: &[FeedStream], _form: FeedForm) -> Result<()> {
        for of in streams {
            of.check_key()?;
            for column in &of.columns {
                table::column(&of.stream, column)?;
            }
        }
        Ok(())
    }

    async fn feed(&self, pipeline: &str) -> Result<Option<Feed>> {
        let (database, pipeline) = (self.database.clone(), pipeline.to_owned());
        blocking(move || {
            if !database.exists() {
                return Ok(None);
            }
            let connection = database.open(Access::Read)?;
            find(&database, &connection, &pipeline)
        })
        .await
    }

    async fn record(
        &self,
        pipeline: &str,
        before: Option<&Feed>,
        feed: Option<&Feed>,
    ) -> Result<()> {
        let (database, pipeline) = (self.database.clone(), pipeline.to_owned());
        let (before, feed) = (before.cloned(), feed.cloned());
        blocking(move || record(&database, &pipeline, before.as_ref(), feed.as_ref())).await
    }

    async fn open(
        &self,
        pipeline: &str,
        feed: &Feed,
        targets: &[TargetSettings],
    ) -> Result<Box<dyn FeedWriter>> {
        let (database, pipeline) = (self.database.clone(), pipeline.to_owned());
        let (feed, targets) = (feed.clone(), targets.to_vec());
        let opened =
            blocking(move || writer::SqliteFeed::open(database, pipeline, feed, targets)).await?;
        Ok(Box::new(opened))
    }
}
