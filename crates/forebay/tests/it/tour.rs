//! `forebay tour` on small generated input.

use std::io::{BufRead as _, BufReader};
use std::net::TcpStream;
use std::path::Path;
use std::process::Stdio;

use crate::support::{forebay, run, stderr};

/// A tree of `count` files of several kinds and sizes, some of them the same bytes.
fn tree(dir: &Path, count: usize) {
    for number in 0..count {
        let extension = ["rs", "txt", "json", "bin"][number % 4];
        let folder = dir.join(format!("d{}", number % 7));
        std::fs::create_dir_all(&folder).unwrap();
        let size = [0, 10, 3_000, 20_000, 90_000][number % 5];
        let mut bytes = format!("{{\"file\": {}}}\n", number / 2).into_bytes();
        bytes.resize(size.max(bytes.len()), b' ');
        std::fs::write(folder.join(format!("{number} \u{e9}.{extension}")), bytes).unwrap();
    }
}

/// Documents for a table and for a collection.
fn documents(dir: &Path) {
    std::fs::create_dir_all(dir).unwrap();
    let orders: Vec<_> =
        (0..500).map(|n| format!("{{\"id\":{n},\"price\":{n}.50,\"paid\":true}}")).collect();
    std::fs::write(dir.join("orders.ndjson"), orders.join("\n")).unwrap();
    let mixed: Vec<_> = (0..90).map(|n| format!("{{\n  \"k{n}\": [{n}]\n}}")).collect();
    std::fs::write(dir.join("mixed.json"), format!("[{}]", mixed.join(", "))).unwrap();
}

#[test]
fn a_tour_with_a_kill_in_the_middle_loses_nothing_and_says_so_in_figures() {
    let dir = tempfile::tempdir().unwrap();
    tree(&dir.path().join("tree"), 300);
    documents(&dir.path().join("documents"));
    let output = run(&dir, &["tour", "--files", "tree", "--documents", "documents", "--json"]);
    let stdout = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{stdout}\n{}", stderr(&output));
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["sound"], true);
    assert_eq!(report["problems"], serde_json::json!([]));
    assert_eq!(report["data"], serde_json::Value::Null);
    assert_eq!(report["files"], 315, "300 files and 15 copies");
    assert_eq!(report["documents"], 590);
    assert!(report["duplicates"]["files"].as_u64().unwrap() >= 15, "{report}");
    for figure in [
        "files_per_s",
        "load_mib_per_s",
        "documents_per_s",
        "put_small_p50_ms",
        "put_small_p99_ms",
        "recovery_ms",
        "read_back_mib_per_s",
        "file_bytes_sent",
        "disk_bytes",
        "server_memory_peak_bytes",
        "cache_writes_per_s",
        "cache_reads_per_s",
        "cache_single_reads_per_s",
        "cache_plain_bytes",
        "cache_memory_bytes",
        "cache_memory_ratio",
        "cache_recovery_log_ms",
        "cache_recovery_snapshot_ms",
        "cache_snapshot_ms",
        "inventory_objects",
        "inventory_objects_per_s",
        "inventory_look_up_ns",
        "inventory_question_us",
        "inventory_index_bytes",
    ] {
        assert!(report[figure].as_f64().is_some_and(|value| value > 0.0), "{figure} in {report}");
    }
    let targets: Vec<_> = report["decisions"]
        .as_array()
        .unwrap()
        .iter()
        .map(|decision| (decision["namespace"].as_str(), decision["target"].as_str()))
        .collect();
    let expected = [(Some("mixed"), Some("collection")), (Some("orders"), Some("table"))];
    assert_eq!(targets, expected);
    assert!(report["kill"]["acknowledged_before"].as_u64().unwrap() > 0, "{report}");
    assert_eq!(report["kill"]["files_half"], 0);
    assert_eq!(report["fsck"]["findings"], serde_json::json!([]));
    // One key for each file and document, one set of all files, and one for each of four
    // extensions.
    assert_eq!(report["cache_keys"], 300 + 590 + 1 + 4);
    assert_eq!(report["cache_members"], 2 * 300);
    let kill = &report["cache_kill"];
    assert!(kill["acknowledged_before"].as_u64().unwrap() >= 445, "{report}");
    assert_eq!(kill["keys_half"], 0);
    let recoveries = &report["cache_recoveries"];
    assert!(recoveries[0]["operations"].as_u64().unwrap() >= 445, "{report}");
    assert_eq!(recoveries[0]["snapshot_keys"], 0);
    assert_eq!(recoveries[1]["snapshot_keys"], report["cache_keys"]);
    assert!(recoveries[1]["operations"].as_u64().unwrap() >= 400, "{report}");
    for check in report["cache_verification"].as_array().unwrap() {
        assert!(check["count"].as_u64().unwrap() > 0 && check["wrong"] == 0, "{check}");
    }
}

