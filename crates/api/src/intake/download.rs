//! Serving files: complete or in parts, conditionally, never executed.

use std::ops::Range;

use axum::body::Body;
use axum::extract::{Path, Request, State};
use axum::response::Response;
use forebay_intake::IntakeError;
use forebay_intake::StoredFile;
use forebay_intake::answer::id_of;
use forebay_intake::catalogue::FileRecord;
use forebay_intake::classify::{HEAD_SIZE, is_active, is_utf8};
use forebay_intake::thumbnails::SIZES;
use forebay_intake::upload::FileBytes;
use http::header::{
    ACCEPT_RANGES, CACHE_CONTROL, CONTENT_DISPOSITION, CONTENT_LENGTH, CONTENT_RANGE,
    CONTENT_SECURITY_POLICY, CONTENT_TYPE, ETAG, IF_MATCH, IF_NONE_MATCH, LAST_MODIFIED, RANGE,
    X_CONTENT_TYPE_OPTIONS,
};
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Method, StatusCode, Uri};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

use super::condition::{check_read, etag, names_tag, not_modified, range_applies};
use super::details;
use super::files::{name_key, not_found};
use super::range::{Ranges, parse};
use super::versions;
use super::{Served, bad_option, flag, problem, query, sending, unknown_option};
use crate::answer::unchanged;

/// Characters that an extended parameter value keeps as they are (RFC 8187, "attr-char").
const ATTR: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

pub(super) async fn by_name(
    State(served): State<Served>,
    Path((namespace, name)): Path<(String, String)>,
    request: Request,
) -> Response {
    let request = request.into_parts().0;
    if versions::is_asked(&request.uri) {
        return of_version(&served, (&namespace, &name), &request).await;
    }
    let found = async {
        let key = name_key(&namespace, &name)?;
        served.intake.find(&key).await?.ok_or_else(|| not_found(&key))
    };
    answer(&served, found.await, &request).await
}

/// Answers with the history of a name, or the bytes of one version.
async fn of_version(served: &Served, (namespace, name): (&str, &str), request: &Parts) -> Response {
    let found = async {
        let key = name_key(namespace, name)?;
        match versions::asked(&request.uri)? {
            None => versions::history(&served.intake, &key, &request.uri).await.map(Err),
            Some(id) => {
                let found = served.intake.find_version(&key, id).await?;
                found.ok_or_else(|| versions::missing(&key)).map(Ok)
            }
        }
    };
    match found.await {
        Ok(Ok(file)) => answer(served, Ok(file), request).await,
        Ok(Err(history)) => history,
        Err(error) => problem::answer(&error, &request.headers),
    }
}

pub(super) async fn by_id(
    State(served): State<Served>,
    Path(id): Path<String>,
    request: Request,
) -> Response {
    let found = async {
        let missing = || IntakeError::NotFound { what: "file with this id".to_owned() };
        let id = id_of(&id).ok_or_else(missing)?;
        served.intake.find_by_id(id).await?.ok_or_else(missing)
    };
    answer(&served, found.await, &request.into_parts().0).await
}

async fn answer(
    served: &Served,
    found: Result<StoredFile, IntakeError>,
    request: &Parts,
) -> Response {
    let answered = match found {
        Ok(file) => by_options(served, &file, request).await,
        Err(error) => Err(error),
    };
    answered.unwrap_or_else(|error| problem::answer(&error, &request.headers))
}

async fn by_options(
    served: &Served,
    file: &StoredFile,
    request: &Parts,
) -> Result<Response, IntakeError> {
    let options = Options::of(&request.uri)?;
    if let Some(size) = options.thumbnail {
        return thumbnail(served, file, size, request).await;
    }
    let opened = Opened::of(served, file).await?;
    serve(served, file, opened, options, request)
}

