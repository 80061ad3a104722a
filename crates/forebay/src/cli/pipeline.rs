//! `forebay pipeline ...`: moving rows from sources to destinations.

use std::path::PathBuf;

use anyhow::Context as _;
use forebay_pipeline::config::PipelineFile;
use forebay_pipeline::state::State;

use super::settings::DataArgs;
use super::{pipeline_ask, pipeline_bench, pipeline_init, pipeline_run};
use crate::exit::{Coded, Exit};
use crate::pipelines;

#[derive(clap::Subcommand, Debug)]
pub(super) enum Command {
    /// Copy what a pipeline file says, from where the last run stopped.
    Run(pipeline_run::Args),
    /// Ask both sides whether they answer, and read the pipeline file.
    Check(FileArgs),
    /// List the streams of the source: tables, columns, keys, sizes.
    Discover(FileArgs),
    /// Say what a run would read and write, and with which statements; nothing is changed.
    Plan(FileArgs),
    /// Say how a run would go about it: units, form of rows, parallelism.
    Explain(FileArgs),
    /// Read both sides whole and compare their content hashes.
    Verify(FileArgs),
    /// Run it several times and print the medians: the whole and each phase.
    Bench(pipeline_bench::Args),
    /// Forget what was loaded, so that the next run begins anew; the rows that are there stay.
    Reset(pipeline_ask::ResetArgs),
    /// Print the JSON Schema of pipeline files, for editors.
    Schema,
    /// Print a commented pipeline file for a source and a destination.
    Init(pipeline_init::Args),
    /// List the runs there were.
    Runs(pipeline_ask::RunsArgs),
    /// Print a run with its report; the last one of a pipeline where no run is named.
    Status(pipeline_ask::StatusArgs),
    /// Follow a run until it ends.
    Watch(pipeline_ask::StatusArgs),
}

/// A pipeline file, and how answers are printed.
#[derive(clap::Args, Debug)]
pub(super) struct FileArgs {
    /// The pipeline file.
    #[arg(value_name = "FILE")]
    pub(super) file: PathBuf,
    /// Print JSON.
    #[arg(long)]
    pub(super) json: bool,
}

pub(super) fn run(command: &Command) -> anyhow::Result<Exit> {
    match command {
        Command::Run(args) => pipeline_run::run(args),
        Command::Check(args) => pipeline_ask::check(args),
        Command::Discover(args) => pipeline_ask::discover(args),
        Command::Plan(args) => pipeline_ask::plan(args),
        Command::Explain(args) => pipeline_ask::explain(args),
        Command::Verify(args) => pipeline_ask::verify(args),
        Command::Bench(args) => pipeline_bench::run(args),
        Command::Reset(args) => pipeline_ask::reset(args),
        Command::Schema => pipeline_ask::schema(),
        Command::Init(args) => pipeline_init::run(args),
        Command::Runs(args) => pipeline_ask::runs(args),
        Command::Status(args) => pipeline_ask::status(args),
        Command::Watch(args) => pipeline_ask::watch(args),
    }
}

/// Reads a pipeline file.
///
/// # Errors
/// It says something that cannot be (exit code 2).
pub(super) fn load(path: &std::path::Path) -> anyhow::Result<PipelineFile> {
    pipelines::load(path)
        .map_err(|error| Coded::wrap(Exit::Usage, "wrong pipeline file", error.into()))
}

/// A runtime for one command.
///
/// # Errors
/// The operating system gives no threads.
pub(super) fn runtime() -> anyhow::Result<tokio::runtime::Runtime> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    runtime.context("cannot start threads")
}

/// A runtime for the runs of a pipeline file.
///
/// # Errors
/// The operating system gives no threads.
pub(super) fn runtime_for(file: &PipelineFile) -> anyhow::Result<tokio::runtime::Runtime> {
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    let runtime = runtime.worker_threads(file.threads(processors)).enable_all().build();
    runtime.context("cannot start threads")
}

/// What is remembered of runs, in the data directory.
///
/// # Errors
/// The directory or the file cannot be used.
pub(super) fn state(data: &DataArgs) -> anyhow::Result<State> {
    let config = data.resolve()?.config()?;
    let dir = &config.process.data;
    std::fs::create_dir_all(dir).with_context(|| format!("cannot make {}", dir.display()))?;
    Ok(State::open(&pipelines::state_file(dir))?)
}
