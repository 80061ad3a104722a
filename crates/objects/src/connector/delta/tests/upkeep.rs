//! Small files become one, and files that no version needs are removed.

use std::collections::HashSet;
use std::time::Duration;

use forebay_sdk::settings::WriteMode;
use object_store::ObjectStoreExt as _;
use object_store::path::Path as Key;
use serde_json::json;

use super::super::super::location::Location;
use super::super::commit::Known;
use super::super::ledger::{self, DataFile};
use super::super::rearrange::{Rearranged, StoredFile};
use super::super::removed::Upkeep;
use super::super::table::Table;
use super::chain;
use super::faults::Fault;
use super::foreign::{actions, commit, foreign_file, trial};
use super::interrupted::Trial;
use crate::Bucket;

const LOADS: [&str; 5] = ["first", "second", "third", "fourth", "fifth"];

fn with(trial: Trial, merge_files: u32, keep_removed: Option<Duration>) -> Trial {
    Trial { upkeep: Upkeep { merge_files, keep_removed }, ..trial }
}

async fn run(trial: &Trial, id: &str) {
    trial.run(id, &Fault::never(), 0).await.unwrap();
}

fn table(trial: &Trial) -> Table {
    let bucket = Bucket::new(trial.store.clone(), "b", "lake/t".into());
    Table::open(Location::Bucket(bucket)).unwrap()
}

/// The files of the newest version.
async fn files(trial: &Trial) -> Vec<StoredFile> {
    let table = table(trial);
    let files = move || table.files(&table.present().unwrap()).unwrap();
    tokio::task::spawn_blocking(files).await.unwrap()
}

