//! Costs, differences and small objects, against what is computed object by object.

use std::collections::{BTreeMap, BTreeSet};

use forebay_inventory::cost::{CostError, Pricer, Prices};
use forebay_inventory::diff::{Change, ClassChange, DiffOptions, Rank, Status, diff};
use forebay_inventory::format::histogram::Amount;
use forebay_inventory::index::{Index, IndexError, SortBy};
use forebay_inventory::load::{Load, Shape};
use forebay_inventory::object::{Classes, Kind, Object};
use forebay_inventory::small;

use crate::oracle::{Counted, Listed, build_at, naive, options};

fn load(seed: u64, count: u64, classes: &Classes) -> Listed {
    let load = Load { shape: Shape::S3Realistic, seed };
    let mut key = Vec::new();
    let rows = (0..count).map(|i| {
        let made_up = load.object(i, &mut key);
        let object = Object {
            size: made_up.size,
            version: 0,
            modified: made_up.month(),
            class: classes.id(made_up.class).unwrap(),
            kind: Kind::Current,
        };
        (key.clone(), object)
    });
    Listed(vec![rows.collect()])
}

fn built(
    source: &Listed,
    classes: &Classes,
) -> (tempfile::TempDir, Index, BTreeMap<Vec<u8>, Counted>) {
    let dir = tempfile::tempdir().unwrap();
    build_at(dir.path(), source, classes, &options()).unwrap();
    let index = Index::open(dir.path()).unwrap();
    (dir, index, naive(source, classes))
}

/// What one object is billed for: bytes of its class, of `STANDARD`, and whether it is watched over.
fn billed(class: &str, size: u64) -> (u64, u64, bool) {
    const KIB: u64 = 1024;
    match class {
        "STANDARD_IA" | "ONEZONE_IA" | "GLACIER_IR" => (size.max(128 * KIB), 0, false),
        "GLACIER" | "DEEP_ARCHIVE" => (size + 32 * KIB, 8 * KIB, false),
        "INTELLIGENT_TIERING:FREQUENT" => (size, 0, size >= 128 * KIB),
        _ => (size, 0, false),
    }
}

#[test]
fn a_cost_is_that_of_every_object_by_itself() {
    let classes = Classes::new();
    let mut source = load(3, 4000, &classes);
    let tiered = classes.id("INTELLIGENT_TIERING:FREQUENT").unwrap();
    let strange = classes.id("STRANGE").unwrap();
    for (i, (_, object)) in source.0[0].iter_mut().enumerate() {
        match i % 7 {
            0 => object.class = tiered,
            1 if i % 5 == 0 => object.class = strange,
            _ => {}
        }
    }
    let (_dir, index, _) = built(&source, &classes);
    let prices = Prices::aws_us_east_1().unwrap();
    let pricer = Pricer::new(&index, &prices).unwrap();
    let names = classes.names();
    for prefix in [&b""[..], b"logs/", b"media/", b"lake/"] {
        let below = source.0[0].iter().filter(|(key, _)| key.starts_with(prefix));
        let (mut expected, mut unpriced) = (0.0, 0);
        for (_, object) in below {
            let class = &names[usize::from(object.class.0)];
            let Some(price) = prices.class.get(class) else {
                unpriced += object.size;
                continue;
            };
            let (bytes, standard, watched) = billed(class, object.size);
            // Less than the first step of any price.
            let of = |bytes: u64, price: f64| bytes as f64 / f64::from(1 << 30) * price;
            expected += of(bytes, price.storage[0].price) + of(standard, 0.023);
            expected += if watched { 0.0025 / 1000.0 } else { 0.0 };
        }
        let cost = pricer.cost(&index.get(prefix).unwrap().unwrap()).unwrap();
        assert!((cost.total - expected).abs() < expected * 1e-9, "{} {expected}", cost.total);
        assert_eq!(cost.unpriced.get("STRANGE").copied().unwrap_or(0), unpriced);
    }
    let root = pricer.cost(&index.root().unwrap()).unwrap().total;
    let children = index.root().unwrap().children();
    let sum: f64 = children.map(|child| pricer.cost(&child.unwrap()).unwrap().total).sum();
    assert!((root - sum).abs() < root * 1e-9, "every object is below a child of the root");
}

