//! A FerretDB of our own, which speaks MongoDB's protocol, on free ports, gone when it is dropped.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use forebay_sink::mongo::Settings;

use crate::pg::{free_port, left_out};

/// One for all tests that run at the same time and do not kill it.
static SHARED: Mutex<Weak<Ferret>> = Mutex::new(Weak::new());

pub(crate) struct Ferret {
    dir: tempfile::TempDir,
    program: PathBuf,
    pub(crate) port: u16,
    debug_port: u16,
    child: Mutex<Option<Child>>,
    databases: AtomicU32,
}

/// The server all share; none, and it says so, where none is installed and none is required.
pub(crate) fn shared() -> Option<Arc<Ferret>> {
    let mut shared = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(running) = shared.upgrade() {
        return Some(running);
    }
    let started = Arc::new(ferret()?);
    *shared = Arc::downgrade(&started);
    Some(started)
}

/// A server for one test alone.
pub(crate) fn ferret() -> Option<Ferret> {
    let tools = std::env::var_os("FOREBAY_TOOLS").map(PathBuf::from).or_else(|| {
        let home = std::env::var_os("HOME")?;
        Some(PathBuf::from(home).join(".cache/forebay/tools"))
    });
    let program = tools.map(|tools| tools.join("ferretdb")).filter(|it| it.is_file());
    let Some(program) = program else {
        left_out("FerretDB is not there (cargo xtask setup)");
        return None;
    };
    let dir = tempfile::Builder::new().prefix("forebay-ferret-").tempdir().unwrap();
    let (child, databases) = (Mutex::default(), AtomicU32::new(0));
    let (port, debug_port) = (free_port(), free_port());
    let mut ferret = Ferret { dir, program, port, debug_port, child, databases };
    // Another test may have been given a port first.
    while !ferret.attempt() {
        (ferret.port, ferret.debug_port) = (free_port(), free_port());
    }
    Some(ferret)
}

impl Ferret {
    /// Starts it again where it was.
    pub(crate) fn start(&self) {
        while !self.attempt() {}
    }

    /// Whether it came up; it ends by itself where a port is taken.
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
        loop {
            if self.is_ready() {
                *self.child.lock().unwrap() = Some(child);
                return true;
            }
            if child.try_wait().unwrap().is_some() {
                return false;
            }
        }
    }

    fn is_ready(&self) -> bool {
        let asked = || -> std::io::Result<String> {
            let mut stream = TcpStream::connect(("127.0.0.1", self.debug_port))?;
            stream.set_read_timeout(Some(Duration::from_secs(10)))?;
            stream.write_all(b"GET /debug/readyz HTTP/1.0\r\n\r\n")?;
            let mut answer = String::new();
            stream.read_to_string(&mut answer)?;
            Ok(answer)
        };
        asked().is_ok_and(|answer| answer.contains(" 200 "))
    }

    /// Kills it, as a power cut would.
    pub(crate) fn kill(&self) {
        let mut child = self.child.lock().unwrap().take().unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
    }

    /// Settings of a sink in a database of its own.
    pub(crate) fn settings(&self) -> Settings {
        let number = self.databases.fetch_add(1, Ordering::Relaxed);
        self.settings_at(self.port, &format!("sink{number}"))
    }

    /// Settings of a sink, reached by way of a port.
    pub(crate) fn settings_at(&self, port: u16, database: &str) -> Settings {
        Settings {
            url: format!("mongodb://127.0.0.1:{port}/{database}"),
            connections_min: 0,
            ..Settings::default()
        }
    }
}

impl Drop for Ferret {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.get_mut().unwrap().take() {
            child.kill().unwrap();
            child.wait().unwrap();
        }
    }
}
