//! Many threads at once: acknowledged events are found, scans show the store at one moment, proofs
//! verify.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use forebay_base::clock::SystemClock;
use forebay_base::fs::{FileSystem, RealFs};
use forebay_events::query::{Order, Query};
use forebay_events::store::verify;
use forebay_events::{Batch, Draft, EventId, Options, Store};

const WRITERS: u64 = 8;
const BATCHES: u64 = 60;

fn options() -> Options {
    Options {
        durability: "os".parse().unwrap(),
        memory_table_events: 700,
        segment_events_max: 10_000,
        compaction_interval: std::time::Duration::from_millis(20),
        checkpoint_interval: std::time::Duration::from_millis(20),
        log_segment_size: 256 << 10,
        ..Options::balanced()
    }
}

fn open(dir: &Path) -> Store {
    let fs: Arc<dyn FileSystem> = Arc::new(RealFs);
    Store::open(fs, Arc::new(SystemClock::new()), dir, options()).unwrap().0
}

fn id(writer: u64, number: u64) -> EventId {
    EventId(u128::from(writer) << 64 | u128::from(number))
}

/// Appends batches of 1 to 31 events, and returns where each landed.
fn write(store: &Store, writer: u64, done: &AtomicU64) -> Vec<(u64, u64)> {
    let mut places = Vec::new();
    let mut number = 0;
    for round in 0..BATCHES {
        let mut batch = Batch::new("s");
        let first = number;
        for _ in 0..1 + (round * 7 + writer) % 31 {
            let time = i64::try_from((number * 7_919 + writer) % 10_000).unwrap();
            let raw = format!("{writer}.{number}").into_bytes();
            let draft = Draft {
                id: Some(id(writer, number)),
                timestamp_ns: Some(time),
                raw: raw.into(),
                ..Draft::default()
            };
            batch.push(&draft, 0).unwrap();
            number += 1;
        }
        let accepted = store.append(batch).unwrap();
        places.extend((first..number).zip(accepted.first_seq..));
        // Read your own writes.
        let found = store.get(id(writer, number - 1)).unwrap().unwrap();
        assert_eq!(found.seq(), accepted.first_seq + accepted.count - 1);
        done.fetch_add(accepted.count, Ordering::SeqCst);
    }
    places
}

/// A scan has everything below some size and nothing else, in order.
fn scan(store: &Store, order: Order, acknowledged: u64) {
    let mut scan = store.scan(Query { order, ..Query::default() });
    let mut seqs = Vec::new();
    let mut last = None;
    while let Some(record) = scan.next().unwrap() {
        let key = (record.event().timestamp_ns, record.seq());
        let in_order = last.is_none_or(|last| match order {
            Order::OldestFirst => last < key,
            Order::NewestFirst => last > key,
        });
        assert!(in_order, "{last:?} {key:?}");
        last = Some(key);
        seqs.push(record.seq());
    }
    seqs.sort_unstable();
    assert!(seqs.iter().copied().eq(0..seqs.len() as u64), "positions are missing");
    assert!(seqs.len() as u64 >= acknowledged, "{} of {acknowledged}", seqs.len());
}

#[test]
fn what_many_threads_do_at_once_is_as_if_one_after_another() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let key = store.verifier_key().unwrap();
    let (done, stop) = (AtomicU64::new(0), AtomicBool::new(false));
    let mut places: Vec<Vec<(u64, u64)>> = Vec::new();
    std::thread::scope(|scope| {
        let (store, done, stop, key) = (&store, &done, &stop, &key);
        let writers: Vec<_> =
            (0..WRITERS).map(|writer| scope.spawn(move || write(store, writer, done))).collect();
        for order in [Order::OldestFirst, Order::NewestFirst] {
            scope.spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    scan_once(store, order, done);
                }
            });
        }
        scope.spawn(move || {
            let mut at = 0;
            while !stop.load(Ordering::Relaxed) {
                at += 1;
                let Some(last) = store.len().checked_sub(1) else { continue };
                let record = store.at(at * 37 % (last + 1)).unwrap().unwrap();
                store.prove_record(&record).unwrap().verify(key).unwrap();
                let size = store.len();
                store.prove_consistency(size / 2, None).unwrap();
            }
        });
        scope.spawn(move || {
            while !stop.load(Ordering::Relaxed) {
                store.flush().unwrap();
                store.compact().unwrap();
                std::thread::yield_now();
            }
        });
        places.extend(writers.into_iter().map(|writer| writer.join().unwrap()));
        stop.store(true, Ordering::Relaxed);
    });
    let check = |store: &Store| {
        for (writer, places) in (0..).zip(&places) {
            for &(number, seq) in places {
                let found = store.get(id(writer, number)).unwrap().unwrap();
                assert_eq!(found.seq(), seq);
                assert_eq!(found.event().raw, format!("{writer}.{number}").as_bytes());
            }
        }
    };
    check(&store);
    let note = store.checkpoint().unwrap();
    store.close().unwrap();
    let fs: Arc<dyn FileSystem> = Arc::new(RealFs);
    let verified = verify(&fs, dir.path(), &[note], Some(&key), &|_| ()).unwrap();
    assert_eq!(verified.faults, []);
    assert_eq!(verified.events, done.load(Ordering::SeqCst));
    check(&open(dir.path()));
}

fn scan_once(store: &Store, order: Order, done: &AtomicU64) {
    let acknowledged = done.load(Ordering::SeqCst);
    scan(store, order, acknowledged);
}
