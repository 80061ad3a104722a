//! Unauthenticated clients of a server that has keys.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::Command;

use anyhow::Context as _;

use super::stage::{Skipped, Stage};
use super::wire::connect;
use super::{Check, claim};

pub(super) const CHECKS: [Check; 3] = [
    Check::quick(
        "keys",
        "with a key, the cache's protocols refuse unauthenticated clients",
        caches,
    ),
    Check::quick("keys", "a TLS server open to other machines does not start without a key", tls),
    Check::quick("keys", "removing keys.toml does not open the store", removed),
];

/// An existing file.
const FILE: &str = "/v1/files/attack/secret";

/// Creates a key for the data directory `data`; returns its secret.
fn new_key(stage: &Stage, data: &str) -> anyhow::Result<String> {
    let args = ["key", "new", "--name", "attack", "--scope", "write", "--scope", "read", "--json"];
    let output = stage.run(&[&args[..], &["--data", data]].concat(), 30)?;
    let said = String::from_utf8_lossy(&output.stderr);
    claim(output.status.success(), || format!("cannot create a key: {said}"))?;
    let made: serde_json::Value =
        serde_json::from_slice(&output.stdout).context("a new key is not JSON")?;
    Ok(made["key"].as_str().context("a new key has no secret")?.to_owned())
}

fn caches(stage: &Stage) -> anyhow::Result<String> {
    new_key(stage, "data")?;
    let server = stage.serve("data", &[])?;
    let mut stranger = server.resp()?;
    let commands: [&[&str]; 6] = [
        &["SET", "a", "1"],
        &["GET", "a"],
        &["FLUSHALL"],
        &["CONFIG", "GET", "*"],
        &["SUBSCRIBE", "a"],
        &["AUTH", "wrong"],
    ];
    for words in commands {
        let reply = stranger.ask(words)?;
        let is_refused = reply.starts_with("-NOAUTH") || reply.starts_with("-WRONGPASS");
        claim(is_refused, || format!("{words:?} without a key returned {reply:?}"))?;
    }
    let mut text = connect(server.text)?;
    let mut lines = BufReader::new(text.try_clone().context("cannot duplicate a socket")?);
    for line in ["SET a 1", "GET a", "FLUSHALL"] {
        writeln!(text, "{line}").context("cannot send a line")?;
        let mut reply = String::new();
        lines.read_line(&mut reply).context("cannot read a line")?;
        claim(reply.starts_with("ERROR"), || format!("{line:?} returned {reply:?}"))?;
    }
    let answer = server.ask("GET", "/v1/files", "", b"")?;
    claim(answer.status == 401, || format!("/v1/files returned {}", answer.shown()))?;
    Ok(String::new())
}

fn tls(stage: &Stage) -> anyhow::Result<String> {
    let mut make = Command::new("openssl");
    make.current_dir(&stage.dir).args(["req", "-x509", "-newkey", "ec", "-nodes", "-days", "1"]);
    make.args(["-pkeyopt", "ec_paramgen_curve:prime256v1", "-subj", "/CN=localhost"]);
    make.args(["-keyout", "key.pem", "-out", "cert.pem"]);
    if !crate::command::works(&mut make) {
        return Err(
            Skipped("openssl is not installed, so no certificate can be created".into()).into()
        );
    }
    let without_cache = ["--set", "cache.enabled=false"];
    let args = ["serve", "--listen", "0.0.0.0:0", "--data", "data"];
    let tls = ["--tls-cert", "cert.pem", "--tls-key", "key.pem"];
    // If it were not refused, the server would listen and is then stopped.
    let output = stage.run(&[&args[..], &tls, &without_cache].concat(), 10)?;
    let said = String::from_utf8_lossy(&output.stderr);
    let code = output.status.code();
    claim(matches!(code, Some(2 | 3)), || format!("the server exited with {code:?}: {said}"))?;
    claim(said.contains("forebay key new"), || format!("the message names no solution: {said}"))?;
    Ok(String::new())
}

fn removed(stage: &Stage) -> anyhow::Result<String> {
    let key = new_key(stage, "data")?;
    let server = stage.serve("data", &[])?;
    let head = format!("authorization: Bearer {key}\r\n");
    let answer = server.ask("PUT", FILE, &head, b"secret")?;
    claim(matches!(answer.status, 200 | 201), || format!("with its key: {}", answer.shown()))?;
    std::fs::remove_file(stage.dir.join("data/keys.toml")).context("cannot remove keys.toml")?;
    let answer = server.ask("GET", FILE, "", b"")?;
    claim(answer.status == 401, || format!("the running server returns {}", answer.shown()))?;
    server.stop(stage)?;
    // Either it does not start, or it still requires a key.
    let Ok(server) = stage.serve("data", &[]) else {
        return Ok("the server does not start".into());
    };
    let answer = server.ask("GET", FILE, "", b"")?;
    claim(answer.status == 401, || format!("the restarted server returns {}", answer.shown()))?;
    let reply = server.resp()?.ask(&["KEYS", "*"])?;
    claim(reply.starts_with("-NOAUTH"), || format!("the cache returns {reply:?}"))?;
    Ok("the server requires a key".into())
}
