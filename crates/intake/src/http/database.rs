//! State of the database that documents are forwarded to: JSON, or text on request.

use axum::body::Body;
use axum::extract::{Request, State};
use axum::response::Response;
use http::HeaderValue;
use http::header::{ACCEPT, CONTENT_TYPE};

use super::{json, problem};
use crate::answer::to_json;
use crate::documents::forward::DatabaseStatus;
use crate::error::IntakeError;
use crate::intake::Intake;

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

/// One line per property.
impl std::fmt::Display for DatabaseStatus {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        writeln!(f, "database   {}", self.database)?;
        writeln!(f, "state      {} since {}", self.state.name(), self.since)?;
        if let Some(reason) = &self.reason {
            writeln!(f, "reason     {reason}")?;
        }
        let (waiting, lag) = (self.documents_waiting, self.lag_seconds);
        writeln!(f, "waiting    {waiting} documents, the oldest for {lag:.1} s")?;
        writeln!(
            f,
            "written    {} documents since the start, {} values did not fit their columns",
            self.documents_written, self.column_conflicts
        )?;
        writeln!(f, "retries    {}", self.retries)?;
        let full = if self.spill_is_full { ", full" } else { "" };
        writeln!(f, "spill      {} of {} bytes{full}", self.spill_bytes, self.spill_bytes_max)?;
        writeln!(f, "log kept   {} of {} bytes", self.log_bytes_kept, self.log_bytes_max)
    }
}
