//! Webhooks of a running server: what was acknowledged reaches the receiver, signed, with stable ids, whatever kills
//! the server; and what operators see and do.

use std::collections::BTreeMap;
use std::sync::mpsc::channel;
use std::time::Instant;

use forebay_base::fs::sim::Rng;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::s3_client::S3;
use crate::support::{HANG, Sent, Server, agent, forebay, run, run_ok, stderr};
use crate::webhook_receiver::{Receiver, Request};

/// Settings that permit receivers on this machine, and repeat soon.
const SETTINGS: [&str; 4] =
    ["--set", "webhooks.allow=127.0.0.0/8", "--set", "webhooks.retry_first=50ms"];

/// The status and the JSON of an answer.
fn read(sent: Sent) -> (u16, Value) {
    let mut answer = sent.unwrap();
    let text = answer.body_mut().read_to_string().unwrap();
    (answer.status().as_u16(), serde_json::from_str(&text).unwrap_or(Value::String(text)))
}

fn create(server: &Server, body: &Value) -> (u16, Value) {
    read(agent().post(format!("{}/v1/webhooks", server.url)).send(body.to_string()))
}

fn get(server: &Server, target: &str) -> (u16, Value) {
    read(agent().get(format!("{}{target}", server.url)).call())
}

fn put(server: &Server, name: &str, bytes: &[u8]) -> bool {
    let sent = agent().put(format!("{}/v1/files/in/{name}", server.url)).send(bytes);
    sent.is_ok_and(|answer| matches!(answer.status().as_u16(), 200 | 201))
}

#[test]
fn nothing_that_was_acknowledged_is_missed_though_the_server_is_killed() {
    let dir = tempfile::tempdir().unwrap();
    let receiver = Receiver::start(Some(5));
    let mut rng = Rng::new(3);
    let (mut acknowledged, mut sent) = (Vec::new(), 0);
    let mut server = Server::start(&dir, &SETTINGS);
    let (status, hook) = create(&server, &json!({ "url": receiver.url(), "events": ["file.*"] }));
    assert_eq!(status, 201, "{hook}");
    for _ in 0..4 {
        let count = 5 + rng.below(25);
        std::thread::scope(|scope| {
            let (acks, acked) = channel();
            let (server, acknowledged, sent) = (&server, &mut acknowledged, &mut sent);
            scope.spawn(move || {
                loop {
                    let name = format!("{sent}");
                    *sent += 1;
                    if !put(server, &name, name.as_bytes()) {
                        return;
                    }
                    acknowledged.push(name);
                    if acks.send(()).is_err() {
                        return;
                    }
                }
            });
            // Killed between two acknowledgements, while events are being sent.
            for _ in 0..count {
                acked.recv_timeout(HANG).unwrap();
            }
            server.signal("KILL");
        });
        assert_eq!(server.wait(), None);
        server = Server::start(&dir, &SETTINGS);
    }
    let mut ids: BTreeMap<String, String> = BTreeMap::new();
    let mut order: Vec<usize> = Vec::new();
    while !acknowledged.iter().all(|name| ids.contains_key(name)) {
        let request = receiver.next();
        assert_eq!(request.kind(), "file.stored");
        match ids.get(request.name()) {
            Some(id) => assert_eq!(id, &request.id, "an event has one id"),
            None => {
                order.push(request.name().parse().unwrap());
                ids.insert(request.name().to_owned(), request.id);
            }
        }
    }
    let mut unique: Vec<&String> = ids.values().collect();
    unique.sort();
    unique.dedup();
    assert_eq!(unique.len(), ids.len(), "two events have two ids");
    assert!(acknowledged.len() > 20);
    // Events that were refused three times in a row may be late, nothing else.
    let late = order.windows(2).filter(|pair| pair[0] > pair[1]).count();
    assert!(late * 10 <= order.len(), "{late} of {}", order.len());
    server.signal("TERM");
    assert_eq!(server.wait(), Some(0));
    let report: Value = serde_json::from_slice(&run(&dir, &["fsck", "--json"]).stdout).unwrap();
    assert_eq!(report["sound"], true, "{report}");
}

/// Completes a resumable upload of a small file.
fn upload(server: &Server) {
    let answer = agent()
        .post(format!("{}/v1/uploads", server.url))
        .header("tus-resumable", "1.0.0")
        .header("upload-length", "3")
        .header("content-type", "application/offset+octet-stream")
        .header("upload-metadata", "filename dXBsb2FkZWQ=,namespace aW4=")
        .send("abc");
    assert_eq!(answer.unwrap().status().as_u16(), 201);
}

