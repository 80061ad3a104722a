//! Documents, one per line, in one file per namespace.
//!
//! ```text
//! <dir>/manifest.json        what is committed: position, and each file's length
//! <dir>/<namespace>.ndjson   {"_id":7,"_received_ms":1700000000000,"_document":{"a": 1}}
//! ```
//!
//! A line contains its document byte for byte. A document that would break the line (line breaks,
//! surrounding spaces, not JSON at all) is stored as the string `_text`, or, if it is not even
//! UTF-8, as the hexadecimal digits `_hex`; both return the same bytes.
//!
//! Lines are appended after the committed length and become valid once the manifest includes them.
//! What follows the committed length after a crash is cut off on opening.

use std::collections::HashMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufRead as _, BufReader, Read as _, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};

use serde_json::value::RawValue;

use super::ledger::{Ledger, admit_row};
use super::manifest::Manifest;
use super::{file_name, open_io, sink_io, sync_dir};
use crate::error::{OpenError, ReadError, SinkError};
use crate::sink::{Document, DocumentSink, Position, Sink, StoredDocument, Written};

const FORMAT: &str = "forebay-ndjson";
/// Files kept open in one transaction; with more, those open are flushed and closed.
const OPEN_FILES_MAX: usize = 64;
/// Lines gathered before they are written.
const BUFFER_SIZE: usize = 256 << 10;

/// Appends documents to line-by-line JSON files; see the [module](super).
#[derive(Debug)]
pub struct NdjsonSink {
    dir: PathBuf,
    ledger: Ledger,
    open: HashMap<String, File>,
    buffer: Vec<u8>,
}

impl NdjsonSink {
    /// Opens the directory `dir`, and creates it if it does not exist.
    ///
    /// # Errors
    /// [`OpenError::Corrupt`] when the manifest is damaged or missing beside files, or a file is
    /// shorter than the manifest says; [`OpenError::Io`].
    pub fn open(dir: &Path) -> Result<NdjsonSink, OpenError> {
        fs::create_dir_all(dir).map_err(open_io("create", dir))?;
        let manifest = match Manifest::read(dir, FORMAT)? {
            Some(manifest) => manifest,
            None => {
                // Without it the committed length is unknown, and discarding files is not an
                // option.
                if let Some(file) = files(dir)?.first() {
                    let found = format!("no manifest, but {}", file.display());
                    return Err(OpenError::Corrupt { path: dir.to_owned(), found });
                }
                let manifest = Manifest::default();
                manifest.write(dir, FORMAT).map_err(open_io("write the manifest in", dir))?;
                manifest
            }
        };
        for (namespace, entry) in &manifest.namespaces {
            let path = path(dir, namespace);
            cut(&path, entry.bytes)?;
        }
        for file in files(dir)? {
            let known = manifest.namespaces.keys().any(|namespace| path(dir, namespace) == file);
            if !known {
                fs::remove_file(&file).map_err(open_io("remove uncommitted lines in", &file))?;
            }
        }
        let ledger = Ledger::new(dir.to_owned(), FORMAT, manifest);
        Ok(NdjsonSink { dir: dir.to_owned(), ledger, open: HashMap::new(), buffer: Vec::new() })
    }

    /// Calls `each` with every committed document of `namespace`, in the order of their ids.
    ///
    /// # Errors
    /// [`ReadError::Corrupt`] at a line that is none of this sink's; [`ReadError::Io`].
    pub fn read(
        &self,
        namespace: &str,
        each: &mut dyn FnMut(StoredDocument),
    ) -> Result<(), ReadError> {
        let Some(entry) = self.ledger.committed().namespaces.get(namespace) else { return Ok(()) };
        let path = path(&self.dir, namespace);
        let failed = |source| ReadError::Io { act: "read", path: path.clone(), source };
        let mut lines = BufReader::new(File::open(&path).map_err(failed)?.take(entry.bytes));
        let mut line = Vec::new();
        let mut offset = 0_u64;
        loop {
            line.clear();
            let length = lines.read_until(b'\n', &mut line).map_err(failed)?;
            if length == 0 {
                return Ok(());
            }
            let Some(document) = decode(&line) else {
                let found = format!("no document in the line at byte {offset}");
                return Err(ReadError::Corrupt { act: "read", path, found });
            };
            each(document);
            offset += length as u64;
        }
    }

