//! Compiled components, kept in a directory.
//!
//! A compiled component is machine code: it runs without any check. So an entry is used only if it and its directory
//! belong to this user and no other may write them, and if its checksum is right. Its name has the hash of the component
//! and all that the code depends on: the version and settings of the engine, and the processor.
//!
//! The checksum is computed once: as long as the file system says that the entry has not changed since, it is the same
//! (`seen`).
//!
//! Invariant: an entry that is not exactly what was written is compiled again, and never run.

use std::fs::DirBuilder;
use std::hash::{Hash as _, Hasher as _};
use std::io::{self, Read as _};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use wasmtime::Engine;
use wasmtime::component::Component;
use xxhash_rust::xxh3::{Xxh3, xxh3_128};

use crate::seen::{self, Seen};

/// A directory of compiled components.
#[derive(Debug, Clone)]
pub struct Cache {
    dir: PathBuf,
}

/// Whether a component was compiled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Loaded {
    /// It was in the cache.
    Kept,
    /// It was compiled.
    Compiled,
}

impl Cache {
    /// A cache in this directory, which is created when it is needed.
    #[must_use]
    pub fn new(dir: PathBuf) -> Self {
        Self { dir }
    }

    /// The compiled component of this SHA-256; `None` if there is none, or none that can be used, which is reported in
    /// the log.
    #[must_use]
    pub fn kept(&self, engine: &Engine, hash: &[u8; 32]) -> Option<Component> {
        let path = self.path(engine, hash);
        self.entry(engine, &path).unwrap_or_else(|error| {
            let path = path.display();
            tracing::warn!(%path, %error, "a compiled connector is not used; it is compiled again");
            None
        })
    }

    /// Compiles a component, and keeps it. A cache that cannot be used is reported in the log.
    ///
    /// * `bytes`: the component.
    /// * `hash`: its SHA-256.
    ///
    /// # Errors
    /// It is not a component.
    pub fn compile(
        &self,
        engine: &Engine,
        bytes: &[u8],
        hash: &[u8; 32],
    ) -> wasmtime::Result<Component> {
        let path = self.path(engine, hash);
        let compiled = engine.precompile_component(bytes)?;
        if let Err(error) = self.keep(&path, &compiled) {
            tracing::warn!(path = %path.display(), %error, "a compiled connector is not kept");
        }
        #[expect(unsafe_code, reason = "machine code that was compiled in this function")]
        // SAFETY: the bytes are what `precompile_component` of this engine returned.
        unsafe {
            Component::deserialize(engine, &compiled)
        }
    }

    /// The component of an entry; `None` if there is none.
    fn entry(&self, engine: &Engine, path: &Path) -> io::Result<Option<Component>> {
        let Some((file, found)) = seen::open(path)? else { return Ok(None) };
        seen::check_owner(&std::fs::metadata(&self.dir)?)?;
        let record = path.with_extension("sum");
        let Some(written) = Seen::read(&record)? else { return Ok(None) };
        if !written.is(&found) {
            if written.hash != checksum(file)? {
                return Err(io::Error::other("its checksum is wrong"));
            }
            let seen = Seen::new(written.hash, &found);
            if seen.proves()
                && let Err(error) = seen.write(&record)
            {
                tracing::debug!(path = %record.display(), %error, "a checksum is computed again");
            }
        }
        #[expect(unsafe_code, reason = "machine code that an earlier run compiled")]
        // SAFETY: the file is what `keep` wrote: its checksum is right, and no other user could write it or its
        // directory. Its name has the settings of this engine.
        let component = unsafe { Component::deserialize_file(engine, path) };
        component.map(Some).map_err(|error| io::Error::other(error.to_string()))
    }

    /// Writes an entry. The checksum comes last, so that an entry with one is whole.
    fn keep(&self, path: &Path, compiled: &[u8]) -> io::Result<()> {
        DirBuilder::new().recursive(true).mode(0o700).create(&self.dir)?;
        seen::check_owner(&std::fs::metadata(&self.dir)?)?;
        seen::put(path, compiled)?;
        let seen = Seen::new(format!("{:032x}", xxh3_128(compiled)), &std::fs::metadata(path)?);
        seen.write(&path.with_extension("sum"))
    }

    /// The path of an entry.
    fn path(&self, engine: &Engine, hash: &[u8; 32]) -> PathBuf {
        let mut hasher = Xxh3::new();
        engine.precompile_compatibility_hash().hash(&mut hasher);
        self.dir.join(format!("{}-{:016x}.cwasm", hex::encode(hash), hasher.finish()))
    }
}

/// The checksum of a file, in hexadecimal.
fn checksum(mut file: std::fs::File) -> io::Result<String> {
    let mut hasher = Xxh3::new();
    let mut buffer = vec![0; 256 << 10];
    loop {
        match file.read(&mut buffer)? {
            0 => return Ok(format!("{:032x}", hasher.digest128())),
            read => hasher.update(buffer.get(..read).unwrap_or_default()),
        }
    }
}
