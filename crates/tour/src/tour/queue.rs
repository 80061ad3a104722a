//! The chapter about jobs and uploads: some are accepted at once and run later, one arrives in two parts, with a
//! kill in between.

use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use forebay_console::interrupt::Interrupt;
use serde_json::{Value, json};

use super::HANGS_AFTER;
use super::client::{Connection, Request};
use super::report::{Report, rate};
use super::resumed;
use crate::child::Server;

/// Interval between checks whether a job has ended.
const POLL_INTERVAL: Duration = Duration::from_millis(1);
/// Number of uploads.
const UPLOADS: u16 = 300;

/// What the chapter needs.
pub(super) struct Chapter<'a> {
    pub(super) interrupt: &'a Interrupt,
    pub(super) start: &'a dyn Fn() -> anyhow::Result<Server>,
}

/// An upload that was accepted as a job.
struct Accepted {
    job: String,
    path: String,
    bytes: Vec<u8>,
}

impl Chapter<'_> {
    /// Runs the chapter; returns the server that is running at the end.
    pub(super) fn run(&self, report: &mut Report, server: Server) -> anyhow::Result<Server> {
        report.chapter("Jobs and uploads")?;
        let mut connection = Connection::new(server.address());
        let begun = Instant::now();
        let accepted: Vec<Accepted> =
            (0..UPLOADS).map(|number| submit(&mut connection, number)).collect::<Result<_, _>>()?;
        let took = begun.elapsed();
        let begun = resumed::begin(&mut connection)?;
        // Right after the last acceptance: jobs are waiting and running.
        server.kill()?;
        report.line(format_args!(
            "  {UPLOADS} uploads accepted as jobs, {:.0} a second, each once it was durable, and half of a further \
             upload; SIGKILL",
            rate(f64::from(UPLOADS), took)
        ))?;
        let server = (self.start)()?;
        let mut connection = Connection::new(server.address());
        let mut problems = Vec::new();
        for job in &accepted {
            self.interrupt.check()?;
            if let Some(problem) = self.check(&mut connection, job)? {
                problems.push(problem);
            }
        }
        report.line(format_args!(
            "  after the restart: {} of {UPLOADS} jobs completed, and their files read back byte for byte",
            usize::from(UPLOADS) - problems.len()
        ))?;
        let resumed = resumed::finish(&mut connection, &begun, self.interrupt)?;
        report.line(format_args!(
            "  the upload continued at {} of {} bytes, read back, and found by a word in it",
            resumed.kept, resumed.size
        ))?;
        problems.extend(resumed.problem);
        report.section(
            "jobs",
            json!({ "accepted": UPLOADS, "upload_kept_bytes": resumed.kept, "problems": problems.len() }),
        );
        report.problems.append(&mut problems);
        Ok(server)
    }

    /// Waits until a job has ended, and compares its file.
    fn check(&self, connection: &mut Connection, job: &Accepted) -> anyhow::Result<Option<String>> {
        let ended = wait(connection, &format!("/v1/jobs/{}", job.job), self.interrupt)?;
        if ended["status"] != "completed" {
            return Ok(Some(format!("job {}: {ended}", job.job)));
        }
        let answer = connection.ask(Request::get(&job.path)).context("cannot read a file")?;
        if answer.status == 200 && answer.body == job.bytes {
            return Ok(None);
        }
        Ok(Some(format!("{}: the file of job {} differs: {}", job.path, job.job, answer.status)))
    }
}

fn submit(connection: &mut Connection, number: u16) -> anyhow::Result<Accepted> {
    let path = format!("/v1/files/tour-jobs/{number:04}.txt");
    let bytes =
        format!("upload {number} of the tour\n").into_bytes().repeat(1 + usize::from(number) % 50);
    let target = format!("{path}?async=true");
    let request = Request { method: "PUT", path: &target, headers: &[], body: &bytes };
    let answer = connection.ask(request).context("cannot submit a job")?;
    ensure!(answer.status == 202, "an upload was not accepted as a job: {}", answer.describe());
    let job: Value = serde_json::from_slice(&answer.body).context("the answer is not JSON")?;
    let job = job["job_id"].as_str().context("the answer names no job")?.to_owned();
    Ok(Accepted { job, path, bytes })
}

/// Waits until the job at a path has ended; returns it.
pub(super) fn wait(
    connection: &mut Connection,
    path: &str,
    interrupt: &Interrupt,
) -> anyhow::Result<Value> {
    let deadline = Instant::now() + HANGS_AFTER;
    loop {
        interrupt.check()?;
        let answer = connection.ask(Request::get(path)).context("cannot look at a job")?;
        ensure!(answer.status == 200, "{path} is not known: {}", answer.describe());
        let job: Value =
            serde_json::from_slice(&answer.body).context("the answer about a job is not JSON")?;
        if !matches!(job["status"].as_str(), Some("queued" | "running")) {
            return Ok(job);
        }
        ensure!(Instant::now() < deadline, "{path} does not end");
        std::thread::park_timeout(POLL_INTERVAL);
    }
}
