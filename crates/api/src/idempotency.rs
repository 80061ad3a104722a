//! The header `Idempotency-Key`: read once, and refused where requests are not remembered.
//!
//! Invariant: a request with a key is remembered under it, or is refused; the key is never ignored.

use axum::extract::Request;
use axum::middleware::Next;
use axum::response::Response;
use forebay_intake::digest::Digest;
use http::{HeaderMap, HeaderValue};

use crate::problem::Problem;

/// Its name.
pub(crate) const HEADER: &str = "idempotency-key";

/// Maximum size of a key in bytes.
const SIZE_MAX: usize = 255;

/// Why one that is not valid is refused.
pub(crate) const INVALID: &str = "Idempotency-Key must be 1 to 255 printable ASCII characters";

/// Why two of them are refused.
pub(crate) const SEVERAL: &str = "a request can have only one Idempotency-Key";

/// Returns its value.
///
/// # Errors
/// [`SEVERAL`]: there is more than one.
pub(crate) fn key(headers: &HeaderMap) -> Result<Option<&HeaderValue>, &'static str> {
    let mut values = headers.get_all(HEADER).iter();
    match (values.next(), values.next()) {
        (key, None) => Ok(key),
        (_, Some(_)) => Err(SEVERAL),
    }
}

/// Replaces the key of a request by one of this API key alone: clients with different API keys may use the same
/// keys, and learn nothing of each other's. A key that is invalid stays, and is refused by the route.
///
/// * `sender`: id of the API key.
pub(crate) fn bind(headers: &mut HeaderMap, sender: &str) {
    let Ok(Some(key)) = key(headers) else { return };
    if !is_valid(key.as_bytes()) {
        return;
    }
    let bound = format!("{sender}:{}", Digest::of(key.as_bytes()));
    if let Ok(bound) = HeaderValue::try_from(bound) {
        headers.insert(HEADER, bound);
    }
}

/// Whether a key has 1 to 255 printable ASCII characters.
pub(crate) fn is_valid(key: &[u8]) -> bool {
    (1..=SIZE_MAX).contains(&key.len()) && key.iter().all(|byte| (0x20..0x7f).contains(byte))
}

/// Refuses requests with a key: put around routes that carry out every request they get.
pub(crate) async fn refuse(request: Request, next: Next) -> Response {
    if request.method().is_safe() || !request.headers().contains_key(HEADER) {
        return next.run(request).await;
    }
    let text = "requests to this route are not remembered, so they take no Idempotency-Key";
    let id = request.headers().get("x-request-id").cloned();
    let id = id.unwrap_or_else(|| HeaderValue::from_static(""));
    Problem::bad("idempotency_key", text).response(&id)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_bound_to_its_sender_and_stays_valid_and_an_invalid_one_stays() {
        let bound = |value: &str, sender: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(HEADER, HeaderValue::try_from(value).unwrap());
            bind(&mut headers, sender);
            headers[HEADER].clone()
        };
        let longest = "k".repeat(SIZE_MAX);
        for key in ["1", &longest] {
            let one = bound(key, "a1b2");
            assert!(is_valid(one.as_bytes()) && one != key);
            assert_eq!(one, bound(key, "a1b2"));
            assert_ne!(one, bound(key, "c3d4"));
            assert_ne!(one, bound("another", "a1b2"));
        }
        let too_long = "k".repeat(SIZE_MAX + 1);
        assert_eq!(bound(&too_long, "a1b2"), too_long);
        let mut none = HeaderMap::new();
        bind(&mut none, "a1b2");
        assert!(none.is_empty());
    }
}
