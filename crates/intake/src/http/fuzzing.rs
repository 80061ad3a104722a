//! Doors for the fuzz targets into what is otherwise private. Not part of the public interface.

use axum::body::Body;
use bytes::Bytes;
use futures_util::FutureExt as _;
use http::{HeaderMap, HeaderValue, header::CONTENT_TYPE};

use super::body::PacedBody;
use super::parts::{self, Part};
use super::upload::Source as _;
use crate::error::IntakeError;
use crate::options::IntakeLimits;

/// A part of a multipart body: its name, its file name, its bytes.
pub type WholePart = (Option<String>, Option<String>, Vec<u8>);

/// Reads a multipart body that comes in these pieces, as the batch route does.
///
/// Returns the parts that came whole, and what ended the reading where that was not the body's end;
/// `None` when it waits for something, which it never may.
pub fn multipart(
    content_type: &str,
    pieces: Vec<Vec<u8>>,
) -> Option<(Vec<WholePart>, Result<(), IntakeError>)> {
    let mut headers = HeaderMap::new();
    if let Ok(value) = HeaderValue::from_str(content_type) {
        headers.insert(CONTENT_TYPE, value);
    }
    let pieces = pieces.into_iter().map(|piece| Ok::<_, std::io::Error>(Bytes::from(piece)));
    let body = Body::from_stream(futures_util::stream::iter(pieces));
    let body = PacedBody::new(body, &IntakeLimits::default());
    let mut whole = Vec::new();
    let ended = read(&headers, body, &mut whole).now_or_never()?;
    Some((whole, ended))
}

async fn read(
    headers: &HeaderMap,
    body: PacedBody,
    whole: &mut Vec<WholePart>,
) -> Result<(), IntakeError> {
    let mut multipart = parts::open(headers, body)?;
    while let Some(field) = multipart.next_field().await.map_err(parts::failed)? {
        let mut part = Part::new(field, true);
        let mut bytes = Vec::new();
        while let Some(more) = part.next().await? {
            bytes.extend_from_slice(&more);
        }
        let own = |text: Option<&str>| text.map(str::to_owned);
        whole.push((own(part.name()), own(part.file_name()), bytes));
    }
    Ok(())
}
