//! What is shown of hooks and deliveries, and what they keep others from doing.

use super::Hooks;
use crate::error::WebhookError;
use crate::hook::{CursorState, Delivery, DeliveryState, HookId, HookView};
use crate::live::{Inner, Live};
use crate::meters;

/// Which deliveries are listed.
#[derive(Debug, Clone, Copy, Default)]
pub struct DeliveryFilter {
    /// Only in this state.
    pub state: Option<DeliveryState>,
    /// Only those before this one.
    pub before: Option<u64>,
}

/// Counts over all hooks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Stats {
    /// Hooks that are enabled.
    pub enabled: usize,
    /// Hooks that are disabled because of their receivers or of what happened to the server.
    pub disabled: usize,
    /// Deliveries that wait to be tried again.
    pub waiting: usize,
    /// Age of the oldest event that is being sent or waits, in milliseconds.
    pub oldest_waiting_ms: u64,
    /// Bytes of log that the enabled hook furthest behind has not looked at.
    pub behind_max: u64,
}

impl Hooks {
    /// All hooks, by the time they were created.
    #[must_use]
    pub fn hooks(&self) -> Vec<HookView> {
        self.inner.hooks.lock().iter().map(|(id, live)| view(&self.inner, *id, live)).collect()
    }

    /// One hook.
    ///
    /// # Errors
    /// [`WebhookError::Unknown`].
    pub fn hook(&self, id: HookId) -> Result<HookView, WebhookError> {
        let hooks = self.inner.hooks.lock();
        hooks.get(&id).map(|live| view(&self.inner, id, live)).ok_or(WebhookError::Unknown(id))
    }

    /// The last deliveries of a hook, the newest first, and whether there are more.
    ///
    /// # Errors
    /// [`WebhookError::Unknown`], [`WebhookError::Store`].
    pub async fn deliveries(
        &self,
        id: HookId,
        filter: DeliveryFilter,
        limit: usize,
    ) -> Result<(Vec<Delivery>, bool), WebhookError> {
        let before = filter.before.unwrap_or(u64::MAX);
        self.inner
            .blocking(move |inner| {
                inner.with(id, |_| ()).ok_or(WebhookError::Unknown(id))?;
                let store = inner.store.lock();
                let mut found = store.deliveries(id, filter.state, before, limit + 1)?;
                let has_more = found.len() > limit;
                found.truncate(limit);
                Ok((found, has_more))
            })
            .await
    }

    /// One delivery of a hook.
    ///
    /// # Errors
    /// [`WebhookError::Unknown`], [`WebhookError::UnknownDelivery`], [`WebhookError::Store`].
    pub async fn delivery(&self, id: HookId, number: u64) -> Result<Delivery, WebhookError> {
        self.inner
            .blocking(move |inner| {
                inner.with(id, |_| ()).ok_or(WebhookError::Unknown(id))?;
                let found = inner.store.lock().delivery(id, number)?;
                found.ok_or(WebhookError::UnknownDelivery(number))
            })
            .await
    }

    /// Returns [`needs_from`](Self::needs_from) of a source as a function, for the source's own log to hold. It keeps
    /// nothing open.
    pub fn needs(&self, source: &'static str) -> impl Fn() -> Option<u64> + Send + Sync + use<> {
        let inner = std::sync::Arc::downgrade(&self.inner);
        move || Self { inner: inner.upgrade()? }.needs_from(source)
    }

    /// Position of a source from which its entries are still needed; `None` if they are not. A hook that is
    /// disabled, or further behind than `log_held_max`, needs none. Does not block.
    #[must_use]
    pub fn needs_from(&self, source: &str) -> Option<u64> {
        let (inner, max) = (&self.inner, self.inner.options.log_held_max);
        let end = inner.sources.iter().find(|own| own.name() == source)?.end();
        let hooks = inner.hooks.lock();
        let enabled = hooks.values().filter(|live| live.hook.is_enabled);
        let cursors = enabled.flat_map(|live| live.cursors.iter());
        let positions = cursors.filter(|cursor| cursor.source == source);
        let positions = positions.map(|cursor| cursor.point.position);
        positions.filter(|position| end.saturating_sub(*position) <= max).min()
    }

    /// Counts over all hooks.
    #[must_use]
    pub fn stats(&self) -> Stats {
        let now_ms = self.inner.clock.now_ms();
        let mut stats = Stats::default();
        for view in self.hooks() {
            if !view.hook.is_enabled {
                stats.disabled += usize::from(view.hook.reason.is_some());
                continue;
            }
            stats.enabled += 1;
            stats.waiting += view.waiting;
            let age = view.oldest_ms.map_or(0, |oldest_ms| now_ms.saturating_sub(oldest_ms));
            stats.oldest_waiting_ms = stats.oldest_waiting_ms.max(age);
            let behind = view.cursors.iter().map(|cursor| cursor.behind).max();
            stats.behind_max = stats.behind_max.max(behind.unwrap_or(0));
        }
        stats
    }

    /// Updates the metrics that are read rather than counted. Does not block.
    pub fn measure(&self) {
        meters::measured(&self.stats());
    }

    /// What does not work although requests are answered, in one sentence.
    #[must_use]
    pub fn degraded(&self) -> Option<String> {
        let hooks = self.hooks();
        let stalled = hooks.iter().find_map(|view| {
            let reason = view.stalled.as_ref()?;
            Some(format!("webhook {} does not move on: {reason}", view.id))
        });
        stalled.or_else(|| {
            let view =
                hooks.iter().find(|view| !view.hook.is_enabled && view.hook.reason.is_some())?;
            let reason = view.hook.reason.as_deref().unwrap_or_default();
            Some(format!("webhook {} is disabled: {reason}", view.id))
        })
    }
}

fn view(inner: &Inner, id: HookId, live: &Live) -> HookView {
    let cursors = live.cursors.iter().map(|cursor| {
        let end = inner.sources.iter().find(|source| source.name() == cursor.source);
        let end = end.map_or(cursor.point.position, |source| source.end());
        CursorState {
            source: cursor.source.clone(),
            position: cursor.point.position,
            behind: end.saturating_sub(cursor.point.position),
        }
    });
    let oldest_ms = match (live.sending_ms, live.waiting.oldest_ms) {
        (Some(sending), Some(waiting)) => Some(sending.min(waiting)),
        (sending, waiting) => sending.or(waiting),
    };
    HookView {
        id,
        hook: live.hook.clone(),
        cursors: cursors.collect(),
        waiting: live.waiting.count,
        oldest_ms,
        stalled: live.stalled.clone(),
    }
}
