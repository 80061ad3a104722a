//! `forebay documents follow`: documents as they are stored, changed and deleted.
//!
//! One thread reads a connection and hands over its lines; the command prints them, and begins the next
//! connection after the last line that it printed, or where the first one began.
//!
//! Invariants: a line is printed whole, once, and in the server's order, through interrupted connections;
//! what waits between the threads is limited; a connection that is silent for longer than the server ever is
//! counts as lost.

use std::io::{BufRead as _, BufReader, Read as _};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use forebay_base::backoff::Backoff;
use forebay_base::error_chain::chain;
use forebay_console::interrupt::Interrupt;
use forebay_intake::names::Namespace;
use serde::Deserialize;
use ureq::SendBody;
use ureq::http::Method;

use super::document_client::PAGE_SIZE_MAX;
use super::documents::{client, print};
use super::file_client::{Client, ClientArgs, Failure, failed, namespace};
use super::server::encode;
use crate::exit::Exit;
use crate::out;

/// Lines that wait to be printed.
const LINES: usize = 2;
/// How often it is checked whether the user interrupted.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// Time without anything from the server, which sends an empty line every 15 s, until the connection counts as
/// lost.
const SILENCE_MAX: Duration = Duration::from_secs(60);
/// Delay before the first attempt to connect again; it grows from there.
const RETRY_FIRST: Duration = Duration::from_millis(200);
const RETRY_MAX: Duration = Duration::from_secs(10);

const AFTER_HELP: &str = "\
Examples:
  forebay documents follow machines
  forebay documents follow machines --after 0 --where 'power_kw > 5'
  forebay documents follow machines --after 8.4711

Each line is a JSON object with the id and, unless it was deleted, the document. \"change\" is absent
of a document that was stored, and otherwise replaced, deleted, dropped, or excluded: it was changed
and no longer passes --where. \"cursor\" is what --after takes to continue behind the line.

A lost connection is established again, and continues after the last line. Ctrl-C ends the command
with 0. A namespace that does not exist ends it with 1.";

#[derive(clap::Args, Debug)]
#[command(after_help = AFTER_HELP)]
pub(super) struct Args {
    /// Namespace of the documents.
    #[arg(value_parser = namespace)]
    namespace: Namespace,
    /// Only documents that pass this expression.
    #[arg(long = "where", value_name = "EXPRESSION")]
    filter: Option<String>,
    /// Begin after this cursor or id; 0 begins with the oldest document [default: documents and
    /// changes from now on].
    #[arg(long, value_name = "CURSOR")]
    after: Option<String>,
    #[command(flatten)]
    from: ClientArgs,
}

/// What a connection delivers.
enum Heard {
    /// The server has answered, and states the cursor from which it reports.
    Answered(Option<String>),
    /// A line, without its end. An empty one only shows that the server is alive.
    Line(String),
    /// The connection ended.
    Ended(anyhow::Error),
    /// The request failed.
    Failed(Failure),
}

/// What is read of a line.
#[derive(Deserialize)]
struct Position {
    cursor: String,
}

/// Why a connection is not read any more.
enum End {
    /// The user interrupted, or no one reads the output.
    Done,
    /// It was lost, for this reason; another one may work after this delay.
    Lost(String, Duration),
}

pub(super) fn run(args: &Args) -> anyhow::Result<Exit> {
    let client = client(&args.from)?;
    let interrupt = Interrupt::listen()?;
    let mut backoff = Backoff::new(RETRY_FIRST, RETRY_MAX);
    let mut after = args.after.clone();
    loop {
        let lines = connect(&client, path(args, after.as_deref()))?;
        let (reason, delay) = match listen(&lines, &interrupt, &mut after, &mut backoff)? {
            End::Done => return Ok(Exit::Ok),
            End::Lost(reason, delay) => (reason, delay),
        };
        drop(lines);
        let gap = match after {
            Some(_) => "",
            None => "; what happens until then is missed, since there is no position yet",
        };
        out::note(format_args!("connection lost, connecting again{gap}: {reason}"));
        let until = Instant::now() + delay.max(backoff.delay());
        while let Some(left) = until.checked_duration_since(Instant::now()) {
            if interrupt.asked() {
                return Ok(Exit::Ok);
            }
            std::thread::park_timeout(left.min(LOOK_EVERY));
        }
    }
}

