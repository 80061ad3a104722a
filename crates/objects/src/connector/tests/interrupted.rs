//! A load that is interrupted at every step it takes, before and after it, and gone on with.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use arrow::array::RecordBatch;
use async_trait::async_trait;
use forebay_pgcopy::{Column, ContentHash};
use forebay_sdk::connector::{LedgerEntry, Load, Result, Target, Unit};
use forebay_sdk::error::ConnectorError;
use forebay_sdk::hash::Hasher;
use forebay_sdk::run::Context;
use forebay_sdk::settings::{TargetSettings, WriteMode};
use forebay_sdk::{Batch, Rows, acceptance};
use serde_json::json;

pub(super) use forebay_testing::memory_directory as scratch;

use super::super::disk::Disk;
use super::super::format::Layout;
use super::super::ledger::is_ours;
use super::super::location::{Listed, Location};
use super::super::parquet::ParquetLayout;
use super::super::store::{Room, Staged, Store, Version};
use super::super::target::{FileTarget, read_ledger};

/// When the store fails: at a step of this number, before or after it was taken. From then on it is gone.
#[derive(Debug, Clone)]
pub(super) struct Fault {
    at: usize,
    is_after: bool,
    steps: Arc<AtomicUsize>,
}

impl Fault {
    pub(super) fn never() -> Self {
        Self::at(usize::MAX)
    }

    /// After this step.
    pub(super) fn after(at: usize) -> Self {
        Self { is_after: true, ..Self::at(at) }
    }

    /// Before this step.
    pub(super) fn at(at: usize) -> Self {
        Self { at, is_after: false, steps: Arc::default() }
    }

    /// Takes a step.
    async fn step<T: Send>(&self, act: impl Future<Output = Result<T>> + Send) -> Result<T> {
        let gone = || ConnectorError::Busy { act: "go on".into(), source: "killed".into() };
        let number = self.steps.fetch_add(1, Ordering::Relaxed);
        match number.cmp(&self.at) {
            std::cmp::Ordering::Less => act.await,
            std::cmp::Ordering::Equal if self.is_after => act.await.and(Err(gone())),
            _ => Err(gone()),
        }
    }
}

/// A disk that is taken away.
pub(super) struct Faulty {
    disk: Disk,
    fault: Fault,
}

impl Faulty {
    /// A directory below a path.
    pub(super) fn store(path: &std::path::Path, directory: &str, fault: &Fault) -> Arc<dyn Store> {
        let disk = Disk::new(path, directory, Default::default());
        Arc::new(Self { disk, fault: fault.clone() })
    }
}

struct FaultyFile {
    file: Option<Box<dyn Staged>>,
    fault: Fault,
}

#[async_trait]
impl Store for Faulty {
    fn place(&self, room: Room) -> Location {
        self.disk.place(room)
    }

    fn display(&self, room: Room, name: &str) -> String {
        self.disk.display(room, name)
    }

    async fn claim(&self) -> Result<Box<dyn std::any::Any + Send + Sync>> {
        self.disk.claim().await
    }

    async fn ledger(&self) -> Result<Option<(Vec<u8>, Version)>> {
        self.fault.step(self.disk.ledger()).await
    }

    async fn put_ledger(&self, bytes: Vec<u8>, was: Option<&Version>) -> Result<Version> {
        self.fault.step(self.disk.put_ledger(bytes, was)).await
    }

    async fn stage(&self, room: Room, name: &str) -> Result<Box<dyn Staged>> {
        let file = Some(self.fault.step(self.disk.stage(room, name)).await?);
        Ok(Box::new(FaultyFile { file, fault: self.fault.clone() }))
    }

    async fn list(&self, room: Room) -> Result<Vec<Listed>> {
        self.fault.step(self.disk.list(room)).await
    }

    async fn remove(&self, room: Room, names: Vec<String>) -> Result<()> {
        self.fault.step(self.disk.remove(room, names)).await
    }

    async fn switch(&self, names: Vec<String>) -> Result<()> {
        self.fault.step(self.disk.switch(names)).await
    }
}

#[async_trait]
impl Staged for FaultyFile {
    async fn write(&mut self, bytes: &mut Vec<u8>) -> Result<()> {
        let Some(file) = &mut self.file else { return Err(ConnectorError::Stopped) };
        self.fault.step(file.write(bytes)).await
    }

