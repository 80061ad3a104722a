//! The keys of a log: Ed25519, in the text forms of C2SP signed-note.
//!
//! - verifier key: `name+<key id, 8 hex digits>+base64(0x01 || public key)`, to be handed out;
//! - signing key: `PRIVATE+KEY+name+<key id>+base64(0x01 || seed)`, never printed or logged.
//!
//! The key id is the first four bytes of `SHA-256(name || 0x0A || 0x01 || public key)`. Keys of
//! witnesses have 0x04 instead of 0x01 (`cosignature`).

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use forebay_base::fs::{Access, FileSystem};
use ring::rand::{SecureRandom as _, SystemRandom};
use ring::signature::{ED25519, Ed25519KeyPair, KeyPair as _, UnparsedPublicKey};
use sha2::{Digest as _, Sha256};

/// The type of an Ed25519 signature among those of notes.
const ED25519_TYPE: u8 = 1;
/// The type of an Ed25519 cosignature with a timestamp.
pub(super) const COSIGNATURE_TYPE: u8 = 4;
const SEED_SIZE: usize = 32;
const PUBLIC_KEY_SIZE: usize = 32;
const SIGNATURE_SIZE: usize = 64;
const PRIVATE_START: &str = "PRIVATE+KEY+";
/// Largest key file read, in bytes.
const KEY_FILE_SIZE_MAX: u64 = 4096;

/// Verifies the signatures of a log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VerifierKey {
    name: String,
    key_id: u32,
    kind: u8,
    public_key: [u8; PUBLIC_KEY_SIZE],
}

/// Signs on behalf of a log.
pub struct SigningKey {
    seed: [u8; SEED_SIZE],
    pair: Ed25519KeyPair,
    verifier: VerifierKey,
}

/// Why a text is not a key, or why a key cannot be created.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum KeyError {
    /// Not a valid key.
    #[error("not a valid key: {reason}")]
    Malformed {
        /// What is wrong.
        reason: &'static str,
    },
    /// Not a valid name of a key.
    #[error("the key's name {reason}")]
    Name {
        /// What is wrong.
        reason: &'static str,
    },
    /// The id does not belong to this name and key.
    #[error("the key's id is {found:08x}, but its name and bytes give {expected:08x}")]
    Id {
        /// The expected id.
        expected: u32,
        /// The actual id.
        found: u32,
    },
    /// The system returned no random bytes.
    #[error("the operating system returned no random bytes")]
    Random,
}

/// Why a key file cannot be read or created.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum KeyFileError {
    /// The file system failed.
    #[error("cannot {act} the key file {path}")]
    Io {
        /// The operation that failed.
        act: &'static str,
        /// The file.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// The file does not contain a valid key.
    #[error("the key file {path} does not contain a valid key")]
    Key {
        /// The file.
        path: PathBuf,
        /// Why not.
        source: KeyError,
    },
}

impl VerifierKey {
    fn new(name: &str, kind: u8, public_key: [u8; PUBLIC_KEY_SIZE]) -> Result<Self, KeyError> {
        check_name(name).map_err(|reason| KeyError::Name { reason })?;
        let digest = Sha256::new_with_prefix(name)
            .chain_update([b'\n', kind])
            .chain_update(public_key)
            .finalize();
        let [a, b, c, d, ..] = <[u8; 32]>::from(digest);
        let key_id = u32::from_be_bytes([a, b, c, d]);
        Ok(Self { name: name.to_owned(), key_id, kind, public_key })
    }

    /// Parses the text of a key for signatures of a type.
    pub(super) fn parse(text: &str, kind: u8) -> Result<Self, KeyError> {
        let (name, found, public_key) = decode(text, kind)?;
        let key = Self::new(name, kind, public_key)?;
        expect_id(&key, found)?;
        Ok(key)
    }

    /// Name of the key's log.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its id.
    #[must_use]
    pub fn key_id(&self) -> u32 {
        self.key_id
    }

    /// Name and id, for messages.
    pub(super) fn label(&self) -> String {
        format!("{}+{:08x}", self.name, self.key_id)
    }

    /// Whether this is the key's signature of the message.
    pub(crate) fn verifies(&self, message: &[u8], signature: &[u8]) -> bool {
        UnparsedPublicKey::new(&ED25519, self.public_key).verify(message, signature).is_ok()
    }
}

