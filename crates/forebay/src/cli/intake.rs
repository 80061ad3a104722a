//! `forebay intake`: the status of the database to which a server forwards documents, another attempt
//! to write what it refused, and decisions between table and collection that are made again.

use super::server::{Server, encode, parsed};
use crate::exit::Exit;
use crate::out;

const DATABASE_AFTER_HELP: &str = "\
Examples:
  forebay intake database
  forebay intake database --server http://127.0.0.1:8090 --json

Exit codes: 0 documents are forwarded; 1 the database is unavailable, refuses documents or
forwarding has stopped, or the server did not answer or forwards to no database.";

const REPLAY_AFTER_HELP: &str = "\
Examples:
  forebay intake replay
  forebay intake replay orders

Exit codes: 0 the documents are being tried; 1 the database does not refuse this namespace, or the
server did not answer or forwards to no database.";

const SCHEMA_AFTER_HELP: &str = "\
Examples:
  forebay intake schema orders --dry-run
  forebay intake schema logs --target collection

Exit codes: 0 the decision was made; 1 there is no such namespace, its documents cannot be stored in
the target, or the server did not answer.";

#[derive(clap::Subcommand, Debug)]
pub(super) enum Command {
    /// Print the status of the database to which a server forwards its documents.
    Database(DatabaseArgs),
    /// Try at once to write the documents that the database refused.
    Replay(ReplayArgs),
    /// Decide again between table and collection, from all documents of a namespace.
    Schema(SchemaArgs),
}

#[derive(clap::Args, Debug)]
#[command(after_help = DATABASE_AFTER_HELP)]
pub(super) struct DatabaseArgs {
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

#[derive(clap::Args, Debug)]
#[command(after_help = REPLAY_AFTER_HELP)]
pub(super) struct ReplayArgs {
    /// Only this namespace of documents.
    namespace: Option<String>,
    /// URL of the server.
    #[arg(long, value_name = "URL", default_value = "http://127.0.0.1:8090")]
    server: String,
    /// API key with scope write.
    #[arg(long, value_name = "KEY")]
    key: Option<String>,
    /// Print the server's JSON answer.
    #[arg(long)]
    json: bool,
}

#[derive(clap::Args, Debug)]
#[command(after_help = SCHEMA_AFTER_HELP)]
pub(super) struct SchemaArgs {
    /// Namespace of documents.
    namespace: String,
    /// Where the documents are to be stored: auto, table or collection.
    #[arg(long, value_name = "TARGET", default_value = "auto")]
    target: String,
    /// Print the decision without carrying it out.
    #[arg(long)]
    dry_run: bool,
    /// URL of the server.
    #[arg(long, value_name = "URL", default_value = "http://127.0.0.1:8090")]
    server: String,
    /// API key with scope write.
    #[arg(long, value_name = "KEY")]
    key: Option<String>,
    /// Print the server's JSON answer.
    #[arg(long)]
    json: bool,
}

pub(super) fn run(command: &Command) -> anyhow::Result<Exit> {
    match command {
        Command::Database(args) => database(args),
        Command::Replay(args) => replay(args),
        Command::Schema(args) => schema(args),
    }
}

fn database(args: &DatabaseArgs) -> anyhow::Result<Exit> {
    let server = Server::new(&args.server, args.key.as_deref(), "/v1/database")?;
    let status = parsed(&server, &server.get("/v1/database", "application/json")?)?;
    if args.json {
        out::json(&status)?;
    } else {
        out::line(server.get("/v1/database", "text/plain")?.trim_end())?;
    }
    let is_well = matches!(status["state"].as_str(), Some("following" | "copying" | "connecting"))
        && status["quarantined"].as_array().is_none_or(Vec::is_empty);
    Ok(if is_well { Exit::Ok } else { Exit::Failed })
}

fn replay(args: &ReplayArgs) -> anyhow::Result<Exit> {
    let path = match &args.namespace {
        Some(namespace) => format!("/v1/database/replay?namespace={}", encode(namespace)),
        None => "/v1/database/replay".to_owned(),
    };
    let server = Server::new(&args.server, args.key.as_deref(), &path)?;
    let answer = parsed(&server, &server.post(&path)?)?;
    if args.json {
        out::json(&answer)?;
        return Ok(Exit::Ok);
    }
    let held = answer["quarantined"].as_array().cloned().unwrap_or_default();
    for held in &held {
        let name = held["namespace"].as_str().unwrap_or_default();
        if args.namespace.as_deref().is_none_or(|wanted| wanted == name) {
            out::line(format!("trying {name}: {} documents", held["documents_waiting"]))?;
        }
    }
    if held.is_empty() {
        out::line("the database refuses nothing")?;
    }
    Ok(Exit::Ok)
}

fn schema(args: &SchemaArgs) -> anyhow::Result<Exit> {
    let (namespace, target) = (encode(&args.namespace), encode(&args.target));
    let path = format!("/v1/documents/{namespace}/schema?target={target}&dry_run={}", args.dry_run);
    let server = Server::new(&args.server, args.key.as_deref(), &path)?;
    let answer = parsed(&server, &server.post(&path)?)?;
    if args.json {
        out::json(&answer)?;
        return Ok(Exit::Ok);
    }
    let text = |key: &str| answer[key].as_str().unwrap_or_default().to_owned();
    let (target, before) = (text("target"), text("target_before"));
    let was = if target == before { String::new() } else { format!(", was a {before}") };
    out::line(format!("target     {target}{was}; decided by {}", text("decided_by")))?;
    out::line(format!("documents  {}", answer["documents"]))?;
    for (key, sign) in [("columns_added", '+'), ("columns_changed", '~'), ("columns_removed", '-')]
    {
        for column in answer[key].as_array().into_iter().flatten() {
            let word = |key: &str| column[key].as_str().unwrap_or_default().to_owned();
            let kind = match sign {
                '~' => format!("{} -> {}", word("from"), word("to")),
                _ => word("type"),
            };
            out::line(format!("{sign} {} {kind}", word("path").escape_debug()))?;
        }
    }
    Ok(Exit::Ok)
}
