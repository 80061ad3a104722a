//! Pipelines from PostgreSQL into ClickHouse, by the real program. The oracle is SQL in ClickHouse's engine, which
//! `crates/testing` has behind its HTTP interface.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use forebay_testing::{ClickHouse, Postgres};
use serde_json::Value;
use tempfile::TempDir;

use super::support::{run, run_ok, stderr};

/// A database on each side, and pipelines between them.
pub(super) struct Trial {
    pub(super) dir: TempDir,
    pub(super) postgres: Arc<Postgres>,
    pub(super) clickhouse: Arc<ClickHouse>,
    /// The database, on both sides.
    pub(super) name: String,
}

impl Trial {
    /// `None` without both servers.
    pub(super) fn new() -> Option<Self> {
        Self::with(ClickHouse::shared()?)
    }

    /// With a server that a test may kill.
    pub(super) fn with(clickhouse: Arc<ClickHouse>) -> Option<Self> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let postgres = Postgres::shared()?;
        let name = format!("ch{}", NEXT.fetch_add(1, Ordering::Relaxed));
        postgres.query("postgres", &format!("create database {name}"));
        clickhouse.query("default", &format!("CREATE DATABASE {name} ENGINE = Atomic"));
        let dir = TempDir::new().unwrap();
        std::fs::write(dir.path().join("password"), clickhouse.password()).unwrap();
        Some(Self { dir, postgres, clickhouse, name })
    }

    /// Writes the pipeline. It reaches ClickHouse at its own port, or at that of a proxy.
    pub(super) fn pipeline(&self, port: u16, streams: &str, more: &str) {
        let path = self.dir.path().display();
        let file = format!(
            "version: 1\npipeline: p\nsource:\n  use: postgres\n  config: {{host: 127.0.0.1, port: {}, \
             database: {}, user: postgres}}\n  streams: {streams}\ndestination:\n  use: clickhouse\n  config:\n    \
             url: http://127.0.0.1:{port}\n    database: {1}\n    user: {}\n    password: ${{file:{path}/password}}\n{more}",
            self.postgres.port(),
            self.name,
            self.clickhouse.user(),
        );
        std::fs::write(self.dir.path().join("p.yaml"), file).unwrap();
    }

    pub(super) fn source(&self, sql: &str) -> String {
        self.postgres.query(&self.name, sql)
    }

    pub(super) fn found(&self, sql: &str) -> String {
        self.clickhouse.query(&self.name, sql)
    }

    pub(super) fn run(&self) -> Value {
        serde_json::from_str(&run_ok(&self.dir, &["pipeline", "run", "p.yaml", "--json"])).unwrap()
    }

    pub(super) fn fails(&self, command: &str, with: &str) {
        let output = run(&self.dir, &["pipeline", command, "p.yaml"]);
        let text = stderr(&output);
        assert!(!output.status.success() && text.contains(with), "{text} does not say {with:?}");
        assert!(!text.contains(self.clickhouse.password()), "{text}");
    }
}

