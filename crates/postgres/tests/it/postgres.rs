//! What the PostgreSQL sink promises beyond the suite all sinks pass.

use std::collections::BTreeMap;
use std::time::Duration;

use forebay_base::error_chain::chain;
use forebay_postgres::sink::{COPY_ABOVE_ROWS, Settings};
use forebay_postgres::{PostgresSink, connect};
use forebay_sink::{
    ColumnType, Document, DocumentSink as _, Field, OpenError, Position, RowSink as _, ServerError,
    Sink as _, SinkError, Value,
};

use crate::pg;

/// Writes `count` documents of `size` bytes each as one entry.
fn write(
    sink: &mut PostgresSink,
    at: u64,
    namespace: &str,
    (count, size): (u64, usize),
) -> Result<(), SinkError> {
    let raw = format!("{{\"x\":\"{}\"}}", "y".repeat(size));
    let first = at * 1_000_000;
    let documents: Vec<Document<'_>> = (0..count)
        .map(|number| Document { id: first + number, received_ms: 7, raw: raw.as_bytes() })
        .collect();
    sink.write_documents(Position(at), namespace, &documents).map(|_| ())
}

fn count(server: &pg::Postgres, settings: &Settings, table: &str) -> u64 {
    server
        .query(&format!("select count(*) from \"{}\".\"{table}\"", settings.schema))
        .parse()
        .unwrap()
}

#[test]
fn any_number_of_rows_arrives_by_whichever_way() {
    let Some(server) = pg::shared() else { return };
    let settings = server.settings();
    let mut sink = PostgresSink::open(&settings).unwrap();
    let many = COPY_ABOVE_ROWS;
    let mut total = 0;
    // Few and many; over several writes; larger than is sent at once, than waits, than one COPY takes.
    let entries =
        [(1, 10), (many, 10), (many + 1, 10), (30, 400_000), (40_000, 20), (700, 100_000)];
    for (at, entry) in (1..).zip(entries) {
        write(&mut sink, at, "a", entry).unwrap();
        write(&mut sink, at, "b", (at, 10)).unwrap();
        total += entry.0;
        if at % 2 == 0 {
            sink.commit(Position(at)).unwrap();
            assert_eq!(count(&server, &settings, "a"), total);
        }
    }
    assert_eq!(count(&server, &settings, "b"), 1 + 2 + 3 + 4 + 5 + 6);
    let counts = server.query(&format!(
        "select string_agg(namespace || ' ' || row_count, ', ' order by number) \
         from \"{}\"._forebay_namespaces",
        settings.schema
    ));
    assert_eq!(counts, format!("a {total}, b 21"));
}

#[test]
fn columns_that_come_later_do_not_mix_with_rows_that_wait() {
    let Some(server) = pg::shared() else { return };
    let settings = server.settings();
    let mut sink = PostgresSink::open(&settings).unwrap();
    let fields = ["a", "b", "c"].map(|path| Field { path, ty: ColumnType::Integer });
    for at in 1..=300_u64 {
        // One entry in a hundred brings a column, in the middle of a transaction.
        let fields = &fields[..usize::try_from(at / 100).unwrap().min(2) + 1];
        let mut writer = sink.row_writer(Position(at), "t", fields).unwrap();
        let value = Value::Integer(at.cast_signed());
        let document = Document { id: at, received_ms: 7, raw: b"{}" };
        writer.write(&document, &vec![value; fields.len()]).unwrap();
        writer.finish().unwrap();
    }
    sink.commit(Position(300)).unwrap();
    let sums = server
        .query(&format!("select count(*), sum(a), sum(b), sum(c) from \"{}\".t", settings.schema));
    let sum = |from: u64| (from..=300).sum::<u64>();
    assert_eq!(sums, format!("300|{}|{}|{}", sum(1), sum(100), sum(200)));
}