#[test]
fn every_kind_of_event_arrives_with_what_happened() {
    let dir = tempfile::tempdir().unwrap();
    let receiver = Receiver::start(None);
    let server = Server::start(&dir, &SETTINGS);
    let (status, _) = create(&server, &json!({ "url": receiver.url() }));
    assert_eq!(status, 201);
    let post = |target: &str, body: &Value| {
        let sent = agent()
            .post(format!("{}{target}", server.url))
            .header("content-type", "application/json")
            .send(body.to_string());
        let (status, answer) = read(sent);
        assert!(matches!(status, 200..=202), "{target}: {status} {answer}");
    };
    let name = |name: &str| json!({ "namespace": "in", "name": name });
    assert!(put(&server, "a", b"bytes"));
    post("/v1/files/copy", &json!({ "files": [{ "from": name("a"), "to": name("b") }] }));
    post("/v1/files/move", &json!({ "files": [{ "from": name("b"), "to": name("c") }] }));
    let patch = agent().patch(format!("{}/v1/files/in/c", server.url));
    let (status, answer) = read(patch.send(json!({ "comment": "new" }).to_string()));
    assert_eq!(status, 200, "{answer}");
    assert_eq!(
        agent().delete(format!("{}/v1/files/in/a", server.url)).call().unwrap().status(),
        204
    );
    post("/v1/documents/orders?target=table", &json!({ "a": 1 }));
    upload(&server);
    let mut seen = Vec::new();
    for _ in 0..8 {
        let request = receiver.next();
        let data = &request.body["data"];
        assert_eq!(
            data["namespace"],
            if request.kind() == "documents.accepted" { "orders" } else { "in" }
        );
        seen.push(format!("{} {}", request.kind(), request.name()));
        match request.kind() {
            "file.moved" => assert_eq!(data["from"], name("b")),
            "documents.accepted" => {
                assert_eq!((&data["count"], &data["target"]), (&json!(1), &json!("table")))
            }
            "file.stored" => assert!(data["sha256"].is_string() && data["size"].is_u64(), "{data}"),
            _ => {}
        }
    }
    assert_eq!(
        seen,
        [
            "file.stored a",
            "file.copied b",
            "file.moved c",
            "file.changed c",
            "file.deleted a",
            "documents.accepted ",
            "file.stored uploaded",
            "upload.completed uploaded"
        ]
    );
    the_end_of_a_job_arrives(&server, &receiver);
}

#[test]
fn changes_of_documents_and_deletions_that_keep_a_version_arrive() {
    let dir = tempfile::tempdir().unwrap();
    let receiver = Receiver::start(None);
    let server = Server::start(&dir, &SETTINGS);
    let url = |target: &str| format!("{}{target}", server.url);
    let record = json!({ "versions": true }).to_string();
    assert_eq!(read(agent().put(url("/v1/namespaces/in")).send(record)).0, 201);
    let hook = json!({ "url": receiver.url(), "events": ["file.deleted", "documents.*"] });
    assert_eq!(create(&server, &hook).0, 201);
    let document = |n: u64| json!({ "n": n }).to_string();
    for n in 1..=2 {
        assert_eq!(read(agent().post(url("/v1/documents/d")).send(document(n))).0, 201);
    }
    assert_eq!(read(agent().put(url("/v1/documents/d/1")).send(document(3))).0, 200);
    assert_eq!(read(agent().delete(url("/v1/documents/d/2")).call()).0, 204);
    let (status, dropped) = read(agent().delete(url("/v1/documents/d?confirm=d")).call());
    assert!(matches!(status, 200 | 204), "{status} {dropped}");
    assert!(put(&server, "v", b"first") && put(&server, "v", b"second"));
    assert_eq!(read(agent().delete(url("/v1/files/in/v")).call()).0, 204);
    let mut seen = Vec::new();
    for _ in 0..6 {
        let Request { body, .. } = receiver.next();
        let data = &body["data"];
        let what = match body["type"].as_str().unwrap() {
            "documents.accepted" => &data["first_id"],
            "documents.dropped" => &data["last_id"],
            "file.deleted" => &data["version_kept"],
            _ => &data["id"],
        };
        seen.push(format!("{} {what}", body["type"].as_str().unwrap()));
    }
    assert_eq!(
        seen,
        [
            "documents.accepted 1",
            "documents.accepted 2",
            "documents.replaced 1",
            "documents.deleted 2",
            "documents.dropped 2",
            "file.deleted true",
        ]
    );
}

