//! Request ids: the client's if it sent a valid one, else a generated one.

use std::sync::atomic::{AtomicU64, Ordering};

use http::{HeaderMap, HeaderName, HeaderValue};

use super::stripes::{self, Stripes};

/// The header of requests and responses.
pub(super) const HEADER: HeaderName = HeaderName::from_static("x-request-id");

/// Maximum length of an id from a client.
const SIZE_MAX: usize = 64;

/// Generates ids `<8 hex digits of this process>-<16 of a number>`: unique, no randomness and no clock on
/// the request path. The numbers of one thread are in order.
#[derive(Debug)]
pub(super) struct RequestIds {
    process: u32,
    next: Stripes<AtomicU64>,
}

impl RequestIds {
    /// Creates the ids of a process; `process` distinguishes it from others.
    pub(super) fn new(process: u32) -> Self {
        Self { process, next: Stripes::default() }
    }

    /// Returns the id of a request with these headers.
    pub(super) fn of(&self, headers: &HeaderMap) -> HeaderValue {
        match headers.get(HEADER) {
            Some(given) if valid(given.as_bytes()) => given.clone(),
            _ => self.fresh(),
        }
    }

    fn fresh(&self) -> HeaderValue {
        let mut text = [b'-'; 25];
        let (place, next) = self.next.here();
        let count = next.fetch_add(1, Ordering::Relaxed);
        let number = count.wrapping_mul(stripes::COUNT as u64) + place as u64;
        hex::encode_to_slice(self.process.to_be_bytes(), &mut text[..8])
            .and_then(|()| hex::encode_to_slice(number.to_be_bytes(), &mut text[9..]))
            .ok()
            .and_then(|()| HeaderValue::from_bytes(&text).ok())
            .unwrap_or_else(|| HeaderValue::from_static("invalid"))
    }
}

/// Accepts letters, digits, `.`, `_`, `-`: nothing that could forge a log line or a header.
fn valid(id: &[u8]) -> bool {
    (1..=SIZE_MAX).contains(&id.len())
        && id.iter().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-'))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(id: &'static str) -> HeaderMap {
        HeaderMap::from_iter([(HEADER, HeaderValue::from_static(id))])
    }

    #[test]
    fn a_good_id_is_kept_and_a_bad_one_replaced() {
        let ids = RequestIds::new(0xdead_beef);
        assert_eq!(ids.of(&with("trace-1.2_3")), "trace-1.2_3");
        let number = |headers: &HeaderMap| {
            let id = ids.of(headers);
            let digits = id.to_str().unwrap().strip_prefix("deadbeef-").unwrap();
            assert_eq!(digits.len(), 16);
            u64::from_str_radix(digits, 16).unwrap()
        };
        let (first, second) = (number(&with("a b")), number(&HeaderMap::new()));
        assert!(first < second && second < number(&with("")));
        assert!(!valid("x".repeat(65).as_bytes()) && valid("x".repeat(64).as_bytes()));
    }
}
