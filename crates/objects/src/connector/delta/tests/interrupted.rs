//! Loads that are interrupted at every operation of the store, and go on.

use std::sync::Arc;

use arrow::array::RecordBatch;
use forebay_pgcopy::{Column, ContentHash};
use forebay_sdk::connector::{Destination, LedgerEntry, Load, Result, Target, Unit};
use forebay_sdk::hash::Hasher;
use forebay_sdk::run::Context;
use forebay_sdk::settings::{TargetSettings, WriteMode};
use forebay_sdk::{Batch, Rows, acceptance};
use futures_util::TryStreamExt as _;
use object_store::ObjectStore as _;
use object_store::memory::InMemory;

use super::super::super::location::Location;
use super::super::DeltaTables;
use super::super::removed::Upkeep;
use super::chain;
use super::faults::{Fault, Faulty};
use crate::Bucket;

/// The loads, in order.
const LOADS: [&str; 6] = ["first", "second", "third", "fourth", "fifth", "sixth"];

/// What is loaded, where.
#[derive(Clone)]
pub(super) struct Trial {
    pub(super) store: Arc<InMemory>,
    pub(super) settings: TargetSettings,
    pub(super) columns: Vec<Column>,
    pub(super) upkeep: Upkeep,
}

impl Trial {
    pub(super) fn new(write_mode: WriteMode) -> Self {
        let settings = TargetSettings {
            pipeline: "p".into(),
            stream: "s".into(),
            into: "t".into(),
            write_mode,
            primary_key: Vec::new(),
            on_data_error: Default::default(),
            schema_evolution: Default::default(),
            load_method: Default::default(),
            feed: forebay_sdk::settings::FeedForm::Apply,
        };
        let columns = acceptance::plain_columns();
        Self { store: Arc::default(), settings, columns, upkeep: Upkeep::default() }
    }

    /// The same with a copy of the store.
    pub(super) async fn copy(&self) -> Self {
        use object_store::ObjectStoreExt as _;
        let store = InMemory::new();
        for name in self.names("").await {
            let key = name.as_str().into();
            let bytes = self.store.get(&key).await.unwrap().bytes().await.unwrap();
            store.put(&key, bytes.into()).await.unwrap();
        }
        Self { store: Arc::new(store), ..self.clone() }
    }

    /// The destination, as one process sees it.
    pub(super) fn destination(&self, fault: &Fault) -> Arc<dyn Destination> {
        let store = Faulty { inner: Arc::clone(&self.store), fault: fault.clone() };
        let bucket = Bucket::new(Arc::new(store), "b", "lake".into());
        Arc::new(DeltaTables::at(Location::Bucket(bucket)).keeping(self.upkeep))
    }

    /// The units of a load, which has its own rows.
    fn units(&self, id: &str) -> Vec<(Unit, RecordBatch)> {
        let unit = |name: &str, ids: std::ops::Range<usize>| {
            let unit = Unit { name: name.into(), from: None, to: None, rows: None, bytes: None };
            (unit, acceptance::rows(&self.columns, ids))
        };
        let from = 100 * LOADS.iter().position(|load| *load == id).unwrap();
        vec![unit("a", from..from + 7), unit("empty", 0..0), unit("b", from + 7..from + 20)]
    }

    pub(super) fn load(&self, id: &str) -> Load {
        Load {
            id: id.into(),
            fingerprint: String::new(),
            units: self.units(id).into_iter().map(|(unit, _)| unit).collect(),
            since: None,
            is_stable: true,
            round: forebay_sdk::connector::Round::default(),
            is_finished: false,
            cursor: None,
        }
    }

    pub(super) async fn open(&self, fault: &Fault) -> Result<Arc<dyn Target>> {
        let (context, _cancel) = Context::new("r");
        self.destination(fault).open(&self.settings, &self.columns, &context).await
    }

