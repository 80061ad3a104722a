//! Each file of a store, replaced by another that is whole and has a right checksum, by one who has
//! the directory but not the key: it is reported, nothing is removed early, no request is answered as
//! stored, and nothing is signed or written over because of it.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use forebay_base::checksum::crc32c;
use forebay_base::clock::ManualClock;
use forebay_base::fs::sim::SimFs;
use forebay_base::fs::{Access, FileSystem};
use forebay_base::waiting::Gone;
use forebay_events::ingest::{Ingest, RequestKey};
use forebay_events::input::{Format, Record};
use forebay_events::query::Query;
use forebay_events::store::Retention;
use forebay_events::{AppendError, Batch, Draft, Options, ReadError, Store};

use crate::store_model::{DIR, START_MS, now_ns};
use crate::store_online::faults;
use crate::store_tamper::{check, forget_history, last_segment, read, segment_path, write};

const HOUR: Duration = Duration::from_secs(3600);
const HOUR_NS: i64 = 3_600_000_000_000;

fn options() -> Options {
    Options {
        memory_table_events: 100_000,
        log_segment_size: 1 << 20,
        retention: vec![Retention { stream: None, keep_ns: HOUR_NS }],
        ..crate::store_model::options("sync".parse().unwrap())
    }
}

fn open(disk: &SimFs, clock: &Arc<ManualClock>) -> Store {
    let fs: Arc<dyn FileSystem> = Arc::new(disk.clone());
    Store::open_quiet(fs, clock.clone(), Path::new(DIR), options()).unwrap().0
}

fn path(name: &str) -> PathBuf {
    Path::new(DIR).join(name)
}

fn append(store: &Store, clock: &ManualClock, count: usize) -> Result<(), AppendError> {
    let mut batch = Batch::new("main");
    for number in 0..count {
        let raw = format!("event {number}").into_bytes().into();
        batch.push(&Draft { raw, ..Draft::default() }, now_ns(clock)).unwrap();
    }
    store.append(batch).map(drop)
}

/// Sends a request of one event; whether it was answered as stored before.
fn send(store: &Store, key: &str) -> bool {
    let ingest = Ingest::new(store, Format::Ndjson, "main");
    let mut ingest = ingest.with_request(store, RequestKey::of(key.as_bytes()), b"main");
    let record = Record { line: 1, bytes: b"{\"n\":1}", fault: None };
    ingest.record(store, &record, 5, &mut |_, _, _| ()).unwrap();
    if ingest.earlier_answer().unwrap().is_some() {
        return true;
    }
    ingest.set_answer(200, b"stored".to_vec());
    ingest.finish(store).unwrap();
    false
}

/// A closed store with two segments, signed, and a request that was answered.
fn closed() -> (SimFs, Arc<ManualClock>) {
    let (disk, clock) = (SimFs::new(1), Arc::new(ManualClock::new(START_MS)));
    let store = open(&disk, &clock);
    append(&store, &clock, 300).unwrap();
    store.flush().unwrap();
    append(&store, &clock, 300).unwrap();
    assert!(!send(&store, "one"));
    store.checkpoint().unwrap();
    store.flush().unwrap();
    store.close().unwrap();
    assert_eq!(faults(&check(&disk, &[], None)), [""; 0]);
    (disk, clock)
}

/// Adds a checksum.
fn summed(mut bytes: Vec<u8>) -> Vec<u8> {
    let checksum = crc32c(&bytes);
    bytes.extend_from_slice(&checksum.to_le_bytes());
    bytes
}

/// The body of a file with a code.
fn body(disk: &SimFs, name: &str) -> Vec<u8> {
    let bytes = read(disk, &path(name));
    bytes[..bytes.len() - 36].to_vec()
}

/// A file with another body, a code that is not the store's, and a right checksum.
fn forged(mut body: Vec<u8>) -> Vec<u8> {
    let code = *blake3::hash(&body).as_bytes();
    body.extend_from_slice(&code);
    summed(body)
}

