//! `forebay files` and `forebay ingest` against a real server, and a search that survives a kill.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Instant;

use serde_json::Value;
use tempfile::TempDir;

use crate::support::{HANG, Server, forebay, run, run_ok, stderr};

fn json(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{output:?}"))
}

fn write(dir: &Path, name: &str, bytes: &[u8]) {
    let path = dir.join(name);
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, bytes).unwrap();
}

/// Searches until the index is up to date, and returns the answer.
fn searched(url: &str, query: &str) -> Value {
    let deadline = Instant::now() + HANG;
    loop {
        let answer = ureq::get(format!("{url}/v1/files/search?{query}")).call();
        let found: Value = match answer {
            Ok(mut answer) => {
                serde_json::from_str(&answer.body_mut().read_to_string().unwrap()).unwrap()
            }
            Err(error) => panic!("{error}"),
        };
        if found["index"]["lag_bytes"] == 0 {
            return found;
        }
        assert!(Instant::now() < deadline, "{found}");
    }
}

#[test]
fn a_tree_is_stored_once_and_what_cannot_be_is_reported() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(&dir, &[]);
    let url = server.url.as_str();
    let tree = dir.path().join("tree");
    write(&tree, "a.txt", b"the first apple");
    write(&tree, "sub/b.txt", b"the second apple");
    let large: Vec<u8> = (0..50_000u32).flat_map(u32::to_le_bytes).collect();
    write(&tree, "sub/large.bin", &large);
    write(&tree, "sub/no\\name", b"x");
    std::fs::write(tree.join(std::ffi::OsStr::from_bytes(b"\xff")), "x").unwrap();
    std::os::unix::fs::symlink("a.txt", tree.join("link")).unwrap();
    let ingest = |more: &[&str]| {
        let args =
            ["ingest", "tree", "--namespace", "docs", "--prefix", "in", "--server", url, "--json"];
        run(&dir, &[&args[..], more].concat())
    };
    let planned = ingest(&["--dry-run"]);
    let text = String::from_utf8_lossy(&planned.stdout).into_owned();
    assert!(text.contains("tree/sub/b.txt  docs/in/sub/b.txt"), "{text}");
    assert_eq!(run_ok(&dir, &["files", "ls", "docs", "--server", url]), "");

    let first = ingest(&[]);
    assert_eq!(first.status.code(), Some(1), "two files have no possible name");
    let summary = json(&first);
    let expected = serde_json::json!({
        "stored": 3, "replaced": 0, "unchanged": 0, "skipped": 1, "failed": 2, "bytes_sent": 200_031,
    });
    assert_eq!(summary, expected);
    let notes = stderr(&first);
    assert!(notes.contains("skipped tree/link: it is a symbolic link"), "{notes}");
    assert!(notes.contains("failed tree/sub/no\\name: the file name contains"), "{notes}");

    write(&tree, "a.txt", b"another apple");
    let again = json(&ingest(&[]));
    assert_eq!(
        (&again["stored"], &again["replaced"], &again["unchanged"]),
        (&0.into(), &1.into(), &2.into())
    );

    let listed = run_ok(&dir, &["files", "ls", "docs/in/", "--server", url, "--json"]);
    let names: Vec<Value> =
        listed.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let names: Vec<&str> = names.iter().map(|file| file["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["in/a.txt", "in/sub/b.txt", "in/sub/large.bin"]);
    searched(url, "q=apple");
    let found = run_ok(&dir, &["files", "search", "second", "--snippet", "--server", url]);
    assert!(found.contains("docs/in/sub/b.txt") && found.contains("the second apple"), "{found}");
    let found = run_ok(
        &dir,
        &["files", "search", "--type", "text/*", "--sort", "name", "--server", url, "--json"],
    );
    let found: Value = serde_json::from_str(&found).unwrap();
    assert_eq!((found["files"].as_array().unwrap().len(), &found["ranked"]), (2, &false.into()));
    let earlier = searched(url, "type=text/*&min_size=1&max_size=99&after=1&before=9999999999999");
    assert_eq!(earlier["files"].as_array().unwrap().len(), 2, "{earlier}");
    let both = ureq::get(format!("{url}/v1/files/search?type=text/*&mime=text/*")).call();
    assert!(matches!(both, Err(ureq::Error::StatusCode(400))), "{both:?}");
    assert_eq!(run(&dir, &["files", "search", "...", "--server", url]).status.code(), Some(1));
}

#[test]
fn a_search_accepts_every_option_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(&dir, &[]);
    let url = server.url.as_str();
    write(dir.path(), "a.txt", b"an apple");
    let file = dir.path().join("a.txt");
    for name in ["docs/a.txt", "docs/b.txt"] {
        run_ok(&dir, &["files", "put", file.to_str().unwrap(), name, "--server", url]);
    }
    let set = ["--tag", "fruit=apple", "--meta", "author=Ada", "--meta", "year=1843"];
    run_ok(&dir, &[&["files", "set", "docs/a.txt", "--server", url][..], &set].concat());
    searched(url, "q=apple");
    let options = [
        ["--namespace", "docs"],
        ["--prefix", "a"],
        ["--type", "text/plain"],
        ["--category", "text"],
        ["--min-size", "1"],
        ["--max-size", "1KiB"],
        ["--after", "2026-01-01T00:00:00Z"],
        ["--before", "2100-01-01T00:00:00Z"],
        ["--sort", "name"],
        ["--limit", "5"],
    ]
    .concat();
    let search = ["files", "search", "apple", "--snippet", "--server", url];
    let found = run_ok(&dir, &[&search[..], &set, &options].concat());
    assert!(found.contains("docs/a.txt") && !found.contains("docs/b.txt"), "{found}");
    let other = run_ok(&dir, &["files", "search", "--meta", "author=Eve", "--server", url]);
    assert!(!other.contains("docs/"), "{other}");
}

