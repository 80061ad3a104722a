//! `forebay documents` against a real server.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpListener;
use std::process::{Command, Output, Stdio};

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::{Server, agent, forebay, run, run_ok, stderr};

/// Runs `forebay documents` on a server.
struct Documents<'a> {
    dir: &'a TempDir,
    url: &'a str,
}

impl Documents<'_> {
    fn run(&self, args: &[&str]) -> Output {
        run(self.dir, &[&["documents"], args, &["--server", self.url]].concat())
    }

    fn ok(&self, args: &[&str]) -> String {
        run_ok(self.dir, &[&["documents"], args, &["--server", self.url]].concat())
    }

    fn json(&self, args: &[&str]) -> Value {
        serde_json::from_str(&self.ok(args)).unwrap()
    }

    /// Runs a command with this standard input.
    fn piped(&self, args: &[&str], input: &str) -> Output {
        let mut command = forebay(self.dir);
        command.arg("documents").args(args).args(["--server", self.url]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
        child.wait_with_output().unwrap()
    }

    /// Starts a command whose output is read line by line.
    fn started(&self, args: &[&str]) -> std::process::Child {
        let mut command = forebay(self.dir);
        command.arg("documents").args(args).args(["--server", self.url]);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.spawn().unwrap()
    }
}

fn write(dir: &TempDir, name: &str, text: &str) {
    std::fs::write(dir.path().join(name), text).unwrap();
}

