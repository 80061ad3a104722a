//! `forebay backup list`, `verify` and `prune`: what is done with backups that exist.

use indicatif::{HumanBytes, ProgressBar};
use serde_json::json;

use super::backup::{target, unusable};
use crate::backup::keep::Keep;
use crate::backup::prune::{Order, Pruned, prune as remove};
use crate::backup::store::Store;
use crate::backup::verify::verify as reread;
use crate::buckets::S3Options;
use crate::exit::Exit;
use crate::interrupt::Interrupt;
use crate::out;

const LIST_HELP: &str = "\
Examples:
  forebay backup list /backups/forebay
  forebay backup list s3://backups/forebay --json

Exit codes: 0 success; 2 invalid command line; 3 there are no backups, or they cannot be read.";

const VERIFY_HELP: &str = "\
Examples:
  forebay backup verify /backups/forebay
  forebay backup verify s3://backups/forebay 20261125T200000000Z-1a2b3c4d

Reads the list of each backup and every chunk that a list names, each once, and compares them with
their hashes. A backup whose list is missing is reported, unless `forebay backup prune` removed it.

Exit codes: 0 no damage found; 1 damage found; 2 invalid command line; 3 there is no backup, or the
target cannot be read; 130 interrupted.";

const PRUNE_HELP: &str = "\
Examples:
  forebay backup prune /backups/forebay --keep-last 3
  forebay backup prune s3://backups/forebay --keep-daily 7 --keep-weekly 4 --keep-monthly 12
  forebay backup prune /backups/forebay --keep-last 3 --dry-run

A rule counts periods that have a backup, from the newest backup backwards, and keeps the newest of
each. Days and weeks are those of UTC, and weeks begin on Monday. A backup is kept if any rule keeps
it. Then the chunks are removed that no list names: also those that an interrupted backup left.

Each backup is complete by itself, so none needs one that is removed. Prune does not run while a
backup is being made. It may be interrupted: every backup that is listed then is whole. The lock of
a command on S3 that was killed expires after 10 minutes.

Exit codes: 0 success; 2 invalid command line; 3 there are no backups, the list of one that stays is
damaged, or the target is in use or cannot be written; 130 interrupted.";

#[derive(clap::Args, Debug)]
#[command(after_help = LIST_HELP)]
pub(super) struct ListArgs {
    #[command(flatten)]
    from: FromArgs,
}

#[derive(clap::Args, Debug)]
#[command(after_help = VERIFY_HELP)]
pub(super) struct VerifyArgs {
    #[command(flatten)]
    from: FromArgs,
    /// Id of the only backup to verify.
    #[arg(value_name = "ID")]
    id: Option<String>,
}

#[derive(clap::Args, Debug)]
#[command(after_help = PRUNE_HELP)]
#[command(group = clap::ArgGroup::new("what").required(true).multiple(true).args([
    "keep_last", "keep_daily", "keep_weekly", "keep_monthly", "remove",
]))]
pub(super) struct PruneArgs {
    #[command(flatten)]
    from: FromArgs,
    /// Keep the newest COUNT backups.
    #[arg(long, visible_alias = "keep", value_name = "COUNT", value_parser = count())]
    keep_last: Option<u32>,
    /// Keep the newest backup of each of the last COUNT days that have one.
    #[arg(long, value_name = "COUNT", value_parser = count())]
    keep_daily: Option<u32>,
    /// Keep the newest backup of each of the last COUNT weeks that have one.
    #[arg(long, value_name = "COUNT", value_parser = count())]
    keep_weekly: Option<u32>,
    /// Keep the newest backup of each of the last COUNT months that have one.
    #[arg(long, value_name = "COUNT", value_parser = count())]
    keep_monthly: Option<u32>,
    /// Remove the backup with this id whatever the rules say. May be repeated. Alone it removes no other.
    #[arg(long, value_name = "ID")]
    remove: Vec<String>,
    /// Print what would be removed, and remove nothing.
    #[arg(long)]
    dry_run: bool,
}

