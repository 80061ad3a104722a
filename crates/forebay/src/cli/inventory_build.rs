//! `forebay inventory build`.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use forebay_base::bytes::ByteSize;
use forebay_base::clock::{Clock as _, SystemClock};
use forebay_base::fs::{FileSystem, RealFs};
use forebay_inventory::builder::{self, BuildError, Built, Monitor, OnBadRow, Options, Stage};
use forebay_inventory::object::Classes;
use forebay_inventory::source::{self, Columns, S3, Settings, Spec};
use forebay_objects::Addressing;
use indicatif::{ProgressBar, ProgressStyle};
use rustix::process::{Resource, getrlimit};
use serde_json::json;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::oneshot;

use super::inventory::json_line;
use crate::buckets::S3Options;
use crate::exit::{Coded, Exit};
use crate::out;
use crate::usage::Usage;

const HELP: &str = "\
Sources:
  DIR/manifest.json, s3://BUCKET/.../manifest.json    an S3 Inventory with checksums, CSV or Parquet
  FILE.parquet, FILE.csv[.gz|.zst], also s3://...     a table; --columns names its columns
  DIR, s3://BUCKET/PREFIX/                            the inventory there, or all tables of one kind
  s3-list://BUCKET/PREFIX                             the bucket itself, listed by ListObjectsV2
  fs:DIR                                              the files below a directory

Examples:
  forebay inventory build --from ./2026-11-20T01-00Z/manifest.json --out ./index
  forebay inventory build --from s3://reports/2026-11-20T01-00Z/manifest.json --out ./index
  forebay inventory build --from fs:/usr/share --out /tmp/share --json
  forebay inventory build --from files.csv --columns key=path,size=bytes --out ./index

The index appears when it is complete. A build that is stopped leaves nothing behind. An index that
is replaced remains in place until then.";

#[derive(clap::Args, Debug)]
#[command(after_help = HELP)]
pub(super) struct Args {
    /// Source to read. May be repeated for several tables.
    #[arg(long, value_name = "SOURCE", required = true)]
    from: Vec<Spec>,
    /// Directory for the index.
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    /// Replace an existing index.
    #[arg(long)]
    replace: bool,
    /// Maximum memory of the build, at least 32MiB; more data is written to temporary files beside
    /// the index [default: a quarter of the machine's memory].
    #[arg(long, value_name = "SIZE", value_parser = memory)]
    memory: Option<ByteSize>,
    /// Number of concurrent readers [default: one for each processor].
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u16).range(1..=256))]
    threads: Option<u16>,
    /// Delimiter between the components of a key: one ASCII character.
    #[arg(long, value_name = "CHARACTER", default_value = "/", value_parser = delimiter)]
    delimiter: u8,
    /// Omit the histograms of sizes and ages. The index is smaller but cannot compute costs.
    #[arg(long)]
    no_histograms: bool,
    /// How to treat a row that cannot be read.
    #[arg(long, value_enum, value_name = "WORD", default_value_t)]
    on_bad_row: BadRowArg,
    /// Count a key that is listed twice twice, instead of failing.
    #[arg(long)]
    allow_duplicates: bool,
    /// Fail unless the row count equals COUNT.
    #[arg(long, value_name = "COUNT")]
    expect_rows: Option<u64>,
    /// Columns of a table, as key=COLUMN,size=COLUMN,...
    #[arg(long, value_name = "LIST")]
    columns: Option<Columns>,
    /// The keys of a CSV file with a header are percent-encoded.
    #[arg(long)]
    percent_encoded: bool,
    /// Do not verify MD5 checksums.
    #[arg(long)]
    no_verify: bool,
    /// Local directory to read instead of the bucket named in a manifest.
    #[arg(long, value_name = "DIR")]
    root: Option<PathBuf>,
    #[command(flatten)]
    s3: S3Options,
    /// Print one JSON object at the end.
    #[arg(long)]
    json: bool,
}

#[derive(clap::ValueEnum, Debug, Clone, Copy, Default)]
enum BadRowArg {
    /// Fail the build.
    #[default]
    Fail,
    /// Skip the row and count it; the first ten are printed.
    Skip,
}