/// Types of PostgreSQL, two values of each as SQL, and what ClickHouse prints for them.
const TYPES: &[(&str, &str, &str, &str)] = &[
    ("boolean", "true", "false", "true|false"),
    ("smallint", "-32768", "32767", "-32768|32767"),
    ("integer", "-2147483648", "2147483647", "-2147483648|2147483647"),
    (
        "bigint",
        "-9223372036854775808",
        "9223372036854775807",
        "-9223372036854775808|9223372036854775807",
    ),
    ("oid", "4294967295", "0", "4294967295|0"),
    ("real", "'NaN'", "1.1", "nan|1.1"),
    ("double precision", "'-Infinity'", "5e-324", "-inf|5e-324"),
    ("numeric(10,2)", "12345678.90", "-0.01", "12345678.9|-0.01"),
    (
        "numeric(76,38)",
        "-99999999999999999999999999999999999999.99999999999999999999999999999999999999",
        "0.1",
        "-99999999999999999999999999999999999999.99999999999999999999999999999999999999|0.1",
    ),
    ("numeric", "'NaN'", "1.10", "NaN|1.10"),
    ("text", "e'a\\tb\\n''`'", "''", "a\\tb\\n\\'`|"),
    ("character varying(20)", "'größe ✓'", "'x'", "größe ✓|x"),
    ("character(3)", "'ab'", "'abc'", "ab |abc"),
    ("json", "'{\"a\":  1.50}'", "'null'", "{\"a\":  1.50}|null"),
    ("jsonb", "'{\"a\":  1.50}'", "'[]'", "{\"a\": 1.50}|[]"),
    ("bytea", "'\\x41425c00'", "''", "AB\\\\\\0|"),
    ("date", "'1900-01-01'", "'2299-12-31'", "1900-01-01|2299-12-31"),
    ("time", "'24:00'", "'13:45:06.789'", "24:00:00|13:45:06.789000"),
    ("timetz", "'13:45:06.789+02'", "'00:00+00'", "13:45:06.789+02|00:00:00+00"),
    (
        "timestamp",
        "'1900-01-01'",
        "'2299-12-31 23:59:59.999999'",
        "1900-01-01 00:00:00.000000|2299-12-31 23:59:59.999999",
    ),
    (
        "timestamptz",
        "'2024-05-06 07:08:09.000001+02'",
        "'1969-12-31 23:59:59.999999+00'",
        "2024-05-06 05:08:09.000001|1969-12-31 23:59:59.999999",
    ),
    ("interval", "'14 mons -3 days 04:00:00.000005'", "'0'", "P14M-3DT14400.000005S|PT0S"),
    (
        "uuid",
        "'0a1b2c3d-4e5f-6071-8293-a4b5c6d7e8f9'",
        "'ffffffff-ffff-ffff-ffff-ffffffffffff'",
        "0a1b2c3d-4e5f-6071-8293-a4b5c6d7e8f9|ffffffff-ffff-ffff-ffff-ffffffffffff",
    ),
    ("inet", "'192.168.0.1/24'", "'::1'", "192.168.0.1/24|::1"),
    ("cidr", "'10.0.0.0/8'", "'::/0'", "10.0.0.0/8|::/0"),
    (
        "macaddr",
        "'08:00:2b:01:02:03'",
        "'ff:ff:ff:ff:ff:ff'",
        "08:00:2b:01:02:03|ff:ff:ff:ff:ff:ff",
    ),
    ("bit(3)", "b'101'", "b'000'", "101|000"),
    ("mood", "'happy'", "'it''s'", "happy|it\\'s"),
    ("integer[]", "'{1,NULL,-3}'", "'{}'", "[1,NULL,-3]|[]"),
    ("text[]", "array['', null, 'a,{}\"']", "'{}'", "['',NULL,'a,{}\"']|[]"),
    (
        "uuid[]",
        "array['0a1b2c3d-4e5f-6071-8293-a4b5c6d7e8f9'::uuid]",
        "'{}'",
        "['0a1b2c3d-4e5f-6071-8293-a4b5c6d7e8f9']|[]",
    ),
    (
        "timestamptz[]",
        "array['2024-05-06 07:08:09+00'::timestamptz, null]",
        "'{}'",
        "['2024-05-06 07:08:09.000000',NULL]|[]",
    ),
    ("numeric(10,2)[]", "'{1.50,NULL}'", "'{}'", "[1.5,NULL]|[]"),
    ("xml", "'<a/>'", "'<b/>'", "<a/>|<b/>"),
];

#[test]
fn every_type_of_postgresql_has_its_values_in_clickhouse() {
    let Some(trial) = Trial::new() else { return };
    trial.source("create type mood as enum ('happy', 'it''s')");
    let columns: Vec<String> =
        TYPES.iter().enumerate().map(|(at, (name, ..))| format!("v{at} {name}")).collect();
    trial.source(&format!("create table t (id bigint primary key, {})", columns.join(", ")));
    let arrays = |at: &usize| TYPES[*at].0.ends_with("[]");
    for (id, value) in [(1, 0), (2, 1)] {
        let values = TYPES.iter().map(|(_, one, other, _)| [*one, *other][value]);
        let values: Vec<&str> = values.collect();
        trial.source(&format!("insert into t values ({id}, {})", values.join(", ")));
    }
    // Everything is NULL, except arrays.
    let given: Vec<usize> = (0..TYPES.len()).filter(arrays).collect();
    let names: String = given.iter().map(|at| format!(", v{at}")).collect();
    trial.source(&format!("insert into t (id{names}) values (3{})", ", '{}'".repeat(given.len())));
    trial.pipeline(trial.clickhouse.port(), "[{ name: public.t }]", "");
    let plan = run_ok(&trial.dir, &["pipeline", "plan", "p.yaml"]);
    assert!(plan.contains("CREATE TABLE IF NOT EXISTS `t`") && plan.contains("interval"), "{plan}");
    assert_eq!(trial.run()["rows"], 3);
    for (at, (name, _, _, expected)) in TYPES.iter().enumerate() {
        let found = trial.found(&format!("SELECT v{at} FROM t WHERE id < 3 ORDER BY id"));
        assert_eq!(found.replace('\n', "|"), *expected, "{name}");
        let null = if name.ends_with("[]") { "[]" } else { "\\N" };
        assert_eq!(trial.found(&format!("SELECT v{at} FROM t WHERE id = 3")), null, "{name}");
    }
    let verified = run_ok(&trial.dir, &["pipeline", "verify", "p.yaml"]);
    assert!(verified.contains('3'), "{verified}");
    trial.found("ALTER TABLE t DELETE WHERE id = 2 SETTINGS mutations_sync = 2");
    let output = run(&trial.dir, &["pipeline", "verify", "p.yaml"]);
    assert!(!output.status.success(), "a row is missing");
}

