//! What callers use: create hooks, look at them, change them, test them, deliver again.
//!
//! Invariants: what a call changes is on stable storage when it returns; a secret is returned by the call that made it
//! and by no other.

mod views;

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use forebay_base::clock::Clock;
use forebay_base::fs::FileSystem;
use parking_lot::Mutex;
use tokio::sync::{Semaphore, watch};

pub use views::{DeliveryFilter, Stats};

use crate::address::Allowed;
use crate::error::{OpenError, WebhookError};
use crate::event::{Filter, PING, body_of, event_id};
use crate::hook::{
    Cursor, DESCRIPTION_SIZE_MAX, Delivery, DeliveryRecord, DeliveryState, Hook, HookId, HookView,
};
use crate::judge::{ASIDE_MAX, succeeded};
use crate::live::{Inner, Live};
use crate::meters;
use crate::options::Options;
use crate::secret::Secrets;
use crate::source::{SharedSource, Source};
use crate::store::{FILE, Kept, Store};
use crate::transport::Transport;
use crate::worker::Worker;

/// Tests that may run at the same time.
const TESTS_MAX: usize = 16;
/// The longest time that a secret stays valid beside its successor.
const OVERLAP_MAX: Duration = Duration::from_secs(30 * 24 * 3_600);

/// The webhooks of a server. Cloning is cheap; all clones are the same.
#[derive(Clone)]
pub struct Hooks {
    pub(crate) inner: Arc<Inner>,
}

impl fmt::Debug for Hooks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hooks").field("dir", &self.inner.options.dir).finish_non_exhaustive()
    }
}

/// A hook to be created.
#[derive(Debug, Clone, Default)]
pub struct NewHook {
    /// Where requests are sent to.
    pub url: String,
    /// Text for people.
    pub description: String,
    /// Which events it receives.
    pub filter: Filter,
    /// Whether it begins disabled.
    pub is_disabled: bool,
}

/// A change of a hook; what is `None` stays.
#[derive(Debug, Clone, Default)]
pub struct Change {
    /// Where requests are sent to.
    pub url: Option<String>,
    /// Text for people.
    pub description: Option<String>,
    /// Types of events.
    pub events: Option<Vec<String>>,
    /// Only events about this namespace; `Some(None)` for all.
    pub namespace: Option<Option<String>>,
    /// Only events about names that begin so; `Some(None)` for all.
    pub prefix: Option<Option<String>>,
    /// Whether events are sent. Enabling a hook forgets its failures.
    pub is_enabled: Option<bool>,
}

impl Hooks {
    /// Opens the state in `options.dir`, creating it if it does not exist. Nothing is sent yet.
    ///
    /// # Errors
    /// [`OpenError`]: it is in use or damaged.
    pub fn open(
        fs: &Arc<dyn FileSystem>,
        clock: Arc<dyn Clock>,
        options: Options,
        (sources, allowed): (Vec<Arc<dyn Source>>, Allowed),
        (transport, secrets): (Arc<dyn Transport>, Arc<dyn Secrets>),
    ) -> Result<Self, OpenError> {
        let dir = options.dir.clone();
        let failed = |act| {
            let path = dir.clone();
            move |source| OpenError::Io { act, path, source }
        };
        fs.create_dir_all(&dir).map_err(failed("create"))?;
        let lock = fs.lock_exclusive(&dir.join("lock")).map_err(|source| match source.kind() {
            std::io::ErrorKind::WouldBlock => OpenError::Locked { path: dir.clone() },
            _ => failed("lock")(source),
        })?;
        let path = dir.join(FILE);
        let state = |source| OpenError::State { path: path.clone(), source };
        let mut store = Store::open(&path).map_err(state)?;
        fs.sync_dir(&dir).map_err(failed("sync"))?;
        let mut hooks = store.load().map_err(state)?;
        let fingerprint = secrets.fingerprint();
        let known = store.fingerprint().map_err(state)?;
        if known != Some(fingerprint) {
            // With other keys every signature is wrong, and receivers would refuse everything.
            let changed = if known.is_some() { disable_all(&mut hooks) } else { Vec::new() };
            store.set_fingerprint(&fingerprint, &changed).map_err(state)?;
        }
        meters::describe();
        let live = hooks.into_iter().map(|(id, kept)| (id, Live::new(kept.hook, kept.cursors)));
        let inner = Inner {
            options,
            clock,
            store: Mutex::new(store),
            hooks: Mutex::new(live.collect()),
            sources: sources.into_iter().map(SharedSource::new).collect(),
            allowed,
            transport,
            secrets,
            closing: watch::channel(false).0,
            tasks: Mutex::new(HashMap::new()),
            is_started: AtomicBool::new(false),
            tests: Semaphore::new(TESTS_MAX),
            _lock: lock,
        };
        Ok(Self { inner: Arc::new(inner) })
    }

