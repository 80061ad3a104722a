//! `forebay webhooks`: the webhooks of a running server.

use anyhow::Context as _;
use serde_json::{Map, Value, json};

use super::server::{Server, ServerArgs, hex_id, parsed};
use crate::exit::Exit;
use crate::out;

const AFTER_HELP: &str = "\
Examples:
  forebay webhooks add https://hooks.example.com/in --event 'file.*' --namespace reports
  forebay webhooks ls
  forebay webhooks ping 0199f3c2a5d07b12a3c4d5e6f7a8b9c0
  forebay webhooks deliveries 0199f3c2a5d07b12a3c4d5e6f7a8b9c0 --state failed
  forebay webhooks redeliver 0199f3c2a5d07b12a3c4d5e6f7a8b9c0 17

All of it needs a key with the scope admin, if the server requires keys.

Exit codes: 0 success; 1 a ping failed, there is no such webhook or delivery, or the server did not
answer.";

#[derive(clap::Subcommand, Debug)]
#[command(after_help = AFTER_HELP)]
pub(super) enum Command {
    /// List webhooks.
    Ls(ServerArgs),
    /// Create a webhook, and print its secret, which is not shown again.
    Add(AddArgs),
    /// Print a webhook and its progress.
    Show(HookArgs),
    /// Change a webhook.
    Set(SetArgs),
    /// Remove a webhook and what is known of its deliveries.
    Rm(HookArgs),
    /// Give a webhook a new secret, and print it.
    Rotate(RotateArgs),
    /// List the last deliveries of a webhook, the newest first.
    Deliveries(DeliveriesArgs),
    /// Send a test to the receiver, and print the result.
    Ping(HookArgs),
    /// Send a delivery again.
    Redeliver(RedeliverArgs),
}

#[derive(clap::Args, Debug)]
pub(super) struct AddArgs {
    /// URL of the receiver.
    url: String,
    /// Type of event, or a group such as file.*; may be repeated [default: all].
    #[arg(long = "event", value_name = "TYPE")]
    events: Vec<String>,
    /// Only events about this namespace.
    #[arg(long)]
    namespace: Option<String>,
    /// Only events about files whose names begin so.
    #[arg(long)]
    prefix: Option<String>,
    /// Text for people.
    #[arg(long, default_value = "")]
    description: String,
    /// Create it disabled.
    #[arg(long)]
    disabled: bool,
    #[command(flatten)]
    from: ServerArgs,
}

#[derive(clap::Args, Debug)]
pub(super) struct HookArgs {
    /// Id of the webhook.
    #[arg(value_parser = hex_id)]
    webhook: String,
    #[command(flatten)]
    from: ServerArgs,
}

#[derive(clap::Args, Debug)]
pub(super) struct SetArgs {
    /// Id of the webhook.
    #[arg(value_parser = hex_id)]
    webhook: String,
    /// URL of the receiver.
    #[arg(long)]
    url: Option<String>,
    /// Type of event, or a group such as file.*; may be repeated, and replaces all before.
    #[arg(long = "event", value_name = "TYPE")]
    events: Vec<String>,
    /// Only events about this namespace; empty for all.
    #[arg(long)]
    namespace: Option<String>,
    /// Only events about files whose names begin so; empty for all.
    #[arg(long)]
    prefix: Option<String>,
    /// Text for people.
    #[arg(long)]
    description: Option<String>,
    /// Whether events are sent.
    #[arg(long, value_name = "true|false")]
    enabled: Option<bool>,
    #[command(flatten)]
    from: ServerArgs,
}

#[derive(clap::Args, Debug)]
pub(super) struct RotateArgs {
    /// Id of the webhook.
    #[arg(value_parser = hex_id)]
    webhook: String,
    /// How long requests are also signed with the secret before.
    #[arg(long, value_name = "DURATION", default_value = "24h")]
    overlap: String,
    #[command(flatten)]
    from: ServerArgs,
}

#[derive(clap::Args, Debug)]
pub(super) struct DeliveriesArgs {
    /// Id of the webhook.
    #[arg(value_parser = hex_id)]
    webhook: String,
    /// Only deliveries in this state.
    #[arg(long, value_parser = ["waiting", "delivered", "failed"])]
    state: Option<String>,
    /// Maximum number of deliveries.
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    limit: u32,
    #[command(flatten)]
    from: ServerArgs,
}

#[derive(clap::Args, Debug)]
pub(super) struct RedeliverArgs {
    /// Id of the webhook.
    #[arg(value_parser = hex_id)]
    webhook: String,
    /// Id of the delivery.
    delivery: u64,
    #[command(flatten)]
    from: ServerArgs,
}

