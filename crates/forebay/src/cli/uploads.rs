//! `forebay uploads`: the unfinished uploads of a running server.

use anyhow::bail;
use serde_json::Value;

use super::server::{Server, ServerArgs, hex_id, parsed};
use crate::exit::Exit;
use crate::out;

const AFTER_HELP: &str = "\
Examples:
  forebay uploads ls
  forebay uploads rm 0199f3c2a5d07b12a3c4d5e6f7a8b9c0

Exit codes: 0 success; 1 there is no such upload, or the server did not answer.";

/// Uploads asked for at a time.
const PAGE: usize = 1_000;

#[derive(clap::Subcommand, Debug)]
#[command(after_help = AFTER_HELP)]
pub(super) enum Command {
    /// List unfinished uploads, and finished ones until they expire.
    Ls(ServerArgs),
    /// Remove an upload. A file that it became stays.
    Rm(UploadArgs),
}

#[derive(clap::Args, Debug)]
pub(super) struct UploadArgs {
    /// Id of the upload.
    #[arg(value_parser = hex_id)]
    upload: String,
    #[command(flatten)]
    from: ServerArgs,
}

pub(super) fn run(command: &Command) -> anyhow::Result<Exit> {
    match command {
        Command::Ls(from) => list(from),
        Command::Rm(args) => {
            let target = format!("/v1/uploads/{}", args.upload);
            Server::new(&args.from.server, args.from.key.as_deref(), &target)?.delete(&target)?;
            Ok(Exit::Ok)
        }
    }
}

fn list(from: &ServerArgs) -> anyhow::Result<Exit> {
    let server = Server::new(&from.server, from.key.as_deref(), "/v1/uploads")?;
    let mut all = Vec::new();
    let mut target = format!("/v1/uploads?limit={PAGE}");
    loop {
        let page = parsed(&server, &server.get(&target, "application/json")?)?;
        let Some(uploads) = page["uploads"].as_array() else {
            bail!("the response of the server is not a list of uploads");
        };
        if from.json {
            all.extend(uploads.iter().cloned());
        } else {
            uploads.iter().try_for_each(|upload| out::line(summary(upload)))?;
        }
        let Some(cursor) = page["next_cursor"].as_str() else { break };
        target = format!("/v1/uploads?limit={PAGE}&cursor={}", super::server::encode(cursor));
    }
    if from.json {
        out::json(&serde_json::json!({ "uploads": all }))?;
    }
    Ok(Exit::Ok)
}

/// An upload on one line.
fn summary(upload: &Value) -> String {
    let text = |name: &str| upload[name].as_str().unwrap_or_default();
    let state = if upload["file"].is_null() { text("kind") } else { "finished" };
    let length = upload["length"].as_u64().map_or_else(|| "?".to_owned(), |size| size.to_string());
    format!(
        "{}  {state:<9}  {:>14} of {length:<14}  {}  {}/{}",
        text("id"),
        upload["offset"],
        text("expires"),
        text("namespace").escape_debug(),
        text("name").escape_debug(),
    )
}