#[test]
fn erasing_the_newest_version_over_s3_is_a_return_to_the_one_before() {
    let dir = tempfile::tempdir().unwrap();
    let receiver = Receiver::start(None);
    let made: Value =
        serde_json::from_str(&run_ok(&dir, &["key", "new", "--name", "s3", "--json"])).unwrap();
    let id = made["id"].as_str().unwrap();
    let secret: Value =
        serde_json::from_str(&run_ok(&dir, &["s3", "secret", id, "--json"])).unwrap();
    let s3_port = ["--set", "s3.listen=127.0.0.1:0", "--set", "server.auth=off"];
    let server = Server::start(&dir, &[&SETTINGS[..], &s3_port].concat());
    let secret = secret["secret_access_key"].as_str().unwrap();
    let s3 = S3::new(server.s3_url.as_ref().unwrap(), id, secret);
    let record = json!({ "versions": true }).to_string();
    let url = format!("{}/v1/namespaces/in", server.url);
    assert_eq!(read(agent().put(url).send(record)).0, 201);
    let events = ["file.deleted", "file.reverted"];
    assert_eq!(create(&server, &json!({ "url": receiver.url(), "events": events })).0, 201);
    assert!(put(&server, "v", b"first") && put(&server, "v", b"second"));
    // The newest version twice: the name refers to the first file again, then to none.
    for _ in 0..2 {
        let head = s3.send("HEAD", "/in/v", &[], &[], b"").unwrap();
        let version = head.header("x-amz-version-id").unwrap().to_owned();
        let erased = s3.send("DELETE", "/in/v", &[("versionId", &version)], &[], b"").unwrap();
        assert_eq!(erased.status, 204, "{}", erased.text());
    }
    let first = receiver.next();
    assert_eq!((first.kind(), first.name()), ("file.reverted", "v"));
    let (_, history) = get(&server, "/v1/files/in/v?versions=true");
    assert_eq!(history["error"]["code"], "not_found", "{history}");
    assert_eq!(first.body["data"]["url"], "/v1/files/in/v");
    let second = receiver.next();
    assert_eq!(
        (second.kind(), &second.body["data"]["version_kept"]),
        ("file.deleted", &false.into())
    );
}

/// Jobs, from their own log; the file that one stores is an event too.
fn the_end_of_a_job_arrives(server: &Server, receiver: &Receiver) {
    let sent = agent().put(format!("{}/v1/files/in/job?async=true", server.url)).send("x");
    let (status, accepted) = read(sent);
    assert_eq!(status, 202);
    let mut kinds = Vec::new();
    for _ in 0..2 {
        let request = receiver.next();
        if request.kind() == "job.completed" {
            let data = &request.body["data"];
            assert_eq!((&data["job_id"], &data["method"]), (&accepted["job_id"], &json!("PUT")));
        }
        kinds.push(request.kind().to_owned());
    }
    kinds.sort();
    assert_eq!(kinds, ["file.stored", "job.completed"]);
}

fn key(dir: &TempDir, scope: &str) -> String {
    let made = run_ok(dir, &["key", "new", "--name", scope, "--scope", scope, "--json"]);
    let made: Value = serde_json::from_str(&made).unwrap();
    made["key"].as_str().unwrap().to_owned()
}

#[test]
fn only_admin_keys_use_webhooks_and_receivers_on_private_addresses_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let (admin, writer) = (key(&dir, "admin"), key(&dir, "write"));
    let server = Server::start(&dir, &[]);
    let as_key = |key: &str, method: &str, target: &str| {
        server.ask(method, target, &format!("authorization: Bearer {key}\r\n")).status
    };
    for (method, target) in [("GET", "/v1/webhooks"), ("DELETE", "/v1/webhooks/x")] {
        assert_eq!(as_key(&writer, method, target), 403, "{method} {target}");
    }
    assert_eq!(as_key(&admin, "GET", "/v1/webhooks"), 200);
    for url in [
        "http://127.0.0.1/",
        "https://localhost.example@127.0.0.1/",
        "https://2130706433/",
        "https://[::ffff:10.0.0.1]/",
        "https://169.254.169.254/latest",
        "http://hooks.example.com/",
    ] {
        let sent = agent()
            .post(format!("{}/v1/webhooks", server.url))
            .header("authorization", format!("Bearer {admin}"))
            .send(json!({ "url": url }).to_string());
        let (status, answer) = read(sent);
        assert_eq!(
            (status, &answer["error"]["code"]),
            (400, &json!("webhook_url")),
            "{url}: {answer}"
        );
    }
}