    /// Starts to send. Called once, inside a tokio runtime.
    pub fn start(&self) {
        self.inner.is_started.store(true, Ordering::SeqCst);
        let ids: Vec<HookId> = self.inner.hooks.lock().keys().copied().collect();
        ids.into_iter().for_each(|id| self.spawn(id));
    }

    fn spawn(&self, id: HookId) {
        if !self.inner.is_started.load(Ordering::SeqCst) || *self.inner.closing.borrow() {
            return;
        }
        let task = tokio::spawn(Worker::new(Arc::clone(&self.inner), id).run());
        self.inner.tasks.lock().insert(id, task);
    }

    /// Creates a hook, which receives what happens from now on. Returns it and its secret.
    ///
    /// # Errors
    /// [`WebhookError::Address`], [`WebhookError::Rejected`], [`WebhookError::TooMany`],
    /// [`WebhookError::Store`].
    pub async fn create(&self, new: NewHook) -> Result<(HookView, String), WebhookError> {
        let NewHook { url, description, filter, is_disabled } = new;
        let mut hook = Hook {
            created_ms: self.inner.clock.now_ms(),
            url,
            description,
            filter,
            is_enabled: !is_disabled,
            reason: None,
            generation: 1,
            previous_until_ms: None,
            failing_since_ms: None,
            failures: 0,
            set_aside: 0,
            attempted_ms: None,
            delivered_ms: None,
            gaps: 0,
            gap_ms: None,
        };
        self.inner.check(&mut hook)?;
        let id = HookId::new();
        let sources = self.inner.sources.iter().map(|source| Cursor {
            source: source.name().to_owned(),
            log: source.log_id(),
            point: crate::event::Point { position: source.end(), item: 0 },
            // What a shortened log states again happened before.
            time_ms: hook.created_ms,
        });
        let cursors = sources.collect();
        let created = self.inner.blocking(move |inner| {
            let mut store = inner.store.lock();
            let max = inner.options.hooks_max;
            if inner.hooks.lock().len() >= max {
                return Err(WebhookError::TooMany { max });
            }
            let kept = Kept { hook, cursors };
            store.create(id, &kept)?;
            inner.hooks.lock().insert(id, Live::new(kept.hook, kept.cursors));
            Ok(())
        });
        created.await?;
        self.spawn(id);
        let secret = self.inner.secrets.key(id, 1).secret();
        Ok((self.hook(id)?, secret))
    }

    /// Changes a hook. What it has not received yet is selected by the new filter.
    ///
    /// # Errors
    /// As [`create`](Self::create); [`WebhookError::Unknown`].
    pub async fn change(&self, id: HookId, change: Change) -> Result<HookView, WebhookError> {
        let changed = self.inner.blocking(move |inner| {
            inner.change(id, |hook| {
                let Change { url, description, events, namespace, prefix, is_enabled } = change;
                hook.url = url.unwrap_or_else(|| std::mem::take(&mut hook.url));
                hook.description =
                    description.unwrap_or_else(|| std::mem::take(&mut hook.description));
                let filter = &mut hook.filter;
                filter.events = events.unwrap_or_else(|| std::mem::take(&mut filter.events));
                filter.namespace = namespace.unwrap_or_else(|| filter.namespace.take());
                filter.prefix = prefix.unwrap_or_else(|| filter.prefix.take());
                if let Some(is_enabled) = is_enabled {
                    hook.is_enabled = is_enabled;
                    hook.reason = None;
                    hook.failing_since_ms = None;
                    (hook.failures, hook.set_aside) = (0, 0);
                }
                inner.check(hook)
            })?;
            // One that was enabled again does not wait for the times of its failures.
            let now_ms = inner.clock.now_ms();
            inner.store.lock().hurry(id, now_ms)?;
            inner.with(id, |live| live.wake.notify_one());
            Ok(())
        });
        changed.await?;
        self.hook(id)
    }

