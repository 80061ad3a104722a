//! The only place where files are mapped into memory.
//!
//! Contract: the files of an index are never changed after they were given their names; a build
//! that replaces an index writes new files and removes the names of the old ones, whose bytes stay
//! as long as they are mapped. Truncating a file of a mapped index by hand kills the reading
//! process with SIGBUS; that is the one fault that cannot be turned into an error here.
#![expect(unsafe_code, reason = "memory maps are as safe as their files; the contract is above")]

use std::fs::File;
use std::io;
use std::ops::Deref;
use std::path::Path;
use std::sync::Arc;

use memmap2::{Advice, Mmap};

/// A file in memory. Clones share it.
#[derive(Debug, Clone)]
pub(crate) struct Map(Arc<Mmap>);

impl Map {
    /// Maps a file, which must have `size` bytes.
    pub(crate) fn open(path: &Path, size: u64) -> io::Result<Self> {
        let file = File::open(path)?;
        let found = file.metadata()?.len();
        if found != size {
            let message = format!("it has {found} bytes, expected {size}");
            return Err(io::Error::new(io::ErrorKind::InvalidData, message));
        }
        // SAFETY: the file belongs to an index and is not changed any more; see the contract.
        let map = unsafe { Mmap::map(&file)? };
        // A hint: everything works without it as well.
        if let Err(error) = map.advise(Advice::Random) {
            tracing::debug!(path = %path.display(), %error, "the kernel refuses the memory advice");
        }
        Ok(Self(Arc::new(map)))
    }
}

impl Deref for Map {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        &self.0
    }
}

/// Prefetches the cache line where item `at` starts, without waiting for it.
#[inline]
pub(crate) fn prefetch<T>(data: &[T], at: usize) {
    #[cfg(target_arch = "x86_64")]
    if let Some(item) = data.get(at) {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: a prefetch reads nothing; the address is within the slice besides.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(std::ptr::from_ref(item).cast()) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    std::hint::black_box((data.len(), at));
}