/// Sends a small version of a picture.
async fn thumbnail(
    served: &Served,
    stored: &StoredFile,
    size: u32,
    request: &Parts,
) -> Result<Response, IntakeError> {
    let file = &*stored.record;
    let tag = format!("{}-{size}", file.digest.to_hex());
    // A condition may name the thumbnail or the file.
    if !names_tag(&request.headers, &IF_MATCH, &tag) {
        check_read(&request.headers, file)?;
    }
    let mut response = Response::new(Body::empty());
    let headers = response.headers_mut();
    describe(headers, file, false, false);
    // It is not the file: these would be wrong.
    headers.remove(ACCEPT_RANGES);
    headers.remove(CONTENT_TYPE);
    insert(headers, ETAG, &format!("\"{tag}\""));
    if names_tag(&request.headers, &IF_NONE_MATCH, &tag) {
        return Ok(unchanged(response));
    }
    let thumbnail = served.intake.thumbnail(stored, size).await?;
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(thumbnail.mime));
    headers.insert(CONTENT_LENGTH, thumbnail.bytes.len().into());
    if request.method != Method::HEAD {
        served.intake.sent(thumbnail.bytes.len() as u64);
        *response.body_mut() = Body::from(thumbnail.bytes);
    }
    Ok(response)
}

/// What is known of a file's bytes before they are sent.
#[derive(Default)]
struct Opened {
    /// The bytes, if they were needed.
    bytes: Option<FileBytes>,
    /// Whether they are text in UTF-8: another encoding is not named, because it is not known.
    is_utf8: bool,
}

impl Opened {
    async fn of(served: &Served, stored: &StoredFile) -> Result<Self, IntakeError> {
        if !stored.record.mime.starts_with("text/") {
            return Ok(Self::default());
        }
        let bytes = served.intake.read(stored)?;
        let is_utf8 = match &bytes {
            FileBytes::Memory(bytes) => is_utf8(bytes.get(..HEAD_SIZE).unwrap_or(bytes)),
            FileBytes::File(reader) => {
                let reader = reader.clone();
                let head = forebay_base::blocking::spawn(move || reader.read(0, HEAD_SIZE as u64));
                // What cannot be read ends the response later, which is not lost then.
                matches!(head.await, Ok(Ok(head)) if is_utf8(&head))
            }
        };
        Ok(Self { bytes: Some(bytes), is_utf8 })
    }
}

fn serve(
    served: &Served,
    stored: &StoredFile,
    opened: Opened,
    options: Options,
    request: &Parts,
) -> Result<Response, IntakeError> {
    let file = &*stored.record;
    check_read(&request.headers, file)?;
    let mut response = Response::new(Body::empty());
    describe(response.headers_mut(), file, opened.is_utf8, options.attachment);
    if not_modified(&request.headers, file) {
        return Ok(unchanged(response));
    }
    let ranges = match request.headers.get(RANGE).map(HeaderValue::to_str) {
        Some(Ok(header))
            if request.method == Method::GET && range_applies(&request.headers, file) =>
        {
            parse(header, file.size)
        }
        _ => Ranges::Whole,
    };
    let head = request.method == Method::HEAD;
    let (status, segments, length) = match ranges {
        Ranges::Unsatisfiable => {
            let headers = response.headers_mut();
            insert(headers, CONTENT_RANGE, &format!("bytes */{}", file.size));
            headers.remove(CONTENT_TYPE);
            *response.status_mut() = StatusCode::RANGE_NOT_SATISFIABLE;
            return Ok(response);
        }
        Ranges::Whole => (StatusCode::OK, vec![Segment::Part(0..file.size)], file.size),
        Ranges::Parts(parts) => match parts.as_slice() {
            [part] => {
                let (first, last) = (part.start, part.end - 1);
                let range = format!("bytes {first}-{last}/{}", file.size);
                insert(response.headers_mut(), CONTENT_RANGE, &range);
                let length = part.end - part.start;
                (StatusCode::PARTIAL_CONTENT, vec![Segment::Part(part.clone())], length)
            }
            _ => {
                // A boundary that no one could know when the file was stored.
                let boundary = uuid::Uuid::new_v4().simple().to_string();
                let (segments, length) = multipart(&parts, file, &boundary);
                let kind = format!("multipart/byteranges; boundary={boundary}");
                insert(response.headers_mut(), CONTENT_TYPE, &kind);
                (StatusCode::PARTIAL_CONTENT, segments, length)
            }
        },
    };
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_LENGTH, length.into());
    if !head {
        served.intake.sent(length);
        *response.body_mut() = body(served, stored, opened.bytes, segments)?;
    }
    Ok(response)
}

/// How a file is sent.
#[derive(Debug, Default, Clone, Copy)]
struct Options {
    /// As an attachment, whatever its type.
    attachment: bool,
    /// As a small picture of at most this width and height.
    thumbnail: Option<u32>,
}

