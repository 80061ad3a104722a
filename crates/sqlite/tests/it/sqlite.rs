//! What only the SQLite sink promises.

use std::fs;
use std::path::{Path, PathBuf};

use forebay_sink::{
    ColumnType, Document, DocumentSink as _, Field, NamespaceKind, OpenError, Position, ReadError,
    RowSink as _, Sink as _, SinkError, Value,
};
use forebay_sqlite::{self as sqlite, Extent, OwnedValue, PageLimits, SqliteReader, SqliteSink};
use rusqlite::Connection;
use tempfile::TempDir;

fn place() -> (TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("sink.sqlite");
    (dir, path)
}

fn write(sink: &mut SqliteSink, at: u64, namespace: &str, raw: &[u8]) {
    let document = Document { id: at, received_ms: 1, raw };
    sink.write_documents(Position(at), namespace, &[document]).unwrap();
}

fn filled(path: &Path) -> SqliteSink {
    let mut sink = SqliteSink::open(path).unwrap();
    for at in 1..=200 {
        write(&mut sink, at, "docs", format!("{{\"n\":{at},\"pad\":\"{:0>500}\"}}", at).as_bytes());
    }
    sink.commit(Position(200)).unwrap();
    sink
}

#[test]
fn an_emptied_or_removed_database_has_another_identity() {
    let (_dir, path) = place();
    let sink = filled(&path);
    let before = sink.identity();
    drop(sink);
    assert_eq!(SqliteSink::open(&path).unwrap().identity(), before);
    assert_eq!(SqliteReader::open(&path).unwrap().identity().unwrap(), before);

    fs::write(&path, b"").unwrap();
    let emptied = SqliteSink::open(&path).unwrap();
    assert_ne!(emptied.identity(), before);
    assert_eq!(emptied.position(), None);
    let emptied = (emptied.identity(), drop(emptied)).0;

    fs::remove_file(&path).unwrap();
    assert!(matches!(SqliteReader::open(&path), Err(OpenError::Missing { .. })));
    assert_ne!(SqliteSink::open(&path).unwrap().identity(), emptied);
}

#[test]
fn other_files_are_refused_and_left_alone() {
    let (_dir, path) = place();
    fs::write(
        &path,
        b"this is not a database, and longer than SQLite's header of a hundred bytes: \
        it goes on and on and on",
    )
    .unwrap();
    let before = fs::read(&path).unwrap();
    assert!(matches!(SqliteSink::open(&path), Err(OpenError::Corrupt { .. })));
    assert!(matches!(SqliteReader::open(&path), Err(OpenError::Corrupt { .. })));
    assert_eq!(fs::read(&path).unwrap(), before);
    fs::remove_file(&path).unwrap();

    let db = Connection::open(&path).unwrap();
    db.execute_batch("CREATE TABLE mine (a)").unwrap();
    assert!(matches!(SqliteSink::open(&path), Err(OpenError::Foreign { found: 0, .. })));
    db.execute_batch(&format!("PRAGMA application_id = {}", sqlite::APPLICATION_ID)).unwrap();
    db.execute_batch("PRAGMA user_version = 77").unwrap();
    assert!(matches!(SqliteSink::open(&path), Err(OpenError::Version { found: 77, .. })));
}

#[test]
fn damage_is_found_and_named() {
    let (_dir, path) = place();
    let mut sink = filled(&path);
    sink.checkpoint().unwrap();
    drop(sink);
    assert_eq!(SqliteReader::open(&path).unwrap().check().unwrap(), []);

    let whole = fs::read(&path).unwrap();
    let mut damaged = whole.clone();
    let page = damaged.len() - 3 * 8192;
    damaged[page..page + 8].fill(0xa5);
    fs::write(&path, &damaged).unwrap();
    // Damage may keep it from opening or reading, or be found: it is never overlooked.
    if let Ok(Ok(found)) = SqliteReader::open(&path).map(|reader| reader.check()) {
        assert_ne!(found, []);
    }

    fs::write(&path, &whole).unwrap();
    Connection::open(&path).unwrap().execute_batch("DELETE FROM docs WHERE _id = 7").unwrap();
    let damage = SqliteReader::open(&path).unwrap().check().unwrap();
    assert_eq!(damage.len(), 1);
    assert_eq!(damage[0].namespace.as_deref(), Some("docs"));
    assert_eq!(damage[0].found, "199 rows, expected 200");
}

