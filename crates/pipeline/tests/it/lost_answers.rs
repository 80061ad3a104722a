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
use forebay_testing::Postgres;
use rusqlite::Connection;

/// Reads one message of a client of PostgreSQL; `None` at the end of the connection.
fn message(from: &mut TcpStream, is_first: bool) -> Option<Vec<u8>> {
    // The first one has no kind before its length.
    let head = if is_first { 4 } else { 5 };
    let mut message = vec![0; head];
    from.read_exact(&mut message).ok()?;
    let length: [u8; 4] = message[head - 4..].try_into().unwrap();
    message.resize(u32::from_be_bytes(length) as usize + head - 4, 0);
    from.read_exact(&mut message[head..]).ok()?;
    Some(message)
}

/// Whether a message commits.
fn commits(message: &[u8]) -> bool {
    message.first() == Some(&b'Q') && message.ends_with(b"commit\0")
}

/// What happens at a commit.
struct Cut {
    /// Commits that pass before it.
    after: usize,
    /// Whether the server receives it and answers.
    arrives: bool,
    /// The server, if it is killed and started again.
    kill: Option<Arc<Postgres>>,
}

/// A proxy that cuts the connection at one commit.
struct Proxy {
    port: u16,
    cut: Arc<Mutex<Option<Cut>>>,
}

impl Proxy {
    fn before(server: u16) -> Self {
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
                thread::spawn(move || forward(client, server, &asked));
            }
        });
        Self { port, cut }
    }

    fn cut(&self, cut: Cut) {
        *self.cut.lock().unwrap() = Some(cut);
    }

    /// Whether it was cut. If not, there were fewer commits.
    fn has_cut(&self) -> bool {
        self.cut.lock().unwrap().take().is_none()
    }
}

/// Whether this commit is to be cut.
fn due(asked: &Mutex<Option<Cut>>) -> Option<Cut> {
    let mut asked = asked.lock().unwrap();
    let cut = asked.as_mut()?;
    if cut.after == 0 {
        return asked.take();
    }
    cut.after -= 1;
    None
}

fn forward(mut client: TcpStream, mut server: TcpStream, asked: &Mutex<Option<Cut>>) {
    let is_cut = Arc::new(Mutex::new(false));
    let (answers, answered) = (server.try_clone().unwrap(), client.try_clone().unwrap());
    let mute = Arc::clone(&is_cut);
    let back = thread::spawn(move || answer(answers, answered, &mute));
    let mut is_first = true;
    while let Some(request) = message(&mut client, is_first) {
        is_first = false;
        let cut = commits(&request).then(|| due(asked)).flatten();
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
    let proxy = Proxy::before(pg.port());
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
    let proxy = Proxy::before(pg.port());
    for mode in [MODES[0], MODES[6], MODES[8]] {
        for arrives in [false, true] {
            let commits = cut_each(&pg, &proxy, directory.path(), mode, (arrives, true)).await;
            assert!(commits >= 7, "{mode:?}: {commits} commits");
        }
    }
}
