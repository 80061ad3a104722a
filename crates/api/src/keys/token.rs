//! Text of a token: generated, parsed, hashed.
//!
//! ```text
//! fbk_ 0123456789ab _ 64 hex digits        81 bytes, ASCII
//!      id             secret
//! ```

use sha2::{Digest as _, Sha256};

use super::error::KeyError;

const PREFIX: &str = "fbk_";
/// Hex digits of an id.
const ID_SIZE: usize = 12;
/// Hex digits of a secret: 32 bytes.
const SECRET_SIZE: usize = 64;
/// Length of every token.
const TOKEN_SIZE: usize = PREFIX.len() + ID_SIZE + 1 + SECRET_SIZE;

/// The public part of a token, in a form that can be compared and hashed without allocation.
pub type KeyId = [u8; ID_SIZE];

/// SHA-256 of a whole token.
pub(crate) type Hash = [u8; 32];

/// A new token. Deliberately neither `Debug` nor `Clone`: it is printed once.
pub struct Token {
    text: String,
}

impl Token {
    /// Generates a token from kernel randomness.
    ///
    /// # Errors
    /// [`KeyError::Random`]: the kernel returned none.
    pub fn generate() -> Result<Self, KeyError> {
        let bytes: [u8; ID_SIZE / 2 + SECRET_SIZE / 2] = random()?;
        let (id, secret) = bytes.split_at(ID_SIZE / 2);
        Ok(Self { text: format!("{PREFIX}{}_{}", hex::encode(id), hex::encode(secret)) })
    }

    /// Returns the whole token, to be printed once.
    pub fn reveal(&self) -> &str {
        &self.text
    }

    /// Returns its public part.
    pub fn id(&self) -> &str {
        &self.text[PREFIX.len()..PREFIX.len() + ID_SIZE]
    }

    /// Returns the part that is stored.
    pub fn hash(&self) -> Hash {
        hash(self.text.as_bytes())
    }
}

/// Returns random bytes of the kernel.
///
/// # Errors
/// [`KeyError::Random`]: it returned none.
pub fn random<const N: usize>() -> Result<[u8; N], KeyError> {
    let mut bytes = [0u8; N];
    let mut filled = 0;
    while let Some(rest) = bytes.get_mut(filled..).filter(|rest| !rest.is_empty()) {
        filled += rustix::rand::getrandom(rest, rustix::rand::GetRandomFlags::empty())
            .map_err(|error| KeyError::Random(error.into()))?;
    }
    Ok(bytes)
}

/// Returns the id in a presented token, if it has the right form.
pub(super) fn id_of(token: &[u8]) -> Option<KeyId> {
    if token.len() != TOKEN_SIZE || !token.starts_with(PREFIX.as_bytes()) {
        return None;
    }
    let rest = token.get(PREFIX.len()..)?;
    if rest.get(ID_SIZE) != Some(&b'_') {
        return None;
    }
    rest.get(..ID_SIZE)?.try_into().ok()
}

/// Returns the SHA-256 of a presented token.
pub(super) fn hash(token: &[u8]) -> Hash {
    Sha256::digest(token).into()
}

/// Compares two hashes in time that does not depend on where they differ.
pub(super) fn same(a: &Hash, b: &Hash) -> bool {
    let difference = a.iter().zip(b).fold(0u8, |all, (x, y)| all | (x ^ y));
    // The barrier keeps the optimiser from turning the fold into an early exit.
    std::hint::black_box(difference) == 0
}

/// Parses a hash from 64 hex digits.
pub(super) fn hash_from_hex(text: &str) -> Option<Hash> {
    let mut hash = Hash::default();
    hex::decode_to_slice(text, &mut hash).ok()?;
    Some(hash)
}