#[test]
fn a_copy_that_is_broken_off_leaves_nothing() {
    let Some(server) = pg::shared() else { return };
    let settings = server.settings();
    let mut sink = PostgresSink::open(&settings).unwrap();
    let raw = "x".repeat(1000);
    for _ in 0..2 {
        let mut writer = sink.row_writer(Position(1), "a", &[]).unwrap();
        for id in 0..5_000 {
            writer.write(&Document { id, received_ms: 7, raw: raw.as_bytes() }, &[]).unwrap();
        }
        drop(writer);
        let error = sink.commit(Position(1)).unwrap_err();
        assert!(matches!(error, SinkError::RolledBack));
        sink.roll_back().unwrap();
        // Another namespace in the middle of one ends it as well.
        write(&mut sink, 1, "a", (5_000, 1000)).unwrap();
        write(&mut sink, 1, "b", (1, 1)).unwrap();
        sink.roll_back().unwrap();
        assert_eq!(sink.position(), None);
        assert_eq!(sink.columns("a").unwrap(), None);
    }
    write(&mut sink, 1, "a", (5_000, 1000)).unwrap();
    sink.commit(Position(1)).unwrap();
    assert_eq!(count(&server, &settings, "a"), 5_000);
}

#[test]
fn two_writers_never_have_one_sink() {
    let Some(server) = pg::shared() else { return };
    let settings = server.settings();
    let mut first = PostgresSink::open(&settings).unwrap();
    let hasty = Settings { lock_timeout: Duration::from_millis(50), ..settings.clone() };
    let error = PostgresSink::open(&hasty).unwrap_err();
    assert!(matches!(error, OpenError::Server(ServerError::InUse { .. })), "{}", chain(&error));
    assert!(error.is_transient() && !error.is_unreachable());
    write(&mut first, 1, "a", (1, 1)).unwrap();
    first.commit(Position(1)).unwrap();
    // Another schema is another sink.
    PostgresSink::open(&server.settings()).unwrap();
    drop(first);
    let second = PostgresSink::open(&settings).unwrap();
    assert_eq!(second.position(), Some(Position(1)));
}

#[test]
fn another_state_than_was_left_is_an_error_and_not_a_gap() {
    let Some(server) = pg::shared() else { return };
    let settings = server.settings();
    let mut sink = PostgresSink::open(&settings).unwrap();
    write(&mut sink, 7, "a", (1, 1)).unwrap();
    sink.commit(Position(7)).unwrap();
    // As when an older state is restored.
    server.query(&format!("update \"{}\"._forebay_sink set position = 5", settings.schema));
    let written = write(&mut sink, 8, "a", (1, 1)).and_then(|()| sink.commit(Position(8)));
    let error = written.unwrap_err();
    assert!(matches!(error, SinkError::Moved { .. }), "{}", chain(&error));
    assert!(error.is_transient());
    assert_eq!(sink.position(), Some(Position(7)));
    sink.roll_back().unwrap();
    assert_eq!(sink.position(), Some(Position(5)));
}

#[test]
fn a_transaction_that_could_not_begin_says_so_and_can_be_tried_again() {
    let Some(server) = pg::shared() else { return };
    let mut settings = server.settings();
    settings.server.statement_timeout = Some(Duration::from_millis(200));
    let mut sink = PostgresSink::open(&settings).unwrap();
    write(&mut sink, 1, "a", (1, 1)).unwrap();
    sink.commit(Position(1)).unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    let other = connect::Server::new(&server.settings().server).unwrap();
    let other = runtime.block_on(other.connect()).unwrap();
    let lock = format!("begin; update \"{}\"._forebay_sink set layout = layout", settings.schema);
    runtime.block_on(other.batch_execute(&lock)).unwrap();
    for count in [1, 5_000] {
        let written =
            write(&mut sink, 2, "a", (count, 200)).and_then(|()| sink.commit(Position(2)));
        let error = written.unwrap_err();
        assert!(
            error.is_transient() && chain(&error).to_string().contains("begin"),
            "{}",
            chain(&error)
        );
        sink.roll_back().unwrap();
    }
    runtime.block_on(other.batch_execute("rollback")).unwrap();
    write(&mut sink, 2, "a", (5_000, 200)).unwrap();
    sink.commit(Position(2)).unwrap();
    assert_eq!(count(&server, &settings, "a"), 5_001);
}

