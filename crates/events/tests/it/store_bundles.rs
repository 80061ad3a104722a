//! The log as C2SP tlog-tiles: checkpoint, tiles and bundles of entries, read back by a strict parser
//! that shares no code with the store, for events of any size, also after pruning.

use std::path::Path;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use forebay_base::clock::ManualClock;
use forebay_base::fs::sim::SimFs;
use forebay_base::fs::{FileSystem, RealFs};
use forebay_events::format::{leaf, tree};
use forebay_events::store::{BundleError, Retention, verify};
use forebay_events::{Batch, Draft, EventId, Options, Store, Value};
use sha2::{Digest as _, Sha256};

use crate::store_model::{DIR, START_MS, now_ns};

type Hash = [u8; 32];

/// RFC 9162, section 2.1.1, literally.
fn root(leaves: &[Hash]) -> Hash {
    match leaves {
        [] => Sha256::digest(b"").into(),
        [one] => *one,
        _ => {
            let split = leaves.len().next_power_of_two() / 2;
            let hash = Sha256::new().chain_update([1]).chain_update(root(&leaves[..split]));
            hash.chain_update(root(&leaves[split..])).finalize().into()
        }
    }
}

/// The entries of a bundle: exactly `count`, and nothing behind them.
fn entries(mut bytes: &[u8], count: usize) -> Vec<Vec<u8>> {
    let entries = (0..count)
        .map(|_| {
            let (size, rest) = bytes.split_first_chunk::<2>().unwrap();
            let (entry, rest) = rest.split_at(u16::from_be_bytes(*size).into());
            bytes = rest;
            entry.to_vec()
        })
        .collect();
    assert_eq!(bytes, b"");
    entries
}

fn leaf_hash(entry: &[u8]) -> Hash {
    Sha256::new().chain_update([0]).chain_update(entry).finalize().into()
}

/// Size and root of a note.
fn signed(note: &str) -> (u64, Hash) {
    let mut lines = note.lines().skip(1);
    let size = lines.next().unwrap().parse().unwrap();
    (size, STANDARD.decode(lines.next().unwrap()).unwrap().try_into().unwrap())
}

/// Widths of the tiles of a level.
fn widths(nodes: u64) -> impl Iterator<Item = (u64, usize)> {
    let of = move |index: u64| (index, usize::try_from((nodes - index * 256).min(256)).unwrap());
    (0..nodes.div_ceil(256)).map(of)
}

/// Reads the whole log as any client may, and returns the bundles that are gone because an event of
/// them was removed.
fn check(store: &Store) -> Vec<u64> {
    let (size, signed_root) = signed(&store.checkpoint().unwrap());
    let (mut leaves, mut gone) = (Vec::new(), Vec::new());
    for (index, width) in widths(size) {
        let tile = store.tile(0, index, width).unwrap();
        assert_eq!(tile.len(), width);
        let tile: Vec<Hash> = tile.iter().map(|hash| hash.0).collect();
        match store.bundle(index * 256, width) {
            Ok(bytes) => {
                let found: Vec<Hash> =
                    entries(&bytes, width).iter().map(|entry| leaf_hash(entry)).collect();
                assert_eq!(found, tile, "bundle {index}");
            }
            Err(BundleError::Removed { seq }) => {
                assert!(store.at(seq).unwrap().is_none());
                gone.push(index);
            }
            Err(error) => panic!("bundle {index}: {error}"),
        }
        leaves.extend(tile);
    }
    assert_eq!(root(&leaves), signed_root);
    for (index, width) in widths(size / 256) {
        for (tile, hash) in (index * 256..).zip(store.tile(1, index, width).unwrap()) {
            let at = usize::try_from(tile * 256).unwrap();
            assert_eq!(hash.0, root(&leaves[at..at + 256]), "tile {tile}");
        }
    }
    gone
}

/// A draft whose leaf has this many bytes before any mark.
fn sized(size: usize, attributes: bool) -> Draft<'static> {
    let mut draft = Draft {
        stream: "s".into(),
        // With the mark the number before the tags has two bytes.
        kind: "k".repeat(115).into(),
        ip: "10.1.2.3".parse().ok(),
        timestamp_ns: Some(1),
        ..Draft::default()
    };
    if attributes {
        draft.attributes = vec![("a".into(), Value::Text("b".into()))];
    }
    let bytes_of = |draft: &Draft<'_>| {
        let mut bytes = Vec::new();
        leaf::encode(draft, EventId(1), 1, "s", &mut bytes).unwrap();
        bytes.len()
    };
    // The number before the raw bytes has three bytes from 16 KiB on.
    draft.raw = vec![b'x'; 20_000].into();
    let more = size - bytes_of(&draft);
    draft.raw = vec![b'x'; 20_000 + more].into();
    draft
}

