//! Directories with their objects, in order: what a reader has gathered, for the merge. In memory
//! as long as permitted, otherwise in a file.
//!
//! A run is a sequence of blocks, each with its length and checksum. An entry consists of a
//! directory, without the prefix it shares with the previous one in the block, and some of its
//! objects; a directory with many has several entries.
//!
//! Invariants:
//! - A reader opens its file for each block and closes it again, so that the number of runs that are
//!   read together is not limited by file descriptors.
//! - A file that is shorter than its run, or differs from what was written, is an error.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use forebay_base::fs::{Access, File, FileSystem};

use super::BuildError;
use crate::format::varint::{put, take};
use crate::format::{CHECKSUM_SIZE, checked, checksum};
use crate::object::{ClassId, Kind, Month};

/// Approximate size of a block in bytes.
const BLOCK_SIZE: usize = 256 << 10;
/// Maximum number of objects of an entry.
pub(crate) const OBJECTS_MAX: usize = 4096;
/// Maximum size of a block in bytes: it ends with the entry that fills it.
const BLOCK_MAX: usize = 2 * BLOCK_SIZE;
/// Approximate memory of an open run in bytes: a block, which ends with the entry that fills it, and
/// the current directory.
pub(crate) const READER_SIZE: u64 = 352 << 10;
const HEAD_SIZE: usize = 4 + CHECKSUM_SIZE;
/// How far ahead of the read position memory is fetched, in bytes: a few entries.
const AHEAD: usize = 128;
/// Memory for a block being written: it ends with the entry that fills it.
const BLOCK_ROOM: usize = BLOCK_SIZE + (96 << 10);

/// An object directly below its directory, identified by 128 bits of a hash of its name and
/// version. Two objects of one directory are the same key only if both halves are equal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Leaf {
    /// The half that orders the objects of a directory.
    pub(crate) hash: u64,
    /// The other half, which also orders those whose first halves collide.
    pub(crate) check: u64,
    pub(crate) size: u64,
    pub(crate) modified: Month,
    pub(crate) class: ClassId,
    pub(crate) kind: Kind,
}

impl Leaf {
    /// What identifies it in its directory.
    #[inline]
    pub(crate) fn key(&self) -> (u64, u64) {
        (self.hash, self.check)
    }
}

/// A finished run.
#[derive(Debug)]
pub(crate) enum Run {
    /// Its blocks.
    Memory(Vec<u8>),
    /// A file with its blocks, removed after it was read, and its size in bytes.
    File(PathBuf, u64),
}

impl Run {
    /// Its file, when it has one.
    pub(crate) fn path(&self) -> Option<&Path> {
        match self {
            Self::Memory(_) => None,
            Self::File(path, _) => Some(path),
        }
    }

    /// Size of its blocks in bytes.
    pub(crate) fn size(&self) -> u64 {
        match self {
            Self::Memory(bytes) => bytes.len() as u64,
            Self::File(_, size) => *size,
        }
    }
}

/// A run being written.
pub(crate) struct RunWriter<'a> {
    fs: &'a dyn FileSystem,
    path: PathBuf,
    memory_max: usize,
    /// Blocks not yet written to the file; the last one is incomplete.
    bytes: Vec<u8>,
    /// Where the last block starts in `bytes`.
    block: usize,
    /// The previous directory in this block.
    dir: Vec<u8>,
    file: Option<(Arc<dyn File>, u64)>,
}

impl<'a> RunWriter<'a> {
    /// `memory_max`: maximum number of bytes in memory. `path`: the file of a larger run.
    pub(crate) fn new(fs: &'a dyn FileSystem, path: PathBuf, memory_max: usize) -> Self {
        let bytes = vec![0; HEAD_SIZE];
        Self { fs, path, memory_max, bytes, block: 0, dir: Vec::new(), file: None }
    }

    /// Appends a directory, which is the previous one or comes after it, and its objects.
    pub(crate) fn push(
        &mut self,
        dir: &[u8],
        mut leaves: impl ExactSizeIterator<Item = Leaf>,
    ) -> Result<(), BuildError> {
        while leaves.len() > 0 {
            let shared = dir.iter().zip(&self.dir).take_while(|(a, b)| a == b).count();
            let rest = dir.get(shared..).unwrap_or_default();
            put(&mut self.bytes, shared as u64);
            put(&mut self.bytes, rest.len() as u64);
            self.bytes.extend_from_slice(rest);
            self.dir.truncate(shared);
            self.dir.extend_from_slice(rest);
            let count = leaves.len().min(OBJECTS_MAX);
            put(&mut self.bytes, count as u64);
            for leaf in leaves.by_ref().take(count) {
                put_leaf(&mut self.bytes, &leaf);
            }
            if self.bytes.len() - self.block >= BLOCK_SIZE {
                self.end_block()?;
            }
        }
        Ok(())
    }