    /// Removes a hook and everything that is known of it. A request that is being sent is dropped.
    ///
    /// # Errors
    /// [`WebhookError::Unknown`], [`WebhookError::Store`].
    pub async fn remove(&self, id: HookId) -> Result<(), WebhookError> {
        let removed = self.inner.blocking(move |inner| {
            let mut store = inner.store.lock();
            if !inner.hooks.lock().contains_key(&id) {
                return Err(WebhookError::Unknown(id));
            }
            store.remove(id)?;
            inner.hooks.lock().remove(&id);
            Ok(())
        });
        removed.await?;
        if let Some(task) = self.inner.tasks.lock().remove(&id) {
            task.abort();
        }
        Ok(())
    }

    /// Gives a hook a new secret, and returns it. Requests are signed with both for a time.
    ///
    /// * `overlap`: that time, at most 30 days; zero if the old secret is known to others.
    ///
    /// # Errors
    /// [`WebhookError::Unknown`], [`WebhookError::Rejected`], [`WebhookError::Store`].
    pub async fn rotate(&self, id: HookId, overlap: Duration) -> Result<String, WebhookError> {
        if overlap > OVERLAP_MAX {
            return Err(WebhookError::Rejected("overlap must be at most 30d".to_owned()));
        }
        let rotated = self.inner.blocking(move |inner| {
            inner.change(id, |hook| {
                let until_ms = u64::try_from(overlap.as_millis()).unwrap_or(u64::MAX);
                hook.previous_until_ms = Some(inner.clock.now_ms().saturating_add(until_ms));
                hook.generation = hook.generation.saturating_add(1);
                Ok(hook.generation)
            })
        });
        Ok(self.inner.secrets.key(id, rotated.await?).secret())
    }

    /// Sends a test to the receiver at once, also of a disabled hook, and returns the result. After a success
    /// deliveries that wait are due at once.
    ///
    /// # Errors
    /// [`WebhookError::Unknown`]; [`WebhookError::Busy`]: too many tests run; [`WebhookError::Store`]. That the
    /// receiver does not answer is no error.
    pub async fn ping(&self, id: HookId) -> Result<Delivery, WebhookError> {
        let inner = &self.inner;
        let busy = WebhookError::Busy { what: "too many tests are being sent" };
        let _permit = inner.tests.try_acquire().map_err(|_| busy)?;
        let hook = inner.with(id, |live| live.hook.clone()).ok_or(WebhookError::Unknown(id))?;
        let now_ms = inner.clock.now_ms();
        let data = serde_json::value::RawValue::from_string(format!("{{\"webhook\":\"{id}\"}}"));
        let record = DeliveryRecord {
            event: event_id(&[PING.as_bytes(), uuid::Uuid::new_v4().as_bytes()]),
            kind: PING.to_owned(),
            event_ms: now_ms,
            body: body_of(PING, now_ms, &data.unwrap_or_default()),
            created_ms: now_ms,
            holds: None,
            attempts: 0,
            attempted_ms: None,
            status: None,
            latency_ms: None,
            error: None,
            answer: None,
        };
        let state = DeliveryState::Failed;
        let mut delivery = Delivery { number: 0, state, due_ms: None, record };
        let attempt = inner.send(id, &hook, &delivery).await;
        attempt.note(&mut delivery);
        if attempt.is_success() {
            delivery.state = DeliveryState::Delivered;
        }
        inner
            .blocking(move |inner| {
                let mut store = inner.store.lock();
                let hook = inner.with(id, |live| live.hook.clone());
                let mut hook = hook.ok_or(WebhookError::Unknown(id))?;
                let was_failing = hook.failures > 0;
                if attempt.is_success() {
                    succeeded(&mut hook, attempt.at_ms);
                }
                let kept = inner.options.deliveries_kept;
                delivery.number = store.attempted(id, &hook, &delivery, None, kept)?;
                if attempt.is_success() && was_failing {
                    store.hurry(id, attempt.at_ms)?;
                }
                inner.with(id, |live| {
                    live.hook = hook;
                    live.wake.notify_one();
                });
                Ok(delivery)
            })
            .await
    }

