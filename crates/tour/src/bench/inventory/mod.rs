//! Measures the inventory index; a build with the feature `peers` also measures DuckDB on the same
//! Parquet files in the same run.
//!
//! Every build is a separate process, Forebay's and DuckDB's in turns. Its time is that of the
//! whole process, and it counts only if its result is right: every prefix of the index is compared
//! with a plain aggregation of the same generated objects that shares no code with it. Query
//! results are compared in the same way, outside the measured time.

mod builds;
mod child;
#[cfg(feature = "peers")]
mod peer;
mod plain;
mod published;
mod reads;
mod shapes;

use std::path::{Path, PathBuf};

use anyhow::Context as _;
use forebay_inventory::load::{Layout, Load, Shape};
use serde_json::Value;

use super::Figures;

/// A part of the benchmark of the inventory index.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Part {
    /// Builds, and reads of the indexes.
    Builds,
    /// Reads among few prefixes and among many.
    Scale,
    /// The figures published for the system this replaces.
    Published,
    /// Builds of every shape with 64 open files, and of many times as many objects.
    Shapes,
}

/// What to measure, and for how long.
#[derive(Debug, Clone)]
pub struct Plan {
    /// Scratch directory, on the disk to measure.
    pub dir: PathBuf,
    /// Where generated inventories are kept for later runs; by default in the scratch directory.
    pub inventories: Option<PathBuf>,
    /// Number of rounds of each comparison.
    pub rounds: u32,
    /// Number of objects in an inventory.
    pub objects: u64,
    /// Factor between the numbers of objects in the large inventories and in the small ones.
    pub times: u64,
    /// Number of objects in the small inventory of each shape.
    pub shape_objects: u64,
    /// The parts to measure; all if there are none.
    pub only: Vec<Part>,
    /// The Python that has DuckDB; without it DuckDB is skipped.
    #[cfg(feature = "peers")]
    pub peer_python: Option<PathBuf>,
}

/// The random seed of all inventories.
const SEED: u64 = 1;

/// Measures the inventory index.
///
/// # Errors
/// A process failed, or a result was wrong.
pub fn run(plan: &Plan, note: &dyn Fn(&str)) -> anyhow::Result<Value> {
    let scratch = tempfile::tempdir_in(&plan.dir).context("cannot create a scratch directory")?;
    let stage = Stage {
        plan,
        scratch: scratch.path(),
        inventories: plan.inventories.clone().unwrap_or_else(|| scratch.path().join("inventories")),
        note,
    };
    let mut figures = Figures::default();
    let wants = |part| super::wants(&plan.only, &part);
    if wants(Part::Builds) {
        builds::measure(&stage, Shape::WideShallow, "wide", &mut figures)?;
        builds::measure(&stage, Shape::DeepNarrow, "narrow", &mut figures)?;
        note("lookups, pages, the largest prefixes, opening");
        reads::measure(&stage, &mut figures)?;
        builds::measure_large(&stage, &mut figures)?;
    }
    if wants(Part::Scale) {
        note("lookups among few prefixes and among many; a prefix with many children");
        reads::scale(&stage, &mut figures)?;
    }
    if wants(Part::Published) {
        note("the published figures of the earlier system");
        published::measure(&stage, &mut figures)?;
    }
    if wants(Part::Shapes) {
        shapes::measure(&stage, &mut figures)?;
    }
    Ok(figures.into_json())
}

/// The environment of a measurement.
struct Stage<'a> {
    plan: &'a Plan,
    scratch: &'a Path,
    inventories: PathBuf,
    note: &'a dyn Fn(&str),
}

impl Stage<'_> {
    /// The index directory of a shape, for reads.
    fn index(&self, name: &str) -> PathBuf {
        self.scratch.join(format!("{name}-index"))
    }

    /// Returns the directory of the Parquet files of an inventory, which are written once.
    fn parquet(&self, shape: Shape, objects: u64) -> anyhow::Result<PathBuf> {
        let dir = self.inventories.join(format!("{}-{objects}-parquet", shape.name()));
        // Written last, so a directory with it is complete.
        if !dir.join("manifest.checksum").exists() {
            (self.note)(&format!("generating {objects} objects of shape {}", shape.name()));
            load(shape).write(&dir, &Layout::parquet(objects))?;
        }
        Ok(dir)
    }

    /// Removes files that no other part reads, unless they are kept for later runs.
    fn discard(&self, dir: &Path) -> anyhow::Result<()> {
        if self.plan.inventories.is_none() {
            std::fs::remove_dir_all(dir).context("cannot remove a generated inventory")?;
        }
        Ok(())
    }
}

fn load(shape: Shape) -> Load {
    Load { shape, seed: SEED }
}
