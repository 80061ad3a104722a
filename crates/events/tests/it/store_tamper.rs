//! An attacker with the code and the files, but without the key, who corrects every checksum: the
//! signed checkpoints reveal the change.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use base64::Engine as _;
use forebay_base::checksum::crc32c;
use forebay_base::clock::ManualClock;
use forebay_base::fs::sim::{Rng, SimFs};
use forebay_base::fs::{Access, FileSystem};
use forebay_events::checkpoint::VerifierKey;
use forebay_events::merkle::{Hash, TILE_WIDTH, Tree, TreeFile, leaf_hash};
use forebay_events::segment::{Compression, Segment, SegmentInfo, SegmentOptions, SegmentWriter};
use forebay_events::store::{Fault, Verified, verify};
use forebay_events::{Batch, Draft, Event};

use crate::store_model::{DIR, Model, START_MS, open};

pub(crate) type Rows = Vec<(u64, Vec<u8>)>;

pub(crate) struct Victim {
    pub(crate) disk: SimFs,
    /// Signed early, and kept elsewhere.
    pub(crate) note: String,
    pub(crate) key: VerifierKey,
    count: u64,
}

/// A store of one segment and no log, with several checkpoints.
pub(crate) fn victim() -> Victim {
    let disk = SimFs::new(1);
    let clock = Arc::new(ManualClock::new(START_MS));
    let mut model = Model::default();
    let mut rng = Rng::new(5);
    let store = open(&disk, &clock, "sync".parse().unwrap()).unwrap();
    let key = store.verifier_key().unwrap();
    for _ in 0..2 {
        for _ in 0..2 {
            model.append(&store, &mut rng, &clock, 20).unwrap();
        }
        model.checkpoint(&store);
    }
    store.close().unwrap();
    let mut options = crate::store_model::options("sync".parse().unwrap());
    options.memory_table_events = 100_000;
    let fs: Arc<dyn FileSystem> = Arc::new(disk.clone());
    let (store, _) =
        forebay_events::Store::open_quiet(fs, clock.clone(), Path::new(DIR), options).unwrap();
    for _ in 0..50 {
        model.append(&store, &mut rng, &clock, 11).unwrap();
    }
    model.checkpoint(&store);
    store.flush().unwrap();
    store.close().unwrap();
    model.verify(&disk);
    let note = model.checkpoints[2].2.clone();
    Victim { disk, note, key, count: model.events.len() as u64 }
}

pub(crate) fn check(disk: &SimFs, since: &[String], key: Option<&VerifierKey>) -> Verified {
    let fs: Arc<dyn FileSystem> = Arc::new(disk.clone());
    verify(&fs, Path::new(DIR), since, key, &|_| ()).unwrap()
}

pub(crate) fn segment_path(number: u64) -> PathBuf {
    Path::new(DIR).join(format!("segments/{number:016x}.segment"))
}

pub(crate) fn read(disk: &SimFs, path: &Path) -> Vec<u8> {
    let file = disk.open(path, Access::Read).unwrap();
    let mut bytes = vec![0; usize::try_from(file.len().unwrap()).unwrap()];
    file.read_exact_at(&mut bytes, 0).unwrap();
    bytes
}

pub(crate) fn write(disk: &SimFs, path: &Path, bytes: &[u8]) {
    let file = disk.open(path, Access::ReadWrite).unwrap();
    file.set_len(0).unwrap();
    file.write_all_at(bytes, 0).unwrap();
}

/// Flips a bit in the first block of the last segment, which cannot be read then.
pub(crate) fn damage_first_block(disk: &SimFs) {
    let path = segment_path(last_segment(disk).1);
    let mut bytes = read(disk, &path);
    bytes[40] ^= 1;
    write(disk, &path, &bytes);
}

/// Whether a manifest has a code.
fn is_sealed(manifest: &[u8]) -> bool {
    manifest.starts_with(b"FBEVMAN3") || manifest.starts_with(b"FBEVMAN4")
}

/// Where the segments of a manifest of version 2 or later end.
fn segments_end(manifest: &[u8]) -> usize {
    61 + 88 * u32::from_le_bytes(manifest[57..61].try_into().unwrap()) as usize
}

/// The number of the last segment, and the manifest in the form of version 2, which ends with the
/// segments and a checksum.
pub(crate) fn last_segment(disk: &SimFs) -> (Vec<u8>, u64) {
    let mut manifest = read(disk, &Path::new(DIR).join("manifest"));
    if is_sealed(&manifest) {
        manifest.truncate(segments_end(&manifest));
        manifest[7] = b'2';
        let checksum = crc32c(&manifest);
        manifest.extend_from_slice(&checksum.to_le_bytes());
    }
    let at = manifest.len() - 4 - 88;
    let number = u64::from_le_bytes(manifest[at..at + 8].try_into().unwrap());
    (manifest, number)
}