#[test]
fn documents_are_stored_listed_and_fetched_byte_for_byte() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(&dir, &[]);
    let documents = Documents { dir: &dir, url: &server.url };
    write(&dir, "pumps.json", "[{\"name\":\"a\",\"kw\":7.50},\n {\"name\":\"b\",\n  \"kw\":3}]");
    let stored = documents.ok(&["add", "pumps", "pumps.json", "--target", "table"]);
    assert_eq!(stored, "stored 2 documents in pumps (table), ids 1 to 2; 0 refused\n");
    let lines: String = (0..1_500).map(|n| format!("{{\"name\":\"n{n}\",\"kw\":{n}}}\n")).collect();
    assert!(documents.piped(&["add", "pumps"], &lines).status.success());
    assert!(documents.piped(&["add", "single", "-"], "{\"x\":1}").status.success());

    assert_eq!(documents.ok(&["get", "pumps", "1"]), "{\"name\":\"a\",\"kw\":7.50}\n");
    assert_eq!(documents.ok(&["get", "pumps", "2"]), "{\"name\":\"b\",\n  \"kw\":3}\n");
    let namespaces = documents.ok(&["ls"]);
    assert!(namespaces.contains("1502  table       pumps\n"), "{namespaces}");
    assert!(namespaces.contains("1  undecided   single\n"), "{namespaces}");
    let listed = documents.ok(&["ls", "--json"]);
    let first: Value = serde_json::from_str(listed.lines().next().unwrap()).unwrap();
    assert_eq!((&first["namespace"], &first["documents"]), (&"pumps".into(), &1_502.into()));

    let all = documents.ok(&["ls", "pumps", "--json"]);
    let ids = all.lines().map(|line| serde_json::from_str::<Value>(line).unwrap()["id"].clone());
    assert!(ids.eq((1..=1_502).map(Value::from)), "every page, in order");
    assert!(all.lines().nth(1).unwrap().ends_with("\"document\":{\"name\":\"b\",   \"kw\":3}}"));
    let raw = documents.ok(&["ls", "pumps", "--raw"]);
    assert!(raw.lines().skip(2).eq(lines.lines()));
    let wide = documents.ok(&["ls", "pumps", "--where", "kw >= 1000", "--limit", "400", "--raw"]);
    assert!(wide.lines().eq(lines.lines().skip(1_000).take(400)));
    assert!(documents.ok(&["ls", "pumps", "--where", "kw = 7.5"]).contains("\"kw\":7.50}"));

    let schema = documents.json(&["schema", "pumps", "--json"]);
    assert_eq!((&schema["target"], &schema["documents"]), (&"table".into(), &1_502.into()));
    assert_eq!(schema["columns"][1]["path"], "kw");
    assert_eq!((&schema["changes_dropped"], &schema["undecided"]), (&0.into(), &false.into()));
    assert_eq!(schema["changes"][0]["after_id"], Value::Null);
    assert!(documents.piped(&["add", "pumps"], "{\"name\":\"z\",\"spare\":true}").status.success());
    let schema = documents.ok(&["schema", "pumps"]);
    let changes: Vec<&str> = schema.lines().filter(|line| line.starts_with("changed ")).collect();
    assert_eq!(changes.len(), 2, "{schema}");
    assert!(changes[0].ends_with("  first documents: +name text, +kw real"), "{schema}");
    assert!(changes[1].ends_with("  after document 1502: +spare boolean"), "{schema}");

    // A browser gets pages, in which no text of a document is markup.
    let evil = "{\"name\":\"y\",\"<img src=x>\":1}";
    assert!(documents.piped(&["add", "pumps"], evil).status.success());
    let page = |path: &str| {
        let accept = "text/html,application/xhtml+xml,*/*;q=0.8";
        let answer = ureq::get(format!("{}{path}", documents.url)).header("accept", accept).call();
        let mut answer = answer.unwrap();
        assert_eq!(answer.headers()["content-type"], "text/html; charset=utf-8");
        assert_eq!(answer.headers()["vary"], "accept");
        answer.body_mut().read_to_string().unwrap()
    };
    assert!(page("/v1/documents").contains("href=\"/v1/documents/pumps/schema\""));
    let schema = page("/v1/documents/pumps/schema");
    assert!(schema.contains("1504 documents, stored as a table"), "{schema}");
    assert!(schema.contains("&lt;img src=x&gt;") && !schema.contains("<img"), "{schema}");
    let json = ureq::get(format!("{}/v1/documents/pumps/schema", documents.url)).call().unwrap();
    assert_eq!(json.headers()["content-type"], "application/json");
    let schema = documents.ok(&["schema", "single"]);
    assert!(schema.starts_with("target     collection; too few documents"), "{schema}");

    for (args, code, text) in [
        (&["get", "pumps", "9999"][..], 1, "there is no document pumps/9999"),
        (&["get", "none", "1"], 1, "there is no document none/1"),
        (&["ls", "none"], 1, "document namespace none"),
        (&["schema", "none"], 1, "document namespace none"),
        (&["ls", "pumps", "--where", "kw >"], 1, "400"),
        (&["ls", "Pumps"], 2, "a namespace is a-z"),
        (&["ls", "--where", "kw = 1"], 2, "required"),
        (&["add", "pumps", "no-such-file"], 1, "cannot read no-such-file"),
        (&["add", "pumps", "."], 2, "is a directory"),
        (&["add", "pumps", "pumps.json", "--target", "collection"], 1, "409"),
        (&["quarantine"], 1, "intake.database.url"),
        (&["replay", "pumps"], 1, "404"),
    ] {
        let output = documents.run(args);
        assert_eq!(output.status.code(), Some(code), "{args:?}: {output:?}");
        assert!(stderr(&output).contains(text), "{args:?}: {}", stderr(&output));
    }
}

