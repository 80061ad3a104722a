//! The keys of a running server: checked on every request, reloaded when the file changes.
//!
//! Checking takes a read lock, one look-up by id and one SHA-256 of 81 bytes; it never touches the
//! disk. [`KeyRing::reload`] is called once a second by the server and only compares the file's
//! identity (inode, size, modification time) unless that changed.

use std::collections::HashMap;
use std::os::unix::fs::MetadataExt as _;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::{Mutex, RwLock};

use super::error::KeyError;
use super::file::{KeyFile, Record};
use super::token::{Hash, KeyId, hash, hash_from_hex, id_of, same};
use super::{Scope, Scopes};
use crate::config::Auth;

/// Why a request was not let in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Denied {
    /// No key was presented.
    Missing,
    /// The key is unknown, malformed or revoked; which of them is not told.
    Unknown,
    /// A good key without the scope the request needs.
    Scope(Scope),
}

#[derive(Debug)]
struct Entry {
    hash: Hash,
    scopes: Scopes,
}

/// What identifies one version of the file.
type Version = Option<(u64, u64, i64, i64)>;

/// The keys a server accepts.
#[derive(Debug)]
pub(crate) struct KeyRing {
    file: KeyFile,
    auth: Auth,
    /// Once true it stays true: a key file that disappears must not open the server.
    required: AtomicBool,
    keys: RwLock<HashMap<KeyId, Entry>>,
    version: Mutex<Version>,
}

impl KeyRing {
    /// Loads the keys of `file`.
    ///
    /// # Errors
    /// [`KeyError`]: the file exists and cannot be used.
    pub(crate) fn open(file: KeyFile, auth: Auth) -> Result<Self, KeyError> {
        let ring = Self {
            file,
            auth,
            required: AtomicBool::new(auth == Auth::Required),
            keys: RwLock::default(),
            version: Mutex::new(None),
        };
        ring.reload()?;
        Ok(ring)
    }

    /// Whether a request below /v1 needs a key now.
    pub(crate) fn required(&self) -> bool {
        self.required.load(Ordering::Relaxed)
    }

    /// How many keys work.
    pub(crate) fn len(&self) -> usize {
        self.keys.read().len()
    }

    /// Reads the file again if it changed. Returns whether it did.
    ///
    /// # Errors
    /// [`KeyError`]: the new contents cannot be used; the keys known before stay in force and the
    /// error comes back at most once a version of the file.
    pub(crate) fn reload(&self) -> Result<bool, KeyError> {
        let mut version = self.version.lock();
        let found = std::fs::metadata(self.file.path())
            .ok()
            .map(|meta| (meta.ino(), meta.size(), meta.mtime(), meta.mtime_nsec()));
        if *version == found {
            return Ok(false);
        }
        *version = found;
        let records = self.file.read()?;
        if records.is_some() && self.auth == Auth::Auto {
            self.required.store(true, Ordering::Relaxed);
        }
        *self.keys.write() = index(records.unwrap_or_default());
        Ok(true)
    }

    /// Whether the presented `token` may do `scope`.
    ///
    /// # Errors
    /// [`Denied`]: what to answer instead.
    pub(crate) fn check(&self, token: Option<&[u8]>, scope: Scope) -> Result<(), Denied> {
        let token = token.ok_or(Denied::Missing)?;
        let id = id_of(token).ok_or(Denied::Unknown)?;
        let hash = hash(token);
        let keys = self.keys.read();
        match keys.get(&id) {
            Some(entry) if same(&entry.hash, &hash) => {
                if entry.scopes.allow(scope) {
                    Ok(())
                } else {
                    Err(Denied::Scope(scope))
                }
            }
            _ => Err(Denied::Unknown),
        }
    }
}

fn index(records: Vec<Record>) -> HashMap<KeyId, Entry> {
    records
        .into_iter()
        .filter(|record| record.revoked.is_none())
        .filter_map(|record| {
            let id = record.id.as_bytes().try_into().ok()?;
            let hash = hash_from_hex(&record.sha256)?;
            Some((id, Entry { hash, scopes: record.scopes.into_iter().collect() }))
        })
        .collect()
}
