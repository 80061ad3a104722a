//! Gathering small blobs into packs.
//!
//! A blob that arrives while no pack is on its way is sent at once, but not within the configured time of the
//! previous pack. What arrives meanwhile goes together with the next one. Only when a full pack waits is a
//! second one sent beside. So there is no timer: a busy node sends large packs, an idle one sends nothing.
//!
//! Invariants: what waits is limited in bytes; each blob gets one answer, also when the store is closed; a blob
//! that is answered with success is in a pack in the bucket and in the index.

use std::collections::VecDeque;
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use parking_lot::{Condvar, Mutex};
use tokio::sync::{Notify, oneshot};

use super::storage::StorageError;
use crate::digest::Digest;

/// Size of the blobs in a pack from which on it is sent, in bytes.
pub(crate) const PACK_SIZE: usize = 8 << 20;
/// Maximum number of blobs in a pack.
const PACK_BLOBS_MAX: usize = 16_384;
/// Maximum size of what waits, in bytes. More is refused.
const WAITING_MAX: usize = 64 << 20;
/// Maximum number of packs on their way.
pub(crate) const PACKS_MAX: usize = 4;

/// The answer to one blob.
pub(crate) type Answer = Result<(), StorageError>;

/// A blob that waits.
#[derive(Debug)]
pub(crate) struct Waiting {
    pub(crate) digest: Digest,
    pub(crate) size: u64,
    /// Its blob file.
    pub(crate) file: Bytes,
    answer: oneshot::Sender<Answer>,
}

impl Waiting {
    /// Answers it. A caller that has left is none.
    pub(crate) fn answer(self, answer: Answer) {
        drop(self.answer.send(answer));
    }
}

#[derive(Debug)]
pub(crate) struct Packer {
    state: Mutex<Gathered>,
    changed: Condvar,
    /// Notified when a pack was sent, or could not be.
    freed: Notify,
    /// Minimum time between the beginnings of two packs, unless one is full.
    wait: Duration,
}

#[derive(Debug, Default)]
struct Gathered {
    waiting: VecDeque<Waiting>,
    bytes: usize,
    /// Packs on their way, and the bytes of their blobs.
    packs: usize,
    sent_bytes: usize,
    last: Option<Instant>,
    is_closed: bool,
}

impl Packer {
    pub(crate) fn new(wait: Duration) -> Self {
        Self { state: Mutex::default(), changed: Condvar::new(), freed: Notify::new(), wait }
    }

    /// Adds a blob, which will be answered.
    ///
    /// # Errors
    /// [`StorageError::Away`]: too much waits, or the store is being closed.
    pub(crate) fn submit(
        &self,
        digest: Digest,
        size: u64,
        file: Bytes,
    ) -> Result<oneshot::Receiver<Answer>, StorageError> {
        let mut state = self.state.lock();
        let refused = |reason: &str| Err(StorageError::Away { reason: reason.to_owned() });
        if state.is_closed {
            return refused("the intake is closing");
        }
        if state.bytes + state.sent_bytes + file.len() > WAITING_MAX {
            return refused("object storage accepts less than is uploaded");
        }
        let (answer, answered) = oneshot::channel();
        state.bytes += file.len();
        state.waiting.push_back(Waiting { digest, size, file, answer });
        drop(state);
        self.changed.notify_one();
        Ok(answered)
    }

    /// Waits until less than half of what may wait does, or the store is closed.
    pub(crate) async fn room(&self) {
        loop {
            let mut freed = pin!(self.freed.notified());
            // Before the look, so that no change after it is missed.
            freed.as_mut().enable();
            let has_room = {
                let state = self.state.lock();
                state.is_closed || state.bytes + state.sent_bytes < WAITING_MAX / 2
            };
            if has_room {
                return;
            }
            freed.await;
        }
    }

    /// Waits for the blobs of a pack, and has `send` send it. Returns `false` when everything was sent and the
    /// store is closed.
    pub(crate) fn next(&self, send: impl FnOnce(Vec<Waiting>)) -> bool {
        let Some(blobs) = self.take() else { return false };
        let bytes: usize = blobs.iter().map(|blob| blob.file.len()).sum();
        // Given back also if `send` panics, so that no one waits for what does not come.
        let _on_its_way = OnItsWay { packer: self, bytes };
        send(blobs);
        true
    }

    fn take(&self) -> Option<Vec<Waiting>> {
        let mut state = self.state.lock();
        loop {
            let is_full = state.bytes >= PACK_SIZE || state.waiting.len() >= PACK_BLOBS_MAX;
            let rest =
                state.last.map_or(Duration::ZERO, |last| self.wait.saturating_sub(last.elapsed()));
            let is_due = state.packs == 0 && (rest.is_zero() || state.is_closed);
            if !state.waiting.is_empty() && (is_full && state.packs < PACKS_MAX || is_due) {
                return Some(state.take_pack());
            }
            if state.is_closed && state.waiting.is_empty() {
                return None;
            }
            if !state.waiting.is_empty() && state.packs == 0 {
                self.changed.wait_for(&mut state, rest);
            } else {
                self.changed.wait(&mut state);
            }
        }
    }

