//! API keys and the guard before listening beyond this machine.

use serde_json::Value;

use crate::support::{Server, forebay, run, run_ok, stderr};

fn new_key(dir: &tempfile::TempDir, name: &str, scope: &str) -> Value {
    let args = ["key", "new", "--name", name, "--scope", scope, "--json"];
    serde_json::from_str(&run_ok(dir, &args)).unwrap()
}

#[test]
fn keys_are_made_shown_once_listed_and_revoked() {
    let dir = tempfile::tempdir().unwrap();
    let made = new_key(&dir, "laptop", "write");
    let key = made["key"].as_str().unwrap();
    assert!(key.starts_with("fbk_"));
    let list: Value = serde_json::from_str(&run_ok(&dir, &["key", "list", "--json"])).unwrap();
    assert_eq!(list["keys"][0]["name"], "laptop");
    assert_eq!(list["keys"][0]["revoked"], Value::Null);
    assert!(!list.to_string().contains(key), "the secret is never shown again");
    assert!(run_ok(&dir, &["key", "list"]).contains("active"));
    let id = made["id"].as_str().unwrap();
    assert!(run_ok(&dir, &["key", "revoke", id]).contains(id));
    assert!(run_ok(&dir, &["key", "list"]).contains("revoked"));
    let output = run(&dir, &["key", "revoke", "nobody"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("no key \"nobody\""), "{}", stderr(&output));
}

#[test]
fn with_a_key_v1_needs_it_and_the_rest_does_not() {
    let dir = tempfile::tempdir().unwrap();
    let reader = new_key(&dir, "reader", "read");
    let server = Server::start(&dir, &[]);
    let path = "/v1/nowhere";
    let answer = server.get(path);
    assert_eq!(
        (answer.status, answer.json()["error"]["code"].as_str()),
        (401, Some("key_missing"))
    );
    let bearer = format!("authorization: Bearer {}\r\n", reader["key"].as_str().unwrap());
    assert_eq!(
        server.ask("GET", path, &bearer).status,
        404,
        "admitted, but the path does not exist"
    );
    let answer = server.ask("POST", path, &bearer);
    assert_eq!((answer.status, answer.json()["error"]["code"].as_str()), (403, Some("key_scope")));
    let wrong = "x-api-key: fbk_0123456789ab_00\r\n";
    assert_eq!(server.ask("GET", path, wrong).json()["error"]["code"], "key_unknown");
    assert_eq!(server.get("/healthz").status, 200);
    assert_eq!(server.get("/openapi.json").status, 200);
}

#[test]
fn a_running_server_follows_new_and_revoked_keys() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(&dir, &[]);
    assert_eq!(server.get("/v1/x").status, 404, "no keys: open to this machine");
    let made = new_key(&dir, "late", "read");
    let header = format!("x-api-key: {}\r\n", made["key"].as_str().unwrap());
    // The file is checked once a second: ask until the change takes effect.
    let deadline = std::time::Instant::now() + crate::support::HANG;
    let until = |headers: &str, status: u16| {
        while server.ask("GET", "/v1/x", headers).status != status {
            assert!(std::time::Instant::now() < deadline, "still not {status}");
        }
    };
    until("", 401);
    until(&header, 404);
    run_ok(&dir, &["key", "revoke", "late"]);
    until(&header, 401);
}

#[test]
fn listening_beyond_this_machine_unprotected_is_refused_with_the_remedies() {
    let dir = tempfile::tempdir().unwrap();
    let output = run(&dir, &["serve", "--listen", "0.0.0.0:0", "--set", "cache.enabled=false"]);
    assert_eq!(output.status.code(), Some(2));
    let text = stderr(&output);
    for way in ["forebay key new", "even over TLS", "--listen 127.0.0.1", "--insecure"] {
        assert!(text.contains(way), "{way}: {text}");
    }
    let server = Server::start(&dir, &["--listen", "0.0.0.0:0", "--insecure"]);
    assert!(std::fs::read_to_string(dir.path().join("log")).unwrap().contains("no API keys"));
    drop(server);
    new_key(&dir, "k", "admin");
    drop(Server::start(&dir, &["--listen", "0.0.0.0:0"]));
}

#[test]
fn a_key_that_could_not_be_printed_is_revoked() {
    let dir = tempfile::tempdir().unwrap();
    let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
    let made = forebay(&dir).args(["key", "new", "--name", "lost"]).stdout(full).output().unwrap();
    assert!(!made.status.success() && stderr(&made).contains("was revoked"), "{}", stderr(&made));
    let keys: serde_json::Value =
        serde_json::from_str(&run_ok(&dir, &["key", "list", "--json"])).unwrap();
    assert!(keys["keys"][0]["revoked"].is_string(), "{keys}");
}

