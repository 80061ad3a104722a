//! `forebay export` and `forebay import` between real servers.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Output, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use serde_json::value::RawValue;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::{HANG, Server, agent, forebay, run, run_ok, stderr};

fn ok_json(dir: &TempDir, args: &[&str]) -> Value {
    serde_json::from_str(&run_ok(dir, args)).unwrap()
}

fn put(server: &Server, path: &str, headers: &[(&str, &str)], bytes: &[u8]) {
    let mut request = agent().put(format!("{}/v1/files/{path}", server.url));
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let answer = request.send(bytes).unwrap();
    assert!(answer.status().is_success(), "{path}: {answer:?}");
}

fn patch(server: &Server, path: &str, patch: &Value) {
    let request = agent().patch(format!("{}/v1/files/{path}", server.url));
    let answer = request.send(patch.to_string()).unwrap();
    assert!(answer.status().is_success(), "{path}: {answer:?}");
}

fn post(server: &Server, namespace: &str, query: &str, body: &str) {
    let url = format!("{}/v1/documents/{namespace}{query}", server.url);
    let answer = agent().post(url).send(body).unwrap();
    assert_eq!(answer.status().as_u16(), 201, "{answer:?}");
}

fn bytes(server: &Server, path: &str) -> Vec<u8> {
    let mut answer = agent().get(format!("{}{path}", server.url)).call().unwrap();
    assert_eq!(answer.status().as_u16(), 200, "{path}");
    answer.body_mut().with_config().limit(1 << 30).read_to_vec().unwrap()
}

/// Everything that is to be the same on another server: files with bytes, and documents with ids.
#[derive(Debug, PartialEq)]
struct State {
    files: Vec<(Value, Vec<u8>)>,
    documents: Option<(Value, Value, Vec<String>)>,
}

/// The documents with their ids, byte for byte.
fn documents(server: &Server, namespace: &str) -> Option<Vec<String>> {
    #[derive(serde::Deserialize)]
    struct Page {
        documents: Vec<Document>,
        next_cursor: Option<String>,
    }
    #[derive(serde::Deserialize)]
    struct Document {
        id: u64,
        document: Box<RawValue>,
    }
    let (mut all, mut cursor) = (Vec::new(), String::new());
    loop {
        let url = format!("{}/v1/documents/{namespace}?limit=1000{cursor}", server.url);
        let mut answer = agent().get(url).call().unwrap();
        if answer.status().as_u16() == 404 {
            return None;
        }
        let page: Page =
            serde_json::from_str(&answer.body_mut().read_to_string().unwrap()).unwrap();
        let texts = page.documents.iter();
        all.extend(texts.map(|one| format!("{} {}", one.id, one.document.get())));
        match page.next_cursor {
            Some(next) => cursor = format!("&cursor={next}"),
            None => return Some(all),
        }
    }
}

fn state(server: &Server, dir: &TempDir, namespace: &str) -> State {
    let list = run_ok(dir, &["files", "ls", namespace, "--server", &server.url, "--json"]);
    let files = list.lines().map(|line| {
        let mut file: Value = serde_json::from_str(line).unwrap();
        let content = bytes(server, file["url"].as_str().unwrap());
        for other in ["id", "url", "namespace", "created"] {
            file[other].take();
        }
        (file, content)
    });
    let files = files.collect();
    let documents = documents(server, namespace).map(|documents| {
        let schema = ["documents", "schema", namespace, "--server", &server.url, "--json"];
        let schema = ok_json(dir, &schema);
        (schema["target"].clone(), schema["columns"].clone(), documents)
    });
    State { files, documents }
}

