//! The plain way: every object is added at every prefix of its key.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use forebay_base::bytes::ByteSize;
use forebay_base::fs::RealFs;
use forebay_inventory::builder::{self, BuildError, Built, Monitor, OnBadRow, Options};
use forebay_inventory::format::histogram::Amount;
use forebay_inventory::index::{Index, Node, SortBy};
use forebay_inventory::object::{Batch, Classes, Kind, Month, Object};
use forebay_inventory::source::{Part, Provenance, RowSink, Source, SourceError};

/// Objects in parts, as a source.
#[derive(Debug, Clone, Default)]
pub(crate) struct Listed(pub(crate) Vec<Vec<(Vec<u8>, Object)>>);

struct ListedPart {
    name: String,
    rows: Vec<(Vec<u8>, Object)>,
}

impl Source for Listed {
    fn provenance(&self) -> Provenance {
        let rows = self.0.iter().map(|part| part.len() as u64).sum();
        Provenance { rows: Some(rows), ..Provenance::default() }
    }

    fn parts(&self) -> Result<Vec<Box<dyn Part>>, SourceError> {
        let parts = self.0.iter().enumerate().map(|(i, rows)| {
            let part: Box<dyn Part> =
                Box::new(ListedPart { name: format!("part {i}"), rows: rows.clone() });
            part
        });
        Ok(parts.collect())
    }
}

impl Part for ListedPart {
    fn name(&self) -> &str {
        &self.name
    }

    fn size(&self) -> Option<u64> {
        None
    }

    fn read(self: Box<Self>, sink: &mut dyn RowSink) -> Result<(), SourceError> {
        let mut batch = Batch::default();
        for (key, object) in &self.rows {
            batch.push(key, *object).unwrap();
            if batch.len() == 100 {
                sink.rows(&mut batch)?;
            }
        }
        sink.rows(&mut batch)?;
        Ok(())
    }
}

pub(crate) fn options() -> Options {
    Options {
        memory: ByteSize(64 << 20),
        threads: 2,
        delimiter: b'/',
        histograms: true,
        on_bad_row: OnBadRow::Fail,
        on_duplicate: OnBadRow::Fail,
        expect_rows: None,
        replace: false,
        now_ms: 0,
    }
}

pub(crate) fn build_at(
    dir: &Path,
    source: &dyn Source,
    classes: &Classes,
    options: &Options,
) -> Result<Built, BuildError> {
    let fs: Arc<dyn forebay_base::fs::FileSystem> = Arc::new(RealFs);
    builder::build(&fs, source, classes, dir, options, &Monitor::default())
}

/// What is counted at one prefix.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(crate) struct Counted {
    pub(crate) classes: BTreeMap<(String, bool), Amount>,
    pub(crate) sizes: BTreeMap<(String, bool, usize), Amount>,
    pub(crate) months: BTreeMap<Month, Amount>,
    pub(crate) markers: u64,
}

impl Counted {
    pub(crate) fn total(&self) -> Amount {
        let mut total = Amount::default();
        let current = self.classes.iter().filter(|((_, noncurrent), _)| !noncurrent);
        current.for_each(|(_, amount)| total.add(*amount));
        total
    }
}

/// All prefixes, by the plain way.
pub(crate) fn naive(source: &Listed, classes: &Classes) -> BTreeMap<Vec<u8>, Counted> {
    let names = classes.names();
    let mut all = BTreeMap::from([(Vec::new(), Counted::default())]);
    for (key, object) in source.0.iter().flatten() {
        let ends = key.iter().enumerate().filter(|(_, byte)| **byte == b'/').map(|(at, _)| at + 1);
        for end in std::iter::once(0).chain(ends) {
            let counted: &mut Counted = all.entry(key[..end].to_vec()).or_default();
            if object.kind == Kind::DeleteMarker {
                counted.markers += 1;
                continue;
            }
            let amount = Amount { objects: 1, bytes: object.size };
            let class = names[usize::from(object.class.0)].clone();
            let noncurrent = object.kind == Kind::Noncurrent;
            let cell = (0..64).find(|&cell| object.size < 1_u64 << cell).unwrap();
            counted.classes.entry((class.clone(), noncurrent)).or_default().add(amount);
            counted.sizes.entry((class, noncurrent, cell)).or_default().add(amount);
            counted.months.entry(object.modified).or_default().add(amount);
        }
    }
    all
}

/// What an index says of a node.
pub(crate) fn counted(node: &Node<'_>) -> Counted {
    let stats = node.stats().unwrap();
    let (classes, months) = node.histograms(&stats).unwrap().unwrap();
    let mut counted = Counted { markers: stats.delete_markers, ..Counted::default() };
    for class in classes {
        let key = (class.name.to_owned(), class.noncurrent);
        for (cell, amount) in class.sizes.unwrap().iter() {
            counted.sizes.insert((key.0.clone(), key.1, cell), amount);
        }
        counted.classes.insert(key, class.total);
    }
    counted.months.extend(months);
    assert_eq!(counted.total(), stats.total);
    assert_eq!(node.total().unwrap(), stats.total);
    counted
}

