//! Pipelines inside the server: begun over HTTP and by the clock, told, stopped, gone on with.

use std::fmt::Write as _;
use std::time::Instant;

use serde_json::Value;
use tempfile::TempDir;

use crate::events_support::post;
use crate::support::{HANG, Server, run, run_ok, stderr};

/// A data directory with a file of rows and a pipeline that copies it.
fn with_pipeline(rows: u32, resources: &str) -> TempDir {
    let dir = TempDir::new().unwrap();
    let mut text = String::from("id,name\n");
    for id in 0..rows {
        writeln!(text, "{id},name {id}").unwrap();
    }
    std::fs::write(dir.path().join("orders.csv"), text).unwrap();
    write_pipeline(&dir, "orders", "orders", resources);
    dir
}

fn write_pipeline(dir: &TempDir, file: &str, name: &str, resources: &str) {
    let files = dir.path().join("data").join("pipelines");
    std::fs::create_dir_all(&files).unwrap();
    let path = dir.path().display();
    let text = format!(
        "version: 1
pipeline: {name}
source:
  use: csv
  config: {{ path: '{path}' }}
  streams: [{{ name: orders.csv }}]
destination:
  use: sqlite
  config: {{ path: '{path}/out.sqlite' }}
{resources}
"
    );
    std::fs::write(files.join(format!("{file}.yaml")), text).unwrap();
}

fn server(dir: &TempDir, args: &[&str]) -> Server {
    let mut all = vec!["--data", "data"];
    all.extend(args);
    Server::start(dir, &all)
}

fn begin(server: &Server, body: &str) -> Value {
    let answer = post(server, "/v1/pipelines/orders/runs", "", body.as_bytes());
    assert_eq!(answer.status, 202, "{answer:?}");
    let begun = answer.json();
    let location = format!("/v1/pipelines/orders/runs/{}", begun["run"].as_str().unwrap());
    assert!(answer.head.contains(&format!("location: {location}")), "{answer:?}");
    begun
}

/// The run, once it has ended.
fn ended(server: &Server, begun: &Value) -> Value {
    let path = format!("/v1/pipelines/orders/runs/{}", begun["run"].as_str().unwrap());
    let deadline = Instant::now() + HANG;
    loop {
        let told = server.get(&path).json();
        if told["outcome"] != "running" {
            return told;
        }
        assert!(Instant::now() < deadline, "{told}");
    }
}

fn rows(dir: &TempDir) -> u64 {
    let out = rusqlite::Connection::open(dir.path().join("out.sqlite")).unwrap();
    out.query_row("select count(*) from orders", [], |row| row.get(0)).unwrap()
}

#[test]
fn a_run_begun_over_http_copies_and_is_told_everywhere() {
    let dir = with_pipeline(1_000, "");
    let server = server(&dir, &[]);
    let told = ended(&server, &begin(&server, "{\"once\":\"monday\"}"));
    assert_eq!((&told["outcome"], &told["report"]["rows"]), (&"done".into(), &1_000.into()));
    let again = ended(&server, &begin(&server, "{\"once\":\"monday\"}"));
    assert_eq!((&again["outcome"], &again["report"]["rows"]), (&"done".into(), &0.into()));
    assert_eq!(rows(&dir), 1_000, "once under one name");

    let listed = server.get("/v1/pipelines").json();
    let orders = &listed["pipelines"][0];
    assert_eq!((&orders["name"], &orders["source"]), (&"orders".into(), &"csv".into()), "{listed}");
    assert_eq!(orders["last_run"]["run"], again["run"]);
    assert_eq!(
        server.get("/v1/pipelines/orders/runs?limit=1").json()["runs"][0]["run"],
        again["run"]
    );
    let plan = server.get("/v1/pipelines/orders/plan").json();
    assert_eq!(plan["streams"][0]["into"], "orders", "{plan}");
    assert!(server.get("/v1/pipelines/page").body.contains("csv to sqlite"));
    let metrics = server.get("/metrics").body;
    for line in [
        "forebay_pipeline_rows_committed_total{pipeline=\"orders\"} 1000",
        "forebay_pipeline_runs_total{pipeline=\"orders\",outcome=\"done\"} 2",
        "forebay_pipeline_runs_running 0",
    ] {
        assert!(metrics.contains(line), "{line} is not in {metrics}");
    }
    let gone = server.ask(
        "DELETE",
        &format!("/v1/pipelines/orders/runs/{}", again["run"].as_str().unwrap()),
        "",
    );
    assert_eq!(gone.status, 409, "it has ended");
    server.signal("TERM");
    assert_eq!(server.wait(), Some(0));
    let runs = run_ok(&dir, &["pipeline", "runs", "--data", "data"]);
    assert_eq!(runs.lines().count(), 2, "the command line sees the same: {runs}");
}