/// Fills a namespace with all that an archive can have.
fn fill(server: &Server, namespace: &str) {
    let of = |name: &str| format!("{namespace}/{name}");
    let large: Vec<u8> = (0..300_000_u32).flat_map(u32::to_le_bytes).collect();
    put(server, &of("large.bin"), &[], &large);
    put(server, &of("copy/of/large.bin?comment=a%20%22copy%22%0Awith%20a%20line"), &[], &large);
    put(server, &of("empty"), &[], b"");
    let headers = [("forebay-meta-author", "Ada L"), ("forebay-tags", "stage=raw&a+b=x%26y")];
    put(server, &of("tagged.txt"), &headers, b"some text");
    // What no header can carry.
    put(server, &of("%C3%A9/a%20%2520b%3F%23.txt"), &[], "é".as_bytes());
    let long = "v".repeat(4_000);
    let details = json!({
        "comment": "c".repeat(4_000), "tags": { "é": " spaces ", "none": "" },
        "metadata": { "Upper Case": "Ünï", "empty": "", "l1": &long, "l2": &long },
    });
    patch(server, &of("%C3%A9/a%20%2520b%3F%23.txt"), &details);
    let rows: Vec<String> = (0..2_500)
        .map(|n| format!("{{\"n\":{n},\n\"price\" : {n}.50, \"name\":\"é{n}\"}}"))
        .collect();
    post(server, namespace, "?target=table", &format!("[{}]", rows.join(",")));
    post(server, namespace, "", "{\"n\":1,\"n\":2e400,\"name\":\"\\ud83d\\u00e9 twice\"}");
}

fn two() -> (TempDir, Server, TempDir, Server) {
    let (from_dir, to_dir) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let from = Server::start(&from_dir, &[]);
    let to = Server::start(&to_dir, &[]);
    (from_dir, from, to_dir, to)
}

#[test]
fn a_namespace_is_the_same_on_another_server() {
    let (dir, from, _to_dir, to) = two();
    fill(&from, "plans");
    put(&from, "other/x", &[], b"x");
    let expected = state(&from, &dir, "plans");
    assert_eq!(expected.files.len(), 5);
    let export =
        |path: &str| ok_json(&dir, &["export", "plans", path, "--server", &from.url, "--json"]);
    let summary = export("plans.tar");
    assert_eq!((&summary["files"], &summary["contents"]), (&5.into(), &4.into()), "{summary}");
    assert_eq!((&summary["documents"], &summary["left_out"]), (&2_501.into(), &0.into()));
    export("plans");
    let exists = run(&dir, &["export", "plans", "plans.tar", "--server", &from.url]);
    assert!(exists.status.code() == Some(1) && stderr(&exists).contains("--force"), "{exists:?}");
    run_ok(&dir, &["export", "plans", "plans.tar", "--force", "--server", &from.url]);
    let exists = run(&dir, &["export", "plans", "plans", "--server", &from.url]);
    assert_eq!(exists.status.code(), Some(1));
    let none = run(&dir, &["export", "none", "none.tar", "--server", &from.url]);
    assert!(none.status.code() == Some(1) && stderr(&none).contains("no files or documents"));

    let import = |args: &[&str]| {
        let args = [&["import"], args, &["--server", &to.url, "--json"]].concat();
        ok_json(&dir, &args)
    };
    let planned = import(&["plans.tar", "--dry-run"]);
    assert_eq!(
        (&planned["files"]["stored"], &planned["documents"]["stored"]),
        (&5.into(), &2_501.into())
    );
    assert_eq!(state(&to, &dir, "plans"), State { files: vec![], documents: None });
    let first = import(&["plans.tar"]);
    assert_eq!((&first["files"]["stored"], &first["files"]["failed"]), (&5.into(), &0.into()));
    assert_eq!(first["documents"], json!({ "stored": 2_501, "unchanged": 0, "ids_kept": true }));
    assert_eq!(state(&to, &dir, "plans"), expected);
    // Again, from the other form of archive: nothing changes.
    for path in ["plans.tar", "plans"] {
        let again = import(&[path]);
        let files = json!({
            "stored": 0, "replaced": 0, "changed": 0, "unchanged": 5, "failed": 0, "bytes_sent": 0,
        });
        let documents = json!({ "stored": 0, "unchanged": 2_501, "ids_kept": true });
        let expected = json!({
            "namespace": "plans", "files": files, "documents": documents, "settings": "none",
        });
        assert_eq!(again, expected);
    }
    assert_eq!(state(&to, &dir, "plans"), expected);
    // What has changed since is as in the archive again, and other names stay.
    put(&to, "plans/empty", &[], b"no more");
    patch(
        &to,
        "plans/tagged.txt",
        &json!({ "tags": { "stage": "final", "more": "1" }, "comment": "c" }),
    );
    put(&to, "plans/another", &[], b"another");
    let repaired = import(&["plans.tar"]);
    let counts = &repaired["files"];
    assert_eq!((&counts["replaced"], &counts["changed"]), (&1.into(), &1.into()), "{repaired}");
    run_ok(&dir, &["files", "rm", "plans/another", "--server", &to.url]);
    assert_eq!(state(&to, &dir, "plans"), expected);
    // Under another name, and from the directory.
    import(&["plans", "--namespace", "copied"]);
    assert_eq!(state(&to, &dir, "copied"), expected);
    let names = std::fs::read_dir(dir.path()).unwrap();
    let parts =
        names.filter(|name| name.as_ref().unwrap().file_name().to_string_lossy().contains("part"));
    assert_eq!(parts.count(), 0, "no temporary file is left");
    // tar and any JSON parser can read it.
    let listed =
        std::process::Command::new("tar").args(["tf", "plans.tar"]).current_dir(&dir).output();
    let listed = String::from_utf8(listed.unwrap().stdout).unwrap();
    assert!(listed.ends_with("files.ndjson\ndocuments.ndjson\nmanifest.json\n"), "{listed}");
}