    /// Writes and commits one unit.
    pub(super) async fn unit(
        &self,
        target: &Arc<dyn Target>,
        id: &str,
        number: usize,
    ) -> Result<()> {
        let load = self.load(id);
        let (unit, batch) = &self.units(id)[number];
        let mut writer = target.writer(&load, unit).await?;
        if batch.num_rows() > 0 {
            writer.write(Batch::unbounded(Rows::Records(batch.clone()))).await?;
        }
        let entry = LedgerEntry {
            pipeline: "p".into(),
            stream: "s".into(),
            load: id.into(),
            run: "r".into(),
            unit: unit.name.clone(),
            rows: 0,
            dead: 0,
            hash: String::new(),
        };
        writer.commit(entry).await.map(drop)
    }

    /// Starts the load, or continues it, until it is finished, as a run does.
    ///
    /// * `retries`: how often a unit, or the end, is tried again by the same run.
    pub(super) async fn run(&self, id: &str, fault: &Fault, retries: usize) -> Result<()> {
        let destination = self.destination(fault);
        let last = destination.last_load(&self.settings).await?;
        let last = last.filter(|(load, _)| load.id == id);
        if last.as_ref().is_some_and(|(load, _)| load.is_finished) {
            return Ok(());
        }
        let done: Vec<String> =
            last.into_iter().flat_map(|(_, entries)| entries).map(|entry| entry.unit).collect();
        let target = self.open(fault).await?;
        let load = self.load(id);
        target.prepare(&load).await?;
        for (number, (unit, _)) in self.units(id).iter().enumerate() {
            if done.contains(&unit.name) {
                continue;
            }
            let mut result = self.unit(&target, id, number).await;
            for _ in 0..retries {
                if result.is_err() {
                    result = self.unit(&target, id, number).await;
                }
            }
            result?;
        }
        let mut result = target.finish(&load).await;
        for _ in 0..retries {
            if result.is_err() {
                result = target.finish(&load).await;
            }
        }
        result
    }

    /// The rows that a reader finds.
    pub(super) async fn content(&self) -> ContentHash {
        self.open(&Fault::never()).await.unwrap().content().await.unwrap()
    }

    pub(super) fn hash(&self, loads: &[&str]) -> ContentHash {
        let mut hasher = Hasher::new(&self.columns).unwrap();
        for id in loads {
            for (_, batch) in self.units(id) {
                hasher.add(&batch).unwrap();
            }
        }
        hasher.content()
    }

    /// The names of all objects below a directory.
    pub(super) async fn names(&self, directory: &str) -> Vec<String> {
        let listed: Vec<_> = self.store.list(None).try_collect().await.unwrap();
        let names = listed.into_iter().map(|meta| meta.location.to_string());
        names.filter(|name| name.starts_with(directory)).collect()
    }

    /// The number of data files that no version of the log names.
    async fn orphans(&self) -> usize {
        let mut log = String::new();
        for name in self.names("lake/t/_delta_log/").await {
            if name.ends_with(".json") {
                use object_store::ObjectStoreExt as _;
                let got = self.store.get(&name.as_str().into()).await.unwrap();
                log += std::str::from_utf8(&got.bytes().await.unwrap()).unwrap();
            }
        }
        let names = self.names("lake/t/part-").await;
        names.iter().filter(|name| !log.contains(name.rsplit_once('/').unwrap().1)).count()
    }
}