const JSON: &str = "application/json";
const ALL: &str = "/v1/webhooks";

pub(super) fn run(command: &Command) -> anyhow::Result<Exit> {
    match command {
        Command::Ls(from) => list(from),
        Command::Add(args) => add(args),
        Command::Show(args) => {
            let hook = ask(&args.from, |server| server.get(&path(&args.webhook), JSON))?;
            print(&args.from, &hook)
        }
        Command::Set(args) => set(args),
        Command::Rm(args) => {
            let target = path(&args.webhook);
            Server::new(&args.from.server, args.from.key.as_deref(), &target)?.delete(&target)?;
            Ok(Exit::Ok)
        }
        Command::Rotate(args) => {
            let target = format!("{}/secret", path(&args.webhook));
            let body = json!({ "overlap": args.overlap });
            let rotated = ask(&args.from, |server| server.post_json(&target, &body))?;
            secret(&args.from, &rotated, &rotated["secret"])
                .context("the new secret could not be printed; rotate it again")
        }
        Command::Deliveries(args) => deliveries(args),
        Command::Ping(args) => {
            let target = format!("{}/ping", path(&args.webhook));
            let sent = ask(&args.from, |server| server.post(&target))?;
            delivery(&args.from, &sent)?;
            Ok(if sent["state"] == "delivered" { Exit::Ok } else { Exit::Failed })
        }
        Command::Redeliver(args) => {
            let (hook, number) = (path(&args.webhook), args.delivery);
            let target = format!("{hook}/deliveries/{number}/redeliver");
            let queued = ask(&args.from, |server| server.post(&target))?;
            delivery(&args.from, &queued)?;
            Ok(Exit::Ok)
        }
    }
}

fn path(webhook: &str) -> String {
    format!("{ALL}/{webhook}")
}

/// Asks the server for JSON.
fn ask(
    from: &ServerArgs,
    ask: impl Fn(&Server<'_>) -> anyhow::Result<String>,
) -> anyhow::Result<Value> {
    let server = Server::new(&from.server, from.key.as_deref(), ALL)?;
    parsed(&server, &ask(&server)?)
}

fn list(from: &ServerArgs) -> anyhow::Result<Exit> {
    let found = ask(from, |server| server.get(ALL, JSON))?;
    if from.json {
        out::json(&found)?;
        return Ok(Exit::Ok);
    }
    for hook in found["webhooks"].as_array().into_iter().flatten() {
        out::line(format!(
            "{}  {:<8}  {:>4} waiting  {}",
            text(&hook["webhook_id"]),
            state(hook),
            hook["waiting"],
            text(&hook["url"])
        ))?;
    }
    Ok(Exit::Ok)
}

/// The state of a webhook in one word.
fn state(hook: &Value) -> &'static str {
    match (hook["enabled"].as_bool(), hook["failing_since_ms"].is_null()) {
        (Some(true), true) => "enabled",
        (Some(true), false) => "failing",
        _ => "disabled",
    }
}

fn add(args: &AddArgs) -> anyhow::Result<Exit> {
    let body = json!({
        "url": args.url,
        "events": args.events,
        "namespace": args.namespace,
        "prefix": args.prefix,
        "description": args.description,
        "enabled": !args.disabled,
    });
    let hook = ask(&args.from, |server| server.post_json(ALL, &body))?;
    let Err(error) = secret(&args.from, &hook, &hook["secret"]) else { return Ok(Exit::Ok) };
    // No receiver could verify what it sends.
    let id = hook["webhook_id"].as_str().unwrap_or_default();
    let target = path(id);
    let removed = Server::new(&args.from.server, args.from.key.as_deref(), &target)
        .and_then(|server| server.delete(&target));
    Err(match removed {
        Ok(_) => error.context("the secret could not be printed, and the webhook was removed"),
        Err(also) => error.context(format!(
            "the secret could not be printed; remove the webhook: forebay webhooks rm {} ({also:#})",
            text(&hook["webhook_id"])
        )),
    })
}

/// Prints a secret, and the webhook that it is of.
fn secret(from: &ServerArgs, answer: &Value, secret: &Value) -> anyhow::Result<Exit> {
    if from.json {
        out::json(answer)?;
        return Ok(Exit::Ok);
    }
    let hook = if answer["webhook"].is_object() { &answer["webhook"] } else { answer };
    out::line(format!("webhook  {}", text(&hook["webhook_id"])))?;
    out::line(format!("secret   {}", text(secret)))?;
    out::note(format_args!("the secret is not shown again"));
    Ok(Exit::Ok)
}