/// Compares every answer of an index with the plain way.
pub(crate) fn check(index: &Index, expected: &BTreeMap<Vec<u8>, Counted>) {
    assert_eq!(index.meta().prefixes, expected.len() as u64);
    assert_eq!(index.verify().unwrap().prefixes, expected.len() as u64);
    for (prefix, numbers) in expected {
        let node = index.get(prefix).unwrap().unwrap();
        assert_eq!(&counted(&node), numbers, "{}", String::from_utf8_lossy(prefix));
        let below = expected.range(prefix.clone()..).skip(1);
        let below = below.take_while(|(other, _)| other.starts_with(prefix));
        assert_eq!(node.descendants(), below.clone().count() as u64);
        let depth = |prefix: &[u8]| prefix.iter().filter(|&&byte| byte == b'/').count();
        assert_eq!(node.depth(), depth(prefix) as u64);
        let children: Vec<_> =
            below.filter(|(other, _)| depth(other) == depth(prefix) + 1).collect();
        check_children(&node, prefix, &children);
    }
}

fn check_children(node: &Node<'_>, prefix: &[u8], children: &[(&Vec<u8>, &Counted)]) {
    assert_eq!(node.child_count(), children.len() as u64);
    let name = |child: &[u8]| child[prefix.len()..child.len() - 1].to_vec();
    for sort in [SortBy::Name, SortBy::Bytes, SortBy::Objects] {
        let mut sorted = children.to_vec();
        match sort {
            SortBy::Name => {}
            SortBy::Bytes => sorted.sort_by_key(|(_, c)| std::cmp::Reverse(c.total().bytes)),
            SortBy::Objects => sorted.sort_by_key(|(_, c)| std::cmp::Reverse(c.total().objects)),
        }
        for (offset, limit) in [(0, 3), (0, usize::MAX), (1, 2), (70, 100), (5000, 10)] {
            let page = node.page(sort, offset as u64, limit).unwrap();
            assert_eq!(page.total, children.len() as u64);
            let names: Vec<_> = page.nodes.iter().map(|node| node.name().to_vec()).collect();
            let expected: Vec<_> =
                sorted.iter().skip(offset).take(limit).map(|(child, _)| name(child)).collect();
            assert_eq!(names, expected, "{sort:?} {offset} {limit}");
        }
    }
}

/// Compares the largest prefixes, and those of a least size, with the plain way.
pub(crate) fn check_largest(index: &Index, expected: &BTreeMap<Vec<u8>, Counted>, prefix: &[u8]) {
    let node = index.get(prefix).unwrap().unwrap();
    let depth = |prefix: &[u8]| prefix.iter().filter(|&&byte| byte == b'/').count() as u64;
    let below: Vec<_> = expected
        .iter()
        .filter(|(other, _)| other.starts_with(prefix) && other.len() > prefix.len())
        .map(|(other, counted)| (other.clone(), counted.total()))
        .collect();
    for wanted in [None, Some(1), Some(2), Some(3)] {
        let at_depth: Vec<_> = below
            .iter()
            .filter(|(other, _)| wanted.is_none_or(|wanted| depth(other) == depth(prefix) + wanted))
            .collect();
        for sort in [SortBy::Bytes, SortBy::Objects] {
            let size = |amount: Amount| match sort {
                SortBy::Objects => amount.objects,
                _ => amount.bytes,
            };
            let mut sizes: Vec<u64> = at_depth.iter().map(|(_, amount)| size(*amount)).collect();
            sizes.sort_unstable_by_key(|&size| std::cmp::Reverse(size));
            for count in [1, 10, 100, usize::MAX] {
                let found = node.top(prefix, sort, count, wanted).unwrap();
                let mut seen = std::collections::BTreeSet::new();
                let found: Vec<u64> = found
                    .iter()
                    .map(|found| {
                        let total = found.node.total().unwrap();
                        assert_eq!(expected[&found.prefix].total(), total);
                        assert!(seen.insert(found.prefix.clone()));
                        size(total)
                    })
                    .collect();
                assert_eq!(found, sizes[..count.min(sizes.len())]);
            }
        }
        for (objects, bytes) in [(0, 0), (2, 0), (0, 1 << 20), (3, 1000)] {
            let found: Vec<_> = node
                .below(prefix, wanted, objects, bytes)
                .map(|found| found.unwrap().prefix)
                .collect();
            let expected: Vec<_> = std::iter::once(prefix.to_vec())
                .chain(
                    below
                        .iter()
                        .filter(|(other, amount)| {
                            wanted.is_none_or(|wanted| depth(other) <= depth(prefix) + wanted)
                                && amount.objects >= objects
                                && amount.bytes >= bytes
                        })
                        .map(|(other, _)| other.clone()),
                )
                .collect();
            assert_eq!(found, expected);
        }
    }
}