const SIZES: [usize; 5] = [65_534, 65_535, 65_536, 65_537, 1_900_000];

fn open(disk: &SimFs, clock: &Arc<ManualClock>) -> Store {
    let options = Options {
        memory_table_events: 100_000,
        retention: vec![Retention { stream: Some("short".to_owned()), keep_ns: 1_000_000_000 }],
        log_segment_size: 64 << 10,
        ..crate::store_model::options("sync".parse().unwrap())
    };
    let fs: Arc<dyn FileSystem> = Arc::new(disk.clone());
    Store::open_quiet(fs, clock.clone(), Path::new(DIR), options).unwrap().0
}

fn append(store: &Store, clock: &ManualClock, stream: &str, count: u64) {
    let mut batch = Batch::new(stream);
    for number in 0..count {
        let raw = format!("event {number}").into_bytes().into();
        batch.push(&Draft { raw, ..Draft::default() }, now_ns(clock)).unwrap();
    }
    store.append(batch).unwrap();
}

#[test]
fn every_bundle_is_read_by_the_standard_whatever_the_sizes_and_what_was_pruned() {
    let (disk, clock) = (SimFs::new(1), Arc::new(ManualClock::new(START_MS)));
    let store = open(&disk, &clock);
    append(&store, &clock, "main", 300);
    for size in SIZES {
        for attributes in [false, true] {
            let mut batch = Batch::new("main");
            batch.push(&sized(size, attributes), now_ns(&clock)).unwrap();
            store.append(batch).unwrap();
        }
    }
    append(&store, &clock, "main", 500);
    append(&store, &clock, "short", 100);
    // Of the store itself too: a large event that is removed leaves the hash of its digest.
    let mut batch = Batch::new("short");
    let draft = Draft { stream: "short".into(), ..sized(100_000, true) };
    batch.push(&draft, now_ns(&clock)).unwrap();
    store.append(batch).unwrap();
    append(&store, &clock, "main", 50);
    assert_eq!(check(&store), [0; 0], "from memory");
    store.flush().unwrap();
    assert_eq!(check(&store), [0; 0], "from segments");
    clock.advance(std::time::Duration::from_secs(100));
    store.compact().unwrap();
    let pruned = store.prune().unwrap().events;
    assert!(store.at(820).unwrap().is_none(), "{pruned}");
    assert_eq!(check(&store), [3], "the bundle with the events of the short stream");
    let record = store.at(305).unwrap().unwrap();
    let proof = store.prove_record(&record).unwrap();
    let included = proof.verify(&store.verifier_key().unwrap()).unwrap();
    assert_eq!(included.leaf, record.leaf());
    store.close().unwrap();
    let fs: Arc<dyn FileSystem> = Arc::new(disk.clone());
    let verified = verify(&fs, Path::new(DIR), &[], None, &|_| ()).unwrap();
    assert_eq!((verified.faults.as_slice(), verified.pruned), (&[][..], 101));
    assert_eq!(check(&open(&disk, &clock)), [3], "after a restart");
}

#[test]
fn only_what_exceeds_16_bits_has_a_digest_and_it_covers_every_byte() {
    for attributes in [false, true] {
        for size in SIZES {
            let mut bytes = Vec::new();
            leaf::encode(&sized(size, attributes), EventId(1), 1, "s", &mut bytes).unwrap();
            let entry = tree::entry(&bytes);
            assert_eq!(bytes.len() > size, size > 65_535, "{size}");
            if size <= 65_535 {
                assert_eq!(*entry, bytes);
                continue;
            }
            assert!(leaf::decode(&bytes).unwrap().tags.digested);
            // The layout of docs/formats/event-leaf.md.
            let body = bytes.len() - (25 + 2 + 129);
            let (front, rest) = bytes.split_at(bytes.len() - body);
            let mut expected = front.to_vec();
            expected[0] = 2;
            expected.extend_from_slice(&u32::try_from(body).unwrap().to_le_bytes());
            expected.extend_from_slice(&Sha256::digest(rest));
            assert_eq!(*entry, expected);
            for place in (0..bytes.len()).step_by(if size > 100_000 { 400_003 } else { 9_001 }) {
                let mut changed = bytes.clone();
                changed[place] ^= 1;
                assert_ne!(tree::hash(&changed), tree::hash(&bytes), "byte {place}");
            }
            // A digest is no event, and no event has its bytes as a leaf.
            assert!(leaf::decode(&entry).is_err());
        }
    }
}

