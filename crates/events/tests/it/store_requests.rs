//! A request with a key is stored once, however often it is sent and whatever happens in between.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use forebay_base::clock::ManualClock;
use forebay_base::fs::FileSystem;
use forebay_base::fs::sim::{Fault, SimFs};
use forebay_events::ingest::{Ingest, RequestKey, Summary};
use forebay_events::input::{Format, Record};
use forebay_events::query::Query;
use forebay_events::store::verify;
use forebay_events::{AppendError, Options, Store};

use crate::store_model::{DIR, START_MS};

fn open(disk: &SimFs, clock: &Arc<ManualClock>) -> Store {
    let options = Options {
        batch_events: 10,
        memory_table_events: 100_000,
        log_segment_size: 1 << 20,
        retention: Vec::new(),
        ..crate::store_model::options("sync".parse().unwrap())
    };
    let fs: Arc<dyn FileSystem> = Arc::new(disk.clone());
    Store::open_quiet(fs, clock.clone(), Path::new(DIR), options).unwrap().0
}

fn lines(count: usize) -> Vec<String> {
    // Every ninth is not JSON.
    let line = |number: usize| match number % 9 {
        8 => format!("{{broken {number}"),
        _ => format!("{{\"n\":{number}}}"),
    };
    (0..count).map(line).collect()
}

/// What an attempt ends with.
#[derive(Debug, PartialEq)]
enum Sent {
    Stored(u64, u64),
    Before(u16, Vec<u8>),
}

/// Sends lines under a key; with `whole` the input ends with them, and is answered.
fn send(store: &Store, key: &str, lines: &[String], whole: bool) -> Result<Sent, AppendError> {
    let ingest = Ingest::new(store, Format::Ndjson, "main");
    let mut ingest = ingest.with_request(store, RequestKey::of(key.as_bytes()), b"main");
    for (line, text) in (1..).zip(lines) {
        let record = Record { line, bytes: text.as_bytes(), fault: None };
        ingest.record(store, &record, 5, &mut |_, _, _| ())?;
    }
    if whole {
        if let Some((status, answer)) = ingest.earlier_answer()? {
            return Ok(Sent::Before(status, answer.to_vec()));
        }
        let Summary { accepted, rejected, .. } = *ingest.summary();
        ingest.set_answer(207, format!("{accepted} {rejected}").into_bytes());
    }
    let summary = ingest.finish(store)?;
    Ok(Sent::Stored(summary.accepted, summary.rejected))
}

fn raws(store: &Store) -> Vec<String> {
    let mut scan = store.scan(Query { stream: Some("main".to_owned()), ..Query::default() });
    let mut found = Vec::new();
    while let Some(record) = scan.next().unwrap() {
        found.push(String::from_utf8(record.event().raw.to_vec()).unwrap());
    }
    found
}

fn good(count: usize) -> Vec<String> {
    lines(count).into_iter().filter(|line| !line.starts_with("{broken")).collect()
}

fn assert_sound(disk: &SimFs) {
    let fs: Arc<dyn FileSystem> = Arc::new(disk.clone());
    assert_eq!(verify(&fs, Path::new(DIR), &[], None, &|_| ()).unwrap().faults, []);
}

#[test]
fn a_request_sent_again_gets_its_first_answer_and_stores_nothing_also_after_restarts() {
    for count in [3, 10, 45, 50] {
        let (disk, clock) = (SimFs::new(1), Arc::new(ManualClock::new(START_MS)));
        let mut store = open(&disk, &clock);
        let expected = good(count);
        let rejected = (count - expected.len()) as u64;
        let first = send(&store, "a", &lines(count), true).unwrap();
        assert_eq!(first, Sent::Stored(expected.len() as u64, rejected));
        let answer = format!("{} {rejected}", expected.len()).into_bytes();
        for round in 0..4 {
            let again = send(&store, "a", &lines(count), true).unwrap();
            assert_eq!(again, Sent::Before(207, answer.clone()), "{count} {round}");
            // With the note in memory, in the log, and in the file.
            if round == 1 {
                store.flush().unwrap();
            }
            store.close().unwrap();
            store = open(&disk, &clock);
        }
        assert_eq!(raws(&store), expected);
        let other = send(&store, "b", &lines(count), true).unwrap();
        assert_eq!(other, first, "another key");
        store.close().unwrap();
        assert_sound(&disk);
    }
}

#[test]
fn a_key_with_another_input_is_refused_and_stores_nothing() {
    let (disk, clock) = (SimFs::new(2), Arc::new(ManualClock::new(START_MS)));
    let store = open(&disk, &clock);
    send(&store, "a", &lines(30), true).unwrap();
    let before = store.len();
    let mut changed = lines(30);
    changed[17].push(' ');
    for other in [lines(29), lines(31), lines(90), changed] {
        let sent = send(&store, "a", &other, true);
        assert!(matches!(sent, Err(AppendError::KeyReused)), "{} {sent:?}", other.len());
    }
    assert_eq!(store.len(), before);
}

#[test]
fn a_request_that_was_cut_goes_on_where_it_ended_and_refuses_another_beginning() {
    for cut in [1, 9, 10, 11, 27, 40] {
        let (disk, clock) = (SimFs::new(3), Arc::new(ManualClock::new(START_MS)));
        let store = open(&disk, &clock);
        send(&store, "a", &lines(45)[..cut], false).unwrap();
        store.close().unwrap();
        let store = open(&disk, &clock);
        let mut changed = lines(45);
        changed[0].push(' ');
        let sent = send(&store, "a", &changed, true);
        assert!(matches!(sent, Err(AppendError::KeyReused)), "{cut}");
        assert_eq!(raws(&store), good(cut));
        let expected = Sent::Stored(good(45).len() as u64, 45 - good(45).len() as u64);
        assert_eq!(send(&store, "a", &lines(45), true).unwrap(), expected, "{cut}");
        assert_eq!(raws(&store), good(45), "{cut}");
        assert!(matches!(send(&store, "a", &lines(45), true).unwrap(), Sent::Before(..)));
    }
}

#[test]
fn a_request_is_forgotten_after_its_window() {
    let (disk, clock) = (SimFs::new(4), Arc::new(ManualClock::new(START_MS)));
    let store = open(&disk, &clock);
    send(&store, "a", &lines(5), true).unwrap();
    clock.advance(Duration::from_secs(24 * 3_600 + 1));
    assert_eq!(send(&store, "a", &lines(5), true).unwrap(), Sent::Stored(5, 0));
    assert_eq!(store.len(), 10);
}

#[test]
fn at_every_stop_of_the_disk_a_request_is_stored_once_after_it_is_sent_again() {
    let mut stops = 0;
    for stop in 0.. {
        let (disk, clock) = (SimFs::new(5), Arc::new(ManualClock::new(START_MS)));
        let store = open(&disk, &clock);
        disk.plan(disk.operations() + stop, Fault::Stop);
        let sent = send(&store, "a", &lines(45), true);
        let flushed = store.flush();
        if sent.is_ok() && flushed.is_ok() {
            break;
        }
        stops += 1;
        drop(store);
        let disk = disk.power_off(stop);
        let store = open(&disk, &clock);
        send(&store, "a", &lines(45), true).unwrap();
        assert_eq!(raws(&store), good(45), "{stop}");
        store.close().unwrap();
        assert_sound(&disk);
    }
    assert!(stops > 10, "{stops}");
}
