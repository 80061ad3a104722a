//! Events of the jobs' log: the ends of jobs.
//!
//! Invariant: the id of an event is made of the job, its end and the time of it, since shortening the log states the
//! same end again at another position.

use std::future::Future;
use std::pin::Pin;

use forebay_jobs::{Ending, Queue, Status};
use forebay_webhooks::{Batch, Event, Item, Point, Source, SourceError, event_id};
use serde::Serialize;
use serde_json::value::to_raw_value;
use tokio::sync::broadcast::error::RecvError;

use crate::jobs::request_of;

const NAME: &str = "jobs";
/// Bytes of log that are read at once.
const READ_SIZE: u64 = 1 << 20;
/// Bytes of a job's target, and of its error, that an event has.
const TEXT_SIZE_MAX: usize = 2_048;

/// The log of the jobs, as events.
#[derive(Debug)]
pub struct JobEvents(Queue);

impl JobEvents {
    /// Reads the log of this queue.
    #[must_use]
    pub fn new(queue: Queue) -> Self {
        Self(queue)
    }
}

/// The data of an event.
#[derive(Serialize)]
struct JobData {
    job_id: String,
    status: &'static str,
    /// Method of its request; absent if the job was forgotten.
    #[serde(skip_serializing_if = "Option::is_none")]
    method: Option<String>,
    /// Path and query of its request.
    #[serde(skip_serializing_if = "Option::is_none")]
    target: Option<String>,
    attempts: u32,
    /// Why it failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
    url: String,
}

impl Source for JobEvents {
    fn name(&self) -> &'static str {
        NAME
    }

    fn log_id(&self) -> [u8; 16] {
        self.0.log_id()
    }

    fn end(&self) -> u64 {
        self.0.acknowledged()
    }

    fn passed(&self, position: u64) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        Box::pin(async move {
            let mut changes = self.0.changes();
            while self.end() <= position {
                // A change that was missed is one all the same.
                if let Err(RecvError::Closed) = changes.recv().await {
                    std::future::pending::<()>().await;
                }
            }
        })
    }

    fn read(&self, from: u64) -> Result<Batch, SourceError> {
        let found = self.0.endings(from, READ_SIZE);
        let found = found.map_err(|error| SourceError { name: NAME, source: Box::new(error) })?;
        let mut items = Vec::with_capacity(found.endings.len() + 1);
        if let Some((from, to)) = found.lost {
            items.push(Item::Lost { from, next: Point { position: to, item: 0 }, entries: 0 });
        }
        items.extend(found.endings.into_iter().map(|ending| Item::Event(Box::new(event(ending)))));
        Ok(Batch { from, reached: found.reached, items })
    }
}

fn event(ending: Ending) -> Event {
    let Ending { position, next, id, at_ms, status, attempts, reason, order, is_restated } = ending;
    let kind = match status {
        Status::Completed => "job.completed",
        Status::Cancelled => "job.cancelled",
        Status::Failed | Status::Queued | Status::Running => "job.failed",
    };
    let job = id.to_string();
    let request = order.and_then(|order| request_of(&order));
    let (method, target) = request.unzip();
    let data = JobData {
        url: format!("/v1/jobs/{job}"),
        status: status.name(),
        method,
        target: target.map(shortened),
        attempts,
        error: (!reason.is_empty()).then(|| shortened(reason)),
        job_id: job.clone(),
    };
    let parts: [&[u8]; 4] =
        [NAME.as_bytes(), job.as_bytes(), status.name().as_bytes(), &at_ms.to_le_bytes()];
    Event {
        id: event_id(&parts),
        kind,
        time_ms: at_ms,
        namespace: None,
        name: None,
        before: None,
        // A structure of texts and numbers: nothing can fail.
        data: to_raw_value(&data).unwrap_or_default(),
        at: Point { position, item: 0 },
        next: Point { position: next, item: 0 },
        is_restated,
    }
}

fn shortened(mut text: String) -> String {
    let mut end = text.len().min(TEXT_SIZE_MAX);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text.truncate(end);
    text
}
