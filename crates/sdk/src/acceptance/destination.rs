//! The promises of every destination.

use std::sync::Arc;

use arrow::array::RecordBatch;
use forebay_pgcopy::{Column, ContentHash};

use super::{Claim, Failure, columns, rows_lacking};
use crate::batch::{Batch, Rows};
use crate::connector::{Cursor, Destination, LedgerEntry, Load, Target, Unit};
use crate::hash::Hasher;
use crate::run::Context;
use crate::settings::{LoadMethod, OnDataError, SchemaEvolution, TargetSettings, WriteMode};

/// What a destination can do besides appending rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Capabilities {
    /// It has `write_mode: replace`.
    pub replace: bool,
    /// It has `write_mode: upsert`.
    pub upsert: bool,
}

/// What a server behind a destination does not support, whatever the destination does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Lacks {
    /// NaN and the infinities as floating point numbers.
    pub not_finite: bool,
    /// Double quotes in names of streams and columns.
    pub quotes_in_names: bool,
    /// Dates and timestamps that are infinite, before the common era, or after the year 9999.
    pub far_times: bool,
    /// NULL in the place of an array.
    pub null_arrays: bool,
}

/// Tests everything a destination promises. It must be empty, and is not afterwards.
///
/// # Errors
/// The first promise that is not kept.
pub async fn destination(
    destination: &Arc<dyn Destination>,
    capabilities: Capabilities,
) -> Result<(), Failure> {
    self::destination_lacking(destination, capabilities, Lacks::default()).await
}

/// Like [`destination`], with a server that lacks something.
///
/// # Errors
/// The first promise that is not kept.
pub async fn destination_lacking(
    destination: &Arc<dyn Destination>,
    capabilities: Capabilities,
    lacks: Lacks,
) -> Result<(), Failure> {
    let mut columns = columns();
    if lacks.quotes_in_names {
        for column in &mut columns {
            column.name = column.name.replace('"', "'");
        }
    }
    let suite = Suite { destination: Arc::clone(destination), columns, lacks };
    let claim = Claim("a check reports what answered");
    super::source::said(claim, &claim.ok(destination.check().await)?)?;
    suite.commits().await?;
    suite.aborts().await?;
    suite.side_by_side().await?;
    suite.odd_names().await?;
    suite.gives_up().await?;
    suite.claims().await?;
    match capabilities.replace {
        true => suite.replaces().await?,
        false => suite.refuses(WriteMode::Replace).await?,
    }
    match capabilities.upsert {
        true => suite.upserts().await,
        false => suite.refuses(WriteMode::Upsert).await,
    }
}

/// Loads batches into a stream of a destination, one unit each, to test a source with.
///
/// # Errors
/// If the destination fails.
pub async fn fill(
    destination: &Arc<dyn Destination>,
    into: &str,
    columns: &[Column],
    batches: &[&RecordBatch],
) -> Result<(), Failure> {
    let claim = Claim("rows are loaded");
    let suite = Suite {
        destination: Arc::clone(destination),
        columns: columns.to_vec(),
        lacks: Lacks::default(),
    };
    let settings = settings(into, WriteMode::Append);
    let target = suite.open(claim, &settings).await?;
    let names: Vec<String> = (0..batches.len()).map(|number| format!("unit {number}")).collect();
    let load = load("load-1", &names.iter().map(|name| &**name).collect::<Vec<_>>());
    claim.ok(target.prepare(&load).await)?;
    for (name, batch) in names.iter().zip(batches) {
        suite.write(claim, &target, &settings, &load, name, &[batch]).await?;
    }
    claim.ok(target.finish(&load).await)
}

pub(super) struct Suite {
    pub(super) destination: Arc<dyn Destination>,
    pub(super) columns: Vec<Column>,
    pub(super) lacks: Lacks,
}

/// The hash of these rows, as the encoder of binary COPY computes it.
pub(super) fn hash(
    claim: Claim,
    columns: &[Column],
    batches: &[&RecordBatch],
) -> Result<ContentHash, Failure> {
    let mut hasher = claim.ok(Hasher::new(columns))?;
    for batch in batches {
        claim.ok(hasher.add(batch))?;
    }
    Ok(hasher.content())
}

pub(super) fn unit(name: &str) -> Unit {
    Unit { name: name.into(), from: None, to: None, rows: None, bytes: None }
}

pub(super) fn load(id: &str, units: &[&str]) -> Load {
    Load {
        id: id.into(),
        fingerprint: "f".into(),
        units: units.iter().map(|name| unit(name)).collect(),
        since: None,
        is_stable: true,
        round: crate::connector::Round::default(),
        is_finished: false,
        cursor: None,
    }
}

