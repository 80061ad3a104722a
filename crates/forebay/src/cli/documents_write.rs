//! `forebay documents add`, `put`, `patch`, `rm` and `drop`: what stores, changes and deletes documents.
//!
//! Invariants: a body is sent as it is read, whatever its size; every refused document is reported, and makes
//! the exit code 1.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use forebay_intake::digest::Digest;
use forebay_intake::names::Namespace;
use forebay_intake::request::RequestKey;
use serde_json::Value;
use ureq::SendBody;
use ureq::http::Method;
use ureq::http::request::Builder;

use super::document_client::document_path;
use super::documents::client;
use super::file_client::{Client, ClientArgs, Failure, failed, namespace, shown};
use super::server::encode;
use crate::exit::{Coded, Exit};
use crate::out;

/// Maximum size of an answer about documents that were sent, in bytes.
const ANSWER_SIZE_MAX: u64 = 64 << 20;

const ADD_AFTER_HELP: &str = "\
Examples:
  forebay documents add machines machines.ndjson
  forebay documents add machines machines.json --target table --dry-run
  zcat log.ndjson.gz | forebay documents add log
  forebay documents add log log.ndjson --reject --idempotency-key 2026-11-26

FILE has JSON objects: one or several, an array of them, or one per line (NDJSON). A file named
.ndjson or .jsonl is read line by line, so that an invalid line affects no other. Refused documents
are listed with line and reason.

Exit codes: 0 all documents were stored; 1 some were refused, or the request failed; 2 invalid
command line.";

const PUT_AFTER_HELP: &str = "\
Examples:
  forebay documents put machines 1 pump.json
  forebay documents get machines 1 | jq -c '.power_kw = 8' | forebay documents put machines 1";

const PATCH_AFTER_HELP: &str = "\
Examples:
  forebay documents patch machines 1 '{\"power_kw\":8,\"note\":null}'

What the patch does not name stays, what is null in it is removed (RFC 7396).";

const DROP_AFTER_HELP: &str = "\
Examples:
  forebay documents drop machines --confirm machines

Files of a namespace with the same name stay.";

#[derive(clap::Args, Debug)]
#[command(after_help = ADD_AFTER_HELP)]
pub(super) struct AddArgs {
    /// Namespace to store them in.
    #[arg(value_parser = namespace)]
    namespace: Namespace,
    /// File to read, or - for standard input.
    #[arg(value_name = "FILE", default_value = "-")]
    source: PathBuf,
    /// Where documents of the namespace are to be stored [default: the server decides].
    #[arg(long, value_parser = ["auto", "table", "collection"])]
    target: Option<String>,
    /// Store all documents, or none if one is refused.
    #[arg(long)]
    reject: bool,
    /// Report what would be stored, and store nothing.
    #[arg(long)]
    dry_run: bool,
    /// Key that makes it safe to repeat the command: within 24 hours the documents are stored once.
    #[arg(long, value_name = "TEXT", value_parser = request_key)]
    idempotency_key: Option<String>,
    #[command(flatten)]
    from: ClientArgs,
    /// Print the server's JSON answer.
    #[arg(long)]
    json: bool,
}

#[derive(clap::Args, Debug)]
#[command(after_help = PUT_AFTER_HELP)]
pub(super) struct PutArgs {
    /// Namespace of the document.
    #[arg(value_parser = namespace)]
    namespace: Namespace,
    /// Id of the document.
    id: u64,
    /// File with the new document, or - for standard input.
    #[arg(value_name = "FILE", default_value = "-")]
    source: PathBuf,
    /// Only if the document has this SHA-256.
    #[arg(long, value_name = "SHA256", value_parser = sha256)]
    if_match: Option<Digest>,
    #[command(flatten)]
    from: ClientArgs,
    /// Print the server's JSON answer.
    #[arg(long)]
    json: bool,
}

#[derive(clap::Args, Debug)]
#[command(after_help = PATCH_AFTER_HELP)]
pub(super) struct PatchArgs {
    /// Namespace of the document.
    #[arg(value_parser = namespace)]
    namespace: Namespace,
    /// Id of the document.
    id: u64,
    /// The patch, a JSON object.
    #[arg(value_name = "JSON", value_parser = object)]
    patch: String,
    /// Only if the document has this SHA-256.
    #[arg(long, value_name = "SHA256", value_parser = sha256)]
    if_match: Option<Digest>,
    #[command(flatten)]
    from: ClientArgs,
    /// Print the server's JSON answer.
    #[arg(long)]
    json: bool,
}

