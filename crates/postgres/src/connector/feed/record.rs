//! The record of a feed, in the ledger of the destination (`docs/formats/pipeline-ledger.md`).
//!
//! Invariants:
//! - A position is recorded in the transaction that has the rows up to it, and only in the place of the one
//!   before it: two runs that both apply are refused by the second commit.
//! - The record of a feed is one row, which is replaced.

use async_trait::async_trait;
use forebay_sdk::changes::feed::{Feed, FeedStream, FeedTarget, FeedWriter};
use forebay_sdk::connector::Result;
use forebay_sdk::error::ConnectorError;
use forebay_sdk::settings::{FeedForm, TargetSettings};
use tokio_postgres::Client;
use tokio_postgres::types::{ToSql, Type};

use super::super::connect::refused;
use super::super::destination::PostgresDestination;
use super::super::sql::{ident, literal};
use super::apply::Applier;

/// The table of feeds.
#[derive(Debug, Clone)]
pub(in super::super) struct Feeds {
    schema: String,
    table: String,
}

impl Feeds {
    pub(in super::super) fn new(schema: &str) -> Self {
        Self { schema: schema.to_owned(), table: format!("{}.pipeline_feeds", ident(schema)) }
    }

    async fn exists(&self, client: &Client) -> Result<bool> {
        let query = format!("select to_regclass({}) is not null", literal(&self.table));
        let found = client.query_typed_one(&query, &[]).await;
        Ok(found.map_err(|error| refused("look up the feeds", error))?.get(0))
    }

    async fn create(&self, client: &Client) -> Result<()> {
        let create = format!(
            "create schema if not exists {}; create table if not exists {} (
                 pipeline text primary key, feed jsonb not null, position text,
                 committed_at timestamptz not null default now())",
            ident(&self.schema),
            self.table
        );
        client
            .batch_execute(&create)
            .await
            .map_err(|error| refused("create the table of feeds", error))
    }

    async fn find(&self, client: &Client, pipeline: &str) -> Result<Option<Feed>> {
        if !self.exists(client).await? {
            return Ok(None);
        }
        let query = format!("select feed::text, position from {} where pipeline = $1", self.table);
        let found = client.query_typed_opt(&query, &[(&pipeline, Type::TEXT)]).await;
        let Some(row) = found.map_err(|error| refused("read the feed", error))? else {
            return Ok(None);
        };
        Feed::decoded(row.get(0), row.get(1)).map(Some)
    }

    /// The UPDATE of a position, and of the feed if it is given, which returns a row if the position before it is
    /// recorded.
    pub(super) fn advance(&self) -> String {
        format!(
            "update {} set position = $3, feed = coalesce($4::text::jsonb, feed),
                 committed_at = clock_timestamp()
             where pipeline = $1 and position = $2 returning 1",
            self.table
        )
    }
}

#[async_trait]
impl FeedTarget for PostgresDestination {
    fn forms(&self) -> &'static [FeedForm] {
        &[FeedForm::Apply, FeedForm::Mark, FeedForm::Log]
    }

    fn check(&self, streams: &[FeedStream], form: FeedForm) -> Result<()> {
        // The source refuses what another server cannot read.
        let keyless = streams.iter().find(|stream| !stream.has_key());
        match keyless.filter(|_| form == FeedForm::Mark) {
            None => Ok(()),
            Some(keyless) => Err(ConnectorError::unsupported(
                format!("{} has no key: a deleted row could not be found again", keyless.stream),
                "use `deleted_rows: delete`, or `write_mode: append`, which keeps a log",
            )),
        }
    }

    async fn feed(&self, pipeline: &str) -> Result<Option<Feed>> {
        let pool = self.pool()?;
        let client = pool.client(None).await?;
        let found = self.feeds.find(&client, pipeline).await?;
        pool.give_back(client);
        Ok(found)
    }

    async fn record(
        &self,
        pipeline: &str,
        before: Option<&Feed>,
        feed: Option<&Feed>,
    ) -> Result<()> {
        let pool = self.pool()?;
        let client = pool.client(None).await?;
        self.feeds.create(&client).await?;
        let act = |error| refused("record the feed", error);
        let table = &self.feeds.table;
        client.batch_execute("begin").await.map_err(act)?;
        let lock = format!("lock table {table} in share row exclusive mode");
        client.batch_execute(&lock).await.map_err(act)?;
        let found = self.feeds.find(&client, pipeline).await?;
        if found.as_ref() != before {
            return Err(Feed::replaced());
        }
        let named: [(&(dyn ToSql + Sync), Type); 1] = [(&pipeline, Type::TEXT)];
        match feed {
            Some(feed) => {
                let text = feed.encoded()?;
                let insert = format!(
                    "insert into {table} (pipeline, feed, position) values ($1, $2::text::jsonb, $3)
                     on conflict (pipeline) do update
                     set feed = excluded.feed, position = excluded.position, committed_at = clock_timestamp()"
                );
                let values: [(&(dyn ToSql + Sync), Type); 3] =
                    [(&pipeline, Type::TEXT), (&text, Type::TEXT), (&feed.position, Type::TEXT)];
                client.query_typed(&insert, &values).await.map_err(act)?;
            }
            None => {
                let delete = format!("delete from {table} where pipeline = $1");
                client.query_typed(&delete, &named).await.map_err(act)?;
            }
        }
        client.batch_execute("commit").await.map_err(act)?;
        pool.give_back(client);
        Ok(())
    }

    async fn open(
        &self,
        pipeline: &str,
        feed: &Feed,
        targets: &[TargetSettings],
    ) -> Result<Box<dyn FeedWriter>> {
        let client = self.pool()?.client(None).await?;
        let mut tables = Vec::with_capacity(targets.len());
        for (stream, target) in feed.streams.iter().zip(targets) {
            tables.push((self.table_name(target)?, stream));
        }
        let applier =
            Applier::open(client, self.feeds.clone(), pipeline, feed, &tables, targets).await?;
        Ok(Box::new(applier))
    }
}
