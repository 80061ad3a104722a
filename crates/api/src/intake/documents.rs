//! Documents over HTTP: accepting bodies of them, paging through them.

use axum::body::Body;
use axum::extract::{Path, Request, State};
use axum::response::Response;
use forebay_intake::Intake;
use forebay_intake::IntakeError;
use forebay_intake::answer::{time_text, to_json};
use forebay_intake::documents::decide::Wish;
use forebay_intake::documents::frame::Framing;
use forebay_intake::documents::ingest::DocumentOptions;
use forebay_intake::documents::query::DocumentQuery;
use forebay_intake::documents::{PageLimits, StoredDocument};
use forebay_intake::names::{Namespace, check_comment};
use forebay_intake::request::Fingerprint;
use forebay_intake::upload::Source as _;
use http::header::{ACCEPT, CONTENT_TYPE};
use http::{HeaderMap, HeaderValue, Uri};

use super::answers::{DocumentPage, NamespaceAnswer, NamespaceList, PageDocument, TableColumn};
use super::body::PacedBody;
use super::content::Content;
use super::{Keyed, bad_option, claim, flag, json, page_limit, problem, query, replayed};
use super::{Served, follow, unknown_option};
use crate::answer::{PAGE as PAGE_POLICY, html, varied, wants_page};
use crate::pages::{DocumentsRow, namespaces_page};

/// Documents on a page by default.
const PAGE: usize = 100;
/// Maximum number of bytes of documents on a page. A larger document is returned alone.
const PAGE_SIZE_MAX: usize = 8 << 20;
/// Header with the cursor of the next page, or of what is followed.
pub(super) const NEXT_CURSOR: &str = "x-next-cursor";

pub(super) async fn post(
    State(intake): State<Intake>,
    Path(namespace): Path<String>,
    request: Request,
) -> Response {
    let (parts, body) = request.into_parts();
    match post_documents(&intake, &namespace, &parts.uri, &parts.headers, body).await {
        Ok(response) => response,
        Err(error) => problem::answer(&error, &parts.headers),
    }
}

async fn post_documents(
    intake: &Intake,
    namespace: &str,
    uri: &Uri,
    headers: &HeaderMap,
    body: Body,
) -> Result<Response, IntakeError> {
    let namespace = Namespace::parse(namespace)?;
    let mut options = read_options(uri)?;
    let mut body = Content::new(headers, PacedBody::new(body, intake.limits()))?;
    let keyed = claim(intake, headers).await?;
    let mut print = match keyed {
        Keyed::No => None,
        _ => {
            let parts: [&[u8]; 3] =
                [b"POST", uri.path().as_bytes(), uri.query().unwrap_or_default().as_bytes()];
            Some(Fingerprint::of(&parts))
        }
    };
    let (held, replay) = match keyed {
        Keyed::No => (None, None),
        Keyed::Held(held) => (Some(held), None),
        Keyed::Answered { fingerprint, status, answer } => {
            (None, Some((fingerprint, status, answer)))
        }
    };
    let first = body.next().await?;
    options.framing = framing(headers, first.as_deref().unwrap_or_default());
    // A request that was answered before is read only for its fingerprint.
    let mut ingest = match replay {
        Some(_) => None,
        None => Some(intake.ingest(namespace, options)),
    };
    let mut next = first;
    while let Some(bytes) = next {
        if let Some(print) = &mut print {
            print.update(&bytes);
        }
        if let Some(ingest) = &mut ingest {
            ingest.push(&bytes).await?;
        }
        next = body.next().await?;
    }
    let print = print.map(Fingerprint::finish);
    if let Some((fingerprint, status, answer)) = replay {
        return match print == Some(fingerprint) {
            true => Ok(replayed(status, answer)),
            false => Err(IntakeError::KeyReused),
        };
    }
    let record = held.as_ref().zip(print).map(|(held, print)| held.record(print));
    let Some(ingest) = ingest else { return Err(IntakeError::KeyReused) };
    let (status, body, _) = ingest.finish(record).await?;
    Ok(json(status, body))
}

fn read_options(uri: &Uri) -> Result<DocumentOptions, IntakeError> {
    let mut options = DocumentOptions {
        framing: Framing::Values,
        wish: Wish::Auto,
        wish_required: false,
        all_or_nothing: false,
        dry_run: false,
    };
    for (name, value) in query(uri) {
        match name.as_str() {
            "dry_run" => options.dry_run = flag(&name, &value)?,
            "on_error" => {
                options.all_or_nothing = match value.as_str() {
                    "reject" => true,
                    "skip" => false,
                    _ => return Err(bad_option(&name, "skip or reject")),
                };
            }
            "target" => {
                options.wish = Wish::parse(&value)
                    .ok_or_else(|| bad_option(&name, "auto, table or collection"))?;
                options.wish_required = true;
            }
            "comment" => {
                check_comment(&value)?;
                if options.wish == Wish::Auto {
                    options.wish = Wish::of_comment(&value);
                }
            }
            _ => return Err(unknown_option(&name, "dry_run, on_error, target, comment")),
        }
    }
    Ok(options)
}

/// The framing of a body, by its declared type, otherwise by its beginning.
fn framing(headers: &HeaderMap, first: &[u8]) -> Framing {
    let kind = headers.get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    let kind = kind.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    if kind.contains("ndjson") || kind.contains("jsonl") || kind.contains("json-lines") {
        return Framing::Lines;
    }
    if kind == "application/json" || kind.ends_with("+json") {
        return Framing::Values;
    }
    Framing::of(first)
}

