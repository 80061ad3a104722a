//! `forebay key new|list|revoke`.

use forebay_api::keys::{Area, KeyFile, Limit, Record, Scope};
use forebay_intake::names::Namespace;
use serde_json::json;

use super::settings::{DataArgs, wrong};
use crate::exit::Exit;
use crate::out;

#[derive(clap::Subcommand, Debug)]
pub(super) enum Command {
    /// Create a key and print it. It cannot be printed again.
    ///
    /// Only its SHA-256 is stored, in keys.toml of the data directory. A running server accepts the
    /// new key within a second. Once a key exists, all requests to /v1 require one.
    #[command(after_help = "Example: forebay key new --name backup --scope write --scope read")]
    New(NewArgs),
    /// List all keys, with revoked ones, without their secrets.
    List(ListArgs),
    /// Revoke a key. A running server refuses it within a second.
    Revoke(RevokeArgs),
}

/// A scope on the command line.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum ScopeArg {
    /// Read: GET and HEAD below /v1, reading commands of the cache.
    Read,
    /// Everything else below /v1, writing commands of the cache.
    Write,
    /// All of it, and the administration of the server and the cache.
    Admin,
    /// Add events, documents and new files, and change or delete nothing.
    Append,
}

impl From<ScopeArg> for Scope {
    fn from(scope: ScopeArg) -> Self {
        match scope {
            ScopeArg::Read => Self::Read,
            ScopeArg::Write => Self::Write,
            ScopeArg::Admin => Self::Admin,
            ScopeArg::Append => Self::Append,
        }
    }
}

#[derive(clap::Args, Debug)]
pub(super) struct NewArgs {
    #[command(flatten)]
    data: DataArgs,
    /// Name of the key.
    #[arg(long)]
    name: String,
    /// Permission of the key; may be repeated. admin includes the others.
    #[arg(long = "scope", value_enum, default_values_t = [ScopeArg::Read, ScopeArg::Write])]
    scopes: Vec<ScopeArg>,
    /// Restrict the key to one resource, such as files:reports, documents:orders, events:auth,
    /// inventories:daily, pipelines:nightly or cache:session: (all keys with this prefix). May be
    /// repeated.
    #[arg(long = "only", value_name = "AREA:NAME", value_parser = limit)]
    only: Vec<Limit>,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

#[derive(clap::Args, Debug)]
pub(super) struct ListArgs {
    #[command(flatten)]
    data: DataArgs,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

#[derive(clap::Args, Debug)]
pub(super) struct RevokeArgs {
    #[command(flatten)]
    data: DataArgs,
    /// Id of the key, or its name if no other valid key has the same name.
    #[arg(value_name = "ID")]
    id: String,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

pub(super) fn run(command: &Command) -> anyhow::Result<Exit> {
    match command {
        Command::New(args) => new(args),
        Command::List(args) => list(args),
        Command::Revoke(args) => revoke(args),
    }?;
    Ok(Exit::Ok)
}

/// Reads a limit, and refuses a namespace that cannot exist: the key could access nothing.
fn limit(text: &str) -> Result<Limit, String> {
    let limit: Limit = text.parse()?;
    if matches!(limit.area(), Area::Files | Area::Documents) {
        Namespace::parse(limit.name()).map_err(|error| error.to_string())?;
    }
    Ok(limit)
}

fn file(data: &DataArgs) -> anyhow::Result<KeyFile> {
    let config = data.resolve()?.config().map_err(wrong)?;
    Ok(KeyFile::in_data_dir(&config.process.data))
}

fn new(args: &NewArgs) -> anyhow::Result<()> {
    let file = file(&args.data)?;
    let scopes: Vec<Scope> = args.scopes.iter().copied().map(Scope::from).collect();
    let (token, record) = file.add(&args.name, &scopes, &args.only)?;
    let printed = if args.json {
        let mut value = describe(&record);
        value["key"] = token.reveal().into();
        out::json(&value)
    } else {
        out::note(format_args!(
            "Key {} ({}) for {}: store it now, it cannot be shown again.",
            record.id,
            record.name,
            words(&record),
        ));
        out::line(token.reveal())
    };
    // A key that no one has would only lock out requests without one.
    printed.map_err(|error| match file.revoke(&record.id) {
        Ok(_) => error.context("the key could not be printed, and was revoked"),
        Err(also) => error.context(format!(
            "the key could not be printed; revoke it: forebay key revoke {} ({also})",
            record.id
        )),
    })
}

fn list(args: &ListArgs) -> anyhow::Result<()> {
    let keys = file(&args.data)?.read()?.unwrap_or_default();
    if args.json {
        let keys: Vec<_> = keys.iter().map(describe).collect();
        return out::json(&json!({ "keys": keys }));
    }
    if keys.is_empty() {
        out::note("no keys; create one with forebay key new --name NAME");
        return Ok(());
    }
    out::line(format_args!("{:12}  {:20}  {:7}  {:16}  NAME", "ID", "CREATED", "STATE", "SCOPES"))?;
    for key in &keys {
        let state = if key.revoked.is_some() { "revoked" } else { "active" };
        // Names are checked when keys are made, but the file may have been edited by hand.
        let name: String = key.name.chars().filter(|c| !c.is_control()).collect();
        let scopes = words(key);
        out::line(format_args!(
            "{:12}  {:20}  {state:7}  {scopes:16}  {name}",
            key.id, key.created
        ))?;
    }
    Ok(())
}

fn revoke(args: &RevokeArgs) -> anyhow::Result<()> {
    let record = file(&args.data)?.revoke(&args.id)?;
    if args.json {
        return out::json(&describe(&record));
    }
    out::line(format_args!("revoked {}", record.id))
}

fn describe(key: &Record) -> serde_json::Value {
    json!({
        "id": key.id,
        "name": key.name,
        "scopes": key.scopes.iter().map(|scope| scope.word()).collect::<Vec<_>>(),
        "only": key.only,
        "created": key.created,
        "revoked": key.revoked,
    })
}

fn words(key: &Record) -> String {
    let scopes = key.scopes.iter().map(|scope| scope.word().to_owned());
    scopes.chain(key.only.iter().map(Limit::to_string)).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::limit;

    #[test]
    fn a_key_is_limited_only_to_a_namespace_that_can_exist() {
        for text in ["files:inbox", "documents:a-b", "events:Any Stream", "cache:session:"] {
            assert!(limit(text).is_ok(), "{text}");
        }
        for text in ["files:Inbox", "documents:a/b", "files:", "folder:a"] {
            assert!(limit(text).is_err(), "{text}");
        }
    }
}
