//! Where the bytes of files are, and moving them to the place that is configured.

use axum::extract::State;
use axum::response::Response;
use forebay_intake::answer::to_json;
use forebay_intake::{BlobsStatus, Intake, IntakeError};
use http::{HeaderMap, Uri};

use super::openapi::STORAGE;
use super::{json, problem, query, unknown_option};
use crate::describe::Operation;

pub(super) async fn status(State(intake): State<Intake>, headers: HeaderMap) -> Response {
    match intake.blobs().await {
        Ok(status) => json(200, to_json(&status)),
        Err(error) => problem::answer(&error, &headers),
    }
}

pub(super) async fn begin_move(
    State(intake): State<Intake>,
    uri: Uri,
    headers: HeaderMap,
) -> Response {
    match begun(&intake, &uri).await {
        Ok(status) => json(202, to_json(&status)),
        Err(error) => problem::answer(&error, &headers),
    }
}

async fn begun(intake: &Intake, uri: &Uri) -> Result<BlobsStatus, IntakeError> {
    if let Some((name, _)) = query(uri).into_iter().next() {
        return Err(unknown_option(&name, "none"));
    }
    intake.start_moving_blobs()?;
    intake.blobs().await
}

pub(super) fn described() -> Operation {
    let summary = "Report where the bytes of files are, and the move that is in progress";
    Operation::new("files", "get_blobs", summary)
        .json::<BlobsStatus>(200, "The places, and the newest move")
        .problems(&[STORAGE])
}

pub(super) fn described_move() -> Operation {
    let summary = "Move the bytes of files to the place that is configured, while files are used";
    Operation::new("files", "move_blobs", summary)
        .json::<BlobsStatus>(202, "They are being moved, or were already")
        .problems(&[(400, "A parameter is invalid"), (409, "There is only one place"), STORAGE])
}
