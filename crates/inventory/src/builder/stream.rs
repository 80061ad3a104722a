//! The direct method, for sources that list their keys in order: rows are passed directly to the
//! writer; nothing is gathered, sorted or spilled. Readers work ahead of the writer, a few batches
//! each.
//!
//! The versions of a key are held until the next key. A key with more of them than the memory holds
//! counts as out of order, so that the general method continues.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Mutex, PoisonError};

use hashbrown::HashSet;

use super::gather::failed;
use super::rows::{OnBadRow, Shared};
use super::write::IndexWriter;
use super::{BuildError, Options};
use crate::object::Batch;
use crate::source::{BadRow, Part, RowSink, Stopped};

/// Batches of a part that wait for the writer.
const AHEAD: usize = 4;

/// Sends the batches of one part.
struct Sender<'a> {
    shared: &'a Shared<'a>,
    batches: SyncSender<Batch>,
    empty: &'a Mutex<Vec<Batch>>,
    part: String,
    rows: u64,
}

impl RowSink for Sender<'_> {
    fn rows(&mut self, batch: &mut Batch) -> Result<(), Stopped> {
        let count = batch.len() as u64;
        self.shared.sift(batch, &self.part, self.rows)?;
        self.rows += count;
        let next = self.empty.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let full = std::mem::replace(batch, next.unwrap_or_default());
        self.shared.monitor.read(count);
        self.batches.send(full).map_err(|_| Stopped)
    }

    fn bad_row(&mut self, row: BadRow) -> Result<(), Stopped> {
        self.shared.monitor.read(1);
        self.shared.verdicts.bad_row(row, self.shared.on_bad_row)
    }

    fn bytes(&mut self, more: u64) {
        self.shared.monitor.read_bytes(more);
    }
}

/// A part whose turn has not come, and the receiver of its batches.
type Waiting = (Box<dyn Part>, SyncSender<Batch>);

