//! Storing, listing and deleting files.

use axum::body::Body;
use axum::extract::{Path, Request, State};
use axum::response::Response;
use forebay_intake::Intake;
use forebay_intake::IntakeError;
use forebay_intake::NameKey;
use forebay_intake::NewFile;
use forebay_intake::answer::{FileAnswer, file_url, put_json, to_json};
use forebay_intake::catalogue::FileFilter;
use forebay_intake::classify::Category;
use forebay_intake::digest::Digest;
use forebay_intake::names::{FileName, Namespace, check_comment};
use forebay_intake::request::Fingerprint;
use http::header::{CONTENT_RANGE, ETAG, LOCATION};
use http::{HeaderMap, StatusCode, Uri};

use super::answers::FilePage;
use super::body::PacedBody;
use super::condition::{self, etag};
use super::content::Content;
use super::unknown_option;
use super::{Keyed, bad_option, claim, declared_size, json, page_limit, problem, query, replayed};

/// Files on a page by default.
const PAGE: usize = 100;

pub(super) async fn put(
    State(intake): State<Intake>,
    Path((namespace, name)): Path<(String, String)>,
    request: Request,
) -> Response {
    let (parts, body) = request.into_parts();
    match put_file(&intake, &namespace, &name, &parts.uri, &parts.headers, body).await {
        Ok(response) => response,
        Err(error) => problem::answer(&error, &parts.headers),
    }
}

async fn put_file(
    intake: &Intake,
    namespace: &str,
    name: &str,
    uri: &Uri,
    headers: &HeaderMap,
    body: Body,
) -> Result<Response, IntakeError> {
    let key = name_key(namespace, name)?;
    let comment = put_comment(uri)?;
    let condition = condition::of_write(headers)?;
    if headers.contains_key(CONTENT_RANGE) {
        return Err(IntakeError::rejected(
            "content_range",
            "a part of a file cannot be stored: send the whole file, without Content-Range",
        ));
    }
    let mut body = Content::new(headers, PacedBody::new(body, intake.limits()))?;
    let size = declared_size(headers).filter(|_| !body.is_encoded());
    let keyed = claim(intake, headers).await?;
    let upload = intake.receive(&mut body, size).await?;
    let print = || {
        let parts: [&[u8]; 4] =
            [b"PUT", uri.path().as_bytes(), comment.as_bytes(), &upload.digest().0];
        Fingerprint::of(&parts).finish()
    };
    let (record, _held) = match keyed {
        Keyed::No => (None, None),
        Keyed::Held(held) => (Some(held.record(print())), Some(held)),
        Keyed::Answered { fingerprint, status, answer } if fingerprint == print() => {
            return Ok(replayed(status, answer));
        }
        Keyed::Answered { .. } => return Err(IntakeError::KeyReused),
    };
    let new = NewFile {
        classified: upload.classify(&key.1).await,
        key,
        comment,
        condition,
        idempotency: record,
    };
    let put = intake.put(new, upload).await?;
    let url = file_url(put.file.namespace.as_str(), put.file.name.as_str());
    let answer = put_json(&put.file, put.duplicate, put.replaced, &url);
    let mut response = json(put.status(), answer);
    let headers = response.headers_mut();
    headers.insert(ETAG, etag(put.file.digest));
    if put.created
        && let Ok(url) = url.try_into()
    {
        headers.insert(LOCATION, url);
    }
    Ok(response)
}

fn put_comment(uri: &Uri) -> Result<String, IntakeError> {
    let mut comment = String::new();
    if uri.query().is_some() {
        for (name, value) in query(uri) {
            match name.as_str() {
                "comment" => comment = value,
                _ => return Err(unknown_option(&name, "comment")),
            }
        }
        check_comment(&comment)?;
    }
    Ok(comment)
}

pub(super) async fn delete(
    State(intake): State<Intake>,
    Path((namespace, name)): Path<(String, String)>,
    request: Request,
) -> Response {
    let (parts, _) = request.into_parts();
    match delete_file(&intake, &namespace, &name, &parts.uri, &parts.headers).await {
        Ok(response) => response,
        Err(error) => problem::answer(&error, &parts.headers),
    }
}

