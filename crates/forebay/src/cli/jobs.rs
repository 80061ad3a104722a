//! `forebay jobs`: the jobs of a running server.

use std::time::Instant;

use anyhow::bail;
use forebay_base::duration::HumanDuration;
use serde_json::Value;

use super::server::{Server, ServerArgs, hex_id, parsed};
use crate::exit::Exit;
use crate::out;

const AFTER_HELP: &str = "\
Examples:
  curl -T big.iso \"http://127.0.0.1:8090/v1/files/images/big.iso?async=true\"
  forebay jobs ls --status failed
  forebay jobs wait 0199f3c2a5d07b12a3c4d5e6f7a8b9c0 --timeout 10m
  forebay jobs requeue 0199f3c2a5d07b12a3c4d5e6f7a8b9c0

Exit codes: 0 success, and for show and wait: the job has not failed; 1 the job failed or was
cancelled, it did not end in time, there is no such job, or the server did not answer.";

#[derive(clap::Subcommand, Debug)]
#[command(after_help = AFTER_HELP)]
pub(super) enum Command {
    /// List jobs, the newest first.
    Ls(ListArgs),
    /// Print a job, and its result.
    Show(JobArgs),
    /// Wait until a job has ended, and print it.
    Wait(WaitArgs),
    /// Cancel a job that waits or runs.
    Cancel(JobArgs),
    /// Queue a failed job again.
    Requeue(JobArgs),
    /// Forget a job that has ended.
    Rm(JobArgs),
    /// Print counts of the queue.
    Stats(ServerArgs),
}

#[derive(clap::Args, Debug)]
pub(super) struct ListArgs {
    /// Only jobs with this status.
    #[arg(long, value_parser = ["queued", "running", "completed", "failed", "cancelled"])]
    status: Option<String>,
    /// Maximum number of jobs.
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    limit: u32,
    #[command(flatten)]
    from: ServerArgs,
}

#[derive(clap::Args, Debug)]
pub(super) struct JobArgs {
    /// Id of the job.
    #[arg(value_parser = hex_id)]
    job: String,
    #[command(flatten)]
    from: ServerArgs,
}

#[derive(clap::Args, Debug)]
pub(super) struct WaitArgs {
    /// Id of the job.
    #[arg(value_parser = hex_id)]
    job: String,
    /// Maximum time to wait.
    #[arg(long, value_name = "DURATION")]
    timeout: Option<HumanDuration>,
    #[command(flatten)]
    from: ServerArgs,
}

pub(super) fn run(command: &Command) -> anyhow::Result<Exit> {
    match command {
        Command::Ls(args) => list(args),
        Command::Show(args) => {
            let job = ask(&args.from, |server| server.get(&path(&args.job), JSON))?;
            print(&args.from, &job)
        }
        Command::Wait(args) => wait(args),
        Command::Cancel(args) => {
            let job =
                ask(&args.from, |server| server.post(&format!("{}/cancel", path(&args.job))))?;
            print(&args.from, &job).map(|_| Exit::Ok)
        }
        Command::Requeue(args) => {
            let job =
                ask(&args.from, |server| server.post(&format!("{}/requeue", path(&args.job))))?;
            print(&args.from, &job)
        }
        Command::Rm(args) => {
            let target = path(&args.job);
            Server::new(&args.from.server, args.from.key.as_deref(), &target)?.delete(&target)?;
            Ok(Exit::Ok)
        }
        Command::Stats(from) => stats(from),
    }
}

const JSON: &str = "application/json";
/// Maximum number of characters of an error in a list.
const ERROR_CHARS_MAX: usize = 120;

fn path(job: &str) -> String {
    format!("/v1/jobs/{job}")
}

