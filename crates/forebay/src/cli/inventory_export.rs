//! `forebay inventory export`.

use std::io::{self, IsTerminal as _, Write};
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::Context as _;
use forebay_base::clock::{Clock as _, SystemClock};
use forebay_base::fs::{FileSystem as _, RealFs};
use forebay_inventory::export::{self, ExportError, ExportOptions, Format};
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::json;

use super::inventory::{PrefixArgs, json_line};
use crate::exit::{Coded, Exit};
use crate::interrupt::Interrupt;
use crate::out;

const HELP: &str = "\
Examples:
  forebay inventory export --index ./index --format parquet --out prefixes.parquet
  forebay inventory export --index ./index logs/ --depth 2 --format csv --out -
  forebay inventory export --index ./index --format ncdu --out tree.json && ncdu -f tree.json

Parquet and CSV have one row for each prefix, in order of names, with the columns prefix,
prefix_encoded (its bytes, percent-encoded, if they are not UTF-8), depth, objects, bytes,
descendants, noncurrent_objects, noncurrent_bytes, delete_markers, billed_bytes (all versions), and
objects_CLASS and bytes_CLASS for each storage class.
For ncdu a prefix is a directory, and the objects directly in it are one entry: \"(12 objects)\";
noncurrent versions and delete markers are another. The disk usage includes noncurrent versions, the
apparent size does not.

The file appears when it is complete.

Exit codes: 0 written; 1 the file exists or could not be written; 2 invalid command line; 3 the
prefix does not exist; 130 stopped by Ctrl-C.";

#[derive(clap::Args, Debug)]
#[command(after_help = HELP)]
pub(super) struct Args {
    #[command(flatten)]
    of: PrefixArgs,
    /// Output format.
    #[arg(long, value_enum, value_name = "FORMAT")]
    format: FormatArg,
    /// Output file; - for standard output.
    #[arg(long, value_name = "FILE")]
    out: PathBuf,
    /// Only prefixes at most COUNT levels below the prefix.
    #[arg(long, value_name = "COUNT")]
    depth: Option<u64>,
    /// Replace an existing file.
    #[arg(long)]
    force: bool,
}

#[derive(clap::ValueEnum, Debug, Clone, Copy)]
enum FormatArg {
    /// One row for each prefix.
    Parquet,
    /// The same rows as CSV, with a header.
    Csv,
    /// Directory tree for ncdu -f.
    Ncdu,
}

impl From<FormatArg> for Format {
    fn from(format: FormatArg) -> Self {
        match format {
            FormatArg::Parquet => Self::Parquet,
            FormatArg::Csv => Self::Csv,
            FormatArg::Ncdu => Self::Ncdu,
        }
    }
}

pub(super) fn run(args: &Args) -> anyhow::Result<Exit> {
    let to_stdout = args.out.as_os_str() == "-";
    if to_stdout && args.of.index.json {
        let text = "--json cannot be used with --out -: both print to standard output";
        return Err(Coded::error(Exit::Usage, text));
    }
    if to_stdout {
        return stdout(args);
    }
    let started = Instant::now();
    let (prefixes, bytes) = file(args)?;
    let seconds = started.elapsed().as_secs_f64();
    if args.of.index.json {
        json_line(&json!({ "prefixes": prefixes, "bytes": bytes, "seconds": seconds }))?;
    } else {
        let (size, path) = (out::size(bytes), args.out.display());
        out::line(format_args!("{prefixes} prefixes, {size}, in {seconds:.2} s: {path}"))?;
    }
    Ok(Exit::Ok)
}

fn stdout(args: &Args) -> anyhow::Result<Exit> {
    let stdout = io::stdout();
    if stdout.is_terminal() && matches!(args.format, FormatArg::Parquet) {
        let text = "cannot write Parquet to a terminal; name a file with --out, or use a pipe";
        return Err(Coded::error(Exit::Usage, text));
    }
    // Ctrl-C ends the process at once: there is nothing to remove.
    match export(args, stdout, &|| true) {
        Ok(_) => Ok(Exit::Ok),
        // The reader has read enough.
        Err(error) if is_broken_pipe(&error) => Ok(Exit::Ok),
        Err(error) => Err(error),
    }
}

fn is_broken_pipe(error: &anyhow::Error) -> bool {
    let broken = |cause: &(dyn std::error::Error + 'static)| {
        cause
            .downcast_ref()
            .is_some_and(|error: &io::Error| error.kind() == io::ErrorKind::BrokenPipe)
    };
    error.chain().any(broken)
}

/// Writes a temporary file beside the target, and renames it when it is complete.
fn file(args: &Args) -> anyhow::Result<(u64, u64)> {
    let path = &args.out;
    let dir = path.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let exists = || anyhow::anyhow!("{} already exists; --force replaces it", path.display());
    match path.metadata() {
        Ok(there) if !there.is_file() => {
            anyhow::bail!("{} already exists, and is not a file", path.display())
        }
        Ok(_) if !args.force => return Err(exists()),
        // Other errors are reported when the file is created.
        _ => {}
    }
    let permissions = std::os::unix::fs::PermissionsExt::from_mode(0o666);
    let mut temporary = tempfile::Builder::new()
        .prefix(".forebay-export-")
        .permissions(permissions)
        .tempfile_in(dir)
        .with_context(|| format!("cannot write in {}", dir.display()))?;
    let interrupt = Interrupt::listen()?;
    let prefixes = export(args, temporary.as_file_mut(), &|| !interrupt.asked())?;
    let written = || format!("cannot write {}", path.display());
    let file = temporary.as_file();
    file.sync_all().with_context(written)?;
    let bytes = file.metadata().with_context(written)?.len();
    if args.force {
        temporary.persist(path).map_err(|error| error.error).with_context(written)?;
    } else {
        temporary.persist_noclobber(path).map_err(|error| match error.error.kind() {
            io::ErrorKind::AlreadyExists => exists(),
            _ => anyhow::Error::new(error.error).context(written()),
        })?;
    }
    RealFs.sync_dir(dir).with_context(written)?;
    Ok((prefixes, bytes))
}

fn export(args: &Args, out: impl Write + Send, goes_on: &dyn Fn() -> bool) -> anyhow::Result<u64> {
    let index = args.of.index.open()?;
    let node = args.of.node(&index)?;
    let now_ms = SystemClock::new().now_ms();
    let question = ExportOptions { format: args.format.into(), depth: args.depth, now_ms };
    let bar = progress(args, export::expected(&node));
    let goes_on = || {
        bar.inc(1);
        goes_on()
    };
    let prefix = args.of.bytes();
    let written = export::export(&index, &node, prefix, &question, out, &goes_on);
    bar.finish_and_clear();
    written.map_err(|error| match error {
        ExportError::Cancelled => {
            Coded::error(Exit::Interrupted, format!("{error}; nothing was written"))
        }
        error => error.into(),
    })
}

fn progress(args: &Args, prefixes: u64) -> ProgressBar {
    if args.of.index.json || !io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    // The number down to a depth is unknown until they are counted.
    let (bar, template) = match args.depth {
        None => (
            ProgressBar::new(prefixes),
            "{bar:30} {human_pos} of {human_len} prefixes, {per_sec}, {eta} left",
        ),
        Some(_) => (ProgressBar::no_length(), "{human_pos} prefixes, {per_sec}"),
    };
    match ProgressStyle::with_template(template) {
        Ok(style) => bar.with_style(style),
        Err(_) => bar,
    }
}