fn path(args: &Args, after: Option<&str>) -> String {
    let mut path = format!("/v1/documents/{}?follow=true", args.namespace);
    for (name, value) in [("where", args.filter.as_deref()), ("cursor", after)] {
        if let Some(value) = value {
            path.push_str(&format!("&{name}={}", encode(value)));
        }
    }
    path
}

/// Starts to read a connection. The thread ends with it, or at the next line once the receiver is dropped.
fn connect(client: &Client, path: String) -> anyhow::Result<Receiver<Heard>> {
    let (send, receive) = sync_channel(LINES);
    let client = client.clone();
    std::thread::Builder::new()
        .name("follow".into())
        .spawn(move || {
            let end = read(&client, &path, &send);
            // Without a receiver the command has ended, or has given the connection up.
            send.send(end).unwrap_or_default();
        })
        .context("cannot start a thread")?;
    Ok(receive)
}

/// Reads a connection to its end, and returns the reason.
fn read(client: &Client, path: &str, lines: &SyncSender<Heard>) -> Heard {
    let answer = match client.send(client.request(Method::GET, path), SendBody::none()) {
        Ok(answer) => answer,
        Err(failure) => return Heard::Failed(failure),
    };
    let ended = |text: &str| Heard::Ended(anyhow::Error::msg(text.to_owned()));
    let cursor = answer.headers().get("x-next-cursor").and_then(|cursor| cursor.to_str().ok());
    if lines.send(Heard::Answered(cursor.map(str::to_owned))).is_err() {
        return ended("no one listens");
    }
    // A response without an end; each of its lines is limited.
    let body = answer.into_body().into_with_config().limit(u64::MAX).reader();
    let mut body = BufReader::new(body);
    loop {
        let mut line = Vec::new();
        match body.by_ref().take(PAGE_SIZE_MAX).read_until(b'\n', &mut line) {
            Ok(0) => return ended("the server ended the response"),
            Ok(_) if line.pop() == Some(b'\n') => {}
            Ok(_) => return ended("the response was cut within a line"),
            Err(error) => return Heard::Ended(error.into()),
        }
        let Ok(line) = String::from_utf8(line) else {
            return ended("a line of the response is not UTF-8");
        };
        if lines.send(Heard::Line(line)).is_err() {
            return ended("no one listens");
        }
    }
}

/// Prints lines until the connection ends, and keeps the cursor after the last one.
fn listen(
    lines: &Receiver<Heard>,
    interrupt: &Interrupt,
    after: &mut Option<String>,
    backoff: &mut Backoff,
) -> anyhow::Result<End> {
    let mut last = Instant::now();
    loop {
        if interrupt.asked() {
            return Ok(End::Done);
        }
        let heard = match lines.recv_timeout(LOOK_EVERY) {
            Ok(heard) => heard,
            Err(RecvTimeoutError::Timeout) if last.elapsed() < SILENCE_MAX => continue,
            Err(RecvTimeoutError::Timeout) => {
                let silence = SILENCE_MAX.as_secs();
                return Ok(End::Lost(
                    format!("the server was silent for {silence} s"),
                    Duration::ZERO,
                ));
            }
            Err(RecvTimeoutError::Disconnected) => {
                return Ok(End::Lost("its thread ended".to_owned(), Duration::ZERO));
            }
        };
        last = Instant::now();
        match heard {
            Heard::Answered(cursor) => {
                backoff.reset();
                *after = cursor.or(after.take());
            }
            Heard::Line(line) if line.is_empty() => {}
            Heard::Line(line) => {
                let position: Position =
                    serde_json::from_str(&line).context("a line of the response has no cursor")?;
                if !print(&line)? {
                    return Ok(End::Done);
                }
                *after = Some(position.cursor);
            }
            Heard::Ended(error) => {
                return Ok(End::Lost(chain(error.as_ref()).to_string(), Duration::ZERO));
            }
            Heard::Failed(failure) => match failure.passes() {
                Some(delay) => return Ok(End::Lost(chain(&failure).to_string(), delay)),
                None => return Err(failed(failure)),
            },
        }
    }
}