#[test]
fn a_receiver_over_https_is_sent_to_only_if_its_certificate_is_trusted() {
    let dir = tempfile::tempdir().unwrap();
    let receiver = Receiver::start_tls(&dir);
    let other = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    std::fs::write(dir.path().join("other.pem"), other.cert.pem()).unwrap();
    let allow = ["--set", "webhooks.allow=127.0.0.0/8,::1/128"];
    for (trusted, is_trusted) in [("other.pem", false), ("cert.pem", true)] {
        let trusted = dir.path().join(trusted);
        let server = Server::start_with(&dir, &allow, |command| {
            command.env("SSL_CERT_FILE", trusted).env_remove("SSL_CERT_DIR");
        });
        let (status, hook) = create(&server, &json!({ "url": receiver.url() }));
        assert_eq!(status, 201, "{hook}");
        let ping =
            format!("{}/v1/webhooks/{}/ping", server.url, hook["webhook_id"].as_str().unwrap());
        let pinged = read(agent().post(ping).send_empty()).1;
        if is_trusted {
            assert_eq!(pinged["state"], "delivered", "{pinged}");
            assert_eq!(receiver.next().kind(), "ping");
        } else {
            assert_ne!(pinged["state"], "delivered", "{pinged}");
            let error = pinged["error"].as_str().unwrap();
            assert!(error.contains("certificate"), "{error}");
            assert!(receiver.arrivals.try_recv().is_err());
        }
    }
}

#[test]
fn browsers_get_webhooks_and_their_deliveries_as_pages() {
    let dir = tempfile::tempdir().unwrap();
    let receiver = Receiver::start(None);
    let server = Server::start(&dir, &SETTINGS);
    let page = |target: &str| {
        let asked = agent().get(format!("{}{target}", server.url)).header("accept", "text/html");
        let mut answer = asked.call().unwrap();
        let kind = answer.headers()["content-type"].to_str().unwrap().to_owned();
        assert!(kind.starts_with("text/html"), "{kind}");
        answer.body_mut().read_to_string().unwrap()
    };
    assert!(page("/v1/webhooks").contains("There are no webhooks"));
    let description = "<script>alert(1)</script>";
    let wanted = json!({ "url": receiver.url(), "prefix": "<b>", "description": description });
    let (status, hook) = create(&server, &wanted);
    assert_eq!(status, 201, "{hook}");
    let deliveries = format!("/v1/webhooks/{}/deliveries", hook["webhook_id"].as_str().unwrap());
    assert!(page(&deliveries).contains("Nothing was sent yet"));
    let ping = format!("{}{}", server.url, deliveries.replace("deliveries", "ping"));
    assert_eq!(read(agent().post(ping).send_empty()).1["state"], "delivered");
    assert_eq!(receiver.next().kind(), "ping");
    for page in [page("/v1/webhooks"), page(&deliveries)] {
        assert!(page.contains(&receiver.url()) && page.contains("enabled"), "{page}");
        assert!(!page.contains("<script>") && !page.contains("<b>"), "{page}");
    }
    assert!(page("/v1/webhooks").contains(&deliveries));
    let page = page(&deliveries);
    assert!(page.contains("ping") && page.contains("delivered") && page.contains("200"), "{page}");
    // Other clients get data.
    assert_eq!(get(&server, &deliveries).1["deliveries"][0]["event"], "ping");
}

