//! Makes a backup of a source.
//!
//! Order: chunks are written, everything is synced, what is new is read back from the disk, and only then the
//! list gets its name. A chunk that exists is believed if the list of the newest backup names it, and compared
//! otherwise: an interrupted backup may have left it. A target that compares what it receives with a checksum is
//! asked for the chunk's size instead, and nothing is read back from it.
//!
//! Invariant: one thread reads the source, and what waits to be stored is limited.

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::io::{ErrorKind, Read as _, Seek as _, SeekFrom};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, ensure};
use forebay_base::image::ImageFile;
use parking_lot::Mutex;
use serde::Serialize;

use super::check;
use super::list::{Entry, Header, ListWriter, Stamp, Totals};
use super::parallel::{Feed, each};
use super::source::Source;
use super::store::{Store, chunk_id};
use super::{CHUNK_SIZE, ChunkId};
use crate::interrupt::Interrupt;

/// A backup that was made.
#[derive(Debug, Serialize)]
pub(crate) struct Made {
    /// Its name.
    pub(crate) id: String,
    /// Number of its files.
    pub(crate) files: u64,
    /// Their bytes.
    pub(crate) bytes: u64,
    /// Bytes that no earlier backup had.
    pub(crate) new_bytes: u64,
    /// Whether a server was running.
    pub(crate) online: bool,
    /// How long it took, in milliseconds.
    pub(crate) took_ms: u64,
}

/// What the newest backup has.
#[derive(Default)]
struct Known {
    by_path: HashMap<String, Entry>,
    chunks: HashSet<ChunkId>,
}

/// Makes a backup.
///
/// * `progress`: called with the bytes done and in total.
///
/// # Errors
/// There is no backup; those before are unchanged.
pub(crate) fn make(
    store: &Store,
    source: &Source,
    interrupt: &Interrupt,
    progress: &dyn Fn(u64, u64),
) -> anyhow::Result<Made> {
    let begun = Instant::now();
    let mut known = Known::default();
    if let Some(newest) = store.ids()?.last() {
        // A damaged list is not used: then everything is read and compared.
        match store.list(Some(newest)) {
            Ok(list) => {
                known.chunks = list.entries.iter().flat_map(|entry| entry.chunks.clone()).collect();
                let by_path = list.entries.into_iter().map(|entry| (entry.path.clone(), entry));
                known.by_path = by_path.collect();
            }
            Err(error) => crate::out::note(format_args!(
                "the list of the newest backup cannot be used, so everything is read again: {error:#}"
            )),
        }
    }
    let created_ms = now_ms();
    let header = Header::new(new_id(created_ms)?, created_ms);
    let fresh = Mutex::new(Vec::new());
    let written = write(store, source, (&header, &known), &fresh, interrupt, progress);
    // While others may add a backup it may need these chunks by now; a prune removes them.
    let (list, totals) = written.inspect_err(|_| {
        if store.is_exclusive() {
            discard(store, &fresh.lock());
        }
    })?;
    // From here on chunks stay, since the backup may exist even after an error.
    publish(store, &header.id, list)?;
    store.mark().with_context(|| format!("backup {} was made, but not marked", header.id))?;
    Ok(Made {
        id: header.id,
        files: totals.files,
        bytes: totals.bytes,
        new_bytes: fresh.into_inner().iter().map(|fresh| fresh.size as u64).sum(),
        online: source.is_online(),
        took_ms: u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX),
    })
}

/// Writes the chunks and a list; returns the list and its totals.
fn write(
    store: &Store,
    source: &Source,
    (header, known): (&Header, &Known),
    fresh: &Mutex<Vec<Fresh>>,
    interrupt: &Interrupt,
    progress: &dyn Fn(u64, u64),
) -> anyhow::Result<(File, Totals)> {
    let mut list = ListWriter::begin(store.begin_list()?, header)?;
    let total = source.bytes();
    let mut done = 0;
    let mut buffer = vec![0; CHUNK_SIZE];
    let keep = |piece: Piece| keep(store, &piece, fresh);
    each(store.workers(), keep, |feed| {
        let mut copy = Copy { known, sent: HashSet::new(), feed };
        for file in source.files()? {
            let (file, path) = file?;
            check(interrupt)?;
            let entry = copy.file((&path, &file), &mut buffer, &mut |bytes| {
                done += bytes;
                progress(done, total);
                check(interrupt)
            })?;
            list.add(&entry)?;
        }
        Ok(())
    })?;
    store.sync()?;
    if store.is_read_back() {
        for Fresh { chunk, size, .. } in &*fresh.lock() {
            check(interrupt)?;
            store.read_chunk(chunk, *size, true).context("what was written cannot be read back")?;
        }
    }
    let (totals, file) = list.finish()?;
    Ok((file, totals))
}

/// Makes a list that of a backup.
fn publish(store: &Store, id: &str, list: File) -> anyhow::Result<()> {
    store.publish_list(id, list)?;
    // A prune that took over before saw no list, and may have removed chunks; one that takes over from now on sees it.
    store.check_held().map_err(|lost| {
        let removed = store.remove_lists(std::iter::once(id));
        match removed {
            Ok(()) => lost,
            Err(error) => lost.context(format!(
                "backup {id} may lack chunks, and cannot be removed ({error:#}); verify it"
            )),
        }
    })
}

/// A chunk that may have to be stored.
struct Piece {
    chunk: ChunkId,
    bytes: Vec<u8>,
}

