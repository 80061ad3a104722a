//! What the store removes is recorded in the tree, and what others remove is found.

#![expect(clippy::cast_possible_truncation, reason = "numbers of a test are small")]

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use forebay_base::checksum::crc32c;
use forebay_base::clock::ManualClock;
use forebay_base::fs::FileSystem;
use forebay_base::fs::sim::SimFs;
use forebay_events::checkpoint::{Checkpoint, History, SigningKey, load_key};
use forebay_events::format::leaf;
use forebay_events::format::system::SYSTEM_STREAM;
use forebay_events::merkle::leaf_hash;
use forebay_events::query::Query;
use forebay_events::store::{Fault, Retention, Verified};
use forebay_events::{AppendError, Batch, BatchError, Draft, EventId, Options, ReadError, Store};

use crate::store_model::{DIR, START_MS, now_ns};
use crate::store_tamper::{check, code, forge, forget_history, last_segment, read, rows_of, write};

const HOUR_NS: i64 = 3_600_000_000_000;

fn open(disk: &SimFs, clock: &Arc<ManualClock>, rules: &[(Option<&str>, i64)]) -> Store {
    let rules = rules.iter().map(|(stream, hours)| Retention {
        stream: stream.map(str::to_owned),
        keep_ns: hours * HOUR_NS,
    });
    let options = Options {
        memory_table_events: 100_000,
        log_segment_size: 1 << 20,
        retention: rules.collect(),
        ..crate::store_model::options("sync".parse().unwrap())
    };
    let fs: Arc<dyn FileSystem> = Arc::new(disk.clone());
    Store::open_quiet(fs, clock.clone(), Path::new(DIR), options).unwrap().0
}

fn append(store: &Store, clock: &ManualClock, stream: &str, count: u32) {
    let mut batch = Batch::new(stream);
    for number in 0..count {
        let raw = leaf_hash(&number.to_le_bytes()).0.to_vec();
        batch.push(&Draft { raw: raw.into(), ..Draft::default() }, now_ns(clock)).unwrap();
    }
    store.append(batch).unwrap();
}

/// The store's own entries: type and raw bytes.
fn entries(store: &Store) -> Vec<(String, serde_json::Value)> {
    let query = Query { stream: Some(SYSTEM_STREAM.to_owned()), ..Query::default() };
    let mut scan = store.scan(query);
    let mut found = Vec::new();
    while let Some(record) = scan.next().unwrap() {
        let event = record.event();
        found.push((event.tags.kind.to_owned(), serde_json::from_slice(event.raw).unwrap()));
    }
    found
}

/// A closed store of one segment: 300 events of `audit` and 300 of `web`, in turns of 10.
fn plain() -> (SimFs, Arc<ManualClock>) {
    let (disk, clock) = (SimFs::new(1), Arc::new(ManualClock::new(START_MS)));
    let store = open(&disk, &clock, &[]);
    for _ in 0..30 {
        append(&store, &clock, "audit", 10);
        append(&store, &clock, "web", 10);
    }
    store.checkpoint().unwrap();
    store.flush().unwrap();
    store.close().unwrap();
    (disk, clock)
}

/// Removes rows from the last segment as its pruning would, and leaves their hashes.
fn remove(disk: &SimFs, gone: &[u64]) {
    let (_, number) = last_segment(disk);
    let (info, mut rows) = rows_of(disk, number);
    let path = crate::store_tamper::segment_path(number);
    let segment = forebay_events::segment::Segment::open(disk, &path).unwrap();
    let mut stubs = segment.stubs(0..u64::MAX).unwrap();
    let removed = rows.iter().filter(|(seq, _)| gone.contains(seq));
    stubs.extend(removed.map(|(seq, leaf)| (*seq, leaf_hash(leaf))));
    stubs.sort_unstable();
    rows.retain(|(seq, _)| !gone.contains(seq));
    forge(disk, info.end_seq, &stubs, &mut rows);
}

fn absences(verified: &Verified) -> Vec<(u64, u64)> {
    let ranges = verified.faults.iter().filter_map(|fault| match fault {
        Fault::Absent { first, last } => Some((*first, *last)),
        Fault::File { found } if found.contains("older version than the newest checkpoint") => None,
        other => panic!("{other}"),
    });
    ranges.collect()
}