async fn names(trial: &Trial) -> HashSet<String> {
    let names = trial.names("lake/t/").await.into_iter();
    names.filter_map(|name| Some(name.rsplit_once('/')?.1.to_owned())).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn small_files_become_one_with_the_same_rows() {
    let trial = with(Trial::new(WriteMode::Append), 4, None);
    for (number, id) in LOADS.iter().enumerate() {
        run(&trial, id).await;
        let loads = &LOADS[..=number];
        assert_eq!(trial.content().await, trial.hash(loads), "{id}");
        // Two files a load: they are merged after every second one, with what was merged before.
        let count = files(&trial).await.len();
        assert!(count < 4, "{id}: {count} files");
    }
    let merged: Vec<StoredFile> = files(&trial).await;
    let merged = merged.iter().find(|file| file.path.starts_with("merged-")).unwrap();
    assert_eq!(merged.rows, Some(80));
    let added = actions(&trial, "add").await;
    let added = added.iter().find(|add| add["path"] == *merged.path).unwrap();
    assert_eq!(added["dataChange"], false);
    let removed = actions(&trial, "remove").await;
    assert!(removed.iter().all(|remove| remove["dataChange"] == false), "{removed:?}");
    // Readers of earlier versions find all of their files.
    let there = names(&trial).await;
    assert!(removed.iter().all(|remove| there.contains(remove["path"].as_str().unwrap())));
    // A load that continues does not miss the files that were merged.
    run(&trial, "sixth").await;
    assert_eq!(trial.content().await.rows, 120);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_merged_file_has_the_columns_that_the_table_has_now() {
    let trial = with(trial(WriteMode::Append), 4, None);
    let before = Trial { columns: trial.columns[..3].to_vec(), ..trial.clone() };
    run(&before, "first").await;
    run(&trial, "second").await;
    assert_eq!(files(&trial).await.len(), 1);
    let content = trial.content().await;
    let unmerged = self::trial(WriteMode::Append);
    let before = Trial { columns: unmerged.columns[..3].to_vec(), ..unmerged.clone() };
    run(&before, "first").await;
    run(&unmerged, "second").await;
    assert_eq!(content, unmerged.content().await);
}

#[tokio::test(flavor = "multi_thread")]
async fn files_are_removed_when_no_version_within_the_time_needs_them() {
    for write_mode in [WriteMode::Append, WriteMode::Replace] {
        let kept = with(trial(write_mode), 4, Some(Duration::from_hours(1)));
        run(&kept, "first").await;
        let file = foreign_file(&kept, "other.parquet", 1000).await;
        commit(&kept, &[file]).await;
        run(&kept, "second").await;
        let before = names(&kept).await;
        run(&kept, "third").await;
        let after = names(&kept).await;
        assert!(before.is_subset(&after), "an hour has not passed");
        let removing = with(kept, 4, Some(Duration::ZERO));
        run(&removing, "fourth").await;
        let there: HashSet<String> =
            files(&removing).await.into_iter().map(|file| file.path).collect();
        let left = names(&removing).await;
        let left: HashSet<String> =
            left.into_iter().filter(|name| name.ends_with(".parquet")).collect();
        // The other program's file is not this stream's to remove.
        let is_foreign = |name: &&String| *name == "other.parquet";
        assert_eq!(left.difference(&there).filter(|name| !is_foreign(name)).count(), 0);
        assert!(left.contains("other.parquet"));
        assert!(removing.names("lake/_forebay/t/removed/").await.is_empty());
        let rows = if write_mode == WriteMode::Append { 81 } else { 20 };
        assert_eq!(removing.content().await.rows, rows);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn upkeep_that_is_interrupted_anywhere_loses_and_doubles_no_row() {
    for write_mode in [WriteMode::Append, WriteMode::Replace] {
        let begun = with(Trial::new(write_mode), 3, Some(Duration::ZERO));
        run(&begun, "first").await;
        let mut kinds = vec![(false, false), (true, false)];
        if write_mode == WriteMode::Append {
            kinds.push((true, true));
        }
        for (is_after, is_once) in kinds {
            for at in 0.. {
                let trial = begun.copy().await;
                let fault = Fault::at(at, is_after, is_once);
                drop(trial.run("second", &fault, 1).await);
                for id in ["second", "third"] {
                    if let Err(error) = trial.run(id, &Fault::never(), 0).await {
                        panic!("step {at}, after: {is_after}: {}", chain(&error));
                    }
                }
                let loads = match write_mode {
                    WriteMode::Append => &LOADS[..3],
                    _ => &LOADS[2..3],
                };
                assert_eq!(trial.content().await, trial.hash(loads), "step {at}, {is_after}");
                // Nothing is left that no version names, whatever was interrupted.
                let there: HashSet<String> =
                    files(&trial).await.into_iter().map(|file| file.path).collect();
                let left = names(&trial).await;
                let left: Vec<&String> = left
                    .iter()
                    .filter(|name| name.ends_with(".parquet") && !there.contains(*name))
                    .collect();
                assert!(left.is_empty(), "step {at}, {is_after}: {left:?}");
                if !fault.is_hit() {
                    assert!(at > 20, "upkeep has steps");
                    break;
                }
            }
        }
    }
}

/// A merge of all files of a table into one that is there already, after what another program does.
async fn rearranged(trial: &Trial, known: &str) -> (Rearranged, Vec<StoredFile>) {
    let (table, settings) = (table(trial), trial.settings.clone());
    let known = known.to_owned();
    let work = move || {
        let old = table.state(&settings).unwrap().unwrap();
        (table, settings, old, known)
    };
    let (table, settings, old, meanwhile) = tokio::task::spawn_blocking(work).await.unwrap();
    let out = files(trial).await;
    match &*meanwhile {
        "append" => {
            let file = foreign_file(trial, "other.parquet", 1000).await;
            commit(trial, &[file]).await;
        }
        "remove" => {
            let remove = json!({ "remove": {
                "path": out[0].path, "deletionTimestamp": 1, "dataChange": true, "size": out[0].bytes,
            } });
            commit(trial, &[remove]).await;
        }
        _ => run(trial, "second").await,
    }
    let into = DataFile {
        path: ledger::merged_name(&settings),
        bytes: 1,
        at_ms: 1,
        stats: "{\"numRecords\":20}".into(),
    };
    let rearrange = move || {
        let outcome = table.rearrange(&mut Known::new(&old, None), &settings, &out, &into);
        (outcome.unwrap(), out)
    };
    tokio::task::spawn_blocking(rearrange).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_merge_is_committed_on_top_of_other_programs_and_never_over_them() {
    let begun = trial(WriteMode::Append);
    run(&begun, "first").await;
    let appended = begun.copy().await;
    let (outcome, out) = rearranged(&appended, "append").await;
    assert!(matches!(outcome, Rearranged::Done));
    let now = files(&appended).await;
    assert!(now.iter().any(|file| file.path == "other.parquet") && now.len() == 2);
    assert!(out.iter().all(|file| !now.contains(file)));
    for (meanwhile, reason) in
        [("remove", "another program has changed its files"), ("run", "another run writes")]
    {
        let trial = begun.copy().await;
        let (outcome, _) = rearranged(&trial, meanwhile).await;
        let Rearranged::Left(found) = outcome else { panic!("{meanwhile}: it was committed") };
        assert!(found.contains(reason), "{found}");
        assert!(files(&trial).await.iter().all(|file| !file.path.starts_with("merged-")));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_list_removes_nothing_but_files_of_its_stream() {
    let trial = with(trial(WriteMode::Append), 0, Some(Duration::ZERO));
    run(&trial, "first").await;
    let rows = trial.content().await;
    let there = files(&trial).await;
    let stem = ledger::stem(&trial.settings, "old", 1, "a");
    let own = format!("{stem}.parquet");
    for name in [&*own, "other.parquet", "_delta_log/00000000000000000000.json.bak"] {
        trial.store.put(&Key::from(format!("lake/t/{name}")), "x".into()).await.unwrap();
    }
    let names = [
        own.clone(),
        there[0].path.clone(),
        "other.parquet".into(),
        "../u/part-1.parquet".into(),
        format!("../t/{own}"),
        "_delta_log/00000000000000000000.json".into(),
    ];
    let list = json!({ "version": 1, "removed": names }).to_string();
    let name = ledger::list_name(&trial.settings, 1);
    let key = Key::from(format!("lake/_forebay/t/removed/{name}"));
    trial.store.put(&key, list.into()).await.unwrap();
    run(&trial, "second").await;
    assert_eq!(trial.content().await.rows, rows.rows + 20);
    let left = self::names(&trial).await;
    assert!(!left.contains(&own) && left.contains("other.parquet"), "{left:?}");
    assert!(left.contains("00000000000000000000.json"));
    // One that is damaged is reported, and keeps everything.
    trial.store.put(&key, "{".into()).await.unwrap();
    run(&trial, "third").await;
    assert_eq!(trial.names("lake/_forebay/t/removed/").await.len(), 1);
}
