//! Secrets and signatures, as the Standard Webhooks specification has them.
//!
//! ```text
//! secret      whsec_ and the Base64 of 32 bytes
//! signature   v1, and the Base64 of HMAC-SHA256(key, id "." seconds "." body); one for each valid secret
//! ```
//!
//! A secret is derived of the hook's id and a number that grows with each rotation, so the state holds none.
//!
//! Invariant: no `Debug` output has a key.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ring::hmac;

use crate::hook::HookId;

/// Number of bytes of a key.
const KEY_SIZE: usize = 32;

/// Derives the keys of hooks. The same hook and generation always give the same key.
pub trait Secrets: Send + Sync + 'static {
    /// Returns the key of a hook.
    ///
    /// * `generation`: 1 for its first, and one more after each rotation.
    fn key(&self, hook: HookId, generation: u32) -> SigningKey;

    /// A value that differs if the keys of all hooks differ, and says nothing about them.
    fn fingerprint(&self) -> [u8; 16];
}

/// The key of a hook.
#[derive(Clone, PartialEq, Eq)]
pub struct SigningKey(pub [u8; KEY_SIZE]);

impl fmt::Debug for SigningKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SigningKey")
    }
}

impl SigningKey {
    /// Returns the secret as its receiver gets it, once.
    #[must_use]
    pub fn secret(&self) -> String {
        format!("whsec_{}", STANDARD.encode(self.0))
    }
}

/// Returns the header `webhook-signature` of a request: one signature for each key.
#[must_use]
pub fn signature(keys: &[SigningKey], id: &str, timestamp_s: u64, body: &[u8]) -> String {
    let signed = keys.iter().map(|SigningKey(key)| {
        let mut context = hmac::Context::with_key(&hmac::Key::new(hmac::HMAC_SHA256, key));
        context.update(id.as_bytes());
        context.update(format!(".{timestamp_s}.").as_bytes());
        context.update(body);
        format!("v1,{}", STANDARD.encode(context.sign().as_ref()))
    });
    signed.collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The example of the specification's reference libraries.
    #[test]
    fn the_signature_is_that_of_the_specification() {
        let key = STANDARD.decode("MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw").unwrap();
        let mut context = hmac::Context::with_key(&hmac::Key::new(hmac::HMAC_SHA256, &key));
        context.update(b"msg_p5jXN8AQM9LWM0D4loKWxJek.1614265330.{\"test\": 2432232314}");
        let expected = "g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=";
        assert_eq!(STANDARD.encode(context.sign().as_ref()), expected);
        // The same by our function, with a key of our size.
        let key = SigningKey([7; KEY_SIZE]);
        let mut context = hmac::Context::with_key(&hmac::Key::new(hmac::HMAC_SHA256, &key.0));
        context.update(b"evt_1.12.{}");
        let one = format!("v1,{}", STANDARD.encode(context.sign().as_ref()));
        assert_eq!(signature(std::slice::from_ref(&key), "evt_1", 12, b"{}"), one);
        let two = signature(&[key.clone(), key.clone()], "evt_1", 12, b"{}");
        assert_eq!(two, format!("{one} {one}"));
        assert!(key.secret().starts_with("whsec_") && format!("{key:?}") == "SigningKey");
    }
}
