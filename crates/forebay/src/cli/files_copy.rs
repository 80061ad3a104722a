//! `forebay files get` and `put`: the bytes of a file, verified on both ways.
//!
//! Invariants: a file that is fetched gets its name only when all of it has arrived and its SHA-256 is
//! the one that the server has; nothing is overwritten unless that is asked for.

use std::fs::File;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use indicatif::{ProgressBar, ProgressStyle};
use sha2::{Digest as _, Sha256};

use super::file_client::{Client, ClientArgs, Target, failed};
use crate::exit::{Coded, Exit};
use crate::out;

/// Bytes that are copied at a time.
const PIECE: usize = 256 << 10;

const GET_AFTER_HELP: &str = "\
Examples:
  forebay files get docs/report.pdf
  forebay files get docs/report.pdf -o copy.pdf
  forebay files get docs/data.csv -o - | head

The file is written under a temporary name and renamed once its SHA-256 was verified. With -o - it
is written to standard output as it arrives: check the exit code.";

const PUT_AFTER_HELP: &str = "\
Examples:
  forebay files put report.pdf docs/reports/2026.pdf
  tar c photos | forebay files put - backup/photos.tar";

#[derive(clap::Args, Debug)]
#[command(after_help = GET_AFTER_HELP)]
pub(super) struct GetArgs {
    /// The file.
    #[arg(value_name = "NAMESPACE/NAME", value_parser = Target::parse)]
    file: Target,
    /// File or directory to write to, or - for standard output [default: the last part of the name,
    /// in the current directory].
    #[arg(short, long, value_name = "PATH")]
    output: Option<PathBuf>,
    /// Fetch an earlier version, by its id from `forebay files history`.
    #[arg(long, value_name = "ID")]
    version_id: Option<String>,
    /// Replace a file that exists.
    #[arg(short, long)]
    force: bool,
    #[command(flatten)]
    from: ClientArgs,
}

#[derive(clap::Args, Debug)]
#[command(after_help = PUT_AFTER_HELP)]
pub(super) struct PutArgs {
    /// File to read, or - for standard input.
    #[arg(value_name = "FILE")]
    source: PathBuf,
    /// Name to store it under.
    #[arg(value_name = "NAMESPACE/NAME", value_parser = Target::parse)]
    file: Target,
    /// Comment to store with the file.
    #[arg(long, value_name = "TEXT", default_value = "")]
    comment: String,
    /// Fail if the name exists.
    #[arg(long)]
    if_absent: bool,
    #[command(flatten)]
    from: ClientArgs,
    /// Print the server's JSON answer.
    #[arg(long)]
    json: bool,
}

/// Computes the SHA-256 of what is read through it.
pub(super) struct Hashed<R> {
    inner: R,
    hasher: Sha256,
    pub(super) size: u64,
}

impl<R: Read> Hashed<R> {
    pub(super) fn new(inner: R) -> Self {
        Self { inner, hasher: Sha256::new(), size: 0 }
    }

    /// The SHA-256 of what was read, in hexadecimal.
    pub(super) fn sha256(self) -> String {
        hex::encode(self.hasher.finalize())
    }
}

impl<R: Read> Read for Hashed<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.inner.read(buffer)?;
        self.hasher.update(buffer.get(..read).unwrap_or_default());
        self.size += read as u64;
        Ok(read)
    }
}

/// Computes the SHA-256 of a file, in hexadecimal.
pub(super) fn sha256_of(path: &Path) -> io::Result<String> {
    let mut hashed = Hashed::new(File::open(path)?);
    let mut buffer = vec![0; PIECE];
    while hashed.read(&mut buffer)? > 0 {}
    Ok(hashed.sha256())
}

