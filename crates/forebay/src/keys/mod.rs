//! API keys: made once, shown once, kept as hashes.
//!
//! A key is `fbk_<id>_<secret>`: twelve hex digits that name it and 64 that are 32 random bytes.
//! `<data>/keys.toml` keeps the id and the SHA-256 of the whole token, so the file gives nobody
//! access. A plain hash is enough because the secret is random, not a password: there is nothing
//! to guess by dictionary.
//!
//! Invariants: the file is replaced in one rename, mode 0600, synced before `key new` prints the
//! token; changes by several processes take turns through `keys.lock`; a revoked key stays in the
//! file, so that revoking the last one never opens the server to everybody.

mod error;
mod file;
mod ring;
mod token;

#[cfg(test)]
mod tests;

pub(crate) use file::{KeyFile, Record};
pub(crate) use ring::{Denied, KeyRing};

use serde::{Deserialize, Serialize};

/// What a key may do.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, clap::ValueEnum,
)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Scope {
    /// GET and HEAD below /v1.
    Read,
    /// Everything else below /v1.
    Write,
    /// All of it, and /v1/admin.
    Admin,
}

impl Scope {
    /// The word for it.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Admin => "admin",
        }
    }
}

/// A set of scopes in one byte, for the request path.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Scopes(u8);

impl Scopes {
    /// Whether `scope` is granted, by itself or through `admin`.
    pub(crate) fn allow(self, scope: Scope) -> bool {
        self.0 & (1 << Scope::Admin as u8 | 1 << scope as u8) != 0
    }
}

impl FromIterator<Scope> for Scopes {
    fn from_iter<I: IntoIterator<Item = Scope>>(scopes: I) -> Self {
        Self(scopes.into_iter().fold(0, |bits, scope| bits | 1 << scope as u8))
    }
}
