//! What a segment derives from its events hides none of them: verification computes it again.

use std::path::Path;
use std::sync::Arc;

use forebay_base::checksum::crc32c;
use forebay_base::clock::ManualClock;
use forebay_base::fs::FileSystem;
use forebay_base::fs::sim::{Rng, SimFs};
use forebay_events::segment::Segment;
use forebay_events::store::Fault;

use crate::store_model::{DIR, Model, START_MS};
use crate::store_tamper::{check, last_segment, read, segment_path, write, write_manifest};

/// A closed store of one segment with id pages and several blocks.
fn store() -> SimFs {
    let (disk, clock) = (SimFs::new(3), Arc::new(ManualClock::new(START_MS)));
    let mut options = crate::store_model::options("sync".parse().unwrap());
    options.memory_table_events = 100_000;
    let fs: Arc<dyn FileSystem> = Arc::new(disk.clone());
    let (store, _) =
        forebay_events::Store::open_quiet(fs, clock.clone(), Path::new(DIR), options).unwrap();
    let (mut model, mut rng) = (Model::default(), Rng::new(9));
    for _ in 0..40 {
        model.append(&store, &mut rng, &clock, 20).unwrap();
    }
    model.checkpoint(&store);
    store.flush().unwrap();
    store.close().unwrap();
    model.verify(&disk);
    disk
}

/// Offsets in a footer, from its end.
const FOOTER: usize = 168;

struct File {
    bytes: Vec<u8>,
    salt: u32,
}

impl File {
    fn number(&self, field: usize) -> usize {
        let at = self.bytes.len() - FOOTER + field * 8;
        usize::try_from(u64::from_le_bytes(self.bytes[at..at + 8].try_into().unwrap())).unwrap()
    }

    /// Puts a checksum right.
    fn fix_checksum(&mut self, from: usize, to: usize, mark: u32) {
        let checksum = crc32c(&self.bytes[from..to]) ^ self.salt ^ mark;
        self.bytes[to..to + 4].copy_from_slice(&checksum.to_le_bytes());
    }

    /// The same for the footer.
    fn fix_footer(&mut self) {
        let end = self.bytes.len() - 4;
        let checksum = crc32c(&self.bytes[end + 4 - FOOTER..end]);
        self.bytes[end..].copy_from_slice(&checksum.to_le_bytes());
    }

    fn fix_index(&mut self) {
        let (at, blocks) = (self.number(7), self.number(6));
        self.fix_checksum(at, at + blocks * 104, 0);
    }
}

/// Changes the segment, and puts digest and times in the manifest right.
fn forged(disk: &SimFs, change: &dyn Fn(&mut File)) -> SimFs {
    let disk = disk.fork();
    let (mut manifest, number) = last_segment(&disk);
    let path = segment_path(number);
    let bytes = read(&disk, &path);
    let salt = crc32c(&bytes[..32]);
    let mut file = File { bytes, salt };
    change(&mut file);
    write(&disk, &path, &file.bytes);
    let segment = Segment::open(&disk, &path).unwrap();
    let info = segment.info();
    let end = manifest.len() - 4;
    manifest[end - 56..end - 48].copy_from_slice(&info.time_min_ns.to_le_bytes());
    manifest[end - 48..end - 40].copy_from_slice(&info.time_max_ns.to_le_bytes());
    manifest[end - 32..end].copy_from_slice(&segment.digest().unwrap());
    let checksum = crc32c(&manifest[..end]);
    manifest[end..].copy_from_slice(&checksum.to_le_bytes());
    write_manifest(&disk, &manifest);
    disk
}

/// A change to a file that leaves all its checksums right, and its name.
type Change = (&'static str, Box<dyn Fn(&mut File)>);

/// Where the filter of a block is, and its size.
fn filter_of(file: &File, block: usize) -> (usize, usize) {
    let entry = file.number(7) + block * 104;
    let at = u64::from_le_bytes(file.bytes[entry + 80..entry + 88].try_into().unwrap());
    let size = u32::from_le_bytes(file.bytes[entry + 88..entry + 92].try_into().unwrap());
    (usize::try_from(at).unwrap(), size as usize)
}

/// Changes a byte in the index entry of the third block.
fn index(offset: usize) -> impl Fn(&mut File) {
    move |file| {
        let at = file.number(7) + 2 * 104 + offset;
        file.bytes[at] ^= 1;
        file.fix_index();
    }
}

fn changes() -> Vec<Change> {
    vec![
        (
            "a filter is empty",
            Box::new(|file| {
                let (at, size) = filter_of(file, 3);
                file.bytes[at..at + size].fill(0);
                file.fix_checksum(at, at + size, 3);
            }),
        ),
        (
            "a filter has everything",
            Box::new(|file| {
                let (at, size) = filter_of(file, 0);
                file.bytes[at..at + size].fill(0xff);
                file.fix_checksum(at, at + size, 0);
            }),
        ),
        ("the earliest time of a block", Box::new(index(16))),
        ("the latest time of a block", Box::new(index(24))),
        ("the lowest position of a block", Box::new(index(32))),
        ("the highest position of a block", Box::new(index(40))),
        ("the lowest id of a block", Box::new(index(48 + 15))),
        ("the highest id of a block", Box::new(index(64 + 15))),
        (
            "an id page",
            Box::new(|file| {
                // Everything is one page's size: the first page begins with the first entry.
                let (at, directory) = (file.number(10), file.number(11));
                let rows =
                    u32::from_le_bytes(file.bytes[directory..directory + 4].try_into().unwrap());
                assert!(file.number(9) > 0 && rows > 0, "the segment has id pages");
                let end = at + rows as usize * 5;
                file.bytes[at + 2] ^= 1;
                file.fix_checksum(at, end, 0);
            }),
        ),
        (
            "the earliest time of the segment",
            Box::new(|file| {
                let at = file.bytes.len() - FOOTER + 4 * 8;
                file.bytes[at] ^= 1;
                file.fix_footer();
            }),
        ),
        (
            "whether filters have words",
            Box::new(|file| {
                let at = file.bytes.len() - FOOTER + 8 * 8;
                file.bytes[at] ^= 1;
                file.fix_footer();
            }),
        ),
    ]
}

#[test]
fn a_segment_whose_derived_data_was_changed_with_all_checksums_is_reported() {
    let disk = store();
    assert_eq!(check(&forged(&disk, &|_| ()), &[], None).faults, [], "the tools change nothing");
    for (name, change) in changes() {
        let disk = forged(&disk, &*change);
        let faults = check(&disk, &[], None).faults;
        assert!(matches!(faults[..], [Fault::Segment { .. }, ..]), "{name}: {faults:?}");
    }
}

#[test]
fn times_of_a_segment_changed_in_the_manifest_alone_are_reported() {
    let disk = store();
    let (mut manifest, _) = last_segment(&disk);
    let end = manifest.len() - 4;
    manifest[end - 48] ^= 1;
    let checksum = crc32c(&manifest[..end]);
    manifest[end..].copy_from_slice(&checksum.to_le_bytes());
    write_manifest(&disk, &manifest);
    let faults = check(&disk, &[], None).faults;
    assert!(matches!(faults[..], [Fault::Segment { .. }, ..]), "{faults:?}");
}