#[test]
fn settings_of_a_namespace_are_set_where_it_has_none() {
    let (dir, from, _to_dir, to) = two();
    for name in ["a", "b"] {
        put(&from, &format!("plans/{name}"), &[], b"x");
    }
    let at = |server: &Server, args: &[&str]| {
        ok_json(&dir, &[args, &["--server", &server.url, "--json"]].concat())
    };
    let settings = |server: &Server| {
        let found = at(server, &["namespaces", "show", "plans"]);
        let quota = (found["quota"]["files"].clone(), found["quota"]["bytes"].clone());
        (found["versions"].clone(), quota, found["tags"].clone())
    };
    // The limit is less than what the namespace has.
    let limits =
        ["--max-files", "1", "--max-bytes", "1GiB", "--versions", "on", "--tag", "team=a b"];
    at(&from, &[&["namespaces", "set", "plans"], &limits[..]].concat());
    assert_eq!(at(&from, &["export", "plans", "plans.tar"])["settings"], true);
    assert_eq!(at(&to, &["import", "plans.tar", "--dry-run"])["settings"], "set");
    assert_eq!(at(&to, &["import", "plans.tar"])["settings"], "set");
    assert_eq!(settings(&to), settings(&from));
    assert_eq!(at(&to, &["import", "plans.tar"])["settings"], "unchanged");
    at(&to, &["namespaces", "set", "plans", "--max-files", "none", "--versions", "off"]);
    let others = settings(&to);
    assert_eq!(at(&to, &["import", "plans.tar"])["settings"], "kept");
    assert_eq!(settings(&to), others);
}

#[test]
fn documents_are_not_added_to_others_unless_asked_for() {
    let (dir, from, _to_dir, to) = two();
    let documents =
        |range: std::ops::Range<u32>| range.map(|n| format!("{{\"n\":{n}}}\n")).collect::<String>();
    post(&from, "n", "", &documents(0..1_200));
    run_ok(&dir, &["documents", "rm", "n", "3", "--server", &from.url]);
    run_ok(&dir, &["export", "n", "n.tar", "--server", &from.url]);
    let import = |more: &[&str]| {
        run(&dir, &[&["import", "n.tar", "--server", &to.url, "--json"], more].concat())
    };
    let json = |output: Output| -> Value {
        assert!(output.status.success(), "{output:?}");
        serde_json::from_slice::<Value>(&output.stdout).unwrap()["documents"].clone()
    };
    post(&to, "n", "", "{\"other\":1}");
    let refused = import(&[]);
    assert_eq!(refused.status.code(), Some(1));
    assert!(stderr(&refused).contains("n/1 differs from document 1"), "{}", stderr(&refused));
    let added = json(import(&["--append"]));
    assert_eq!(added, json!({ "stored": 1_199, "unchanged": 0, "ids_kept": false }));
    assert_eq!(json(import(&["--append"]))["stored"], 1_199, "the same requests, answered again");
    let count = |namespace: &str| {
        ok_json(&dir, &["documents", "schema", namespace, "--server", &to.url, "--json"])["documents"].clone()
    };
    assert_eq!(count("n"), 1_200);
    // An archive that begins with what is there continues it, also without a remembered key.
    let text = run_ok(&dir, &["documents", "ls", "n", "--raw", "--server", &from.url]);
    let begun: String = text.lines().take(700).map(|line| format!("{line}\n")).collect();
    post(&to, "begun", "", &begun);
    let continued = json(import(&["--namespace", "begun"]));
    assert_eq!(continued, json!({ "stored": 499, "unchanged": 700, "ids_kept": false }));
    assert_eq!(run_ok(&dir, &["documents", "ls", "begun", "--raw", "--server", &to.url]), text);
    // What was stored later stays, and is no obstacle.
    post(&to, "begun", "", "{\"later\":1}");
    assert_eq!(json(import(&["--namespace", "begun"]))["unchanged"], 1_199);
    assert_eq!(count("begun"), 1_200);
    // The other kind of namespace is not changed.
    post(&from, "t", "?target=table", &documents(0..3));
    run_ok(&dir, &["export", "t", "t.tar", "--server", &from.url]);
    post(&to, "t", "?target=collection", &documents(0..1));
    let other = run(&dir, &["import", "t.tar", "--server", &to.url]);
    assert!(other.status.code() == Some(1) && stderr(&other).contains("409"), "{other:?}");
    assert_eq!(count("t"), 1);
}

