//! Pipelines into and out of a MongoDB, killed at the worst moments. The oracle reads the server's
//! own files.

use std::fmt::Write as _;
use std::process::{Command, Stdio};

use serde_json::Value;
use tempfile::TempDir;

use crate::ferret_support::{Ferret, ferret};
use crate::support::{forebay, run, run_ok, stderr};

/// Files, each of which is a unit, and rows of each.
const FILES: u32 = 12;
const ROWS: u32 = 1_500;

/// Files of rows, and a pipeline that copies them.
fn into_mongodb(ferret: &Ferret, write_mode: &str) -> TempDir {
    let dir = TempDir::new().unwrap();
    std::fs::create_dir(dir.path().join("rows")).unwrap();
    for file in 0..FILES {
        let mut text = String::new();
        for row in 0..ROWS {
            let id = file * ROWS + row;
            writeln!(text, r#"{{"id": {id}, "v": "{}"}}"#, "x".repeat(100)).unwrap();
        }
        std::fs::write(dir.path().join("rows").join(format!("{file:02}.ndjson")), text).unwrap();
    }
    let file = format!(
        "version: 1\npipeline: p\nsource:\n  use: ndjson\n  config: {{path: '{}'}}\n  \
         streams: [{{name: rows}}]\ndestination:\n  use: mongodb\n  config: {{url: '{}', decimals: text}}\n\
         {write_mode}\nresources: {{parallelism: 2, max_retries: 0}}\n",
        dir.path().display(),
        ferret.url()
    );
    std::fs::write(dir.path().join("p.yaml"), file).unwrap();
    dir
}

fn command(dir: &TempDir) -> Command {
    let mut command = forebay(dir);
    command.args(["pipeline", "run", "p.yaml", "--json"]);
    command.stdout(Stdio::null()).stderr(Stdio::null());
    command
}

/// Units in a state, from the ledger.
fn units(ferret: &Ferret, state: &str) -> i64 {
    let query = format!("select count(*) from {{}} where d->>'$.state' = '{state}'");
    ferret.find("_forebay_ledger", &query).unwrap_or(0)
}

fn is_finished(ferret: &Ferret) -> bool {
    let query = "select count(*) from {} where d->>'$.load' like '%\"is_finished\":true%'";
    ferret.find("_forebay_loads", query).unwrap_or(0) > 0
}

/// Checks that every row exists, once.
fn is_whole(ferret: &Ferret) {
    let all = i64::from(FILES * ROWS);
    for (query, expected) in [
        ("select count(*) from {}", all),
        ("select count(distinct d->>'$.id') from {}", all),
        ("select sum(d->>'$.id') from {}", all * (all - 1) / 2),
    ] {
        assert_eq!(ferret.find("rows", query), Some(expected), "{query}");
    }
}

/// Starts runs and ends each as `until` says, until the load has ended.
fn run_and_kill(ferret: &Ferret, dir: &TempDir, until: impl Fn(u32) -> bool) -> u32 {
    let mut runs = 0;
    while !is_finished(ferret) {
        assert!(runs < 100, "it never ends");
        let mut running = command(dir).spawn().unwrap();
        while !until(runs) && running.try_wait().unwrap().is_none() {}
        if running.try_wait().unwrap().is_none() {
            running.kill().unwrap();
        }
        running.wait().unwrap();
        runs += 1;
    }
    runs
}

#[test]
fn a_run_killed_between_and_within_commits_loses_and_duplicates_nothing() {
    let Some(ferret) = ferret() else { return };
    let dir = into_mongodb(&ferret, "");
    let seen = std::cell::Cell::new(0);
    let runs = run_and_kill(&ferret, &dir, |runs| {
        // In turn: when a unit has been started, and when one more is committed.
        if runs % 2 == 0 {
            return units(&ferret, "begun") > 0;
        }
        let committed = units(&ferret, "committed");
        let is_more = committed > seen.get();
        seen.set(committed.max(seen.get()));
        is_more
    });
    assert!(runs > 2, "nothing was killed");
    is_whole(&ferret);
    let verified = run(&dir, &["pipeline", "verify", "p.yaml"]);
    assert!(verified.status.success(), "{}", stderr(&verified));
}

#[test]
fn a_killed_replace_shows_nothing_before_it_is_complete() {
    let Some(ferret) = ferret() else { return };
    let dir = into_mongodb(&ferret, "  write_mode: replace");
    let runs = run_and_kill(&ferret, &dir, |runs| {
        let there = ferret.find("rows", "select count(*) from {}");
        assert!(there.is_none_or(|count| count == i64::from(FILES * ROWS)), "{there:?}");
        runs < 3 && units(&ferret, "committed") > i64::from(runs)
    });
    assert!(runs > 2, "nothing was killed");
    is_whole(&ferret);
    assert_eq!(ferret.find("_forebay_claims", "select count(*) from {}"), Some(0));
}

#[test]
fn a_server_killed_during_a_run_loses_and_duplicates_nothing() {
    let Some(ferret) = ferret() else { return };
    let dir = into_mongodb(&ferret, "");
    for round in 0..3 {
        let mut running = command(&dir).spawn().unwrap();
        while units(&ferret, "committed") <= round && running.try_wait().unwrap().is_none() {}
        ferret.kill();
        running.wait().unwrap();
        ferret.start_again();
        if is_finished(&ferret) {
            break;
        }
    }
    if !is_finished(&ferret) {
        run_ok(&dir, &["pipeline", "run", "p.yaml", "--json"]);
    }
    is_whole(&ferret);
}

#[test]
fn a_collection_is_copied_into_another_and_into_a_file() {
    let Some(ferret) = ferret() else { return };
    let dir = into_mongodb(&ferret, "");
    run_ok(&dir, &["pipeline", "run", "p.yaml", "--json"]);
    let path = dir.path().display();
    let out = |name: &str, destination: &str| {
        let file = format!(
            "version: 1\npipeline: {name}\nsource:\n  use: mongodb\n  config: {{url: '{}', \
             wait_for_late_writes: 0s}}\n  streams: [{{name: rows, into: copy, sync_mode: incremental, \
             cursor_field: id}}]\ndestination:\n{destination}\nresources: {{parallelism: 2}}\n",
            ferret.url()
        );
        std::fs::write(dir.path().join("out.yaml"), file).unwrap();
        let report = run_ok(&dir, &["pipeline", "run", "out.yaml", "--json"]);
        let report: Value = serde_json::from_str(&report).unwrap();
        report["rows"].as_u64()
    };
    let sqlite = format!("  use: sqlite\n  config: {{path: '{path}/out.sqlite'}}");
    assert_eq!(out("file", &sqlite), Some(u64::from(FILES * ROWS)));
    assert_eq!(out("file", &sqlite), Some(0));
    let copied = rusqlite::Connection::open(dir.path().join("out.sqlite")).unwrap();
    let sum: i64 = copied.query_row("select sum(id) from copy", [], |row| row.get(0)).unwrap();
    let all = i64::from(FILES * ROWS);
    assert_eq!(sum, all * (all - 1) / 2);
    let discovered = run_ok(&dir, &["pipeline", "discover", "out.yaml"]);
    assert!(discovered.contains("rows") && !discovered.contains("_forebay"), "{discovered}");
}
