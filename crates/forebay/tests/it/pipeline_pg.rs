//! Pipelines from one PostgreSQL database into another, compared by psql.

use std::cell::Cell;
use std::io::Write as _;
use std::process::Command;

use serde_json::Value;
use tempfile::TempDir;

use super::events_support::post;
use super::support::{Server, forebay, run, run_ok, stderr};
use forebay_testing::Postgres;

/// The ends of pipelines that run as components.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sandboxed {
    None,
    Source,
    Destination,
    Both,
}

thread_local! {
    /// Of the pipelines that this test makes.
    static SANDBOXED: Cell<Sandboxed> = const { Cell::new(Sandboxed::None) };
}

/// Runs a test with components in the place of built-in connectors, if they are built.
pub(crate) fn by_components(which: Sandboxed, test: impl FnOnce()) {
    if super::pipeline_sandbox::component("postgres").is_some() {
        SANDBOXED.set(which);
        test();
    }
}

/// A pipeline file in a separate directory.
pub(crate) struct Pipeline {
    pub(crate) dir: TempDir,
}

impl Pipeline {
    /// From database `src` to database `dst`, both created.
    pub(crate) fn new(pg: &Postgres, streams: &str, destination: &str, rest: &str) -> Self {
        let pipeline = Self { dir: TempDir::new().unwrap() };
        if SANDBOXED.get() != Sandboxed::None {
            super::pipeline_sandbox::install(&pipeline.dir);
        }
        pipeline.write(pg, streams, destination, rest);
        pipeline
    }

    pub(crate) fn write(&self, pg: &Postgres, streams: &str, destination: &str, rest: &str) {
        let port = pg.port();
        let config = |database| {
            format!("{{host: 127.0.0.1, port: {port}, database: {database}, user: postgres}}")
        };
        let sandbox = |end| match SANDBOXED.get() {
            which if which == end || which == Sandboxed::Both => "  sandbox: true\n",
            _ => "",
        };
        let file = format!(
            "version: 1\npipeline: p\nsource:\n  use: postgres\n{}  config: {}\n  streams: {streams}\n\
             destination:\n  use: postgres\n{}  config: {}\n{destination}\n{rest}\n",
            sandbox(Sandboxed::Source),
            config("src"),
            sandbox(Sandboxed::Destination),
            config("dst"),
        );
        std::fs::write(self.dir.path().join("p.yaml"), file).unwrap();
    }

    /// Changes its text.
    pub(crate) fn edit(&self, edit: impl FnOnce(String) -> String) {
        let path = self.dir.path().join("p.yaml");
        let text = std::fs::read_to_string(&path).unwrap();
        std::fs::write(path, edit(text)).unwrap();
    }

    pub(crate) fn run(&self) -> Value {
        serde_json::from_str(&run_ok(&self.dir, &["pipeline", "run", "p.yaml", "--json"])).unwrap()
    }

    pub(crate) fn fails(&self, with: &str) {
        let output = run(&self.dir, &["pipeline", "run", "p.yaml"]);
        assert!(!output.status.success());
        assert!(stderr(&output).contains(with), "{} does not say {with:?}", stderr(&output));
    }

    pub(crate) fn command(&self) -> Command {
        let mut command = forebay(&self.dir);
        command.args(["pipeline", "run", "p.yaml", "--json"]);
        command
    }

    fn verify(&self) -> bool {
        run(&self.dir, &["pipeline", "verify", "p.yaml"]).status.success()
    }
}

/// The texts that a query of the source returns, sorted.
pub(crate) fn in_source(pg: &Postgres, query: &str) -> Vec<String> {
    let all = pg.query("src", query);
    let mut rows: Vec<String> = all.lines().map(str::to_owned).collect();
    rows.sort_unstable();
    rows
}

/// A server with databases `src` and `dst`.
pub(crate) fn two_databases() -> Option<Postgres> {
    let pg = Postgres::start()?;
    pg.query("postgres", "create database src");
    pg.query("postgres", "create database dst");
    Some(pg)
}

