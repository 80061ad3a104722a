//! The file `checkpoints`: every note the store signed, oldest first
//! (`docs/formats/event-checkpoint.md`).
//!
//! Invariants:
//! - A frame is durable before [`History::append`] returns, and before the next one is written: at
//!   most the last one can be torn.
//! - So an unreadable frame is cut off only if nothing valid follows it; otherwise it is damage.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use forebay_base::fs::{Access, File, FileSystem};

use super::note::NOTE_SIZE_MAX;
use crate::merkle::header::{self, HEADER_SIZE};

/// First bytes of the file.
const MAGIC: [u8; 8] = *b"FOREBCKP";
const VERSION: u16 = 1;
/// Size of what precedes a note, and of the size and checksum that follow it.
const FRAME_START: usize = 4;
const FRAME_END: usize = 8;
/// Bytes searched at once for a frame after a damaged one.
const SEARCH_SIZE: u64 = 1 << 20;

/// Why the history cannot be read or written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HistoryError {
    /// The file system failed.
    #[error("cannot {act} the checkpoints in {path}")]
    Io {
        /// The operation that failed.
        act: &'static str,
        /// The file.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// The header does not belong to this store.
    #[error("the header of {path} is damaged or belongs to another store or version")]
    Header {
        /// The file.
        path: PathBuf,
    },
    /// A checkpoint is damaged.
    #[error("the checkpoint at byte {offset} of {path} is damaged")]
    Damaged {
        /// The file.
        path: PathBuf,
        /// Offset of its frame.
        offset: u64,
    },
    /// The note is too large to be stored.
    #[error("a note of {size} bytes is too large for {path}; the maximum is {NOTE_SIZE_MAX}")]
    TooLarge {
        /// The file.
        path: PathBuf,
        /// Its bytes.
        size: usize,
    },
    /// A sync failed earlier: the contents of the device are unknown until the file is opened
    /// again.
    #[error("a sync of {path} failed; nothing more is written to it")]
    Poisoned {
        /// The file.
        path: PathBuf,
    },
}

/// The open file, at its end.
#[derive(Debug)]
pub struct History {
    frames: Frames,
    latest: Option<String>,
    cut: u64,
    poisoned: bool,
}

/// The notes of a history, oldest first, read one by one.
#[derive(Debug)]
pub struct Notes {
    frames: Frames,
    at: u64,
    torn: u64,
}

#[derive(Debug, Clone)]
struct Frames {
    file: Arc<dyn File>,
    path: PathBuf,
    mark: u32,
    end: u64,
}

/// Returns the last note, if any, and the offset of its frame.
struct Last {
    note: Option<String>,
    start: u64,
    end: u64,
}