#[test]
fn tables_of_others_are_left_alone() {
    let Some(server) = pg::shared() else { return };
    let settings = server.settings();
    let schema = &settings.schema;
    server.query(&format!(
        "create schema \"{schema}\"; create table \"{schema}\".orders (theirs int); \
         create type \"{schema}\".mood as enum ('good'); create view \"{schema}\".seen as select 1"
    ));
    let mut sink = PostgresSink::open(&settings).unwrap();
    for namespace in ["orders", "mood", "seen", "free", "free_pkey", "_forebay_sink"] {
        write(&mut sink, 1, namespace, (3, 1)).unwrap();
    }
    sink.commit(Position(1)).unwrap();
    let tables = server.query(&format!(
        "select string_agg(table_name, ' ' order by number) from \"{schema}\"._forebay_namespaces"
    ));
    assert_eq!(tables, "orders:1 mood:2 seen:3 free free_pkey _forebay_sink:6");
    assert_eq!(count(&server, &settings, "orders"), 0);
    assert_eq!(pg::Reader::connect(&settings).read("orders").rows.len(), 3);
}

#[test]
fn rows_that_a_trigger_swallows_are_missed() {
    let Some(server) = pg::shared() else { return };
    let settings = server.settings();
    let schema = &settings.schema;
    let mut sink = PostgresSink::open(&settings).unwrap();
    write(&mut sink, 1, "a", (1, 1)).unwrap();
    sink.commit(Position(1)).unwrap();
    server.query(&format!(
        "create function \"{schema}\".none() returns trigger language plpgsql as 'begin return null; end'; \
         create trigger none before insert on \"{schema}\".a for each row execute function \"{schema}\".none()"
    ));
    for count in [1, COPY_ABOVE_ROWS + 1] {
        let written = write(&mut sink, 2, "a", (count, 1));
        let error = written.and_then(|()| sink.commit(Position(2))).unwrap_err();
        assert!(matches!(error, SinkError::Server(ServerError::Contents { .. })));
        assert!(!error.is_transient());
        sink.roll_back().unwrap();
    }
    assert_eq!(sink.position(), Some(Position(1)));
}

#[test]
fn values_have_the_types_a_database_reckons_with() {
    let Some(server) = pg::shared() else { return };
    let settings = server.settings();
    let mut sink = PostgresSink::open(&settings).unwrap();
    let fields =
        [("d", ColumnType::Decimal), ("j", ColumnType::Json)].map(|(path, ty)| Field { path, ty });
    let mut writer = sink.row_writer(Position(1), "t", &fields).unwrap();
    for (id, number) in (1..).zip(["0.10", "9007199254740993", "1e30"]) {
        let values = [Value::Number(number), Value::Json("{\"a\": [1, 2]}")];
        writer.write(&Document { id, received_ms: 7, raw: b"{}" }, &values).unwrap();
    }
    writer.finish().unwrap();
    sink.commit(Position(1)).unwrap();
    let reckoned =
        format!("select sum(d), sum((j -> 'a' ->> 1)::int) from \"{}\".t", settings.schema);
    assert_eq!(server.query(&reckoned), "1000000000000009007199254740993.10|6");
    let stored = pg::Reader::connect(&settings).read("t");
    let values = [("d", "9007199254740993"), ("j", "{\"a\": [1, 2]}")];
    let values = values.map(|(path, text)| (path.to_owned(), text.to_owned()));
    assert_eq!(stored.rows[1].values, BTreeMap::from(values));
}
