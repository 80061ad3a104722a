//! Presigned URLs: one request each, as far as the key behind them permits, and only as it was signed.

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::{HANG, Server, agent, run_ok};

struct Key {
    name: &'static str,
    token: String,
}

fn new_key(dir: &TempDir, name: &'static str, args: &[&str]) -> Key {
    let args = [&["key", "new", "--name", name, "--json"], args].concat();
    let made: Value = serde_json::from_str(&run_ok(dir, &args)).unwrap();
    Key { name, token: made["key"].as_str().unwrap().to_owned() }
}

/// Asks for a URL; returns the status and the answer.
fn presign(server: &Server, key: &Key, asked: &Value) -> (u16, Value) {
    let request = agent()
        .post(format!("{}/v1/presign", server.url))
        .header("authorization", format!("Bearer {}", key.token));
    let mut answer = request.send(asked.to_string()).unwrap();
    let body = answer.body_mut().read_to_string().unwrap();
    (answer.status().as_u16(), serde_json::from_str(&body).unwrap())
}

fn url(server: &Server, key: &Key, method: &str, path: &str, size_max: Option<u64>) -> String {
    let asked = json!({ "method": method, "path": path, "expires": "10m", "size_max": size_max });
    let (status, answer) = presign(server, key, &asked);
    assert_eq!(status, 200, "{answer}");
    answer["url"].as_str().unwrap().to_owned()
}

/// Sends a request without a key; returns its status, error code and body.
fn send(
    server: &Server,
    method: &str,
    url: &str,
    headers: &[(&str, &str)],
    body: &str,
) -> (u16, String, String) {
    let request = headers.iter().fold(
        ureq::http::Request::builder().method(method).uri(format!("{}{url}", server.url)),
        |request, (name, value)| request.header(*name, *value),
    );
    let mut answer = agent().run(request.body(body.to_owned()).unwrap()).unwrap();
    let text = answer.body_mut().read_to_string().unwrap();
    let json: Value = serde_json::from_str(&text).unwrap_or_default();
    let code = json["error"]["code"].as_str().unwrap_or_default().to_owned();
    (answer.status().as_u16(), code, text)
}

fn status(server: &Server, method: &str, url: &str, body: &str) -> (u16, String) {
    let (status, code, _) = send(server, method, url, &[], body);
    (status, code)
}

#[test]
fn a_presigned_url_permits_one_request_and_nothing_else() {
    let dir = tempfile::tempdir().unwrap();
    let writer = new_key(&dir, "writer", &["--scope", "write", "--scope", "read"]);
    let server = Server::start(&dir, &[]);
    let put = url(&server, &writer, "PUT", "/v1/files/in/a%20b.txt?comment=signed", Some(10));
    assert_eq!(status(&server, "PUT", &put, "0123456789").0, 201);
    let long = status(&server, "PUT", &put, "0123456789x");
    assert_eq!(long, (413, "too_large".to_owned()));
    let packed = send(&server, "PUT", &put, &[("content-encoding", "gzip")], "x");
    assert_eq!(packed.0, 415);
    let tagged = send(&server, "PUT", &put, &[("forebay-tags", "a=1")], "x");
    assert_eq!((tagged.0, tagged.1.as_str()), (403, "presign_header"));
    let get = url(&server, &writer, "GET", "/v1/files/in/a%20b.txt", None);
    assert_eq!(send(&server, "GET", &get, &[], "").2, "0123456789");
    assert_eq!(status(&server, "HEAD", &get, "").0, 200);
    let invalid = (403, "presign_invalid".to_owned());
    for (method, url, what) in [
        ("PUT", get.clone(), "another method"),
        ("DELETE", put.clone(), "another method"),
        ("GET", put.clone(), "a read by a URL for writing"),
        ("GET", get.replacen("a%20b", "c", 1), "another path"),
        ("GET", format!("{get}&download=true"), "another parameter"),
        ("PUT", put.replacen("comment=signed", "comment=other", 1), "another value"),
        ("PUT", put.replacen("presign_size_max=10&", "", 1), "without the limit"),
        ("PUT", put.replacen("presign_size_max=10", "presign_size_max=11", 1), "another limit"),
        ("GET", get.replacen("presign_expires=1", "presign_expires=2", 1), "later"),
        ("GET", get.replacen("presign_key=", "presign_key=0", 1), "another key"),
        ("GET", get.split_once("&presign_signature").unwrap().0.to_owned(), "unsigned"),
    ] {
        assert_eq!(status(&server, method, &url, "x"), invalid, "{what}: {method} {url}");
    }
    let delete = url(&server, &writer, "DELETE", "/v1/files/in/a%20b.txt", None);
    assert_eq!(status(&server, "DELETE", &delete, "").0, 204);
    assert_eq!(status(&server, "GET", &get, "").0, 404);
    let printed = run_ok(
        &dir,
        &[
            "presign",
            "/v1/files/in/c",
            "--method",
            "PUT",
            "--size-max",
            "1KiB",
            "--server",
            &server.url,
            "--key",
            &writer.token,
        ],
    );
    let printed = printed.trim().strip_prefix(&server.url).unwrap();
    assert_eq!(status(&server, "PUT", printed, "by the command").0, 201);
}

