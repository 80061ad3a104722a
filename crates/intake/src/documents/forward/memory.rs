//! State of forwarding that survives a restart: `<dir>/forward.json`.
//!
//! ```text
//! {"format":"forebay-forward","version":2,"log":"<32 hex digits>","database":"<32 hex digits>",
//!  "held":true,"durable":4711,"released":4000,
//!  "quarantined":{"orders":{"reason":"...","since_ms":1700000000000}}}
//! ```
//!
//! Invariants: the file is replaced as a whole, and is on stable storage before anything it permits
//! is done; while `held` is true, everything after `released` is in the log and everything up to
//! `durable` is in the database or in the spill, but for the documents of quarantined namespaces,
//! which are in the local database.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use forebay_base::fs::{Access, FileSystem};
use forebay_log::Lsn;
use forebay_sink::Identity;
use serde::{Deserialize, Serialize};

use super::quarantine::Refused;

const FORMAT: &str = "forebay-forward";
const VERSION: u32 = 2;
/// The oldest version that is read. It quarantines nothing.
const VERSION_MIN: u32 = 1;
/// Name of the file in the intake's directory.
const FILE: &str = "forward.json";
/// The file is one line; a longer one is no such file. Each quarantined namespace has some 600 bytes.
const FILE_SIZE_MAX: u64 = 4 << 20;

/// Why the state could not be read or written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MemoryError {
    /// A file operation failed.
    #[error("could not {act} {path}", path = path.display())]
    Io {
        /// What was attempted.
        act: &'static str,
        /// The file.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: std::io::Error,
    },
    /// The file's contents are invalid.
    #[error(
        "{path} is damaged: {found}; remove it, and the documents that the database lacks are \
         copied to it from the intake's own",
        path = path.display()
    )]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What was found.
        found: String,
    },
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Line {
    format: String,
    version: u32,
    log: String,
    database: Option<String>,
    held: bool,
    durable: u64,
    released: u64,
    #[serde(default)]
    quarantined: BTreeMap<String, Refused>,
}

/// The recorded state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Remembered {
    /// The database that was last written to.
    pub(crate) database: Option<Identity>,
    /// Whether the log has been kept for it ever since.
    pub(crate) held: bool,
    /// Position up to which the documents were in the database or the spill.
    pub(crate) durable: Lsn,
    /// Position up to which documents may have been removed from the log.
    pub(crate) released: Lsn,
}

/// The file.
#[derive(Debug)]
pub(crate) struct Memory {
    fs: Arc<dyn FileSystem>,
    path: PathBuf,
    log: [u8; 16],
    now: Remembered,
    quarantined: BTreeMap<String, Refused>,
}

impl Memory {
    /// Reads the file in `dir`. Without one, the state is empty.
    ///
    /// # Errors
    /// [`MemoryError`].
    pub(crate) fn open(
        fs: Arc<dyn FileSystem>,
        dir: &Path,
        log: [u8; 16],
    ) -> Result<Self, MemoryError> {
        let path = dir.join(FILE);
        let (now, quarantined) = (Remembered::default(), BTreeMap::new());
        let mut memory = Self { fs, path, log, now, quarantined };
        if memory.fs.exists(&memory.path).map_err(memory.io("check for"))? {
            (memory.now, memory.quarantined) = memory.read()?;
        }
        Ok(memory)
    }

    pub(crate) fn now(&self) -> Remembered {
        self.now
    }

    /// Records a new state.
    ///
    /// # Errors
    /// [`MemoryError::Io`]; the previous state remains recorded.
    pub(crate) fn keep(&mut self, next: Remembered) -> Result<(), MemoryError> {
        if next == self.now {
            return Ok(());
        }
        self.write(next, &self.quarantined)?;
        self.now = next;
        Ok(())
    }

    /// The namespaces that the database refuses.
    pub(crate) fn quarantined(&self) -> &BTreeMap<String, Refused> {
        &self.quarantined
    }

    /// Records the namespaces that the database refuses.
    ///
    /// # Errors
    /// [`MemoryError::Io`]; the previous ones remain recorded.
    pub(crate) fn keep_quarantined(
        &mut self,
        quarantined: BTreeMap<String, Refused>,
    ) -> Result<(), MemoryError> {
        self.write(self.now, &quarantined)?;
        self.quarantined = quarantined;
        Ok(())
    }

    fn write(
        &self,
        next: Remembered,
        quarantined: &BTreeMap<String, Refused>,
    ) -> Result<(), MemoryError> {
        let line = Line {
            format: FORMAT.to_owned(),
            version: VERSION,
            log: Identity(self.log).to_string(),
            database: next.database.map(|identity| identity.to_string()),
            held: next.held,
            durable: next.durable.0,
            released: next.released.0,
            quarantined: quarantined.clone(),
        };
        let mut text = serde_json::to_vec(&line).map_err(|error| MemoryError::Damaged {
            path: self.path.clone(),
            found: error.to_string(),
        })?;
        text.push(b'\n');
        self.replace(&text)
    }

    fn replace(&self, text: &[u8]) -> Result<(), MemoryError> {
        let beside = self.path.with_extension("tmp");
        if self.fs.exists(&beside).map_err(self.io("check for the temporary file of"))? {
            self.fs.remove_file(&beside).map_err(self.io("remove the temporary file of"))?;
        }
        let file = self.fs.create_new(&beside).map_err(self.io("create the temporary file of"))?;
        file.write_all_at(text, 0).map_err(self.io("write the temporary file of"))?;
        file.sync_all().map_err(self.io("sync the temporary file of"))?;
        self.fs.rename(&beside, &self.path).map_err(self.io("replace"))?;
        let dir = self.path.parent().unwrap_or(Path::new("."));
        self.fs.sync_dir(dir).map_err(self.io("sync the directory of"))
    }