    fn append(
        &mut self,
        at: Position,
        namespace: &str,
        documents: &[Document<'_>],
    ) -> Result<Written, SinkError> {
        if !self.ledger.admit(at, namespace)? {
            return Ok(Written::replay());
        }
        for document in documents {
            let entry = self.ledger.entry(namespace);
            admit_row(entry, namespace, document.id, document.received_ms)?;
            encode(document, &mut self.buffer);
            if self.buffer.len() >= BUFFER_SIZE {
                self.flush(namespace)?;
            }
        }
        self.flush(namespace)?;
        Ok(Written { rows: documents.len() as u64, ..Written::default() })
    }

    /// Writes the gathered lines to the end of the namespace's file.
    fn flush(&mut self, namespace: &str) -> Result<(), SinkError> {
        let path = path(&self.dir, namespace);
        if !self.open.contains_key(namespace) {
            if self.open.len() >= OPEN_FILES_MAX {
                self.sync()?;
            }
            let mut file = OpenOptions::new()
                .write(true)
                .create(true)
                .truncate(false)
                .open(&path)
                .map_err(sink_io("open", &path))?;
            let end = SeekFrom::Start(self.ledger.entry(namespace).bytes);
            file.seek(end).map_err(sink_io("seek in", &path))?;
            self.open.insert(namespace.to_owned(), file);
        }
        if let Some(file) = self.open.get_mut(namespace) {
            file.write_all(&self.buffer).map_err(sink_io("append to", &path))?;
        }
        self.ledger.entry(namespace).bytes += self.buffer.len() as u64;
        self.buffer.clear();
        Ok(())
    }

    /// Puts the lines written so far onto stable storage and closes their files.
    fn sync(&mut self) -> Result<(), SinkError> {
        for (namespace, file) in self.open.drain() {
            file.sync_data().map_err(sink_io("sync", &path(&self.dir, &namespace)))?;
        }
        Ok(())
    }
}

impl Sink for NdjsonSink {
    fn position(&self) -> Option<Position> {
        self.ledger.committed().position
    }

    fn commit(&mut self, position: Position) -> Result<(), SinkError> {
        let check = self.ledger.check_commit(position);
        if !self.ledger.settle(check)? {
            return Ok(());
        }
        let synced = self.sync().and_then(|()| {
            // The files' names have to be as safe as what the manifest says about them.
            sync_dir(&self.dir).map_err(sink_io("sync", &self.dir))
        });
        let committed = synced.and_then(|()| self.ledger.commit(position, Vec::new()));
        self.ledger.settle(committed)
    }

    fn roll_back(&mut self) -> Result<(), SinkError> {
        if self.ledger.is_idle() {
            return Ok(());
        }
        self.open.clear();
        self.buffer.clear();
        self.ledger.reload()?;
        for namespace in self.ledger.pending().keys() {
            let path = path(&self.dir, namespace);
            let length = self.ledger.committed().namespaces.get(namespace).map(|it| it.bytes);
            let undone = match length {
                Some(length) => {
                    OpenOptions::new().write(true).open(&path).and_then(|it| it.set_len(length))
                }
                None => fs::remove_file(&path),
            };
            match undone {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    return Err(sink_io("roll back", &path)(error));
                }
                _ => {}
            }
        }
        self.ledger.roll_back();
        Ok(())
    }

    fn checkpoint(&mut self) -> Result<Option<Position>, SinkError> {
        Ok(self.position())
    }
}