    /// Accepts nothing more. What waits is still sent.
    pub(crate) fn close(&self) {
        self.state.lock().is_closed = true;
        self.changed.notify_all();
        self.freed.notify_waiters();
    }

    /// Bytes that wait or are on their way.
    pub(crate) fn bytes(&self) -> usize {
        let state = self.state.lock();
        state.bytes + state.sent_bytes
    }
}

impl Gathered {
    fn take_pack(&mut self) -> Vec<Waiting> {
        let (mut blobs, mut bytes) = (Vec::new(), 0);
        while let Some(next) = self.waiting.front() {
            if !blobs.is_empty() && bytes + next.file.len() > PACK_SIZE
                || blobs.len() == PACK_BLOBS_MAX
            {
                break;
            }
            bytes += next.file.len();
            blobs.extend(self.waiting.pop_front());
        }
        self.bytes -= bytes;
        self.sent_bytes += bytes;
        self.packs += 1;
        self.last = Some(Instant::now());
        blobs
    }
}

struct OnItsWay<'a> {
    packer: &'a Packer,
    bytes: usize,
}

impl Drop for OnItsWay<'_> {
    fn drop(&mut self) {
        let mut state = self.packer.state.lock();
        state.packs -= 1;
        state.sent_bytes -= self.bytes;
        drop(state);
        self.packer.changed.notify_all();
        self.packer.freed.notify_waiters();
    }
}

/// Answers every blob of a pack with the same.
pub(crate) fn answer_all(blobs: Vec<Waiting>, answer: &Answer) {
    for blob in blobs {
        blob.answer(match answer {
            Ok(()) => Ok(()),
            Err(error) => Err(error.again()),
        });
    }
}

/// Starts the threads that send packs.
pub(crate) fn start<S: Send + Sync + 'static>(
    shared: &Arc<S>,
    packer: fn(&S) -> &Packer,
    send: fn(&S, Vec<Waiting>),
) -> std::io::Result<Vec<std::thread::JoinHandle<()>>> {
    (0..PACKS_MAX)
        .map(|_| {
            let shared = Arc::clone(shared);
            let run = move || while packer(&shared).next(|blobs| send(&shared, blobs)) {};
            std::thread::Builder::new().name("intake-packs".into()).spawn(run)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn submit(packer: &Packer, size: usize) -> Result<oneshot::Receiver<Answer>, StorageError> {
        packer.submit(Digest([0; 32]), size as u64, Bytes::from(vec![0; size]))
    }

    #[test]
    fn what_arrives_while_a_pack_is_on_its_way_goes_with_the_next_one() {
        let packer = Packer::new(Duration::ZERO);
        let first = submit(&packer, 10).unwrap();
        assert!(packer.next(|blobs| {
            assert_eq!(blobs.len(), 1);
            for _ in 0..3 {
                drop(submit(&packer, 10).unwrap());
            }
            assert_eq!(packer.bytes(), 40);
            answer_all(blobs, &Ok(()));
        }));
        assert!(first.blocking_recv().unwrap().is_ok());
        assert!(packer.next(|blobs| assert_eq!(blobs.len(), 3)));
        packer.close();
        assert!(!packer.next(|_| panic!("nothing waits")));
        assert!(submit(&packer, 1).is_err());
    }

    #[test]
    fn a_full_pack_does_not_wait_for_the_one_before_and_what_waits_is_limited() {
        let packer = Packer::new(Duration::from_secs(3_600));
        let mut answers = Vec::new();
        for _ in 0..WAITING_MAX / (1 << 20) {
            answers.push(submit(&packer, 1 << 20).unwrap());
        }
        assert!(matches!(submit(&packer, 1), Err(StorageError::Away { .. })));
        assert!(packer.next(|first| {
            assert_eq!(first.len(), 8);
            assert!(packer.next(|second| assert_eq!(second.len(), 8)));
            assert!(submit(&packer, PACK_SIZE).is_ok(), "there is room again");
        }));
        // The first ones were dropped without an answer, which the callers see.
        assert!(answers.remove(0).blocking_recv().is_err());
    }

    #[test]
    fn a_move_waits_while_much_waits_and_goes_on_when_a_pack_was_sent() {
        let packer = Packer::new(Duration::ZERO);
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let is_free = || {
            let mut room = std::pin::pin!(packer.room());
            let mut context = std::task::Context::from_waker(std::task::Waker::noop());
            room.as_mut().poll(&mut context).is_ready()
        };
        while packer.bytes() < WAITING_MAX / 2 {
            assert!(is_free());
            drop(submit(&packer, PACK_SIZE).unwrap());
        }
        assert!(!is_free());
        let waits = async { packer.room().await };
        let sends = async { assert!(packer.next(|_| {})) };
        runtime.block_on(async { tokio::join!(waits, sends) });
        assert!(is_free());
    }

    #[test]
    fn what_waits_when_the_store_is_closed_is_still_sent() {
        let packer = Packer::new(Duration::from_secs(3_600));
        assert!(submit(&packer, 1).is_ok());
        assert!(packer.next(|_| {}));
        assert!(submit(&packer, 2).is_ok());
        packer.close();
        assert!(packer.next(|blobs| assert_eq!(blobs.len(), 1)));
        assert!(!packer.next(|_| {}));
    }
}