impl History {
    /// Opens or creates the file, and cuts off an incomplete note.
    ///
    /// * `id`: the store's; a file of another store is refused.
    ///
    /// # Errors
    /// [`HistoryError`]. Damage in notes before the last is found by [`History::notes`].
    pub fn open(fs: &dyn FileSystem, path: &Path, id: [u8; 16]) -> Result<Self, HistoryError> {
        let (header, mark) = header::encode(MAGIC, VERSION, id);
        let io = |act| move |source| HistoryError::Io { act, path: path.to_owned(), source };
        let file = match fs.open(path, Access::ReadWrite) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                fs.create_new(path).map_err(io("create"))?
            }
            opened => opened.map_err(io("open"))?,
        };
        // Also for an existing file: its creator may have ended before its name was durable.
        fs.sync_dir(path.parent().unwrap_or(Path::new(""))).map_err(io("sync the directory of"))?;
        let len = file.len().map_err(io("read"))?;
        let mut frames = Frames { file, path: path.to_owned(), mark, end: len };
        if len <= HEADER_SIZE as u64 {
            // New, or not finished when its creator ended: there is no note to lose.
            frames.file.set_len(0).map_err(io("write"))?;
            frames.file.write_all_at(&header, 0).map_err(io("write"))?;
            frames.end = HEADER_SIZE as u64;
        }
        frames.check_header(&header)?;
        let Last { note: latest, start, end } = frames.find_last()?;
        let cut = frames.end - end;
        if cut > 0 {
            frames.file.set_len(end).map_err(io("truncate"))?;
            frames.end = end;
        }
        // Written again: after a failed sync it may be visible only to this kernel.
        let mut last = vec![0; usize::try_from(end - start).unwrap_or(0)];
        frames.read_at(&mut last, start)?;
        frames.file.write_all_at(&last, start).map_err(io("write"))?;
        frames.file.sync_all().map_err(io("sync"))?;
        Ok(Self { frames, latest, cut, poisoned: false })
    }

    /// Reads the file without changing anything; an incomplete note is skipped.
    ///
    /// # Errors
    /// [`HistoryError`].
    pub fn read(fs: &dyn FileSystem, path: &Path, id: [u8; 16]) -> Result<Notes, HistoryError> {
        let (header, mark) = header::encode(MAGIC, VERSION, id);
        let io = |act| move |source| HistoryError::Io { act, path: path.to_owned(), source };
        let file = fs.open(path, Access::Read).map_err(io("open"))?;
        let end = file.len().map_err(io("read"))?;
        let mut frames = Frames { file, path: path.to_owned(), mark, end };
        frames.check_header(&header)?;
        let end = frames.find_last()?.end;
        let torn = frames.end - end;
        frames.end = end;
        Ok(Notes { frames, at: HEADER_SIZE as u64, torn })
    }

    /// Adds a note, durably. After a failed write nothing was added, and it may be tried again;
    /// after a failed sync nothing more is written.
    ///
    /// # Errors
    /// [`HistoryError`].
    pub fn append(&mut self, note: &str) -> Result<(), HistoryError> {
        let Frames { file, path, mark, end } = &mut self.frames;
        let io = |act, path: &Path, source| HistoryError::Io { act, path: path.to_owned(), source };
        if self.poisoned {
            return Err(HistoryError::Poisoned { path: path.clone() });
        }
        let size = u32::try_from(note.len()).ok().filter(|_| note.len() <= NOTE_SIZE_MAX);
        let Some(size) = size else {
            return Err(HistoryError::TooLarge { path: path.clone(), size: note.len() });
        };
        let size = size.to_le_bytes();
        let crc = header::checksum(*mark, *end, &[&size, note.as_bytes(), &size]);
        let frame = [&size, note.as_bytes(), &size, &crc.to_le_bytes()].concat();
        // What a failed write left is removed first, or it might outlast a shorter note.
        if file.len().map_err(|source| io("read", path, source))? > *end {
            file.set_len(*end).map_err(|source| io("truncate", path, source))?;
        }
        file.write_all_at(&frame, *end).map_err(|source| io("write", path, source))?;
        if let Err(source) = file.sync_data() {
            self.poisoned = true;
            return Err(io("sync", path, source));
        }
        *end += frame.len() as u64;
        self.latest = Some(note.to_owned());
        Ok(())
    }

    /// Bytes of an incomplete note cut off on opening; 0 after a clean stop.
    #[must_use]
    pub fn cut(&self) -> u64 {
        self.cut
    }

    /// Whether a sync failed, so that the file must be opened again.
    #[must_use]
    pub fn is_poisoned(&self) -> bool {
        self.poisoned
    }

    /// The newest note.
    #[must_use]
    pub fn latest(&self) -> Option<&str> {
        self.latest.as_deref()
    }

    /// Returns the current notes, oldest first; each is verified when it is read.
    #[must_use]
    pub fn notes(&self) -> Notes {
        Notes { frames: self.frames.clone(), at: HEADER_SIZE as u64, torn: 0 }
    }
}

impl Notes {
    /// Bytes after the last whole note: the remains of one after a crash, or a damaged one.
    #[must_use]
    pub fn torn(&self) -> u64 {
        self.torn
    }
}

impl Iterator for Notes {
    type Item = Result<String, HistoryError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.at >= self.frames.end {
            return None;
        }
        let offset = self.at;
        match self.frames.read_frame(offset) {
            Ok(Some((note, next))) => {
                self.at = next;
                Some(Ok(note))
            }
            other => {
                // The start of the next note is unknown.
                self.at = self.frames.end;
                let path = self.frames.path.clone();
                Some(Err(other.err().unwrap_or(HistoryError::Damaged { path, offset })))
            }
        }
    }
}

impl Frames {
    fn check_header(&self, expected: &[u8]) -> Result<(), HistoryError> {
        let mut header = [0; HEADER_SIZE];
        if self.end >= HEADER_SIZE as u64 {
            self.read_at(&mut header, 0)?;
        }
        if header == *expected {
            return Ok(());
        }
        Err(HistoryError::Header { path: self.path.clone() })
    }

