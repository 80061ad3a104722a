//! `POST /v1/events` and `POST /v1/events/{format}`.
//!
//! A body is collected in pieces of about 1 MiB, most bodies as one. A complete piece is parsed and
//! appended on a thread, with a slot among the append requests. While the next piece is awaited,
//! neither is held, nor the store. There is one response for the whole body.

use std::io::{self, ErrorKind};
use std::sync::Arc;
use std::time::{Instant, SystemTime};

use axum::body::Body;
use axum::extract::{Path, State};
use axum::response::Response;
use forebay_events::format::system::is_reserved;
use forebay_events::ingest::{Ingest, RequestKey, Summary};
use forebay_events::input::{Encoding, EncodingError, Format, Inflater, Mapping, Record};
use forebay_events::{AppendError, Store};
use http::header::{CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE};
use http::{HeaderMap, HeaderValue, StatusCode, Uri};

use super::answers::{MistimedRecord, RejectedRecord, Report};
use super::body::{NoRoom, Piece, Pieces, forward, pieces, too_large};
use super::problem::{self, Problem};
use super::records::Cutter;
use super::{HeldKey, Shared, closing};
use crate::answer::{line, pairs};
use crate::blocking::on_thread;
use crate::idempotency;

/// Maximum number of rejected records reported with their reason.
const REJECTS_MAX: usize = 20;
/// Maximum length of a stream's name.
const STREAM_SIZE_MAX: usize = 255;
/// The stream of events that name none, if the request names none either.
const STREAM_DEFAULT: &str = "default";

/// The format of a body, and how it is cut into records.
#[derive(Clone, Debug, PartialEq)]
struct Shape {
    format: Format,
    /// The body is a JSON document, whatever its first bytes are.
    document: bool,
    /// How the body is compressed, if the request says so.
    encoding: Option<Encoding>,
    /// Where the fields of the records are, as far as the request says.
    mapping: Mapping,
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
    shared: &Arc<Shared>,
    path: Option<&str>,
    uri: &Uri,
    headers: &HeaderMap,
    body: Body,
) -> Result<Response, Problem> {
    let (stream, mut shape) = asked(path, uri, headers)?;
    shape.mapping = shared.mappings.of(&stream).overridden(shape.mapping);
    let request = match request_key(headers)? {
        Some(key) => Some(Request { held: shared.hold(key)?, about: about(&stream, &shape) }),
        None => None,
    };
    let declared = headers.get(CONTENT_LENGTH).and_then(|size| size.to_str().ok()?.parse().ok());
    if declared.is_some_and(|size: u64| size > shared.body_size_max) {
        return Err(broken(&too_large(shared.body_size_max)));
    }
    let (to, from) = pieces(&shared.body_memory);
    // A separate task, so that complete records are kept if the client disconnects.
    let work = tokio::spawn(take(Arc::clone(shared), shape, stream, request, from));
    let forwarded = forward(body, shared.body_size_max, shared.body_idle, to);
    let (worked, ()) = tokio::join!(work, forwarded);
    let worked = worked.unwrap_or_else(|error| Err(problem::internal(&error.into())));
    let Appended { report, summary, end, earlier } = worked?;
    if let Some((status, answer)) = earlier {
        return Ok(replayed(status, answer));
    }
    shared.rejected.increment(summary.rejected);
    shared.mistimed.increment(summary.mistimed);
    shared.assumed.increment(summary.assumed);
    let status = status_of(&summary);
    match end {
        Some(error) => Err(broken(&error).beside(report)),
        None if summary.accepted + summary.duplicates == 0 => {
            let text = match summary.rejected {
                0 => "the body contains no event".to_owned(),
                count => format!("none of the {count} records is a valid event; see rejects"),
            };
            Err(Problem::bad("no_events", text).beside(report))
        }
        None => Ok(problem::json(status, &report)),
    }
}

/// Returns the status of an answer about stored events.
fn status_of(summary: &Summary) -> StatusCode {
    if summary.rejected > 0 { StatusCode::MULTI_STATUS } else { StatusCode::OK }
}

/// A request with a key.
struct Request {
    /// Held until it is answered.
    held: HeldKey,
    /// What else its body is compared with: stream, format and mapping.
    about: Vec<u8>,
}

