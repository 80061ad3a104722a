//! `POST /v1/events` and `POST /v1/events/{format}`.
//!
//! The body is read, parsed and appended in one pass on a thread of its own, however large it is; in
//! memory are a few pieces of it and one batch.

use std::io::{self, ErrorKind};
use std::sync::Arc;
use std::time::{Instant, SystemTime};

use axum::body::Body;
use axum::extract::{Path, State};
use axum::response::Response;
use forebay_events::AppendError;
use forebay_events::ingest::{Ingest, Summary};
use forebay_events::input::Format;
use http::header::{CONTENT_LENGTH, CONTENT_TYPE};
use http::{HeaderMap, StatusCode, Uri};
use serde_json::{Value, json};

use super::super::answer::pairs;
use super::body::{Pieces, forward, pieces, too_large};
use super::problem::{self, Problem};
use super::records::{Cut, records};
use super::{Shared, on_thread};

/// Rejected records that are told with their reason.
const REJECTS_TOLD: usize = 20;
/// Longest stream name.
const STREAM_SIZE_MAX: usize = 255;
/// Where events go that name no stream, of a request that names none.
const STREAM_DEFAULT: &str = "default";

/// How a body is cut into records, and what they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Shape {
    format: Format,
    /// The body is a JSON document whatever it begins with.
    document: bool,
}

pub(super) async fn by_type(
    State(shared): State<Arc<Shared>>,
    uri: Uri,
    headers: HeaderMap,
    body: Body,
) -> Response {
    problem::answer(append(&shared, None, &uri, &headers, body).await, &headers)
}

pub(super) async fn by_name(
    State(shared): State<Arc<Shared>>,
    Path(name): Path<String>,
    uri: Uri,
    headers: HeaderMap,
    body: Body,
) -> Response {
    problem::answer(append(&shared, Some(&name), &uri, &headers, body).await, &headers)
}

async fn append(
    shared: &Shared,
    path: Option<&str>,
    uri: &Uri,
    headers: &HeaderMap,
    body: Body,
) -> Result<Response, Problem> {
    let (stream, shape) = asked(path, uri, headers)?;
    if headers.contains_key(http::header::CONTENT_ENCODING) {
        let text = "compressed bodies are not taken; send the events as they are";
        return Err(Problem::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "encoding", text));
    }
    let declared = headers.get(CONTENT_LENGTH).and_then(|size| size.to_str().ok()?.parse().ok());
    if declared.is_some_and(|size: u64| size > shared.body_size_max) {
        return Err(broken(&too_large(shared.body_size_max)));
    }
    let permit = shared.place(&shared.appends, "events.appends_max")?;
    let store = shared.store()?;
    let (to, from) = pieces();
    let commit_time = shared.commit_time.clone();
    let work = on_thread(move || {
        let mut rejects = Rejects::default();
        let mut ingest = Ingest::new(&store, shape.format, &stream);
        let end = rejects.read(&mut ingest, shape, from)?;
        let started = Instant::now();
        let summary = ingest.finish()?;
        commit_time.record(started.elapsed());
        drop(store);
        drop(permit);
        Ok((rejects.with(&summary), summary, end))
    });
    let forwarded = forward(body, shared.body_size_max, shared.body_idle, to);
    let (worked, ()) = tokio::join!(work, forwarded);
    let (told, summary, end) = worked?;
    shared.rejected.increment(summary.rejected);
    match end {
        Some(error) => Err(broken(&error).beside(told)),
        None if summary.accepted == 0 => {
            let text = match summary.rejected {
                0 => "the body holds no event".to_owned(),
                count => format!("none of the {count} records is an event; see rejects"),
            };
            Err(Problem::bad("no_events", text).beside(told))
        }
        None if summary.rejected > 0 => Ok(problem::json(StatusCode::MULTI_STATUS, &told)),
        None => Ok(problem::json(StatusCode::OK, &told)),
    }
}

/// The problem of a body that ended before its end.
fn broken(error: &io::Error) -> Problem {
    let (status, code) = match error.kind() {
        ErrorKind::FileTooLarge => (StatusCode::PAYLOAD_TOO_LARGE, "too_large"),
        ErrorKind::TimedOut => (StatusCode::REQUEST_TIMEOUT, "body_too_slow"),
        _ => (StatusCode::BAD_REQUEST, "body_incomplete"),
    };
    Problem::new(status, code, error.to_string())
}

