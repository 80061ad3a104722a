//! A flipped bit anywhere: an error or exactly the same data, and `verify` reports it.

#![expect(clippy::cast_possible_truncation, reason = "numbers of a test are small")]

use std::path::{Path, PathBuf};
use std::sync::Arc;

use forebay_base::clock::ManualClock;
use forebay_base::fs::sim::{Rng, SimFs};
use forebay_base::fs::{Access, FileSystem};
use forebay_events::Store;
use forebay_events::query::{Order, Query};
use forebay_events::segment::Segment;
use forebay_events::store::verify;

use crate::store_model::{DIR, Model, START_MS, open};
use crate::store_tamper::{last_segment, segment_path, write_manifest};

/// A closed store: several segments, some of them pruned, and a log with batches in it.
fn made() -> (SimFs, Arc<ManualClock>, Model) {
    let disk = SimFs::new(3);
    let clock = Arc::new(ManualClock::new(START_MS));
    let durability = "sync".parse().unwrap();
    let mut model = Model::default();
    let mut rng = Rng::new(8);
    let store = open(&disk, &clock, durability).unwrap();
    for round in 0..6 {
        for _ in 0..5 {
            model.append(&store, &mut rng, &clock, 20).unwrap();
        }
        if round % 2 == 0 {
            model.checkpoint(&store);
        }
        store.flush().unwrap();
        if round == 3 {
            model.prune(&store, &clock);
            store.compact().unwrap();
        }
    }
    for _ in 0..3 {
        model.append(&store, &mut rng, &clock, 9).unwrap();
    }
    store.close().unwrap();
    model.verify(&disk);
    (disk, clock, model)
}

fn files(disk: &SimFs, dir: &Path, out: &mut Vec<(PathBuf, u64)>) {
    for entry in disk.list(dir).unwrap() {
        let path = dir.join(&entry.name);
        if entry.is_dir {
            files(disk, &path, out);
        } else {
            out.push((path, entry.len));
        }
    }
}

/// Everything that can be read; an error ends one way of reading, not the others.
fn read_all(store: &Store, model: &Model) -> usize {
    let mut errors = 0;
    for seq in 0..model.events.len() {
        match store.at(seq as u64) {
            Ok(Some(found)) => assert!(found.leaf() == model.events[seq].leaf, "event {seq}"),
            Ok(None) => assert!(model.expired(seq), "event {seq} is gone"),
            Err(_) => errors += 1,
        }
    }
    for seq in (0..model.events.len()).step_by(3) {
        let id = model.events[seq].id;
        let first = model.there().into_iter().find(|&seq| model.events[seq].id == id);
        match store.get(id) {
            Ok(found) => assert_eq!(found.map(|found| found.seq() as usize), first),
            Err(_) => errors += 1,
        }
    }
    let words = Query { contains: vec![b" did ".to_vec()], ..Query::default() };
    let host = Query { host: Some("host3".to_owned()), ..Query::default() };
    let newest = Query { order: Order::NewestFirst, ..Query::default() };
    for query in [Query::default(), newest, words, host] {
        let expected = model.matching(&query);
        let mut expected = expected.iter();
        let mut scan = store.scan(query);
        loop {
            match scan.next() {
                // That a damaged file was not used is recorded after everything else.
                Ok(Some(found)) if found.seq() as usize >= model.events.len() => {
                    assert_eq!(found.event().tags.kind, "unused");
                }
                Ok(Some(found)) => {
                    assert_eq!(Some(&(found.seq() as usize)), expected.next());
                    assert!(found.leaf() == model.events[found.seq() as usize].leaf);
                }
                Ok(None) => {
                    assert_eq!(expected.next(), None);
                    break;
                }
                Err(_) => {
                    errors += 1;
                    break;
                }
            }
        }
    }
    errors
}

fn faults(disk: &SimFs) -> Option<Vec<String>> {
    let fs: Arc<dyn FileSystem> = Arc::new(disk.clone());
    let verified = verify(&fs, Path::new(DIR), &[], None, &|_| ()).ok()?;
    Some(verified.faults.iter().map(ToString::to_string).collect())
}

/// Whether a flip there must be reported by `verify`.
fn must_be_reported(disk: &SimFs, path: &Path, offset: u64) -> bool {
    let name = path.file_name().unwrap().to_str().unwrap();
    if name == "lock" || name == "key" {
        return name == "key";
    }
    if path.parent().unwrap().ends_with("log") {
        // Behind the last entry are the closing mark, which may be torn, and reserved zeros.
        let mut bytes = vec![0; usize::try_from(disk.len(path).unwrap()).unwrap()];
        disk.open(path, Access::Read).unwrap().read_exact_at(&mut bytes, 0).unwrap();
        let used = bytes.iter().rposition(|&byte| byte != 0).unwrap_or(0) as u64;
        return offset + 64 < used;
    }
    true
}

