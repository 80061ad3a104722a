//! Credentials of the port: those of API keys.
//!
//! The access key id is the id of an API key. Its secret is derived from the master key, so nothing secret
//! is stored, and it ends with the API key: a revoked key signs nothing. Ids are never used twice.

use std::sync::Arc;

use forebay_api::keys::{Grant, KeyRing, MasterKey, SecretLabel};
use s3s::auth::{S3Auth, SecretKey};
use s3s::{S3Result, s3_error};

/// Returns the secret access key of the API key with this id: 64 hex digits.
#[must_use]
pub fn secret(master: &MasterKey, id: &str) -> String {
    hex::encode(master.derive(SecretLabel::S3Secret, &[id.as_bytes()]))
}

/// Looks credentials up.
#[derive(Debug, Clone)]
pub(crate) struct Credentials {
    keys: Arc<KeyRing>,
    master: MasterKey,
}

impl Credentials {
    pub(crate) fn new(keys: Arc<KeyRing>, master: MasterKey) -> Self {
        Self { keys, master }
    }

    /// Returns what the key with this id may do now; `None` if there is none, or it was revoked.
    pub(crate) fn grant(&self, access_key: &str) -> Option<Grant> {
        self.keys.still(access_key.as_bytes().try_into().ok()?)
    }
}

#[async_trait::async_trait]
impl S3Auth for Credentials {
    async fn get_secret_key(&self, access_key: &str) -> S3Result<SecretKey> {
        match self.grant(access_key) {
            Some(_) => Ok(secret(&self.master, access_key).into()),
            None => Err(s3_error!(
                InvalidAccessKeyId,
                "The AWS Access Key Id you provided does not exist in our records."
            )),
        }
    }
}