#[test]
fn what_is_wrong_is_refused_with_its_place_and_no_path_of_the_server() {
    let dir = with_pipeline(1, "");
    write_pipeline(&dir, "wrong", "wrong", "resources: {paralelism: 3}");
    write_pipeline(&dir, "other", "its-own", "");
    let server = server(&dir, &[]);
    let wrong = post(&server, "/v1/pipelines/wrong/runs", "", b"");
    assert_eq!(wrong.status, 409, "{wrong:?}");
    assert!(wrong.body.contains("wrong.yaml:") && wrong.body.contains("paralelism"), "{wrong:?}");
    let place = dir.path().join("data").display().to_string();
    assert!(!wrong.body.contains(&place), "{wrong:?}");
    assert!(post(&server, "/v1/pipelines/other/runs", "", b"").body.contains("its-own"));
    for (path, status) in [
        ("/v1/pipelines/none/runs", 404),
        ("/v1/pipelines/..%2Forders/runs", 400),
        ("/v1/pipelines/.hidden/runs", 400),
    ] {
        assert_eq!(post(&server, path, "", b"").status, status, "{path}");
    }
    for body in
        ["{\"onse\":1}", "[", "{\"once\":\"a b\"}", "{\"once\":\"a\",\"from_scratch\":true}"]
    {
        let answer = post(&server, "/v1/pipelines/orders/runs", "", body.as_bytes());
        assert_eq!(answer.status, 400, "{body}: {answer:?}");
    }
    assert_eq!(server.get("/v1/pipelines/orders/runs/none").status, 404);
    assert_eq!(server.get("/v1/pipelines/orders/runs?limit=0").status, 400);
    let listed = server.get("/v1/pipelines").json();
    assert!(listed["pipelines"][2]["error"].is_string(), "{listed}");
    assert!(!dir.path().join("out.sqlite").exists(), "nothing ran");
}

#[test]
fn pipelines_run_by_the_clock_and_failures_are_told() {
    let dir = with_pipeline(10, "");
    std::fs::remove_file(dir.path().join("orders.csv")).unwrap();
    let server = server(&dir, &["--set", "pipelines.every=orders=1s"]);
    let last = || server.get("/v1/pipelines/orders").json()["last_run"].clone();
    let deadline = Instant::now() + HANG;
    while last()["outcome"] != "failed" {
        assert!(Instant::now() < deadline, "{}", last());
    }
    assert!(last()["error"].as_str().unwrap().contains("orders.csv"), "{}", last());
    std::fs::write(dir.path().join("orders.csv"), "id,name\n1,a\n").unwrap();
    while last()["outcome"] != "done" {
        assert!(Instant::now() < deadline, "{}", last());
    }
    let known = server.get("/v1/pipelines/orders").json();
    assert_eq!(known["every_seconds"], 1);
    assert!(known["due_at_ms"].as_u64() > known["last_run"]["began_at_ms"].as_u64(), "{known}");
}

#[test]
fn a_server_that_stops_leaves_a_run_the_next_goes_on_with() {
    let dir =
        with_pipeline(600_000, "resources: {checkpoint_interval_bytes: 1MiB, parallelism: 1}");
    let first = server(&dir, &[]);
    let begun = begin(&first, "");
    let busy = post(&first, "/v1/pipelines/orders/runs", "", b"");
    assert!(busy.status == 409 && busy.json()["run"] == begun["run"], "{busy:?}");
    first.signal("TERM");
    assert_eq!(first.wait(), Some(0));
    let second = server(&dir, &[]);
    let told = ended(&second, &begun);
    assert!(["cancelled", "done"].contains(&told["outcome"].as_str().unwrap()), "{told}");
    if told["outcome"] == "cancelled" {
        assert_eq!(ended(&second, &begin(&second, ""))["outcome"], "done");
    }
    assert_eq!(rows(&dir), 600_000);
}

#[test]
fn settings_that_cannot_be_are_refused() {
    let dir = TempDir::new().unwrap();
    for (setting, with) in
        [("pipelines.every=orders", "NAME=TIME"), ("pipelines.runs_max=0", "1 to 64")]
    {
        let refused = run(&dir, &["serve", "--set", setting]);
        assert_eq!(refused.status.code(), Some(2));
        assert!(stderr(&refused).contains(with), "{}", stderr(&refused));
    }
}

#[test]
fn a_pipeline_is_measured_only_where_it_can_be_run_again() {
    let dir = with_pipeline(1_000, "");
    let file = "data/pipelines/orders.yaml";
    let refused = run(&dir, &["pipeline", "bench", file]);
    assert_eq!(refused.status.code(), Some(2));
    assert!(stderr(&refused).contains("write_mode: replace"), "{}", stderr(&refused));
    assert!(!dir.path().join("out.sqlite").exists());
    let path = dir.path().join(file);
    let text = std::fs::read_to_string(&path).unwrap();
    std::fs::write(&path, text.replace("  use: sqlite", "  write_mode: replace\n  use: sqlite"))
        .unwrap();
    let told = run_ok(&dir, &["pipeline", "bench", file, "--iterations", "2", "--json"]);
    let told: Value = serde_json::from_str(&told).unwrap();
    assert!(told["rows_per_second"].as_f64().unwrap() > 0.0, "{told}");
    assert!(told["commit_seconds"].is_number() && told["seconds_least"].is_number(), "{told}");
    assert_eq!(rows(&dir), 1_000);
}
