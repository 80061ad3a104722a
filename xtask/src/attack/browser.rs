//! Requests that a foreign page can make a browser send: foreign hosts, foreign origins, HTTP to
//! the cache's ports.

use std::io::{Read as _, Write as _};

use super::server::Server;
use super::stage::Stage;
use super::wire::{connect, http};
use super::{Check, claim};

pub(super) const CHECKS: [Check; 6] = [
    Check::quick("browser", "a missing, duplicate or foreign Host is refused", foreign_hosts),
    Check::quick(
        "browser",
        "this machine's names and those in server.hosts are accepted",
        own_hosts,
    ),
    Check::quick("browser", "a foreign or null Origin is refused for every method", origins),
    Check::quick("browser", "no response grants access to another origin", no_grants),
    Check::quick(
        "browser",
        "the cache's ports close HTTP connections and run no command of them",
        http_at_caches,
    ),
    Check::quick("browser", "every response forbids content sniffing", nosniff),
];

/// An existing file.
const FILE: &str = "/v1/files/attack/secret";

fn server(stage: &Stage, settings: &[&str]) -> anyhow::Result<Server> {
    let server = stage.serve("data", settings)?;
    server.want("PUT", FILE, b"secret", &[200, 201])?;
    Ok(server)
}

fn foreign_hosts(stage: &Stage) -> anyhow::Result<String> {
    let server = server(stage, &[])?;
    let port = server.http.port();
    let own = server.http;
    let hosts = [
        String::new(),
        format!("host: {own}\r\nhost: {own}\r\n"),
        format!("host: {own}\r\nhost: evil.test\r\n"),
        "host: evil.test\r\n".to_owned(),
        format!("host: evil.test:{port}\r\n"),
        format!("host: 127.0.0.1.evil.test:{port}\r\n"),
        format!("host: localhost.evil.test:{port}\r\n"),
        format!("host: evil.test@127.0.0.1:{port}\r\n"),
        "host: 192.0.2.1\r\n".to_owned(),
        "host: \r\n".to_owned(),
    ];
    for head in &hosts {
        for (method, path) in [("GET", FILE), ("DELETE", FILE), ("GET", "/v1/files")] {
            let answer = http(server.http, method, path, head, b"")?;
            claim(matches!(answer.status, 400 | 403 | 421), || {
                format!("{method} {path} with {head:?} returned {}", answer.shown())
            })?;
        }
    }
    server.want("GET", FILE, b"", &[200])?;
    Ok(format!("{} ways", hosts.len()))
}

fn own_hosts(stage: &Stage) -> anyhow::Result<String> {
    let server = server(stage, &["server.hosts=forebay.example"])?;
    let port = server.http.port();
    let hosts = ["127.0.0.1", "localhost", "[::1]", "forebay.example"];
    for host in hosts {
        let head = format!("host: {host}:{port}\r\n");
        let answer = http(server.http, "GET", FILE, &head, b"")?;
        claim(answer.status == 200, || format!("{head:?} returned {}", answer.shown()))?;
    }
    let answer = http(server.http, "GET", FILE, "host: evil.test\r\n", b"")?;
    claim(answer.status != 200, || "server.hosts allows every host".to_owned())?;
    Ok(String::new())
}