fn delimiter(text: &str) -> Result<u8, String> {
    match text.as_bytes() {
        [byte] if byte.is_ascii() => Ok(*byte),
        _ => Err("not one ASCII character".to_owned()),
    }
}

pub(super) fn run(args: &Args) -> anyhow::Result<Exit> {
    let started = Instant::now();
    let classes = Arc::new(Classes::new());
    let options = options(args);
    let settings = Settings { memory: options.memory_of_reading(), ..settings(args, &classes)? };
    let source = source::open(&args.from, &settings).context("cannot read the source")?;
    let monitor = Arc::new(Monitor::default());
    let watch = Watch::start(&monitor, !args.json)?;
    let fs: Arc<dyn FileSystem> = Arc::new(RealFs);
    let built = builder::build(&fs, &*source, &classes, &args.out, &options, &monitor);
    watch.stop();
    let built = built.map_err(|error| match error {
        BuildError::Cancelled => Coded::error(Exit::Interrupted, error.to_string()),
        BuildError::Exists(_) => {
            Coded::error(Exit::Usage, format!("{error}; --replace replaces it"))
        }
        BuildError::BadRow(_) => anyhow::Error::new(error)
            .context("a row cannot be read (--on-bad-row skip skips such rows)"),
        BuildError::Duplicate { .. } => anyhow::Error::new(error)
            .context("the inventory lists a key twice (--allow-duplicates counts it twice)"),
        error => anyhow::Error::new(error).context("cannot build the index"),
    })?;
    for row in &built.bad_rows_shown {
        out::note(format_args!("row {} of {}: {} {}", row.row, row.part, row.field, row.reason));
    }
    report(args, &built, started.elapsed())?;
    Ok(Exit::Ok)
}

fn report(args: &Args, built: &Built, took: Duration) -> anyhow::Result<()> {
    let seconds = took.as_secs_f64();
    let Usage { cpu_seconds, peak_rss_bytes } = Usage::of_this_process()?;
    if args.json {
        return json_line(&json!({
            "objects": built.objects,
            "prefixes": built.prefixes,
            "bytes": built.bytes,
            "billed_bytes": built.billed_bytes,
            "rows": built.rows,
            "seconds": seconds,
            "cpu_seconds": cpu_seconds,
            "peak_rss_bytes": peak_rss_bytes,
            "bad_rows": built.bad_rows,
            "in_order": built.in_order,
            "runs": built.runs,
            "index_bytes": built.index_size,
        }));
    }
    let versions = if built.billed_bytes > built.bytes {
        format!(" ({} with noncurrent versions)", out::size(built.billed_bytes))
    } else {
        String::new()
    };
    out::line(format_args!(
        "{} objects, {}{versions}, below {} prefixes, in {seconds:.2} s ({:.0} rows/s, {:.0} MiB peak memory)\n\
         index of {} ({:.1} bytes per prefix): {}",
        built.objects,
        out::size(built.bytes),
        built.prefixes,
        built.rows as f64 / seconds.max(1e-9),
        peak_rss_bytes as f64 / f64::from(1 << 20),
        out::size(built.index_size),
        built.index_size as f64 / built.prefixes.max(1) as f64,
        args.out.display(),
    ))?;
    if built.bad_rows > 0 {
        out::note(format_args!("{} rows could not be read and were skipped", built.bad_rows));
    }
    Ok(())
}

fn settings(args: &Args, classes: &Arc<Classes>) -> anyhow::Result<Settings> {
    let mut settings = Settings::new(Arc::clone(classes));
    settings.verify = !args.no_verify;
    settings.percent_encoded = args.percent_encoded;
    settings.root.clone_from(&args.root);
    // A remote source is downloaded and is as large as the report: the index's disk must have room
    // for it.
    let above = args.out.ancestors().skip(1);
    let mut above = above.map(|dir| if dir.as_os_str().is_empty() { Path::new(".") } else { dir });
    if let Some(beside) = above.find(|dir| dir.is_dir()) {
        settings.temporary = beside.to_owned();
    }
    if let Some(columns) = &args.columns {
        settings.columns.clone_from(columns);
    }
    let remote = args.from.iter().any(|spec| spec.to_string().contains("://"));
    if remote {
        let access = args.s3.access(Addressing::Auto)?;
        settings.s3 = Some(S3::new(access).context("cannot access S3")?);
    }
    Ok(settings)
}

