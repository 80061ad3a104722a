//! `forebay events tail`.

use std::io::{BufRead as _, BufReader, ErrorKind, Write as _};

use anyhow::Context as _;
use forebay_events::query::{Order, Query};
use forebay_events::{Record, render};

use super::events_read::{FilterArgs, print};
use super::https;
use super::server::base_url;
use super::settings::DataArgs;
use crate::exit::{Coded, Exit};
use crate::out;

const AFTER_HELP: &str = "\
Examples:
  forebay events tail -n 20 --stream auth
  forebay events tail --server http://127.0.0.1:8090 --contains 'Failed password'

Without --server prints the newest events in the data directory, which must not be in use by a
server. With --server prints the newest events of the server and then new ones as they arrive, until
Ctrl-C. Each line is a JSON object, the latest last.

Exit codes: 0 printed; 1 the server did not answer or closed the connection; 3 the store cannot be
opened.";

/// Maximum size of a server's error response.
const REFUSAL_SIZE_MAX: u64 = 64 << 10;

#[derive(clap::Args, Debug)]
#[command(after_help = AFTER_HELP)]
pub(super) struct Args {
    #[command(flatten)]
    data: DataArgs,
    #[command(flatten)]
    filter: FilterArgs,
    /// Number of newest events to begin with; at most 1000 with --server.
    #[arg(short = 'n', long, value_name = "COUNT", default_value_t = 10)]
    lines: u64,
    /// Follow the server at this URL, such as http://127.0.0.1:8090.
    #[arg(long, value_name = "URL")]
    server: Option<String>,
    /// API key for the server, with scope read.
    #[arg(long, value_name = "KEY", requires = "server")]
    key: Option<String>,
}

pub(super) fn run(args: &Args) -> anyhow::Result<Exit> {
    match &args.server {
        Some(server) => follow(args, server),
        None => newest(args),
    }
}

fn newest(args: &Args) -> anyhow::Result<Exit> {
    let store = super::events::open(&args.data, false)?;
    let query = Query { order: Order::NewestFirst, ..args.filter.query() };
    let mut scan = store.scan(query);
    let mut newest: Vec<Record> = Vec::new();
    while (newest.len() as u64) < args.lines
        && let Some(record) = scan.next()?
    {
        newest.push(record);
    }
    drop(scan);
    let mut stdout = std::io::stdout().lock();
    for record in newest.iter().rev() {
        if !print(&mut stdout, &render::event(record))? {
            break;
        }
    }
    store.close()?;
    Ok(Exit::Ok)
}

fn follow(args: &Args, server: &str) -> anyhow::Result<Exit> {
    let server = base_url(server, "/v1/events")?;
    let (lines, filter) = (args.lines, args.filter.parameters());
    let url = format!("{server}/v1/events?follow=true&limit={lines}{filter}");
    let mut request = https::agent(&server, None)?.get(&url);
    if let Some(key) = &args.key {
        request = request.header("authorization", format!("Bearer {key}"));
    }
    let mut response = request
        .call()
        .map_err(https::Cause::of)
        .with_context(|| format!("cannot connect to {server}"))?;
    if !response.status().is_success() {
        let body = response.body_mut().with_config().limit(REFUSAL_SIZE_MAX).read_to_string();
        let body = body.unwrap_or_default();
        let error = serde_json::from_str::<serde_json::Value>(&body).unwrap_or_default();
        let message = error["error"]["message"].as_str().map(str::to_owned).unwrap_or(body);
        let text = format!("{server} refuses ({}): {message}", response.status());
        return Err(Coded::error(Exit::Failed, text));
    }
    let mut stdout = std::io::stdout().lock();
    let mut lines = BufReader::new(response.into_body().into_reader());
    let mut line = Vec::new();
    loop {
        line.clear();
        let count =
            lines.read_until(b'\n', &mut line).context("the server closed the connection")?;
        if count == 0 {
            out::note("the server ended the stream");
            return Ok(Exit::Ok);
        }
        // An empty line only shows that the server is alive.
        if line == b"\n" {
            continue;
        }
        match stdout.write_all(&line).and_then(|()| stdout.flush()) {
            Err(error) if error.kind() == ErrorKind::BrokenPipe => return Ok(Exit::Ok),
            written => written.context("cannot write to standard output")?,
        }
    }
}
