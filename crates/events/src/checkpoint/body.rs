//! The text of a checkpoint (C2SP tlog-checkpoint): origin, size, root, and lines of others.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::note::{NoteError, SignedNote};
use super::{SigningKey, VerifierKey};
use crate::merkle::Hash;

/// The line of a checkpoint whose store records what it removes.
const RECORDED: &str = "forebay-prunings-are-recorded";

/// What precedes the number in the line of a numbered checkpoint.
const NUMBER: &str = "forebay-checkpoint ";

/// What precedes the number of the first checkpoint of which the store kept a copy.
const COPIED: &str = "forebay-newest-copied-since ";

/// The line of a checkpoint whose store authenticates its own files.
const SEALED: &str = "forebay-files-are-authenticated";

/// The state of a log at a size.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Checkpoint {
    /// The log's name.
    pub origin: String,
    /// Leaves in it.
    pub size: u64,
    /// The root over them.
    pub root: Hash,
    /// Further lines, whose meaning is up to their author.
    pub extensions: Vec<String>,
}

/// Why something is not a checkpoint of the log.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CheckpointError {
    /// The note cannot be read, or the key did not sign it.
    #[error("the checkpoint's note is not valid")]
    Note(#[source] NoteError),
    /// The signed text is not that of a checkpoint.
    #[error("not a checkpoint: {reason}")]
    Malformed {
        /// What is wrong.
        reason: &'static str,
    },
    /// It belongs to another log.
    #[error("the checkpoint is for the log {found}, not for {expected}")]
    Origin {
        /// The log of the key.
        expected: String,
        /// The log in the checkpoint.
        found: String,
    },
}

impl Checkpoint {
    /// Returns the checkpoint of a store that records what it removes (`event-system.md`), numbers
    /// its checkpoints from 1, and keeps a copy of the newest one.
    ///
    /// * `copied_since`: number of the first checkpoint that was copied.
    #[must_use]
    pub fn recorded(origin: String, size: u64, root: Hash, number: u64, copied_since: u64) -> Self {
        let (number, copied) = (format!("{NUMBER}{number}"), format!("{COPIED}{copied_since}"));
        Self { origin, size, root, extensions: vec![RECORDED.to_owned(), number, copied] }
    }

    /// Its number among the checkpoints of its store, from 1; those of earlier versions have none.
    #[must_use]
    pub fn number(&self) -> Option<u64> {
        self.extensions.iter().find_map(|line| parse_size(line.strip_prefix(NUMBER)?))
    }

    /// The number of the first checkpoint of which the store kept a copy; those of earlier versions
    /// have none.
    #[must_use]
    pub fn copied_since(&self) -> Option<u64> {
        self.extensions.iter().find_map(|line| parse_size(line.strip_prefix(COPIED)?))
    }

    /// Whether its store records what it removes.
    #[must_use]
    pub fn is_recorded(&self) -> bool {
        self.extensions.iter().any(|line| line == RECORDED)
    }

    /// States that its store authenticates its own files (`event-authentication.md`).
    #[must_use]
    pub fn sealed(mut self) -> Self {
        if !self.is_sealed() {
            self.extensions.push(SEALED.to_owned());
        }
        self
    }

    /// Whether its store authenticates its own files.
    #[must_use]
    pub fn is_sealed(&self) -> bool {
        self.extensions.iter().any(|line| line == SEALED)
    }

    /// Signs it with the log's key; the origin is the key's name.
    ///
    /// # Errors
    /// [`CheckpointError::Origin`] if it belongs to another log, [`CheckpointError::Malformed`] or
    /// [`CheckpointError::Note`] if its lines cannot be written.
    pub fn sign(&self, key: &SigningKey) -> Result<SignedNote, CheckpointError> {
        self.expect_origin(key.verifier().name())?;
        let bad = |line: &String| line.is_empty() || line.contains('\n');
        if bad(&self.origin) || self.extensions.iter().any(bad) {
            return Err(CheckpointError::Malformed {
                reason: "a line is empty or contains a newline",
            });
        }
        SignedNote::sign(self.to_string(), key).map_err(CheckpointError::Note)
    }

    /// Parses a signed note, verifies that the key signed it, and returns the checkpoint.
    ///
    /// # Errors
    /// [`CheckpointError`].
    pub fn open(note: &[u8], key: &VerifierKey) -> Result<Self, CheckpointError> {
        let note = SignedNote::parse(note).map_err(CheckpointError::Note)?;
        let text = note.verify(key).map_err(CheckpointError::Note)?;
        let checkpoint = Self::parse(text)?;
        checkpoint.expect_origin(key.name())?;
        Ok(checkpoint)
    }

    /// Parses the text of a note as a checkpoint; does not verify its author.
    ///
    /// # Errors
    /// [`CheckpointError::Malformed`].
    pub fn parse(text: &str) -> Result<Self, CheckpointError> {
        let malformed = |reason| CheckpointError::Malformed { reason };
        let text = text.strip_suffix('\n').ok_or(malformed("it does not end with a newline"))?;
        let mut lines = text.split('\n');
        if lines.clone().any(str::is_empty) {
            return Err(malformed("it contains an empty line"));
        }
        let (Some(origin), Some(size), Some(root)) = (lines.next(), lines.next(), lines.next())
        else {
            return Err(malformed("it has fewer than three lines"));
        };
        let size = parse_size(size).ok_or(malformed("the size is not a number"))?;
        let root = STANDARD.decode(root).ok().and_then(|bytes| bytes.try_into().ok()).map(Hash);
        let root = root.ok_or(malformed("the root is not 32 bytes in base64"))?;
        let extensions = lines.map(str::to_owned).collect();
        Ok(Self { origin: origin.to_owned(), size, root, extensions })
    }

    fn expect_origin(&self, expected: &str) -> Result<(), CheckpointError> {
        if self.origin == expected {
            return Ok(());
        }
        let (expected, found) = (expected.to_owned(), self.origin.clone());
        Err(CheckpointError::Origin { expected, found })
    }
}

impl fmt::Display for Checkpoint {
    /// The text that is signed.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { origin, size, root, extensions } = self;
        write!(f, "{origin}\n{size}\n{}\n", STANDARD.encode(root.0))?;
        extensions.iter().try_for_each(|line| writeln!(f, "{line}"))
    }
}

/// Parses a decimal number in canonical form, without sign or leading zeros.
pub(crate) fn parse_size(text: &str) -> Option<u64> {
    let plain = text.bytes().all(|b| b.is_ascii_digit()) && (text == "0" || !text.starts_with('0'));
    plain.then(|| text.parse().ok()).flatten()
}
