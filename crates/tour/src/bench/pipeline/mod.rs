//! Measures the pipeline on a temporary PostgreSQL, and psql and other tools in the same run.
//!
//! Every copy is a separate process, Forebay's and the others' in turns, into a table emptied
//! before. Its time is that of the whole process. It counts only if psql then finds the same rows:
//! their number and the sum of a hash of each, as the server computes it.

mod against;
mod changes;
mod copies;
mod documents;
mod lag;
mod peers;
pub mod sandbox;
pub(super) mod server;

use std::path::PathBuf;

use anyhow::Context as _;
use serde_json::Value;

use super::Figures;
use server::Server;

/// What to measure, and for how long.
#[derive(Debug, Clone)]
pub struct Plan {
    /// Directory for the server and scratch data, on the disk to measure.
    pub dir: PathBuf,
    /// Number of rounds of each comparison.
    pub rounds: u32,
    /// Number of rows in the table.
    pub rows: u64,
    /// Factor between the number of rows in the large table and in the small one.
    pub times: u64,
    /// File with TPC-H's lineitem as `|`-separated values; skipped without it.
    pub lineitem: Option<PathBuf>,
    /// A Python that has the other tools; without it they are skipped.
    pub peer_python: Option<PathBuf>,
    /// Another build of this program: then only these two are compared.
    pub against: Option<PathBuf>,
}

/// Measures the pipeline.
///
/// # Errors
/// A process failed, or a copy differs from its source.
pub fn run(plan: &Plan, note: &dyn Fn(&str)) -> anyhow::Result<Value> {
    let scratch = tempfile::tempdir_in(&plan.dir).context("cannot create a scratch directory")?;
    note("starting and filling a temporary PostgreSQL");
    let server = Server::start(scratch.path())?;
    let stage = Stage { plan, server: &server, scratch: scratch.path(), note };
    let mut figures = Figures::default();
    if let Some(other) = &plan.against {
        against::measure(&stage, other, &mut figures)?;
        return Ok(figures.into_json());
    }
    copies::fill(&stage)?;
    copies::against_psql(&stage, "t", "copy", &mut figures)?;
    if plan.lineitem.is_some() {
        copies::against_psql(&stage, "lineitem", "lineitem", &mut figures)?;
    }
    copies::against_insert(&stage, &mut figures)?;
    documents::measure(&stage, &mut figures)?;
    changes::measure(&stage, &mut figures)?;
    copies::memory(&stage, &mut figures)?;
    copies::nothing_new(&stage, &mut figures)?;
    if let Some(python) = &plan.peer_python {
        peers::measure(&stage, python, &mut figures)?;
    }
    Ok(figures.into_json())
}

/// The environment of a measurement.
struct Stage<'a> {
    plan: &'a Plan,
    server: &'a Server,
    scratch: &'a std::path::Path,
    note: &'a dyn Fn(&str),
}
