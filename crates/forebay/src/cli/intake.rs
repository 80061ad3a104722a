//! `forebay intake database`: the status of the database to which a server forwards documents.

use anyhow::Context as _;

use crate::exit::{Coded, Exit};
use crate::out;

const AFTER_HELP: &str = "\
Examples:
  forebay intake database
  forebay intake database --server http://127.0.0.1:8090 --json

Exit codes: 0 documents are forwarded; 1 the database is unavailable, refuses documents or
forwarding has stopped, or the server did not answer or forwards to no database.";

/// Maximum size of an answer, in bytes.
const ANSWER_SIZE_MAX: u64 = 64 << 10;

#[derive(clap::Subcommand, Debug)]
pub(super) enum Command {
    /// Print the status of the database to which a server forwards its documents.
    Database(Args),
}

#[derive(clap::Args, Debug)]
#[command(after_help = AFTER_HELP)]
pub(super) struct Args {
    /// URL of the server.
    #[arg(long, value_name = "URL", default_value = "http://127.0.0.1:8090")]
    server: String,
    /// API key with scope read.
    #[arg(long, value_name = "KEY")]
    key: Option<String>,
    /// Print the server's JSON answer.
    #[arg(long)]
    json: bool,
}

pub(super) fn run(command: &Command) -> anyhow::Result<Exit> {
    let Command::Database(args) = command;
    let server = args.server.trim_end_matches('/');
    if server.starts_with("https://") {
        let text = format!("only http:// is supported; over TLS use: curl '{server}/v1/database'");
        return Err(Coded::error(Exit::Usage, text));
    }
    let server = match server.contains("://") {
        true => server.to_owned(),
        false => format!("http://{server}"),
    };
    let ask = |accept: &str| {
        let request = ureq::get(format!("{server}/v1/database"));
        let mut request = request.config().http_status_as_error(false).build();
        request = request.header("accept", accept);
        if let Some(key) = &args.key {
            request = request.header("authorization", format!("Bearer {key}"));
        }
        let mut answer = request.call().with_context(|| format!("cannot connect to {server}"))?;
        let body = answer.body_mut().with_config().limit(ANSWER_SIZE_MAX).read_to_string();
        let body = body.with_context(|| format!("cannot read the response of {server}"))?;
        if answer.status().is_success() {
            return Ok(body);
        }
        let error = serde_json::from_str::<serde_json::Value>(&body).unwrap_or_default();
        let message = error["error"]["message"].as_str().map(str::to_owned).unwrap_or(body);
        let text = format!("{server} answers {}: {message}", answer.status());
        Err(Coded::error(Exit::Failed, text))
    };
    let status = ask("application/json")?;
    let status: serde_json::Value = serde_json::from_str(&status)
        .with_context(|| format!("the response of {server} is not JSON"))?;
    if args.json {
        out::json(&status)?;
    } else {
        out::line(ask("text/plain")?.trim_end())?;
    }
    let is_well = matches!(status["state"].as_str(), Some("following" | "copying" | "connecting"));
    Ok(if is_well { Exit::Ok } else { Exit::Failed })
}
