//! Namespaces of files: listed, made to exist without files, and removed.

use axum::body::Body;
use axum::extract::{Path, Request, State};
use axum::response::Response;
use forebay_intake::answer::{time_text, to_json};
use forebay_intake::attributes::Attributes;
use forebay_intake::names::Namespace;
use forebay_intake::{FileNamespace, Intake, IntakeError};
use http::{StatusCode, Uri};
use serde::Serialize;
use utoipa::ToSchema;

use super::{json, page_limit, problem, query, unknown_option};

/// Namespaces on a page by default.
const PAGE: usize = 100;

/// A namespace of files.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = FileNamespace)]
pub(super) struct FileNamespaceAnswer {
    /// Its name.
    namespace: String,
    /// Whether it exists without files.
    explicit: bool,
    /// When it was made to exist without files, RFC 3339; absent if it was not.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    created: Option<String>,
}

/// A page of namespaces.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct FileNamespacePage {
    /// The namespaces, by name.
    namespaces: Vec<FileNamespaceAnswer>,
    /// `cursor` of the next page; null after the last.
    #[schema(required)]
    next_cursor: Option<String>,
}

impl FileNamespaceAnswer {
    fn of(found: &FileNamespace) -> Self {
        let created = found.record.as_ref().map(|record| time_text(record.created_ms));
        let namespace = found.namespace.as_str().to_owned();
        Self { namespace, explicit: created.is_some(), created }
    }
}

pub(super) async fn list(State(intake): State<Intake>, request: Request) -> Response {
    match list_namespaces(&intake, request.uri()).await {
        Ok(response) => response,
        Err(error) => problem::answer(&error, request.headers()),
    }
}

async fn list_namespaces(intake: &Intake, uri: &Uri) -> Result<Response, IntakeError> {
    let (mut cursor, mut limit) = (None, PAGE);
    for (name, value) in query(uri) {
        match name.as_str() {
            "limit" => limit = page_limit(&value)?,
            "cursor" => cursor = Some(value),
            _ => return Err(unknown_option(&name, "limit, cursor")),
        }
    }
    let mut found = intake.file_namespaces(cursor, limit + 1).await?;
    let more = found.len() > limit;
    found.truncate(limit);
    let last = found.last().filter(|_| more);
    let next_cursor = last.map(|last| last.namespace.as_str().to_owned());
    let namespaces = found.iter().map(FileNamespaceAnswer::of).collect();
    Ok(json(200, to_json(&FileNamespacePage { namespaces, next_cursor })))
}

pub(super) async fn put(
    State(intake): State<Intake>,
    Path(namespace): Path<String>,
    request: Request,
) -> Response {
    match put_namespace(&intake, &namespace).await {
        Ok(response) => response,
        Err(error) => problem::answer(&error, request.headers()),
    }
}

async fn put_namespace(intake: &Intake, namespace: &str) -> Result<Response, IntakeError> {
    let namespace = Namespace::parse(namespace)?;
    let record = intake.namespace_record(&namespace).await?;
    let created = match record {
        Some(_) => false,
        None => intake.set_namespace(&namespace, Attributes::default()).await?,
    };
    let record = intake.namespace_record(&namespace).await?;
    let answer = FileNamespaceAnswer::of(&FileNamespace { namespace, record });
    Ok(json(if created { 201 } else { 200 }, to_json(&answer)))
}

pub(super) async fn delete(
    State(intake): State<Intake>,
    Path(namespace): Path<String>,
    request: Request,
) -> Response {
    match delete_namespace(&intake, &namespace).await {
        Ok(response) => response,
        Err(error) => problem::answer(&error, request.headers()),
    }
}

async fn delete_namespace(intake: &Intake, namespace: &str) -> Result<Response, IntakeError> {
    let namespace = Namespace::parse(namespace)?;
    if !intake.remove_namespace(&namespace).await? {
        return Err(IntakeError::NotFound { what: format!("namespace {namespace}") });
    }
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::NO_CONTENT;
    Ok(response)
}
