//! `forebay tour`: the main work of Forebay on real input, with a crash in the middle.
//!
//! A real server in a child process stores a tree of files and JSON documents sent over real
//! sockets, is killed under load, started again and sent the rest. Then everything it acknowledged
//! is read back and compared with what was sent. The same is written to its cache, over RESP, and
//! log lines to its event store, whose proofs are checked; the tree and the server's own files are
//! indexed. Uploads are accepted as jobs, and run although the server is killed. A second server stores
//! objects over S3.
//!
//! Invariants: the result depends on the `oracle` alone, which holds what was acknowledged and
//! nothing else; the tour uses the server's public interface only; no server outlives a tour
//! unless that was requested; a tour that fails reports the first error, and keeps its data
//! and logs (`evidence`).

mod cache;
mod client;
mod events;
mod evidence;
mod first;
mod inputs;
mod inventory;
mod jobs;
mod load;
mod objects;
mod oracle;
mod pipeline;
mod queue;
mod report;
mod resumed;
mod sandbox;
mod stages;
mod tally;
mod verify;

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context as _;
use tempfile::TempDir;

use self::evidence::Evidence;
use self::inputs::{Documents, Files};
use self::report::{End, Report, Running};
use self::stages::Tour;
use crate::child::Server;
use forebay_console::exit::{Coded, Exit};
use forebay_console::interrupt::Interrupt;
use forebay_console::out::size;

pub use self::report::Output;

/// A server on the same machine that does not respond for this long hangs. One that shares its disk
/// with others may wait minutes for a sync.
const HANGS_AFTER: Duration = Duration::from_secs(600);

/// What to send, and how.
#[derive(Debug, Clone)]
pub struct Plan {
    /// The tree of files; by default one found on this machine.
    pub files: Option<PathBuf>,
    /// The documents; by default the output of cargo metadata for the workspace.
    pub documents: Option<PathBuf>,
    /// The data directory, empty or new; by default a temporary one.
    pub data: Option<PathBuf>,
    /// Maximum number of files to send.
    pub files_max: usize,
    /// Maximum total size of the files, in bytes.
    pub bytes_max: u64,
    /// Number of connections that send and read concurrently.
    pub connections: usize,
    /// Whether the server keeps running afterwards.
    pub keep: bool,
    /// What is printed.
    pub output: Output,
    /// Whether progress is drawn if standard error is a terminal.
    pub bars: bool,
}

/// Runs a tour and prints its report; returns whether everything acknowledged was found.
///
/// # Errors
/// The tour could not run: nothing to send, no server, a response that is not in the API.
pub fn run(plan: &Plan) -> anyhow::Result<bool> {
    let interrupt = Interrupt::listen()?;
    tour(plan, &interrupt).map_err(|error| match interrupt.check() {
        // After an interrupt other errors are consequences of it.
        Err(interrupted) => interrupted,
        Ok(()) => error,
    })
}

fn tour(plan: &Plan, interrupt: &Interrupt) -> anyhow::Result<bool> {
    let mut report = Report::new(plan.output, plan.bars);
    let scratch = tempfile::Builder::new()
        .prefix("forebay-tour-")
        .tempdir()
        .context("cannot create a temporary directory; set TMPDIR to a writable one")?;
    let data = data_dir(plan, &scratch)?;
    let (files, documents) = choose(plan, &mut report)?;
    let input = Input { files, documents, data, scratch: scratch.path() };
    let made = make(plan, interrupt, &mut report, &input).and_then(|(end, server)| {
        let sound = report.verdict(&end)?;
        Ok((sound, server))
    });
    let data = input.data;
    match made {
        Ok((sound, server)) => {
            if !sound {
                Evidence::keep(scratch, &data);
            } else if plan.keep {
                drop(scratch.keep());
            }
            if let Some(server) = server {
                server.detach();
            }
            Ok(sound)
        }
        Err(error) => {
            // After an interrupt nothing is kept.
            if !interrupt.asked() {
                Evidence::keep(scratch, &data);
            }
            Err(error)
        }
    }
}

/// The input of a tour, and its directory.
struct Input<'a> {
    files: Files,
    documents: Documents,
    data: PathBuf,
    scratch: &'a Path,
}

