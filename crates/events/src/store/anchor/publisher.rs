//! Publishes checkpoints from time to time, and has them cosigned.
//!
//! Each place and each witness has a thread, so that one that does not answer delays no other. A
//! place gets the newest checkpoint at most once in the configured interval. All witnesses get the
//! same one, chosen once in the interval, so that their cosignatures come together; after a failure
//! an attempt follows with growing delays. When the store is closed each gets the last checkpoint.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use forebay_base::backoff::Backoff;
use forebay_base::error_chain::chain;
use forebay_base::fs::FileSystem;
use parking_lot::Mutex;

use super::{AnchorError, AnchorTarget, Publication};
use crate::checkpoint::Checkpoint;
use crate::store::cosigned::Witness;
use crate::store::{Inner, Options, Store};

/// Delay after the first failure, and the maximum one.
const DELAY: Duration = Duration::from_secs(1);
const DELAY_MAX: Duration = Duration::from_secs(300);
/// Maximum time a thread waits without looking.
const IDLE: Duration = Duration::from_secs(3600);

/// The state of a place or a witness.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AnchorStatus {
    /// Its address, without secrets.
    pub address: String,
    /// Whether it is a witness.
    pub witness: bool,
    /// Number of events in the newest checkpoint it has, of those since the store was opened.
    pub published: Option<u64>,
    /// Why the last attempt failed, if it did.
    pub failure: Option<String>,
}

/// Who gets checkpoints.
#[derive(Debug)]
enum Kind {
    Place(Arc<dyn AnchorTarget>),
    Witness(Witness),
}

/// One place or witness.
#[derive(Debug)]
pub(in crate::store) struct Publisher {
    kind: Kind,
    state: Mutex<State>,
    /// Held during an attempt, with the size that the witness has.
    attempt: Mutex<u64>,
}

#[derive(Debug)]
struct State {
    /// Events in the newest published checkpoint.
    newest: Option<u64>,
    /// When it was last tried, by the monotonic clock.
    tried: Option<Duration>,
    /// When it is tried again, after a failure.
    retry: Option<Duration>,
    backoff: Backoff,
    failure: Option<String>,
}

/// The places and witnesses of a store's options.
pub(in crate::store) fn publishers(
    fs: &Arc<dyn FileSystem>,
    options: &Options,
) -> Vec<Arc<Publisher>> {
    let places = options.anchors.iter().map(|place| Kind::Place(place.target(fs)));
    let witnesses = options.witnesses.iter().cloned().map(Kind::Witness);
    let publisher = |kind| {
        let backoff = Backoff::new(DELAY, DELAY_MAX);
        let state = State { newest: None, tried: None, retry: None, backoff, failure: None };
        Arc::new(Publisher { kind, state: Mutex::new(state), attempt: Mutex::new(0) })
    };
    places.chain(witnesses).map(publisher).collect()
}

impl Publisher {
    fn address(&self) -> String {
        match &self.kind {
            Kind::Place(place) => place.address(),
            Kind::Witness(witness) => witness.transport.address(),
        }
    }

    fn status(&self) -> AnchorStatus {
        let address = self.address();
        let witness = matches!(self.kind, Kind::Witness(_));
        let state = self.state.lock();
        AnchorStatus { address, witness, published: state.newest, failure: state.failure.clone() }
    }
}

impl Inner {
    /// The thread of one place or witness.
    pub(in crate::store) fn publish_now_and_then(&self, publisher: &Publisher) {
        loop {
            let seen = self.publishing.count();
            let last = self.publishing.is_stopped();
            let wait = self.wait_before(publisher);
            if (wait.is_zero() || last)
                && let Err(error) = self.publish_to(publisher, last)
            {
                tracing::error!("cannot publish a checkpoint: {}", chain(&error));
            }
            if last {
                return;
            }
            if !wait.is_zero() {
                self.publishing.wait(seen, wait);
            }
        }
    }

