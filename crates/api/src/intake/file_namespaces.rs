//! Namespaces of files: listed, made to exist without files, and removed.

use std::collections::BTreeMap;

use axum::body::Body;
use axum::extract::{Path, Request, State};
use axum::response::Response;
use forebay_intake::answer::{time_text, to_json};
use forebay_intake::attributes::{AttributeKind, Attributes};
use forebay_intake::catalogue::{FileFilter, NamespaceRecord, Versioning};
use forebay_intake::names::Namespace;
use forebay_intake::{FileNamespace, Intake, IntakeError};
use http::request::Parts;
use http::{Extensions, Uri};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::details::{self, AttributePatch, given};
use super::statistics::Sums;
use super::{json, json_body, page_limit, problem, query, unknown_option};
use crate::answer::no_content;
use crate::keys::Grant;
use crate::problem::Problem;

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
    /// What it may hold at most, and what it holds; absent without a quota.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    quota: Option<QuotaAnswer>,
    /// Its tags; absent without any.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    tags: BTreeMap<String, String>,
    /// When it was made to exist without files, RFC 3339; absent if it was not.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    created: Option<String>,
}

/// The quota of a namespace of files.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Quota)]
struct QuotaAnswer {
    /// Maximum number of files; null without one.
    #[schema(required)]
    files: Option<u64>,
    /// Maximum number of bytes of files and versions; null without one.
    #[schema(required)]
    bytes: Option<u64>,
    /// Number of files.
    used_files: u64,
    /// Bytes of files and versions.
    used_bytes: u64,
}

/// Settings of a namespace of files. What is absent stays as it is.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct NamespaceSettings {
    /// Whether what its names refer to is kept as versions when it is replaced or deleted.
    #[serde(default)]
    versions: Option<bool>,
    /// Tags by name; null removes one tag, or all.
    #[serde(default, deserialize_with = "given")]
    #[schema(value_type = Option<BTreeMap<String, Option<String>>>)]
    tags: AttributePatch,
    /// Maximum number of files; null removes the limit.
    #[serde(default, deserialize_with = "given")]
    #[schema(value_type = Option<u64>)]
    quota_files: Option<Option<u64>>,
    /// Maximum number of bytes of files and versions; null removes the limit.
    #[serde(default, deserialize_with = "given")]
    #[schema(value_type = Option<u64>)]
    quota_bytes: Option<Option<u64>>,
}

impl NamespaceSettings {
    /// The attributes that a namespace with these has then.
    fn apply(&self, mut attributes: Attributes) -> Result<Attributes, IntakeError> {
        if let Some(versions) = self.versions {
            let versioning = if versions { Versioning::On } else { Versioning::Off };
            attributes = NamespaceRecord::with_versioning(attributes, versioning)?;
        }
        details::apply(&self.tags, AttributeKind::Tag, &mut attributes)?;
        let mut quota = NamespaceRecord::quota_of(&attributes);
        quota.files = self.quota_files.unwrap_or(quota.files);
        quota.bytes = self.quota_bytes.unwrap_or(quota.bytes);
        Ok(NamespaceRecord::with_quota(attributes, quota)?)
    }

    /// Whether it sets or removes a quota.
    fn changes_quota(&self) -> bool {
        self.quota_files.is_some() || self.quota_bytes.is_some()
    }

