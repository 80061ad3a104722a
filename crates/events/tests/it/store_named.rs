//! An event that names its id is stored once under it, however often and by whichever clients it is sent.

use std::path::Path;
use std::sync::Arc;

use forebay_base::clock::ManualClock;
use forebay_base::fs::FileSystem;
use forebay_base::fs::sim::SimFs;
use forebay_events::ingest::{Ingest, Summary};
use forebay_events::input::{Format, Record};
use forebay_events::{EventId, Options, Store};

use crate::store_model::{DIR, START_MS};

fn options() -> Options {
    Options {
        batch_events: 3,
        memory_table_events: 100_000,
        log_segment_size: 1 << 20,
        retention: Vec::new(),
        ..crate::store_model::options("sync".parse().unwrap())
    }
}

fn open(disk: &SimFs) -> Store {
    let clock = Arc::new(ManualClock::new(START_MS));
    let fs: Arc<dyn FileSystem> = Arc::new(disk.clone());
    Store::open_quiet(fs, clock, Path::new(DIR), options()).unwrap().0
}

/// A `_bulk` body of documents with the ids of these numbers.
fn bulk(numbers: std::ops::Range<u32>, what: &str) -> Vec<String> {
    let action = |number: u32| {
        let id = format!("0000000000000000000000000000{number:04x}");
        format!("{{\"create\":{{\"_id\":\"{id}\"}}}}")
    };
    numbers
        .flat_map(|number| [action(number), format!("{{\"n\":{number},\"what\":\"{what}\"}}")])
        .collect()
}

fn send(store: &Store, stream: &str, lines: &[String]) -> (Summary, Vec<String>) {
    let mut ingest = Ingest::new(store, Format::Ndjson, stream);
    let mut rejects = Vec::new();
    for (line, text) in (1..).zip(lines) {
        let record = Record { line, bytes: text.as_bytes(), fault: None };
        let mut reject = |_, reject: &forebay_events::input::Reject, _: &[u8]| {
            rejects.push(reject.to_string());
        };
        ingest.record(store, &record, 5, &mut reject).unwrap();
    }
    (ingest.finish(store).unwrap(), rejects)
}

#[test]
fn an_event_that_is_sent_again_under_its_id_is_counted_and_not_stored() {
    let disk = SimFs::new(1);
    let store = open(&disk);
    let (first, _) = send(&store, "main", &bulk(0..8, "a"));
    assert_eq!((first.accepted, first.duplicates), (8, 0));
    // From memory, from a segment, and after a restart; with some that are new, and twice in one input.
    let (again, _) = send(&store, "main", &bulk(4..10, "a"));
    assert_eq!((again.accepted, again.duplicates), (2, 4));
    store.flush().unwrap();
    let twice = [bulk(0..11, "a"), bulk(10..12, "a")].concat();
    let (again, _) = send(&store, "main", &twice);
    assert_eq!((again.accepted, again.duplicates), (2, 11));
    store.close().unwrap();
    let store = open(&disk);
    let (again, _) = send(&store, "main", &bulk(0..12, "a"));
    assert_eq!((again.accepted, again.duplicates), (0, 12));
    assert_eq!(store.len(), 12);
}

#[test]
fn another_event_under_an_id_is_rejected_and_one_of_another_stream_is_another_event() {
    let disk = SimFs::new(1);
    let store = open(&disk);
    send(&store, "main", &bulk(0..3, "a"));
    let (other, rejects) = send(&store, "main", &bulk(2..4, "b"));
    assert_eq!((other.accepted, other.duplicates, other.rejected), (1, 0, 1));
    assert!(rejects[0].contains("other contents"), "{rejects:?}");
    let (elsewhere, _) = send(&store, "other", &bulk(0..1, "a"));
    assert_eq!((elsewhere.accepted, elsewhere.duplicates), (1, 0));
}

#[test]
fn an_id_is_unique_in_every_stream_that_has_it() {
    let disk = SimFs::new(1);
    let mut store = open(&disk);
    let streams = ["first", "second", "third"];
    for stream in streams {
        let (new, _) = send(&store, stream, &bulk(0..50, stream));
        assert_eq!((new.accepted, new.duplicates), (50, 0), "{stream}");
    }
    // From memory, then from the log after a restart, then from a segment.
    for place in ["memory", "log", "segment"] {
        match place {
            "memory" => {}
            "log" => {
                drop(store);
                store = open(&disk);
            }
            _ => store.flush().unwrap(),
        }
        for stream in streams {
            let (again, _) = send(&store, stream, &bulk(0..50, stream));
            assert_eq!((again.accepted, again.duplicates), (0, 50), "{stream} from {place}");
            let (other, rejects) = send(&store, stream, &bulk(7..8, "other"));
            assert_eq!((other.accepted, other.rejected), (0, 1), "{stream} from {place}");
            assert!(rejects[0].contains("other contents"), "{rejects:?}");
        }
    }
    let id = EventId(7);
    for (seq, stream) in [(7, "first"), (57, "second"), (107, "third")] {
        assert_eq!(store.get_in(stream, id).unwrap().unwrap().seq(), seq);
    }
    assert!(store.get_in("fourth", id).unwrap().is_none());
    assert_eq!(store.get(id).unwrap().unwrap().seq(), 7);
    store.close().unwrap();
}

#[test]
fn inputs_that_bring_the_same_ids_at_the_same_time_store_each_event_once() {
    let disk = SimFs::new(1);
    let clock = Arc::new(ManualClock::new(START_MS));
    let fs: Arc<dyn FileSystem> = Arc::new(disk);
    let (store, _) = Store::open(fs, clock, Path::new(DIR), options()).unwrap();
    let (forwards, mut backwards) = (bulk(0..60, "a"), Vec::new());
    for pair in forwards.chunks(2).rev() {
        backwards.extend_from_slice(pair);
    }
    let total = std::thread::scope(|scope| {
        let inputs: Vec<_> = [&forwards, &backwards, &forwards, &backwards]
            .map(|lines| scope.spawn(|| send(&store, "main", lines).0))
            .into_iter()
            .collect();
        inputs.into_iter().map(|input| input.join().unwrap().accepted).sum::<u64>()
    });
    assert_eq!(total, 60);
    assert_eq!(store.len(), 60);
    store.close().unwrap();
}
