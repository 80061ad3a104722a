//! Small inputs that try to cause much work or memory use.

use std::io::{Read as _, Write as _};
use std::time::Instant;

use anyhow::Context as _;

use super::load::memory_within;
use super::server::Server;
use super::stage::Stage;
use super::wire::connect;
use super::{Check, claim};

pub(super) const CHECKS: [Check; 3] = [
    Check::quick(
        "bombs",
        "deep, wide and endless requests are refused and use no memory",
        requests,
    ),
    Check::quick("bombs", "sizes announced by cache clients allocate no memory", announced),
    Check::quick("bombs", "a pipeline file that expands itself is reported as invalid", yaml),
];

/// Memory limit for all of them: bodies of a few MiB each, as JSON, and the allocator's overhead.
const MEMORY_MAX: u64 = 128 << 20;

fn requests(stage: &Stage) -> anyhow::Result<String> {
    let server = stage.serve("data", &[])?;
    server.want("PUT", "/v1/files/attack/a", b"a", &[200, 201])?;
    let before = server.resident()?;
    let begun = Instant::now();
    let deep = [vec![b'['; 1 << 20], vec![b']'; 1 << 20]].concat();
    let nested = format!("{}1{}", "{\"a\":".repeat(200_000), "}".repeat(200_000)).into_bytes();
    let keys: Vec<String> = (0..100_000).map(|number| format!("\"k{number}\":{number}")).collect();
    let wide = format!("{{{}}}", keys.join(",")).into_bytes();
    let bodies: [(&str, &[u8]); 3] = [("deep", &deep), ("nested", &nested), ("wide", &wide)];
    for (what, body) in bodies {
        for path in ["/v1/documents/attack", "/v1/events?stream=attack", "/v1/inventories/attack"] {
            let answer = server.ask("POST", path, "", body)?;
            claim(answer.status < 500, || format!("{what} to {path}: {}", answer.shown()))?;
        }
    }
    for pattern in ["(a{1000}){1000}", "((((a*)*)*)*)*b", &"(".repeat(20_000)] {
        let pattern: String = pattern.bytes().map(|byte| format!("%{byte:02X}")).collect();
        let path = format!("/v1/events?regex={}", pattern.get(..12_000).unwrap_or(&pattern));
        let answer = server.ask("GET", &path, "", b"")?;
        claim(answer.status < 500, || format!("a pattern: {}", answer.shown()))?;
    }
    let endless = format!("x: {}\r\n", "y".repeat(1 << 20));
    let answer = server.ask("GET", "/v1/files", &endless, b"");
    // The server may close the connection while the header is still being sent.
    if let Ok(answer) = answer {
        claim(matches!(answer.status, 400 | 431), || format!("a header: {}", answer.shown()))?;
    }
    parts(&server)?;
    server.want("GET", "/healthz", b"", &[200])?;
    let memory = memory_within(before, server.resident()?, MEMORY_MAX)?;
    Ok(format!("{memory}, {:.1} s", begun.elapsed().as_secs_f64()))
}

/// A multipart body with more parts than allowed.
fn parts(server: &Server) -> anyhow::Result<()> {
    let part = "--b\r\ncontent-disposition: form-data; name=\"f\"; filename=\"a\"\r\n\r\n\r\n";
    let body = format!("{}--b--\r\n", part.repeat(12_000)).into_bytes();
    let kind = "content-type: multipart/form-data; boundary=b\r\n";
    if let Ok(answer) = server.ask("POST", "/v1/ingest?namespace=attack", kind, &body) {
        claim(matches!(answer.status, 200..500), || format!("parts: {}", answer.shown()))?;
    }
    Ok(())
}

fn announced(stage: &Stage) -> anyhow::Result<String> {
    let server = stage.serve("data", &[])?;
    let mut own = server.resp()?;
    own.want(&["SET", "kept", "1"], "OK")?;
    let before = server.resident()?;
    let announcements = [
        "*1000000000\r\n",
        "*1048576\r\n$3\r\nSET\r\n",
        "*3\r\n$3\r\nSET\r\n$1\r\na\r\n$536870912\r\n",
        "*3\r\n$3\r\nSET\r\n$1\r\na\r\n$99999999999999999999\r\n",
        "*-2147483648\r\n",
    ];
    let mut held = Vec::new();
    for announcement in announcements.iter().cycle().take(100) {
        let mut stream = connect(server.resp)?;
        // An immediate refusal is right, too.
        stream.write_all(announcement.as_bytes()).unwrap_or_default();
        held.push(stream);
    }
    let mut text = connect(server.text)?;
    let line = vec![b'a'; 3 << 20];
    text.write_all(&line).unwrap_or_default();
    let mut reply = [0; 64];
    let size = text.read(&mut reply).unwrap_or(0);
    let reply = String::from_utf8_lossy(reply.get(..size).unwrap_or_default()).into_owned();
    claim(reply.is_empty() || reply.starts_with("ERROR"), || format!("a long line: {reply:?}"))?;
    own.want(&["GET", "kept"], "1")?;
    memory_within(before, server.resident()?, MEMORY_MAX)
}

fn yaml(stage: &Stage) -> anyhow::Result<String> {
    let dir = stage.dir.join("data/pipelines");
    std::fs::create_dir_all(&dir).context("cannot create the pipelines' directory")?;
    let mut bomb = String::from("a0: &a0 [x, x, x, x, x, x, x, x, x]\n");
    for level in 1..12 {
        let before = format!("*a{}", level - 1);
        let nine = [before.as_str(); 9].join(", ");
        bomb.push_str(&format!("a{level}: &a{level} [{nine}]\n"));
    }
    bomb.push_str("version: 1\npipeline: *a11\n");
    std::fs::write(dir.join("bomb.yaml"), bomb).context("cannot write a pipeline")?;
    let deep = format!("version: {}", "[".repeat(100_000));
    std::fs::write(dir.join("deep.yaml"), deep).context("cannot write a pipeline")?;
    let server = stage.serve("data", &[])?;
    let before = server.resident()?;
    server.want("GET", "/v1/pipelines", b"", &[200])?;
    for name in ["bomb", "deep"] {
        for path in [format!("/v1/pipelines/{name}"), format!("/v1/pipelines/{name}/plan")] {
            let answer = server.ask("GET", &path, "", b"")?;
            claim(answer.status < 500, || format!("GET {path}: {}", answer.shown()))?;
        }
        let path = format!("/v1/pipelines/{name}/runs");
        let answer = server.ask("POST", &path, "", b"")?;
        claim((400..500).contains(&answer.status), || format!("POST {path}: {}", answer.shown()))?;
    }
    memory_within(before, server.resident()?, MEMORY_MAX)
}
