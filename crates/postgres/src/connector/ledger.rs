//! The ledger: the existing loads, and their committed units (`docs/formats/pipeline-ledger.md`).
//!
//! Two tables in a separate schema. An entry is written in the transaction that has the unit's
//! rows, and its key is unique: a second commit of the same unit fails.
//!
//! A run that writes a stream holds two advisory locks. One is held as long as the run lives, so
//! that two runs never write at once. The other is shared by the transactions of its writers: a run
//! takes it exclusively for a moment before it starts, and so waits for the pending transactions of
//! a killed one.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use forebay_base::backoff::Backoff;
use forebay_base::error_chain::chain;
use forebay_sdk::connector::{Claim, Cursor, LedgerEntry, Load, Result, Unit};
use forebay_sdk::error::ConnectorError;
use forebay_sdk::platform::Instant;
use forebay_sdk::settings::{TargetSettings, WriteMode};
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Client, Row};

use super::connect::refused;
use super::sql::{ident, literal};

/// The tables of the ledger.
#[derive(Debug, Clone)]
pub(super) struct Ledger {
    pub(super) loads: String,
    pub(super) entries: String,
    schema: String,
    /// Whether it was seen: it is never removed while in use.
    is_there: Arc<AtomicBool>,
}

/// The claim on a stream: its connection holds the lock.
pub(super) struct Claimed {
    _client: Client,
}

impl Claim for Claimed {}

/// Key space of the lock of a run, and of the one that its writers share.
const RUN_LOCK: i32 = 0x466f_7201;
const WRITER_LOCK: i32 = 0x466f_7202;

impl Ledger {
    pub(super) fn new(schema: &str) -> Self {
        let quoted = ident(schema);
        Self {
            loads: format!("{quoted}.pipeline_loads"),
            entries: format!("{quoted}.pipeline_ledger"),
            schema: schema.to_owned(),
            is_there: Arc::default(),
        }
    }

    /// Whether it exists.
    pub(super) async fn exists(&self, client: &Client) -> Result<bool> {
        if self.is_there.load(Ordering::Relaxed) {
            return Ok(true);
        }
        let query = format!("select to_regclass({}) is not null", literal(&self.entries));
        let found = client.query_typed_one(&query, &[]).await;
        let is_there = found.map_err(|error| refused("look up the ledger", error))?.get(0);
        self.is_there.store(is_there, Ordering::Relaxed);
        Ok(is_there)
    }

    /// Creates it.
    pub(super) async fn create(&self, client: &Client) -> Result<()> {
        if self.exists(client).await? {
            return Ok(());
        }
        let (schema, loads, entries) = (ident(&self.schema), &self.loads, &self.entries);
        // Two runs of different pipelines may be the first concurrently.
        let create = format!(
            "begin; select pg_advisory_xact_lock({RUN_LOCK}, 0);
             create schema if not exists {schema};
             create table if not exists {loads} (
                 pipeline text not null, stream text not null, load text not null,
                 fingerprint text not null, units jsonb not null, is_stable boolean not null,
                 round jsonb not null, since jsonb, cursor jsonb, staging text, began_at timestamptz not null default now(),
                 finished_at timestamptz, seq bigint generated always as identity,
                 primary key (pipeline, stream, load));
             create table if not exists {entries} (
                 pipeline text not null, stream text not null, load text not null, unit text not null,
                 run text not null, rows bigint not null, dead bigint not null, content_hash text not null,
                 committed_at timestamptz not null default now(),
                 primary key (pipeline, stream, load, unit),
                 foreign key (pipeline, stream, load) references {loads} on delete cascade);
             commit"
        );
        client.batch_execute(&create).await.map_err(|error| refused("create the ledger", error))
    }

