//! `GET /v1/events`, `GET /v1/events/{id}` and `GET /v1/events/stats`.

use std::ops::Range;
use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Path, State};
use axum::response::Response;
use forebay_base::waiting::Waiting;
use forebay_events::query::{Query, Scan};
use forebay_events::render::EventAnswer;
use forebay_events::{EventId, ReadError, Record, Store};
use http::header::{
    CACHE_CONTROL, CONTENT_DISPOSITION, CONTENT_SECURITY_POLICY, CONTENT_TYPE,
    X_CONTENT_TYPE_OPTIONS,
};
use http::{HeaderMap, HeaderValue, StatusCode, Uri};

use super::answers::{EventPage, EventStats};
use super::params::{Params, cursor_text, flag};
use super::problem::{self, Problem};
use super::{Shared, stream};
use crate::answer::{pairs, wants_lines};
use crate::blocking::on_thread;

/// Number of bytes of events after which a page ends early.
const PAGE_SIZE_MAX: usize = 8 << 20;

pub(super) async fn list(
    State(shared): State<Arc<Shared>>,
    uri: Uri,
    headers: HeaderMap,
) -> Response {
    problem::answer(answer_list(shared, wants_lines(&headers), &uri).await, &headers)
}

async fn answer_list(shared: Arc<Shared>, lines: bool, uri: &Uri) -> Result<Response, Problem> {
    let mut asked = Params::read(uri)?;
    if lines || asked.follow {
        return stream::answer(&shared, asked);
    }
    let limit = asked.page()?;
    let permit = shared.permit(&shared.reads, "events.reads_max")?;
    let store = shared.store()?;
    // Dropped with the request: a client that has disconnected does not keep the slot.
    let waiting = Waiting::default();
    asked.query.gone = waiting.gone();
    let page = on_thread(move || {
        let page = page(&store, asked, limit);
        drop(store);
        drop(permit);
        page
    });
    let page = page.await?;
    drop(waiting);
    Ok(page)
}

fn page(store: &Store, asked: Params, limit: u64) -> Result<Response, Problem> {
    let cursor = match asked.positions {
        Some(_) => |last: &Record| last.seq().to_string(),
        None => |last: &Record| cursor_text(last.event().timestamp_ns, last.seq()),
    };
    let mut found = Matches::new(store, asked.query, asked.positions);
    let mut records: Vec<Record> = Vec::new();
    let mut size = 0;
    let mut next = None;
    while let Some(record) = found.next()? {
        size += record.leaf().len();
        records.push(record);
        if records.len() as u64 == limit || size >= PAGE_SIZE_MAX {
            next = records.last().map(cursor);
            break;
        }
    }
    let events = rendered(store, &records, asked.proof)?;
    Ok(problem::json(StatusCode::OK, &EventPage { events, next }))
}

/// The matching events, in the requested order.
pub(super) enum Matches<'a> {
    /// In order of time.
    Times(Box<Scan>),
    /// In order of acceptance.
    Positions(&'a Store, Box<Query>, Range<u64>),
}

impl<'a> Matches<'a> {
    /// Starts with the current events: later positions are not included.
    pub(super) fn new(store: &'a Store, query: Query, positions: Option<Range<u64>>) -> Self {
        match positions {
            None => Self::Times(Box::new(store.scan(query))),
            Some(Range { start, end }) => {
                Self::Positions(store, Box::new(query), start..end.min(store.len()))
            }
        }
    }

    /// Returns the next event.
    pub(super) fn next(&mut self) -> Result<Option<Record>, Problem> {
        match self {
            Self::Times(scan) => Ok(scan.next()?),
            Self::Positions(store, query, left) => {
                for position in left {
                    if query.gone.is_gone() {
                        return Err(ReadError::Gone.into());
                    }
                    let found = store.at(position)?;
                    if let Some(record) = found.filter(|record| query.matches(record)) {
                        return Ok(Some(record));
                    }
                }
                Ok(None)
            }
        }
    }
}

/// Returns events, each with its proof if requested.
pub(super) fn rendered<'a>(
    store: &Store,
    records: &'a [Record],
    proof: bool,
) -> Result<Vec<EventAnswer<'a>>, Problem> {
    let mut events: Vec<EventAnswer<'_>> = records.iter().map(EventAnswer::of).collect();
    if proof {
        for (event, proof) in events.iter_mut().zip(store.prove_records(records)?) {
            let proof = serde_json::to_value(proof);
            event.proof = Some(proof.map_err(|error| problem::internal(&error.into()))?);
        }
    }
    Ok(events)
}

/// Parses an event's id.
pub(super) fn id(text: &str) -> Result<EventId, Problem> {
    text.parse()
        .map_err(|error: forebay_events::event::IdError| Problem::bad("id", error.to_string()))
}

pub(super) async fn one(
    State(shared): State<Arc<Shared>>,
    Path(name): Path<String>,
    uri: Uri,
    headers: HeaderMap,
) -> Response {
    problem::answer(answer_one(&shared, &name, &uri).await, &headers)
}

async fn answer_one(shared: &Shared, name: &str, uri: &Uri) -> Result<Response, Problem> {
    let id = id(name)?;
    let mut raw = false;
    for (name, value) in pairs(uri) {
        match &*name {
            "raw" => raw = flag("raw", &String::from_utf8_lossy(&value))?,
            _ => return Err(Problem::bad("query", "unknown query parameter; known is raw")),
        }
    }
    let found = shared.ask(move |store| Ok(store.get(id)?)).await?;
    let record = found.ok_or_else(|| Problem::not_found(format!("there is no event {id}")))?;
    if !raw {
        return Ok(problem::json(StatusCode::OK, &EventAnswer::of(&record)));
    }
    // The author of the event is not trusted: a browser must treat it as plain text.
    let mut response = Response::new(Body::from(record.event().raw.to_vec()));
    let headers = response.headers_mut();
    let disposition = format!("attachment; filename=\"{id}.txt\"");
    let fixed = |text| HeaderValue::from_static(text);
    headers.insert(CONTENT_TYPE, fixed("text/plain; charset=utf-8"));
    headers.insert(X_CONTENT_TYPE_OPTIONS, fixed("nosniff"));
    headers.insert(CONTENT_SECURITY_POLICY, fixed("sandbox; default-src 'none'"));
    if let Ok(disposition) = HeaderValue::try_from(disposition) {
        headers.insert(CONTENT_DISPOSITION, disposition);
    }
    Ok(response)
}

pub(super) async fn stats(State(shared): State<Arc<Shared>>, headers: HeaderMap) -> Response {
    let stats = shared.ask(|store| Ok(EventStats::of(store))).await;
    let answer = stats.map(|stats| {
        let mut response = problem::json(StatusCode::OK, &stats);
        response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
        response
    });
    problem::answer(answer, &headers)
}
