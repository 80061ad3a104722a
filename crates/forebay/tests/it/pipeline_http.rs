//! Pipelines inside the server: started over HTTP and on schedule, reported, stopped, continued.

use std::fmt::Write as _;
use std::time::Instant;

use serde_json::Value;
use tempfile::TempDir;

use crate::events_support::post;
use crate::support::{HANG, Server, run, run_ok, stderr};

/// A data directory with a file of rows and a pipeline that copies it.
pub(crate) fn with_pipeline(rows: u32, resources: &str) -> TempDir {
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

pub(crate) fn server(dir: &TempDir, args: &[&str]) -> Server {
    let mut all = vec!["--data", "data"];
    all.extend(args);
    Server::start(dir, &all)
}

pub(crate) fn begin(server: &Server, body: &str) -> Value {
    let answer = post(server, "/v1/pipelines/orders/runs", "", body.as_bytes());
    assert_eq!(answer.status, 202, "{answer:?}");
    let begun = answer.json();
    let location = format!("/v1/pipelines/orders/runs/{}", begun["run"].as_str().unwrap());
    assert!(answer.head.contains(&format!("location: {location}")), "{answer:?}");
    begun
}

/// The run, once it has ended.
pub(crate) fn ended(server: &Server, begun: &Value) -> Value {
    let path = format!("/v1/pipelines/orders/runs/{}", begun["run"].as_str().unwrap());
    let deadline = Instant::now() + HANG;
    loop {
        let reply = server.get(&path).json();
        if reply["outcome"] != "running" {
            return reply;
        }
        assert!(Instant::now() < deadline, "{reply}");
    }
}

pub(crate) fn rows(dir: &TempDir) -> u64 {
    let out = rusqlite::Connection::open(dir.path().join("out.sqlite")).unwrap();
    out.query_row("select count(*) from orders", [], |row| row.get(0)).unwrap()
}

#[test]
fn a_run_started_over_http_copies_and_is_reported_everywhere() {
    let dir = with_pipeline(1_000, "");
    let server = server(&dir, &[]);
    let reply = ended(&server, &begin(&server, "{\"once\":\"monday\"}"));
    assert_eq!((&reply["outcome"], &reply["report"]["rows"]), (&"done".into(), &1_000.into()));
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
fn pipelines_run_on_schedule_and_failures_are_reported() {
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
fn a_run_stopped_with_its_server_is_continued_by_the_next() {
    let dir =
        with_pipeline(600_000, "resources: {checkpoint_interval_bytes: 1MiB, parallelism: 1}");
    let first = server(&dir, &[]);
    let begun = begin(&first, "");
    let busy = post(&first, "/v1/pipelines/orders/runs", "", b"");
    assert!(busy.status == 409 && busy.json()["run"] == begun["run"], "{busy:?}");
    first.signal("TERM");
    assert_eq!(first.wait(), Some(0));
    let second = server(&dir, &[]);
    let reply = ended(&second, &begun);
    assert!(["cancelled", "done"].contains(&reply["outcome"].as_str().unwrap()), "{reply}");
    // Its job continues it, without a request.
    let jobs = second.get("/v1/jobs").json();
    let job = jobs["jobs"][0]["job_id"].as_str().unwrap();
    let job = crate::jobs::ended(&second.url, job);
    assert_eq!(job["status"], "completed", "{job}");
    assert_eq!(rows(&dir), 600_000);
}

#[test]
fn invalid_settings_are_refused() {
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
fn a_link_in_a_permitted_directory_leads_to_nothing_that_is_not() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().display();
    let (inside, outside) = (dir.path().join("inside"), dir.path().join("outside"));
    for directory in [&inside, &outside, &dir.path().join("data/pipelines")] {
        std::fs::create_dir_all(directory).unwrap();
    }
    std::fs::write(outside.join("secret.csv"), "id,name\n1,secret\n").unwrap();
    std::fs::write(inside.join("plain.csv"), "id,name\n1,plain\n").unwrap();
    let link = |to: &str, from: &str| {
        std::os::unix::fs::symlink(outside.join(to), inside.join(from)).unwrap();
    };
    link("secret.csv", "far.csv");
    link("", "below");
    link("written", "out");
    std::fs::create_dir(outside.join("written")).unwrap();
    std::os::unix::fs::symlink(inside.join("plain.csv"), inside.join("near.csv")).unwrap();
    let run = |stream: &str, to: &str| {
        let text = format!(
            "version: 1
pipeline: linked
source:
  use: csv
  config: {{ path: '{path}/inside' }}
  permissions: {{ fs: {{ allowed_preopens: ['{path}/inside'] }} }}
  streams: [{{ name: {stream}, into: out }}]
destination:
{to}
  permissions: {{ fs: {{ allowed_preopens: ['{path}/inside'] }} }}
"
        );
        std::fs::write(dir.path().join("linked.yaml"), text).unwrap();
        crate::support::run(&dir, &["pipeline", "run", "linked.yaml", "--data", "data"])
    };
    let sqlite = format!("  use: sqlite\n  config: {{ path: '{path}/inside/out.sqlite' }}");
    for good in ["plain.csv", "near.csv"] {
        let output = run(good, &sqlite);
        assert!(output.status.success(), "{good}: {}", stderr(&output));
    }
    for bad in ["far.csv", "below", "below/secret.csv"] {
        let output = run(bad, &sqlite);
        assert!(!output.status.success(), "{bad}");
        assert!(stderr(&output).contains("allowed_preopens"), "{bad}: {}", stderr(&output));
    }
    let csv = format!("  use: csv\n  config: {{ path: '{path}/inside' }}");
    let output = run("plain.csv", &csv);
    assert!(!output.status.success(), "{}", stderr(&output));
    assert!(stderr(&output).contains("allowed_preopens"), "{}", stderr(&output));
    assert_eq!(std::fs::read_dir(outside.join("written")).unwrap().count(), 0);
    let out = rusqlite::Connection::open(inside.join("out.sqlite")).unwrap();
    let secrets = "select count(*) from out where name = 'secret'";
    assert_eq!(out.query_row(secrets, [], |row| row.get::<_, u64>(0)).unwrap(), 0);
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
    let reply = run_ok(&dir, &["pipeline", "bench", file, "--iterations", "2", "--json"]);
    let reply: Value = serde_json::from_str(&reply).unwrap();
    assert!(reply["rows_per_second"].as_f64().unwrap() > 0.0, "{reply}");
    assert!(reply["commit_seconds"].is_number() && reply["seconds_least"].is_number(), "{reply}");
    assert_eq!(rows(&dir), 1_000);
}

#[cfg(feature = "sql")]
#[test]
fn an_endless_query_is_cancelled_releases_its_slot_and_delays_no_stop() {
    let dir = with_pipeline(100, &endless());
    write_pipeline(&dir, "small", "small", "");
    let server = server(&dir, &["--set", "pipelines.runs_max=1"]);
    let begun = begin(&server, "");
    let busy = post(&server, "/v1/pipelines/small/runs", "", b"");
    assert_eq!(busy.status, 429, "{busy:?}");
    let run = format!("/v1/pipelines/orders/runs/{}", begun["run"].as_str().unwrap());
    assert_eq!(server.ask("DELETE", &run, "").status, 202);
    assert_eq!(ended(&server, &begun)["outcome"], "cancelled");
    let deadline = Instant::now() + HANG;
    while post(&server, "/v1/pipelines/small/runs", "", b"").status != 202 {
        assert!(Instant::now() < deadline, "the place was not given back");
    }
    while rows_there(&dir) < 100 {
        assert!(Instant::now() < deadline, "the other run did not end");
    }
    while post(&server, "/v1/pipelines/orders/runs", "", b"").status != 202 {
        assert!(Instant::now() < deadline, "the place was not given back");
    }
    server.signal("TERM");
    assert_eq!(server.wait(), Some(0));
}

/// An endless query: a hundred rows, joined with themselves nine times.
#[cfg(feature = "sql")]
fn endless() -> String {
    let joins: String = (1..10).fold(String::new(), |mut joins, at| {
        write!(joins, " cross join orders o{at}").unwrap();
        joins
    });
    format!(
        "transforms:\n  - sql: {{ query: 'select count(*) as n from orders o0{joins}', into: counted }}"
    )
}

#[cfg(feature = "sql")]
#[test]
fn an_endless_query_is_aborted_after_the_time_limit_of_either_side() {
    let dir = with_pipeline(100, &format!("{}\nresources: {{ max_retries: 0 }}", endless()));
    let file = dir.path().join("data/pipelines/orders.yaml");
    let text = std::fs::read_to_string(&file).unwrap();
    for side in ["  use: csv\n", "  use: sqlite\n"] {
        let limited = format!("{side}  limits: {{ timeout_seconds: 1 }}\n");
        std::fs::write(&file, text.replace(side, &limited)).unwrap();
        let output =
            run(&dir, &["pipeline", "run", "data/pipelines/orders.yaml", "--data", "data"]);
        assert_eq!(output.status.code(), Some(1), "{side}: {}", stderr(&output));
        assert!(stderr(&output).contains("limits.timeout_seconds"), "{}", stderr(&output));
    }
}

/// Rows of the table, which may not exist yet.
#[cfg(feature = "sql")]
fn rows_there(dir: &TempDir) -> u64 {
    let out = rusqlite::Connection::open(dir.path().join("out.sqlite")).unwrap();
    out.query_row("select count(*) from orders", [], |row| row.get(0)).unwrap_or(0)
}