/// Returns the key of a request.
fn request_key(headers: &HeaderMap) -> Result<Option<RequestKey>, Problem> {
    let key = idempotency::key(headers).map_err(|text| Problem::bad("idempotency_key", text));
    let Some(value) = key? else { return Ok(None) };
    let bytes = value.as_bytes();
    if !idempotency::is_valid(bytes) {
        return Err(Problem::bad("idempotency_key", idempotency::INVALID));
    }
    Ok(Some(RequestKey::of(bytes)))
}

/// Returns what distinguishes requests besides their bodies.
fn about(stream: &str, shape: &Shape) -> Vec<u8> {
    format!("{stream:?} {} {} {:?}", shape.format.name(), shape.document, shape.mapping)
        .into_bytes()
}

/// Returns the answer that a request got before.
fn replayed(status: u16, answer: Vec<u8>) -> Response {
    let mut response = Response::new(Body::from(answer));
    *response.status_mut() = StatusCode::from_u16(status).unwrap_or(StatusCode::OK);
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert("idempotent-replay", HeaderValue::from_static("true"));
    response
}

/// The result of appending a body.
struct Appended {
    report: Report,
    summary: Summary,
    /// The error with which it ended early.
    end: Option<io::Error>,
    /// Status and answer that the request got before.
    earlier: Option<(u16, Vec<u8>)>,
}

/// Appends a body piece by piece.
async fn take(
    shared: Arc<Shared>,
    shape: Shape,
    stream: String,
    request: Option<Request>,
    mut from: Pieces,
) -> Result<Appended, Problem> {
    let mut begun: Option<Work> = None;
    loop {
        let kept = begun.as_ref().map_or(0, |work| work.cutter.held());
        let piece = from.next(kept).await.map_err(|NoRoom| {
            shared.refused.increment(1);
            let text = "the memory for request bodies has reached events.body_memory_max";
            Problem::new(StatusCode::TOO_MANY_REQUESTS, "busy", text)
        })?;
        // A body that has been begun is not refused: it waits for its slot.
        let permit = match &begun {
            None => shared.permit(&shared.appends, "events.appends_max")?,
            Some(_) => Arc::clone(&shared.appends).acquire_owned().await.map_err(|_| closing())?,
        };
        let store = shared.store()?;
        let mut work = begun.take().unwrap_or_else(|| {
            Work::new(&store, &shape, &stream, request.as_ref(), shared.body_size_max)
        });
        let Piece { bytes, end } = piece;
        let Some(end) = end else {
            let worked = on_thread(move || {
                work.piece(&store, &bytes)?;
                drop(store);
                drop(permit);
                Ok(work)
            });
            begun = Some(worked.await?);
            continue;
        };
        let commit_time = shared.commit_time.clone();
        return on_thread(move || {
            let taken = work.last(&store, &bytes, end, &commit_time)?;
            drop(store);
            drop(permit);
            Ok(taken)
        })
        .await;
    }
}

/// Returns the problem of a body that ended early.
fn broken(error: &io::Error) -> Problem {
    let (status, code) = match error.kind() {
        ErrorKind::FileTooLarge => (StatusCode::PAYLOAD_TOO_LARGE, "too_large"),
        ErrorKind::TimedOut => (StatusCode::REQUEST_TIMEOUT, "body_too_slow"),
        ErrorKind::Unsupported => (StatusCode::UNSUPPORTED_MEDIA_TYPE, "encoding"),
        ErrorKind::InvalidData => (StatusCode::BAD_REQUEST, "encoding"),
        _ => (StatusCode::BAD_REQUEST, "body_incomplete"),
    };
    Problem::new(status, code, error.to_string())
}

