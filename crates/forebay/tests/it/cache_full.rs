//! A disk that fills up under the cache: a separate small file system, in a mount namespace.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Instant;

use forebay_base::fs::sim::Rng;
use tempfile::TempDir;

use crate::support::{Answer, HANG, send};

/// Serves from a file system with room for one segment of the log; then, when that server was
/// killed, from the same again; and enlarges it when a word arrives through the pipe.
const SCRIPT: &str = r#"
    mount -t tmpfs -o size=100m none "$0" || exit 77
    "$@"
    "$@" &
    read word < "$0.pipe" && mount -o remount,size=600m "$0"
    wait
"#;
/// Size of a value, which does not compress.
const VALUE_SIZE: usize = 1 << 20;

/// Whether such a file system can be created here.
#[expect(clippy::print_stderr, reason = "a test that is left out says so")]
pub(crate) fn can_mount() -> bool {
    let can = Command::new("unshare").args(["-rm", "true"]).output();
    if can.is_ok_and(|output| output.status.success()) {
        return true;
    }
    let required = std::env::var("FOREBAY_REQUIRE_SERVICES").is_ok_and(|it| it == "1");
    assert!(!required, "FOREBAY_REQUIRE_SERVICES=1, but mount namespaces are not permitted");
    eprintln!("LEFT OUT: mount namespaces are not permitted here");
    false
}

/// The two servers, one after the other.
struct Servers {
    child: Child,
    stdout: BufReader<ChildStdout>,
    dir: TempDir,
}

impl Servers {
    fn start(script: &str, command: &[&str]) -> Self {
        let dir = TempDir::new().unwrap();
        let cache = dir.path().join("data/cache");
        std::fs::create_dir_all(&cache).unwrap();
        let pipe = Command::new("mkfifo").arg(dir.path().join("data/cache.pipe")).status();
        assert!(pipe.unwrap().success());
        let mut child = Command::new("unshare")
            .args(["-rm", "sh", "-c", script])
            .arg(cache)
            .arg(env!("CARGO_BIN_EXE_forebay"))
            .args(command)
            .args(["--data", "data", "--log-format", "json"])
            .current_dir(dir.path())
            .process_group(0)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(std::fs::File::create(dir.path().join("log")).unwrap())
            .spawn()
            .unwrap();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        Self { child, stdout, dir }
    }

    /// Enlarges the file system.
    fn grow(&self) {
        std::fs::write(self.dir.path().join("data/cache.pipe"), "more\n").unwrap();
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.dir.path().join("log")).unwrap()
    }

    /// Waits until the log has a line with these words.
    fn wait_for_line(&self, words: &str) {
        let deadline = Instant::now() + HANG;
        while !self.log().contains(words) {
            assert!(Instant::now() < deadline, "no {words:?} in {}", self.log());
            std::thread::yield_now();
        }
    }

    /// Waits for the next server; returns its HTTP address, or RESP if it has none, and its RESP
    /// address.
    fn next(&mut self) -> (SocketAddr, SocketAddr) {
        let mut line = String::new();
        self.stdout.read_line(&mut line).unwrap();
        let log = self.log();
        let first = ["listening http://", "listening resp="];
        let http = first.iter().find_map(|start| line.trim().strip_prefix(start));
        let http = http.unwrap_or_else(|| panic!("{line:?}, log: {log}")).parse().unwrap();
        let open = log.lines().rev().find(|line| line.contains("cache open")).unwrap();
        let open: serde_json::Value = serde_json::from_str(open).unwrap();
        (http, open["resp"].as_str().unwrap().parse().unwrap())
    }
}

impl Drop for Servers {
    fn drop(&mut self) {
        // The shell and the server it waits for, which may have ended already.
        let group = format!("-{}", self.child.id());
        let killed = Command::new("kill").args(["-s", "KILL", "--", &group]).output();
        killed.map(drop).unwrap_or_default();
        self.child.wait().map(drop).unwrap_or_default();
    }
}

/// A RESP connection that sends arbitrary bytes and reads replies of one part.
struct Resp(BufReader<TcpStream>);

impl Resp {
    fn connect(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(HANG)).unwrap();
        Self(BufReader::new(stream))
    }

    fn ask(&mut self, words: &[&[u8]]) -> Vec<u8> {
        let mut bytes = format!("*{}\r\n", words.len()).into_bytes();
        for word in words {
            bytes.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
            bytes.extend_from_slice(word);
            bytes.extend_from_slice(b"\r\n");
        }
        self.0.get_mut().write_all(&bytes).unwrap();
        let mut line = String::new();
        self.0.read_line(&mut line).unwrap();
        let line = line.trim_end();
        match line.strip_prefix('$').map(|size| size.parse::<usize>()) {
            Some(Ok(size)) => {
                let mut bytes = vec![0; size + 2];
                self.0.read_exact(&mut bytes).unwrap();
                bytes.truncate(size);
                bytes
            }
            _ => line.as_bytes().to_vec(),
        }
    }
}

