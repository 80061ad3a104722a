//! Namespaces of files: listed, made to exist without files, and removed.

use std::collections::BTreeMap;

use axum::body::Body;
use axum::extract::{Path, Request, State};
use axum::response::Response;
use forebay_intake::answer::{time_text, to_json};
use forebay_intake::catalogue::{NamespaceRecord, Versioning};
use forebay_intake::names::Namespace;
use forebay_intake::{FileNamespace, Intake, IntakeError};
use http::Uri;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{json, json_body, page_limit, problem, query, unknown_option};
use crate::answer::no_content;

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
    /// Whether what its names referred to is kept as versions.
    versions: bool,
    /// When it was made to exist without files, RFC 3339; absent if it was not.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    created: Option<String>,
}

/// Settings of a namespace of files. What is absent stays as it is.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct NamespaceSettings {
    /// Whether what its names refer to is kept as versions when it is replaced or deleted.
    #[serde(default)]
    versions: Option<bool>,
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
        let versions =
            found.record.as_ref().is_some_and(|record| record.versioning() == Versioning::On);
        Self { namespace, explicit: created.is_some(), versions, created }
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

/// A namespace of files and what it holds.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct FileNamespaceSums {
    /// The namespace.
    #[serde(flatten)]
    namespace: FileNamespaceAnswer,
    /// Number of files.
    files: u64,
    /// Bytes of all files.
    bytes: u64,
    /// Bytes of different contents: each is counted once.
    different_bytes: u64,
    /// Files by category.
    categories: BTreeMap<&'static str, CategorySums>,
    /// When the oldest name was given, RFC 3339; null without files.
    #[schema(required)]
    oldest: Option<String>,
    /// When the newest name was given, RFC 3339; null without files.
    #[schema(required)]
    newest: Option<String>,
}

/// Files of one category.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct CategorySums {
    /// Number of files.
    files: u64,
    /// Their bytes.
    bytes: u64,
}

pub(super) async fn get(
    State(intake): State<Intake>,
    Path(namespace): Path<String>,
    request: Request,
) -> Response {
    match get_namespace(&intake, &namespace).await {
        Ok(response) => response,
        Err(error) => problem::answer(&error, request.headers()),
    }
}

async fn get_namespace(intake: &Intake, namespace: &str) -> Result<Response, IntakeError> {
    let namespace = Namespace::parse(namespace)?;
    let record = intake.namespace_record(&namespace).await?;
    let sums = intake.namespace_sums(&namespace).await?;
    if record.is_none() && sums.files == 0 {
        return Err(missing(&namespace));
    }
    let categories = sums.categories.into_iter();
    let answer = FileNamespaceSums {
        namespace: FileNamespaceAnswer::of(&FileNamespace { namespace, record }),
        files: sums.files,
        bytes: sums.bytes,
        different_bytes: sums.different_bytes,
        categories: categories
            .map(|(category, (files, bytes))| (category, CategorySums { files, bytes }))
            .collect(),
        oldest: sums.oldest_ms.map(time_text),
        newest: sums.newest_ms.map(time_text),
    };
    Ok(json(200, to_json(&answer)))
}

fn missing(namespace: &Namespace) -> IntakeError {
    IntakeError::NotFound { what: format!("namespace {namespace}") }
}

pub(super) async fn put(
    State(intake): State<Intake>,
    Path(namespace): Path<String>,
    request: Request,
) -> Response {
    let (parts, body) = request.into_parts();
    match put_namespace(&intake, &namespace, body).await {
        Ok(response) => response,
        Err(error) => problem::answer(&error, &parts.headers),
    }
}

async fn put_namespace(
    intake: &Intake,
    namespace: &str,
    body: Body,
) -> Result<Response, IntakeError> {
    let namespace = Namespace::parse(namespace)?;
    let settings: NamespaceSettings = json_body::read_optional(body, intake.limits()).await?;
    let change = |attributes, _| match settings.versions {
        Some(true) => Ok(NamespaceRecord::with_versioning(attributes, Versioning::On)?),
        Some(false) => Ok(NamespaceRecord::with_versioning(attributes, Versioning::Off)?),
        None => Ok(attributes),
    };
    let created = intake.change_namespace(&namespace, change).await?;
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
        return Err(missing(&namespace));
    }
    Ok(no_content())
}
