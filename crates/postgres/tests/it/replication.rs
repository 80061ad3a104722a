//! Logical replication: connections, slots and changes of a real server.

use std::io::Write as _;
use std::time::Duration;

use forebay_base::ServerError;
use forebay_postgres::replication::envelope::{Envelope, ServerTime};
use forebay_postgres::replication::pgoutput::{Decoder, Message, Old, Tuple, Value};
use forebay_postgres::replication::{Lsn, Replication, StartOptions};
use forebay_postgres::{ServerSettings, connect};
use tokio::runtime::Runtime;

use crate::pg::Postgres;

/// How long a slot waits for transactions in these tests.
const LONG: Duration = Duration::from_secs(60);

fn runtime() -> Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
}

fn server(pg: &Postgres, user: &str, password: Option<&str>) -> connect::Server {
    let settings = ServerSettings {
        port: pg.port(),
        database: Some("postgres".to_owned()),
        user: user.to_owned(),
        password: password.map(ToOwned::to_owned),
        ..ServerSettings::default()
    };
    connect::Server::new(&settings).unwrap()
}

fn options(publication: &str, streaming: bool) -> StartOptions {
    let publications = vec![publication.to_owned()];
    StartOptions { protocol_version: 2, publications, binary: true, streaming }
}

/// A value in a few characters: its text, or its bytes as hexadecimal digits.
fn shown(tuple: Tuple<'_>) -> String {
    let values = tuple.values().map(|value| match value {
        Value::Null => "null".to_owned(),
        Value::Unchanged => "unchanged".to_owned(),
        Value::Text(text) => format!("'{}'", String::from_utf8_lossy(text)),
        Value::Binary(bytes) => bytes.iter().map(|byte| format!("{byte:02x}")).collect(),
    });
    values.collect::<Vec<_>>().join(" ")
}

/// A change in a line, and the end of the transaction that it ends.
fn line(message: &Message<'_>) -> (String, Option<Lsn>) {
    let old = |old: &Option<Old<'_>>| match old {
        None => String::new(),
        Some(Old::Key(key)) => format!(" key {}", shown(*key)),
        Some(Old::Row(row)) => format!(" row {}", shown(*row)),
    };
    let text = match message {
        Message::Begin { .. } => "begin".to_owned(),
        Message::Commit { end, .. } => return ("commit".to_owned(), Some(*end)),
        Message::Relation(relation) => {
            let names = relation.columns.iter().map(|column| &*column.name);
            format!("table {} {}", relation.name, names.collect::<Vec<_>>().join(","))
        }
        Message::Insert { new, .. } => format!("insert {}", shown(*new)),
        Message::Update { old: of, new, .. } => format!("update{} to {}", old(of), shown(*new)),
        Message::Delete { old: of, .. } => format!("delete{}", old(&Some(*of))),
        Message::Truncate { relations, .. } => format!("truncate {}", relations.len()),
        Message::StreamCommit { end, .. } => return ("stream commit".to_owned(), Some(*end)),
        other => format!("{other:?}"),
    };
    (text, None)
}

/// Changes as lines until a transaction ends at or after `until`, and the ends of the transactions.
async fn changes(replication: &mut Replication, until: Lsn) -> (Vec<String>, Vec<Lsn>) {
    let (mut decoder, mut lines, mut ends) = (Decoder::default(), Vec::new(), Vec::new());
    loop {
        let bytes = replication.receive().await.unwrap().unwrap();
        match Envelope::decode(&bytes).unwrap() {
            Envelope::Keepalive { end, .. } if end >= until => return (lines, ends),
            Envelope::Keepalive { .. } => {}
            Envelope::Data { data, .. } => {
                let (text, end) = line(&decoder.decode(data).unwrap().message);
                lines.push(text);
                ends.extend(end);
            }
        }
        if ends.last().is_some_and(|end| *end >= until) {
            return (lines, ends);
        }
    }
}

fn now(pg: &Postgres) -> Lsn {
    pg.query("select pg_current_wal_flush_lsn()").parse().unwrap()
}

