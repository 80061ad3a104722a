//! Measures jobs: how soon one is accepted over HTTP, and how many a queue runs whose work is nothing.
//!
//! Every figure counts only jobs that have ended: those accepted over HTTP are waited for and the files they
//! store are counted; the worker of the queue counts what it was given.

use std::cell::RefCell;
use std::path::Path;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use forebay_base::clock::SystemClock;
use forebay_base::fs::RealFs;
use forebay_jobs::{NewJob, Options, Outcome, Priority, Queue, Running, Status, Worker, Workers};

use super::client::{Until, drive};
use super::{Figures, Plan, disk};
use crate::child::Server;

/// Jobs accepted over HTTP in a round.
const ACCEPTED: u64 = 2_000;
/// Jobs of a queue in a round, and tasks that submit them.
const NOTHINGS: u64 = 50_000;
const SUBMITTERS: u64 = 256;
/// How long jobs may take to end.
const ENDED_LIMIT: Duration = Duration::from_secs(300);

/// Measures everything.
pub(super) fn measure(plan: &Plan, scratch: &Path, figures: &mut Figures) -> anyhow::Result<()> {
    let (mut accepted, mut flushes) = (Vec::new(), Vec::new());
    let (mut rates, mut submissions) = (Vec::new(), Vec::new());
    for round in 0..plan.rounds {
        flushes.push(1e6 / disk::serial_appends_per_s(scratch, plan.lasting / 4)?);
        accepted.push(accept(&scratch.join(format!("jobs-{round}")), plan)?);
        let (rate, submission_ns) = nothings(&scratch.join(format!("nothings-{round}")))?;
        rates.push(rate);
        submissions.push(submission_ns);
    }
    figures.median("fdatasync_us", flushes);
    figures.median("job_accepted_p50_us", accepted);
    figures.median("job_submission_ns", submissions);
    figures.median("noop_jobs_per_s", rates);
    Ok(())
}

/// Returns the median time in microseconds until the upload of a small file is accepted as a job.
fn accept(data: &Path, plan: &Plan) -> anyhow::Result<f64> {
    let most = format!("jobs.queued_max={}", 2 * ACCEPTED);
    let args = ["serve", "--log", "warn", "--durability", "sync", "--set", &most];
    let server = Server::start(&args, data, &data.with_extension("log"))?;
    let request = |number: u64, out: &mut Vec<u8>| {
        let line = format!("PUT /v1/files/jobs/{number:016x}?async=true HTTP/1.1\r\n");
        out.extend_from_slice(line.as_bytes());
        out.extend_from_slice(b"host: localhost\r\ncontent-length: 64\r\n\r\n");
        out.extend_from_slice(format!("{number:064}").as_bytes());
    };
    let ids = Rc::new(RefCell::new(Vec::new()));
    let found = ids.clone();
    let check = move |number, status, body: &[u8]| {
        let text = String::from_utf8_lossy(body);
        ensure!(status == 202, "job {number} was answered {status}: {text}");
        let job: serde_json::Value = serde_json::from_slice(body)?;
        let id = job["job_id"].as_str().with_context(|| format!("a job without an id: {text}"))?;
        found.borrow_mut().push(id.to_owned());
        Ok(())
    };
    let until = Until::Requests(ACCEPTED);
    let load = drive(server.address(), plan.connections, until, 0, request, check)?;
    ensure!(load.done == ACCEPTED, "{} of {ACCEPTED} jobs were accepted", load.done);
    for id in ids.borrow().iter() {
        // The stream ends with the job.
        let url = format!("http://{}/v1/jobs/{id}/events", server.address());
        let mut response = ureq::get(&url).call().with_context(|| format!("cannot get {url}"))?;
        let events = response.body_mut().read_to_string()?;
        let last = events.rsplit("data: ").next().unwrap_or_default();
        ensure!(last.contains("\"status\":\"completed\""), "a job ended otherwise: {last}");
    }
    server.stop()?;
    std::fs::remove_dir_all(data).context("cannot remove an emptied store")?;
    Ok(load.percentile_us(0.5))
}

/// Counts the jobs it is given.
struct Nothing(Arc<AtomicU64>);

impl Worker for Nothing {
    fn run(&self, _job: Running) -> Pin<Box<dyn Future<Output = Outcome> + Send>> {
        self.0.fetch_add(1, Ordering::Relaxed);
        Box::pin(std::future::ready(Outcome::Done(Vec::new())))
    }
}

/// Returns the number of jobs a second from their durable submission to their durable end, and the time
/// for each submission alone, in nanoseconds.
fn nothings(dir: &Path) -> anyhow::Result<(f64, f64)> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let mut options = Options::new(dir.to_owned());
    options.queued_max = usize::try_from(NOTHINGS)?;
    options.ended_max = usize::try_from(2 * NOTHINGS)?;
    let (fs, clock) = (Arc::new(RealFs), Arc::new(SystemClock::new()));
    let queue = Queue::open(fs, clock, options).context("cannot open a queue of jobs")?;
    let ran = Arc::new(AtomicU64::new(0));
    let measured = runtime.block_on(async {
        queue.start(Workers::default().with("nothing", Arc::new(Nothing(ran.clone()))));
        let mut changes = queue.changes();
        let begun = Instant::now();
        let mut submitters = tokio::task::JoinSet::new();
        for _ in 0..SUBMITTERS {
            let queue = queue.clone();
            submitters.spawn(async move {
                for _ in 0..NOTHINGS / SUBMITTERS {
                    let new = NewJob {
                        work: "nothing".to_owned(),
                        priority: Priority::Normal,
                        key: None,
                        order: Vec::new(),
                        body: None,
                    };
                    queue.submit(new).await.context("a job was refused")?;
                }
                anyhow::Ok(())
            });
        }
        while let Some(submitted) = submitters.join_next().await {
            submitted.context("a submitter panicked")??;
        }
        let submitted = begun.elapsed();
        let count = NOTHINGS / SUBMITTERS * SUBMITTERS;
        let completed = Status::ALL.iter().position(|status| *status == Status::Completed);
        let Some(completed) = completed else { bail!("there is no status of completed jobs") };
        while queue.stats().by_status[completed] as u64 != count {
            // Whether some of the news was missed makes no difference.
            let news = tokio::time::timeout(ENDED_LIMIT, changes.recv()).await;
            ensure!(news.is_ok(), "jobs have not ended: {:?}", queue.stats());
        }
        let took = begun.elapsed();
        let found = ran.load(Ordering::Relaxed);
        ensure!(found == count, "{found} jobs ran instead of {count}");
        queue.close(Duration::from_secs(10)).await.context("cannot close the queue")?;
        #[expect(clippy::cast_precision_loss, reason = "a count of jobs")]
        let count = count as f64;
        Ok((count / took.as_secs_f64(), submitted.as_secs_f64() * 1e9 / count))
    })?;
    std::fs::remove_dir_all(dir).context("cannot remove the queue")?;
    Ok(measured)
}