#[test]
fn a_file_is_fetched_whole_or_not_at_all_and_replaces_none_unasked() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(&dir, &[]);
    let url = server.url.as_str();
    let bytes: Vec<u8> = (0..300_000u32).flat_map(u32::to_le_bytes).collect();
    write(dir.path(), "data.bin", &bytes);
    let put = [
        "files",
        "put",
        "data.bin",
        "n/a b/data.bin",
        "--comment",
        "numbers & more",
        "--server",
        url,
    ];
    run_ok(&dir, &put);
    let stat = run_ok(&dir, &["files", "stat", "n/a b/data.bin", "--server", url, "--json"]);
    let stat: Value = serde_json::from_str(&stat).unwrap();
    assert_eq!((&stat["comment"], &stat["size"]), (&"numbers & more".into(), &1_200_000.into()));

    let get = |more: &[&str]| {
        let args = ["files", "get", "n/a b/data.bin", "--server", url];
        run(&dir, &[&args[..], more].concat())
    };
    let refused = get(&[]);
    assert!(refused.status.code() == Some(1) && stderr(&refused).contains("--force"));
    assert!(get(&["-o", "copy.bin"]).status.success());
    assert!(std::fs::read(dir.path().join("copy.bin")).unwrap() == bytes);
    assert!(get(&["-o", "-"]).stdout == bytes);
    std::fs::create_dir(dir.path().join("into")).unwrap();
    assert!(get(&["--output", "into"]).status.success());
    write(dir.path(), "into/data.bin", b"old");
    assert!(get(&["--output", "into", "--force"]).status.success());
    assert!(std::fs::read(dir.path().join("into/data.bin")).unwrap() == bytes);
    let absent = ["files", "put", "data.bin", "n/a b/data.bin", "--if-absent", "--server", url];
    assert_eq!(run(&dir, &absent).status.code(), Some(1));

    let mut piped = forebay(&dir);
    piped.args(["files", "put", "-", "n/piped", "--server", url]).stdin(Stdio::piped());
    let mut piped = piped.stdout(Stdio::null()).spawn().unwrap();
    piped.stdin.take().unwrap().write_all(&bytes).unwrap();
    assert!(piped.wait().unwrap().success());
    let removed = ["files", "rm", "n/piped", "n/a b/data.bin", "--server", url];
    run_ok(&dir, &removed);
    assert_eq!(run(&dir, &removed).status.code(), Some(1));
    run_ok(&dir, &["files", "rm", "--force", "n/piped", "--server", url]);
    assert_eq!(run(&dir, &["files", "stat", "n/piped", "--server", url]).status.code(), Some(1));
    assert_eq!(run(&dir, &["files", "get", "no-name", "--server", url]).status.code(), Some(2));
}

