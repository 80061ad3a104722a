//! Pipeline files: what is wrong in one is reported with its place, and what `init` writes is valid.

use serde_json::Value;
use tempfile::TempDir;

use super::pipeline_pg::two_databases;
use super::support::{forebay, run, run_ok, stderr};

#[test]
fn an_invalid_file_is_reported_with_line_and_field() {
    let dir = TempDir::new().unwrap();
    for (text, found) in [
        ("version: 2\n", "p.yaml:1:"),
        ("version: 1\npipeline: p\nsource: {use: oracle}\n", "unknown source \"oracle\""),
        (
            "version: 1\npipeline: p\nsource:\n  use: postgres\n  config:\n    prot: 1\n",
            "p.yaml:6:",
        ),
        (
            "version: 1\npipeline: p\nsource:\n  use: postgres\n  config:\n    password: ${NOT_SET_AT_ALL}\n",
            "NOT_SET_AT_ALL is not set",
        ),
        ("version: [", "p.yaml:"),
        (
            "version: 1\npipeline: p\nsource:\n  use: postgres\n  streams:\n    - name: t\n      columms:\n        - id\n",
            "p.yaml:7:7: source.streams[0].columms: unknown field `columms`",
        ),
        (
            "version: 1\npipeline: p\nsource:\n  use: postgres\n  streams:\n    - name: t\n    - name: u\n      sync_mode: cdcc\n",
            "p.yaml:8:18: source.streams[1].sync_mode: unknown variant `cdcc`",
        ),
        (
            "version: 1\npipeline: p\nsource: {use: postgres, streams: [{name: t}]}\ndestination:\n  use: postgres\n\n  writemode: append\n",
            "p.yaml:7:3: destination.writemode: unknown field `writemode`",
        ),
        (
            "version: 1\npipeline: p\nsource:\n  use: postgres\n  streams: [{name: t}]\n  config:\n    url: postgres://a@b@c/d\n",
            "p.yaml:7:5: source.config: `url` is ambiguous",
        ),
        (
            "version: 1\npipeline: p\nsource:\n  use: postgres\n  streams: [{name: t, columns: [id, n]}]\n",
            "p.yaml:5:37: source.streams[0].columns[1]: invalid type: boolean `false`, expected a string; put it in double quotes",
        ),
    ] {
        std::fs::write(dir.path().join("p.yaml"), text).unwrap();
        let output = run(&dir, &["pipeline", "check", "p.yaml"]);
        assert_eq!(output.status.code(), Some(2), "{text}");
        assert!(stderr(&output).contains(found), "{text}: {}", stderr(&output));
    }
}

#[test]
fn every_template_of_init_is_a_valid_file() {
    let dir = TempDir::new().unwrap();
    let from = ["postgres", "mysql", "parquet", "csv", "ndjson", "sqlite", "forebay", "http-json"];
    let to = ["postgres", "mongodb", "parquet", "csv", "ndjson", "sqlite", "delta", "clickhouse"];
    let pairs = from.map(|from| (from, "sqlite")).into_iter().chain(to.map(|to| ("csv", to)));
    let pairs = pairs.chain([("postgres", "forebay")]);
    for (from, to) in pairs {
        let text = run_ok(&dir, &["pipeline", "init", "--from", from, "--to", to]);
        std::fs::write(dir.path().join("p.yaml"), text).unwrap();
        let mut check = forebay(&dir);
        check.args(["pipeline", "check", "p.yaml"]);
        for name in ["PGPASSWORD", "MYSQL_PASSWORD", "FOREBAY_KEY"] {
            check.env(name, "none");
        }
        let output = check.env("MONGODB_URL", "mongodb://127.0.0.1:1/mydb").output().unwrap();
        // The servers are not there.
        assert_ne!(output.status.code(), Some(2), "{from} {to}: {}", stderr(&output));
    }
}

#[test]
fn the_file_that_init_writes_is_one_that_check_reads() {
    let Some(pg) = two_databases() else { return };
    pg.query("src", "create table orders (id int primary key, name text)");
    let dir = TempDir::new().unwrap();
    let text = run_ok(&dir, &["pipeline", "init"]).replace("5432", &pg.port().to_string());
    std::fs::write(
        dir.path().join("p.yaml"),
        text.replacen("mydb", "src", 1).replacen("mydb", "dst", 1),
    )
    .unwrap();
    let with_password = |args: &[&str]| {
        let output = forebay(&dir).args(args).env("PGPASSWORD", "hunter2").output().unwrap();
        assert!(output.status.success(), "{}", stderr(&output));
        let said = String::from_utf8_lossy(&output.stdout).into_owned() + &stderr(&output);
        assert!(!said.contains("hunter2"));
        said
    };
    assert!(with_password(&["pipeline", "check", "p.yaml"]).contains("PostgreSQL 1"));
    assert!(with_password(&["pipeline", "plan", "p.yaml"]).contains("create table"));
    assert!(with_password(&["pipeline", "explain", "p.yaml"]).contains("1 units"));
    assert!(with_password(&["pipeline", "discover", "p.yaml"]).contains("public.orders"));
    assert!(with_password(&["pipeline", "run", "p.yaml"]).contains("0 rows"));
    assert!(with_password(&["pipeline", "runs"]).contains("done"));
    assert!(with_password(&["pipeline", "status", "my-pipeline"]).contains("orders"));
    let schema: Value = serde_json::from_str(&run_ok(&dir, &["pipeline", "schema"])).unwrap();
    assert!(schema["properties"]["source"].is_object());
}
