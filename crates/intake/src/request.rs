//! Idempotency keys: a repeated request gets the same answer again.
//!
//! A key is claimed when its request starts, and is recorded by the same log entry that makes the
//! request's change valid, so neither is ever durable without the other. The contents of a request
//! are reduced to a fingerprint; the same key with another fingerprint is refused.

use std::sync::Arc;

use sha2::{Digest as _, Sha256};

use crate::digest::Digest;
use crate::error::IntakeError;
use crate::format::IdempotencyRecord;
use crate::shared::Shared;

/// Longest idempotency key in bytes.
pub(crate) const KEY_SIZE_MAX: usize = 255;

/// A key that this request may use, or the earlier answer under it.
#[derive(Debug)]
pub enum Claim {
    /// The key is unused. It is held until the guard is dropped.
    New(HeldKey),
    /// It was answered.
    Answered {
        /// Fingerprint of the request that was answered.
        fingerprint: Digest,
        /// Its status.
        status: u16,
        /// Its JSON.
        answer: Vec<u8>,
    },
}

/// Holds a key while its request is in progress.
#[derive(Debug)]
pub struct HeldKey {
    shared: Arc<Shared>,
    key: Digest,
}

impl HeldKey {
    pub(crate) fn new(shared: Arc<Shared>, key: Digest) -> Self {
        Self { shared, key }
    }

    /// The record of this key for an entry.
    ///
    /// * `fingerprint`: what the request consists of, from [`Fingerprint`].
    #[must_use]
    pub fn record(&self, fingerprint: Digest) -> IdempotencyRecord {
        IdempotencyRecord { key: self.key, fingerprint }
    }
}

impl Drop for HeldKey {
    fn drop(&mut self) {
        self.shared.pending.lock().release(self.key);
    }
}

/// A valid idempotency key.
#[derive(Debug, Clone)]
pub struct RequestKey(Vec<u8>);

impl RequestKey {
    /// Parses a key: 1 to 255 printable ASCII characters.
    ///
    /// # Errors
    /// [`IntakeError::Rejected`]: it is not one.
    pub fn parse(value: &[u8]) -> Result<Self, IntakeError> {
        let printable = value.iter().all(|b| (0x20..0x7F).contains(b));
        if value.is_empty() || value.len() > KEY_SIZE_MAX || !printable {
            return Err(IntakeError::rejected(
                "idempotency_key",
                format!("Idempotency-Key must be 1 to {KEY_SIZE_MAX} printable ASCII characters"),
            ));
        }
        Ok(Self(value.to_vec()))
    }

    /// The digest under which the request as a whole is remembered.
    #[must_use]
    pub fn digest(&self) -> Digest {
        Digest::of_parts(&[b"request", &self.0])
    }

    /// The digest under which part `index` of a batch is remembered.
    #[must_use]
    pub fn part(&self, index: usize) -> Digest {
        Digest::of_parts(&[b"part", &self.0, &(index as u64).to_le_bytes()])
    }
}

/// Computes the fingerprint of a request.
#[derive(Debug, Clone, Default)]
pub struct Fingerprint(Sha256);

impl Fingerprint {
    /// Starts with texts (method, path, options), each delimited.
    #[must_use]
    pub fn of(parts: &[&[u8]]) -> Self {
        let mut hasher = Sha256::new();
        for part in parts {
            hasher.update((part.len() as u64).to_le_bytes());
            hasher.update(part);
        }
        Self(hasher)
    }

    /// Adds the next bytes.
    pub fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// Returns the digest of everything added.
    #[must_use]
    pub fn finish(self) -> Digest {
        Digest(self.0.finalize().into())
    }
}
