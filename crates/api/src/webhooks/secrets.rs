//! The keys of hooks, derived from the master key.

use forebay_webhooks::{HookId, Secrets, SigningKey};

use crate::keys::{MasterKey, SecretLabel};

/// Keys that are derived from a hook's id and the number of its secret. None is stored.
#[derive(Debug)]
pub struct MasterSecrets(MasterKey);

impl MasterSecrets {
    /// Derives from this key.
    #[must_use]
    pub fn new(master: MasterKey) -> Self {
        Self(master)
    }
}

impl Secrets for MasterSecrets {
    fn key(&self, hook: HookId, generation: u32) -> SigningKey {
        let parts: [&[u8]; 2] = [&hook.to_bytes(), &generation.to_le_bytes()];
        SigningKey(self.0.derive(SecretLabel::Webhook, &parts))
    }

    fn fingerprint(&self) -> [u8; 16] {
        // One part, so it is the key of no hook.
        let [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, ..] =
            self.0.derive(SecretLabel::Webhook, &[b"fingerprint"]);
        [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p]
    }
}
