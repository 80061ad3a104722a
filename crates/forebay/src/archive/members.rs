//! Names of members, and the bytes of one.
//!
//! Invariant: a name that is parsed is one of four fixed forms; no other text is a member.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::FileExt as _;
use std::sync::Arc;

use forebay_intake::digest::Digest;
use sha2::{Digest as _, Sha256};

use super::error::ArchiveError;

/// Bytes that are read at a time.
pub(super) const PIECE: usize = 256 << 10;
pub(super) const FILES: &str = "files.ndjson";
pub(super) const DOCUMENTS: &str = "documents.ndjson";
pub(super) const MANIFEST: &str = "manifest.json";
/// The directory of contents.
pub(super) const CONTENTS: &str = "files";

/// The name of a member, in the order of the members.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum MemberName {
    /// The bytes of files.
    Content(Digest),
    /// The list of files.
    Files,
    /// The documents.
    Documents,
    /// The manifest.
    Manifest,
}

impl MemberName {
    /// Parses a name.
    ///
    /// # Errors
    /// An archive has no member of this name.
    pub(super) fn parse(name: &[u8]) -> Result<Self, ArchiveError> {
        let content = name.strip_prefix(b"files/").and_then(digest_of).map(Self::Content);
        let named = |known: &str| name == known.as_bytes();
        match content {
            Some(content) => Ok(content),
            None if named(FILES) => Ok(Self::Files),
            None if named(DOCUMENTS) => Ok(Self::Documents),
            None if named(MANIFEST) => Ok(Self::Manifest),
            None => Err(ArchiveError::Member {
                name: String::from_utf8_lossy(name).into_owned(),
                reason: "an exported namespace has no member of this name",
            }),
        }
    }

    /// The name as text.
    pub(super) fn text(self) -> String {
        match self {
            Self::Content(digest) => format!("{CONTENTS}/{digest}"),
            Self::Files => FILES.to_owned(),
            Self::Documents => DOCUMENTS.to_owned(),
            Self::Manifest => MANIFEST.to_owned(),
        }
    }
}

/// Reads 64 hexadecimal digits in lower case.
pub(super) fn digest_of(text: &[u8]) -> Option<Digest> {
    let is_lower = text.iter().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    let text = std::str::from_utf8(text).ok().filter(|_| is_lower)?;
    Digest::from_hex(text)
}

/// Where the bytes of a member are in its file.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Section {
    pub(super) at: u64,
    pub(super) size: u64,
}

/// The bytes of a member. Several of one file are read independently.
#[derive(Debug)]
pub(crate) struct MemberBytes {
    file: Arc<File>,
    at: u64,
    left: u64,
}

impl MemberBytes {
    pub(super) fn new(file: Arc<File>, section: Section) -> Self {
        Self { file, at: section.at, left: section.size }
    }
}

impl Read for MemberBytes {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let wanted = usize::try_from(self.left).unwrap_or(usize::MAX).min(buffer.len());
        let Some(buffer) = buffer.get_mut(..wanted).filter(|buffer| !buffer.is_empty()) else {
            return Ok(0);
        };
        let read = self.file.read_at(buffer, self.at)?;
        if read == 0 {
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the archive became shorter"));
        }
        self.at += read as u64;
        self.left -= read as u64;
        Ok(read)
    }
}

/// Reads `from` to its end; returns size and digest.
///
/// * `each`: called with the bytes of every piece.
pub(super) fn hash<E>(
    from: &mut dyn Read,
    cannot_read: impl Fn(io::Error) -> E,
    each: &mut dyn FnMut(&[u8]) -> Result<(), E>,
) -> Result<(u64, Digest), E> {
    let mut hasher = Sha256::new();
    let mut buffer = vec![0; PIECE];
    let mut size = 0;
    loop {
        let read = match from.read(&mut buffer) {
            Ok(0) => return Ok((size, Digest(hasher.finalize().into()))),
            Ok(read) => read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(cannot_read(error)),
        };
        let bytes = buffer.get(..read).unwrap_or_default();
        hasher.update(bytes);
        size += read as u64;
        each(bytes)?;
    }
}
