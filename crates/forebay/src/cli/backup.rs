//! `forebay backup`.

use std::path::PathBuf;

use anyhow::{Context as _, ensure};
use indicatif::{HumanBytes, ProgressBar, ProgressStyle};
use serde_json::json;

use super::server::{Server, parsed};
use super::settings::{DataArgs, wrong};
use crate::backup::make::make;
use crate::backup::source::Source;
use crate::backup::store::Store;
use crate::backup::verify::verify;
use crate::exit::{Coded, Exit};
use crate::interrupt::Interrupt;
use crate::{data_dir, out};

const AFTER_HELP: &str = "\
Examples:
  forebay backup /backups/forebay --data /srv/forebay
  forebay backup /backups/forebay --data /srv/forebay --server http://127.0.0.1:8090 --key fbk_...
  forebay backup /backups/forebay --list
  forebay backup /backups/forebay --verify

Run this on the server's machine as its user. A running server makes an image of its data, which
takes moments, and continues to serve while the image is copied; its URL is --server, and --key is a
key with scope admin, if it requires keys. A stopped one is copied as it is. Only what changed since
the newest backup is stored. Everything that is written is read back before the backup counts.

The directory is created if it does not exist, and refused if it holds something else. A backup has
the API keys and the master key: protect it like the data. `forebay restore` makes a data directory
of it.

Exit codes: 0 success; 1 --verify found damage, or the server did not make an image; 3 there is no
data, or no backup, or it cannot be read or written; 130 interrupted.";

#[derive(clap::Args, Debug)]
#[command(after_help = AFTER_HELP)]
pub(super) struct Args {
    /// Directory of the backups.
    #[arg(value_name = "DIR")]
    dir: PathBuf,
    /// List the backups and make none.
    #[arg(long, conflicts_with = "verify")]
    list: bool,
    /// Read every backup again, compare it with its hashes, and make none.
    #[arg(long)]
    verify: bool,
    /// Verify only the backup with this id.
    #[arg(long, value_name = "ID", requires = "verify")]
    at: Option<String>,
    /// URL of the server, if it is running.
    #[arg(long, value_name = "URL", default_value = "http://127.0.0.1:8090")]
    server: String,
    /// API key with scope admin.
    #[arg(long, value_name = "KEY")]
    key: Option<String>,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    data: DataArgs,
}

/// Gives an error that names no exit code the one of data that cannot be used.
pub(super) fn unusable(act: &str) -> impl FnOnce(anyhow::Error) -> anyhow::Error {
    move |error| match error.downcast_ref::<Coded>() {
        Some(_) => error,
        None => Coded::wrap(Exit::Start, act, error),
    }
}

/// A bar of bytes on a terminal.
pub(super) fn bar() -> ProgressBar {
    let style =
        ProgressStyle::with_template("{bar:40} {bytes}/{total_bytes} {bytes_per_sec} {eta}");
    ProgressBar::new(0).with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
}

pub(super) fn run(args: &Args) -> anyhow::Result<Exit> {
    if args.list {
        return list(args).map_err(unusable("cannot list the backups"));
    }
    if args.verify {
        return reread(args).map_err(unusable("cannot verify the backups"));
    }
    let config = args.data.resolve()?.config().map_err(wrong)?;
    data_dir::keep_private();
    let interrupt = Interrupt::listen()?;
    let made = || {
        let data = std::fs::canonicalize(&config.process.data).unwrap_or_default();
        let inside = std::path::absolute(&args.dir)?.starts_with(&data);
        ensure!(
            !inside || data.as_os_str().is_empty(),
            "{} is inside the data directory; choose another, best on another disk",
            args.dir.display()
        );
        let source = Source::prepare(&config.process.data, || image(args))?;
        let store = Store::open_to_write(&args.dir)?;
        let bar = bar();
        let made = make(&store, &source, &interrupt, &mut |done, total| {
            bar.set_length(total);
            bar.set_position(done);
        });
        bar.finish_and_clear();
        made
    };
    let made = made().map_err(unusable("cannot make a backup"))?;
    if args.json {
        out::json(&serde_json::to_value(&made)?)?;
    } else {
        let (bytes, new) = (HumanBytes(made.bytes), HumanBytes(made.new_bytes));
        out::line(format_args!(
            "backup {}: {} files, {bytes}, of which {new} are new",
            made.id, made.files
        ))?;
    }
    Ok(Exit::Ok)
}

/// Asks the server for an image, and returns its path.
fn image(args: &Args) -> anyhow::Result<PathBuf> {
    let path = "/v1/admin/backup-image";
    let server = Server::new(&args.server, args.key.as_deref(), path)?;
    let answer = server.post(path).with_context(|| {
        format!(
            "the data is in use by a server, and the one at {} makes no image of it; name the \
             right one with --server, and a key with --key",
            args.server
        )
    });
    let answer = parsed(&server, &answer?)?;
    let path = answer["path"].as_str().context("the server does not name its image")?;
    Ok(PathBuf::from(path))
}

fn list(args: &Args) -> anyhow::Result<Exit> {
    let store = Store::open(&args.dir)?;
    let mut backups = Vec::new();
    for id in store.ids()? {
        let listed = store.list(Some(&id));
        backups.push(match &listed {
            Ok(list) => json!({
                "id": id,
                "created_ms": list.header.created_ms,
                "forebay": list.header.forebay,
                "files": list.totals.files,
                "bytes": list.totals.bytes,
            }),
            Err(error) => json!({ "id": id, "damaged": format!("{error:#}") }),
        });
        if !args.json {
            match listed {
                Ok(list) => {
                    let (files, bytes) =
                        (list.totals.files, HumanBytes(list.totals.bytes).to_string());
                    out::line(format_args!("{id}  {files:>9} files  {bytes:>12}"))?;
                }
                Err(error) => out::line(format_args!("{id}  DAMAGED: {error:#}"))?,
            }
        }
    }
    if args.json {
        out::json(&json!({ "backups": backups }))?;
    }
    Ok(Exit::Ok)
}

fn reread(args: &Args) -> anyhow::Result<Exit> {
    let store = Store::open(&args.dir)?;
    let interrupt = Interrupt::listen()?;
    let bar = ProgressBar::no_length();
    let verified =
        verify(&store, args.at.as_deref(), &interrupt, &mut |bytes| bar.set_position(bytes));
    bar.finish_and_clear();
    let verified = verified?;
    if args.json {
        out::json(&serde_json::to_value(&verified)?)?;
    } else {
        for finding in &verified.findings {
            out::line(format_args!("DAMAGED  {finding}"))?;
        }
        let bytes = HumanBytes(verified.bytes);
        let (backups, chunks) = (verified.backups, verified.chunks);
        out::line(format_args!("{backups} backups, {chunks} chunks, {bytes} read"))?;
        match verified.damaged {
            0 => out::line("no damage found")?,
            damaged => out::line(format_args!("{damaged} damaged"))?,
        }
    }
    Ok(if verified.damaged == 0 { Exit::Ok } else { Exit::Failed })
}