async fn delete_file(
    intake: &Intake,
    namespace: &str,
    name: &str,
    uri: &Uri,
    headers: &HeaderMap,
) -> Result<Response, IntakeError> {
    let key = name_key(namespace, name)?;
    let condition = condition::of_write(headers)?;
    let print = Fingerprint::of(&[b"DELETE", uri.path().as_bytes()]).finish();
    let (record, _held) = match claim(intake, headers).await? {
        Keyed::No => (None, None),
        Keyed::Held(held) => (Some(held.record(print)), Some(held)),
        Keyed::Answered { fingerprint, status, answer } if fingerprint == print => {
            return Ok(replayed(status, answer));
        }
        Keyed::Answered { .. } => return Err(IntakeError::KeyReused),
    };
    if !intake.delete(&key, condition, record).await? {
        return Err(not_found(&key));
    }
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::NO_CONTENT;
    Ok(response)
}

pub(super) async fn list(State(intake): State<Intake>, request: Request) -> Response {
    match list_files(&intake, request.uri()).await {
        Ok(response) => response,
        Err(error) => problem::answer(&error, request.headers()),
    }
}

async fn list_files(intake: &Intake, uri: &Uri) -> Result<Response, IntakeError> {
    let (filter, cursor, limit) = listing(uri)?;
    let after = cursor.as_deref().and_then(|cursor| cursor.split_once('/'));
    let after = after.map(|(namespace, name)| (namespace.to_owned(), name.to_owned()));
    let mut files = intake.list(filter, after, limit + 1).await?;
    let more = files.len() > limit;
    files.truncate(limit);
    let next =
        files.last().filter(|_| more).map(|file| format!("{}/{}", file.namespace, file.name));
    let files = files.iter().map(FileAnswer::of).collect();
    Ok(json(200, to_json(&FilePage { files, next_cursor: next })))
}

fn listing(uri: &Uri) -> Result<(FileFilter, Option<String>, usize), IntakeError> {
    let mut filter = FileFilter::default();
    let (mut cursor, mut limit) = (None, PAGE);
    let bytes = |name: &str, value: &str| {
        value.parse::<u64>().map_err(|_| bad_option(name, "a number of bytes"))
    };
    for (name, value) in query(uri) {
        match name.as_str() {
            "namespace" => filter.namespace = Some(Namespace::parse(&value)?),
            "prefix" => filter.prefix = Some(value),
            "category" => {
                let words: Vec<_> = Category::ALL.iter().map(|c| c.as_str()).collect();
                let category = Category::parse(&value);
                filter.category =
                    Some(category.ok_or_else(|| bad_option(&name, &words.join(", ")))?);
            }
            "mime" => filter.mime = Some(value),
            "sha256" => {
                let digest = Digest::from_hex(&value);
                filter.digest =
                    Some(digest.ok_or_else(|| bad_option(&name, "64 hexadecimal digits"))?);
            }
            "size_min" => filter.size_min = Some(bytes(&name, &value)?),
            "size_max" => filter.size_max = Some(bytes(&name, &value)?),
            "created_from" => filter.created_from_ms = Some(time(&name, &value)?),
            "created_to" => filter.created_to_ms = Some(time(&name, &value)?),
            "limit" => limit = page_limit(&value)?,
            "cursor" if value.contains('/') => cursor = Some(value),
            "cursor" => return Err(bad_option(&name, "the next_cursor of an earlier page")),
            _ => {
                return Err(unknown_option(
                    &name,
                    "namespace, prefix, category, mime, sha256, size_min, size_max, \
                     created_from, created_to, limit, cursor",
                ));
            }
        }
    }
    Ok((filter, cursor, limit))
}

/// A time: RFC 3339, or milliseconds since 1970.
fn time(name: &str, value: &str) -> Result<i64, IntakeError> {
    if let Ok(ms) = value.parse() {
        return Ok(ms);
    }
    value
        .parse::<jiff::Timestamp>()
        .map(jiff::Timestamp::as_millisecond)
        .map_err(|_| bad_option(name, "an RFC 3339 time or milliseconds since 1970"))
}

pub(super) fn name_key(namespace: &str, name: &str) -> Result<NameKey, IntakeError> {
    Ok((Namespace::parse(namespace)?, FileName::parse(name)?))
}

pub(super) fn not_found(key: &NameKey) -> IntakeError {
    IntakeError::NotFound { what: format!("file {:?} in namespace {}", key.1.as_str(), key.0) }
}