    async fn publish(mut self: Box<Self>) -> Result<u64> {
        let Some(file) = self.file.take() else { return Err(ConnectorError::Stopped) };
        self.fault.step(file.publish()).await
    }
}

impl Drop for FaultyFile {
    fn drop(&mut self) {
        // A process that is killed removes nothing.
        if self.fault.steps.load(Ordering::Relaxed) > self.fault.at {
            std::mem::forget(self.file.take());
        }
    }
}

/// A load without rows.
const NONE: &str = "none";

/// The loads, in order.
const LOADS: [&str; 3] = ["first", "second", "third"];

/// What is loaded, where.
pub(super) struct Trial {
    path: std::path::PathBuf,
    pub(super) settings: TargetSettings,
    columns: Vec<Column>,
}

impl Trial {
    pub(super) fn new(path: &std::path::Path, write_mode: WriteMode) -> Self {
        let columns = acceptance::plain_columns();
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
        Self { path: path.to_owned(), settings, columns }
    }

    /// The units of a load, which has its own rows.
    fn units(&self, id: &str) -> Vec<(Unit, RecordBatch)> {
        let unit = |name: &str, ids: std::ops::Range<usize>| {
            let unit = Unit { name: name.into(), from: None, to: None, rows: None, bytes: None };
            (unit, acceptance::rows(&self.columns, ids))
        };
        if id == NONE {
            return vec![unit("a", 0..0), unit("b", 0..0)];
        }
        let from = 100 * LOADS.iter().position(|load| *load == id).unwrap();
        vec![unit("a", from..from + 7), unit("empty", 0..0), unit("b", from + 7..from + 20)]
    }

