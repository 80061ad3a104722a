//! Retention: expired events are removed and their space is freed; the remaining ones can still be
//! proven, also against earlier checkpoints.

#![expect(clippy::cast_possible_truncation, reason = "numbers of a test are small")]

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use forebay_base::clock::ManualClock;
use forebay_base::error_chain::chain;
use forebay_base::fs::FileSystem;
use forebay_base::fs::sim::SimFs;
use forebay_events::checkpoint::Checkpoint;
use forebay_events::merkle::leaf_hash;
use forebay_events::query::Query;
use forebay_events::segment::Segment;
use forebay_events::store::{Retention, verify};
use forebay_events::{Batch, Draft, Options, Store};

use crate::store_model::{DIR, START_MS, now_ns};

const HOUR: Duration = Duration::from_secs(3600);
const HOUR_NS: i64 = 3_600_000_000_000;

fn options() -> Options {
    Options {
        memory_table_events: 100_000,
        retention: vec![
            Retention { stream: Some("debug".to_owned()), keep_ns: HOUR_NS },
            Retention { stream: Some("audit".to_owned()), keep_ns: 1_000 * HOUR_NS },
            Retention { stream: None, keep_ns: 24 * HOUR_NS },
        ],
        ..crate::store_model::options("sync".parse().unwrap())
    }
}

fn open(disk: &SimFs, clock: &Arc<ManualClock>) -> Store {
    let fs: Arc<dyn FileSystem> = Arc::new(disk.clone());
    Store::open_quiet(fs, clock.clone(), Path::new(DIR), options()).unwrap().0
}

/// Appends `count` events of a stream, of now.
fn append(store: &Store, clock: &ManualClock, stream: &str, count: usize) {
    let mut batch = Batch::new(stream);
    for number in 0..count {
        // Larger than the hash that may stay behind, and not to be compressed.
        let hashes = [0, 1, 2].map(|part| leaf_hash(&[number as u8, part, stream.len() as u8]));
        let raw = hashes.iter().flat_map(|hash| hash.0).collect::<Vec<u8>>();
        batch.push(&Draft { raw: raw.into(), ..Draft::default() }, now_ns(clock)).unwrap();
    }
    store.append(batch).unwrap();
}

fn count(store: &Store, stream: &str) -> usize {
    let query = Query { stream: Some(stream.to_owned()), ..Query::default() };
    let mut scan = store.scan(query);
    let mut count = 0;
    while scan.next().unwrap().is_some() {
        count += 1;
    }
    count
}

/// Hashes of pruned events that are kept, in all segments.
fn stubs(disk: &SimFs) -> u64 {
    let dir = Path::new(DIR).join("segments");
    let names = disk.list(&dir).unwrap();
    names.iter().map(|e| Segment::open(disk, &dir.join(&e.name)).unwrap().info().stubs).sum()
}

fn faults(disk: &SimFs, since: &[String]) -> Vec<String> {
    let fs: Arc<dyn FileSystem> = Arc::new(disk.clone());
    let verified = verify(&fs, Path::new(DIR), since, None, &|_| ()).unwrap();
    verified.faults.iter().map(ToString::to_string).collect()
}

#[test]
fn a_damaged_segment_stops_neither_the_retention_nor_the_joining_of_others() {
    let (disk, clock) = (SimFs::new(1), Arc::new(ManualClock::new(START_MS)));
    let store = open(&disk, &clock);
    for _ in 0..6 {
        append(&store, &clock, "debug", 80);
        append(&store, &clock, "audit", 80);
        store.flush().unwrap();
    }
    store.close().unwrap();
    let dir = Path::new(DIR).join("segments");
    let path = disk.list(&dir).unwrap().iter().map(|entry| dir.join(&entry.name)).min().unwrap();
    let first = Segment::open(&disk, &path).unwrap().blocks()[0].offset;
    disk.corrupt(&path, first + 9, 1).unwrap();

    clock.advance(2 * HOUR);
    let store = open(&disk, &clock);
    let kept = store.stats().events_kept;
    for attempt in 0..2 {
        let error = store.prune().unwrap_err();
        assert!(chain(&error).to_string().contains("is damaged"), "{attempt}: {error:?}");
        // Of the damaged segment none, of the five others all.
        let records = store.stats().events_kept + 5 * 80 - kept;
        assert!(records <= 6, "{attempt}: {records}");
    }
    let before = store.stats().segments;
    assert!(store.compact().is_err());
    assert_eq!(store.stats().segments, before - 3, "four became one");
    store.close().unwrap();
    assert!(disk.exists(&path).unwrap(), "a damaged segment stays as it is");
}

