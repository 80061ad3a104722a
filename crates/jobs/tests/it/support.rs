//! A queue on a simulated disk, and a worker whose effects are seen from outside.

use std::collections::BTreeMap;
use std::future::Future;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use forebay_base::clock::ManualClock;
use forebay_base::fs::FileSystem;
use forebay_base::fs::sim::SimFs;
use forebay_jobs::{
    BodyError, JobId, NewJob, OpenError, Options, Outcome, Priority, Queue, ReceivedBody, Running,
    SubmitError, Submitted, Worker, Workers,
};

pub(crate) const START_MS: u64 = 1_800_000_000_000;

pub(crate) fn clock() -> Arc<ManualClock> {
    Arc::new(ManualClock::new(START_MS))
}

pub(crate) fn options() -> Options {
    Options {
        retry_after: Duration::from_millis(100),
        segment_size: 1 << 20,
        ..Options::new(PathBuf::from("/jobs"))
    }
}

pub(crate) fn open_with(
    disk: &SimFs,
    clock: &Arc<ManualClock>,
    options: Options,
) -> Result<Queue, OpenError> {
    let fs: Arc<dyn FileSystem> = Arc::new(disk.clone());
    Queue::open(fs, clock.clone(), options)
}

pub(crate) fn open(disk: &SimFs, clock: &Arc<ManualClock>) -> Queue {
    open_with(disk, clock, options()).unwrap()
}

pub(crate) fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(future)
}

pub(crate) fn body(queue: &Queue, bytes: &[u8]) -> Result<ReceivedBody, BodyError> {
    let mut body = queue.body();
    for piece in bytes.chunks(50_000) {
        body.write(piece)?;
    }
    body.finish()
}

pub(crate) fn new(order: &str, body: Option<ReceivedBody>) -> NewJob {
    NewJob {
        work: "test".to_owned(),
        priority: Priority::Normal,
        key: None,
        order: order.as_bytes().to_vec(),
        body,
    }
}

pub(crate) async fn submit(queue: &Queue, order: &str) -> Result<Submitted, SubmitError> {
    queue.submit(new(order, None)).await
}

/// What workers did, by job: the number of runs, and the bytes of its body.
pub(crate) type Effects = Arc<Mutex<BTreeMap<JobId, (u32, Vec<u8>)>>>;

/// Reads the body of a job and does what its order says: `ok`, `bad`, `later`, `panic`, `wait`,
/// `finish` when it is stopped.
pub(crate) struct Recorder(pub(crate) Effects);

impl Worker for Recorder {
    fn run(&self, job: Running) -> Pin<Box<dyn Future<Output = Outcome> + Send>> {
        let effects = Arc::clone(&self.0);
        Box::pin(async move {
            let order = String::from_utf8(job.order().to_vec()).unwrap();
            let mut bytes = Vec::new();
            let mut body = match job.body() {
                Ok(body) => body,
                Err(error) => return refused(&error.to_string()),
            };
            loop {
                match body.read_next() {
                    Ok(Some(piece)) => bytes.extend_from_slice(&piece),
                    Ok(None) => break,
                    Err(error) => return refused(&error.to_string()),
                }
            }
            let size = bytes.len();
            {
                let mut effects = effects.lock().unwrap();
                let effect = effects.entry(job.id()).or_default();
                *effect = (effect.0 + 1, bytes);
            }
            match order.split(' ').next().unwrap_or_default() {
                "bad" => refused("it is bad"),
                "later" => Outcome::Again { result: Vec::new(), reason: "not yet".to_owned() },
                "panic" => panic!("as ordered"),
                "wait" => {
                    job.stopped().await;
                    refused("it was stopped")
                }
                "finish" => {
                    job.stopped().await;
                    Outcome::Done(Vec::new())
                }
                _ => Outcome::Done(format!("{order}: {size}").into_bytes()),
            }
        })
    }

    fn is_long(&self, order: &[u8]) -> bool {
        order.ends_with(b"long")
    }
}

fn refused(reason: &str) -> Outcome {
    Outcome::Refused { result: Vec::new(), reason: reason.to_owned() }
}

pub(crate) fn workers() -> (Workers, Effects) {
    let effects = Effects::default();
    (Workers::default().with("test", Arc::new(Recorder(Arc::clone(&effects)))), effects)
}
