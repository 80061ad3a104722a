//! The inventory index over HTTP: built, queried, compared, cancelled, deleted; forbidden and
//! hostile requests.

use std::path::{Path, PathBuf};
use std::time::Instant;

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::events_export_s3::S3;
use crate::events_support::{lines, post};
use crate::support::{Answer, HANG, Server, run_ok};

/// A tree of files: paths and sizes.
const TREE: [(&str, usize); 6] = [
    ("a/1.bin", 10),
    ("a/b/2.bin", 300_000),
    ("a/b/3.bin", 5),
    ("a/c d/4.bin", 70),
    ("e/5.bin", 1_000),
    ("top.bin", 1),
];

fn write_tree(root: &Path, tree: &[(&str, usize)]) {
    for (path, size) in tree {
        let path = root.join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, vec![b'x'; *size]).unwrap();
    }
}

/// A server that may read `dir/tree`, which has [`TREE`].
pub(crate) fn server(dir: &TempDir) -> Server {
    let root = dir.path().join("tree");
    write_tree(&root, &TREE);
    Server::start(dir, &["--set", &format!("inventory.sources={}", root.display())])
}

pub(crate) fn from_tree(dir: &TempDir) -> Value {
    json!({ "from": [format!("fs:{}", dir.path().join("tree").display())] })
}

pub(crate) fn begin(server: &Server, name: &str, body: &Value) -> Answer {
    post(server, &format!("/v1/inventories/{name}"), "", body.to_string().as_bytes())
}

/// Waits for the end of a build.
fn ended(server: &Server, name: &str) -> Value {
    let deadline = Instant::now() + HANG;
    loop {
        let report = server.get(&format!("/v1/inventories/{name}/build")).json();
        if !["running", "cancelling"].contains(&report["state"].as_str().unwrap()) {
            return report;
        }
        assert!(Instant::now() < deadline, "{report}");
    }
}

pub(crate) fn built(server: &Server, name: &str, body: &Value) -> Value {
    let answer = begin(server, name, body);
    assert_eq!(answer.status, 202, "{}", answer.body);
    assert!(answer.head.contains(&format!("location: /v1/inventories/{name}/build")));
    let report = ended(server, name);
    assert_eq!(report["state"], "built", "{report}");
    report
}

fn code(answer: &Answer) -> String {
    answer.json()["error"]["code"].as_str().unwrap_or_default().to_owned()
}