/// Returns stream and format of a request. The path's format precedes the query's, which precedes
/// the content type's.
fn asked(path: Option<&str>, uri: &Uri, headers: &HeaderMap) -> Result<(String, Shape), Problem> {
    let mut stream = STREAM_DEFAULT.to_owned();
    let mut named = path.map(str::to_owned);
    let mut mapping = Mapping::default();
    for (name, value) in pairs(uri) {
        let value = String::from_utf8_lossy(&value).into_owned();
        match &*name {
            "stream" => stream = value,
            "time_field" => mapping.time_field = Some(field(&name, value)?),
            "host_field" => mapping.host_field = Some(field(&name, value)?),
            "type_field" => mapping.type_field = Some(field(&name, value)?),
            "time_zone" => {
                let zone = Mapping::zone(&value);
                mapping.zone = Some(zone.map_err(|it| Problem::bad("query", it.to_string()))?);
            }
            "format" if path.is_none() => named = Some(value),
            "format" => return Err(Problem::bad("query", "the path already names the format")),
            _ => {
                let text = format!(
                    "unknown query parameter {name:?}; known are stream, format, time_field, \
                     time_zone, host_field and type_field"
                );
                return Err(Problem::bad("query", text));
            }
        }
    }
    if stream.is_empty() || stream.len() > STREAM_SIZE_MAX {
        return Err(Problem::bad("query", "the name of a stream must have 1 to 255 bytes"));
    }
    if is_reserved(&stream) {
        let text = "streams whose names begin with _forebay are reserved for the store itself";
        return Err(Problem::bad("query", text));
    }
    let encoding = encoding(headers)?;
    let kind = headers.get(CONTENT_TYPE).map(|kind| kind.to_str().unwrap_or("?"));
    let essence = kind.and_then(|kind| kind.split(';').next()).map(str::trim).unwrap_or_default();
    let document = essence.eq_ignore_ascii_case("application/json");
    if let Some(named) = named {
        let format: Format =
            named.parse().map_err(|error: forebay_events::input::FormatError| {
                Problem::bad("format", error.to_string())
            })?;
        let document = document && format.is_json();
        return Ok((stream, Shape { format, document, encoding, mapping }));
    }
    // The default content type of `curl -d` carries no information.
    let unsaid = essence.is_empty()
        || essence.eq_ignore_ascii_case("application/x-www-form-urlencoded")
        || essence.eq_ignore_ascii_case("application/octet-stream");
    let format = match kind {
        Some(_) if document || unsaid => Format::Auto,
        Some("application/x-protobuf" | "application/protobuf") => {
            let text = "logs in protobuf are not supported; configure OTLP or Loki to send JSON";
            return Err(Problem::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "content_type", text));
        }
        Some(kind) => Format::from_content_type(kind).ok_or_else(|| {
            let text = format!(
                "no log format has the content type {kind:?}; name it with ?format=: {}",
                Format::names()
            );
            Problem::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "content_type", text)
        })?,
        None => Format::Auto,
    };
    Ok((stream, Shape { format, document, encoding, mapping }))
}

/// Returns the name of a field in a query.
fn field(name: &str, value: String) -> Result<String, Problem> {
    if value.is_empty() || value.len() > STREAM_SIZE_MAX {
        return Err(Problem::bad("query", format!("{name} must have 1 to 255 bytes")));
    }
    Ok(value)
}

/// Returns the encoding that a request names.
fn encoding(headers: &HeaderMap) -> Result<Option<Encoding>, Problem> {
    let Some(value) = headers.get(CONTENT_ENCODING) else { return Ok(None) };
    Encoding::from_name(value.to_str().unwrap_or("?")).map_err(|error| {
        Problem::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "encoding", error.to_string())
    })
}

/// Returns the wall clock time, in nanoseconds since 1970-01-01 UTC.
fn now_ns() -> i64 {
    SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .map_or(0, |since| i64::try_from(since.as_nanos()).unwrap_or(i64::MAX))
}

/// A body being appended, between two of its pieces. It holds the bytes of at most one record.
struct Work {
    ingest: Ingest,
    cutter: Cutter,
    inflate: Inflate,
    /// Why the rest of the body is not read.
    fault: Option<io::Error>,
    /// Maximum number of decompressed bytes.
    size_max: u64,
    /// The first rejected records.
    rejects: Vec<RejectedRecord>,
}

/// How a body is decompressed.
enum Inflate {
    /// The first bytes show it.
    Unknown(Option<Encoding>, Format),
    Plain,
    By(Box<Inflater>),
}

