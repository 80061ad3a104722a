//! Reading one spill segment: line by line, commit by commit, with every check.
//!
//! Invariants: memory is limited to a chunk, or to one line if that is larger, and a line has a
//! maximum length; a commit counts only once its last line was read and its checksum matches;
//! reading ends at the first invalid byte and reports its offset.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use forebay_base::checksum::extend;
use forebay_base::fs::File;
use forebay_log::Lsn;
use forebay_sink::StoredDocument;

use super::format::{Header, Spilled, decode_document, is_end, seed};
use super::{SpillError, io};

/// Bytes read at a time.
const CHUNK: usize = 256 << 10;
/// Longest line: twice the largest document of the log, for one whose every byte is escaped.
const LINE_SIZE_MAX: usize = 256 << 20;

/// The next item of a segment.
#[derive(Debug)]
pub(crate) enum Item {
    /// A commit starts.
    Commit(Spilled),
    /// A document of the commit.
    Document(StoredDocument),
    /// The commit that ends at this position is complete.
    End(Lsn),
}

/// Reads a segment from its beginning.
#[derive(Debug)]
pub(crate) struct SegmentReader {
    path: PathBuf,
    file: Arc<dyn File>,
    log: [u8; 16],
    /// Read but not yet consumed; starts with the last line consumed.
    buffer: Vec<u8>,
    taken: usize,
    /// Offset of the buffer in the file.
    offset: u64,
    /// Start position of the segment, once its header was read.
    after: Option<Lsn>,
    seed: u32,
    crc: u32,
    commit: Option<Open>,
    /// Everything before this offset is valid.
    whole: u64,
}

/// The commit being read.
#[derive(Debug)]
struct Open {
    end: Lsn,
    namespace: String,
    next_id: u64,
    left: u64,
}

impl SegmentReader {
    pub(super) fn new(path: &Path, file: Arc<dyn File>, log: [u8; 16]) -> Self {
        Self {
            path: path.to_owned(),
            file,
            log,
            buffer: Vec::new(),
            taken: 0,
            offset: 0,
            after: None,
            seed: 0,
            crc: 0,
            commit: None,
            whole: 0,
        }
    }

    /// Start position of the segment; known once something was read.
    pub(super) fn after(&self) -> Option<Lsn> {
        self.after
    }

    /// Complete commits end at this byte.
    pub(super) fn whole(&self) -> u64 {
        self.whole
    }

    /// The next item; `None` at the end of a valid segment.
    ///
    /// # Errors
    /// [`SpillError::Damaged`] if the bytes are invalid or end too soon.
    pub(crate) fn next(&mut self) -> Result<Option<Item>, SpillError> {
        if self.after.is_none() {
            let Some(line) = self.line()? else { return Err(self.damaged("there is no header")) };
            let header = Header::decode(&line, self.log).map_err(|found| self.damaged(&found))?;
            self.after = Some(Lsn(header.after));
            self.seed = seed(&line);
            self.whole = self.position();
        }
        let Some(mut line) = self.line()? else {
            return match self.commit {
                Some(_) => Err(self.damaged("the file ends inside a commit")),
                None => Ok(None),
            };
        };
        let Some(open) = &mut self.commit else {
            self.crc = extend(self.seed, &line);
            let Some(commit) = Spilled::decode(&line) else {
                return Err(self.damaged("expected the first line of a commit"));
            };
            self.commit = Some(Open {
                end: commit.end,
                namespace: commit.namespace.clone(),
                next_id: commit.first_id,
                left: commit.count,
            });
            return Ok(Some(Item::Commit(commit)));
        };
        if open.left == 0 {
            let end = open.end;
            if !is_end(&line, end, self.crc) {
                return Err(self.damaged("the checksum of a commit does not match"));
            }
            self.commit = None;
            self.whole = self.position();
            return Ok(Some(Item::End(end)));
        }
        self.crc = extend(self.crc, &line);
        match decode_document(&mut line, open.end, &open.namespace) {
            // There is no id after the largest one.
            Some(document) if document.id == open.next_id => {
                open.next_id = open.next_id.wrapping_add(1);
                open.left -= 1;
                Ok(Some(Item::Document(document)))
            }
            _ => Err(self.damaged("unexpected document")),
        }
    }

    /// The next line with its line break; `None` if no complete line is left.
    fn line(&mut self) -> Result<Option<Vec<u8>>, SpillError> {
        let mut searched = self.taken;
        loop {
            let unread = self.buffer.get(searched..).unwrap_or_default();
            if let Some(at) = memchr::memchr(b'\n', unread) {
                let line = self.buffer.get(self.taken..=searched + at).unwrap_or_default().to_vec();
                self.taken = searched + at + 1;
                return Ok(Some(line));
            }
            self.buffer.drain(..self.taken);
            self.offset += self.taken as u64;
            self.taken = 0;
            searched = self.buffer.len();
            if searched > LINE_SIZE_MAX {
                return Err(self.damaged("a line has no end"));
            }
            self.buffer.resize(searched + CHUNK, 0);
            let room = self.buffer.get_mut(searched..).unwrap_or_default();
            let read = self.file.read_at(room, self.offset + searched as u64);
            let read = read.map_err(io("read", &self.path))?;
            self.buffer.truncate(searched + read);
            if read == 0 {
                return Ok(None);
            }
        }
    }

    /// Offset of the next line in the file.
    fn position(&self) -> u64 {
        self.offset + self.taken as u64
    }

    fn damaged(&self, found: &str) -> SpillError {
        let offset = self.position();
        SpillError::Damaged { path: self.path.clone(), offset, found: found.to_owned() }
    }
}
