//! Readers refuse what another put into the files with right checksums.

use std::path::Path;
use std::sync::Arc;

use forebay_base::checksum::crc32c;
use forebay_base::clock::ManualClock;
use forebay_base::fs::sim::{Rng, SimFs};
use forebay_base::fs::{Access, FileSystem};
use forebay_events::query::{Order, Query};
use forebay_events::segment::{Compression, Segment, SegmentOptions};
use forebay_events::{Batch, Draft, EventId, Options, ReadError, Store};

use crate::store_model::{DIR, START_MS, now_ns};
use crate::store_tamper::{
    forge, last_segment, read, rewritten, rows_of, segment_path, write, write_manifest,
};

fn open(disk: &SimFs, clock: &Arc<ManualClock>, verified_reads: bool) -> Store {
    let options = Options {
        memory_table_events: 100_000,
        log_segment_size: 1 << 20,
        verified_reads,
        ..crate::store_model::options("sync".parse().unwrap())
    };
    let fs: Arc<dyn FileSystem> = Arc::new(disk.clone());
    Store::open_quiet(fs, clock.clone(), Path::new(DIR), options).unwrap().0
}

fn raw_of(number: u64) -> String {
    format!("amount {number:06} was paid by user{}", number % 7)
}

/// Appends events `numbers`, whose ids are one more, at times that `time` gives.
fn append(
    store: &Store,
    clock: &ManualClock,
    numbers: std::ops::Range<u64>,
    time: &mut dyn FnMut(u64) -> i64,
) {
    let mut batch = Batch::new("bank");
    for number in numbers {
        let draft = Draft {
            id: Some(EventId(u128::from(number) + 1)),
            timestamp_ns: Some(time(number)),
            raw: raw_of(number).into_bytes().into(),
            ..Draft::default()
        };
        batch.push(&draft, now_ns(clock)).unwrap();
    }
    store.append(batch).unwrap();
}

/// A closed store of three segments and a log; times of events at random within `spread`.
fn store(spread: u64) -> (SimFs, Arc<ManualClock>) {
    let (disk, clock) = (SimFs::new(1), Arc::new(ManualClock::new(START_MS)));
    let store = open(&disk, &clock, true);
    let mut rng = Rng::new(3);
    let mut time = |number: u64| {
        let shift = rng.next_u64() % spread.max(1);
        i64::try_from(number * 1_000 + shift * 1_000).unwrap() + now_ns(&clock)
    };
    for numbers in [0..700, 700..1_500, 1_500..2_100] {
        append(&store, &clock, numbers, &mut time);
        store.checkpoint().unwrap();
        store.flush().unwrap();
    }
    append(&store, &clock, 2_100..2_200, &mut time);
    store.checkpoint().unwrap();
    append(&store, &clock, 2_200..2_300, &mut time);
    store.close().unwrap();
    (disk, clock)
}

/// The positions of all events that a scan returns, and how it ended.
fn scan(store: &Store, query: Query) -> (Vec<u64>, Result<(), ReadError>) {
    let mut scan = store.scan(query);
    let mut found = Vec::new();
    loop {
        match scan.next() {
            Ok(Some(record)) => {
                let event = record.event();
                let expected = raw_of(u64::try_from(event.id.0 - 1).unwrap());
                assert_eq!(event.raw, expected.as_bytes(), "a forged event was returned");
                found.push(record.seq());
            }
            Ok(None) => return (found, Ok(())),
            Err(error) => return (found, Err(error)),
        }
    }
}

/// Whether a read was refused because of a change around `seq`.
fn refuses<T: std::fmt::Debug>(result: &Result<T, ReadError>, seq: u64) -> bool {
    match result {
        Err(ReadError::Changed { stream, place, first, last, .. }) => {
            assert!(stream == "bank" && !place.is_empty(), "{stream:?} {place}");
            assert!(last - first < 256 || *first >= 1_500, "{first} to {last}");
            (first..=last).contains(&&seq)
        }
        Err(error) => panic!("{error}"),
        Ok(_) => false,
    }
}

/// Asserts that no reader of a store gets the event at `seq`, nor another for it.
fn assert_refused(disk: &SimFs, clock: &Arc<ManualClock>, seq: u64) {
    let store = open(disk, clock, true);
    assert!(refuses(&store.get(EventId(u128::from(seq) + 1)), seq), "get {seq}");
    assert!(refuses(&store.at(seq), seq), "at {seq}");
    for order in [Order::OldestFirst, Order::NewestFirst] {
        assert!(scan(&store, Query { order, ..Query::default() }).1.is_err(), "scan {seq}");
    }
    let contains = vec![b" was paid ".to_vec()];
    assert!(scan(&store, Query { contains, ..Query::default() }).1.is_err(), "search {seq}");
    // Without the comparison it is returned: the forgery itself is sound.
    drop(store);
    let store = open(disk, clock, false);
    let record = store.get(EventId(u128::from(seq) + 1)).unwrap().unwrap();
    assert_ne!(record.event().raw, raw_of(seq).as_bytes());
}

