//! The JSON of answers about jobs.

use forebay_jobs::{JobView, Stats};
use serde::Serialize;
use serde_json::value::RawValue;
use utoipa::ToSchema;

use super::order::Order;

/// A job that was accepted.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = JobAccepted)]
pub(super) struct Accepted {
    /// Its id.
    pub(super) job_id: String,
    /// Its status.
    pub(super) status: Status,
    /// Where it is.
    pub(super) url: String,
}

/// Status of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "lowercase")]
#[schema(as = JobStatus)]
pub(super) enum Status {
    /// It waits for a worker, or for its next attempt.
    Queued,
    /// It is running.
    Running,
    /// It was done.
    Completed,
    /// It was refused, or all attempts failed. It can be queued again.
    Failed,
    /// It was cancelled.
    Cancelled,
}

impl From<forebay_jobs::Status> for Status {
    fn from(status: forebay_jobs::Status) -> Self {
        match status {
            forebay_jobs::Status::Queued => Self::Queued,
            forebay_jobs::Status::Running => Self::Running,
            forebay_jobs::Status::Completed => Self::Completed,
            forebay_jobs::Status::Failed => Self::Failed,
            forebay_jobs::Status::Cancelled => Self::Cancelled,
        }
    }
}

/// Priority of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "lowercase")]
#[schema(as = JobPriority)]
pub(super) enum Priority {
    /// 8 of 13 jobs that start while all priorities wait.
    High,
    /// 4 of 13.
    Normal,
    /// 1 of 13.
    Low,
}

impl From<forebay_jobs::Priority> for Priority {
    fn from(priority: forebay_jobs::Priority) -> Self {
        match priority {
            forebay_jobs::Priority::High => Self::High,
            forebay_jobs::Priority::Normal => Self::Normal,
            forebay_jobs::Priority::Low => Self::Low,
        }
    }
}

/// A job.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Job)]
pub(super) struct JobAnswer {
    /// Number of attempts that were started.
    pub(super) attempts: u32,
    /// Size of the request's body in bytes.
    pub(super) body_bytes: u64,
    /// When it ended, in milliseconds since 1970.
    #[schema(required)]
    pub(super) ended_at_ms: Option<u64>,
    /// Why the last attempt failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub(super) error: Option<String>,
    /// Its id.
    pub(super) job_id: String,
    /// When its next attempt is due, in milliseconds since 1970.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub(super) next_attempt_at_ms: Option<u64>,
    /// How urgent it is.
    pub(super) priority: Priority,
    /// How far it is, while it runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub(super) progress: Option<JobProgress>,
    /// What it does.
    pub(super) request: JobRequest,
    /// The response to its request. Only in the answer about one job, once it has ended; absent if
    /// there was none.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, value_type = Option<JobResult>)]
    pub(super) result: Option<Box<RawValue>>,
    /// When its last attempt was started, in milliseconds since 1970.
    #[schema(required)]
    pub(super) started_at_ms: Option<u64>,
    /// Its status.
    pub(super) status: Status,
    /// When it was submitted, in milliseconds since 1970.
    pub(super) submitted_at_ms: u64,
}

/// The request of a job.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct JobRequest {
    /// Its method.
    pub(super) method: String,
    /// Its path and query.
    pub(super) target: String,
}

/// Progress of a job: bytes of its body, or of the sources that it reads.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct JobProgress {
    /// Number of bytes read.
    pub(super) bytes_done: u64,
    /// Number of bytes in total; 0 if that is not known.
    pub(super) bytes_total: u64,
}

/// The response to the request of a job.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct JobResult {
    /// Its JSON: what the route answers without `async`.
    #[schema(value_type = Option<crate::describe::JsonObject>)]
    pub(super) body: Option<Box<RawValue>>,
    /// Its header `Location`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub(super) location: Option<String>,
    /// Its status.
    pub(super) status: u16,
}

/// Jobs.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct JobList {
    /// The jobs, the newest first.
    pub(super) jobs: Vec<JobAnswer>,
    /// Cursor of the next page; null if there is none.
    #[schema(required)]
    pub(super) next_cursor: Option<String>,
}

/// Counts of the queue.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct JobStats {
    /// Size of the bodies that are in files, in bytes.
    pub(super) bodies_bytes: u64,
    /// Number of known jobs that were cancelled.
    pub(super) cancelled: usize,
    /// Number of known jobs that completed.
    pub(super) completed: usize,
    /// Number of jobs that completed since the server started.
    pub(super) completed_since_start: u64,
    /// Number of known jobs that failed.
    pub(super) failed: usize,
    /// Number of jobs that failed since the server started.
    pub(super) failed_since_start: u64,
    /// Age of the oldest job that waits, in seconds.
    pub(super) oldest_queued_seconds: f64,
    /// Number of jobs that wait.
    pub(super) queued: usize,
    /// Maximum number of jobs that wait (`jobs.queued_max`).
    pub(super) queued_max: usize,
    /// Number of attempts that were tried again since the server started.
    pub(super) retries_since_start: u64,
    /// Number of jobs that run, with the builds and runs that were started without `async`.
    pub(super) running: usize,
    /// Maximum number of jobs that workers run at once (`jobs.workers`).
    pub(super) workers: usize,
}

impl From<JobView> for JobAnswer {
    fn from(view: JobView) -> Self {
        let request = Order::decode(&view.order).map_or_else(
            || JobRequest { method: String::new(), target: String::new() },
            |order| JobRequest { method: order.method, target: order.target },
        );
        let progress =
            view.progress.map(|(bytes_done, bytes_total)| JobProgress { bytes_done, bytes_total });
        Self {
            attempts: view.attempts,
            body_bytes: view.body_size,
            ended_at_ms: view.ended_ms,
            error: (!view.reason.is_empty()).then(|| view.reason.to_string()),
            job_id: view.id.to_string(),
            next_attempt_at_ms: view.due_ms,
            priority: view.priority.into(),
            progress,
            request,
            result: None,
            started_at_ms: view.started_ms,
            status: view.status.into(),
            submitted_at_ms: view.submitted_ms,
        }
    }
}

impl From<Stats> for JobStats {
    fn from(stats: Stats) -> Self {
        let [queued, running, completed, failed, cancelled] = stats.by_status;
        let [completed_since_start, failed_since_start, _] = stats.ended;
        #[expect(clippy::cast_precision_loss, reason = "milliseconds of a queue")]
        let oldest_queued_seconds = stats.oldest_waiting_ms as f64 / 1e3;
        Self {
            bodies_bytes: stats.bodies_bytes,
            cancelled,
            completed,
            completed_since_start,
            failed,
            failed_since_start,
            oldest_queued_seconds,
            queued,
            queued_max: stats.queued_max,
            retries_since_start: stats.retries,
            running,
            workers: stats.workers,
        }
    }
}