/// Writes all parts as they arrive; returns `false` if their keys are not in order, and what was
/// written is useless.
pub(crate) fn stream(
    parts: Vec<Box<dyn Part>>,
    shared: &Shared<'_>,
    options: &Options,
    writer: &mut IndexWriter,
) -> Result<bool, BuildError> {
    let threads = options.readers().clamp(1, parts.len().max(1));
    let (parts, receivers): (Vec<Mutex<Option<Waiting>>>, Vec<Receiver<Batch>>) = parts
        .into_iter()
        .map(|part| {
            let (sender, receiver) = sync_channel(AHEAD);
            (Mutex::new(Some((part, sender))), receiver)
        })
        .unzip();
    let next = AtomicUsize::new(0);
    let given_up = AtomicBool::new(false);
    let empty = Mutex::new(Vec::new());
    let read = || {
        while let Some(part) = parts.get(next.fetch_add(1, Ordering::Relaxed)) {
            let waiting = part.lock().unwrap_or_else(PoisonError::into_inner).take();
            let Some((part, batches)) = waiting else { continue };
            if given_up.load(Ordering::Relaxed) || shared.verdicts.has_failed() {
                continue;
            }
            let name = part.name().to_owned();
            let mut sender = Sender { shared, batches, empty: &empty, part: name.clone(), rows: 0 };
            let read = part.read(&mut sender);
            // After a failure the readers' results do not matter: everything is read again.
            if let Err(error) = read
                && !given_up.load(Ordering::Relaxed)
            {
                failed(shared, &name, error);
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..threads {
            let builder = std::thread::Builder::new().name("inventory-read".to_owned());
            builder.spawn_scoped(scope, read).map_err(BuildError::Thread)?;
        }
        let allow_duplicates = options.on_duplicate == OnBadRow::Skip;
        let mut order = Order::new(allow_duplicates, options.versions_max());
        let delimiter = shared.delimiter;
        let written = (|| {
            // A receiver is dropped with its loop, so waiting senders are released if this ends
            // early.
            for receiver in receivers {
                for mut batch in receiver {
                    for (key, object) in batch.iter() {
                        if !order.follows(key, object.version, delimiter)? {
                            given_up.store(true, Ordering::Relaxed);
                            return Ok(false);
                        }
                        let end = memchr::memrchr(delimiter, key).map_or(0, |at| at + 1);
                        writer.enter(key.get(..end).unwrap_or_default())?;
                        writer.add(object.class, object.kind, object.size, object.modified)?;
                    }
                    shared.monitor.merged(batch.len() as u64);
                    batch.clear();
                    empty.lock().unwrap_or_else(PoisonError::into_inner).push(batch);
                }
            }
            Ok(true)
        })();
        if written.is_err() {
            given_up.store(true, Ordering::Relaxed);
        }
        written
    })
}

/// Versions of a key that are compared one by one.
const FEW: usize = 16;

/// Whether keys arrive in order.
struct Order {
    last: Vec<u8>,
    /// The first versions of the last key, and the others.
    few: Vec<u64>,
    many: HashSet<u64>,
    /// Maximum number of versions held.
    versions_max: usize,
    allow_duplicates: bool,
}

impl Order {
    fn new(allow_duplicates: bool, versions_max: usize) -> Self {
        let (few, many) = (Vec::with_capacity(FEW), HashSet::new());
        Self { last: Vec::new(), few, many, versions_max, allow_duplicates }
    }

    /// Whether a key comes after the previous one, or is another version of it.
    #[inline]
    fn follows(&mut self, key: &[u8], version: u64, delimiter: u8) -> Result<bool, BuildError> {
        match key.cmp(&self.last) {
            std::cmp::Ordering::Less => return Ok(false),
            std::cmp::Ordering::Greater => {
                self.last.clear();
                self.last.extend_from_slice(key);
                self.few.clear();
                self.few.push(version);
                if !self.many.is_empty() {
                    // The set of a key with very many versions is not kept for the next.
                    self.many = HashSet::new();
                }
                return Ok(true);
            }
            std::cmp::Ordering::Equal => {}
        }
        if self.allow_duplicates {
            return Ok(true);
        }
        let is_new = if self.few.contains(&version) {
            false
        } else if self.few.len() < FEW {
            self.few.push(version);
            true
        } else if self.many.len() >= self.versions_max {
            return Ok(false);
        } else {
            self.many.insert(version)
        };
        if is_new {
            return Ok(true);
        }
        let end = memchr::memrchr(delimiter, key).map_or(0, |at| at + 1);
        let dir = key.get(..end).unwrap_or_default().to_vec();
        Err(BuildError::Duplicate { dir, count: 1 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Comparing each version with all earlier ones would be 5 * 10^11 comparisons.
    #[test]
    fn a_million_versions_of_a_key_are_each_looked_up_once() {
        let mut order = Order::new(false, usize::MAX);
        for version in 0..1_000_000 {
            assert!(order.follows(b"a/key", version, b'/').unwrap());
        }
        for version in [0, FEW as u64, 999_999] {
            let error = order.follows(b"a/key", version, b'/').unwrap_err();
            assert!(matches!(error, BuildError::Duplicate { dir, count: 1 } if dir == b"a/"));
        }
        assert!(order.follows(b"a/next", 0, b'/').unwrap());
        assert_eq!(order.many.capacity(), 0, "the versions of one key are held");
    }

    #[test]
    fn more_versions_than_the_memory_holds_are_left_to_the_general_method() {
        let mut order = Order::new(false, 100);
        let held = (0..).take_while(|&version| order.follows(b"k", version, b'/').unwrap()).count();
        assert_eq!(held, FEW + 100);
        let mut order = Order::new(true, 0);
        assert!((0..1000).all(|version| order.follows(b"k", version, b'/').unwrap()));
        assert!(order.few.len() <= FEW && order.many.is_empty());
    }
}