#[test]
fn a_tree_is_indexed_and_every_question_answered() {
    let dir = tempfile::tempdir().unwrap();
    let server = server(&dir);
    let report = built(&server, "mine", &from_tree(&dir));
    assert_eq!((&report["objects"], &report["bytes"]), (&json!(6), &json!(301_086)));
    assert_eq!((&report["prefixes"], &report["bad_rows"]), (&json!(5), &json!(0)));
    let ask = |path: &str| {
        let answer = server.get(&format!("/v1/inventories/mine{path}"));
        assert_eq!(answer.status, 200, "{path}: {}", answer.body);
        answer.json()
    };
    let listed = server.get("/v1/inventories").json();
    assert_eq!(listed["inventories"][0]["name"], "mine");
    assert_eq!(listed["inventories"][0]["complete"], true);
    assert_eq!(ask("")["provenance"]["format"], "fs");
    let a = ask("/prefix?prefix=a/");
    assert_eq!((&a["objects"], &a["bytes"]), (&json!(4), &json!(300_085)));
    assert_eq!((&a["depth"], &a["descendants"]), (&json!(1), &json!(2)));
    assert_eq!(a["classes"]["STANDARD"]["objects"], 4);
    assert_eq!(ask("/prefix")["objects"], 6);
    assert_eq!(ask("/prefix?prefix=a/c+d/")["bytes"], 70);
    assert_eq!(ask("/prefix?prefix=a%2Fc%20d%2F")["bytes"], 70);
    let children = ask("/children?prefix=a/&sort=bytes&limit=1");
    assert_eq!((&children["total"], &children["next"]), (&json!(2), &json!(1)));
    assert_eq!(children["items"][0]["prefix"], "a/b/");
    let children = ask("/children?prefix=a/&sort=bytes&limit=1&offset=1");
    assert_eq!((&children["items"][0]["bytes"], &children["next"]), (&json!(70), &Value::Null));
    let names = |report: &Value| -> Vec<String> {
        let items = report["items"].as_array().unwrap();
        items.iter().map(|item| item["prefix"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(names(&ask("/top?k=3")), ["a/", "a/b/", "e/"]);
    assert_eq!(names(&ask("/top?depth=1&sort=objects")), ["a/", "e/"]);
    for sort in ["billed", "bytes", "objects", "noncurrent", "delete-markers", "cost", "name"] {
        let sorted = ask(&format!("/children?prefix=a/&sort={sort}&class=STANDARD"));
        assert_eq!(names(&sorted), ["a/b/", "a/c d/"], "{sort}");
        let first = &sorted["items"][0];
        assert_eq!(
            (&first["billed_bytes"], &first["class_bytes"]),
            (&json!(300_005), &json!(300_005))
        );
        assert_eq!((&first["noncurrent_bytes"], &first["delete_markers"]), (&json!(0), &json!(0)));
        assert_eq!(first["cost"].is_number(), sort == "cost", "{sorted}");
        assert_eq!(names(&ask(&format!("/top?sort={sort}&k=1"))).len(), 1);
    }
    assert_eq!(names(&ask("/small-files?under=128KiB&k=2")), ["", "a/"]);
    assert_eq!(ask("/small-files?prefix=a/&under=131072")["total"]["small"]["objects"], 3);
    let sizes = ask("/histogram?prefix=e/");
    assert_eq!(
        (&sizes["sizes"][0]["from"], &sizes["sizes"][0]["below"]),
        (&json!(512), &json!(1024))
    );
    let cost = ask("/cost?prefix=a/");
    assert_eq!(cost["currency"], "USD");
    assert!(cost["total"].as_f64().unwrap() > 0.0);
    let streamed = server.get("/v1/inventories/mine/descendants?min_bytes=71&depth=2");
    let streamed: Vec<Value> = lines(&unchunked(&streamed));
    let prefixes: Vec<&str> =
        streamed.iter().map(|line| line["prefix"].as_str().unwrap()).collect();
    assert_eq!(prefixes, ["", "a/", "a/b/", "e/"]);
    let expensive =
        server.get("/v1/inventories/mine/descendants?min_cost=0.000001&min_billed=2000");
    let expensive: Vec<Value> = lines(&unchunked(&expensive));
    let prefixes: Vec<&str> =
        expensive.iter().map(|line| line["prefix"].as_str().unwrap()).collect();
    assert_eq!(prefixes, ["", "a/", "a/b/"]);
    assert!(expensive.iter().all(|line| line["cost"].as_f64().unwrap() > 0.0));
    let none = server.get("/v1/inventories/mine/descendants?min_noncurrent=1");
    assert_eq!(lines(&unchunked(&none)).len(), 1, "the prefix of the request alone");
}

/// Joins a chunked body.
fn unchunked(answer: &Answer) -> String {
    if !answer.head.contains("transfer-encoding: chunked") {
        return answer.body.clone();
    }
    let (mut whole, mut rest) = (String::new(), answer.body.as_str());
    while let Some((size, more)) = rest.split_once("\r\n") {
        let size = usize::from_str_radix(size, 16).unwrap();
        whole.push_str(&more[..size]);
        rest = &more[size + 2..];
    }
    whole
}

#[test]
fn lines_tags_and_heads_are_as_elsewhere() {
    let dir = tempfile::tempdir().unwrap();
    let server = server(&dir);
    built(&server, "mine", &from_tree(&dir));
    let path = "/v1/inventories/mine/children?prefix=a/&sort=name";
    let answer = server.ask("GET", path, "accept: application/x-ndjson\r\n");
    let report = lines(&answer.body);
    assert_eq!((&report[0]["prefix"], &report[1]["prefix"]), (&json!("a/b/"), &json!("a/c d/")));
    let answer = server.get(path);
    let etag = answer.head.lines().find_map(|line| line.strip_prefix("etag: ")).unwrap().to_owned();
    let known = format!("if-none-match: W/\"x\", {etag}\r\n");
    assert_eq!(server.ask("GET", path, &known).status, 304);
    let other = format!("accept: application/x-ndjson\r\n{known}");
    assert_eq!(server.ask("GET", path, &other).status, 200, "lines are another answer");
    let head = server.ask("HEAD", path, "");
    assert_eq!((head.status, head.body.as_str()), (200, ""));
    built(&server, "mine", &from_tree(&dir));
    assert_eq!(server.ask("GET", path, &known).status, 200, "it was rebuilt");
}

#[test]
fn a_missing_resource_names_the_nearest_one() {
    let dir = tempfile::tempdir().unwrap();
    let server = server(&dir);
    built(&server, "mine", &from_tree(&dir));
    let answer = server.get("/v1/inventories/mine/prefix?prefix=a/b");
    assert_eq!((answer.status, answer.json()["there"].as_str()), (404, Some("a/b/")));
    assert!(answer.json()["error"]["message"].as_str().unwrap().contains("a/b/"));
    let long = format!("/v1/inventories/mine/prefix?prefix={}", "x/".repeat(5_000));
    for path in [
        "/v1/inventories/mine/prefix?prefix=a/b/c/",
        "/v1/inventories/mine/prefix?prefix=/",
        "/v1/inventories/mine/prefix?prefix=%00%ff/",
        "/v1/inventories/mine/children?prefix=nowhere/",
        "/v1/inventories/mine/top?prefix=nowhere/",
        "/v1/inventories/mine/descendants?prefix=nowhere/",
        "/v1/inventories/mine/cost?prefix=nowhere/",
        "/v1/inventories/other",
        "/v1/inventories/other/prefix",
        "/v1/inventories/other/build",
        "/v1/inventories/mine/diff?old=other",
        &long,
    ] {
        let answer = server.get(path);
        assert_eq!((answer.status, code(&answer)), (404, "not_found".to_owned()), "{path}");
    }
    for path in [
        "/v1/inventories/mine/prefix?prefx=a",
        "/v1/inventories/mine/children?limit=0",
        "/v1/inventories/mine/children?limit=1001",
        "/v1/inventories/mine/children?sort=size",
        "/v1/inventories/mine/children?class=GLACIER",
        "/v1/inventories/mine/descendants?class=GLACIER",
        "/v1/inventories/mine/descendants?min_cost=-1",
        "/v1/inventories/mine/diff?old=mine&by=size",
        "/v1/inventories/mine/top?k=0",
        "/v1/inventories/mine/small-files?under=1000",
        "/v1/inventories/mine/diff",
        "/v1/inventories/mine/diff?old=..%2Fx",
    ] {
        let answer = server.get(path);
        assert_eq!(answer.status, 400, "{path}: {}", answer.body);
    }
}

#[test]
fn invalid_names_and_bodies_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let server = server(&dir);
    let body = from_tree(&dir);
    let long = "x".repeat(65);
    for name in [".", "..%2f..", "%2e%2e", "A", "a%00", "-a", ".temporary", "%C3%A9", &long] {
        let answer = begin(&server, name, &body);
        assert!([400, 404, 405].contains(&answer.status), "{name}: {}", answer.body);
        let answer = server.ask("DELETE", &format!("/v1/inventories/{name}"), "");
        assert!([400, 404, 405].contains(&answer.status), "{name}: {}", answer.body);
    }
    for body in [
        json!({}),
        json!({ "from": [] }),
        json!({ "from": [1] }),
        json!({ "from": ["forebay:blobs", "forebay:blobs"] }),
        json!({ "from": "forebay:blobs", "delimiter": "//" }),
        json!({ "from": "forebay:blobs", "delimiter": "é" }),
        json!({ "from": "forebay:blobs", "to": "/tmp" }),
        json!({ "from": "forebay:blobs", "columns": "size" }),
        json!({ "from": "forebay:blobs", "on_bad_row": "ignore" }),
        json!({ "from": "" }),
        json!({ "from": "gs://x/y" }),
    ] {
        let answer = begin(&server, "x", &body);
        assert_eq!(answer.status, 400, "{body}: {}", answer.body);
    }
    assert_eq!(post(&server, "/v1/inventories/x", "", b"{\"from\":\"a").status, 400);
    let large = vec![b' '; 600 << 10];
    assert_eq!(post(&server, "/v1/inventories/x", "", &large).status, 413);
    assert_eq!(server.get("/v1/inventories").json()["inventories"], json!([]));
}

#[test]
fn nothing_is_read_that_is_not_permitted() {
    let dir = tempfile::tempdir().unwrap();
    let server = server(&dir);
    let root = dir.path().join("tree");
    let secret = dir.path().join("secret");
    write_tree(&secret, &[("x.csv", 3)]);
    std::os::unix::fs::symlink(&secret, root.join("link")).unwrap();
    for source in [
        format!("fs:{}", secret.display()),
        format!("fs:{}/link", root.display()),
        format!("fs:{}/../secret", root.display()),
        format!("csv:{}/link/x.csv", root.display()),
        format!("manifest:{}/x.csv", secret.display()),
        secret.join("x.csv").display().to_string(),
        "fs:/".to_owned(),
        "fs:tree".to_owned(),
        "s3://bucket/key.csv".to_owned(),
        "s3-list://bucket/".to_owned(),
    ] {
        let answer = begin(&server, "x", &json!({ "from": source }));
        let report = (answer.status, code(&answer));
        assert_eq!(report, (403, "source_not_permitted".to_owned()), "{source}: {}", answer.body);
    }
    built(&server, "x", &from_tree(&dir));
    let report = server.get("/v1/inventories/x/prefix").json();
    assert_eq!(report["objects"], 6, "the link is not followed");
}

#[test]
fn buckets_are_read_below_what_is_permitted_and_manifests_lead_nowhere_else() {
    let (s3, dir) = (S3::start(), tempfile::tempdir().unwrap());
    let reports = s3.dir.path().join("archive/reports");
    std::fs::create_dir_all(&reports).unwrap();
    std::fs::write(reports.join("x.csv"), "key,size\na/b,7\na/c,8\n").unwrap();
    let manifest = json!({
        "sourceBucket": "bucket", "destinationBucket": "arn:aws:s3:::other",
        "version": "2016-11-30", "creationTimestamp": "1714957200000", "fileFormat": "CSV",
        "fileSchema": "Bucket, Key, Size",
        "files": [{ "key": "reports/x.csv.gz", "size": 3, "MD5checksum": "0".repeat(32) }],
    });
    std::fs::write(reports.join("manifest.json"), manifest.to_string()).unwrap();
    let sources = ["--set", "inventory.sources=s3://archive/reports/"];
    let server = Server::start_with(&dir, &sources, |command| {
        command.env("AWS_ENDPOINT_URL", s3.endpoint()).env("AWS_ALLOW_HTTP", "true");
        command.env("AWS_ACCESS_KEY_ID", "test-access").env("AWS_SECRET_ACCESS_KEY", "test-secret");
        command.env("AWS_REGION", "us-east-1");
    });
    let report = built(&server, "table", &json!({ "from": "s3://archive/reports/x.csv" }));
    assert_eq!((&report["objects"], &report["bytes"]), (&json!(2), &json!(15)));
    let report = built(&server, "listed", &json!({ "from": "s3-list://archive/reports/" }));
    assert_eq!(report["objects"], 2, "the table and the manifest");
    for source in ["s3://archive/x.csv", "s3-list://archive/", "s3://other/reports/x.csv"] {
        assert_eq!(begin(&server, "x", &json!({ "from": source })).status, 403, "{source}");
    }
    let from = json!({ "from": "s3://archive/reports/manifest.json" });
    assert_eq!(begin(&server, "x", &from).status, 202);
    let report = ended(&server, "x");
    let why = report["error"].as_str().unwrap_or_default();
    assert!(why.contains("does not permit reading from the bucket other"), "{report}");
}

#[test]
fn the_server_takes_keys_region_and_endpoint_from_a_profile() {
    let (s3, dir) = (S3::start(), tempfile::tempdir().unwrap());
    std::fs::write(s3.dir.path().join("archive/x.csv"), "key,size\na/b,7\n").unwrap();
    std::fs::create_dir(dir.path().join(".aws")).unwrap();
    let keys = "aws_access_key_id = test-access\naws_secret_access_key = test-secret\n";
    std::fs::write(dir.path().join(".aws/credentials"), format!("[work]\n{keys}")).unwrap();
    let config = format!("[profile work]\nregion = eu-west-1\nendpoint_url = {}\n", s3.endpoint());
    std::fs::write(dir.path().join(".aws/config"), config).unwrap();
    let server =
        Server::start_with(&dir, &["--set", "inventory.sources=s3://archive/"], |command| {
            for (name, _) in std::env::vars_os() {
                if name.to_string_lossy().starts_with("AWS_") {
                    command.env_remove(name);
                }
            }
            command.env("HOME", dir.path()).env("AWS_PROFILE", "work");
            command.env("AWS_ALLOW_HTTP", "true");
        });
    for source in ["s3://archive/x.csv", "s3-list://archive/"] {
        let report = built(&server, "x", &json!({ "from": source }));
        assert_eq!(report["objects"], 1, "{source}");
    }
}

#[test]
fn the_servers_own_files_are_a_source_and_their_changes_are_listed() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(&dir, &[]);
    let put = |name: &str, size: usize| {
        let mut stream = server.connect();
        let head = format!("content-length: {size}\r\n");
        crate::support::send(&mut stream, "PUT", &format!("/v1/files/{name}"), &head);
        std::io::Write::write_all(&mut stream, &vec![b'y'; size]).unwrap();
        let answer = Answer::read(&mut stream);
        assert!(answer.status < 300, "{}", answer.body);
    };
    for file in 0..1_050 {
        put(&format!("many/f{file}"), 3);
    }
    put("other/dir/one", 100);
    let report =
        built(&server, "before", &json!({ "from": "forebay:blobs", "expect_rows": 1_051 }));
    assert_eq!((&report["objects"], &report["bytes"]), (&json!(1_051), &json!(3_250)));
    put("other/dir/two", 50);
    put("new/x", 7);
    built(&server, "after", &json!({ "from": ["forebay:blobs"] }));
    let report = server.get("/v1/inventories/after/diff?old=before&top=10").json();
    let changes = report["items"].as_array().unwrap();
    let of = |prefix: &str| changes.iter().find(|change| change["prefix"] == prefix).unwrap();
    assert_eq!(of("")["bytes_delta"], 57);
    assert_eq!((&of("new/")["status"], &of("new/")["objects_delta"]), (&json!("added"), &json!(1)));
    assert_eq!(of("other/dir/")["bytes_delta"], 50);
    assert!(changes.iter().all(|change| change["prefix"] != "many/"));
    let report = server.get("/v1/inventories/before/diff?old=after&rank=growth").json();
    assert_eq!(report["items"], json!([]), "nothing grew that way");
    let answer = begin(&server, "wrong", &json!({ "from": "forebay:blobs", "expect_rows": 7 }));
    assert_eq!(answer.status, 202);
    let report = ended(&server, "wrong");
    assert_eq!(report["state"], "failed", "{report}");
    assert!(report["error"].as_str().unwrap().contains("1053 rows, expected 7"), "{report}");
    assert_eq!(server.get("/v1/inventories/wrong").status, 404, "it left nothing");
    assert!(!dir.path().join("forebay-data/inventories/wrong").exists());
}

/// A table that takes a while to read, its keys out of order.
pub(crate) fn large_table(dir: &TempDir) -> PathBuf {
    let large = dir.path().join("tree/large.csv");
    let mut rows = String::from("key,size\n");
    for row in 0..1_500_000_u32 {
        rows.push_str(&format!("{:x}/{row},1\n", row.wrapping_mul(0x9E37_79B1) >> 12));
    }
    std::fs::write(&large, rows).unwrap();
    large
}

#[test]
fn a_server_that_stops_or_is_killed_during_a_build_keeps_the_previous_index() {
    let dir = tempfile::tempdir().unwrap();
    let kept = dir.path().join("forebay-data/inventories/mine");
    let mut running = server(&dir);
    built(&running, "mine", &from_tree(&dir));
    let slow = json!({ "from": large_table(&dir).display().to_string() });
    let sources = format!("inventory.sources={}", dir.path().join("tree").display());
    for signal in ["TERM", "KILL"] {
        assert_eq!(begin(&running, "mine", &slow).status, 202);
        let report = running.get("/v1/inventories/mine/build").json();
        assert_eq!(report["state"], "running", "{report}");
        running.signal(signal);
        assert_eq!(running.wait(), (signal == "TERM").then_some(0), "{signal}");
        running = Server::start(&dir, &["--set", &sources]);
        assert_eq!(running.get("/v1/inventories/mine/prefix").json()["objects"], 6, "{signal}");
        // It is started again, as its job is.
        let jobs = running.get("/v1/jobs").json();
        let job = jobs["jobs"][0]["job_id"].as_str().unwrap();
        let cancelled = running.ask("POST", &format!("/v1/jobs/{job}/cancel"), "");
        assert!([200, 202].contains(&cancelled.status), "{}", cancelled.body);
        assert_eq!(crate::jobs::ended(&running.url, job)["status"], "cancelled");
        let files = std::fs::read_dir(&kept).unwrap().count();
        assert_eq!(files, 6, "index.json, nodes, table, order, provenance.json, lock");
    }
}

#[test]
fn a_failed_or_cancelled_build_keeps_the_previous_index() {
    let dir = tempfile::tempdir().unwrap();
    let server = server(&dir);
    built(&server, "mine", &from_tree(&dir));
    let mut wrong = from_tree(&dir);
    wrong["expect_rows"] = 5.into();
    assert_eq!(begin(&server, "mine", &wrong).status, 202);
    assert_eq!(ended(&server, "mine")["state"], "failed");
    assert_eq!(server.get("/v1/inventories/mine/prefix").json()["objects"], 6);
    assert_eq!(server.ask("DELETE", "/v1/inventories/mine/build", "").status, 409, "it has ended");
    let large = large_table(&dir);
    let slow = json!({ "from": large.display().to_string() });
    assert_eq!(begin(&server, "mine", &slow).status, 202);
    let again = begin(&server, "mine", &slow);
    assert_eq!((again.status, code(&again)), (409, "building".to_owned()));
    let other = begin(&server, "other", &from_tree(&dir));
    assert_eq!((other.status, code(&other)), (429, "busy".to_owned()), "{}", other.body);
    let deleted = server.ask("DELETE", "/v1/inventories/mine", "");
    assert_eq!((deleted.status, code(&deleted)), (409, "building".to_owned()));
    assert_eq!(server.get("/v1/inventories").json()["inventories"][0]["building"], true);
    let cancelled = server.ask("DELETE", "/v1/inventories/mine/build", "");
    assert_eq!((cancelled.status, &cancelled.json()["state"]), (202, &json!("cancelling")));
    assert_eq!(ended(&server, "mine")["state"], "cancelled");
    assert_eq!(server.get("/v1/inventories/mine/prefix").json()["objects"], 6);
    assert_eq!(server.ask("DELETE", "/v1/inventories/mine", "").status, 204);
    assert_eq!(server.get("/v1/inventories/mine").status, 404);
    assert_eq!(server.ask("DELETE", "/v1/inventories/mine", "").status, 404);
    assert!(!dir.path().join("forebay-data/inventories/mine").exists());
}

#[test]
fn damage_is_an_error_and_makes_the_server_not_ready() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().join("tree");
    let sources = format!("inventory.sources={}", root.display());
    {
        let server = server(&dir);
        built(&server, "mine", &from_tree(&dir));
        built(&server, "sound", &from_tree(&dir));
        server.signal("TERM");
        assert_eq!(server.wait(), Some(0));
    }
    let nodes = std::fs::read_dir(dir.path().join("forebay-data/inventories/mine")).unwrap();
    let nodes: Vec<_> = nodes
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.file_name().unwrap().to_string_lossy().starts_with("nodes"))
        .collect();
    let sound = std::fs::read(&nodes[0]).unwrap();
    let mut damaged = sound.clone();
    *damaged.last_mut().unwrap() ^= 1;
    std::fs::write(&nodes[0], &damaged).unwrap();
    let server = Server::start(&dir, &["--set", &sources]);
    let answer = server.get("/v1/inventories/mine/prefix");
    assert_eq!((answer.status, code(&answer)), (500, "damaged".to_owned()));
    assert!(!answer.body.contains("nodes"), "where it lies is for the log");
    assert_eq!(server.get("/v1/inventories/sound/prefix").status, 200);
    drop(server);
    std::fs::write(&nodes[0], &sound[1..]).unwrap();
    let server = Server::start(&dir, &["--set", &sources]);
    let ready = server.get("/readyz");
    assert_eq!(ready.status, 503);
    assert!(ready.body.contains("inventory: mine: "), "{}", ready.body);
    built(&server, "mine", &from_tree(&dir));
    assert_eq!(server.get("/readyz").status, 200, "it was rebuilt");
}

