//! A Forebay's events, documents and files as Delta tables, by the real program; the oracles are delta-rs, DuckDB and
//! Polars.

use std::path::PathBuf;
use std::process::Command;

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::events_support::post;
use crate::inventory_http::built;
use crate::pipeline_feed_events::Setup;
use crate::support::{Answer, Server, run_ok, send, stderr};

/// Prints what each reader finds for a query of the tables.
const READ: &str = r#"
import json, pathlib, sys
import deltalake, duckdb, duckdb_extension_delta, duckdb_extension_parquet, polars

lake, query = pathlib.Path(sys.argv[1]), sys.argv[2]
builder = deltalake.QueryBuilder()
duck = duckdb.connect(config={"allow_unsigned_extensions": "true"})
for module in (duckdb_extension_parquet, duckdb_extension_delta):
    root = pathlib.Path(module.__file__).parent
    duck.load_extension(str(next(root.rglob("*.duckdb_extension"))))
frames = {}
for table in (log.parent for log in lake.glob("*/_delta_log")):
    frames[table.name] = polars.scan_delta(str(table))
    builder = builder.register(table.name, deltalake.DeltaTable(str(table)))
    duck.sql(f"create view {table.name} as select * from delta_scan('{table}')")
rows = builder.execute(query).read_all()
first = [list(row) for row in zip(*(rows.column(at).to_pylist() for at in range(rows.num_columns)))]
third = polars.SQLContext(frames).execute(query).collect().rows()
print(json.dumps([first, [list(row) for row in duck.sql(query).fetchall()], [list(row) for row in third]]))
"#;

/// Pipelines that publish what a server has.
struct Lake {
    dir: TempDir,
    url: String,
    /// None if a test has it.
    server: Option<Server>,
    python: PathBuf,
}

impl Lake {
    /// `None` without the readers.
    fn new() -> Option<Self> {
        let python = forebay_testing::tool("delta", "python")?;
        let dir = TempDir::new().unwrap();
        let server = Server::start(&dir, &[]);
        let lake = Self { dir, url: server.url.clone(), server: Some(server), python };
        lake.write(
            "growing",
            "[{name: events, sync_mode: incremental, cursor_field: position}, \
             {name: collections/orders, sync_mode: incremental, cursor_field: id}]",
            "append",
        );
        lake.write("files", "[{name: files/photos, into: photos}]", "replace");
        Some(lake)
    }

    /// Of a server that a test has.
    fn of(server: &Server) -> Option<Self> {
        let python = forebay_testing::tool("delta", "python")?;
        Some(Self { dir: TempDir::new().unwrap(), url: server.url.clone(), server: None, python })
    }

    fn server(&self) -> &Server {
        self.server.as_ref().unwrap()
    }

    fn write(&self, name: &str, streams: &str, write_mode: &str) {
        let (path, url) = (self.dir.path().display(), &self.url);
        let file = format!(
            "version: 1\npipeline: {name}\nsource:\n  use: forebay\n  \
             config: {{ url: '{url}', event_hashes: true }}\n  streams: {streams}\ndestination:\n  \
             use: delta\n  config: {{ path: '{path}/lake' }}\n  write_mode: {write_mode}\n\
             resources: {{ checkpoint_interval_bytes: 8KiB, parallelism: 2 }}\n"
        );
        std::fs::write(self.dir.path().join(format!("{name}.yaml")), file).unwrap();
    }

    fn post(&self, path: &str, body: &str) {
        let answer = post(self.server(), path, "", body.as_bytes());
        assert!((200..300).contains(&answer.status), "{answer:?}");
    }

    fn put(&self, name: &str, headers: &str, bytes: &[u8]) {
        use std::io::Write as _;
        let mut stream = self.server().connect();
        let headers = format!("content-length: {}\r\n{headers}", bytes.len());
        send(&mut stream, "PUT", &format!("/v1/files/{name}"), &headers);
        stream.write_all(bytes).unwrap();
        let answer = Answer::read(&mut stream);
        assert_eq!(answer.status, 201, "{answer:?}");
    }

    /// Runs a pipeline. Returns the number of rows that it copied.
    fn publish(&self, name: &str) -> u64 {
        let file = format!("{name}.yaml");
        let report = run_ok(&self.dir, &["pipeline", "run", &file, "--json"]);
        serde_json::from_str::<Value>(&report).unwrap()["rows"].as_u64().unwrap()
    }