#[test]
fn a_word_that_is_no_log_level_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    for (log, is_right) in
        [("debgu", false), ("info,hello", false), ("WARN", true), ("info,forebay=debug", true)]
    {
        let output = run(&dir, &["serve", "--log", log, "--listen", "192.0.2.1:1", "--insecure"]);
        assert_eq!(output.status.code() != Some(2), is_right, "{log}: {}", stderr(&output));
    }
}

#[test]
fn a_check_of_a_directory_without_a_cache_finds_none_and_creates_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let output = run(&dir, &["cache", "check", "."]);
    assert_eq!(output.status.code(), Some(3), "{}", stderr(&output));
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
}

#[test]
fn a_damaged_key_file_stops_the_start() {
    let dir = tempfile::tempdir().unwrap();
    new_key(&dir, "k", "read");
    std::fs::write(dir.path().join("forebay-data/keys.toml"), "what = is this").unwrap();
    let output = run(&dir, &["serve", "--listen", "127.0.0.1:0", "--set", "cache.enabled=false"]);
    assert_eq!(output.status.code(), Some(3));
    assert!(stderr(&output).contains("keys.toml is not a key file"), "{}", stderr(&output));
}

/// A server, a key without limits, one that is limited to the files of one namespace, and one that is limited to
/// its files and documents.
struct Limited {
    server: Server,
    all: String,
    mine: String,
    both: String,
    _dir: tempfile::TempDir,
}

impl Limited {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let key = |args: &[&str]| {
            let scopes = ["--scope", "read", "--scope", "write"];
            let args = [&["key", "new", "--json"], &scopes[..], args].concat();
            let made: Value = serde_json::from_str(&run_ok(&dir, &args)).unwrap();
            made["key"].as_str().unwrap().to_owned()
        };
        let (all, mine) = (key(&["--name", "all"]), key(&["--name", "mine", "--only", "files:in"]));
        let both = key(&["--name", "both", "--only", "files:in", "--only", "documents:in"]);
        Self { server: Server::start(&dir, &[]), all, mine, both, _dir: dir }
    }

    fn ask(&self, key: &str, method: &str, target: &str, body: &str) -> (u16, Value) {
        self.ask_as(key, "text/plain", method, target, body)
    }

    fn ask_as(
        &self,
        key: &str,
        kind: &str,
        method: &str,
        target: &str,
        body: &str,
    ) -> (u16, Value) {
        let request = ureq::http::Request::builder()
            .header("content-type", kind)
            .method(method)
            .uri(format!("{}{target}", self.server.url))
            .header("x-api-key", key)
            .body(body.to_owned())
            .unwrap();
        let mut answer = crate::support::agent().run(request).unwrap();
        let text = answer.body_mut().read_to_string().unwrap();
        (answer.status().as_u16(), serde_json::from_str(&text).unwrap_or_default())
    }

    /// Asks with the limited key, and fails unless that is refused.
    fn refused(&self, method: &str, target: &str, body: &str) {
        let (status, answer) = self.ask(&self.mine, method, target, body);
        let code = answer["error"]["code"].as_str();
        assert_eq!((status, code), (403, Some("key_limit")), "{method} {target}: {answer}");
    }
}

#[test]
fn a_limited_key_changes_several_files_of_its_namespace_and_no_others() {
    let house = Limited::new();
    for name in ["in/a", "in/b", "out/a"] {
        assert_eq!(house.ask(&house.all, "PUT", &format!("/v1/files/{name}"), name).0, 201);
    }
    let file = |name: &str| {
        let (namespace, name) = name.split_once('/').unwrap();
        serde_json::json!({"namespace": namespace, "name": name})
    };
    let pair = |from: &str, to: &str| {
        serde_json::json!({"files": [{"from": file(from), "to": file(to)}]}).to_string()
    };
    let files = |names: &[&str]| {
        serde_json::json!({"files": names.iter().map(|name| file(name)).collect::<Vec<_>>()})
            .to_string()
    };
    for (route, body) in [
        ("copy", pair("in/a", "out/b")),
        ("copy", pair("out/a", "in/c")),
        ("move", pair("in/a", "out/b")),
        ("delete", files(&["in/a", "out/a"])),
        ("change", files(&["in/a", "out/a"])),
        ("delete", files(&["out/none"])),
    ] {
        house.refused("POST", &format!("/v1/files/{route}"), &body);
    }
    let ask = |method, target, body: &str| house.ask(&house.mine, method, target, body).0;
    assert_eq!(ask("GET", "/v1/files/in/a", ""), 200, "nothing was deleted");
    assert_eq!(ask("POST", "/v1/files/copy", &pair("in/a", "in/c")), 200);
    assert_eq!(ask("POST", "/v1/files/move", &pair("in/c", "in/d")), 200);
    assert_eq!(ask("POST", "/v1/files/change", &files(&["in/d"])), 200);
    assert_eq!(ask("POST", "/v1/files/delete", &files(&["in/d"])), 200);
}

