//! Noncurrent versions, delete markers and classes count wherever prefixes are ranked, filtered and
//! compared: what is billed is not hidden behind what a reader sees.

use forebay_inventory::cost::{Pricer, Prices};
use forebay_inventory::diff::{Change, DiffOptions, Rank, diff};
use forebay_inventory::format::histogram::Amount;
use forebay_inventory::index::{Filter, Index, IndexError, Order, SortBy};
use forebay_inventory::object::{Classes, Kind, Month, Object};

use crate::oracle::{Listed, build_at, options};

const GIB: u64 = 1 << 30;

/// A row: key, class, kind, bytes.
type Row<'a> = (&'a str, &'a str, Kind, u64);

fn indexed(rows: &[Row<'_>]) -> (tempfile::TempDir, Index) {
    let classes = Classes::new();
    let rows = rows.iter().zip(0..).map(|(&(key, class, kind, size), version)| {
        let (class, modified) = (classes.id(class).unwrap(), Month::from_number(650));
        (key.as_bytes().to_vec(), Object { size, version, modified, class, kind })
    });
    let source = Listed(vec![rows.collect()]);
    let dir = tempfile::tempdir().unwrap();
    build_at(dir.path(), &source, &classes, &options()).unwrap();
    let index = Index::open(dir.path()).unwrap();
    (dir, index)
}

const CURRENT: Kind = Kind::Current;
const OLD: Kind = Kind::Noncurrent;

/// `hidden/` has 100 GiB of noncurrent versions and one visible byte; `shown/` has a GiB.
const BUCKET: [Row<'static>; 7] = [
    ("hidden/a", "STANDARD", CURRENT, 1),
    ("hidden/a", "STANDARD", OLD, 60 * GIB),
    ("hidden/b", "GLACIER", OLD, 40 * GIB),
    ("hidden/b", "STANDARD", Kind::DeleteMarker, 0),
    ("hidden/c", "STANDARD", Kind::DeleteMarker, 0),
    ("shown/a", "STANDARD", CURRENT, GIB / 2),
    ("shown/b", "STANDARD", CURRENT, GIB / 2),
];

#[test]
fn a_hundred_gibibytes_of_noncurrent_versions_rank_first() {
    let (_dir, index) = indexed(&BUCKET);
    let root = index.root().unwrap();
    let prices = Prices::aws_us_east_1().unwrap();
    let pricer = Pricer::new(&index, &prices).unwrap();
    let glacier = index.class("GLACIER").unwrap();
    assert!(index.class("STANDARD_IA").is_none());
    assert_eq!(index.class_names(), ["GLACIER", "STANDARD"]);
    let order = |by| Order::from(by).priced(Some(&pricer));
    let in_glacier = |by| order(by).in_class(glacier);
    for (order, first) in [
        (order(SortBy::default()), "hidden"),
        (order(SortBy::Noncurrent), "hidden"),
        (order(SortBy::DeleteMarkers), "hidden"),
        (order(SortBy::Cost), "hidden"),
        (in_glacier(SortBy::Billed), "hidden"),
        (in_glacier(SortBy::Cost), "hidden"),
        (order(SortBy::Bytes), "shown"),
        (order(SortBy::Objects), "shown"),
        (order(SortBy::Name), "hidden"),
    ] {
        let page = root.page(order, 0, 2).unwrap();
        assert_eq!(page.nodes[0].name(), first.as_bytes(), "{order:?}");
        // No share of the whole exceeds it.
        let whole = root.figure(order).unwrap();
        let parts: Vec<f64> =
            page.nodes.iter().map(|node| node.figure(order).unwrap() / whole).collect();
        assert!(parts.iter().all(|part| (0.0..=1.0).contains(part)), "{order:?}: {parts:?}");
        if order.by() != SortBy::Name {
            let top = root.top(b"", order, 1, None).unwrap();
            assert_eq!(top[0].prefix, [first.as_bytes(), b"/"].concat(), "{order:?}");
        }
    }
    let hidden = index.get(b"hidden/").unwrap().unwrap();
    let totals = hidden.totals().unwrap();
    assert_eq!(totals.billed(), Amount { objects: 3, bytes: 100 * GIB + 1 });
    assert_eq!((totals.noncurrent.bytes, totals.delete_markers), (100 * GIB, 2));
    let cost = hidden.figure(order(SortBy::Cost)).unwrap();
    assert_eq!(cost.to_bits(), pricer.cost(&hidden).unwrap().total.to_bits());
    let unpriced = root.page(SortBy::Cost, 0, 2).unwrap_err();
    assert!(matches!(unpriced, IndexError::Cost("there are no prices")), "{unpriced}");
}

#[test]
fn prefixes_are_filtered_by_what_is_billed() {
    let (_dir, index) = indexed(&BUCKET);
    let root = index.root().unwrap();
    let prices = Prices::aws_us_east_1().unwrap();
    let pricer = Pricer::new(&index, &prices).unwrap();
    let class = index.class("GLACIER");
    let hidden = ["", "hidden/"];
    for filter in [
        Filter { min_billed: 2 * GIB, ..Filter::default() },
        Filter { min_noncurrent: 1, ..Filter::default() },
        Filter { min_delete_markers: 2, ..Filter::default() },
        Filter { min_cost: Some((0.5, &pricer)), ..Filter::default() },
        Filter { class, ..Filter::default() },
        Filter { class, min_noncurrent: 40 * GIB, ..Filter::default() },
    ] {
        let found = root.below_where(b"", filter).map(|found| found.unwrap().prefix);
        assert!(found.eq(hidden.map(|prefix| prefix.as_bytes().to_vec())), "{filter:?}");
    }
    let filter = Filter { class, min_noncurrent: 41 * GIB, ..Filter::default() };
    assert_eq!(root.below_where(b"", filter).count(), 1);
}

/// The changes of `prefix/` alone.
fn changes(old: &[Row<'_>], new: &[Row<'_>], options: &DiffOptions<'_>) -> Vec<Change> {
    let ((_old_dir, old), (_new_dir, new)) = (indexed(old), indexed(new));
    let options = DiffOptions { depth: Some(1), top: 10, ..options.clone() };
    diff(&old, &new, &options).unwrap()
}

#[test]
fn a_move_to_another_class_and_noncurrent_growth_are_changes() {
    let prices = Prices::aws_us_east_1().unwrap();
    let prices = Some(&prices);
    let old = [("p/a", "STANDARD", CURRENT, 500 * GIB), ("q/a", "STANDARD", CURRENT, GIB)];
    let moved = [("p/a", "GLACIER", CURRENT, 500 * GIB), ("q/a", "STANDARD", CURRENT, 2 * GIB)];
    let question = DiffOptions { prices, ..DiffOptions::default() };
    let found = changes(&old, &moved, &question);
    let prefixes: Vec<&[u8]> = found.iter().map(|change| &*change.prefix).collect();
    assert_eq!(prefixes, [b"p/", b"q/"], "500 GiB that moved are more than one that was added");
    assert_eq!((found[0].billed(), found[0].bytes(), found[0].objects()), (0, 0, 0));
    let of_class: Vec<(&str, i128)> =
        found[0].classes.iter().map(|class| (class.class.as_str(), class.bytes())).collect();
    let gib = i128::from(GIB);
    assert_eq!(of_class, [("GLACIER", 500 * gib), ("STANDARD", -500 * gib)]);
    let (before, after) = found[0].cost.unwrap();
    assert!(before > 11.0 && after < 2.0, "{before} {after}");

    let versions = [
        ("p/a", "STANDARD", CURRENT, 500 * GIB),
        ("p/b", "STANDARD", OLD, 900 * GIB),
        ("q/a", "STANDARD", CURRENT, GIB),
        ("q/a", "STANDARD", Kind::DeleteMarker, 0),
    ];
    let found = changes(&old, &versions, &question);
    assert_eq!((found[0].billed(), found[0].bytes()), (900 * gib, 0));
    assert_eq!((found[0].noncurrent(), found[0].classes.len()), (900 * gib, 1));
    assert_eq!((found[1].delete_markers(), found[1].billed()), (1, 0), "a marker is a change");
    assert_eq!(found.len(), 2);

    // The current objects became noncurrent: the same bytes are billed.
    let replaced = [("p/a", "STANDARD", OLD, 500 * GIB), ("q/a", "STANDARD", CURRENT, GIB)];
    let found = changes(&old, &replaced, &question);
    assert_eq!((found.len(), found[0].billed(), found[0].bytes()), (1, 0, -500 * gib));
}

#[test]
fn changes_are_ranked_by_every_figure_and_within_a_class() {
    let prices = Prices::aws_us_east_1().unwrap();
    let old = [("a/1", "STANDARD", CURRENT, GIB), ("b/1", "GLACIER", CURRENT, GIB)];
    let new = [
        // The most billed bytes, and cheap.
        ("a/1", "STANDARD", CURRENT, GIB),
        ("a/2", "DEEP_ARCHIVE", OLD, 20 * GIB),
        // The most current bytes, and expensive.
        ("b/1", "GLACIER", CURRENT, GIB),
        ("b/2", "STANDARD", CURRENT, 10 * GIB),
        // The most objects.
        ("c/1", "STANDARD", CURRENT, 1),
        ("c/2", "STANDARD", CURRENT, 1),
        ("c/3", "STANDARD", CURRENT, 1),
        // The most delete markers.
        ("d/1", "STANDARD", Kind::DeleteMarker, 0),
        ("d/2", "STANDARD", Kind::DeleteMarker, 0),
    ];
    for (by, first) in [
        (SortBy::Billed, "a/"),
        (SortBy::Bytes, "b/"),
        (SortBy::Objects, "c/"),
        (SortBy::Noncurrent, "a/"),
        (SortBy::DeleteMarkers, "d/"),
        (SortBy::Cost, "b/"),
        (SortBy::Name, "a/"),
    ] {
        for rank in [Rank::Change, Rank::Growth] {
            let prices = Some(&prices);
            let question = DiffOptions { by, rank, prices, ..DiffOptions::default() };
            let found = changes(&old, &new, &question);
            let found = String::from_utf8_lossy(&found[0].prefix).into_owned();
            assert_eq!(found, first, "{by:?} {rank:?}");
        }
    }
    let in_archive = DiffOptions { class: Some("DEEP_ARCHIVE"), ..DiffOptions::default() };
    let found = changes(&old, &new, &in_archive);
    assert_eq!((found.len(), &*found[0].prefix), (1, &b"a/"[..]));
    let shrunk = DiffOptions { rank: Rank::Shrinkage, ..DiffOptions::default() };
    assert_eq!(changes(&old, &new, &shrunk), []);
    assert_eq!(changes(&new, &old, &shrunk)[0].prefix, b"a/");
    // What another class costs more does not count, and is shown with the change.
    let (by, prices) = (SortBy::Cost, Some(&prices));
    let glacier = DiffOptions { class: Some("GLACIER"), by, prices, ..DiffOptions::default() };
    let old = [("a/1", "GLACIER", CURRENT, GIB), ("b/1", "GLACIER", CURRENT, GIB)];
    let new = [
        ("a/1", "GLACIER", CURRENT, 100 * GIB),
        ("b/1", "GLACIER", CURRENT, 2 * GIB),
        ("b/2", "STANDARD", CURRENT, 900 * GIB),
    ];
    let found = changes(&old, &new, &glacier);
    let prefixes: Vec<&[u8]> = found.iter().map(|change| &*change.prefix).collect();
    let below: Vec<_> = prefixes.into_iter().filter(|prefix| !prefix.is_empty()).collect();
    assert_eq!(below, [b"a/", b"b/"]);
    let cost = |at: usize| found[at].cost.map(|(old, new)| new - old).unwrap();
    let at = |name: &[u8]| found.iter().position(|change| change.prefix == name).unwrap();
    assert!(cost(at(b"b/")) > cost(at(b"a/")), "the cost of a prefix is that of all its classes");
}

#[test]
fn a_change_of_nothing_but_the_cost_is_found_by_cost() {
    let prices = Prices::aws_us_east_1().unwrap();
    // The same bytes in as many objects; the smaller one is billed as 128 KiB.
    let of = |small: u64| {
        let rest = (1 << 30) - small;
        [("p/a", "STANDARD_IA", CURRENT, small), ("p/b", "STANDARD_IA", CURRENT, rest)]
    };
    let (old, new) = (of(1), of(1 << 17));
    let question = DiffOptions { prices: Some(&prices), ..DiffOptions::default() };
    assert_eq!(changes(&old, &new, &question), []);
    let question = DiffOptions { by: SortBy::Cost, ..question };
    let found = changes(&old, &new, &question);
    let (before, after) = found[0].cost.unwrap();
    assert!(before > after && found[0].classes.is_empty(), "{before} {after}");
}