pub(super) fn settings(into: &str, write_mode: WriteMode) -> TargetSettings {
    TargetSettings {
        pipeline: "acceptance".into(),
        stream: format!("from.{into}"),
        into: into.into(),
        write_mode,
        primary_key: match write_mode {
            WriteMode::Upsert => vec!["id".into()],
            _ => Vec::new(),
        },
        on_data_error: OnDataError::Fail,
        schema_evolution: SchemaEvolution::default(),
        load_method: LoadMethod::Copy,
        feed: crate::settings::FeedForm::Apply,
    }
}

impl Suite {
    /// Rows that the server supports.
    fn rows(&self, ids: std::ops::Range<usize>) -> RecordBatch {
        rows_lacking(&self.columns, ids, self.lacks)
    }

    pub(super) async fn open(
        &self,
        claim: Claim,
        settings: &TargetSettings,
    ) -> Result<Arc<dyn Target>, Failure> {
        let (context, _cancel) = Context::new("acceptance");
        claim.ok(self.destination.open(settings, &self.columns, &context).await)
    }

    pub(super) async fn write(
        &self,
        claim: Claim,
        target: &Arc<dyn Target>,
        settings: &TargetSettings,
        load: &Load,
        name: &str,
        batches: &[&RecordBatch],
    ) -> Result<LedgerEntry, Failure> {
        let mut writer = claim.ok(target.writer(load, &unit(name)).await)?;
        for batch in batches {
            let rows = Rows::Records((*batch).clone());
            claim.ok(writer.write(Batch::unbounded(rows)).await)?;
        }
        let entry = LedgerEntry {
            pipeline: settings.pipeline.clone(),
            stream: settings.stream.clone(),
            load: load.id.clone(),
            run: "run".into(),
            unit: name.into(),
            rows: 0,
            dead: 0,
            hash: String::new(),
        };
        claim.ok(writer.commit(entry).await)
    }

    /// The content, read through a target that is opened again.
    async fn content(
        &self,
        claim: Claim,
        settings: &TargetSettings,
    ) -> Result<ContentHash, Failure> {
        claim.ok(self.open(claim, settings).await?.content().await)
    }

    async fn commits(&self) -> Result<(), Failure> {
        let settings = settings("commits", WriteMode::Append);
        let claim = Claim("the stream is empty before the first load");
        let last = claim.ok(self.destination.last_load(&settings).await)?;
        claim.same(last.is_none(), true)?;
        let load = load("load-1", &["a", "b"]);
        let (first, second) = (self.rows(0..40), self.rows(40..57));
        {
            let target = self.open(claim, &settings).await?;
            claim.holds(!target.plan().is_empty(), || "the plan is empty".into())?;
            claim.ok(target.prepare(&load).await)?;
            let claim = Claim("nothing is visible before it is committed");
            let mut writer = claim.ok(target.writer(&load, &unit("a")).await)?;
            let batch = Batch::unbounded(Rows::Records(first.clone()));
            claim.ok(writer.write(batch).await)?;
            claim.same(self.content(claim, &settings).await?.rows, 0)?;
            drop(writer);
            let claim = Claim("a committed unit is visible, and its entry has its rows and hash");
            let entry = self.write(claim, &target, &settings, &load, "a", &[&first]).await?;
            let expected = hash(claim, &self.columns, &[&first])?;
            claim.same((entry.rows, entry.dead, entry.hash), (40, 0, expected.to_string()))?;
            claim.same(claim.ok(target.content().await)?, expected)?;
        }
        let claim = Claim("an interrupted load is found with its committed units, and continues");
        let last = claim.ok(self.destination.last_load(&settings).await)?;
        let (found, entries) = last.unwrap_or_else(|| (load.clone(), Vec::new()));
        claim.same(&found, &load)?;
        claim.same(entries.iter().map(|entry| &*entry.unit).collect::<Vec<_>>(), vec!["a"])?;
        let target = self.open(claim, &settings).await?;
        claim.ok(target.prepare(&load).await)?;
        self.write(claim, &target, &settings, &load, "b", &[&second]).await?;
        let cursor = Some(Cursor::new("57".into(), Some("x'y".into())));
        claim.ok(target.finish(&Load { cursor: cursor.clone(), ..load.clone() }).await)?;
        let last = claim.ok(self.destination.last_load(&settings).await)?;
        let found = last.map(|(load, entries)| (load.is_finished, load.cursor, entries.len()));
        claim.same(found, Some((true, cursor, 2)))?;
        let both = hash(claim, &self.columns, &[&first, &second])?;
        claim.same(self.content(claim, &settings).await?, both)?;
        let claim = Claim("another load adds to the existing rows");
        let next = self::load("load-2", &["a"]);
        claim.ok(target.prepare(&next).await)?;
        self.write(claim, &target, &settings, &next, "a", &[&second]).await?;
        claim.ok(target.finish(&next).await)?;
        let all = hash(claim, &self.columns, &[&first, &second, &second])?;
        claim.same(self.content(claim, &settings).await?, all)
    }

