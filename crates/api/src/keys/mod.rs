//! API keys: created once, printed once, stored as hashes.
//!
//! A key is `fbk_<id>_<secret>`: twelve hex digits that name it and 64 that are 32 random bytes.
//! `<data>/keys.toml` stores the id and the SHA-256 of the whole token, so the file gives no one
//! access. A plain hash is enough because the secret is random, not a password: there is nothing
//! to guess by dictionary.
//!
//! Invariants: the file is replaced in one rename, mode 0600, synced before `key new` prints the
//! token; changes by several processes are serialized by `keys.lock`; a revoked key stays in the
//! file, so that revoking the last one never opens the server to everyone; `keys.made`, written
//! before the first key, stays, so that a data directory whose key file is missing does not open.

mod error;
mod file;
mod limit;
mod master;
pub(crate) mod presign;
mod ring;
mod token;

#[cfg(test)]
mod tests;

pub use error::KeyError;
pub use file::{KeyFile, Record};
pub use limit::{Area, Limit};
pub use master::{MasterKey, SECRET_SIZE, SecretLabel};
pub use ring::{Denied, Grant, KeyRing, SentBy};
pub use token::{KeyId, random};

use serde::{Deserialize, Serialize};

/// When requests need an API key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Auth {
    /// As soon as a key file exists.
    Auto,
    /// Always, even before the first key is made.
    Required,
    /// Never.
    Off,
}

/// Permission of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Scope {
    /// Read: GET and HEAD below /v1, reading commands of the cache.
    Read,
    /// Everything else below /v1, writing commands of the cache.
    Write,
    /// All of it, and the administration of the server and the cache.
    Admin,
    /// Add events, documents and new files, and change or delete nothing.
    Append,
}

impl Scope {
    /// Returns its name.
    pub fn word(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Admin => "admin",
            Self::Append => "append",
        }
    }
}

/// A set of scopes in one byte, for the request path.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Scopes(u8);

impl Scopes {
    /// Returns whether `scope` is granted: by itself, through `admin`, or, to append, through
    /// `write`.
    pub fn allow(self, scope: Scope) -> bool {
        let wider = if scope == Scope::Append { 1 << Scope::Write as u8 } else { 0 };
        self.0 & (1 << Scope::Admin as u8 | 1 << scope as u8 | wider) != 0
    }
}

impl FromIterator<Scope> for Scopes {
    fn from_iter<I: IntoIterator<Item = Scope>>(scopes: I) -> Self {
        Self(scopes.into_iter().fold(0, |bits, scope| bits | 1 << scope as u8))
    }
}
