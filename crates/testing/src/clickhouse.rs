//! ClickHouse's engine behind its HTTP interface, for tests, on a free local port; removed when it is dropped.
//!
//! `clickhouse.py` says exactly what it is and is not: the engine is ClickHouse's own (chdb), the HTTP interface is
//! a program of ours with the part of it that tests need.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use crate::{free_port, say, shared, tool};

/// The program.
const FRONT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/src/clickhouse.py");
/// Its only user.
const USER: &str = "loader";
const PASSWORD: &str = "geheim42";

/// One server for all concurrent tests of a process that do not kill it.
static SHARED: Mutex<Weak<ClickHouse>> = Mutex::new(Weak::new());

/// A running server.
#[derive(Debug)]
pub struct ClickHouse {
    python: PathBuf,
    dir: PathBuf,
    port: u16,
    /// Files of its certificate and key, if connections are encrypted.
    tls: Option<(PathBuf, PathBuf)>,
    child: Mutex<Option<Child>>,
}

impl ClickHouse {
    /// Starts one; `None` if it is neither installed nor required.
    ///
    /// # Panics
    /// If it does not start, or is required but not installed.
    #[must_use]
    pub fn start() -> Option<Self> {
        Self::start_with(None)
    }

    /// Starts one whose connections are encrypted.
    ///
    /// * `certificate`, `key`: files (PEM).
    ///
    /// # Panics
    /// As [`start`](Self::start).
    #[must_use]
    pub fn start_encrypted(certificate: &Path, key: &Path) -> Option<Self> {
        Self::start_with(Some((certificate.to_owned(), key.to_owned())))
    }

    fn start_with(tls: Option<(PathBuf, PathBuf)>) -> Option<Self> {
        let python = tool("clickhouse", "python")?;
        let dir = tempfile::Builder::new().prefix("forebay-clickhouse-").tempdir().unwrap().keep();
        let mut server = Self { python, dir, port: free_port(), tls, child: Mutex::default() };
        // Another test may have been given the port first.
        while let Err(log) = server.attempt() {
            assert!(log.contains("Address already in use"), "ClickHouse ended: {log}");
            server.port = free_port();
        }
        Some(server)
    }

    /// Returns the server shared by all tests of a process, each with a separate database; `None` if it is neither
    /// installed nor required.
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

    /// Its user.
    #[must_use]
    pub fn user(&self) -> &'static str {
        USER
    }

    /// The user's password.
    #[must_use]
    pub fn password(&self) -> &'static str {
        PASSWORD
    }

    /// Kills it at once.
    ///
    /// # Panics
    /// If it does not run.
    pub fn kill(&self) {
        let mut child = self.child.lock().unwrap().take().unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
    }

    /// Starts it again, with the same port and data.
    ///
    /// # Panics
    /// If it does not start.
    pub fn resume(&self) {
        self.attempt().unwrap();
    }

    /// Returns the result of a statement: rows in lines, columns separated by tabs.
    ///
    /// # Panics
    /// If it fails.
    pub fn query(&self, database: &str, sql: &str) -> String {
        self.try_query(database, sql).unwrap_or_else(|error| panic!("{sql}: {error}"))
    }

    /// Like [`query`](Self::query).
    ///
    /// # Errors
    /// What the server answered, or why it did not.
    pub fn try_query(&self, database: &str, sql: &str) -> Result<String, String> {
        assert!(self.tls.is_none(), "this client has no encryption");
        let lost = |error: std::io::Error| error.to_string();
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).map_err(lost)?;
        let head = format!(
            "POST /?database={database} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nX-ClickHouse-User: {USER}\r\n\
             X-ClickHouse-Key: {PASSWORD}\r\nContent-Length: {}\r\n\r\n",
            sql.len()
        );
        stream.write_all(head.as_bytes()).map_err(lost)?;
        stream.write_all(sql.as_bytes()).map_err(lost)?;
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).map_err(lost)?;
        let answer = String::from_utf8(answer).map_err(|error| error.to_string())?;
        let (head, body) = answer.split_once("\r\n\r\n").ok_or("no answer")?;
        match head.starts_with("HTTP/1.1 200 ") {
            true => Ok(body.strip_suffix('\n').unwrap_or(body).to_owned()),
            false => Err(body.to_owned()),
        }
    }

    fn attempt(&self) -> Result<(), String> {
        let ready = self.dir.join("ready");
        if ready.exists() {
            std::fs::remove_file(&ready).unwrap();
        }
        let log = std::fs::File::create(self.dir.join("log")).unwrap();
        let mut command = Command::new(&self.python);
        command.arg(FRONT).arg(&self.dir).arg(self.port.to_string());
        if let Some((certificate, key)) = &self.tls {
            command.arg(certificate).arg(key);
        }
        let mut child = command
            .env("USER", USER)
            .env("PASSWORD", PASSWORD)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .unwrap();
        // It writes this file once it listens: another server may listen on the port.
        while !ready.exists() {
            if child.try_wait().unwrap().is_some() {
                let log = std::fs::read(self.dir.join("log")).unwrap_or_default();
                return Err(String::from_utf8_lossy(&log).into_owned());
            }
            std::thread::yield_now();
        }
        *self.child.lock().unwrap() = Some(child);
        Ok(())
    }
}

impl Drop for ClickHouse {
    fn drop(&mut self) {
        let child = self.child.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(mut child) = child {
            // Its data is discarded.
            if let Err(error) = child.kill().and_then(|()| child.wait().map(|_| ())) {
                say(&format!("cannot end ClickHouse: {error}"));
            }
        }
        if let Err(error) = std::fs::remove_dir_all(&self.dir) {
            say(&format!("cannot remove {}: {error}", self.dir.display()));
        }
    }
}
