//! Measures what the description of the earlier system has tables of: workers, files in a batch, and how soon a
//! request is answered whose work is done later.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};

use super::client::{Load, Until, drive};
use super::intake::{put, read_back, server};
use super::{Figures, Plan};
use crate::child::Server;

/// Numbers of workers in the table.
const WORKERS: [usize; 4] = [1, 5, 10, 20];
/// Numbers of files in a batch, and how many batches are sent of each.
const BATCHES: [(u64, u64); 4] = [(1, 200), (10, 100), (100, 30), (1_000, 10)];
/// Size of a file of a batch.
const FILE_SIZE: usize = 1_024;
/// Sizes of the uploads that are answered at once, and of which only the acceptance is waited for.
const SIZES: [(&str, usize); 2] = [("1m", 1 << 20), ("100m", 100 << 20)];
/// How long a job may take to end.
const ENDED_LIMIT: Duration = Duration::from_secs(120);

pub(super) fn measure(plan: &Plan, scratch: &Path, figures: &mut Figures) -> anyhow::Result<()> {
    workers(plan, scratch, figures)?;
    let data = scratch.join("published");
    let server = server(&data, "sync")?;
    for (size, count) in BATCHES {
        let load = batches(&server, size, count)?;
        #[expect(clippy::cast_precision_loss, reason = "a count of files")]
        let each = load.percentile_us(0.5) / size as f64;
        figures.add(&format!("ingest_batch_{size}_item_us"), each);
    }
    for (name, size) in SIZES {
        let (mut done, mut accepted) = (Vec::new(), Vec::new());
        for round in 0..plan.rounds {
            done.push(upload(&server, &format!("{name}-{round}"), size, false)?);
            accepted.push(upload(&server, &format!("{name}-{round}-later"), size, true)?);
        }
        figures.median(&format!("put_{name}_response_us"), done);
        figures.median(&format!("put_{name}_async_response_us"), accepted);
    }
    server.stop()
}

/// Durable uploads a second by the number of connections that send them.
fn workers(plan: &Plan, scratch: &Path, figures: &mut Figures) -> anyhow::Result<()> {
    let mut rates = [const { Vec::new() }; WORKERS.len()];
    for round in 0..plan.rounds {
        for (rates, connections) in rates.iter_mut().zip(WORKERS) {
            let plan = Plan { connections, ..plan.clone() };
            let data = scratch.join(format!("workers-{connections}-{round}"));
            let server = server(&data, "sync")?;
            let load = put(&server, &plan, Until::Elapsed(plan.lasting / 2), 0)?;
            read_back(&server, &plan, 0, load.done)?;
            rates.push(load.per_second());
            server.stop()?;
            std::fs::remove_dir_all(&data).context("cannot remove an emptied store")?;
        }
    }
    for (rates, connections) in rates.into_iter().zip(WORKERS) {
        figures.median(&format!("put_4k_{connections}_workers_per_s"), rates);
    }
    Ok(())
}

/// Sends batches of files one after another.
fn batches(server: &Server, size: u64, count: u64) -> anyhow::Result<Load> {
    let request = move |number: u64, out: &mut Vec<u8>| {
        let mut body =
            b"--part\r\ncontent-disposition: form-data; name=\"namespace\"\r\n\r\nbatches\r\n"
                .to_vec();
        for at in 0..size {
            let name = format!("{size}-{number}-{at}");
            let head = format!(
                "--part\r\ncontent-disposition: form-data; name=\"file\"; filename=\"{name}\"\r\n\
                 content-type: application/octet-stream\r\n\r\n"
            );
            body.extend_from_slice(head.as_bytes());
            body.extend_from_slice(format!("{name:0>FILE_SIZE$}").as_bytes());
            body.extend_from_slice(b"\r\n");
        }
        body.extend_from_slice(b"--part--\r\n");
        let head = format!(
            "POST /v1/ingest HTTP/1.1\r\nhost: localhost\r\n\
             content-type: multipart/form-data; boundary=part\r\ncontent-length: {}\r\n\r\n",
            body.len()
        );
        out.extend_from_slice(head.as_bytes());
        out.extend_from_slice(&body);
    };
    let check = |number, status, body: &[u8]| {
        let text = String::from_utf8_lossy(body);
        ensure!(status == 201, "batch {number} was answered {status}: {text}");
        Ok(())
    };
    let load = drive(server.address(), 1, Until::Requests(count), 0, request, check)?;
    for number in [0, count - 1] {
        let name = format!("{size}-{number}-{}", size - 1);
        let url = format!("http://{}/v1/files/batches/{name}", server.address());
        let found = ureq::get(&url).call().context("cannot read a file of a batch")?;
        let found = found.into_body().read_to_string().context("cannot read a file of a batch")?;
        ensure!(found == format!("{name:0>FILE_SIZE$}"), "a file of a batch came back altered");
    }
    Ok(load)
}

/// Uploads a file, and returns the time until the response in microseconds.
fn upload(server: &Server, name: &str, size: usize, is_async: bool) -> anyhow::Result<f64> {
    let mut body = vec![0x5A; size];
    let (start, _) = body.split_at_mut(name.len().min(size));
    start.copy_from_slice(name.as_bytes().get(..start.len()).unwrap_or_default());
    let url = format!("http://{}/v1/files/later/{name}", server.address());
    let query = if is_async { "?async=true" } else { "" };
    let begun = Instant::now();
    let mut response =
        ureq::put(&format!("{url}{query}")).send(&body).context("an upload was refused")?;
    let took = begun.elapsed();
    if is_async {
        let job: serde_json::Value = serde_json::from_str(&response.body_mut().read_to_string()?)?;
        let id = job["job_id"].as_str().context("a job has no id")?;
        // The stream of its events ends with the job.
        let events = format!("http://{}/v1/jobs/{id}/events", server.address());
        let config = ureq::get(&events).config().timeout_global(Some(ENDED_LIMIT)).build();
        let ended = config.call().context("cannot follow a job")?;
        let ended = ended.into_body().read_to_string().context("cannot follow a job")?;
        ensure!(ended.contains("\"status\":\"completed\""), "a job did not end well: {ended}");
    }
    let found = ureq::get(&url).call().context("cannot read a file back")?;
    let found = found.into_body().with_config().limit(u64::MAX).read_to_vec()?;
    ensure!(found == body, "{name} came back altered");
    Ok(took.as_secs_f64() * 1e6)
}
