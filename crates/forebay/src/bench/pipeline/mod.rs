//! Measuring the pipeline on a PostgreSQL of its own, beside psql and other tools in the same run.
//!
//! Every copy is a process of its own, ours and the others' in turns, into a table emptied before; its
//! time is that of the whole process. It counts only if psql then finds the same rows in it: their
//! number and the sum of a hash of each, as the server computes it.

mod against;
mod copies;
mod documents;
mod peers;
mod server;

use std::path::PathBuf;

use anyhow::Context as _;
use serde_json::Value;

use super::Figures;
use server::Server;

/// What to measure and how long.
#[derive(Debug, Clone)]
pub(crate) struct Plan {
    /// Where the server and scratch data go: the disk that is measured.
    pub(crate) dir: PathBuf,
    /// Rounds of each comparison.
    pub(crate) rounds: u32,
    /// Rows of the table.
    pub(crate) rows: u64,
    /// Times as many rows in the large one.
    pub(crate) times: u64,
    /// TPC-H's lineitem as `|`-separated values; left out without it.
    pub(crate) lineitem: Option<PathBuf>,
    /// A Python that has the other tools; without it they are left out.
    pub(crate) peer_python: Option<PathBuf>,
    /// Another build of this program: then only these two are compared.
    pub(crate) against: Option<PathBuf>,
}

/// Measures the pipeline.
///
/// # Errors
/// A process failed, or what it copied is not the same.
pub(crate) fn run(plan: &Plan, note: &dyn Fn(&str)) -> anyhow::Result<Value> {
    let scratch = tempfile::tempdir_in(&plan.dir).context("cannot make a scratch directory")?;
    note("a PostgreSQL of its own is started and filled");
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
    copies::memory(&stage, &mut figures)?;
    copies::nothing_new(&stage, &mut figures)?;
    if let Some(python) = &plan.peer_python {
        peers::measure(&stage, python, &mut figures)?;
    }
    Ok(figures.into_json())
}

/// Where a measurement takes place.
struct Stage<'a> {
    plan: &'a Plan,
    server: &'a Server,
    scratch: &'a std::path::Path,
    note: &'a dyn Fn(&str),
}