#[test]
fn an_interrupted_tour_leaves_no_server_behind() {
    let dir = tempfile::tempdir().unwrap();
    tree(&dir.path().join("tree"), 1_500);
    let mut tour = forebay(&dir)
        .args(["tour", "--files", "tree", "--connections", "1"])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(tour.stdout.take().unwrap()).lines();
    let address = lines.find_map(|line| {
        let line = line.unwrap();
        let address = line.trim().strip_prefix("the server listens on ")?;
        Some(address.split(',').next().unwrap().to_owned())
    });
    let signal = ["-s", "INT", &tour.id().to_string()].map(str::to_owned);
    assert!(std::process::Command::new("kill").args(signal).status().unwrap().success());
    assert_eq!(tour.wait().unwrap().code(), Some(130));
    assert!(TcpStream::connect(address.unwrap()).is_err());
}

/// The only process that another one has started.
fn child_of(pid: u32) -> String {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).unwrap();
    let children = tasks.map(|task| std::fs::read_to_string(task.unwrap().path().join("children")));
    let children: String = children.map(Result::unwrap).collect();
    let mut children = children.split_whitespace();
    let child = children.next().unwrap().to_owned();
    assert_eq!(children.next(), None);
    child
}

#[test]
fn a_failed_tour_reports_the_cause_and_keeps_the_data_and_the_log() {
    let dir = tempfile::tempdir().unwrap();
    tree(&dir.path().join("tree"), 1_500);
    let mut tour = forebay(&dir)
        .env("TMPDIR", dir.path())
        .args(["tour", "--files", "tree", "--connections", "1"])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(tour.stdout.take().unwrap()).lines();
    assert!(lines.any(|line| line.unwrap().contains("the server listens on ")));
    let signal = ["-s", "KILL", &child_of(tour.id())].map(str::to_owned);
    assert!(std::process::Command::new("kill").args(signal).status().unwrap().success());
    // The rest is read, so that no write to the pipe blocks.
    lines.for_each(drop);
    let output = tour.wait_with_output().unwrap();
    let report = stderr(&output);
    assert_eq!(output.status.code(), Some(1), "{report}");
    assert!(report.contains("the server ended unexpectedly (signal: 9"), "{report}");
    let after = |words: &str| report.split_once(words).map(|(_, rest)| rest).unwrap_or_default();
    let log = after("The log ").split(" is kept").next().unwrap();
    assert!(std::fs::read_to_string(log).unwrap().contains("intake open"), "{report}");
    let data = after("The data is kept in ").lines().next().unwrap().trim_end_matches('.');
    assert!(Path::new(data).join("intake").is_dir(), "{report}");
}

#[test]
fn a_tour_refuses_existing_data_and_missing_input() {
    let dir = tempfile::tempdir().unwrap();
    tree(&dir.path().join("tree"), 3);
    let output = run(&dir, &["tour", "--files", "tree", "--data", "tree"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("--data"), "{}", stderr(&output));
    let output = run(&dir, &["tour", "--files", "nowhere"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("--files"), "{}", stderr(&output));
}
