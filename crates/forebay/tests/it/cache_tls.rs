//! The cache over TLS, and its clients.

use std::io::{Read as _, Write as _};
use std::process::Output;
use std::time::Instant;

use tempfile::TempDir;

use crate::cache_support::Cache;
use crate::support::{HANG, Server, run, stderr};

/// A certificate for `name` in `cert.pem`, its key in `key.pem`, and a copy of it to trust.
fn certificate(dir: &TempDir, name: &str, trusted: &str) {
    let made = rcgen::generate_simple_self_signed(vec![name.to_owned()]).unwrap();
    let write = |file: &str, text: String| std::fs::write(dir.path().join(file), text).unwrap();
    write("cert.pem", made.cert.pem());
    write("key.pem", made.signing_key.serialize_pem());
    write(trusted, made.cert.pem());
}

fn start(dir: &TempDir, args: &[&str]) -> Cache {
    let tls = ["--tls-resp", "127.0.0.1:0", "--tls-cert", "cert.pem", "--tls-key", "key.pem"];
    Cache::start(dir, &[&["--no-persist"], &tls[..], args].concat())
}

fn say(dir: &TempDir, cache: &Cache, trust: &[&str], words: &[&str]) -> Output {
    let address = cache.tls.unwrap().to_string();
    let args = ["cache", "cli", "--resp", &address, "--tls"];
    run(dir, &[&args[..], trust, words].concat())
}

#[test]
fn clients_that_trust_the_certificate_are_served_and_others_get_an_error() {
    let dir = tempfile::tempdir().unwrap();
    certificate(&dir, "localhost", "ca.pem");
    for server in ["per-connection", "pooled"] {
        let cache = start(&dir, &["--server", server]);
        let trust = ["--tls-ca", "ca.pem", "--tls-name", "localhost"];
        let long = "long ".repeat(20_000);
        assert_eq!(say(&dir, &cache, &trust, &["SET", "k", &long]).stdout, b"OK\n");
        let read = say(&dir, &cache, &trust, &["GET", "k"]).stdout;
        assert_eq!(read, format!("{long}\n").as_bytes());
        let other = say(&dir, &cache, &["--tls-ca", "ca.pem", "--tls-name", "other"], &["PING"]);
        assert_eq!(other.status.code(), Some(1));
        assert!(stderr(&other).contains("not valid for name"), "{}", stderr(&other));
        let stranger = say(&dir, &cache, &["--tls-ca", "none.pem"], &["PING"]);
        assert!(stderr(&stranger).contains("none.pem"), "{}", stderr(&stranger));
        let keys = ["cache", "keys", "--tls", "--resp", &cache.tls.unwrap().to_string()];
        let keys = run(&dir, &[&keys[..], &trust].concat());
        assert!(String::from_utf8_lossy(&keys.stdout).contains("1 keys in database 0"));
        // A client without TLS is closed without harm to others.
        let mut plain = Cache::connect(cache.tls.unwrap());
        plain.write_all(b"*1\r\n$4\r\nPING\r\n").unwrap();
        let mut answer = Vec::new();
        plain.read_to_end(&mut answer).unwrap_or_default();
        assert!(!answer.starts_with(b"+PONG"), "{answer:?}");
        assert_eq!(say(&dir, &cache, &trust, &["PING"]).stdout, b"PONG\n");
    }
}

#[test]
fn a_renewed_certificate_serves_new_connections_and_a_broken_one_does_not() {
    let dir = tempfile::tempdir().unwrap();
    certificate(&dir, "localhost", "old.pem");
    let cache = start(&dir, &[]);
    let trusts = |file: &str| {
        let trust = ["--tls-ca", file, "--tls-name", "localhost"];
        say(&dir, &cache, &trust, &["PING"]).status.success()
    };
    let until = |file: &str| {
        let deadline = Instant::now() + HANG;
        while !trusts(file) {
            assert!(Instant::now() < deadline, "{file} never serves");
        }
    };
    assert!(trusts("old.pem"));
    std::fs::write(dir.path().join("cert.pem"), "no certificate").unwrap();
    let deadline = Instant::now() + HANG;
    while !std::fs::read_to_string(dir.path().join("log"))
        .unwrap()
        .contains("cannot use the changed certificate")
    {
        assert!(trusts("old.pem"), "the previous one stays in use");
        assert!(Instant::now() < deadline, "nothing is logged about a broken certificate");
    }
    certificate(&dir, "localhost", "new.pem");
    until("new.pem");
    assert!(!trusts("old.pem"));
}

#[test]
fn conflicting_settings_are_refused_and_the_servers_certificate_is_the_default() {
    let dir = tempfile::tempdir().unwrap();
    let refused = |args: &[&str], why: &str| {
        let args = [&["cache", "serve", "--no-persist", "--resp", "", "--text", ""], args].concat();
        let output = run(&dir, &args);
        assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
        assert!(stderr(&output).contains(why), "{}", stderr(&output));
    };
    refused(&["--tls-resp", "127.0.0.1:0"], "cache.tls_cert");
    refused(&["--tls-resp", "127.0.0.1:0", "--tls-cert", "cert.pem"], "belong together");
    refused(&["--tls-resp", "0.0.0.0:0", "--tls-cert", "c", "--tls-key", "k"], "password_file");
    certificate(&dir, "localhost", "ca.pem");
    let cache = ["--set", "cache.resp=", "--set", "cache.text=", "--set"];
    let tls = ["cache.tls_resp=127.0.0.1:0", "--tls-cert", "cert.pem", "--tls-key", "key.pem"];
    let server = Server::start(&dir, &[&cache[..], &tls].concat());
    let log = std::fs::read_to_string(dir.path().join("log")).unwrap();
    let open = log.lines().find(|line| line.contains("cache open")).unwrap();
    let open: serde_json::Value = serde_json::from_str(open).unwrap();
    let address = open["tls_resp"].as_str().unwrap();
    let trust = ["--tls", "--tls-ca", "ca.pem", "--tls-name", "localhost", "PING"];
    let said = run(&dir, &[&["cache", "cli", "--resp", address][..], &trust].concat());
    assert_eq!(said.stdout, b"PONG\n", "{}", stderr(&said));
    drop(server);
}
