//! Keys that are limited to a namespace use uploads into it, and see no others.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::s3_client::{Reply, S3, send};
use crate::support::{Server, agent, run_ok};

const TUS: (&str, &str) = ("tus-resumable", "1.0.0");
const BYTES: (&str, &str) = ("content-type", "application/offset+octet-stream");

/// A client with a key.
struct Client<'a> {
    server: &'a Server,
    agent: ureq::Agent,
    authorization: String,
}

impl Client<'_> {
    fn ask(&self, method: &str, target: &str, headers: &[(&str, &str)], body: &[u8]) -> Reply {
        let mut all = vec![("authorization", &*self.authorization), TUS];
        all.extend_from_slice(headers);
        let url = format!("{}{target}", self.server.url);
        send(&self.agent, method, &url, &all, body).unwrap()
    }

    /// Begins an upload of three bytes.
    fn begin(&self, metadata: &[(&str, &str)], more: &[(&str, &str)]) -> Reply {
        let metadata = pairs(metadata);
        let mut headers = vec![("upload-length", "3")];
        if !metadata.is_empty() {
            headers.push(("upload-metadata", &metadata));
        }
        headers.extend_from_slice(more);
        self.ask("POST", "/v1/uploads", &headers, &[])
    }

    fn begun(&self, metadata: &[(&str, &str)], more: &[(&str, &str)]) -> String {
        let reply = self.begin(metadata, more);
        assert_eq!(reply.status, 201, "{}", reply.text());
        reply.header("location").unwrap().to_owned()
    }

    fn append(&self, upload: &str, bytes: &[u8]) -> Reply {
        self.ask("PATCH", upload, &[BYTES, ("upload-offset", "0")], bytes)
    }

    fn put_together(&self, parts: &[&str], metadata: &[(&str, &str)]) -> Reply {
        let (concat, metadata) = (format!("final;{}", parts.join(" ")), pairs(metadata));
        let headers = [("upload-concat", &*concat), ("upload-metadata", &*metadata)];
        self.ask("POST", "/v1/uploads", &headers, &[])
    }
}

fn pairs(pairs: &[(&str, &str)]) -> String {
    let pairs = pairs.iter().map(|(name, value)| format!("{name} {}", BASE64.encode(value)));
    pairs.collect::<Vec<_>>().join(",")
}

/// The status and the code of an answer.
fn refused(reply: &Reply) -> (u16, String) {
    let body: Value = serde_json::from_slice(reply.body.as_deref().unwrap()).unwrap_or_default();
    (reply.status, body["error"]["code"].as_str().unwrap_or_default().to_owned())
}

fn new_key(dir: &TempDir, args: &[&str]) -> (String, String) {
    let args = [&["key", "new", "--json"], args].concat();
    let made: Value = serde_json::from_str(&run_ok(dir, &args)).unwrap();
    (made["id"].as_str().unwrap().to_owned(), made["key"].as_str().unwrap().to_owned())
}

fn client<'a>(server: &'a Server, token: &str) -> Client<'a> {
    Client { server, agent: agent(), authorization: format!("Bearer {token}") }
}