#[test]
fn a_torn_database_never_panics() {
    let (_dir, path) = place();
    let mut sink = filled(&path);
    sink.checkpoint().unwrap();
    drop(sink);
    let whole = fs::read(&path).unwrap();
    for at in (0..whole.len()).step_by(whole.len() / 47) {
        let mut damaged = whole.clone();
        let end = (at + 16).min(damaged.len());
        damaged[at..end].fill(0xff);
        fs::write(&path, &damaged).unwrap();
        drop(SqliteReader::open(&path).map(|reader| {
            (reader.check().is_ok(), reader.documents("docs", None, PageLimits::default()).is_ok())
        }));
        drop(SqliteSink::open(&path));
        fs::write(&path, &whole[..at]).unwrap();
        drop(SqliteReader::open(&path).map(|reader| reader.check().is_ok()));
        fs::remove_file(path.with_extension("sqlite-wal")).ok();
        fs::remove_file(path.with_extension("sqlite-shm")).ok();
    }
}

#[test]
fn readers_see_whole_commits_while_the_sink_writes() {
    let (_dir, path) = place();
    let mut sink = SqliteSink::open(&path).unwrap();
    let reader = sink.reader().unwrap();
    let read = || {
        let page = reader.documents("a", None, PageLimits::default()).unwrap();
        (page.position.map(|it| it.0), page.documents.len(), reader.count("a").unwrap())
    };
    assert_eq!(read(), (None, 0, 0));
    write(&mut sink, 1, "a", b"{}");
    write(&mut sink, 2, "a", b"{}");
    assert_eq!(read(), (None, 0, 0));
    sink.commit(Position(2)).unwrap();
    assert_eq!(read(), (Some(2), 2, 2));
    write(&mut sink, 3, "a", b"{}");
    assert_eq!(read(), (Some(2), 2, 2));
    assert_eq!(sink.checkpoint().unwrap(), Some(Position(2)));
    sink.commit(Position(3)).unwrap();
    assert_eq!(read(), (Some(3), 3, 3));
}

#[test]
fn a_checkpoint_moves_everything_into_the_database() {
    let (_dir, path) = place();
    let mut sink = filled(&path);
    assert_eq!(sink.checkpoint().unwrap(), Some(Position(200)));
    // The database alone, without its log, has it all.
    let (_other, copy) = place();
    fs::copy(&path, &copy).unwrap();
    let reader = SqliteReader::open(&copy).unwrap();
    assert_eq!(reader.position().unwrap(), Some(Position(200)));
    assert_eq!(reader.count("docs").unwrap(), 200);
    assert_eq!(reader.check().unwrap(), []);
}

#[test]
fn a_reader_in_the_way_does_not_keep_a_checkpoint_from_being_safe() {
    let (_dir, path) = place();
    let mut sink = filled(&path);
    let other = Connection::open(&path).unwrap();
    let reading = other.unchecked_transaction().unwrap();
    let count = |db: &Connection| -> i64 {
        db.query_row("SELECT count(*) FROM docs", [], |row| row.get(0)).unwrap()
    };
    assert_eq!(count(&reading), 200);
    write(&mut sink, 201, "docs", b"{}");
    sink.commit(Position(201)).unwrap();
    assert_eq!(sink.checkpoint().unwrap(), Some(Position(201)));
    assert_eq!(count(&reading), 200);
    reading.commit().unwrap();
    assert_eq!(sink.checkpoint().unwrap(), Some(Position(201)));
    let log = fs::metadata(path.with_extension("sqlite-wal")).unwrap();
    assert_eq!((count(&other), log.len()), (201, 0));
}

