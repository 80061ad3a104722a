//! Alerts of runs: requests to the receiver that a pipeline file names, when a run fails or its feed falls behind.
//!
//! ```text
//! run --lag, every second--> level --queue of 16--> sender --POST, at most 5 attempts--> receiver
//! ```
//!
//! Invariants: a receiver that is slow or away delays no row; a request reaches only the host that the file names,
//! follows no redirection, and ends within its time limit; an alert that cannot be delivered is logged, counted, and a
//! warning of the run.

mod level;

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use bytes::Bytes;
use forebay_base::backoff::Backoff;
use forebay_base::error_chain::chain;
use forebay_pipeline::config::{AlertSettings, PipelineFile};
use forebay_sdk::run::Context;
use forebay_webhooks::{
    Allow, Allowed, HttpTransport, Request, SendError, SigningKey, SystemLookup, Transport,
    signature,
};
use serde_json::json;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use super::now_ms;
use level::{Lag, Level, Turn};

/// How often the lag is compared with its limits.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Maximum number of alerts that wait for the receiver.
const WAITING_MAX: usize = 16;
/// Maximum number of attempts to deliver an alert, and the longest delay before the second and the last.
const ATTEMPTS_MAX: u32 = 5;
const RETRY_FIRST: Duration = Duration::from_secs(1);
const RETRY_MAX: Duration = Duration::from_secs(16);
/// Limit of a request and its answer.
const REQUEST_LIMIT: Duration = Duration::from_secs(10);
/// Maximum time that the end of a run waits for alerts to be delivered.
const END_LIMIT: Duration = Duration::from_secs(30);
/// Maximum size of an error's text in bytes.
const ERROR_SIZE_MAX: usize = 2 << 10;

/// The alerts of a run.
#[derive(Debug)]
pub struct Alerts {
    pipeline: String,
    context: Context,
    begun: Instant,
    level: Level,
    to: mpsc::Sender<Alert>,
    sender: JoinHandle<()>,
}

/// An alert that waits to be delivered.
#[derive(Debug)]
struct Alert {
    kind: &'static str,
    id: String,
    body: String,
}

impl Alerts {
    /// Prepares the alerts of a run; `None` if its file names no receiver. Called inside the runtime.
    ///
    /// # Errors
    /// TLS cannot be set up on this machine.
    pub fn of(file: &PipelineFile, context: &Context) -> Result<Option<Self>, SendError> {
        let Some(settings) = &file.alerts else { return Ok(None) };
        let pipeline = file.pipeline.as_str().to_owned();
        let sender = Sender::new(settings, pipeline.clone(), context.clone())?;
        let (to, waiting) = mpsc::channel(WAITING_MAX);
        Ok(Some(Self {
            pipeline,
            context: context.clone(),
            begun: Instant::now(),
            level: Level::new(settings),
            to,
            sender: tokio::spawn(sender.deliver(waiting)),
        }))
    }

    /// Reports when the feed of a run falls behind, and when it catches up. Never returns.
    pub async fn watch(alerts: Option<&mut Self>, context: &Context) -> Infallible {
        let Some(alerts) = alerts else { return std::future::pending().await };
        let mut look = tokio::time::interval(LOOK_EVERY);
        loop {
            look.tick().await;
            let Some(lag_us) = context.moved.lag_us(now_ms()) else { continue };
            let bytes = context.moved.lag_bytes.load(Ordering::Relaxed);
            let lag = Lag { time: Duration::from_micros(lag_us), bytes };
            if let Some(turn) = alerts.level.observe(lag, alerts.begun.elapsed()) {
                alerts.turned(turn, lag);
            }
        }
    }

    fn turned(&self, turn: Turn, lag: Lag) {
        let kind = match turn {
            Turn::Behind => "pipeline.behind",
            Turn::CaughtUp => "pipeline.caught_up",
        };
        let (lag_seconds, lag_bytes) = (lag.time.as_secs_f64(), lag.bytes);
        match turn {
            Turn::Behind => {
                tracing::warn!(
                    pipeline = self.pipeline,
                    lag_seconds,
                    lag_bytes,
                    "a feed is behind"
                );
            }
            Turn::CaughtUp => {
                tracing::info!(
                    pipeline = self.pipeline,
                    lag_seconds,
                    lag_bytes,
                    "a feed caught up"
                );
            }
        }
        self.send(kind, &json!({ "lag_seconds": lag_seconds, "lag_bytes": lag_bytes }));
    }