pub(super) fn get(args: &GetArgs) -> anyhow::Result<Exit> {
    let client = Client::new(&args.from)?;
    if args.output.as_deref() == Some(Path::new("-")) {
        fetch(&client, args, &mut io::stdout().lock())?;
        return Ok(Exit::Ok);
    }
    let base = args.file.name.base_name();
    let path = match &args.output {
        Some(path) if path.is_dir() => path.join(base),
        Some(path) => path.clone(),
        None => PathBuf::from(base),
    };
    if !args.force && path.try_exists().with_context(|| cannot_write(&path))? {
        let text = format!("{} exists; replace it with --force", path.display());
        return Err(Coded::error(Exit::Failed, text));
    }
    let dir = path.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let mut part = tempfile::Builder::new();
    // As any new file; the usual mode of a temporary one is for its owner alone.
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o666);
    let part = part.prefix(".forebay-").suffix(".part").permissions(mode);
    let mut part = part.tempfile_in(dir).with_context(|| cannot_write(&path))?;
    fetch(&client, args, part.as_file_mut())?;
    part.as_file().sync_all().with_context(|| cannot_write(&path))?;
    let named = match args.force {
        true => part.persist(&path).map(drop),
        false => part.persist_noclobber(&path).map(drop),
    };
    named.map_err(|error| error.error).with_context(|| cannot_write(&path))?;
    Ok(Exit::Ok)
}

fn cannot_write(path: &Path) -> String {
    format!("cannot write {}", path.display())
}

/// Copies a file from the server, and verifies its digest.
fn fetch(client: &Client, args: &GetArgs, to: &mut impl Write) -> anyhow::Result<()> {
    let file = &args.file;
    let answer = client.get(file, args.version_id.as_deref()).map_err(failed)?;
    let header = |name: &str| {
        let value = answer.headers().get(name).and_then(|value| value.to_str().ok());
        value.map(str::to_owned)
    };
    let expected = header("etag").map(|etag| etag.trim_matches('"').to_owned());
    let size = header("content-length").and_then(|size| size.parse().ok());
    let bar = progress(size);
    // The server decides how large it is.
    let body = answer.into_body().into_with_config().limit(u64::MAX).reader();
    let mut from = Hashed::new(bar.wrap_read(body));
    let mut buffer = vec![0; PIECE];
    loop {
        let read = from.read(&mut buffer).with_context(|| format!("cannot fetch {file}"))?;
        if read == 0 {
            break;
        }
        let bytes = buffer.get(..read).unwrap_or_default();
        match to.write_all(bytes).and_then(|()| to.flush()) {
            // Standard output, of which the reader has read enough.
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => return Ok(()),
            written => written.context("cannot write what was fetched")?,
        }
    }
    bar.finish_and_clear();
    let found = from.sha256();
    match expected {
        Some(expected) if expected == found => Ok(()),
        Some(expected) => bail!("{file} has the SHA-256 {found}, expected {expected}"),
        None => bail!("the server did not send the SHA-256 of {file}"),
    }
}

pub(super) fn put(args: &PutArgs) -> anyhow::Result<Exit> {
    let client = Client::new(&args.from)?;
    let cannot_read = || format!("cannot read {}", args.source.display());
    let (source, size): (Box<dyn Read>, _) = match args.source.as_path() {
        path if path == Path::new("-") => (Box::new(io::stdin().lock()), None),
        path => {
            let file = File::open(path).with_context(cannot_read)?;
            let metadata = file.metadata().with_context(cannot_read)?;
            if metadata.is_dir() {
                let text = format!("{} is a directory; use forebay ingest", path.display());
                return Err(Coded::error(Exit::Usage, text));
            }
            // What is no regular file has no size that says anything.
            let size = metadata.is_file().then_some(metadata.len());
            match size {
                Some(size) => (Box::new(file.take(size)), Some(size)),
                None => (Box::new(file), None),
            }
        }
    };
    let bar = progress(size);
    let mut from = Hashed::new(bar.wrap_read(source));
    let stored = client.put(&args.file, &mut from, size, &args.comment, args.if_absent);
    bar.finish_and_clear();
    let stored = stored.map_err(failed)?;
    let sent = from.sha256();
    if stored["sha256"] != sent.as_str() {
        bail!("{} was stored with the SHA-256 {}, expected {sent}", args.file, stored["sha256"]);
    }
    if args.json {
        out::json(&stored)?;
    } else {
        out::line(format!("{sent}  {}", args.file))?;
    }
    Ok(Exit::Ok)
}

fn progress(size: Option<u64>) -> ProgressBar {
    if !std::io::IsTerminal::is_terminal(&io::stderr()) {
        return ProgressBar::hidden();
    }
    let style = |template| {
        ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar())
    };
    match size {
        Some(size) => ProgressBar::new(size)
            .with_style(style("{bar:40} {bytes}/{total_bytes} {bytes_per_sec} {eta}")),
        None => ProgressBar::no_length().with_style(style("{bytes} {bytes_per_sec} {elapsed}")),
    }
}
