//! `forebay events get` and `scan`.

use anyhow::Context as _;
use clap::builder::NonEmptyStringValueParser;
use forebay_events::query::{Order, Query, Subnet};
use forebay_events::{EventId, Record, Severity, Store, render};

use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};

use super::settings::DataArgs;
use crate::exit::{Coded, Exit};
use crate::out;

/// Number of events proven under one checkpoint.
const PROVEN_AT_ONCE: usize = 1_000;

const GET_HELP: &str = "\
Example: forebay events get 01ARZ3NDEKTSV4RRFFQ69G5FAV

Exit codes: 0 printed; 1 there is no such event; 3 the store cannot be opened.";

#[derive(clap::Args, Debug)]
#[command(after_help = GET_HELP)]
pub(super) struct GetArgs {
    #[command(flatten)]
    data: DataArgs,
    /// Print only the raw bytes, as the source wrote them.
    #[arg(long)]
    raw: bool,
    /// Id of the event: a ULID or a UUID.
    #[arg(value_name = "ID")]
    id: EventId,
}

const SCAN_HELP: &str = "\
Examples:
  forebay events scan --stream auth --contains 'Failed password' --newest --limit 20
  forebay events scan --from 2026-11-01T00:00:00Z --to 2026-11-02T00:00:00Z --host gate-1
  forebay events scan --ip 10.1.2.3 --ip 192.0.2.0/24 --severity high --proof

Times are RFC 3339, or seconds since 1970 with a fraction. --to is exclusive.";

#[derive(clap::Args, Debug)]
#[command(after_help = SCAN_HELP)]
pub(super) struct ScanArgs {
    #[command(flatten)]
    data: DataArgs,
    #[command(flatten)]
    filter: FilterArgs,
    /// Only events at or after TIME.
    #[arg(long, value_name = "TIME", value_parser = time_ns)]
    from: Option<i64>,
    /// Only events before TIME.
    #[arg(long, value_name = "TIME", value_parser = time_ns)]
    to: Option<i64>,
    /// Print at most COUNT events.
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u64).range(1..))]
    limit: Option<u64>,
    /// Print the latest first.
    #[arg(long)]
    newest: bool,
    /// Add to each event the proof that it is stored.
    #[arg(long)]
    proof: bool,
}

/// Conditions, all of which must be true.
#[derive(clap::Args, Debug)]
pub(super) struct FilterArgs {
    /// Only events in this stream.
    #[arg(long, value_name = "NAME")]
    stream: Option<String>,
    /// Only events of this type.
    #[arg(long = "type", value_name = "TYPE")]
    kind: Option<String>,
    /// Only events from this host.
    #[arg(long, value_name = "NAME")]
    host: Option<String>,
    /// Only events that name this address or prefix. May be repeated; all must match.
    #[arg(long, value_name = "ADDRESS")]
    ip: Vec<Subnet>,
    /// Only events of at least this severity: informational, low, medium, high, critical or fatal.
    #[arg(long, value_name = "WORD", value_parser = severity)]
    severity: Option<Severity>,
    /// Only events whose raw bytes contain this text. May be repeated; all must match.
    #[arg(long, value_name = "TEXT", value_parser = NonEmptyStringValueParser::new())]
    contains: Vec<String>,
    /// Only events that contain this text as whole words. May be repeated; all must match.
    #[arg(long, value_name = "TEXT", value_parser = NonEmptyStringValueParser::new())]
    word: Vec<String>,
    /// Only events whose raw bytes match this regular expression.
    #[arg(long, value_name = "REGEX")]
    regex: Option<regex::bytes::Regex>,
}

impl FilterArgs {
    pub(super) fn query(&self) -> Query {
        Query {
            stream: self.stream.clone(),
            kind: self.kind.clone(),
            host: self.host.clone(),
            ips: self.ip.clone(),
            severity_min: self.severity,
            contains: self.contains.iter().map(|text| text.as_bytes().to_vec()).collect(),
            words: self.word.iter().map(|text| text.as_bytes().to_vec()).collect(),
            regex: self.regex.clone(),
            ..Query::default()
        }
    }
}