/// Corrects an event of the last segment, and everything that is a sum over it.
fn forge_segment(disk: &SimFs, seq: u64) {
    let (_, number) = last_segment(disk);
    let (info, mut rows) = rows_of(disk, number);
    let row = rows.iter_mut().find(|row| row.0 == seq).unwrap();
    row.1 = rewritten(&row.1);
    forge(disk, info.end_seq, &[], &mut rows);
}

/// Replaces bytes in the log, and corrects the checksums of their frame.
fn forge_log(disk: &SimFs, from: &[u8], to: &[u8]) {
    let dir = Path::new(DIR).join("log");
    let mut found = 0;
    for name in disk.list(&dir).unwrap().into_iter().map(|entry| entry.name) {
        if !name.to_string_lossy().ends_with(".log") {
            continue;
        }
        let path = dir.join(&name);
        let mut bytes = read(disk, &path);
        let id = bytes[16..32].to_vec();
        let base = u64::from_le_bytes(bytes[32..40].try_into().unwrap());
        let mut at = 64;
        while at + 24 <= bytes.len() {
            let size = u32::from_le_bytes(bytes[at + 8..at + 12].try_into().unwrap()) as usize;
            let end = at + 24 + size.next_multiple_of(8);
            if bytes[at + 12] != 1 {
                break;
            }
            let payload = at + 24..end;
            if let Some(place) = bytes[payload.clone()].windows(from.len()).position(|w| w == from)
            {
                bytes[at + 24 + place..at + 24 + place + to.len()].copy_from_slice(to);
                let checksum = crc32c(&bytes[payload]);
                bytes[at + 4..at + 8].copy_from_slice(&checksum.to_le_bytes());
                let position = base + at as u64;
                let header =
                    [id.as_slice(), &position.to_le_bytes(), &bytes[at + 4..at + 24]].concat();
                bytes[at..at + 4].copy_from_slice(&crc32c(&header).to_le_bytes());
                found += 1;
            }
            at = end;
        }
        write(disk, &path, &bytes);
    }
    assert_eq!(found, 1);
}

#[test]
fn a_forged_event_of_a_segment_is_refused_and_the_others_are_read() {
    for spread in [0, 40, 5_000] {
        let (sound, clock) = store(spread);
        for seq in [1_500, 1_800, 2_047, 2_048, 2_099] {
            let disk = sound.fork();
            forge_segment(&disk, seq);
            assert_refused(&disk, &clock, seq);
            let store = open(&disk, &clock, true);
            // One block may have events of the tile of the forged one, across segments.
            for other in [0, 699, 1_100].into_iter().filter(|other| seq > 1_535 || *other < 700) {
                assert_eq!(store.at(other).unwrap().unwrap().event().raw, raw_of(other).as_bytes());
            }
        }
    }
}

#[test]
fn a_sound_store_is_read_whole_in_any_order_of_time() {
    for spread in [0, 40, 5_000] {
        let (disk, clock) = store(spread);
        let store = open(&disk, &clock, true);
        for order in [Order::OldestFirst, Order::NewestFirst] {
            let (mut found, ended) = scan(&store, Query { order, ..Query::default() });
            ended.unwrap();
            found.sort_unstable();
            assert!(found.iter().copied().eq(0..2_300));
        }
        for seq in (0..2_300).rev().step_by(37) {
            let id = EventId(u128::from(seq) + 1);
            assert_eq!(store.get(id).unwrap().unwrap().seq(), seq);
            assert_eq!(store.at(seq).unwrap().unwrap().seq(), seq);
        }
    }
}

#[test]
fn a_forged_event_of_the_log_is_refused_and_what_was_signed_before_is_read() {
    let (sound, clock) = store(0);
    for (seq, first_refused) in [(2_150, 2_100), (2_250, 2_200)] {
        let disk = sound.fork();
        forge_log(&disk, raw_of(seq).as_bytes(), raw_of(999_999 - seq).as_bytes());
        assert_refused(&disk, &clock, seq);
        let store = open(&disk, &clock, true);
        for other in [0, 1_600, first_refused - 1] {
            assert_eq!(store.at(other).unwrap().unwrap().event().raw, raw_of(other).as_bytes());
        }
        assert!(refuses(&store.at(first_refused), first_refused));
        // And none of it is signed.
        assert!(matches!(store.checkpoint(), Err(ReadError::Distrusted { .. })));
    }
}