#[test]
fn each_rule_removes_what_is_its_own_and_what_stays_is_proven_against_old_checkpoints() {
    let (disk, clock) = (SimFs::new(1), Arc::new(ManualClock::new(START_MS)));
    let store = open(&disk, &clock);
    for round in 0..4 {
        append(&store, &clock, "debug", 200);
        append(&store, &clock, "audit", 50);
        append(&store, &clock, "web", 113 + round);
        store.checkpoint().unwrap();
    }
    let old = store.checkpoint().unwrap();
    let key = store.verifier_key().unwrap();
    let old = (Checkpoint::open(old.as_bytes(), &key).unwrap(), old);
    store.flush().unwrap();
    let before = store.stats();
    assert_eq!(store.prune().unwrap().events, 0, "nothing is expired");

    clock.advance(2 * HOUR);
    append(&store, &clock, "debug", 5);
    let pruned = store.prune().unwrap();
    assert_eq!((pruned.events, count(&store, "debug")), (800, 5));
    assert_eq!((count(&store, "audit"), count(&store, "web")), (200, 458));
    let after = store.stats();
    assert_eq!(before.segment_bytes - after.segment_bytes, pruned.bytes);
    assert!(after.segment_bytes < before.segment_bytes * 8 / 10, "{after:?}");

    clock.advance(30 * HOUR);
    assert_eq!(store.prune().unwrap().events, 458, "what is in memory is not yet looked at");
    store.flush().unwrap();
    assert_eq!(store.prune().unwrap().events, 5);
    // And what the store recorded: its rules, and three prunings.
    assert_eq!((count(&store, "audit"), store.stats().events_kept), (200, 204));

    let stream = Some("audit".to_owned());
    let mut scan = store.scan(Query { stream, ..Query::default() });
    while let Some(record) = scan.next().unwrap() {
        assert_eq!(record.event().tags.stream, "audit");
        let included = store.prove_record(&record).unwrap();
        included.verify(&key).unwrap();
    }
    drop(scan);
    let proof = store.prove_consistency(old.0.size, None).unwrap();
    assert_eq!(proof.first_root, old.0.root);
    proof.verify(&key, &old.0).unwrap();
    store.close().unwrap();
    assert_eq!(faults(&disk, &[old.1]), [""; 0]);
    let store = open(&disk, &clock);
    assert_eq!((store.len(), count(&store, "audit")), (1467, 200));
}

#[test]
fn only_tiles_of_which_something_stays_keep_hashes_also_across_segments() {
    let (disk, clock) = (SimFs::new(2), Arc::new(ManualClock::new(START_MS)));
    let store = open(&disk, &clock);
    // Four segments whose borders lie within tiles: 0..300..600..900..1200.
    for _ in 0..4 {
        append(&store, &clock, "debug", 300);
        store.flush().unwrap();
    }
    append(&store, &clock, "audit", 30);
    store.flush().unwrap();
    store.checkpoint().unwrap();
    clock.advance(2 * HOUR);
    assert_eq!(store.prune().unwrap().events, 1200);
    assert!(stubs(&disk) > 300, "tiles at the borders");
    store.compact().unwrap();
    // What is left is the last tile, 1024..1280, which the 30 events are in.
    assert_eq!(stubs(&disk), 1200 - 1024);
    let record = store.at(1210).unwrap().unwrap();
    store.prove_record(&record).unwrap().verify(&store.verifier_key().unwrap()).unwrap();
    store.close().unwrap();
    assert_eq!(faults(&disk, &[]), [""; 0]);
}

/// Appends an event of `debug` with a time that its producer claims.
fn claim(store: &Store, clock: &ManualClock, time: &str) {
    let mut batch = Batch::new("debug");
    let timestamp_ns = forebay_events::query::parse_time(time);
    assert!(timestamp_ns.is_some(), "{time}");
    let raw = time.as_bytes().into();
    batch.push(&Draft { timestamp_ns, raw, ..Draft::default() }, now_ns(clock)).unwrap();
    store.append(batch).unwrap();
}

