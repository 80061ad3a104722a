//! Resumable uploads over HTTP: tus 1.0 (<https://tus.io/protocols/resumable-upload>).
//!
//! ```text
//! POST /v1/uploads            begins one, or puts partial ones together
//! HEAD /v1/uploads/{id}       how far it is       PATCH   appends       DELETE  removes it
//! GET  /v1/uploads, /v1/uploads/{id}              the same as JSON
//! ```
//!
//! Extensions: creation, creation-with-upload, creation-defer-length, termination, checksum, expiration,
//! concatenation. The bytes are kept by `forebay_intake::uploads`; a complete upload becomes a file as by
//! `PUT /v1/files`.
//!
//! Invariants: an offset is answered only once it is durable; an upload is answered as complete only once
//! its file is stored; 404 and 410 mean that the upload is really gone, since clients then start over.

mod answers;
mod complete;
mod create;
mod headers;
mod metadata;
mod openapi;
mod problem;
mod reach;
mod read;
mod transfer;

use axum::Router;
use axum::extract::{Path, Request, State};
use axum::response::Response;
use axum::routing::get;
use forebay_intake::Intake;
use http::header::ALLOW;
use http::{HeaderMap, HeaderValue, Method, StatusCode};

use crate::answer::no_content;
use problem::Refused;

pub use complete::{Completions, resume};
pub(crate) use problem::classify;

/// Path of the collection.
pub(crate) const PATH: &str = "/v1/uploads";

/// State of every handler.
#[derive(Clone)]
struct Served {
    intake: Intake,
    completions: Completions,
}

/// Returns the routes, with full paths, ready to serve.
pub fn router(intake: &Intake, completions: &Completions) -> Router {
    let served = Served { intake: intake.clone(), completions: completions.clone() };
    Router::new()
        .route(
            "/v1/uploads/{id}",
            get(read::show)
                .head(transfer::head)
                .patch(transfer::patch)
                .delete(transfer::delete)
                .post(overridden)
                .options(options),
        )
        .route_layer(axum::middleware::from_fn(crate::idempotency::refuse))
        .route(PATH, get(read::list).post(create::create).options(options))
        .layer(axum::middleware::map_response(headers::mark))
        .with_state(served)
}

/// Returns the description of the routes.
#[must_use]
pub fn openapi() -> utoipa::openapi::OpenApi {
    openapi::document()
}

/// Answers what this server supports.
async fn options(State(served): State<Served>) -> Response {
    let mut response = no_content();
    headers::describe(response.headers_mut(), served.intake.limits().file_size_max);
    response
}

/// A request of a client that can only send POST (`X-HTTP-Method-Override`).
async fn overridden(served: State<Served>, id: Path<String>, request: Request) -> Response {
    match overriding(request.headers()) {
        Some(Method::PATCH) => transfer::patch(served, id, request).await,
        Some(Method::DELETE) => transfer::delete(served, id, request).await,
        Some(Method::HEAD) => transfer::head(served, id, request).await,
        _ => {
            let text = "POST to an upload takes X-HTTP-Method-Override: PATCH, DELETE or HEAD";
            let refused = Refused::http(StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed", text);
            let mut response = refused.answer(request.headers());
            let allowed = HeaderValue::from_static("GET, HEAD, PATCH, DELETE, OPTIONS");
            response.headers_mut().insert(ALLOW, allowed);
            response
        }
    }
}

/// The method that a POST stands for, if it stands for another that an upload has.
pub(crate) fn overriding(headers: &HeaderMap) -> Option<Method> {
    let value = headers.get("x-http-method-override")?.as_bytes();
    [Method::PATCH, Method::DELETE, Method::HEAD]
        .into_iter()
        .find(|method| value.eq_ignore_ascii_case(method.as_str().as_bytes()))
}