impl fmt::Display for VerifierKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&encode(self, &self.public_key))
    }
}

impl FromStr for VerifierKey {
    type Err = KeyError;

    fn from_str(text: &str) -> Result<Self, KeyError> {
        Self::parse(text, ED25519_TYPE)
    }
}

impl SigningKey {
    /// Creates a new key for the log `name`.
    ///
    /// # Errors
    /// [`KeyError::Name`] for a name that is empty or has spaces, plus signs or control characters;
    /// [`KeyError::Random`].
    pub fn generate(name: &str) -> Result<Self, KeyError> {
        Self::generate_of(name, ED25519_TYPE)
    }

    /// Creates a new key for signatures of a type.
    pub(super) fn generate_of(name: &str, kind: u8) -> Result<Self, KeyError> {
        let mut seed = [0; SEED_SIZE];
        SystemRandom::new().fill(&mut seed).map_err(|_| KeyError::Random)?;
        Self::from_seed_of(name, kind, seed)
    }

    /// The key of the log `name` with this seed.
    ///
    /// # Errors
    /// [`KeyError::Name`].
    pub fn from_seed(name: &str, seed: [u8; SEED_SIZE]) -> Result<Self, KeyError> {
        Self::from_seed_of(name, ED25519_TYPE, seed)
    }

    /// The key for signatures of a type, with this seed.
    pub(super) fn from_seed_of(
        name: &str,
        kind: u8,
        seed: [u8; SEED_SIZE],
    ) -> Result<Self, KeyError> {
        let refused = KeyError::Malformed { reason: "the seed was rejected" };
        let pair = Ed25519KeyPair::from_seed_unchecked(&seed).map_err(|_| refused)?;
        let public_key = pair.public_key().as_ref().try_into().map_err(|_| refused)?;
        let verifier = VerifierKey::new(name, kind, public_key)?;
        Ok(Self { seed, pair, verifier })
    }

    /// Returns the key that verifies its signatures.
    #[must_use]
    pub fn verifier(&self) -> &VerifierKey {
        &self.verifier
    }

    /// Signs a message.
    pub(crate) fn sign(&self, message: &[u8]) -> [u8; SIGNATURE_SIZE] {
        let mut signature = [0; SIGNATURE_SIZE];
        // An Ed25519 signature always has this size.
        signature.copy_from_slice(self.pair.sign(message).as_ref());
        signature
    }

    /// Derives another secret from this one and the key's name.
    ///
    /// * `context`: what the derived secret is for; different ones give independent secrets.
    pub(crate) fn derive(&self, context: &str) -> [u8; 32] {
        let mut hasher = blake3::Hasher::new_derive_key(context);
        hasher.update(&self.seed).update(self.verifier.name.as_bytes());
        *hasher.finalize().as_bytes()
    }

    /// Returns its text, which must be kept secret.
    #[must_use]
    pub fn to_secret_text(&self) -> String {
        format!("{PRIVATE_START}{}", encode(&self.verifier, &self.seed))
    }

    /// Parses the text of a key for signatures of a type.
    pub(super) fn parse(text: &str, kind: u8) -> Result<Self, KeyError> {
        let rest = text
            .strip_prefix(PRIVATE_START)
            .ok_or(KeyError::Malformed { reason: "it does not start like a private key" })?;
        let (name, found, seed) = decode(rest, kind)?;
        let key = Self::from_seed_of(name, kind, seed)?;
        expect_id(&key.verifier, found)?;
        Ok(key)
    }
}

impl FromStr for SigningKey {
    type Err = KeyError;

    fn from_str(text: &str) -> Result<Self, KeyError> {
        Self::parse(text, ED25519_TYPE)
    }
}

impl fmt::Debug for SigningKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SigningKey").field("verifier", &self.verifier).finish_non_exhaustive()
    }
}

/// Reads the key of a store; `None` if there is no file.
///
/// # Errors
/// [`KeyFileError`].
pub fn load_key(fs: &dyn FileSystem, path: &Path) -> Result<Option<SigningKey>, KeyFileError> {
    load_key_of(fs, path, ED25519_TYPE)
}