impl FilterArgs {
    /// Returns the same conditions as parameters of `GET /v1/events`, each after a `&`.
    pub(super) fn parameters(&self) -> String {
        let mut parameters = Vec::new();
        let mut add = |name: &str, value: String| parameters.push((name.to_owned(), value));
        let texts = [("stream", &self.stream), ("type", &self.kind), ("host", &self.host)];
        for (name, value) in texts {
            value.iter().for_each(|value| add(name, value.clone()));
        }
        self.ip.iter().for_each(|ip| add("ip", ip.to_string()));
        self.severity.iter().for_each(|least| add("severity", least.name().to_owned()));
        self.contains.iter().for_each(|text| add("contains", text.clone()));
        self.word.iter().for_each(|text| add("word", text.clone()));
        self.regex.iter().for_each(|regex| add("regex", regex.as_str().to_owned()));
        let escaped = |text| utf8_percent_encode(text, NON_ALPHANUMERIC);
        parameters.iter().map(|(name, value)| format!("&{name}={}", escaped(value))).collect()
    }
}

fn severity(text: &str) -> Result<Severity, String> {
    Severity::from_name(text)
        .ok_or_else(|| "one of informational, low, medium, high, critical, fatal".to_owned())
}

/// Parses a time from the command line.
pub(crate) fn time_ns(text: &str) -> Result<i64, String> {
    forebay_events::query::parse_time(text)
        .ok_or_else(|| "a time such as 2026-11-21T10:00:00Z, or seconds since 1970".to_owned())
}

pub(super) fn get(args: &GetArgs) -> anyhow::Result<Exit> {
    let store = super::events::open(&args.data, false)?;
    let found = store.get(args.id)?;
    let Some(record) = found else {
        return Err(Coded::error(Exit::Failed, format!("there is no event {}", args.id)));
    };
    if args.raw {
        out::bytes(record.event().raw)?;
    } else {
        out::json(&render::event(&record))?;
    }
    store.close()?;
    Ok(Exit::Ok)
}

pub(super) fn scan(args: &ScanArgs) -> anyhow::Result<Exit> {
    let store = super::events::open(&args.data, false)?;
    let order = if args.newest { Order::NewestFirst } else { Order::OldestFirst };
    let query = Query { from_ns: args.from, to_ns: args.to, order, ..args.filter.query() };
    let mut scan = store.scan(query);
    let mut left = args.limit.unwrap_or(u64::MAX);
    let mut stdout = std::io::BufWriter::new(std::io::stdout().lock());
    let mut held = Vec::new();
    let mut read_on = true;
    while left > 0
        && read_on
        && let Some(record) = scan.next()?
    {
        left -= 1;
        held.push(record);
        if !args.proof || held.len() == PROVEN_AT_ONCE {
            read_on = print_all(&mut stdout, &store, &mut held, args.proof)?;
        }
    }
    if read_on {
        print_all(&mut stdout, &store, &mut held, args.proof)?;
        finish(&mut stdout)?;
    }
    drop(stdout);
    drop(scan);
    store.close()?;
    Ok(Exit::Ok)
}

/// Prints events and forgets them; returns `false` once the reader has gone.
fn print_all(
    out: &mut impl std::io::Write,
    store: &Store,
    held: &mut Vec<Record>,
    proof: bool,
) -> anyhow::Result<bool> {
    let proofs = if proof { store.prove_records(held)? } else { Vec::new() };
    let mut proofs = proofs.into_iter();
    for record in held.drain(..) {
        let mut json = render::event(&record);
        if let Some(proof) = proofs.next() {
            json["proof"] = serde_json::to_value(proof)?;
        }
        if !print(out, &json)? {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Prints what is still buffered.
fn finish(out: &mut impl std::io::Write) -> anyhow::Result<()> {
    match out.flush() {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
            Err(error).context("cannot write to standard output")
        }
        _ => Ok(()),
    }
}

/// Prints a line; returns `false` once the reader has gone.
pub(super) fn print(
    out: &mut impl std::io::Write,
    json: &serde_json::Value,
) -> anyhow::Result<bool> {
    match writeln!(out, "{json}") {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(false),
        Err(error) => Err(error).context("cannot write to standard output"),
    }
}
