//! The keys of a running server: checked on every request, reloaded when the file changes.
//!
//! A check takes a read lock, one lookup by id and one SHA-256 of 81 bytes; it never accesses the
//! disk. [`KeyRing::reload`] is called once a second by the server and only compares the file's
//! identity (inode, size, modification time) unless that changed.

use std::collections::HashMap;
use std::os::unix::fs::MetadataExt as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::{Mutex, RwLock};

use super::error::KeyError;
use super::file::{KeyFile, Record};
use super::token::{Hash, KeyId, hash, hash_from_hex, id_of, same};
use super::{Area, Auth, Limit, Scope, Scopes};

/// Why a request was denied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Denied {
    /// No key was presented.
    Missing,
    /// The key is unknown, malformed or revoked; the client cannot learn which.
    Unknown,
    /// A valid key without the scope the request needs.
    Scope(Scope),
    /// A valid key that is limited to other resources.
    Limit,
}

#[derive(Debug)]
struct Entry {
    hash: Hash,
    scopes: Scopes,
    only: Arc<[Limit]>,
}

/// What a valid key may do.
#[derive(Clone, Debug)]
pub struct Grant {
    /// Id of the key.
    pub id: KeyId,
    scopes: Scopes,
    only: Arc<[Limit]>,
}

impl Grant {
    /// Checks whether it has `scope`.
    ///
    /// # Errors
    /// [`Denied::Scope`].
    pub fn allow(&self, scope: Scope) -> Result<(), Denied> {
        if self.scopes.allow(scope) { Ok(()) } else { Err(Denied::Scope(scope)) }
    }

    /// Returns whether it may use the resource called `name`.
    pub fn permits(&self, area: Area, name: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|limit| limit.permits(area, name))
    }

    /// Returns whether it is limited to some resources.
    pub fn is_limited(&self) -> bool {
        !self.only.is_empty()
    }

    /// Returns whether it may use any resource of an area.
    pub fn reaches(&self, area: Area) -> bool {
        self.only.is_empty() || self.only.iter().any(|limit| limit.area() == area)
    }

    /// Returns the names it is limited to in an area.
    pub fn names(&self, area: Area) -> impl Iterator<Item = &str> {
        self.only.iter().filter(move |limit| limit.area() == area).map(Limit::name)
    }
}

/// Id of the key that a request was sent with, also if a job runs it later. It grants nothing.
#[derive(Clone, Copy, Debug)]
pub struct SentBy(pub KeyId);

impl SentBy {
    /// Returns the key of a request, if it has one.
    #[must_use]
    pub fn of(extensions: &http::Extensions) -> Option<Self> {
        let granted = || extensions.get::<Grant>().map(|grant| Self(grant.id));
        extensions.get().copied().or_else(granted)
    }
}

/// Identity of one version of the file.
type Version = Option<(u64, u64, i64, i64)>;

/// The keys a server accepts.
#[derive(Debug)]
pub struct KeyRing {
    file: KeyFile,
    auth: Auth,
    /// Once true it stays true: a key file that disappears must not open the server.
    required: AtomicBool,
    keys: RwLock<HashMap<KeyId, Entry>>,
    /// The version of the file that was last checked.
    version: Mutex<Option<Version>>,
}

impl KeyRing {
    /// Loads the keys of `file`.
    ///
    /// # Errors
    /// [`KeyError`]: the file exists and cannot be used.
    pub fn open(file: KeyFile, auth: Auth) -> Result<Self, KeyError> {
        let ring = Self {
            file,
            auth,
            required: AtomicBool::new(auth == Auth::Required),
            keys: RwLock::default(),
            version: Mutex::new(None),
        };
        ring.reload()?;
        if ring.required() && auth == Auth::Auto {
            // A data directory of an older version has no marker yet.
            ring.file.mark()?;
        }
        Ok(ring)
    }

    /// Returns whether a request below /v1 needs a key now.
    pub fn required(&self) -> bool {
        self.required.load(Ordering::Relaxed)
    }

    /// Returns the number of valid keys.
    pub fn len(&self) -> usize {
        self.keys.read().len()
    }

    /// Returns whether there is no valid key.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Reads the file again if it changed. Returns whether it did.
    ///
    /// # Errors
    /// [`KeyError`]: the new contents cannot be used. The previous keys remain valid, and the
    /// error is returned at most once for each version of the file.
    pub fn reload(&self) -> Result<bool, KeyError> {
        let mut version = self.version.lock();
        let found = std::fs::metadata(self.file.path())
            .ok()
            .map(|meta| (meta.ino(), meta.size(), meta.mtime(), meta.mtime_nsec()));
        if *version == Some(found) {
            return Ok(false);
        }
        *version = Some(found);
        let records = match self.file.read() {
            // With `server.auth` off nothing depends on the keys.
            Err(KeyError::Missing { .. }) if self.auth == Auth::Off => None,
            read => read?,
        };
        if records.is_some() && self.auth == Auth::Auto {
            self.required.store(true, Ordering::Relaxed);
        }
        *self.keys.write() = index(records.unwrap_or_default());
        Ok(true)
    }

    /// Returns what the presented `token` may do.
    ///
    /// # Errors
    /// [`Denied::Missing`], [`Denied::Unknown`].
    pub fn grant(&self, token: Option<&[u8]>) -> Result<Grant, Denied> {
        let token = token.ok_or(Denied::Missing)?;
        let id = id_of(token).ok_or(Denied::Unknown)?;
        let hash = hash(token);
        match self.keys.read().get(&id) {
            Some(entry) if same(&entry.hash, &hash) => Ok(entry.grant(id)),
            _ => Err(Denied::Unknown),
        }
    }

    /// Returns what a key that was presented before may do now; `None` if it was revoked since.
    pub fn still(&self, id: KeyId) -> Option<Grant> {
        self.keys.read().get(&id).map(|entry| entry.grant(id))
    }

    /// Checks whether the presented `token` has `scope`.
    ///
    /// # Errors
    /// [`Denied`]: what to respond instead.
    #[cfg(test)]
    pub fn check(&self, token: Option<&[u8]>, scope: Scope) -> Result<(), Denied> {
        self.grant(token)?.allow(scope)
    }
}

impl Entry {
    fn grant(&self, id: KeyId) -> Grant {
        Grant { id, scopes: self.scopes, only: Arc::clone(&self.only) }
    }
}

fn index(records: Vec<Record>) -> HashMap<KeyId, Entry> {
    records
        .into_iter()
        .filter(|record| record.revoked.is_none())
        .filter_map(|record| {
            let id = record.id.as_bytes().try_into().ok()?;
            let hash = hash_from_hex(&record.sha256)?;
            let scopes = record.scopes.into_iter().collect();
            Some((id, Entry { hash, scopes, only: record.only.into() }))
        })
        .collect()
}
