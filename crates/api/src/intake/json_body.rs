//! A small JSON body, read as a whole.
//!
//! Invariants: it is read at the sender's pace like every other body, decoded and compared with its digests, and
//! has at most [`SIZE_MAX`] bytes; an unknown or misplaced field is an error that names it.

use axum::body::Body;
use forebay_intake::IntakeError;
use forebay_intake::options::IntakeLimits;
use forebay_intake::upload::Source as _;
use http::HeaderMap;
use serde::de::DeserializeOwned;

use super::body::PacedBody;
use super::content::Content;

/// Maximum number of bytes of a request's JSON.
const SIZE_MAX: usize = 1 << 20;

/// Reads and parses a body that may be empty.
///
/// # Errors
/// Those of [`bytes()`] and [`parse`].
pub(super) async fn read_optional<T: DeserializeOwned + Default>(
    body: Body,
    headers: &HeaderMap,
    limits: &IntakeLimits,
) -> Result<T, IntakeError> {
    match bytes(body, headers, limits).await? {
        json if json.trim_ascii().is_empty() => Ok(T::default()),
        json => parse(&json),
    }
}

/// Reads a body.
///
/// # Errors
/// [`IntakeError::TooLarge`]; [`IntakeError::Body`]; those of [`Content`].
pub(super) async fn bytes(
    body: Body,
    headers: &HeaderMap,
    limits: &IntakeLimits,
) -> Result<Vec<u8>, IntakeError> {
    let mut body = Content::new(headers, PacedBody::new(body, limits))?;
    let mut json = Vec::new();
    while let Some(bytes) = body.next().await? {
        if json.len() + bytes.len() > SIZE_MAX {
            let limit = SIZE_MAX as u64;
            return Err(IntakeError::TooLarge { what: "the body", limit });
        }
        json.extend_from_slice(&bytes);
    }
    Ok(json)
}

/// Parses a body.
///
/// # Errors
/// [`IntakeError::Rejected`] with the code `json`: it is not what the route takes.
pub(super) fn parse<T: DeserializeOwned>(json: &[u8]) -> Result<T, IntakeError> {
    // An array would be taken for the members of a structure in their order.
    if json.trim_ascii_start().first() != Some(&b'{') {
        return Err(IntakeError::rejected("json", "the body must be a JSON object"));
    }
    serde_json::from_slice(json)
        .map_err(|error| IntakeError::rejected("json", format!("the body: {error}")))
}
