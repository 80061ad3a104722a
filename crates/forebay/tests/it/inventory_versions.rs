//! Noncurrent versions over HTTP and on the command line: what is billed ranks first, and a move to another storage
//! class is a change.

use std::fs;

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::events_support::lines;
use crate::inventory_http::built;
use crate::support::{Server, run_ok};

const GIB: u64 = 1 << 30;

/// Writes `tree/NAME.csv`: `hidden/` has 100 GiB of noncurrent versions and one current byte, `shown/` has a GiB.
///
/// * `class`: the storage class of 40 GiB of the versions.
fn write(dir: &TempDir, name: &str, class: &str) {
    let rows = [
        ("hidden/a", 1, "true", "false", "STANDARD"),
        ("hidden/a", 60 * GIB, "false", "false", "STANDARD"),
        ("hidden/b", 40 * GIB, "false", "false", class),
        ("hidden/b", 0, "true", "true", "STANDARD"),
        ("shown/a", GIB / 2, "true", "false", "STANDARD"),
        ("shown/b", GIB / 2, "true", "false", "STANDARD"),
    ];
    let mut csv = String::from("key,version_id,size,is_latest,is_delete_marker,storage_class\n");
    for (version, (key, size, is_latest, is_marker, class)) in rows.into_iter().enumerate() {
        csv.push_str(&format!("{key},v{version},{size},{is_latest},{is_marker},{class}\n"));
    }
    let tree = dir.path().join("tree");
    fs::create_dir_all(&tree).unwrap();
    fs::write(tree.join(format!("{name}.csv")), csv).unwrap();
}

/// Fails unless these are the two prefixes in this order, with all their figures.
fn check_ranked(items: &[Value], order: [&str; 2], case: &str) {
    let prefixes: Vec<&str> = items.iter().map(|item| item["prefix"].as_str().unwrap()).collect();
    assert_eq!(prefixes, order, "{case}");
    let of = |prefix: &str| items.iter().find(|item| item["prefix"] == prefix).unwrap();
    for (prefix, billed, current, noncurrent, markers) in
        [("hidden/", 100 * GIB + 1, 1, 100 * GIB, 1), ("shown/", GIB, GIB, 0, 0)]
    {
        let item = of(prefix);
        assert_eq!((&item["billed_bytes"], &item["bytes"]), (&json!(billed), &json!(current)));
        assert_eq!(
            (&item["noncurrent_bytes"], &item["delete_markers"]),
            (&json!(noncurrent), &json!(markers)),
            "{case}: {item}"
        );
    }
}

/// Fails unless exactly the root and `hidden/` have changed, by a move of noncurrent versions to GLACIER.
fn check_moved(items: &[Value], case: &str) {
    let prefixes: Vec<&str> = items.iter().map(|item| item["prefix"].as_str().unwrap()).collect();
    assert_eq!(prefixes, ["", "hidden/"], "{case}");
    for item in items {
        assert_eq!((&item["status"], &item["billed_delta"]), (&json!("changed"), &json!(0)));
        let cost = item["cost_delta"].as_f64().unwrap();
        assert!(cost < -0.7, "{case}: GLACIER costs less: {item}");
        let moved: Vec<_> = item["classes"]
            .as_array()
            .unwrap()
            .iter()
            .map(|class| {
                assert_eq!(class["noncurrent"], true, "{case}: {class}");
                let bytes = |name: &str| class[name].as_u64().unwrap() / GIB;
                (class["class"].as_str().unwrap(), bytes("bytes_old"), bytes("bytes_new"))
            })
            .collect();
        assert_eq!(moved, [("GLACIER", 0, 40), ("STANDARD", 100, 60)], "{case}");
    }
}

#[test]
fn noncurrent_versions_rank_first_over_http_and_their_move_to_glacier_is_a_change() {
    let dir = tempfile::tempdir().unwrap();
    write(&dir, "before", "STANDARD");
    write(&dir, "after", "GLACIER");
    let tree = dir.path().join("tree");
    let server = Server::start(&dir, &["--set", &format!("inventory.sources={}", tree.display())]);
    for name in ["before", "after"] {
        let from = tree.join(format!("{name}.csv")).display().to_string();
        let report = built(&server, name, &json!({ "from": from, "expect_rows": 6 }));
        assert_eq!(
            (&report["billed_bytes"], &report["bytes"]),
            (&json!(101 * GIB + 1), &json!(GIB + 1)),
            "{report}"
        );
    }
    let items = |question: &str| -> Vec<Value> {
        let answer = server.get(&format!("/v1/inventories/after/{question}"));
        assert_eq!(answer.status, 200, "{question}: {}", answer.body);
        answer.json()["items"].as_array().unwrap().clone()
    };
    for question in ["top", "top?sort=billed", "children", "children?sort=billed"] {
        check_ranked(&items(question), ["hidden/", "shown/"], question);
    }
    for question in ["top?sort=bytes", "children?sort=bytes"] {
        check_ranked(&items(question), ["shown/", "hidden/"], question);
    }
    let first = &items("children?class=GLACIER")[0];
    assert_eq!((&first["prefix"], &first["class_bytes"]), (&json!("hidden/"), &json!(40 * GIB)));
    check_moved(&items("diff?old=before"), "diff");
    check_moved(&items("diff?old=before&by=cost"), "diff by cost");

    let page = server.get("/v1/inventories/after/page").body;
    let at = |text: &str| page.find(text).unwrap_or_else(|| panic!("no {text} in {page}"));
    assert!(at("<code>hidden/</code>") < at("<code>shown/</code>"), "{page}");
    for text in ["100.00GiB", "Noncurrent versions", "by billed"] {
        at(text);
    }
    let page = server.get("/v1/inventories/after/page?sort=bytes").body;
    let at = |text: &str| page.find(text).unwrap();
    assert!(at("<code>shown/</code>") < at("<code>hidden/</code>"), "{page}");
}

#[test]
fn noncurrent_versions_rank_first_on_the_command_line_and_their_move_to_glacier_is_a_change() {
    let dir = tempfile::tempdir().unwrap();
    for (name, class) in [("before", "STANDARD"), ("after", "GLACIER")] {
        write(&dir, name, class);
        let from = format!("tree/{name}.csv");
        run_ok(&dir, &["inventory", "build", "--from", &from, "--out", name]);
    }
    let ask = |question: &[&str]| {
        let question = [&["inventory"], question, &["--json"]].concat();
        lines(&run_ok(&dir, &question))
    };
    for question in ["top", "children"] {
        let items = ask(&[question, "--index", "after"]);
        check_ranked(&items, ["hidden/", "shown/"], question);
        let items = ask(&[question, "--index", "after", "--sort", "bytes"]);
        check_ranked(&items, ["shown/", "hidden/"], question);
    }
    check_moved(&ask(&["diff", "before", "after"]), "diff");
    let table = run_ok(&dir, &["inventory", "diff", "before", "after"]);
    assert!(table.contains("GLACIER noncurrent +40.00GiB"), "{table}");
}