/// Loads with every operation of the second load failing in its turn.
async fn interrupt(write_mode: WriteMode, is_after: bool, is_once: bool, retries: usize) {
    let begun = Trial::new(write_mode);
    begun.run("first", &Fault::never(), 0).await.unwrap();
    let before = begun.content().await;
    assert_eq!(before, begun.hash(&["first"]));
    for at in 0.. {
        let trial = begun.copy().await;
        let fault = Fault::at(at, is_after, is_once);
        let interrupted = trial.run("second", &fault, retries).await;
        // What is there is what was there, and whole units of the load.
        let there = trial.content().await;
        if write_mode == WriteMode::Replace {
            assert!(there == before || there == trial.hash(&["second"]), "step {at}");
        } else {
            assert!([20, 27, 40].contains(&there.rows), "step {at}: {} rows", there.rows);
        }
        if let Err(error) = trial.run("second", &Fault::never(), 0).await {
            panic!("step {at}, after: {is_after}: {}", chain(&error));
        }
        // Another prepare removes what a kill after the last step left.
        trial.run("third", &Fault::never(), 0).await.unwrap();
        let expected = match write_mode {
            WriteMode::Replace => trial.hash(&LOADS[2..3]),
            _ => trial.hash(&LOADS[..3]),
        };
        assert_eq!(trial.content().await, expected, "step {at}, after: {is_after}");
        assert_eq!(trial.orphans().await, 0, "step {at}, after: {is_after}");
        if !fault.is_hit() {
            assert!(interrupted.is_ok() && at > 10, "the load has steps");
            break;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn appending_continues_after_every_interruption_with_nothing_lost_or_doubled() {
    for is_after in [false, true] {
        interrupt(WriteMode::Append, is_after, false, 0).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn replacing_continues_after_every_interruption_with_nothing_lost_or_doubled() {
    for is_after in [false, true] {
        interrupt(WriteMode::Replace, is_after, false, 0).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_that_is_lost_neither_loses_nor_doubles_rows_of_a_run_that_tries_again() {
    for write_mode in [WriteMode::Append, WriteMode::Replace] {
        interrupt(write_mode, true, true, 1).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_first_load_continues_after_every_interruption() {
    for write_mode in [WriteMode::Append, WriteMode::Replace] {
        for is_after in [false, true] {
            for at in 0.. {
                let trial = Trial::new(write_mode);
                let fault = Fault::at(at, is_after, false);
                drop(trial.run("first", &fault, 0).await);
                if let Err(error) = trial.run("first", &Fault::never(), 0).await {
                    panic!("step {at}, after: {is_after}: {}", chain(&error));
                }
                assert_eq!(trial.content().await, trial.hash(&["first"]), "step {at}");
                if !fault.is_hit() {
                    assert!(at > 10, "the load has steps");
                    break;
                }
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_that_another_one_has_followed_commits_nothing_more() {
    for write_mode in [WriteMode::Append, WriteMode::Replace] {
        let trial = Trial::new(write_mode);
        let slow = trial.open(&Fault::never()).await.unwrap();
        slow.prepare(&trial.load("first")).await.unwrap();
        trial.unit(&slow, "first", 0).await.unwrap();
        // The other continues the same load, and the first goes on as if it was alone.
        trial.run("first", &Fault::never(), 0).await.unwrap();
        let refused = trial.unit(&slow, "first", 2).await.unwrap_err();
        assert!(
            chain(&refused).contains("another run has started to write"),
            "{}",
            chain(&refused)
        );
        assert!(slow.finish(&trial.load("first")).await.is_err());
        assert_eq!(trial.content().await, trial.hash(&["first"]));
        // What the slow one left is removed with the next load; what is in the table is not.
        trial.run("second", &Fault::never(), 0).await.unwrap();
        assert_eq!(trial.orphans().await, 0);
        let expected = match write_mode {
            WriteMode::Replace => trial.hash(&["second"]),
            _ => trial.hash(&["first", "second"]),
        };
        assert_eq!(trial.content().await, expected);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_of_a_newer_run_is_not_removed_by_an_older_one_that_still_prepares() {
    use object_store::ObjectStoreExt as _;

    use super::super::ledger::{run_of, stem};
    let trial = Trial::new(WriteMode::Append);
    trial.open(&Fault::never()).await.unwrap().prepare(&trial.load("first")).await.unwrap();
    let file = |run: i64| {
        let stem = stem(&trial.settings, "first", run, "a");
        format!("lake/t/{stem}.parquet")
    };
    let (older, newer, others) = (file(1), file(99), "lake/t/part-0000.snappy.parquet".to_owned());
    for name in [&older, &newer, &others] {
        trial.store.put(&name.as_str().into(), "rows".into()).await.unwrap();
    }
    trial.run("first", &Fault::never(), 0).await.unwrap();
    let names = trial.names("lake/t/").await;
    assert!(names.contains(&newer) && names.contains(&others) && !names.contains(&older));
    assert_eq!(run_of("part-0000.snappy.parquet", "part-"), None);
}
