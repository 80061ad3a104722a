//! Commits whose answer is lost: the connection to the destination is cut, or its server killed, before and
//! after each of them in turn. Afterwards every row is there once.

#![expect(clippy::unwrap_used, reason = "helpers of tests")]

use std::io::{Read, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::thread;

use forebay_pipeline::config;
use forebay_pipeline::run::{Options, Pipeline};
use forebay_sdk::run::Context;
use forebay_testing::{Ferret, Postgres};
use rusqlite::Connection;

/// A protocol: how long its first request is, and which requests change what is stored.
#[derive(Clone, Copy)]
enum Protocol {
    Postgres,
    MongoDb,
}

impl Protocol {
    /// Reads one request; `None` at the end of the connection.
    fn request(self, from: &mut TcpStream, is_first: bool) -> Option<Vec<u8>> {
        let head = match self {
            Self::Postgres if !is_first => 5,
            Self::Postgres | Self::MongoDb => 4,
        };
        let mut request = vec![0; head];
        from.read_exact(&mut request).ok()?;
        let length: [u8; 4] = request[head - 4..].try_into().unwrap();
        // The length of PostgreSQL counts itself, but not the kind before it.
        let length = match self {
            Self::Postgres => u32::from_be_bytes(length) as usize + head - 4,
            Self::MongoDb => u32::from_le_bytes(length) as usize,
        };
        request.resize(length, 0);
        from.read_exact(&mut request[head..]).ok()?;
        Some(request)
    }

    fn changes(self, request: &[u8]) -> bool {
        let has = |part: &[u8]| request.windows(part.len()).any(|it| it == part);
        match self {
            Self::Postgres => request.first() == Some(&b'Q') && has(b"commit\0"),
            // The name of a command is the first field of its document; beats of a claim come by the clock.
            Self::MongoDb => {
                let names = ["insert", "update", "delete", "create", "drop", "renameCollection"];
                let name = request.get(26..).unwrap_or_default();
                let starts =
                    |of: &&str| name.starts_with(of.as_bytes()) && name.get(of.len()) == Some(&0);
                names.iter().any(starts) && !has(b"beat\0")
            }
        }
    }
}

/// What happens at a request.
struct Cut {
    /// Requests that pass before it.
    after: usize,
    /// Whether the server receives it and answers.
    arrives: bool,
    /// What happens to the server.
    kill: Option<Arc<Postgres>>,
}

/// A proxy that cuts the connection at one request that changes what is stored.
struct Proxy {
    port: u16,
    cut: Arc<Mutex<Option<Cut>>>,
}

impl Proxy {
    fn before(server: u16, protocol: Protocol) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let cut = Arc::new(Mutex::new(None));
        let asked = Arc::clone(&cut);
        thread::spawn(move || {
            for client in listener.incoming() {
                let (client, asked) = (client.unwrap(), Arc::clone(&asked));
                // A server that is down is a connection that ends.
                let Ok(server) = TcpStream::connect(("127.0.0.1", server)) else { continue };
                client.set_nodelay(true).unwrap();
                server.set_nodelay(true).unwrap();
                thread::spawn(move || forward(client, server, protocol, &asked));
            }
        });
        Self { port, cut }
    }

    fn cut(&self, cut: Cut) {
        *self.cut.lock().unwrap() = Some(cut);
    }

    /// Whether it was cut. If not, there were fewer requests.
    fn has_cut(&self) -> bool {
        self.cut.lock().unwrap().take().is_none()
    }
}

/// Whether this request is to be cut.
fn due(asked: &Mutex<Option<Cut>>) -> Option<Cut> {
    let mut asked = asked.lock().unwrap();
    let cut = asked.as_mut()?;
    if cut.after == 0 {
        return asked.take();
    }
    cut.after -= 1;
    None
}

fn forward(
    mut client: TcpStream,
    mut server: TcpStream,
    protocol: Protocol,
    asked: &Mutex<Option<Cut>>,
) {
    let is_cut = Arc::new(Mutex::new(false));
    let (answers, answered) = (server.try_clone().unwrap(), client.try_clone().unwrap());
    let mute = Arc::clone(&is_cut);
    let back = thread::spawn(move || answer(answers, answered, &mute));
    let mut is_first = true;
    while let Some(request) = protocol.request(&mut client, is_first) {
        is_first = false;
        let cut = protocol.changes(&request).then(|| due(asked)).flatten();
        let Some(cut) = cut else {
            if server.write_all(&request).is_err() {
                break;
            }
            continue;
        };
        *is_cut.lock().unwrap() = true;
        if cut.arrives && server.write_all(&request).is_ok() {
            // It ends the connection once it has an answer.
            back.join().unwrap();
        }
        if let Some(postgres) = cut.kill {
            postgres.kill();
            postgres.start_again();
        }
        break;
    }
    // Either may be gone already.
    for end in [client, server] {
        drop(end.shutdown(Shutdown::Both));
    }
}