    /// The last load of a stream, and its entries.
    pub(super) async fn last(
        &self,
        client: &Client,
        target: &TargetSettings,
    ) -> Result<Option<(Load, Vec<LedgerEntry>)>> {
        if !self.exists(client).await? {
            return Ok(None);
        }
        let act = |error| refused("read the ledger", error);
        let query = format!(
            "select load, fingerprint, units::text, is_stable, cursor::text, finished_at is not null, since::text, round::text
             from {} where pipeline = $1 and stream = $2 order by seq desc limit 1",
            self.loads
        );
        let named = texts([&target.pipeline, &target.stream]);
        let found = client.query_typed_opt(&query, &named).await.map_err(act)?;
        let Some(found) = found else { return Ok(None) };
        let load = load_of(&found)?;
        let query = format!(
            "select run, unit, rows, dead, content_hash from {}
             where pipeline = $1 and stream = $2 and load = $3 order by unit",
            self.entries
        );
        let named = texts([&target.pipeline, &target.stream, &load.id]);
        let entries = client.query_typed(&query, &named).await.map_err(act)?;
        let entries = entries.iter().map(|row| LedgerEntry {
            pipeline: target.pipeline.clone(),
            stream: target.stream.clone(),
            load: load.id.clone(),
            run: row.get(0),
            unit: row.get(1),
            rows: u64::try_from(row.get::<_, i64>(2)).unwrap_or_default(),
            dead: u64::try_from(row.get::<_, i64>(3)).unwrap_or_default(),
            hash: row.get(4),
        });
        let entries = entries.collect();
        Ok(Some((load, entries)))
    }

    /// The number of rows of a load that are written.
    pub(super) async fn rows(
        &self,
        client: &Client,
        target: &TargetSettings,
        load: &Load,
    ) -> Result<i64> {
        let query = format!(
            "select coalesce(sum(rows), 0)::bigint from {} where pipeline = $1 and stream = $2 and load = $3",
            self.entries
        );
        let named = texts([&target.pipeline, &target.stream, &load.id]);
        let found = client.query_typed_one(&query, &named).await;
        found.map(|row| row.get(0)).map_err(|error| refused("read the ledger", error))
    }

    /// Whether the staging table of an unfinished load is gone, or has lost rows: a server that
    /// crashed empties an unlogged table.
    pub(super) async fn is_lost(
        &self,
        client: &Client,
        target: &TargetSettings,
        load: &Load,
    ) -> Result<bool> {
        if load.is_finished || target.write_mode != WriteMode::Replace {
            return Ok(false);
        }
        let act = |error| refused("look up the staging table", error);
        let query = format!(
            "select staging, to_regclass(staging) is null,
                    (select relpersistence = 'u' from pg_class where oid = to_regclass(staging))
             from {} where pipeline = $1 and stream = $2 and load = $3 and staging is not null",
            self.loads
        );
        let named = texts([&target.pipeline, &target.stream, &load.id]);
        let found = client.query_typed_opt(&query, &named).await.map_err(act)?;
        let Some(found) = found else { return Ok(false) };
        let (staging, is_gone, is_unlogged): (String, bool, Option<bool>) =
            (found.get(0), found.get(1), found.get(2));
        if is_gone || is_unlogged != Some(true) {
            return Ok(is_gone);
        }
        // In one snapshot: another unit may be committed meanwhile.
        let query = format!(
            "select (select count(*) from {staging}) <> (select coalesce(sum(rows), 0) from {} \
             where pipeline = $1 and stream = $2 and load = $3)",
            self.entries
        );
        let found = client.query_typed_one(&query, &named).await;
        found.map(|row| row.get(0)).map_err(act)
    }

