//! A feed of two tables that is interrupted at every step it takes, before and after it, and gone on with.

use std::path::Path;
use std::sync::Arc;

use forebay_pgcopy::Wire;
use forebay_sdk::changes::feed::{
    ChangeUnit, Changes, Feed, FeedColumn, FeedOrigin, FeedStream, FeedWriter, StreamChanges,
};
use forebay_sdk::changes::{ChangeLog, ChangedRow, Commit, Field, LoggedChange, Operation};
use forebay_sdk::connector::Result;
use forebay_sdk::settings::{FeedForm, TargetSettings, WriteMode};
use serde_json::{Value, json};

use crate::Bucket;

use super::super::bucket::BucketStore;
use super::super::feed;
use super::super::format::Layout;
use super::super::ndjson::NdjsonLayout;
use super::super::store::{Room, Store};
use super::interrupted::{Fault, Faulty, Trial, scratch};

const TABLES: [&str; 2] = ["a", "b"];

fn stream(name: &str) -> FeedStream {
    let wire = Some(Wire::Int4);
    let column =
        FeedColumn { name: "id".into(), sql_type: "integer".into(), is_key: true, number: 1, wire };
    FeedStream { stream: name.into(), columns: vec![column], from: None, known_by: Vec::new() }
}

fn begun(position: Option<&str>) -> Feed {
    Feed {
        origin: FeedOrigin { server: "1".into(), ..FeedOrigin::default() },
        position: position.map(str::to_owned),
        streams: TABLES.map(stream).into(),
        form: FeedForm::Log,
    }
}

fn target(path: &Path, into: &str) -> TargetSettings {
    let settings = Trial::new(path, WriteMode::Replace).settings;
    TargetSettings { stream: into.into(), into: into.into(), feed: FeedForm::Log, ..settings }
}

async fn open(path: &Path, fault: &Fault) -> Result<(Feed, Box<dyn FeedWriter>)> {
    open_in(path, &|directory| Faulty::store(path, directory, fault)).await
}

async fn open_in(
    path: &Path,
    store: &(dyn Fn(&str) -> Arc<dyn Store> + Sync),
) -> Result<(Feed, Box<dyn FeedWriter>)> {
    let ledger: Arc<dyn Store> = store("p.feed");
    let settings = serde_json::from_value(json!({ "path": path })).unwrap();
    let layout: Arc<dyn Layout> = Arc::new(NdjsonLayout::new(&settings));
    let feed = feed::feed(&*ledger, "p").await?.unwrap();
    let streams = TABLES.map(|into| (store(into), target(path, into)));
    let writer = feed::open(ledger, layout, "p", &feed, streams.into()).await?;
    Ok((feed, writer))
}

/// The unit of a commit, which has changes of both tables; a part of it, if it has no position.
fn unit(commit: u64, from: u64, is_part: bool) -> ChangeUnit {
    let position = format!("0/{commit:X}");
    let of = Arc::new(Commit { position: position.clone(), at_us: 1_000_000 });
    let changes = |table: usize| {
        let mut log = ChangeLog::default();
        for number in (from..from + 6).filter(|number| number % 2 == table as u64) {
            let id = i32::try_from(commit * 100 + number).unwrap().to_be_bytes();
            log.push(LoggedChange {
                operation: Operation::Insert,
                commit: Arc::clone(&of),
                number,
                key_before: None,
                row: Some(ChangedRow::new([Field::Value(&id)]).unwrap()),
            });
        }
        StreamChanges { stream: table, changes: Changes::Log(log) }
    };
    ChangeUnit {
        position: (!is_part).then_some(position),
        commits: u64::from(!is_part),
        committed_us: Some(1_000_000),
        redefined: Vec::new(),
        streams: vec![changes(0), changes(1)],
    }
}

/// Follows the commits after the recorded position up to this one.
async fn follow(path: &Path, fault: &Fault, last: u64) -> Result<()> {
    let (feed, mut writer) = open(path, fault).await?;
    let position = feed.position.unwrap();
    let done = u64::from_str_radix(position.strip_prefix("0/").unwrap(), 16).unwrap();
    for commit in done + 1..=last {
        // Every third is a large one, which comes in two parts.
        if commit % 3 == 0 {
            writer.apply(unit(commit, 0, true)).await?;
            writer.apply(unit(commit, 6, false)).await?;
        } else {
            writer.apply(unit(commit, 0, false)).await?;
        }
    }
    Ok(())
}

/// What the files of a table have, in the order of their names, and the names.
fn rows(path: &Path, into: &str) -> (Vec<(String, u64)>, usize) {
    let Ok(files) = std::fs::read_dir(path.join(into)) else { return (Vec::new(), 0) };
    let mut files: Vec<_> = files.map(|file| file.unwrap().path()).collect();
    files.sort();
    let texts = files.iter().map(|file| std::fs::read_to_string(file).unwrap());
    let texts: String = texts.collect();
    let row = |line: &str| {
        let row: Value = serde_json::from_str(line).unwrap();
        (row["_position"].as_str().unwrap().to_owned(), row["_number"].as_u64().unwrap())
    };
    (texts.lines().map(row).collect(), files.len())
}