#[test]
fn appended_replaced_and_updated_rows_are_those_of_the_source() {
    let Some(trial) = Trial::new() else { return };
    trial.source(
        "create table t (id int primary key, note text, changed int); \
         insert into t select g, 'note ' || g, g from generate_series(1, 1000) g",
    );
    let port = trial.clickhouse.port();
    let streams = "[{ name: public.t, into: a, sync_mode: incremental, cursor_field: changed, tie_breaker_field: id }]";
    trial.pipeline(port, streams, "");
    assert_eq!(trial.run()["rows"], 1000);
    assert_eq!(trial.run()["rows"], 0);
    trial.source("insert into t select g, 'new', g from generate_series(1001, 1010) g");
    assert_eq!(trial.run()["rows"], 10);
    assert_eq!(
        trial.found("SELECT count(), uniqExact(id), sum(changed) FROM a"),
        "1010\t1010\t510555"
    );
    // With a key, rows that changed replace those that are there.
    let streams = streams.replace("into: a", "into: u");
    trial.pipeline(port, &streams, "  write_mode: upsert\n  primary_key: [id]\n");
    assert_eq!(trial.run()["rows"], 1010);
    trial.source("update t set note = 'changed', changed = id + 5000 where id <= 7");
    assert!(trial.run()["rows"].as_u64().unwrap() >= 7);
    assert_eq!(trial.found("SELECT count(), countIf(note = 'changed') FROM u FINAL"), "1010\t7");
    // Replaced, and what is read meanwhile is all of one or all of the other.
    trial.pipeline(port, "[{ name: public.t, into: r }]", "  write_mode: replace\n");
    assert_eq!(trial.run()["rows"], 1010);
    trial.source("delete from t where id > 400");
    assert_eq!(trial.run()["rows"], 400);
    assert_eq!(trial.found("SELECT count(), max(id) FROM r"), "400\t400");
    let tables = "SELECT name FROM system.tables WHERE database = currentDatabase() ORDER BY name";
    assert_eq!(trial.found(tables), "_forebay_claims\n_forebay_ledger\na\nr\nu");
    drop(run_ok(&trial.dir, &["pipeline", "verify", "p.yaml"]));
}

#[test]
fn rows_that_clickhouse_does_not_have_are_refused_skipped_or_dead_letters() {
    let Some(trial) = Trial::new() else { return };
    trial.source(
        "create table t (id int primary key, day date); \
         insert into t select g, case when g % 10 = 0 then date 'infinity' when g % 10 = 1 then date '1815-12-10' \
         else date '2024-01-01' + g end from generate_series(1, 100) g",
    );
    let port = trial.clickhouse.port();
    trial.pipeline(port, "[{ name: public.t }]", "");
    trial.fails("run", "column \"day\" is outside of the years 1900 to 2299");
    assert_eq!(trial.found("SELECT count() FROM t"), "0");
    trial.pipeline(port, "[{ name: public.t }]", "  on_data_error: dlq\n");
    let report = trial.run();
    assert_eq!((report["rows"].as_u64(), report["dead"].as_u64()), (Some(80), Some(20)));
    assert_eq!(trial.found("SELECT count(), countIf(id % 10 < 2) FROM t"), "80\t0");
    let dead = "SELECT count(), countIf(reason LIKE '%infinite%'), countIf(JSONExtractString(row, 'day') = '1815-12-10') \
                FROM _forebay_dead_letters";
    assert_eq!(trial.found(dead), "20\t10\t10");
}

#[test]
fn what_cannot_be_done_is_refused_without_the_password() {
    let Some(trial) = Trial::new() else { return };
    trial.source("create table t (id int primary key)");
    let port = trial.clickhouse.port();
    let cdc = "[{ name: public.t, sync_mode: cdc }]";
    trial.pipeline(port, cdc, "  write_mode: upsert\n");
    let output = run(&trial.dir, &["pipeline", "run", "p.yaml"]);
    let text = stderr(&output);
    assert!(!output.status.success() && text.contains("changes"), "{text}");
    trial.pipeline(
        port,
        "[{ name: public.t }]",
        "  permissions: { network: { allowed_hosts: [db.example.org] } }\n",
    );
    trial.fails("run", "permissions.network.allowed_hosts");
    trial.pipeline(port, "[{ name: public.t }]", "");
    assert!(run_ok(&trial.dir, &["pipeline", "check", "p.yaml"]).contains("ClickHouse 2"));
    std::fs::write(trial.dir.path().join("password"), "schluessel").unwrap();
    let output = run(&trial.dir, &["pipeline", "check", "p.yaml"]);
    let text = stderr(&output);
    assert!(!output.status.success() && text.contains("set `user` and `password`"), "{text}");
    assert!(!text.contains("schluessel"), "{text}");
}

#[test]
fn a_pipeline_that_is_reset_copies_everything_again() {
    let Some(trial) = Trial::new() else { return };
    trial
        .source("create table t (id int primary key); insert into t select generate_series(1, 10)");
    let streams = "[{ name: public.t, sync_mode: incremental, cursor_field: id }]";
    trial.pipeline(trial.clickhouse.port(), streams, "");
    assert_eq!(trial.run()["rows"], 10);
    assert_eq!(trial.run()["rows"], 0);
    drop(run_ok(&trial.dir, &["pipeline", "reset", "p.yaml", "--yes"]));
    trial.found("TRUNCATE TABLE t");
    assert_eq!(trial.run()["rows"], 10);
    assert_eq!(trial.found("SELECT count(), uniqExact(id) FROM t"), "10\t10");
}