#[test]
fn a_crash_at_any_point_of_the_log_leaves_whole_commits() {
    let (_dir, path) = place();
    let mut sink = SqliteSink::open(&path).unwrap();
    sink.checkpoint().unwrap();
    for at in 1..=20 {
        write(&mut sink, at, "a", b"{\"some\":\"document\"}");
        write(&mut sink, at, "b", b"{}");
        sink.commit(Position(at)).unwrap();
    }
    let database = fs::read(&path).unwrap();
    let log = fs::read(path.with_extension("sqlite-wal")).unwrap();
    let mut positions = Vec::new();
    for cut in (0..log.len()).step_by(log.len() / 60).chain([log.len()]) {
        let (_dir, copy) = place();
        fs::write(&copy, &database).unwrap();
        fs::write(copy.with_extension("sqlite-wal"), &log[..cut]).unwrap();
        let sink = SqliteSink::open(&copy).unwrap();
        let position = sink.position().map_or(0, |it| it.0);
        let reader = sink.reader().unwrap();
        assert_eq!(reader.count("a").unwrap(), position);
        assert_eq!(reader.count("b").unwrap(), position);
        assert_eq!(reader.check().unwrap(), []);
        positions.push(position);
    }
    assert!(positions.is_sorted());
    assert_eq!((positions[0], positions.last().copied()), (0, Some(20)));
}

#[test]
fn pages_are_bounded_in_rows_and_bytes() {
    let (_dir, path) = place();
    let reader = filled(&path).reader().unwrap();
    let page = |after, rows_max, bytes_max| {
        let page = reader.documents("docs", after, PageLimits { rows_max, bytes_max }).unwrap();
        (page.documents.iter().map(|it| it.id).collect::<Vec<_>>(), page.more)
    };
    assert_eq!(page(None, 2, usize::MAX), (vec![1, 2], true));
    assert_eq!(page(Some(2), 2, usize::MAX), (vec![3, 4], true));
    assert_eq!(page(Some(198), 2, usize::MAX), (vec![199, 200], false));
    assert_eq!(page(Some(200), 2, usize::MAX), (vec![], false));
    assert_eq!(page(Some(u64::MAX), 2, usize::MAX), (vec![], false));
    assert_eq!(page(None, 100, 0), (vec![1], true), "the first is there whatever its size");
    assert_eq!(page(None, 100, 600), (vec![1, 2], true));
    let document = reader.document("docs", 5).unwrap().unwrap();
    assert!(document.raw.starts_with(b"{\"n\":5,"));
    assert_eq!(reader.document("docs", 500).unwrap(), None);
    assert_eq!(reader.document("docs", u64::MAX).unwrap(), None);
    assert_eq!(reader.document("elsewhere", 5).unwrap(), None);
}

