//! The direct method, for sources that list their keys in order: rows are passed directly to the
//! writer; nothing is gathered, sorted or spilled. Readers work ahead of the writer, a few batches
//! each.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Mutex, PoisonError};

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
        let mut order = Order { last: Vec::new(), versions: Vec::new(), allow_duplicates };
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
                        writer.add(object)?;
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

/// Whether keys arrive in order.
struct Order {
    last: Vec<u8>,
    /// The versions of the last key.
    versions: Vec<u64>,
    allow_duplicates: bool,
}

impl Order {
    /// Whether a key comes after the previous one, or is another version of it.
    #[inline]
    fn follows(&mut self, key: &[u8], version: u64, delimiter: u8) -> Result<bool, BuildError> {
        match key.cmp(&self.last) {
            std::cmp::Ordering::Less => return Ok(false),
            std::cmp::Ordering::Greater => {
                self.last.clear();
                self.last.extend_from_slice(key);
                self.versions.clear();
            }
            std::cmp::Ordering::Equal => {
                if self.versions.contains(&version) && !self.allow_duplicates {
                    let end = memchr::memrchr(delimiter, key).map_or(0, |at| at + 1);
                    let dir = key.get(..end).unwrap_or_default().to_vec();
                    return Err(BuildError::Duplicate { dir, count: 1 });
                }
            }
        }
        self.versions.push(version);
        Ok(true)
    }
}