    async fn aborts(&self) -> Result<(), Failure> {
        let claim = Claim("a writer that is dropped leaves nothing");
        let settings = settings("aborts", WriteMode::Append);
        let load = load("load-1", &["a", "nothing"]);
        let batch = self.rows(0..30);
        let target = self.open(claim, &settings).await?;
        claim.ok(target.prepare(&load).await)?;
        for _ in 0..2 {
            let mut writer = claim.ok(target.writer(&load, &unit("a")).await)?;
            let rows = Rows::Records(batch.clone());
            claim.ok(writer.write(Batch::unbounded(rows)).await)?;
            drop(writer);
        }
        claim.same(self.content(claim, &settings).await?.rows, 0)?;
        let claim = Claim("a unit without rows is committed as well");
        let entry = self.write(claim, &target, &settings, &load, "nothing", &[]).await?;
        claim.same((entry.rows, entry.hash), (0, ContentHash::default().to_string()))?;
        self.write(claim, &target, &settings, &load, "a", &[&batch]).await?;
        claim.ok(target.finish(&load).await)?;
        let expected = hash(claim, &self.columns, &[&batch])?;
        claim.same(self.content(claim, &settings).await?, expected)
    }

    async fn side_by_side(&self) -> Result<(), Failure> {
        let claim = Claim("units are written side by side");
        let settings = settings("side_by_side", WriteMode::Append);
        let names: Vec<String> = (0..4).map(|number| format!("unit {number}")).collect();
        let load = load("load-1", &names.iter().map(|name| &**name).collect::<Vec<_>>());
        let target = self.open(claim, &settings).await?;
        claim.ok(target.prepare(&load).await)?;
        let batches: Vec<RecordBatch> =
            (0..4).map(|number| self.rows(number * 10..number * 10 + 10)).collect();
        let writes = names.iter().zip(&batches).map(|(name, batch)| {
            let (target, settings, load) = (&target, &settings, &load);
            async move { self.write(claim, target, settings, load, name, &[batch]).await }
        });
        futures_util::future::try_join_all(writes).await?;
        claim.ok(target.finish(&load).await)?;
        let expected = hash(claim, &self.columns, &batches.iter().collect::<Vec<_>>())?;
        claim.same(self.content(claim, &settings).await?, expected)?;
        let last = claim.ok(self.destination.last_load(&settings).await)?;
        claim.same(last.map(|(_, entries)| entries.len()), Some(4))
    }

    async fn odd_names(&self) -> Result<(), Failure> {
        let claim = Claim("streams of different names are stored separately");
        let batch = self.rows(0..3);
        let names = ["a b", "a\"b", "a'b; drop table x", "größe ✓", "../up", "a%2Fb", "A/b", "_x"];
        let is_taken = |name: &&str| !(self.lacks.quotes_in_names && name.contains('"'));
        let names: Vec<&str> = names.into_iter().filter(is_taken).collect();
        for name in &names {
            let settings = settings(name, WriteMode::Append);
            let target = self.open(claim, &settings).await?;
            let load = load("load-1", &["a"]);
            claim.ok(target.prepare(&load).await)?;
            self.write(claim, &target, &settings, &load, "a", &[&batch]).await?;
            claim.ok(target.finish(&load).await)?;
        }
        let expected = hash(claim, &self.columns, &[&batch])?;
        for name in names {
            let settings = settings(name, WriteMode::Append);
            claim.same(self.content(claim, &settings).await?, expected)?;
        }
        Ok(())
    }