#[test]
fn pruned_events_are_named_by_entries_of_the_tree_and_nothing_else_may_be_absent() {
    let (disk, clock) = plain();
    clock.advance(Duration::from_secs(3 * 3600));
    let store = open(&disk, &clock, &[(Some("audit"), 1), (None, 100)]);
    let key = store.verifier_key().unwrap();
    assert_eq!(store.prune().unwrap().events, 300);
    let found = entries(&store);
    let kinds: Vec<_> = found.iter().map(|(kind, _)| kind.as_str()).collect();
    assert_eq!(kinds, ["policy", "prune"]);
    let entry = &found[1].1;
    assert_eq!((&entry["stream"], &entry["count"]), (&"audit".into(), &300.into()));
    assert_eq!((&entry["first"], &entry["last"]), (&0.into(), &589.into()));
    assert_eq!(entry["indexes"].as_array().unwrap().len(), 30);
    // What was removed is signed for already.
    let (latest, _) = store.latest_checkpoint().unwrap();
    assert_eq!(latest.size, 602);
    store.close().unwrap();
    let verified = check(&disk, &[], Some(&key));
    assert_eq!((verified.faults.clone(), verified.pruned), (vec![], 300));
    assert_eq!(verified.pruned_before_recording, 0);
    remove(&disk, &[10, 11, 12, 599]);
    let verified = check(&disk, &[], Some(&key));
    assert_eq!(absences(&verified), [(10, 12), (599, 599)]);
    assert_eq!(verified.pruned, 300);
}

#[test]
fn the_whole_of_a_stream_pruned_under_new_rules_is_recorded_with_these_rules() {
    let (disk, clock) = plain();
    clock.advance(Duration::from_secs(3 * 3600));
    for hours in [1, 1, 2] {
        let store = open(&disk, &clock, &[(None, hours)]);
        store.flush().unwrap();
        store.prune().unwrap();
        store.close().unwrap();
    }
    let store = open(&disk, &clock, &[]);
    store.compact().unwrap();
    let found = entries(&store);
    let kinds: Vec<_> = found.iter().map(|(kind, _)| kind.as_str()).collect();
    assert_eq!(kinds, ["policy", "prune", "prune", "policy", "policy"]);
    let rules = |at: usize| found[at].1["rules"].as_array().unwrap().len();
    assert_eq!((rules(0), rules(3), rules(4)), (1, 1, 0));
    store.close().unwrap();
    let verified = check(&disk, &[], None);
    assert_eq!((verified.faults, verified.pruned), (vec![], 600));
}

#[test]
fn no_client_appends_to_the_streams_of_the_store_itself() {
    for stream in [SYSTEM_STREAM, "_forebay_x"] {
        let mut batch = Batch::new(stream);
        assert!(matches!(batch.push(&Draft::default(), 0), Err(BatchError::Event(_))));
        let draft = Draft { stream: stream.into(), ..Draft::default() };
        assert!(matches!(Batch::new("s").push(&draft, 0), Err(BatchError::Event(_))));
    }
}

/// Appends a prune entry for `indexes` to the log, as one who has the files and the key could.
fn forge_entry(disk: &SimFs, first_seq: u64, indexes: (u64, u64)) {
    let count = indexes.1 - indexes.0 + 1;
    let raw = serde_json::json!({
        "rule": { "stream": null, "keep_ns": 1 }, "before": "2026-11-23T10:00:00Z",
        "stream": "audit", "first": indexes.0, "last": indexes.1, "count": count,
        "indexes": [[indexes.0, indexes.1]], "root": leaf_hash(b"").to_string(),
    });
    let raw = raw.to_string().into_bytes();
    let draft = Draft { kind: "prune".into(), raw: raw.into(), ..Draft::default() };
    let mut bytes = Vec::new();
    leaf::encode(&draft, EventId(1), START_MS as i64 * 1_000_000, SYSTEM_STREAM, &mut bytes)
        .unwrap();
    let place = [&first_seq.to_le_bytes()[..], &1u32.to_le_bytes()].concat();
    let digest = *blake3::hash(&leaf_hash(&bytes).0).as_bytes();
    let log_id = read(disk, &Path::new(DIR).join("manifest"))[33..49].to_vec();
    let mut payload = vec![4];
    payload.extend(code(disk, b"log data", &log_id, &[&place[..], &digest].concat()));
    payload.extend(place);
    payload.extend((bytes.len() as u32).to_le_bytes());
    payload.extend(bytes);
    let fs: Arc<dyn FileSystem> = Arc::new(disk.clone());
    let options = forebay_log::Options { segment_size: 1 << 20, ..forebay_log::Options::default() };
    let (log, _) = forebay_log::Log::open(fs, &Path::new(DIR).join("log"), options).unwrap();
    log.try_append(&[&payload]).unwrap();
    log.sync().unwrap();
}

#[test]
fn a_prune_entry_that_another_wrote_into_the_log_excuses_nothing_and_is_never_signed() {
    let (disk, clock) = plain();
    forge_entry(&disk, 600, (0, 9));
    remove(&disk, &(0..10).collect::<Vec<_>>());
    let absent = Fault::Absent { first: 0, last: 9 };
    assert!(check(&disk, &[], None).faults.contains(&absent));
    let store = open(&disk, &clock, &[]);
    assert!(matches!(store.checkpoint(), Err(ReadError::Distrusted { .. })));
    let mut batch = Batch::new("s");
    batch.push(&Draft::default(), 0).unwrap();
    assert!(matches!(store.append(batch), Err(AppendError::Closed { .. })));
    assert!(store.close().is_err(), "nothing is signed on closing either");
    assert!(check(&disk, &[], None).faults.contains(&absent));
}