impl Work {
    fn new(
        store: &Store,
        shape: &Shape,
        stream: &str,
        request: Option<&Request>,
        size_max: u64,
    ) -> Self {
        let ingest = Ingest::new(store, shape.format, stream).with_mapping(shape.mapping.clone());
        let ingest = match request {
            Some(Request { held, about }) => ingest.with_request(store, held.key(), about),
            None => ingest,
        };
        Self {
            ingest,
            cutter: Cutter::new(shape.format, shape.document),
            inflate: Inflate::Unknown(shape.encoding, shape.format),
            fault: None,
            size_max,
            rejects: Vec::new(),
        }
    }

    /// Appends the records that end in a piece.
    fn piece(&mut self, store: &Store, bytes: &[u8]) -> Result<(), AppendError> {
        self.feed(store, bytes)?;
        self.ingest.flush(store)
    }

    /// Decompresses a piece, and appends the records that end in it. A piece that cannot be
    /// decompressed ends the body; what was appended before is kept.
    fn feed(&mut self, store: &Store, bytes: &[u8]) -> Result<(), AppendError> {
        if self.fault.is_some() || bytes.is_empty() {
            return Ok(());
        }
        if let Inflate::Unknown(encoding, format) = self.inflate {
            match inflate(encoding, format, bytes, self.size_max) {
                Ok(inflate) => self.inflate = inflate,
                Err(error) => {
                    self.fault = Some(error);
                    return Ok(());
                }
            }
        }
        let Self { ingest, cutter, rejects, .. } = self;
        let mut take = |record: &Record<'_>| append_record(ingest, rejects, store, record);
        let Inflate::By(inflater) = &mut self.inflate else {
            return cutter.feed(bytes, &mut take);
        };
        match inflater.feed(bytes, &mut |plain| cutter.feed(plain, &mut take)) {
            Ok(appended) => appended,
            Err(error) => {
                self.fault = Some(undecodable(error));
                Ok(())
            }
        }
    }

    /// Appends the last piece and waits until everything is acknowledged. The complete records of a
    /// body that ended early are kept.
    fn last(
        mut self,
        store: &Store,
        bytes: &[u8],
        end: Result<(), io::Error>,
        commit_time: &metrics::Histogram,
    ) -> Result<Appended, AppendError> {
        self.feed(store, bytes)?;
        let mut end = self.fault.take().map_or(end, Err);
        if let (Ok(()), Inflate::By(inflater)) = (&end, &self.inflate) {
            end = inflater.finish().map_err(undecodable);
        }
        if end.is_ok() {
            let Self { ingest, cutter, rejects, .. } = &mut self;
            cutter.finish(&mut |record| append_record(ingest, rejects, store, record))?;
        }
        let summary = *self.ingest.summary();
        let report = report(&summary, self.rejects);
        let mut earlier = None;
        if end.is_ok() {
            earlier = self.ingest.earlier_answer()?.map(|(status, it)| (status, it.to_vec()));
            if earlier.is_none() {
                self.ingest.set_answer(status_of(&summary).as_u16(), line(&report).into_bytes());
            }
        }
        let started = Instant::now();
        let summary = self.ingest.finish(store)?;
        commit_time.record(started.elapsed());
        Ok(Appended { report, summary, end: end.err(), earlier })
    }
}

/// Returns the answer about what was stored.
fn report(summary: &Summary, rejects: Vec<RejectedRecord>) -> Report {
    Report {
        accepted: summary.accepted,
        duplicates: summary.duplicates,
        first_id: summary.first_id.map(|id| id.to_string()),
        last_id: summary.last_id.map(|id| id.to_string()),
        rejected: summary.rejected,
        rejects,
        mistimed: summary.mistimed,
        assumed: summary.assumed,
        first_mistimed: summary
            .first_mistimed
            .map(|first| MistimedRecord { line: first.line, reason: first.reason }),
    }
}

/// Returns how a body that begins with `bytes` is decompressed. The format `raw` takes any bytes as
/// they are, unless the request names an encoding.
fn inflate(
    named: Option<Encoding>,
    format: Format,
    bytes: &[u8],
    size_max: u64,
) -> Result<Inflate, io::Error> {
    let encoding = match named {
        None if format == Format::Raw => None,
        None => Encoding::detect(bytes).map_err(undecodable)?,
        named => named,
    };
    Ok(match encoding {
        Some(encoding) => Inflate::By(Box::new(Inflater::new(encoding, size_max)?)),
        None => Inflate::Plain,
    })
}

