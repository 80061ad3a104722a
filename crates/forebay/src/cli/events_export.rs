//! `forebay events export` and `verify-export`.

use std::io::IsTerminal as _;
use std::path::{Path, PathBuf};

use forebay_events::checkpoint::VerifierKey;
use forebay_events::query::{Order, Query};
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::json;

use super::events_read::{FilterArgs, time_ns};
use super::settings::DataArgs;
use crate::buckets::S3Options;
use crate::exit::{Coded, Exit};
use crate::export::target::{Directory, S3, Target};
use crate::export::{self, Format, MANIFEST, Options, Partition};
use crate::out;

const EXPORT_HELP: &str = "\
Examples:
  forebay events export --out /srv/export --partition day
  forebay events export --out export --format ndjson --stream auth --from 2026-11-01 --to 2026-12-01
  AWS_ACCESS_KEY_ID=... AWS_SECRET_ACCESS_KEY=... \\
    forebay events export --out s3://archive/forebay/2026-11 --region eu-central-1

Writes parts such as date=2026-11-21/part-00000.parquet, in order of time, and after all of them
_forebay_export.json, which lists them. Each row has its position and leaf hash, and the export
includes the signed checkpoint, so a row can be proven like the event it came from. Existing files
are never replaced. Credentials for S3 are read from the variables AWS_... or a profile. They need
the permissions s3:ListBucket, s3:GetObject, s3:PutObject and s3:AbortMultipartUpload.

Exit codes: 0 exported; 1 the destination has parts already, or the export failed; 2 invalid command
line; 3 the store cannot be opened.";

#[derive(clap::Args, Debug)]
#[command(after_help = EXPORT_HELP)]
pub(super) struct ExportArgs {
    #[command(flatten)]
    data: DataArgs,
    /// Directory, created if it does not exist, or s3://BUCKET/PREFIX.
    #[arg(long, value_name = "DIR|URL")]
    out: String,
    /// Format of the parts.
    #[arg(long, value_enum, default_value_t = Format::Parquet)]
    format: Format,
    /// One directory for all events, for each day or for each hour, in UTC.
    #[arg(long, value_enum, default_value_t = Partition::None)]
    partition: Partition,
    /// Maximum number of rows in a part.
    #[arg(
        long,
        value_name = "COUNT",
        default_value_t = 1_000_000,
        value_parser = clap::value_parser!(u64).range(1..)
    )]
    rows_max: u64,
    #[command(flatten)]
    filter: FilterArgs,
    /// Only events at or after TIME.
    #[arg(long, value_name = "TIME", value_parser = time_ns)]
    from: Option<i64>,
    /// Only events before TIME.
    #[arg(long, value_name = "TIME", value_parser = time_ns)]
    to: Option<i64>,
    #[command(flatten)]
    s3: S3Options,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

const VERIFY_HELP: &str = "\
Example: forebay events verify-export --key \"$(cat verifier.key)\" /srv/export

Compares each part with its digest in the manifest, rebuilds the leaf of every Parquet row from its
columns and compares its hash with leaf_hash, and checks the signature of the checkpoint. To show
that a row is in the tree, use `forebay events prove` and `verify-proof`. NDJSON is only compared by
the digest of its file, because a leaf cannot always be rebuilt from a line. Without --key the key
in the manifest is used, which proves nothing against the author of the files.

Exit codes: 0 the export is unchanged; 1 something was changed and is named; 2 invalid command
line.";

#[derive(clap::Args, Debug)]
#[command(after_help = VERIFY_HELP)]
pub(super) struct VerifyArgs {
    /// Verifier key [default: the key in the manifest].
    #[arg(long, value_name = "KEY")]
    key: Option<VerifierKey>,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
    /// Directory of the export.
    #[arg(value_name = "DIR")]
    dir: PathBuf,
}

pub(super) fn export(args: &ExportArgs) -> anyhow::Result<Exit> {
    let target = if args.out.starts_with("s3://") {
        Target::S3(Box::new(S3::open(&args.out, &args.s3)?))
    } else if !args.s3.is_empty() {
        let text = "--endpoint, --region, --profile, --path-style and --allow-http require s3://BUCKET/PREFIX";
        return Err(Coded::error(Exit::Usage, text));
    } else if args.out.contains("://") {
        let text = format!("{} is neither a directory nor s3://BUCKET/PREFIX", args.out);
        return Err(Coded::error(Exit::Usage, text));
    } else {
        Target::Directory(Directory::new(Path::new(&args.out)))
    };
    let store = super::events::open(&args.data, false)?;
    let options =
        Options { format: args.format, partition: args.partition, rows_max: args.rows_max };
    let order = Order::OldestFirst;
    let query = Query { from_ns: args.from, to_ns: args.to, order, ..args.filter.query() };
    let bar = progress();
    let exported = export::run(&store, query, &target, &options, &|rows| bar.inc(rows));
    bar.finish_and_clear();
    let exported = exported?;
    if exported.checkpoint.is_none() {
        out::note(
            "this store has no proofs: the export has no checkpoint, and its rows cannot be proven",
        );
    }
    if args.json {
        out::json(&json!({
            "files": exported.parts.len(),
            "rows": exported.rows,
            "bytes": exported.bytes,
            "first_seq": exported.first_seq,
            "last_seq": exported.last_seq,
            "checkpoint": exported.checkpoint,
        }))?;
    } else {
        out::line(format_args!(
            "rows      {}\nparts     {}, {}\nmanifest  {}/{MANIFEST}",
            exported.rows,
            exported.parts.len(),
            out::size(exported.bytes),
            args.out.trim_end_matches('/'),
        ))?;
    }
    store.close()?;
    Ok(Exit::Ok)
}

pub(super) fn verify(args: &VerifyArgs) -> anyhow::Result<Exit> {
    let bar = progress();
    let verified = export::verify(&args.dir, args.key.as_ref(), &|rows| bar.inc(rows));
    bar.finish_and_clear();
    let verified = verified?;
    if args.json {
        out::json(&json!({
            "sound": verified.faults.is_empty(),
            "files": verified.files,
            "rows": verified.rows,
            "leaves": verified.leaves,
            "signature": verified.signed,
            "faults": verified.faults,
        }))?;
    } else {
        out::line(format_args!(
            "parts       {}\nrows        {}, {} of them hashed again\ncheckpoint  {}",
            verified.files,
            verified.rows,
            verified.leaves,
            match (verified.signed, &args.key) {
                (true, Some(_)) => "valid signature",
                (true, None) => "valid signature, by the key in the manifest",
                (false, _) => "no valid one",
            },
        ))?;
        for fault in &verified.faults {
            out::line(format_args!("WRONG       {fault}"))?;
        }
        if verified.faults.is_empty() {
            out::line("no changes found")?;
        }
    }
    Ok(if verified.faults.is_empty() { Exit::Ok } else { Exit::Failed })
}

fn progress() -> ProgressBar {
    if !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    ProgressBar::no_length().with_style(
        ProgressStyle::with_template("{pos} rows {per_sec} {elapsed}")
            .unwrap_or_else(|_| ProgressStyle::default_bar()),
    )
}
