//! `forebay intake database`: how the database is that a server forwards documents to.

use anyhow::Context as _;

use crate::exit::{Coded, Exit};
use crate::out;

const AFTER_HELP: &str = "\
Examples:
  forebay intake database
  forebay intake database --server http://127.0.0.1:8090 --json

Exit codes: 0 the database gets what comes, 1 it is away, refuses or has stopped, or the server could not
be asked or forwards to none.";

/// Longest answer read.
const ANSWER_SIZE_MAX: u64 = 64 << 10;

#[derive(clap::Subcommand, Debug)]
pub(super) enum Command {
    /// Ask a running server how the database is that its documents are forwarded to.
    Database(Args),
}

#[derive(clap::Args, Debug)]
#[command(after_help = AFTER_HELP)]
pub(super) struct Args {
    /// The server.
    #[arg(long, value_name = "URL", default_value = "http://127.0.0.1:8090")]
    server: String,
    /// API key for the server, with scope read.
    #[arg(long, value_name = "KEY")]
    key: Option<String>,
    /// Print the server's JSON.
    #[arg(long)]
    json: bool,
}

pub(super) fn run(command: &Command) -> anyhow::Result<Exit> {
    let Command::Database(args) = command;
    let server = args.server.trim_end_matches('/');
    if server.starts_with("https://") {
        let text = format!("only http:// is asked; over TLS: curl '{server}/v1/database'");
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
        let mut answer = request.call().with_context(|| format!("cannot ask {server}"))?;
        let body = answer.body_mut().with_config().limit(ANSWER_SIZE_MAX).read_to_string();
        let body = body.with_context(|| format!("cannot read the answer of {server}"))?;
        if answer.status().is_success() {
            return Ok(body);
        }
        let told = serde_json::from_str::<serde_json::Value>(&body).unwrap_or_default();
        let told = told["error"]["message"].as_str().map(str::to_owned).unwrap_or(body);
        let text = format!("{server} answers {}: {told}", answer.status());
        Err(Coded::error(Exit::Failed, text))
    };
    let status = ask("application/json")?;
    let status: serde_json::Value = serde_json::from_str(&status)
        .with_context(|| format!("the answer of {server} is not what was expected"))?;
    if args.json {
        out::json(&status)?;
    } else {
        out::line(ask("text/plain")?.trim_end())?;
    }
    let is_well = matches!(status["state"].as_str(), Some("following" | "copying" | "connecting"));
    Ok(if is_well { Exit::Ok } else { Exit::Failed })
}
