//! Pipelines whose connectors are WebAssembly components, driven by the command line: the oracle is psql.

use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::{Mutex, PoisonError};

use forebay_testing::Postgres;
use serde_json::Value;
use tempfile::TempDir;

use super::pipeline_pg::{EVERY_TYPE, Pipeline, two_databases};
use super::support::{run, run_ok, stderr};

/// The components, which `cargo xtask connectors` builds beside what Cargo builds.
pub(crate) fn component(name: &str) -> Option<PathBuf> {
    let program = std::env::current_exe().unwrap();
    let path = program.ancestors().nth(3).unwrap().join(format!("connectors/{name}.wasm"));
    if !path.exists() {
        forebay_testing::left_out("connectors are not built: cargo xtask connectors");
        return None;
    }
    Some(path)
}

const ROWS: u32 = 60_000;

/// Two databases, the first with a table that has every kind of column.
fn filled() -> Option<Postgres> {
    component("postgres")?;
    let pg = two_databases()?;
    pg.query(
        "src",
        &format!(
            "create table t (id int primary key, v text, at timestamptz, n numeric(12,3), j jsonb, a int[], u uuid);
             insert into t select g, repeat(md5(g::text), 3), now(), g / 7.0, jsonb_build_object('g', g),
               array[g, null, -g], md5(g::text)::uuid from generate_series(1, {ROWS}) g;
             analyze t"
        ),
    );
    Some(pg)
}

/// A pipeline from one to the other, both sides components.
fn sandboxed(pg: &Postgres, streams: &str, destination: &str, rest: &str) -> Pipeline {
    let pipeline = Pipeline::new(pg, streams, destination, rest);
    pipeline.edit(|text| {
        text.replace("source:\n", "source:\n  sandbox: true\n")
            .replace("destination:\n", "destination:\n  sandbox: true\n")
    });
    install(&pipeline.dir);
    pipeline
}

/// Installs the component of PostgreSQL. It is compiled once for all tests: what was kept is copied.
pub(crate) fn install(dir: &TempDir) {
    static KEPT: Mutex<Option<TempDir>> = Mutex::new(None);
    let mut kept = KEPT.lock().unwrap_or_else(PoisonError::into_inner);
    let of = |dir: &TempDir| dir.path().join("forebay-data/connectors");
    let first = kept.get_or_insert_with(|| {
        let first = TempDir::new().unwrap();
        let file = component("postgres").unwrap();
        run_ok(&first, &["connector", "install", file.to_str().unwrap()]);
        first
    });
    std::fs::create_dir_all(dir.path().join("forebay-data")).unwrap();
    let copied = Command::new("cp").arg("-a").args([of(first), of(dir)]).status().unwrap();
    assert!(copied.success());
}

fn is_whole(pg: &Postgres, table: &str) {
    let expected =
        pg.query("src", "select count(*), count(distinct id), sum(hashtext(t::text)) from t");
    let query =
        format!("select count(*), count(distinct id), sum(hashtext(t::text)) from {table} t");
    assert_eq!(pg.query("dst", &query), expected, "no row is missing or duplicated");
}

#[test]
fn a_copy_by_components_is_the_copy_of_the_built_in_connectors() {
    let Some(pg) = filled() else { return };
    for mode in ["append", "replace", "upsert"] {
        let key = if mode == "append" { "" } else { "\n  primary_key: [id]" };
        let destination = format!("  write_mode: {mode}{key}");
        let stream = format!("[{{name: t, into: s_{mode}, partition_key: id}}]");
        let resources = "resources: {checkpoint_interval_bytes: 2MiB, parallelism: 2}";
        let report = sandboxed(&pg, &stream, &destination, resources).run();
        assert_eq!(report["rows"], ROWS, "{report}");
        is_whole(&pg, &format!("s_{mode}"));
        let native = stream.replace("s_", "n_");
        let native = Pipeline::new(&pg, &native, &destination, resources).run();
        assert_eq!(report["streams"][0]["content_hash"], native["streams"][0]["content_hash"]);
        assert_eq!(report["streams"][0]["units"], native["streams"][0]["units"], "{mode}");
    }
    // Into files, which take Arrow.
    let pipeline = Pipeline::new(&pg, "[{name: t}]", "", "");
    install(&pipeline.dir);
    pipeline.edit(|text| {
        let (source, _) = text.split_once("destination:\n").unwrap();
        let source = source.replace("source:\n", "source:\n  sandbox: true\n");
        let out = pipeline.dir.path().join("out");
        format!("{source}destination:\n  use: ndjson\n  config: {{ path: {} }}\n", out.display())
    });
    assert_eq!(pipeline.run()["rows"], ROWS);
}

