//! The disk is cut at every write and sync of a build: afterwards there is the index before, or the new
//! one, whole, and a build continues as if nothing had happened.

use std::path::Path;
use std::sync::Arc;

use forebay_base::bytes::ByteSize;
use forebay_base::fs::sim::{Fault, SimFs};
use forebay_base::fs::{Access, FileSystem};
use forebay_inventory::builder::{self, BuildError, Built, Monitor, Options};
use forebay_inventory::index::Index;
use forebay_inventory::load::{Load, Shape};
use forebay_inventory::object::{Classes, Kind, Object};

use crate::oracle::{Listed, options};

const DIR: &str = "/data/index";

fn source(count: u64) -> Listed {
    let load = Load { shape: Shape::S3Realistic, seed: count };
    let classes = Classes::new();
    let mut key = Vec::new();
    let rows = (0..count).map(|i| {
        let made_up = load.object(i, &mut key);
        let class = classes.id(made_up.class).unwrap();
        let (size, modified) = (made_up.size, made_up.month());
        (key.clone(), Object { size, version: 0, modified, class, kind: Kind::Current })
    });
    Listed(vec![rows.collect()])
}

fn built(disk: &SimFs, source: &Listed) -> Result<Built, BuildError> {
    // One reader, so that the operations come in the same order every time; so little memory that
    // there are several runs.
    let options = Options { threads: 1, replace: true, memory: ByteSize(1 << 10), ..options() };
    let fs: Arc<dyn FileSystem> = Arc::new(disk.clone());
    let monitor = Monitor::default();
    builder::build(&fs, source, &Classes::new(), Path::new(DIR), &options, &monitor)
}

/// What is there: how many objects the index has, if there is one. It is verified.
fn found(disk: &SimFs) -> Option<u64> {
    let real = tempfile::tempdir().unwrap();
    for entry in disk.list(Path::new(DIR)).unwrap_or_default() {
        let file = disk.open(&Path::new(DIR).join(&entry.name), Access::Read).unwrap();
        let mut bytes = vec![0; usize::try_from(file.len().unwrap()).unwrap()];
        file.read_exact_at(&mut bytes, 0).unwrap();
        std::fs::write(real.path().join(&entry.name), bytes).unwrap();
    }
    if !real.path().join("index.json").exists() {
        return None;
    }
    let index = Index::open(real.path()).unwrap();
    index.verify().unwrap();
    Some(index.meta().objects)
}

/// Files beside those of the index.
fn leftovers(disk: &SimFs) -> Vec<String> {
    let names = disk.list(Path::new(DIR)).unwrap_or_default();
    let names = names.into_iter().map(|entry| entry.name.into_string().unwrap());
    let known = ["index.json", "lock", "nodes.", "table.", "order.", "provenance.json."];
    let left: Vec<String> =
        names.filter(|name| !known.iter().any(|k| name.starts_with(k))).collect();
    left
}

/// How far apart the operations are that are cut: every one takes a minute and a half, and is what CI
/// asks for with `FOREBAY_CRASH_STRIDE=1`.
fn stride() -> usize {
    let asked = std::env::var("FOREBAY_CRASH_STRIDE").ok().and_then(|text| text.parse().ok());
    asked.filter(|&stride| stride > 0).unwrap_or(7)
}

fn cut_everywhere(before: Option<&Listed>, lost: impl Fn(&SimFs, u64) -> SimFs) {
    let (new, old_count) = (source(1200), before.map(|old| old.0[0].len() as u64));
    for at in (0..).step_by(stride()) {
        let disk = SimFs::new(at);
        if let Some(old) = before {
            built(&disk, old).unwrap();
        }
        disk.plan(disk.operations() + at, Fault::Stop);
        let result = built(&disk, &new);
        if !disk.stopped() {
            assert_eq!(found(&disk), Some(1200));
            assert!(leftovers(&disk).is_empty(), "{:?}", leftovers(&disk));
            assert!(at > 20, "{at} operations");
            return;
        }
        let left = lost(&disk, at);
        let there = found(&left);
        match result {
            Ok(_) => assert_eq!(there, Some(1200), "operation {at}"),
            Err(_) => assert!(there == old_count || there == Some(1200), "operation {at}"),
        }
        built(&left, &new).unwrap();
        assert_eq!(found(&left), Some(1200));
        assert!(leftovers(&left).is_empty(), "operation {at}: {:?}", leftovers(&left));
    }
}

#[test]
fn power_lost_at_every_operation_leaves_the_old_index_or_the_new_one() {
    cut_everywhere(None, |disk, at| disk.power_off(at));
    cut_everywhere(Some(&source(50)), |disk, at| disk.power_off(at));
}

#[test]
fn killed_at_every_operation_leaves_the_old_index_or_the_new_one() {
    cut_everywhere(Some(&source(50)), |disk, _| disk.kill());
}

#[test]
fn a_full_disk_ends_the_build_and_leaves_the_old_index() {
    let disk = SimFs::new(1);
    built(&disk, &source(50)).unwrap();
    for capacity in [0, 1 << 10, 1 << 14, 1 << 16] {
        disk.set_capacity(Some(capacity));
        assert!(built(&disk, &source(1200)).is_err());
        disk.set_capacity(None);
        assert_eq!(found(&disk), Some(50));
    }
    built(&disk, &source(1200)).unwrap();
    assert_eq!(found(&disk), Some(1200));
}