/// The code that a store with the key in `disk` gives to a file.
pub(crate) fn code(disk: &SimFs, kind: &[u8; 8], log_id: &[u8], body: &[u8]) -> [u8; 32] {
    let text = read(disk, &Path::new(DIR).join("key"));
    let text = String::from_utf8(text).unwrap();
    let fields: Vec<&str> = text.trim().splitn(5, '+').collect();
    let seed = base64::engine::general_purpose::STANDARD.decode(fields[4]).unwrap();
    let mut hasher =
        blake3::Hasher::new_derive_key("forebay 2026-11-24 event store, codes of its files");
    hasher.update(&seed[1..]).update(fields[2].as_bytes());
    let key = *hasher.finalize().as_bytes();
    let mut hasher = blake3::Hasher::new_keyed(&key);
    *hasher.update(kind).update(log_id).update(body).finalize().as_bytes()
}

/// Writes a manifest in the form of [`last_segment`] as one who has the key could, so that what
/// other checks find is seen.
pub(crate) fn write_manifest(disk: &SimFs, manifest: &[u8]) {
    let path = Path::new(DIR).join("manifest");
    let now = read(disk, &path);
    let mut body = manifest[..manifest.len() - 4].to_vec();
    if is_sealed(&now) {
        let rest = segments_end(&now) + 32;
        body[7] = b'3';
        // The root is not known.
        body.extend_from_slice(&[0; 32]);
        body.extend_from_slice(&now[rest..rest + 16]);
        let code = code(disk, b"manifest", &now[33..49], &body);
        body.extend_from_slice(&code);
    }
    let checksum = crc32c(&body);
    body.extend_from_slice(&checksum.to_le_bytes());
    write(disk, &path, &body);
}

/// All leaves of a segment, by (time, position).
pub(crate) fn rows_of(disk: &SimFs, number: u64) -> (SegmentInfo, Rows) {
    let segment = Segment::open(disk, &segment_path(number)).unwrap();
    let mut rows = Vec::new();
    for number in 0..segment.blocks().len() {
        let block = segment.read_block(number).unwrap();
        for row in 0..block.len() {
            let mut leaf = Vec::new();
            block.leaf(row, &mut leaf);
            rows.push((block.seq(row), leaf));
        }
    }
    (segment.info(), rows)
}

/// Puts other rows in the place of the last segment's, and makes manifest and tree fit.
pub(crate) fn forge(disk: &SimFs, end_seq: u64, stubs: &[(u64, Hash)], rows: &mut Rows) {
    let (mut manifest, number) = last_segment(disk);
    let (old, _) = rows_of(disk, number);
    disk.remove_file(&segment_path(number)).unwrap();
    let time = |leaf: &[u8]| i64::from_le_bytes(leaf[17..25].try_into().unwrap());
    rows.sort_by_key(|(seq, leaf)| (time(leaf), *seq));
    let options = SegmentOptions {
        compression: Compression::None,
        block_size: 4096,
        filter_bits_per_key: 10,
        text_filter: true,
    };
    let path = segment_path(number);
    let mut writer = SegmentWriter::create(disk, &path, old.first_seq, end_seq, options).unwrap();
    rows.iter().for_each(|(seq, leaf)| writer.push(*seq, leaf).unwrap());
    stubs.iter().for_each(|(seq, hash)| writer.push_stub(*seq, *hash).unwrap());
    let info = writer.finish().unwrap();
    let at = manifest.len() - 4 - 88;
    let mut entry = number.to_le_bytes().to_vec();
    for field in [info.first_seq, info.end_seq, info.rows] {
        entry.extend_from_slice(&field.to_le_bytes());
    }
    for time in [info.time_min_ns, info.time_max_ns] {
        entry.extend_from_slice(&time.to_le_bytes());
    }
    entry.extend_from_slice(&info.file_size.to_le_bytes());
    entry.extend_from_slice(&info.digest);
    manifest.truncate(at);
    manifest.extend_from_slice(&entry);
    manifest[17..25].copy_from_slice(&end_seq.to_le_bytes());
    let checksum = crc32c(&manifest);
    manifest.extend_from_slice(&checksum.to_le_bytes());
    write_manifest(disk, &manifest);
}

