//! `forebay namespaces`: the namespaces of files of a running server, and what each may hold.

use std::str::FromStr;

use forebay_base::ByteSize;
use forebay_intake::names::Namespace;
use serde_json::{Map, Value};
use ureq::SendBody;
use ureq::http::Method;

use super::file_client::{Client, ClientArgs, Failure, failed, namespace, pair, shown};
use super::files_change::patch;
use super::server::encode;
use crate::exit::{Coded, Exit};
use crate::out;

const AFTER_HELP: &str = "\
Examples:
  forebay namespaces ls
  forebay namespaces show docs
  forebay namespaces set docs --versions on
  forebay namespaces set uploads --max-files 10000 --max-bytes 20GiB
  forebay namespaces set uploads --max-bytes none
  forebay namespaces rm scratch

Exit codes: 0 success; 1 there is no such namespace, or the request failed; 2 invalid command line.";

const SET_AFTER_HELP: &str = "\
Examples:
  forebay namespaces set docs
  forebay namespaces set docs --versions on
  forebay namespaces set uploads --max-files 10000 --max-bytes 20GiB

What no option names stays as it is. Files that are stored when a limit is set stay, too: further
ones are refused until there is room.";

#[derive(clap::Subcommand, Debug)]
#[command(after_help = AFTER_HELP)]
pub(super) enum Command {
    /// List namespaces of files.
    Ls(ListArgs),
    /// Print the settings of a namespace, and what it holds.
    Show(ShowArgs),
    /// Create a namespace, or change its settings.
    Set(SetArgs),
    /// Remove a namespace without files.
    Rm(RemoveArgs),
}

#[derive(clap::Args, Debug)]
pub(super) struct ListArgs {
    #[command(flatten)]
    from: ClientArgs,
    /// Print one JSON object for each namespace, one per line.
    #[arg(long)]
    json: bool,
}

#[derive(clap::Args, Debug)]
pub(super) struct ShowArgs {
    /// The namespace.
    #[arg(value_parser = namespace)]
    namespace: Namespace,
    #[command(flatten)]
    from: ClientArgs,
    /// Print it as JSON.
    #[arg(long)]
    json: bool,
}

#[derive(clap::Args, Debug)]
#[command(after_help = SET_AFTER_HELP)]
pub(super) struct SetArgs {
    /// The namespace.
    #[arg(value_parser = namespace)]
    namespace: Namespace,
    /// Whether what names refer to is kept as versions when it is replaced or deleted.
    #[arg(long, value_name = "ON|OFF")]
    versions: Option<Switch>,
    /// Maximum number of files, or none.
    #[arg(long, value_name = "N|none", value_parser = limit::<u64>)]
    max_files: Option<Limit<u64>>,
    /// Maximum size of all files and versions, or none.
    #[arg(long, value_name = "SIZE|none", value_parser = limit::<ByteSize>)]
    max_bytes: Option<Limit<ByteSize>>,
    /// Set a tag; an empty value removes it. May be repeated.
    #[arg(long = "tag", value_name = "NAME=VALUE", value_parser = pair)]
    tags: Vec<(String, String)>,
    #[command(flatten)]
    from: ClientArgs,
    /// Print the namespace as JSON.
    #[arg(long)]
    json: bool,
}

#[derive(clap::Args, Debug)]
pub(super) struct RemoveArgs {
    /// The namespace.
    #[arg(value_parser = namespace)]
    namespace: Namespace,
    #[command(flatten)]
    from: ClientArgs,
}

/// Whether something is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Switch {
    On,
    Off,
}

/// A maximum; `None` for no limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Limit<T>(Option<T>);

fn limit<T: FromStr<Err: std::fmt::Display>>(text: &str) -> Result<Limit<T>, String> {
    match text {
        "none" => Ok(Limit(None)),
        text => {
            text.parse().map(|most| Limit(Some(most))).map_err(|error: T::Err| error.to_string())
        }
    }
}

pub(super) fn path(namespace: &Namespace) -> String {
    format!("/v1/namespaces/{namespace}")
}

fn client(from: &ClientArgs) -> anyhow::Result<Client> {
    Client::of_route(from, "/v1/namespaces")
}

pub(super) fn run(command: &Command) -> anyhow::Result<Exit> {
    match command {
        Command::Ls(args) => list(args),
        Command::Show(args) => show(args),
        Command::Set(args) => set(args),
        Command::Rm(args) => remove(args),
    }
}

fn list(args: &ListArgs) -> anyhow::Result<Exit> {
    let client = client(&args.from)?;
    let mut cursor: Option<String> = None;
    loop {
        let after = cursor.map(|cursor| format!("&cursor={}", encode(&cursor)));
        let after = after.unwrap_or_default();
        let page = client.json(&format!("/v1/namespaces?limit=1000{after}"))?;
        for found in page["namespaces"].as_array().into_iter().flatten() {
            if args.json {
                out::line(found)?;
            } else {
                out::line(line(found))?;
            }
        }
        cursor = page["next_cursor"].as_str().map(str::to_owned);
        if cursor.is_none() {
            return Ok(Exit::Ok);
        }
    }
}