    /// The last whole note.
    fn find_last(&self) -> Result<Last, HistoryError> {
        let none = HEADER_SIZE as u64;
        let mut last = Last { note: None, start: none, end: none };
        if self.end == none {
            return Ok(last);
        }
        if let Some(last) = self.read_last()? {
            return Ok(last);
        }
        // Torn, or damaged: scan the frames from the first.
        while last.end < self.end {
            let at = last.end;
            match self.read_frame(at)? {
                Some((note, next)) => last = Last { note: Some(note), start: at, end: next },
                None if self.has_frame_after(at)? => {
                    return Err(HistoryError::Damaged { path: self.path.clone(), offset: at });
                }
                None => break,
            }
        }
        Ok(last)
    }

    /// The note whose frame ends where the file ends.
    fn read_last(&self) -> Result<Option<Last>, HistoryError> {
        let Some(tail_at) = self.end.checked_sub(FRAME_END as u64) else { return Ok(None) };
        let mut size = [0; 4];
        self.read_at(&mut size, tail_at)?;
        let start = tail_at.checked_sub(u64::from(u32::from_le_bytes(size)) + FRAME_START as u64);
        let Some(start) = start.filter(|&start| start >= HEADER_SIZE as u64) else {
            return Ok(None);
        };
        let frame = self.read_frame(start)?;
        Ok(frame.map(|(note, end)| Last { note: Some(note), start, end }))
    }

    /// Returns the note of the frame at `offset` and where the next begins; `None` if it is
    /// incomplete.
    fn read_frame(&self, offset: u64) -> Result<Option<(String, u64)>, HistoryError> {
        let room = self.end.saturating_sub(offset);
        let mut start = [0; FRAME_START];
        if room < (FRAME_START + FRAME_END) as u64 {
            return Ok(None);
        }
        self.read_at(&mut start, offset)?;
        let size = u32::from_le_bytes(start) as usize;
        let frame_size = size + FRAME_START + FRAME_END;
        if size > NOTE_SIZE_MAX || frame_size as u64 > room {
            return Ok(None);
        }
        let mut frame = vec![0; frame_size];
        self.read_at(&mut frame, offset)?;
        let note = check_frame(&frame, self.mark, offset);
        Ok(note.map(|note| (note.to_owned(), offset + frame_size as u64)))
    }

    /// Whether a whole frame begins anywhere after `offset`.
    fn has_frame_after(&self, offset: u64) -> Result<bool, HistoryError> {
        let overlap = (NOTE_SIZE_MAX + FRAME_START + FRAME_END) as u64;
        let mut from = offset + 1;
        while from < self.end {
            let len = (SEARCH_SIZE + overlap).min(self.end - from);
            let mut bytes = vec![0; usize::try_from(len).unwrap_or(0)];
            self.read_at(&mut bytes, from)?;
            for (at, place) in (0..bytes.len()).zip(from..from + SEARCH_SIZE) {
                if frame_at(&bytes[at..])
                    .is_some_and(|f| check_frame(f, self.mark, place).is_some())
                {
                    return Ok(true);
                }
            }
            from += SEARCH_SIZE;
        }
        Ok(false)
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> Result<(), HistoryError> {
        self.file.read_exact_at(buffer, offset).map_err(|source| {
            let path = self.path.clone();
            HistoryError::Io { act: "read", path, source }
        })
    }
}

/// The frame that begins here, if its two sizes agree.
fn frame_at(bytes: &[u8]) -> Option<&[u8]> {
    let (start, _) = bytes.split_first_chunk::<FRAME_START>()?;
    let size = u32::from_le_bytes(*start) as usize;
    let frame = bytes.get(..size.checked_add(FRAME_START + FRAME_END)?)?;
    let again = frame.get(FRAME_START + size..FRAME_START + size + 4)?;
    (size <= NOTE_SIZE_MAX && again == start).then_some(frame)
}

/// Returns the note of a frame, if it is complete and at its offset.
fn check_frame(frame: &[u8], mark: u32, offset: u64) -> Option<&str> {
    let frame = frame_at(frame)?;
    let (covered, crc) = frame.split_last_chunk::<4>()?;
    if header::checksum(mark, offset, &[covered]).to_le_bytes() != *crc {
        return None;
    }
    str::from_utf8(covered.get(FRAME_START..covered.len() - 4)?).ok()
}

#[cfg(test)]
mod tests;
