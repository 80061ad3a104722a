//! What is made up stays the same, and reads back as what it was.

use std::collections::{BTreeMap, HashSet};
use std::path::Path;
use std::sync::Arc;

use forebay_base::bytes::ByteSize;
use forebay_base::fs::{FileSystem, RealFs};

use super::*;
use crate::builder::{Monitor, OnBadRow, Options, build};
use crate::index::Index;
use crate::object::Classes;
use crate::source::{Settings, Source, Spec, open};

#[test]
fn a_load_is_the_same_for_the_same_seed_and_its_keys_are_different() {
    for shape in Shape::ALL {
        let load = Load { shape, seed: 7 };
        let (mut key, mut again) = (Vec::new(), Vec::new());
        let mut keys = HashSet::new();
        for i in 0..5000 {
            assert_eq!(load.object(i, &mut key), load.object(i, &mut again));
            assert_eq!(key, again);
            assert!(keys.insert(key.clone()), "{}", String::from_utf8_lossy(&key));
        }
        assert_ne!(Load { shape, seed: 8 }.object(1, &mut again), load.object(1, &mut key));
    }
}

/// Builds an index; returns the files of it that hold what is known of prefixes.
fn index(dir: &Path, source: &dyn Source, classes: &Classes) -> BTreeMap<String, Vec<u8>> {
    let fs: Arc<dyn FileSystem> = Arc::new(RealFs);
    let options = Options {
        memory: ByteSize(16 << 20),
        threads: 2,
        delimiter: b'/',
        histograms: true,
        on_bad_row: OnBadRow::Fail,
        on_duplicate: OnBadRow::Fail,
        expect_rows: Some(1001),
        replace: false,
        now_ms: 0,
    };
    build(&fs, source, classes, dir, &options, &Monitor::default()).unwrap();
    Index::open(dir).unwrap().verify().unwrap();
    let files = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap());
    let name = |entry: &std::fs::DirEntry| entry.file_name().to_string_lossy().into_owned();
    files
        .filter(|entry| ["nodes", "table", "order"].iter().any(|of| name(entry).starts_with(of)))
        .map(|entry| (name(&entry), std::fs::read(entry.path()).unwrap()))
        .collect()
}

#[test]
fn an_inventory_of_either_kind_makes_the_index_of_what_was_made_up() {
    for shape in Shape::ALL {
        let load = Load { shape, seed: 3 };
        let classes = Arc::new(Classes::new());
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        let source = MadeUpSource { load, objects: 1001, parts: 4, classes: Arc::clone(&classes) };
        let expected = index(&at("made-up"), &source, &classes);
        assert_eq!(expected.len(), 3);
        for (name, format) in [("parquet", Format::Parquet), ("csv", Format::Csv)] {
            let layout = Layout { format, objects: 1001, files: 3, group_rows: 200 };
            let manifest = load.write(&at(name), &layout).unwrap();
            let classes = Arc::new(Classes::new());
            let settings = Settings::new(Arc::clone(&classes));
            let spec: Spec = manifest.to_str().unwrap().parse().unwrap();
            let source = open(&[spec], &settings).unwrap();
            let found = index(&at(&format!("{name}-index")), source.as_ref(), &classes);
            assert!(found == expected, "{} by {name}", shape.name());
        }
    }
}