#[test]
fn what_was_cut_damaged_or_made_by_someone_else_stores_nothing() {
    let (dir, from, _to_dir, to) = two();
    fill(&from, "n");
    run_ok(&dir, &["export", "n", "n.tar", "--server", &from.url]);
    let whole = std::fs::read(dir.path().join("n.tar")).unwrap();
    let refused = |expected: &str| {
        let output = run(&dir, &["import", "bad.tar", "--server", &to.url]);
        let text = stderr(&output);
        assert_eq!(output.status.code(), Some(1), "{text}");
        assert!(
            text.contains("is refused, nothing was stored") && text.contains(expected),
            "{text}"
        );
        assert!(!text.contains(['\u{1b}', '\r']), "{text}");
        assert_eq!(state(&to, &dir, "n"), State { files: vec![], documents: None });
    };
    let bad = dir.path().join("bad.tar");
    for size in [0, 700, whole.len() / 3, whole.len() - 1_500, whole.len() - 512] {
        std::fs::write(&bad, &whole[..size]).unwrap();
        refused("was cut");
    }
    let find = |text: &[u8]| whole.windows(text.len()).position(|window| window == text).unwrap();
    for (at, expected) in [
        (600, "has the SHA-256"),
        (find(b"\"name\":\"tagged.txt\"") + 9, "files.ndjson has the SHA-256"),
        (find(b"twice") + 1, "documents.ndjson has the SHA-256"),
        (2, "no header of a tar file"),
    ] {
        let mut flipped = whole.clone();
        flipped[at] ^= 4;
        std::fs::write(&bad, flipped).unwrap();
        refused(expected);
    }
    for name in ["../../etc/passwd", "/etc/passwd", "files/\u{1b}[31m", "C:\\x"] {
        let mut builder = tar::Builder::new(std::fs::File::create(&bad).unwrap());
        let mut header = tar::Header::new_gnu();
        header.as_old_mut().name[..name.len()].copy_from_slice(name.as_bytes());
        header.set_size(1);
        header.set_cksum();
        builder.append(&header, &b"x"[..]).unwrap();
        builder.into_inner().unwrap();
        refused("no member of this name");
    }
    std::fs::write(&bad, "no tar file at all").unwrap();
    refused("was cut");
    std::fs::remove_file(&bad).unwrap();
    refused("cannot read bad.tar");
    // A list with its digests made right again, and a name that leads elsewhere.
    run_ok(&dir, &["export", "n", "bad.tar.d", "--server", &from.url]);
    let root = dir.path().join("bad.tar.d");
    let list = std::fs::read_to_string(root.join("files.ndjson")).unwrap();
    rewrite(&root, &list.replace("\"tagged.txt\"", "\"tagged/../../x\""));
    std::fs::rename(&root, &bad).unwrap();
    refused("the file name contains the component");
}