/// Returns the error of a body that cannot be decompressed.
fn undecodable(error: EncodingError) -> io::Error {
    let kind = match &error {
        EncodingError::TooLarge { .. } => ErrorKind::FileTooLarge,
        EncodingError::Binary { .. } => ErrorKind::Unsupported,
        _ => ErrorKind::InvalidData,
    };
    let text = forebay_base::error_chain::chain(&error).to_string();
    io::Error::new(kind, text)
}

fn append_record(
    ingest: &mut Ingest,
    rejects: &mut Vec<RejectedRecord>,
    store: &Store,
    record: &Record<'_>,
) -> Result<(), AppendError> {
    ingest.record(store, record, now_ns(), &mut |line, reject, _| {
        if rejects.len() < REJECTS_MAX {
            rejects.push(RejectedRecord { line, reason: reject.to_string() });
        }
    })
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
            assert_eq!(
                (found.format, found.document),
                (format, document),
                "{path:?} {query} {kind}"
            );
        }
        for (path, query, kind) in [
            (Some("xml"), "", ""),
            (None, "?format=xml", ""),
            (None, "", "image/png"),
            (None, "", "application/x-protobuf"),
            (None, "?time_zone=Mars/Phobos", ""),
            (None, "?time_field=", ""),
            (None, "?streams=a", ""),
            (None, "?stream=", ""),
            (None, "?stream=_forebay", ""),
            (Some("zeek"), "?format=cef", ""),
        ] {
            assert!(shape(path, query, kind).is_err(), "{path:?} {query} {kind}");
        }
    }

    #[test]
    fn a_request_says_where_the_fields_are_and_how_the_body_is_compressed() {
        let query = "?time_field=meta.seen&host_field=h&type_field=t&time_zone=%2B02:00";
        let found = shape(None, query, "").unwrap();
        assert_eq!(found.mapping.time_field.as_deref(), Some("meta.seen"));
        assert_eq!(found.mapping.zone, Mapping::zone("+02:00").ok());
        let mut headers = HeaderMap::new();
        assert_eq!(encoding(&headers).ok(), Some(None));
        for (name, expected) in [
            ("gzip", Some(Some(Encoding::Gzip))),
            ("zstd", Some(Some(Encoding::Zstd))),
            ("identity", Some(None)),
            ("br", None),
        ] {
            headers.insert(CONTENT_ENCODING, name.parse().unwrap());
            assert_eq!(encoding(&headers).ok(), expected, "{name}");
        }
    }

    #[test]
    fn a_request_key_is_printable_and_its_stream_format_and_mapping_count() {
        let of = |value: &[u8]| {
            let mut headers = HeaderMap::new();
            headers.insert("idempotency-key", HeaderValue::from_bytes(value).unwrap());
            request_key(&headers)
        };
        assert_eq!(of(b"one").unwrap(), Some(RequestKey::of(b"one")));
        assert_eq!(request_key(&HeaderMap::new()).unwrap(), None);
        assert!(of(b"").is_err() && of(&[b'a'; 256]).is_err() && of(b"\xff").is_err());
        let plain = shape(None, "", "").unwrap();
        let zeek = shape(None, "?format=zeek", "").unwrap();
        let zone = shape(None, "?time_zone=UTC", "").unwrap();
        let all = [about("a", &plain), about("b", &plain), about("a", &zeek), about("a", &zone)];
        let distinct: std::collections::BTreeSet<_> = all.iter().collect();
        assert_eq!(distinct.len(), all.len());
    }

    #[test]
    fn a_body_is_decompressed_by_its_first_bytes_unless_it_is_raw() {
        let of = |named, format, bytes| match inflate(named, format, bytes, 1) {
            Ok(Inflate::By(_)) => "decompressed",
            Ok(_) => "plain",
            Err(_) => "refused",
        };
        assert_eq!(of(None, Format::Auto, b"\x1f\x8b\x08..."), "decompressed");
        assert_eq!(of(None, Format::Raw, b"\x1f\x8b\x08..."), "plain");
        assert_eq!(of(Some(Encoding::Zstd), Format::Raw, b"x"), "decompressed");
        assert_eq!(of(None, Format::Auto, b"PK\x03\x04"), "refused");
        assert_eq!(of(None, Format::Auto, b"{}"), "plain");
    }
}