    fn load(&self, id: &str) -> Load {
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

    fn store(&self, fault: &Fault) -> Arc<dyn Store> {
        Faulty::store(&self.path, "t", fault)
    }

    /// Starts the load, or continues it, until it is finished.
    pub(super) async fn run(&self, id: &str, fault: &Fault) -> Result<()> {
        let store = self.store(fault);
        let (ledger, _) = read_ledger(&*store, &self.settings).await?;
        let same = ledger.load.as_ref().is_some_and(|load| load.id == id);
        let is_switching = ledger.is_switching;
        let done: Vec<LedgerEntry> = if same { ledger.entries } else { Vec::new() };
        if same && ledger.load.is_some_and(|load| load.is_finished) && !is_switching {
            return Ok(());
        }
        let settings = json!({ "path": self.path });
        let layout: Arc<dyn Layout> =
            Arc::new(ParquetLayout::new(&serde_json::from_value(settings).unwrap()));
        let (context, _cancel) = Context::new("r");
        let target =
            FileTarget::open(store, layout, &self.settings, &self.columns, &context).await?;
        let load = self.load(id);
        target.prepare(&load).await?;
        for (unit, batch) in &self.units(id) {
            if done.iter().any(|entry| entry.unit == unit.name) {
                continue;
            }
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
            writer.commit(entry).await?;
        }
        target.finish(&load).await
    }

    /// What the ledger counts, by reading it.
    pub(super) async fn content(&self) -> ContentHash {
        let settings = json!({ "path": self.path });
        let layout: Arc<dyn Layout> =
            Arc::new(ParquetLayout::new(&serde_json::from_value(settings).unwrap()));
        let (context, _cancel) = Context::new("r");
        let store = self.store(&Fault::never());
        let target =
            FileTarget::open(store, layout, &self.settings, &self.columns, &context).await.unwrap();
        target.content().await.unwrap()
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

    /// That the directory has the files of the ledger and no others of ours, and nothing waits.
    pub(super) async fn check_files(&self) {
        let store = self.store(&Fault::never());
        let (ledger, _) = read_ledger(&*store, &self.settings).await.unwrap();
        let mut named: Vec<String> = ledger.files.into_iter().map(|file| file.name).collect();
        let mut shown: Vec<String> =
            store.list(Room::Shown).await.unwrap().into_iter().map(|file| file.name).collect();
        named.sort();
        shown.sort();
        assert_eq!(shown, named);
        assert!(shown.iter().all(|name| is_ours(name)));
        for room in [Room::Next, Room::Staging] {
            assert!(store.list(room).await.unwrap().is_empty(), "{room:?} has files");
        }
    }
}

/// Loads twice, with every step of the second load failing in its turn.
async fn interrupt(write_mode: WriteMode) {
    for is_after in [false, true] {
        let mut at = 0;
        loop {
            let directory = scratch();
            let trial = Trial::new(directory.path(), write_mode);
            trial.run("first", &Fault::never()).await.unwrap();
            let before = trial.content().await;
            assert_eq!(before, trial.hash(&["first"]));
            let fault = Fault { at, is_after, steps: Arc::default() };
            let interrupted = trial.run("second", &fault).await;
            // What is there is what was there, and whole units of the load.
            let there = trial.content().await;
            if write_mode == WriteMode::Replace {
                assert!(there == before || there == trial.hash(&["second"]), "step {at}");
            } else {
                let whole = [20, 27, 40].contains(&there.rows);
                assert!(whole, "step {at}: {} rows", there.rows);
            }
            trial.run("second", &Fault::never()).await.unwrap();
            // Another prepare sweeps what a kill after the last step left.
            trial.run("third", &Fault::never()).await.unwrap();
            let expected = match write_mode {
                WriteMode::Replace => trial.hash(&LOADS[2..]),
                _ => trial.hash(&LOADS),
            };
            assert_eq!(trial.content().await, expected, "step {at}, after: {is_after}");
            trial.check_files().await;
            if interrupted.is_ok() {
                assert!(at > 10, "the load has steps");
                break;
            }
            at += 1;
        }
    }
}

#[tokio::test]
async fn appending_continues_after_every_interruption_with_nothing_lost_or_doubled() {
    interrupt(WriteMode::Append).await;
}

#[tokio::test]
async fn replacing_continues_after_every_interruption_with_nothing_lost_or_doubled() {
    interrupt(WriteMode::Replace).await;
}

#[tokio::test]
async fn the_first_load_continues_after_every_interruption() {
    for write_mode in [WriteMode::Append, WriteMode::Replace] {
        for is_after in [false, true] {
            for at in 0.. {
                let directory = scratch();
                let trial = Trial::new(directory.path(), write_mode);
                let fault = Fault { at, is_after, steps: Arc::default() };
                let interrupted = trial.run("first", &fault).await;
                trial.run("first", &Fault::never()).await.unwrap();
                assert_eq!(trial.content().await, trial.hash(&["first"]), "step {at}");
                trial.check_files().await;
                if interrupted.is_ok() {
                    assert!(at > 10, "the load has steps");
                    break;
                }
            }
        }
    }
}

#[tokio::test]
async fn a_load_without_rows_leaves_one_file_with_the_columns() {
    for (write_mode, before) in
        [(WriteMode::Append, None), (WriteMode::Replace, None), (WriteMode::Replace, Some("first"))]
    {
        for is_after in [false, true] {
            let mut at = 0;
            loop {
                let directory = scratch();
                let trial = Trial::new(directory.path(), write_mode);
                if let Some(before) = before {
                    trial.run(before, &Fault::never()).await.unwrap();
                }
                let fault = Fault { at, is_after, steps: Arc::default() };
                let interrupted = trial.run(NONE, &fault).await;
                trial.run(NONE, &Fault::never()).await.unwrap();
                assert_eq!(trial.content().await, ContentHash::default(), "step {at}");
                // What a reader finds who does not know the ledger.
                let source = super::parquet_source(directory.path());
                let open = acceptance::open_source(&source, &super::stream("t")).await.unwrap();
                let names = |columns: &[Column]| {
                    columns.iter().map(|c| (c.name.clone(), c.sql_type.clone())).collect::<Vec<_>>()
                };
                assert_eq!(names(open.columns()), names(&trial.columns));
                let read = super::sources::read(&open).await.unwrap();
                assert_eq!(read.iter().map(RecordBatch::num_rows).sum::<usize>(), 0);
                trial.run("third", &Fault::never()).await.unwrap();
                assert_eq!(trial.content().await, trial.hash(&LOADS[2..]), "step {at}");
                trial.check_files().await;
                if interrupted.is_ok() {
                    break;
                }
                at += 1;
            }
        }
    }
}
