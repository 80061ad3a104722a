//! `forebay documents`: the documents of a running server.
//!
//! Reading is here; what stores and changes is in `documents_write`, what follows in `documents_follow`.

use std::io::{ErrorKind, Write as _};

use anyhow::Context as _;
use forebay_intake::digest::Digest;
use forebay_intake::names::Namespace;
use serde_json::Value;
use ureq::SendBody;
use ureq::http::Method;

use super::document_client::{Document, Documents, PAGE_SIZE_MAX, document_path};
use super::file_client::{Answer, Client, ClientArgs, Failure, failed, namespace, shown};
use super::server::encode;
use super::{documents_follow, documents_write};
use crate::exit::{Coded, Exit};
use crate::out;

/// Maximum number of documents that are asked for at a time.
const PAGE: u64 = 1_000;

const AFTER_HELP: &str = "\
Examples:
  forebay documents add machines machines.ndjson
  forebay documents ls machines --where 'power_kw > 5 and name ~ \"pum\"'
  forebay documents get machines 1
  forebay documents patch machines 1 '{\"power_kw\":8}'
  forebay documents follow machines --after 0
  forebay documents drop machines --confirm machines

A document has the id that the server gave it. To move a namespace to another server, use `forebay
export`.

Exit codes: 0 success; 1 there is no such namespace or document, a document was refused, or the
request failed; 2 invalid command line.";

const LS_AFTER_HELP: &str = "\
Examples:
  forebay documents ls
  forebay documents ls machines --limit 10
  forebay documents ls machines --where 'tags = \"spare\" and not retired exists' --json
  forebay documents ls machines --raw > machines.ndjson

An expression compares members, named by their path such as address.city, by =, !=, <, <=, >, >=, ~
(contains), ^= (begins with), in (...) and exists, joined by not, and, or.";

const SCHEMA_AFTER_HELP: &str = "\
Examples:
  forebay documents schema machines
  forebay documents schema machines --json

The decision between table and collection is made again by `forebay intake schema`.";

const REPLAY_AFTER_HELP: &str = "\
Examples:
  forebay documents quarantine
  forebay documents patch orders 17 '{\"total\":12.5}'
  forebay documents replay orders

Exit codes: 0 the documents are being tried; 1 the database does not refuse this namespace, or the
server forwards to no database, or the request failed; 2 invalid command line.";

#[derive(clap::Subcommand, Debug)]
#[command(after_help = AFTER_HELP)]
pub(super) enum Command {
    /// List namespaces, or the documents of one.
    Ls(ListArgs),
    /// Print a document, and verify its SHA-256.
    Get(GetArgs),
    /// Store documents.
    Add(documents_write::AddArgs),
    /// Replace a document.
    Put(documents_write::PutArgs),
    /// Merge a JSON merge patch into a document.
    Patch(documents_write::PatchArgs),
    /// Delete documents.
    Rm(documents_write::RemoveArgs),
    /// Delete a namespace with all its documents.
    Drop(documents_write::DropArgs),
    /// Print where the documents of a namespace are stored, the columns of its table, and how they
    /// changed.
    Schema(SchemaArgs),
    /// Print documents as they are stored, changed and deleted, until Ctrl-C.
    Follow(documents_follow::Args),
    /// List the namespaces whose documents the database refuses.
    Quarantine(QuarantineArgs),
    /// Try at once to write the documents of a namespace that the database refused.
    Replay(ReplayArgs),
}

#[derive(clap::Args, Debug)]
#[command(after_help = LS_AFTER_HELP)]
pub(super) struct ListArgs {
    /// List the documents of this namespace.
    #[arg(value_name = "NAMESPACE", value_parser = namespace)]
    namespace: Option<Namespace>,
    /// Only documents that pass this expression.
    #[arg(long = "where", value_name = "EXPRESSION", requires = "namespace")]
    filter: Option<String>,
    /// Maximum number of documents [default: all].
    #[arg(long, value_name = "N", requires = "namespace", value_parser = clap::value_parser!(u64).range(1..))]
    limit: Option<u64>,
    #[command(flatten)]
    from: ClientArgs,
    /// Print one JSON object for each namespace or document, one per line.
    #[arg(long)]
    json: bool,
    /// Print the documents alone, one per line.
    #[arg(long, requires = "namespace", conflicts_with = "json")]
    raw: bool,
}

#[derive(clap::Args, Debug)]
pub(super) struct GetArgs {
    /// Namespace of the document.
    #[arg(value_parser = namespace)]
    namespace: Namespace,
    /// Id of the document.
    id: u64,
    #[command(flatten)]
    from: ClientArgs,
}

