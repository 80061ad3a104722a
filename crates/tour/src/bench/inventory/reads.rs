//! Measures queries of an index that is in memory already, one at a time on one thread.

use std::hint::black_box;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use forebay_base::bytes::ByteSize;
use forebay_base::fs::{FileSystem, RealFs};
use forebay_inventory::builder::{self, Monitor, OnBadRow, Options};
use forebay_inventory::index::{Index, SortBy};
use forebay_inventory::load::{MadeUpSource, Shape};
use forebay_inventory::object::Classes;

use super::plain::{self, Map, Queries, Random};
use super::{Stage, load};
use crate::bench::Figures;
use crate::bench::latency::Latencies;

/// Number of prefixes looked up in one round.
const QUERIES: usize = 1_000_000;
/// Number of prefixes below which the largest are determined.
const TOP_SAMPLE: usize = 500;
const TOP_COUNT: usize = 100;
const OPENS: usize = 100;
const PAGE: usize = 100;
const PAGES: usize = 10_000;
/// Number of children that an index lists in order of size.
const LISTED: usize = 4_096;

/// Measures the queries of the index of the wide shape.
pub(super) fn measure(stage: &Stage<'_>, figures: &mut Figures) -> anyhow::Result<()> {
    let rounds = stage.plan.rounds;
    let expected = plain::count(load(Shape::WideShallow), stage.plan.objects)?;
    let queries = Queries::shuffled(&expected, QUERIES, &|_| {});
    let absent = Queries::shuffled(&expected, QUERIES, &|prefix| {
        prefix.pop();
        prefix.extend_from_slice(b"x/");
    });
    for (dir, what) in [("wide", ""), ("wide-bare", "plain_")] {
        let index = Index::open(&stage.index(dir))?;
        let ns = look_up(&index, &queries, &expected, rounds)?;
        figures.median(&format!("{what}look_up_ns"), ns);
        let ns = look_up(&index, &absent, &expected, rounds)?;
        figures.median(&format!("{what}absent_look_up_ns"), ns);
    }
    let dir = stage.index("wide");
    let opens = open(&dir)?;
    figures.add("open_p50_us", us(opens.quantile(0.5)));
    figures.add("open_p99_us", us(opens.quantile(0.99)));
    let index = Index::open(&dir)?;
    let (worst, longest) = top(&index, &expected)?;
    figures.add("top_100_worst_us", us(worst));
    figures.add("top_100_longest_us", us(longest));
    figures.add("top_100_two_deeper_us", us(top_deeper(&index)?));
    Ok(())
}

/// Measures lookups among a hundred thousand prefixes and among many more, and the pages of a
/// prefix with many children.
pub(super) fn scale(stage: &Stage<'_>, figures: &mut Figures) -> anyhow::Result<()> {
    let objects = stage.plan.objects;
    let shape = Shape::WideSingleLevel;
    let mut ratio = Vec::new();
    for (name, count) in [("few", objects / 20), ("fan", objects / 2), ("many", objects * 5)] {
        let dir = stage.index(name);
        build(&dir, shape, count)?;
        let index = Index::open(&dir)?;
        ensure!(index.meta().objects == count, "the number of objects differs");
        let expected = plain::count_some(load(shape), count, QUERIES as u64)?;
        if name == "fan" {
            let (near, far) = pages(&index, &expected)?;
            figures.count("page_children", count);
            figures.add("page_p50_us", us(near.quantile(0.5)));
            figures.add("page_p99_us", us(near.quantile(0.99)));
            figures.add("far_page_p50_us", us(far.quantile(0.5)));
            let (worst, _) = top(&index, &expected)?;
            figures.add("fan_top_100_worst_us", us(worst));
            continue;
        }
        let queries = Queries::shuffled(&expected, QUERIES, &|_| {});
        let ns = look_up(&index, &queries, &expected, stage.plan.rounds)?;
        figures.count(&format!("{name}_prefixes"), index.meta().prefixes);
        figures.median(&format!("{name}_look_up_ns"), ns.clone());
        ratio.push(ns);
        if name == "many" {
            figures.add("many_open_p50_us", us(open(&dir)?.quantile(0.5)));
        }
    }
    if let [few, many] = ratio.as_slice() {
        let ratios = few.iter().zip(many).map(|(few, many)| many / few);
        figures.median("look_up_many_of_few_ratio", ratios.collect());
    }
    Ok(())
}

/// Builds an index of generated objects, without a file of them.
pub(super) fn build(dir: &Path, shape: Shape, objects: u64) -> anyhow::Result<()> {
    let classes = Arc::new(Classes::new());
    let fs: Arc<dyn FileSystem> = Arc::new(RealFs);
    let source =
        MadeUpSource { load: load(shape), objects, parts: 8, classes: Arc::clone(&classes) };
    let options = Options {
        memory: ByteSize(1 << 30),
        threads: std::thread::available_parallelism().map_or(2, usize::from),
        delimiter: b'/',
        histograms: true,
        on_bad_row: OnBadRow::Fail,
        on_duplicate: OnBadRow::Fail,
        expect_rows: Some(objects),
        replace: true,
        now_ms: 0,
    };
    builder::build(&fs, &source, &classes, dir, &options, &Monitor::default())?;
    Ok(())
}