#[test]
fn the_plan_is_what_is_done() {
    let (_dir, path) = place();
    let mut sink = SqliteSink::open(&path).unwrap();
    let hostile = "x\"); DROP TABLE _forebay_state; --";
    let fields = [
        Field { path: "a.b", ty: ColumnType::Integer },
        Field { path: hostile, ty: ColumnType::Real },
    ];
    let (ddl, _) = sqlite::plan("t", sink.schema("t"), &fields);
    assert_eq!(
        ddl,
        [
            r#"CREATE TABLE "t" (_id INTEGER PRIMARY KEY, _received_ms INTEGER NOT NULL, _checksum INTEGER NOT NULL, "a_b" INTEGER, "x_drop_table_forebay_state" REAL, _document)"#
        ]
    );
    sink.row_writer(Position(1), "t", &fields).unwrap().finish().unwrap();
    let more = [Field { path: "A_B", ty: ColumnType::Json }, fields[0]];
    let (ddl, plan) = sqlite::plan("t", sink.schema("t"), &more);
    assert_eq!(ddl, [r#"ALTER TABLE "t" ADD COLUMN "a_b_2" TEXT"#]);
    assert_eq!(plan.slots, [Some(2), Some(0)]);
    sink.row_writer(Position(1), "t", &more).unwrap().finish().unwrap();
    sink.commit(Position(1)).unwrap();
    let schema = sink.reader().unwrap().schema("t").unwrap().unwrap();
    assert_eq!(schema.column("A_B").unwrap().name, "a_b_2");
    assert_eq!(schema.column(hostile).unwrap().ty, ColumnType::Real);
    let sql: String = Connection::open(&path)
        .unwrap()
        .query_row("SELECT sql FROM sqlite_schema WHERE name = 't'", [], |row| row.get(0))
        .unwrap();
    assert!(sql.contains("\"a_b_2\" TEXT"), "{sql}");
}

#[test]
fn a_namespace_becomes_a_table_with_its_first_column() {
    let (_dir, path) = place();
    let mut sink = SqliteSink::open(&path).unwrap();
    write(&mut sink, 1, "a", b"{}");
    write(&mut sink, 1, "sqlite_master", b"{}");
    sink.commit(Position(1)).unwrap();
    let reader = sink.reader().unwrap();
    let kinds = || -> Vec<_> {
        let found = reader.namespaces().unwrap();
        found.into_iter().map(|it| (it.name, it.table, it.kind, it.row_count)).collect()
    };
    let apart =
        ("sqlite_master".into(), "namespace:sqlite_master".into(), NamespaceKind::Collection, 1);
    assert_eq!(kinds(), [("a".into(), "a".into(), NamespaceKind::Collection, 1), apart.clone()]);
    let fields = [Field { path: "n", ty: ColumnType::Integer }];
    let mut writer = sink.row_writer(Position(2), "a", &fields).unwrap();
    let document = Document { id: 2, received_ms: 1, raw: b"{\"n\":3}" };
    writer.write(&document, &[Value::Number("3")]).unwrap();
    writer.finish().unwrap();
    sink.commit(Position(2)).unwrap();
    assert_eq!(kinds(), [("a".into(), "a".into(), NamespaceKind::Table, 2), apart]);
    let info = reader.namespace("a").unwrap().unwrap();
    assert_eq!((info.kind, info.row_count, info.last_id), (NamespaceKind::Table, 2, Some(2)));
    assert_eq!(reader.namespace("none").unwrap(), None);
}

#[test]
fn changes_made_by_another_connection_are_noticed() {
    let (_dir, path) = place();
    let mut first = SqliteSink::open(&path).unwrap();
    let mut second = SqliteSink::open(&path).unwrap();
    write(&mut first, 1, "a", b"{}");
    first.commit(Position(1)).unwrap();
    write(&mut second, 2, "a", b"{}");
    second.commit(Position(2)).unwrap();
    let replayed = Document { id: 9, received_ms: 1, raw: b"{}" };
    let written = first.write_documents(Position(2), "a", &[replayed]).unwrap();
    assert!(written.replayed);
    first.commit(Position(2)).unwrap();
    write(&mut first, 3, "a", b"{}");
    first.commit(Position(3)).unwrap();
    let reader = first.reader().unwrap();
    assert_eq!((reader.count("a").unwrap(), reader.check().unwrap()), (3, vec![]));
}

#[test]
fn documents_are_text_to_sql_and_their_fields_can_be_queried() {
    let (_dir, path) = place();
    let mut sink = SqliteSink::open(&path).unwrap();
    write(&mut sink, 1, "a", b"{\"n\": 41}");
    write(&mut sink, 2, "a", b"\xff");
    sink.commit(Position(2)).unwrap();
    let db = Connection::open(&path).unwrap();
    let n: i64 = db
        .query_row("SELECT _document ->> '$.n' + 1 FROM a WHERE _id = 1", [], |row| row.get(0))
        .unwrap();
    assert_eq!(n, 42);
    let kinds: String = db
        .query_row("SELECT group_concat(typeof(_document), ' ') FROM a", [], |row| row.get(0))
        .unwrap();
    assert_eq!(kinds, "text blob");
}

#[test]
fn a_row_without_a_document_is_a_row_but_no_document() {
    let (_dir, path) = place();
    let mut sink = SqliteSink::open(&path).unwrap();
    write(&mut sink, 1, "t", b"{}");
    sink.commit(Position(1)).unwrap();
    drop(sink);
    // No sink writes one, but the layout has them: as version 1 had them, without checksums.
    as_version_1(&path);
    Connection::open(&path).unwrap().execute_batch("UPDATE t SET _document = NULL").unwrap();
    let reader = SqliteSink::open(&path).unwrap().reader().unwrap();
    let page = reader.rows("t", None, PageLimits::default()).unwrap();
    assert_eq!((page.rows.len(), page.rows[0].document.as_ref()), (1, None));
    assert_eq!(reader.documents("t", None, PageLimits::default()).unwrap().documents, []);
    assert_eq!(reader.document("t", 1).unwrap(), None);
}

/// Turns a database into what version 1 of the layout wrote.
fn as_version_1(path: &Path) {
    let db = Connection::open(path).unwrap();
    let tables: Vec<String> = db
        .prepare("SELECT table_name FROM _forebay_namespaces")
        .unwrap()
        .query_map([], |row| row.get(0))
        .unwrap()
        .collect::<Result<_, _>>()
        .unwrap();
    for table in tables {
        db.execute_batch(&format!("ALTER TABLE \"{table}\" DROP COLUMN _checksum")).unwrap();
    }
    db.execute_batch(
        "ALTER TABLE _forebay_state RENAME TO state;
         CREATE TABLE _forebay_state (
           one INTEGER PRIMARY KEY CHECK (one = 1),
           identity BLOB NOT NULL,
           position INTEGER
         ) STRICT;
         INSERT INTO _forebay_state SELECT one, identity, position FROM state;
         DROP TABLE state;
         ALTER TABLE _forebay_namespaces RENAME TO namespaces;
         CREATE TABLE _forebay_namespaces (
           namespace TEXT PRIMARY KEY,
           table_name TEXT NOT NULL UNIQUE,
           row_count INTEGER NOT NULL,
           last_id INTEGER
         ) STRICT, WITHOUT ROWID;
         INSERT INTO _forebay_namespaces SELECT namespace, table_name, row_count, last_id
           FROM namespaces;
         DROP TABLE namespaces;
         DROP TABLE _forebay_changes;
         DROP TABLE _forebay_column_changes;
         PRAGMA user_version = 1;",
    )
    .unwrap();
}

/// A table with all types of columns, rows before and after a column was added, and a collection.
fn typed(path: &Path) -> SqliteSink {
    let mut sink = SqliteSink::open(path).unwrap();
    let fields = [
        Field { path: "b", ty: ColumnType::Real },
        Field { path: "a", ty: ColumnType::Text },
        Field { path: "c", ty: ColumnType::Bytes },
    ];
    for at in 1..=40_u64 {
        // The second half has another column, and names the fields in another order.
        let more = [fields[1], Field { path: "d", ty: ColumnType::Integer }, fields[0]];
        let document = Document { id: at, received_ms: at, raw: b"{}" };
        let long = "long ".repeat(80);
        if at <= 20 {
            let values = [Value::Real(-0.0), Value::Text(&long), Value::Bytes(b"\0\xff")];
            let mut writer = sink.row_writer(Position(at), "t", &fields).unwrap();
            writer.write(&document, &values).unwrap();
            writer.finish().unwrap();
        } else {
            let values = [Value::Null, Value::Number("7"), Value::Number("5.0")];
            let mut writer = sink.row_writer(Position(at), "t", &more).unwrap();
            writer.write(&document, &values).unwrap();
            writer.finish().unwrap();
        }
    }
    write(&mut sink, 41, "other", b"\xff");
    sink.commit(Position(41)).unwrap();
    sink
}

#[test]
fn every_value_is_covered_by_its_row_and_every_row_by_its_namespace() {
    let (_dir, path) = place();
    let sink = typed(&path);
    let reader = sink.reader().unwrap();
    assert_eq!(reader.check().unwrap(), []);
    assert_eq!(reader.rows("t", None, PageLimits::default()).unwrap().rows.len(), 40);
    let (_other, copy) = place();
    drop((reader, sink));
    for (change, found) in [
        ("UPDATE t SET b = 1.5 WHERE _id = 3", "the row with id 3 of"),
        ("UPDATE t SET a = NULL WHERE _id = 4", "the row with id 4 of"),
        ("UPDATE t SET c = CAST(c AS TEXT) WHERE _id = 5", "the row with id 5 of"),
        ("UPDATE t SET d = 8 WHERE _id = 21", "the row with id 21 of"),
        ("UPDATE t SET d = 8 WHERE _id = 1", "the row with id 1 of"),
        ("UPDATE t SET _received_ms = 1 WHERE _id = 6", "the row with id 6 of"),
        ("UPDATE t SET _document = '{ }' WHERE _id = 7", "the row with id 7 of"),
        ("UPDATE t SET _document = CAST(_document AS BLOB) WHERE _id = 8", "the row with id 8 of"),
        ("UPDATE t SET _checksum = 0 WHERE _id = 9", "the row with id 9 of"),
        ("UPDATE t SET _id = 41 WHERE _id = 40", "the row with id 41 of"),
        ("DELETE FROM t WHERE _id = 1", "39 rows, expected 40"),
    ] {
        fs::copy(&path, &copy).unwrap();
        Connection::open(&copy).unwrap().execute_batch(change).unwrap();
        let reader = SqliteReader::open(&copy).unwrap();
        let damage = reader.check().unwrap();
        assert!(damage.iter().any(|it| it.found.contains(found)), "{change}: {damage:?}");
        assert!(damage.iter().all(|it| it.namespace.as_deref() == Some("t")), "{damage:?}");
        let page = reader.rows("t", None, PageLimits::default());
        assert!(matches!(page, Err(ReadError::Corrupt { .. })), "{change}: {page:?}");
        assert_eq!(
            reader.documents("other", None, PageLimits::default()).unwrap().documents.len(),
            1
        );
    }
}

#[test]
fn a_database_of_version_1_is_upgraded_with_what_it_holds() {
    let (_dir, path) = place();
    let sink = typed(&path);
    let reader = sink.reader().unwrap();
    let rows = |reader: &SqliteReader| reader.rows("t", None, PageLimits::default()).unwrap();
    let (before, identity) = (rows(&reader), sink.identity());
    let extents = sink.extents();
    drop((reader, sink));
    as_version_1(&path);
    assert!(matches!(SqliteReader::open(&path), Err(OpenError::Version { found: 1, .. })));
    // An upgrade that was interrupted begins again.
    Connection::open(&path)
        .unwrap()
        .execute_batch("ALTER TABLE t ADD COLUMN _checksum INTEGER; UPDATE t SET _checksum = 5")
        .unwrap();
    let mut sink = SqliteSink::open(&path).unwrap();
    assert_eq!((sink.identity(), sink.position()), (identity, Some(Position(41))));
    let reader = sink.reader().unwrap();
    assert_eq!(reader.check().unwrap(), []);
    assert_eq!(rows(&reader), before);
    assert_eq!(sink.extents(), extents, "the checksums are those of the new layout");
    write(&mut sink, 42, "t", b"{}");
    write(&mut sink, 42, "new", b"{}");
    sink.commit(Position(42)).unwrap();
    assert_eq!((reader.check().unwrap(), reader.count("t").unwrap()), (vec![], 41));
    drop(sink);
    assert_eq!(SqliteSink::open(&path).unwrap().position(), Some(Position(42)));
}

#[test]
fn a_namespace_that_lost_its_name_is_not_a_missing_one() {
    let (_dir, path) = place();
    drop(typed(&path));
    let db = Connection::open(&path).unwrap();
    db.execute_batch("UPDATE _forebay_namespaces SET namespace = 'u' WHERE namespace = 't'")
        .unwrap();
    let reader = SqliteReader::open(&path).unwrap();
    for name in ["t", "u", "never"] {
        let found = reader.document(name, 1);
        assert!(matches!(found, Err(ReadError::Corrupt { .. })), "{name}: {found:?}");
    }
    assert!(matches!(SqliteSink::open(&path), Err(OpenError::Corrupt { .. })));
}

#[test]
fn what_a_namespace_held_before_is_checked_in_what_it_holds_now() {
    let (_dir, path) = place();
    let mut sink = typed(&path);
    let extents = sink.extents();
    write(&mut sink, 50, "t", b"{}");
    sink.commit(Position(50)).unwrap();
    let reader = sink.reader().unwrap();
    assert_eq!(reader.check_against(&extents, Position(41)).unwrap(), []);
    let mut other = extents.clone();
    other[0].rows.digest ^= 1;
    let damage = reader.check_against(&other, Position(41)).unwrap();
    assert!(damage[0].found.contains("are not those that were stored"), "{damage:?}");
    other[0] = Extent { namespace: "gone".to_owned(), ..extents[0].clone() };
    let damage = reader.check_against(&other, Position(41)).unwrap();
    assert_eq!(damage[0].namespace.as_deref(), Some("gone"));
}

#[test]
fn a_database_of_layout_2_is_upgraded_and_keeps_every_checksum() {
    let (_dir, path) = place();
    let sink = typed(&path);
    let (identity, extents) = (sink.identity(), sink.extents());
    drop(sink);
    let db = Connection::open(&path).unwrap();
    crate::history::remove_history(&db);
    db.execute_batch(
        "ALTER TABLE _forebay_namespaces RENAME TO namespaces;
         CREATE TABLE _forebay_namespaces (
           namespace TEXT PRIMARY KEY,
           table_name TEXT NOT NULL UNIQUE,
           row_count INTEGER NOT NULL,
           first_id INTEGER,
           last_id INTEGER,
           rows_digest INTEGER NOT NULL,
           schema_checksum INTEGER NOT NULL,
           checksum INTEGER NOT NULL
         ) STRICT, WITHOUT ROWID;
         INSERT INTO _forebay_namespaces SELECT namespace, table_name, row_count, first_id, last_id,
           rows_digest, schema_checksum, checksum FROM namespaces;
         DROP TABLE namespaces;
         DROP TABLE _forebay_changes;
         PRAGMA user_version = 2;",
    )
    .unwrap();
    drop(db);
    let older = SqliteReader::open(&path);
    assert!(matches!(older, Err(OpenError::Version { found: 2, .. })), "{older:?}");
    let sink = SqliteSink::open(&path).unwrap();
    assert_eq!((sink.identity(), sink.extents()), (identity, extents));
    let reader = sink.reader().unwrap();
    assert_eq!(reader.check().unwrap(), []);
    assert!(reader.namespaces().unwrap().iter().all(|info| !info.undecided));
}

#[test]
fn an_undecided_namespace_stays_so_until_it_is_decided() {
    let (_dir, path) = place();
    let mut sink = SqliteSink::open(&path).unwrap();
    write(&mut sink, 1, "t", b"{}");
    sink.set_undecided("t", true).unwrap();
    sink.commit(Position(1)).unwrap();
    drop(sink);
    let mut sink = SqliteSink::open(&path).unwrap();
    let undecided = |sink: &SqliteSink| {
        let reader = sink.reader().unwrap();
        assert_eq!(reader.check().unwrap(), []);
        reader.namespace("t").unwrap().unwrap().undecided
    };
    assert!(undecided(&sink));
    assert!(matches!(sink.set_undecided("t", false), Err(SinkError::RolledBack)));
    write(&mut sink, 2, "t", b"{}");
    sink.set_undecided("t", false).unwrap();
    sink.roll_back().unwrap();
    assert!(undecided(&sink));
    write(&mut sink, 2, "t", b"{}");
    sink.set_undecided("t", false).unwrap();
    sink.commit(Position(2)).unwrap();
    assert!(!undecided(&sink));
}

#[test]
fn what_was_held_before_is_compared_by_number_after_rows_were_rewritten() {
    let (_dir, path) = place();
    let mut sink = typed(&path);
    let extents = sink.extents();
    let fields = [Field { path: "a", ty: ColumnType::Text }];
    sink.reshape(Position(50), "t", &fields, &mut |_, put| put(0, Value::Text("new"))).unwrap();
    sink.commit(Position(50)).unwrap();
    let reader = sink.reader().unwrap();
    assert_eq!(reader.check_against(&extents, Position(41)).unwrap(), []);
    let page = reader.rows("t", None, PageLimits::default()).unwrap();
    let new = [OwnedValue::Text("new".to_owned())];
    assert!(page.rows.len() == 40 && page.rows.iter().all(|row| row.values == new));
    let mut other = extents.clone();
    other.iter_mut().for_each(|extent| extent.rows.count += 1);
    assert_eq!(reader.check_against(&other, Position(41)).unwrap().len(), 2);
    // What was recorded since is compared as a whole.
    let mut later = sink.extents();
    assert_eq!(reader.check_against(&later, Position(50)).unwrap(), []);
    later.iter_mut().for_each(|extent| extent.rows.digest ^= 1);
    assert_eq!(reader.check_against(&later, Position(50)).unwrap().len(), 2);
}
