//! What an answer means: for the delivery, for the hook, and for the events after it.
//!
//! ```text
//! 2xx            delivered; the hook moves on
//! 410            the hook is disabled; the delivery waits for the time it is enabled again
//! anything else  tried again after a delay that doubles
//! ```
//!
//! Events are sent in order: the later ones wait for the one that is tried again. If a receiver refuses one event
//! and not the others, that would hold all of them up for hours. So after [`IN_ORDER_ATTEMPTS`] an event is set
//! aside and tried beside the later ones, at most [`SET_ASIDE_MAX`] without a success between them: a receiver
//! that refuses this many is away, and the order is kept until it is back.
//!
//! Invariants: an event is given up only if the receiver has taken another one since the attempt before, so that none
//! is while a receiver is away; at most [`ASIDE_MAX`] of a hook are set aside.

use std::time::Duration;

use forebay_base::backoff::Backoff;

use crate::hook::{Cursor, Delivery, DeliveryState, Hook, MESSAGE_SIZE_MAX, shortened};
use crate::options::Options;
use crate::transport::{Answer, SendError};

/// Attempts before an event is set aside.
pub(crate) const IN_ORDER_ATTEMPTS: u32 = 3;
/// Events that are set aside without a success between them.
pub(crate) const SET_ASIDE_MAX: u32 = 3;
/// Deliveries of a hook that may wait beside the order.
pub(crate) const ASIDE_MAX: usize = 100;

/// The status with which a receiver says that it wants no more.
const GONE: u16 = 410;

/// An attempt that was made.
#[derive(Debug)]
pub(crate) struct Attempt {
    pub(crate) at_ms: u64,
    pub(crate) latency_ms: u64,
    pub(crate) result: Result<Answer, SendError>,
}

impl Attempt {
    pub(crate) fn is_success(&self) -> bool {
        matches!(&self.result, Ok(answer) if (200..300).contains(&answer.status))
    }

    /// Notes the attempt in its delivery.
    pub(crate) fn note(&self, delivery: &mut Delivery) {
        let record = &mut delivery.record;
        record.attempts = record.attempts.saturating_add(1);
        record.attempted_ms = Some(self.at_ms);
        record.latency_ms = Some(self.latency_ms);
        (record.status, record.answer, record.error) = match &self.result {
            Ok(answer) => {
                let failed = (!self.is_success())
                    .then(|| format!("the receiver answered {}", answer.status));
                let body = String::from_utf8_lossy(&answer.body).into_owned();
                (Some(answer.status), Some(body), failed)
            }
            Err(error) => {
                let error = shortened(&error.to_string(), MESSAGE_SIZE_MAX);
                (None, None, Some(error))
            }
        };
    }
}

/// Decides what an attempt means. Returns the position if the hook moves on.
///
/// * `waiting`: number of other deliveries of the hook that wait.
pub(crate) fn judge(
    options: &Options,
    hook: &mut Hook,
    delivery: &mut Delivery,
    attempt: &Attempt,
    waiting: usize,
) -> Option<Cursor> {
    let before_ms = delivery.record.attempted_ms;
    attempt.note(delivery);
    hook.attempted_ms = Some(attempt.at_ms);
    if attempt.is_success() {
        succeeded(hook, attempt.at_ms);
        (delivery.state, delivery.due_ms) = (DeliveryState::Delivered, None);
        return delivery.record.holds.take().map(|holds| holds.cursor());
    }
    hook.failures = hook.failures.saturating_add(1);
    let since_ms = *hook.failing_since_ms.get_or_insert(attempt.at_ms);
    delivery.state = DeliveryState::Waiting;
    delivery.due_ms = Some(attempt.at_ms.saturating_add(delay_ms(options, delivery, attempt)));
    if matches!(&attempt.result, Ok(answer) if answer.status == GONE) {
        disable(hook, "the receiver answered 410: it wants no more requests".to_owned());
        delivery.due_ms = Some(attempt.at_ms);
        return None;
    }
    let failing = Duration::from_millis(attempt.at_ms.saturating_sub(since_ms));
    if failing >= options.disable_after {
        let last = delivery.record.error.clone().unwrap_or_default();
        disable(
            hook,
            format!("every attempt failed for {} h; the last: {last}", failing.as_secs() / 3_600),
        );
        return None;
    }
    let Some(holds) = &delivery.record.holds else {
        let takes_others = hook.delivered_ms.is_some() && hook.delivered_ms >= before_ms;
        if delivery.record.attempts >= options.attempts_max && takes_others {
            (delivery.state, delivery.due_ms) = (DeliveryState::Failed, None);
        }
        return None;
    };
    let may_be_set_aside = delivery.record.attempts >= IN_ORDER_ATTEMPTS
        && hook.set_aside < SET_ASIDE_MAX
        && waiting < ASIDE_MAX;
    if !may_be_set_aside {
        return None;
    }
    hook.set_aside += 1;
    let cursor = holds.cursor();
    delivery.record.holds = None;
    Some(cursor)
}

/// Notes in the hook that an attempt was successful.
pub(crate) fn succeeded(hook: &mut Hook, at_ms: u64) {
    hook.delivered_ms = Some(at_ms);
    hook.failing_since_ms = None;
    (hook.failures, hook.set_aside) = (0, 0);
}

/// Disables a hook.
pub(crate) fn disable(hook: &mut Hook, reason: String) {
    hook.is_enabled = false;
    hook.reason = Some(shortened(&reason, MESSAGE_SIZE_MAX));
}

/// The delay before the next attempt.
fn delay_ms(options: &Options, delivery: &Delivery, attempt: &Attempt) -> u64 {
    let doublings = delivery.record.attempts.saturating_sub(1).min(31);
    let whole = options.retry_first.saturating_mul(1 << doublings).min(options.retry_max);
    let own = Backoff::new(whole, whole).delay();
    let asked = attempt.result.as_ref().ok().and_then(|answer| answer.retry_after_s);
    let asked = asked.map_or(Duration::ZERO, Duration::from_secs).min(options.retry_max);
    u64::try_from(own.max(asked).as_millis()).unwrap_or(u64::MAX)
}
