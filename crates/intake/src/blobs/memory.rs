//! An object store in memory, for tests: it loses answers, refuses, delays, and alters what it has.

use std::collections::BTreeMap;
use std::io;
use std::ops::Range;

use bytes::{Bytes, BytesMut};
use parking_lot::{Condvar, Mutex};

use super::storage::{ObjectStorage, StorageError, Tag};

/// An object store in memory. What is set for a name applies to requests whose names begin with it.
#[derive(Debug, Default)]
pub struct MemoryStorage {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    objects: BTreeMap<String, (Bytes, u64)>,
    versions: u64,
    /// Writes that take effect but whose answers are lost: names, and how many.
    lost: Vec<(String, u32)>,
    /// Every request fails.
    is_away: bool,
    /// Requests that write wait.
    is_held: bool,
    waiting: usize,
    conditions_ignored: bool,
    /// What was asked for, as `METHOD name`.
    asked: Vec<String>,
}

impl MemoryStorage {
    /// Carries out the next `count` writes of such names and then reports a failure.
    pub fn lose_answers(&self, name: &str, count: u32) {
        self.state.lock().lost.push((name.to_owned(), count));
    }

    /// Cuts it off, or ends that.
    pub fn set_away(&self, is_away: bool) {
        self.state.lock().is_away = is_away;
    }

    /// Makes writes wait, or lets them go on.
    pub fn hold_writes(&self, is_held: bool) {
        self.state.lock().is_held = is_held;
        self.changed.notify_all();
    }

    /// Waits until this many writes wait.
    pub fn wait_for_writes(&self, count: usize) {
        let mut state = self.state.lock();
        while state.waiting < count {
            self.changed.wait(&mut state);
        }
    }

    /// Replaces objects whatever their version.
    pub fn ignore_conditions(&self) {
        self.state.lock().conditions_ignored = true;
    }

    /// The names of all objects.
    pub fn names(&self) -> Vec<String> {
        self.state.lock().objects.keys().cloned().collect()
    }

    /// The bytes of an object.
    pub fn object(&self, name: &str) -> Option<Bytes> {
        self.state.lock().objects.get(name).map(|(bytes, _)| bytes.clone())
    }

    /// Replaces the bytes of an object.
    pub fn alter(&self, name: &str, bytes: Vec<u8>) {
        self.write(name, Bytes::from(bytes));
    }

    /// How many requests of a method there were for such names.
    pub fn asked(&self, method: &str, name: &str) -> usize {
        let start = format!("{method} {name}");
        self.state.lock().asked.iter().filter(|asked| asked.starts_with(&start)).count()
    }

    fn begin(&self, method: &str, name: &str) -> Result<(), StorageError> {
        let mut state = self.state.lock();
        state.asked.push(format!("{method} {name}"));
        if matches!(method, "PUT" | "DELETE") && name != "claim.json" && state.is_held {
            state.waiting += 1;
            self.changed.notify_all();
            while state.is_held {
                self.changed.wait(&mut state);
            }
            state.waiting -= 1;
        }
        match state.is_away {
            true => Err(StorageError::Away { reason: "no connection".to_owned() }),
            false => Ok(()),
        }
    }

    /// Ends a write: its answer may be lost.
    fn end(&self, name: &str) -> Result<(), StorageError> {
        let mut state = self.state.lock();
        let lost = state.lost.iter_mut().find(|(of, count)| name.starts_with(&**of) && *count > 0);
        match lost {
            Some((_, count)) => {
                *count -= 1;
                Err(StorageError::Away { reason: "no answer in time".to_owned() })
            }
            None => Ok(()),
        }
    }

    fn write(&self, name: &str, bytes: Bytes) -> u64 {
        let mut state = self.state.lock();
        state.versions += 1;
        let version = state.versions;
        state.objects.insert(name.to_owned(), (bytes, version));
        version
    }
}

fn tag(version: u64) -> Tag {
    Tag { tag: Some(version.to_string()), version: None }
}

impl ObjectStorage for MemoryStorage {
    fn url(&self) -> String {
        "s3://memory/blobs".to_owned()
    }

    fn put(&self, name: &str, bytes: Bytes) -> Result<(), StorageError> {
        self.begin("PUT", name)?;
        self.write(name, bytes);
        self.end(name)
    }

    fn upload(
        &self,
        name: &str,
        size: u64,
        next: &mut dyn FnMut() -> io::Result<Option<Bytes>>,
    ) -> Result<(), StorageError> {
        self.begin("PUT", name)?;
        let mut bytes = BytesMut::new();
        while let Some(part) = next().map_err(StorageError::Source)? {
            bytes.extend_from_slice(&part);
        }
        if bytes.len() as u64 != size {
            let reason = format!("{} bytes were sent, {size} announced", bytes.len());
            return Err(StorageError::Refused { reason });
        }
        self.write(name, bytes.freeze());
        self.end(name)
    }

    fn read(&self, name: &str, range: Range<u64>) -> Result<Bytes, StorageError> {
        self.begin("GET", name)?;
        let state = self.state.lock();
        let (bytes, _) = state.objects.get(name).ok_or(StorageError::Missing)?;
        let at = |n: u64| usize::try_from(n).unwrap_or(usize::MAX);
        if range.end > bytes.len() as u64 || range.start > range.end {
            return Err(StorageError::Refused { reason: "416 Range Not Satisfiable".to_owned() });
        }
        Ok(bytes.slice(at(range.start)..at(range.end)))
    }

    fn load(&self, name: &str, size_max: u64) -> Result<Option<(Bytes, Tag)>, StorageError> {
        self.begin("GET", name)?;
        let state = self.state.lock();
        let Some((bytes, version)) = state.objects.get(name) else { return Ok(None) };
        if bytes.len() as u64 > size_max {
            return Err(StorageError::Refused { reason: "it is too large".to_owned() });
        }
        Ok(Some((bytes.clone(), tag(*version))))
    }

    fn replace(&self, name: &str, bytes: Bytes, was: Option<&Tag>) -> Result<Tag, StorageError> {
        self.begin("PUT", name)?;
        let version = {
            let mut state = self.state.lock();
            let found = state.objects.get(name).map(|(found, version)| (found.clone(), *version));
            let holds = found.as_ref().map(|(_, version)| tag(*version)).as_ref() == was;
            match found {
                Some((found, version)) if found == bytes => return Ok(tag(version)),
                _ if !holds && !state.conditions_ignored => return Err(StorageError::Conflict),
                _ => {}
            }
            state.versions += 1;
            let version = state.versions;
            state.objects.insert(name.to_owned(), (bytes, version));
            version
        };
        self.end(name).map(|()| tag(version))
    }

    fn list(&self, below: &str, each: &mut dyn FnMut(&str, u64)) -> Result<(), StorageError> {
        self.begin("LIST", below)?;
        let found: Vec<(String, u64)> = {
            let state = self.state.lock();
            let below = state.objects.iter().filter(|(name, _)| {
                name.strip_prefix(below).is_some_and(|rest| rest.starts_with('/'))
            });
            below.map(|(name, (bytes, _))| (name.clone(), bytes.len() as u64)).collect()
        };
        found.iter().for_each(|(name, size)| each(name, *size));
        Ok(())
    }

    fn remove(&self, name: &str) -> Result<(), StorageError> {
        self.begin("DELETE", name)?;
        self.state.lock().objects.remove(name);
        self.end(name)
    }
}
