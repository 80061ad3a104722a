//! The committed contents of a directory of files.
//!
//! ```json
//! {"format": "forebay-ndjson", "version": 1, "position": 4711,
//!  "namespaces": {"orders": {"bytes": 52013, "rows": 210, "last_id": 4709}},
//!  "renames": []}
//! ```
//!
//! `renames` are files that the commit still has to move: the manifest is replaced first, the files
//! are moved afterwards, and the next opening of the directory moves those that a crash left
//! behind.

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::{Map, Value, json};

use super::{MANIFEST, open_io, replace};
use crate::error::OpenError;
use crate::name::check_namespace;
use crate::sink::Position;

const VERSION: u64 = 1;

/// The contents of a namespace.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Entry {
    /// Length of its file, where it has just one.
    pub(super) bytes: u64,
    pub(super) rows: u64,
    pub(super) last_id: Option<u64>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Manifest {
    pub(super) position: Option<Position>,
    pub(super) namespaces: BTreeMap<String, Entry>,
    /// Paths below the directory: from, to.
    pub(super) renames: Vec<(String, String)>,
}

impl Manifest {
    /// Reads the manifest of `dir`; `None` when there is none.
    pub(super) fn read(dir: &Path, format: &str) -> Result<Option<Manifest>, OpenError> {
        let path = dir.join(MANIFEST);
        let text = match std::fs::read(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(open_io("read the manifest", &path)(error)),
        };
        let corrupt = |found: String| OpenError::Corrupt { path: path.clone(), found };
        let value: Value = serde_json::from_slice(&text)
            .map_err(|error| corrupt(format!("not a manifest: {error}")))?;
        let found = value["format"].as_str().unwrap_or_default();
        if found != format {
            return Err(corrupt(format!("format {found:?}, expected {format:?}")));
        }
        match value["version"].as_u64() {
            Some(VERSION) => {}
            found => return Err(corrupt(format!("version {found:?}, expected {VERSION}"))),
        }
        let manifest = Manifest::decode(&value);
        manifest.map(Some).ok_or_else(|| corrupt("a field is missing or no number".to_owned()))
    }

    fn decode(value: &Value) -> Option<Manifest> {
        let mut namespaces = BTreeMap::new();
        for (name, entry) in value["namespaces"].as_object()? {
            check_namespace(name).ok()?;
            let entry = Entry {
                bytes: entry["bytes"].as_u64()?,
                rows: entry["rows"].as_u64()?,
                last_id: optional(&entry["last_id"])?,
            };
            namespaces.insert(name.clone(), entry);
        }
        let mut renames = Vec::new();
        for rename in value["renames"].as_array()? {
            let (from, to) = (rename[0].as_str()?, rename[1].as_str()?);
            // A manifest is untrusted: it may not move files to other directories.
            if [from, to].iter().any(|path| path.split('/').any(|part| matches!(part, "" | ".."))) {
                return None;
            }
            renames.push((from.to_owned(), to.to_owned()));
        }
        let position = optional(&value["position"])?.map(Position);
        Some(Manifest { position, namespaces, renames })
    }

    /// Makes this the manifest of `dir`.
    pub(super) fn write(&self, dir: &Path, format: &str) -> std::io::Result<()> {
        let namespaces: Map<String, Value> = self
            .namespaces
            .iter()
            .map(|(name, entry)| {
                let Entry { bytes, rows, last_id } = entry;
                (name.clone(), json!({ "bytes": bytes, "rows": rows, "last_id": last_id }))
            })
            .collect();
        let mut text = json!({
            "format": format,
            "version": VERSION,
            "position": self.position.map(|position| position.0),
            "namespaces": namespaces,
            "renames": self.renames,
        })
        .to_string();
        text.push('\n');
        replace(&dir.join(MANIFEST), text.as_bytes())
    }
}

/// A number or null; `None` for everything else.
fn optional(value: &Value) -> Option<Option<u64>> {
    if value.is_null() { Some(None) } else { value.as_u64().map(Some) }
}
