//! Jobs of a running server: what is accepted runs to its end, once, whatever kills the server.

use std::collections::BTreeMap;
use std::sync::mpsc::{Sender, channel};
use std::time::Instant;

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::{HANG, Sent, Server, agent, run, run_ok};

const CLIENTS: usize = 4;
const ROUNDS: usize = 3;
/// Documents of a request.
const DOCUMENTS: usize = 3;

/// The status and the JSON of an answer.
pub(crate) fn read(sent: Sent) -> (u16, Value) {
    let mut answer = sent.unwrap();
    let text = answer.body_mut().read_to_string().unwrap();
    (answer.status().as_u16(), serde_json::from_str(&text).unwrap_or(Value::String(text)))
}

/// Waits until a job has ended, and returns it.
pub(crate) fn ended(url: &str, job: &str) -> Value {
    let deadline = Instant::now() + HANG;
    let mut seen = None;
    // The stream ends with the job; it is opened again if the server closed it.
    while Instant::now() < deadline {
        let events = agent().get(format!("{url}/v1/jobs/{job}/events")).call();
        let text = events.unwrap().body_mut().read_to_string().unwrap();
        let last = text.lines().rev().find_map(|line| line.strip_prefix("data: ")).unwrap();
        let job: Value = serde_json::from_str(last).unwrap();
        if !matches!(job["status"].as_str(), Some("queued" | "running")) {
            return job;
        }
        seen = Some(job);
    }
    panic!("{job} has not ended: {seen:?}");
}

/// Submits a request that must be accepted; returns the job's id.
fn submit(url: &str, method: &str, target: &str, body: &[u8]) -> String {
    let target = format!("{url}{target}");
    let sent = match method {
        "PUT" => agent().put(&target).send(body),
        _ => agent().post(&target).send(body),
    };
    let (status, answer) = read(sent);
    assert_eq!(status, 202, "{answer}");
    assert_eq!(answer["url"], format!("/v1/jobs/{}", answer["job_id"].as_str().unwrap()));
    answer["job_id"].as_str().unwrap().to_owned()
}

/// What a client knows: jobs and what they were submitted with.
#[derive(Debug, Default)]
struct Accepted {
    files: Vec<(String, String, Vec<u8>)>,
    documents: Vec<(String, usize)>,
    /// Numbers of documents in requests that were sent; a killed server may have accepted the last.
    sent: usize,
}

fn load(client: usize, url: &str, accepted: &mut Accepted, acks: &Sender<()>) {
    let agent = agent();
    let job = |sent: Sent| {
        let answer = sent.ok().filter(|answer| answer.status() == 202)?;
        let text = answer.into_body().read_to_string().ok()?;
        let answer: Value = serde_json::from_str(&text).ok()?;
        Some(answer["job_id"].as_str()?.to_owned())
    };
    loop {
        let number = accepted.sent;
        accepted.sent += 1;
        let done = if number.is_multiple_of(3) {
            let name = format!("client-{client}/{number}");
            let bytes = format!("{name} ").into_bytes().repeat(1 + number % 7 * 2_000);
            let target = format!("{url}/v1/files/{name}?async=true");
            job(agent.put(target).send(&bytes[..])).map(|job| {
                accepted.files.push((job, name, bytes));
            })
        } else {
            let lines: Vec<String> = (0..DOCUMENTS)
                .map(|at| json!({ "id": number * DOCUMENTS + at, "client": client }).to_string())
                .collect();
            let target = format!("{url}/v1/documents/client-{client}?async=true&target=table");
            job(agent.post(target).send(lines.join("\n").as_bytes())).map(|job| {
                accepted.documents.push((job, number));
            })
        };
        if done.is_none() || acks.send(()).is_err() {
            return;
        }
    }
}

