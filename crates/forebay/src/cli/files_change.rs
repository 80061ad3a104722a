//! `forebay files set`, `cp`, `mv`, `history`, `restore` and `prune`: what is changed without sending bytes.

use anyhow::Context as _;
use serde_json::{Map, Value, json};
use ureq::http::Method;

use super::file_client::{Client, ClientArgs, Failure, Target, failed, pair, shown};
use super::server::encode;
use crate::exit::{Coded, Exit};
use crate::out;

/// Versions that are asked for at a time.
const PAGE: u64 = 1_000;

const SET_AFTER_HELP: &str = "\
Examples:
  forebay files set docs/report.pdf --comment 'checked by Kim'
  forebay files set docs/report.pdf --tag status=final --tag draft= --meta author=Kim
  forebay files set docs/a.pdf docs/b.pdf --tag status=final

What no option names stays as it is. An empty value removes a tag, metadata, or the comment.";

const HISTORY_AFTER_HELP: &str = "\
Examples:
  forebay namespaces set docs --versions on
  forebay files history docs/report.pdf
  forebay files get docs/report.pdf --version-id 00000000000012a8 -o old.pdf
  forebay files restore docs/report.pdf 00000000000012a8

Versions are kept in namespaces where they are switched on.";

#[derive(clap::Args, Debug)]
#[command(after_help = SET_AFTER_HELP)]
pub(super) struct SetArgs {
    /// Files to change, at most 1000.
    #[arg(value_name = "NAMESPACE/NAME", required = true, num_args = 1..=1_000, value_parser = Target::parse)]
    files: Vec<Target>,
    /// Comment, such as a note about the file.
    #[arg(long, value_name = "TEXT")]
    comment: Option<String>,
    /// Set a tag. May be repeated.
    #[arg(long = "tag", value_name = "NAME=VALUE", value_parser = pair)]
    tags: Vec<(String, String)>,
    /// Set metadata. May be repeated.
    #[arg(long = "meta", value_name = "NAME=VALUE", value_parser = pair)]
    metadata: Vec<(String, String)>,
    #[command(flatten)]
    from: ClientArgs,
    /// Print the server's JSON answer.
    #[arg(long)]
    json: bool,
}

#[derive(clap::Args, Debug)]
pub(super) struct TransferArgs {
    /// The file.
    #[arg(value_name = "NAMESPACE/NAME", value_parser = Target::parse)]
    file: Target,
    /// The name that it gets.
    #[arg(value_name = "NEW_NAMESPACE/NEW_NAME", value_parser = Target::parse)]
    to: Target,
    /// Replace a file that has this name.
    #[arg(short, long)]
    force: bool,
    #[command(flatten)]
    from: ClientArgs,
    /// Print the server's JSON answer.
    #[arg(long)]
    json: bool,
}

#[derive(clap::Args, Debug)]
#[command(after_help = HISTORY_AFTER_HELP)]
pub(super) struct HistoryArgs {
    /// The file.
    #[arg(value_name = "NAMESPACE/NAME", value_parser = Target::parse)]
    file: Target,
    #[command(flatten)]
    from: ClientArgs,
    /// Print one JSON object for each version, one per line.
    #[arg(long)]
    json: bool,
}

#[derive(clap::Args, Debug)]
pub(super) struct RestoreArgs {
    /// The file.
    #[arg(value_name = "NAMESPACE/NAME", value_parser = Target::parse)]
    file: Target,
    /// Id of the version, from `forebay files history`.
    #[arg(value_name = "ID")]
    id: String,
    #[command(flatten)]
    from: ClientArgs,
    /// Print the server's JSON answer.
    #[arg(long)]
    json: bool,
}

#[derive(clap::Args, Debug)]
pub(super) struct PruneArgs {
    /// The file.
    #[arg(value_name = "NAMESPACE/NAME", value_parser = Target::parse)]
    file: Target,
    /// Number of versions that stay, beside the current file.
    #[arg(value_name = "N")]
    keep: u64,
    #[command(flatten)]
    from: ClientArgs,
    /// Print the server's JSON answer.
    #[arg(long)]
    json: bool,
}

/// Values by name; an empty one removes its name.
pub(super) fn patch(pairs: &[(String, String)]) -> Value {
    let value = |value: &String| if value.is_empty() { Value::Null } else { json!(value) };
    pairs.iter().map(|(name, text)| (name.clone(), value(text))).collect::<Map<_, _>>().into()
}

/// The error of a request about a file.
fn of_file(file: &Target) -> impl Fn(Failure) -> anyhow::Error {
    move |failure| match failure {
        Failure::Refused { status: 404, .. } => {
            Coded::error(Exit::Failed, format!("there is no file {file}"))
        }
        failure => failed(failure),
    }
}

