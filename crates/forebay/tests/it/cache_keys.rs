//! `forebay cache keys` against a running cache.

use serde_json::{Value, json};

use crate::cache_support::{Cache, ask};
use crate::support::{run, stderr};

fn keys(dir: &tempfile::TempDir, args: &[&str]) -> Value {
    let output = run(dir, &[&["cache", "keys", "--json"], args].concat());
    assert!(output.status.success(), "{}", stderr(&output));
    serde_json::from_slice(&output.stdout).unwrap()
}

fn names(report: &Value) -> Vec<&str> {
    report["largest"].as_array().unwrap().iter().map(|row| row["key"].as_str().unwrap()).collect()
}

#[test]
fn the_largest_keys_come_first_by_memory_and_by_length() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("password"), "open sesame\n").unwrap();
    let cache = Cache::start(&dir, &["--no-persist", "--password-file", "password"]);
    let mut stream = cache.resp();
    ask(&mut stream, "AUTH \"open sesame\"\r\n", "+OK\r\n");
    // Bytes without repetition are stored uncompressed.
    let mut state = 1_u32;
    let mut noise = |size: usize| -> String {
        let draw = |_| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            char::from(b'!' + u8::try_from((state >> 24) % 90).unwrap())
        };
        (0..size).map(draw).filter(|c| !matches!(c, '"' | '\'' | '\\')).collect()
    };
    for number in 0..1_500 {
        ask(&mut stream, &format!("SET small:{number} {number}\r\n"), "+OK\r\n");
    }
    ask(&mut stream, &format!("SET large:0 {}\r\n", noise(60_000)), "+OK\r\n");
    ask(&mut stream, &format!("SET large:1 {}\r\n", noise(30_000)), "+OK\r\n");
    ask(&mut stream, "RPUSH list a b c d e f g h i j k l m\r\n", ":13\r\n");
    ask(&mut stream, "SELECT 3\r\nHSET hash f v\r\nSET \"\\xff\" v\r\n", "+OK\r\n:1\r\n+OK\r\n");
    let resp = cache.resp.to_string();
    let at = ["--resp", &resp, "--password-file", "password"];
    let report = keys(&dir, &[&at[..], &["--top", "2"]].concat());
    assert_eq!(names(&report), ["large:0", "large:1"]);
    assert_eq!(report["keys"], 1_503);
    assert_eq!(report["types"]["list"]["keys"], 1);
    let first = &report["largest"][0];
    assert!(first["memory_bytes"].as_u64().unwrap() > 40_000, "{report}");
    assert!(first["length"].as_u64().unwrap() > 40_000, "{report}");
    let report = keys(&dir, &[&at[..], &["--by", "length", "--pattern", "[ls]*t*"]].concat());
    assert_eq!(names(&report), ["list"]);
    assert_eq!(report["largest"][0]["length"], 13);
    let report = keys(&dir, &[&at[..], &["--database", "3"]].concat());
    assert_eq!(report["keys"], 2);
    let odd =
        report["largest"].as_array().unwrap().iter().find(|row| row["key"] != "hash").unwrap();
    assert_eq!(odd["key_hex"], json!("ff"));
    // For people, with unprintable characters escaped.
    let shown = run(&dir, &[&["cache", "keys", "--database", "3"], &at[..]].concat());
    let shown = String::from_utf8(shown.stdout).unwrap();
    assert!(shown.contains(r#""\xff""#) && shown.contains("2 keys in database 3"), "{shown}");
}

#[test]
fn a_refusal_is_reported_and_no_server_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let cache = Cache::start(&dir, &["--no-persist"]);
    let resp = cache.resp.to_string();
    let output = run(&dir, &["cache", "keys", "--resp", &resp, "--database", "16"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("SELECT 16: ERR"), "{}", stderr(&output));
    drop(cache);
    let output = run(&dir, &["cache", "keys", "--resp", &resp]);
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains(&resp), "{}", stderr(&output));
}