/// Arrivals that state that everything arrived in 1970.
fn early(disk: &SimFs, version: u8) -> Vec<u8> {
    let mut body = body(disk, "arrivals");
    for mark in body[20..].chunks_exact_mut(16) {
        mark[8..].fill(0);
    }
    body[7] = version;
    if version == b'1' { summed(body) } else { forged(body) }
}

/// Asserts that a file is reported, offline and by the open store, until the store wrote it again.
fn assert_reported(disk: &SimFs, store: &Store, name: &str) {
    for found in [check(disk, &[], None), store.verify(&[], &Gone::default()).unwrap()] {
        let found = faults(&found);
        assert!(found.iter().any(|fault| fault.contains(name)), "{name}: {found:?}");
    }
}

/// The types of the store's own entries.
fn entries(store: &Store) -> Vec<String> {
    let stream = Some("_forebay".to_owned());
    let mut scan = store.scan(Query { stream, ..Query::default() });
    let mut found = Vec::new();
    while let Some(record) = scan.next().unwrap() {
        found.push(record.event().tags.kind.to_owned());
    }
    found
}

#[test]
fn forged_removed_or_older_arrivals_remove_nothing_early_and_are_reported_and_recorded() {
    let (sound, clock) = closed();
    // As they were before the second segment.
    let older = {
        let (disk, clock) = (SimFs::new(1), Arc::new(ManualClock::new(START_MS)));
        let store = open(&disk, &clock);
        append(&store, &clock, 300).unwrap();
        store.flush().unwrap();
        let mut body = body(&disk, "arrivals");
        body.truncate(36);
        // With a code of the store's own key.
        let (manifest, _) = last_segment(&sound);
        let code = crate::store_tamper::code(&sound, b"arrivals", &manifest[33..49], &body);
        body.extend_from_slice(&code);
        summed(body)
    };
    let cases = [
        ("forged", Some(early(&sound, b'2'))),
        ("of version 1", Some(early(&sound, b'1'))),
        ("damaged", Some(vec![7; 50])),
        ("too large", Some(vec![7; 1 << 20])),
        ("removed", None),
        ("older", Some(older)),
    ];
    for (case, bytes) in cases {
        let disk = sound.fork();
        match bytes {
            Some(bytes) => write(&disk, &path("arrivals"), &bytes),
            None => disk.remove_file(&path("arrivals")).unwrap(),
        }
        let store = open(&disk, &clock);
        assert_reported(&disk.fork(), &store, "arrivals");
        assert_eq!(entries(&store), ["unused"], "{case}");
        assert_eq!(store.prune().unwrap().events, 0, "{case}");
        append(&store, &clock, 5).unwrap();
        store.flush().unwrap();
        assert_eq!(store.prune().unwrap().events, 0, "{case}");
        store.close().unwrap();
        assert_eq!(faults(&check(&disk, &[], None)), [""; 0], "{case}: it is written again");
        // After the retention time, counted from the opening, they are removed.
        let later = Arc::new(ManualClock::new(START_MS + 7_200_000));
        let store = open(&disk, &later);
        assert_eq!(store.prune().unwrap().events, 606, "{case}");
        assert_eq!(entries(&store)[0], "unused", "{case}");
        store.close().unwrap();
        assert_eq!(faults(&check(&disk, &[], None)), [""; 0], "{case}");
    }
    // What the code is good for: the same without one, as an earlier version had it.
    let clock = Arc::new(ManualClock::new(START_MS));
    clock.advance(HOUR / 2);
    let store = open(&sound, &clock);
    assert_eq!(store.prune().unwrap().events, 0);
}