#[test]
fn operators_create_test_follow_and_restore_webhooks() {
    let dir = tempfile::tempdir().unwrap();
    let receiver = Receiver::start(None);
    let mut server = Server::start(&dir, &SETTINGS);
    let url = server.url.clone();
    let webhooks = |args: &[&str]| {
        let all = [&["webhooks"], args, &["--server", &url, "--json"]].concat();
        serde_json::from_str::<Value>(&run_ok(&dir, &all)).unwrap_or_default()
    };
    let hook = webhooks(&["add", &receiver.url(), "--event", "file.stored", "--prefix", "a"]);
    let id = hook["webhook_id"].as_str().unwrap().to_owned();
    let secret = hook["secret"].as_str().unwrap().to_owned();
    assert!(secret.starts_with("whsec_"));
    let shown = webhooks(&["show", &id]);
    assert!(shown["secret"].is_null() && shown["enabled"] == true, "{shown}");
    assert_eq!(webhooks(&["ping", &id])["state"], "delivered");
    assert_eq!(receiver.next().kind(), "ping");
    assert!(put(&server, "b", b"x") && put(&server, "a1", b"y"));
    let request = receiver.next();
    assert_eq!(request.name(), "a1");
    let deadline = Instant::now() + HANG;
    let delivered = loop {
        let found = webhooks(&["deliveries", &id, "--state", "delivered"]);
        if found["deliveries"].as_array().unwrap().len() == 2 {
            break found["deliveries"][0].clone();
        }
        assert!(Instant::now() < deadline, "{found}");
    };
    assert_eq!(delivered["event_id"], json!(request.id));
    let number = delivered["delivery_id"].to_string();
    let (status, whole) = get(&server, &format!("/v1/webhooks/{id}/deliveries/{number}"));
    assert_eq!((status, &whole["payload"]), (200, &request.body));
    webhooks(&["redeliver", &id, &number]);
    let again = receiver.next();
    assert_eq!((again.id, again.body), (request.id, request.body));
    let rotated = webhooks(&["rotate", &id, "--overlap", "1h"]);
    assert_ne!(rotated["secret"].as_str().unwrap(), secret);
    assert_eq!(rotated["webhook"]["secret_number"], 2);
    assert_eq!(webhooks(&["set", &id, "--enabled", "false"])["enabled"], false);
    assert_eq!(webhooks(&["set", &id, "--enabled", "true", "--prefix", ""])["prefix"], Value::Null);
    let text = server.get("/metrics").body;
    assert!(text.contains("forebay_webhooks_deliveries_total{result=\"delivered\"}"), "{text}");
    assert!(text.contains("forebay_webhooks_oldest_waiting_seconds"), "{text}");
    // A copy has the webhook, and sends nothing until that is wanted.
    run_ok(&dir, &["backup", "backups", "--server", &server.url]);
    run_ok(&dir, &["restore", "backups", "--data", "copy"]);
    server.signal("TERM");
    assert_eq!(server.wait(), Some(0));
    server = Server::start(&dir, &[&["--data", "copy"], &SETTINGS[..]].concat());
    let (_, restored) = get(&server, &format!("/v1/webhooks/{id}"));
    assert_eq!(restored["enabled"], false, "{restored}");
    assert!(restored["reason"].as_str().unwrap().contains("restored"));
    server.signal("TERM");
    assert_eq!(server.wait(), Some(0));
    // Damage of its state is named, and stops nothing else.
    let state = dir.path().join("copy/webhooks/state.sqlite");
    let size = std::fs::metadata(&state).unwrap().len();
    let mut bytes = std::fs::read(&state).unwrap();
    bytes.iter_mut().skip(4_096).for_each(|byte| *byte ^= 0x55);
    assert!(size > 4_096);
    std::fs::write(&state, bytes).unwrap();
    let output = run(&dir, &["fsck", "--data", "copy", "--json"]);
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["findings"][0]["kind"], "webhooks", "{report}");
    let server = Server::start(&dir, &["--data", "copy"]);
    assert_eq!(get(&server, "/v1/webhooks").0, 503);
    let ready = server.get("/readyz");
    assert!(ready.status == 200 && ready.body.contains("webhook"), "{ready:?}");
    assert!(put(&server, "still", b"works"));
}

#[test]
fn a_webhook_whose_secret_could_not_be_printed_is_removed() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(&dir, &SETTINGS);
    for more in [&[][..], &["--json"]] {
        let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
        let mut add = forebay(&dir);
        add.args(["webhooks", "add", "http://127.0.0.1:9/", "--server", &server.url]).args(more);
        let added = add.stdout(full).output().unwrap();
        let said = stderr(&added);
        assert!(!added.status.success() && said.contains("webhook was removed"), "{said}");
        assert_eq!(get(&server, "/v1/webhooks").1["webhooks"], json!([]));
    }
}
