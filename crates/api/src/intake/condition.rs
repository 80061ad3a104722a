//! Preconditions of requests (RFC 9110, section 13).
//!
//! Invariants: a precondition that cannot be understood never makes a request unconditional: on a
//! write it is refused, on a read it does not hold. A tag of another server is a tag that does not
//! match, not an error.

use forebay_intake::catalogue::FileRecord;
use forebay_intake::digest::Digest;
use forebay_intake::request::Fingerprint;
use forebay_intake::{Condition, IntakeError};
use http::header::{
    HeaderName, IF_MATCH, IF_MODIFIED_SINCE, IF_NONE_MATCH, IF_RANGE, IF_UNMODIFIED_SINCE,
};
use http::{HeaderMap, HeaderValue};

/// The strong entity tag of these bytes.
pub(super) fn etag(digest: Digest) -> HeaderValue {
    let mut tag = [b'"'; 66];
    tag[1..65].copy_from_slice(&digest.hex());
    HeaderValue::from_bytes(&tag).unwrap_or_else(|_| HeaderValue::from_static("\"\""))
}

/// The time of a file's naming in seconds, as `Last-Modified` states it.
pub(super) fn modified_s(file: &FileRecord) -> u64 {
    file.created_ms.max(0).cast_unsigned() / 1_000
}

/// The tags of a header.
#[derive(Debug, PartialEq, Eq)]
enum Tags {
    Any,
    /// Opaque tags without quotes, and whether each is weak.
    List(Vec<(String, bool)>),
}

impl Tags {
    /// Reads all headers of a name; `None` if there is none.
    ///
    /// # Errors
    /// One of them is not `*` or a list of tags.
    fn read(headers: &HeaderMap, name: &HeaderName) -> Result<Option<Self>, ()> {
        let mut values = headers.get_all(name).iter().peekable();
        if values.peek().is_none() {
            return Ok(None);
        }
        let mut tags = Vec::new();
        for value in values {
            let text = String::from_utf8_lossy(value.as_bytes());
            if text.trim() == "*" {
                return Ok(Some(Self::Any));
            }
            let mut rest = text.trim();
            while !rest.is_empty() {
                let (weak, quoted) = match rest.strip_prefix("W/") {
                    Some(quoted) => (true, quoted),
                    None => (false, rest),
                };
                let (tag, after) =
                    quoted.strip_prefix('"').and_then(|tag| tag.split_once('"')).ok_or(())?;
                tags.push((tag.to_owned(), weak));
                let after = after.trim_start();
                rest = after.strip_prefix(',').unwrap_or(after).trim_start();
                if !after.is_empty() && after.len() == rest.len() {
                    return Err(());
                }
            }
        }
        if tags.is_empty() { Err(()) } else { Ok(Some(Self::List(tags))) }
    }

    /// The bytes that the tags name. A weak tag is compared only if `weak`.
    fn digests(self, weak: bool) -> Option<Vec<Digest>> {
        match self {
            Self::Any => None,
            Self::List(tags) => {
                let ours = tags.into_iter().filter(|(_, is_weak)| weak || !is_weak);
                Some(ours.filter_map(|(tag, _)| Digest::from_hex(&tag)).collect())
            }
        }
    }
}

fn date_s(headers: &HeaderMap, name: &HeaderName) -> Option<u64> {
    let text = headers.get(name)?.to_str().ok()?;
    let time = httpdate::parse_http_date(text).ok()?;
    Some(time.duration_since(std::time::UNIX_EPOCH).map_or(0, |since| since.as_secs()))
}

/// The precondition of a write.
///
/// # Errors
/// `condition`: it is malformed, or there are several.
pub(super) fn of_write(headers: &HeaderMap) -> Result<Condition, IntakeError> {
    let wrong = |text: &str| IntakeError::rejected("condition", text.to_owned());
    let given = [IF_MATCH, IF_NONE_MATCH, IF_UNMODIFIED_SINCE];
    if given.iter().filter(|name| headers.contains_key(*name)).count() > 1 {
        return Err(wrong(
            "a write can have one of If-Match, If-None-Match and If-Unmodified-Since, not several",
        ));
    }
    let tags = |name| {
        Tags::read(headers, &name)
            .map_err(|()| wrong(&format!("{name} on a write must be * or ETags in double quotes")))
    };
    if let Some(tags) = tags(IF_MATCH)? {
        return Ok(tags.digests(false).map_or(Condition::Present, Condition::OneOf));
    }
    if let Some(tags) = tags(IF_NONE_MATCH)? {
        return Ok(tags.digests(true).map_or(Condition::Absent, Condition::NoneOf));
    }
    if headers.contains_key(IF_UNMODIFIED_SINCE) {
        let date = date_s(headers, &IF_UNMODIFIED_SINCE);
        let date = date.ok_or_else(|| wrong("If-Unmodified-Since must be an HTTP date"))?;
        return Ok(Condition::UnchangedSince(date));
    }
    Ok(Condition::None)
}

/// The fingerprint of a request with these parts, and with its condition if it has one: the same request under
/// another condition is another request.
pub(super) fn fingerprint(parts: &[&[u8]], headers: &HeaderMap) -> Digest {
    let mut parts = parts.to_vec();
    let names = [IF_MATCH, IF_NONE_MATCH, IF_UNMODIFIED_SINCE];
    for name in &names {
        for value in headers.get_all(name) {
            parts.extend([name.as_str().as_bytes(), value.as_bytes()]);
        }
    }
    Fingerprint::of(&parts).finish()
}

