//! A FerretDB of its own for each test: the protocol of MongoDB, documents in SQLite.
//!
//! `cargo xtask setup` builds it among the tools. Without it, tests say that they were left out, and fail
//! where `FOREBAY_REQUIRE_SERVICES=1`.

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// How long a server may take to begin.
const BEGUN_WITHIN: Duration = Duration::from_secs(60);

/// A server that runs; it is killed when this is dropped.
pub(super) struct Ferret {
    server: Child,
    port: u16,
    _directory: tempfile::TempDir,
}

/// Where `cargo xtask setup` puts it.
fn program() -> PathBuf {
    if let Some(tools) = std::env::var_os("FOREBAY_TOOLS") {
        return PathBuf::from(tools).join("ferretdb");
    }
    let home = std::env::var_os("HOME").map(PathBuf::from).unwrap_or_default();
    let cache =
        std::env::var_os("XDG_CACHE_HOME").map_or_else(|| home.join(".cache"), PathBuf::from);
    cache.join("forebay").join("tools").join("ferretdb")
}

fn free_port() -> u16 {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    listener.local_addr().unwrap().port()
}

impl Ferret {
    /// Starts one; nothing where there is none to start.
    pub(super) fn start() -> Option<Self> {
        let program = program();
        if !program.is_file() {
            let required = std::env::var_os("FOREBAY_REQUIRE_SERVICES").is_some_and(|it| it == "1");
            assert!(!required, "{} is missing: cargo xtask setup", program.display());
            eprintln!("LEFT OUT: {} is missing (cargo xtask setup)", program.display());
            return None;
        }
        let directory = tempfile::tempdir().unwrap();
        let (port, debug) = (free_port(), free_port());
        let path = directory.path().display();
        let server = Command::new(program)
            .arg("--handler=sqlite")
            .arg(format!("--sqlite-url=file:{path}/"))
            .arg(format!("--listen-addr=127.0.0.1:{port}"))
            .arg(format!("--debug-addr=127.0.0.1:{debug}"))
            .arg(format!("--state-dir={path}"))
            .args(["--telemetry=disable", "--log-level=ERROR"])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let ferret = Self { server, port, _directory: directory };
        let begun = Instant::now();
        while !is_ready(debug) {
            assert!(begun.elapsed() < BEGUN_WITHIN, "FerretDB does not begin");
            std::thread::yield_now();
        }
        Some(ferret)
    }

    /// Its address, with a database.
    pub(super) fn url(&self, database: &str) -> String {
        format!("mongodb://127.0.0.1:{}/{database}", self.port)
    }

    pub(super) fn port(&self) -> u16 {
        self.port
    }
}

/// Whether the server says that it is ready.
fn is_ready(debug: u16) -> bool {
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, debug));
    let Ok(mut stream) = TcpStream::connect_timeout(&address, Duration::from_secs(1)) else {
        return false;
    };
    let asked = stream.write_all(b"GET /debug/readyz HTTP/1.0\r\n\r\n");
    let mut answer = String::new();
    asked.and_then(|()| stream.read_to_string(&mut answer)).is_ok()
        && answer.split(' ').nth(1) == Some("200")
}

impl Drop for Ferret {
    fn drop(&mut self) {
        self.server.kill().unwrap();
        self.server.wait().unwrap();
    }
}