#[test]
fn a_slot_and_its_snapshot_have_every_row_exactly_once() {
    let Some(pg) = crate::pg::postgres() else { return };
    pg.query("create table t (id int primary key, v text); insert into t values (1, 'before')");
    pg.query("create publication \"a \"\" b'\" for table t");
    runtime().block_on(async {
        let server = server(&pg, "postgres", None);
        let mut replication = Replication::connect(&server).await.unwrap();
        let (system, timeline, _) = replication.identify().await.unwrap();
        assert_eq!(system, pg.query("select system_identifier from pg_control_system()"));
        assert_eq!(timeline, 1);
        let slot = replication.create_slot("s", false, LONG).await.unwrap();
        pg.query("insert into t values (2, 'after')");
        let copy = server.connect().await.unwrap();
        let import = format!(
            "begin isolation level repeatable read; set transaction snapshot '{}'",
            slot.snapshot
        );
        copy.batch_execute(&import).await.unwrap();
        let rows = copy.query("select id from public.t order by id", &[]).await.unwrap();
        assert_eq!(rows.iter().map(|row| row.get(0)).collect::<Vec<i32>>(), [1]);
        let options = options("a \" b'", false);
        replication.start("s", slot.consistent_point, &options).await.unwrap();
        let (lines, ends) = changes(&mut replication, now(&pg)).await;
        let insert = "insert 00000002 6166746572";
        assert_eq!(lines, ["begin", "table t id,v", insert, "commit"]);
        // The transaction comes again until its end was reported as durable, and then no more.
        drop(replication);
        let mut again = Replication::connect(&server).await.unwrap();
        while pg.query("select active from pg_replication_slots") == "t" {}
        again.start("s", slot.consistent_point, &options).await.unwrap();
        let (lines, _) = changes(&mut again, ends[0]).await;
        assert_eq!(lines.len(), 4);
        again.report(ends[0], ends[0], ServerTime::from_unix_us(0), false).await.unwrap();
        let confirmed = "select confirmed_flush_lsn from pg_replication_slots";
        while pg.query(confirmed) != ends[0].to_string() {}
    });
}

#[test]
fn changes_have_keys_masks_and_complete_old_rows() {
    let Some(pg) = crate::pg::postgres() else { return };
    pg.query(
        "create table t (id int primary key, n int, v text); create table f (a int, b int); \
         alter table f replica identity full; alter table t alter v set storage external; \
         create publication p for all tables",
    );
    runtime().block_on(async {
        let server = server(&pg, "postgres", None);
        let mut replication = Replication::connect(&server).await.unwrap();
        let slot = replication.create_slot("s", true, LONG).await.unwrap();
        pg.query(
            "insert into t values (1, 1, repeat('x', 5000)); insert into f values (1, null); \
             update t set n = 2; update t set id = 3; update f set b = 2; delete from t; \
             delete from f; truncate t, f",
        );
        replication.start("s", slot.consistent_point, &options("p", false)).await.unwrap();
        let (lines, _) = changes(&mut replication, now(&pg)).await;
        let lines: Vec<_> =
            lines.iter().map(|line| line.replace(&"78".repeat(5000), "large")).collect();
        let expected = [
            "begin".to_owned(),
            "table t id,n,v".to_owned(),
            "insert 00000001 00000001 large".to_owned(),
            "table f a,b".to_owned(),
            "insert 00000001 null".to_owned(),
            "update to 00000001 00000002 unchanged".to_owned(),
            "update key 00000001 null null to 00000003 00000002 unchanged".to_owned(),
            "update row 00000001 null to 00000001 00000002".to_owned(),
            "delete key 00000003 null null".to_owned(),
            "delete row 00000001 00000002".to_owned(),
            // The server forgets what it has sent of tables that were emptied.
            "table t id,n,v".to_owned(),
            "table f a,b".to_owned(),
            "truncate 2".to_owned(),
            "commit".to_owned(),
        ];
        assert_eq!(lines, expected);
    });
}

#[test]
fn a_large_transaction_arrives_in_blocks_and_without_what_was_rolled_back() {
    let Some(pg) = crate::pg::postgres() else { return };
    pg.query("alter system set logical_decoding_work_mem = '64kB'");
    pg.query("select pg_reload_conf()");
    pg.query("create table t (id int primary key, v text); create publication p for table t");
    runtime().block_on(async {
        let server = server(&pg, "postgres", None);
        let mut replication = Replication::connect(&server).await.unwrap();
        let slot = replication.create_slot("s", true, LONG).await.unwrap();
        pg.query(
            "begin; insert into t select g, repeat('a', 100) from generate_series(1, 3000) g; \
             savepoint s; insert into t select -g, repeat('b', 100) from generate_series(1, 3000) g; \
             rollback to s; insert into t values (0, 'last'); commit",
        );
        replication.start("s", slot.consistent_point, &options("p", true)).await.unwrap();
        let mut decoder = Decoder::default();
        let (mut whole, mut kept, mut aborted) = (None, Vec::new(), Vec::new());
        loop {
            let bytes = replication.receive().await.unwrap().unwrap();
            let Envelope::Data { data, .. } = Envelope::decode(&bytes).unwrap() else { continue };
            let decoded = decoder.decode(data).unwrap();
            match decoded.message {
                Message::StreamStart { xid, .. } => whole = Some(xid),
                Message::Insert { .. } => kept.push(decoded.xid.unwrap()),
                Message::StreamAbort { xid, subxid } => {
                    assert_eq!(Some(xid), whole);
                    assert_ne!(xid, subxid);
                    aborted.push(subxid);
                }
                Message::StreamCommit { xid, .. } => {
                    assert_eq!(Some(xid), whole);
                    break;
                }
                Message::Begin { .. } => panic!("it was not sent in blocks"),
                _ => {}
            }
        }
        kept.retain(|xid| !aborted.contains(xid));
        assert_eq!(kept.len(), 3001);
    });
}