pub(super) async fn namespaces(State(intake): State<Intake>, request: Request) -> Response {
    match list_namespaces(&intake, request.headers()).await {
        Ok(response) => varied(response),
        Err(error) => problem::answer(&error, request.headers()),
    }
}

async fn list_namespaces(intake: &Intake, headers: &HeaderMap) -> Result<Response, IntakeError> {
    let found = intake.namespaces().await?.into_iter();
    if wants_page(headers) {
        let rows = found.map(|info| DocumentsRow {
            documents: info.row_count,
            target: info.kind.name(),
            undecided: info.undecided,
            namespace: info.name,
        });
        return Ok(html(namespaces_page(&rows.collect::<Vec<_>>()), PAGE_POLICY));
    }
    let namespaces = found.map(|info| NamespaceAnswer {
        documents: info.row_count,
        target: info.kind.name(),
        undecided: info.undecided,
        url: format!("/v1/documents/{}", info.name),
        namespace: info.name,
    });
    Ok(json(200, to_json(&NamespaceList { namespaces: namespaces.collect() })))
}

pub(super) async fn page(
    State(served): State<Served>,
    Path(namespace): Path<String>,
    request: Request,
) -> Response {
    let (parts, _) = request.into_parts();
    match page_documents(&served, &namespace, &parts.uri, &parts.headers).await {
        Ok(response) => response,
        Err(error) => problem::answer(&error, &parts.headers),
    }
}

async fn page_documents(
    served: &Served,
    namespace: &str,
    uri: &Uri,
    headers: &HeaderMap,
) -> Result<Response, IntakeError> {
    let intake = &served.intake;
    let namespace = Namespace::parse(namespace)?;
    let Asked { after, limit, filter, follow } = asked(uri)?;
    if follow {
        return follow::documents(served, namespace, filter, after).await;
    }
    let after = after.map(|(id, _)| id);
    let limits = PageLimits { rows_max: limit, bytes_max: PAGE_SIZE_MAX };
    let missing = || IntakeError::NotFound { what: format!("document namespace {namespace}") };
    let (info, schema, documents, next) = match filter {
        Some(filter) => {
            let found = intake.find_documents(&namespace, filter, after, limits).await?;
            let found = found.ok_or_else(missing)?;
            (found.info, found.schema, found.documents, found.next)
        }
        None => {
            let page = intake.documents(&namespace, after, limits).await?.ok_or_else(missing)?;
            let next = page.documents.last().filter(|_| page.more).map(|last| last.id);
            (page.info, page.schema, page.documents, next)
        }
    };
    let next = next.map(|next| next.to_string());
    if wants_lines(headers) {
        return Ok(lines(&documents, next.as_deref()));
    }
    let documents = documents.iter().map(page_document).collect::<Result<_, _>>()?;
    let answer = DocumentPage {
        namespace: namespace.as_str(),
        target: info.kind.name(),
        count: info.row_count,
        columns: TableColumn::all(info.kind, &schema),
        documents,
        next_cursor: next,
    };
    Ok(json(200, to_json(&answer)))
}

/// What a page is to have.
struct Asked {
    /// Id, and position if the client follows.
    after: Option<(u64, Option<u64>)>,
    limit: usize,
    filter: Option<DocumentQuery>,
    follow: bool,
}

fn asked(uri: &Uri) -> Result<Asked, IntakeError> {
    let mut asked = Asked { after: None, limit: PAGE, filter: None, follow: false };
    let mut has_limit = false;
    for (name, value) in query(uri) {
        match name.as_str() {
            "limit" => (asked.limit, has_limit) = (page_limit(&value)?, true),
            "cursor" => {
                let cursor = follow::parse_cursor(&value);
                asked.after = Some(cursor.ok_or_else(|| bad_option(&name, "a next_cursor"))?);
            }
            "where" => asked.filter = Some(DocumentQuery::parse(&value)?),
            "follow" => asked.follow = flag(&name, &value)?,
            _ => return Err(unknown_option(&name, "where, follow, limit, cursor")),
        }
    }
    if asked.follow && has_limit {
        return Err(IntakeError::rejected("query", "limit cannot be combined with follow"));
    }
    Ok(asked)
}

pub(super) fn page_document(stored: &StoredDocument) -> Result<PageDocument<'_>, IntakeError> {
    // Only JSON was accepted, so this fails only on damage.
    let document = serde_json::from_slice(&stored.raw).map_err(|error| IntakeError::Damaged {
        digest: format!("document {}", stored.id),
        found: error.to_string(),
    })?;
    let received = time_text(i64::try_from(stored.received_ms).unwrap_or(i64::MAX));
    Ok(PageDocument { id: stored.id, received, document })
}

fn wants_lines(headers: &HeaderMap) -> bool {
    let accept = headers.get(ACCEPT).and_then(|accept| accept.to_str().ok()).unwrap_or_default();
    accept.contains("ndjson") || accept.contains("jsonl")
}

/// Documents, one per line. A line break between tokens becomes a space; strings contain none.
fn lines(documents: &[StoredDocument], next: Option<&str>) -> Response {
    let mut body = Vec::new();
    for document in documents {
        let start = body.len();
        body.extend_from_slice(&document.raw);
        for byte in body.iter_mut().skip(start) {
            if matches!(*byte, b'\n' | b'\r') {
                *byte = b' ';
            }
        }
        body.push(b'\n');
    }
    let mut response = Response::new(Body::from(body));
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/x-ndjson"));
    if let Some(Ok(next)) = next.map(HeaderValue::from_str) {
        headers.insert(NEXT_CURSOR, next);
    }
    response
}