/// Reads a count, which is at least one: a rule that keeps nothing would remove everything.
fn count() -> clap::builder::RangedI64ValueParser<u32> {
    clap::value_parser!(u32).range(1..)
}

/// Which backups, and how they are printed.
#[derive(clap::Args, Debug)]
struct FromArgs {
    /// Directory of the backups, or s3://BUCKET/PREFIX.
    #[arg(value_name = "TARGET")]
    target: String,
    #[command(flatten)]
    s3: S3Options,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

pub(super) fn list(args: &ListArgs) -> anyhow::Result<Exit> {
    list_of(&args.from.target, &args.from.s3, args.from.json)
}

pub(super) fn verify(args: &VerifyArgs) -> anyhow::Result<Exit> {
    verify_of(&args.from.target, args.id.as_deref(), &args.from.s3, args.from.json)
}

/// Lists the backups of a target.
pub(super) fn list_of(name: &str, s3: &S3Options, is_json: bool) -> anyhow::Result<Exit> {
    print_list(name, s3, is_json).map_err(unusable("cannot list the backups"))
}

fn print_list(name: &str, s3: &S3Options, is_json: bool) -> anyhow::Result<Exit> {
    let store = Store::open(target(name, s3)?)?;
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
        if !is_json {
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
    if is_json {
        out::json(&json!({ "backups": backups }))?;
    }
    Ok(Exit::Ok)
}

/// Verifies one backup of a target, or all.
pub(super) fn verify_of(
    name: &str,
    id: Option<&str>,
    s3: &S3Options,
    is_json: bool,
) -> anyhow::Result<Exit> {
    let verified = || {
        let store = Store::open(target(name, s3)?)?;
        let interrupt = Interrupt::listen()?;
        let bar = ProgressBar::no_length();
        let verified = reread(&store, id, &interrupt, &|bytes| bar.set_position(bytes));
        bar.finish_and_clear();
        verified
    };
    let verified = verified().map_err(unusable("cannot verify the backups"))?;
    if is_json {
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

impl PruneArgs {
    /// The rules, if there are any.
    fn keep(&self) -> Option<Keep> {
        let Self { keep_last, keep_daily, keep_weekly, keep_monthly, .. } = *self;
        let keep = Keep {
            last: keep_last.unwrap_or(0),
            daily: keep_daily.unwrap_or(0),
            weekly: keep_weekly.unwrap_or(0),
            monthly: keep_monthly.unwrap_or(0),
        };
        (keep != Keep::default()).then_some(keep)
    }
}

pub(super) fn prune(args: &PruneArgs) -> anyhow::Result<Exit> {
    let pruned = || {
        let target = target(&args.from.target, &args.from.s3)?;
        let interrupt = Interrupt::listen()?;
        let store = match args.dry_run {
            true => Store::open(target)?,
            false => Store::open_to_prune(target)?,
        };
        let order = Order { keep: args.keep(), remove: &args.remove, is_dry: args.dry_run };
        let bar = ProgressBar::no_length();
        let pruned = remove(&store, &order, &interrupt, &|chunks| bar.set_position(chunks));
        bar.finish_and_clear();
        pruned
    };
    let pruned = pruned().map_err(unusable("cannot remove backups"))?;
    match args.from.json {
        true => out::json(&serde_json::to_value(&pruned)?)?,
        false => print(&pruned)?,
    }
    Ok(Exit::Ok)
}

fn print(pruned: &Pruned) -> anyhow::Result<()> {
    for kept in &pruned.kept {
        out::line(format_args!("keep    {}  {}", kept.id, kept.reasons.join(", ")))?;
    }
    for id in &pruned.removed {
        out::line(format_args!("remove  {id}"))?;
    }
    let bytes = HumanBytes(pruned.bytes);
    let (backups, chunks) = (pruned.removed.len(), pruned.chunks);
    match pruned.dry_run {
        true => out::line(format_args!(
            "{backups} backups and {chunks} chunks, {bytes}, would be removed"
        )),
        false => out::line(format_args!("removed {backups} backups and {chunks} chunks, {bytes}")),
    }
}
