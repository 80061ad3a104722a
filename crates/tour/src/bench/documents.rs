//! Measures documents: acknowledged and shown, beside a bare loop over the same rows, by the size of a
//! request, and by the order in which requests are sent.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};

use super::client::{Load, Until, drive};
use super::intake::server;
use super::{Figures, Plan, disk, rows};
use crate::child::Server;

/// Number of documents in a request, and of connections for requests.
const DOCUMENTS_PER_REQUEST: usize = 5_000;
const DOCUMENT_CONNECTIONS: usize = 4;
/// Number of documents in a request of a bulk load: that of the published table.
const BULK: usize = 1_000;
/// Number of documents that are sent singly in a round.
const SINGLES: usize = 1_000;

/// Measures documents acknowledged *and* returned by the next read, and a bare loop over the same
/// rows.
pub(super) fn measure(plan: &Plan, scratch: &Path, figures: &mut Figures) -> anyhow::Result<()> {
    let rows = rows::make(1, plan.documents);
    let bodies: Vec<Vec<u8>> = rows.chunks(DOCUMENTS_PER_REQUEST).map(rows::lines).collect();
    let server = server(&scratch.join("documents"), "sync")?;
    let (mut ours, mut bare) = (Vec::new(), Vec::new());
    for round in 0..plan.rounds {
        bare.push(disk::sqlite_rows_per_s(scratch, &rows)?);
        let namespace = format!("articles-{round}");
        let begun = Instant::now();
        post_documents(&server, &namespace, bodies.clone(), DOCUMENT_CONNECTIONS)?;
        let first = page(&server, &namespace, "limit=1")?;
        let took = begun.elapsed();
        let count = first["count"].as_i64().unwrap_or(0);
        ensure!(count == plan.documents, "{count} of {} documents are shown", plan.documents);
        ensure!(first["target"] == "table", "the documents did not become a table");
        compare_sample(&server, &namespace, &rows)?;
        ours.push(per_second(rows.len(), took));
    }
    batches(&server, &rows, figures)?;
    orders(plan, &server, &rows, figures)?;
    figures.median("documents_per_s", ours);
    figures.median("sqlite_bare_per_s", bare);
    figures.count("documents_read_back", plan.documents.cast_unsigned() * u64::from(plan.rounds));
    server.stop()
}

/// Returns the time of one request with this many documents, one after another on one connection.
fn batches(server: &Server, rows: &[rows::Row], figures: &mut Figures) -> anyhow::Result<()> {
    for size in [1, 10, 100, 1_000] {
        let bodies: Vec<Vec<u8>> = rows.chunks(size).take(100).map(rows::lines).collect();
        let namespace = format!("batches-of-{size}");
        let load = post_documents(server, &namespace, bodies, 1)?;
        figures.add(&format!("documents_batch_{size}_us"), load.percentile_us(0.5));
        let count = page(server, &namespace, "limit=1")?["count"].as_u64();
        let expected = rows.len().min(size * 100) as u64;
        ensure!(count == Some(expected), "{count:?} of {expected} documents are shown");
    }
    Ok(())
}

/// Measures documents acknowledged and returned by the next read: sent singly, in requests one after
/// another, and in the same requests over several connections at once, whose order is not defined.
fn orders(
    plan: &Plan,
    server: &Server,
    rows: &[rows::Row],
    figures: &mut Figures,
) -> anyhow::Result<()> {
    let singles = rows.get(..rows.len().min(SINGLES)).unwrap_or_default();
    let orders = [
        ("single", singles, 1, 1),
        ("ordered", rows, BULK, 1),
        ("unordered", rows, BULK, DOCUMENT_CONNECTIONS),
    ];
    let mut rates = [const { Vec::new() }; 3];
    for round in 0..plan.rounds {
        for (rates, (name, rows, size, connections)) in rates.iter_mut().zip(orders) {
            let bodies = rows.chunks(size).map(rows::lines).collect();
            let namespace = format!("{name}-{round}");
            let begun = Instant::now();
            post_documents(server, &namespace, bodies, connections)?;
            let count = page(server, &namespace, "limit=1")?["count"].as_u64();
            let took = begun.elapsed();
            let expected = rows.len() as u64;
            ensure!(count == Some(expected), "{count:?} of {expected} documents are shown");
            compare_sample(server, &namespace, rows)?;
            rates.push(per_second(rows.len(), took));
        }
    }
    for (rates, (name, ..)) in rates.into_iter().zip(orders) {
        figures.median(&format!("documents_{name}_per_s"), rates);
    }
    Ok(())
}

fn per_second(count: usize, took: Duration) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "a count of documents")]
    let count = count as f64;
    count / took.as_secs_f64()
}

fn post_documents(
    server: &Server,
    namespace: &str,
    bodies: Vec<Vec<u8>>,
    connections: usize,
) -> anyhow::Result<Load> {
    let head = format!("POST /v1/documents/{namespace} HTTP/1.1\r\nhost: localhost\r\n");
    let count = bodies.len() as u64;
    let request = move |number: u64, out: &mut Vec<u8>| {
        let body = usize::try_from(number).ok().and_then(|at| bodies.get(at));
        let body = body.map(Vec::as_slice).unwrap_or_default();
        out.extend_from_slice(head.as_bytes());
        out.extend_from_slice(b"content-type: application/x-ndjson\r\n");
        out.extend_from_slice(format!("content-length: {}\r\n\r\n", body.len()).as_bytes());
        out.extend_from_slice(body);
    };
    let check = |number, status, body: &[u8]| {
        let text = String::from_utf8_lossy(body);
        ensure!(status == 201, "request {number} was answered {status}: {text}");
        Ok(())
    };
    let until = Until::Requests(count);
    drive(server.address(), connections, until, 0, request, check)
}

/// Reads every page and compares the documents with what was sent, as a set.
fn compare_sample(server: &Server, namespace: &str, rows: &[rows::Row]) -> anyhow::Result<()> {
    let mut left: std::collections::HashSet<&str> =
        rows.iter().map(|row| row.text.as_str()).collect();
    let mut query = "limit=1000".to_owned();
    loop {
        let page = page(server, namespace, &query)?;
        for entry in page["documents"].as_array().context("a page has no documents")? {
            let id = entry["document"]["id"].as_i64().context("a document has no id")?;
            let row = usize::try_from(id - 1).ok().and_then(|at| rows.get(at));
            let row = row.with_context(|| format!("document {id} was never sent"))?;
            let sent: serde_json::Value = serde_json::from_str(&row.text)?;
            ensure!(entry["document"] == sent, "document {id} came back altered");
            ensure!(left.remove(row.text.as_str()), "document {id} came back twice");
        }
        match page["next_cursor"].as_str() {
            Some(next) => query = format!("limit=1000&cursor={next}"),
            None => break,
        }
    }
    ensure!(left.is_empty(), "{} documents are missing", left.len());
    Ok(())
}

fn page(server: &Server, namespace: &str, query: &str) -> anyhow::Result<serde_json::Value> {
    let url = format!("http://{}/v1/documents/{namespace}?{query}", server.address());
    let mut response = ureq::get(&url).call().with_context(|| format!("cannot get {url}"))?;
    let body = response.body_mut().with_config().limit(64 << 20).read_to_vec()?;
    serde_json::from_slice(&body).with_context(|| format!("the response of {url} is not JSON"))
}
