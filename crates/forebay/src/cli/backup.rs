//! `forebay backup`: makes a backup. The commands below it are in `backup_kept`.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, ensure};
use indicatif::{HumanBytes, ProgressBar, ProgressStyle};

use super::backup_kept::{self, ListArgs, PruneArgs, VerifyArgs};
use super::server::{Server, parsed};
use super::settings::{DataArgs, wrong};
use crate::backup::make::make;
use crate::backup::source::Source;
use crate::backup::store::Store;
use crate::backup::target::{Directory, S3, Target};
use crate::buckets::S3Options;
use crate::exit::{Coded, Exit};
use crate::interrupt::Interrupt;
use crate::{data_dir, out};

const AFTER_HELP: &str = "\
Examples:
  forebay backup /backups/forebay --data /srv/forebay
  forebay backup /backups/forebay --data /srv/forebay --server http://127.0.0.1:8090 --key fbk_...
  forebay backup s3://backups/forebay --data /srv/forebay --region eu-central-1
  forebay backup /backups/forebay --server https://forebay.example.org:8090 --ca-file ca.pem
  forebay backup list /backups/forebay
  forebay backup verify s3://backups/forebay
  forebay backup prune /backups/forebay --keep-daily 7 --keep-weekly 4 --keep-monthly 12

Run this on the server's machine as its user. A running server makes an image of its data, which
takes moments, and continues to serve while the image is copied; its URL is --server, and --key is a
key with scope admin, if it requires keys. A stopped one is copied as it is. Only what changed since
the newest backup is stored. Everything that is written is read back before the backup counts, or,
by S3, compared with its SHA-256.

The certificate of a server with https:// is always verified: by the system's certificates, or by
those of --ca-file, which can be the server's own certificate if it is self-signed and has
basicConstraints=CA:FALSE. The host in the URL must be one that the certificate names.

The target is a directory, which is created if it does not exist, or a prefix in a bucket of S3. One
that holds something else is refused. A backup has the API keys and the master key: protect it like
the data. `forebay restore` makes a data directory of it. Credentials for S3 are read from the
variables AWS_... or a profile. They need the permissions s3:ListBucket, s3:GetObject, s3:PutObject,
s3:DeleteObject and s3:AbortMultipartUpload.

Exit codes: 0 success; 1 the server did not make an image; 2 invalid command line; 3 there is no
data, or the target cannot be read or written; 130 interrupted.";

#[derive(clap::Args, Debug)]
#[command(after_help = AFTER_HELP)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub(super) struct Args {
    #[command(subcommand)]
    command: Option<Command>,
    /// Directory of the backups, or s3://BUCKET/PREFIX.
    #[arg(value_name = "TARGET", required = true)]
    target: Option<String>,
    /// Same as `forebay backup list TARGET`.
    #[arg(long, hide = true, conflicts_with = "verify")]
    list: bool,
    /// Same as `forebay backup verify TARGET`.
    #[arg(long, hide = true)]
    verify: bool,
    /// Same as ID of `forebay backup verify TARGET ID`.
    #[arg(long, hide = true, value_name = "ID", requires = "verify")]
    at: Option<String>,
    /// URL of the server, if it is running.
    #[arg(long, value_name = "URL", default_value = "http://127.0.0.1:8090")]
    server: String,
    /// API key with scope admin.
    #[arg(long, value_name = "KEY")]
    key: Option<String>,
    /// File of certificates (PEM) to trust instead of the system's [environment: SSL_CERT_FILE].
    #[arg(long, value_name = "FILE")]
    ca_file: Option<PathBuf>,
    #[command(flatten)]
    s3: S3Options,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    data: DataArgs,
}

#[derive(clap::Subcommand, Debug)]
enum Command {
    /// List the backups, the oldest first.
    List(ListArgs),
    /// Read backups again and compare every byte with its hash.
    Verify(VerifyArgs),
    /// Remove backups that no rule keeps, and what only they need.
    Prune(PruneArgs),
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

/// What a command line names as the target of backups.
///
/// # Errors
/// It is neither a directory nor a URL of S3, or the options are not valid (exit code 2).
pub(super) fn target(target: &str, s3: &S3Options) -> anyhow::Result<Box<dyn Target>> {
    if target.starts_with("s3://") {
        return Ok(Box::new(S3::new(target, s3)?));
    }
    let text = if !s3.is_empty() {
        "--endpoint, --region, --profile, --path-style and --allow-http require s3://BUCKET/PREFIX"
            .to_owned()
    } else if target.contains("://") {
        format!("{target} is neither a directory nor s3://BUCKET/PREFIX")
    } else if target.is_empty() {
        "the target is empty; name a directory or s3://BUCKET/PREFIX".to_owned()
    } else {
        return Ok(Box::new(Directory::new(Path::new(target))));
    };
    Err(Coded::error(Exit::Usage, text))
}

pub(super) fn run(args: &Args) -> anyhow::Result<Exit> {
    match &args.command {
        Some(Command::List(args)) => return backup_kept::list(args),
        Some(Command::Verify(args)) => return backup_kept::verify(args),
        Some(Command::Prune(args)) => return backup_kept::prune(args),
        None => {}
    }
    let name = args.target.clone().unwrap_or_default();
    if args.list {
        return backup_kept::list_of(&name, &args.s3, args.json);
    }
    if args.verify {
        return backup_kept::verify_of(&name, args.at.as_deref(), &args.s3, args.json);
    }
    let config = args.data.resolve()?.config().map_err(wrong)?;
    data_dir::keep_private();
    let interrupt = Interrupt::listen()?;
    let made = || {
        let target = target(&name, &args.s3)?;
        if !name.starts_with("s3://") {
            check_outside(Path::new(&name), &config.process.data)?;
        }
        let source = Source::prepare(&config.process.data, || image(args))?;
        let store = Store::open_to_add(target)?;
        let bar = bar();
        let made = make(&store, &source, &interrupt, &|done, total| {
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

/// Refuses backups inside of what they are backups of.
fn check_outside(dir: &Path, data: &Path) -> anyhow::Result<()> {
    let data = std::fs::canonicalize(data).unwrap_or_default();
    let inside = std::path::absolute(dir)?.starts_with(&data);
    ensure!(
        !inside || data.as_os_str().is_empty(),
        "{} is inside the data directory; choose another, best on another disk",
        dir.display()
    );
    Ok(())
}

/// Asks the server for an image, and returns its path.
fn image(args: &Args) -> anyhow::Result<PathBuf> {
    let path = "/v1/admin/backup-image";
    let (key, ca_file) = (args.key.as_deref(), args.ca_file.as_deref());
    let server = Server::trusting(&args.server, key, path, ca_file)?;
    let answer = server.post(path).with_context(|| {
        format!(
            "the data is in use by a server, and the one at {} makes no image of it; name the \
             right one with --server (https://... if it serves HTTPS), and a key with --key",
            args.server
        )
    });
    let answer = parsed(&server, &answer?)?;
    let path = answer["path"].as_str().context("the server does not name its image")?;
    Ok(PathBuf::from(path))
}