#[test]
fn a_flipped_bit_anywhere_is_an_error_or_changes_nothing_and_is_found() {
    let (disk, clock, model) = made();
    let mut all = Vec::new();
    files(&disk, Path::new(DIR), &mut all);
    assert!(all.len() > 8, "{all:?}");
    let durability = "sync".parse().unwrap();
    let (mut flips, mut refused, mut errors) = (0, 0, 0);
    for (path, len) in &all {
        // Every byte of small files and of what frames large ones, and a sample of the rest.
        let frame = 400;
        let near = |offset: u64| offset < frame || offset + frame >= *len;
        let stride = 1 + len / 700;
        for offset in (0..*len).filter(|&o| near(o) && o % 11 == 0 || o % (29 * stride) == 3) {
            let damaged = disk.fork();
            damaged.corrupt(path, offset, 1 << (offset % 8)).unwrap();
            let reported = faults(&damaged);
            if must_be_reported(&disk, path, offset) {
                let reported = reported.is_none_or(|reported| !reported.is_empty());
                assert!(reported, "{} at {offset}: not reported", path.display());
            }
            flips += 1;
            match open(&damaged, &clock, durability) {
                Ok(store) => errors += read_all(&store, &model),
                Err(_) => refused += 1,
            }
        }
    }
    assert!(flips > 400 && refused > 100 && errors > 100, "{flips} {refused} {errors}");
}

fn restore(disk: &SimFs, path: &Path, offset: u64) {
    disk.corrupt(path, offset, 1 << (offset % 8)).unwrap();
}

/// Whether the store has other segments than those of which these events are.
fn range_of(disk: &SimFs, path: &Path) -> std::ops::Range<usize> {
    let info = Segment::open(disk, path).unwrap().info();
    info.first_seq as usize..info.end_seq as usize
}

/// Where bits are flipped in a segment of this size: header, blocks, index, footer.
fn places(len: u64) -> [u64; 7] {
    [9, len / 9, len / 4, len / 3, len / 2, len - 90, len - 9]
}

#[test]
fn a_store_with_a_damaged_segment_reads_all_others_and_accepts_events() {
    let (disk, clock, model) = made();
    let durability = "sync".parse().unwrap();
    let mut all = Vec::new();
    files(&disk, &Path::new(DIR).join("segments"), &mut all);
    for (path, len) in &all {
        let range = range_of(&disk, path);
        for offset in places(*len) {
            let damaged = disk.fork();
            restore(&damaged, path, offset);
            let store = open(&damaged, &clock, durability).unwrap();
            assert_eq!(store.len() as usize, model.events.len());
            for seq in (0..model.events.len()).filter(|seq| !range.contains(seq)) {
                let found = store.at(seq as u64).unwrap_or_else(|error| panic!("{seq}: {error}"));
                let found = found.map(|found| found.leaf().to_vec());
                let leaf = Some(model.events[seq].leaf.clone());
                assert!(found == leaf || found.is_none() && model.expired(seq), "{seq} {offset}");
            }
            store.health().unwrap();
            let mut more = model.clone();
            // Through the tile that the damage is in, in memory and in segments.
            for round in 0..12 {
                more.append(&store, &mut Rng::new(round), &clock, 60).unwrap();
                if round % 5 == 4 {
                    more.checkpoint(&store);
                    store.flush().unwrap();
                }
            }
            more.append(&store, &mut Rng::new(3), &clock, 5).unwrap();
            // Ended without closing: the newest events are in the log alone.
            drop(store);
            let store = open(&damaged, &clock, durability).unwrap();
            store.health().unwrap();
            more.append(&store, &mut Rng::new(5), &clock, 5).unwrap();
            more.checkpoint(&store);
            store.close().unwrap();
            restore(&damaged, path, offset);
            assert_eq!(faults(&damaged), Some(Vec::new()), "{offset} of {}", path.display());
            more.verify(&damaged);
        }
    }
}

#[test]
fn with_a_manifest_of_version_3_a_store_whose_newest_block_is_damaged_is_read_only() {
    let (disk, clock, model) = made();
    let durability = "sync".parse().unwrap();
    let (manifest, number) = last_segment(&disk);
    // Written as version 3, which has no hashes of the events after the last complete tile.
    write_manifest(&disk, &manifest);
    let path = segment_path(number);
    for offset in places(disk.len(&path).unwrap()) {
        let damaged = disk.fork();
        restore(&damaged, &path, offset);
        let store = open(&damaged, &clock, durability).unwrap();
        assert!(model.clone().append(&store, &mut Rng::new(3), &clock, 5).is_err());
        assert!(store.checkpoint().is_err());
        let reason = store.health().unwrap_err();
        assert!(reason.contains(path.to_str().unwrap()), "{reason}");
        drop(store);
        restore(&damaged, &path, offset);
        let store = open(&damaged, &clock, durability).unwrap();
        let mut more = model.clone();
        more.append(&store, &mut Rng::new(4), &clock, 5).unwrap();
        store.close().unwrap();
        more.verify(&damaged);
    }
}

#[test]
fn verify_names_every_damaged_block_with_its_events() {
    let (disk, _, _) = made();
    let mut all = Vec::new();
    files(&disk, &Path::new(DIR).join("segments"), &mut all);
    let path = &all[0].0;
    let blocks = Segment::open(&disk, path).unwrap().blocks().to_vec();
    assert!(blocks.len() > 4);
    for number in [0, 2, 3] {
        disk.corrupt(path, blocks[number].offset + 9, 1).unwrap();
    }
    let faults = faults(&disk).unwrap();
    for (number, block) in blocks.iter().enumerate() {
        let (rows, first, last) = (block.rows, block.seq_min, block.seq_max);
        let text = format!("with {rows} events between the indexes {first} and {last}, is damaged");
        let named = |fault: &String| {
            fault.contains(&format!("block {number} of segment")) && fault.contains(&text)
        };
        let damaged = [0, 2, 3].contains(&number);
        assert_eq!(faults.iter().filter(|fault| named(fault)).count(), usize::from(damaged));
    }
}
