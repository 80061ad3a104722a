//! Temporary files for what exceeds a query's memory, and for streams that it reads more than once.
//!
//! Invariants:
//! * The files have no names. They vanish with the process however it ends, and no one can replace
//!   them.
//! * Together they have at most [`SPILL_SIZE_MAX`] bytes.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::unix::fs::FileExt;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::{SpillFile, SpillWriter, TempFileFactory};
use futures_util::{Stream, stream};

/// Maximum size of the files of one query in bytes.
const SPILL_SIZE_MAX: u64 = 1 << 40;
/// Number of bytes read at once.
const READ_SIZE: usize = 128 << 10;

/// Creates the files of one query, in the system's directory for temporary files.
#[derive(Debug, Default)]
pub(super) struct Spills {
    /// Total size of them.
    size: Arc<AtomicU64>,
}

impl Spills {
    /// A new file.
    pub(super) fn file(&self) -> io::Result<Spill> {
        let (file, size) = (tempfile::tempfile()?, AtomicU64::new(0));
        Ok(Spill(Arc::new(Shared { file, size, all: Arc::clone(&self.size) })))
    }
}

impl TempFileFactory for Spills {
    fn create_temp_file(&self, _: &str) -> Result<Arc<dyn SpillFile>> {
        Ok(Arc::new(self.file().map_err(DataFusionError::IoError)?))
    }
}

/// A file. Clones share it.
#[derive(Debug, Clone)]
pub(super) struct Spill(Arc<Shared>);

/// State shared by a file, its writers and its readers.
#[derive(Debug)]
struct Shared {
    file: File,
    size: AtomicU64,
    /// Total size of all files.
    all: Arc<AtomicU64>,
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.all.fetch_sub(*self.size.get_mut(), Ordering::Relaxed);
    }
}

impl Spill {
    /// Appends to the file. There is one writer at a time.
    pub(super) fn writer(&self) -> Writer {
        Writer(Arc::clone(&self.0))
    }

    /// Reads the file from its beginning to its current end.
    pub(super) fn reader(&self) -> Reader {
        Reader { shared: Arc::clone(&self.0), at: 0 }
    }
}

/// Reads a file; blocks on the disk.
#[derive(Debug)]
pub(super) struct Reader {
    shared: Arc<Shared>,
    at: u64,
}

impl Read for Reader {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let count = self.shared.file.read_at(bytes, self.at)?;
        self.at += count as u64;
        Ok(count)
    }
}

impl SpillFile for Spill {
    fn size(&self) -> Option<u64> {
        Some(self.0.size.load(Ordering::Acquire))
    }

    fn read_stream(&self) -> Result<Pin<Box<dyn Stream<Item = Result<Bytes>> + Send>>> {
        let from = (Arc::clone(&self.0), 0);
        Ok(Box::pin(stream::try_unfold(from, |(shared, at)| async move {
            let task = tokio::task::spawn_blocking(move || {
                let bytes = shared.read(at)?;
                Ok::<_, io::Error>((bytes, shared))
            });
            let read =
                task.await.map_err(|error| DataFusionError::ExecutionJoin(Box::new(error)))?;
            let (bytes, shared) = read.map_err(DataFusionError::IoError)?;
            let next = at + bytes.len() as u64;
            Ok((!bytes.is_empty()).then_some((bytes, (shared, next))))
        })))
    }

    fn open_writer(&self) -> Result<Box<dyn SpillWriter>> {
        Ok(Box::new(self.writer()))
    }
}

impl Shared {
    /// The next bytes; empty at the end.
    fn read(&self, at: u64) -> io::Result<Bytes> {
        let left = self.size.load(Ordering::Acquire).saturating_sub(at);
        let count = usize::try_from(left).map_or(READ_SIZE, |left| left.min(READ_SIZE));
        let mut bytes = vec![0; count];
        self.file.read_exact_at(&mut bytes, at)?;
        Ok(bytes.into())
    }
}

/// Appends to a file.
#[derive(Debug)]
pub(super) struct Writer(Arc<Shared>);

impl Write for Writer {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let Shared { file, size, all } = &*self.0;
        let count = bytes.len() as u64;
        if all.fetch_add(count, Ordering::Relaxed).saturating_add(count) > SPILL_SIZE_MAX {
            all.fetch_sub(count, Ordering::Relaxed);
            let full =
                format!("the temporary files of a query would exceed {SPILL_SIZE_MAX} bytes");
            return Err(io::Error::new(io::ErrorKind::QuotaExceeded, full));
        }
        let at = size.load(Ordering::Relaxed);
        if let Err(error) = file.write_all_at(bytes, at) {
            all.fetch_sub(count, Ordering::Relaxed);
            return Err(error);
        }
        size.store(at + count, Ordering::Release);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl SpillWriter for Writer {
    /// Written data only has to be readable; nothing needs it after a crash.
    fn finish(&mut self) -> Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use futures_util::TryStreamExt;

    use super::*;

    #[tokio::test]
    async fn what_is_written_is_read_and_its_room_given_back() {
        let spills = Spills::default();
        let file = spills.create_temp_file("a test").unwrap();
        let mut writer = file.open_writer().unwrap();
        let part: Vec<u8> = (0..=u8::MAX).cycle().take(READ_SIZE / 2 + 7).collect();
        for _ in 0..5 {
            writer.write_all(&part).unwrap();
        }
        writer.finish().unwrap();
        assert_eq!(file.size(), Some(5 * part.len() as u64));
        for _ in 0..2 {
            let read: Vec<Bytes> = file.read_stream().unwrap().try_collect().await.unwrap();
            assert_eq!(read.concat(), part.repeat(5));
        }
        assert_eq!(spills.size.load(Ordering::Relaxed), 5 * part.len() as u64);
        drop((file, writer));
        assert_eq!(spills.size.load(Ordering::Relaxed), 0);
    }
}