#[test]
fn a_mark_on_a_leaf_that_fits_an_entry_is_refused() {
    for size in [65_534, 65_535] {
        let mut bytes = Vec::new();
        leaf::encode(&sized(size, false), EventId(1), 1, "s", &mut bytes).unwrap();
        let mut event = leaf::decode(&bytes).unwrap();
        event.tags.digested = true;
        let mut marked = Vec::new();
        leaf::rebuild(&event, &[], &mut marked).unwrap();
        assert!(leaf::decode(&marked).is_err(), "{size}");
    }
    // Without the mark a large leaf is one of an earlier version: its own entry.
    let mut bytes = Vec::new();
    leaf::encode(&sized(70_000, true), EventId(1), 1, "s", &mut bytes).unwrap();
    let mut event = leaf::decode(&bytes).unwrap();
    let attributes = event.attributes.as_bytes();
    let mut again = Vec::new();
    leaf::rebuild(&event, attributes, &mut again).unwrap();
    assert_eq!(again, bytes);
    event.tags.digested = false;
    let mut old = Vec::new();
    leaf::rebuild(&event, attributes, &mut old).unwrap();
    assert_eq!(old.len(), 70_000);
    assert!(!leaf::decode(&old).unwrap().tags.digested);
    assert_eq!(tree::hash(&old).0, leaf_hash(&old));
}

/// The path of a tile, as C2SP tlog-tiles writes it.
fn path(index: u64, width: usize) -> String {
    let mut path = format!("{:03}", index % 1_000);
    let mut rest = index / 1_000;
    while rest > 0 {
        path = format!("x{:03}/{path}", rest % 1_000);
        rest /= 1_000;
    }
    if width < 256 { format!("{path}.p/{width}") } else { path }
}

/// Tessera's `fsck`, built from the Go module `github.com/transparency-dev/tessera/cmd/fsck`.
#[test]
fn tessera_verifies_a_log_with_large_events() {
    let Ok(fsck) = std::env::var("TESSERA_FSCK") else {
        eprintln!("skipped: TESSERA_FSCK does not name the program");
        return;
    };
    let dir = tempfile::tempdir().unwrap();
    let clock = Arc::new(ManualClock::new(START_MS));
    let options = Options::balanced();
    let (store, _) =
        Store::open_quiet(Arc::new(RealFs), clock.clone(), &dir.path().join("store"), options)
            .unwrap();
    append(&store, &clock, "main", 600);
    for size in SIZES {
        let mut batch = Batch::new("main");
        batch.push(&sized(size, true), now_ns(&clock)).unwrap();
        store.append(batch).unwrap();
    }
    store.flush().unwrap();
    let log = dir.path().join("log");
    let put = |name: String, bytes: &[u8]| {
        let path = log.join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, bytes).unwrap();
    };
    let note = store.checkpoint().unwrap();
    let (size, _) = signed(&note);
    for (index, width) in widths(size) {
        let bundle = store.bundle(index * 256, width).unwrap();
        put(format!("tile/entries/{}", path(index, width)), &bundle);
    }
    let mut nodes = size;
    for level in 0.. {
        for (index, width) in widths(nodes) {
            let hashes = store.tile(level, index, width).unwrap();
            let bytes: Vec<u8> = hashes.iter().flat_map(|hash| hash.0).collect();
            put(format!("tile/{level}/{}", path(index, width)), &bytes);
        }
        nodes /= 256;
        if nodes == 0 {
            break;
        }
    }
    put("checkpoint".to_owned(), note.as_bytes());
    let key = dir.path().join("key");
    std::fs::write(&key, store.verifier_key().unwrap().to_string()).unwrap();
    // With a limit: where it finds a difference, version 1.0.0 does not always end.
    let mut command = std::process::Command::new("timeout");
    command.arg("60").arg(&fsck).arg(format!("--storage_url=file://{}/", log.display()));
    command.arg(format!("--public_key={}", key.display())).args(["--ui=false", "--logtostderr"]);
    let sound = command.output().unwrap();
    let said = String::from_utf8_lossy(&sound.stderr);
    assert!(sound.status.success(), "{said}");
    assert!(said.contains(&format!("Successfully fsck'd log with size {size}")), "{said}");
}
