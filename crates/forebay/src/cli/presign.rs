//! `forebay presign`: a URL for one request, valid without a key.

use forebay_base::ByteSize;
use forebay_base::duration::HumanDuration;
use serde_json::json;

use super::server::{Server, ServerArgs, parsed};
use crate::exit::Exit;
use crate::out;

const AFTER_HELP: &str = "\
Examples:
  forebay presign /v1/files/plans/house.pdf --key fbk_... --expires 15m
  forebay presign /v1/files/inbox/scan.pdf --method PUT --size-max 10MiB --key fbk_...

The URL acts for the key: it permits nothing that the key does not permit, and is invalid once the
key is revoked.

Exit codes: 0 success; 1 the server refused, or did not answer.";

#[derive(clap::Args, Debug)]
#[command(after_help = AFTER_HELP)]
pub(super) struct Args {
    /// URL path, percent-encoded, with the query that belongs to it.
    path: String,
    /// Method that the URL permits.
    #[arg(long, default_value = "GET", value_parser = ["GET", "HEAD", "PUT", "DELETE", "POST", "PATCH"])]
    method: String,
    /// Time for which the URL is valid; at most 7 days.
    #[arg(long, value_name = "DURATION", default_value = "1h")]
    expires: HumanDuration,
    /// Maximum number of bytes that may be sent.
    #[arg(long, value_name = "SIZE")]
    size_max: Option<ByteSize>,
    #[command(flatten)]
    from: ServerArgs,
}

pub(super) fn run(args: &Args) -> anyhow::Result<Exit> {
    let server = Server::new(&args.from.server, args.from.key.as_deref(), "/v1/presign")?;
    let asked = json!({
        "method": args.method,
        "path": args.path,
        "expires": args.expires.to_string(),
        "size_max": args.size_max.map(ByteSize::bytes),
    });
    let answer = parsed(&server, &server.post_json("/v1/presign", &asked)?)?;
    if args.from.json {
        out::json(&answer)?;
    } else {
        out::line(server.address(answer["url"].as_str().unwrap_or_default()))?;
    }
    Ok(Exit::Ok)
}