/// Runs every stage; returns the result of the tour, and the server that keeps running.
fn make(
    plan: &Plan,
    interrupt: &Interrupt,
    report: &mut Report,
    input: &Input<'_>,
) -> anyhow::Result<(End, Option<Server>)> {
    let Input { files, documents, data, scratch } = input;
    let mut tour = Tour::new(plan, files, documents, interrupt, data, scratch);
    let server = tour.load_and_kill(report)?;
    tour.report_inputs(report)?;
    tour.read_back(report, &server)?;
    let (server, cache) = tour.cache(report, server)?;
    let (server, mut events) = tour.events(report, server)?;
    let (server, inventory) = tour.inventory(report, server, scratch)?;
    let server = tour.jobs(report, server)?;
    objects::Chapter { interrupt, scratch }.run(report)?;
    let chapter = pipeline::Chapter { tree: &files.tree, interrupt, scratch };
    let pipeline = chapter.run(report)?;
    tour.stop_and_check(report, server, &mut events, scratch)?;
    tour.measure(report);
    cache.add_figures(report);
    events.add_figures(report);
    inventory.add_figures(report);
    pipeline.add_figures(report);
    report.figures()?;
    let what = format!(
        "{} files, {} documents, {} keys of the cache, {} events, {} indexed files, {} rows piped",
        tour.tally.oracle.files.len(),
        tour.tally.oracle.document_count(),
        cache.keys(),
        events.events(),
        inventory.objects(),
        pipeline.rows()
    );
    interrupt.check()?;
    let kept = plan.keep.then(|| Server::start(&cache::SERVE, data, &tour.log)).transpose()?;
    let running = kept.as_ref().map(|server| running(server, &tour.log)).transpose()?;
    // Wrong data is evidence.
    let stays = plan.keep || plan.data.is_some() || !report.problems.is_empty();
    Ok((End { what, data: stays.then(|| data.clone()), running }, kept))
}

fn running(server: &Server, log: &Path) -> anyhow::Result<Running> {
    let url = format!("http://{}", server.address());
    Ok(Running { url, cache: cache::address(log)?, pid: server.pid() })
}

fn data_dir(plan: &Plan, scratch: &TempDir) -> anyhow::Result<PathBuf> {
    let Some(data) = &plan.data else { return Ok(scratch.path().join("data")) };
    let data = std::path::absolute(data)
        .with_context(|| format!("cannot use {} for data", data.display()))?;
    let used = match std::fs::read_dir(&data) {
        Ok(mut entries) => entries.next().is_some(),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => false,
        Err(error) => {
            let message = format!("cannot read {}", data.display());
            return Err(Coded::wrap(Exit::Usage, message, error.into()));
        }
    };
    if used {
        let data = data.display();
        let message = format!("{data} is not empty; name a new directory with --data");
        return Err(Coded::error(Exit::Usage, message));
    }
    Ok(data)
}

fn choose(plan: &Plan, report: &mut Report) -> anyhow::Result<(Files, Documents)> {
    let usage = |error| Coded::wrap(Exit::Usage, "there is nothing to send", error);
    let tree = match &plan.files {
        Some(tree) => tree.clone(),
        None => inputs::default_tree()?,
    };
    report.chapter("Input")?;
    let files = Files::choose(&tree, plan.files_max, plan.bytes_max).map_err(usage)?;
    report.line(format_args!(
        "  {} files, {}, out of {} in {}",
        files.chosen.len(),
        size(files.chosen_bytes),
        files.found,
        files.tree.display()
    ))?;
    report.line(format_args!(
        "  omitted: {} beyond the limits, {} links and special files, {} unreadable, {} with \
         names the server refuses",
        files.beyond_limits, files.special, files.unreadable, files.unfit_names
    ))?;
    if !files.seen_all {
        let seen = inputs::files::SEEN_MAX;
        report.line(format_args!("  only the first {seen} entries of the tree were considered"))?;
    }
    let documents = Documents::choose(plan.documents.as_deref(), &files).map_err(usage)?;
    report.line(format_args!("  documents: {}", documents.source))?;
    for (namespace, texts) in &documents.sets {
        report.line(format_args!("    {:>8} for {namespace}", texts.len()))?;
    }
    if documents.skipped > 0 {
        report
            .line(format_args!("    {:>8} skipped: not objects or not JSON", documents.skipped))?;
    }
    report.section("files_chosen", &files);
    report.section("documents_source", &documents.source);
    Ok((files, documents))
}

/// Returns the disk usage of a directory, in bytes.
fn disk_bytes(dir: &Path) -> u64 {
    use std::os::unix::fs::MetadataExt as _;
    let entries = walkdir::WalkDir::new(dir).into_iter().filter_map(Result::ok);
    entries.filter_map(|entry| entry.metadata().ok()).map(|metadata| metadata.blocks() * 512).sum()
}
