//! The target of an export: a directory, or a bucket.

mod directory;
mod s3;

use std::io::{Read, Seek as _, Write};

use sha2::{Digest as _, Sha256};
use tempfile::NamedTempFile;

pub(crate) use directory::Directory;
pub(crate) use s3::S3;

use super::MANIFEST;

/// A target for parts and their manifest.
pub(crate) enum Target {
    /// Below a directory.
    Directory(Directory),
    /// Below a prefix in a bucket.
    S3(Box<S3>),
}

impl Target {
    /// Refuses a target that has parts or a manifest.
    ///
    /// # Errors
    /// It has some, or cannot be listed.
    pub(crate) fn check_free(&self) -> anyhow::Result<()> {
        let found = match self {
            Self::Directory(directory) => directory.first_part()?,
            Self::S3(s3) => s3.first_part()?,
        };
        match found {
            None => Ok(()),
            Some(found) if found.ends_with(MANIFEST) => {
                anyhow::bail!("there is already an export: {found}; choose another destination")
            }
            Some(found) => anyhow::bail!(
                "there is part of an incomplete export: {found} (without {MANIFEST}); \
                     remove it, or choose another destination"
            ),
        }
    }

    /// Creates a temporary file.
    ///
    /// # Errors
    /// It cannot be created.
    pub(crate) fn stage(&self) -> anyhow::Result<Staged> {
        let file = match self {
            Self::Directory(directory) => directory.temporary()?,
            Self::S3(s3) => s3.temporary()?,
        };
        Ok(Staged { file, sha256: Sha256::new(), bytes: 0 })
    }

    /// Stores a complete file under its name below the target.
    ///
    /// # Errors
    /// The name is in use, or the file cannot be stored.
    pub(crate) fn put(&self, staged: Staged, path: &str) -> anyhow::Result<()> {
        match self {
            Self::Directory(directory) => directory.put(staged, path),
            Self::S3(s3) => s3.put(staged, path),
        }
    }
}

/// A temporary file that counts and hashes what is written; removed when dropped.
#[derive(Debug)]
pub(crate) struct Staged {
    file: NamedTempFile,
    sha256: Sha256,
    bytes: u64,
}

impl Staged {
    /// Number of bytes written.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns their digest, in hexadecimal.
    pub(crate) fn sha256(&self) -> String {
        hex::encode(self.sha256.clone().finalize())
    }

    /// Writes the whole content of a small file.
    ///
    /// # Errors
    /// An I/O error.
    pub(crate) fn write_whole(&mut self, text: &str) -> std::io::Result<()> {
        self.write_all(text.as_bytes())
    }

    /// Returns the file, from its beginning.
    fn rewound(&mut self) -> std::io::Result<&mut impl Read> {
        self.file.rewind()?;
        Ok(&mut self.file)
    }
}

impl Write for Staged {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        let written = self.file.write(bytes)?;
        self.sha256.update(bytes.get(..written).unwrap_or(bytes));
        self.bytes += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.file.flush()
    }
}

/// Returns whether a name directly below the target is one of an export.
fn is_ours(name: &str) -> bool {
    name == MANIFEST || name.starts_with("part-") || name.starts_with("date=")
}