    fn end_block(&mut self) -> Result<(), BuildError> {
        let (head, data) = self.bytes.split_at_mut(self.block + HEAD_SIZE);
        let len = u32::try_from(data.len()).unwrap_or(u32::MAX).to_le_bytes();
        let sum = checksum(data);
        if let Some(head) = head.get_mut(self.block..) {
            let (place, rest) = head.split_at_mut(len.len());
            place.copy_from_slice(&len);
            rest.copy_from_slice(&sum);
        }
        self.dir.clear();
        self.block = self.bytes.len();
        if self.file.is_some() || self.bytes.len() > self.memory_max {
            self.spill()?;
        }
        // Room for the next block, in small steps: doubling would take up to twice the memory.
        if self.bytes.capacity() - self.block < BLOCK_ROOM {
            self.bytes.reserve_exact(BLOCK_ROOM.max(self.bytes.len() / 8));
        }
        self.bytes.resize(self.block + HEAD_SIZE, 0);
        Ok(())
    }

    /// Writes the blocks to the file.
    fn spill(&mut self) -> Result<(), BuildError> {
        if self.file.is_none() {
            let file = self.fs.create_new(&self.path);
            self.file = Some((file.map_err(BuildError::io("create", &self.path))?, 0));
        }
        if let Some((file, at)) = &mut self.file {
            let written = file.write_all_at(&self.bytes, *at);
            written.map_err(BuildError::io("write to", &self.path))?;
            *at += self.bytes.len() as u64;
            self.bytes.clear();
            self.block = 0;
        }
        Ok(())
    }

    pub(crate) fn finish(mut self) -> Result<Run, BuildError> {
        if self.bytes.len() > self.block + HEAD_SIZE {
            self.end_block()?;
        }
        self.bytes.truncate(self.block);
        Ok(match self.file {
            Some((_, size)) => Run::File(self.path, size),
            None => Run::Memory(self.bytes),
        })
    }
}

/// Fetches the beginning of bytes into the processor's cache.
#[cfg(target_arch = "x86_64")]
#[inline]
fn prefetch(bytes: Option<&[u8]>) {
    use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
    if let Some(first) = bytes.and_then(<[u8]>::first) {
        #[expect(unsafe_code, reason = "there is no safe function for it")]
        // SAFETY: the address is that of a byte of a slice, and fetching it changes nothing that a program sees.
        unsafe {
            _mm_prefetch::<_MM_HINT_T0>(std::ptr::from_ref(first).cast());
        }
    }
}

/// Other processors are not asked to.
#[cfg(not(target_arch = "x86_64"))]
fn prefetch(_: Option<&[u8]>) {}

fn put_leaf(out: &mut Vec<u8>, leaf: &Leaf) {
    let &Leaf { hash, check, size, modified, class, kind } = leaf;
    out.extend_from_slice(&hash.to_le_bytes());
    out.extend_from_slice(&check.to_le_bytes());
    out.push(class.0);
    let kind = match kind {
        Kind::Current => 0,
        Kind::Noncurrent => 1,
        Kind::DeleteMarker => 2,
    };
    put(out, u64::from(modified.number()) * 4 + kind);
    put(out, size);
}

fn take_leaf(data: &mut &[u8]) -> Option<Leaf> {
    let (hash, rest) = data.split_first_chunk::<8>()?;
    let (check, rest) = rest.split_first_chunk::<8>()?;
    let (&class, rest) = rest.split_first()?;
    *data = rest;
    let modified = take(data)?;
    let kind = match modified % 4 {
        0 => Kind::Current,
        1 => Kind::Noncurrent,
        _ => Kind::DeleteMarker,
    };
    let modified = Month::from_number(u16::try_from(modified / 4).ok()?);
    let (hash, check) = (u64::from_le_bytes(*hash), u64::from_le_bytes(*check));
    Some(Leaf { hash, check, size: take(data)?, modified, class: ClassId(class), kind })
}

/// Reads a run sequentially.
pub(crate) struct RunReader {
    source: Source,
    /// The block, and the read position in it.
    block: Vec<u8>,
    at: usize,
    dir: Vec<u8>,
    /// Number of unread objects of the entry.
    left: u64,
}

