//! `forebay key new|list|revoke`.

use serde_json::json;

use super::settings::{DataArgs, wrong};
use crate::exit::Exit;
use crate::keys::{KeyFile, Record, Scope};
use crate::out;

#[derive(clap::Subcommand, Debug)]
pub(super) enum Command {
    /// Make a key and show it, this once.
    ///
    /// Only its SHA-256 is kept, in keys.toml of the data directory. A running server notices the
    /// new key within a second; from the first key on, everything below /v1 needs one.
    #[command(after_help = "Example: forebay key new --name backup --scope write --scope read")]
    New(NewArgs),
    /// Show every key ever made, without its secret.
    List(ListArgs),
    /// Make a key stop working, within a second on a running server.
    Revoke(RevokeArgs),
}

#[derive(clap::Args, Debug)]
pub(super) struct NewArgs {
    #[command(flatten)]
    data: DataArgs,
    /// What to call it.
    #[arg(long)]
    name: String,
    /// What it may do; may be given several times. admin includes the others.
    #[arg(long = "scope", value_enum, default_values_t = [Scope::Read, Scope::Write])]
    scopes: Vec<Scope>,
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
    /// The key's id, or its name if only one key has that name.
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

fn file(data: &DataArgs) -> anyhow::Result<KeyFile> {
    let config = data.resolve()?.config().map_err(wrong)?;
    Ok(KeyFile::in_data_dir(&config.process.data))
}

fn new(args: &NewArgs) -> anyhow::Result<()> {
    let file = file(&args.data)?;
    let (token, record) = file.add(&args.name, &args.scopes)?;
    if args.json {
        let mut value = describe(&record);
        value["key"] = token.reveal().into();
        return out::json(&value);
    }
    out::note(format_args!(
        "Key {} ({}) for {}: keep it now, it is not shown again.",
        record.id,
        record.name,
        words(&record),
    ));
    out::line(token.reveal())
}

fn list(args: &ListArgs) -> anyhow::Result<()> {
    let keys = file(&args.data)?.read()?.unwrap_or_default();
    if args.json {
        let keys: Vec<_> = keys.iter().map(describe).collect();
        return out::json(&json!({ "keys": keys }));
    }
    if keys.is_empty() {
        out::note("no keys; make one with forebay key new --name NAME");
        return Ok(());
    }
    out::line(format_args!("{:12}  {:20}  {:7}  {:16}  NAME", "ID", "CREATED", "STATE", "SCOPES"))?;
    for key in &keys {
        let state = if key.revoked.is_some() { "revoked" } else { "works" };
        // Names are checked when made, but the file may have been edited by hand.
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
        "created": key.created,
        "revoked": key.revoked,
    })
}

fn words(key: &Record) -> String {
    key.scopes.iter().map(|scope| scope.word()).collect::<Vec<_>>().join(",")
}