fn origins(stage: &Stage) -> anyhow::Result<String> {
    let server = server(stage, &[])?;
    let port = server.http.port();
    let foreign = [
        "null".to_owned(),
        "http://evil.test".to_owned(),
        format!("http://evil.test:{port}"),
        format!("http://127.0.0.1.evil.test:{port}"),
        // Another port of this machine is another program.
        "http://127.0.0.1:1".to_owned(),
    ];
    let methods = ["GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "PATCH"];
    for origin in &foreign {
        for method in methods {
            for path in [FILE, "/v1/documents/attack", "/v1/inventories/attack"] {
                let answer = server.ask(method, path, &format!("origin: {origin}\r\n"), b"{}")?;
                claim(answer.status == 403, || {
                    format!("{method} {path} from {origin} returned {}", answer.shown())
                })?;
            }
        }
    }
    let own = format!("origin: http://{}\r\n", server.http);
    let answer = server.ask("GET", FILE, &own, b"")?;
    claim(answer.status == 200, || {
        format!("a request from its own pages returned {}", answer.shown())
    })?;
    Ok(format!("{} origins, {} methods", foreign.len(), methods.len()))
}

fn no_grants(stage: &Stage) -> anyhow::Result<String> {
    let server = server(stage, &[])?;
    let asked = "access-control-request-method: PUT\r\naccess-control-request-headers: x\r\n";
    for origin in ["null", "http://evil.test", "http://localhost"] {
        for method in ["GET", "OPTIONS", "POST"] {
            let head = format!("origin: {origin}\r\n{asked}");
            let answer = server.ask(method, FILE, &head, b"")?;
            let grants = answer.headers_of("access-control-");
            claim(grants.is_empty(), || format!("{method} from {origin} was granted {grants:?}"))?;
        }
    }
    Ok(String::new())
}

fn http_at_caches(stage: &Stage) -> anyhow::Result<String> {
    let server = server(stage, &[])?;
    let mut cache = server.resp()?;
    cache.want(&["SET", "kept", "1"], "OK")?;
    for address in [server.resp, server.text] {
        for head in [
            "POST / HTTP/1.1\r\nHost: x\r\n\r\n",
            "GET / HTTP/1.1\r\nHost: x\r\n\r\n",
            "Host: x\r\n",
        ] {
            let mut stream = connect(address)?;
            let body = "SET evil 1\r\nFLUSHALL\r\nDEL kept\r\nPING\r\n";
            // The server may close the connection during this, as it should.
            stream.write_all(format!("{head}{body}").as_bytes()).unwrap_or_default();
            let mut reply = Vec::new();
            // A reset counts as an end, too; an open connection runs into the time limit of the
            // read.
            if let Err(error) = stream.read_to_end(&mut reply) {
                let is_open = matches!(
                    error.kind(),
                    std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut
                );
                claim(!is_open, || format!("{address} stays open after {head:?}"))?;
            }
            let reply = String::from_utf8_lossy(&reply);
            claim(!reply.contains("PONG"), || {
                format!("{address} continued after {head:?}: {reply}")
            })?;
        }
    }
    cache.want(&["GET", "kept"], "1")?;
    cache.want(&["EXISTS", "evil"], "0")?;
    Ok(String::new())
}

fn nosniff(stage: &Stage) -> anyhow::Result<String> {
    let server = server(stage, &[])?;
    let asked = [
        ("GET", "/", ""),
        ("GET", "/healthz", ""),
        ("GET", "/readyz", ""),
        ("GET", "/metrics", ""),
        ("GET", "/docs", ""),
        ("GET", "/docs/app.js", ""),
        ("GET", "/openapi.json", ""),
        ("GET", "/v1/files", ""),
        ("GET", FILE, ""),
        ("HEAD", FILE, ""),
        ("GET", FILE, "range: bytes=0-1\r\n"),
        ("GET", FILE, "range: bytes=900-\r\n"),
        ("GET", FILE, "if-none-match: *\r\n"),
        ("GET", "/v1/nowhere", ""),
        ("GET", "/nowhere", ""),
        ("PATCH", "/v1/files", ""),
        ("GET", "/v1/files?limit=x", ""),
        ("GET", "/v1/events", ""),
        ("GET", "/v1/documents", ""),
        ("GET", "/v1/inventories", ""),
        ("GET", "/v1/pipelines", ""),
        ("GET", "/v1/files", "origin: http://evil.test\r\n"),
        ("GET", "/v1/files", "x-forebay-attack: \u{7f}\r\n"),
    ];
    for (method, path, head) in asked {
        let answer = server.ask(method, path, head, b"")?;
        // The HTTP parser refuses a request without a body in the response: there is no type to
        // guess.
        let empty = answer.body.is_empty() && answer.header("content-type").is_none();
        claim(empty || answer.header("x-content-type-options") == Some("nosniff"), || {
            format!("{method} {path} with {head:?} ({}) lacks nosniff", answer.status)
        })?;
    }
    Ok(format!("{} answers", asked.len()))
}
