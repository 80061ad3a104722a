//! `forebay tour`: the main job of Forebay on real input, with a power cut in the middle.
//!
//! A real server in a process of its own takes in a tree of files and JSON documents over real
//! sockets, is killed under load, started again and given the rest; then everything it acknowledged
//! is read back and compared with what was sent. The same goes into its cache, over RESP, and log
//! lines into its event store, whose proofs are checked; the tree and the server's own files are
//! indexed.
//!
//! Invariants: the verdict rests on the [`oracle`] alone, which holds what was acknowledged and
//! nothing else; the tour asks the server over its public interface only; no server outlives a tour
//! that was not asked to keep it.

mod cache;
mod client;
mod events;
mod inputs;
pub(crate) mod interrupt;
mod inventory;
mod jobs;
mod load;
mod oracle;
mod pipeline;
mod report;
mod stages;
mod tally;
mod verify;

use std::path::{Path, PathBuf};

use anyhow::Context as _;
use tempfile::TempDir;

use self::inputs::{Documents, Files};
use self::interrupt::Interrupt;
use self::report::{End, Report, Running};
use self::stages::Tour;
use crate::child::Server;
use crate::exit::{Coded, Exit};
use crate::out::size;

pub(crate) use self::report::Tell;

/// What to take in, and how.
#[derive(Debug, Clone)]
pub(crate) struct Plan {
    /// The tree of files; one found on this machine otherwise.
    pub(crate) files: Option<PathBuf>,
    /// The documents; what cargo says about the workspace otherwise.
    pub(crate) documents: Option<PathBuf>,
    /// The data directory, empty or new; a temporary one otherwise.
    pub(crate) data: Option<PathBuf>,
    pub(crate) files_max: usize,
    pub(crate) bytes_max: u64,
    pub(crate) connections: usize,
    /// Whether the server goes on afterwards.
    pub(crate) keep: bool,
    pub(crate) tell: Tell,
    /// Whether progress is drawn where standard error is a terminal.
    pub(crate) bars: bool,
}

/// Makes a tour and tells about it; returns whether everything acknowledged was there.
///
/// # Errors
/// The tour could not be made: nothing to send, no server, an answer that is not in the API.
pub(crate) fn run(plan: &Plan) -> anyhow::Result<bool> {
    let interrupt = Interrupt::listen()?;
    tour(plan, &interrupt).map_err(|error| match interrupt.check() {
        // Whatever failed failed because everything was told to end.
        Err(interrupted) => interrupted,
        Ok(()) => error,
    })
}

fn tour(plan: &Plan, interrupt: &Interrupt) -> anyhow::Result<bool> {
    let mut report = Report::new(plan.tell, plan.bars);
    let scratch = tempfile::Builder::new()
        .prefix("forebay-tour-")
        .tempdir()
        .context("cannot make a temporary directory; set TMPDIR to one that can be written")?;
    let data = data_dir(plan, &scratch)?;
    let (files, documents) = choose(plan, &mut report)?;
    let mut tour = Tour::new(plan, &files, &documents, interrupt, &data, scratch.path());
    let server = tour.load_and_kill(&mut report)?;
    tour.tell_inputs(&mut report)?;
    tour.read_back(&mut report, &server)?;
    let (server, cache) = tour.cache(&mut report, server)?;
    let (server, mut events) = tour.events(&mut report, server)?;
    let (server, inventory) = tour.inventory(&mut report, server, scratch.path())?;
    let chapter = pipeline::Chapter { tree: &files.tree, interrupt, scratch: scratch.path() };
    let pipeline = chapter.run(&mut report)?;
    tour.stop_and_check(&mut report, server, &mut events, scratch.path())?;
    tour.measure(&mut report);
    cache.tell(&mut report);
    events.tell(&mut report);
    inventory.tell(&mut report);
    pipeline.tell(&mut report);
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
    let kept = plan.keep.then(|| Server::start(&cache::SERVE, &data, &tour.log)).transpose()?;
    let sound = report.problems.is_empty();
    let running = kept.as_ref().map(|server| running(server, &tour.log)).transpose()?;
    // Data that is wrong is evidence.
    let stays = plan.keep || plan.data.is_some() || !sound;
    let end = End { what, data: stays.then(|| data.clone()), running };
    if plan.keep || !sound {
        drop(scratch.keep());
    }
    let told = report.verdict(&end);
    if let (Ok(_), Some(server)) = (&told, kept) {
        server.detach();
    }
    told
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
            let message = format!("cannot look into {}", data.display());
            return Err(Coded::wrap(Exit::Usage, message, error.into()));
        }
    };
    if used {
        let data = data.display();
        let message = format!("{data} is not empty; a tour needs a new directory in --data");
        return Err(Coded::error(Exit::Usage, message));
    }
    Ok(data)
}

fn choose(plan: &Plan, report: &mut Report) -> anyhow::Result<(Files, Documents)> {
    let usage = |error| Coded::wrap(Exit::Usage, "there is nothing to take in", error);
    let tree = match &plan.files {
        Some(tree) => tree.clone(),
        None => inputs::default_tree()?,
    };
    report.chapter("What goes in")?;
    let files = Files::choose(&tree, plan.files_max, plan.bytes_max).map_err(usage)?;
    report.line(format_args!(
        "  {} files, {}, of {} in {}",
        files.chosen.len(),
        size(files.chosen_bytes),
        files.found,
        files.tree.display()
    ))?;
    report.line(format_args!(
        "  left out: {} beyond the limits, {} links and special files, {} unreadable, {} with \
         names the server refuses",
        files.beyond_limits, files.special, files.unreadable, files.unfit_names
    ))?;
    if !files.seen_all {
        let seen = inputs::files::SEEN_MAX;
        report.line(format_args!("  only the first {seen} entries of the tree were looked at"))?;
    }
    let documents = Documents::choose(plan.documents.as_deref(), &files).map_err(usage)?;
    report.line(format_args!("  documents: {}", documents.source))?;
    for (namespace, texts) in &documents.sets {
        report.line(format_args!("    {:>8} for {namespace}", texts.len()))?;
    }
    if documents.skipped > 0 {
        report.line(format_args!("    {:>8} skipped: no objects or no JSON", documents.skipped))?;
    }
    report.section("files_chosen", &files);
    report.section("documents_source", &documents.source);
    Ok((files, documents))
}

/// Bytes below a directory as the disk counts them.
fn disk_bytes(dir: &Path) -> u64 {
    use std::os::unix::fs::MetadataExt as _;
    let entries = walkdir::WalkDir::new(dir).into_iter().filter_map(Result::ok);
    entries.filter_map(|entry| entry.metadata().ok()).map(|metadata| metadata.blocks() * 512).sum()
}