#[test]
fn a_forged_note_of_a_request_answers_nothing_and_is_reported() {
    let (sound, clock) = closed();
    // The note of the first request, under the key of another.
    let mut note = body(&sound, "requests");
    assert_eq!(&note[..8], b"FBEVREQ2");
    note[20..36].copy_from_slice(&RequestKey::of(b"two").0);
    let mut old = note.clone();
    old[7] = b'1';
    old.drain(8..16);
    let mut older = body(&sound, "requests");
    older[8..16].fill(0);
    let (manifest, _) = last_segment(&sound);
    let code = crate::store_tamper::code(&sound, b"requests", &manifest[33..49], &older);
    older.extend_from_slice(&code);
    let cases = [
        ("forged", Some(forged(note))),
        ("of version 1", Some(summed(old))),
        ("damaged", Some(vec![7; 90])),
        ("removed", None),
        ("older", Some(summed(older))),
    ];
    for (case, bytes) in cases {
        let disk = sound.fork();
        match bytes {
            Some(bytes) => write(&disk, &path("requests"), &bytes),
            None => disk.remove_file(&path("requests")).unwrap(),
        }
        let store = open(&disk, &clock);
        assert_reported(&disk.fork(), &store, "requests");
        assert_eq!(entries(&store), ["unused"], "{case}");
        let before = store.len();
        assert!(!send(&store, "two"), "{case}");
        assert_eq!(store.len(), before + 1, "{case}: it is stored");
        store.flush().unwrap();
        assert!(send(&store, "two"), "{case}");
        store.close().unwrap();
        assert_eq!(faults(&check(&disk, &[], None)), [""; 0], "{case}");
    }
    assert!(send(&open(&sound, &clock), "one"), "without a change");
}

#[test]
fn with_a_forged_manifest_events_are_read_and_nothing_is_written_removed_or_signed() {
    let (sound, clock) = closed();
    let (_, last) = last_segment(&sound);
    // The next segment would be written over the last one.
    let mut lower = body(&sound, "manifest");
    lower[9..17].copy_from_slice(&last.to_le_bytes());
    let mut requests = body(&sound, "manifest");
    let end = requests.len();
    requests[end - 16..end - 8].fill(0);
    let mut times = body(&sound, "manifest");
    times[61 + 32] ^= 1;
    for (case, manifest) in [("number", lower), ("requests", requests), ("times", times)] {
        let disk = sound.fork();
        write(&disk, &path("manifest"), &forged(manifest));
        let leftover = path("segments/00000000000000ff.segment");
        drop(disk.create_new(&leftover).unwrap());
        let segment = read(&disk, &segment_path(last));
        let store = open(&disk, &clock);
        assert_reported(&disk.fork(), &store, "manifest");
        assert!(store.health().unwrap_err().contains("manifest"), "{case}");
        assert!(matches!(append(&store, &clock, 1), Err(AppendError::Closed { .. })));
        assert!(matches!(store.checkpoint(), Err(ReadError::Distrusted { .. })));
        clock.advance(2 * HOUR);
        assert!(store.prune().is_err() && store.compact().is_err());
        for seq in [0, 299, 300, 599] {
            assert!(store.at(seq).unwrap().is_some(), "{case}");
        }
        assert!(store.close().is_err());
        assert_eq!(read(&disk, &segment_path(last)), segment, "{case}");
        assert!(disk.exists(&leftover).unwrap(), "{case}");
        let found = faults(&check(&disk, &[], None));
        assert!(found[0].contains("manifest"), "{case}: {found:?}");
    }
}

#[test]
fn a_manifest_of_an_earlier_version_is_refused_once_a_checkpoint_states_the_later_one() {
    let (sound, clock) = closed();
    let (manifest, _) = last_segment(&sound);
    assert!(manifest.starts_with(b"FBEVMAN2"));
    let disk = sound.fork();
    write(&disk, &path("manifest"), &manifest);
    write(&disk, &path("arrivals"), &early(&sound, b'1'));
    let found = faults(&check(&disk, &[], None));
    assert!(found.iter().any(|fault| fault.contains("manifest")), "{found:?}");
    let fs: Arc<dyn FileSystem> = Arc::new(disk.clone());
    let opened = Store::open_quiet(fs, clock.clone(), Path::new(DIR), options());
    assert!(opened.unwrap_err().to_string().contains("older version"));
}