impl Options {
    fn of(uri: &Uri) -> Result<Self, IntakeError> {
        let mut options = Self::default();
        for (name, value) in query(uri) {
            match name.as_str() {
                "download" => options.attachment = flag(&name, &value)?,
                "thumbnail" => {
                    let size = value.parse().ok().filter(|size| SIZES.contains(size));
                    let wanted = format!("a number from {} to {}", SIZES.start(), SIZES.end());
                    options.thumbnail = Some(size.ok_or_else(|| bad_option(&name, &wanted))?);
                }
                // It has chosen the file.
                "version" => {}
                _ => return Err(unknown_option(&name, "download, thumbnail, version, versions")),
            }
        }
        Ok(options)
    }
}

/// A piece of a response's body.
pub(super) enum Segment {
    /// Bytes of the file.
    Part(Range<u64>),
    /// Text between parts.
    Text(String),
}

fn multipart(parts: &[Range<u64>], file: &FileRecord, boundary: &str) -> (Vec<Segment>, u64) {
    let mut segments = Vec::with_capacity(parts.len() * 2 + 1);
    let mut length = 0;
    for part in parts {
        let text = format!(
            "\r\n--{boundary}\r\nContent-Type: {}\r\nContent-Range: bytes {}-{}/{}\r\n\r\n",
            file.mime,
            part.start,
            part.end - 1,
            file.size
        );
        length += text.len() as u64 + part.end - part.start;
        segments.push(Segment::Text(text));
        segments.push(Segment::Part(part.clone()));
    }
    let text = format!("\r\n--{boundary}--\r\n");
    length += text.len() as u64;
    segments.push(Segment::Text(text));
    (segments, length)
}

fn body(
    served: &Served,
    stored: &StoredFile,
    opened: Option<FileBytes>,
    segments: Vec<Segment>,
) -> Result<Body, IntakeError> {
    let bytes = match opened.map_or_else(|| served.intake.read(stored), Ok)? {
        FileBytes::Memory(bytes) => bytes,
        FileBytes::File(reader) => {
            let sending = served.sending.clone();
            return Ok(sending::body(reader, segments, stored.record.digest, sending));
        }
    };
    let slice = |range: &Range<u64>| {
        let at = |n: u64| usize::try_from(n).unwrap_or(usize::MAX).min(bytes.len());
        bytes.slice(at(range.start)..at(range.end))
    };
    if let [Segment::Part(range)] = segments.as_slice() {
        return Ok(Body::from(slice(range)));
    }
    let mut all = Vec::new();
    for segment in &segments {
        match segment {
            Segment::Part(range) => all.extend_from_slice(&slice(range)),
            Segment::Text(text) => all.extend_from_slice(text.as_bytes()),
        }
    }
    Ok(Body::from(all))
}

/// Headers that describe the file and keep a browser from running it.
fn describe(headers: &mut HeaderMap, file: &FileRecord, is_utf8: bool, attachment: bool) {
    let active = is_active(&file.mime);
    let kind =
        if is_utf8 { format!("{}; charset=utf-8", file.mime) } else { file.mime.to_string() };
    insert(headers, CONTENT_TYPE, &kind);
    headers.insert(ETAG, etag(file.digest));
    headers.insert(ACCEPT_RANGES, HeaderValue::from_static("bytes"));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("private, no-cache"));
    insert(headers, LAST_MODIFIED, &http_date(file.created_ms));
    let how = if active || attachment { "attachment" } else { "inline" };
    let name = utf8_percent_encode(file.name.base_name(), ATTR);
    details::describe(headers, &file.attributes);
    insert(headers, CONTENT_DISPOSITION, &format!("{how}; filename*=UTF-8''{name}"));
    // Even an inert type is shown without scripts, plugins or the origin's cookies.
    let policy =
        "sandbox; default-src 'none'; img-src 'self'; media-src 'self'; style-src 'unsafe-inline'";
    headers.insert(CONTENT_SECURITY_POLICY, HeaderValue::from_static(policy));
}

fn insert(headers: &mut HeaderMap, name: http::HeaderName, value: &str) {
    // The values consist of numbers, media types and escaped names: always valid.
    if let Ok(value) = HeaderValue::from_str(value) {
        headers.insert(name, value);
    }
}

fn http_date(ms: i64) -> String {
    let since = std::time::Duration::from_millis(ms.max(0).cast_unsigned());
    httpdate::fmt_http_date(std::time::UNIX_EPOCH + since)
}