/// How often each document of a client is stored, by its number.
fn stored(url: &str, client: usize) -> BTreeMap<u64, usize> {
    let (mut counts, mut cursor) = (BTreeMap::new(), String::new());
    loop {
        let page = format!("{url}/v1/documents/client-{client}?limit=1000{cursor}");
        let (status, page) = read(agent().get(page).call());
        if status == 404 {
            return counts;
        }
        for document in page["documents"].as_array().unwrap() {
            *counts.entry(document["document"]["id"].as_u64().unwrap()).or_default() += 1;
        }
        match page["next_cursor"].as_str() {
            Some(next) => cursor = format!("&cursor={next}"),
            None => return counts,
        }
    }
}

#[test]
fn accepted_jobs_run_to_their_end_once_though_the_server_is_killed() {
    let dir = tempfile::tempdir().unwrap();
    let settings = ["--set", "jobs.queued_max=100000", "--set", "jobs.workers=4"];
    let mut clients: Vec<Accepted> = (0..CLIENTS).map(|_| Accepted::default()).collect();
    for round in 0..ROUNDS {
        let server = Server::start(&dir, &settings);
        let (acks, acked) = channel();
        std::thread::scope(|scope| {
            for (client, accepted) in clients.iter_mut().enumerate() {
                let (url, acks) = (server.url.clone(), acks.clone());
                scope.spawn(move || load(client, &url, accepted, &acks));
            }
            drop(acks);
            for _ in 0..60 + 17 * round {
                acked.recv_timeout(HANG).unwrap();
            }
            server.signal("KILL");
            drop(acked);
        });
        server.wait();
    }
    let server = Server::start(&dir, &settings);
    let url = &server.url;
    let mut jobs = 0;
    for (client, accepted) in clients.iter().enumerate() {
        for (job, name, bytes) in &accepted.files {
            let job = ended(url, job);
            assert_eq!(job["status"], "completed", "{job}");
            let mut answer = agent().get(format!("{url}/v1/files/{name}")).call().unwrap();
            assert_eq!(&answer.body_mut().read_to_vec().unwrap(), bytes, "{name}");
        }
        for (job, _) in &accepted.documents {
            let job = ended(url, job);
            assert_eq!(job["status"], "completed", "{job}");
        }
        jobs += accepted.files.len() + accepted.documents.len();
        let stored = stored(url, client);
        for (_, number) in &accepted.documents {
            for at in 0..DOCUMENTS {
                let id = (number * DOCUMENTS + at) as u64;
                assert_eq!(stored.get(&id), Some(&1), "document {id} of client {client}");
            }
        }
        assert!(stored.values().all(|count| *count == 1), "none is stored twice");
    }
    assert!(jobs >= 60 * ROUNDS, "{jobs}");
    server.signal("TERM");
    assert_eq!(server.wait(), Some(0));
    run_ok(&dir, &["fsck"]);
}

/// A server with a queue of its own settings, and its address.
fn serve(dir: &TempDir, settings: &[&str]) -> Server {
    let settings: Vec<&str> = settings.iter().flat_map(|setting| ["--set", setting]).collect();
    Server::start(dir, &settings)
}