/// Stores a chunk unless it is stored.
fn keep(store: &Store, piece: &Piece, fresh: &Mutex<Vec<Fresh>>) -> anyhow::Result<()> {
    let Piece { chunk, bytes } = piece;
    let size = bytes.len();
    // One of an older backup, or of an interrupted one.
    if store.is_stored(chunk, size)? {
        return Ok(());
    }
    let is_repair = store.has_chunk(chunk)?;
    store.write_chunk(chunk, bytes)?;
    fresh.lock().push(Fresh { chunk: *chunk, size, is_repair });
    Ok(())
}

/// A chunk that was written now.
struct Fresh {
    chunk: ChunkId,
    size: usize,
    /// Whether it took the place of a damaged one, which an earlier backup may need.
    is_repair: bool,
}

/// Frees the space of a backup that did not come about.
fn discard(store: &Store, fresh: &[Fresh]) {
    let chunks = fresh.iter().filter(|fresh| !fresh.is_repair).map(|fresh| fresh.chunk);
    let chunks: Vec<_> = chunks.collect();
    if let Err(error) = store.remove_chunks(&chunks) {
        crate::out::note(format_args!("what was stored already remains: {error:#}"));
    }
}

/// Copies files.
struct Copy<'a> {
    known: &'a Known,
    /// Chunks that were handed out.
    sent: HashSet<ChunkId>,
    feed: &'a Feed<'a, Piece>,
}

impl Copy<'_> {
    fn file(
        &mut self,
        (path, file): (&Path, &ImageFile),
        buffer: &mut [u8],
        done: &mut dyn FnMut(u64) -> anyhow::Result<()>,
    ) -> anyhow::Result<Entry> {
        let failed = || format!("cannot read {}", path.display());
        let mut opened = File::open(path).with_context(failed)?;
        let found = opened.metadata().with_context(failed)?;
        let stamp = Stamp {
            device: found.dev(),
            inode: found.ino(),
            mtime_s: found.mtime(),
            mtime_ns: found.mtime_nsec(),
            length: found.len(),
            counted: file.bytes,
        };
        let ImageFile { path: name, bytes, size, may_shrink } = file.clone();
        let mut entry = Entry { path: name, bytes: 0, size, stamp, chunks: Vec::new() };
        // As other programs for backups do: a file of the same inode, length and time is the same.
        if let Some(known) = self.known.by_path.get(&entry.path)
            && (known.size, known.stamp) == (size, stamp)
        {
            (entry.bytes, entry.chunks) = (known.bytes, known.chunks.clone());
            done(bytes)?;
            return Ok(entry);
        }
        // Zeros at the end, as a log has them for its next entries, are made when the file is restored: a piece
        // is stored once something follows it, and the last one without them.
        let (mut held, mut zeros) = (Vec::new(), 0);
        let mut left = bytes;
        while left > 0 {
            let size = usize::try_from(left).unwrap_or(usize::MAX).min(CHUNK_SIZE);
            let piece = buffer.get_mut(..size).context("the buffer is too small")?;
            match opened.read_exact(piece) {
                Err(error) if may_shrink && error.kind() == ErrorKind::UnexpectedEof => {
                    fill(&mut opened, piece, bytes - left).with_context(failed)?;
                }
                read => read.with_context(failed)?,
            }
            if piece.iter().any(|byte| *byte != 0) {
                self.add(&mut entry, &held)?;
                for _ in 0..std::mem::take(&mut zeros) {
                    self.add(&mut entry, &vec![0; CHUNK_SIZE])?;
                }
                held.clear();
                held.extend_from_slice(piece);
            } else {
                zeros += 1;
            }
            left -= size as u64;
            done(size as u64)?;
        }
        let end = held.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
        held.truncate(end);
        self.add(&mut entry, &held)?;
        Ok(entry)
    }

    /// Adds a chunk to a file, and hands it out to be stored unless the newest backup or this one has it.
    fn add(&mut self, entry: &mut Entry, bytes: &[u8]) -> anyhow::Result<()> {
        if bytes.is_empty() {
            return Ok(());
        }
        let chunk = chunk_id(bytes);
        entry.chunks.push(chunk);
        entry.bytes += bytes.len() as u64;
        if self.known.chunks.contains(&chunk) || !self.sent.insert(chunk) {
            return Ok(());
        }
        self.feed.send(Piece { chunk, bytes: bytes.to_vec() })
    }
}

/// Reads what there is from an offset on, and puts zeros after it.
fn fill(file: &mut File, piece: &mut [u8], offset: u64) -> std::io::Result<()> {
    file.seek(SeekFrom::Start(offset))?;
    let mut at = 0;
    while let Some(rest) = piece.get_mut(at..).filter(|rest| !rest.is_empty()) {
        match file.read(rest)? {
            0 => {
                rest.fill(0);
                return Ok(());
            }
            count => at += count,
        }
    }
    Ok(())
}

fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

/// Makes an id: ids sort by their time.
fn new_id(created_ms: u64) -> anyhow::Result<String> {
    let at =
        i64::try_from(created_ms).ok().and_then(|ms| jiff::Timestamp::from_millisecond(ms).ok());
    let at = at.context("the clock of this machine shows no valid time")?;
    let random = uuid::Uuid::new_v4().as_fields().0;
    let id = format!("{}-{random:08x}", at.strftime("%Y%m%dT%H%M%S%3fZ"));
    ensure!(!id.contains('.'), "the time of a backup cannot be written: {id}");
    Ok(id)
}