    /// Reports how a run failed, if it did, and waits until the receiver has all alerts, or half a minute.
    ///
    /// * `error`: why it failed; `None` if it did not.
    pub async fn end(alerts: Option<Self>, error: Option<&str>) {
        let Some(alerts) = alerts else { return };
        if let Some(error) = error {
            let end = error.floor_char_boundary(ERROR_SIZE_MAX);
            alerts.send("pipeline.failed", &json!({ "error": error.get(..end) }));
        }
        let Self { to, mut sender, pipeline, context, .. } = alerts;
        drop(to);
        if tokio::time::timeout(END_LIMIT, &mut sender).await.is_err() {
            sender.abort();
            tracing::error!(pipeline, "alerts were not delivered in time and are dropped");
            context.warn("alerts were not delivered in time and are dropped");
        }
    }

    fn send(&self, kind: &'static str, more: &serde_json::Value) {
        let mut data = json!({ "pipeline": self.pipeline, "run": *self.context.run });
        if let (Some(data), Some(more)) = (data.as_object_mut(), more.as_object()) {
            data.extend(more.clone());
        }
        let timestamp = i64::try_from(now_ms()).ok();
        let timestamp = timestamp.and_then(|ms| jiff::Timestamp::from_millisecond(ms).ok());
        let body = json!({
            "type": kind,
            "timestamp": timestamp.map(|at| at.to_string()),
            "data": data,
        });
        let alert = Alert { kind, id: alert_id(), body: body.to_string() };
        if self.to.try_send(alert).is_err() {
            tracing::error!(pipeline = self.pipeline, kind, "too many alerts wait; one is dropped");
            self.context.warn(&format!("too many alerts wait; {kind} is dropped"));
            count(&self.pipeline, kind, "dropped");
        }
    }
}

fn alert_id() -> String {
    format!("alr_{}", uuid::Uuid::now_v7().simple())
}

fn count(pipeline: &str, kind: &'static str, outcome: &'static str) {
    let labels = [
        ("pipeline", pipeline.to_owned()),
        ("type", kind.to_owned()),
        ("outcome", outcome.to_owned()),
    ];
    metrics::counter!("forebay_pipeline_alerts_total", &labels).increment(1);
}

/// Delivers alerts.
struct Sender {
    pipeline: String,
    context: Context,
    url: String,
    key: Option<SigningKey>,
    transport: Arc<dyn Transport>,
}

impl Sender {
    fn new(
        settings: &AlertSettings,
        pipeline: String,
        context: Context,
    ) -> Result<Self, SendError> {
        let url = settings.url.expose();
        // The operator who writes pipeline files decides who is reached: this host, and no other.
        let host = url.host_str().unwrap_or_default().parse::<Allow>();
        let allowed = Allowed(host.into_iter().collect());
        let transport = HttpTransport::new(allowed, Arc::new(SystemLookup), REQUEST_LIMIT)?;
        Ok(Self {
            pipeline,
            context,
            url: url.to_string(),
            key: settings.secret.as_ref().map(|key| SigningKey(key.expose())),
            transport: Arc::new(transport),
        })
    }

    /// Delivers one alert after the other, until no more can come.
    async fn deliver(self, mut waiting: mpsc::Receiver<Alert>) {
        while let Some(alert) = waiting.recv().await {
            match self.attempt(&alert).await {
                Ok(()) => count(&self.pipeline, alert.kind, "delivered"),
                Err(reason) => {
                    let (pipeline, kind) = (&self.pipeline, alert.kind);
                    tracing::error!(pipeline, kind, reason, "cannot deliver an alert");
                    self.context.warn(&format!("cannot deliver the alert {kind}: {reason}"));
                    count(pipeline, kind, "failed");
                }
            }
        }
    }

    /// Sends an alert until it is accepted or refused, or the attempts are used up.
    async fn attempt(&self, alert: &Alert) -> Result<(), String> {
        let mut backoff = Backoff::new(RETRY_FIRST, RETRY_MAX);
        let mut attempt = 1;
        loop {
            let reason = match self.transport.send(self.request(alert)).await {
                Ok(answer) if (200..300).contains(&answer.status) => return Ok(()),
                Ok(answer) => {
                    let reason = format!("the receiver answered {}", answer.status);
                    if (400..500).contains(&answer.status) && !matches!(answer.status, 408 | 429) {
                        return Err(reason);
                    }
                    reason
                }
                Err(error) => chain(&error).to_string(),
            };
            if attempt >= ATTEMPTS_MAX {
                return Err(format!("{reason}, at the last of {ATTEMPTS_MAX} attempts"));
            }
            tracing::warn!(
                pipeline = self.pipeline,
                kind = alert.kind,
                reason,
                "sending an alert again"
            );
            attempt += 1;
            tokio::time::sleep(backoff.delay()).await;
        }
    }

    fn request(&self, alert: &Alert) -> Request {
        let timestamp_s = now_ms() / 1_000;
        let keys = self.key.as_slice();
        let signature = signature(keys, &alert.id, timestamp_s, alert.body.as_bytes());
        let (url, id) = (self.url.clone(), alert.id.clone());
        Request { url, id, timestamp_s, signature, body: Bytes::from(alert.body.clone()) }
    }
}