#[test]
fn a_forged_event_is_refused_though_the_tree_s_file_is_forged_with_it() {
    let (disk, clock) = store(0);
    forge_segment(&disk, 1_800);
    crate::store_tamper::forge_tree(&disk);
    let store = open(&disk, &clock, true);
    assert!(refuses(&store.at(1_800), 1_800));
    assert!(scan(&store, Query::default()).1.is_err());
    assert_eq!(store.at(1_400).unwrap().unwrap().event().raw, raw_of(1_400).as_bytes());
}

#[test]
fn a_block_that_was_read_before_is_checked_again_once_it_is_replaced() {
    let (disk, clock) = store(0);
    let (_, number) = last_segment(&disk);
    let (info, mut rows) = rows_of(&disk, number);
    // The same events, in the layout that a forged segment has.
    forge(&disk, info.end_seq, &[], &mut rows);
    let options = Options {
        memory_table_events: 100_000,
        log_segment_size: 1 << 20,
        block_cache_size: 0,
        ..crate::store_model::options("sync".parse().unwrap())
    };
    let fs: Arc<dyn FileSystem> = Arc::new(disk.clone());
    let (store, _) = Store::open_quiet(fs, clock.clone(), Path::new(DIR), options).unwrap();
    scan(&store, Query::default()).1.unwrap();
    // In the file that is open: the same name with other bytes of the same length.
    let other = disk.fork();
    forge_segment(&other, 1_800);
    let path = segment_path(last_segment(&disk).1);
    let forged = read(&other, &path);
    let file = disk.open(&path, Access::ReadWrite).unwrap();
    let same = read(&disk, &path);
    assert_eq!(same.len(), forged.len(), "the forged segment has the layout of the true one");
    file.write_all_at(&forged, 0).unwrap();
    assert!(refuses(&store.at(1_800), 1_800));
}

#[test]
fn an_event_removed_or_added_beside_the_true_ones_is_noticed_by_readers() {
    let (sound, clock) = store(0);
    let (_, number) = last_segment(&sound);
    let (info, rows) = rows_of(&sound, number);
    let disk = sound.fork();
    let mut left: Vec<_> = rows.iter().filter(|row| row.0 != 1_800).cloned().collect();
    forge(&disk, info.end_seq, &[], &mut left);
    assert!(scan(&open(&disk, &clock, true), Query::default()).1.is_err(), "removed");
    // A second event at the position of another, which is removed to make room.
    let disk = sound.fork();
    let mut left: Vec<_> = rows.iter().filter(|row| row.0 != 1_900).cloned().collect();
    let mut added = rewritten(&rows.iter().find(|row| row.0 == 1_800).unwrap().1);
    let time = i64::from_le_bytes(added[17..25].try_into().unwrap()) - 1;
    added[17..25].copy_from_slice(&time.to_le_bytes());
    left.push((1_800, added));
    let stub =
        forebay_events::merkle::leaf_hash(&rows.iter().find(|row| row.0 == 1_900).unwrap().1);
    forge(&disk, info.end_seq, &[(1_900, stub)], &mut left);
    let store = open(&disk, &clock, true);
    assert!(scan(&store, Query::default()).1.is_err(), "added");
    assert!(store.at(1_800).is_err());
}

/// What is corrected after an event was changed in a segment that the store wrote.
#[derive(Clone, Copy, PartialEq)]
enum Recomputed {
    /// The checksums of the block and the digest of the file.
    Checksums,
    /// The digest of the block too, which the store signed.
    Digest,
    /// The footer, which names no digests then.
    Footer,
}

