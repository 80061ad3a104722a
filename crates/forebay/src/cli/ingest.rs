//! `forebay ingest`: files and directories to a running server, in parallel.
//!
//! One thread walks, several upload. A file whose size and SHA-256 are already stored under its name is
//! left alone, so a run that was interrupted is continued by repeating it. Large files are continued in the
//! middle (`ingest_resume`).
//!
//! Invariants: what waits between the threads is limited; a file that fails stops no other, unless the
//! server refuses the key; a file counts as stored only if the server answered with the SHA-256 of what
//! was read.

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, sync_channel};
use std::time::{Duration, SystemTime};

use forebay_base::backoff::Backoff;
use forebay_base::duration::HumanDuration;
use forebay_base::error_chain::chain;
use forebay_console::interrupt::Interrupt;
use forebay_intake::names::{Namespace, check_comment};
use indicatif::ProgressBar;
use parking_lot::Mutex;

use super::file_client::{Client, ClientArgs, Failure, failed, namespace, shown};
use super::files_copy::{Hashed, sha256_of};
use super::ingest_resume::{self, Large, Unsent};
use super::ingest_walk::{Found, Item, Walk, prefix};
use super::progress;
use crate::exit::{Coded, Exit};
use crate::out;

/// Attempts at one file before it counts as failed.
const ATTEMPTS: u32 = 5;
/// Delay before the second attempt; it grows from there.
const RETRY_FIRST: Duration = Duration::from_millis(200);
const RETRY_MAX: Duration = Duration::from_secs(10);
/// How often a watch looks whether it was interrupted.
const LOOK_EVERY: Duration = Duration::from_millis(100);

const AFTER_HELP: &str = "\
Examples:
  forebay ingest photos --namespace photos
  forebay ingest /var/reports --namespace docs --prefix reports/2026
  forebay ingest inbox --watch

What is below a directory is named by its path from there, a single file by its own name; --prefix
precedes both. A file whose size and SHA-256 are already stored under its name is not sent again, so
repeat the command to continue after an interruption. A file of 64 MiB or more is continued where it
was interrupted, for a day. Files that were removed stay on the server.

With --watch the directories are looked at again every --interval, until Ctrl-C. A file that is new
or has changed is stored once its size and time stay the same from one look to the next.

Symbolic links and what is no regular file are skipped and reported. Exit codes: 0 everything is
stored; 1 some files could not be stored, which are listed, or the server did not answer; 2 invalid
command line.";

#[derive(clap::Args, Debug)]
#[command(after_help = AFTER_HELP)]
pub(super) struct Args {
    /// Files and directories to store.
    #[arg(value_name = "PATH", required = true)]
    paths: Vec<PathBuf>,
    /// Namespace of the files.
    #[arg(long, value_name = "NAME", default_value = "default", value_parser = namespace)]
    namespace: Namespace,
    /// Text that precedes every name, followed by a slash.
    #[arg(long, value_name = "TEXT", default_value = "")]
    prefix: String,
    /// Comment to store with each file.
    #[arg(long, value_name = "TEXT", default_value = "", value_parser = comment)]
    comment: String,
    /// Number of files sent at the same time.
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u16).range(1..=64))]
    workers: u16,
    /// Store what symbolic links refer to, under the names of the links.
    #[arg(long)]
    follow_links: bool,
    /// Only report what would be stored.
    #[arg(long)]
    dry_run: bool,
    /// Continue to store files that are new or have changed.
    #[arg(long, conflicts_with = "dry_run")]
    watch: bool,
    /// Time between two looks at the directories.
    #[arg(long, value_name = "DURATION", default_value = "2s", requires = "watch")]
    interval: HumanDuration,
    #[command(flatten)]
    from: ClientArgs,
    /// Print the summary as JSON.
    #[arg(long)]
    json: bool,
}

fn comment(text: &str) -> Result<String, String> {
    check_comment(text).map(|()| text.to_owned()).map_err(|error| error.to_string())
}

/// Counts of a run.
#[derive(Debug, Clone, Copy, Default, serde::Serialize)]
struct Summary {
    /// Files under names that did not exist.
    stored: u64,
    /// Files under names that referred to other bytes.
    replaced: u64,
    /// Files that were stored before.
    unchanged: u64,
    /// Links, and what is no regular file.
    skipped: u64,
    /// Files that could not be stored.
    failed: u64,
    /// Bytes of the files that were sent.
    bytes_sent: u64,
}

