//! Measures the figures published for the earlier system: aggregating ten and a hundred
//! thousand objects, and a mixture of queries on trees of each shape.

use std::hint::black_box;
use std::time::Instant;

use anyhow::Context as _;
use forebay_inventory::index::{Index, SortBy};
use forebay_inventory::load::Shape;

use super::plain::{self, Queries};
use super::{Stage, child, load, reads};
use crate::bench::Figures;

const FEW: u64 = 10_000;
const MANY: u64 = 100_000;

pub(super) fn measure(stage: &Stage<'_>, figures: &mut Figures) -> anyhow::Result<()> {
    for (name, objects) in [("10k", FEW), ("100k", MANY)] {
        let data = stage.parquet(Shape::S3Realistic, objects)?.join("data");
        let (mut ms, mut mib) = (Vec::new(), Vec::new());
        for _ in 0..stage.plan.rounds.max(5) {
            let built = child::Build::new(objects).run(&data, &stage.index("small"))?;
            ms.push(built.seconds * 1e3);
            mib.push(built.peak_rss_bytes as f64 / 1_048_576.0);
        }
        let index = Index::open(&stage.index("small"))?;
        plain::check(&index, &plain::count(load(Shape::S3Realistic), objects)?)?;
        figures.median(&format!("realistic_{name}_build_ms"), ms);
        figures.median(&format!("realistic_{name}_build_peak_memory_mib"), mib);
    }
    let (mut best, mut worst) = (f64::MAX, 0.0_f64);
    for shape in Shape::ALL {
        let ns = mixed(stage, shape)?;
        figures.add(&format!("mixed_{}_ns", shape.name()), ns);
        (best, worst) = (best.min(ns), worst.max(ns));
    }
    figures.add("mixed_best_ns", best);
    figures.add("mixed_worst_ns", worst);
    Ok(())
}

/// Returns the nanoseconds per query, of ten: seven lookups with their figures, one of a prefix
/// that does not exist, one page of the ten largest children, and one for the descendants.
fn mixed(stage: &Stage<'_>, shape: Shape) -> anyhow::Result<f64> {
    let dir = stage.index("mixed");
    reads::build(&dir, shape, MANY)?;
    let index = Index::open(&dir)?;
    let expected = plain::count(load(shape), MANY)?;
    plain::check(&index, &expected)?;
    let queries = Queries::shuffled(&expected, usize::MAX, &|_| {});
    let mut rounds = Vec::new();
    for _ in 0..stage.plan.rounds.max(5) {
        let started = Instant::now();
        for (number, prefix) in queries.iter().enumerate() {
            ask(&index, number % 10, prefix)?;
        }
        rounds.push(started.elapsed().as_secs_f64() * 1e9 / queries.len() as f64);
    }
    rounds.sort_unstable_by(f64::total_cmp);
    rounds.get(rounds.len() / 2).copied().context("no queries were made")
}

fn ask(index: &Index, kind: usize, prefix: &[u8]) -> anyhow::Result<()> {
    if kind == 0 {
        // Without its delimiter it is not a prefix.
        let cut = prefix.get(1..).unwrap_or_default();
        black_box(index.get(cut)?.is_some());
        return Ok(());
    }
    let node = index.get(prefix)?.context("a prefix was not found")?;
    match kind {
        1 => drop(black_box(node.page(SortBy::Bytes, 0, 10)?)),
        2 => drop(black_box(node.descendants())),
        _ => drop(black_box(node.stats()?)),
    }
    Ok(())
}
