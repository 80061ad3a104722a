//! Conditions of reads, and of the source of a copy (RFC 9110, section 13).
//!
//! An ETag takes precedence over a date of the same kind. Dates have whole seconds.

use http::HeaderValue;
use s3s::dto::{ETag, ETagCondition, Timestamp, TimestampFormat};
use s3s::{S3Error, S3Result, s3_error};

/// Conditions on an object.
#[derive(Debug, Default, Clone)]
pub(crate) struct Conditions {
    pub(crate) matches: Option<ETagCondition>,
    pub(crate) none_match: Option<ETagCondition>,
    pub(crate) modified_since: Option<Timestamp>,
    pub(crate) unmodified_since: Option<Timestamp>,
}

impl Conditions {
    /// Checks them for a read.
    ///
    /// # Errors
    /// `PreconditionFailed`, or `NotModified`.
    pub(crate) fn check(&self, etag: &str, modified_s: i64) -> S3Result<()> {
        let (fails, unchanged) = self.evaluate(etag, modified_s);
        if let Some(which) = fails {
            return Err(failed(which));
        }
        if unchanged { Err(not_modified(etag)) } else { Ok(()) }
    }

    /// Checks them for the source of a copy, where nothing is sent that could be unmodified.
    ///
    /// # Errors
    /// `PreconditionFailed`.
    pub(crate) fn check_source(&self, etag: &str, modified_s: i64) -> S3Result<()> {
        let (fails, unchanged) = self.evaluate(etag, modified_s);
        let unchanged = unchanged.then_some(match self.none_match {
            Some(_) => "If-None-Match",
            None => "If-Modified-Since",
        });
        match fails.or(unchanged) {
            Some("If-Match") => Err(failed("x-amz-copy-source-if-match")),
            Some("If-Unmodified-Since") => Err(failed("x-amz-copy-source-if-unmodified-since")),
            Some("If-None-Match") => Err(failed("x-amz-copy-source-if-none-match")),
            Some(_) => Err(failed("x-amz-copy-source-if-modified-since")),
            None => Ok(()),
        }
    }

    /// Returns which condition fails, and whether the client has the object already.
    fn evaluate(&self, etag: &str, modified_s: i64) -> (Option<&'static str>, bool) {
        let fails = match (&self.matches, &self.unmodified_since) {
            (Some(wanted), _) => (!names(wanted, etag, false)).then_some("If-Match"),
            (None, Some(date)) => (modified_s > seconds(date)).then_some("If-Unmodified-Since"),
            (None, None) => None,
        };
        let unchanged = match (&self.none_match, &self.modified_since) {
            (Some(known), _) => names(known, etag, true),
            (None, Some(date)) => modified_s <= seconds(date),
            (None, None) => false,
        };
        (fails, unchanged)
    }
}

/// What a client gets that has the object already: its ETag as well (RFC 9110, section 15.4.5).
fn not_modified(etag: &str) -> S3Error {
    let mut error = s3_error!(NotModified);
    if let Ok(tag) = HeaderValue::try_from(format!("\"{etag}\"")) {
        error.set_headers([(http::header::ETAG, tag)].into_iter().collect());
    }
    error
}

/// Whether a condition names this ETag. A weak one is compared only if `weak`.
pub(crate) fn names(condition: &ETagCondition, etag: &str, weak: bool) -> bool {
    match condition {
        ETagCondition::Any => true,
        ETagCondition::ETag(ETag::Strong(value)) => is_same(value, etag),
        ETagCondition::ETag(ETag::Weak(value)) => weak && is_same(value, etag),
    }
}

/// Whether a client means this ETag. That of a file without an MD5 had no `-1` before, which clients may
/// remember.
fn is_same(value: &str, etag: &str) -> bool {
    let former = etag.strip_suffix("-1").filter(|digest| digest.len() == 64);
    value == etag || former == Some(value)
}

/// The error of a condition that does not hold.
pub(crate) fn failed(which: &'static str) -> S3Error {
    s3_error!(
        PreconditionFailed,
        "At least one of the pre-conditions you specified did not hold: {which}"
    )
}

/// Whole seconds since 1970.
pub(crate) fn seconds(time: &Timestamp) -> i64 {
    let mut text = Vec::new();
    if time.format(TimestampFormat::EpochSeconds, &mut text).is_err() {
        return 0;
    }
    let text = String::from_utf8_lossy(&text);
    text.split('.').next().and_then(|whole| whole.parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use s3s::S3ErrorCode;

    use super::*;

    fn tag(text: &str) -> Option<ETagCondition> {
        Some(ETagCondition::parse_http_header(text.as_bytes()).unwrap())
    }

    fn date(seconds: i64) -> Option<Timestamp> {
        Some(Timestamp::parse(TimestampFormat::EpochSeconds, &seconds.to_string()).unwrap())
    }

    #[test]
    fn the_tag_of_a_file_without_an_md5_is_known_in_its_former_form() {
        let (sha256, md5) = ("a".repeat(64), "a".repeat(32));
        let named = |value: &str, etag: &str| {
            names(&tag(&format!("\"{value}\"")).unwrap(), &format!("{etag}-1"), false)
        };
        assert!(named(&sha256, &sha256));
        assert!(named(&format!("{sha256}-1"), &sha256));
        assert!(!named(&md5, &md5), "that of an upload in one part");
        assert!(!named(&format!("{sha256}-2"), &sha256));
    }

    #[test]
    fn tags_take_precedence_over_dates() {
        let none = Conditions::default();
        let check = |conditions: Conditions| match conditions.check("a", 100) {
            Ok(()) => 200,
            Err(error) if *error.code() == S3ErrorCode::NotModified => 304,
            Err(_) => 412,
        };
        for (conditions, status) in [
            (none.clone(), 200),
            (Conditions { matches: tag("\"a\""), ..none.clone() }, 200),
            (Conditions { matches: tag("*"), ..none.clone() }, 200),
            (Conditions { matches: tag("\"b\""), ..none.clone() }, 412),
            (Conditions { matches: tag("W/\"a\""), ..none.clone() }, 412),
            (Conditions { matches: tag("\"a\""), unmodified_since: date(1), ..none.clone() }, 200),
            (Conditions { unmodified_since: date(99), ..none.clone() }, 412),
            (Conditions { unmodified_since: date(100), ..none.clone() }, 200),
            (Conditions { none_match: tag("\"a\""), ..none.clone() }, 304),
            (Conditions { none_match: tag("W/\"a\""), ..none.clone() }, 304),
            (
                Conditions { none_match: tag("\"b\""), modified_since: date(200), ..none.clone() },
                200,
            ),
            (Conditions { modified_since: date(100), ..none.clone() }, 304),
            (Conditions { modified_since: date(99), ..none.clone() }, 200),
            (Conditions { matches: tag("\"b\""), none_match: tag("\"a\""), ..none.clone() }, 412),
        ] {
            assert_eq!(check(conditions.clone()), status, "{conditions:?}");
        }
        let known = Conditions { none_match: tag("\"a\""), ..none };
        assert_eq!(
            known.check_source("a", 1).unwrap_err().code(),
            &S3ErrorCode::PreconditionFailed
        );
    }
}
