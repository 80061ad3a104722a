//! A FerretDB server for tests: MongoDB's protocol, with documents in SQLite files that a test can
//! read. `cargo xtask setup` builds it.

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

use crate::{free_port, left_out, say, shared, tools};

/// One server for all concurrent tests of a process that do not kill it.
static SHARED: Mutex<Weak<Ferret>> = Mutex::new(Weak::new());

/// Maximum time until a server has started.
const BEGUN_WITHIN: Duration = Duration::from_secs(60);

/// Maximum time until it answers whether it is ready.
const ANSWERS_WITHIN: Duration = Duration::from_secs(10);

/// A running server that needs no password.
#[derive(Debug)]
pub struct Ferret {
    dir: tempfile::TempDir,
    program: PathBuf,
    port: u16,
    debug_port: u16,
    child: Mutex<Option<Child>>,
}

impl Ferret {
    /// Starts one; `None` if it is neither installed nor required.
    ///
    /// # Panics
    /// If it does not start, or is required but not installed.
    #[must_use]
    pub fn start() -> Option<Self> {
        let program = tools().join("ferretdb");
        if !program.is_file() {
            left_out("FerretDB is not installed; run cargo xtask setup");
            return None;
        }
        let dir = tempfile::Builder::new().prefix("forebay-ferret-").tempdir().unwrap();
        let (port, debug_port) = (free_port(), free_port());
        let mut server = Self { dir, program, port, debug_port, child: Mutex::default() };
        // Another test may have been given a port first.
        let begun = Instant::now();
        while !server.attempt() {
            assert!(begun.elapsed() < BEGUN_WITHIN, "FerretDB does not start");
            (server.port, server.debug_port) = (free_port(), free_port());
        }
        Some(server)
    }

    /// Returns the server shared by all tests of a process, each with a separate database; `None`
    /// if it is neither installed nor required.
    ///
    /// # Panics
    /// As [`start`](Self::start).
    #[must_use]
    pub fn shared() -> Option<Arc<Self>> {
        shared(&SHARED, Self::start)
    }

    /// Returns its port on 127.0.0.1.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Returns its URL, with a database.
    #[must_use]
    pub fn url(&self, database: &str) -> String {
        format!("mongodb://127.0.0.1:{}/{database}", self.port)
    }

    /// Returns the directory of its databases: `NAME.sqlite`.
    #[must_use]
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// Restarts it with the same port and data.
    ///
    /// # Panics
    /// If it does not start.
    pub fn start_again(&self) {
        let begun = Instant::now();
        while !self.attempt() {
            assert!(begun.elapsed() < BEGUN_WITHIN, "FerretDB does not start");
        }
    }

    /// Kills it, as a power cut would.
    ///
    /// # Panics
    /// If it does not run.
    pub fn kill(&self) {
        let mut child = self.child.lock().unwrap().take().unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
    }

    /// Whether it started; it exits by itself if a port is in use.
    fn attempt(&self) -> bool {
        let dir = self.dir.path().display();
        let mut child = Command::new(&self.program)
            .args(["--handler=sqlite", "--telemetry=disable", "--log-level=ERROR"])
            .arg(format!("--sqlite-url=file:{dir}/"))
            .arg(format!("--state-dir={dir}"))
            .arg(format!("--listen-addr=127.0.0.1:{}", self.port))
            .arg(format!("--debug-addr=127.0.0.1:{}", self.debug_port))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let begun = Instant::now();
        while !self.is_ready() {
            if child.try_wait().unwrap().is_some() {
                return false;
            }
            assert!(begun.elapsed() < BEGUN_WITHIN, "FerretDB does not start");
            std::thread::yield_now();
        }
        *self.child.lock().unwrap() = Some(child);
        true
    }

    fn is_ready(&self) -> bool {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, self.debug_port));
        let Ok(mut stream) = TcpStream::connect_timeout(&address, Duration::from_secs(1)) else {
            return false;
        };
        // A connection to a port without a listener may be one to itself.
        if stream.local_addr().ok() == stream.peer_addr().ok()
            || stream.set_read_timeout(Some(ANSWERS_WITHIN)).is_err()
        {
            return false;
        }
        let mut answer = String::new();
        let asked = stream.write_all(b"GET /debug/readyz HTTP/1.0\r\n\r\n");
        asked.and_then(|()| stream.read_to_string(&mut answer)).is_ok()
            && answer.split(' ').nth(1) == Some("200")
    }
}

impl Drop for Ferret {
    fn drop(&mut self) {
        let child = self.child.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(mut child) = child
            && let Err(error) = child.kill().and_then(|()| child.wait())
        {
            say(&format!("cannot stop FerretDB: {error}"));
        }
    }
}