/// Makes the tree's file match the current events, none of them pruned.
pub(crate) fn forge_tree(disk: &SimFs) {
    let (manifest, _) = last_segment(disk);
    let log_id: [u8; 16] = manifest[33..49].try_into().unwrap();
    let count = u32::from_le_bytes(manifest[57..61].try_into().unwrap()) as usize;
    let mut rows = Rows::new();
    for entry in manifest[61..manifest.len() - 4].chunks_exact(88).take(count) {
        let number = u64::from_le_bytes(entry[..8].try_into().unwrap());
        rows.extend(rows_of(disk, number).1);
    }
    rows.sort_unstable();
    let hashes: Vec<Hash> = rows.iter().map(|(_, leaf)| leaf_hash(leaf)).collect();
    let mut tree = Tree::new();
    tree.push(&hashes);
    let path = Path::new(DIR).join("tree");
    let (mut file, _) = TreeFile::open(disk, &path, log_id, 0).unwrap();
    file.append(tree.tile_roots()).unwrap();
    file.sync().unwrap();
}

/// The same event with something else in its raw bytes.
pub(crate) fn rewritten(leaf: &[u8]) -> Vec<u8> {
    let event: Event<'_> = forebay_events::format::leaf::decode(leaf).unwrap();
    let mut raw = event.raw.to_vec();
    raw[0] ^= 1;
    let mut batch = Batch::new(event.tags.stream);
    let draft = Draft {
        id: Some(event.id),
        timestamp_ns: Some(event.timestamp_ns),
        kind: event.tags.kind.into(),
        host: event.tags.host.into(),
        raw: raw.into(),
        ..Draft::default()
    };
    batch.push(&draft, 0).unwrap();
    batch.leaves().next().unwrap().to_vec()
}

/// Removes the store's own checkpoints, and the copy of the newest one.
pub(crate) fn forget_history(disk: &SimFs) {
    let path = Path::new(DIR).join("checkpoints");
    let header = read(disk, &path)[..32].to_vec();
    write(disk, &path, &header);
    disk.remove_file(&Path::new(DIR).join("newest-checkpoint")).unwrap();
}

fn assert_reported(victim: &Victim, disk: &SimFs) {
    let result = check(disk, std::slice::from_ref(&victim.note), Some(&victim.key));
    assert!(!result.faults.is_empty(), "nothing was reported");
}

#[test]
fn an_event_rewritten_with_all_checksums_is_found() {
    let victim = victim();
    let (manifest, number) = last_segment(&victim.disk);
    assert!(manifest.len() > 61 + 88);
    let (info, rows) = rows_of(&victim.disk, number);
    for at in [0, rows.len() / 2, rows.len() - 1] {
        for with_tree in [false, true] {
            let disk = victim.disk.fork();
            let mut rows = rows.clone();
            rows[at].1 = rewritten(&rows[at].1);
            forge(&disk, info.end_seq, &[], &mut rows);
            if with_tree {
                forge_tree(&disk);
            }
            assert!(!check(&disk, &[], None).faults.is_empty(), "{at} {with_tree}");
            forget_history(&disk);
            // Without its checkpoints nothing is signed, which is said.
            let unsigned = check(&disk, &[], None);
            assert!(!with_tree || unsigned.faults.is_empty());
            assert_eq!(unsigned.unsigned, victim.count);
            assert_reported(&victim, &disk);
        }
    }
}

#[test]
fn the_forger_s_tools_change_nothing_by_themselves() {
    let victim = victim();
    let (_, number) = last_segment(&victim.disk);
    let (info, mut rows) = rows_of(&victim.disk, number);
    forge(&victim.disk, info.end_seq, &[], &mut rows);
    forge_tree(&victim.disk);
    let verified = check(&victim.disk, std::slice::from_ref(&victim.note), Some(&victim.key));
    assert_eq!(verified.faults, []);
}

#[test]
fn the_newest_events_dropped_are_missed() {
    let victim = victim();
    let (_, number) = last_segment(&victim.disk);
    let (info, mut rows) = rows_of(&victim.disk, number);
    rows.retain(|(seq, _)| *seq < info.end_seq - 3);
    forge(&victim.disk, info.end_seq - 3, &[], &mut rows);
    forge_tree(&victim.disk);
    let result = check(&victim.disk, &[], None);
    assert!(!result.faults.is_empty());
    assert_eq!(result.events, victim.count - 3);
    let clock = Arc::new(ManualClock::new(START_MS));
    assert!(open(&victim.disk, &clock, "sync".parse().unwrap()).is_err());
    forget_history(&victim.disk);
    assert_eq!(check(&victim.disk, &[], None).faults, [], "the store itself knows no more");
    assert_reported(&victim, &victim.disk);
}

