//! Continuing an upload: where it is, its next bytes, its end.

use axum::body::Body;
use axum::extract::{Path, Request, State};
use axum::response::Response;
use forebay_intake::uploads::{UploadError, UploadId, UploadKind, UploadStatus};
use http::header::CONTENT_LENGTH;
use http::{HeaderMap, HeaderValue, StatusCode};

use super::answers::url_of;
use super::headers::{self, CONCAT, DEFER_LENGTH, FILE, LENGTH, METADATA, OFFSET, bad};
use super::metadata::{attribute, length};
use super::problem::Refused;
use super::reach::Reach;
use super::{Served, complete};
use crate::answer::no_content;
use crate::intake::PacedBody;

/// Reads the id in a path. A text that is no id stands for no upload.
pub(super) fn id_of(text: &str) -> Result<UploadId, Refused> {
    text.parse().map_err(|_| {
        Refused::http(StatusCode::NOT_FOUND, "not_found", "there is no upload of this id")
    })
}

pub(super) async fn head(
    State(served): State<Served>,
    Path(id): Path<String>,
    request: Request,
) -> Response {
    let reach = Reach::of(request.extensions());
    match status_headers(&served, &reach, &id, request.headers()).await {
        Ok(response) => response,
        Err(refused) => refused.answer(request.headers()),
    }
}

async fn status_headers(
    served: &Served,
    reach: &Reach,
    id: &str,
    request: &HeaderMap,
) -> Result<Response, Refused> {
    headers::check_version(request)?;
    let id = id_of(id)?;
    reach.admit(served.intake.uploads(), id).await?;
    let status = served.intake.uploads().settle(id).await?;
    check_kind(&status)?;
    // To the client an upload that has all of its bytes is a success, so it must be one.
    let result = if complete::is_due(&status) {
        Some(served.completions.complete(&served.intake, status.id).await?)
    } else {
        status.result.clone()
    };
    let mut response = Response::default();
    let headers = response.headers_mut();
    let length = length(&status);
    match length {
        Some(length) => headers.insert(LENGTH, length.into()),
        None => headers.insert(DEFER_LENGTH, HeaderValue::from_static("1")),
    };
    if status.new.kind.has_bytes() {
        headers.insert(OFFSET, status.offset.into());
    } else if let Some(length) = length {
        headers.insert(OFFSET, length.into());
    }
    for (name, attribute) in [(METADATA, attribute::METADATA), (CONCAT, attribute::CONCAT)] {
        let value = status.new.attributes.get(attribute).map(HeaderValue::try_from);
        if let Some(Ok(value)) = value {
            headers.insert(name, value);
        }
    }
    finish_headers(headers, &status, result.as_deref());
    Ok(response)
}

/// Adds when an upload expires, or what it became.
pub(super) fn finish_headers(
    headers: &mut HeaderMap,
    status: &UploadStatus,
    result: Option<&[u8]>,
) {
    match result {
        None => headers::expires(headers, status),
        Some(result) => {
            if let Some(Ok(url)) = url_of(result).map(HeaderValue::try_from) {
                headers.insert(FILE, url);
            }
        }
    }
}

/// Checks that an upload is one of this protocol.
fn check_kind(status: &UploadStatus) -> Result<(), Refused> {
    match status.new.kind {
        UploadKind::Resumable | UploadKind::Partial | UploadKind::Final => Ok(()),
        UploadKind::Multipart | UploadKind::Part { .. } => {
            Err(UploadError::NotFound { id: status.id }.into())
        }
    }
}

pub(super) async fn patch(
    State(served): State<Served>,
    Path(id): Path<String>,
    request: Request,
) -> Response {
    let (parts, body) = request.into_parts();
    let reach = Reach::of(&parts.extensions);
    match append(&served, &reach, &id, &parts.headers, body).await {
        Ok(response) => response,
        Err(refused) => refused.answer(&parts.headers),
    }
}

async fn append(
    served: &Served,
    reach: &Reach,
    id: &str,
    request: &HeaderMap,
    body: Body,
) -> Result<Response, Refused> {
    headers::check_version(request)?;
    let id = id_of(id)?;
    headers::check_body(request)?;
    let offset = headers::count(request, &OFFSET)?
        .ok_or_else(|| bad(&OFFSET, "the number of bytes that the upload has"))?;
    let checksum = headers::checksum(request)?;
    let declared = request.get(CONTENT_LENGTH).and_then(|size| size.to_str().ok()?.parse().ok());
    let uploads = served.intake.uploads();
    reach.admit(uploads, id).await?;
    // A request of the same client that is still running is over: it lost its connection.
    let mut status = uploads.settle(id).await?;
    check_kind(&status)?;
    if status.new.kind == UploadKind::Final {
        let text = "a final upload takes no bytes; they are in its partial uploads";
        return Err(Refused::http(StatusCode::FORBIDDEN, "upload_final", text));
    }
    if offset != status.offset {
        return Err(UploadError::Offset { id, expected: status.offset, found: offset }.into());
    }
    if status.result.is_some() && declared != Some(0) {
        return Err(UploadError::Finished { id }.into());
    }
    if status.result.is_none() {
        if let Some(length) = headers::count(request, &LENGTH)? {
            uploads.set_length(id, length).await?;
            status.length = Some(length);
        }
        check_size(status.length, offset, declared)?;
        let mut source = PacedBody::new(body, served.intake.limits());
        uploads.append(id, offset, &mut source, checksum).await?;
        status = uploads.status(id).await?;
    }
    let result = if complete::is_due(&status) {
        Some(served.completions.complete(&served.intake, id).await?)
    } else {
        status.result.clone()
    };
    let mut response = no_content();
    let headers = response.headers_mut();
    headers.insert(OFFSET, status.offset.into());
    finish_headers(headers, &status, result.as_deref());
    Ok(response)
}

/// Refuses a body that is longer than what the upload lacks, before any of it is read.
pub(super) fn check_size(
    length: Option<u64>,
    offset: u64,
    declared: Option<u64>,
) -> Result<(), Refused> {
    match (length, declared) {
        (Some(length), Some(declared)) if declared > length.saturating_sub(offset) => {
            Err(Refused::http(
                StatusCode::PAYLOAD_TOO_LARGE,
                "too_large",
                format!(
                    "the upload has {length} bytes and lacks {}",
                    length.saturating_sub(offset)
                ),
            ))
        }
        _ => Ok(()),
    }
}

pub(super) async fn delete(
    State(served): State<Served>,
    Path(id): Path<String>,
    request: Request,
) -> Response {
    let reach = Reach::of(request.extensions());
    match remove(&served, &reach, &id, request.headers()).await {
        Ok(response) => response,
        Err(refused) => refused.answer(request.headers()),
    }
}

async fn remove(
    served: &Served,
    reach: &Reach,
    id: &str,
    request: &HeaderMap,
) -> Result<Response, Refused> {
    // A program that does not speak the protocol may clear up.
    if request.contains_key(headers::RESUMABLE) {
        headers::check_version(request)?;
    }
    let id = id_of(id)?;
    reach.admit(served.intake.uploads(), id).await?;
    served.intake.uploads().remove(id).await?;
    Ok(no_content())
}