#[test]
fn a_job_has_the_result_of_its_request_and_can_be_followed_and_removed() {
    let dir = tempfile::tempdir().unwrap();
    let server = serve(&dir, &[]);
    let url = &server.url;
    let file = submit(url, "PUT", "/v1/files/in/a.txt?async=true&comment=c", b"hello");
    let job = ended(url, &file);
    assert_eq!((&job["status"], &job["result"]["status"]), (&json!("completed"), &json!(201)));
    assert_eq!(job["result"]["body"]["name"], "a.txt");
    assert_eq!(job["request"]["target"], "/v1/files/in/a.txt?comment=c");
    let refused = ended(url, &submit(url, "POST", "/v1/documents/in?async=true", b"no{json"));
    assert_eq!((&refused["status"], &refused["attempts"]), (&json!("failed"), &json!(1)));
    assert!(refused["error"].as_str().unwrap().starts_with("status 4"), "{refused}");
    let id = refused["job_id"].as_str().unwrap();
    let listed = run_ok(&dir, &["jobs", "ls", "--status", "failed", "--server", url]);
    assert!(listed.contains(id) && listed.contains("  status 4"), "{listed}");
    let one = run(&dir, &["jobs", "ls", "--limit", "1", "--server", url]);
    let note = String::from_utf8(one.stderr).unwrap();
    assert!(note.contains("there are more jobs"), "{note}");
    let (status, again) = read(agent().post(format!("{url}/v1/jobs/{id}/requeue")).send_empty());
    assert_eq!(status, 202, "{again}");
    assert_eq!(ended(url, id)["status"], "failed");
    // A client that has seen the end is not sent it again.
    let all = agent().get(format!("{url}/v1/jobs/{id}/events")).call().unwrap();
    let all = all.into_body().read_to_string().unwrap();
    let last = all.lines().find_map(|line| line.strip_prefix("id: ")).unwrap();
    let seen = agent().get(format!("{url}/v1/jobs/{id}/events")).header("last-event-id", last);
    assert_eq!(seen.call().unwrap().status(), 204);
    let (status, error) = read(agent().post(format!("{url}/v1/jobs/{id}/cancel")).send_empty());
    assert_eq!((status, &error["error"]["code"]), (409, &json!("job_status")));
    assert_eq!(read(agent().delete(format!("{url}/v1/jobs/{id}")).call()).0, 204);
    assert_eq!(read(agent().get(format!("{url}/v1/jobs/{id}")).call()).0, 404);
    let list = read(agent().get(format!("{url}/v1/jobs?status=completed")).call()).1;
    assert_eq!(list["jobs"].as_array().unwrap().len(), 1);
    let page = read(agent().get(format!("{url}/v1/jobs/page")).call()).1;
    assert!(page.as_str().unwrap().contains(&file));
    let metrics = server.get("/metrics").body;
    assert!(metrics.contains("forebay_jobs_ended_total{status=\"completed\"} 1"), "{metrics}");
    let shown = run_ok(&dir, &["jobs", "show", &file, "--server", url]);
    assert!(shown.contains("completed") && shown.contains("PUT /v1/files/in/a.txt"), "{shown}");
    let failed = run(&dir, &["jobs", "wait", &"0".repeat(32), "--server", url]);
    assert_eq!(failed.status.code(), Some(1));
}

#[test]
fn requests_that_cannot_be_jobs_are_refused_and_nothing_is_stored() {
    let dir = tempfile::tempdir().unwrap();
    let server = serve(&dir, &["jobs.bodies_size_max=100KiB"]);
    let url = &server.url;
    for (target, code) in [
        ("/v1/files/in/a?async=maybe", "query"),
        ("/v1/files/in/a?async=true&priority=urgent", "query"),
        ("/v1/files/in/a?priority=low", "query"),
        ("/v1/files/in/a?async=true&bogus=1", "query"),
    ] {
        let (status, answer) = read(agent().put(format!("{url}{target}")).send(b"x"));
        assert_eq!((status, &answer["error"]["code"]), (400, &json!(code)), "{target}");
    }
    let large = vec![1; 200_000];
    // Refused before the body is read.
    let request = agent().put(format!("{url}/v1/files/in/a?async=true"));
    let (status, answer) = read(request.header("expect", "100-continue").send(&large[..]));
    assert_eq!((status, &answer["error"]["code"]), (429, &json!("jobs_full")), "{answer}");
    let (_, stats) = read(agent().get(format!("{url}/v1/jobs/stats")).call());
    assert_eq!((&stats["queued"], &stats["bodies_bytes"]), (&json!(0), &json!(0)));
    assert_eq!(std::fs::read_dir(dir.path().join("forebay-data/jobs/bodies")).unwrap().count(), 0);
}