fn check(path: &Path, last: u64) {
    for (at, into) in TABLES.into_iter().enumerate() {
        let of = |commit: u64| {
            let numbers = 0..if commit.is_multiple_of(3) { 12 } else { 6 };
            let numbers = numbers.filter(move |number| number % 2 == at as u64);
            numbers.map(move |number| (format!("0/{commit:X}"), number))
        };
        let wanted: Vec<(String, u64)> = (1..=last).flat_map(of).collect();
        assert_eq!(rows(path, into).0, wanted, "{into}");
    }
}

async fn begin(path: &Path) {
    begin_in(&*Faulty::store(path, "p.feed", &Fault::never())).await;
}

async fn begin_in(ledger: &dyn Store) {
    let copying = Feed { streams: Vec::new(), ..begun(None) };
    feed::record(ledger, "p", None, Some(&copying)).await.unwrap();
    feed::record(ledger, "p", Some(&copying), Some(&begun(Some("0/0")))).await.unwrap();
}

#[tokio::test]
async fn following_continues_after_every_interruption_with_nothing_lost_or_doubled() {
    for fault in [Fault::at, Fault::after] {
        for at in 0.. {
            let directory = scratch();
            let path = directory.path();
            begin(path).await;
            let interrupted = follow(path, &fault(at), 4).await;
            // Of all tables, the ledger has whole commits and the position after them.
            let ledger = Faulty::store(path, "p.feed", &Fault::never());
            assert!(feed::feed(&*ledger, "p").await.unwrap().is_some());
            follow(path, &Fault::never(), 5).await.unwrap();
            check(path, 5);
            if interrupted.is_ok() {
                assert!(at > 40, "{at} steps");
                break;
            }
        }
    }
}

#[tokio::test]
async fn the_ledger_does_not_grow_with_the_number_of_units() {
    let directory = scratch();
    let path = directory.path();
    begin(path).await;
    follow(path, &Fault::never(), 300).await.unwrap();
    check(path, 300);
    let ledger = path.join("_forebay/p.feed/ledger.json");
    let size = std::fs::metadata(&ledger).unwrap().len();
    assert!(size < 64 << 10, "{size}");
    // Every unit is in the ledger or in a segment of its chain.
    let head = std::fs::read(&ledger).unwrap();
    let numbers = feed::units(&*Faulty::store(path, "p.feed", &Fault::never()), &head);
    assert_eq!(numbers, (1..=300).rev().collect::<Vec<u64>>());
}

#[tokio::test]
async fn a_record_in_the_place_of_another_one_is_refused() {
    let directory = scratch();
    let path = directory.path();
    begin(path).await;
    follow(path, &Fault::never(), 2).await.unwrap();
    let ledger = Faulty::store(path, "p.feed", &Fault::never());
    let early = begun(Some("0/0"));
    feed::record(&*ledger, "p", Some(&early), None).await.unwrap_err();
    let now = begun(Some("0/2"));
    feed::record(&*ledger, "p", Some(&now), None).await.unwrap();
    assert_eq!(feed::feed(&*ledger, "p").await.unwrap(), None);
    // Another log begins without the files of the earlier one.
    begin(path).await;
    follow(path, &Fault::never(), 1).await.unwrap();
    check(path, 1);
    // A file that the ledger lists and that is gone is damage.
    let shown = std::fs::read_dir(path.join("a")).unwrap().next().unwrap().unwrap();
    std::fs::remove_file(shown.path()).unwrap();
    let error = follow(path, &Fault::never(), 2).await.unwrap_err().to_string();
    assert!(error.contains("but no such file exists"), "{error}");
}

#[tokio::test]
async fn of_two_runs_that_write_to_a_bucket_one_is_refused_and_leaves_nothing() {
    let store = Arc::new(object_store::memory::InMemory::new());
    let bucket = Bucket::new(store, "b", "out".into());
    let at =
        |directory: &str| Arc::new(BucketStore::new(bucket.clone(), directory)) as Arc<dyn Store>;
    begin_in(&*at("p.feed")).await;
    let path = Path::new("none");
    let (_, mut one) = open_in(path, &at).await.unwrap();
    let (_, mut other) = open_in(path, &at).await.unwrap();
    one.apply(unit(1, 0, false)).await.unwrap();
    let error = other.apply(unit(1, 0, false)).await.unwrap_err();
    let cause = std::error::Error::source(&error).unwrap().to_string();
    assert!(cause.contains("another run replaced it"), "{error}: {cause}");
    assert_eq!(at("a").list(Room::Shown).await.unwrap().len(), 2);
    let (feed, _) = open_in(path, &at).await.unwrap();
    assert_eq!(feed.position.as_deref(), Some("0/1"));
    assert_eq!(
        at("a").list(Room::Shown).await.unwrap().len(),
        1,
        "what no ledger names is removed"
    );
    one.apply(unit(2, 0, false)).await.unwrap();
    assert_eq!(at("b").list(Room::Shown).await.unwrap().len(), 2);
}