#[test]
fn events_are_kept_from_their_arrival_whatever_time_their_producer_claims() {
    let (disk, clock) = (SimFs::new(3), Arc::new(ManualClock::new(START_MS)));
    let store = open(&disk, &clock);
    for time in ["1999-12-31T00:00:00Z", "2090-01-01T00:00:00Z", "2023-11-14T00:00:00Z"] {
        claim(&store, &clock, time);
    }
    store.flush().unwrap();
    assert_eq!(store.prune().unwrap().events, 0, "they arrived just now");
    clock.advance(HOUR / 2);
    claim(&store, &clock, "1999-12-31T00:00:00Z");
    store.close().unwrap();
    let store = open(&disk, &clock);
    store.flush().unwrap();
    clock.advance(HOUR / 2 + Duration::from_secs(1));
    assert_eq!(store.prune().unwrap().events, 3);
    assert_eq!(count(&store, "debug"), 1, "it arrived half an hour later");
    clock.advance(HOUR / 2);
    assert_eq!(store.prune().unwrap().events, 1);
    store.close().unwrap();
    assert_eq!(faults(&disk, &[]), [""; 0]);
}

/// A store as an earlier version left it: without codes, and before it recorded arrivals.
fn make_old(disk: &SimFs) {
    let dir = Path::new(DIR);
    let (manifest, _) = crate::store_tamper::last_segment(disk);
    crate::store_tamper::write(disk, &dir.join("manifest"), &manifest);
    disk.remove_file(&dir.join("arrivals")).unwrap();
    crate::store_tamper::forget_history(disk);
}

#[test]
fn events_that_arrived_before_arrivals_were_recorded_are_kept_by_their_time() {
    let (disk, clock) = (SimFs::new(4), Arc::new(ManualClock::new(START_MS)));
    let store = open(&disk, &clock);
    claim(&store, &clock, "1999-12-31T00:00:00Z");
    claim(&store, &clock, "2023-11-14T22:13:20Z");
    store.flush().unwrap();
    store.close().unwrap();
    make_old(&disk);
    let store = open(&disk, &clock);
    claim(&store, &clock, "1999-12-31T00:00:00Z");
    store.flush().unwrap();
    assert_eq!(store.prune().unwrap().events, 1, "the old one of the earlier version");
    clock.advance(2 * HOUR);
    assert_eq!(store.prune().unwrap().events, 2);
    store.close().unwrap();
    assert_eq!(faults(&disk, &[]), [""; 0]);
}

#[test]
fn damaged_arrivals_of_a_store_without_proofs_are_an_error() {
    let (disk, clock) = (SimFs::new(5), Arc::new(ManualClock::new(START_MS)));
    let open = || {
        let fs: Arc<dyn FileSystem> = Arc::new(disk.clone());
        let options = Options { merkle: false, ..options() };
        Store::open_quiet(fs, clock.clone(), Path::new(DIR), options)
    };
    let (store, _) = open().unwrap();
    append(&store, &clock, "web", 10);
    store.flush().unwrap();
    store.close().unwrap();
    let path = Path::new(DIR).join("arrivals");
    let mut bytes = crate::store_tamper::read(&disk, &path);
    bytes[12] ^= 1;
    crate::store_tamper::write(&disk, &path, &bytes);
    assert!(open().unwrap_err().to_string().contains("arrivals"));
    assert_eq!(faults(&disk, &[]).len(), 1);
}

#[test]
fn above_the_maximum_size_the_events_that_arrived_first_are_removed_and_recorded() {
    let (disk, clock) = (SimFs::new(6), Arc::new(ManualClock::new(START_MS)));
    let limit = 200_000;
    let options = Options { retention: Vec::new(), retention_size: Some(limit), ..options() };
    let fs: Arc<dyn FileSystem> = Arc::new(disk.clone());
    let (store, _) = Store::open_quiet(fs, clock.clone(), Path::new(DIR), options).unwrap();
    for round in 0..6 {
        append(&store, &clock, ["web", "audit"][round % 2], 400);
        store.flush().unwrap();
        clock.advance(HOUR);
    }
    let before = store.stats();
    assert!(before.segment_bytes > limit, "{before:?}");
    let pruned = store.prune().unwrap();
    let after = store.stats();
    assert!(after.segment_bytes <= limit && after.segment_bytes > limit / 2, "{after:?}");
    // The newest are all there, and none of the first.
    let first = (0..2_400).find(|&seq| store.at(seq).unwrap().is_some()).unwrap();
    assert!((first..2_400).all(|seq| store.at(seq).unwrap().is_some()));
    assert_eq!(first, pruned.events);
    assert_eq!(store.prune().unwrap().events, 0, "there is room now");
    let mut scan = store.scan(Query { kind: Some("prune".to_owned()), ..Query::default() });
    let record = scan.next().unwrap().unwrap();
    let entry: serde_json::Value = serde_json::from_slice(record.event().raw).unwrap();
    assert_eq!(entry["rule"], serde_json::json!({ "stream": null, "keep_bytes": limit }));
    drop(scan);
    store.close().unwrap();
    assert_eq!(faults(&disk, &[]), [""; 0]);
}