#[test]
fn a_manifest_that_states_no_proofs_does_not_hide_them_from_verification() {
    let (disk, _) = closed();
    let (mut manifest, _) = last_segment(&disk);
    manifest[8] = 0;
    let end = manifest.len() - 4;
    manifest.truncate(end);
    write(&disk, &path("manifest"), &summed(manifest));
    let found = faults(&check(&disk, &[], None));
    for name in ["key", "checkpoints", "newest-checkpoint", "tree"] {
        assert!(found.iter().any(|fault| fault.contains(name)), "{name}: {found:?}");
    }
}

#[test]
fn another_key_or_none_is_an_error_and_reported() {
    let (sound, clock) = closed();
    let (other, _) = (SimFs::new(9), ());
    open(&other, &clock).close().unwrap();
    let disk = sound.fork();
    write(&disk, &path("key"), &read(&other, &path("key")));
    let missing = sound.fork();
    missing.remove_file(&path("key")).unwrap();
    for disk in [disk, missing] {
        let fs: Arc<dyn FileSystem> = Arc::new(disk.clone());
        assert!(Store::open_quiet(fs, clock.clone(), Path::new(DIR), options()).is_err());
        assert!(!disk.exists(&path("key.new")).unwrap());
        assert!(check(&disk, &[], None).faults.len() > 1);
    }
}

#[test]
fn events_flushed_but_not_signed_are_compared_with_the_root_in_the_manifest() {
    let (disk, clock) = closed();
    let store = open(&disk, &clock);
    append(&store, &clock, 300).unwrap();
    store.flush().unwrap();
    // As after a crash: no checkpoint covers the last segment.
    let disk = disk.fork();
    drop(store);
    assert_eq!(faults(&check(&disk, &[], None)), [""; 0]);
    let (_, number) = last_segment(&disk);
    let (info, mut rows) = crate::store_tamper::rows_of(&disk, number);
    let manifest = read(&disk, &path("manifest"));
    rows[7].1 = crate::store_tamper::rewritten(&rows[7].1);
    let changed = rows[7].0;
    crate::store_tamper::forge(&disk, info.end_seq, &[], &mut rows);
    crate::store_tamper::forge_tree(&disk);
    // The file and the tree are consistent; the manifest is the one that the store wrote.
    write(&disk, &path("manifest"), &manifest);
    assert!(!faults(&check(&disk, &[], None)).is_empty());
    let store = open(&disk, &clock);
    assert!(matches!(store.at(changed), Err(ReadError::Changed { .. })));
    assert!(matches!(store.checkpoint(), Err(ReadError::Distrusted { .. })));
    assert!(store.at(0).unwrap().is_some());
}

#[test]
fn a_store_of_an_earlier_version_gets_codes_when_it_is_opened() {
    let (sound, clock) = closed();
    let (manifest, _) = last_segment(&sound);
    let mut arrivals = body(&sound, "arrivals");
    arrivals[7] = b'1';
    let mut requests = body(&sound, "requests");
    requests[7] = b'1';
    requests.drain(8..16);
    let disk = sound.fork();
    write(&disk, &path("manifest"), &manifest);
    write(&disk, &path("arrivals"), &summed(arrivals));
    write(&disk, &path("requests"), &summed(requests));
    forget_history(&disk);
    for name in ["manifest", "arrivals", "requests", "checkpoints"] {
        disk.open(&path(name), Access::ReadWrite).unwrap().sync_all().unwrap();
    }
    disk.sync_dir(Path::new(DIR)).unwrap();
    assert_eq!(faults(&check(&disk, &[], None)), [""; 0]);
    // Whenever the upgrade is interrupted, it is made later.
    for stop in 0..40 {
        let fork = disk.fork();
        fork.plan(fork.operations() + stop, forebay_base::fs::sim::Fault::Stop);
        let fs: Arc<dyn FileSystem> = Arc::new(fork.clone());
        drop(Store::open_quiet(fs, clock.clone(), Path::new(DIR), options()));
        let fork = fork.power_off(stop);
        let store = open(&fork, &clock);
        assert!(send(&store, "one"), "{stop}");
        assert_eq!(entries(&store), [""; 0], "{stop}");
        store.close().unwrap();
        for (name, magic) in
            [("manifest", b"FBEVMAN4"), ("arrivals", b"FBEVARR2"), ("requests", b"FBEVREQ2")]
        {
            assert_eq!(&read(&fork, &path(name))[..8], magic, "{stop}");
        }
        assert_eq!(faults(&check(&fork, &[], None)), [""; 0], "{stop}");
    }
}