fn answer(mut server: TcpStream, mut client: TcpStream, is_cut: &Mutex<bool>) {
    let mut buffer = vec![0; 64 << 10];
    while let Ok(length @ 1..) = server.read(&mut buffer) {
        if *is_cut.lock().unwrap() || client.write_all(&buffer[..length]).is_err() {
            break;
        }
    }
    drop(server.shutdown(Shutdown::Both));
}

/// The table `t` with two columns, and `u` with one, in SQLite.
fn source(directory: &Path) {
    let rows = |table: &str| {
        format!(
            "insert into {table} with recursive n(id) as (values (1) union all select id + 1 from n where id < 20) select id, 'v' || id from n"
        )
    };
    let sql = format!(
        "create table t (id integer primary key, v text); create table u (id integer primary key, v text); {}; {}",
        rows("t"),
        rows("u")
    );
    Connection::open(directory.join("in.sqlite")).unwrap().execute_batch(&sql).unwrap();
}

/// Runs a pipeline.
async fn run(directory: &Path, streams: &str, from: &str, to: &str) -> Result<(), String> {
    let path = directory.join("p.yaml");
    let text = format!(
        "version: 1\npipeline: p\nsource:\n  {from}\n  streams: {streams}\ndestination:\n  {to}\n\
         resources: {{ max_retries: 12, retry_after: 10ms }}\n"
    );
    std::fs::write(&path, text).unwrap();
    let registry = forebay_connectors::registry();
    let file = config::load(&path, &registry, &|name| Err(name.to_owned())).unwrap();
    let (context, _cancel) = Context::new("run");
    let run = Pipeline::new(&file).run(Options::default(), &context).await;
    run.map(drop).map_err(|error| format!("{error:?}"))
}

const WHOLE: &str = "[{name: t}, {name: u}]";
const INCREMENTAL: &str = "[{name: t, sync_mode: incremental, cursor_field: id}, {name: u, sync_mode: incremental, cursor_field: id}]";
const UPSERT: &str = "write_mode: upsert\n  primary_key: [id]";

/// What the destination has before a run: nothing, a table that is swapped, and one that is refilled.
const EMPTY: &str = "";
const FILLED: &str = "create table t (id bigint, v text); insert into t values (99, 'old'); create table u (id bigint, v text)";
const VIEWED: &str = "create table t (id bigint, v text); insert into t values (99, 'old');
    create view of_t as select * from t; create table u (id bigint, v text); create view of_u as select * from u";
const KEYED: &str =
    "create table t (id bigint primary key, v text); insert into t values (1, 'old');
    create table u (id bigint primary key, v text)";

/// Streams, settings of the destination, and what it has before.
const MODES: &[(&str, &str, &str)] = &[
    (WHOLE, "write_mode: append", EMPTY),
    (WHOLE, "write_mode: append\n  load_method: insert", FILLED),
    (WHOLE, "write_mode: append\n  on_data_error: dlq", EMPTY),
    (INCREMENTAL, "write_mode: append", EMPTY),
    (WHOLE, "write_mode: replace", EMPTY),
    (WHOLE, "write_mode: replace", FILLED),
    (WHOLE, "write_mode: replace", VIEWED),
    (WHOLE, UPSERT, EMPTY),
    (INCREMENTAL, UPSERT, KEYED),
];

