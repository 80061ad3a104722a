//! Measures builds of inventories of every shape, and of many times as many objects, with few open
//! files: the processor time of an object must not depend on the number of objects.

use anyhow::Context as _;
use forebay_inventory::index::Index;
use forebay_inventory::load::Shape;

use super::builds::MIB;
use super::child::{self, Built};
use super::{Stage, load, plain};
use crate::bench::Figures;

/// Open files of a build: far fewer than it has runs to merge.
const OPEN_FILES: u32 = 64;
/// Prefixes of each index that are compared with a plain aggregation.
const COMPARED: u64 = 10_000;

/// Measures the builds.
pub(super) fn measure(stage: &Stage<'_>, figures: &mut Figures) -> anyhow::Result<()> {
    let few = stage.plan.shape_objects;
    let many = few.checked_mul(stage.plan.times).context("too many objects")?;
    let (mut worst_ratio, mut worst_memory, mut runs) = (0.0_f64, 0.0_f64, 0);
    for shape in Shape::ALL {
        let name = shape.name();
        let (small, large) = (build(stage, shape, few)?, build(stage, shape, many)?);
        let each = |built: &Built| built.cpu_seconds / built.objects as f64;
        let ratio = each(&large) / each(&small);
        let memory = large.peak_rss_bytes as f64 / MIB;
        figures.add(&format!("{name}_build_cpu_ns"), each(&large) * 1e9);
        figures.add(&format!("{name}_build_cpu_ratio"), ratio);
        figures.add(&format!("{name}_build_peak_memory_mib"), memory);
        worst_ratio = worst_ratio.max(ratio);
        worst_memory = worst_memory.max(memory);
        runs = runs.max(large.runs);
    }
    figures.count("shapes_objects", many);
    figures.count("shapes_most_runs", runs);
    figures.add("shapes_build_cpu_worst_ratio", worst_ratio);
    figures.add("shapes_build_peak_memory_worst_mib", worst_memory);
    Ok(())
}

/// Builds an index, verifies it and compares a sample of its prefixes.
fn build(stage: &Stage<'_>, shape: Shape, objects: u64) -> anyhow::Result<Built> {
    let dir = stage.parquet(shape, objects)?;
    (stage.note)(&format!("a build of {objects} objects of shape {}", shape.name()));
    let out = stage.index("shape");
    let built = child::Build { open_files: Some(OPEN_FILES), ..child::Build::new(objects) }
        .run(&dir.join("data"), &out)?;
    let index = Index::open(&out)?;
    index.verify()?;
    for (prefix, counted) in &plain::count_some(load(shape), objects, COMPARED)? {
        let node = index.get(prefix)?.context("a prefix is missing")?;
        plain::same(prefix, Some(counted), &node)?;
    }
    stage.discard(&dir)?;
    Ok(built)
}