pub(crate) const EVERY_TYPE: &str = r#"
create type mood as enum ('sad', 'ok', 'it''s "fine"');
create domain positive as int check (value > 0);
create table "odd ""name" (
  id bigint primary key, b bool, i2 int2, i4 int4 not null default 7, f4 float4, f8 float8,
  n numeric, nd numeric(12,3), t text, v varchar(20), c char(5), nm name, by bytea, d date, ti time,
  tz timetz, ts timestamp, tsz timestamptz, iv interval, u uuid, j json, jb jsonb, ip inet, ci cidr,
  ma macaddr, bi bit(3), vb varbit, x xml, mo money, o oid, ai int[], at text[], an numeric[], r int4range,
  mr datemultirange, p point, pg polygon, tv tsvector, "Strange; col" text, e mood, dm positive);
insert into "odd ""name" values
 (1, true, -32768, 2147483647, 'NaN', '-Infinity', 'NaN', 123456789.125, E'line\n\t\u00e9\u4e2d', 'varchar',
  'ch', 'name', '\x00ff10', '0044-03-15 BC', '23:59:59.999999', '13:45:06.789+02', '4713-01-01 BC',
  'infinity', '1 year 2 mons -3 days 04:05:06.7', 'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11',
  '{"a" :  1, "a":2}', '{"b": [1, null]}', '192.168.0.1/24', '10.0.0.0/8', '08:00:2b:01:02:03', B'101',
  B'10110', '<a>x</a>', '$1,234.56', 4294967295, '{1,NULL,3}', '{"a b",NULL,"c\"d"}', '{1.5,NaN}', '[1,10)',
  '{[2020-01-01,2020-02-01)}', '(1,2)', '((0,0),(1,1),(1,0))', 'a fat cat', 'x', 'it''s "fine"', 5),
 (2, null, null, 0, null, null, null, null, null, null, null, null, null, null, null, null, null, null, null,
  null, null, null, null, null, null, null, null, null, null, null, '[2:3]={7,8}', '{{a,b},{c,d}}', '{}',
  'empty', '{}', null, null, null, null, null, null),
 (3, false, 0, 1, '-0', '5e-324', '1e1000', -0.001, '', '', '', '', '', 'infinity', '00:00', '00:00+14',
  '-infinity', '294276-12-31 23:59:59.999999Z', '-178000000 years', null, 'null', 'null', '::1', '::/0', null, null,
  '', '', '-$0.01', 0, null, null, null, '(,)', null, null, null, '', null, 'ok', 1);
"#;

#[test]
fn a_table_is_not_copied_onto_itself() {
    let Some(pg) = Postgres::start() else { return };
    pg.query(
        "postgres",
        "create table a (id bigint primary key); insert into a values (1); create schema other",
    );
    let dir = TempDir::new().unwrap();
    let file = rusqlite::Connection::open(dir.path().join("a.db")).unwrap();
    file.execute_batch("create table a (id integer primary key); insert into a values (1)")
        .unwrap();
    drop(file);
    std::os::unix::fs::symlink("a.db", dir.path().join("link.db")).unwrap();
    let port = pg.port();
    let postgres = |host: &str, more: &str| {
        format!("{{ host: {host}, port: {port}, database: postgres, user: postgres{more} }}")
    };
    let attempt = |uses: &str, from: &str, to: &str, transforms: &str, mode: &str| {
        let text = format!(
            "version: 1\npipeline: p\nsource: {{ use: {uses}, config: {from}, streams: [{{ name: a }}] }}\n\
             transforms: [{transforms}]\n\
             destination: {{ use: {uses}, config: {to}, write_mode: {mode} }}\n"
        );
        std::fs::write(dir.path().join("p.yaml"), text).unwrap();
        let output = run(&dir, &["pipeline", "run", "p.yaml"]);
        (output.status.success(), stderr(&output))
    };
    let (here, there) = (postgres("127.0.0.1", ""), postgres("localhost", ""));
    for mode in ["append", "replace"] {
        for (uses, from, to) in
            [("postgres", &*here, &*there), ("sqlite", "{ path: a.db }", "{ path: link.db }")]
        {
            let (done, error) = attempt(uses, from, to, "", mode);
            assert!(!done && error.contains("are one table"), "{uses} {mode}: {error}");
        }
    }
    let other = postgres("localhost", ", schema: other");
    let (done, error) = attempt("postgres", &here, &other, "", "replace");
    assert!(done, "{error}");
    // The stream's own table is not written.
    let count = "{ sql: { into: counted, query: 'select count(*) as n from a' } }";
    let (done, error) = attempt("postgres", &here, &here, count, "replace");
    assert!(done || error.contains("has no transform"), "{error}");
}