/// What became of a file.
enum Outcome {
    Stored { replaced: bool, size: u64 },
    Unchanged,
}

/// Why a file was not stored.
enum Refusal {
    /// This file only.
    File(String),
    /// This file, for a reason that may pass.
    Later(String),
    /// Every file: the server refuses the key.
    All(Failure),
}

/// A run: what all threads share.
struct Run<'a> {
    args: &'a Args,
    client: Client,
    walk: Walk,
    bar: ProgressBar,
    summary: Mutex<Summary>,
    /// Files that a watch tries again at its next look.
    later: Mutex<Vec<PathBuf>>,
    /// The refusal that ends the run.
    ended: Mutex<Option<Failure>>,
}

/// A file's size and time as a watch knows it.
type Seen = (u64, Option<SystemTime>);

pub(super) fn run(args: &Args) -> anyhow::Result<Exit> {
    let client = Client::new(&args.from)?;
    // A wrong address or key is reported once, before anything is read.
    client.json(&format!("/v1/files?namespace={}&limit=1", args.namespace))?;
    let walk = Walk {
        namespace: args.namespace.clone(),
        prefix: prefix(&args.prefix),
        follow_links: args.follow_links,
    };
    let (summary, later, ended) = (Mutex::default(), Mutex::default(), Mutex::default());
    let run = Run { args, client, walk, bar: progress::of_bytes(), summary, later, ended };
    if args.watch {
        run.watch()?;
    } else {
        run.once();
    }
    run.bar.finish_and_clear();
    if let Some(failure) = run.ended.lock().take() {
        return Err(failed(failure));
    }
    let summary = *run.summary.lock();
    report(&summary, args)?;
    Ok(if summary.failed == 0 { Exit::Ok } else { Exit::Failed })
}