/// Stream and format of a request: the path's format before the query's before the content type's.
fn asked(path: Option<&str>, uri: &Uri, headers: &HeaderMap) -> Result<(String, Shape), Problem> {
    let mut stream = STREAM_DEFAULT.to_owned();
    let mut named = path.map(str::to_owned);
    for (name, value) in pairs(uri) {
        let value = String::from_utf8_lossy(&value).into_owned();
        match &*name {
            "stream" => stream = value,
            "format" if path.is_none() => named = Some(value),
            "format" => return Err(Problem::bad("query", "the path names the format already")),
            _ => {
                let text = format!("unknown query parameter {name:?}; known are stream and format");
                return Err(Problem::bad("query", text));
            }
        }
    }
    if stream.is_empty() || stream.len() > STREAM_SIZE_MAX {
        return Err(Problem::bad("query", "a stream's name has 1 to 255 bytes"));
    }
    let kind = headers.get(CONTENT_TYPE).map(|kind| kind.to_str().unwrap_or("?"));
    let essence = kind.and_then(|kind| kind.split(';').next()).map(str::trim).unwrap_or_default();
    let document = essence.eq_ignore_ascii_case("application/json");
    if let Some(named) = named {
        let format = named.parse().map_err(|error: forebay_events::input::FormatError| {
            Problem::bad("format", error.to_string())
        })?;
        let json =
            matches!(format, Format::Ndjson | Format::Ocsf | Format::Suricata | Format::Auto);
        return Ok((stream, Shape { format, document: document && json }));
    }
    // What `curl -d` says when nobody told it better says nothing.
    let unsaid = essence.is_empty()
        || essence.eq_ignore_ascii_case("application/x-www-form-urlencoded")
        || essence.eq_ignore_ascii_case("application/octet-stream");
    let format = match kind {
        Some(_) if document || unsaid => Format::Auto,
        Some(kind) => Format::from_content_type(kind).ok_or_else(|| {
            let text = format!(
                "no log format has the content type {kind:?}; name it with ?format=: auto, ndjson, \
                 ocsf, zeek, suricata, cef, leef, syslog or raw"
            );
            Problem::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "content_type", text)
        })?,
        None => Format::Auto,
    };
    Ok((stream, Shape { format, document }))
}

/// The wall clock, in nanoseconds since 1970-01-01 UTC.
fn now_ns() -> i64 {
    SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .map_or(0, |since| i64::try_from(since.as_nanos()).unwrap_or(i64::MAX))
}

/// What was not taken of a body.
#[derive(Default)]
struct Rejects {
    told: Vec<Value>,
}

impl Rejects {
    /// Reads a body to its end, or to where it breaks; what came whole before that is kept. Returns
    /// the error it broke with.
    fn read(
        &mut self,
        ingest: &mut Ingest<'_>,
        shape: Shape,
        body: Pieces,
    ) -> Result<Option<io::Error>, AppendError> {
        match records(body, shape.format, shape.document) {
            Ok(mut records) => self.all(ingest, &mut *records),
            Err(error) => Ok(Some(error)),
        }
    }

    fn all(
        &mut self,
        ingest: &mut Ingest<'_>,
        records: &mut dyn Cut,
    ) -> Result<Option<io::Error>, AppendError> {
        loop {
            let record = match records.next() {
                Ok(Some(record)) => record,
                Ok(None) => return Ok(None),
                Err(error) => return Ok(Some(error)),
            };
            ingest.record(&record, now_ns(), &mut |line, reject, _| {
                if self.told.len() < REJECTS_TOLD {
                    self.told.push(json!({ "line": line, "reason": reject.to_string() }));
                }
            })?;
        }
    }

    /// The answer's body.
    fn with(self, summary: &Summary) -> Value {
        json!({
            "accepted": summary.accepted,
            "rejected": summary.rejected,
            "first_id": summary.first_id.map(|id| id.to_string()),
            "last_id": summary.last_id.map(|id| id.to_string()),
            "rejects": self.told,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shape(path: Option<&str>, query: &str, kind: &str) -> Result<Shape, Problem> {
        let uri: Uri = format!("/v1/events{query}").parse().unwrap();
        let mut headers = HeaderMap::new();
        if !kind.is_empty() {
            headers.insert(CONTENT_TYPE, kind.parse().unwrap());
        }
        asked(path, &uri, &headers).map(|(_, shape)| shape)
    }

    #[test]
    fn path_query_and_content_type_name_the_format_in_this_order() {
        for (path, query, kind, format, document) in [
            (None, "", "", Format::Auto, false),
            (None, "", "application/x-www-form-urlencoded", Format::Auto, false),
            (None, "", "application/json; charset=utf-8", Format::Auto, true),
            (None, "", "application/x-ndjson", Format::Ndjson, false),
            (None, "?format=cef", "application/json", Format::Cef, false),
            (None, "?format=ocsf", "application/json", Format::Ocsf, true),
            (Some("zeek"), "", "text/plain", Format::Zeek, false),
            (None, "", "text/plain", Format::Auto, false),
        ] {
            let found = shape(path, query, kind).unwrap();
            assert_eq!(found, Shape { format, document }, "{path:?} {query} {kind}");
        }
        for (path, query, kind) in [
            (Some("xml"), "", ""),
            (None, "?format=xml", ""),
            (None, "", "image/png"),
            (None, "?streams=a", ""),
            (None, "?stream=", ""),
            (Some("zeek"), "?format=cef", ""),
        ] {
            assert!(shape(path, query, kind).is_err(), "{path:?} {query} {kind}");
        }
    }
}
