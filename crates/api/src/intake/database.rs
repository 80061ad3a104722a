//! State of the database that documents are forwarded to: JSON, or text on request; and another
//! attempt to write what it refused.

use axum::body::Body;
use axum::extract::{Request, State};
use axum::response::Response;
use forebay_intake::answer::to_json;
use forebay_intake::names::Namespace;
use forebay_intake::{DatabaseStatus, Intake, IntakeError};
use http::header::{ACCEPT, CONTENT_TYPE};
use http::{HeaderValue, Uri};

use super::{json, problem, query, unknown_option};

pub(super) async fn replay(State(intake): State<Intake>, request: Request) -> Response {
    match ask_for_replay(&intake, request.uri()) {
        Ok(status) => json(202, to_json(&status)),
        Err(error) => problem::answer(&error, request.headers()),
    }
}

fn ask_for_replay(intake: &Intake, uri: &Uri) -> Result<DatabaseStatus, IntakeError> {
    let mut namespace = None;
    for (name, value) in query(uri) {
        match name.as_str() {
            "namespace" => namespace = Some(Namespace::parse(&value)?),
            _ => return Err(unknown_option(&name, "namespace")),
        }
    }
    intake.replay_database(namespace.as_ref())
}

pub(super) async fn status(State(intake): State<Intake>, request: Request) -> Response {
    let Some(status) = intake.database() else {
        let what = "database that documents are forwarded to; set intake.database.url".to_owned();
        return problem::answer(&IntakeError::NotFound { what }, request.headers());
    };
    let accept = request.headers().get(ACCEPT).and_then(|accept| accept.to_str().ok());
    if accept.is_some_and(|accept| accept.starts_with("text/plain")) {
        let mut response = Response::new(Body::from(status.to_string()));
        let kind = HeaderValue::from_static("text/plain; charset=utf-8");
        response.headers_mut().insert(CONTENT_TYPE, kind);
        return response;
    }
    json(200, to_json(&status))
}
