//! What runs: the hooks in memory, the state, the sources, and what sends.
//!
//! Invariants: a hook in memory is the one that is stored; it changes only while the state is locked, after the
//! transaction; the state is locked only on threads that may block.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use forebay_base::clock::Clock;
use forebay_base::fs::Lock;
use parking_lot::Mutex;
use tokio::sync::{Notify, Semaphore, watch};
use tokio::task::JoinHandle;

use crate::address::Allowed;
use crate::error::WebhookError;
use crate::event::GAP;
use crate::hook::{Cursor, Delivery, Hook, HookId};
use crate::judge::{Attempt, judge};
use crate::meters;
use crate::options::Options;
use crate::secret::{Secrets, SigningKey, signature};
use crate::source::SharedSource;
use crate::store::{Store, Stored, Waiting};
use crate::transport::{Request, Transport};

/// A hook in memory.
pub(crate) struct Live {
    pub(crate) hook: Hook,
    /// As stored.
    pub(crate) cursors: Vec<Cursor>,
    /// Grows with each change that a client makes.
    pub(crate) version: u64,
    /// Its worker has something to do.
    pub(crate) wake: Arc<Notify>,
    pub(crate) waiting: Waiting,
    /// Time of the event that is being sent.
    pub(crate) sending_ms: Option<u64>,
    pub(crate) stalled: Option<String>,
}

impl Live {
    pub(crate) fn new(hook: Hook, cursors: Vec<Cursor>) -> Self {
        let wake = Arc::new(Notify::new());
        let waiting = Waiting::default();
        Self { hook, cursors, version: 1, wake, waiting, sending_ms: None, stalled: None }
    }
}

pub(crate) struct Inner {
    pub(crate) options: Options,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) store: Mutex<Store>,
    pub(crate) hooks: Mutex<BTreeMap<HookId, Live>>,
    pub(crate) sources: Vec<SharedSource>,
    pub(crate) allowed: Allowed,
    pub(crate) transport: Arc<dyn Transport>,
    pub(crate) secrets: Arc<dyn Secrets>,
    pub(crate) closing: watch::Sender<bool>,
    pub(crate) tasks: Mutex<HashMap<HookId, JoinHandle<()>>>,
    pub(crate) is_started: AtomicBool,
    /// Limits tests that run.
    pub(crate) tests: Semaphore,
    pub(crate) _lock: Box<dyn Lock>,
}

impl Inner {
    /// Uses the state on a thread that may block.
    pub(crate) async fn blocking<T: Send + 'static>(
        self: &Arc<Self>,
        work: impl FnOnce(&Self) -> Result<T, WebhookError> + Send + 'static,
    ) -> Result<T, WebhookError> {
        let inner = Arc::clone(self);
        let done = forebay_base::blocking::spawn(move || work(&inner)).await;
        done.unwrap_or_else(|error| {
            // Cancelled when the runtime ends, or a fault of ours.
            tracing::error!(%error, "using the state of webhooks was interrupted");
            Err(WebhookError::Closed)
        })
    }

    /// Changes something of a hook in memory, if it exists.
    pub(crate) fn with<T>(&self, id: HookId, change: impl FnOnce(&mut Live) -> T) -> Option<T> {
        self.hooks.lock().get_mut(&id).map(change)
    }

    /// Changes a hook and stores it. Blocks.
    pub(crate) fn change<T>(
        &self,
        id: HookId,
        change: impl FnOnce(&mut Hook) -> Result<T, WebhookError>,
    ) -> Result<T, WebhookError> {
        let mut store = self.store.lock();
        let hook = self.with(id, |live| live.hook.clone());
        let mut hook = hook.ok_or(WebhookError::Unknown(id))?;
        let done = change(&mut hook)?;
        store.change(id, &hook)?;
        self.with(id, |live| {
            live.hook = hook;
            live.version += 1;
            live.wake.notify_one();
        });
        Ok(done)
    }

    /// Signs and sends a delivery.
    pub(crate) async fn send(&self, id: HookId, hook: &Hook, delivery: &Delivery) -> Attempt {
        let at_ms = self.clock.now_ms();
        let keys = self.keys(id, hook, at_ms);
        let record = &delivery.record;
        let body = bytes::Bytes::copy_from_slice(record.body.as_bytes());
        let timestamp_s = at_ms / 1_000;
        let request = Request {
            url: hook.url.clone(),
            id: record.event.clone(),
            timestamp_s,
            signature: signature(&keys, &record.event, timestamp_s, &body),
            body,
        };
        let began = self.clock.monotonic();
        let result = self.transport.send(request).await;
        let took = self.clock.monotonic().saturating_sub(began);
        let latency_ms = u64::try_from(took.as_millis()).unwrap_or(u64::MAX);
        let attempt = Attempt { at_ms: at_ms.saturating_add(latency_ms), latency_ms, result };
        meters::attempted(attempt.is_success(), took);
        attempt
    }

    /// The keys that are valid now, the newest first.
    fn keys(&self, id: HookId, hook: &Hook, now_ms: u64) -> Vec<SigningKey> {
        let mut keys = vec![self.secrets.key(id, hook.generation)];
        if hook.generation > 1 && hook.previous_until_ms.is_some_and(|until_ms| now_ms < until_ms) {
            keys.push(self.secrets.key(id, hook.generation - 1));
        }
        keys
    }

    /// Stores what an attempt means. Blocks. Returns the delivery as it is stored; `None` if the hook was removed.
    pub(crate) fn record(
        &self,
        id: HookId,
        mut delivery: Delivery,
        attempt: &Attempt,
    ) -> Stored<Option<Delivery>> {
        let mut store = self.store.lock();
        let Some((mut hook, others)) = self.with(id, |live| {
            let own = usize::from(delivery.number > 0);
            (live.hook.clone(), live.waiting.count.saturating_sub(own))
        }) else {
            return Ok(None);
        };
        if delivery.number == 0 && delivery.record.kind == GAP {
            (hook.gaps, hook.gap_ms) = (hook.gaps + 1, Some(attempt.at_ms));
        }
        let was_enabled = hook.is_enabled;
        let cursor = judge(&self.options, &mut hook, &mut delivery, attempt, others);
        let kept = self.options.deliveries_kept;
        delivery.number = store.attempted(id, &hook, &delivery, cursor.as_ref(), kept)?;
        let waiting = store.waiting(id)?;
        if was_enabled && !hook.is_enabled {
            tracing::warn!(hook = %id, reason = ?hook.reason, "a webhook is disabled");
        }
        meters::judged(delivery.state);
        self.with(id, |live| {
            live.hook = hook;
            (live.waiting, live.sending_ms, live.stalled) = (waiting, None, None);
            if let Some(cursor) = cursor {
                live.set_cursor(cursor);
            }
        });
        Ok(Some(delivery))
    }

    /// Stores how far a hook has come without an event. Blocks.
    pub(crate) fn progress(&self, id: HookId, version: u64, cursors: Vec<Cursor>) -> Stored<()> {
        let mut store = self.store.lock();
        // A change of the filter in between looks at everything again.
        let is_current = self.with(id, |live| live.version == version);
        if is_current != Some(true) {
            return Ok(());
        }
        store.progress(id, &cursors)?;
        self.with(id, |live| cursors.into_iter().for_each(|cursor| live.set_cursor(cursor)));
        Ok(())
    }
}

impl Live {
    pub(crate) fn set_cursor(&mut self, cursor: Cursor) {
        match self.cursors.iter_mut().find(|own| own.source == cursor.source) {
            Some(own) => *own = cursor,
            None => self.cursors.push(cursor),
        }
    }
}
