//! The page at `/v1/jobs/page`: the queue, and its newest jobs.

use maud::html;
use serde_json::Value;

use super::layout::page;

/// A job in the list.
#[derive(Debug)]
pub(crate) struct JobRow {
    id: String,
    what: String,
    status: String,
    submitted: String,
    attempts: u64,
    error: Option<String>,
}

impl JobRow {
    /// Creates the row from the server's description of a job.
    pub(crate) fn of(job: &Value) -> Self {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let submitted = job["submitted_at_ms"].as_i64();
        let submitted = submitted.and_then(|ms| jiff::Timestamp::from_millisecond(ms).ok());
        let request = &job["request"];
        Self {
            id: text(&job["job_id"]),
            what: format!("{} {}", text(&request["method"]), text(&request["target"])),
            status: text(&job["status"]),
            submitted: submitted.map_or_else(String::new, |at| format!("{at:.0}")),
            attempts: job["attempts"].as_u64().unwrap_or_default(),
            error: job["error"].as_str().map(str::to_owned),
        }
    }
}

/// The page of the newest jobs.
///
/// * `stats`: counts of the queue.
pub(crate) fn jobs_page(rows: Vec<JobRow>, stats: &Value) -> String {
    let count = |name: &str| stats[name].as_u64().unwrap_or_default();
    page(
        "Jobs - Forebay",
        None,
        &html! {
            h1 { "Jobs" }
            p {
                (count("queued")) " waiting, " (count("running")) " running, "
                (count("completed")) " completed, " (count("failed")) " failed, "
                (count("cancelled")) " cancelled"
            }
            @if rows.is_empty() {
                p { "There are no jobs. To make a request a job, add " code { "async=true" } ":" }
                pre { "curl -T FILE \"SERVER/v1/files/NAMESPACE/NAME?async=true\"" }
            } @else {
                table {
                    thead { tr { th { "Job" } th { "Request" } th { "Status" } th { "Submitted" } th { "Attempts" } } }
                    tbody {
                        @for row in &rows {
                            tr {
                                td { a href={ "/v1/jobs/" (row.id) } { code { (row.id) } } }
                                td { code { (row.what) } }
                                td {
                                    (row.status)
                                    @if let Some(error) = &row.error { br; span.bad { (error) } }
                                }
                                td { (row.submitted) }
                                td { (row.attempts) }
                            }
                        }
                    }
                }
            }
        },
    )
}