/// Runs a mode with a cut at every commit, and returns their number.
async fn cut_each(
    pg: &Arc<Postgres>,
    proxy: &Proxy,
    directory: &Path,
    (streams, mode, before): (&str, &str, &str),
    (arrives, kills): (bool, bool),
) -> usize {
    let from = format!("use: sqlite\n  config: {{ path: '{}/in.sqlite' }}", directory.display());
    let to = format!(
        "use: postgres\n  config: {{ port: {}, database: postgres, user: postgres }}\n  {mode}",
        proxy.port
    );
    for after in 0.. {
        pg.query(
            "postgres",
            &format!(
                "set client_min_messages = warning; drop schema if exists forebay cascade; \
                 drop schema public cascade; create schema public; {before}"
            ),
        );
        let kill = kills.then(|| Arc::clone(pg));
        proxy.cut(Cut { after, arrives, kill });
        let first = run(directory, streams, &from, &to).await;
        let was_cut = proxy.has_cut();
        let case = format!("{mode} {streams} {before:.60}: commit {after}, arrives: {arrives}");
        if let Err(error) = &first {
            assert!(was_cut, "{case}: {error}");
            let again = run(directory, streams, &from, &to).await;
            again.unwrap_or_else(|error| panic!("{case}: {error}"));
        }
        // Rows that were there before an append stay.
        for table in ["t", "u"] {
            let found = pg.query(
                "postgres",
                &format!(
                    "select count(*), count(distinct id), sum(id), count(*) filter (where v = 'v' || id) \
                     from {table} where id <> 99"
                ),
            );
            assert_eq!(found, "20|20|210|20", "{case}: {table} after {first:?}");
        }
        if !was_cut {
            return after;
        }
    }
    0
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cut_before_or_after_any_commit_of_postgresql_loses_and_doubles_nothing() {
    let Some(pg) = Postgres::start().map(Arc::new) else { return };
    let directory = tempfile::tempdir().unwrap();
    source(directory.path());
    let proxy = Proxy::before(pg.port(), Protocol::Postgres);
    for mode in MODES {
        for arrives in [false, true] {
            let commits = cut_each(&pg, &proxy, directory.path(), *mode, (arrives, false)).await;
            assert!(commits >= 7, "{mode:?}: {commits} commits");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_postgresql_killed_before_or_after_any_commit_loses_and_doubles_nothing() {
    let Some(pg) = Postgres::start().map(Arc::new) else { return };
    let directory = tempfile::tempdir().unwrap();
    source(directory.path());
    let proxy = Proxy::before(pg.port(), Protocol::Postgres);
    for mode in [MODES[0], MODES[6], MODES[8]] {
        for arrives in [false, true] {
            let commits = cut_each(&pg, &proxy, directory.path(), mode, (arrives, true)).await;
            assert!(commits >= 7, "{mode:?}: {commits} commits");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cut_before_or_after_any_write_of_mongodb_loses_and_doubles_nothing() {
    let Some(ferret) = Ferret::start() else { return };
    let directory = tempfile::tempdir().unwrap();
    source(directory.path());
    let proxy = Proxy::before(ferret.port(), Protocol::MongoDb);
    let from =
        format!("use: sqlite\n  config: {{ path: '{}/in.sqlite' }}", directory.path().display());
    let modes = [
        (WHOLE, "write_mode: append"),
        (INCREMENTAL, "write_mode: append"),
        (WHOLE, "write_mode: replace"),
        (WHOLE, UPSERT),
    ];
    for (number, (streams, mode)) in modes.into_iter().enumerate() {
        for arrives in [false, true] {
            for after in 0.. {
                // A database for each attempt.
                let database = format!("d{number}_{arrives}_{after}");
                let at = |port: u16| {
                    format!("use: mongodb\n  config: {{ port: {port}, database: {database} }}")
                };
                let to = format!("{}\n  {mode}", at(proxy.port));
                proxy.cut(Cut { after, arrives, kill: None });
                let first = run(directory.path(), streams, &from, &to).await;
                let was_cut = proxy.has_cut();
                let case = format!("{mode} {streams}: write {after}, arrives: {arrives}");
                if let Err(error) = &first {
                    assert!(was_cut, "{case}: {error}");
                    let again = run(directory.path(), streams, &from, &to).await;
                    again.unwrap_or_else(|error| panic!("{case}: {error}"));
                }
                // As a pipeline reads it.
                let out = directory.path().join(format!("{database}.sqlite"));
                let into = format!("use: sqlite\n  config: {{ path: '{}' }}", out.display());
                run(directory.path(), WHOLE, &at(ferret.port()), &into).await.unwrap();
                for table in ["t", "u"] {
                    let sql = format!(
                        "select count(*), count(distinct id), sum(id), sum(v = 'v' || id) from {table}"
                    );
                    let found: (u32, u32, u32, u32) = Connection::open(&out)
                        .unwrap()
                        .query_row(&sql, [], |row| {
                            Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?))
                        })
                        .unwrap();
                    assert_eq!(found, (20, 20, 210, 20), "{case}: {table} after {first:?}");
                }
                if !was_cut {
                    assert!(after >= 6, "{case}");
                    break;
                }
            }
        }
    }
}