    /// Lets a delivery be sent again, soon, beside the order of the others.
    ///
    /// # Errors
    /// [`WebhookError::Unknown`], [`WebhookError::UnknownDelivery`], [`WebhookError::Disabled`],
    /// [`WebhookError::Store`]; [`WebhookError::Busy`]: too many deliveries wait.
    pub async fn redeliver(&self, id: HookId, number: u64) -> Result<Delivery, WebhookError> {
        self.inner
            .blocking(move |inner| {
                let mut store = inner.store.lock();
                let enabled = inner.with(id, |live| live.hook.is_enabled);
                if !enabled.ok_or(WebhookError::Unknown(id))? {
                    return Err(WebhookError::Disabled);
                }
                let unknown = WebhookError::UnknownDelivery(number);
                let delivery = store.delivery(id, number)?.ok_or(unknown)?;
                let is_new = delivery.state != DeliveryState::Waiting;
                if is_new && store.waiting(id)?.count >= ASIDE_MAX {
                    return Err(WebhookError::Busy { what: "too many deliveries wait" });
                }
                store.wait_again(id, delivery, inner.clock.now_ms())?;
                inner.with(id, |live| live.wake.notify_one());
                store.delivery(id, number)?.ok_or(WebhookError::UnknownDelivery(number))
            })
            .await
    }

    /// Stops to send. What was being sent is sent again after the next start.
    ///
    /// * `limit`: how long that may take.
    pub async fn close(&self, limit: Duration) {
        self.inner.closing.send_replace(true);
        let tasks: Vec<_> = self.inner.tasks.lock().drain().map(|(_, task)| task).collect();
        let ended = async {
            for task in tasks {
                if let Err(error) = task.await
                    && error.is_panic()
                {
                    tracing::error!(%error, "the worker of a webhook panicked");
                }
            }
        };
        if tokio::time::timeout(limit, ended).await.is_err() {
            tracing::warn!("webhooks did not stop in time");
        }
    }

    /// Limits the size of the state, in pages, so that a test sees a full disk.
    #[doc(hidden)]
    pub fn limit_state(&self, pages: i64) -> Result<(), crate::error::StoreError> {
        self.inner.store.lock().limit(pages)
    }

    /// Works for a hook until it has to wait, without its task, so that the same calls have the same effect.
    /// Returns the time it waits for, if there is one.
    #[doc(hidden)]
    pub async fn run_until_idle(&self, id: HookId) -> Option<u64> {
        let mut worker = Worker::new(Arc::clone(&self.inner), id);
        loop {
            use crate::worker::Next;
            match worker.step().await {
                Next::Step => {}
                Next::At(at_ms) | Next::Idle(Some(at_ms)) => return Some(at_ms),
                Next::Idle(None) | Next::Off | Next::Gone => return None,
            }
        }
    }
}

impl Inner {
    /// Checks a hook that a client made, and writes its URL in one form.
    fn check(&self, hook: &mut Hook) -> Result<(), WebhookError> {
        hook.url = self.allowed.check_url(&hook.url)?.into();
        hook.filter.check().map_err(WebhookError::Rejected)?;
        let text = &hook.description;
        if text.len() > DESCRIPTION_SIZE_MAX || text.chars().any(char::is_control) {
            return Err(WebhookError::Rejected(format!(
                "description must have at most {DESCRIPTION_SIZE_MAX} bytes and no control characters"
            )));
        }
        Ok(())
    }
}

/// Disables hooks whose secrets are not those that their receivers know.
fn disable_all(hooks: &mut std::collections::BTreeMap<HookId, Kept>) -> Vec<(HookId, Hook)> {
    let mut changed = Vec::new();
    for (id, kept) in hooks.iter_mut().filter(|(_, kept)| kept.hook.is_enabled) {
        let reason = "the master key was replaced, and with it every secret; rotate the secret, give it to \
                      the receiver, and enable the webhook";
        crate::judge::disable(&mut kept.hook, reason.to_owned());
        changed.push((*id, kept.hook.clone()));
    }
    if !changed.is_empty() {
        tracing::error!(
            hooks = changed.len(),
            "the master key was replaced: webhooks are disabled"
        );
    }
    changed
}
