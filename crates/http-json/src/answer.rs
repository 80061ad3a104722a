//! What an answer means: its status, how long to wait after it, and the part of its body that messages show.
//!
//! Invariant: what is shown of a body has no control characters, and none of the values that were sent.

use std::time::Duration;

use forebay_base::address::HIDDEN;
use forebay_base::printable::printable;
use http::header::{self, HeaderMap};
use http::{HeaderValue, StatusCode};

/// Number of characters of a body in messages.
const SHOWN_MAX: usize = 300;
/// Minimum length of a value that is hidden: a shorter one would hide words that only look like it.
const SECRET_SIZE_MIN: usize = 4;

/// The meaning of a status.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Meaning {
    /// The body is the answer.
    Content,
    /// There is no body.
    Nothing,
    /// The answer is elsewhere.
    Redirect,
    /// The same request may succeed later.
    Later,
    /// The server refused.
    Refused,
}

/// The meaning of a status.
pub(crate) fn meaning(status: StatusCode) -> Meaning {
    match status.as_u16() {
        200 => Meaning::Content,
        204 => Meaning::Nothing,
        301 | 302 | 303 | 307 | 308 => Meaning::Redirect,
        429 | 502 | 503 | 504 => Meaning::Later,
        _ => Meaning::Refused,
    }
}

/// An answer other than the requested one, as text.
#[derive(Debug)]
pub(crate) struct Unwanted(pub(crate) String);

impl std::fmt::Display for Unwanted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Unwanted {}

/// How long a server asks to wait. A date counts from the server's own clock.
pub(crate) fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let text = |name| headers.get(name).and_then(|value: &HeaderValue| value.to_str().ok());
    let after = text(header::RETRY_AFTER)?.trim();
    if let Ok(seconds) = after.parse::<u64>() {
        return Some(Duration::from_secs(seconds));
    }
    let until = httpdate::parse_http_date(after).ok()?;
    let now = httpdate::parse_http_date(text(header::DATE)?).ok()?;
    Some(until.duration_since(now).unwrap_or_default())
}

/// The encoding of a body, unless it is as it was requested.
pub(crate) fn encoding(headers: &HeaderMap) -> Option<String> {
    let value = headers.get(header::CONTENT_ENCODING)?;
    let text = String::from_utf8_lossy(value.as_bytes()).trim().to_ascii_lowercase();
    (!text.is_empty() && text != "identity").then(|| printable(&text).into_owned())
}

/// Values that are in no message.
#[derive(Default)]
pub(crate) struct Secrets(Vec<String>);

impl Secrets {
    /// Hides a value, and what follows its first word: the scheme of `authorization` is none.
    pub(crate) fn add(&mut self, value: &str) {
        let after = value.split_once(' ').map(|(_, after)| after.trim());
        for secret in std::iter::once(value).chain(after) {
            if secret.len() >= SECRET_SIZE_MIN && !self.0.iter().any(|known| known == secret) {
                self.0.push(secret.to_owned());
            }
        }
    }

    /// The beginning of a body.
    pub(crate) fn excerpt(&self, body: &[u8]) -> String {
        let mut text = String::from_utf8_lossy(body).into_owned();
        for secret in &self.0 {
            if text.contains(secret.as_str()) {
                text = text.replace(secret.as_str(), HIDDEN);
            }
        }
        let text = text.trim();
        let shown: String = text.chars().take(SHOWN_MAX).collect();
        let more = if shown.len() < text.len() { "..." } else { "" };
        format!("{}{more}", printable(&shown))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(all: &[(header::HeaderName, &str)]) -> HeaderMap {
        let made = all.iter().map(|(name, value)| (name.clone(), value.parse().unwrap()));
        made.collect()
    }

    #[test]
    fn a_server_asks_to_wait_in_seconds_or_until_a_time_of_its_clock() {
        let date = (header::DATE, "Sun, 06 Nov 1994 08:49:37 GMT");
        for (all, expected) in [
            (&[(header::RETRY_AFTER, "120")][..], Some(120)),
            (&[(header::RETRY_AFTER, "0")], Some(0)),
            (&[(header::RETRY_AFTER, "Sun, 06 Nov 1994 08:50:07 GMT"), date.clone()], Some(30)),
            (&[(header::RETRY_AFTER, "Sun, 06 Nov 1994 08:00:00 GMT"), date], Some(0)),
            (&[(header::RETRY_AFTER, "Sun, 06 Nov 1994 08:50:07 GMT")], None),
            (&[(header::RETRY_AFTER, "soon")], None),
            (&[(header::RETRY_AFTER, "-1")], None),
            (&[], None),
        ] {
            let after = retry_after(&headers(all));
            assert_eq!(after, expected.map(Duration::from_secs), "{all:?}");
        }
    }

    #[test]
    fn what_is_shown_of_a_body_is_short_printable_and_without_secrets() {
        let mut secrets = Secrets::default();
        secrets.add("Bearer geheim42");
        secrets.add("1");
        assert_eq!(secrets.excerpt(b" token geheim42\x1b[31m 1 "), "token ***\\u{1b}[31m 1");
        assert_eq!(secrets.excerpt(b"\xff"), "\u{fffd}");
        let long = secrets.excerpt("ü".repeat(1_000).as_bytes());
        assert_eq!(long.chars().count(), SHOWN_MAX + 3);
    }

    #[test]
    fn a_body_that_is_encoded_is_noticed() {
        let gzip = headers(&[(header::CONTENT_ENCODING, "GZIP")]);
        assert_eq!(encoding(&gzip).as_deref(), Some("gzip"));
        assert_eq!(encoding(&headers(&[(header::CONTENT_ENCODING, "identity")])), None);
        assert_eq!(encoding(&headers(&[])), None);
    }
}