/// A namespace on one line.
fn line(found: &Value) -> String {
    let name = shown(found["namespace"].as_str().unwrap_or_default());
    let versions = if found["versions"] == true { "versions" } else { "" };
    let quota = quota(&found["quota"]).unwrap_or_default();
    format!("{name:<32}  {versions:<8}  {quota}").trim_end().to_owned()
}

/// A quota and what is used of it; `None` without one.
fn quota(quota: &Value) -> Option<String> {
    let used = |name: &str| quota[name].as_u64().unwrap_or(0);
    let files = quota["files"].as_u64();
    let files = files.map(|most| format!("{} of {most} files", used("used_files")));
    let bytes = quota["bytes"].as_u64().map(ByteSize);
    let bytes = bytes.map(|most| format!("{} of {most}", ByteSize(used("used_bytes"))));
    let parts: Vec<String> = files.into_iter().chain(bytes).collect();
    (!parts.is_empty()).then(|| parts.join(", "))
}

fn show(args: &ShowArgs) -> anyhow::Result<Exit> {
    let client = client(&args.from)?;
    let found = client.ask(Method::GET, &path(&args.namespace), None);
    let found = found.map_err(|error| missing(error, &args.namespace))?;
    print(&found, args.json)
}

/// Prints what the server says of one namespace.
fn print(found: &Value, json: bool) -> anyhow::Result<Exit> {
    if json {
        out::json(found)?;
        return Ok(Exit::Ok);
    }
    for (property, value) in found.as_object().into_iter().flatten() {
        let value = match property.as_str() {
            "quota" => quota(value).unwrap_or_else(|| "none".to_owned()),
            "categories" => categories(value),
            _ => value.as_str().map_or_else(|| value.to_string(), shown),
        };
        out::line(format!("{property:<15} {value}"))?;
    }
    Ok(Exit::Ok)
}

fn categories(of: &Value) -> String {
    let each = of.as_object().into_iter().flatten();
    let each = each.map(|(name, sums)| format!("{} {}", sums["files"], shown(name)));
    each.collect::<Vec<_>>().join(", ")
}

fn set(args: &SetArgs) -> anyhow::Result<Exit> {
    let mut settings = Map::new();
    if let Some(versions) = args.versions {
        settings.insert("versions".to_owned(), (versions == Switch::On).into());
    }
    if let Some(Limit(files)) = args.max_files {
        settings.insert("quota_files".to_owned(), files.into());
    }
    if let Some(Limit(bytes)) = args.max_bytes {
        settings.insert("quota_bytes".to_owned(), bytes.map(ByteSize::bytes).into());
    }
    if !args.tags.is_empty() {
        settings.insert("tags".to_owned(), patch(&args.tags));
    }
    let client = client(&args.from)?;
    let found = client.ask(Method::PUT, &path(&args.namespace), Some(&settings.into()));
    let found = found.map_err(failed)?;
    print(&found, args.json)
}

fn remove(args: &RemoveArgs) -> anyhow::Result<Exit> {
    let client = client(&args.from)?;
    let request = client.request(Method::DELETE, &path(&args.namespace));
    client.send(request, SendBody::none()).map_err(|error| missing(error, &args.namespace))?;
    Ok(Exit::Ok)
}

/// The error of a request about a namespace that may not exist.
fn missing(failure: Failure, namespace: &Namespace) -> anyhow::Error {
    match failure {
        Failure::Refused { status: 404, .. } => {
            Coded::error(Exit::Failed, format!("there is no namespace {namespace} of files"))
        }
        failure => failed(failure),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_limit_is_a_number_or_none() {
        assert_eq!(limit::<u64>("7"), Ok(Limit(Some(7))));
        assert_eq!(limit::<ByteSize>("2KiB"), Ok(Limit(Some(ByteSize(2_048)))));
        assert_eq!(limit::<u64>("none"), Ok(Limit(None)));
        assert!(limit::<u64>("-1").is_err() && limit::<ByteSize>("much").is_err());
    }

    #[test]
    fn a_line_has_versions_and_quota_and_escapes_the_name() {
        let used = json!({"files": 10, "bytes": null, "used_files": 3, "used_bytes": 5});
        let found = json!({"namespace": "a\u{1b}b", "versions": true, "quota": used});
        assert_eq!(line(&found), format!("{:<32}  versions  3 of 10 files", "a\\u{1b}b"));
        assert_eq!(line(&json!({"namespace": "plain", "versions": false})), "plain");
    }
}