fn value(number: u64) -> Vec<u8> {
    let mut rng = Rng::new(number);
    (0..VALUE_SIZE / 8).flat_map(|_| (rng.below(usize::MAX) as u64).to_le_bytes()).collect()
}

/// Writes values until one is refused; returns the number accepted, and the refusal.
fn fill(client: &mut Resp) -> (u64, String) {
    let mut kept = 0;
    loop {
        assert!(kept < 200, "the disk does not fill up");
        let report = client.ask(&[b"SET", kept.to_string().as_bytes(), &value(kept)]);
        if report != b"+OK" {
            return (kept, String::from_utf8_lossy(&report).into_owned());
        }
        kept += 1;
    }
}

fn readyz(address: SocketAddr) -> Answer {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(HANG)).unwrap();
    send(&mut stream, "GET", "/readyz", "");
    Answer::read(&mut stream)
}

/// Asks until the answer is as expected.
fn until(client: &mut Resp, words: &[&[u8]], expected: &[u8]) {
    let deadline = Instant::now() + HANG;
    loop {
        let found = client.ask(words);
        if found == expected {
            return;
        }
        assert!(Instant::now() < deadline, "{}", found.escape_ascii());
        std::thread::yield_now();
    }
}

/// Acknowledged data is served, and writes are refused with the reason.
fn check_reads_alone(resp: SocketAddr, kept: u64) {
    let mut client = Resp::connect(resp);
    assert_eq!(client.ask(&[b"PING"]), b"+PONG");
    for number in 0..kept {
        let found = client.ask(&[b"GET", number.to_string().as_bytes()]);
        assert!(found == value(number), "{number} is {} bytes", found.len());
    }
    let report = client.ask(&[b"SET", b"0", b"x"]);
    let report = String::from_utf8_lossy(&report);
    assert!(
        report.starts_with("-MISCONF") && report.contains("until space is available"),
        "{report}"
    );
}

#[test]
fn a_full_disk_refuses_writes_serves_acknowledged_data_and_recovers_with_space() {
    if !can_mount() {
        return;
    }
    let serve = ["serve", "--listen", "127.0.0.1:0", "--set", "cache.resp=127.0.0.1:0"];
    let mut servers = Servers::start(SCRIPT, &[&serve[..], &["--set", "cache.text="]].concat());
    let (http, resp) = servers.next();
    let mut client = Resp::connect(resp);
    assert_eq!(readyz(http).status, 200);
    let info = String::from_utf8(client.ask(&[b"INFO"])).unwrap();
    let pid = info.lines().find_map(|line| line.strip_prefix("process_id:")).unwrap();
    let (kept, refusal) = fill(&mut client);
    assert!(refusal.contains("MISCONF"), "{refusal}");
    assert!(kept > 40, "{kept} values before the disk was full");
    check_reads_alone(resp, kept);
    let answer = readyz(http);
    assert_eq!(answer.status, 503, "{answer:?}");
    assert!(answer.body.contains("the cache refuses writes until"), "{answer:?}");
    assert!(Command::new("kill").args(["-s", "KILL", pid]).status().unwrap().success());
    // The disk is still full: the next server serves the data, and recovers by itself.
    let (http, resp) = servers.next();
    check_reads_alone(resp, kept);
    assert_eq!(readyz(http).status, 503);
    servers.grow();
    let mut client = Resp::connect(resp);
    until(&mut client, &[b"SET", b"more", b"x"], b"+OK");
    assert_eq!(readyz(http).status, 200);
    assert_eq!(client.ask(&[b"GET", b"more"]), b"x");
}

#[test]
fn a_cache_alone_with_a_full_disk_continues_serving() {
    if !can_mount() {
        return;
    }
    let serve = ["cache", "serve", "--resp", "127.0.0.1:0", "--text", ""];
    let script = r#"
        mount -t tmpfs -o size=100m none "$0" || exit 77
        "$@" &
        read word < "$0.pipe" && mount -o remount,size=600m "$0"
        wait
    "#;
    let mut servers = Servers::start(script, &serve);
    let (_, resp) = servers.next();
    let (kept, refusal) = fill(&mut Resp::connect(resp));
    assert!(kept > 40 && refusal.contains("MISCONF"), "{kept} {refusal}");
    check_reads_alone(resp, kept);
    servers.grow();
    until(&mut Resp::connect(resp), &[b"SET", b"more", b"x"], b"+OK");
    // A write may be accepted a moment before the log line appears.
    servers.wait_for_line("refuses writes");
    servers.wait_for_line("accepts writes again");
}
