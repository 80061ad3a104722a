//! `forebay cache serve`, used over its sockets, and the commands that are its clients.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::Shutdown;
use std::process::Stdio;
use std::time::Instant;

use crate::cache_support::{Cache, ask};
use crate::support::{HANG, forebay, run, stderr};

#[test]
fn the_text_protocol_says_what_it_is_documented_to_say() {
    let dir = tempfile::tempdir().unwrap();
    let cache = Cache::start(&dir, &["--no-persist"]);
    let transcript = [
        ("SET username john_doe", "OK"),
        ("GET username", "john_doe"),
        ("SET session -t 30s \"active session\"", "OK"),
        ("get session", "active session"),
        ("SETS fruits apple \"red cherry\" fig", "OK"),
        ("GET fruits", "[apple red cherry fig]"),
        ("SETX person name \"John Doe\" age 30 city NYC", "OK"),
        ("GET person", "{\"age\":\"30\",\"city\":\"NYC\",\"name\":\"John Doe\"}"),
        ("SETNX username jane", "NOT_SET"),
        ("SETNX fresh -t 1h new", "OK"),
        ("SETSNX fruits pear", "NOT_SET"),
        ("SETSNX ports -t 30m 80 443", "OK"),
        ("GET ports", "[80 443]"),
        ("SETXNX person name Jane", "NOT_SET"),
        ("SETXNX config -t 2h debug true", "OK"),
        ("GET config", "{\"debug\":\"true\"}"),
        ("DEL username", "OK"),
        ("DEL username", "NOT_FOUND"),
        ("GET username", "NULL"),
        ("KEYS po*", "ports"),
        ("KEYS none*", "EMPTY"),
        (
            "SETX user name John age",
            "ERROR SETX requires even number of arguments for key-value pairs",
        ),
        ("SETX user name", "ERROR SETX requires key and at least one key-value pair"),
        ("SETS empty_key", "ERROR SETS requires key and at least one array element"),
        ("SET", "ERROR SET requires key and value"),
        ("GET", "ERROR GET requires key"),
        ("DEL", "ERROR DEL requires key"),
        ("SET k -t soon v", "ERROR invalid ttl value: invalid TTL format: soon"),
        ("NONSENSE", "ERROR unknown command"),
        ("SET k \"open", "ERROR unbalanced quotes"),
        ("AUTH secret", "OK no authentication required"),
        ("FLUSHALL", "OK"),
        ("KEYS *", "EMPTY"),
    ];
    let mut stream = cache.text();
    for (line, answer) in transcript {
        ask(&mut stream, &format!("{line}\n"), &format!("{answer}\n"));
    }
}

#[test]
fn both_protocols_see_the_same_keys() {
    let dir = tempfile::tempdir().unwrap();
    for server in ["per-connection", "pooled"] {
        let cache = Cache::start(&dir, &["--no-persist", "--server", server]);
        let (mut resp, mut text) = (cache.resp(), cache.text());
        ask(&mut text, "SETS list -t 5m a b\n", "OK\n");
        ask(&mut resp, "LRANGE list 0 -1\r\n", "*2\r\n$1\r\na\r\n$1\r\nb\r\n");
        ask(&mut resp, "TTL list\r\n", ":300\r\n");
        ask(&mut text, "SETX hash f v\n", "OK\n");
        ask(&mut resp, "HGET hash f\r\n", "$1\r\nv\r\n");
        ask(&mut resp, "ZADD scores 1 one\r\n", ":1\r\n");
        ask(&mut text, "GET scores\n", "{\"one\":\"1\"}\n");
        // Overwriting a key that had a deadline leaves the new value without one.
        ask(&mut text, "SETS list c\n", "OK\n");
        ask(&mut resp, "TTL list\r\n", ":-1\r\n");
    }
}

#[test]
fn a_password_is_asked_for_by_both_protocols() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("password"), "correct horse\n").unwrap();
    let cache = Cache::start(&dir, &["--no-persist", "--password-file", "password"]);
    let (mut resp, mut text) = (cache.resp(), cache.text());
    ask(&mut resp, "GET a\r\n", "-NOAUTH Authentication required.\r\n");
    ask(&mut resp, "AUTH \"correct horse\"\r\nGET a\r\n", "+OK\r\n$-1\r\n");
    ask(&mut text, "GET a\n", "ERROR authentication required\n");
    ask(&mut text, "AUTH wrong\n", "ERROR invalid password\n");
    ask(&mut text, "AUTH \"correct horse\"\nGET a\n", "OK authenticated\nNULL\n");
}

