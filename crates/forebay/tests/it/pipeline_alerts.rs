//! Alerts of pipelines: what a receiver gets when a run fails, or its feed falls behind and catches up.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpListener;
use std::process::Stdio;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::json;

use super::events_support::post;
use super::pipeline_feed::{following, is_same};
use super::pipeline_pg::{Pipeline, two_databases};
use super::support::{HANG, Server, run, stderr};
use super::webhook_receiver::Receiver;

/// Adds a receiver to the pipeline file.
fn alerting(pipeline: &Pipeline, receiver: &Receiver, more: &str) {
    let alerts = format!("alerts: {{url: '{}'{more}}}\n", receiver.url());
    pipeline.edit(|text| text + &alerts);
}

#[test]
fn a_run_that_failed_is_reported_with_a_signature() {
    let Some(pg) = two_databases() else { return };
    let receiver = Receiver::start(None);
    let pipeline = Pipeline::new(&pg, "[{name: absent}]", "", "");
    let key = [7; 32];
    alerting(&pipeline, &receiver, &format!(", secret: 'whsec_{}'", STANDARD.encode(key)));
    pipeline.fails("absent");
    let request = receiver.next();
    assert!(request.id.starts_with("alr_"), "{request:?}");
    assert_eq!(request.kind(), "pipeline.failed");
    assert_eq!(request.body["data"]["pipeline"], "p");
    assert!(request.body["data"]["error"].as_str().unwrap().contains("absent"), "{request:?}");
    let mut signed = format!("{}.{}.", request.id, request.timestamp).into_bytes();
    signed.extend_from_slice(&request.bytes);
    let key = ring::hmac::Key::new(ring::hmac::HMAC_SHA256, &key);
    let signature = STANDARD.decode(request.signature.strip_prefix("v1,").unwrap()).unwrap();
    ring::hmac::verify(&key, &signed, &signature).unwrap();
    // A run that completes reports nothing.
    pg.query("src", "create table absent (id int primary key)");
    pipeline.run();
    assert!(receiver.arrivals.try_recv().is_err());
}

#[test]
fn a_run_of_the_server_that_failed_is_reported() {
    let Some(pg) = two_databases() else { return };
    let receiver = Receiver::start(None);
    let pipeline = Pipeline::new(&pg, "[{name: absent}]", "", "");
    alerting(&pipeline, &receiver, "");
    let pipelines = pipeline.dir.path().join("pipelines");
    std::fs::create_dir(&pipelines).unwrap();
    std::fs::rename(pipeline.dir.path().join("p.yaml"), pipelines.join("p.yaml")).unwrap();
    let server =
        Server::start(&pipeline.dir, &["--set", &format!("pipelines.dir={}", pipelines.display())]);
    let begun = post(&server, "/v1/pipelines/p/runs", "", b"");
    assert_eq!(begun.status, 202, "{}", begun.body);
    let request = receiver.arrivals.recv_timeout(HANG).unwrap();
    assert_eq!((request.kind(), &*request.signature), ("pipeline.failed", ""));
}

#[test]
fn a_feed_that_falls_behind_and_catches_up_is_reported_once_each() {
    let Some(pg) = two_databases() else { return };
    let receiver = Receiver::start(None);
    pg.query("src", "create table t (id int primary key, v text)");
    let pipeline = following(&pg, &["t"]);
    pipeline.run();
    alerting(&pipeline, &receiver, ", max_lag_bytes: 1MiB");
    let mut blocked = pg.session("dst");
    let mut statements = blocked.stdin.take().unwrap();
    writeln!(statements, "begin; lock table t in access exclusive mode; select 'held';").unwrap();
    let mut answers = BufReader::new(blocked.stdout.take().unwrap()).lines();
    assert!(answers.any(|line| line.unwrap().contains("held")));
    let mut command = pipeline.command();
    command.arg("--follow").stdout(Stdio::null()).stderr(Stdio::null());
    let mut running = command.spawn().unwrap();
    pg.query("src", "insert into t select g, repeat('x', 1000) from generate_series(1, 5000) g");
    let behind = receiver.arrivals.recv_timeout(HANG).unwrap();
    assert_eq!(behind.kind(), "pipeline.behind", "{behind:?}");
    let lag = behind.body["data"]["lag_bytes"].as_u64().unwrap();
    assert!(lag > 1 << 20, "{behind:?}");
    // The session ends, and with it the lock.
    drop(statements);
    blocked.wait().unwrap();
    let caught_up = receiver.arrivals.recv_timeout(HANG).unwrap();
    assert_eq!(caught_up.kind(), "pipeline.caught_up", "{caught_up:?}");
    assert_ne!(behind.id, caught_up.id);
    is_same(&pg, "t");
    running.kill().unwrap();
    running.wait().unwrap();
    assert!(receiver.arrivals.try_recv().is_err());
}

