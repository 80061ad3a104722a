//! More connections than the process has descriptors for: the cache has one share, storage another.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, Command, Stdio};

use tempfile::TempDir;

use crate::cache_support::ask;
use crate::support::{Answer, HANG};

/// A server with this limit on open files; killed when dropped.
struct Limited {
    child: Child,
    dir: TempDir,
    line: String,
}

impl Limited {
    fn start(files: u32, args: &[&str]) -> Self {
        let dir = TempDir::new().unwrap();
        let mut child = Command::new("sh")
            .args(["-c", &format!("ulimit -n {files} && exec \"$0\" \"$@\"")])
            .arg(env!("CARGO_BIN_EXE_forebay"))
            .args(args)
            .args(["--data", "data", "--log-format", "json"])
            .current_dir(dir.path())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(std::fs::File::create(dir.path().join("log")).unwrap())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        Self { child, dir, line }
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.dir.path().join("log")).unwrap()
    }

    /// Its RESP address.
    fn resp(&self) -> SocketAddr {
        let log = self.log();
        let open = log.lines().find(|line| line.contains("cache open"));
        let open = open.unwrap_or_else(|| panic!("{:?}: {log}", self.line));
        let open: serde_json::Value = serde_json::from_str(open).unwrap();
        open["resp"].as_str().unwrap().parse().unwrap()
    }
}

impl Drop for Limited {
    fn drop(&mut self) {
        // It may have ended already.
        self.child.kill().unwrap_or_default();
        self.child.wait().map(drop).unwrap_or_default();
    }
}

fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(HANG)).unwrap();
    stream
}

const TOO_MANY: &str = "-ERR max number of clients reached\r\n";

/// Opens connections until they are refused; returns those that are served.
fn fill(address: SocketAddr, most: usize) -> Vec<TcpStream> {
    let mut served = Vec::new();
    for _ in 0..most {
        let mut stream = connect(address);
        // This may reset a connection that is refused.
        stream.write_all(b"PING\r\n").unwrap_or_default();
        let mut report = [0; 1];
        match stream.read(&mut report) {
            Ok(1) if report == *b"+" => served.push(stream),
            _ => return served,
        }
    }
    panic!("none of {most} was refused");
}

#[test]
fn connections_to_the_cache_leave_the_intake_its_descriptors() {
    let cache = ["--set", "cache.resp=127.0.0.1:0", "--set", "cache.text="];
    let args = [&["serve", "--listen", "127.0.0.1:0"][..], &cache].concat();
    let server = Limited::start(512, &args);
    let resp = server.resp();
    let mut served = fill(resp, 500);
    assert!((200..=256).contains(&served.len()), "{} connections", served.len());
    let mut report = String::new();
    connect(resp).read_to_string(&mut report).unwrap();
    assert_eq!(report, TOO_MANY);
    let http: SocketAddr =
        server.line.trim().strip_prefix("listening http://").unwrap().parse().unwrap();
    for number in 0..20 {
        let mut stream = connect(http);
        let body = "x".repeat(100_000);
        let head = format!(
            "PUT /v1/files/default/f{number} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-length: {}\r\n\r\n",
            body.len()
        );
        stream.write_all(head.as_bytes()).unwrap();
        stream.write_all(body.as_bytes()).unwrap();
        let answer = Answer::read(&mut stream);
        assert!(answer.status < 300, "{answer:?}");
    }
    // The rest of the first reply comes before.
    ask(&mut served[0], "SET k v\r\n", "PONG\r\n+OK\r\n");
}

#[test]
fn a_cache_alone_caps_its_connections_and_what_may_be_set() {
    let args = ["cache", "serve", "--resp", "127.0.0.1:0", "--text", ""];
    let server = Limited::start(256, &args);
    assert!(server.log().contains("the limit on open files"), "{}", server.log());
    let resp = server.resp();
    let mut served = fill(resp, 400);
    assert!((150..=192).contains(&served.len()), "{} connections", served.len());
    let mut rest = [0; 6];
    served[0].read_exact(&mut rest).unwrap();
    let report = "-ERR CONFIG SET failed (possibly related to argument 'maxclients') - The operating \
                system is not able to handle the specified number of clients, try with 192\r\n";
    ask(&mut served[0], "CONFIG SET maxclients 193\r\n", report);
    ask(&mut served[0], "CONFIG SET maxclients 192\r\nSET k v\r\n", "+OK\r\n+OK\r\n");
    let free = served.len();
    drop(served);
    assert!(fill(resp, 400).len() + 1 >= free, "room is given again");
}
