//! Errors, by family of operations.

use std::io;
use std::path::PathBuf;

use forebay_log::{AppendError, CommitError, ReadError};

/// Why a queue does not open.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// Another process has it open.
    #[error("the job queue in {} is open in another process", path.display())]
    Locked {
        /// Its directory.
        path: PathBuf,
    },
    /// The device failed.
    #[error("cannot {act} {}", path.display())]
    Io {
        /// What was attempted.
        act: &'static str,
        /// On what.
        path: PathBuf,
        /// What the device said.
        #[source]
        source: io::Error,
    },
    /// The log does not open.
    #[error("cannot open the log of the job queue")]
    Log(#[source] forebay_log::OpenError),
    /// The log cannot be read.
    #[error("cannot read the log of the job queue")]
    Read(#[source] ReadError),
    /// An entry is none of a job queue.
    #[error("the log entry at {lsn} of the job queue is damaged: {reason}")]
    Entry {
        /// Its position.
        lsn: u64,
        /// What is wrong with it.
        reason: &'static str,
    },
}

/// Why a job was not accepted.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SubmitError {
    /// Too many jobs wait.
    #[error("{waiting} jobs are waiting, the limit is {max}")]
    Full {
        /// Number of jobs that wait.
        waiting: usize,
        /// The limit.
        max: usize,
    },
    /// The key was used for another request.
    #[error("the key was used for another request, that of job {job}")]
    KeyReused {
        /// The job of the other request.
        job: crate::JobId,
    },
    /// An order is too large.
    #[error("the order has {size} bytes, the limit is {max}")]
    TooLarge {
        /// Its size in bytes.
        size: usize,
        /// The limit.
        max: usize,
    },
    /// Too many jobs run beside the workers.
    #[error("{running} jobs run beside the workers, the limit is {max}")]
    TooManyAdopted {
        /// Number of those jobs.
        running: usize,
        /// The limit.
        max: usize,
    },
    /// The queue is being closed.
    #[error("the job queue is closed")]
    Closed,
    /// The log does not take it.
    #[error("cannot store the job")]
    Append(#[source] AppendError),
    /// Whether it is stored is unknown until the queue is opened again.
    #[error("cannot store the job")]
    Commit(#[source] CommitError),
}

/// Why something could not be done with a job.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum JobError {
    /// There is no such job.
    #[error("no job has the id {0}; ended jobs are forgotten after some time")]
    Unknown(crate::JobId),
    /// Its status does not permit it.
    #[error("job {id} is {status}; {needed}")]
    Status {
        /// The job.
        id: crate::JobId,
        /// Its status.
        status: &'static str,
        /// What would permit it.
        needed: &'static str,
    },
    /// Too many jobs wait.
    #[error("{waiting} jobs are waiting, the limit is {max}")]
    Full {
        /// Number of jobs that wait.
        waiting: usize,
        /// The limit.
        max: usize,
    },
    /// The queue is being closed.
    #[error("the job queue is closed")]
    Closed,
    /// The log does not take the change.
    #[error("cannot record a change of job {id}")]
    Append {
        /// The job.
        id: crate::JobId,
        /// Why not.
        #[source]
        source: AppendError,
    },
    /// Whether the change is stored is unknown until the queue is opened again.
    #[error("cannot record a change of job {id}")]
    Commit {
        /// The job.
        id: crate::JobId,
        /// Why not.
        #[source]
        source: CommitError,
    },
    /// What was stored with the job cannot be read.
    #[error("cannot read what is stored of job {id}")]
    Read {
        /// The job.
        id: crate::JobId,
        /// Why not.
        #[source]
        source: ReadError,
    },
    /// The log cannot be followed.
    #[error("cannot read the log of the job queue at {position}")]
    Follow {
        /// The position.
        position: u64,
        /// Why not.
        #[source]
        source: ReadError,
    },
    /// An entry is none of a job queue.
    #[error("the log entry at {position} of the job queue is damaged: {reason}")]
    Entry {
        /// Its position.
        position: u64,
        /// What is wrong with it.
        reason: &'static str,
    },
}

/// Why a body cannot be written or read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BodyError {
    /// All bodies together would be too large.
    #[error("the bodies of jobs would exceed {max} bytes")]
    Full {
        /// The limit.
        max: u64,
    },
    /// The device failed.
    #[error("cannot {act} the body of a job")]
    Io {
        /// What was attempted.
        act: &'static str,
        /// What the device said.
        #[source]
        source: io::Error,
    },
    /// The body differs from what was stored.
    #[error("the stored body of the job is damaged: {found}")]
    Damaged {
        /// What was found.
        found: String,
    },
    /// The log cannot be read.
    #[error("cannot read the body of a job")]
    Read(#[source] ReadError),
}
