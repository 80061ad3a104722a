//! The log as others follow it: what was stored, changed and deleted, in order, by position.
//!
//! A follower keeps a position and reads on from there, as often as it likes. It is shown what is on stable
//! storage, whatever the durability of acknowledgements, so that nothing a follower passes on is ever taken back. The
//! views of the log, which sync it before they apply it, wake followers.
//!
//! Invariants: nothing is skipped silently: entries that were erased before the follower read them are an item
//! of their own; entries from the position that [`Intake::hold_log`] was given on are not erased.

use std::fmt;
use std::sync::Arc;

use forebay_log::{Lsn, ReadError};
use tokio::sync::watch;

use crate::Intake;
use crate::documents::view::ViewQueue;
use crate::format::{DecodeError, Entry};
use crate::shared::{Applied, Shared};

/// Returns the position from which entries must stay.
pub(crate) struct HeldFrom(Box<dyn Fn() -> Option<u64> + Send + Sync>);

impl fmt::Debug for HeldFrom {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("HeldFrom")
    }
}

/// The log of an intake, to be followed. Cloning is cheap.
#[derive(Debug, Clone)]
pub struct Feed {
    shared: Arc<Shared>,
    view: Arc<ViewQueue>,
}

/// What a follower is shown.
#[derive(Debug)]
pub enum FeedItem<'a> {
    /// An entry.
    Entry {
        /// Its position.
        position: u64,
        /// The position after it.
        next: u64,
        /// What it says.
        entry: &'a Entry<'a>,
    },
    /// Entries that were erased before they were read.
    Erased {
        /// Position of the first.
        from: u64,
        /// The position after the last.
        to: u64,
        /// At least how many they were.
        entries: u64,
    },
}

/// Why the log cannot be followed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FeedError {
    /// The position is none of an entry of this log, which may have been restored from elsewhere.
    #[error("{position} is not the position of an entry of the log")]
    Elsewhere {
        /// The position.
        position: u64,
    },
    /// The log cannot be read there.
    #[error("cannot read the log at {position}")]
    Read {
        /// The position.
        position: u64,
        /// The cause.
        #[source]
        source: ReadError,
    },
    /// An entry cannot be decoded.
    #[error("cannot decode the log entry at {position}")]
    Decode {
        /// The position.
        position: u64,
        /// The cause.
        #[source]
        source: DecodeError,
    },
}

impl Intake {
    /// Returns the log, to be followed.
    #[must_use]
    pub fn feed(&self) -> Feed {
        Feed { shared: Arc::clone(&self.inner.shared), view: Arc::clone(&self.inner.view) }
    }

    /// Keeps entries in the log from the position that `from` returns, although what they say is deleted: their
    /// space is freed later. `from` is called on the thread that frees space and must not block. Only the
    /// first call counts.
    pub fn hold_log(&self, from: impl Fn() -> Option<u64> + Send + Sync + 'static) {
        let from = HeldFrom(Box::new(from));
        self.inner.shared.held_from.get_or_init(|| from);
    }
}

impl Shared {
    /// Whether a follower needs entries below `end` that it has not read.
    pub(crate) fn is_held(&self, end: Lsn) -> bool {
        let from = self.held_from.get().and_then(|held| held.0());
        from.is_some_and(|from| from < end.0)
    }
}

impl Feed {
    /// Identity of the log. A position is one of this log only.
    #[must_use]
    pub fn log_id(&self) -> [u8; 16] {
        self.shared.log.id()
    }

    /// The position up to which the log can be followed now.
    #[must_use]
    pub fn end(&self) -> u64 {
        self.shared.log.synced().0
    }

    /// Completes when the log can be followed beyond `position`.
    pub async fn passed(&self, position: u64) {
        let mut names: watch::Receiver<Applied> = self.shared.applied.subscribe();
        let mut documents: watch::Receiver<Applied> = self.view.applied.subscribe();
        while self.end() <= position {
            // Their senders are part of this.
            tokio::select! {
                changed = names.changed() => drop(changed),
                changed = documents.changed() => drop(changed),
            }
        }
    }

    /// Reads on from a position. Blocks.
    ///
    /// * `bytes_max`: bytes of log after which reading ends; at least one entry is read.
    /// * `each`: called for every item in order.
    /// * Returns the position to continue from; `from` if there is nothing more at the moment.
    ///
    /// # Errors
    /// [`FeedError`]; items before the failure were passed on.
    pub fn read(
        &self,
        from: u64,
        bytes_max: u64,
        each: &mut dyn FnMut(FeedItem<'_>),
    ) -> Result<u64, FeedError> {
        let end = self.end();
        if from > end {
            return Err(FeedError::Elsewhere { position: from });
        }
        let mut reader = self.shared.log.reader(Lsn(from).max(self.shared.log.start()));
        let mut reached = from;
        while reached < end && reached - from < bytes_max {
            let read = reader.next();
            let failed = matches!(
                read,
                Err(ReadError::BelowStart { .. }
                    | ReadError::NotAnEntry { .. }
                    | ReadError::Beyond { .. })
            );
            if failed {
                return Err(FeedError::Elsewhere { position: reached });
            }
            let read = read.map_err(|source| FeedError::Read { position: reached, source })?;
            // The entry borrows the reader, which knows what was passed before it.
            let Some((position, next)) = read.map(|entry| (entry.lsn.0, entry.next.0)) else {
                passed(&mut reader, each);
                return Ok(end);
            };
            passed(&mut reader, each);
            if next > end {
                // What is not on stable storage yet; all before it was read.
                return Ok(end);
            }
            let payload = reader.payload();
            let entry =
                Entry::decode(payload).map_err(|source| FeedError::Decode { position, source })?;
            each(FeedItem::Entry { position, next, entry: &entry });
            reached = next;
        }
        Ok(reached)
    }
}

fn passed(reader: &mut forebay_log::Reader, each: &mut dyn FnMut(FeedItem<'_>)) {
    if let Some(erased) = reader.take_erased() {
        let (from, to, entries) = (erased.from.0, erased.to.0, erased.entries);
        each(FeedItem::Erased { from, to, entries });
    }
}
