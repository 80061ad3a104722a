//! Login sessions of browsers: a key, presented once, is exchanged for a cookie.
//!
//! The cookie holds 32 random bytes and nothing of the key. The server keeps their hash in memory,
//! with the key's id. So a session ends with the key, with the process, after [`LIFE`], or after
//! [`IDLE`] without a request, and what is read out of memory or a cookie jar is not a key.
//!
//! The cookie is `HttpOnly` (no script reads it), `SameSite=Strict` (no other site's page sends
//! it), and `Secure` over TLS. A cookie alone permits no change: requests with other methods than
//! GET and HEAD also need the browser's report that a page of this server sent them.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use http::header::COOKIE;
use http::{HeaderMap, HeaderValue};
use parking_lot::Mutex;
use sha2::{Digest as _, Sha256};

use crate::keys::{KeyId, random};

/// Maximum number of sessions. The least recently used one is dropped for another.
const SESSIONS_MAX: usize = 1_000;
/// Maximum lifetime of a session.
const LIFE: Duration = Duration::from_secs(12 * 3_600);
/// Lifetime without a request.
const IDLE: Duration = Duration::from_secs(2 * 3_600);
/// Name of the cookie.
const NAME: &str = "forebay_session";

#[derive(Debug)]
struct Session {
    key: KeyId,
    began: Instant,
    used: Instant,
}

impl Session {
    fn is_over(&self, now: Instant) -> bool {
        now.duration_since(self.began) >= LIFE || now.duration_since(self.used) >= IDLE
    }
}

/// The sessions.
#[derive(Debug, Default)]
pub(super) struct Sessions {
    by_hash: Mutex<HashMap<[u8; 32], Session>>,
}

impl Sessions {
    /// Starts a session with a verified key; returns the value of `Set-Cookie`.
    ///
    /// # Errors
    /// The kernel returned no random bytes.
    pub(super) fn begin(
        &self,
        key: KeyId,
        secure: bool,
    ) -> Result<HeaderValue, crate::keys::KeyError> {
        let secret = hex::encode(random::<32>()?);
        let now = Instant::now();
        let mut sessions = self.by_hash.lock();
        sessions.retain(|_, session| !session.is_over(now));
        if sessions.len() >= SESSIONS_MAX
            && let Some(oldest) = sessions.iter().min_by_key(|(_, s)| s.used).map(|(hash, _)| *hash)
        {
            sessions.remove(&oldest);
        }
        sessions.insert(hash(&secret), Session { key, began: now, used: now });
        Ok(cookie(&secret, LIFE.as_secs(), secure))
    }

    /// Returns the key of the session that a request's cookie belongs to.
    pub(super) fn find(&self, headers: &HeaderMap) -> Option<KeyId> {
        let secret = secret(headers)?;
        let now = Instant::now();
        let mut sessions = self.by_hash.lock();
        let session = sessions.get_mut(&hash(secret))?;
        if session.is_over(now) {
            sessions.remove(&hash(secret));
            return None;
        }
        session.used = now;
        Some(session.key)
    }

    /// Ends the session; returns the value of `Set-Cookie`.
    pub(super) fn end(&self, headers: &HeaderMap, secure: bool) -> HeaderValue {
        if let Some(secret) = secret(headers) {
            self.by_hash.lock().remove(&hash(secret));
        }
        cookie("", 0, secure)
    }
}

fn hash(secret: &str) -> [u8; 32] {
    Sha256::digest(secret.as_bytes()).into()
}

fn cookie(secret: &str, age_s: u64, secure: bool) -> HeaderValue {
    let secure = if secure { "; Secure" } else { "" };
    let text =
        format!("{NAME}={secret}; Path=/; Max-Age={age_s}; HttpOnly; SameSite=Strict{secure}");
    HeaderValue::from_str(&text).unwrap_or_else(|_| HeaderValue::from_static(""))
}

/// Returns the secret in the cookie, if there is exactly one in the right form.
fn secret(headers: &HeaderMap) -> Option<&str> {
    let pairs = headers.get_all(COOKIE).iter().filter_map(|value| value.to_str().ok());
    let mut ours = pairs
        .flat_map(|cookies| cookies.split(';'))
        .filter_map(|pair| pair.trim().strip_prefix(NAME)?.strip_prefix('='));
    let secret = ours.next().filter(|_| ours.next().is_none())?;
    (secret.len() == 64 && secret.bytes().all(|byte| byte.is_ascii_hexdigit())).then_some(secret)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(cookie: &str) -> HeaderMap {
        HeaderMap::from_iter([(COOKIE, HeaderValue::from_str(cookie).unwrap())])
    }

    #[test]
    fn a_session_is_found_by_its_cookie_until_it_ends() {
        let sessions = Sessions::default();
        let set = sessions.begin(*b"0123456789ab", true).unwrap();
        let set = set.to_str().unwrap();
        for word in ["HttpOnly", "SameSite=Strict", "Secure", "Path=/"] {
            assert!(set.contains(word), "{set}");
        }
        let pair = set.split(';').next().unwrap();
        assert_eq!(sessions.find(&with(&format!("a=b; {pair}"))), Some(*b"0123456789ab"));
        assert_eq!(sessions.find(&with(&format!("{pair}; {pair}"))), None, "ambiguous");
        assert_eq!(sessions.find(&with("forebay_session=00")), None);
        assert_eq!(sessions.find(&HeaderMap::new()), None);
        sessions.end(&with(pair), true);
        assert_eq!(sessions.find(&with(pair)), None);
    }

    #[test]
    fn the_least_recently_used_session_is_dropped() {
        let sessions = Sessions::default();
        let first = sessions.begin([b'0'; 12], false).unwrap();
        for _ in 0..SESSIONS_MAX {
            sessions.begin([b'1'; 12], false).unwrap();
        }
        let first = first.to_str().unwrap().split(';').next().unwrap().to_owned();
        assert_eq!(sessions.find(&with(&first)), None);
        assert_eq!(sessions.by_hash.lock().len(), SESSIONS_MAX);
    }
}