#[test]
fn a_slot_that_waits_too_long_for_a_transaction_is_not_left_behind() {
    let Some(pg) = crate::pg::postgres() else { return };
    pg.query("create table t (id int)");
    let mut writer = pg.session("postgres");
    let mut statements = writer.stdin.take().unwrap();
    writeln!(statements, "begin; insert into t values (1);").unwrap();
    let open = "select count(*) from pg_stat_activity where backend_xid is not null";
    while pg.query(open) == "0" {}
    runtime().block_on(async {
        let server = server(&pg, "postgres", None);
        let mut replication = Replication::connect(&server).await.unwrap();
        let created = replication.create_slot("s", false, Duration::from_millis(50)).await;
        let Err(ServerError::Busy { source, .. }) = created else { panic!("{created:?}") };
        assert!(source.to_string().contains("did not end within 50ms"), "{source}");
    });
    writeln!(statements, "commit;").unwrap();
    drop(statements);
    writer.wait().unwrap();
    let process = "select count(*) from pg_stat_activity where backend_type = 'walsender'";
    while pg.query(process) != "0" {}
    assert_eq!(pg.query("select count(*) from pg_replication_slots"), "0");
}

#[test]
fn a_password_is_checked_by_both_sides_and_never_printed() {
    let Some(pg) = crate::pg::postgres() else { return };
    pg.query("create role hashed login replication password 'a secret'");
    pg.query(
        "set password_encryption = 'md5'; create role old login replication password 'a secret'",
    );
    pg.write("pg_hba.conf", "local all all trust\nhost all hashed all scram-sha-256\nhost all old all md5\nhost all plain all password\nhost all all all trust\n");
    pg.query("create role plain login replication password 'a secret'");
    pg.query("select pg_reload_conf()");
    runtime().block_on(async {
        for user in ["hashed", "old"] {
            let server = server(&pg, user, Some("a secret"));
            let mut replication = Replication::connect(&server).await.unwrap();
            assert_eq!(replication.identify().await.unwrap().1, 1);
        }
        let wrong = server(&pg, "hashed", Some("another secret"));
        let absent = server(&pg, "hashed", None);
        // Only over a connection that is encrypted.
        let plain = server(&pg, "plain", Some("another secret"));
        for (server, expected) in [
            (wrong, "password authentication failed"),
            (absent, "asks for a password, and none is set"),
            (plain, "a password in clear text over a connection that is not encrypted"),
        ] {
            let Err(error) = Replication::connect(&server).await else { panic!("{expected}") };
            assert!(matches!(error, ServerError::Refused { .. }), "{error:?}");
            let chain = crate::copying::chain(&error);
            assert!(chain.contains(expected), "{chain}");
            assert!(!format!("{chain} {error:?}").contains("another secret"));
        }
    });
}

#[test]
fn the_settings_of_a_role_neither_end_a_snapshot_nor_change_how_values_are_written() {
    let Some(pg) = crate::pg::postgres() else { return };
    pg.query(
        "alter role postgres set idle_in_transaction_session_timeout = '1ms'; \
         alter role postgres set DateStyle = 'German'; alter role postgres set TimeZone = 'Asia/Tokyo'; \
         alter role postgres set IntervalStyle = 'iso_8601'; \
         alter role postgres set bytea_output = 'escape'; \
         alter role postgres set extra_float_digits = -15",
    );
    runtime().block_on(async {
        let server = server(&pg, "postgres", None);
        let mut replication = Replication::connect(&server).await.unwrap();
        for (name, expected) in [
            ("idle_in_transaction_session_timeout", "0"),
            ("DateStyle", "ISO, YMD"),
            ("TimeZone", "UTC"),
            ("IntervalStyle", "postgres"),
            ("bytea_output", "hex"),
            ("extra_float_digits", "1"),
        ] {
            let shown = replication.query("show a setting", &format!("SHOW {name}")).await.unwrap();
            assert_eq!(shown, [[Some(expected.to_owned())]], "{name}");
        }
    });
}

#[test]
fn refusals_name_the_slot_and_leave_the_connection_usable() {
    let Some(pg) = crate::pg::postgres() else { return };
    runtime().block_on(async {
        let server = server(&pg, "postgres", None);
        let mut replication = Replication::connect(&server).await.unwrap();
        let missing = replication.start("none", Lsn::NONE, &options("p", false)).await;
        let chain = crate::copying::chain(&missing.unwrap_err());
        assert!(chain.contains("replication slot \"none\" does not exist"), "{chain}");
        let refused = replication.query("ask", "selec").await.unwrap_err();
        assert!(matches!(refused, ServerError::Refused { .. }), "{refused:?}");
        replication.create_slot("s", true, LONG).await.unwrap();
        let twice = replication.create_slot("s", true, LONG).await.unwrap_err();
        assert!(crate::copying::chain(&twice).contains("already exists"), "{twice:?}");
        let rows = replication.query("count", "select count(*), null from pg_class where false");
        assert_eq!(rows.await.unwrap(), [[Some("0".to_owned()), None]]);
        pg.kill();
        let lost = replication.identify().await.unwrap_err();
        assert!(matches!(lost, ServerError::Unreachable { .. }), "{lost:?}");
    });
}