#[test]
fn two_events_swapped_are_found() {
    let victim = victim();
    let (_, number) = last_segment(&victim.disk);
    let (info, mut rows) = rows_of(&victim.disk, number);
    let (first, second) = (rows[3].0, rows[9].0);
    rows[3].0 = second;
    rows[9].0 = first;
    forge(&victim.disk, info.end_seq, &[], &mut rows);
    assert!(!check(&victim.disk, &[], None).faults.is_empty());
    forge_tree(&victim.disk);
    assert!(!check(&victim.disk, &[], None).faults.is_empty());
    forget_history(&victim.disk);
    assert_reported(&victim, &victim.disk);
}

#[test]
fn a_store_recreated_without_the_key_is_not_the_one_that_was_signed() {
    let victim = victim();
    // The same events except one, in another store with another key and the same origin.
    let fresh = SimFs::new(2);
    let clock = Arc::new(ManualClock::new(START_MS));
    let store = open(&fresh, &clock, "sync".parse().unwrap()).unwrap();
    let mut model = Model::default();
    let mut rng = Rng::new(6);
    while model.events.len() < usize::try_from(victim.count).unwrap() {
        model.append(&store, &mut rng, &clock, 10).unwrap();
    }
    model.checkpoint(&store);
    store.close().unwrap();
    assert_eq!(check(&fresh, &[], None).faults, [], "it is sound by itself");
    let since = [victim.note.clone()];
    assert!(!check(&fresh, &since, Some(&victim.key)).faults.is_empty());
    assert!(!check(&fresh, &since, None).faults.is_empty());
    assert!(!check(&fresh, &[], Some(&victim.key)).faults.is_empty());
}

#[test]
fn an_event_passed_off_as_pruned_is_reported_by_index_with_or_without_its_hash() {
    let victim = victim();
    let (_, number) = last_segment(&victim.disk);
    let (info, rows) = rows_of(&victim.disk, number);
    assert!(info.end_seq - info.first_seq > 2 * TILE_WIDTH as u64);
    let gone = rows[7].clone();
    let mut left: Rows = rows.iter().filter(|row| row.0 != gone.0).cloned().collect();
    let disk = victim.disk.fork();
    forge(&disk, info.end_seq, &[(gone.0, leaf_hash(&gone.1))], &mut left.clone());
    let result = check(&disk, &[], None);
    let absent = Fault::Absent { first: gone.0, last: gone.0 };
    assert_eq!((result.pruned, &result.faults), (0, &vec![absent.clone()]));
    forge(&disk, info.end_seq, &[], &mut left.clone());
    let result = check(&disk, &[], None);
    assert!(result.faults.len() > 1 && result.faults.contains(&absent), "its hash is missing");
    let other = leaf_hash(b"another");
    forge(&disk, info.end_seq, &[(gone.0, other)], &mut left);
    assert!(!check(&disk, &[], None).faults.is_empty(), "its hash is another");
}

#[test]
fn an_event_hidden_behind_the_true_one_is_found() {
    let victim = victim();
    let (_, number) = last_segment(&victim.disk);
    let (info, rows) = rows_of(&victim.disk, number);
    for at in 0..20 {
        let disk = victim.disk.fork();
        let mut rows = rows.clone();
        let mut false_one = rewritten(&rows[at].1);
        // A little earlier, so that both have a place.
        let time = i64::from_le_bytes(false_one[17..25].try_into().unwrap()) - 1;
        false_one[17..25].copy_from_slice(&time.to_le_bytes());
        rows.push((rows[at].0, false_one));
        // The position of another event, so that the number of rows stays possible.
        let other = rows[30].0;
        let hash = leaf_hash(&rows[30].1);
        rows.remove(30);
        forge(&disk, info.end_seq, &[(other, hash)], &mut rows);
        assert!(!check(&disk, &[], None).faults.is_empty(), "{at}");
    }
}

#[test]
fn events_that_no_checkpoint_covers_are_counted() {
    let victim = victim();
    assert_eq!(check(&victim.disk, &[], None).unsigned, 0, "after a clean stop");
    let clock = Arc::new(ManualClock::new(START_MS));
    let store = open(&victim.disk, &clock, "sync".parse().unwrap()).unwrap();
    let mut batch = Batch::new("main");
    for raw in [&b"a"[..], b"b", b"c"] {
        batch.push(&Draft { raw: raw.into(), ..Draft::default() }, 1).unwrap();
    }
    store.append(batch).unwrap();
    // As after a crash, or as one who writes to the log himself: there is no signature.
    let stopped = victim.disk.fork();
    let verified = check(&stopped, &[], None);
    assert_eq!((verified.faults.as_slice(), verified.unsigned), (&[][..], 3));
    store.checkpoint().unwrap();
    let fork = victim.disk.fork();
    assert_eq!(check(&fork, &[], None).unsigned, 0);
}