    /// What all readers find, which is the same.
    fn read(&self, query: &str) -> Value {
        let mut command = Command::new(&self.python);
        let output =
            command.args(["-c", READ]).arg(self.dir.path().join("lake")).arg(query).output();
        let output = output.unwrap();
        assert!(output.status.success(), "{}", stderr(&output));
        let read: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(read[0], read[1], "delta-rs and DuckDB: {query}");
        assert_eq!(read[0], read[2], "delta-rs and Polars: {query}");
        read[0].clone()
    }
}

/// Events with these numbers, the later ones with earlier times.
fn events(numbers: std::ops::Range<u64>) -> String {
    let line = |n: u64| {
        let time = format!("2026-01-01T00:{:02}:{:02}Z", 59 - n / 60, 59 - n % 60);
        format!("{}\n", json!({ "timestamp": time, "message": format!("event {n}") }))
    };
    numbers.map(line).collect()
}

fn documents(numbers: std::ops::Range<u64>) -> String {
    numbers
        .map(|n| format!("{}\n", json!({ "customer": format!("c{}", n % 7), "total": n })))
        .collect()
}

#[test]
fn events_and_documents_are_published_once_and_files_as_they_are() {
    let Some(lake) = Lake::new() else { return };
    lake.post("/v1/events?stream=auth", &events(0..200));
    lake.post("/v1/documents/orders?target=table", &documents(0..300));
    lake.put("photos/a.txt", "", b"first");
    lake.put("photos/b%22%20c.txt", "forebay-tags: year=2026\r\n", b"second one");
    lake.put("other/a.txt", "", b"not published");
    assert_eq!(lake.publish("growing"), 500);
    assert_eq!(lake.publish("files"), 2);
    lake.post("/v1/events?stream=auth", &events(200..230));
    lake.post("/v1/documents/orders", &documents(300..310));
    assert_eq!(lake.publish("growing"), 40);
    assert_eq!(lake.publish("growing"), 0);
    let sums = "select count(*), count(distinct position), min(position), max(position), min(length(hash)) from events";
    assert_eq!(lake.read(sums), json!([[230, 230, 0, 229, 64]]));
    let sums = "select count(*), count(distinct id), cast(sum(total) as bigint) from orders";
    assert_eq!(lake.read(sums), json!([[310, 310, (0..310).sum::<i64>()]]));
    let names = "select name, size, sha256, attributes from photos order by name";
    let found = lake.read(names);
    assert_eq!(
        (&found[0][0], &found[0][1], &found[0][3]),
        (&json!("a.txt"), &json!(5), &Value::Null)
    );
    let digest = found[0][2].as_str().unwrap();
    assert_eq!(digest, "a7937b64b8caa58f03721bb6bacf5c78cb235febe0e70b1b84cd99541461a08e");
    assert_eq!((&found[1][0], &found[1][1]), (&json!("b\" c.txt"), &json!(10)));
    assert_eq!(found[1][3], r#"{"tags":{"year":"2026"}}"#);
    // A file that is gone is gone from the table, and a new one is there.
    assert_eq!(lake.server().ask("DELETE", "/v1/files/photos/a.txt", "").status, 204);
    lake.put("photos/d.txt", "", b"third");
    assert_eq!(lake.publish("files"), 2);
    let names = "select name from photos order by name";
    assert_eq!(lake.read(names), json!([["b\" c.txt"], ["d.txt"]]));
}

#[test]
fn changes_of_a_database_are_published_through_the_event_store() {
    let tables = "create table orders (id int primary key, n numeric(6,2)); insert into orders values (1, 1.5)";
    let Some(setup) = Setup::new(tables, "[{name: orders, sync_mode: cdc}]") else { return };
    let Some(lake) = Lake::of(setup.server()) else { return };
    let streams = "[{name: events, sync_mode: incremental, cursor_field: position}]";
    lake.write("growing", streams, "append");
    let changes = [
        "insert into orders values (2, 2.25)",
        "begin; update orders set id = 3, n = 7 where id = 2; delete from orders where id = 1; commit",
    ];
    for change in changes {
        setup.pipeline.run();
        lake.publish("growing");
        setup.pg.query("src", change);
    }
    setup.pipeline.run();
    lake.publish("growing");
    let query = "select type, payload from events where stream = 'orders' order by position";
    let rows = lake.read(query);
    let rows: Vec<(String, Value, Value)> = rows
        .as_array()
        .unwrap()
        .iter()
        .map(|row| {
            let change: Value = serde_json::from_str(row[1].as_str().unwrap()).unwrap();
            let (before, now) = (change["before"].clone(), change["row"].clone());
            (row[0].as_str().unwrap().to_owned(), before, now)
        })
        .filter(|(operation, ..)| operation != "columns")
        .collect();
    let of = |operation: &str, before: Value, row: Value| (operation.to_owned(), before, row);
    assert_eq!(
        rows,
        [
            of("copy", Value::Null, json!({"id": 1, "n": 1.5})),
            of("insert", Value::Null, json!({"id": 2, "n": 2.25})),
            of("update", json!({"id": 2}), json!({"id": 3, "n": 7.0})),
            of("delete", Value::Null, json!({"id": 1})),
        ]
    );
}

#[test]
fn a_catalogue_of_several_pages_is_read_whole_and_other_modes_are_refused() {
    let Some(lake) = Lake::new() else { return };
    std::thread::scope(|scope| {
        for part in 0..4 {
            let lake = &lake;
            scope.spawn(move || {
                for at in (part..1_100).step_by(4) {
                    lake.put(&format!("photos/f{at:05}"), "", format!("file {at}").as_bytes());
                }
            });
        }
    });
    assert_eq!(lake.publish("files"), 1_100);
    let sums = "select count(*), count(distinct name), min(name), max(name) from photos";
    assert_eq!(lake.read(sums), json!([[1_100, 1_100, "f00000", "f01099"]]));
    lake.write("files", "[{name: files, sync_mode: incremental, cursor_field: id}]", "append");
    let output = crate::support::run(&lake.dir, &["pipeline", "run", "files.yaml"]);
    assert!(
        stderr(&output).contains("files are read completely in each run"),
        "{}",
        stderr(&output)
    );
    lake.write("files", "[{name: files/sort=size, into: x}]", "replace");
    let output = crate::support::run(&lake.dir, &["pipeline", "run", "files.yaml"]);
    assert!(
        stderr(&output).contains("files cannot be filtered by \"sort\""),
        "{}",
        stderr(&output)
    );
}

#[test]
fn an_inventory_is_published_as_it_was_built_last() {
    let Some(lake) = Lake::new() else { return };
    for (name, size) in [("photos/a/1", 10), ("photos/a/b/2", 300), ("other/3", 5)] {
        lake.put(name, "", &vec![b'x'; size]);
    }
    let own_files = json!({ "from": "forebay:blobs" });
    built(lake.server(), "mine", &own_files);
    let large = "inventories/mine/prefix=photos%2F&min_bytes=300";
    let streams =
        format!("[{{name: inventories/mine, into: prefixes}}, {{name: '{large}', into: large}}]");
    lake.write("prefixes", &streams, "replace");
    assert_eq!(lake.publish("prefixes"), 8);
    let all = "select prefix, objects, bytes, billed_bytes, depth, descendants from prefixes order by prefix";
    let expected = json!([
        ["", 3, 315, 315, 0, 4],
        ["other/", 1, 5, 5, 1, 0],
        ["photos/", 2, 310, 310, 1, 2],
        ["photos/a/", 2, 310, 310, 2, 1],
        ["photos/a/b/", 1, 300, 300, 3, 0]
    ]);
    assert_eq!(lake.read(all), expected);
    let names = "select prefix from large order by prefix";
    assert_eq!(lake.read(names), json!([["photos/"], ["photos/a/"], ["photos/a/b/"]]));
    lake.put("photos/c/4", "", b"more");
    built(lake.server(), "mine", &own_files);
    assert_eq!(lake.publish("prefixes"), 9);
    let sums = "select count(*), count(distinct built), max(objects), min(inventory) from prefixes";
    assert_eq!(lake.read(sums), json!([[6, 1, 4, "mine"]]));
    let refused = [
        ("inventories/none", "no inventory"),
        ("inventories/mine/sort=name", "prefixes cannot be filtered by \"sort\""),
        ("inventories/mine/depth=x", "depth"),
    ];
    for (name, expected) in refused {
        lake.write("prefixes", &format!("[{{name: {name}, into: x}}]"), "replace");
        let output = crate::support::run(&lake.dir, &["pipeline", "run", "prefixes.yaml"]);
        let text = stderr(&output);
        assert!(!output.status.success() && text.contains(expected), "{name}: {text}");
    }
    let found = run_ok(&lake.dir, &["pipeline", "discover", "growing.yaml", "--json"]);
    assert!(found.contains("inventories/mine"), "{found}");
}