#[test]
fn a_table_of_every_type_is_the_same_in_the_other_database() {
    let Some(pg) = two_databases() else { return };
    pg.query("src", EVERY_TYPE);
    pg.query("dst", "create type mood as enum ('sad', 'ok', 'it''s \"fine\"'); create domain positive as int check (value > 0)");
    let streams = r#"[{name: 'public."odd ""name"', into: '"odd ""copy"'}]"#;
    let pipeline = Pipeline::new(&pg, streams, "", "");
    let report = pipeline.run();
    assert_eq!(report["rows"], 3);
    let there = pg.copy("src", r#"select * from "odd ""name" order by id"#);
    assert_eq!(there, pg.copy("dst", r#"select * from "odd ""copy" order by id"#));
    assert!(pipeline.verify());
    pg.query("dst", r#"update "odd ""copy" set t = 'changed' where id = 2"#);
    assert!(!pipeline.verify(), "a changed value is found");
}

#[test]
fn types_the_other_database_has_not_become_built_in_ones_that_hold_all_their_values() {
    let Some(pg) = two_databases() else { return };
    pg.query(
        "src",
        "create type mood as enum ('sad', 'ok'); create domain positive as int check (value > 0);
         create table t (id bigint primary key, e mood, es mood[], p positive not null, ps positive[]);
         insert into t values (1, 'ok', '{sad,NULL,ok}', 5, '{1,2}'), (2, null, '{}', 7, null)",
    );
    let pipeline = Pipeline::new(&pg, "[{name: t}]", "  write_mode: replace", "");
    // The second time the table exists, as the first run created it.
    for _ in 0..2 {
        assert_eq!(pipeline.run()["rows"], 2);
        let types = "select string_agg(format_type(atttypid, atttypmod), ' ' order by attnum)
                     from pg_attribute where attrelid = 't'::regclass and attnum > 0";
        assert_eq!(pg.query("dst", types), "bigint text text[] integer integer[]");
        let rows = "select string_agg(t::text, ';' order by id) from t";
        assert_eq!(pg.query("dst", rows), pg.query("src", rows));
    }
    pg.query("src", "create type pair as (a int, b text); alter table t add c pair");
    pipeline.fails("the destination has no type public.pair");
}

#[test]
fn replace_takes_the_place_of_what_was_there_and_append_adds_to_it() {
    let Some(pg) = two_databases() else { return };
    pg.query("src", "create table t (id int primary key, v text); insert into t select g, 'v'||g from generate_series(1, 1000) g");
    let replace =
        Pipeline::new(&pg, "[{name: t}]", "  write_mode: replace\n  primary_key: [id]", "");
    assert_eq!(replace.run()["rows"], 1000);
    pg.query("dst", "create view seen as select 1; drop view seen; grant select on t to public");
    pg.query("src", "delete from t where id > 10; update t set v = 'new'");
    assert_eq!(replace.run()["rows"], 10);
    assert_eq!(pg.query("dst", "select count(*), min(v), max(v) from t"), "10|new|new");
    assert_eq!(
        pg.query("dst", "select has_table_privilege('public', 't', 'select')"),
        "t",
        "grants stay"
    );
    assert_eq!(pg.query("dst", "select count(*) from pg_class where relname like '%forebay%' and relkind = 'r' and relnamespace = 'public'::regnamespace"), "0");
    let append = Pipeline::new(&pg, "[{name: t, into: u}]", "", "");
    append.run();
    append.run();
    assert_eq!(pg.query("dst", "select count(*), count(distinct id) from u"), "20|10");
}

#[test]
fn upsert_puts_rows_in_the_place_of_those_with_their_key() {
    let Some(pg) = two_databases() else { return };
    pg.query(
        "src",
        "create table t (id int primary key, v text); insert into t values (1, 'a'), (2, 'b')",
    );
    let pipeline =
        Pipeline::new(&pg, "[{name: t}]", "  write_mode: upsert\n  primary_key: [id]", "");
    pipeline.run();
    pg.query("src", "update t set v = 'B' where id = 2; insert into t values (3, 'c')");
    pg.query("dst", "insert into t values (9, 'kept')");
    pipeline.run();
    assert_eq!(
        pg.query("dst", "select string_agg(id||v, ' ' order by id) from t"),
        "1a 2B 3c 9kept"
    );
    for method in ["copy", "insert"] {
        let rest = format!("  write_mode: upsert\n  primary_key: [id]\n  load_method: {method}");
        Pipeline::new(&pg, "[{name: t}]", &rest, "").run();
    }
    assert_eq!(pg.query("dst", "select count(*) from t"), "4");
}

#[test]
fn incremental_reads_what_is_new_and_a_row_committed_late_is_not_lost() {
    let Some(pg) = two_databases() else { return };
    pg.query("src", "create table t (id bigint generated always as identity primary key, v text); insert into t (v) values ('a'), ('b')");
    let streams = "[{name: t, sync_mode: incremental, cursor_field: id}]";
    let pipeline = Pipeline::new(&pg, streams, "", "");
    assert_eq!(pipeline.run()["rows"], 2);
    let nothing = pipeline.run();
    assert_eq!((&nothing["rows"], &nothing["streams"][0]["load"]), (&Value::from(0), &Value::Null));
    let refused = run(&pipeline.dir, &["pipeline", "reset", "p.yaml"]);
    assert_eq!(refused.status.code(), Some(2), "not without --yes");
    // One takes a smaller value and commits after the larger one is committed.
    let mut late = pg.session("src");
    let mut says = late.stdin.take().unwrap();
    writeln!(says, "begin; insert into t (v) values ('late');").unwrap();
    says.flush().unwrap();
    while pg
        .query("src", "select count(*) from pg_stat_activity where state = 'idle in transaction'")
        == "0"
    {}
    pg.query("src", "insert into t (v) values ('early')");
    let running = pipeline.command().stdout(std::process::Stdio::piped()).spawn().unwrap();
    // The run waits for it; only then may it commit.
    while pg.query("src", "select count(*) from pg_stat_activity where application_name = 'forebay' and query like '%virtualtransaction%'") == "0" {}
    writeln!(says, "commit;").unwrap();
    drop(says);
    late.wait().unwrap();
    let done = running.wait_with_output().unwrap();
    assert!(done.status.success());
    assert_eq!(pg.query("dst", "select string_agg(v, ' ' order by id) from t"), "a b late early");
    assert_eq!(pipeline.run()["rows"], 0);
    pg.query("dst", "truncate t");
    run_ok(&pipeline.dir, &["pipeline", "reset", "p.yaml", "--yes"]);
    assert_eq!(pipeline.run()["rows"], 4, "all of it, once it was forgotten");
}

#[test]
fn a_replace_that_waits_for_a_reader_lets_other_readers_pass() {
    let Some(pg) = two_databases() else { return };
    for database in ["src", "dst"] {
        pg.query(database, "create table t (id int primary key); insert into t values (1)");
    }
    pg.query("src", "insert into t values (2)");
    let pipeline = Pipeline::new(&pg, "[{ name: t }]", "  write_mode: replace", "");
    let mut reader = pg.session("dst");
    let mut says = reader.stdin.take().unwrap();
    writeln!(says, "begin; select count(*) from t;").unwrap();
    says.flush().unwrap();
    let locks = "select count(*) from pg_locks where relation = 't'::regclass and granted =";
    while pg.query("dst", &format!("{locks} true")) == "0" {}
    let running = pipeline.command().stdout(std::process::Stdio::piped()).spawn().unwrap();
    while pg.query("dst", &format!("{locks} false")) == "0" {}
    // Behind the request for the lock, which is given up.
    assert_eq!(pg.query("dst", "select count(*) from t"), "1");
    writeln!(says, "commit;").unwrap();
    drop(says);
    reader.wait().unwrap();
    assert!(running.wait_with_output().unwrap().status.success());
    assert_eq!(pg.query("dst", "select count(*) from t"), "2");
}

#[test]
fn bad_rows_are_dead_lettered_with_their_reason_and_good_ones_are_copied() {
    let Some(pg) = two_databases() else { return };
    pg.query("src", "create table t (id int primary key, v int, at timestamptz, j jsonb); insert into t select g, g, now(), '{\"a\": 1}' from generate_series(1, 5000) g");
    pg.query(
        "dst",
        "create table t (id int primary key, v int check (v % 1000 <> 7), at timestamptz, j jsonb)",
    );
    let strict = Pipeline::new(&pg, "[{name: t}]", "", "");
    strict.fails("check constraint");
    assert_eq!(pg.query("dst", "select count(*) from t"), "0");
    let pipeline = Pipeline::new(&pg, "[{name: t}]", "  on_data_error: dlq", "");
    let report = pipeline.run();
    assert_eq!((&report["rows"], &report["dead"]), (&Value::from(4995), &Value::from(5)));
    assert_eq!(pg.query("dst", "select count(*) from t"), "4995");
    let dead = pg.query("dst", "select string_agg((\"row\"->>'id')||' '||(error like '%check%'), ',' order by id) from t_dead_letters");
    assert_eq!(dead, "7 true,1007 true,2007 true,3007 true,4007 true");
}

#[test]
fn the_destination_follows_the_columns_as_configured() {
    let Some(pg) = two_databases() else { return };
    pg.query(
        "src",
        "create table t (id int, a text, extra text); insert into t values (1, 'x', 'e')",
    );
    pg.query("dst", "create table t (id bigint, a text not null, gone int default 5)");
    let evolution = |rules: &str| format!("  schema_evolution: {{{rules}}}");
    let run = |rules: &str| Pipeline::new(&pg, "[{name: t}]", &evolution(rules), "");
    run("new_column: fail").fails("extra");
    run("removed_column: fail").fails("gone");
    run("nullability_change: fail").fails("is NOT NULL");
    run("new_column: ignore").run();
    assert_eq!(pg.query("dst", "select * from t"), "1|x|5", "int widens to bigint");
    run("").run();
    assert_eq!(pg.query("dst", "select count(*), count(extra) from t"), "2|1");
    pg.query("src", "alter table t alter column a type int using 3");
    run("").fails("type_change");
}

#[test]
fn a_changed_type_alters_no_existing_value() {
    let Some(pg) = two_databases() else { return };
    let altered = "  schema_evolution: {type_change: alter}";
    let types = "v varchar(5), n int, m numeric(5,2), t timestamp(0), \"o'd\" date";
    pg.query(
        "src",
        &format!("create table t (id int, {types}); insert into t values (1, 'abc', 3)"),
    );
    pg.query(
        "dst",
        "create table t (id int, v varchar(9), n int, m numeric, t timestamp(3), \"o'd\" date)",
    );
    pg.query("dst", "insert into t values (0, 'abcdefghi', 1, 1.239, '2024-01-01 12:34:56.789')");
    Pipeline::new(&pg, "[{name: t}]", altered, "").run();
    let longer = "select v, m, t from t where id = 0";
    assert_eq!(pg.query("dst", longer), "abcdefghi|1.239|2024-01-01 12:34:56.789");

    pg.query("dst", "alter table t alter column n type real using 1.75");
    Pipeline::new(&pg, "[{name: t}]", altered, "")
        .fails("would alter existing values of column \"n\"");
    pg.query("dst", "update t set n = 2; alter table t alter column \"o'd\" type timestamp");
    pg.query("dst", "update t set \"o'd\" = '2024-01-01 12:00'");
    Pipeline::new(&pg, "[{name: t}]", altered, "").fails("would alter existing values");
    pg.query("dst", "update t set \"o'd\" = '2024-01-01'");
    Pipeline::new(&pg, "[{name: t}]", altered, "").run();
    let of =
        "select string_agg(distinct pg_typeof(n)::text || ' ' || pg_typeof(\"o'd\"), ',') from t";
    assert_eq!(pg.query("dst", of), "integer date");
}

#[test]
fn a_name_of_a_run_is_copied_once_also_after_other_names() {
    let Some(pg) = two_databases() else { return };
    pg.query("src", "create table t (id int); insert into t values (1), (2)");
    let pipeline = Pipeline::new(&pg, "[{name: t}]", "", "");
    for (name, rows) in [("a", 2), ("b", 4), ("a", 4), ("b", 4), ("c", 6), ("a", 6)] {
        run_ok(&pipeline.dir, &["pipeline", "run", "p.yaml", "--once", name]);
        assert_eq!(pg.query("dst", "select count(*) from t"), rows.to_string(), "{name}");
    }
}

#[test]
fn a_connection_is_encrypted_verified_and_asks_for_the_password() {
    let Some(pg) = two_databases() else { return };
    pg.query("src", "create table t (id int); insert into t values (1)");
    pg.query("postgres", "create role app login superuser password 'geheim'");
    let authority = rcgen::KeyPair::generate().unwrap();
    let mut of_authority = rcgen::CertificateParams::new(vec![]).unwrap();
    of_authority.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    let authority_file = of_authority.self_signed(&authority).unwrap().pem();
    let issuer = rcgen::Issuer::new(of_authority, authority);
    let key = rcgen::KeyPair::generate().unwrap();
    let names = vec!["localhost".to_owned()];
    let certificate =
        rcgen::CertificateParams::new(names).unwrap().signed_by(&key, &issuer).unwrap();
    pg.write("server.crt", &certificate.pem());
    pg.write("server.key", &key.serialize_pem());
    pg.write(
        "pg_hba.conf",
        "local all postgres trust\nhost all postgres 127.0.0.1/32 trust\nhostssl all app all scram-sha-256\n",
    );
    pg.write("postgresql.auto.conf", "ssl = on\n");
    pg.kill();
    pg.start_again();
    let dir = TempDir::new().unwrap();
    std::fs::write(dir.path().join("ca.pem"), authority_file).unwrap();
    let check = |host: &str, password: &str, more: &str| {
        let config = format!(
            "config: {{host: {host}, port: {}, database: DB, user: app, password: '{password}'{more}}}",
            pg.port()
        );
        let file = format!(
            "version: 1\npipeline: p\nsource:\n  use: postgres\n  {}\n  streams: [{{name: t}}]\n\
             destination:\n  use: postgres\n  {}\n",
            config.replace("DB", "src"),
            config.replace("DB", "dst")
        );
        std::fs::write(dir.path().join("p.yaml"), file).unwrap();
        run(&dir, &["pipeline", "run", "p.yaml"])
    };
    let verified = ", tls: verify, tls_ca_file: ca.pem";
    let done = check("localhost", "geheim", verified);
    assert!(done.status.success(), "{}", stderr(&done));
    assert_eq!(pg.query("dst", "select count(*) from t"), "1");
    for (host, password, more, found) in [
        ("localhost", "geheim", ", tls: disable", "no encryption"),
        ("localhost", "guess", verified, "password authentication failed"),
        ("localhost", "geheim", ", tls: verify", "certificate"),
        ("127.0.0.1", "geheim", verified, "certificate"),
    ] {
        let refused = check(host, password, more);
        let said = stderr(&refused);
        assert!(!refused.status.success() && said.contains(found), "{found:?} is not in {said}");
        assert!(!said.contains(password), "{said}");
    }
}

#[test]
fn runs_are_recorded_in_a_database_that_other_machines_see() {
    let Some(pg) = two_databases() else { return };
    pg.query("src", "create table t as select g id from generate_series(1, 100) g");
    let state = format!(
        "state: {{backend: postgres, config: {{host: 127.0.0.1, port: {}, database: dst, user: postgres}}}}",
        pg.port()
    );
    let pipeline = Pipeline::new(&pg, "[{name: t}]", "", &state);
    let run_id = pipeline.run()["run"].as_str().unwrap().to_owned();
    let elsewhere = ["pipeline", "runs", "--in", "p.yaml", "--data", "elsewhere", "--json"];
    let reply: Value = serde_json::from_str(run_ok(&pipeline.dir, &elsewhere).trim()).unwrap();
    assert_eq!(
        (&reply["run"], &reply["outcome"]),
        (&run_id.as_str().into(), &"done".into()),
        "{reply}"
    );
    assert_eq!(reply["report"]["rows"], 100);
    let of_dir = run_ok(&pipeline.dir, &["pipeline", "runs", "--data", "elsewhere"]);
    assert_eq!(of_dir, "", "that directory has none");

    pg.query("src", "drop table t");
    pipeline.fails("t");
    let status = run_ok(&pipeline.dir, &["pipeline", "status", "p", "--in", "p.yaml"]);
    assert!(status.contains("failed"), "{status}");

    // The server records there too.
    pg.query("src", "create table t as select g id from generate_series(1, 7) g");
    let files = pipeline.dir.path().join("served/pipelines");
    std::fs::create_dir_all(&files).unwrap();
    std::fs::copy(pipeline.dir.path().join("p.yaml"), files.join("p.yaml")).unwrap();
    let server = Server::start(&pipeline.dir, &["--data", "served"]);
    let begun = post(&server, "/v1/pipelines/p/runs", "", b"");
    assert_eq!(begun.status, 202, "{begun:?}");
    let id = begun.json()["run"].as_str().unwrap().to_owned();
    let watched = run_ok(&pipeline.dir, &["pipeline", "watch", &id, "--in", "p.yaml"]);
    assert!(watched.contains("done"), "{watched}");
    let count =
        "select count(*), count(*) filter (where outcome = 'done') from forebay.pipeline_runs";
    assert_eq!(pg.query("dst", count), "3|2");
}

#[test]
fn a_completed_run_succeeds_though_it_cannot_be_recorded() {
    let (Some(pg), Some(other)) = (two_databases(), Postgres::start()) else { return };
    pg.query("src", "create table t as select g id from generate_series(1, 100) g");
    let gone = format!(
        "state: {{backend: postgres, config: {{host: 127.0.0.1, port: {}, database: postgres, user: postgres}}}}",
        other.port()
    );
    let pipeline = Pipeline::new(&pg, "[{name: t}]", "", &gone);
    pipeline.run();
    other.query(
        "postgres",
        "alter table forebay.pipeline_runs add constraint no_end check (outcome is null) not valid",
    );
    let output = pipeline.command().output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    assert!(stderr(&output).contains("cannot record the end of the run"), "{}", stderr(&output));
    assert_eq!(pg.query("dst", "select count(*) from t"), "200", "the rows of both runs");
    // If even the start cannot be recorded, the run does not start.
    other.kill();
    pipeline.fails("pipeline_runs");
    assert_eq!(pg.query("dst", "select count(*) from t"), "200");
}
