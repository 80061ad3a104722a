//! Uploads as JSON, for people and programs that do not speak tus.

use axum::extract::{Path, Request, State};
use axum::response::Response;
use forebay_intake::uploads::UploadId;
use http::{StatusCode, Uri};

use super::Served;
use super::answers::{UploadAnswer, UploadPage};
use super::problem::Refused;
use super::reach::Reach;
use super::transfer::id_of;
use crate::answer::{json, pairs};

/// Uploads on a page by default.
const PAGE: usize = 100;
/// Uploads on a page at most.
const PAGE_MAX: usize = 1_000;

pub(super) async fn list(State(served): State<Served>, request: Request) -> Response {
    match page(&served, request.uri()).await {
        Ok(response) => response,
        Err(refused) => refused.answer(request.headers()),
    }
}

async fn page(served: &Served, uri: &Uri) -> Result<Response, Refused> {
    let bad = |name: &str, expected: &str| {
        Refused::bad("query", format!("query parameter {name:?} must be {expected}"))
    };
    let (mut after, mut limit) = (None, PAGE);
    for (name, value) in pairs(uri) {
        let value = String::from_utf8_lossy(&value).into_owned();
        match name.as_str() {
            "limit" => match value.parse() {
                Ok(given @ 1..=PAGE_MAX) => limit = given,
                _ => return Err(bad("limit", "a number from 1 to 1000")),
            },
            "cursor" => {
                let id = value.parse::<UploadId>();
                after = Some(id.map_err(|_| bad("cursor", "the next_cursor of an earlier page"))?);
            }
            _ => {
                let name: String = name.chars().take(60).collect();
                let text =
                    format!("unknown query parameter {name:?}; this route accepts limit, cursor");
                return Err(Refused::bad("query", text));
            }
        }
    }
    let page = served.intake.uploads().list(after, limit).await?;
    // A page that lacks some may have left out damaged ones.
    let next = served.intake.uploads().next_after(after, limit);
    let uploads = page.iter().map(UploadAnswer::of).collect();
    let next_cursor = next.map(|id| id.to_string());
    Ok(json(StatusCode::OK, &UploadPage { uploads, next_cursor }))
}

pub(super) async fn show(
    State(served): State<Served>,
    Path(id): Path<String>,
    request: Request,
) -> Response {
    let reach = Reach::of(request.extensions());
    let shown = async {
        let status = served.intake.uploads().status(id_of(&id)?).await?;
        reach.find(&status)?;
        Ok::<_, Refused>(json(StatusCode::OK, &UploadAnswer::of(&status)))
    };
    match shown.await {
        Ok(response) => response,
        Err(refused) => refused.answer(request.headers()),
    }
}
