//! Measures builds, and DuckDB aggregating the same files.

use std::path::Path;

use anyhow::{Context as _, ensure};
use forebay_inventory::index::Index;
use forebay_inventory::load::Shape;

use super::child::{self, Built};
use super::peer::Method;
use super::{Stage, load, peer, plain};
use crate::bench::Figures;

const MIB: f64 = 1_048_576.0;

/// Measures the builds of one shape: with histograms, without, and DuckDB, in turns.
pub(super) fn measure(
    stage: &Stage<'_>,
    shape: Shape,
    name: &str,
    figures: &mut Figures,
) -> anyhow::Result<()> {
    let objects = stage.plan.objects;
    let dir = stage.parquet(shape, objects)?;
    let data = dir.join("data");
    (stage.note)(&format!("builds of shape {}, compared with DuckDB", shape.name()));
    let expected = plain::count(load(shape), objects)?;
    let root = expected.get(&b""[..]).context("nothing was generated")?;
    let point = expected.keys().max().context("nothing was generated")?;
    let (mut full, mut bare, mut verified) = (Vec::new(), Vec::new(), Vec::new());
    let (mut theirs, mut tuned) = (Vec::new(), Vec::new());
    let (with, without) = (stage.index(name), stage.index(&format!("{name}-bare")));
    let manifest = dir.join("manifest.json");
    for _ in 0..stage.plan.rounds {
        full.push(spawn(&data, &with, true, objects)?);
        if let Some(python) = &stage.plan.peer_python {
            let out = stage.scratch.join("duckdb.parquet");
            for (how, taken) in [(Method::Statement, &mut theirs), (Method::Levels, &mut tuned)] {
                let found = peer::run(python, &data, &out, point, how)?;
                let right = found.prefixes == expected.len() as u64
                    && (found.objects, found.bytes) == (root.objects(), root.bytes());
                ensure!(right, "DuckDB returned another sum: {found:?}");
                taken.push(found);
            }
            let size = std::fs::metadata(&out).context("DuckDB wrote nothing")?.len();
            figures.add(
                &format!("duckdb_{name}_size_per_prefix_bytes"),
                size as f64 / expected.len() as f64,
            );
        }
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
    let ours = [("", &full), ("plain_", &bare)];
    for (what, built) in ours {
        let ratios = built.iter().zip(&theirs).map(|(our, their)| our.cpu_seconds / their.cpu_s);
        figures.median(&format!("{name}_{what}cpu_of_duckdb_ratio"), ratios.collect());
    }
    let ratios = full.iter().zip(&tuned).map(|(our, their)| our.cpu_seconds / their.cpu_s);
    figures.median(&format!("{name}_cpu_of_tuned_duckdb_ratio"), ratios.collect());
    let seconds = tuned.iter().map(|found| found.cpu_s);
    figures.median(&format!("tuned_duckdb_{name}_cpu_s"), seconds.collect());
    let mut median = |what: &str, of: &dyn Fn(&peer::Measurement) -> f64| {
        figures.median(&format!("duckdb_{name}_{what}"), theirs.iter().map(of).collect());
    };
    median("cpu_s", &|found| found.cpu_s);
    median("s", &|found| found.wall_s);
    median("peak_memory_mib", &|found| found.peak_rss_bytes as f64 / MIB);
    median("point_query_ms", &|found| found.point_ms);
    median("top_100_ms", &|found| found.top_ms);
    Ok(())
}

fn spawn(from: &Path, out: &Path, histograms: bool, objects: u64) -> anyhow::Result<Built> {
    let built = child::spawn(from, out, histograms)?;
    ensure!(built.objects == objects, "only {} objects were indexed", built.objects);
    Ok(built)
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