/// Asks the server for JSON.
fn ask(
    from: &ServerArgs,
    ask: impl Fn(&Server<'_>) -> anyhow::Result<String>,
) -> anyhow::Result<Value> {
    let server = Server::new(&from.server, from.key.as_deref(), "/v1/jobs")?;
    parsed(&server, &ask(&server)?)
}

fn list(args: &ListArgs) -> anyhow::Result<Exit> {
    let status = args.status.as_ref().map(|status| format!("&status={status}")).unwrap_or_default();
    let target = format!("/v1/jobs?limit={}{status}", args.limit);
    let found = ask(&args.from, |server| server.get(&target, JSON))?;
    if args.from.json {
        out::json(&found)?;
        return Ok(Exit::Ok);
    }
    for job in found["jobs"].as_array().into_iter().flatten() {
        out::line(summary(job))?;
    }
    if !found["next_cursor"].is_null() {
        out::note("there are more jobs; --limit lists up to 1000");
    }
    Ok(Exit::Ok)
}

/// A job on one line.
fn summary(job: &Value) -> String {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let (method, target) = (text(&job["request"]["method"]), text(&job["request"]["target"]));
    let error = job["error"].as_str().map(|error| {
        let start: String = error.chars().take(ERROR_CHARS_MAX).collect();
        format!("  {}{}", start.escape_debug(), if start.len() < error.len() { "..." } else { "" })
    });
    format!(
        "{}  {:<9}  {:<20}  {method} {}{}",
        text(&job["job_id"]),
        text(&job["status"]),
        time(&job["submitted_at_ms"]),
        target.escape_debug(),
        error.unwrap_or_default()
    )
}

fn time(ms: &Value) -> String {
    let at = ms.as_i64().and_then(|ms| jiff::Timestamp::from_millisecond(ms).ok());
    at.map_or_else(|| "-".to_owned(), |at| format!("{at:.0}"))
}

/// Prints a job; its failure is that of the command.
fn print(from: &ServerArgs, job: &Value) -> anyhow::Result<Exit> {
    if from.json {
        out::json(job)?;
    } else {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let (method, target) = (text(&job["request"]["method"]), text(&job["request"]["target"]));
        out::line(format!("job        {}", text(&job["job_id"])))?;
        out::line(format!("status     {}", text(&job["status"])))?;
        out::line(format!("request    {method} {}", target.escape_debug()))?;
        out::line(format!("priority   {}", text(&job["priority"])))?;
        out::line(format!("attempts   {}", job["attempts"]))?;
        out::line(format!("submitted  {}", time(&job["submitted_at_ms"])))?;
        out::line(format!("ended      {}", time(&job["ended_at_ms"])))?;
        if let Some(progress) = job["progress"].as_object() {
            out::line(format!(
                "progress   {} of {} bytes",
                progress["bytes_done"], progress["bytes_total"]
            ))?;
        }
        if let Some(error) = job["error"].as_str() {
            out::line(format!("error      {}", error.escape_debug()))?;
        }
        if !job["result"].is_null() {
            out::line(format!("result     {}", job["result"]))?;
        }
    }
    let failed = matches!(job["status"].as_str(), Some("failed" | "cancelled"));
    Ok(if failed { Exit::Failed } else { Exit::Ok })
}

fn wait(args: &WaitArgs) -> anyhow::Result<Exit> {
    let deadline = args.timeout.and_then(|timeout| Instant::now().checked_add(timeout.get()));
    loop {
        let job = ask(&args.from, |server| server.get(&path(&args.job), JSON))?;
        if !matches!(job["status"].as_str(), Some("queued" | "running")) {
            return print(&args.from, &job);
        }
        // The stream of its events ends with the job.
        let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        let server = Server::new(&args.from.server, args.from.key.as_deref(), "/v1/jobs")?;
        let in_time = left.is_none_or(|left| !left.is_zero())
            && server.outlast(&format!("{}/events", path(&args.job)), left)?;
        if !in_time {
            bail!("job {} has not ended: it is {}", args.job, job["status"]);
        }
    }
}

fn stats(from: &ServerArgs) -> anyhow::Result<Exit> {
    let stats = ask(from, |server| server.get("/v1/jobs/stats", JSON))?;
    if from.json {
        out::json(&stats)?;
        return Ok(Exit::Ok);
    }
    for (name, value) in stats.as_object().into_iter().flatten() {
        out::line(format!("{name:<24} {value}"))?;
    }
    Ok(Exit::Ok)
}
