//! One task a hook: reads on, sends, and notes the result.
//!
//! ```text
//! step:  a result that could not be stored   store it
//!        a delivery that is due              send it
//!        one that later events wait for      wait until it is due
//!        the next event of the sources       send it
//!        nothing                             note how far the hook has come, and wait
//! ```
//!
//! Invariants: one request of a hook is under way at a time, so the number of hooks limits them and no receiver waits
//! for another; an event is taken from the sources only when nothing before it waits; a result is stored before
//! the next event is sent.

use std::sync::Arc;
use std::time::Duration;

use forebay_base::error_chain::chain;

use crate::hook::{Cursor, Delivery, Hook, HookId};
use crate::judge::Attempt;
use crate::live::Inner;
use crate::reading::{Looked, Reading};
use crate::store::Waiting;

/// Pause after a failure of this machine.
const PAUSE_MS: u64 = 5_000;
/// Least time between two notes of how far a hook has come without an event.
const NOTE_EVERY_MS: u64 = 1_000;
/// Longest sleep, so that a clock that was set is noticed.
const SLEEP_MAX: Duration = Duration::from_secs(60);

/// The worker of a hook.
pub(crate) struct Worker {
    inner: Arc<Inner>,
    id: HookId,
    /// Of the hook when the reading began.
    version: u64,
    reading: Reading,
    /// Deliveries that wait; `None` if that may have changed.
    waiting: Option<Waiting>,
    /// An attempt whose result is not stored.
    unstored: Option<(Delivery, Arc<Attempt>)>,
    noted_ms: u64,
}

/// What a worker does next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Next {
    /// The next step.
    Step,
    /// It waits for a time, in milliseconds since 1970.
    At(u64),
    /// It waits for the sources, or for a time.
    Idle(Option<u64>),
    /// It waits for a change: the hook is disabled.
    Off,
    /// It ends: the hook was removed.
    Gone,
}

impl Worker {
    pub(crate) fn new(inner: Arc<Inner>, id: HookId) -> Self {
        Self {
            inner,
            id,
            version: 0,
            reading: Reading::default(),
            waiting: None,
            unstored: None,
            noted_ms: 0,
        }
    }

    /// Works until the hook is removed or webhooks are closed.
    pub(crate) async fn run(mut self) {
        let mut closing = self.inner.closing.subscribe();
        let Some(wake) = self.inner.with(self.id, |live| Arc::clone(&live.wake)) else { return };
        loop {
            let next = tokio::select! {
                // What was being sent is sent again after the next start.
                _ = closing.wait_for(|closing| *closing) => return,
                next = self.step() => next,
            };
            let until_ms = match next {
                Next::Step => continue,
                Next::Gone => return,
                Next::At(at_ms) => Some(at_ms),
                Next::Idle(at_ms) => at_ms,
                Next::Off => None,
            };
            let sleep = async {
                match until_ms {
                    Some(at_ms) => {
                        let left = at_ms.saturating_sub(self.inner.clock.now_ms());
                        tokio::time::sleep(Duration::from_millis(left).min(SLEEP_MAX)).await;
                    }
                    None => std::future::pending().await,
                }
            };
            let passed = async {
                match next {
                    Next::Idle(_) => self.reading.passed(&self.inner).await,
                    _ => std::future::pending().await,
                }
            };
            tokio::select! {
                _ = closing.wait_for(|closing| *closing) => return,
                () = wake.notified() => self.waiting = None,
                () = sleep => {}
                () = passed => {}
            }
        }
    }

    /// Does one thing, and says what comes next.
    pub(crate) async fn step(&mut self) -> Next {
        let seen = self.inner.with(self.id, |live| {
            let cursors = (live.version != self.version).then(|| live.cursors.clone());
            (live.hook.clone(), live.version, cursors)
        });
        let Some((hook, version, changed)) = seen else { return Next::Gone };
        if let Some(cursors) = changed {
            self.reading = Reading::start(&self.inner, &cursors);
            self.version = version;
            self.waiting = None;
        }
        let now_ms = self.inner.clock.now_ms();
        if let Some((delivery, attempt)) = self.unstored.take() {
            return self.store(delivery, attempt).await;
        }
        if !hook.is_enabled {
            return Next::Off;
        }
        let waiting = match self.waiting {
            Some(waiting) => waiting,
            None => match self.look_up().await {
                Ok(waiting) => waiting,
                Err(next) => return next,
            },
        };
        // One that is due later than that was postponed before the clock was set back.
        let longest = u64::try_from(self.inner.options.retry_max.as_millis()).unwrap_or(u64::MAX);
        let is_due = |due_ms: u64| due_ms <= now_ms || due_ms - now_ms > longest.saturating_mul(2);
        if waiting.due_ms.is_some_and(is_due) {
            return self.send_due(&hook).await;
        }
        if waiting.holds {
            return waiting.due_ms.map_or(Next::Off, Next::At);
        }
        match self.reading.next(&self.inner, self.id, &hook.filter).await {
            Ok(Looked::Next(delivery)) => self.send(&hook, *delivery).await,
            Ok(Looked::More) => match self.note(now_ms).await {
                Next::Idle(_) => Next::Step,
                next => next,
            },
            Ok(Looked::Nothing) => match (self.note(now_ms).await, waiting.due_ms) {
                (Next::Idle(Some(note_ms)), Some(due_ms)) => Next::Idle(Some(note_ms.min(due_ms))),
                (Next::Idle(None), due_ms) => Next::Idle(due_ms),
                (next, _) => next,
            },
            Err(error) => self.stall(&chain(&error).to_string()),
        }
    }