    /// What must be known of earlier loads before this one starts.
    pub(super) async fn before(
        &self,
        client: &Client,
        target: &TargetSettings,
        load: &Load,
    ) -> Result<Before> {
        let query = format!(
            "select load = $3, staging from {} where pipeline = $1 and stream = $2
             and (load = $3 or finished_at is null)",
            self.loads
        );
        let named = texts([&target.pipeline, &target.stream, &load.id]);
        let rows = client.query_typed(&query, &named).await;
        let rows = rows.map_err(|error| refused("read the ledger", error))?;
        let is_this = |row: &&Row| row.get::<_, bool>(0);
        Ok(Before {
            has_begun: rows.iter().any(|row| is_this(&row)),
            leftovers: rows
                .iter()
                .filter(|row| !is_this(row))
                .filter_map(|row| row.get(1))
                .collect(),
        })
    }

    /// The INSERT of a load, unless it exists, and the DELETE of unfinished loads.
    pub(super) fn begin(
        &self,
        target: &TargetSettings,
        load: &Load,
        staging: Option<&str>,
    ) -> Result<String> {
        let cursor = load.cursor.as_ref().map(json).transpose()?;
        let since = load.since.as_ref().map(json).transpose()?;
        let or_null = |text: Option<&str>| text.map_or_else(|| "null".to_owned(), literal);
        let (pipeline, stream) = (literal(&target.pipeline), literal(&target.stream));
        let id = literal(&load.id);
        Ok(format!(
            "delete from {loads} where pipeline = {pipeline} and stream = {stream} and load <> {id}
                 and finished_at is null;
             insert into {loads} (pipeline, stream, load, fingerprint, units, is_stable, cursor, staging,
                                  since, round)
             values ({pipeline}, {stream}, {id}, {fingerprint}, {units}, {is_stable}, {cursor}, {staging},
                     {since}, {round})
             on conflict do nothing",
            loads = self.loads,
            fingerprint = literal(&load.fingerprint),
            units = literal(&json(&load.units)?),
            is_stable = load.is_stable,
            cursor = or_null(cursor.as_deref()),
            staging = or_null(staging),
            since = or_null(since.as_deref()),
            round = literal(&json(&load.round)?),
        ))
    }

    /// The INSERT of an entry, for the transaction of its rows.
    pub(super) fn entry(&self, entry: &LedgerEntry) -> String {
        format!(
            "insert into {} (pipeline, stream, load, unit, run, rows, dead, content_hash)
             values ({}, {}, {}, {}, {}, {}, {}, {})",
            self.entries,
            literal(&entry.pipeline),
            literal(&entry.stream),
            literal(&entry.load),
            literal(&entry.unit),
            literal(&entry.run),
            entry.rows,
            entry.dead,
            literal(&entry.hash),
        )
    }

    /// The UPDATE that ends a load.
    pub(super) fn finish(&self, target: &TargetSettings, load: &Load) -> Result<String> {
        let cursor = load.cursor.as_ref().map(json).transpose()?;
        let cursor = cursor.as_deref().map_or_else(|| "null".to_owned(), literal);
        Ok(format!(
            "update {} set finished_at = clock_timestamp(), cursor = {cursor}
             where pipeline = {} and stream = {} and load = {} and finished_at is null",
            self.loads,
            literal(&target.pipeline),
            literal(&target.stream),
            literal(&load.id),
        ))
    }

    /// Deletes the records of all loads of a stream, and drops the tables of unfinished ones.
    /// Returns their number.
    pub(super) async fn forget_all(&self, client: &Client, target: &TargetSettings) -> Result<u64> {
        if !self.exists(client).await? {
            return Ok(0);
        }
        let act = |error| refused("delete the records of the loads", error);
        client.batch_execute("begin").await.map_err(act)?;
        let delete = format!(
            "delete from {} where pipeline = $1 and stream = $2
             returning case when finished_at is null then staging end",
            self.loads
        );
        let rows = client.query(&delete, &[&target.pipeline, &target.stream]).await.map_err(act)?;
        for left in rows.iter().filter_map(|row| row.get::<_, Option<String>>(0)) {
            client.batch_execute(&format!("drop table if exists {left}")).await.map_err(act)?;
        }
        client.batch_execute("commit").await.map_err(act)?;
        Ok(rows.len() as u64)
    }
}