#[derive(clap::Args, Debug)]
pub(super) struct RemoveArgs {
    /// Namespace of the documents.
    #[arg(value_parser = namespace)]
    namespace: Namespace,
    /// Ids of the documents to delete.
    #[arg(value_name = "ID", required = true)]
    ids: Vec<u64>,
    /// Ignore documents that do not exist.
    #[arg(short, long)]
    force: bool,
    #[command(flatten)]
    from: ClientArgs,
}

#[derive(clap::Args, Debug)]
#[command(after_help = DROP_AFTER_HELP)]
pub(super) struct DropArgs {
    /// Namespace to delete.
    #[arg(value_parser = namespace)]
    namespace: Namespace,
    /// The namespace once more.
    #[arg(long, value_name = "NAMESPACE", required = true)]
    confirm: String,
    #[command(flatten)]
    from: ClientArgs,
}

fn request_key(text: &str) -> Result<String, String> {
    let key = RequestKey::parse(text.as_bytes());
    key.map(|_| text.to_owned()).map_err(|error| error.to_string())
}

fn sha256(text: &str) -> Result<Digest, String> {
    Digest::from_hex(text).ok_or("a SHA-256 has 64 hexadecimal digits".to_owned())
}

/// Checks a patch of the command line. It is sent as it was written.
fn object(text: &str) -> Result<String, String> {
    match serde_json::from_str::<Value>(text) {
        Ok(Value::Object(_)) => Ok(text.to_owned()),
        Ok(_) => Err("a patch is a JSON object".to_owned()),
        Err(error) => Err(error.to_string()),
    }
}

/// A source of bytes, and its size if it is known.
fn open(path: &Path) -> anyhow::Result<(Box<dyn Read>, Option<u64>)> {
    if path == Path::new("-") {
        return Ok((Box::new(io::stdin().lock()), None));
    }
    let cannot_read = || format!("cannot read {}", path.display());
    let file = File::open(path).with_context(cannot_read)?;
    let metadata = file.metadata().with_context(cannot_read)?;
    if metadata.is_dir() {
        let text = format!("{} is a directory; name a file", path.display());
        return Err(Coded::error(Exit::Usage, text));
    }
    // What is no regular file has no size that says anything.
    Ok(match metadata.is_file() {
        true => (Box::new(file.take(metadata.len())), Some(metadata.len())),
        false => (Box::new(file), None),
    })
}

/// Adds the size of a body to a request, if it is known.
fn sized(request: Builder, size: Option<u64>) -> Builder {
    match size {
        Some(size) => request.header("content-length", size),
        None => request,
    }
}

pub(super) fn add(args: &AddArgs) -> anyhow::Result<Exit> {
    let client = client(&args.from)?;
    let (mut source, size) = open(&args.source)?;
    let mut path = format!("/v1/documents/{}?dry_run={}", args.namespace, args.dry_run);
    if args.reject {
        path.push_str("&on_error=reject");
    }
    if let Some(target) = &args.target {
        path.push_str(&format!("&target={}", encode(target)));
    }
    let mut request = sized(client.request(Method::POST, &path), size);
    let extension = args.source.extension().and_then(|extension| extension.to_str());
    if extension.is_some_and(|name| matches!(name, "ndjson" | "jsonl")) {
        request = request.header("content-type", "application/x-ndjson");
    }
    if let Some(key) = &args.idempotency_key {
        request = request.header("idempotency-key", key);
    }
    let answer = client.send_for_any(request, SendBody::from_reader(&mut source));
    let answer = answer.map_err(failed)?;
    // 422 is a report that all were refused, or an error of the request.
    let is_report = answer.status().is_success() || answer.status().as_u16() == 422;
    if !is_report {
        return Err(failed(client.refusal(answer)));
    }
    let status = answer.status().as_u16();
    let stored: Value = client.read(answer, ANSWER_SIZE_MAX).map_err(failed)?;
    if stored["accepted"].is_null() {
        let message = stored["error"]["message"].as_str().unwrap_or("the answer has no counts");
        let text = format!("the request failed: the server answers {status}: {}", shown(message));
        return Err(Coded::error(Exit::Failed, text));
    }
    report(args, &stored)
}

