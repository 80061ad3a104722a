//! `<data>/keys.toml`: read and replaced as a whole.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::error::KeyError;
use super::token::{Token, hash_from_hex};
use super::{Limit, Scope};

/// Maximum number of keys in a file, revoked ones included.
const KEYS_MAX: usize = 10_000;
/// Maximum number of characters in a name.
const NAME_CHARS_MAX: usize = 64;

/// The record of one key.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Record {
    /// The public part of the token, 12 hex digits.
    pub id: String,
    /// Its name.
    pub name: String,
    /// Its scopes.
    pub scopes: Vec<Scope>,
    /// What it is limited to; empty: no limit.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub only: Vec<Limit>,
    /// When it was created, RFC 3339.
    pub created: String,
    /// When it was revoked, RFC 3339; absent while it is valid.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revoked: Option<String>,
    /// SHA-256 of the token, 64 hex digits.
    pub sha256: String,
}

#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Contents {
    #[serde(default, rename = "key")]
    keys: Vec<Record>,
}

/// The key file of a data directory.
#[derive(Clone, Debug)]
pub struct KeyFile {
    path: PathBuf,
}

impl KeyFile {
    /// Returns the key file inside `data`. Nothing is read or created yet.
    pub fn in_data_dir(data: &Path) -> Self {
        Self { path: data.join("keys.toml") }
    }

    /// Returns its path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns all keys, oldest first; `None` if no key was ever created.
    ///
    /// # Errors
    /// [`KeyError::Missing`]: keys existed before. [`KeyError::Io`], [`KeyError::Corrupt`],
    /// [`KeyError::Record`].
    pub fn read(&self) -> Result<Option<Vec<Record>>, KeyError> {
        let text = match std::fs::read_to_string(&self.path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                return match self.marker().try_exists() {
                    Ok(false) => Ok(None),
                    Ok(true) => Err(KeyError::Missing { path: self.path.clone() }),
                    Err(error) => Err(self.io("check for the marker of", error)),
                };
            }
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

    /// Creates a key and returns its token, which is stored nowhere else.
    ///
    /// # Errors
    /// [`KeyError`]: nothing was changed.
    pub fn add(
        &self,
        name: &str,
        scopes: &[Scope],
        only: &[Limit],
    ) -> Result<(Token, Record), KeyError> {
        let length = name.chars().count();
        if length == 0 || length > NAME_CHARS_MAX || name.chars().any(char::is_control) {
            return Err(KeyError::Name { name: name.to_owned() });
        }
        let _turn = self.lock()?;
        let mut keys = match self.read() {
            // A user who may write here may start over; earlier keys stay invalid.
            Err(KeyError::Missing { .. }) => Vec::new(),
            found => found?.unwrap_or_default(),
        };
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
            only: only.to_vec(),
            created: now(),
            revoked: None,
            sha256: hex::encode(token.hash()),
        };
        keys.push(record.clone());
        self.write(keys)?;
        Ok((token, record))
    }

    /// Revokes the key with this id or, if only one that is not revoked has it, this name. Revoking twice is
    /// allowed.
    ///
    /// # Errors
    /// [`KeyError::Unknown`]: there is none. [`KeyError::Ambiguous`]: several have the name.
    pub fn revoke(&self, id_or_name: &str) -> Result<Record, KeyError> {
        let unknown = || KeyError::Unknown { id: id_or_name.to_owned(), path: self.path.clone() };
        // The lock would create the directory.
        if self.read()?.is_none() {
            return Err(unknown());
        }
        let _turn = self.lock()?;
        let mut keys = self.read()?.unwrap_or_default();
        let by_id = keys.iter().position(|key| key.id == id_or_name);
        let named = keys.iter().enumerate().filter(|(_, key)| key.name == id_or_name);
        let (valid, revoked): (Vec<_>, Vec<_>) =
            named.map(|(at, _)| at).partition(|at| keys[*at].revoked.is_none());
        let at = match (&by_id, valid.as_slice(), revoked.first()) {
            (Some(at), ..) | (None, [at], _) | (None, [], Some(at)) => at,
            (None, [], None) => return Err(unknown()),
            (None, several, _) => {
                let ids: Vec<_> = several.iter().map(|at| keys[*at].id.as_str()).collect();
                let name = id_or_name.to_owned();
                return Err(KeyError::Ambiguous { name, ids: ids.join(", ") });
            }
        };
        let at = *at;
        keys[at].revoked.get_or_insert_with(now);
        let record = keys[at].clone();
        self.write(keys)?;
        Ok(record)
    }

    /// Takes the lock among processes that change the file; released when dropped.
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

    /// Returns the path of the marker that stays once a key was created.
    fn marker(&self) -> PathBuf {
        self.path.with_extension("made")
    }

    /// Records that keys were created here, before the first one is.
    ///
    /// # Errors
    /// [`KeyError::Io`].
    pub fn mark(&self) -> Result<(), KeyError> {
        let text =
            "API keys were made for this data directory: it does not open without keys.toml.\n";
        let mut options = OpenOptions::new();
        match options.create_new(true).write(true).mode(0o600).open(self.marker()) {
            Ok(mut file) => file
                .write_all(text.as_bytes())
                .and_then(|()| file.sync_all())
                .map_err(|error| self.io("write the marker of", error)),
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => Ok(()),
            Err(error) => Err(self.io("create the marker of", error)),
        }
    }

    fn write(&self, keys: Vec<Record>) -> Result<(), KeyError> {
        self.mark()?;
        let body = toml::to_string(&Contents { keys })
            .map_err(|error| self.io("encode", std::io::Error::other(error)))?;
        let head = "# API keys of this data directory, as hashes. Made by `forebay key new`.\n\n";
        // A temporary file of `tempfile` has mode 0600 from its creation on.
        let mut file = tempfile::NamedTempFile::new_in(self.dir())
            .map_err(|error| self.io("create a temporary file beside", error))?;
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