#[test]
fn listening_beyond_this_machine_needs_a_password() {
    let dir = tempfile::tempdir().unwrap();
    let args = ["cache", "serve", "--no-persist", "--resp", "0.0.0.0:0", "--text", ""];
    let output = run(&dir, &args);
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("password_file"), "{}", stderr(&output));
}

#[test]
fn what_was_acknowledged_is_there_after_a_kill_and_after_a_stop() {
    let dir = tempfile::tempdir().unwrap();
    let cache = Cache::start(&dir, &[]);
    let mut stream = cache.resp();
    ask(&mut stream, "SET a 1\r\nRPUSH l x y\r\nSET gone v PX 1\r\n", "+OK\r\n:2\r\n+OK\r\n");
    cache.signal("KILL");
    cache.wait();
    let cache = Cache::start(&dir, &[]);
    let mut stream = cache.resp();
    ask(&mut stream, "GET a\r\nLLEN l\r\nEXISTS gone\r\n", "$1\r\n1\r\n:2\r\n:0\r\n");
    ask(&mut stream, "INCR a\r\n", ":2\r\n");
    cache.signal("TERM");
    assert_eq!(cache.wait(), Some(0));
    let output = run(&dir, &["cache", "check", "forebay-data"]);
    assert!(output.status.success(), "{}", stderr(&output));
    let cache = Cache::start(&dir, &[]);
    ask(&mut cache.resp(), "GET a\r\n", "$1\r\n2\r\n");
}

#[test]
fn a_stop_under_load_keeps_every_acknowledged_write() {
    for server in ["per-connection", "pooled"] {
        // A separate directory: earlier writes would be mistaken for new ones.
        let dir = tempfile::tempdir().unwrap();
        let cache = Cache::start(&dir, &["--server", server]);
        let address = cache.resp;
        let writers: Vec<_> = (0..4)
            .map(|writer| {
                std::thread::spawn(move || {
                    let mut stream = Cache::connect(address);
                    let mut acknowledged = 0;
                    loop {
                        let line = format!("SET {writer} {}\r\n", acknowledged + 1);
                        let mut reply = [0; 5];
                        if stream.write_all(line.as_bytes()).is_err()
                            || stream.read_exact(&mut reply).is_err()
                        {
                            return acknowledged;
                        }
                        assert_eq!(&reply, b"+OK\r\n");
                        acknowledged += 1;
                    }
                })
            })
            .collect();
        let mut stream = cache.resp();
        let deadline = Instant::now() + HANG;
        loop {
            assert!(Instant::now() < deadline, "no writer writes");
            ask(&mut stream, "GET 3\r\n", "$");
            let mut rest = [0; 64];
            let count = stream.read(&mut rest).unwrap();
            if count > "2\r\n10\r\n".len() {
                break;
            }
        }
        cache.signal("TERM");
        assert_eq!(cache.wait(), Some(0));
        let cache = Cache::start(&dir, &[]);
        let mut reader = BufReader::new(cache.resp());
        for (writer, acknowledged) in writers.into_iter().enumerate() {
            let acknowledged: u64 = acknowledged.join().unwrap();
            reader.get_mut().write_all(format!("GET {writer}\r\n").as_bytes()).unwrap();
            let mut line = String::new();
            reader.read_line(&mut line).unwrap();
            let stored: u64 = match line.trim() {
                "$-1" => 0,
                _ => {
                    line.clear();
                    reader.read_line(&mut line).unwrap();
                    line.trim().parse().unwrap()
                }
            };
            // One more may have been written and its reply lost.
            assert!(
                stored == acknowledged || stored == acknowledged + 1,
                "{stored} {acknowledged}"
            );
        }
    }
}

