//! Signed notes: a text and its signatures, each on its own line (C2SP signed-note).
//!
//! ```text
//! text, one line or more
//!
//! — name base64(key id || signature)
//! ```
//!
//! Invariant: the text of a [`SignedNote`] ends in a newline and has no other control character,
//! and a written note is parsed to the same note.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::key::{SigningKey, VerifierKey, check_name};

/// Maximum size of a note in bytes.
pub const NOTE_SIZE_MAX: usize = 256 * 1024;
/// Maximum number of signatures of a note.
pub const SIGNATURES_MAX: usize = 100;

/// How a signature line begins: an em dash and a space.
const SIGNATURE_START: &str = "\u{2014} ";

/// A text with signatures that were parsed but not verified.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SignedNote {
    text: String,
    signatures: Vec<NoteSignature>,
}

/// One signature line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NoteSignature {
    /// The name of the key.
    pub name: String,
    /// The id of the key.
    pub key_id: u32,
    /// The signature.
    pub signature: Vec<u8>,
}

/// Why bytes are not a signed note, or not one with the required signature.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NoteError {
    /// Too large to be read.
    #[error("the note has {size} bytes; the maximum is {NOTE_SIZE_MAX}")]
    TooLarge {
        /// Its bytes.
        size: usize,
    },
    /// Not a signed note.
    #[error("not a signed note: {reason}")]
    Malformed {
        /// What is wrong.
        reason: &'static str,
    },
    /// A line after the text is not a signature line.
    #[error("not a signed note: signature line {line} {reason}")]
    Line {
        /// Line number, counted from 1.
        line: usize,
        /// What is wrong.
        reason: &'static str,
    },
    /// The note has no signature by the key.
    #[error("the note has no signature by {key}")]
    NotSigned {
        /// The key's name and id.
        key: String,
    },
    /// A signature with the key's name is not valid.
    #[error("the signature by {key} is not valid")]
    Signature {
        /// The key's name and id.
        key: String,
    },
}

impl SignedNote {
    /// Signs a text.
    ///
    /// # Errors
    /// If the text cannot be that of a note: it must end in a newline and have no other control
    /// character.
    pub fn sign(text: String, key: &SigningKey) -> Result<Self, NoteError> {
        check_text(&text)?;
        let signature = key.sign(text.as_bytes()).to_vec();
        let key_id = key.verifier().key_id();
        let name = key.verifier().name().to_owned();
        let note = Self { text, signatures: vec![NoteSignature { name, key_id, signature }] };
        match note.text.len() {
            size if size > NOTE_SIZE_MAX / 2 => Err(NoteError::TooLarge { size }),
            _ => Ok(note),
        }
    }

    /// Reads a note without verifying anything.
    ///
    /// # Errors
    /// [`NoteError::TooLarge`], [`NoteError::Malformed`], [`NoteError::Line`].
    pub fn parse(bytes: &[u8]) -> Result<Self, NoteError> {
        if bytes.len() > NOTE_SIZE_MAX {
            return Err(NoteError::TooLarge { size: bytes.len() });
        }
        let note = str::from_utf8(bytes)
            .map_err(|_| NoteError::Malformed { reason: "its text is not UTF-8" })?;
        // The last empty line separates the text from its signatures.
        let (before, lines) = note
            .rsplit_once("\n\n")
            .ok_or(NoteError::Malformed { reason: "it has no empty line before the signatures" })?;
        let text = format!("{before}\n");
        check_text(&text)?;
        let lines = lines
            .strip_suffix('\n')
            .ok_or(NoteError::Malformed { reason: "it does not end with a newline" })?;
        let mut signatures = Vec::new();
        for (index, line) in lines.split('\n').enumerate() {
            let number = index + 1;
            if number > SIGNATURES_MAX {
                return Err(NoteError::Line {
                    line: number,
                    reason: "exceeds the maximum number of signatures",
                });
            }
            let read = NoteSignature::parse(line);
            signatures.push(read.map_err(|reason| NoteError::Line { line: number, reason })?);
        }
        Ok(Self { text, signatures })
    }

    /// The signed text, not verified.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The signatures, not verified.
    #[must_use]
    pub fn signatures(&self) -> &[NoteSignature] {
        &self.signatures
    }

    /// The text of a note, without its signatures.
    #[must_use]
    pub(crate) fn unsigned(note: &Self) -> Self {
        Self { text: note.text.clone(), signatures: Vec::new() }
    }

    /// Adds a signature, unless the note has it.
    ///
    /// # Errors
    /// [`NoteError::TooLarge`]: it has the maximum number of signatures.
    pub fn add(&mut self, signature: NoteSignature) -> Result<(), NoteError> {
        if self.signatures.contains(&signature) {
            return Ok(());
        }
        if self.signatures.len() >= SIGNATURES_MAX {
            return Err(NoteError::TooLarge { size: self.to_string().len() });
        }
        self.signatures.push(signature);
        Ok(())
    }

    /// Verifies that the key signed the text, and returns it. Ignores signatures by other keys.
    ///
    /// # Errors
    /// [`NoteError::NotSigned`] without a signature by the key; [`NoteError::Signature`] if one
    /// with its name and id is not valid.
    pub fn verify(&self, key: &VerifierKey) -> Result<&str, NoteError> {
        let named = |s: &&NoteSignature| s.name == key.name() && s.key_id == key.key_id();
        let mut signed = false;
        for signature in self.signatures.iter().filter(named) {
            if !key.verifies(self.text.as_bytes(), &signature.signature) {
                return Err(NoteError::Signature { key: key.label() });
            }
            signed = true;
        }
        if signed { Ok(&self.text) } else { Err(NoteError::NotSigned { key: key.label() }) }
    }
}

impl fmt::Display for SignedNote {
    /// The note as it is stored and sent.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.text)?;
        self.signatures.iter().try_for_each(|signature| writeln!(f, "{signature}"))
    }
}

impl fmt::Display for NoteSignature {
    /// Its line, without a newline.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bytes = [&self.key_id.to_be_bytes(), self.signature.as_slice()].concat();
        write!(f, "{SIGNATURE_START}{} {}", self.name, STANDARD.encode(bytes))
    }
}

impl NoteSignature {
    /// Parses a line, without a newline.
    ///
    /// # Errors
    /// What is wrong with it, to follow "the line".
    pub fn parse(line: &str) -> Result<Self, &'static str> {
        let rest = line.strip_prefix(SIGNATURE_START).ok_or("does not start with an em dash")?;
        let (name, encoded) = rest.split_once(' ').ok_or("has no signature after the name")?;
        check_name(name)?;
        let bytes = STANDARD.decode(encoded).map_err(|_| "is not base64")?;
        let (id, signature) = bytes.split_first_chunk().ok_or("has no key id")?;
        if signature.is_empty() {
            return Err("has no signature after the key id");
        }
        let key_id = u32::from_be_bytes(*id);
        Ok(Self { name: name.to_owned(), key_id, signature: signature.to_vec() })
    }
}

fn check_text(text: &str) -> Result<(), NoteError> {
    if !text.ends_with('\n') {
        return Err(NoteError::Malformed { reason: "its text does not end in a newline" });
    }
    match text.bytes().any(|byte| byte < b' ' && byte != b'\n') {
        true => Err(NoteError::Malformed { reason: "its text contains a control character" }),
        false => Ok(()),
    }
}