/// Whether a read may be answered: `If-Match`, or without it `If-Unmodified-Since`.
///
/// # Errors
/// [`IntakeError::Precondition`]: the name refers to other bytes.
pub(super) fn check_read(headers: &HeaderMap, file: &FileRecord) -> Result<(), IntakeError> {
    let holds = match Tags::read(headers, &IF_MATCH) {
        Ok(Some(tags)) => tags.digests(false).is_none_or(|digests| digests.contains(&file.digest)),
        Ok(None) => {
            date_s(headers, &IF_UNMODIFIED_SINCE).is_none_or(|date| modified_s(file) <= date)
        }
        Err(()) => false,
    };
    if holds {
        return Ok(());
    }
    let message = format!("the name refers to other bytes, \"{}\"", file.digest);
    Err(IntakeError::Precondition { message })
}

/// Whether a read of bytes with this digest may be answered: `If-Match`.
///
/// # Errors
/// [`IntakeError::Precondition`]: they are others.
pub(super) fn check_tag(headers: &HeaderMap, digest: Digest) -> Result<(), IntakeError> {
    let holds = match Tags::read(headers, &IF_MATCH) {
        Ok(Some(tags)) => tags.digests(false).is_none_or(|digests| digests.contains(&digest)),
        Ok(None) => true,
        Err(()) => false,
    };
    if holds {
        return Ok(());
    }
    let message = format!("its entity tag is \"{digest}\"");
    Err(IntakeError::Precondition { message })
}

/// Whether the client has bytes with this digest: `If-None-Match`.
pub(super) fn has_tag(headers: &HeaderMap, digest: Digest) -> bool {
    let tags = Tags::read(headers, &IF_NONE_MATCH).unwrap_or_default();
    tags.is_some_and(|tags| tags.digests(true).is_none_or(|digests| digests.contains(&digest)))
}

/// Whether the client has these bytes: `If-None-Match`, or without it `If-Modified-Since`.
pub(super) fn not_modified(headers: &HeaderMap, file: &FileRecord) -> bool {
    match Tags::read(headers, &IF_NONE_MATCH) {
        Ok(Some(tags)) => tags.digests(true).is_none_or(|digests| digests.contains(&file.digest)),
        Ok(None) => {
            date_s(headers, &IF_MODIFIED_SINCE).is_some_and(|since| modified_s(file) <= since)
        }
        Err(()) => false,
    }
}

/// Whether a condition on tags names this one, given without quotes.
pub(super) fn names_tag(headers: &HeaderMap, condition: &HeaderName, tag: &str) -> bool {
    match Tags::read(headers, condition) {
        Ok(Some(Tags::Any)) => true,
        Ok(Some(Tags::List(tags))) => tags.iter().any(|(found, _)| found == tag),
        Ok(None) | Err(()) => false,
    }
}

/// Whether a `Range` still refers to the bytes that the client has a part of.
pub(super) fn range_applies(headers: &HeaderMap, file: &FileRecord) -> bool {
    let Some(value) = headers.get(IF_RANGE) else { return true };
    if value.as_bytes().starts_with(b"\"") {
        return *value == etag(file.digest);
    }
    date_s(headers, &IF_RANGE).is_some_and(|date| date == modified_s(file))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(name: HeaderName, values: &[&str]) -> HeaderMap {
        values.iter().map(|value| (name.clone(), HeaderValue::from_str(value).unwrap())).collect()
    }

    #[test]
    fn tags_are_read_with_commas_within_and_several_headers() {
        let read = |values: &[&str]| Tags::read(&headers(IF_MATCH, values), &IF_MATCH);
        let list = |tags: &[(&str, bool)]| {
            Ok(Some(Tags::List(
                tags.iter().map(|(tag, weak)| ((*tag).to_owned(), *weak)).collect(),
            )))
        };
        assert_eq!(read(&[]), Ok(None));
        assert_eq!(read(&[" * "]), Ok(Some(Tags::Any)));
        assert_eq!(read(&["\"a\""]), list(&[("a", false)]));
        assert_eq!(
            read(&["\"a,b\" , W/\"c\",", "\"\""]),
            list(&[("a,b", false), ("c", true), ("", false)])
        );
        for wrong in ["", "a", "\"a", "\"a\" \"b\"", "w/\"a\"", "\"a\", b", "*, \"a\""] {
            assert_eq!(read(&[wrong]), Err(()), "{wrong}");
        }
    }

    #[test]
    fn a_condition_of_a_write_is_understood_or_refused() {
        let ours = Digest::of(b"x");
        let of = |name: HeaderName, value: &str| of_write(&headers(name, &[value]));
        let tag = format!("\"{}\"", ours.to_hex());
        assert_eq!(of(IF_MATCH, &tag).unwrap(), Condition::OneOf(vec![ours]));
        assert_eq!(of(IF_MATCH, &format!("W/{tag}, \"x\"")).unwrap(), Condition::OneOf(vec![]));
        assert_eq!(of(IF_NONE_MATCH, &format!("W/{tag}")).unwrap(), Condition::NoneOf(vec![ours]));
        assert_eq!(of(IF_NONE_MATCH, "*").unwrap(), Condition::Absent);
        let date = "Thu, 01 Jan 1970 00:01:00 GMT";
        assert_eq!(of(IF_UNMODIFIED_SINCE, date).unwrap(), Condition::UnchangedSince(60));
        for (name, value) in [(IF_MATCH, "x"), (IF_NONE_MATCH, ""), (IF_UNMODIFIED_SINCE, "today")]
        {
            assert!(of(name, value).is_err(), "{value}");
        }
        let mut both = headers(IF_MATCH, &[&tag]);
        both.extend(headers(IF_NONE_MATCH, &["*"]));
        assert!(of_write(&both).is_err());
    }
}