    async fn look_up(&mut self) -> Result<Waiting, Next> {
        let id = self.id;
        let found = self.inner.blocking(move |inner| {
            let waiting = inner.store.lock().waiting(id)?;
            inner.with(id, |live| live.waiting = waiting);
            Ok(waiting)
        });
        match found.await {
            Ok(waiting) => Ok(*self.waiting.insert(waiting)),
            Err(error) => Err(self.stall(&chain(&error).to_string())),
        }
    }

    async fn send_due(&mut self, hook: &Hook) -> Next {
        let id = self.id;
        let found = self.inner.blocking(move |inner| Ok(inner.store.lock().first_due(id)?)).await;
        match found {
            Ok(Some(delivery)) => {
                let holds = delivery.record.holds.is_some();
                let next = self.send(hook, delivery).await;
                if holds {
                    // The reading may have begun before it.
                    self.version = 0;
                }
                next
            }
            Ok(None) => {
                self.waiting = None;
                Next::Step
            }
            Err(error) => self.stall(&chain(&error).to_string()),
        }
    }

    async fn send(&mut self, hook: &Hook, delivery: Delivery) -> Next {
        let event_ms = delivery.record.event_ms;
        self.inner.with(self.id, |live| live.sending_ms = Some(event_ms));
        let attempt = Arc::new(self.inner.send(self.id, hook, &delivery).await);
        self.store(delivery, attempt).await
    }

    /// Stores the result of an attempt; keeps it if that is impossible now.
    async fn store(&mut self, delivery: Delivery, attempt: Arc<Attempt>) -> Next {
        let (id, own, result) = (self.id, delivery.clone(), Arc::clone(&attempt));
        let stored = self.inner.blocking(move |inner| Ok(inner.record(id, own, &result)?)).await;
        match stored {
            Ok(None) => Next::Gone,
            Ok(Some(_)) => {
                self.waiting = self.inner.with(self.id, |live| live.waiting);
                Next::Step
            }
            Err(error) => {
                self.unstored = Some((delivery, attempt));
                self.stall(&chain(&error).to_string())
            }
        }
    }

    /// Notes now and then how far the hook has come without an event.
    async fn note(&mut self, now_ms: u64) -> Next {
        let stored = self.inner.with(self.id, |live| live.cursors.clone()).unwrap_or_default();
        let ahead: Vec<Cursor> = self.reading.ahead_of(&stored);
        if ahead.is_empty() {
            self.recovered();
            return Next::Idle(None);
        }
        if now_ms.saturating_sub(self.noted_ms) < NOTE_EVERY_MS && self.noted_ms <= now_ms {
            return Next::Idle(Some(self.noted_ms + NOTE_EVERY_MS));
        }
        let (id, version) = (self.id, self.version);
        let noted = self.inner.blocking(move |inner| Ok(inner.progress(id, version, ahead)?)).await;
        match noted {
            Ok(()) => {
                self.noted_ms = now_ms;
                self.recovered();
                Next::Idle(None)
            }
            Err(error) => self.stall(&chain(&error).to_string()),
        }
    }

    fn recovered(&self) {
        self.inner.with(self.id, |live| live.stalled = None);
    }

    /// Reports once that this machine keeps the hook from moving on, and tries again later.
    fn stall(&self, reason: &str) -> Next {
        let was = self.inner.with(self.id, |live| live.stalled.replace(reason.to_owned()));
        if let Some(was) = was
            && was.as_deref() != Some(reason)
        {
            tracing::warn!(hook = %self.id, %reason, "a webhook does not move on; trying again");
        }
        Next::At(self.inner.clock.now_ms().saturating_add(PAUSE_MS))
    }
}
