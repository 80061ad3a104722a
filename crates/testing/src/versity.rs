//! A versitygw server for tests: S3 over a directory, with conditional writes that hold under races.
//! `cargo xtask setup` builds it.

use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::{free_port, left_out, tools};

/// Maximum time until a server has started.
const BEGUN_WITHIN: Duration = Duration::from_secs(60);

/// A running server. It is killed when it is dropped.
#[derive(Debug)]
pub struct Versity {
    port: u16,
    child: Child,
    dir: tempfile::TempDir,
}

impl Versity {
    /// The id of its only key.
    pub const KEY: &str = "test-access";
    /// The secret of its only key.
    pub const SECRET: &str = "test-secret";

    /// Starts one with an empty bucket; `None` if it is neither installed nor required.
    ///
    /// # Panics
    /// If it does not start, or is required but not installed.
    #[must_use]
    pub fn start(bucket: &str) -> Option<Self> {
        let program = tools().join("versitygw");
        if !program.is_file() {
            left_out("versitygw is not installed; run cargo xtask setup");
            return None;
        }
        let dir = tempfile::Builder::new().prefix("forebay-versity-").tempdir().unwrap();
        std::fs::create_dir(dir.path().join(bucket)).unwrap();
        let begun = Instant::now();
        loop {
            // Another test may have been given the port first.
            let port = free_port();
            let mut child = Command::new(&program)
                .args(["--port", &format!("127.0.0.1:{port}"), "--health", "/health", "-q"])
                .args(["--access", Self::KEY, "--secret", Self::SECRET, "posix"])
                .arg(dir.path())
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn()
                .unwrap();
            while child.try_wait().unwrap().is_none() {
                assert!(begun.elapsed() < BEGUN_WITHIN, "versitygw does not start");
                if TcpStream::connect(("127.0.0.1", port)).is_ok() {
                    return Some(Self { port, child, dir });
                }
                std::thread::yield_now();
            }
        }
    }

    /// Returns its port on 127.0.0.1.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Returns the directory of a bucket: its objects are files of their names.
    #[must_use]
    pub fn bucket(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Returns its URL.
    #[must_use]
    pub fn endpoint(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }
}

impl Drop for Versity {
    fn drop(&mut self) {
        // It may have ended by itself.
        self.child.kill().and_then(|()| self.child.wait()).map(drop).unwrap_or_default();
    }
}
