//! `forebay tour`.

use std::path::PathBuf;

use forebay_base::bytes::ByteSize;

use crate::exit::Exit;
use crate::tour::{self, Output, Plan};

const AFTER_HELP: &str = "\
Examples:
  forebay tour                                    with files found on this machine
  forebay tour --files ~/Pictures --documents orders.ndjson
  forebay tour --json | jq '.files_per_s, .cache_writes_per_s, .cache_memory_ratio'
  forebay tour --keep                             leave the server running and print its URL

The files and documents uploaded over HTTP are written to the server's cache too, over RESP, as
strings, hashes and sets, pipelined. The server is killed three times: during the uploads, during
the cache's load, and during writes right after a snapshot.

Exit codes: 0 everything acknowledged was read back unchanged; 1 something was lost or altered (the
first ten are named) or the tour failed, and the path of its data and logs, which are kept, is
printed; 2 there is nothing to send; 130 interrupted.";

/// Send real files and documents to a server and its cache, kill both under load, restart them,
/// and verify that nothing was lost.
#[derive(clap::Args, Debug)]
#[command(after_help = AFTER_HELP)]
pub(super) struct Args {
    /// Directory tree of files to send [default: one found on this machine, such as cargo's
    /// sources].
    #[arg(long, value_name = "DIR")]
    files: Option<PathBuf>,
    /// JSON or NDJSON file, or a directory of them; each file becomes a namespace
    /// [default: cargo metadata of the workspace, else JSON files of the tree].
    #[arg(long, value_name = "FILE|DIR")]
    documents: Option<PathBuf>,
    /// New directory for the server's data, which is kept [default: a temporary one, removed].
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// Print one JSON object, and nothing else, to standard output.
    #[arg(long)]
    json: bool,
    /// Leave the server running afterwards and print its URL.
    #[arg(long)]
    keep: bool,
    /// Maximum number of files to send.
    #[arg(long, default_value_t = 5_000, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    files_max: u32,
    /// Maximum total size of the files to send.
    #[arg(long, default_value = "500MiB", value_name = "SIZE")]
    bytes_max: ByteSize,
    /// Number of connections that send and read concurrently.
    #[arg(long, default_value_t = 8, value_name = "COUNT", value_parser = clap::value_parser!(u16).range(1..=256))]
    connections: u16,
    /// Print only the result.
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
        output: match (args.json, args.quiet) {
            (true, _) => Output::Json,
            (false, true) => Output::Verdict,
            (false, false) => Output::Chapters,
        },
        bars: !args.quiet,
    };
    Ok(if tour::run(&plan)? { Exit::Ok } else { Exit::Failed })
}