/// Payloads of the entries in the log.
fn payloads(disk: &SimFs) -> Vec<Vec<u8>> {
    let mut found = Vec::new();
    let mut each = |entry: forebay_log::CheckedEntry<'_>| found.push(entry.payload.to_vec());
    forebay_log::check_entries(disk, &path("log"), &mut each, &mut |_| ()).unwrap();
    found
}

fn append_to_log(disk: &SimFs, payload: &[u8]) {
    let fs: Arc<dyn FileSystem> = Arc::new(disk.clone());
    let options = forebay_log::Options { segment_size: 1 << 20, ..forebay_log::Options::default() };
    let (log, _) = forebay_log::Log::open(fs, &path("log"), options).unwrap();
    log.try_append(&[payload]).unwrap();
    log.sync().unwrap();
}

#[test]
fn a_note_of_a_request_that_another_wrote_into_the_log_answers_nothing_and_is_reported() {
    let (disk, clock) = (SimFs::new(1), Arc::new(ManualClock::new(START_MS)));
    let store = open(&disk, &clock);
    assert!(!send(&store, "one"));
    store.close().unwrap();
    let payloads = payloads(&disk);
    let last = payloads.last().unwrap();
    let size = u32::from_le_bytes(last[33..37].try_into().unwrap()) as usize;
    assert_eq!(last[0], 3, "the note of an answer has a code");
    let (note, rest) = last[37..].split_at(size);
    // The position of the next event.
    let mut rest = rest.to_vec();
    rest[..8].copy_from_slice(&1u64.to_le_bytes());
    rest[8..12].fill(0);
    rest.truncate(12);
    let of = |kind: u8, code: &[u8], key: &str| {
        let mut note = note.to_vec();
        note[..16].copy_from_slice(&RequestKey::of(key.as_bytes()).0);
        let size = u32::try_from(note.len()).unwrap().to_le_bytes();
        [&[kind][..], code, &size, &note, &rest].concat()
    };
    let cases = [
        ("without a code", of(2, &[], "two"), "two"),
        ("with any code", of(3, &[7; 32], "two"), "two"),
        ("with the code of another", of(3, &last[1..33], "two"), "two"),
        ("repeated elsewhere", of(3, &last[1..33], "one"), "three"),
    ];
    for (case, payload, key) in cases {
        let disk = disk.fork();
        append_to_log(&disk, &payload);
        let found = faults(&check(&disk, &[], None));
        assert!(found.iter().any(|fault| fault.contains("the note of a request")), "{case}");
        let store = open(&disk, &clock);
        assert!(!send(&store, key), "{case}");
        assert_eq!(entries(&store), ["unused"], "{case}");
        assert!(send(&store, "one"), "{case}: the true one counts");
        store.flush().unwrap();
        store.close().unwrap();
        assert_eq!(faults(&check(&disk, &[], None)), [""; 0], "{case}");
    }
    assert!(send(&open(&disk, &clock), "one"));
}

