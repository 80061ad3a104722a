//! A disk that fills up under the cache: a small file system of its own, in a mount namespace.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, ChildStdout, Command, Stdio};

use forebay_base::fs::sim::Rng;
use tempfile::TempDir;

use crate::support::{Answer, HANG, send};

/// Serves from a file system with room for one segment of the log, then, when that server is gone,
/// from the same with more.
const SCRIPT: &str = r#"
    mount -t tmpfs -o size=100m none "$0" || exit 77
    "$@"
    mount -o remount,size=600m "$0" && exec "$@"
"#;
/// Bytes of a value, which does not get smaller when compressed.
const VALUE_SIZE: usize = 1 << 20;

/// Whether such a file system can be made here.
#[expect(clippy::print_stderr, reason = "a test that is left out says so")]
fn can_mount() -> bool {
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

    fn log(&self) -> String {
        std::fs::read_to_string(self.dir.path().join("log")).unwrap()
    }

    /// Waits for the next server; returns where it speaks HTTP, or RESP where it does not, and RESP.
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
        // The shell and the server it waits for. Already ended is as good.
        let group = format!("-{}", self.child.id());
        let killed = Command::new("kill").args(["-s", "KILL", "--", &group]).output();
        killed.map(drop).unwrap_or_default();
        self.child.wait().map(drop).unwrap_or_default();
    }
}

/// A RESP connection that sends words of any bytes and reads replies of one part.
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

/// Writes values until one is refused; returns how many were taken, and the refusal.
fn fill(client: &mut Resp) -> (u64, String) {
    let mut kept = 0;
    loop {
        assert!(kept < 200, "the disk does not fill up");
        let told = client.ask(&[b"SET", kept.to_string().as_bytes(), &value(kept)]);
        if told != b"+OK" {
            return (kept, String::from_utf8_lossy(&told).into_owned());
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

#[test]
fn a_full_disk_refuses_writes_keeps_what_it_acknowledged_and_is_told_by_readyz() {
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
    let answer = readyz(http);
    assert_eq!(answer.status, 503, "{answer:?}");
    assert!(answer.body.contains("cache") && answer.body.contains("log has failed"), "{answer:?}");
    // What was changed last may not be on disk, so nothing is shown any more.
    for words in [&[&b"SET"[..], b"0", b"x"][..], &[b"GET", b"0"]] {
        let told = Resp::connect(resp).ask(words);
        assert!(told.starts_with(b"-MISCONF"), "{}", told.escape_ascii());
    }
    assert!(Command::new("kill").args(["-s", "KILL", pid]).status().unwrap().success());
    let (http, resp) = servers.next();
    assert_eq!(readyz(http).status, 200);
    let mut client = Resp::connect(resp);
    for number in 0..kept {
        let found = client.ask(&[b"GET", number.to_string().as_bytes()]);
        assert!(found == value(number), "{number} is {} bytes", found.len());
    }
    assert_eq!(client.ask(&[b"SET", b"more", b"x"]), b"+OK");
}

#[test]
fn a_cache_alone_whose_disk_is_full_ends_so_that_somebody_looks() {
    if !can_mount() {
        return;
    }
    let serve = ["cache", "serve", "--resp", "127.0.0.1:0", "--text", ""];
    let mount = r#"mount -t tmpfs -o size=100m none "$0" && exec "$@""#;
    let mut servers = Servers::start(mount, &serve);
    let (_, resp) = servers.next();
    let (kept, refusal) = fill(&mut Resp::connect(resp));
    assert!(kept > 40 && refusal.contains("MISCONF"), "{kept} {refusal}");
    assert_eq!(servers.child.wait().unwrap().code(), Some(1));
    let log = servers.log();
    assert!(log.contains("the cache is not well") && log.contains("log has failed"), "{log}");
}