#[test]
fn the_client_answers_commands_lines_and_the_text_protocol() {
    let dir = tempfile::tempdir().unwrap();
    let cache = Cache::start(&dir, &["--no-persist"]);
    let (resp, text) = (cache.resp.to_string(), cache.text.to_string());
    let say = |args: &[&str], input: &str| {
        let mut child = forebay(&dir)
            .args(["cache", "cli"])
            .args(args)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
        let output = child.wait_with_output().unwrap();
        (String::from_utf8(output.stdout).unwrap(), output.status.code())
    };
    assert_eq!(say(&["--resp", &resp, "SET", "k", "a b"], ""), ("OK\n".to_owned(), Some(0)));
    let piped = say(&["--resp", &resp], "GET k\n\nRPUSH l 1 2\nLRANGE l 0 -1\n");
    assert_eq!(piped, ("a b\n2\n1\n2\n".to_owned(), Some(0)));
    let refused = say(&["--resp", &resp, "NONSENSE"], "");
    assert!(refused.0.starts_with("ERR unknown command") && refused.1 == Some(1), "{refused:?}");
    assert_eq!(say(&["--text", &text], "GET l\n"), ("[1 2]\n".to_owned(), Some(0)));
    assert_eq!(say(&["--resp", &resp, "-3", "GET", "none"], ""), ("\n".to_owned(), Some(0)));
}

#[test]
fn the_load_generator_loads_both_protocols_and_counts_what_was_answered() {
    let dir = tempfile::tempdir().unwrap();
    let cache = Cache::start(&dir, &["--no-persist"]);
    let (resp, text) = (cache.resp.to_string(), cache.text.to_string());
    let pid = cache.child.id().to_string();
    for (protocol, address) in [("--resp", &resp), ("--text", &text)] {
        let output = run(
            &dir,
            &[
                "cache",
                "bench",
                protocol,
                address,
                "--requests",
                "5000",
                "--clients",
                "7",
                "--pipeline",
                "16",
                "--keys",
                "100",
                "--zipf",
                "0.9",
                "--pid",
                &pid,
                "--json",
            ],
        );
        assert!(output.status.success(), "{}", stderr(&output));
        let figures: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(figures["requests"], 5_000, "{figures}");
        assert_eq!(figures["errors"], 0, "{figures}");
        assert!(figures["hits"].as_u64().unwrap() > 1_000, "{figures}");
    }
    ask(&mut cache.resp(), "DBSIZE\r\n", ":");
}

#[test]
fn a_client_ends_the_server_with_shutdown_and_keeps_what_was_written() {
    for (way, words) in [("per-connection", "SHUTDOWN"), ("pooled", "SHUTDOWN SAVE NOW")] {
        let dir = tempfile::tempdir().unwrap();
        let cache = Cache::start(&dir, &["--server", way]);
        let (mut stream, mut other) = (cache.resp(), cache.resp());
        ask(&mut other, "PING\r\n", "+PONG\r\n");
        ask(&mut stream, &format!("SET a 1\r\n{words}\r\n"), "+OK\r\n");
        for stream in [&mut stream, &mut other] {
            assert_eq!(stream.read(&mut [0; 1]).unwrap(), 0, "{words}: no reply, and closed");
        }
        assert_eq!(cache.wait(), Some(0), "{words}");
        let cache = Cache::start(&dir, &[]);
        ask(&mut cache.resp(), "GET a\r\n", "$1\r\n1\r\n");
    }
}

#[test]
fn forebay_serve_serves_the_cache_and_shows_its_metrics() {
    let dir = tempfile::tempdir().unwrap();
    let any = ["--set", "cache.resp=127.0.0.1:0", "--set", "cache.text="];
    let server = crate::support::Server::start(&dir, &any);
    let log = std::fs::read_to_string(dir.path().join("log")).unwrap();
    let open = log.lines().find(|line| line.contains("cache open")).unwrap();
    let open: serde_json::Value = serde_json::from_str(open).unwrap();
    let address = open["resp"].as_str().unwrap().parse().unwrap();
    let mut stream = Cache::connect(address);
    ask(&mut stream, "SET a 1\r\nGET a\r\n", "+OK\r\n$1\r\n1\r\n");
    // It serves more than the cache, so a client must not end it.
    let refused =
        "-ERR SHUTDOWN is refused: this cache is part of a larger server; stop that one\r\n";
    ask(&mut stream, "SHUTDOWN NOSAVE\r\n", refused);
    let metrics = server.get("/metrics").body;
    let of = |name: &str| {
        let line = metrics.lines().find(|line| line.starts_with(&format!("{name} ")));
        line.unwrap_or_else(|| panic!("no {name} in {metrics}")).to_owned()
    };
    assert_eq!(of("forebay_cache_keys"), "forebay_cache_keys 1");
    assert_eq!(of("forebay_cache_connections"), "forebay_cache_connections 1");
    server.signal("TERM");
    assert_eq!(server.wait(), Some(0));
    assert!(
        stream.read(&mut [0; 1]).is_ok_and(|count| count == 0)
            || stream.shutdown(Shutdown::Both).is_err()
    );
}
