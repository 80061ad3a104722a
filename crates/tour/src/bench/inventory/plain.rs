//! The plain aggregation: every object is added at every prefix of its key, in a map. All results
//! are compared with it.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, DefaultHasher};

use anyhow::{Context as _, ensure};
use forebay_inventory::index::{Index, Node};
use forebay_inventory::load::Load;

/// The figures of one prefix: objects and bytes, by the index of the class in [`CLASSES`].
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(super) struct Counted {
    classes: [(u64, u64); CLASSES.len()],
}

/// The classes of generated objects.
const CLASSES: [&str; 5] = ["STANDARD", "STANDARD_IA", "GLACIER", "GLACIER_IR", "DEEP_ARCHIVE"];

impl Counted {
    fn add(&mut self, class: usize, size: u64) {
        if let Some((objects, bytes)) = self.classes.get_mut(class) {
            *objects += 1;
            *bytes += size;
        }
    }

    pub(super) fn objects(&self) -> u64 {
        self.classes.iter().map(|(objects, _)| objects).sum()
    }

    pub(super) fn bytes(&self) -> u64 {
        self.classes.iter().map(|(_, bytes)| bytes).sum()
    }

    /// Returns the figures of an index.
    fn of(node: &Node<'_>) -> anyhow::Result<Self> {
        let stats = node.stats()?;
        let mut counted = Self::default();
        for class in node.classes(&stats) {
            let at = CLASSES.iter().position(|name| *name == class.name);
            let place = at.and_then(|at| counted.classes.get_mut(at));
            *place.context("an unknown class")? = (class.total.objects, class.total.bytes);
        }
        if let Some((classes, months)) = node.histograms(&stats)? {
            let by_size = |class: &forebay_inventory::index::Class<'_>| {
                let cells = class.sizes.iter().flat_map(|sizes| sizes.iter());
                cells.fold((0, 0), |(o, b), (_, amount)| (o + amount.objects, b + amount.bytes))
            };
            let sizes_agree =
                classes.iter().all(|c| by_size(c) == (c.total.objects, c.total.bytes));
            let by_month: u64 = months.iter().map(|(_, amount)| amount.objects).sum();
            ensure!(sizes_agree && by_month == counted.objects(), "a histogram does not add up");
        }
        Ok(counted)
    }
}

/// Prefixes with their figures.
pub(super) type Map = HashMap<Box<[u8]>, Counted, BuildHasherDefault<DefaultHasher>>;

/// Returns all prefixes of an object's key, the empty one first.
fn prefixes(key: &[u8]) -> impl Iterator<Item = &[u8]> {
    let ends = key.iter().enumerate().filter(|(_, byte)| **byte == b'/').map(|(at, _)| at + 1);
    std::iter::once(0).chain(ends).filter_map(|end| key.get(..end))
}

/// Counts every prefix of the first objects of a load.
pub(super) fn count(load: Load, objects: u64) -> anyhow::Result<Map> {
    let mut map = Map::default();
    each(load, objects, |key, class, size| {
        for prefix in prefixes(key) {
            match map.get_mut(prefix) {
                Some(counted) => counted.add(class, size),
                None => map.entry(prefix.into()).or_default().add(class, size),
            }
        }
    })?;
    Ok(map)
}

/// Counts a sample of about `count` of the prefixes of the first objects of a load.
pub(super) fn count_some(load: Load, objects: u64, wanted: u64) -> anyhow::Result<Map> {
    let mut map = Map::default();
    let mut key = Vec::new();
    let step = (objects / wanted.max(1)).max(1);
    for i in (0..objects).step_by(usize::try_from(step)?) {
        load.object(i, &mut key);
        for prefix in prefixes(&key) {
            map.entry(prefix.into()).or_default();
        }
    }
    each(load, objects, |key, class, size| {
        for prefix in prefixes(key) {
            if let Some(counted) = map.get_mut(prefix) {
                counted.add(class, size);
            }
        }
    })?;
    Ok(map)
}

fn each(load: Load, objects: u64, mut see: impl FnMut(&[u8], usize, u64)) -> anyhow::Result<()> {
    let mut key = Vec::new();
    for i in 0..objects {
        let made_up = load.object(i, &mut key);
        let class = CLASSES.iter().position(|class| *class == made_up.class);
        see(&key, class.context("an unknown class")?, made_up.size);
    }
    Ok(())
}

/// Compares every prefix of an index with the plain aggregation, in one scan.
pub(super) fn check(index: &Index, expected: &Map) -> anyhow::Result<()> {
    ensure!(index.meta().prefixes == expected.len() as u64, "the number of prefixes differs");
    let mut seen = 0;
    for found in index.root()?.below(b"", None, 0, 0) {
        let found = found?;
        let counted = expected.get(found.prefix.as_slice());
        same(&found.prefix, counted, &found.node)?;
        seen += 1;
    }
    ensure!(seen == expected.len(), "only {seen} prefixes were scanned");
    Ok(())
}

/// Compares one prefix of an index.
pub(super) fn same(
    prefix: &[u8],
    expected: Option<&Counted>,
    node: &Node<'_>,
) -> anyhow::Result<()> {
    let name = String::from_utf8_lossy(prefix);
    let found = Counted::of(node).with_context(|| format!("prefix {name:?}"))?;
    ensure!(Some(&found) == expected, "{name:?} has {found:?}, not {expected:?}");
    Ok(())
}

/// Prefixes stored one after the other, so that reading them costs next to nothing.
#[derive(Debug, Default)]
pub(super) struct Queries {
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

impl Queries {
    /// Returns about `count` prefixes of a map in random but reproducible order; all if there are
    /// fewer.
    pub(super) fn shuffled(map: &Map, count: usize, change: &dyn Fn(&mut Vec<u8>)) -> Self {
        let mut prefixes: Vec<&[u8]> = map.keys().map(AsRef::as_ref).collect();
        prefixes.sort_unstable();
        let mut random = Random(7);
        for last in (1..prefixes.len()).rev() {
            prefixes.swap(last, random.below(last + 1));
        }
        let mut queries = Self::default();
        for prefix in prefixes.iter().take(count) {
            let mut prefix = prefix.to_vec();
            change(&mut prefix);
            queries.bytes.extend_from_slice(&prefix);
            queries.ends.push(queries.bytes.len());
        }
        queries
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &[u8]> {
        let mut start = 0;
        self.ends.iter().map(move |&end| {
            let query = self.bytes.get(start..end).unwrap_or_default();
            start = end;
            query
        })
    }

    pub(super) fn len(&self) -> usize {
        self.ends.len()
    }
}

/// Reproducible pseudo-random numbers.
pub(super) struct Random(pub(super) u64);

impl Random {
    pub(super) fn below(&mut self, end: usize) -> usize {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let scaled = (u128::from(self.0 >> 32) * end as u128) >> 32;
        usize::try_from(scaled).unwrap_or(0)
    }
}