impl DocumentSink for NdjsonSink {
    fn write_documents(
        &mut self,
        at: Position,
        namespace: &str,
        documents: &[Document<'_>],
    ) -> Result<Written, SinkError> {
        let appended = self.append(at, namespace, documents);
        self.ledger.settle(appended)
    }

    fn last_id(&mut self, namespace: &str) -> Result<Option<u64>, SinkError> {
        let (pending, committed) = (self.ledger.pending(), &self.ledger.committed().namespaces);
        let known = pending.get(namespace).or_else(|| committed.get(namespace));
        Ok(known.and_then(|entry| entry.last_id))
    }
}

fn path(dir: &Path, namespace: &str) -> PathBuf {
    dir.join(format!("{}.ndjson", file_name(namespace)))
}

/// The sink's files in `dir`.
fn files(dir: &Path) -> Result<Vec<PathBuf>, OpenError> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir).map_err(open_io("list", dir))? {
        let path = entry.map_err(open_io("list", dir))?.path();
        if path.extension().is_some_and(|extension| extension == "ndjson") {
            found.push(path);
        }
    }
    Ok(found)
}

/// Cuts off what was never committed.
fn cut(path: &Path, length: u64) -> Result<(), OpenError> {
    let file = match OpenOptions::new().write(true).open(path) {
        Ok(file) => file,
        // An empty write commits a namespace without lines.
        Err(error) if error.kind() == io::ErrorKind::NotFound && length == 0 => return Ok(()),
        Err(error) => return Err(open_io("open", path)(error)),
    };
    let found = file.metadata().map_err(open_io("measure", path))?.len();
    if found < length {
        let found = format!("{found} bytes, expected at least {length}");
        return Err(OpenError::Corrupt { path: path.to_owned(), found });
    }
    if found > length {
        file.set_len(length).map_err(open_io("cut", path))?;
    }
    Ok(())
}

/// Appends a document as a separate line, including the line break.
pub fn encode(document: &Document<'_>, line: &mut Vec<u8>) {
    let (id, received_ms, raw) = (document.id, document.received_ms, document.raw);
    line.extend_from_slice(format!(r#"{{"_id":{id},"_received_ms":{received_ms},"#).as_bytes());
    if fits_line(raw) {
        line.extend_from_slice(b"\"_document\":");
        line.extend_from_slice(raw);
    } else if let Ok(text) = std::str::from_utf8(raw) {
        let text = serde_json::Value::from(text).to_string();
        line.extend_from_slice(format!("\"_text\":{text}").as_bytes());
    } else {
        line.extend_from_slice(b"\"_hex\":\"");
        for byte in raw {
            line.extend_from_slice(format!("{byte:02x}").as_bytes());
        }
        line.push(b'"');
    }
    line.extend_from_slice(b"}\n");
}

/// Whether a document can stand in a line as it is: one JSON value, no line breaks, and no spaces
/// around it, which a JSON reader would drop.
fn fits_line(raw: &[u8]) -> bool {
    !raw.starts_with(b" ")
        && !raw.ends_with(b" ")
        && raw.iter().all(|&byte| byte >= 0x20)
        && serde_json::from_slice::<&RawValue>(raw).is_ok()
}

/// The document of a line that [`encode`] made, line break included; `None` for any other.
#[must_use]
pub fn decode(line: &[u8]) -> Option<StoredDocument> {
    let line = line.strip_suffix(b"}\n")?;
    let (id, rest) = number(line.strip_prefix(b"{\"_id\":")?)?;
    let (received_ms, rest) = number(rest.strip_prefix(b",\"_received_ms\":")?)?;
    let raw = if let Some(raw) = rest.strip_prefix(b",\"_document\":") {
        raw.to_owned()
    } else if let Some(text) = rest.strip_prefix(b",\"_text\":") {
        serde_json::from_slice::<String>(text).ok()?.into_bytes()
    } else {
        let digits = rest.strip_prefix(b",\"_hex\":\"")?.strip_suffix(b"\"")?;
        let pairs = digits.chunks(2).map(|pair| {
            let pair = std::str::from_utf8(pair).ok().filter(|pair| pair.len() == 2)?;
            u8::from_str_radix(pair, 16).ok()
        });
        pairs.collect::<Option<Vec<u8>>>()?
    };
    Some(StoredDocument { id, received_ms, raw })
}

/// The number at the front, and what follows it.
fn number(text: &[u8]) -> Option<(u64, &[u8])> {
    let digits = text.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let (number, rest) = text.split_at_checked(digits)?;
    Some((std::str::from_utf8(number).ok()?.parse().ok()?, rest))
}