    fn read(&self) -> Result<(Remembered, BTreeMap<String, Refused>), MemoryError> {
        let damaged = |found: String| MemoryError::Damaged { path: self.path.clone(), found };
        let file = self.fs.open(&self.path, Access::Read).map_err(self.io("open"))?;
        let size = file.len().map_err(self.io("measure"))?;
        if size > FILE_SIZE_MAX {
            return Err(damaged(format!("{size} bytes, expected at most {FILE_SIZE_MAX}")));
        }
        let mut text = vec![0; usize::try_from(size).unwrap_or_default()];
        file.read_exact_at(&mut text, 0).map_err(self.io("read"))?;
        let line: Line =
            serde_json::from_slice(&text).map_err(|error| damaged(error.to_string()))?;
        let is_known = (VERSION_MIN..=VERSION).contains(&line.version);
        if line.format != FORMAT || !is_known {
            return Err(damaged(format!("format {:?} version {}", line.format, line.version)));
        }
        if line.log != Identity(self.log).to_string() {
            // Written for another log: its positions mean nothing here.
            return Ok((Remembered::default(), BTreeMap::new()));
        }
        let database = match line.database {
            None => None,
            Some(hex) => {
                Some(identity(&hex).ok_or_else(|| damaged(format!("the identity {hex:?}")))?)
            }
        };
        let now = Remembered {
            database,
            held: line.held,
            durable: Lsn(line.durable),
            released: Lsn(line.released),
        };
        Ok((now, line.quarantined))
    }

    fn io(&self, act: &'static str) -> impl FnOnce(std::io::Error) -> MemoryError + use<> {
        let path = self.path.clone();
        move |source| MemoryError::Io { act, path, source }
    }
}

fn identity(hex: &str) -> Option<Identity> {
    let number = u128::from_str_radix(hex, 16).ok().filter(|_| hex.len() == 32)?;
    Some(Identity(number.to_be_bytes()))
}

#[cfg(test)]
mod tests {
    use forebay_base::fs::sim::{Fault, SimFs};

    use super::*;

    fn some(durable: u64) -> Remembered {
        let database = Some(Identity([7; 16]));
        Remembered { database, held: true, durable: Lsn(durable), released: Lsn(1) }
    }

    #[test]
    fn what_is_kept_is_there_after_a_power_cut_whole_or_as_before() {
        let disk = SimFs::new(1);
        let dir = Path::new("/d");
        disk.create_dir_all(dir).unwrap();
        let open = |disk: &SimFs| Memory::open(Arc::new(disk.clone()), dir, [1; 16]).unwrap();
        let mut memory = open(&disk);
        assert_eq!(memory.now(), Remembered::default());
        memory.keep(some(5)).unwrap();
        for at in 0.. {
            let cut = disk.fork();
            cut.plan(at, Fault::Stop);
            let kept = Memory::open(Arc::new(cut.clone()), dir, [1; 16])
                .and_then(|mut memory| memory.keep(some(6)));
            let ended = cut.operations() <= at;
            let found = open(&cut.power_off(at)).now();
            assert!(found == some(6) || kept.is_err() && found == some(5), "{at}: {found:?}");
            if ended {
                break;
            }
        }
    }

    #[test]
    fn quarantined_namespaces_are_remembered_and_an_older_file_has_none() {
        let disk: Arc<dyn FileSystem> = Arc::new(SimFs::new(1));
        let dir = Path::new("/d");
        disk.create_dir_all(dir).unwrap();
        let open = || Memory::open(disk.clone(), dir, [1; 16]).unwrap();
        let mut memory = open();
        memory.keep(some(5)).unwrap();
        let refused = Refused { reason: "no \"column\"".into(), since_ms: 7 };
        let quarantined = BTreeMap::from([("orders".to_owned(), refused)]);
        memory.keep_quarantined(quarantined.clone()).unwrap();
        assert_eq!((open().now(), open().quarantined()), (some(5), &quarantined));
        let mut memory = open();
        memory.keep(some(6)).unwrap();
        assert_eq!((open().now(), open().quarantined()), (some(6), &quarantined));
        memory.keep_quarantined(BTreeMap::new()).unwrap();
        let path = dir.join(FILE);
        let file = disk.open(&path, Access::ReadWrite).unwrap();
        let mut text = vec![0; usize::try_from(file.len().unwrap()).unwrap()];
        file.read_exact_at(&mut text, 0).unwrap();
        let old = String::from_utf8(text).unwrap();
        let old = old.replace("\"version\":2", "\"version\":1").replace(",\"quarantined\":{}", "");
        disk.remove_file(&path).unwrap();
        disk.create_new(&path).unwrap().write_all_at(old.as_bytes(), 0).unwrap();
        assert_eq!((open().now(), open().quarantined()), (some(6), &BTreeMap::new()));
    }

    #[test]
    fn a_file_of_another_log_says_nothing_and_a_damaged_one_is_refused() {
        let disk: Arc<dyn FileSystem> = Arc::new(SimFs::new(1));
        let dir = Path::new("/d");
        disk.create_dir_all(dir).unwrap();
        Memory::open(disk.clone(), dir, [1; 16]).unwrap().keep(some(5)).unwrap();
        let other = Memory::open(disk.clone(), dir, [2; 16]).unwrap();
        assert_eq!(other.now(), Remembered::default());
        let file = disk.open(&dir.join(FILE), Access::ReadWrite).unwrap();
        file.write_all_at(b"}", 0).unwrap();
        let error = Memory::open(disk, dir, [1; 16]).unwrap_err();
        assert!(matches!(error, MemoryError::Damaged { .. }), "{error}");
    }
}