/// Where the blocks of a run are, and how many of its bytes were read.
enum Source {
    Memory(Vec<u8>, usize),
    File { path: PathBuf, size: u64, at: u64 },
}

impl RunReader {
    pub(crate) fn new(run: Run) -> Self {
        let source = match run {
            Run::Memory(bytes) => Source::Memory(bytes, 0),
            Run::File(path, size) => Source::File { path, size, at: 0 },
        };
        Self { source, block: Vec::new(), at: 0, dir: Vec::new(), left: 0 }
    }

    /// The current directory.
    #[inline]
    pub(crate) fn dir(&self) -> &[u8] {
        &self.dir
    }

    /// Advances to the next entry, after all objects of this one; returns `false` at the end.
    pub(crate) fn next_entry(&mut self, fs: &dyn FileSystem) -> Result<bool, BuildError> {
        if self.at >= self.block.len() && !self.next_block(fs)? {
            return Ok(false);
        }
        let mut rest = self.block.get(self.at..).unwrap_or_default();
        let entry = (|| {
            let shared = usize::try_from(take(&mut rest)?).ok()?;
            let len = usize::try_from(take(&mut rest)?).ok()?;
            let (new, after) = rest.split_at_checked(len)?;
            rest = after;
            (shared <= self.dir.len()).then_some((shared, new, take(&mut rest)?))
        })();
        let Some((shared, new, count)) = entry else { return Err(self.damaged()) };
        self.dir.truncate(shared);
        self.dir.extend_from_slice(new);
        self.left = count;
        self.at = self.block.len() - rest.len();
        // A merge comes back to this run after it has been at all others.
        prefetch(self.block.get(self.at + AHEAD..));
        Ok(true)
    }

    /// Whether the entry has unread objects; at the end there are none.
    pub(crate) fn has_leaf(&self) -> bool {
        self.left > 0
    }

    /// The next object of the entry.
    #[inline]
    pub(crate) fn next_leaf(&mut self) -> Result<Option<Leaf>, BuildError> {
        if self.left == 0 {
            return Ok(None);
        }
        self.left -= 1;
        let mut rest = self.block.get(self.at..).unwrap_or_default();
        let Some(leaf) = take_leaf(&mut rest) else { return Err(self.damaged()) };
        self.at = self.block.len() - rest.len();
        Ok(Some(leaf))
    }

    fn next_block(&mut self, fs: &dyn FileSystem) -> Result<bool, BuildError> {
        self.dir.clear();
        self.at = 0;
        match &mut self.source {
            Source::Memory(bytes, start) => {
                let rest = bytes.get(*start..).unwrap_or_default();
                let Some((len, rest)) = rest.split_first_chunk::<4>() else { return Ok(false) };
                let size = CHECKSUM_SIZE + u32::from_le_bytes(*len) as usize;
                *start += 4 + size;
                // A run in memory is not checked: nothing else in memory is.
                self.block.clear();
                self.block.extend_from_slice(rest.get(CHECKSUM_SIZE..size).unwrap_or_default());
            }
            Source::File { at, size, .. } if *at >= *size => return Ok(false),
            Source::File { path, at, .. } => {
                let read = read_block(fs, path, *at, &mut self.block);
                if !read.map_err(BuildError::io("read", path))? {
                    return Err(self.damaged());
                }
                *at += 4 + self.block.len() as u64;
                self.at = CHECKSUM_SIZE;
            }
        }
        Ok(true)
    }

    fn damaged(&self) -> BuildError {
        let path = match &self.source {
            Source::Memory(..) => PathBuf::from("a run in memory"),
            Source::File { path, .. } => path.clone(),
        };
        BuildError::Spool { path }
    }
}

/// Reads the block at `at`, with its checksum; returns `false` if it is not what was written.
fn read_block(fs: &dyn FileSystem, path: &Path, at: u64, block: &mut Vec<u8>) -> io::Result<bool> {
    let file = fs.open(path, Access::Read)?;
    let mut len = [0; 4];
    let read = file.read_exact_at(&mut len, at).and_then(|()| {
        let size = CHECKSUM_SIZE + u32::from_le_bytes(len) as usize;
        if size > BLOCK_MAX {
            return Ok(false);
        }
        block.resize(size, 0);
        file.read_exact_at(block, at + 4)?;
        Ok(checked(block).is_some())
    });
    match read {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(false),
        read => read,
    }
}

#[cfg(test)]
mod tests;
