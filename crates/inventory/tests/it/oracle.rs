//! The plain way: every object is added at every prefix of its key.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use forebay_base::bytes::ByteSize;
use forebay_base::fs::RealFs;
use forebay_inventory::builder::{self, BuildError, Built, Monitor, OnBadRow, Options};
use forebay_inventory::format::histogram::Amount;
use forebay_inventory::index::{Filter, Index, Node, Order, SortBy, Totals};
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
    /// Current objects.
    pub(crate) fn total(&self) -> Amount {
        self.of(None, Some(false))
    }

    /// Objects of one class or all, current or noncurrent or both.
    pub(crate) fn of(&self, class: Option<&str>, noncurrent: Option<bool>) -> Amount {
        let mut total = Amount::default();
        let wanted = self.classes.iter().filter(|((of, old), _)| {
            class.is_none_or(|class| of == class) && noncurrent.is_none_or(|wanted| *old == wanted)
        });
        wanted.for_each(|(_, amount)| total.add(*amount));
        total
    }

    pub(crate) fn totals(&self) -> Totals {
        let (current, noncurrent) = (self.total(), self.of(None, Some(true)));
        Totals { current, noncurrent, delete_markers: self.markers }
    }

    /// What a key compares, of one class or all.
    pub(crate) fn figure(&self, by: SortBy, class: Option<&str>) -> u64 {
        match by {
            SortBy::Billed => self.of(class, None).bytes,
            SortBy::Bytes => self.of(class, Some(false)).bytes,
            SortBy::Objects => self.of(class, Some(false)).objects,
            SortBy::Noncurrent => self.of(class, Some(true)).bytes,
            SortBy::DeleteMarkers => self.markers,
            SortBy::Cost => panic!("there are no prices"),
            SortBy::Name => 0,
        }
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
    assert_eq!((node.totals().unwrap(), stats.totals()), (counted.totals(), counted.totals()));
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
        check_children(&node, prefix, &children, index);
    }
}

/// Every key that needs no prices.
pub(crate) const KEYS: [SortBy; 6] = [
    SortBy::Billed,
    SortBy::Bytes,
    SortBy::Objects,
    SortBy::Noncurrent,
    SortBy::DeleteMarkers,
    SortBy::Name,
];

/// Orders of an index: by every key, and by some of the objects of one class.
fn orders(index: &Index) -> Vec<(Order<'static>, Option<String>)> {
    let class = index.class_names().first().map(|name| (*name).to_owned());
    let of_class = class.as_deref().and_then(|class| index.class(class));
    KEYS.iter()
        .flat_map(|&by| {
            let order = Order::from(by);
            let in_class = of_class
                .filter(|_| matches!(by, SortBy::Billed | SortBy::Noncurrent))
                .map(|slots| (order.in_class(slots), class.clone()));
            std::iter::once((order, None)).chain(in_class)
        })
        .collect()
}

fn check_children(
    node: &Node<'_>,
    prefix: &[u8],
    children: &[(&Vec<u8>, &Counted)],
    index: &Index,
) {
    assert_eq!(node.child_count(), children.len() as u64);
    let name = |child: &[u8]| child[prefix.len()..child.len() - 1].to_vec();
    for (order, class) in orders(index) {
        let mut sorted = children.to_vec();
        let size = |counted: &Counted| counted.figure(order.by(), class.as_deref());
        sorted.sort_by_cached_key(|(_, counted)| std::cmp::Reverse(size(counted)));
        for (offset, limit) in [(0, 3), (0, usize::MAX), (1, 2), (70, 100), (5000, 10)] {
            let page = node.page(order, offset as u64, limit).unwrap();
            assert_eq!(page.total, children.len() as u64);
            let names: Vec<_> = page.nodes.iter().map(|node| node.name().to_vec()).collect();
            let expected: Vec<_> =
                sorted.iter().skip(offset).take(limit).map(|(child, _)| name(child)).collect();
            assert_eq!(names, expected, "{order:?} {offset} {limit}");
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
        .collect();
    for wanted in [None, Some(1), Some(2), Some(3)] {
        let at_depth: Vec<_> = below
            .iter()
            .filter(|(other, _)| wanted.is_none_or(|wanted| depth(other) == depth(prefix) + wanted))
            .collect();
        for (order, class) in orders(index) {
            let size = |counted: &Counted| counted.figure(order.by(), class.as_deref());
            let mut sizes: Vec<u64> = at_depth.iter().map(|(_, counted)| size(counted)).collect();
            sizes.sort_unstable_by_key(|&size| std::cmp::Reverse(size));
            for count in [1, 10, 100, usize::MAX] {
                let found = node.top(prefix, order, count, wanted).unwrap();
                let mut seen = std::collections::BTreeSet::new();
                let found: Vec<u64> = found
                    .iter()
                    .map(|found| {
                        assert!(seen.insert(found.prefix.clone()));
                        size(&expected[&found.prefix])
                    })
                    .collect();
                assert_eq!(found, sizes[..count.min(sizes.len())], "{order:?} {count}");
            }
        }
        check_filters(index, &node, prefix, &below, wanted);
    }
}

fn check_filters(
    index: &Index,
    node: &Node<'_>,
    prefix: &[u8],
    below: &[(&Vec<u8>, &Counted)],
    depth: Option<u64>,
) {
    let depth_of = |prefix: &[u8]| prefix.iter().filter(|&&byte| byte == b'/').count() as u64;
    let class = index.class_names().first().map(|name| (*name).to_owned());
    let of_class = class.as_deref().and_then(|class| index.class(class));
    let none = Filter { depth, ..Filter::default() };
    for filter in [
        none,
        Filter { min_objects: 2, ..none },
        Filter { min_bytes: 1 << 20, ..none },
        Filter { min_objects: 3, min_bytes: 1000, ..none },
        Filter { min_billed: 1 << 21, ..none },
        Filter { min_noncurrent: 1, ..none },
        Filter { min_delete_markers: 2, ..none },
        Filter { class: of_class, ..none },
        Filter { class: of_class, min_billed: 1 << 20, ..none },
    ] {
        let found: Vec<_> =
            node.below_where(prefix, filter).map(|found| found.unwrap().prefix).collect();
        let class = filter.class.and(class.as_deref());
        let passes = |counted: &Counted| {
            let least = [
                (SortBy::Billed, filter.min_billed),
                (SortBy::Bytes, filter.min_bytes),
                (SortBy::Objects, filter.min_objects),
                (SortBy::Noncurrent, filter.min_noncurrent),
                (SortBy::DeleteMarkers, filter.min_delete_markers),
            ];
            least.iter().all(|&(by, least)| counted.figure(by, class) >= least)
                && class.is_none_or(|class| counted.of(Some(class), None).objects > 0)
        };
        let wanted = below
            .iter()
            .filter(|(other, _)| {
                depth.is_none_or(|depth| depth_of(other) <= depth_of(prefix) + depth)
            })
            .filter(|(_, counted)| passes(counted));
        let expected: Vec<_> =
            std::iter::once(prefix).chain(wanted.map(|(other, _)| other.as_slice())).collect();
        assert_eq!(found, expected, "{filter:?}");
    }
}
