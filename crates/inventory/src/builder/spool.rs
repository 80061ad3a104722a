//! Holds every prefix's hash and position until the table is built: in memory, by partition of the
//! table, and in a file if there are too many.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use forebay_base::fs::{File, FileSystem};

use super::BuildError;
use super::out::Out;
use crate::format::meta::FileMeta;
use crate::format::table::{self, BUCKET_SIZE, PARTITIONS};

/// Bytes of a waiting prefix in the file: its hash and its position.
const ENTRY_SIZE: usize = 16;
/// Memory of a waiting prefix in bytes: its entry, and the average room of a growing list.
const WAITING_SIZE: u64 = 24;

/// The waiting prefixes.
#[derive(Debug)]
pub(crate) struct Spool {
    fs: Arc<dyn FileSystem>,
    path: PathBuf,
    /// Those in memory, by partition.
    waiting: Vec<Vec<(u64, u64)>>,
    waiting_count: usize,
    waiting_max: usize,
    /// Number of prefixes of each partition, in memory and in the file.
    counts: [u64; PARTITIONS],
    file: Option<Arc<dyn File>>,
    file_size: u64,
    /// Contents of the file: partition, offset, number of bytes.
    pieces: Vec<(usize, u64, usize)>,
}

impl Spool {
    /// `memory`: maximum number of bytes in memory. `path`: the file for the rest, created when
    /// needed.
    pub(crate) fn new(fs: Arc<dyn FileSystem>, path: PathBuf, memory: u64) -> Self {
        let waiting_max = usize::try_from(memory / WAITING_SIZE).unwrap_or(usize::MAX);
        Self {
            fs,
            path,
            waiting: vec![Vec::new(); PARTITIONS],
            waiting_count: 0,
            waiting_max: waiting_max.max(PARTITIONS),
            counts: [0; PARTITIONS],
            file: None,
            file_size: 0,
            pieces: Vec::new(),
        }
    }

    #[inline]
    pub(crate) fn push(&mut self, hash: u64, end: u64) -> Result<(), BuildError> {
        let partition = table::partition(hash);
        self.waiting[partition].push((hash, end));
        self.counts[partition] += 1;
        self.waiting_count += 1;
        if self.waiting_count > self.waiting_max { self.spill() } else { Ok(()) }
    }

    /// Number of prefixes pushed.
    pub(crate) fn len(&self) -> u64 {
        self.counts.iter().sum()
    }

    fn spill(&mut self) -> Result<(), BuildError> {
        let file = match &self.file {
            Some(file) => Arc::clone(file),
            None => {
                let file = self.fs.create_new(&self.path);
                let file = file.map_err(BuildError::io("create", &self.path))?;
                Arc::clone(self.file.insert(file))
            }
        };
        let mut bytes = Vec::new();
        for (partition, waiting) in self.waiting.iter_mut().enumerate() {
            bytes.clear();
            for (hash, end) in waiting.drain(..) {
                bytes.extend_from_slice(&hash.to_le_bytes());
                bytes.extend_from_slice(&end.to_le_bytes());
            }
            let written = file.write_all_at(&bytes, self.file_size);
            written.map_err(BuildError::io("write to", &self.path))?;
            self.pieces.push((partition, self.file_size, bytes.len()));
            self.file_size += bytes.len() as u64;
        }
        self.waiting_count = 0;
        Ok(())
    }

    /// Writes the table, partition after partition.
    pub(crate) fn write_table(mut self, path: &Path) -> Result<FileMeta, BuildError> {
        let mut out = Out::create(&*self.fs, path)?;
        let buckets = |&count: &u64| table::buckets_for(usize::try_from(count).unwrap_or(0)) as u64;
        let mut sizes = [0; PARTITIONS];
        sizes.iter_mut().zip(&self.counts).for_each(|(size, count)| *size = buckets(count));
        out.buffer().extend_from_slice(&table::directory(&sizes));
        let mut partition = Vec::new();
        for (number, &size) in sizes.iter().enumerate() {
            partition.clear();
            partition.resize(usize::try_from(size).unwrap_or(0), [0; BUCKET_SIZE]);
            self.read_spilled(number, &mut |hash, end| table::insert(&mut partition, hash, end))?;
            let mut all_in = true;
            for (hash, end) in std::mem::take(&mut self.waiting[number]) {
                all_in &= table::insert(&mut partition, hash, end);
            }
            if !all_in {
                return Err(BuildError::Spool { path: self.path.clone() });
            }
            partition.iter_mut().for_each(table::seal);
            for buckets in partition.chunks(1 << 12) {
                out.buffer().extend_from_slice(buckets.as_flattened());
                out.flush_if_full()?;
            }
        }
        if self.file.is_some() {
            self.fs.remove_file(&self.path).map_err(BuildError::io("remove", &self.path))?;
        }
        out.finish()
    }

    fn read_spilled(
        &self,
        partition: usize,
        each: &mut dyn FnMut(u64, u64) -> bool,
    ) -> Result<(), BuildError> {
        let Some(file) = &self.file else { return Ok(()) };
        let mut bytes = Vec::new();
        for &(_, start, size) in self.pieces.iter().filter(|piece| piece.0 == partition) {
            bytes.resize(size, 0);
            let read = file.read_exact_at(&mut bytes, start);
            read.map_err(BuildError::io("read", &self.path))?;
            for entry in bytes.as_chunks::<ENTRY_SIZE>().0 {
                let [hash, end] = *entry.as_chunks::<8>().0 else { continue };
                if !each(u64::from_le_bytes(hash), u64::from_le_bytes(end)) {
                    return Err(BuildError::Spool { path: self.path.clone() });
                }
            }
        }
        Ok(())
    }
}