#[derive(clap::Args, Debug)]
#[command(after_help = SCHEMA_AFTER_HELP)]
pub(super) struct SchemaArgs {
    /// Namespace of documents.
    #[arg(value_parser = namespace)]
    namespace: Namespace,
    #[command(flatten)]
    from: ClientArgs,
    /// Print it as JSON.
    #[arg(long)]
    json: bool,
}

#[derive(clap::Args, Debug)]
pub(super) struct QuarantineArgs {
    #[command(flatten)]
    from: ClientArgs,
    /// Print one JSON object for each namespace, one per line.
    #[arg(long)]
    json: bool,
}

#[derive(clap::Args, Debug)]
#[command(after_help = REPLAY_AFTER_HELP)]
pub(super) struct ReplayArgs {
    /// Namespace of documents.
    #[arg(value_parser = namespace)]
    namespace: Namespace,
    #[command(flatten)]
    from: ClientArgs,
    /// Print the server's JSON answer.
    #[arg(long)]
    json: bool,
}

/// A client of documents.
pub(super) fn client(from: &ClientArgs) -> anyhow::Result<Client> {
    Client::of_route(from, "/v1/documents")
}

pub(super) fn run(command: &Command) -> anyhow::Result<Exit> {
    match command {
        Command::Ls(args) => match &args.namespace {
            Some(namespace) => list(args, namespace),
            None => namespaces(args),
        },
        Command::Get(args) => get(args),
        Command::Add(args) => documents_write::add(args),
        Command::Put(args) => documents_write::put(args),
        Command::Patch(args) => documents_write::patch(args),
        Command::Rm(args) => documents_write::remove(args),
        Command::Drop(args) => documents_write::drop_namespace(args),
        Command::Schema(args) => schema(args),
        Command::Follow(args) => documents_follow::run(args),
        Command::Quarantine(args) => quarantine(args),
        Command::Replay(args) => replay(args),
    }
}

/// Fetches JSON of a few properties.
fn ask(client: &Client, method: Method, path: &str) -> anyhow::Result<Value> {
    let request = client.request(method, path).header("accept", "application/json");
    let answer = client.send(request, SendBody::none()).map_err(failed)?;
    client.read(answer, PAGE_SIZE_MAX).map_err(failed)
}

fn all<'a>(answer: &'a Value, member: &str) -> impl Iterator<Item = &'a Value> {
    answer[member].as_array().into_iter().flatten()
}

fn word(value: &Value, member: &str) -> String {
    shown(value[member].as_str().unwrap_or_default())
}

fn namespaces(args: &ListArgs) -> anyhow::Result<Exit> {
    let found = ask(&client(&args.from)?, Method::GET, "/v1/documents")?;
    for namespace in all(&found, "namespaces") {
        if args.json {
            out::line(namespace)?;
            continue;
        }
        let kind = match namespace["undecided"].as_bool() {
            Some(true) => "undecided".to_owned(),
            _ => word(namespace, "target"),
        };
        let count = namespace["documents"].as_u64().unwrap_or(0);
        out::line(format!("{count:>12}  {kind:<10}  {}", word(namespace, "namespace")))?;
    }
    Ok(Exit::Ok)
}

fn list(args: &ListArgs, namespace: &Namespace) -> anyhow::Result<Exit> {
    let client = client(&args.from)?;
    let mut pages = Documents::new(namespace, args.filter.as_deref());
    let mut left = args.limit;
    loop {
        let limit = left.map_or(PAGE, |left| left.min(PAGE));
        let Some(page) = pages.next(&client, limit).map_err(failed)? else { return Ok(Exit::Ok) };
        for document in &page.documents {
            if !print(&line(document, args)?)? {
                return Ok(Exit::Ok);
            }
        }
        left = left.map(|left| left.saturating_sub(page.documents.len() as u64));
        if left == Some(0) {
            return Ok(Exit::Ok);
        }
    }
}

/// A document on one line.
fn line(document: &Document, args: &ListArgs) -> anyhow::Result<String> {
    // A line break is between tokens, never in a string.
    let text = document.document.get().replace(['\n', '\r'], " ");
    Ok(if args.raw {
        text
    } else if args.json {
        let received = serde_json::to_string(&document.received).context("cannot print a time")?;
        format!("{{\"id\":{},\"received\":{received},\"document\":{text}}}", document.id)
    } else {
        format!("{:>12}  {}  {}", document.id, shown(&document.received), shown(&text))
    })
}

/// Prints a line; returns whether there is still a reader.
pub(super) fn print(line: &str) -> anyhow::Result<bool> {
    let mut stdout = std::io::stdout().lock();
    match writeln!(stdout, "{line}").and_then(|()| stdout.flush()) {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(false),
        written => written.map(|()| true).context("cannot write to standard output"),
    }
}