    async fn gives_up(&self) -> Result<(), Failure> {
        let claim = Claim("with `append`, the committed units of an abandoned load stay");
        let settings = settings("gives_up", WriteMode::Append);
        let (first, second) = (self.rows(0..5), self.rows(5..9));
        let target = self.open(claim, &settings).await?;
        let given_up = load("load-1", &["a", "b"]);
        claim.ok(target.prepare(&given_up).await)?;
        self.write(claim, &target, &settings, &given_up, "a", &[&first]).await?;
        let next = load("load-2", &["a"]);
        claim.ok(target.prepare(&next).await)?;
        self.write(claim, &target, &settings, &next, "a", &[&second]).await?;
        claim.ok(target.finish(&next).await)?;
        let last = claim.ok(self.destination.last_load(&settings).await)?;
        claim.same(
            last.map(|(load, entries)| (load.id, entries.len())),
            Some(("load-2".into(), 1)),
        )?;
        let expected = hash(claim, &self.columns, &[&first, &second])?;
        claim.same(self.content(claim, &settings).await?, expected)
    }

    async fn claims(&self) -> Result<(), Failure> {
        let claim = Claim("a stream is claimed by one run at a time");
        let settings = settings("claims", WriteMode::Append);
        let held = claim.ok(self.destination.claim(&settings).await)?;
        claim.same(self.destination.claim(&settings).await.is_err(), true)?;
        drop(held);
        claim.ok(self.destination.claim(&settings).await).map(drop)
    }

    async fn replaces(&self) -> Result<(), Failure> {
        let settings = settings("replaces", WriteMode::Replace);
        let claim = Claim("the first load with `replace` works");
        let (old, new) = (self.rows(0..25), self.rows(100..117));
        let first = load("load-1", &["a"]);
        let target = self.open(claim, &settings).await?;
        claim.ok(target.prepare(&first).await)?;
        self.write(claim, &target, &settings, &first, "a", &[&old]).await?;
        claim.same(self.content(claim, &settings).await?.rows, 0)?;
        claim.ok(target.finish(&first).await)?;
        let before = hash(claim, &self.columns, &[&old])?;
        claim.same(self.content(claim, &settings).await?, before)?;
        let claim = Claim("`replace` shows the previous rows until the load is finished");
        let second = load("load-2", &["a", "b"]);
        claim.ok(target.prepare(&second).await)?;
        self.write(claim, &target, &settings, &second, "a", &[&new]).await?;
        claim.same(self.content(claim, &settings).await?, before)?;
        let claim = Claim("`replace` continues after an interruption");
        drop(target);
        let target = self.open(claim, &settings).await?;
        claim.ok(target.prepare(&second).await)?;
        claim.same(self.content(claim, &settings).await?, before)?;
        self.write(claim, &target, &settings, &second, "b", &[&old]).await?;
        claim.ok(target.finish(&second).await)?;
        let claim = Claim("`replace` removes all previous rows");
        let both = hash(claim, &self.columns, &[&new, &old])?;
        claim.same(self.content(claim, &settings).await?, both)?;
        let third = load("load-3", &["a"]);
        let target = self.open(claim, &settings).await?;
        claim.ok(target.prepare(&third).await)?;
        self.write(claim, &target, &settings, &third, "a", &[]).await?;
        claim.same(self.content(claim, &settings).await?, both)?;
        claim.ok(target.finish(&third).await)?;
        claim.same(self.content(claim, &settings).await?, ContentHash::default())
    }

    async fn upserts(&self) -> Result<(), Failure> {
        let claim = Claim("`upsert` replaces rows with the same key");
        let settings = settings("upserts", WriteMode::Upsert);
        let target = self.open(claim, &settings).await?;
        let (old, new) = (self.rows(0..10), self.rows(5..15));
        for (id, batch) in [("load-1", &old), ("load-2", &new), ("load-3", &new)] {
            let load = load(id, &["a"]);
            claim.ok(target.prepare(&load).await)?;
            self.write(claim, &target, &settings, &load, "a", &[batch]).await?;
            claim.ok(target.finish(&load).await)?;
        }
        let expected = hash(claim, &self.columns, &[&self.rows(0..15)])?;
        claim.same(self.content(claim, &settings).await?, expected)?;
        let claim = Claim("`upsert` keeps the last of several rows with the same key");
        let load = load("load-4", &["a"]);
        claim.ok(target.prepare(&load).await)?;
        self.write(claim, &target, &settings, &load, "a", &[&old, &old]).await?;
        claim.ok(target.finish(&load).await)?;
        claim.same(self.content(claim, &settings).await?, expected)
    }

    async fn refuses(&self, mode: WriteMode) -> Result<(), Failure> {
        let claim = Claim("an unsupported write mode is refused before anything is written");
        let (context, _cancel) = Context::new("acceptance");
        let settings = settings("refuses", mode);
        let opened = self.destination.open(&settings, &self.columns, &context).await;
        claim.holds(opened.is_err(), || format!("{mode:?} was accepted"))
    }
}