/// The event `seq` gets another amount, in the block where it is.
fn forge_in_place(disk: &SimFs, number: u64, seq: u64, recomputed: Recomputed) {
    let path = segment_path(number);
    let mut bytes = read(disk, &path);
    let salt = crc32c(&bytes[..32]);
    let footer = bytes.len() - 168;
    let field = |bytes: &[u8], at: usize| {
        usize::try_from(u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap())).unwrap()
    };
    let (index, digests) = (field(&bytes, footer + 7 * 8), field(&bytes, footer + 14 * 8));
    let blocks = field(&bytes, footer + 6 * 8);
    assert!(digests > 0, "the store signs the digests of its blocks");
    let raw = raw_of(seq).into_bytes();
    let at = bytes.windows(raw.len()).position(|found| found == raw).unwrap();
    bytes[at + 7] = b'9';
    for block in 0..blocks {
        let entry = index + block * 104;
        let start = field(&bytes, entry);
        let size = u32::from_le_bytes(bytes[entry + 8..entry + 12].try_into().unwrap()) as usize;
        let end = start + size - 4;
        let mark = u32::try_from(block).unwrap();
        let sum = crc32c(&bytes[start..end]) ^ salt ^ mark;
        bytes[end..end + 4].copy_from_slice(&sum.to_le_bytes());
        if recomputed == Recomputed::Digest {
            let digest = blake3::hash(&bytes[start..end]);
            let slot = digests + block * 32;
            bytes[slot..slot + 32].copy_from_slice(digest.as_bytes());
        }
    }
    let end = digests + blocks * 32 + 64;
    let sum = crc32c(&bytes[digests..end]) ^ salt;
    bytes[end..end + 4].copy_from_slice(&sum.to_le_bytes());
    if recomputed == Recomputed::Footer {
        bytes[footer + 14 * 8..footer + 15 * 8].fill(0);
        let end = bytes.len() - 4;
        let sum = crc32c(&bytes[footer..end]);
        bytes[end..].copy_from_slice(&sum.to_le_bytes());
    }
    write(disk, &path, &bytes);
    let (mut manifest, _) = last_segment(disk);
    let before = Segment::open(disk, &path).unwrap();
    let end = manifest.len() - 4;
    let entry = manifest
        .windows(8)
        .rposition(|found| found == before.info().file_size.to_le_bytes())
        .unwrap();
    manifest[entry + 8..entry + 40].copy_from_slice(&before.digest().unwrap());
    let sum = crc32c(&manifest[..end]);
    manifest[end..].copy_from_slice(&sum.to_le_bytes());
    write_manifest(disk, &manifest);
}

/// A closed store of four segments that can be joined, in many blocks that are not compressed.
fn plain_store() -> (SimFs, Arc<ManualClock>, Options) {
    let (disk, clock) = (SimFs::new(1), Arc::new(ManualClock::new(START_MS)));
    let options = Options {
        memory_table_events: 100_000,
        log_segment_size: 1 << 20,
        block_cache_size: 0,
        segment_events_max: 1 << 20,
        segment: SegmentOptions {
            compression: Compression::None,
            block_size: 4 << 10,
            filter_bits_per_key: 10,
            text_filter: true,
        },
        ..crate::store_model::options("sync".parse().unwrap())
    };
    let store = open_with(&disk, &clock, &options);
    let mut time = |number: u64| i64::try_from(number * 1_000).unwrap() + now_ns(&clock);
    for numbers in [0..600, 600..1_200, 1_200..1_800, 1_800..2_400] {
        append(&store, &clock, numbers, &mut time);
        store.checkpoint().unwrap();
        store.flush().unwrap();
    }
    store.close().unwrap();
    (disk, clock, options)
}

fn open_with(disk: &SimFs, clock: &Arc<ManualClock>, options: &Options) -> Store {
    let fs: Arc<dyn FileSystem> = Arc::new(disk.clone());
    Store::open_quiet(fs, clock.clone(), Path::new(DIR), options.clone()).unwrap().0
}

#[test]
fn an_event_changed_in_place_is_refused_whatever_else_is_recomputed_without_the_key() {
    let (sound, clock, options) = plain_store();
    let (_, last) = last_segment(&sound);
    for recomputed in [Recomputed::Checksums, Recomputed::Digest, Recomputed::Footer] {
        let disk = sound.fork();
        forge_in_place(&disk, last, 2_000, recomputed);
        let store = open_with(&disk, &clock, &options);
        assert!(refuses(&store.at(2_000), 2_000));
        assert!(refuses(&store.get(EventId(2_001)), 2_000));
        assert!(scan(&store, Query::default()).1.is_err());
        // Blocks of other tiles and segments are read by their digests, or by the tree.
        for other in [0, 1_300, 2_390] {
            assert_eq!(store.at(other).unwrap().unwrap().event().raw, raw_of(other).as_bytes());
        }
    }
}

#[test]
fn compaction_does_not_write_a_forged_event_again() {
    let (sound, clock, options) = plain_store();
    let (_, last) = last_segment(&sound);
    for recomputed in [Recomputed::Checksums, Recomputed::Digest, Recomputed::Footer] {
        let disk = sound.fork();
        forge_in_place(&disk, last, 2_000, recomputed);
        let store = open_with(&disk, &clock, &options);
        assert!(store.compact().is_err());
        assert!(refuses(&store.at(2_000), 2_000));
        assert_eq!(store.at(700).unwrap().unwrap().event().raw, raw_of(700).as_bytes());
    }
    let store = open_with(&sound, &clock, &options);
    store.compact().unwrap();
    for seq in 0..2_400 {
        assert_eq!(store.at(seq).unwrap().unwrap().event().raw, raw_of(seq).as_bytes());
    }
    store.close().unwrap();
    // What was joined is signed for again.
    let (_, joined) = last_segment(&sound);
    assert_ne!(joined, last);
    forge_in_place(&sound, joined, 2_000, Recomputed::Digest);
    assert!(refuses(&open_with(&sound, &clock, &options).at(2_000), 2_000));
}