#[test]
fn an_alert_that_is_not_delivered_is_a_warning_without_the_path_of_the_receiver() {
    let Some(pg) = two_databases() else { return };
    let closed = TcpListener::bind(("127.0.0.1", 0)).unwrap().local_addr().unwrap();
    let refusing = Receiver::start(Some(1));
    let refusing_url = refusing.url();
    for (url, found) in [
        (format!("{refusing_url}/geheim"), "the receiver answered 500, at the last of 5 attempts"),
        (format!("http://{closed}/geheim"), "at the last of 5 attempts"),
    ] {
        let pipeline = Pipeline::new(&pg, "[{name: absent}]", "", "");
        pipeline.edit(|text| format!("{text}alerts: {{url: '{url}'}}\n"));
        let failed = run(&pipeline.dir, &["pipeline", "run", "p.yaml"]);
        let message = stderr(&failed);
        assert!(message.contains("warning: cannot deliver the alert pipeline.failed"), "{message}");
        assert!(message.contains(found) && !message.contains("geheim"), "{message}");
    }
}

#[test]
fn a_run_that_waits_for_a_receiver_ends_with_a_signal() {
    let Some(pg) = two_databases() else { return };
    let silent = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let pipeline = Pipeline::new(&pg, "[{name: absent}]", "", "");
    let url = format!("alerts: {{url: 'http://{}/'}}\n", silent.local_addr().unwrap());
    pipeline.edit(|text| text + &url);
    let mut command = pipeline.command();
    let running = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let request = silent.accept().unwrap();
    let pid = rustix::process::Pid::from_child(&running);
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    let ended = running.wait_with_output().unwrap();
    assert_eq!(ended.status.code(), Some(1), "{ended:?}");
    assert!(!stderr(&ended).contains("not delivered in time"), "{}", stderr(&ended));
    drop(request);
}

#[test]
fn a_receiver_that_cannot_be_is_an_error_of_the_file() {
    let Some(pg) = two_databases() else { return };
    let pipeline = Pipeline::new(&pg, "[{name: absent}]", "", "");
    for (alerts, found) in [
        (json!({ "url": "ftp://a.example" }), "not the URL of a receiver"),
        (json!({ "url": "https://a.example", "secret": "hunter2" }), "must be `whsec_`"),
        (json!({ "url": "https://a.example", "max_lag": "1s" }), "use at least 30s"),
        (json!({}), "missing field `url`"),
        (
            json!({ "url": "https://a.example", "max_lag": "1m" }),
            "need streams with `sync_mode: cdc`",
        ),
    ] {
        let before = std::fs::read_to_string(pipeline.dir.path().join("p.yaml")).unwrap();
        pipeline.edit(|text| format!("{text}alerts: {alerts}\n"));
        let planned = run(&pipeline.dir, &["pipeline", "plan", "p.yaml"]);
        assert!(!planned.status.success());
        let message = stderr(&planned);
        assert!(message.contains(found) && !message.contains("hunter2"), "{message}");
        assert!(message.contains("p.yaml:"), "{message}");
        pipeline.edit(|_| before);
    }
}