#[test]
fn a_file_is_annotated_copied_renamed_and_restored_without_sending_its_bytes() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(&dir, &[]);
    let ended = |args: &[&str]| run(&dir, &[&["files"], args, &["--server", &server.url]].concat());
    let ok = |args: &[&str]| {
        let output = ended(args);
        assert!(output.status.success(), "{args:?}: {output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    let parsed = |args: &[&str]| -> Value { serde_json::from_str(&ok(args)).unwrap() };
    write(dir.path(), "a.txt", b"first");
    run_ok(&dir, &["namespaces", "set", "n", "--versions", "on", "--server", &server.url]);
    ok(&["put", "a.txt", "n/a.txt"]);
    ok(&[
        "set",
        "n/a.txt",
        "--comment",
        "seen by Kim",
        "--tag",
        "x=1",
        "--tag",
        "y=2",
        "--meta",
        "m=3",
    ]);
    ok(&["set", "n/a.txt", "--tag", "y="]);
    let stat = parsed(&["stat", "n/a.txt", "--json"]);
    let expected = serde_json::json!([{"x": "1"}, {"m": "3"}, "seen by Kim"]);
    assert_eq!(serde_json::json!([stat["tags"], stat["metadata"], stat["comment"]]), expected);

    ok(&["cp", "n/a.txt", "m/b c.txt"]);
    let taken = ended(&["cp", "n/a.txt", "m/b c.txt"]);
    assert_eq!(taken.status.code(), Some(1));
    assert!(stderr(&taken).contains("m/b c.txt exists; replace it with --force"), "{taken:?}");
    ok(&["cp", "n/a.txt", "m/b c.txt", "--force"]);
    ok(&["mv", "m/b c.txt", "m/d.txt"]);
    assert_eq!(parsed(&["stat", "m/d.txt", "--json"])["tags"]["x"], "1");
    for args in [
        &["mv", "m/b c.txt", "m/e.txt"][..],
        &["set", "m/none", "--tag", "a=b"],
        &["history", "m/none"],
        &["restore", "n/a.txt", "00000000000000ff"],
        &["get", "n/a.txt", "--version-id", "00000000000000ff", "-o", "-"],
    ] {
        let missing = ended(args);
        assert_eq!(missing.status.code(), Some(1), "{args:?}: {missing:?}");
    }
    for args in
        [&["set", "n/a.txt"][..], &["set", "n/a.txt", "--tag", "x"], &["cp", "n/a.txt", "m"]]
    {
        assert_eq!(ended(args).status.code(), Some(2), "{args:?}");
    }

    write(dir.path(), "a.txt", b"second!");
    ok(&["put", "a.txt", "n/a.txt"]);
    let history = ok(&["history", "n/a.txt"]);
    let lines: Vec<Vec<&str>> =
        history.lines().map(|line| line.split_whitespace().collect()).collect();
    // Stored, annotated twice, replaced.
    let sizes: Vec<&str> = lines.iter().map(|line| line[1]).collect();
    assert_eq!(sizes, ["7", "5", "5", "5"], "{history}");
    assert_eq!((lines[0].get(3), lines[1].get(3)), (Some(&"current"), None));
    let old = lines[1][0];
    assert_eq!(ok(&["get", "n/a.txt", "--version-id", old, "-o", "-"]), "first");
    ok(&["restore", "n/a.txt", old]);
    assert_eq!(ok(&["get", "n/a.txt", "-o", "-"]), "first");
    assert_eq!(ok(&["prune", "n/a.txt", "1"]), "3 versions erased\n");
    assert_eq!(ok(&["history", "n/a.txt"]).lines().count(), 2);
    ok(&["rm", "n/a.txt"]);
    let history = ok(&["history", "n/a.txt", "--json"]);
    let newest: Value = serde_json::from_str(history.lines().next().unwrap()).unwrap();
    assert_eq!(newest["deleted"], true, "{history}");
}

#[test]
fn several_files_are_changed_at_once_and_duplicates_are_listed() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(&dir, &[]);
    let run = |args: &[&str]| {
        run(&dir, &[&["files"][..], args, &["--server", server.url.as_str()]].concat())
    };
    for (name, bytes) in [("a", "same"), ("b", "same"), ("c", "another")] {
        write(dir.path(), name, bytes.as_bytes());
        assert!(run(&["put", name, &format!("n/{name}")]).status.success());
    }
    let changed = run(&["set", "n/a", "n/b", "n/none", "--tag", "stage=final"]);
    assert_eq!(changed.status.code(), Some(1), "{changed:?}");
    assert!(stderr(&changed).contains("cannot change n/none: there is no file"), "{changed:?}");
    let tagged = json(&run(&["stat", "n/b", "--json"]));
    assert_eq!(tagged["tags"]["stage"], "final", "{tagged}");
    let listed = run(&["duplicates"]);
    let listed = String::from_utf8(listed.stdout).unwrap();
    let lines: Vec<&str> = listed.lines().map(str::trim).collect();
    assert_eq!(lines.len(), 3, "{listed}");
    assert!(lines[0].contains("2 names"), "{listed}");
    assert_eq!(lines[1..], ["n/a", "n/b"]);
    assert_eq!(String::from_utf8(run(&["duplicates", "n"]).stdout).unwrap(), listed);
    let other = run(&["duplicates", "other"]);
    assert!(other.status.success() && other.stdout.is_empty(), "{other:?}");
}

