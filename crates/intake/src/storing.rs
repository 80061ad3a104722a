//! Files that are being stored, to which large uploads give way.
//!
//! A large upload can keep all processors busy with what it receives, and each small file needs one
//! only briefly. So while any file is being stored, a large upload waits after each batch.

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

/// How long a large upload waits after each batch: with batches of 256 KiB it still gets 50 MiB a
/// second.
const GIVE_WAY: Duration = Duration::from_millis(4);

/// Number of files that have arrived and are being stored.
#[derive(Debug, Clone, Default)]
pub(crate) struct Storing(Arc<AtomicUsize>);

/// A file that is being stored.
#[derive(Debug)]
pub(crate) struct Stored<'a>(&'a AtomicUsize);

impl Storing {
    /// Counts a file until the result is dropped.
    pub(crate) fn begin(&self) -> Stored<'_> {
        self.0.fetch_add(1, Relaxed);
        Stored(&self.0)
    }

    /// Waits, after a batch of a large upload, while other files are being stored.
    pub(crate) async fn give_way(&self) {
        if self.0.load(Relaxed) > 0 {
            tokio::time::sleep(GIVE_WAY).await;
        }
    }
}

impl Drop for Stored<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;

    #[tokio::test]
    async fn a_large_upload_waits_only_while_a_file_is_being_stored() {
        let storing = Storing::default();
        assert!(storing.give_way().now_or_never().is_some());
        let stored = storing.begin();
        assert!(storing.clone().give_way().now_or_never().is_none());
        drop(stored);
        assert!(storing.give_way().now_or_never().is_some());
    }
}