#[test]
fn an_index_built_beside_the_server_is_served_and_leftovers_are_removed() {
    let dir = tempfile::tempdir().unwrap();
    let kept = dir.path().join("forebay-data/inventories");
    std::fs::create_dir_all(kept.join("killed")).unwrap();
    std::fs::write(kept.join("killed/nodes.1"), "half").unwrap();
    std::fs::write(kept.join("killed/run-0.1"), "half").unwrap();
    std::fs::create_dir_all(kept.join("foreign")).unwrap();
    std::fs::write(kept.join("foreign/notes.txt"), "mine").unwrap();
    let server = server(&dir);
    assert!(!kept.join("killed").exists());
    assert!(kept.join("foreign/notes.txt").exists());
    built(&server, "a", &from_tree(&dir));
    assert_eq!(server.get("/v1/inventories/a/prefix").json()["objects"], 6);
    write_tree(&dir.path().join("tree"), &[("more/6.bin", 6)]);
    built(&server, "b", &from_tree(&dir));
    for entry in std::fs::read_dir(kept.join("a")).unwrap() {
        std::fs::remove_file(entry.unwrap().path()).unwrap();
    }
    std::fs::remove_dir(kept.join("a")).unwrap();
    std::fs::rename(kept.join("b"), kept.join("a")).unwrap();
    assert_eq!(server.get("/v1/inventories/a/prefix").json()["objects"], 7);
    assert_eq!(server.get("/v1/inventories/b/prefix").status, 404);
    let answer = begin(&server, "foreign", &from_tree(&dir));
    assert_eq!(answer.status, 202);
    assert_eq!(ended(&server, "foreign")["state"], "failed");
    assert!(kept.join("foreign/notes.txt").exists());
}

