//! The columns of documents over HTTP: read with how they changed, and decided again.

use axum::extract::{Path, Request, State};
use axum::response::Response;
use forebay_intake::answer::to_json;
use forebay_intake::documents::decide::Wish;
use forebay_intake::documents::history::SchemaHistoryAnswer;
use forebay_intake::documents::redecide::{RedecideOptions, SchemaAnswer};
use forebay_intake::names::Namespace;
use forebay_intake::{Intake, IntakeError};
use http::Uri;
use http::request::Parts;

use super::openapi::{BUSY, FULL, STORAGE, TARGETS};
use super::{bad_option, flag, json, problem, query, unknown_option};
use crate::answer::{PAGE, html, varied, wants_page};
use crate::describe::{self, Kind, Operation, path, query as parameter};
use crate::pages::schema_page;

pub(super) async fn get(
    State(intake): State<Intake>,
    Path(namespace): Path<String>,
    request: Request,
) -> Response {
    let (parts, _) = request.into_parts();
    match history(&intake, &namespace, &parts).await {
        Ok(response) => varied(response),
        Err(error) => problem::answer(&error, &parts.headers),
    }
}

async fn history(intake: &Intake, namespace: &str, parts: &Parts) -> Result<Response, IntakeError> {
    let namespace = Namespace::parse(namespace)?;
    if let Some((name, _)) = query(&parts.uri).first() {
        return Err(unknown_option(name, "none"));
    }
    let found = intake.schema_history(&namespace).await?;
    let missing = || IntakeError::NotFound { what: format!("document namespace {namespace}") };
    let found = found.ok_or_else(missing)?;
    if wants_page(&parts.headers) {
        return Ok(html(schema_page(&found), PAGE));
    }
    Ok(json(200, to_json(&found)))
}

pub(super) async fn decide(
    State(intake): State<Intake>,
    Path(namespace): Path<String>,
    request: Request,
) -> Response {
    match decide_again(&intake, &namespace, request.uri()).await {
        Ok(response) => response,
        Err(error) => problem::answer(&error, request.headers()),
    }
}

async fn decide_again(
    intake: &Intake,
    namespace: &str,
    uri: &Uri,
) -> Result<Response, IntakeError> {
    let namespace = Namespace::parse(namespace)?;
    let mut options = RedecideOptions::default();
    for (name, value) in query(uri) {
        match name.as_str() {
            "dry_run" => options.dry_run = flag(&name, &value)?,
            "target" => {
                options.wish = Wish::parse(&value)
                    .ok_or_else(|| bad_option(&name, "auto, table or collection"))?;
            }
            _ => return Err(unknown_option(&name, "dry_run, target")),
        }
    }
    let answer = intake.decide_again(&namespace, options).await?;
    Ok(json(200, to_json(&answer)))
}

pub(super) fn described_get() -> Operation {
    Operation::new(
        "documents",
        "get_document_schema",
        "Get the columns of a namespace, and how they became what they are",
    )
    .text(
        "Each change has the time and the newest document before it. The newest 1,000 changes of single \
         columns are kept, until the namespace is dropped.",
    )
    .parameter(path("namespace", "The namespace"))
    .json::<SchemaHistoryAnswer>(200, "The columns and their changes, oldest first")
    .or_words(200, describe::PAGE)
    .problems(&[
        (400, "The name is invalid"),
        (404, "There is no such namespace"),
        STORAGE,
    ])
}

pub(super) fn described_decide() -> Operation {
    Operation::new(
        "documents",
        "decide_document_schema",
        "Decide again between table and collection, and on the columns",
    )
    .text(
        "The decision is made from all documents of the namespace. Their values are then derived \
         for the columns again, which takes time in proportion to their number.",
    )
    .parameters([
        path("namespace", "The namespace"),
        parameter("dry_run", Kind::Flag, "Only report the decision and its reasons"),
        parameter(
            "target",
            Kind::Word(&TARGETS),
            "Where the documents are to be stored; the default is auto",
        ),
    ])
    .json::<SchemaAnswer>(200, "The decision, its reasons, and the columns")
    .problems(&[
        (400, "A parameter is invalid"),
        (404, "There is no such namespace"),
        (409, "The documents cannot be stored in the target"),
        BUSY,
        STORAGE,
        FULL,
    ])
}
