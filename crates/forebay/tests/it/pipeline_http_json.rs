//! Pipelines from a JSON API, by the built-in connector and by the component in its place: the oracle is SQLite.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::{run, run_ok, stderr};

/// The header that the API asks for.
const TOKEN: &str = "authorization: Bearer geheim42";

/// An API with orders, five on a page, that knows a token.
struct Api {
    address: SocketAddr,
    orders: Arc<AtomicU32>,
    targets: Arc<Mutex<Vec<String>>>,
    is_ended: Arc<AtomicBool>,
}

impl Api {
    fn start(orders: u32) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let api = Self {
            address: listener.local_addr().unwrap(),
            orders: Arc::new(AtomicU32::new(orders)),
            targets: Arc::default(),
            is_ended: Arc::default(),
        };
        let (orders, targets, ended) =
            (Arc::clone(&api.orders), Arc::clone(&api.targets), Arc::clone(&api.is_ended));
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                if ended.load(Ordering::Relaxed) {
                    return;
                }
                let (orders, targets) = (Arc::clone(&orders), Arc::clone(&targets));
                std::thread::spawn(move || serve(stream.unwrap(), &orders, &targets));
            }
        });
        api
    }
}

impl Drop for Api {
    fn drop(&mut self) {
        self.is_ended.store(true, Ordering::Relaxed);
        drop(TcpStream::connect(self.address));
    }
}

fn serve(mut stream: TcpStream, orders: &AtomicU32, targets: &Mutex<Vec<String>>) {
    let mut lines = BufReader::new(stream.try_clone().unwrap()).lines();
    while let Some(Ok(first)) = lines.next() {
        let head: Vec<String> =
            lines.by_ref().map_while(Result::ok).take_while(|it| !it.is_empty()).collect();
        let target = first.split(' ').nth(1).unwrap().to_owned();
        targets.lock().unwrap().push(target.clone());
        let (status, body) = if head.iter().any(|line| line == TOKEN) {
            ("200 OK", page(&target, orders.load(Ordering::Relaxed)).to_string())
        } else {
            ("401 Unauthorized", "who are you?".to_owned())
        };
        let size = body.len();
        let answer = format!("HTTP/1.1 {status}\r\ncontent-length: {size}\r\n\r\n{body}");
        stream.write_all(answer.as_bytes()).unwrap();
    }
}

/// A page of the orders that were changed after `since`.
fn page(target: &str, orders: u32) -> Value {
    let number = |name: &str| -> Option<u32> {
        let (_, after) = target.split_once(name)?;
        after.split('&').next()?.parse().ok()
    };
    let from = number("after=").or(number("since=")).unwrap_or(0);
    let to = (from + 5).min(orders);
    let order = |id: u32| {
        json!({
            "id": id, "changed": id, "amount": f64::from(id) / 4.0, "at": format!("2026-01-01T00:00:{:02}Z", id % 60),
            "customer": { "name": format!("n {id}"), "tags": [id, null] }, "note": (!id.is_multiple_of(3)).then_some("é"),
        })
    };
    let next = (to < orders).then(|| to.to_string());
    json!({ "data": (from + 1..=to).map(order).collect::<Vec<_>>(), "meta": { "next": next } })
}

/// A directory with a pipeline from the API into SQLite.
fn pipeline(api: &Api, section: &str) -> TempDir {
    let dir = TempDir::new().unwrap();
    let path = dir.path().display();
    std::fs::write(dir.path().join("token"), "geheim42\n").unwrap();
    let file = format!(
        "version: 1\npipeline: p\nsource:\n  use: http-json\n{section}  config:\n    url: http://{}\n    \
         headers: {{ authorization: 'Bearer ${{file:{path}/token}}' }}\n    streams:\n    - name: orders\n      \
         path: orders\n      records: /data\n      cursor_param: since\n      \
         pagination: {{ cursor: {{ param: after, pointer: /meta/next }} }}\n  \
         streams: [{{ name: orders, sync_mode: incremental, cursor_field: changed }}]\n\
         destination:\n  use: sqlite\n  config: {{ path: '{path}/out.sqlite' }}\n",
        api.address
    );
    std::fs::write(dir.path().join("p.yaml"), file).unwrap();
    dir
}

fn rows(dir: &TempDir) -> u64 {
    let report = run_ok(dir, &["pipeline", "run", "p.yaml", "--json"]);
    serde_json::from_str::<Value>(&report).unwrap()["rows"].as_u64().unwrap()
}

/// All rows, in order, as text.
fn content(dir: &TempDir) -> Vec<String> {
    let out = rusqlite::Connection::open(dir.path().join("out.sqlite")).unwrap();
    let sql = "select id || '|' || changed || '|' || amount || '|' || at || '|' || customer || '|' || \
               coalesce(note, '-') from orders order by id";
    let mut statement = out.prepare(sql).unwrap();
    statement.query_map([], |row| row.get(0)).unwrap().map(Result::unwrap).collect()
}

/// Runs the pipeline, with new orders before the second and the third run.
fn copies_what_is_new(section: &str, prepare: impl FnOnce(&TempDir)) -> Vec<String> {
    let api = Api::start(12);
    let dir = pipeline(&api, section);
    prepare(&dir);
    let discovered = run_ok(&dir, &["pipeline", "discover", "p.yaml"]);
    assert!(discovered.contains("orders") && discovered.contains("customer"), "{discovered}");
    assert!(run_ok(&dir, &["pipeline", "check", "p.yaml"]).contains("records in the first page"));
    assert_eq!(rows(&dir), 12);
    assert_eq!(rows(&dir), 0);
    api.orders.store(30, Ordering::Relaxed);
    api.targets.lock().unwrap().clear();
    assert_eq!(rows(&dir), 18);
    let targets = api.targets.lock().unwrap().clone();
    assert!(targets.iter().any(|target| target == "/orders?since=12"), "{targets:?}");
    content(&dir)
}

#[test]
fn an_api_is_copied_once_by_the_connector_and_by_the_component() {
    let native = copies_what_is_new("", |_| {});
    assert_eq!(native.len(), 30);
    assert_eq!(native[0], "1|1|0.25|2026-01-01T00:00:01Z|{\"name\":\"n 1\",\"tags\":[1,null]}|é");
    let Some(file) = super::pipeline_sandbox::component("http-json") else { return };
    let sandboxed = copies_what_is_new("  sandbox: true\n", |dir| {
        drop(run_ok(dir, &["connector", "install", file.to_str().unwrap()]));
    });
    assert_eq!(native, sandboxed);
}

#[test]
fn a_server_that_refuses_is_reported_without_the_token_and_permissions_are_compared() {
    let api = Api::start(1);
    let dir = pipeline(&api, "");
    std::fs::write(dir.path().join("token"), "schluessel").unwrap();
    let failed = run(&dir, &["pipeline", "run", "p.yaml"]);
    let text = stderr(&failed);
    assert!(!failed.status.success() && text.contains("401 Unauthorized: who are you?"), "{text}");
    assert!(!text.contains("schluessel"), "{text}");
    let section = "  permissions: { network: { allowed_hosts: [api.example.org] } }\n";
    let refused = run(&pipeline(&api, section), &["pipeline", "run", "p.yaml"]);
    assert!(stderr(&refused).contains("permissions.network.allowed_hosts"), "{}", stderr(&refused));
}