#[test]
fn refused_documents_are_listed_and_make_the_exit_code_1() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(&dir, &[]);
    let documents = Documents { dir: &dir, url: &server.url };
    write(&dir, "mixed.ndjson", "{\"a\":1}\n{\"a\":\n[1]\n{\"a\":4}\n");
    let dry = documents.run(&["add", "log", "mixed.ndjson", "--dry-run"]);
    assert_eq!(dry.status.code(), Some(1));
    let text = String::from_utf8(dry.stdout).unwrap();
    assert_eq!(text, "would store 2 documents in log; 2 refused\n");
    assert_eq!(documents.run(&["ls", "log"]).status.code(), Some(1), "nothing was stored");
    let none = documents.run(&["add", "log", "mixed.ndjson", "--reject"]);
    assert_eq!(none.status.code(), Some(1));
    assert_eq!(documents.run(&["ls", "log"]).status.code(), Some(1), "nothing was stored");

    let some = documents.run(&["add", "log", "mixed.ndjson", "--json"]);
    assert_eq!(some.status.code(), Some(1));
    let answer: Value = serde_json::from_slice(&some.stdout).unwrap();
    assert_eq!((&answer["accepted"], &answer["rejected"]), (&2.into(), &2.into()));
    let notes = stderr(&some);
    assert!(notes.contains("line 2, byte 8: "), "{notes}");
    assert!(notes.contains("line 3, byte 14: "), "{notes}");
    assert_eq!(documents.ok(&["ls", "log", "--raw"]), "{\"a\":1}\n{\"a\":4}\n");

    // The syntax between documents is wrong, so the start of the next one is unknown.
    let cut = documents.piped(&["add", "log"], "[{\"a\":1},{\"a\"");
    assert!(cut.status.code() == Some(1) && stderr(&cut).contains("400"), "{cut:?}");
    let all = documents.piped(&["add", "log"], "[1]");
    assert!(all.status.code() == Some(1) && stderr(&all).contains("line 1, byte 1: "), "{all:?}");
    for _ in 0..2 {
        let once = ["add", "once", "--idempotency-key", "k1"];
        assert!(documents.piped(&once, "{\"a\":1}").status.success());
    }
    assert_eq!(documents.ok(&["ls", "once", "--raw"]), "{\"a\":1}\n");
    let reused = documents.piped(&["add", "once", "--idempotency-key", "k1"], "{\"a\":2}");
    assert!(reused.status.code() == Some(1) && stderr(&reused).contains("422"), "{reused:?}");
    let no_key = documents.piped(&["add", "once", "--idempotency-key", "é"], "");
    assert_eq!(no_key.status.code(), Some(2));
}

#[test]
fn a_document_is_replaced_merged_and_deleted_and_a_namespace_dropped() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(&dir, &[]);
    let documents = Documents { dir: &dir, url: &server.url };
    let three = "{\"a\":1,\"b\":2}\n{\"a\":2}\n{\"a\":3}\n";
    assert!(documents.piped(&["add", "n"], three).status.success());
    write(&dir, "new.json", "{\"a\": 10, \"b\": 2}");
    let put = documents.json(&["put", "n", "1", "new.json", "--json"]);
    assert_eq!((&put["namespace"], &put["id"]), (&"n".into(), &1.into()));
    let sha256 = put["sha256"].as_str().unwrap();
    let patched = documents.ok(&["patch", "n", "1", "{\"b\":null,\"c\":[]}", "--if-match", sha256]);
    assert!(patched.ends_with("  n/1\n") && !patched.contains(sha256), "{patched}");
    let merged: Value = serde_json::from_str(&documents.ok(&["get", "n", "1"])).unwrap();
    assert_eq!(merged, json!({ "a": 10, "c": [] }));
    assert!(documents.piped(&["put", "n", "2"], "{\"a\":20}").status.success());
    assert_eq!(documents.ok(&["get", "n", "2"]), "{\"a\":20}\n");

    for (args, code, text) in [
        (&["patch", "n", "1", "{}", "--if-match", sha256][..], 1, "412"),
        (&["patch", "n", "1", "[]"], 2, "a patch is a JSON object"),
        (&["patch", "n", "9", "{}"], 1, "there is no document n/9"),
        (&["put", "n", "9", "new.json"], 1, "there is no document n/9"),
        (&["put", "n", "x", "new.json"], 2, "invalid"),
        (&["patch", "n", "1", "{}", "--if-match", "1"], 2, "64 hexadecimal digits"),
        (&["drop", "n", "--confirm", "m"], 2, "--confirm n"),
        (&["drop", "n"], 2, "--confirm"),
        (&["drop", "m", "--confirm", "m"], 1, "404"),
    ] {
        let output = documents.run(args);
        assert_eq!(output.status.code(), Some(code), "{args:?}: {output:?}");
        assert!(stderr(&output).contains(text), "{args:?}: {}", stderr(&output));
    }
    documents.ok(&["rm", "n", "1", "3"]);
    let again = documents.run(&["rm", "n", "1", "2"]);
    assert_eq!((again.status.code(), &*stderr(&again)), (Some(1), "there is no document n/1\n"));
    documents.ok(&["rm", "--force", "n", "1", "2"]);
    assert_eq!(documents.ok(&["ls", "n"]), "");
    documents.ok(&["drop", "n", "--confirm", "n"]);
    assert_eq!(documents.run(&["ls", "n"]).status.code(), Some(1));
}