/// Writes another list of files, and a manifest that fits it.
fn rewrite(root: &Path, list: &str) {
    std::fs::write(root.join("files.ndjson"), list).unwrap();
    let path = root.join("manifest.json");
    let mut manifest: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    manifest["files"]["size"] = list.len().into();
    let digest = |text: &str| forebay_intake::digest::Digest::of(text.as_bytes()).to_string();
    manifest["files"]["sha256"] = digest(list).into();
    manifest.as_object_mut().unwrap().remove("sha256");
    let text = manifest.to_string();
    let before = text.strip_suffix('}').unwrap();
    let text = format!("{before},\"sha256\":\"{}\"}}", digest(before));
    std::fs::write(path, text).unwrap();
}

const FILE_SIZE: usize = 120_000;

/// A way to a server that ends after a number of bytes.
struct Relay {
    url: String,
    ended: Receiver<()>,
}

impl Relay {
    fn start(server: &Server, bytes: u64) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let (send, ended) = sync_channel(1);
        let (server, left) = (server.address, Arc::new(AtomicU64::new(bytes)));
        std::thread::spawn(move || {
            for client in listener.incoming() {
                let client = client.unwrap();
                // Without a server the client's connection is closed.
                let Ok(server) = TcpStream::connect(server) else { continue };
                let back = (server.try_clone().unwrap(), client.try_clone().unwrap());
                let (left, send) = (Arc::clone(&left), send.clone());
                std::thread::spawn(move || forward(client, server, &left, &send));
                std::thread::spawn(move || {
                    let (mut server, mut client) = back;
                    // Either side may close at any time.
                    std::io::copy(&mut server, &mut client).map(drop).unwrap_or_default();
                    client.shutdown(Shutdown::Both).unwrap_or_default();
                });
            }
        });
        Self { url, ended }
    }

    /// Waits until the bytes have passed.
    fn wait(&self) {
        self.ended.recv_timeout(HANG).unwrap();
    }
}

fn forward(mut client: TcpStream, mut server: TcpStream, left: &AtomicU64, send: &SyncSender<()>) {
    let mut buffer = [0; 16_384];
    while let Ok(read @ 1..) = client.read(&mut buffer) {
        let less = left
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(read as u64));
        if less.is_err() {
            send.try_send(()).unwrap_or_default();
            return;
        }
        if server.write_all(&buffer[..read]).is_err() {
            return;
        }
    }
}

#[test]
fn an_import_whose_server_is_killed_is_completed_by_repeating_it() {
    let (dir, from, to_dir, mut to) = two();
    for n in 0..120_u32 {
        let headers = [("forebay-tags", "stage=raw")];
        put(&from, &format!("n/{n:03}"), &headers, &n.to_le_bytes().repeat(FILE_SIZE / 4));
    }
    let rows: String =
        (0..5_000).map(|n| format!("{{\"n\":{n},\"text\":\"{n:200}\"}}\n")).collect();
    post(&from, "n", "", &rows);
    let expected = state(&from, &dir, "n");
    run_ok(&dir, &["export", "n", "n.tar", "--server", &from.url]);
    // In the middle of the files, then of the documents.
    let mut there = 0;
    for (files, documents) in [(20, 0), (120, 2)] {
        // Heads are small beside these bodies: fewer than one file for all of them.
        let bytes = (files - there + 1) * FILE_SIZE + documents * 230_000;
        let relay = Relay::start(&to, bytes as u64);
        let mut import = forebay(&dir);
        import.args(["import", "n.tar", "--workers", "2", "--server", &relay.url]);
        let import = import.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        let import = import.spawn().unwrap();
        relay.wait();
        to.signal("KILL");
        assert_eq!(to.wait(), None);
        let ended = import.wait_with_output().unwrap();
        assert_eq!(ended.status.code(), Some(1), "{ended:?}");
        to = Server::start(&to_dir, &[]);
        let now = state(&to, &dir, "n");
        there = now.files.len();
        assert!(there + 3 >= files && now.files.iter().all(|file| expected.files.contains(file)));
        let stored = now.documents.map_or(0, |(_, _, documents)| documents.len());
        assert!(stored >= documents * 1_000 && stored < 5_000, "{stored}");
    }
    let import = ["import", "n.tar", "--server", &to.url, "--json"];
    let repeated = ok_json(&dir, &import);
    assert_eq!(repeated["files"]["unchanged"], 120, "{repeated}");
    assert_eq!(state(&to, &dir, "n"), expected);
    assert_eq!(ok_json(&dir, &import)["documents"]["unchanged"], 5_000);
    drop(to);
    run_ok(&to_dir, &["fsck"]);
}