#[test]
fn batches_as_jobs_survive_stops_in_their_middle_whole() {
    let dir = tempfile::tempdir().unwrap();
    let settings = ["jobs.workers=2"];
    let part = |name: &str, bytes: &str| {
        format!(
            "--b\r\ncontent-disposition: form-data; name=\"files\"; filename=\"{name}\"\r\n\r\n{bytes}\r\n"
        )
    };
    let batch = |number: usize| {
        let parts: String = (0..200)
            .map(|at| part(&format!("{number}-{at}"), &format!("{number} {at} ").repeat(2_000)))
            .collect();
        let namespace = "--b\r\ncontent-disposition: form-data; name=\"namespace\"\r\n\r\nin\r\n";
        format!("{namespace}{parts}--b--\r\n")
    };
    let mut server = serve(&dir, &settings);
    let jobs: Vec<String> = (0..6)
        .map(|number| {
            let target = format!("{}/v1/ingest/async?priority=high", server.url);
            let request =
                agent().post(target).header("content-type", "multipart/form-data; boundary=b");
            let (status, answer) = read(request.send(batch(number).as_bytes()));
            assert_eq!(status, 202, "{answer}");
            answer["job_id"].as_str().unwrap().to_owned()
        })
        .collect();
    // Stopped and killed in turn, whatever is in progress.
    for signal in ["TERM", "KILL", "TERM"] {
        server.signal(signal);
        server.wait();
        server = serve(&dir, &settings);
    }
    for (number, job) in jobs.iter().enumerate() {
        let job = ended(&server.url, job);
        assert_eq!(job["status"], "completed", "{}", job["error"]);
        assert_eq!(job["result"]["body"]["parts"].as_array().unwrap().len(), 200);
        for at in [0, 99, 199] {
            let answer = agent().get(format!("{}/v1/files/in/{number}-{at}", server.url)).call();
            let text = answer.unwrap().body_mut().read_to_string().unwrap();
            assert_eq!(text, format!("{number} {at} ").repeat(2_000));
        }
    }
}

#[test]
fn a_request_that_declines_to_be_a_job_is_answered_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let server = serve(&dir, &[]);
    let target = format!("{}/v1/files/in/a?async=false&comment=c", server.url);
    let (status, answer) = read(agent().put(target).send(b"x"));
    assert_eq!((status, &answer["comment"]), (201, &json!("c")), "{answer}");
    let target = format!("{}/v1/documents/in?async=false", server.url);
    assert_eq!(read(agent().post(target).send(b"{}")).0, 201);
    let (_, stats) = read(agent().get(format!("{}/v1/jobs/stats", server.url)).call());
    assert_eq!(stats["completed"], 0);
}

#[test]
fn a_request_with_a_key_is_one_job_and_another_request_with_it_none() {
    let dir = tempfile::tempdir().unwrap();
    let server = serve(&dir, &[]);
    let target = format!("{}/v1/documents/in?async=true&target=table", server.url);
    let send = |body: &[u8]| {
        let sent = agent().post(&target).header("idempotency-key", "k1").send(body);
        read(sent)
    };
    let (status, first) = send(b"{\"id\":1}");
    assert_eq!(status, 202);
    let job = ended(&server.url, first["job_id"].as_str().unwrap());
    assert_eq!(job["status"], "completed", "{job}");
    let (status, again) = send(b"{\"id\":1}");
    assert_eq!((status, &again["job_id"]), (202, &first["job_id"]));
    let (status, other) = send(b"{\"id\":2}");
    assert_eq!((status, &other["error"]["code"]), (422, &json!("idempotency_key_reused")));
    let page = read(agent().get(format!("{}/v1/documents/in", server.url)).call()).1;
    assert_eq!(page["count"], 1);
}

#[test]
fn a_build_of_an_inventory_is_a_job_that_lasts_as_long() {
    let dir = tempfile::tempdir().unwrap();
    let server = serve(&dir, &[]);
    let url = &server.url;
    submit(url, "PUT", "/v1/files/in/a.txt?async=true", b"hello");
    let order = b"{\"from\":\"forebay:blobs\"}";
    let job = submit(url, "POST", "/v1/inventories/blobs?async=true", order);
    let job = ended(url, &job);
    assert_eq!(
        (&job["status"], &job["result"]["body"]["state"]),
        (&json!("completed"), &json!("built"))
    );
    let job = submit(url, "POST", "/v1/inventories/bad?async=true", b"{\"from\":\"/etc\"}");
    let job = ended(url, &job);
    assert_eq!((&job["status"], &job["result"]["status"]), (&json!("failed"), &json!(403)));
}