#[test]
fn every_type_arrives_as_it_was() {
    if component("postgres").is_none() {
        return;
    }
    let Some(pg) = two_databases() else { return };
    pg.query("src", EVERY_TYPE);
    // Types of the source that the destination has to have.
    let types = EVERY_TYPE.split("create table").next().unwrap();
    pg.query("dst", types);
    let name = r#"[{name: 'public."odd ""name"', into: copied}]"#;
    sandboxed(&pg, name, "", "").run();
    let content = |database, table: &str| {
        pg.query(database, &format!("select count(*), sum(hashtext(x::text)) from {table} x"))
    };
    assert_eq!(content("dst", "copied"), content("src", r#""odd ""name""#));
}

#[test]
fn new_rows_are_read_once_by_an_incremental_run() {
    let Some(pg) = filled() else { return };
    let stream = "[{name: t, sync_mode: incremental, cursor_field: id}]";
    let pipeline = sandboxed(&pg, stream, "", "");
    assert_eq!(pipeline.run()["rows"], ROWS);
    assert_eq!(pipeline.run()["rows"], 0);
    pg.query("src", "insert into t (id, v) select g, 'new' from generate_series(100001, 100500) g");
    assert_eq!(pipeline.run()["rows"], 500);
    is_whole(&pg, "t");
}

#[test]
fn runs_by_components_that_are_killed_lose_and_duplicate_nothing() {
    let Some(pg) = filled() else { return };
    let resources =
        "resources: {checkpoint_interval_bytes: 1MiB, parallelism: 2, max_batch_bytes: 64KiB}";
    let pipeline = sandboxed(&pg, "[{name: t, partition_key: id}]", "", resources);
    let committed = || {
        let count = "select count(*) from forebay.pipeline_ledger";
        pg.try_query("dst", count).and_then(|count| count.parse::<u32>().ok()).unwrap_or(0)
    };
    let is_finished = || {
        let there = "select count(*) from pg_stat_activity where application_name = 'forebay'";
        while pg.try_query("dst", there).is_some_and(|count| count != "0") {}
        let count = "select count(*) from forebay.pipeline_loads where finished_at is not null";
        pg.try_query("dst", count).is_some_and(|count| count != "0")
    };
    let mut seen = 0;
    while !is_finished() {
        let mut running =
            pipeline.command().stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        while committed() <= seen + 1 && running.try_wait().unwrap().is_none() {}
        seen = committed();
        if running.try_wait().unwrap().is_none() {
            running.kill().unwrap();
        }
        running.wait().unwrap();
    }
    is_whole(&pg, "t");
}

#[test]
fn a_component_reaches_only_what_its_pipeline_permits() {
    let Some(pg) = filled() else { return };
    let pipeline = sandboxed(&pg, "[{name: t}]", "", "");
    pipeline.edit(|text| {
        text.replace(
            "source:\n",
            "source:\n  permissions: { network: { allowed_hosts: [\"db.example.org\"] } }\n",
        )
    });
    pipeline.fails("permissions.network.allowed_hosts");
}

#[test]
fn limits_and_wrong_settings_are_reported_with_their_field() {
    let Some(pg) = filled() else { return };
    let pipeline = sandboxed(&pg, "[{name: t}]", "", "");
    pipeline.edit(|text| text.replace("source:\n", "source:\n  limits: { max_memory: 1MiB }\n"));
    pipeline.fails("limits.max_memory");
    pipeline.edit(|text| {
        text.replace("max_memory: 1MiB", "max_memory: 64MiB").replace("port:", "prot:")
    });
    pipeline.fails("unknown field `prot`");
    let missing = Pipeline::new(&pg, "[{name: t}]", "", "");
    missing.edit(|text| text.replace("source:\n", "source:\n  sandbox: true\n"));
    missing.fails("no component \"postgres\" with the role source is installed");
}

#[test]
fn rows_pass_through_a_component_that_transforms_them() {
    let Some(clean) = component("clean") else { return };
    let Some(pg) = two_databases() else { return };
    pg.query("src", "create table t (id int primary key, v text); insert into t values (1, ' a '), (2, '  '), (3, null)");
    let pipeline =
        Pipeline::new(&pg, "[{name: t}]", "", "transforms: [{component: {use: wasm:clean}}]");
    run_ok(&pipeline.dir, &["connector", "install", clean.to_str().unwrap()]);
    assert_eq!(pipeline.run()["rows"], 3);
    assert_eq!(
        pg.query("dst", "select string_agg(coalesce(v, '-'), ',' order by id) from t"),
        "a,-,-"
    );
}

#[test]
fn a_new_project_is_written_once_and_under_a_name_that_is_none_of_a_path() {
    let dir = tempfile::tempdir().unwrap();
    run_ok(&dir, &["connector", "new", "meters"]);
    let read = |name: &str| std::fs::read_to_string(dir.path().join("meters").join(name)).unwrap();
    assert!(read("Cargo.toml").contains("name = \"meters\""));
    assert!(read("src/lib.rs").contains("export!(Connector)"));
    assert_eq!(read("wit/connector.wit"), include_str!("../../../../wit/connector.wit"));
    assert!(read("pipeline.yaml").contains("use: wasm:meters"));
    assert_eq!(run(&dir, &["connector", "new", "meters"]).status.code(), Some(1));
    for name in ["", "../x", "a/b", "A", "1x", "x.y"] {
        assert_eq!(run(&dir, &["connector", "new", name]).status.code(), Some(2), "{name:?}");
    }
}

#[test]
fn components_are_checked_installed_listed_and_removed() {
    let Some(file) = component("clean") else { return };
    let dir = tempfile::tempdir().unwrap();
    let file = file.to_str().unwrap();
    let check: Value =
        serde_json::from_str(&run_ok(&dir, &["connector", "check", file, "--json"])).unwrap();
    assert!(check["transform"]["settings"]["properties"]["columns"].is_object(), "{check}");
    let installed = run_ok(&dir, &["connector", "install", file, "--name", "tidy", "--json"]);
    let installed: Value = serde_json::from_str(&installed).unwrap();
    assert_eq!(installed["use"], "wasm:tidy");
    let listed = run_ok(&dir, &["connector", "list"]);
    assert!(listed.contains("wasm:tidy") && listed.contains("transform"), "{listed}");
    let schema = run_ok(&dir, &["pipeline", "schema"]);
    assert!(schema.contains("wasm:tidy"));
    for (args, code, expected) in [
        (&["connector", "install", file, "--name", "../x"][..], 2, "is not a name"),
        (&["connector", "install", file, "--sha256", "00"], 1, "expected 00"),
        (&["connector", "install", "/etc/passwd"], 1, "is not a connector"),
        (&["connector", "check", "/nowhere.wasm"], 1, "cannot read"),
        (&["connector", "remove", "other"], 1, "no connector \"other\" is installed"),
    ] {
        let refused = run(&dir, args);
        assert_eq!(refused.status.code(), Some(code), "{args:?}: {}", stderr(&refused));
        assert!(stderr(&refused).contains(expected), "{args:?}: {}", stderr(&refused));
    }
    run_ok(&dir, &["connector", "remove", "tidy"]);
    assert!(!run_ok(&dir, &["connector", "list"]).contains("tidy"));
}

#[test]
fn a_server_runs_components_and_counts_their_instances() {
    let Some(file) = component("sequence") else { return };
    let dir = super::pipeline_http::with_pipeline(0, "");
    let path = dir.path().join("data/pipelines/orders.yaml");
    let text = format!(
        "version: 1\npipeline: orders\nsource:\n  use: wasm:sequence\n  config: {{rows: 2000}}\n  \
         streams: [{{name: numbers, into: orders}}]\ndestination:\n  use: sqlite\n  config: {{path: '{}'}}\n",
        dir.path().join("out.sqlite").display()
    );
    std::fs::write(path, text).unwrap();
    run_ok(&dir, &["connector", "install", file.to_str().unwrap(), "--data", "data"]);
    let server = super::pipeline_http::server(&dir, &[]);
    let begun = super::pipeline_http::begin(&server, "{}");
    let reply = super::pipeline_http::ended(&server, &begun);
    assert_eq!((&reply["outcome"], &reply["report"]["rows"]), (&"done".into(), &2_000.into()));
    assert_eq!(super::pipeline_http::rows(&dir), 2_000);
    let metrics = server.get("/metrics").body;
    for line in [
        "forebay_connector_instances 0",
        "forebay_connector_instances_total{connector=\"sequence\"} ",
        "forebay_connector_loads_total{from=\"cache\"} 1",
    ] {
        assert!(metrics.contains(line), "{line} is not in {metrics}");
    }
    assert!(!metrics.contains("forebay_connector_failures_total"), "{metrics}");
}

#[test]
fn a_setting_that_a_component_refuses_is_reported_with_its_line() {
    let Some(file) = component("sequence") else { return };
    let dir = TempDir::new().unwrap();
    run_ok(&dir, &["connector", "install", file.to_str().unwrap()]);
    let refused = |config: &str, expected: &str| {
        let text = format!(
            "version: 1\npipeline: p\nsource:\n  use: wasm:sequence\n  config:\n    rows_per_unit: 10\n    {config}\n  \
             streams: [{{name: numbers}}]\ndestination:\n  use: ndjson\n  config: {{path: out}}\n"
        );
        std::fs::write(dir.path().join("p.yaml"), text).unwrap();
        let planned = run(&dir, &["pipeline", "plan", "p.yaml"]);
        assert!(!planned.status.success());
        assert!(stderr(&planned).contains(expected), "{}", stderr(&planned));
    };
    refused("rows: many", "p.yaml:7:11: source.config.rows: invalid type");
    refused("raws: 5", "p.yaml:7:11: source.config.raws: unknown field");
}