#[test]
fn bytes_with_another_digest_get_no_name() {
    let dir = tempfile::tempdir().unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let served = std::thread::spawn(move || {
        for body in ["wrong", "cut"] {
            let (mut stream, _) = listener.accept().unwrap();
            let mut request = [0; 4_096];
            assert!(stream.read(&mut request).unwrap() > 0);
            let etag = "0".repeat(64);
            let answer = format!(
                "HTTP/1.1 200 OK\r\netag: \"{etag}\"\r\ncontent-length: 5\r\nconnection: close\r\n\r\n{body}"
            );
            stream.write_all(answer.as_bytes()).unwrap();
        }
    });
    for expected in ["SHA-256", "cannot fetch"] {
        let got = run(&dir, &["files", "get", "n/a", "--server", &url]);
        assert!(got.status.code() == Some(1) && stderr(&got).contains(expected), "{got:?}");
    }
    served.join().unwrap();
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0, "nothing is left");
    let unanswered = run(&dir, &["ingest", ".", "--server", &url]);
    assert_eq!(unanswered.status.code(), Some(1));
}

#[test]
fn a_watch_stores_what_comes_and_ends_with_a_summary() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(&dir, &[]);
    write(dir.path(), "in/first.txt", b"first");
    let mut watch = forebay(&dir);
    watch.args([
        "ingest",
        "in",
        "--watch",
        "--interval",
        "20ms",
        "--json",
        "--server",
        &server.url,
    ]);
    let watch = watch.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap();
    let deadline = Instant::now() + HANG;
    let stored = |name: &str, text: &str| {
        let answer = ureq::get(format!("{}/v1/files/default/{name}", server.url)).call();
        answer.is_ok_and(|mut answer| answer.body_mut().read_to_string().unwrap() == text)
    };
    for (name, text) in
        [("first.txt", "first"), ("b/second.txt", "second"), ("first.txt", "changed!")]
    {
        write(dir.path(), &format!("in/{name}"), text.as_bytes());
        while !stored(name, text) {
            assert!(Instant::now() < deadline, "{name} was not stored");
        }
    }
    let pid = watch.id().to_string();
    assert!(Command::new("kill").args(["-s", "INT", &pid]).status().unwrap().success());
    let ended = watch.wait_with_output().unwrap();
    assert!(ended.status.success(), "{ended:?}");
    let summary = json(&ended);
    assert_eq!((&summary["stored"], &summary["failed"]), (&2.into(), &0.into()), "{summary}");
}

/// Forwards connections, and cuts `cuts` of those on which a client sends more than `limit` bytes.
fn forward(listener: &TcpListener, server: &str, cuts: usize, limit: u64) {
    let left = Arc::new(AtomicUsize::new(cuts));
    for client in listener.incoming().map_while(Result::ok) {
        let (upstream, left) = (TcpStream::connect(server).unwrap(), Arc::clone(&left));
        std::thread::spawn(move || {
            std::thread::scope(|scope| {
                scope.spawn(|| std::io::copy(&mut &upstream, &mut &client));
                let sent = std::io::copy(&mut (&client).take(limit), &mut &upstream);
                let is_more = sent.is_ok_and(|sent| sent == limit);
                if is_more && left.fetch_update(Relaxed, Relaxed, |n| n.checked_sub(1)).is_err() {
                    std::io::copy(&mut &client, &mut &upstream).ok();
                }
                drop(upstream.shutdown(Shutdown::Both));
                drop(client.shutdown(Shutdown::Both));
            });
        });
    }
}