pub(super) fn set(args: &SetArgs) -> anyhow::Result<Exit> {
    let mut change = Map::new();
    if let Some(comment) = &args.comment {
        change.insert("comment".to_owned(), json!(comment));
    }
    for (name, pairs) in [("tags", &args.tags), ("metadata", &args.metadata)] {
        if !pairs.is_empty() {
            change.insert(name.to_owned(), patch(pairs));
        }
    }
    if change.is_empty() {
        let text = "there is nothing to change: give --comment, --tag or --meta";
        return Err(Coded::error(Exit::Usage, text.to_owned()));
    }
    let client = Client::new(&args.from)?;
    if let [file] = &*args.files {
        let changed = client.ask(Method::PATCH, &file.path(), Some(&change.into()));
        let changed = changed.map_err(of_file(file))?;
        if args.json {
            out::json(&changed)?;
        }
        return Ok(Exit::Ok);
    }
    let change_of = |file: &Target| {
        let mut change = change.clone();
        change.insert("namespace".to_owned(), json!(file.namespace.as_str()));
        change.insert("name".to_owned(), json!(file.name.as_str()));
        Value::Object(change)
    };
    let asked = json!({"files": args.files.iter().map(change_of).collect::<Vec<_>>()});
    let done = client.ask(Method::POST, "/v1/files/change", Some(&asked)).map_err(failed)?;
    if args.json {
        out::json(&done)?;
    }
    let mut exit = Exit::Ok;
    for (file, result) in args.files.iter().zip(done["results"].as_array().into_iter().flatten()) {
        if let Some(message) = result["error"]["message"].as_str() {
            out::note(format_args!("cannot change {file}: {}", shown(message)));
            exit = Exit::Failed;
        }
    }
    Ok(exit)
}

pub(super) fn copy(args: &TransferArgs) -> anyhow::Result<Exit> {
    transfer(args, "/v1/files/copy")
}

pub(super) fn rename(args: &TransferArgs) -> anyhow::Result<Exit> {
    transfer(args, "/v1/files/move")
}

fn transfer(args: &TransferArgs, path: &str) -> anyhow::Result<Exit> {
    let place =
        |file: &Target| json!({"namespace": file.namespace.as_str(), "name": file.name.as_str()});
    let file = json!({"from": place(&args.file), "to": place(&args.to), "overwrite": args.force});
    let client = Client::new(&args.from)?;
    let asked = json!({"files": [file]});
    let done = client.ask(Method::POST, path, Some(&asked)).map_err(failed)?;
    let result = done["results"].get(0).context("the server has no result for the file")?;
    if args.json {
        out::json(result)?;
    }
    let error = &result["error"];
    let Some(message) = error["message"].as_str() else { return Ok(Exit::Ok) };
    let text = match error["code"].as_str() {
        Some("not_found") => format!("there is no file {}", args.file),
        Some("precondition") => {
            format!("{} exists; replace it with --force", args.to)
        }
        _ => shown(message),
    };
    Err(Coded::error(Exit::Failed, text))
}

pub(super) fn history(args: &HistoryArgs) -> anyhow::Result<Exit> {
    let client = Client::new(&args.from)?;
    let mut cursor: Option<String> = None;
    loop {
        let after = cursor.as_deref().map(|cursor| format!("&cursor={}", encode(cursor)));
        let after = after.unwrap_or_default();
        let path = format!("{}?versions=true&limit={PAGE}{after}", args.file.path());
        let page = client.ask(Method::GET, &path, None).map_err(of_file(&args.file))?;
        let current = &page["current"];
        if cursor.is_none() && current.is_object() {
            print(current, &current["id"], args.json, "current")?;
        }
        for version in page["versions"].as_array().into_iter().flatten() {
            let is_deletion = version["deleted"] == true;
            let file = if is_deletion { version } else { &version["file"] };
            print(file, &version["id"], args.json, if is_deletion { "deleted" } else { "" })?;
        }
        cursor = page["next_cursor"].as_str().map(str::to_owned);
        if cursor.is_none() {
            return Ok(Exit::Ok);
        }
    }
}

/// Prints one state of a name.
fn print(file: &Value, id: &Value, json: bool, note: &str) -> anyhow::Result<()> {
    if json {
        return out::line(file);
    }
    let text = |value: &Value| shown(value.as_str().unwrap_or_default());
    let size = file["size"].as_u64().map_or_else(|| "-".to_owned(), |size| size.to_string());
    let line = format!("{}  {size:>12}  {}  {note}", text(id), text(&file["created"]));
    out::line(line.trim_end())
}

pub(super) fn restore(args: &RestoreArgs) -> anyhow::Result<Exit> {
    let client = Client::new(&args.from)?;
    let path = format!("{}?restore={}", args.file.path(), encode(&args.id));
    let restored = client.ask(Method::POST, &path, None).map_err(|failure| match failure {
        Failure::Refused { status: 404, .. } => {
            let text = format!("{} has no version {}", args.file, shown(&args.id));
            Coded::error(Exit::Failed, text)
        }
        failure => failed(failure),
    })?;
    if args.json {
        out::json(&restored)?;
    }
    Ok(Exit::Ok)
}

pub(super) fn prune(args: &PruneArgs) -> anyhow::Result<Exit> {
    let client = Client::new(&args.from)?;
    let path = format!("{}?prune={}", args.file.path(), args.keep);
    let pruned = client.ask(Method::DELETE, &path, None).map_err(of_file(&args.file))?;
    if args.json {
        out::json(&pruned)?;
    } else {
        out::line(format!("{} versions erased", pruned["erased"].as_u64().unwrap_or(0)))?;
    }
    Ok(Exit::Ok)
}
