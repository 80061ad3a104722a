//! A durable queue of jobs: accepted once stored, run at least once, known until forgotten.
//!
//! ```text
//! submit(NewJob) -> id          durable; a worker takes it by priority
//! adopt(NewJob, Worker) -> id   durable; its work has begun already, and the worker waits for its end
//! worker.run(Running) -> Outcome    done, refused, or again after a delay
//! job(id), list, cancel, requeue    what people and programs do with jobs
//! ```
//!
//! The log is the only truth (`docs/formats/jobs-log.md`): what is in memory is made from it when a queue
//! is opened. A job that was running when the process ended runs again, so the effect of a worker must
//! happen once whatever the number of times it runs; the id of the job is what it can recognise it by.
//!
//! From the bottom: `id`, `format` (log entries), `body` (what a job was submitted with), `table` (jobs in
//! memory, and whose turn it is), `transitions` (how they change), `adopt` (work that has begun already), `queue` (what callers
//! use), `workers` (runs jobs), `shorten` (forgets and truncates the log), `check` (reads a queue that is
//! not open).
//!
//! This crate deliberately knows no HTTP, reads no configuration, and has no kind of work of its own.
#![deny(missing_docs, clippy::unwrap_used)]
#![cfg_attr(test, allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test"))]

mod adopt;
mod arrivals;
mod body;
mod check;
mod close;
mod endings;
pub mod error;
mod format;
#[cfg(feature = "fuzzing")]
pub mod fuzzing;
mod id;
mod image;
mod options;
mod outcomes;
mod queue;
mod replay;
mod shorten;
mod status;
mod table;
mod transitions;
mod workers;

pub use body::{BodyReader, BodyWriter, INLINE_SIZE_MAX, ReceivedBody};
pub use check::{Checked, check};
pub use endings::{Ending, Endings};
pub use forebay_log::CommitError;

pub use error::{BodyError, JobError, OpenError, SubmitError};
pub use id::JobId;
pub use image::QueueImageError;
pub use options::Options;
pub use queue::{Change, Filter, JobView, NewJob, Queue, Stats, Submitted};
pub use status::{Priority, Status};
pub use workers::{Outcome, Progress, Running, Worker, Workers};
