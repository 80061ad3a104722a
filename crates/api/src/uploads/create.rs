//! Beginning an upload, with or without its first bytes, and putting partial uploads together.

use axum::body::Body;
use axum::extract::{Request, State};
use axum::response::Response;
use forebay_intake::digest::Digest;
use forebay_intake::uploads::{NewUpload, UploadError, UploadId, UploadKind};
use forebay_intake::{Intake, IntakeError};
use http::header::{CONTENT_LENGTH, LOCATION};
use http::request::Parts;
use http::{HeaderMap, StatusCode};

use super::headers::{self, DEFER_LENGTH, LENGTH, OFFSET, bad, one};
use super::metadata::{self, Concat, Described, attribute};
use super::problem::Refused;
use super::reach::Reach;
use super::{PATH, Served, complete, transfer};
use crate::idempotency;
use crate::intake::PacedBody;
use crate::keys::SentBy;

pub(super) async fn create(State(served): State<Served>, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    match begin(&served, &parts, body).await {
        Ok(response) => response,
        Err(refused) => refused.answer(&parts.headers),
    }
}

async fn begin(served: &Served, parts: &Parts, body: Body) -> Result<Response, Refused> {
    let headers = &parts.headers;
    headers::check_version(headers)?;
    let mut described = metadata::read(headers)?;
    let reach = &Reach::of(&parts.extensions);
    reach.begin(&mut described)?;
    if let Some(SentBy(id)) = SentBy::of(&parts.extensions) {
        let id = String::from_utf8_lossy(&id).into_owned();
        described.attributes.insert(metadata::attribute::SENDER.to_owned(), id);
    }
    let is_deferred = match one(headers, &DEFER_LENGTH)? {
        None => false,
        Some("1") => true,
        Some(_) => return Err(bad(&DEFER_LENGTH, "1")),
    };
    let length = headers::count(headers, &LENGTH)?;
    if described.is_new_only
        && let Some(key) = &described.key
        && served.intake.find(key).await?.is_some()
    {
        let message = format!("the file {:?} in namespace {} exists", key.1.as_str(), key.0);
        return Err(IntakeError::Precondition { message }.into());
    }
    match (&described.concat, length, is_deferred) {
        (Concat::Final(_), None, false) if headers.contains_key(idempotency::HEADER) => {
            let text = "a final upload is the same for the same parts: it takes no Idempotency-Key";
            Err(Refused::bad("idempotency_key", text))
        }
        (Concat::Final(_), None, false) => put_together(served, reach, described).await,
        (Concat::None | Concat::Partial, Some(_), false)
        | (Concat::None | Concat::Partial, None, true) => {
            begin_one(served, headers, body, described, length).await
        }
        _ => Err(Refused::bad(
            "upload_length",
            "send either Upload-Length or Upload-Defer-Length: 1; neither with a final upload",
        )),
    }
}

async fn begin_one(
    served: &Served,
    headers: &HeaderMap,
    body: Body,
    described: Described,
    length: Option<u64>,
) -> Result<Response, Refused> {
    let uploads = served.intake.uploads();
    let request = request_of(headers)?;
    let declared = headers.get(CONTENT_LENGTH).and_then(|size| size.to_str().ok()?.parse().ok());
    let has_bytes = headers::has_bytes(headers);
    if has_bytes || declared.is_some_and(|size: u64| size > 0) {
        headers::check_body(headers)?;
        transfer::check_size(length, 0, declared)?;
    }
    if let (Some(key), Some(size)) = (&described.key, length) {
        served.intake.check_quota(key, size).await?;
    }
    let checksum = headers::checksum(headers)?;
    let kind = match described.concat {
        Concat::Partial => UploadKind::Partial,
        _ => UploadKind::Resumable,
    };
    let kept_ms = uploads.limits().kept_ms;
    let new = NewUpload { kind, length, kept_ms, attributes: described.attributes };
    let id = match request {
        None => uploads.create(new).await?,
        Some(request) => uploads.create_once(request, new).await?.ok_or(IntakeError::KeyReused)?,
    };
    // A request that is repeated is continued from where the upload is.
    if has_bytes && (request.is_none() || uploads.status(id).await?.offset == 0) {
        let mut source = PacedBody::new(body, served.intake.limits());
        if let Err(error) = uploads.append(id, 0, &mut source, checksum).await {
            // Unless it can repeat the request, the client was not given the id and cannot continue.
            if request.is_some() {
                return Err(error.into());
            }
            match uploads.remove(id).await {
                Ok(()) | Err(UploadError::NotFound { .. }) => {}
                Err(error) => tracing::warn!(%error, "could not remove an upload"),
            }
            return Err(error.into());
        }
    }
    answer(served, id).await
}