#[test]
fn an_entry_for_events_that_are_present_is_what_a_crash_leaves_and_is_signed() {
    let (disk, clock) = plain();
    forge_entry(&disk, 600, (0, 9));
    let store = open(&disk, &clock, &[]);
    assert_eq!(store.len(), 601);
    store.checkpoint().unwrap();
    store.close().unwrap();
    assert_eq!(check(&disk, &[], None).faults.len(), 0);
}

/// Makes a closed store one of version 1: its manifest and its checkpoints.
fn make_old(disk: &SimFs) {
    let dir = Path::new(DIR);
    let (manifest, _) = last_segment(disk);
    let log_id: [u8; 16] = manifest[33..49].try_into().unwrap();
    let mut old = b"FBEVMAN1".to_vec();
    old.extend_from_slice(&manifest[8..49]);
    old.extend_from_slice(&manifest[57..manifest.len() - 4]);
    let checksum = crc32c(&old);
    old.extend_from_slice(&checksum.to_le_bytes());
    write(disk, &dir.join("manifest"), &old);
    let key: SigningKey = load_key(disk, &dir.join("key")).unwrap().unwrap();
    let path = dir.join("checkpoints");
    let notes: Vec<String> =
        History::read(disk, &path, log_id).unwrap().map(Result::unwrap).collect();
    forget_history(disk);
    let mut history = History::open(disk, &path, log_id).unwrap();
    for note in notes {
        let mut checkpoint = Checkpoint::open(note.as_bytes(), key.verifier()).unwrap();
        checkpoint.extensions.clear();
        history.append(&checkpoint.sign(&key).unwrap().to_string()).unwrap();
    }
}

#[test]
fn a_store_of_version_1_verifies_and_once_upgraded_loses_no_more_unseen() {
    let (disk, clock) = plain();
    remove(&disk, &[3, 4, 5, 400]);
    make_old(&disk);
    let verified = check(&disk, &[], None);
    assert_eq!((verified.faults, verified.pruned_before_recording), (vec![], 4));

    let store = open(&disk, &clock, &[]);
    let key = store.verifier_key().unwrap();
    let note = store.checkpoint().unwrap();
    let found = entries(&store);
    assert_eq!(found.len(), 1);
    assert_eq!(found[0].1["absent"], serde_json::json!([[0, 599, 4]]));
    store.flush().unwrap();
    store.close().unwrap();
    let verified = check(&disk, std::slice::from_ref(&note), Some(&key));
    assert_eq!((verified.faults, verified.pruned_before_recording), (vec![], 4));

    let store = open(&disk, &clock, &[]);
    assert_eq!(entries(&store).len(), 1, "upgraded once");
    store.close().unwrap();
}

#[test]
fn events_of_before_the_upgrade_cannot_be_removed_after_it() {
    let (disk, clock) = plain();
    remove(&disk, &[3]);
    make_old(&disk);
    open(&disk, &clock, &[]).close().unwrap();
    // The only segment is still the last one of the manifest: the entry is in the log.
    remove(&disk, &[77]);
    assert_eq!(absences(&check(&disk, &[], None)), [(3, 3), (77, 77)]);
}

#[test]
fn a_new_store_cannot_be_passed_off_as_an_old_one() {
    let (disk, clock) = plain();
    let key = open(&disk, &clock, &[]).verifier_key().unwrap();
    let note = {
        let (_, note) = open(&disk, &clock, &[]).latest_checkpoint().unwrap();
        note
    };
    remove(&disk, &[7]);
    let (manifest, _) = last_segment(&disk);
    let mut old = b"FBEVMAN1".to_vec();
    old.extend_from_slice(&manifest[8..49]);
    old.extend_from_slice(&manifest[57..manifest.len() - 4]);
    let checksum = crc32c(&old);
    old.extend_from_slice(&checksum.to_le_bytes());
    write(&disk, &Path::new(DIR).join("manifest"), &old);
    assert_eq!(absences(&check(&disk, &[], Some(&key))), [(7, 7)]);
    let fs: Arc<dyn FileSystem> = Arc::new(disk.clone());
    let options = crate::store_model::options("sync".parse().unwrap());
    assert!(Store::open_quiet(fs, clock.clone(), Path::new(DIR), options).is_err());
    // Without its own checkpoints it opens, and excuses nothing.
    forget_history(&disk);
    open(&disk, &clock, &[]).close().unwrap();
    assert_eq!(absences(&check(&disk, &[note], Some(&key))), [(7, 7)]);
}
