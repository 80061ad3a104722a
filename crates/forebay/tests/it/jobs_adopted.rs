//! Builds and runs that requests and the schedule start at once are jobs: listed, cancelled, repeated after a
//! crash.

use std::time::Instant;

use serde_json::{Value, json};

use crate::events_support::post;
use crate::inventory_http::{self as inventory, large_table};
use crate::jobs;
use crate::pipeline_http::{self as pipeline, with_pipeline};
use crate::support::{Answer, HANG, Server, run_ok};

/// The job that a 202 names.
fn monitor(answer: &Answer) -> String {
    assert_eq!(answer.status, 202, "{answer:?}");
    let link = answer.head.lines().find_map(|line| line.strip_prefix("link: </v1/jobs/"));
    let (job, rest) = link.unwrap().split_once('>').unwrap();
    assert_eq!(rest.trim(), "; rel=\"monitor\"");
    job.to_owned()
}

fn listed(server: &Server, query: &str) -> Vec<Value> {
    server.get(&format!("/v1/jobs{query}")).json()["jobs"].as_array().unwrap().clone()
}

fn start_run(server: &Server) -> (String, Value) {
    let answer = post(server, "/v1/pipelines/orders/runs", "", b"");
    (monitor(&answer), answer.json())
}

const SLOW: &str = "resources: {checkpoint_interval_bytes: 1MiB, parallelism: 1}";

#[test]
fn a_build_that_is_requested_at_once_is_listed_as_a_job_and_ends_completed() {
    let dir = tempfile::tempdir().unwrap();
    let server = inventory::server(&dir);
    let body = inventory::from_tree(&dir).to_string();
    let answer = post(&server, "/v1/inventories/mine", "", body.as_bytes());
    assert!(answer.head.contains("location: /v1/inventories/mine/build"), "{answer:?}");
    assert_eq!(answer.json()["inventory"], "mine");
    let job = jobs::ended(&server.url, &monitor(&answer));
    assert_eq!((&job["status"], &job["attempts"]), (&json!("completed"), &json!(1)), "{job}");
    assert_eq!(job["request"], json!({ "method": "POST", "target": "/v1/inventories/mine" }));
    assert_eq!(job["result"]["body"]["state"], "built");
    assert_eq!(job["body_bytes"], body.len());
    let shown = run_ok(&dir, &["jobs", "ls", "--server", &server.url]);
    assert!(shown.contains(job["job_id"].as_str().unwrap()), "{shown}");
    assert_eq!(server.get("/v1/jobs/stats").json()["completed_since_start"], 1);
    assert!(server.get("/v1/jobs/page").body.contains("/v1/inventories/mine"));
    // With a parameter that declines to be stored first as well.
    let again = post(&server, "/v1/inventories/mine?async=false", "", body.as_bytes());
    let job = jobs::ended(&server.url, &monitor(&again));
    assert_eq!(job["status"], "completed", "{job}");
}

#[test]
fn builds_that_fail_are_failed_jobs_and_can_be_queued_again() {
    let dir = tempfile::tempdir().unwrap();
    let server = inventory::server(&dir);
    let mut wrong = inventory::from_tree(&dir);
    wrong["expect_rows"] = 5.into();
    let id = monitor(&inventory::begin(&server, "mine", &wrong));
    let job = jobs::ended(&server.url, &id);
    assert_eq!(job["status"], "failed");
    assert!(job["error"].as_str().unwrap().contains("expected 5"), "{job}");
    let again = server.ask("POST", &format!("/v1/jobs/{id}/requeue"), "");
    assert_eq!(again.status, 202, "{}", again.body);
    let job = jobs::ended(&server.url, &id);
    assert!(job["error"].as_str().unwrap().contains("expected 5"), "{job}");
}

#[test]
fn a_refused_request_leaves_no_job() {
    let dir = with_pipeline(1, "");
    let server = pipeline::server(&dir, &[]);
    let long = format!("{{\"from\":\"{}\"}}", "x".repeat(600_000));
    for (path, body, status) in [
        ("/v1/inventories/mine", "{\"from\":\"/etc\"}", 403),
        ("/v1/inventories/mine", "no json", 400),
        ("/v1/inventories/mine", long.as_str(), 413),
        ("/v1/inventories/..", "{}", 400),
        ("/v1/pipelines/none/runs", "", 404),
        ("/v1/pipelines/orders/runs", "{\"onse\":1}", 400),
    ] {
        let answer = post(&server, path, "", body.as_bytes());
        assert_eq!(answer.status, status, "{path}: {answer:?}");
    }
    assert_eq!(listed(&server, ""), Vec::<Value>::new());
    let refused = server.ask("PATCH", "/v1/inventories/mine", "");
    assert_eq!(refused.status, 405);
    assert!(refused.head.contains("post") && refused.head.contains("delete"), "{}", refused.head);
}