/// Identifies a request that has an `Idempotency-Key`.
fn request_of(headers: &HeaderMap) -> Result<Option<Digest>, Refused> {
    let refused = |text: &str| Refused::bad("idempotency_key", text);
    let Some(key) = idempotency::key(headers).map_err(refused)? else { return Ok(None) };
    if !idempotency::is_valid(key.as_bytes()) {
        return Err(refused(idempotency::INVALID));
    }
    Ok(Some(Digest::of_parts(&[b"begin an upload", key.as_bytes()])))
}

/// Makes a file of partial uploads. A repeated request has the same id, and so the same result.
async fn put_together(
    served: &Served,
    reach: &Reach,
    described: Described,
) -> Result<Response, Refused> {
    let Described { mut attributes, concat: Concat::Final(ids), .. } = described else {
        return Err(bad(&super::headers::CONCAT, "final; and URLs"));
    };
    let uploads = served.intake.uploads();
    let id = final_id(&ids, &attributes);
    let is_known = match uploads.status(id).await {
        Ok(_) => true,
        Err(UploadError::NotFound { .. }) => false,
        Err(error) => return Err(error.into()),
    };
    if !is_known {
        let size = size_of(&served.intake, reach, &ids).await?;
        let ids: Vec<_> = ids.iter().map(UploadId::to_string).collect();
        attributes.insert(attribute::PARTS.to_owned(), ids.join(" "));
        attributes.insert(attribute::SIZE.to_owned(), size.to_string());
        let kept_ms = uploads.limits().kept_ms;
        let new = NewUpload { kind: UploadKind::Final, length: None, kept_ms, attributes };
        uploads.create_as(id, new).await?;
    }
    answer(served, id).await
}

/// The id of a final upload: the same for the same parts and description.
fn final_id(ids: &[UploadId], attributes: &std::collections::BTreeMap<String, String>) -> UploadId {
    let mut texts: Vec<&[u8]> = vec![b"final upload"];
    let described = attributes.iter().filter(|(name, _)| *name != attribute::CONCAT);
    texts.extend(described.flat_map(|(name, value)| [name.as_bytes(), value.as_bytes()]));
    texts.extend(ids.iter().map(|id| &id.0[..]));
    let digest = Digest::of_parts(&texts);
    let mut id = UploadId::default();
    id.0.iter_mut().zip(digest.0).for_each(|(to, from)| *to = from);
    id
}

/// Checks that uploads can be put together, and returns the number of their bytes.
async fn size_of(intake: &Intake, reach: &Reach, ids: &[UploadId]) -> Result<u64, Refused> {
    let limit = intake.limits().file_size_max;
    let mut size: u64 = 0;
    for &id in ids {
        reach.admit(intake.uploads(), id).await?;
        let status = intake.uploads().settle(id).await?;
        if status.new.kind != UploadKind::Partial {
            return Err(Refused::bad("upload_concat", format!("upload {id} is not a partial one")));
        }
        if !status.is_complete() {
            return Err(UploadError::Incomplete { id, offset: status.offset }.into());
        }
        size = size.saturating_add(status.offset);
    }
    if size > limit { Err(UploadError::TooLarge { limit }.into()) } else { Ok(size) }
}

async fn answer(served: &Served, id: UploadId) -> Result<Response, Refused> {
    let status = served.intake.uploads().status(id).await?;
    let result = match complete::is_due(&status) {
        true => Some(served.completions.complete(&served.intake, id).await?),
        false => status.result.clone(),
    };
    let mut response = Response::default();
    *response.status_mut() = StatusCode::CREATED;
    let headers = response.headers_mut();
    if let Ok(location) = format!("{PATH}/{id}").try_into() {
        headers.insert(LOCATION, location);
    }
    if status.new.kind.has_bytes() {
        headers.insert(OFFSET, status.offset.into());
    }
    transfer::finish_headers(headers, &status, result.as_deref());
    Ok(response)
}
