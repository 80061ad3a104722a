//! A token's text: made, taken apart, hashed.
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
/// Every token has this length.
const TOKEN_SIZE: usize = PREFIX.len() + ID_SIZE + 1 + SECRET_SIZE;

/// The public part of a token, in a form that can be compared and hashed without allocation.
pub(crate) type KeyId = [u8; ID_SIZE];

/// SHA-256 of a whole token.
pub(crate) type Hash = [u8; 32];

/// A freshly made token. Deliberately neither `Debug` nor `Clone`: it is shown once.
pub(crate) struct Token {
    text: String,
}

impl Token {
    /// Makes a token of kernel randomness.
    ///
    /// # Errors
    /// [`KeyError::Random`]: the kernel gave none.
    pub(crate) fn generate() -> Result<Self, KeyError> {
        let mut random = [0u8; ID_SIZE / 2 + SECRET_SIZE / 2];
        let mut filled = 0;
        while filled < random.len() {
            filled += rustix::rand::getrandom(
                &mut random[filled..],
                rustix::rand::GetRandomFlags::empty(),
            )
            .map_err(|error| KeyError::Random(error.into()))?;
        }
        let (id, secret) = random.split_at(ID_SIZE / 2);
        Ok(Self { text: format!("{PREFIX}{}_{}", to_hex(id), to_hex(secret)) })
    }

    /// The whole token, to be shown once.
    pub(crate) fn reveal(&self) -> &str {
        &self.text
    }

    /// Its public part.
    pub(crate) fn id(&self) -> &str {
        &self.text[PREFIX.len()..PREFIX.len() + ID_SIZE]
    }

    /// What is kept of it.
    pub(crate) fn hash(&self) -> Hash {
        hash(self.text.as_bytes())
    }
}

/// The id inside a presented token, when it has the right shape.
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

/// SHA-256 of a presented token.
pub(super) fn hash(token: &[u8]) -> Hash {
    Sha256::digest(token).into()
}

/// Compares two hashes in time that does not depend on where they differ.
pub(super) fn same(a: &Hash, b: &Hash) -> bool {
    let difference = a.iter().zip(b).fold(0u8, |all, (x, y)| all | (x ^ y));
    // The barrier keeps the optimiser from turning the fold into an early exit.
    std::hint::black_box(difference) == 0
}

/// Lower-case hex of `bytes`.
pub(super) fn to_hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    bytes
        .iter()
        .flat_map(|byte| [byte >> 4, byte & 15])
        .map(|digit| char::from(DIGITS[usize::from(digit)]))
        .collect()
}

/// The hash written as `text`, 64 hex digits.
pub(super) fn hash_from_hex(text: &str) -> Option<Hash> {
    let digits = text.as_bytes();
    let mut hash = Hash::default();
    if digits.len() != 2 * hash.len() {
        return None;
    }
    for (byte, pair) in hash.iter_mut().zip(digits.chunks_exact(2)) {
        let pair = std::str::from_utf8(pair).ok()?;
        // `from_str_radix` takes a sign; a hash has none.
        if pair.starts_with('+') {
            return None;
        }
        *byte = u8::from_str_radix(pair, 16).ok()?;
    }
    Some(hash)
}
