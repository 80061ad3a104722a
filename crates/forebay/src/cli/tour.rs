//! `forebay tour`.

use std::path::PathBuf;

use forebay_base::bytes::ByteSize;

use crate::exit::Exit;
use crate::tour::{self, Plan, Tell};

const AFTER_HELP: &str = "\
Examples:
  forebay tour                                    whatever is found on this machine
  forebay tour --files ~/Pictures --documents orders.ndjson
  forebay tour --json | jq '.files_per_s, .cache_writes_per_s, .cache_memory_ratio'
  forebay tour --keep                             leave the server running and say where

What goes in over HTTP goes into the server's cache too, over RESP: strings, hashes and sets,
pipelined. The server is killed three times: under the uploads, under the cache's load, and under
writes right after a snapshot.

Exit codes: 0 everything acknowledged was read back as it was sent, 1 something was lost or altered
(the first ten are named) or the tour failed, 2 there is nothing to send, 130 interrupted.";

/// Takes real files and documents in, is killed in the middle, and proves that nothing was lost:
/// by the server of files and documents, and by the cache.
#[derive(clap::Args, Debug)]
#[command(after_help = AFTER_HELP)]
pub(super) struct Args {
    /// Tree of files to send [default: one found here, such as the sources cargo unpacked].
    #[arg(long, value_name = "DIR")]
    files: Option<PathBuf>,
    /// JSON or NDJSON file, or a directory of them, one namespace a file
    /// [default: cargo metadata of the workspace, else JSON files of the tree].
    #[arg(long, value_name = "FILE|DIR")]
    documents: Option<PathBuf>,
    /// New directory for the server's data; it stays [default: a temporary one, removed].
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// Print one JSON object and nothing else on standard output.
    #[arg(long)]
    json: bool,
    /// Leave the server running afterwards and print its URL.
    #[arg(long)]
    keep: bool,
    /// Most files to send.
    #[arg(long, default_value_t = 5_000, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    files_max: u32,
    /// Most bytes of files to send.
    #[arg(long, default_value = "500MiB", value_name = "SIZE")]
    bytes_max: ByteSize,
    /// Connections that send and read at once.
    #[arg(long, default_value_t = 8, value_name = "COUNT", value_parser = clap::value_parser!(u16).range(1..=256))]
    connections: u16,
    /// Print the verdict alone.
    #[arg(long)]
    quiet: bool,
}

pub(super) fn run(args: &Args) -> anyhow::Result<Exit> {
    let plan = Plan {
        files: args.files.clone(),
        documents: args.documents.clone(),
        data: args.data.clone(),
        files_max: usize::try_from(args.files_max).unwrap_or(usize::MAX),
        bytes_max: args.bytes_max.bytes(),
        connections: usize::from(args.connections),
        keep: args.keep,
        tell: match (args.json, args.quiet) {
            (true, _) => Tell::Json,
            (false, true) => Tell::Verdict,
            (false, false) => Tell::Chapters,
        },
        bars: !args.quiet,
    };
    Ok(if tour::run(&plan)? { Exit::Ok } else { Exit::Failed })
}