impl Run<'_> {
    /// Stores everything once.
    fn once(&self) {
        let mut names = HashMap::new();
        self.pass(|run, found| match found {
            Found::File(item) => run.is_first(&mut names, &item).then_some(item),
            other => run.passed_over(&other),
        });
    }

    /// Stores what is new or has changed until the user interrupts.
    fn watch(&self) -> anyhow::Result<()> {
        let interrupt = Interrupt::listen()?;
        let mut done: HashMap<PathBuf, Seen> = HashMap::new();
        let mut last: HashMap<PathBuf, Seen> = HashMap::new();
        let mut reported: HashSet<PathBuf> = HashSet::new();
        let mut is_first = true;
        while !interrupt.asked() && self.ended.lock().is_none() {
            let mut now = HashMap::new();
            let mut names = HashMap::new();
            self.pass(|run, found| {
                let item = match found {
                    Found::File(item) => item,
                    // What is passed over is reported once.
                    other => {
                        if reported.insert(path_of(&other).to_owned()) {
                            return run.passed_over(&other);
                        }
                        return None;
                    }
                };
                if interrupt.asked() {
                    return None;
                }
                let seen = (item.size, item.modified);
                now.insert(item.path.clone(), seen);
                let is_known = done.get(&item.path) == Some(&seen);
                let is_settled = is_first || last.get(&item.path) == Some(&seen);
                if is_known || !is_settled || !run.is_first(&mut names, &item) {
                    return None;
                }
                done.insert(item.path.clone(), seen);
                Some(item)
            });
            for path in self.later.lock().drain(..) {
                done.remove(&path);
            }
            // What is gone is forgotten.
            done.retain(|path, _| now.contains_key(path));
            last = now;
            is_first = false;
            let mut left = self.args.interval.get();
            while !left.is_zero() && !interrupt.asked() {
                let pause = left.min(LOOK_EVERY);
                std::thread::park_timeout(pause);
                left -= pause;
            }
        }
        Ok(())
    }

    /// Walks through every path, and stores what `select` returns.
    fn pass(&self, mut select: impl FnMut(&Self, Found) -> Option<Item>) {
        let workers = usize::from(self.args.workers);
        let (send, receive) = sync_channel::<Item>(2 * workers);
        let receive = Mutex::new(receive);
        std::thread::scope(|scope| {
            for _ in 0..workers {
                scope.spawn(|| self.work(&receive));
            }
            'paths: for path in &self.args.paths {
                for found in self.walk.below(path) {
                    if self.ended.lock().is_some() {
                        break 'paths;
                    }
                    let Some(item) = select(self, found) else { continue };
                    if send.send(item).is_err() {
                        break 'paths;
                    }
                }
            }
            drop(send);
        });
    }

    /// Stores files until there are no more.
    fn work(&self, items: &Mutex<Receiver<Item>>) {
        loop {
            let next = items.lock().recv();
            let Ok(item) = next else { return };
            if self.ended.lock().is_some() {
                // The rest is taken out of the queue, so that the walk is not held up.
                continue;
            }
            match self.store(&item) {
                Ok(outcome) => self.count(&outcome),
                Err(Refusal::File(reason)) => self.fail(&item.path, &reason),
                Err(Refusal::Later(reason)) => {
                    self.fail(&item.path, &reason);
                    if self.args.watch {
                        self.later.lock().push(item.path);
                    }
                }
                Err(Refusal::All(failure)) => *self.ended.lock() = Some(failure),
            }
        }
    }

    fn store(&self, item: &Item) -> Result<Outcome, Refusal> {
        let mut backoff = Backoff::new(RETRY_FIRST, RETRY_MAX);
        let mut attempt = 1;
        loop {
            let failure = match self.attempt(item)? {
                Ok(outcome) => return Ok(outcome),
                Err(failure) => failure,
            };
            if failure.is_final() {
                return Err(Refusal::All(failure));
            }
            match failure.passes() {
                Some(after) if attempt < ATTEMPTS => {
                    std::thread::park_timeout(backoff.delay().max(after));
                    attempt += 1;
                }
                Some(_) => return Err(Refusal::Later(chain(&failure).to_string())),
                None => return Err(Refusal::File(chain(&failure).to_string())),
            }
        }
    }

    /// Stores a file; the inner error is that of the request.
    fn attempt(&self, item: &Item) -> Result<Result<Outcome, Failure>, Refusal> {
        let local = |error: std::io::Error| Refusal::File(error.to_string());
        let known = match self.client.head(&item.target) {
            Err(failure) => return Ok(Err(failure)),
            Ok(known) => known,
        };
        if let Some(known) = known.as_ref().filter(|known| known.size == item.size)
            && sha256_of(&item.path).map_err(local)? == known.sha256
        {
            return Ok(Ok(Outcome::Unchanged));
        }
        let file = File::open(&item.path).map_err(local)?;
        if self.args.dry_run {
            let line = format!("{}  {}", shown(&item.path.to_string_lossy()), item.target);
            self.bar
                .suspend(|| out::line(line))
                .map_err(|error| Refusal::File(format!("{error:#}")))?;
            return Ok(Ok(Outcome::Stored { replaced: known.is_some(), size: item.size }));
        }
        let size = file.metadata().map_err(local)?.len();
        if size < ingest_resume::SIZE_MIN {
            return self.send(item, file, size);
        }
        self.send_large(item, file, known.is_some())
    }

    /// Sends a file whole.
    fn send(
        &self,
        item: &Item,
        file: File,
        size: u64,
    ) -> Result<Result<Outcome, Failure>, Refusal> {
        let mut from = Hashed::new(file.take(size));
        let stored =
            self.client.put(&item.target, &mut from, Some(size), &self.args.comment, false);
        if from.size < size && stored.is_err() {
            // The server saw less than was declared.
            let cut = std::fs::metadata(&item.path).is_ok_and(|now| now.len() < size);
            if cut {
                return Err(Refusal::File("it became shorter while it was read".to_owned()));
            }
        }
        let stored = match stored {
            Ok(stored) => stored,
            Err(failure) => return Ok(Err(failure)),
        };
        same(stored["sha256"].as_str(), &from.sha256())?;
        let replaced = stored["replaced"].as_bool().unwrap_or(false);
        Ok(Ok(Outcome::Stored { replaced, size }))
    }

    /// Sends what the server lacks of a large file.
    fn send_large(
        &self,
        item: &Item,
        file: File,
        replaced: bool,
    ) -> Result<Result<Outcome, Failure>, Refusal> {
        let Item { target, path, .. } = item;
        let large = Large { client: &self.client, target, path, comment: &self.args.comment };
        let sent = match large.send(file) {
            Ok(sent) => sent,
            Err(Unsent::Local(error)) => return Err(Refusal::File(error.to_string())),
            Err(Unsent::Request(failure)) if failure.is_final() || failure.passes().is_some() => {
                return Ok(Err(failure));
            }
            // The server has no such uploads, or this one is damaged.
            Err(Unsent::Request(_)) => {
                let local = |error: std::io::Error| Refusal::File(error.to_string());
                let file = File::open(path).map_err(local)?;
                let size = file.metadata().map_err(local)?.len();
                return self.send(item, file, size);
            }
        };
        match self.client.head(target) {
            Err(failure) => Ok(Err(failure)),
            Ok(stored) => {
                same(stored.as_ref().map(|stored| &*stored.sha256), &sent.sha256)?;
                Ok(Ok(Outcome::Stored { replaced, size: sent.size }))
            }
        }
    }

    /// Whether no other file of this pass has the same name.
    fn is_first(&self, names: &mut HashMap<String, PathBuf>, item: &Item) -> bool {
        // Only two paths of the command line can give two files one name.
        if self.args.paths.len() < 2 {
            return true;
        }
        if let Some(other) = names.get(&item.target.to_string()) {
            let other = shown(&other.to_string_lossy());
            self.fail(&item.path, &format!("{other} has the same name, {}", item.target));
            return false;
        }
        names.insert(item.target.to_string(), item.path.clone());
        true
    }

    /// Reports what is no file to be stored.
    fn passed_over(&self, found: &Found) -> Option<Item> {
        match found {
            Found::File(_) => {}
            Found::Skipped { path, reason } => {
                self.summary.lock().skipped += 1;
                self.note(&format!("skipped {}: {reason}", shown(&path.to_string_lossy())));
            }
            Found::Failed { path, reason } => self.fail(path, reason),
        }
        None
    }

    fn count(&self, outcome: &Outcome) {
        let mut summary = self.summary.lock();
        match *outcome {
            Outcome::Unchanged => summary.unchanged += 1,
            Outcome::Stored { replaced, size } => {
                if replaced {
                    summary.replaced += 1;
                } else {
                    summary.stored += 1;
                }
                summary.bytes_sent += size;
            }
        }
        let Summary { stored, replaced, unchanged, bytes_sent, .. } = *summary;
        drop(summary);
        self.bar.set_position(bytes_sent);
        self.bar.set_message(format!("{} files stored, {unchanged} unchanged", stored + replaced));
    }

    fn fail(&self, path: &Path, reason: &str) {
        self.summary.lock().failed += 1;
        self.note(&format!("failed {}: {}", shown(&path.to_string_lossy()), shown(reason)));
    }

    /// Prints a line beside the progress.
    fn note(&self, text: &str) {
        self.bar.suspend(|| out::note(text));
    }
}

/// Compares what the server stored with what was sent.
fn same(stored: Option<&str>, sent: &str) -> Result<(), Refusal> {
    if stored == Some(sent) {
        return Ok(());
    }
    Err(Refusal::File(format!("it was stored with another SHA-256 than {sent}")))
}

fn path_of(found: &Found) -> &Path {
    match found {
        Found::File(item) => &item.path,
        Found::Skipped { path, .. } | Found::Failed { path, .. } => path,
    }
}

fn report(summary: &Summary, args: &Args) -> anyhow::Result<()> {
    if args.json {
        let json = serde_json::to_value(summary)
            .map_err(|error| Coded::wrap(Exit::Failed, "cannot print the summary", error.into()))?;
        return out::json(&json);
    }
    let Summary { stored, replaced, unchanged, skipped, failed, bytes_sent } = *summary;
    let size = out::size(bytes_sent);
    let verb = if args.dry_run { "would store" } else { "stored" };
    out::line(format!(
        "{verb} {} files ({size}), of which {replaced} replaced others; {unchanged} unchanged, \
         {skipped} skipped, {failed} failed",
        stored + replaced
    ))
}
