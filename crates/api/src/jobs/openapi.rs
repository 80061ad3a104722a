//! The jobs' part of `/openapi.json`. Answers are described by the types that are serialised.

use forebay_jobs::{Priority, Status};
use utoipa::ToSchema;
use utoipa::openapi::OpenApi;
use utoipa::openapi::path::Parameter;

use super::accept::INGEST_ASYNC;
use super::answers::{Accepted, JobAnswer, JobList, JobStats};
use crate::describe::{Kind, Operation, PAGE, Routes, path, query};

const TAG: &str = "jobs";
const ABOUT: &str = "Requests that are accepted once they are durable, and run later. Every route that has \
    a parameter `async` can be one, and builds and runs are jobs without it, too.";

const MISSING: (u16, &str) = (404, "There is no such job, or it was forgotten");
const CLOSED: (u16, &str) = (503, "The record of jobs cannot be read or written");

/// The parameters of routes whose requests can be jobs.
pub(crate) fn parameters() -> [Parameter; 2] {
    let names = [Priority::High.name(), Priority::Normal.name(), Priority::Low.name()];
    [
        query(
            "async",
            Kind::Flag,
            "Answer 202 as soon as the request is durable, and run it later as a job",
        ),
        query("priority", Kind::Word(&names), "Priority of the job [default: normal]"),
    ]
}

/// Describes the answer of routes whose requests can be jobs.
pub(crate) fn accepts_jobs(operation: Operation) -> Operation {
    operation
        .parameters(parameters())
        .json::<Accepted>(202, "With async: the job is durable, and will run")
        .header(202, "Location", "The job's URL path")
}

/// The same for routes that start work: their 202 is either answer.
pub(crate) fn accepts_jobs_or<T: ToSchema>(operation: Operation, text: &str) -> Operation {
    let text = format!(
        "{text}, and its job is durable. With async: the job is durable, and lasts as long as the work"
    );
    let link = "Without async: the job that lasts as long as the work, with rel=\"monitor\"";
    let operation = operation.parameters(parameters()).json_either::<T, Accepted>(202, &text);
    operation.header(202, "Link", link).problems(&[(507, "There is no disk space for the job")])
}

/// Returns the document.
pub(super) fn document() -> OpenApi {
    Routes::new("Forebay jobs")
        .tag(TAG, ABOUT)
        .get("/v1/jobs", list())
        .get(
            "/v1/jobs/stats",
            operation("get_job_stats", "Get counts of the queue").json::<JobStats>(200, "The counts"),
        )
        .get(
            "/v1/jobs/page",
            operation("list_jobs_page", "Get the jobs as a page").words(200, PAGE, "The page"),
        )
        .get(
            "/v1/jobs/{id}",
            named("get_job", "Get a job, and its result")
                .json::<JobAnswer>(200, "The job")
                .problems(&[MISSING, CLOSED]),
        )
        .delete(
            "/v1/jobs/{id}",
            named("delete_job", "Forget a job that has ended")
                .empty(204, "It is forgotten")
                .problems(&[MISSING, (409, "It has not ended"), CLOSED]),
        )
        .post(
            "/v1/jobs/{id}/cancel",
            named("cancel_job", "Cancel a job")
                .json::<JobAnswer>(200, "It waited, and is cancelled")
                .json::<JobAnswer>(202, "It runs, and ends soon; it may still complete")
                .problems(&[MISSING, (409, "It has ended"), CLOSED]),
        )
        .post(
            "/v1/jobs/{id}/requeue",
            named("requeue_job", "Queue a failed job again")
                .json::<JobAnswer>(202, "It waits")
                .problems(&[MISSING, (409, "It did not fail"), (429, "Too many jobs wait"), CLOSED]),
        )
        .get(
            "/v1/jobs/{id}/events",
            named("follow_job", "Follow a job as server-sent events")
                .text(
                    "Events `status` with the number of the change as their id, and `progress`; the data \
                     is that of the job. The stream ends with the job.",
                )
                .sent_events(200, "The events, beginning with the current state")
                .empty(204, "The job has ended, and Last-Event-ID is that of its end")
                .problems(&[MISSING]),
        )
        .post(INGEST_ASYNC, ingest_async())
        .document()
}

fn operation(id: &str, summary: &str) -> Operation {
    Operation::new(TAG, id, summary)
}

fn named(id: &str, summary: &str) -> Operation {
    operation(id, summary).parameter(path("id", "The job's id, 32 hexadecimal digits"))
}

fn ingest_async() -> Operation {
    let [_, priority] = parameters();
    let summary = "Store files and JSON documents later: as POST /v1/ingest with async=true";
    crate::intake::with_form(operation("ingest_async", summary))
        .parameter(priority)
        .json::<Accepted>(202, "The job is durable, and will run")
        .header(202, "Location", "The job's URL path")
        .problems(&[
            (400, "A parameter is invalid, or the body was interrupted"),
            (422, "The Idempotency-Key belongs to another request"),
            (429, "Too many jobs wait"),
            (503, "Storage has failed or is busy; nothing is acknowledged meanwhile"),
            (507, "The disk is full"),
        ])
}

fn list() -> Operation {
    let statuses = Status::ALL.map(Status::name);
    operation("list_jobs", "List jobs, the newest first")
        .parameters([
            query("status", Kind::Word(&statuses), "Only jobs with this status"),
            query("limit", Kind::Count(1, 1_000), "Maximum number of results; the default is 100"),
            query("cursor", Kind::Text, "next_cursor of the previous page"),
        ])
        .json::<JobList>(200, "A page of jobs")
        .problems(&[(400, "A parameter is invalid")])
}
