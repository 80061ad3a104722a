//! `<data>/keys.toml`: read whole, replaced whole.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::Scope;
use super::error::KeyError;
use super::token::{Token, hash_from_hex, to_hex};

/// Keys one file may hold, revoked ones included.
const KEYS_MAX: usize = 10_000;
/// Characters a name may have.
const NAME_CHARS_MAX: usize = 64;

/// What is kept of one key.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Record {
    /// The public part of the token, 12 hex digits.
    pub(crate) id: String,
    /// What a person calls it.
    pub(crate) name: String,
    /// What it may do.
    pub(crate) scopes: Vec<Scope>,
    /// When it was made, RFC 3339.
    pub(crate) created: String,
    /// When it was revoked, RFC 3339; absent while it works.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) revoked: Option<String>,
    /// SHA-256 of the token, 64 hex digits.
    pub(crate) sha256: String,
}

#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Contents {
    #[serde(default, rename = "key")]
    keys: Vec<Record>,
}

/// The key file of a data directory.
#[derive(Clone, Debug)]
pub(crate) struct KeyFile {
    path: PathBuf,
}

impl KeyFile {
    /// The key file inside `data`. Nothing is read or made yet.
    pub(crate) fn in_data_dir(data: &Path) -> Self {
        Self { path: data.join("keys.toml") }
    }

    /// Where it is.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// All keys, oldest first; `None` when no key was ever made.
    ///
    /// # Errors
    /// [`KeyError::Io`], [`KeyError::Corrupt`], [`KeyError::Record`].
    pub(crate) fn read(&self) -> Result<Option<Vec<Record>>, KeyError> {
        let text = match std::fs::read_to_string(&self.path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(self.io("read", error)),
        };
        let contents: Contents = toml::from_str(&text)
            .map_err(|source| KeyError::Corrupt { path: self.path.clone(), source })?;
        for key in &contents.keys {
            let problem =
                |problem| KeyError::Record { path: self.path.clone(), id: key.id.clone(), problem };
            hash_from_hex(&key.sha256).ok_or_else(|| problem("sha256 is not 64 hex digits"))?;
            if key.id.len() != 12 || !key.id.bytes().all(|byte| byte.is_ascii_hexdigit()) {
                return Err(problem("the id is not 12 hex digits"));
            }
        }
        Ok(Some(contents.keys))
    }

    /// Makes a key and returns its token, which is nowhere else from then on.
    ///
    /// # Errors
    /// [`KeyError`]: nothing was changed.
    pub(crate) fn add(&self, name: &str, scopes: &[Scope]) -> Result<(Token, Record), KeyError> {
        let length = name.chars().count();
        if length == 0 || length > NAME_CHARS_MAX || name.chars().any(char::is_control) {
            return Err(KeyError::Name { name: name.to_owned() });
        }
        let _turn = self.lock()?;
        let mut keys = self.read()?.unwrap_or_default();
        if keys.len() >= KEYS_MAX {
            return Err(KeyError::TooMany { path: self.path.clone(), max: KEYS_MAX });
        }
        let mut token = Token::generate()?;
        while keys.iter().any(|key| key.id == token.id()) {
            token = Token::generate()?;
        }
        let mut scopes = scopes.to_vec();
        scopes.sort();
        scopes.dedup();
        let record = Record {
            id: token.id().to_owned(),
            name: name.to_owned(),
            scopes,
            created: now(),
            revoked: None,
            sha256: to_hex(&token.hash()),
        };
        keys.push(record.clone());
        self.write(keys)?;
        Ok((token, record))
    }

    /// Revokes the key with this id or, if only one has it, this name. Revoking twice is fine.
    ///
    /// # Errors
    /// [`KeyError::Unknown`]: there is none, or several have the name.
    pub(crate) fn revoke(&self, id_or_name: &str) -> Result<Record, KeyError> {
        let _turn = self.lock()?;
        let mut keys = self.read()?.unwrap_or_default();
        let by_id = keys.iter().position(|key| key.id == id_or_name);
        let mut named = (0..keys.len()).filter(|at| keys[*at].name == id_or_name);
        let by_name = named.next().filter(|_| named.next().is_none());
        let Some(at) = by_id.or(by_name) else {
            return Err(KeyError::Unknown { id: id_or_name.to_owned(), path: self.path.clone() });
        };
        keys[at].revoked.get_or_insert_with(now);
        let record = keys[at].clone();
        self.write(keys)?;
        Ok(record)
    }

    /// Takes the turn among processes that change the file; given back when dropped.
    fn lock(&self) -> Result<File, KeyError> {
        let dir = self.dir();
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(dir)
            .map_err(|source| KeyError::Io { act: "make", path: dir.to_owned(), source })?;
        let path = self.path.with_extension("lock");
        let failed = |source| KeyError::Io { act: "lock", path: path.clone(), source };
        let file = OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .mode(0o600)
            .open(&path)
            .map_err(failed)?;
        file.lock().map_err(failed)?;
        Ok(file)
    }

    fn write(&self, keys: Vec<Record>) -> Result<(), KeyError> {
        let body = toml::to_string(&Contents { keys })
            .map_err(|error| self.io("encode", std::io::Error::other(error)))?;
        let head = "# API keys of this data directory, as hashes. Made by `forebay key new`.\n\n";
        // A temporary file of `tempfile` has mode 0600 from its creation on.
        let mut file = tempfile::NamedTempFile::new_in(self.dir())
            .map_err(|error| self.io("make a temporary file beside", error))?;
        file.write_all(head.as_bytes())
            .and_then(|()| file.write_all(body.as_bytes()))
            .and_then(|()| file.as_file().sync_all())
            .map_err(|error| self.io("write", error))?;
        file.persist(&self.path).map_err(|error| self.io("replace", error.error))?;
        File::open(self.dir())
            .and_then(|dir| dir.sync_all())
            .map_err(|error| self.io("sync the directory of", error))
    }

    fn dir(&self) -> &Path {
        self.path.parent().unwrap_or_else(|| Path::new("."))
    }

    fn io(&self, act: &'static str, source: std::io::Error) -> KeyError {
        KeyError::Io { act, path: self.path.clone(), source }
    }
}

fn now() -> String {
    let now = jiff::Timestamp::now();
    jiff::Timestamp::from_second(now.as_second()).unwrap_or(now).to_string()
}
