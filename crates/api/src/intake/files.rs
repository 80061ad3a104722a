//! Storing, listing and deleting files.

use axum::body::Body;
use axum::extract::{Path, Request, State};
use axum::response::Response;
use forebay_intake::Condition;
use forebay_intake::Intake;
use forebay_intake::IntakeError;
use forebay_intake::NameKey;
use forebay_intake::NewFile;
use forebay_intake::answer::{FileAnswer, file_url, put_json, to_json};
use forebay_intake::catalogue::{Browse, FileFilter, FileMark, FileOrder, FileRecord};
use forebay_intake::classify::{Category, check_wanted_type};
use forebay_intake::digest::Digest;
use forebay_intake::names::{FileName, Namespace, check_comment};
use http::header::{ETAG, LOCATION};
use http::request::Parts;
use http::{HeaderMap, Uri};

use super::answers::FilePage;
use super::body::PacedBody;
use super::condition::{self, etag};
use super::content::Content;
use super::details;
use super::unknown_option;
use super::versions;
use super::{Turn, bad_option, claim, declared_size, json, page_limit, problem, query, sender};
use crate::answer::no_content;

/// Files on a page by default.
const PAGE: usize = 100;
/// Maximum number of bytes of a delimiter.
const DELIMITER_SIZE_MAX: usize = 64;

pub(super) async fn put(
    State(intake): State<Intake>,
    Path((namespace, name)): Path<(String, String)>,
    request: Request,
) -> Response {
    let (parts, body) = request.into_parts();
    match put_file(&intake, &namespace, &name, &parts, body).await {
        Ok(response) => response,
        Err(error) => problem::answer(&error, &parts.headers),
    }
}