/// Like [`load_key`], for signatures of a type.
pub(super) fn load_key_of(
    fs: &dyn FileSystem,
    path: &Path,
    kind: u8,
) -> Result<Option<SigningKey>, KeyFileError> {
    let io = |act, source| KeyFileError::Io { act, path: path.to_owned(), source };
    let damaged = |source| KeyFileError::Key { path: path.to_owned(), source };
    let file = match fs.open(path, Access::Read) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(io("open", error)),
    };
    let len = file.len().map_err(|source| io("read", source))?;
    if len > KEY_FILE_SIZE_MAX {
        return Err(damaged(KeyError::Malformed { reason: "the file is too large" }));
    }
    let mut bytes = vec![0; usize::try_from(len).unwrap_or(0)];
    file.read_exact_at(&mut bytes, 0).map_err(|source| io("read", source))?;
    let text = str::from_utf8(&bytes)
        .map_err(|_| damaged(KeyError::Malformed { reason: "the file is not text" }))?;
    let text = text.strip_suffix('\n').unwrap_or(text);
    SigningKey::parse(text, kind).map(Some).map_err(damaged)
}

/// Stores a new key in a file that appears complete or not at all, and is durable when this
/// returns.
///
/// An existing `path` is replaced: call [`load_key`] first.
///
/// # Errors
/// [`KeyFileError::Io`].
pub fn create_key(fs: &dyn FileSystem, path: &Path, key: &SigningKey) -> Result<(), KeyFileError> {
    let temporary = path.with_added_extension("new");
    let io = |act, source| KeyFileError::Io { act, path: path.to_owned(), source };
    // Left by a process that ended while it created one.
    match fs.remove_file(&temporary) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(io("create", error)),
        _ => {}
    }
    let file = fs.create_private(&temporary).map_err(|source| io("create", source))?;
    let text = format!("{}\n", key.to_secret_text());
    file.write_all_at(text.as_bytes(), 0).map_err(|source| io("write", source))?;
    file.sync_all().map_err(|source| io("sync", source))?;
    fs.rename(&temporary, path).map_err(|source| io("rename a file to", source))?;
    let dir = path.parent().unwrap_or(Path::new(""));
    fs.sync_dir(dir).map_err(|source| io("sync the directory of", source))
}

/// Whether a name can be that of a key: not empty, without spaces, plus signs and control
/// characters.
pub(super) fn check_name(name: &str) -> Result<(), &'static str> {
    match name {
        "" => Err("is empty"),
        _ if name.contains('+') => Err("contains a plus sign"),
        _ if name.contains(char::is_whitespace) => Err("contains a space"),
        _ if name.contains(char::is_control) => Err("contains a control character"),
        _ => Ok(()),
    }
}

fn encode(key: &VerifierKey, bytes: &[u8; 32]) -> String {
    let VerifierKey { name, key_id, kind, .. } = key;
    let typed = [&[*kind], bytes.as_slice()].concat();
    format!("{name}+{key_id:08x}+{}", STANDARD.encode(typed))
}

fn decode(text: &str, kind: u8) -> Result<(&str, u32, [u8; 32]), KeyError> {
    let malformed = |reason| KeyError::Malformed { reason };
    let mut parts = text.splitn(3, '+');
    let (Some(name), Some(id), Some(encoded)) = (parts.next(), parts.next(), parts.next()) else {
        return Err(malformed("it does not consist of name, id and key"));
    };
    let lower = |b: u8| matches!(b, b'0'..=b'9' | b'a'..=b'f');
    if id.len() != 8 || !id.bytes().all(lower) {
        return Err(malformed("its id is not 8 hexadecimal digits"));
    }
    let id = u32::from_str_radix(id, 16).map_err(|_| malformed("its id is not a number"))?;
    let typed = STANDARD.decode(encoded).map_err(|_| malformed("it is not base64"))?;
    let bytes = match typed.split_first() {
        Some((&found, bytes)) if found == kind => bytes,
        _ if kind == COSIGNATURE_TYPE => {
            return Err(malformed("it is not an Ed25519 key of a witness (type 4)"));
        }
        _ => return Err(malformed("it is not an Ed25519 key")),
    };
    let bytes = bytes.try_into().map_err(|_| malformed("it does not have 32 bytes"))?;
    Ok((name, id, bytes))
}

fn expect_id(key: &VerifierKey, found: u32) -> Result<(), KeyError> {
    let expected = key.key_id;
    if expected == found { Ok(()) } else { Err(KeyError::Id { expected, found }) }
}