fn options(args: &Args) -> Options {
    let threads = args.threads.map_or_else(
        || std::thread::available_parallelism().map_or(2, std::num::NonZero::get),
        usize::from,
    );
    Options {
        memory: args.memory.unwrap_or_else(quarter_of_memory),
        threads,
        delimiter: args.delimiter,
        histograms: !args.no_histograms,
        on_bad_row: match args.on_bad_row {
            BadRowArg::Fail => OnBadRow::Fail,
            BadRowArg::Skip => OnBadRow::Skip,
        },
        on_duplicate: if args.allow_duplicates { OnBadRow::Skip } else { OnBadRow::Fail },
        expect_rows: args.expect_rows,
        replace: args.replace,
        now_ms: SystemClock::new().now_ms(),
    }
}

/// The readers and the program itself use some of it.
const MEMORY_MIN: ByteSize = ByteSize(32 << 20);

fn memory(text: &str) -> Result<ByteSize, String> {
    let memory: ByteSize = text.parse().map_err(|error| format!("{error}"))?;
    if memory.0 < MEMORY_MIN.0 {
        return Err(format!("a build needs {MEMORY_MIN} or more"));
    }
    Ok(memory)
}

/// Returns a quarter of the machine's memory, or of the process's memory limit.
fn quarter_of_memory() -> ByteSize {
    let machine = rustix::system::sysinfo();
    let machine = machine.totalram.saturating_mul(u64::from(machine.mem_unit));
    let allowed = getrlimit(Resource::As).current.unwrap_or(u64::MAX);
    ByteSize(machine.min(allowed) / 4)
}

/// Shows the progress, and cancels the build on SIGINT or SIGTERM.
struct Watch {
    done: oneshot::Sender<()>,
    thread: std::thread::JoinHandle<()>,
}

impl Watch {
    fn start(monitor: &Arc<Monitor>, show: bool) -> anyhow::Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .context("cannot handle SIGINT and SIGTERM")?;
        let mut signals = {
            let _entered = runtime.enter();
            let listen = |kind| signal(kind).context("cannot handle SIGINT and SIGTERM");
            (listen(SignalKind::interrupt())?, listen(SignalKind::terminate())?)
        };
        let (done, mut ended) = oneshot::channel();
        let monitor = Arc::clone(monitor);
        let bar = if show { ProgressBar::new(0) } else { ProgressBar::hidden() };
        let watch = move || {
            runtime.block_on(async {
                let mut tick = tokio::time::interval(Duration::from_millis(100));
                loop {
                    tokio::select! {
                        _ = &mut ended => break,
                        _ = signals.0.recv() => monitor.cancel(),
                        _ = signals.1.recv() => monitor.cancel(),
                        _ = tick.tick() => progress(&bar, &monitor),
                    }
                }
            });
            bar.finish_and_clear();
        };
        let builder = std::thread::Builder::new().name("inventory-watch".to_owned());
        let thread = builder.spawn(watch).context("cannot start a thread")?;
        Ok(Self { done, thread })
    }

    fn stop(self) {
        // A thread that has ended needs no stop.
        self.done.send(()).unwrap_or_default();
        if let Err(panic) = self.thread.join() {
            std::panic::resume_unwind(panic);
        }
    }
}

fn progress(bar: &ProgressBar, monitor: &Monitor) {
    let progress = monitor.progress();
    let (template, position, length) = match (progress.stage, progress.bytes_total) {
        (Stage::Reading, Some(total)) => (
            "reading  {bar:30} {bytes} of {total_bytes}, {bytes_per_sec}, {eta} left",
            progress.bytes,
            total,
        ),
        (Stage::Reading, None) => {
            ("reading  {spinner} {human_pos} rows, {per_sec}", progress.rows, progress.rows)
        }
        (Stage::Merging, _) => (
            "merging  {bar:30} {human_pos} of {human_len} rows, {eta} left",
            progress.merged,
            progress.rows,
        ),
        (Stage::Finishing, _) => ("writing the table", progress.rows, progress.rows),
    };
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style);
    }
    bar.set_length(length.max(position));
    bar.set_position(position);
}