fn set(args: &SetArgs) -> anyhow::Result<Exit> {
    let mut body = Map::new();
    let or_null = |text: &String| if text.is_empty() { Value::Null } else { text.as_str().into() };
    let fields = [
        ("url", args.url.as_ref().map(|url| url.as_str().into())),
        ("events", (!args.events.is_empty()).then(|| json!(args.events))),
        ("namespace", args.namespace.as_ref().map(or_null)),
        ("prefix", args.prefix.as_ref().map(or_null)),
        ("description", args.description.as_ref().map(|text| text.as_str().into())),
        ("enabled", args.enabled.map(Value::from)),
    ];
    for (name, value) in fields {
        body.extend(value.map(|value| (name.to_owned(), value)));
    }
    let body = Value::Object(body);
    let hook = ask(&args.from, |server| server.patch_json(&path(&args.webhook), &body))?;
    print(&args.from, &hook)
}

fn deliveries(args: &DeliveriesArgs) -> anyhow::Result<Exit> {
    let state = args.state.as_ref().map(|state| format!("&state={state}")).unwrap_or_default();
    let target = format!("{}/deliveries?limit={}{state}", path(&args.webhook), args.limit);
    let found = ask(&args.from, |server| server.get(&target, JSON))?;
    if args.from.json {
        out::json(&found)?;
        return Ok(Exit::Ok);
    }
    for delivery in found["deliveries"].as_array().into_iter().flatten() {
        out::line(format!(
            "{:>8}  {:<9}  {:>3}  {:<20}  {:<18}  {}",
            delivery["delivery_id"].to_string(),
            text(&delivery["state"]),
            delivery["status"].as_u64().map_or_else(|| "-".to_owned(), |status| status.to_string()),
            time(&delivery["attempted_at_ms"]),
            text(&delivery["event"]),
            text(&delivery["error"])
        ))?;
    }
    Ok(Exit::Ok)
}

/// Prints a delivery.
fn delivery(from: &ServerArgs, delivery: &Value) -> anyhow::Result<()> {
    if from.json {
        return out::json(delivery);
    }
    out::line(format!("delivery  {}", delivery["delivery_id"]))?;
    out::line(format!("event     {} {}", text(&delivery["event"]), text(&delivery["event_id"])))?;
    out::line(format!("state     {}", text(&delivery["state"])))?;
    if let Some(status) = delivery["status"].as_u64() {
        out::line(format!("status    {status} after {} ms", delivery["latency_ms"]))?;
    }
    for (name, field) in [("error", "error"), ("answer", "answer")] {
        if !delivery[field].is_null() {
            out::line(format!("{name:<9} {}", text(&delivery[field])))?;
        }
    }
    Ok(())
}

/// Prints a webhook.
fn print(from: &ServerArgs, hook: &Value) -> anyhow::Result<Exit> {
    if from.json {
        out::json(hook)?;
        return Ok(Exit::Ok);
    }
    out::line(format!("webhook    {}", text(&hook["webhook_id"])))?;
    out::line(format!("url        {}", text(&hook["url"])))?;
    out::line(format!("state      {}", state(hook)))?;
    for (name, field) in [
        ("reason", "reason"),
        ("stalled", "stalled"),
        ("about", "description"),
        ("namespace", "namespace"),
        ("prefix", "prefix"),
    ] {
        if hook[field].as_str().is_some_and(|value| !value.is_empty()) {
            out::line(format!("{name:<10} {}", text(&hook[field])))?;
        }
    }
    let events: Vec<String> = hook["events"].as_array().into_iter().flatten().map(text).collect();
    let events = if events.is_empty() { "all".to_owned() } else { events.join(" ") };
    out::line(format!("events     {events}"))?;
    out::line(format!("created    {}", time(&hook["created_at_ms"])))?;
    out::line(format!("delivered  {}", time(&hook["delivered_at_ms"])))?;
    out::line(format!("waiting    {}", hook["waiting"]))?;
    out::line(format!("failures   {}", hook["failures"]))?;
    out::line(format!("gaps       {}", hook["gaps"]))?;
    for source in hook["sources"].as_array().into_iter().flatten() {
        out::line(format!(
            "behind     {} bytes of {}",
            source["behind_bytes"],
            text(&source["source"])
        ))?;
    }
    Ok(Exit::Ok)
}

/// A text that may come from outside.
fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().escape_debug().to_string()
}

fn time(ms: &Value) -> String {
    let at = ms.as_i64().and_then(|ms| jiff::Timestamp::from_millisecond(ms).ok());
    at.map_or_else(|| "-".to_owned(), |at| format!("{at:.0}"))
}