    /// Whether it sets a quota.
    fn limits(&self) -> bool {
        self.quota_files.flatten().is_some() || self.quota_bytes.flatten().is_some()
    }
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
    fn of(intake: &Intake, found: &FileNamespace) -> Self {
        let created = found.record.as_ref().map(|record| time_text(record.created_ms));
        let namespace = found.namespace.as_str().to_owned();
        let versions =
            found.record.as_ref().is_some_and(|record| record.versioning() == Versioning::On);
        let quota =
            found.record.as_ref().map(NamespaceRecord::quota).filter(|quota| !quota.is_none());
        let quota = quota.map(|quota| {
            let used = intake.quota_usage(&found.namespace).unwrap_or_default();
            let (files, bytes) = (quota.files, quota.bytes);
            QuotaAnswer { files, bytes, used_files: used.files, used_bytes: used.bytes }
        });
        let attributes = found.record.as_ref().map(|record| record.attributes.clone());
        let tags = attributes.unwrap_or_default();
        let tags = tags.of(AttributeKind::Tag).map(|(name, value)| (name.into(), value.into()));
        let tags = tags.collect();
        Self { namespace, explicit: created.is_some(), versions, quota, tags, created }
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
    let namespaces = found.iter().map(|found| FileNamespaceAnswer::of(intake, found)).collect();
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
    categories: BTreeMap<&'static str, Sums>,
    /// When the oldest name was given, RFC 3339; null without files.
    #[schema(required)]
    oldest: Option<String>,
    /// When the newest name was given, RFC 3339; null without files.
    #[schema(required)]
    newest: Option<String>,
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
    let filter = FileFilter { namespace: Some(namespace.clone()), ..FileFilter::default() };
    let sums = intake.statistics(filter).await?;
    if record.is_none() && sums.all.files == 0 {
        return Err(missing(&namespace));
    }
    let categories = sums.categories.into_iter();
    let answer = FileNamespaceSums {
        namespace: FileNamespaceAnswer::of(intake, &FileNamespace { namespace, record }),
        files: sums.all.files,
        bytes: sums.all.bytes,
        different_bytes: sums.different.bytes,
        categories: categories.map(|(category, sums)| (category, Sums::of(sums))).collect(),
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
    match put_namespace(&intake, &namespace, &parts, body).await {
        Ok(Some(response)) => response,
        Ok(None) => Problem::KEY_LIMIT.answer(&parts.headers),
        Err(error) => problem::answer(&error, &parts.headers),
    }
}

/// Returns whether the key of a request is limited to some namespaces: it may not lift the quota of one.
fn is_limited(extensions: &Extensions) -> bool {
    extensions.get::<Grant>().is_some_and(Grant::is_limited)
}

/// Returns `None` if the key may not change the quota.
async fn put_namespace(
    intake: &Intake,
    namespace: &str,
    parts: &Parts,
    body: Body,
) -> Result<Option<Response>, IntakeError> {
    let namespace = Namespace::parse(namespace)?;
    let settings: NamespaceSettings =
        json_body::read_optional(body, &parts.headers, intake.limits()).await?;
    if is_limited(&parts.extensions) && settings.changes_quota() {
        return Ok(None);
    }
    let change = |attributes, _| settings.apply(attributes);
    let created = if settings.limits() {
        intake.limit_namespace(&namespace, change).await?
    } else {
        intake.change_namespace(&namespace, change).await?
    };
    let record = intake.namespace_record(&namespace).await?;
    let answer = FileNamespaceAnswer::of(intake, &FileNamespace { namespace, record });
    Ok(Some(json(if created { 201 } else { 200 }, to_json(&answer))))
}

pub(super) async fn delete(
    State(intake): State<Intake>,
    Path(namespace): Path<String>,
    request: Request,
) -> Response {
    match delete_namespace(&intake, &namespace, is_limited(request.extensions())).await {
        Ok(Some(response)) => response,
        Ok(None) => Problem::KEY_LIMIT.answer(request.headers()),
        Err(error) => problem::answer(&error, request.headers()),
    }
}

/// Returns `None` if the key may not remove the quota with the namespace.
async fn delete_namespace(
    intake: &Intake,
    namespace: &str,
    is_limited: bool,
) -> Result<Option<Response>, IntakeError> {
    let namespace = Namespace::parse(namespace)?;
    if is_limited && intake.has_quota(&namespace) {
        return Ok(None);
    }
    if !intake.remove_namespace(&namespace).await? {
        return Err(missing(&namespace));
    }
    Ok(Some(no_content()))
}
