//! The headers of tus 1.0, read and written.

use axum::response::Response;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use forebay_intake::uploads::{Checksum, ChecksumKind, UploadStatus};
use http::header::{CACHE_CONTROL, CONTENT_ENCODING, CONTENT_TYPE};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};

use super::problem::Refused;

pub(super) const VERSION: HeaderValue = HeaderValue::from_static("1.0.0");
pub(super) const RESUMABLE: HeaderName = HeaderName::from_static("tus-resumable");
pub(super) const OFFSET: HeaderName = HeaderName::from_static("upload-offset");
pub(super) const LENGTH: HeaderName = HeaderName::from_static("upload-length");
pub(super) const DEFER_LENGTH: HeaderName = HeaderName::from_static("upload-defer-length");
pub(super) const METADATA: HeaderName = HeaderName::from_static("upload-metadata");
pub(super) const CONCAT: HeaderName = HeaderName::from_static("upload-concat");
pub(super) const EXPIRES: HeaderName = HeaderName::from_static("upload-expires");
pub(super) const CHECKSUM: HeaderName = HeaderName::from_static("upload-checksum");
/// Ours: URL path of the file that an upload became.
pub(super) const FILE: HeaderName = HeaderName::from_static("upload-file");
const TUS_VERSION: HeaderName = HeaderName::from_static("tus-version");
const TUS_EXTENSION: HeaderName = HeaderName::from_static("tus-extension");
const TUS_MAX_SIZE: HeaderName = HeaderName::from_static("tus-max-size");
const TUS_ALGORITHM: HeaderName = HeaderName::from_static("tus-checksum-algorithm");

/// Media type of the bytes of an upload.
const BYTES: &[u8] = b"application/offset+octet-stream";
const EXTENSIONS: &str = "creation,creation-with-upload,creation-defer-length,termination,checksum,\
    expiration,concatenation";

/// Marks a response as one of this protocol.
pub(super) async fn mark(mut response: Response) -> Response {
    let status = response.status();
    let headers = response.headers_mut();
    headers.insert(RESUMABLE, VERSION);
    headers.entry(CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
    if status == StatusCode::PRECONDITION_FAILED {
        headers.insert(TUS_VERSION, VERSION);
    }
    response
}

/// Adds what the server supports.
pub(super) fn describe(headers: &mut HeaderMap, size_max: u64) {
    headers.insert(TUS_VERSION, VERSION);
    headers.insert(TUS_EXTENSION, HeaderValue::from_static(EXTENSIONS));
    headers.insert(TUS_MAX_SIZE, size_max.into());
    let names = ChecksumKind::ALL.map(ChecksumKind::name).join(",");
    if let Ok(names) = names.try_into() {
        headers.insert(TUS_ALGORITHM, names);
    }
}

/// Checks that a request is of the version that this server speaks.
pub(super) fn check_version(headers: &HeaderMap) -> Result<(), Refused> {
    if headers.get(RESUMABLE) == Some(&VERSION) {
        return Ok(());
    }
    Err(Refused::http(
        StatusCode::PRECONDITION_FAILED,
        "tus_version",
        "send Tus-Resumable: 1.0.0, the only version that this server speaks",
    ))
}

/// Reads a header with a number of bytes.
pub(super) fn count(headers: &HeaderMap, name: &HeaderName) -> Result<Option<u64>, Refused> {
    let Some(text) = one(headers, name)? else { return Ok(None) };
    // `parse` accepts a plus sign.
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let number = digits.then(|| text.parse().ok()).flatten();
    number.map(Some).ok_or_else(|| bad(name, "a number of bytes"))
}

/// Reads a header that occurs at most once.
pub(super) fn one<'a>(
    headers: &'a HeaderMap,
    name: &HeaderName,
) -> Result<Option<&'a str>, Refused> {
    let mut values = headers.get_all(name).iter();
    let (first, second) = (values.next(), values.next());
    if second.is_some() {
        return Err(bad(name, "sent once"));
    }
    first
        .map(|value| value.to_str().map(str::trim).map_err(|_| bad(name, "ASCII text")))
        .transpose()
}

/// Whether the body holds bytes of the upload.
pub(super) fn has_bytes(headers: &HeaderMap) -> bool {
    let kind = headers.get(CONTENT_TYPE).map(HeaderValue::as_bytes).unwrap_or_default();
    kind.trim_ascii().eq_ignore_ascii_case(BYTES)
}

/// Checks the type and encoding of a body with bytes of the upload.
pub(super) fn check_body(headers: &HeaderMap) -> Result<(), Refused> {
    let media = StatusCode::UNSUPPORTED_MEDIA_TYPE;
    if !has_bytes(headers) {
        let text = "the bytes of an upload have Content-Type: application/offset+octet-stream";
        return Err(Refused::http(media, "content_type", text));
    }
    if headers.contains_key(CONTENT_ENCODING) {
        let text = "the bytes of an upload are sent as they are, without Content-Encoding";
        return Err(Refused::http(media, "encoding", text));
    }
    Ok(())
}

/// Reads the checksum of the body.
pub(super) fn checksum(headers: &HeaderMap) -> Result<Option<Checksum>, Refused> {
    let Some(text) = one(headers, &CHECKSUM)? else { return Ok(None) };
    let wrong = || bad(&CHECKSUM, "the name of an algorithm, a space, and the checksum in Base64");
    let (name, value) = text.split_once(' ').ok_or_else(wrong)?;
    let names = ChecksumKind::ALL.map(ChecksumKind::name).join(", ");
    let kind = ChecksumKind::of_name(name)
        .ok_or_else(|| bad(&CHECKSUM, &format!("by one of the algorithms {names}")))?;
    let value = BASE64.decode(value.trim()).map_err(|_| wrong())?;
    if value.len() != kind.size() {
        return Err(wrong());
    }
    Ok(Some(Checksum { kind, value }))
}

/// Adds when an upload expires.
pub(super) fn expires(headers: &mut HeaderMap, status: &UploadStatus) {
    if status.result.is_none() {
        let at = std::time::Duration::from_millis(status.expires_ms);
        let date = std::time::UNIX_EPOCH.checked_add(at).map(httpdate::fmt_http_date);
        if let Some(Ok(date)) = date.map(HeaderValue::try_from) {
            headers.insert(EXPIRES, date);
        }
    }
}

pub(super) fn bad(name: &HeaderName, expected: &str) -> Refused {
    Refused::bad("header", format!("the header {name} must be {expected}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_checksum_is_the_name_of_an_algorithm_and_its_value() {
        let read = |value: &'static str| {
            checksum(&HeaderMap::from_iter([(CHECKSUM, HeaderValue::from_static(value))]))
        };
        let found = read("crc32 y/Q5Jg==").unwrap().unwrap();
        assert_eq!((found.kind, found.value), (ChecksumKind::Crc32, vec![0xCB, 0xF4, 0x39, 0x26]));
        for wrong in
            ["", "crc32", "crc32 ", "crc32 y/Q5", "CRC32 y/Q5Jg==", "md4 y/Q5Jg==", "sha1 !"]
        {
            assert!(read(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn a_number_of_bytes_has_digits_alone() {
        let read = |value: &'static str| {
            count(&HeaderMap::from_iter([(OFFSET, HeaderValue::from_static(value))]), &OFFSET)
        };
        assert_eq!(read("18446744073709551615").unwrap(), Some(u64::MAX));
        for wrong in ["", "+1", "-1", "1.0", "18446744073709551616", "0x1", "1 2"] {
            assert!(read(wrong).is_err(), "{wrong:?}");
        }
    }
}
