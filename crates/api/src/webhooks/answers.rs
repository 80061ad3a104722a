//! The JSON of answers about webhooks.

use forebay_webhooks::{CursorState, HookView};
use serde::Serialize;
use serde_json::value::RawValue;
use utoipa::ToSchema;

/// A webhook.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Webhook)]
pub(super) struct WebhookAnswer {
    /// Its id.
    pub(super) webhook_id: String,
    /// URL of the receiver.
    pub(super) url: String,
    /// Text for people.
    pub(super) description: String,
    /// Types of events; empty for all.
    pub(super) events: Vec<String>,
    /// Only events about this namespace.
    #[schema(required)]
    pub(super) namespace: Option<String>,
    /// Only events about files whose names begin so.
    #[schema(required)]
    pub(super) prefix: Option<String>,
    /// Whether events are sent.
    pub(super) enabled: bool,
    /// Why it is disabled, if the server did that.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub(super) reason: Option<String>,
    /// Its secret. Only in the answer to its creation.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub(super) secret: Option<String>,
    /// Number of its secret, from 1.
    pub(super) secret_number: u32,
    /// Until when requests are also signed with the secret before, in milliseconds since 1970.
    #[schema(required)]
    pub(super) previous_secret_until_ms: Option<u64>,
    /// When it was created, in milliseconds since 1970.
    pub(super) created_at_ms: u64,
    /// When a request was sent last, in milliseconds since 1970.
    #[schema(required)]
    pub(super) attempted_at_ms: Option<u64>,
    /// When the receiver took one last, in milliseconds since 1970.
    #[schema(required)]
    pub(super) delivered_at_ms: Option<u64>,
    /// Since when every request failed, in milliseconds since 1970.
    #[schema(required)]
    pub(super) failing_since_ms: Option<u64>,
    /// Number of requests that failed since the last that did not.
    pub(super) failures: u32,
    /// Number of deliveries that wait to be tried again.
    pub(super) waiting: usize,
    /// When the oldest event happened that is being sent or waits, in milliseconds since 1970.
    #[schema(required)]
    pub(super) oldest_waiting_at_ms: Option<u64>,
    /// Number of times events were lost, because the log had not kept them.
    pub(super) gaps: u64,
    /// When that happened last, in milliseconds since 1970.
    #[schema(required)]
    pub(super) gap_at_ms: Option<u64>,
    /// How far it is in the logs.
    pub(super) sources: Vec<WebhookSource>,
    /// Why it does not move on although its receiver is not to blame.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub(super) stalled: Option<String>,
}

/// How far a webhook is in a log.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct WebhookSource {
    /// The log: `intake` or `jobs`.
    source: String,
    /// Position of the next entry to look at.
    position: u64,
    /// Bytes of log that it has not looked at.
    behind_bytes: u64,
}

/// Webhooks.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct WebhookList {
    /// The webhooks, by the time they were created.
    pub(super) webhooks: Vec<WebhookAnswer>,
}

/// A new secret.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct WebhookSecret {
    /// The secret. It is not shown again.
    pub(super) secret: String,
    /// The webhook.
    pub(super) webhook: WebhookAnswer,
}

/// State of a delivery.
#[derive(Debug, Clone, Copy, Serialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub(super) enum DeliveryState {
    /// It is tried again.
    Waiting,
    /// The receiver took it.
    Delivered,
    /// It was given up.
    Failed,
}

/// A delivery: an event on its way to the receiver.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = WebhookDelivery)]
pub(super) struct DeliveryAnswer {
    /// Its id.
    pub(super) delivery_id: u64,
    /// Id of the event, which is the header `webhook-id`.
    pub(super) event_id: String,
    /// Type of the event.
    pub(super) event: String,
    /// When the event happened, in milliseconds since 1970.
    pub(super) event_at_ms: u64,
    /// Its state.
    pub(super) state: DeliveryState,
    /// Number of attempts.
    pub(super) attempts: u32,
    /// When the last attempt was made, in milliseconds since 1970.
    #[schema(required)]
    pub(super) attempted_at_ms: Option<u64>,
    /// When the next attempt is due, in milliseconds since 1970.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub(super) next_attempt_at_ms: Option<u64>,
    /// Status of the last answer.
    #[schema(required)]
    pub(super) status: Option<u16>,
    /// How long the last attempt took, in milliseconds.
    #[schema(required)]
    pub(super) latency_ms: Option<u64>,
    /// Why the last attempt failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub(super) error: Option<String>,
    /// The first KiB of the last answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub(super) answer: Option<String>,
    /// The body of the request. Only in the answer about one delivery.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, value_type = Option<crate::describe::JsonObject>)]
    pub(super) payload: Option<Box<RawValue>>,
}

/// Deliveries.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = WebhookDeliveryList)]
pub(super) struct DeliveryList {
    /// The deliveries, the newest first.
    pub(super) deliveries: Vec<DeliveryAnswer>,
    /// Cursor of the next page; null if there is none.
    #[schema(required)]
    pub(super) next_cursor: Option<String>,
}

impl From<HookView> for WebhookAnswer {
    fn from(view: HookView) -> Self {
        let HookView { id, hook, cursors, waiting, oldest_ms, stalled } = view;
        let source = |CursorState { source, position, behind }| WebhookSource {
            source,
            position,
            behind_bytes: behind,
        };
        Self {
            webhook_id: id.to_string(),
            url: hook.url,
            description: hook.description,
            events: hook.filter.events,
            namespace: hook.filter.namespace,
            prefix: hook.filter.prefix,
            enabled: hook.is_enabled,
            reason: hook.reason,
            secret: None,
            secret_number: hook.generation,
            previous_secret_until_ms: hook.previous_until_ms,
            created_at_ms: hook.created_ms,
            attempted_at_ms: hook.attempted_ms,
            delivered_at_ms: hook.delivered_ms,
            failing_since_ms: hook.failing_since_ms,
            failures: hook.failures,
            waiting,
            oldest_waiting_at_ms: oldest_ms,
            gaps: hook.gaps,
            gap_at_ms: hook.gap_ms,
            sources: cursors.into_iter().map(source).collect(),
            stalled,
        }
    }
}

impl From<&forebay_webhooks::Delivery> for DeliveryAnswer {
    fn from(delivery: &forebay_webhooks::Delivery) -> Self {
        Self {
            delivery_id: delivery.number,
            event_id: delivery.event().to_owned(),
            event: delivery.kind().to_owned(),
            event_at_ms: delivery.event_ms(),
            state: match delivery.state {
                forebay_webhooks::DeliveryState::Waiting => DeliveryState::Waiting,
                forebay_webhooks::DeliveryState::Delivered => DeliveryState::Delivered,
                forebay_webhooks::DeliveryState::Failed => DeliveryState::Failed,
            },
            attempts: delivery.attempts(),
            attempted_at_ms: delivery.attempted_ms(),
            next_attempt_at_ms: delivery.due_ms,
            status: delivery.status(),
            latency_ms: delivery.latency_ms(),
            error: delivery.error().map(str::to_owned),
            answer: delivery.answer().map(str::to_owned),
            payload: None,
        }
    }
}