#[test]
fn the_pages_show_what_is_there_and_need_a_key_where_keys_are_needed() {
    let dir = tempfile::tempdir().unwrap();
    let server = server(&dir);
    let root = dir.path().join("tree");
    write_tree(&root, &[("<b>evil/x", 9), ("n/\u{fc}/y", 9)]);
    built(&server, "mine", &from_tree(&dir));
    let moved = server.get("/inventories");
    assert!(moved.status == 308 && moved.head.contains("location: /v1/inventories/page"));
    let moved = server.get("/inventories/mine?prefix=a%2F");
    assert!(moved.head.contains("location: /v1/inventories/mine/page?prefix=a%2f"), "{moved:?}");
    let page = server.get("/v1/inventories/page").body;
    assert!(page.contains("/v1/inventories/mine/page"), "{page}");
    let page = server.get("/v1/inventories/mine/page");
    assert!(page.head.contains("content-security-policy"));
    assert!(!page.body.contains("<b>evil") && page.body.contains("&lt;b&gt;evil"), "{}", page.body);
    assert!(page.body.contains("<meter") && page.body.contains("by size"));
    let page = server.get("/v1/inventories/mine/page?prefix=a%2F&sort=objects").body;
    assert!(page.contains("prefix=a%2Fb%2F") && page.contains("Cost per month"), "{page}");
    let missing = server.get("/v1/inventories/mine/page?prefix=zz/");
    assert!(missing.status == 404 && missing.body.contains("there is no prefix"), "{missing:?}");
    assert_eq!(server.get("/v1/inventories/none/page").status, 404);
    assert_eq!(server.get("/v1/inventories/mine/page?sort=bogus").status, 400);
    let metrics = server.get("/metrics").body;
    for name in [
        "forebay_inventory_queries_total",
        "forebay_inventory_builds_total",
        "inventory_indexes_open",
    ] {
        assert!(metrics.contains(name), "{name}");
    }
    drop(server);
    run_ok(&dir, &["key", "new", "--name", "k", "--scope", "read"]);
    let server = Server::start(&dir, &[]);
    for path in ["/v1/inventories", "/v1/inventories/page", "/v1/inventories/mine/page"] {
        assert_eq!(server.get(path).status, 401, "{path}");
    }
}
