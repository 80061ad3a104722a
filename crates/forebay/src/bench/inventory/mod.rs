//! Measuring the inventory index, and DuckDB on the same Parquet files in the same run.
//!
//! Every build is of a process of its own, ours and DuckDB's in turns; its time is that of the whole
//! process, and it counts only if what it made is right: every prefix of the index is compared with a
//! plain aggregation of the same made-up objects that shares no code with it. Answers are compared the
//! same way, outside of what is timed.

mod builds;
mod child;
mod peer;
mod plain;
mod published;
mod reads;

use std::path::{Path, PathBuf};

use anyhow::Context as _;
use forebay_inventory::load::{Layout, Load, Shape};
use serde_json::Value;

use super::Figures;

/// What to measure and how long.
#[derive(Debug, Clone)]
pub(crate) struct Plan {
    /// Where scratch data goes: the disk that is measured.
    pub(crate) dir: PathBuf,
    /// Where the made-up inventories stay for the next time; else they go with the scratch data.
    pub(crate) inventories: Option<PathBuf>,
    /// Rounds of each comparison.
    pub(crate) rounds: u32,
    /// Objects of an inventory.
    pub(crate) objects: u64,
    /// Times as many objects in the large ones.
    pub(crate) times: u64,
    /// The Python that has DuckDB; without it DuckDB is left out.
    pub(crate) peer_python: Option<PathBuf>,
}

/// What all inventories are drawn by.
const SEED: u64 = 1;

/// Measures the inventory index.
///
/// # Errors
/// A process failed, or an answer was not the right one.
pub(crate) fn run(plan: &Plan, note: &dyn Fn(&str)) -> anyhow::Result<Value> {
    let scratch = tempfile::tempdir_in(&plan.dir).context("cannot make a scratch directory")?;
    let stage = Stage {
        plan,
        scratch: scratch.path(),
        inventories: plan.inventories.clone().unwrap_or_else(|| scratch.path().join("inventories")),
        note,
    };
    let mut figures = Figures::default();
    builds::measure(&stage, Shape::WideShallow, "wide", &mut figures)?;
    builds::measure(&stage, Shape::DeepNarrow, "narrow", &mut figures)?;
    note("looking up, paging, the largest prefixes, opening");
    reads::measure(&stage, &mut figures)?;
    note("look-ups among few prefixes and among many; a prefix with very many children");
    reads::scale(&stage, &mut figures)?;
    note("what is published for the system this replaces");
    published::measure(&stage, &mut figures)?;
    builds::measure_large(&stage, &mut figures)?;
    Ok(figures.into_json())
}

/// Where a measurement takes place.
struct Stage<'a> {
    plan: &'a Plan,
    scratch: &'a Path,
    inventories: PathBuf,
    note: &'a dyn Fn(&str),
}

impl Stage<'_> {
    /// Where the index of a shape is that the reads are of.
    fn index(&self, name: &str) -> PathBuf {
        self.scratch.join(format!("{name}-index"))
    }

    /// The directory of the Parquet files of an inventory, which are written once.
    fn parquet(&self, shape: Shape, objects: u64) -> anyhow::Result<PathBuf> {
        let dir = self.inventories.join(format!("{}-{objects}-parquet", shape.name()));
        // Written last, so what has it is whole.
        if !dir.join("manifest.checksum").exists() {
            (self.note)(&format!("{objects} objects of shape {} are made up", shape.name()));
            load(shape).write(&dir, &Layout::parquet(objects))?;
        }
        Ok(dir)
    }
}

fn load(shape: Shape) -> Load {
    Load { shape, seed: SEED }
}