#[test]
fn a_url_expires_and_ends_with_its_key_and_never_permits_more_than_that() {
    let dir = tempfile::tempdir().unwrap();
    let writer = new_key(&dir, "writer", &["--scope", "write"]);
    let reader = new_key(&dir, "reader", &["--scope", "read"]);
    let appender = new_key(&dir, "appender", &["--scope", "append"]);
    let limited = new_key(&dir, "limited", &["--scope", "read", "--only", "files:in"]);
    let server = Server::start(&dir, &[]);
    let ask = |key: &Key, method: &str, path: &str, expires: &str| {
        let (status, answer) =
            presign(&server, key, &json!({ "method": method, "path": path, "expires": expires }));
        (status, answer["error"]["code"].as_str().unwrap_or_default().to_owned())
    };
    let scope = (403, "key_scope".to_owned());
    assert_eq!(ask(&reader, "PUT", "/v1/files/in/a", "1m"), scope);
    assert_eq!(ask(&writer, "GET", "/v1/files/in/a", "1m"), scope);
    assert_eq!(ask(&limited, "GET", "/v1/files/out/a", "1m"), (403, "key_limit".to_owned()));
    assert_eq!(ask(&limited, "GET", "/v1/files/in/a", "7d").0, 200);
    let refused = (400, "presign_request".to_owned());
    for (method, path, expires) in [
        ("GET", "/v1/files/in/a", "8d"),
        ("GET", "/v1/files/in/a", "0s"),
        ("GET", "/v1/files/in/a", "x"),
        ("GET", "/v1/events", "1m"),
        ("POST", "/v1/presign", "1m"),
        ("GET", "http://elsewhere/v1/files/in/a", "1m"),
        ("GET", "/v1/files/in/a?presign_key=x", "1m"),
        ("GET", "/v1/files/in/a#x", "1m"),
    ] {
        assert_eq!(ask(&reader, method, path, expires), refused, "{method} {path} {expires}");
    }
    assert_eq!(server.ask("POST", "/v1/presign", "").status, 401);

    // A key that may only append cannot replace a file by a URL either.
    let append = url(&server, &appender, "PUT", "/v1/files/in/new", None);
    assert_eq!(status(&server, "PUT", &append, "x"), scope);
    assert_eq!(send(&server, "PUT", &append, &[("if-none-match", "*")], "first").0, 201);
    assert_eq!(send(&server, "PUT", &append, &[("if-none-match", "*")], "x").0, 412);

    let asked = json!({ "method": "GET", "path": "/v1/files/in/new", "expires": "1s" });
    let brief = presign(&server, &reader, &asked).1["url"].as_str().unwrap().to_owned();
    let until = |url: &str, wanted: (u16, &str)| {
        let deadline = std::time::Instant::now() + HANG;
        while status(&server, "GET", url, "") != (wanted.0, wanted.1.to_owned()) {
            assert!(std::time::Instant::now() < deadline, "still not {wanted:?}");
        }
    };
    until(&brief, (403, "presign_expired"));
    let get = url(&server, &reader, "GET", "/v1/files/in/new", None);
    assert_eq!(send(&server, "GET", &get, &[], "").2, "first");
    run_ok(&dir, &["key", "revoke", reader.name]);
    until(&get, (403, "presign_invalid"));
}

#[test]
fn an_upload_can_be_begun_and_continued_by_presigned_urls() {
    let dir = tempfile::tempdir().unwrap();
    let writer = new_key(&dir, "writer", &["--scope", "write"]);
    let server = Server::start(&dir, &[]);
    let tus = ("tus-resumable", "1.0.0");
    let begin = url(&server, &writer, "POST", "/v1/uploads", Some(5));
    let large = send(&server, "POST", &begin, &[tus, ("upload-length", "6")], "");
    assert_eq!((large.0, &*large.1), (413, "too_large"));
    let deferred = send(&server, "POST", &begin, &[tus, ("upload-defer-length", "1")], "");
    assert_eq!((deferred.0, &*deferred.1), (411, "presign_length"));
    let begun = agent()
        .post(format!("{}{begin}", server.url))
        .header(tus.0, tus.1)
        .header("upload-length", "5")
        .send_empty()
        .unwrap();
    assert_eq!(begun.status().as_u16(), 201);
    let path = begun.headers()["location"].to_str().unwrap();
    let append = url(&server, &writer, "PATCH", path, None);
    let bytes = ("content-type", "application/offset+octet-stream");
    let offset = ("upload-offset", "0");
    assert_eq!(send(&server, "PATCH", path, &[tus, bytes, offset], "hello").0, 401);
    // The method that is signed is the one that is meant.
    let over = ("x-http-method-override", "DELETE");
    assert_eq!(send(&server, "POST", &append, &[tus, over], "").1, "presign_invalid");
    assert_eq!(send(&server, "PATCH", &append, &[tus, bytes, offset], "hello").0, 204);
    let head = url(&server, &writer, "HEAD", path, None);
    let request = agent().head(format!("{}{head}", server.url)).header(tus.0, tus.1);
    let answer = request.call().unwrap();
    assert_eq!(answer.headers()["upload-offset"], "5");
    assert!(answer.headers()["upload-file"].to_str().unwrap().starts_with("/v1/files/default/"));
}
