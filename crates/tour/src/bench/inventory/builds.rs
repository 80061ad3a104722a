//! Measures builds.

use std::path::Path;

use anyhow::Context as _;
use forebay_inventory::index::Index;
use forebay_inventory::load::Shape;

use super::child::{Build, Built};
#[cfg(feature = "peers")]
use super::peer;
use super::{Stage, load, plain};
use crate::bench::Figures;

pub(super) const MIB: f64 = 1_048_576.0;

/// Measures the builds of one shape: with histograms, without, and from a manifest, in turns.
pub(super) fn measure(
    stage: &Stage<'_>,
    shape: Shape,
    name: &str,
    figures: &mut Figures,
) -> anyhow::Result<()> {
    let objects = stage.plan.objects;
    let dir = stage.parquet(shape, objects)?;
    let data = dir.join("data");
    (stage.note)(&format!("builds of shape {}", shape.name()));
    let expected = plain::count(load(shape), objects)?;
    let (mut full, mut bare, mut verified) = (Vec::new(), Vec::new(), Vec::new());
    #[cfg(feature = "peers")]
    let mut theirs = peer::Rounds::default();
    let (with, without) = (stage.index(name), stage.index(&format!("{name}-bare")));
    let manifest = dir.join("manifest.json");
    for _ in 0..stage.plan.rounds {
        full.push(spawn(&data, &with, true, objects)?);
        #[cfg(feature = "peers")]
        theirs.measure(stage, &data, &expected)?;
        bare.push(spawn(&data, &without, false, objects)?);
        verified.push(spawn(&manifest, &stage.index("verified"), true, objects)?);
    }
    for (dir, what, built) in [(&with, "", &full), (&without, "plain_", &bare)] {
        let index = Index::open(dir)?;
        index.verify()?;
        plain::check(&index, &expected)?;
        let size = built.last().map_or(0, |built| built.index_bytes) as f64;
        figures.add(&format!("{name}_{what}size_per_prefix_bytes"), size / expected.len() as f64);
    }
    figures.count(&format!("{name}_prefixes"), expected.len() as u64);
    for (what, built) in [("", &full), ("plain_", &bare), ("manifest_", &verified)] {
        add_figures(&format!("{name}_{what}build"), built, figures);
    }
    #[cfg(feature = "peers")]
    theirs.report(name, &full, &bare, figures);
    Ok(())
}

fn spawn(from: &Path, out: &Path, histograms: bool, objects: u64) -> anyhow::Result<Built> {
    Build { histograms, ..Build::new(objects) }.run(from, out)
}

fn add_figures(name: &str, built: &[Built], figures: &mut Figures) {
    let mut median = |what: &str, of: &dyn Fn(&Built) -> f64| {
        figures.median(&format!("{name}_{what}"), built.iter().map(of).collect());
    };
    median("cpu_s", &|built| built.cpu_seconds);
    median("s", &|built| built.seconds);
    median("objects_per_s", &|built| built.objects as f64 / built.seconds);
    median("peak_memory_mib", &|built| built.peak_rss_bytes as f64 / MIB);
}

/// Measures one build of a large number of objects.
pub(super) fn measure_large(stage: &Stage<'_>, figures: &mut Figures) -> anyhow::Result<()> {
    let objects = stage.plan.objects * stage.plan.times;
    let data = stage.parquet(Shape::WideShallow, objects)?.join("data");
    (stage.note)(&format!("a build of {objects} objects"));
    let out = stage.index("large");
    let built = spawn(&data, &out, true, objects)?;
    add_figures("large_build", &[built], figures);
    figures.count("large_objects", objects);
    figures.count("large_prefixes", built.prefixes);
    figures.count("large_runs", built.runs);
    let index = Index::open(&out)?;
    index.verify()?;
    for (prefix, counted) in &plain::count_some(load(Shape::WideShallow), objects, 100_000)? {
        let node = index.get(prefix)?.context("a prefix is missing")?;
        plain::same(prefix, Some(counted), &node)?;
    }
    Ok(())
}