#[test]
fn a_key_limited_to_a_namespace_uses_uploads_into_it_and_sees_no_others() {
    let dir = tempfile::tempdir().unwrap();
    let (id, all) = new_key(&dir, &["--name", "all"]);
    let both = ["--scope", "read", "--scope", "write", "--only"];
    let (_, mine) = new_key(&dir, &[&["--name", "mine"], &both[..], &["files:in"]].concat());
    let (_, other) = new_key(&dir, &[&["--name", "other"], &both[..], &["files:out"]].concat());
    let (_, reads) = new_key(&dir, &["--name", "reads", "--scope", "read", "--only", "files:in"]);
    let (_, documents) =
        new_key(&dir, &[&["--name", "documents"], &both[..], &["documents:in"]].concat());
    let (_, appends) =
        new_key(&dir, &["--name", "appends", "--scope", "append", "--only", "files:in"]);
    let server = Server::start(&dir, &["--set", "s3.listen=127.0.0.1:0"]);
    let [all, mine, other, reads, documents, appends] =
        [all, mine, other, reads, documents, appends].map(|token| client(&server, &token));
    let limit = (403, "key_limit".to_owned());
    let scope = (403, "key_scope".to_owned());
    let absent = (404, "not_found".to_owned());

    // Its own namespace: begun, continued by it and by the key of everything, read, removed.
    let named = [("namespace", "in"), ("filename", "a.txt")];
    let upload = mine.begun(&named, &[]);
    assert_eq!(mine.ask("HEAD", &upload, &[], &[]).header("upload-offset"), Some("0"));
    assert_eq!(reads.ask("GET", &upload, &[], &[]).status, 200);
    let done = mine.append(&upload, b"abc");
    assert_eq!((done.status, done.header("upload-file")), (204, Some("/v1/files/in/a.txt")));
    let begun_by_all = all.begun(&named, &[]);
    assert_eq!(mine.append(&begun_by_all, b"def").status, 204);
    assert_eq!(mine.ask("DELETE", &begun_by_all, &[], &[]).status, 204);
    assert_eq!(mine.ask("OPTIONS", "/v1/uploads", &[], &[]).status, 204);

    // Other namespaces, named or by default, and whether a name exists there.
    let new_only = [("if-none-match", "*")];
    let exists = all.begun(&[("namespace", "out"), ("filename", "b")], &[]);
    assert_eq!(all.append(&exists, b"xyz").status, 204);
    for (metadata, more) in [
        (&[("namespace", "out"), ("filename", "a")][..], &[][..]),
        (&[("filename", "a")], &[]),
        (&[], &[]),
        (&[("namespace", "out"), ("filename", "b")], &new_only),
        (&[("namespace", "out")], &[("upload-concat", "partial")]),
    ] {
        assert_eq!(refused(&mine.begin(metadata, more)), limit, "{metadata:?} {more:?}");
    }
    assert_eq!(refused(&documents.begin(&named, &[])), limit, "a key for something else");

    // Foreign uploads do not exist, whatever is done to them, and nothing happens to them.
    let foreign = other.begun(&[("namespace", "out"), ("filename", "c")], &[]);
    let part_of_other = other.begun(&[], &[("upload-concat", "partial")]);
    for upload in [&foreign, &part_of_other] {
        let over = ("x-http-method-override", "DELETE");
        for reply in [
            mine.ask("GET", upload, &[], &[]),
            mine.append(upload, b"abc"),
            mine.ask("DELETE", upload, &[], &[]),
            mine.ask("POST", upload, &[over], &[]),
        ] {
            assert_eq!(refused(&reply), absent, "{upload}");
        }
        assert_eq!(mine.ask("HEAD", upload, &[], &[]).status, 404);
        assert_eq!(other.ask("HEAD", upload, &[], &[]).header("upload-offset"), Some("0"));
    }
    assert_eq!(refused(&documents.ask("GET", &upload, &[], &[])), limit);
    // An upload in parts of the other API is none of this one.
    let secret: Value =
        serde_json::from_str(&run_ok(&dir, &["s3", "secret", &id, "--json"])).unwrap();
    let s3 = S3::new(
        server.s3_url.as_ref().unwrap(),
        &id,
        secret["secret_access_key"].as_str().unwrap(),
    );
    let multipart = s3.send("POST", "/in/d", &[("uploads", "")], &[], &[]).unwrap();
    let multipart = format!("/v1/uploads/{}", multipart.elements("UploadId")[0]);
    assert_eq!(refused(&mine.ask("DELETE", &multipart, &[], &[])), absent);

    // Lists show every namespace.
    assert_eq!(refused(&mine.ask("GET", "/v1/uploads", &[], &[])), limit);
    assert_eq!(mine.ask("HEAD", "/v1/uploads", &[], &[]).status, 403);
    assert_eq!(all.ask("GET", "/v1/uploads", &[], &[]).status, 200);

    // Scopes as for any key.
    assert_eq!(refused(&reads.begin(&named, &[])), scope);
    assert_eq!(refused(&reads.append(&foreign, b"abc")), scope);
    assert_eq!(refused(&appends.begin(&named, &[])), scope);
    let fresh = appends.begun(&[("namespace", "in"), ("filename", "fresh")], &new_only);
    assert_eq!(appends.append(&fresh, b"abc").status, 204);
    assert_eq!(refused(&appends.ask("DELETE", &fresh, &[], &[])), scope);

    // Partial uploads need no namespace, and belong to the key; the file's is checked.
    let partial = [("upload-concat", "partial")];
    let parts = [mine.begun(&[], &partial), mine.begun(&[("namespace", "in")], &partial)];
    for part in &parts {
        assert_eq!(mine.append(part, b"abc").status, 204);
    }
    let parts = [&*parts[0], &*parts[1]];
    let whole = [("namespace", "in"), ("filename", "whole")];
    let elsewhere = [("namespace", "out"), ("filename", "whole")];
    assert_eq!(refused(&mine.put_together(&parts, &elsewhere)), limit);
    assert_eq!(other.append(&part_of_other, b"xyz").status, 204);
    assert_eq!(refused(&mine.put_together(&[parts[0], &part_of_other], &whole)), absent);
    assert_eq!(refused(&mine.put_together(&[&foreign], &whole)), absent);
    assert_eq!(refused(&other.put_together(&parts, &elsewhere)), absent);
    let done = mine.put_together(&parts, &whole);
    assert_eq!((done.status, done.header("upload-file")), (201, Some("/v1/files/in/whole")));
    assert_eq!(mine.ask("GET", "/v1/files/in/whole", &[], &[]).body.unwrap(), b"abcabc");
    let made = done.header("location").unwrap();
    assert_eq!(other.ask("HEAD", made, &[], &[]).status, 404);

    // A URL that a limited key signed is limited like the key.
    let asked = json!({ "method": "POST", "path": "/v1/uploads" }).to_string();
    let signed = mine.ask("POST", "/v1/presign", &[], asked.as_bytes());
    let signed: Value = serde_json::from_slice(&signed.body.unwrap()).unwrap();
    let url = format!("{}{}", server.url, signed["url"].as_str().unwrap());
    for (namespace, status) in [("in", 201), ("out", 403)] {
        let metadata = pairs(&[("namespace", namespace), ("filename", "signed")]);
        let headers = [TUS, ("upload-length", "3"), ("upload-metadata", &*metadata)];
        assert_eq!(send(&agent(), "POST", &url, &headers, &[]).unwrap().status, status);
    }
}
