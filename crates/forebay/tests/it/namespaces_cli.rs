//! `forebay namespaces` against a real server.

use std::process::Output;

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::{Server, run, run_ok, stderr};

/// Runs `forebay namespaces` on a server.
struct Namespaces<'a> {
    dir: &'a TempDir,
    url: &'a str,
}

impl Namespaces<'_> {
    fn run(&self, args: &[&str]) -> Output {
        run(self.dir, &[&["namespaces"], args, &["--server", self.url]].concat())
    }

    fn ok(&self, args: &[&str]) -> String {
        run_ok(self.dir, &[&["namespaces"], args, &["--server", self.url]].concat())
    }

    fn put(&self, file: &str, text: &str) -> Output {
        std::fs::write(self.dir.path().join("file"), text).unwrap();
        run(self.dir, &["files", "put", "file", file, "--server", self.url])
    }
}

#[test]
fn a_namespace_is_created_limited_listed_and_removed() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(&dir, &[]);
    let namespaces = Namespaces { dir: &dir, url: &server.url };
    assert_eq!(namespaces.ok(&["ls"]), "");
    let created = namespaces.ok(&["set", "uploads", "--max-files", "2", "--max-bytes", "1KiB"]);
    assert!(created.contains("quota") && created.contains("0 of 2 files, 0B of 1KiB"), "{created}");
    assert!(namespaces.put("uploads/a", "aaa").status.success());
    assert!(namespaces.put("other/x", "x").status.success());
    let listed = namespaces.ok(&["ls"]);
    let lines: Vec<Vec<&str>> =
        listed.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(lines, [vec!["other"], "uploads 1 of 2 files, 3B of 1KiB".split(' ').collect()]);
    // The other limit and the versions stay as they are.
    assert!(namespaces.put("uploads/b", "b").status.success());
    let refused = namespaces.put("uploads/c", "c");
    assert_eq!(refused.status.code(), Some(1));
    assert!(stderr(&refused).contains("403"), "{}", stderr(&refused));
    let metrics = server.ask("GET", "/metrics", "").body;
    assert!(metrics.contains("forebay_intake_quota_refused_total 1\n"), "{metrics}");
    namespaces.ok(&["set", "uploads", "--max-files", "none", "--versions", "on"]);
    assert!(namespaces.put("uploads/c", "c").status.success());
    let shown: Value =
        serde_json::from_str(&namespaces.ok(&["show", "uploads", "--json"])).unwrap();
    let quota = json!({"files": null, "bytes": 1024, "used_files": 3, "used_bytes": 5});
    assert_eq!((&shown["quota"], &shown["versions"]), (&quota, &json!(true)));
    assert_eq!((&shown["files"], &shown["bytes"]), (&json!(3), &json!(5)));
    namespaces.ok(&["set", "uploads", "--tag", "team=a", "--tag", "cost=7"]);
    namespaces.ok(&["set", "uploads", "--tag", "cost=", "--max-bytes", "none"]);
    let shown: Value =
        serde_json::from_str(&namespaces.ok(&["show", "uploads", "--json"])).unwrap();
    assert_eq!((&shown["tags"], &shown["versions"]), (&json!({"team": "a"}), &json!(true)));
    assert_eq!(shown.get("quota"), None);
    // One with files cannot be removed.
    let refused = namespaces.run(&["rm", "uploads"]);
    assert_eq!(refused.status.code(), Some(1));
    namespaces.ok(&["set", "empty"]);
    namespaces.ok(&["rm", "empty"]);
    for args in [["rm", "empty"], ["show", "empty"]] {
        let missing = namespaces.run(&args);
        assert_eq!(missing.status.code(), Some(1));
        assert!(stderr(&missing).contains("there is no namespace empty"), "{}", stderr(&missing));
    }
    for args in [
        &["set", "Uploads"][..],
        &["set", "uploads", "--max-bytes", "much"],
        &["set", "uploads", "--max-files", "-1"],
        &["set", "uploads", "--versions", "maybe"],
        &["set"],
    ] {
        assert_eq!(namespaces.run(args).status.code(), Some(2), "{args:?}");
    }
}
