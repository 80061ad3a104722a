//! Presigned URLs: one request, on behalf of a key, without the key.
//!
//! ```text
//! /v1/files/in/a.pdf?presign_expires=1799999999&presign_key=0123456789ab&presign_method=GET&presign_signature=...
//! ```
//!
//! The signature is an HMAC-SHA256 under the server's master key, so nothing is stored. It covers the
//! method, the path as it is sent, and all parameters but itself, sorted.
//!
//! Invariants: a parameter that is added, removed or changed, another path or another method make the
//! signature invalid; signatures are compared in constant time; a URL is valid only as long as its key,
//! and permits nothing that the key does not permit when it is used.

use http::{Method, Uri};

use super::token::same;
use super::{KeyId, MasterKey, SecretLabel};
use crate::query;

/// What all parameters of a signature begin with. No route has one that does.
const PREFIX: &str = "presign_";
const KEY: &str = "presign_key";
const METHOD: &str = "presign_method";
const EXPIRES: &str = "presign_expires";
const SIZE_MAX: &str = "presign_size_max";
const SIGNATURE: &str = "presign_signature";

/// Maximum time for which a URL may be valid, in seconds: 7 days.
pub(crate) const VALID_S_MAX: u64 = 7 * 24 * 3_600;

/// What a URL permits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Permission {
    /// The key on whose behalf.
    pub(crate) key: KeyId,
    /// The method. GET includes HEAD.
    pub(crate) method: Method,
    /// The end of its validity, in seconds since 1970.
    pub(crate) expires_s: u64,
    /// Maximum number of bytes that may be sent, if that is limited.
    pub(crate) size_max: Option<u64>,
}

/// Why a URL is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refused {
    /// It was not signed by this server, or was altered.
    Signature,
    /// It is no longer valid.
    Expired,
}

/// Returns whether a request has any parameter of a signature.
pub(crate) fn is_signed(uri: &Uri) -> bool {
    let query = uri.query().unwrap_or_default();
    !query.is_empty() && query::pairs(query).iter().any(|(name, _)| name.starts_with(PREFIX))
}

/// Returns a path and query with the parameters that sign it.
///
/// * `target`: a path, perhaps with a query without parameters of a signature.
pub(crate) fn sign(master: &MasterKey, target: &Uri, permission: &Permission) -> String {
    let mut added = vec![
        (KEY, String::from_utf8_lossy(&permission.key).into_owned()),
        (METHOD, permission.method.to_string()),
        (EXPIRES, permission.expires_s.to_string()),
    ];
    added.extend(permission.size_max.map(|size| (SIZE_MAX, size.to_string())));
    // None of them has a character that a query has to encode.
    let added: Vec<_> = added.iter().map(|(name, value)| format!("{name}={value}")).collect();
    let query: Vec<_> =
        target.query().into_iter().chain(added.iter().map(String::as_str)).collect();
    let query = query.join("&");
    let signature = signature(master, target.path(), &query::pairs(&query));
    format!("{}?{query}&{SIGNATURE}={}", target.path(), hex::encode(signature))
}

/// Checks the signature of a request, and returns what it permits. The caller compares the method, and
/// asks for the key.
///
/// # Errors
/// [`Refused`].
pub(crate) fn verify(master: &MasterKey, uri: &Uri, now_s: u64) -> Result<Permission, Refused> {
    let pairs = query::pairs(uri.query().unwrap_or_default());
    let one = |name: &str| {
        let mut values = pairs.iter().filter(|(found, _)| found == name).map(|(_, value)| value);
        match (values.next(), values.next()) {
            (Some(value), None) => Ok(Some(value.as_slice())),
            (None, _) => Ok(None),
            _ => Err(Refused::Signature),
        }
    };
    let number = |value: &[u8]| {
        let text = std::str::from_utf8(value).ok();
        text.and_then(|text| text.parse::<u64>().ok()).ok_or(Refused::Signature)
    };
    let mut presented = [0; 32];
    let given = one(SIGNATURE)?.ok_or(Refused::Signature)?;
    hex::decode_to_slice(given, &mut presented).map_err(|_| Refused::Signature)?;
    if !same(&presented, &signature(master, uri.path(), &pairs)) {
        return Err(Refused::Signature);
    }
    let key = one(KEY)?.and_then(|key| key.try_into().ok()).ok_or(Refused::Signature)?;
    let method = one(METHOD)?.and_then(|method| Method::from_bytes(method).ok());
    let expires_s = number(one(EXPIRES)?.ok_or(Refused::Signature)?)?;
    let size_max = one(SIZE_MAX)?.map(number).transpose()?;
    let method = method.ok_or(Refused::Signature)?;
    // The second part holds if the clock was set back.
    if now_s >= expires_s || expires_s > now_s.saturating_add(VALID_S_MAX) {
        return Err(Refused::Expired);
    }
    Ok(Permission { key, method, expires_s, size_max })
}

