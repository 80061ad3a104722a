//! `<data>/master.key`: the secret from which the server derives all others it must be able to repeat.
//!
//! API keys are stored as hashes, so nothing can be signed with them. Presigned URLs, credentials of
//! the S3 port and signatures of webhooks need a secret that the server still knows; each is an
//! HMAC-SHA256 of a label and of public parts under this one key, and none is stored.
//!
//! Invariants: 32 random bytes, written once, mode 0600, synced before its first use; never replaced and
//! never printed; two labels never give the same secret, whatever the parts.

use std::fmt;
use std::fs::File;
use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};

use ring::hmac;

use super::error::KeyError;
use super::token::random;

const FILE: &str = "master.key";
/// Number of bytes of the key and of everything derived from it.
pub const SECRET_SIZE: usize = 32;

/// What a derived secret is for. Secrets with different labels have nothing in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SecretLabel {
    /// Signature of a presigned URL.
    PresignedUrl,
    /// Secret key of the S3 port.
    S3Secret,
    /// Signing key of a webhook.
    Webhook,
}

impl SecretLabel {
    fn text(self) -> &'static [u8] {
        match self {
            Self::PresignedUrl => b"forebay presigned url 1",
            Self::S3Secret => b"forebay s3 secret 1",
            Self::Webhook => b"forebay webhook 1",
        }
    }
}

/// The master key of a data directory. Cloning is cheap.
#[derive(Clone)]
pub struct MasterKey {
    key: hmac::Key,
}

impl fmt::Debug for MasterKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("MasterKey")
    }
}

impl MasterKey {
    /// Its file in the data directory `data`.
    #[must_use]
    pub fn path(data: &Path) -> PathBuf {
        data.join(FILE)
    }

    /// Reads the master key of the data directory `data`; creates it if there is none.
    ///
    /// # Errors
    /// [`KeyError::Io`], [`KeyError::Random`]; [`KeyError::Master`]: the file has another size.
    pub fn open(data: &Path) -> Result<Self, KeyError> {
        let path = Self::path(data);
        let failed = |act| {
            let path = path.clone();
            move |source| KeyError::Io { act, path, source }
        };
        let bytes = loop {
            match File::open(&path) {
                Ok(file) => {
                    let mut bytes = Vec::with_capacity(SECRET_SIZE + 1);
                    let limit = SECRET_SIZE as u64 + 1;
                    file.take(limit).read_to_end(&mut bytes).map_err(failed("read"))?;
                    break bytes;
                }
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
                Err(error) => return Err(failed("open")(error)),
            }
            // Written beside it and linked, so that no process ever reads half of it and the first wins.
            let bytes: [u8; SECRET_SIZE] = random()?;
            let mut file = tempfile::NamedTempFile::new_in(data).map_err(failed("create"))?;
            file.write_all(&bytes)
                .and_then(|()| file.as_file().sync_all())
                .map_err(failed("write"))?;
            match file.persist_noclobber(&path) {
                Ok(_) => {}
                Err(error) if error.error.kind() == std::io::ErrorKind::AlreadyExists => continue,
                Err(error) => return Err(failed("create")(error.error)),
            }
            let synced = File::open(data).and_then(|dir| dir.sync_all());
            synced.map_err(failed("sync the directory of"))?;
            break bytes.to_vec();
        };
        if bytes.len() != SECRET_SIZE {
            return Err(KeyError::Master { path });
        }
        Ok(Self { key: hmac::Key::new(hmac::HMAC_SHA256, &bytes) })
    }

    /// Returns the secret of a label and parts. Parts are separated, so that `["ab"]` and
    /// `["a", "b"]` differ.
    #[must_use]
    pub fn derive(&self, label: SecretLabel, parts: &[&[u8]]) -> [u8; SECRET_SIZE] {
        let mut context = hmac::Context::with_key(&self.key);
        for part in std::iter::once(label.text()).chain(parts.iter().copied()) {
            context.update(&(part.len() as u64).to_le_bytes());
            context.update(part);
        }
        let tag = context.sign();
        let mut secret = [0; SECRET_SIZE];
        secret.copy_from_slice(tag.as_ref());
        secret
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_key_is_made_once_and_stays_private() {
        use std::os::unix::fs::PermissionsExt as _;
        let dir = tempfile::tempdir().unwrap();
        let first = MasterKey::open(dir.path()).unwrap();
        let again = MasterKey::open(dir.path()).unwrap();
        let derive = |key: &MasterKey| key.derive(SecretLabel::S3Secret, &[b"id"]);
        assert_eq!(derive(&first), derive(&again));
        let mode = std::fs::metadata(dir.path().join(FILE)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        let other = MasterKey::open(tempfile::tempdir().unwrap().path()).unwrap();
        assert_ne!(derive(&first), derive(&other));
        assert_eq!(format!("{first:?}"), "MasterKey");
    }

    #[test]
    fn secrets_depend_on_the_label_and_on_where_parts_end() {
        let dir = tempfile::tempdir().unwrap();
        let key = MasterKey::open(dir.path()).unwrap();
        let one = key.derive(SecretLabel::Webhook, &[b"ab"]);
        assert_ne!(one, key.derive(SecretLabel::Webhook, &[b"a", b"b"]));
        assert_ne!(one, key.derive(SecretLabel::PresignedUrl, &[b"ab"]));
    }

    #[test]
    fn a_key_file_of_another_size_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        for wrong in [0, SECRET_SIZE - 1, SECRET_SIZE + 1, 4_096] {
            std::fs::write(dir.path().join(FILE), vec![7; wrong]).unwrap();
            assert!(matches!(MasterKey::open(dir.path()), Err(KeyError::Master { .. })), "{wrong}");
        }
    }
}