    /// The time until the next attempt.
    fn wait_before(&self, publisher: &Publisher) -> Duration {
        let latest = self.newest_signed().map(|(latest, _)| latest.size);
        let (now, interval) = (self.clock.monotonic(), self.options.anchor_interval);
        let state = publisher.state.lock();
        if latest.is_none() || latest == state.newest {
            return IDLE;
        }
        let due = match (state.retry, &publisher.kind) {
            (Some(retry), _) => Some(retry),
            (None, Kind::Place(_)) => state.tried.map(|tried| tried.saturating_add(interval)),
            (None, Kind::Witness(_)) => {
                let due = self.cosigned.lock().next_choice(state.newest);
                due.map(|chosen| chosen.saturating_add(interval))
            }
        };
        due.map_or(Duration::ZERO, |due| due.saturating_sub(now)).min(IDLE)
    }

    /// The newest checkpoint, and its note.
    pub(in crate::store) fn newest_signed(&self) -> Option<(Checkpoint, String)> {
        self.checkpoints.as_ref()?.lock().latest.clone()
    }

    /// Publishes a checkpoint in one place, unless it has it.
    ///
    /// * `last`: whether it must be the newest one.
    fn publish_to(&self, publisher: &Publisher, last: bool) -> Result<(), AnchorError> {
        let mut known = publisher.attempt.lock();
        let Some(checkpoints) = &self.checkpoints else { return Ok(()) };
        let key = checkpoints.lock().key.verifier().clone();
        let Some(newest) = self.newest_signed() else { return Ok(()) };
        let now = self.clock.monotonic();
        let (checkpoint, note) = match &publisher.kind {
            Kind::Place(_) => newest,
            Kind::Witness(_) => {
                let interval = if last { Duration::ZERO } else { self.options.anchor_interval };
                self.cosigned.lock().choose(newest, now, interval)
            }
        };
        let size = checkpoint.size;
        let first = {
            let mut state = publisher.state.lock();
            if state.newest == Some(size) {
                return Ok(());
            }
            state.tried = Some(now);
            state.newest.is_none()
        };
        let published = match &publisher.kind {
            Kind::Place(place) => place.publish(&Publication { checkpoint, note, key, first }),
            Kind::Witness(witness) => self.ask(witness, &mut known, &checkpoint, &note),
        };
        let counter = match (&published, &publisher.kind) {
            (Ok(()), Kind::Place(_)) => &self.counters.anchored,
            (Err(_), Kind::Place(_)) => &self.counters.anchor_failures,
            (Ok(()), Kind::Witness(_)) => &self.counters.cosigned,
            (Err(_), Kind::Witness(_)) => &self.counters.witness_failures,
        };
        counter.fetch_add(1, Ordering::Relaxed);
        let mut state = publisher.state.lock();
        match &published {
            Ok(()) => {
                state.newest = Some(size);
                (state.retry, state.failure) = (None, None);
                state.backoff.reset();
            }
            Err(error) => {
                let delay = state.backoff.delay();
                state.retry = Some(self.clock.monotonic().saturating_add(delay));
                state.failure = Some(chain(error).to_string());
            }
        }
        published
    }

    /// Publishes the newest checkpoint everywhere, on this thread.
    pub(in crate::store) fn publish(&self) -> Result<(), AnchorError> {
        let mut failed = Ok(());
        for publisher in &self.publishers {
            failed = failed.and(self.publish_to(publisher, true));
        }
        failed
    }
}

impl Store {
    /// Signs a checkpoint of everything appended, publishes it in every place of the options, and has
    /// every witness cosign it.
    ///
    /// # Errors
    /// The first [`AnchorError`]; the others got it. It is tried again with the next checkpoint.
    pub fn publish_checkpoint(&self) -> Result<(), AnchorError> {
        self.checkpoint().map_err(AnchorError::NoCheckpoint)?;
        self.inner().publish()
    }

    /// The places and witnesses that get checkpoints, in the order of the options.
    #[must_use]
    pub fn anchors(&self) -> Vec<AnchorStatus> {
        self.inner().publishers.iter().map(|publisher| publisher.status()).collect()
    }
}