/// Prints what was stored, and what was refused.
fn report(args: &AddArgs, stored: &Value) -> anyhow::Result<Exit> {
    let count = |member: &str| stored[member].as_u64().unwrap_or(0);
    let (accepted, rejected) = (count("accepted"), count("rejected"));
    for refused in stored["errors"].as_array().into_iter().flatten() {
        let reason = shown(refused["reason"].as_str().unwrap_or_default());
        out::note(format_args!("line {}, byte {}: {reason}", refused["line"], refused["byte"]));
    }
    if count("errors_omitted") > 0 {
        out::note(format_args!("and {} more", count("errors_omitted")));
    }
    if args.json {
        out::json(stored)?;
    } else {
        let verb = if args.dry_run { "would store" } else { "stored" };
        let target = match stored["target"].as_str() {
            Some(target) if stored["undecided"] != true => format!(" ({})", shown(target)),
            _ => String::new(),
        };
        let ids = match (stored["first_id"].as_u64(), stored["last_id"].as_u64()) {
            (Some(first), Some(last)) => format!(", ids {first} to {last}"),
            _ => String::new(),
        };
        out::line(format!(
            "{verb} {accepted} documents in {}{target}{ids}; {rejected} refused",
            args.namespace
        ))?;
    }
    Ok(if rejected == 0 { Exit::Ok } else { Exit::Failed })
}

/// Sends the new content of a document, or a patch.
fn change(
    client: &Client,
    (namespace, id): (&Namespace, u64),
    (request, body): (Builder, SendBody<'_>),
    (if_match, json): (Option<Digest>, bool),
) -> anyhow::Result<Exit> {
    let request = match if_match {
        Some(sha256) => request.header("if-match", format!("\"{sha256}\"")),
        None => request,
    };
    let changed = match client.send(request, body) {
        Ok(answer) => client.read::<Value>(answer, ANSWER_SIZE_MAX).map_err(failed)?,
        Err(Failure::Refused { status: 404, .. }) => {
            return Err(Coded::error(Exit::Failed, absent(namespace, id)));
        }
        Err(failure) => return Err(failed(failure)),
    };
    if json {
        out::json(&changed)?;
    } else {
        let sha256 = shown(changed["sha256"].as_str().unwrap_or_default());
        out::line(format!("{sha256}  {namespace}/{id}"))?;
    }
    Ok(Exit::Ok)
}

fn absent(namespace: &Namespace, id: u64) -> String {
    format!("there is no document {namespace}/{id}")
}

pub(super) fn put(args: &PutArgs) -> anyhow::Result<Exit> {
    let client = client(&args.from)?;
    let (mut source, size) = open(&args.source)?;
    let request = client.request(Method::PUT, &document_path(&args.namespace, args.id));
    let request = sized(request, size).header("content-type", "application/json");
    change(
        &client,
        (&args.namespace, args.id),
        (request, SendBody::from_reader(&mut source)),
        (args.if_match, args.json),
    )
}

pub(super) fn patch(args: &PatchArgs) -> anyhow::Result<Exit> {
    let client = client(&args.from)?;
    let request = client.request(Method::PATCH, &document_path(&args.namespace, args.id));
    let request = sized(request, Some(args.patch.len() as u64))
        .header("content-type", "application/merge-patch+json");
    change(
        &client,
        (&args.namespace, args.id),
        (request, SendBody::from_reader(&mut args.patch.as_bytes())),
        (args.if_match, args.json),
    )
}

pub(super) fn remove(args: &RemoveArgs) -> anyhow::Result<Exit> {
    let client = client(&args.from)?;
    let mut exit = Exit::Ok;
    for id in &args.ids {
        let request = client.request(Method::DELETE, &document_path(&args.namespace, *id));
        match client.send(request, SendBody::none()) {
            Ok(_) => {}
            Err(Failure::Refused { status: 404, .. }) if args.force => {}
            Err(Failure::Refused { status: 404, .. }) => {
                out::note(absent(&args.namespace, *id));
                exit = Exit::Failed;
            }
            Err(failure) => return Err(failed(failure)),
        }
    }
    Ok(exit)
}

pub(super) fn drop_namespace(args: &DropArgs) -> anyhow::Result<Exit> {
    if args.confirm != args.namespace.as_str() {
        let text = format!(
            "this deletes all documents of {namespace}: confirm it with --confirm {namespace}",
            namespace = args.namespace
        );
        return Err(Coded::error(Exit::Usage, text));
    }
    let client = client(&args.from)?;
    let path = format!("/v1/documents/{namespace}?confirm={namespace}", namespace = args.namespace);
    let request = client.request(Method::DELETE, &path);
    client.send(request, SendBody::none()).map_err(failed)?;
    Ok(Exit::Ok)
}
