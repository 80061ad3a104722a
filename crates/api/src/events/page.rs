//! `GET /v1/events/search`: the search page. It is below `/v1` because it shows data that needs a
//! key if keys exist.

use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use forebay_base::waiting::Waiting;
use forebay_events::query::Order;
use forebay_events::{Record, render};
use http::Uri;
use percent_encoding::{NON_ALPHANUMERIC, percent_encode};

use super::Shared;
use super::params::{Params, cursor_text};
use super::problem::Problem;
use crate::answer::{PAGE_WITH_FORMS, found_or_problem, pairs};
use crate::blocking::on_thread;
use crate::pages::{Field, Row, events_page};

/// Number of events on a page.
const ROWS: usize = 50;
/// Maximum number of characters shown of an event.
const SHOWN: usize = 400;

const FIELDS: [(&str, &str); 10] = [
    ("contains", "Text"),
    ("word", "Words"),
    ("regex", "Regular expression"),
    ("stream", "Stream"),
    ("type", "Type"),
    ("host", "Host"),
    ("ip", "Address"),
    ("severity", "Minimum severity"),
    ("from", "From"),
    ("to", "To"),
];

pub(super) async fn search(State(shared): State<Arc<Shared>>, uri: Uri) -> Response {
    // A form also sends its empty fields.
    let asked: Vec<(String, Vec<u8>)> =
        pairs(&uri).into_iter().filter(|(_, value)| !value.is_empty()).collect();
    let fields: Vec<Field> = FIELDS
        .iter()
        .map(|&(name, label)| {
            let given = asked.iter().find(|(known, _)| known == name);
            let value = given.map(|(_, value)| String::from_utf8_lossy(value).into_owned());
            Field { name, label, value: value.unwrap_or_default() }
        })
        .collect();
    found_or_problem(find(&shared, asked).await, PAGE_WITH_FORMS, |found| {
        events_page(&fields, found)
    })
}

async fn find(
    shared: &Shared,
    asked: Vec<(String, Vec<u8>)>,
) -> Result<(Vec<Row>, Option<String>), Problem> {
    let others: String = asked
        .iter()
        .filter(|(name, _)| name != "cursor")
        .map(|(name, value)| format!("{name}={}&", percent_encode(value, NON_ALPHANUMERIC)))
        .collect();
    let mut query = Params::of(asked)?.query;
    query.order = Order::NewestFirst;
    let waiting = Waiting::default();
    query.gone = waiting.gone();
    let permit = shared.permit(&shared.reads, "events.reads_max")?;
    let store = shared.store()?;
    let found = on_thread(move || {
        let mut scan = store.scan(query);
        let mut rows = Vec::new();
        let mut next = None;
        while rows.len() < ROWS
            && let Some(record) = scan.next()?
        {
            let cursor = cursor_text(record.event().timestamp_ns, record.seq());
            next = Some(format!("/v1/events/search?{others}cursor={cursor}"));
            rows.push(row(&record));
        }
        let next = next.filter(|_| rows.len() == ROWS);
        drop(scan);
        drop(store);
        drop(permit);
        Ok((rows, next))
    });
    let found = found.await;
    drop(waiting);
    found
}

fn row(record: &Record) -> Row {
    let event = record.event();
    let tags = event.tags;
    let raw = String::from_utf8_lossy(event.raw);
    let mut shown: String = raw.chars().take(SHOWN).collect();
    if shown.len() < raw.len() {
        shown.push('…');
    }
    Row {
        id: event.id.to_string(),
        time: render::time(event.timestamp_ns),
        stream: [tags.stream, tags.kind].join(" ").trim_end().to_owned(),
        host: match (tags.host, tags.ip) {
            ("", Some(ip)) => ip.to_string(),
            (host, _) => host.to_owned(),
        },
        severity: tags.severity.name(),
        raw: shown,
    }
}