#[test]
fn a_run_is_a_job_and_cancelling_the_job_stops_it() {
    let dir = with_pipeline(600_000, SLOW);
    let server = pipeline::server(&dir, &[]);
    let (job, begun) = start_run(&server);
    let busy = post(&server, "/v1/pipelines/orders/runs", "", b"");
    assert_eq!((busy.status, &busy.json()["error"]["code"]), (409, &json!("running")));
    let running = listed(&server, "?status=running");
    assert_eq!((running.len(), &running[0]["job_id"]), (1, &json!(job)));
    let cancelled = server.ask("POST", &format!("/v1/jobs/{job}/cancel"), "");
    assert_eq!(cancelled.status, 202, "{}", cancelled.body);
    let job = jobs::ended(&server.url, &job);
    assert_eq!(job["status"], "cancelled", "{job}");
    assert_eq!(job["result"]["body"]["run"], begun["run"]);
    assert_eq!(pipeline::ended(&server, &begun)["outcome"], "cancelled");
    // The next one continues it. A run that is stopped by its own route is a failed job.
    let (job, begun) = start_run(&server);
    let path = format!("/v1/pipelines/orders/runs/{}", begun["run"].as_str().unwrap());
    assert_eq!(server.ask("DELETE", &path, "").status, 202);
    let job = jobs::ended(&server.url, &job);
    assert_eq!((&job["status"], &job["error"]), (&json!("failed"), &json!("cancelled")));
    let (job, _) = start_run(&server);
    assert_eq!(jobs::ended(&server.url, &job)["status"], "completed");
    assert_eq!(pipeline::rows(&dir), 600_000);
}

#[test]
fn scheduled_runs_are_jobs_of_which_the_last_is_known() {
    let dir = with_pipeline(10, "");
    let server = pipeline::server(&dir, &["--set", "pipelines.every=orders=1s"]);
    let deadline = Instant::now() + HANG;
    let stats = || server.get("/v1/jobs/stats").json();
    while stats()["completed_since_start"].as_u64() < Some(3) {
        assert!(Instant::now() < deadline, "{}", stats());
    }
    let jobs = listed(&server, "");
    assert!((1..=2).contains(&jobs.len()), "{jobs:?}");
    assert_eq!(jobs[0]["request"]["target"], "/v1/pipelines/orders/runs");
    let runs = server.get("/v1/pipelines/orders/runs").json();
    assert!(runs["runs"].as_array().unwrap().len() >= 3, "{runs}");
}

#[test]
fn a_build_at_a_kill_is_repeated_by_its_job() {
    let dir = tempfile::tempdir().unwrap();
    let server = inventory::server(&dir);
    let sources = format!("inventory.sources={}", dir.path().join("tree").display());
    let slow = json!({ "from": large_table(&dir).display().to_string() });
    let job = monitor(&inventory::begin(&server, "mine", &slow));
    assert_eq!(server.get("/v1/inventories/mine/build").json()["state"], "running");
    server.signal("KILL");
    server.wait();
    let server = Server::start(&dir, &["--set", &sources]);
    let job = jobs::ended(&server.url, &job);
    assert_eq!((&job["status"], &job["attempts"]), (&json!("completed"), &json!(2)), "{job}");
    assert_eq!(server.get("/v1/inventories/mine/prefix").json()["objects"], 1_500_000);
}

#[test]
fn a_scheduled_run_at_a_kill_is_repeated_by_its_job_and_not_by_the_schedule_too() {
    let dir = with_pipeline(600_000, SLOW);
    let args = ["--set", "pipelines.every=orders=1h"];
    let server = pipeline::server(&dir, &args);
    let deadline = Instant::now() + HANG;
    let job = loop {
        if let [job] = &listed(&server, "?status=running")[..] {
            break job["job_id"].as_str().unwrap().to_owned();
        }
        assert!(Instant::now() < deadline);
    };
    server.signal("KILL");
    server.wait();
    let server = pipeline::server(&dir, &args);
    let job = jobs::ended(&server.url, &job);
    assert_eq!(job["status"], "completed", "{job}");
    let runs = server.get("/v1/pipelines/orders/runs").json();
    assert_eq!(runs["runs"].as_array().unwrap().len(), 2, "{runs}");
    assert_eq!(runs["runs"][0]["outcome"], "done", "{runs}");
    assert_eq!(pipeline::rows(&dir), 600_000);
}