#[test]
fn a_follower_misses_nothing_before_its_first_line() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(&dir, &[]);
    let documents = Documents { dir: &dir, url: &server.url };
    assert!(documents.piped(&["add", "n"], "{\"a\":1}\n{\"a\":2}\n").status.success());
    let follow = |query: &str| {
        let reply = agent()
            .get(format!("{}/v1/documents/n?follow=true{query}", server.url))
            .call()
            .unwrap();
        let cursor = reply.headers()["x-next-cursor"].to_str().unwrap().to_owned();
        (cursor, BufReader::new(reply.into_body().into_reader()))
    };
    for (added, query) in [(3, ""), (4, "&cursor=1")] {
        let (cursor, connection) = follow(query);
        drop(connection);
        assert!(documents.piped(&["add", "n"], "{\"a\":3}").status.success());
        let changed = format!("{{\"a\":\"{added}\"}}");
        assert!(documents.piped(&["put", "n", "1"], &changed).status.success());
        let (again, mut connection) = follow(&format!("&cursor={cursor}"));
        assert_eq!(again, cursor);
        let mut awaited = vec![json!([added, null]), json!([1, "replaced"])];
        while !awaited.is_empty() {
            let mut line = String::new();
            connection.read_line(&mut line).unwrap();
            let line: Value = serde_json::from_str(&line).unwrap();
            awaited.retain(|awaited| *awaited != json!([line["id"], line["change"]]));
        }
    }
}

#[test]
fn a_follower_continues_through_a_restart_and_ends_with_0() {
    let dir = tempfile::tempdir().unwrap();
    // A port that stays the same over the restart.
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    let server = Server::start(&dir, &["--listen", &port]);
    let url = server.url.clone();
    let documents = Documents { dir: &dir, url: &url };
    assert!(documents.piped(&["add", "n"], "{\"a\":1}\n{\"a\":2}\n").status.success());
    let mut follower = documents.started(&["follow", "n", "--after", "0", "--where", "a < 100"]);
    let mut lines = BufReader::new(follower.stdout.take().unwrap()).lines();
    let mut next = || serde_json::from_str::<Value>(&lines.next().unwrap().unwrap()).unwrap();
    assert_eq!((&next()["id"], &next()["document"]), (&1.into(), &json!({ "a": 2 })));
    server.signal("KILL");
    server.wait();
    let server = Server::start(&dir, &["--listen", &port]);
    assert!(documents.piped(&["add", "n"], "{\"a\":300}\n{\"a\":3}\n").status.success());
    let stored = next();
    assert_eq!((&stored["id"], &stored["document"]), (&4.into(), &json!({ "a": 3 })));
    assert!(documents.piped(&["put", "n", "1"], "{\"a\":11}").status.success());
    let changed = next();
    assert_eq!((&changed["id"], &changed["change"]), (&1.into(), &"replaced".into()));
    documents.ok(&["rm", "n", "2"]);
    let deleted = next();
    assert_eq!((&deleted["id"], &deleted["change"]), (&2.into(), &"deleted".into()));

    let pid = follower.id().to_string();
    assert!(Command::new("kill").args(["-s", "INT", &pid]).status().unwrap().success());
    let ended = follower.wait_with_output().unwrap();
    assert_eq!(ended.status.code(), Some(0), "{ended:?}");
    assert!(stderr(&ended).contains("connection lost, connecting again: "), "{ended:?}");
    // The cursor of the last line is where another follower begins.
    let cursor = deleted["cursor"].as_str().unwrap();
    let mut follower = documents.started(&["follow", "n", "--after", cursor]);
    let mut lines = BufReader::new(follower.stdout.take().unwrap()).lines();
    assert!(documents.piped(&["add", "n"], "{\"a\":5}").status.success());
    let line = lines.next().unwrap().unwrap();
    assert_eq!(serde_json::from_str::<Value>(&line).unwrap()["id"], 5, "{line}");
    follower.kill().unwrap();
    follower.wait().unwrap();
    let missing = documents.run(&["follow", "none"]);
    assert_eq!(missing.status.code(), Some(1), "{missing:?}");
    assert!(stderr(&missing).contains("there is no document namespace none"), "{missing:?}");
    let refused = documents.run(&["follow", "n", "--after", "x.y"]);
    assert!(refused.status.code() == Some(1) && stderr(&refused).contains("400"), "{refused:?}");
    drop(server);
}
