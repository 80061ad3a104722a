//! Metrics of webhooks, as `forebay_webhooks_*`.

use std::time::Duration;

use metrics::{counter, describe_counter, describe_gauge, describe_histogram, gauge, histogram};

use crate::hook::DeliveryState;
use crate::hooks::Stats;

pub(crate) fn describe() {
    describe_counter!(
        "forebay_webhooks_attempts_total",
        "Requests to receivers, by their result: delivered or failed"
    );
    describe_counter!(
        "forebay_webhooks_deliveries_total",
        "Deliveries, by what the last attempt meant: delivered, waiting (tried again) or failed (given up)"
    );
    describe_histogram!("forebay_webhooks_attempt_seconds", "Time until a receiver answered");
    describe_gauge!("forebay_webhooks_hooks", "Webhooks that are enabled");
    describe_gauge!(
        "forebay_webhooks_disabled",
        "Webhooks that are disabled because their receivers failed"
    );
    describe_gauge!("forebay_webhooks_waiting", "Deliveries that wait to be tried again");
    describe_gauge!(
        "forebay_webhooks_oldest_waiting_seconds",
        "Age of the oldest event that is being sent or waits"
    );
    describe_gauge!(
        "forebay_webhooks_behind_bytes",
        "Bytes of log that the webhook furthest behind has not looked at"
    );
}

pub(crate) fn attempted(is_success: bool, took: Duration) {
    let result = if is_success { "delivered" } else { "failed" };
    counter!("forebay_webhooks_attempts_total", "result" => result).increment(1);
    histogram!("forebay_webhooks_attempt_seconds").record(took.as_secs_f64());
}

pub(crate) fn judged(state: DeliveryState) {
    counter!("forebay_webhooks_deliveries_total", "result" => state.name()).increment(1);
}

#[expect(clippy::cast_precision_loss, reason = "counts, bytes and milliseconds of a server")]
pub(crate) fn measured(stats: &Stats) {
    for (name, value) in [
        ("forebay_webhooks_hooks", stats.enabled as f64),
        ("forebay_webhooks_disabled", stats.disabled as f64),
        ("forebay_webhooks_waiting", stats.waiting as f64),
        ("forebay_webhooks_oldest_waiting_seconds", stats.oldest_waiting_ms as f64 / 1e3),
        ("forebay_webhooks_behind_bytes", stats.behind_max as f64),
    ] {
        gauge!(name).set(value);
    }
}