/// The signature of a path and of all parameters but the signature.
fn signature(master: &MasterKey, path: &str, pairs: &[(String, Vec<u8>)]) -> [u8; 32] {
    let mut signed: Vec<(&[u8], &[u8])> = pairs
        .iter()
        .filter(|(name, _)| name != SIGNATURE)
        .map(|(name, value)| (name.as_bytes(), value.as_slice()))
        .collect();
    signed.sort_unstable();
    let mut parts = vec![path.as_bytes()];
    parts.extend(signed.into_iter().flat_map(|(name, value)| [name, value]));
    master.derive(SecretLabel::PresignedUrl, &parts)
}

/// Returns a request's path and query without the parameters of a signature.
pub(crate) fn bare(uri: &Uri) -> String {
    let kept = uri.query().unwrap_or_default().split('&').filter(|pair| {
        !pair.is_empty() && query::pairs(pair).iter().all(|(name, _)| !name.starts_with(PREFIX))
    });
    let query = kept.collect::<Vec<_>>().join("&");
    if query.is_empty() { uri.path().to_owned() } else { format!("{}?{query}", uri.path()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW_S: u64 = 1_800_000_000;

    fn permission() -> Permission {
        Permission {
            key: *b"0123456789ab",
            method: Method::PUT,
            expires_s: NOW_S + 60,
            size_max: Some(1_000),
        }
    }

    fn master() -> MasterKey {
        MasterKey::open(tempfile::tempdir().unwrap().path()).unwrap()
    }

    fn check(master: &MasterKey, url: &str, now_s: u64) -> Result<Permission, Refused> {
        verify(master, &url.parse().unwrap(), now_s)
    }

    #[test]
    fn a_signed_url_permits_what_was_signed_until_it_expires() {
        let master = master();
        for target in ["/v1/files/in/a%20b", "/v1/files/in/a?comment=a+b&async=true"] {
            let url = sign(&master, &target.parse().unwrap(), &permission());
            assert!(is_signed(&url.parse().unwrap()) && !is_signed(&target.parse().unwrap()));
            assert_eq!(check(&master, &url, NOW_S), Ok(permission()), "{url}");
            assert_eq!(check(&master, &url, NOW_S + 59), Ok(permission()));
            assert_eq!(check(&master, &url, NOW_S + 60), Err(Refused::Expired));
            assert_eq!(check(&master, &url, 0), Err(Refused::Expired), "the clock was set back");
            assert_eq!(bare(&url.parse().unwrap()), target);
            assert_eq!(check(&self::master(), &url, NOW_S), Err(Refused::Signature));
        }
    }

    #[test]
    fn the_order_and_spelling_of_parameters_do_not_matter() {
        let master = master();
        let url = sign(&master, &"/v1/files/a/b?comment=x%2Fy".parse().unwrap(), &permission());
        let (path, query) = url.split_once('?').unwrap();
        let mut pairs: Vec<_> = query.split('&').collect();
        pairs.reverse();
        let other = format!("{path}?{}", pairs.join("&").replace("x%2Fy", "x/y"));
        assert_eq!(check(&master, &other, NOW_S), Ok(permission()));
    }

    #[test]
    fn every_change_makes_the_signature_invalid() {
        let master = master();
        let url = sign(&master, &"/v1/files/in/a?comment=x".parse().unwrap(), &permission());
        for (old, new) in [
            ("/in/a", "/in/b"),
            ("/in/a", "/in%2Fa"),
            ("/in/a", "/in//a"),
            ("comment=x", "comment=y"),
            ("comment=x", "comment=x&comment=x"),
            ("comment=x&", ""),
            ("comment=x", "comment=x&async=true"),
            ("presign_method=PUT", "presign_method=DELETE"),
            ("presign_expires=1800000060", "presign_expires=1800000061"),
            ("presign_size_max=1000", "presign_size_max=1001"),
            ("&presign_size_max=1000", ""),
            ("presign_key=0123456789ab", "presign_key=0123456789ac"),
            ("presign_signature=", "presign_signature=0"),
            ("presign_signature=", "presign_signature=00&presign_signature="),
            ("presign_signature=", "presign_other=1&presign_signature="),
            ("presign_key=", "presign_key=0&presign_key="),
        ] {
            let changed = url.replacen(old, new, 1);
            assert_ne!(changed, url, "{old}");
            assert_eq!(check(&master, &changed, NOW_S), Err(Refused::Signature), "{changed}");
        }
        let (unsigned, signature) = url.rsplit_once('&').unwrap();
        assert_eq!(check(&master, unsigned, NOW_S), Err(Refused::Signature));
        for at in 0..64 {
            let mut flipped = signature.as_bytes().to_vec();
            let digit = flipped.len() - 1 - at;
            flipped[digit] = if flipped[digit] == b'0' { b'1' } else { b'0' };
            let changed = format!("{unsigned}&{}", String::from_utf8(flipped).unwrap());
            assert_eq!(check(&master, &changed, NOW_S), Err(Refused::Signature), "digit {at}");
        }
    }
}