/// What the ledger has of earlier loads.
pub(super) struct Before {
    /// Whether the load exists already.
    pub(super) has_begun: bool,
    /// Remaining tables of other loads, none of them finished.
    pub(super) leftovers: Vec<String>,
}

/// Texts as the parameters of a query.
fn texts<const N: usize>(texts: [&String; N]) -> [(&(dyn ToSql + Sync), Type); N] {
    texts.map(|text| (text as &(dyn ToSql + Sync), Type::TEXT))
}

fn json<T: serde::Serialize>(value: &T) -> Result<String> {
    serde_json::to_string(value).map_err(|error| ConnectorError::Refused {
        act: "encode the load".into(),
        source: error.into(),
    })
}

fn load_of(row: &Row) -> Result<Load> {
    let broken =
        |error: serde_json::Error| ConnectorError::data("the ledger", chain(&error).to_string());
    let units: Vec<Unit> = serde_json::from_str(row.get(2)).map_err(broken)?;
    let cursor = |column: usize| -> Result<Option<Cursor>> {
        let text: Option<&str> = row.get(column);
        text.map(serde_json::from_str).transpose().map_err(broken)
    };
    Ok(Load {
        id: row.get(0),
        fingerprint: row.get(1),
        units,
        is_stable: row.get(3),
        since: cursor(6)?,
        cursor: cursor(4)?,
        round: serde_json::from_str(row.get(7)).map_err(broken)?,
        is_finished: row.get(5),
    })
}

/// The key of a stream's locks.
fn lock_key(target: &TargetSettings) -> i32 {
    let name = format!("{}\0{}", target.pipeline, target.stream);
    let hash = xxhash_rust::xxh3::xxh3_64(name.as_bytes());
    let [a, b, c, d, ..] = hash.to_le_bytes();
    i32::from_le_bytes([a, b, c, d])
}

/// The first statement in a writer's transaction.
pub(super) fn share_lock(target: &TargetSettings) -> String {
    format!("select pg_advisory_xact_lock_shared({WRITER_LOCK}, {})", lock_key(target))
}

/// Claims a stream with this connection.
pub(super) async fn claim(client: Client, target: &TargetSettings) -> Result<Claimed> {
    let key = lock_key(target);
    let act = |error| refused(format!("claim {}", target.stream), error);
    let query = format!("select pg_try_advisory_lock({RUN_LOCK}, {key})");
    // A killed run holds it until the server notices that the connection is gone. Several runs may
    // wait for it.
    let (began, mut backoff) = (Instant::now(), Backoff::new(CLAIM_FIRST, CLAIM_EVERY_MAX));
    loop {
        let has: bool = client.query_one(&query, &[]).await.map_err(act)?.get(0);
        if has {
            let barrier = format!(
                "select pg_advisory_lock({WRITER_LOCK}, {key}); select \
                 pg_advisory_unlock({WRITER_LOCK}, {key})"
            );
            client.batch_execute(&barrier).await.map_err(act)?;
            return Ok(Claimed { _client: client });
        }
        if began.elapsed() >= CLAIM_WITHIN {
            break;
        }
        forebay_sdk::platform::sleep(backoff.delay()).await;
    }
    Err(ConnectorError::Busy {
        act: format!(
            "write {}: another run of pipeline {} is writing it",
            target.into, target.pipeline
        ),
        source: "wait for it, or find the holder of the advisory lock in pg_locks".into(),
    })
}

/// Maximum time for which a claim is tried again.
const CLAIM_WITHIN: Duration = Duration::from_secs(5);
/// Maximum delay before the second attempt to claim.
const CLAIM_FIRST: Duration = Duration::from_millis(50);
/// Maximum delay between two attempts to claim.
const CLAIM_EVERY_MAX: Duration = Duration::from_millis(200);