#[test]
fn a_limited_key_sends_batches_to_its_namespace_and_to_no_other() {
    let house = Limited::new();
    let form = |namespace: &str, name: &str| {
        let field = match namespace {
            "" => String::new(),
            namespace => format!(
                "--b\r\ncontent-disposition: form-data; name=namespace\r\n\r\n{namespace}\r\n"
            ),
        };
        format!(
            "{field}--b\r\ncontent-disposition: form-data; name=f; filename={name}\r\n\r\n\
             {{\"a\":\"{name} {namespace}\"}}\r\n--b--\r\n"
        )
    };
    let send = |key: &str, target: &str, body: &str| {
        house.ask_as(key, "multipart/form-data; boundary=b", "POST", target, body)
    };
    let mine = "/v1/ingest?namespace=in";
    for (key, target) in [
        // The documents are those of another area.
        (&house.mine, mine),
        (&house.both, "/v1/ingest"),
        (&house.both, "/v1/ingest/async"),
        (&house.both, "/v1/ingest?namespace=out"),
        (&house.both, "/v1/ingest?namespace=in&namespace=out"),
        (&house.both, "/v1/ingest?async=true"),
    ] {
        let (status, answer) = send(key, target, &form("in", "a.json"));
        assert_eq!((status, &answer["error"]["code"]), (403, &"key_limit".into()), "{target}");
    }
    for after in ["", "in"] {
        let (status, answer) = send(&house.both, mine, &form(after, &format!("a{after}.json")));
        assert_eq!((status, &answer["namespace"]), (201, &"in".into()), "{answer}");
    }
    let (status, answer) = send(&house.both, mine, &form("out", "b.json"));
    assert_eq!((status, &answer["error"]["code"]), (400, &"field".into()), "{answer}");
    for target in ["/v1/ingest?namespace=in&async=true", "/v1/ingest/async?namespace=in"] {
        for (namespace, expected) in [("", "completed"), ("out", "failed")] {
            let (status, job) = send(&house.both, target, &form(namespace, "c.json"));
            let url = job["url"].as_str().unwrap_or_default().to_owned();
            assert_eq!(status, 202, "{job}");
            assert_eq!(house.ask(&house.both, "GET", &format!("{url}/events"), "").0, 200);
            let (_, job) = house.ask(&house.both, "GET", &url, "");
            assert_eq!(job["status"], expected, "{job}");
        }
    }
    let (_, files) = house.ask(&house.all, "GET", "/v1/files?namespace=out", "");
    assert_eq!(files["files"], serde_json::json!([]), "{files}");
    let other = "/v1/ingest?namespaces=in";
    assert_eq!(send(&house.all, other, &form("in", "d.json")).0, 400);
}

#[test]
fn a_limited_key_sees_its_own_jobs_and_no_others() {
    let house = Limited::new();
    let job = |key: &str, name: &str| {
        let (status, job) = house.ask(key, "PUT", &format!("/v1/files/{name}?async=true"), "later");
        assert_eq!(status, 202, "{job}");
        job["url"].as_str().unwrap().to_owned()
    };
    let (own, other) = (job(&house.mine, "in/e"), job(&house.all, "out/e"));
    let ask = |method, target: &str| house.ask(&house.mine, method, target, "");
    // Events end with the job.
    assert_eq!(ask("GET", &format!("{own}/events")).0, 200);
    let (status, done) = ask("GET", &own);
    assert_eq!((status, &done["status"]), (200, &Value::from("completed")), "{done}");
    assert_eq!(ask("POST", &format!("{own}/cancel")).0, 409, "it has ended");
    for (method, target) in [
        ("GET", other.clone()),
        ("GET", format!("{other}/events")),
        ("POST", format!("{other}/cancel")),
    ] {
        assert_eq!(ask(method, &target).0, 404, "{method} {target}");
    }
    for (method, target) in [
        ("GET", "/v1/jobs"),
        ("GET", "/v1/jobs/stats"),
        ("GET", "/v1/jobs/page"),
        ("DELETE", &own),
        ("POST", &format!("{own}/requeue")),
    ] {
        house.refused(method, target, "");
    }
    assert_eq!(house.ask(&house.all, "GET", &other, "").0, 200);
}
