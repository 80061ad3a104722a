//! A FerretDB of our own: the protocol of MongoDB, with documents in SQLite files that a test can look
//! into. `cargo xtask setup` builds it.

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;

use crate::support::HANG;

/// A server; it is killed when this is dropped.
pub(crate) struct Ferret {
    dir: TempDir,
    port: u16,
    debug: u16,
    server: Option<Child>,
}

fn program() -> PathBuf {
    if let Some(tools) = std::env::var_os("FOREBAY_TOOLS") {
        return PathBuf::from(tools).join("ferretdb");
    }
    let home = std::env::var_os("HOME").map(PathBuf::from).unwrap_or_default();
    let cache = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
    cache.unwrap_or_else(|| home.join(".cache")).join("forebay").join("tools").join("ferretdb")
}

fn free_port() -> u16 {
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap().port()
}

/// Starts one; nothing, and says so, where there is none and none is required.
#[expect(clippy::print_stderr, reason = "a test that is left out says so")]
pub(crate) fn ferret() -> Option<Ferret> {
    if !program().is_file() {
        let required = std::env::var("FOREBAY_REQUIRE_SERVICES").is_ok_and(|it| it == "1");
        assert!(!required, "{} is missing: cargo xtask setup", program().display());
        eprintln!("SKIPPED: {} is missing (cargo xtask setup)", program().display());
        return None;
    }
    let dir = TempDir::new().unwrap();
    let mut ferret = Ferret { dir, port: free_port(), debug: free_port(), server: None };
    ferret.start();
    Some(ferret)
}

impl Ferret {
    /// Starts it where it was.
    pub(crate) fn start(&mut self) {
        let path = self.dir.path().display();
        let server = Command::new(program())
            .arg("--handler=sqlite")
            .arg(format!("--sqlite-url=file:{path}/"))
            .arg(format!("--listen-addr=127.0.0.1:{}", self.port))
            .arg(format!("--debug-addr=127.0.0.1:{}", self.debug))
            .arg(format!("--state-dir={path}"))
            .args(["--telemetry=disable", "--log-level=ERROR"])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        self.server = Some(server);
        let begun = Instant::now();
        while !self.is_ready() {
            assert!(begun.elapsed() < HANG, "FerretDB does not begin");
            std::thread::yield_now();
        }
    }

    fn is_ready(&self) -> bool {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, self.debug));
        let Ok(mut stream) = TcpStream::connect_timeout(&address, Duration::from_secs(1)) else {
            return false;
        };
        let mut answer = String::new();
        let asked = stream.write_all(b"GET /debug/readyz HTTP/1.0\r\n\r\n");
        asked.and_then(|()| stream.read_to_string(&mut answer)).is_ok()
            && answer.split(' ').nth(1) == Some("200")
    }

    /// Kills it.
    pub(crate) fn kill(&mut self) {
        if let Some(mut server) = self.server.take() {
            server.kill().unwrap();
            server.wait().unwrap();
        }
    }

    pub(crate) fn url(&self) -> String {
        format!("mongodb://127.0.0.1:{}/t", self.port)
    }

    /// The only value of a query of a collection's documents, which are JSON in the column `d`; nothing
    /// where there is no such collection (yet).
    pub(crate) fn find(&self, collection: &str, query: &str) -> Option<i64> {
        let path = self.dir.path().join("t.sqlite");
        let flags = rusqlite::OpenFlags::SQLITE_OPEN_READ_ONLY;
        let database = rusqlite::Connection::open_with_flags(path, flags).ok()?;
        database.busy_timeout(HANG).unwrap();
        let named = "select table_name from _ferretdb_collections where name = ?1";
        let table: String = database.query_row(named, [collection], |row| row.get(0)).ok()?;
        let documents = format!("(select _ferretdb_sjson d from \"{table}\")");
        database.query_row(&query.replace("{}", &documents), [], |row| row.get(0)).ok()
    }
}

impl Drop for Ferret {
    fn drop(&mut self) {
        self.kill();
    }
}