#[test]
fn small_objects_are_counted_exactly_and_found_where_most_are() {
    let classes = Classes::new();
    let source = load(5, 6000, &classes);
    let (_dir, index, counted) = built(&source, &classes);
    let under = 128 << 10;
    let expected: BTreeMap<&Vec<u8>, Amount> = counted
        .keys()
        .map(|prefix| {
            let mut small = Amount::default();
            source.0[0]
                .iter()
                .filter(|(key, object)| key.starts_with(prefix) && object.size < under)
                .for_each(|(_, object)| small.add(Amount { objects: 1, bytes: object.size }));
            (prefix, small)
        })
        .filter(|(_, small)| small.objects > 0)
        .collect();
    let root = index.root().unwrap();
    let found = small::most_small(&root, b"", under, 40, None).unwrap();
    let mut most: Vec<u64> = expected.values().map(|small| small.objects).collect();
    most.sort_unstable_by_key(|&objects| std::cmp::Reverse(objects));
    most.truncate(40);
    assert_eq!(found.iter().map(|found| found.small.small.objects).collect::<Vec<_>>(), most);
    for found in &found {
        assert_eq!(found.small.small, expected[&found.found.prefix]);
        assert_eq!(found.small.all, counted[&found.found.prefix].total());
    }
    let between = small::small(&root, 100_000).unwrap_err();
    assert!(between.to_string().contains("65536 or 131072"), "{between}");
}

#[test]
fn a_difference_has_every_prefix_that_changed_and_no_other() {
    let classes = Classes::new();
    let old = load(9, 3000, &classes);
    let mut new = old.clone();
    new.0[0].retain(|(key, _)| !key.starts_with(b"backups/"));
    new.0[0].truncate(2000);
    for (key, object) in new.0[0].iter_mut().step_by(50) {
        object.size += 1000;
        key.extend_from_slice(b"-new/x");
    }
    let (_old_dir, old_index, before) = built(&old, &classes);
    let (_new_dir, new_index, after) = built(&new, &classes);
    let none = Counted::default();
    let mut expected: Vec<Change> = before
        .keys()
        .chain(after.keys().filter(|prefix| !before.contains_key(*prefix)))
        .filter_map(|prefix| {
            let (old, new) = (before.get(prefix), after.get(prefix));
            let status = match (old, new) {
                (None, _) => Status::Added,
                (_, None) => Status::Removed,
                (Some(old), Some(new)) if old.classes == new.classes => return None,
                _ => Status::Changed,
            };
            let [old, new] = [old, new].map(|counted| counted.unwrap_or(&none));
            let classes = old.classes.keys().chain(new.classes.keys()).collect::<BTreeSet<_>>();
            let classes = classes.into_iter().filter_map(|class| {
                let of = |counted: &Counted| counted.classes.get(class).copied();
                let (old, new) = (of(old).unwrap_or_default(), of(new).unwrap_or_default());
                let (class, noncurrent) = class.clone();
                (old != new).then_some(ClassChange { class, noncurrent, old, new })
            });
            let classes = classes.collect();
            let (old, new) = (old.totals(), new.totals());
            Some(Change { prefix: prefix.clone(), status, old, new, classes, cost: None })
        })
        .collect();
    let by = SortBy::Bytes;
    let question =
        |rank, top, depth| DiffOptions { rank, by, top, depth, ..DiffOptions::default() };
    let ask = |question| diff(&old_index, &new_index, &question).unwrap();
    let all = ask(question(Rank::Change, usize::MAX, None));
    assert!(all.is_sorted_by_key(|change| std::cmp::Reverse(change.bytes().abs())));
    let mut sorted = all.clone();
    sorted.sort_by(|a, b| a.prefix.cmp(&b.prefix));
    expected.sort_by(|a, b| a.prefix.cmp(&b.prefix));
    assert_eq!(sorted, expected);
    assert_eq!(ask(question(Rank::Change, 7, None)), all[..7]);
    let growth = ask(question(Rank::Growth, usize::MAX, Some(1)));
    assert!(growth.iter().all(|change| change.bytes() >= 0));
    let shrunk = ask(question(Rank::Shrinkage, 1, Some(1)));
    assert!(shrunk[0].bytes() < 0 && shrunk[0].prefix.ends_with(b"/"));
    let depth = |change: &Change| change.prefix.iter().filter(|&&byte| byte == b'/').count();
    assert!(growth.iter().chain(&shrunk).all(|change| depth(change) == 1));
    assert!(diff(&old_index, &old_index, &question(Rank::Change, 10, None)).unwrap().is_empty());
}

#[test]
fn an_abandoned_question_ends_where_it_is() {
    let classes = Classes::new();
    let (_dir, index, _) = built(&load(5, 2000, &classes), &classes);
    let waiting = forebay_base::waiting::Waiting::default();
    let asked = index.until(waiting.gone());
    let mut below = asked.root().unwrap().below(b"", None, 0, 0);
    assert!(below.next().unwrap().is_ok());
    drop(waiting);
    let gone = |error: IndexError| assert!(matches!(error, IndexError::Gone), "{error}");
    gone(below.next().unwrap().unwrap_err());
    assert!(below.next().is_none());
    let question = DiffOptions { top: 10, ..DiffOptions::default() };
    match diff(&asked, &index, &question).unwrap_err() {
        CostError::Index(error) => gone(error),
        error => panic!("{error}"),
    }
    gone(asked.root().unwrap_err());
    // The index itself answers on.
    assert!(index.root().unwrap().below(b"", None, 0, 0).all(|found| found.is_ok()));
}