fn get(args: &GetArgs) -> anyhow::Result<Exit> {
    let client = client(&args.from)?;
    let request = client.request(Method::GET, &document_path(&args.namespace, args.id));
    let mut answer = client.send(request, SendBody::none()).map_err(of_document(args))?;
    let expected = entity_tag(&answer);
    let body = answer.body_mut().with_config().limit(PAGE_SIZE_MAX).read_to_vec();
    let body = body.with_context(|| format!("cannot fetch {}/{}", args.namespace, args.id))?;
    let found = Digest::of(&body).to_string();
    if expected.as_deref() != Some(&found) {
        let expected = expected.as_deref().unwrap_or("none");
        let text = format!(
            "{}/{} has the SHA-256 {found}, expected {}",
            args.namespace,
            args.id,
            shown(expected)
        );
        return Err(Coded::error(Exit::Failed, text));
    }
    out::bytes(&[&body[..], b"\n"].concat())?;
    Ok(Exit::Ok)
}

/// The SHA-256 that an answer has as its entity tag.
fn entity_tag(answer: &Answer) -> Option<String> {
    let tag = answer.headers().get("etag")?.to_str().ok()?;
    Some(tag.trim_matches('"').to_owned())
}

/// The error of a request for a document.
fn of_document(args: &GetArgs) -> impl Fn(Failure) -> anyhow::Error {
    |failure| match failure {
        Failure::Refused { status: 404, .. } => {
            let text = format!("there is no document {}/{}", args.namespace, args.id);
            Coded::error(Exit::Failed, text)
        }
        failure => failed(failure),
    }
}

fn schema(args: &SchemaArgs) -> anyhow::Result<Exit> {
    let path = format!("/v1/documents/{}/schema", encode(args.namespace.as_str()));
    let found = ask(&client(&args.from)?, Method::GET, &path)?;
    if args.json {
        out::json(&found)?;
        return Ok(Exit::Ok);
    }
    let is_undecided = found["undecided"].as_bool().unwrap_or(false);
    let note = if is_undecided { "; too few documents to decide for good" } else { "" };
    out::line(format!("target     {}{note}", word(&found, "target")))?;
    out::line(format!("documents  {}", found["documents"].as_u64().unwrap_or(0)))?;
    for column in all(&found, "columns") {
        let (name, path) = (word(column, "column"), word(column, "path"));
        let of = if name == path { String::new() } else { format!("  of {path}") };
        out::line(format!("column     {name}  {}{of}", word(column, "type")))?;
    }
    if let Some(dropped @ 1..) = found["changes_dropped"].as_u64() {
        out::line(format!("changed    {dropped} older changes are no longer kept"))?;
    }
    for change in all(&found, "changes") {
        out::line(change_line(change))?;
    }
    Ok(Exit::Ok)
}

/// One change of a namespace's columns: its time, the newest document before, and what changed.
fn change_line(change: &Value) -> String {
    let of = |column: &Value| format!("{} {}", word(column, "column"), word(column, "type"));
    let added = all(change, "columns_added").map(|column| format!("+{}", of(column)));
    let removed = all(change, "columns_removed").map(|column| format!("-{}", of(column)));
    let changed = all(change, "columns_changed").map(|column| {
        format!("{} {} -> {}", word(column, "column"), word(column, "from"), word(column, "to"))
    });
    let columns: Vec<String> = added.chain(changed).chain(removed).collect();
    let after = match change["after_id"].as_u64() {
        Some(id) => format!("after document {id}"),
        None => "first documents".to_owned(),
    };
    format!("changed    {}  {after}: {}", word(change, "changed"), columns.join(", "))
}

fn quarantine(args: &QuarantineArgs) -> anyhow::Result<Exit> {
    let status = ask(&client(&args.from)?, Method::GET, "/v1/database")?;
    for held in all(&status, "quarantined") {
        if args.json {
            out::line(held)?;
        } else {
            out::line(held_line(held))?;
        }
    }
    Ok(Exit::Ok)
}

fn held_line(held: &Value) -> String {
    format!(
        "{:>12}  {}  {}: {}",
        held["documents_waiting"].as_u64().unwrap_or(0),
        word(held, "since"),
        word(held, "namespace"),
        word(held, "reason")
    )
}

fn replay(args: &ReplayArgs) -> anyhow::Result<Exit> {
    let path = format!("/v1/database/replay?namespace={}", encode(args.namespace.as_str()));
    let status = ask(&client(&args.from)?, Method::POST, &path)?;
    if args.json {
        out::json(&status)?;
        return Ok(Exit::Ok);
    }
    let held =
        all(&status, "quarantined").find(|held| held["namespace"] == args.namespace.as_str());
    let waiting = held.and_then(|held| held["documents_waiting"].as_u64());
    match waiting {
        Some(waiting) => out::line(format!("trying {}: {waiting} documents", args.namespace))?,
        None => out::line(format!("trying {}", args.namespace))?,
    }
    Ok(Exit::Ok)
}