async fn put_file(
    intake: &Intake,
    namespace: &str,
    name: &str,
    parts: &Parts,
    body: Body,
) -> Result<Response, IntakeError> {
    let (uri, headers) = (&parts.uri, &parts.headers);
    let key = new_key(namespace, name)?;
    let comment = put_comment(uri)?;
    let attributes = details::of_upload(headers)?;
    let condition = condition::of_write(headers)?;
    let mut body = Content::new(headers, PacedBody::new(body, intake.limits()))?;
    let size = declared_size(headers).filter(|_| !body.is_encoded());
    let keyed = claim(intake, headers).await?;
    // What the put decides may be another answer if it was answered before, or depends on the file there.
    let decides_later = keyed.is_answered() || condition != Condition::None;
    // A small one is not worth a check of its own: the put decides.
    let is_large = |size: &u64| *size > intake.limits().packed_size_max as u64;
    if let Some(size) = size.filter(|size| !decides_later && is_large(size)) {
        intake.check_quota(&key, size).await?;
    }
    let upload = intake.receive(&mut body, size).await?;
    let print = || {
        let stored = attributes.to_bytes();
        let parts: [&[u8]; 5] =
            [b"PUT", uri.path().as_bytes(), comment.as_bytes(), &upload.digest().0, &stored];
        // Without attributes it is what earlier versions remembered.
        let parts = if stored.is_empty() { &parts[..4] } else { &parts };
        condition::fingerprint(parts, headers)
    };
    let (record, _held) = match keyed.turn(print)? {
        Turn::Act(record, held) => (record, held),
        Turn::Replay(answer) => return Ok(answer),
    };
    let new = NewFile {
        attributes,
        classified: upload.classify(&key.1).await,
        key,
        comment,
        condition,
        idempotency: record,
        is_routed: false,
        sender: sender(&parts.extensions),
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
    if versions::is_asked(uri) {
        return versions::erase(intake, &key, uri, headers).await;
    }
    let condition = condition::of_write(headers)?;
    let print = condition::fingerprint(&[b"DELETE", uri.path().as_bytes()], headers);
    let (record, _held) = match claim(intake, headers).await?.turn(|| print)? {
        Turn::Act(record, held) => (record, held),
        Turn::Replay(answer) => return Ok(answer),
    };
    if intake.delete(&key, condition, record).await?.is_none() {
        return Err(not_found(&key));
    }
    Ok(no_content())
}

pub(super) async fn list(State(intake): State<Intake>, request: Request) -> Response {
    match list_files(&intake, request.uri()).await {
        Ok(response) => response,
        Err(error) => problem::answer(&error, request.headers()),
    }
}

async fn list_files(intake: &Intake, uri: &Uri) -> Result<Response, IntakeError> {
    let Listing { filter, order, cursor, limit, delimiter } = listing(uri)?;
    let page = match (delimiter, order) {
        (Some(delimiter), order) => browse(intake, filter, order, cursor, limit, delimiter).await?,
        (None, FileOrder::Name) => by_name(intake, filter, cursor, limit).await?,
        (None, order) => sorted(intake, filter, order, cursor, limit).await?,
    };
    Ok(json(200, page))
}

fn page(files: &[FileRecord], prefixes: Option<Vec<String>>, next: Option<String>) -> Vec<u8> {
    let files = files.iter().map(FileAnswer::of).collect();
    to_json(&FilePage { files, prefixes, next_cursor: next })
}

/// A page by namespace and name.
async fn by_name(
    intake: &Intake,
    filter: FileFilter,
    cursor: Option<String>,
    limit: usize,
) -> Result<Vec<u8>, IntakeError> {
    let after = cursor.as_deref().map(name_cursor).transpose()?;
    let mut files = intake.list(filter, after, limit + 1).await?;
    let more = files.len() > limit;
    files.truncate(limit);
    let next =
        files.last().filter(|_| more).map(|file| format!("{}/{}", file.namespace, file.name));
    Ok(page(&files, None, next))
}

/// A page in another order.
async fn sorted(
    intake: &Intake,
    filter: FileFilter,
    order: FileOrder,
    cursor: Option<String>,
    limit: usize,
) -> Result<Vec<u8>, IntakeError> {
    let after = cursor.as_deref().map(|cursor| mark(order, cursor)).transpose()?;
    if after.as_ref().is_some_and(FileMark::is_prefix) {
        return Err(bad_cursor());
    }
    let mut files = intake.list_sorted(filter, order, after, limit + 1).await?;
    let more = files.len() > limit;
    files.truncate(limit);
    let next = files.last().filter(|_| more).map(|file| FileMark::of(order, file).to_string());
    Ok(page(&files, None, next))
}

/// A page as directories show it.
async fn browse(
    intake: &Intake,
    filter: FileFilter,
    order: FileOrder,
    cursor: Option<String>,
    limit: usize,
    delimiter: String,
) -> Result<Vec<u8>, IntakeError> {
    let FileFilter { namespace: Some(namespace), prefix, .. } = filter else {
        let text = "delimiter needs namespace: names of one namespace are listed".to_owned();
        return Err(IntakeError::rejected("query", text));
    };
    let prefix = prefix.unwrap_or_default();
    let mut browse = Browse { namespace: namespace.clone(), prefix, delimiter, after: None };
    if order == FileOrder::Name {
        browse.after = cursor.as_deref().map(name_cursor).transpose()?.map(|(_, name)| name);
        let found = intake.browse(browse, limit).await?;
        let next = found.next.map(|next| format!("{namespace}/{next}"));
        return Ok(page(&found.files, Some(found.prefixes), next));
    }
    let after = cursor.as_deref().map(|cursor| mark(order, cursor)).transpose()?;
    if after.as_ref().is_some_and(|mark| mark.namespace() != namespace.as_str()) {
        return Err(bad_cursor());
    }
    let found = intake.browse_sorted(browse, order, after, limit).await?;
    Ok(page(&found.files, Some(found.prefixes), found.next.map(|next| next.to_string())))
}

/// The place that a cursor of a listing by name refers to.
fn name_cursor(cursor: &str) -> Result<(String, String), IntakeError> {
    let (namespace, name) = cursor.split_once('/').ok_or_else(bad_cursor)?;
    Namespace::parse(namespace).map_err(|_| bad_cursor())?;
    Ok((namespace.to_owned(), name.to_owned()))
}

/// The place that a cursor of a listing in another order refers to.
fn mark(order: FileOrder, cursor: &str) -> Result<FileMark, IntakeError> {
    FileMark::parse(cursor).filter(|mark| mark.order() == order).ok_or_else(bad_cursor)
}

fn bad_cursor() -> IntakeError {
    bad_option("cursor", "the next_cursor of an earlier page in the same order")
}

/// What a listing shows.
#[derive(Debug)]
struct Listing {
    filter: FileFilter,
    order: FileOrder,
    cursor: Option<String>,
    limit: usize,
    /// The text up to which names are listed as one.
    delimiter: Option<String>,
}

fn listing(uri: &Uri) -> Result<Listing, IntakeError> {
    let mut filter = FileFilter::default();
    let (mut cursor, mut limit, mut delimiter, mut narrowed) = (None, PAGE, None, None);
    let mut order = FileOrder::default();
    for (name, value) in query(uri) {
        match name.as_str() {
            "sort" => {
                let words = FileOrder::ALL.map(FileOrder::as_str).join(", ");
                order = FileOrder::parse(&value).ok_or_else(|| bad_option(&name, &words))?;
            }
            "delimiter" if (1..=DELIMITER_SIZE_MAX).contains(&value.len()) => {
                delimiter = Some(value);
            }
            "delimiter" => return Err(bad_option(&name, "a text of 1 to 64 bytes")),
            "limit" => limit = page_limit(&value)?,
            "cursor" => cursor = Some(value),
            _ => {
                if !matches!(name.as_str(), "namespace" | "prefix") {
                    narrowed = Some(name.clone());
                }
                if !narrow(&mut filter, &name, value)? {
                    let known = format!("{FILTERS}, sort, delimiter, limit, cursor");
                    return Err(unknown_option(&name, &known));
                }
            }
        }
    }
    if let (Some(_), Some(name)) = (&delimiter, narrowed) {
        let text = format!("{name} cannot be combined with delimiter");
        return Err(IntakeError::rejected("query", text));
    }
    Ok(Listing { filter, order, cursor, limit, delimiter })
}

/// Parameters that select files.
pub(super) const FILTERS: &str = "namespace, prefix, category, mime, sha256, size_min, size_max, \
                                  created_from, created_to, tag";

/// Narrows a filter by a parameter; returns `false` if it is not one of [`FILTERS`].
pub(super) fn narrow(
    filter: &mut FileFilter,
    name: &str,
    value: String,
) -> Result<bool, IntakeError> {
    let bytes =
        |value: &str| value.parse::<u64>().map_err(|_| bad_option(name, "a number of bytes"));
    match name {
        "namespace" => filter.namespace = Some(Namespace::parse(&value)?),
        "prefix" => filter.prefix = Some(value),
        "category" => {
            let words: Vec<_> = Category::ALL.iter().map(|c| c.as_str()).collect();
            let category = Category::parse(&value);
            filter.category = Some(category.ok_or_else(|| bad_option(name, &words.join(", ")))?);
        }
        "mime" => {
            check_wanted_type(&value)?;
            filter.mime = Some(value);
        }
        "sha256" => {
            let digest = Digest::from_hex(&value);
            filter.digest = Some(digest.ok_or_else(|| bad_option(name, "64 hexadecimal digits"))?);
        }
        "size_min" => filter.size_min = Some(bytes(&value)?),
        "size_max" => filter.size_max = Some(bytes(&value)?),
        "created_from" => filter.created_from_ms = Some(time(name, &value)?),
        "created_to" => filter.created_to_ms = Some(time(name, &value)?),
        "tag" => {
            let (tag, wanted) = match value.split_once('=') {
                Some((tag, wanted)) => (tag.to_owned(), Some(wanted.to_owned())),
                None => (value, None),
            };
            filter.tags.push((tag, wanted));
        }
        _ => return Ok(false),
    }
    Ok(true)
}

/// A time: RFC 3339, or milliseconds since 1970.
pub(super) fn time(name: &str, value: &str) -> Result<i64, IntakeError> {
    if let Ok(ms) = value.parse() {
        return Ok(ms);
    }
    value
        .parse::<jiff::Timestamp>()
        .map(jiff::Timestamp::as_millisecond)
        .map_err(|_| bad_option(name, "an RFC 3339 time or milliseconds since 1970"))
}

/// The name of a file that is there already.
pub(super) fn name_key(namespace: &str, name: &str) -> Result<NameKey, IntakeError> {
    Ok((Namespace::parse(namespace)?, FileName::parse_object(name)?))
}

/// The name of a file that is to be stored.
pub(super) fn new_key(namespace: &str, name: &str) -> Result<NameKey, IntakeError> {
    Ok((Namespace::parse(namespace)?, FileName::parse(name)?))
}

pub(super) fn not_found(key: &NameKey) -> IntakeError {
    IntakeError::NotFound { what: format!("file {:?} in namespace {}", key.1.as_str(), key.0) }
}