#[test]
fn a_large_file_is_continued_where_the_connection_was_cut() {
    const SIZE: u32 = 65 << 20;
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(&dir, &[]);
    let bytes: Vec<u8> = (0..SIZE / 4).flat_map(u32::to_le_bytes).collect();
    write(dir.path(), "large.bin", &bytes);
    let ingest = |url: &str| {
        let args = ["ingest", "large.bin", "--workers", "1", "--server", url, "--json"];
        let output = run(&dir, &args);
        assert!(output.status.success(), "{}", stderr(&output));
        json(&output)
    };
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let address = server.url.trim_start_matches("http://").to_owned();
    std::thread::spawn(move || forward(&listener, &address, 2, 25 << 20));
    let summary = ingest(&url);
    assert_eq!((&summary["stored"], &summary["failed"]), (&1.into(), &0.into()), "{summary}");
    let sent = summary["bytes_sent"].as_u64().unwrap();
    assert!(sent < 20 << 20, "{sent} bytes were sent last");
    let got = ["files", "get", "default/large.bin", "-o", "got.bin", "--server", &server.url];
    run_ok(&dir, &got);
    assert!(std::fs::read(dir.path().join("got.bin")).unwrap() == bytes);
    assert_eq!(ingest(&server.url)["unchanged"], 1);
    // The upload is remembered, but its file is gone: it is sent again.
    run_ok(&dir, &["files", "rm", "default/large.bin", "--server", &server.url]);
    let again = ingest(&server.url);
    assert_eq!((&again["stored"], &again["bytes_sent"]), (&1.into(), &SIZE.into()), "{again}");
}

#[test]
fn a_killed_server_finds_everything_again() {
    let dir = tempfile::tempdir().unwrap();
    let tree = TempDir::new().unwrap();
    for n in 0..300 {
        write(tree.path(), &format!("{n}.txt"), format!("apple number{n}").as_bytes());
    }
    let path = tree.path().to_str().unwrap();
    for round in 0..3 {
        let server = Server::start(&dir, &[]);
        let prefix = format!("round-{round}");
        run_ok(&dir, &["ingest", path, "--prefix", &prefix, "--server", &server.url]);
        // Somewhere between the log, the catalogue and the index.
        server.signal("KILL");
        server.wait();
    }
    let server = Server::start(&dir, &[]);
    let found = searched(&server.url, "q=apple&limit=1000");
    assert_eq!((found["files"].as_array().unwrap().len(), &found["matches"]), (900, &900.into()));
    assert_eq!(
        searched(&server.url, "q=number7&prefix=round-2/")["files"].as_array().unwrap().len(),
        1
    );
    drop(server);
    run_ok(&dir, &["fsck"]);
}

#[test]
fn files_are_listed_in_an_order_and_added_up() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(&dir, &[]);
    let url = server.url.as_str();
    for (name, bytes) in [("a", "22"), ("b/c", "333"), ("d", "22"), ("e", "1")] {
        std::fs::write(dir.path().join("file"), bytes).unwrap();
        run_ok(&dir, &["files", "put", "file", &format!("docs/{name}"), "--server", url]);
    }
    let ls = |sort: &str| {
        let listed = run_ok(&dir, &["files", "ls", "docs", "--sort", sort, "--server", url]);
        let names = listed.lines().map(|line| line.rsplit("docs/").next().unwrap().to_owned());
        names.collect::<Vec<_>>().join(" ")
    };
    assert_eq!([ls("largest"), ls("smallest")], ["b/c a d e", "e a d b/c"]);
    assert_eq!([ls("-name"), ls("name")], ["e d b/c a", "a b/c d e"]);
    let refused = run(&dir, &["files", "ls", "--sort", "size", "--server", url]);
    assert_eq!(refused.status.code(), Some(2), "{refused:?}");
    let stats =
        |within: &str| json(&run(&dir, &["files", "stats", within, "--json", "--server", url]));
    let found = stats("docs");
    let counts = ["files", "bytes", "different_files", "different_bytes"];
    assert_eq!(counts.map(|of| found[of].as_u64().unwrap()), [4, 8, 3, 6], "{found}");
    assert_eq!(stats("docs/b/")["files"], 1);
    let table = run_ok(&dir, &["files", "stats", "--server", url]);
    assert!(table.contains("different contents") && table.contains("docs/b/c"), "{table}");
}