#[test]
fn notes_in_the_log_of_an_earlier_version_count_once_it_has_codes() {
    let (disk, clock) = (SimFs::new(1), Arc::new(ManualClock::new(START_MS)));
    let store = open(&disk, &clock);
    let empty = disk.fork();
    assert!(!send(&store, "one"));
    drop(store);
    // The same entries without codes, in a store without any.
    let manifest = plain_manifest(&empty);
    write(&empty, &path("manifest"), &manifest);
    for payload in payloads(&disk) {
        let plain = if payload[0] == 3 { [&[2][..], &payload[33..]].concat() } else { payload };
        append_to_log(&empty, &plain);
    }
    let store = open(&empty, &clock);
    assert!(send(&store, "one"));
    store.close().unwrap();
    assert_eq!(faults(&check(&empty, &[], None)), [""; 0]);
    let store = open(&empty, &clock);
    assert!(send(&store, "one"), "from the file of requests");
    assert_eq!(entries(&store), [""; 0]);
}

#[test]
fn events_that_no_checkpoint_covers_and_another_wrote_into_the_log_are_never_read_or_signed() {
    let (disk, clock) = (SimFs::new(1), Arc::new(ManualClock::new(START_MS)));
    let store = open(&disk, &clock);
    let empty = disk.fork();
    append(&store, &clock, 3).unwrap();
    append(&store, &clock, 2).unwrap();
    assert!(!send(&store, "one"));
    // As after a kill: nothing is signed.
    let killed = disk.fork();
    drop(store);
    let own = payloads(&killed);
    let kinds: Vec<u8> = own.iter().map(|payload| payload[0]).collect();
    assert_eq!(&kinds[..3], [4, 4, 3]);
    let reopened = |payloads: &[Vec<u8>]| {
        let disk = empty.fork();
        payloads.iter().for_each(|payload| append_to_log(&disk, payload));
        let found = faults(&check(&disk, &[], None));
        let fs: Arc<dyn FileSystem> = Arc::new(disk);
        let opened = Store::open_quiet(fs, clock.clone(), Path::new(DIR), options());
        (opened.map(|(store, _)| store), found)
    };
    let (opened, found) = reopened(&own);
    assert_eq!(found, [""; 0]);
    assert_eq!(opened.unwrap().len(), 6);
    let plain = |payload: &[u8]| [&[1][..], &payload[33..]].concat();
    let changed = |at: usize, change: &dyn Fn(&mut Vec<u8>)| {
        let mut all = own.clone();
        change(&mut all[at]);
        all
    };
    let last_bit = |payload: &mut Vec<u8>| *payload.last_mut().unwrap() ^= 1;
    let swapped = |code: usize| own[code][1..33].to_vec();
    let mut more = own.clone();
    more.push(plain(&own[0]));
    let next = 33..41;
    more.last_mut().unwrap()[1..9].copy_from_slice(&6u64.to_le_bytes());
    let mut again = own.clone();
    again.push(own[0].clone());
    again.last_mut().unwrap()[next].copy_from_slice(&6u64.to_le_bytes());
    for (case, payloads) in [
        ("another event", changed(1, &last_bit)),
        ("another event beside a note", changed(2, &last_bit)),
        ("without a code", changed(1, &|payload| *payload = plain(payload))),
        (
            "the code of another entry",
            changed(1, &|payload| {
                payload.splice(1..33, swapped(0));
            }),
        ),
        ("one more", more),
        ("one of its own again", again),
    ] {
        let (opened, found) = reopened(&payloads);
        let refused = forebay_base::error_chain::chain(&opened.unwrap_err()).to_string();
        assert!(refused.contains("authentication code"), "{case}: {refused}");
        assert!(
            found.iter().any(|fault| fault.contains("authentication code")),
            "{case}: {found:?}"
        );
    }
}

/// The manifest without segments in the form of version 2.
fn plain_manifest(disk: &SimFs) -> Vec<u8> {
    let mut manifest = read(disk, &path("manifest"))[..61].to_vec();
    manifest[7] = b'2';
    summed(manifest)
}
