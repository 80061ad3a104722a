//! `forebay pipeline ...`: copies rows from sources to destinations.

use std::path::PathBuf;

use anyhow::Context as _;
use forebay_base::error_chain::chain;
use forebay_base::printable::printable;
use forebay_pipeline::config::PipelineFile;
use forebay_pipeline::state::State;

use super::settings::DataArgs;
use super::{pipeline_ask, pipeline_bench, pipeline_feed, pipeline_init, pipeline_run};
use crate::exit::{Coded, Exit};
use crate::{data_dir, out, pipelines};

#[derive(clap::Subcommand, Debug)]
pub(super) enum Command {
    /// Run the pipeline, continuing where the last run stopped.
    Run(pipeline_run::Args),
    /// Check the pipeline file, and connect to the source and the destination.
    Check(FileArgs),
    /// List the streams of the source: tables, columns, keys, sizes.
    Discover(FileArgs),
    /// Print what a run would read and write, with its statements; nothing is changed.
    Plan(FileArgs),
    /// Print how a run would be executed: units, form of rows, parallelism.
    Explain(FileArgs),
    /// Read both sides completely, and compare their content hashes.
    Verify(FileArgs),
    /// Run the pipeline several times, and print the median times, in total and by phase.
    Bench(pipeline_bench::Args),
    /// Forget what was loaded, so that the next run starts over; the copied rows are kept.
    Reset(pipeline_ask::ResetArgs),
    /// Print the JSON Schema of pipeline files, for editors.
    Schema,
    /// Print a commented pipeline file for a source and a destination.
    Init(pipeline_init::Args),
    /// List the recorded runs.
    Runs(pipeline_ask::RunsArgs),
    /// Print a run with its report; for a pipeline, its last run.
    Status(pipeline_ask::StatusArgs),
    /// Show the progress of a run until it ends.
    Watch(pipeline_ask::StatusArgs),
    /// Print what a pipeline with `sync_mode: cdc` follows: slot, positions, lag.
    Feed(FileArgs),
    /// End the feed of a pipeline: drop its slot and publication; the copied rows are kept.
    DropSlot(pipeline_feed::DropArgs),
}

/// A pipeline file and the form of the output.
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
    let ended = match command {
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
        Command::Feed(args) => pipeline_feed::feed(args),
        Command::DropSlot(args) => pipeline_feed::drop_slot(args),
    };
    ended.map_err(|error| one_line(&error))
}

/// An error whose message is one line: it may contain names of files, tables and columns.
fn one_line(error: &anyhow::Error) -> anyhow::Error {
    Coded::error(Coded::exit_of(error), chain(error.as_ref()).to_string())
}

/// Prints one line: line ends in names are escaped, too.
///
/// # Errors
/// As [`out::line`].
pub(super) fn line(text: impl std::fmt::Display) -> anyhow::Result<()> {
    out::line(printable(&text.to_string()))
}

/// Reads a pipeline file.
///
/// # Errors
/// It is not valid (exit code 2).
pub(super) fn load(path: &std::path::Path) -> anyhow::Result<PipelineFile> {
    use_components_of(&DataArgs::default())?;
    pipelines::load(path)
        .map_err(|error| Coded::wrap(Exit::Usage, "invalid pipeline file", error.into()))
}

/// Lets pipeline files name the components that are installed in the data directory.
///
/// # Errors
/// The configuration is not valid (exit code 2).
pub(super) fn use_components_of(data: &DataArgs) -> anyhow::Result<()> {
    pipelines::use_components_of(&data.resolve()?.config()?.process.data);
    Ok(())
}

/// Returns a runtime for one command.
///
/// # Errors
/// The operating system cannot start threads.
pub(super) fn runtime() -> anyhow::Result<tokio::runtime::Runtime> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    runtime.context("cannot start threads")
}

/// Returns a runtime for the runs of a pipeline file.
///
/// # Errors
/// The operating system cannot start threads.
pub(super) fn runtime_for(file: &PipelineFile) -> anyhow::Result<tokio::runtime::Runtime> {
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    let runtime = runtime.worker_threads(file.threads(processors)).enable_all().build();
    runtime.context("cannot start threads")
}

/// Opens the record of runs in the data directory.
///
/// # Errors
/// The directory or the file cannot be used.
pub(super) fn state(data: &DataArgs) -> anyhow::Result<State> {
    let config = data.resolve()?.config()?;
    let dir = &config.process.data;
    data_dir::make(dir)?;
    let file = pipelines::state_file(dir);
    data_dir::private_file(&file)?;
    Ok(State::open(&file)?)
}