/// Returns the nanoseconds of a lookup with its figures, for each round; every result is compared
/// afterwards.
pub(super) fn look_up(
    index: &Index,
    queries: &Queries,
    expected: &Map,
    rounds: u32,
) -> anyhow::Result<Vec<f64>> {
    let mut rates = Vec::new();
    // The first round brings the index into memory, and is not reported.
    for round in 0..=rounds {
        let started = Instant::now();
        for prefix in queries.iter() {
            if let Some(node) = index.get(black_box(prefix))? {
                black_box(node.stats()?);
            }
        }
        let each = started.elapsed().as_secs_f64() * 1e9 / queries.len() as f64;
        rates.extend((round > 0).then_some(each));
    }
    for prefix in queries.iter() {
        match (index.get(prefix)?, expected.get(prefix)) {
            (None, None) => {}
            (Some(node), counted) => plain::same(prefix, counted, &node)?,
            (None, Some(_)) => anyhow::bail!("a prefix was not found"),
        }
    }
    Ok(rates)
}

/// Returns the times of opening an index and closing it.
pub(super) fn open(dir: &Path) -> anyhow::Result<Latencies> {
    let mut latencies = Latencies::default();
    for _ in 0..OPENS {
        let started = Instant::now();
        let index = Index::open(dir)?;
        latencies.add(started.elapsed());
        drop(index);
    }
    Ok(latencies)
}

/// Determines the largest prefixes below a sample of those that have some, the empty one included;
/// returns the time of the slowest, the median of five times, and the longest of all times.
fn top(index: &Index, expected: &Map) -> anyhow::Result<(Duration, Duration)> {
    let mut sample: Vec<&[u8]> = Vec::new();
    for prefix in expected.keys() {
        if index.get(prefix)?.is_some_and(|node| node.descendants() > 0) {
            sample.push(prefix);
        }
    }
    sample.sort_unstable_by_key(|prefix| (prefix.len(), *prefix));
    let step = (sample.len() / TOP_SAMPLE).max(1);
    let (mut worst, mut longest) = (Duration::ZERO, Duration::ZERO);
    for prefix in sample.iter().step_by(step) {
        for sort in [SortBy::Bytes, SortBy::Objects] {
            let mut times = Vec::new();
            for _ in 0..5 {
                let started = Instant::now();
                let node = index.get(prefix)?.context("a prefix was not found")?;
                black_box(node.top(prefix, sort, TOP_COUNT, None)?);
                times.push(started.elapsed());
            }
            times.sort_unstable();
            worst = worst.max(times[times.len() / 2]);
            longest = longest.max(times[times.len() - 1]);
        }
    }
    for prefix in sample.iter().take(20) {
        check_top(index, expected, prefix)?;
    }
    Ok((worst, longest))
}

/// Returns the time to determine the largest of all prefixes two levels below the root: the median
/// of five.
fn top_deeper(index: &Index) -> anyhow::Result<Duration> {
    let mut times = Vec::new();
    for _ in 0..5 {
        let started = Instant::now();
        black_box(index.root()?.top(b"", SortBy::Bytes, TOP_COUNT, Some(2))?);
        times.push(started.elapsed());
    }
    times.sort_unstable();
    Ok(times[times.len() / 2])
}

/// Compares the largest below a prefix with those of the plain aggregation, if all of them are
/// known.
fn check_top(index: &Index, expected: &Map, prefix: &[u8]) -> anyhow::Result<()> {
    if expected.len() as u64 != index.meta().prefixes {
        return Ok(());
    }
    let below = |other: &[u8]| other.len() > prefix.len() && other.starts_with(prefix);
    let mut bytes: Vec<u64> = expected
        .iter()
        .filter(|(other, _)| below(other))
        .map(|(_, counted)| counted.bytes())
        .collect();
    bytes.sort_unstable_by_key(|&bytes| std::cmp::Reverse(bytes));
    bytes.truncate(TOP_COUNT);
    let node = index.get(prefix)?.context("a prefix was not found")?;
    let mut found = Vec::new();
    for top in node.top(prefix, SortBy::Bytes, TOP_COUNT, None)? {
        plain::same(&top.prefix, expected.get(top.prefix.as_slice()), &top.node)?;
        found.push(top.node.total()?.bytes);
    }
    ensure!(found == bytes, "the largest prefixes differ");
    Ok(())
}

/// Returns the times of a page of the largest children: of those an index lists, and of those
/// beyond.
fn pages(index: &Index, expected: &Map) -> anyhow::Result<(Latencies, Latencies)> {
    let root = index.root()?;
    let total = usize::try_from(root.child_count())?;
    let (mut near, mut far) = (Latencies::default(), Latencies::default());
    let mut random = Random(3);
    let beyond = total.saturating_sub(LISTED + PAGE).max(1);
    for number in 0..PAGES + 10 {
        let is_far = number >= PAGES;
        let offset = if is_far {
            LISTED + random.below(beyond)
        } else {
            random.below((LISTED - PAGE).min(total))
        };
        let started = Instant::now();
        let page = index.root()?.page(SortBy::Bytes, offset as u64, PAGE)?;
        let elapsed = started.elapsed();
        if is_far {
            far.add(elapsed)
        } else {
            near.add(elapsed)
        }
        let sizes = page.nodes.iter().map(|node| Ok(node.total()?.bytes));
        let sizes = sizes.collect::<anyhow::Result<Vec<u64>>>()?;
        ensure!(sizes.is_sorted_by(|a, b| a >= b), "a page is not in order");
        if offset < 10 && expected.len() as u64 == index.meta().prefixes {
            let larger =
                |least: u64| expected.values().filter(|counted| counted.bytes() > least).count();
            // The root is larger than all of them.
            let first = sizes.first().copied().unwrap_or(0);
            ensure!(larger(first) <= offset + 1, "a larger child is missing in the page");
        }
    }
    Ok((near, far))
}

pub(super) fn us(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e6
}
