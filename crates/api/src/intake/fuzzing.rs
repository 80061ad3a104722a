//! Access for the fuzz targets to private functions. Not part of the public interface.

use axum::body::Body;
use bytes::Bytes;
use forebay_intake::IntakeError;
use forebay_intake::options::IntakeLimits;
use forebay_intake::upload::Source as _;
use futures_util::FutureExt as _;
use http::{HeaderMap, HeaderValue, header::CONTENT_TYPE};

use super::body::PacedBody;
use super::content::Content;
use super::parts::{self, Part};
use super::range::{self, Ranges};

/// A part of a multipart body: its name, its file name, its bytes.
pub type WholePart = (Option<String>, Option<String>, Vec<u8>);

/// Reads a multipart body that arrives in these pieces, as the batch route does.
///
/// Returns the complete parts, and what ended the reading if that was not the body's end; `None` if
/// the reading waits, which it never should.
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
    let body = Content::new(&headers, body).ok()?;
    let mut whole = Vec::new();
    let ended = read(&headers, body, &mut whole).now_or_never()?;
    Some((whole, ended))
}

async fn read(
    headers: &HeaderMap,
    body: Content<PacedBody>,
    whole: &mut Vec<WholePart>,
) -> Result<(), IntakeError> {
    let mut multipart = parts::open(headers, body)?;
    while let Some(field) = multipart.next_field().await.map_err(parts::failed)? {
        let mut part = Part::new(field, true)?;
        let mut bytes = Vec::new();
        while let Some(more) = part.next().await? {
            bytes.extend_from_slice(&more);
        }
        let own = |text: Option<&str>| text.map(str::to_owned);
        whole.push((own(part.name()), own(part.file_name()), bytes));
    }
    Ok(())
}

/// Parses any text as a `Range` header, for a file of any size.
///
/// # Panics
/// If a part is empty or lies outside the file, or the parts exceed the file: a bug.
pub fn ranges(header: &str, size: u64) {
    let Ranges::Parts(parts) = range::parse(header, size) else { return };
    assert!(!parts.is_empty(), "nothing is not a part");
    assert!(parts.iter().all(|part| part.start < part.end && part.end <= size), "{parts:?}");
    let total: u128 = parts.iter().map(|part| u128::from(part.end - part.start)).sum();
    assert!(parts.len() == 1 || total <= u128::from(size), "{parts:?} of {size}");
}

/// Parses any text as the path and query of a request.
///
/// # Panics
/// If a parameter is longer than the text it was read from: a bug.
pub fn query(target: &str) {
    let Ok(uri) = target.parse::<http::Uri>() else { return };
    let read = super::query(&uri);
    let bytes: usize = read.iter().map(|(name, value)| name.len() + value.len()).sum();
    // An invalid byte becomes U+FFFD, which takes three.
    assert!(bytes <= 3 * target.len(), "{read:?}");
}
