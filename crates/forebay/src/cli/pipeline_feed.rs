//! `forebay pipeline feed` and `drop-slot`: what a pipeline with `sync_mode: cdc` follows, and its end.

use forebay_pipeline::run::Pipeline;
use serde_json::json;

use super::pipeline::{FileArgs, line, load, runtime};
use crate::exit::{Coded, Exit};
use crate::out;

#[derive(clap::Args, Debug)]
pub(super) struct DropArgs {
    #[command(flatten)]
    of: FileArgs,
    /// Confirm it.
    #[arg(long)]
    yes: bool,
}

pub(super) fn feed(args: &FileArgs) -> anyhow::Result<Exit> {
    let file = load(&args.file)?;
    let Some((feed, health)) = runtime()?.block_on(Pipeline::new(&file).feed_health())? else {
        out::note("there is no feed yet; the first run begins it");
        return Ok(Exit::Failed);
    };
    if args.json {
        out::json(&json!({
            "origin": feed.origin, "position": feed.position, "health": health,
        }))?;
    } else {
        let origin = &feed.origin;
        let position = feed.position.as_deref().unwrap_or("none: the copy was interrupted");
        line(format_args!("slot {} in database {}", origin.slot, origin.database))?;
        line(format_args!("publication {}", origin.publication))?;
        line(format_args!("applied up to {position}"))?;
        let state = match (health.exists, health.is_complete, health.is_active) {
            (false, ..) => "missing: changes may be lost",
            (true, false, _) => "lost: the server has removed changes",
            (true, true, true) => "being read",
            (true, true, false) => "not being read",
        };
        line(format_args!("the slot is {state}"))?;
        if let Some(confirmed) = &health.confirmed {
            line(format_args!("confirmed up to {confirmed}"))?;
        }
        let sizes = [("not confirmed", health.lag_bytes), ("kept for the slot", health.kept_bytes)];
        for (what, bytes) in sizes {
            if let Some(bytes) = bytes {
                line(format_args!("{} of log {what}", out::size(bytes)))?;
            }
        }
        if let Some(status) = &health.status {
            line(format_args!("WAL status {status}"))?;
        }
    }
    Ok(if health.exists && health.is_complete { Exit::Ok } else { Exit::Failed })
}

pub(super) fn drop_slot(args: &DropArgs) -> anyhow::Result<Exit> {
    let file = load(&args.of.file)?;
    if !args.yes {
        let message = "the server would forget the changes that are not applied yet, and the next run \
                       would copy all tables again; confirm with --yes";
        return Err(Coded::error(Exit::Usage, message));
    }
    let ended = runtime()?.block_on(Pipeline::new(&file).end_feed())?;
    if args.of.json {
        out::json(&json!({ "dropped": ended }))?;
    } else {
        line(if ended { "the feed has ended" } else { "there is no feed" })?;
    }
    Ok(Exit::Ok)
}
