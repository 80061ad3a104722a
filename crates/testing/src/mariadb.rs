//! A MariaDB server for tests, on a free local port; removed when it is dropped.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use rustix::process::geteuid;

use crate::{free_port, left_out, say, shared};

/// The server, where Debian installs it: it is not on the path of every user.
const SERVER: &str = "/usr/sbin/mariadbd";

/// One server for all concurrent tests of a process that do not kill it.
static SHARED: Mutex<Weak<MariaDb>> = Mutex::new(Weak::new());

/// A running server whose superuser, `root`, has no password on this machine.
#[derive(Debug)]
pub struct MariaDb {
    dir: PathBuf,
    port: u16,
    /// Further arguments of the server.
    arguments: Vec<String>,
    child: Mutex<Option<Child>>,
}

impl MariaDb {
    /// Starts one; `None` if it is neither installed nor required.
    ///
    /// # Panics
    /// If it does not start, or is required but not installed.
    #[must_use]
    pub fn start() -> Option<Self> {
        Self::start_with(Vec::new())
    }

    /// Starts one with further arguments.
    ///
    /// # Panics
    /// As [`start`](Self::start).
    #[must_use]
    pub fn start_with(arguments: Vec<String>) -> Option<Self> {
        if !Path::new(SERVER).is_file() {
            left_out("MariaDB is not installed (apt-get install mariadb-server)");
            return None;
        }
        let dir = tempfile::Builder::new().prefix("forebay-mariadb-").tempdir().unwrap().keep();
        let mut server = Self { dir, port: free_port(), arguments, child: Mutex::default() };
        std::fs::create_dir(server.temporary()).unwrap();
        if geteuid().is_root() {
            let mut chown = Command::new("chown");
            let owned = chown.arg("mysql:").args([&server.dir, &server.temporary()]).status();
            assert!(owned.unwrap().success(), "chown {}", server.dir.display());
        }
        let mut install = Command::new("mariadb-install-db");
        install.args(["--no-defaults", "--skip-test-db", "--skip-name-resolve"]);
        install.arg("--auth-root-authentication-method=normal");
        let made = server.as_user(&mut install).output().unwrap();
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        // Another test may have been given the port first.
        while let Err(log) = server.attempt() {
            assert!(log.contains("Address already in use"), "MariaDB ended: {log}");
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

    /// Kills it at once, as a power cut would, and starts it again with the same port and data.
    ///
    /// # Panics
    /// If it does not run, or does not start again.
    pub fn restart(&self) {
        let mut child = self.child.lock().unwrap().take().unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
        self.attempt().unwrap();
    }

    /// Returns the result of statements: rows in lines, columns separated by tabs.
    ///
    /// # Panics
    /// If they fail.
    pub fn query(&self, database: &str, sql: &str) -> String {
        let output = self.ask(database, sql);
        assert!(output.status.success(), "{sql}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap().trim_end().to_owned()
    }

    /// Like [`query`](Self::query); `None` if it fails.
    pub fn try_query(&self, database: &str, sql: &str) -> Option<String> {
        let output = self.ask(database, sql);
        let said = String::from_utf8_lossy(&output.stdout).trim_end().to_owned();
        output.status.success().then_some(said)
    }

    fn attempt(&self) -> Result<(), String> {
        let log = std::fs::File::create(self.dir.join("log")).unwrap();
        let mut command = Command::new(SERVER);
        command.arg("--no-defaults");
        let mut child = self
            .as_user(&mut command)
            .arg(format!("--port={}", self.port))
            .arg(format!("--socket={}", self.socket().display()))
            .arg(format!("--pid-file={}", self.dir.join("pid").display()))
            .args(["--bind-address=127.0.0.1", "--skip-name-resolve", "--skip-log-bin"])
            .args(["--innodb-flush-log-at-trx-commit=2", "--innodb-buffer-pool-size=32M"])
            .args(["--max-connections=200", "--character-set-server=utf8mb4"])
            .args(&self.arguments)
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .unwrap();
        while self.try_query("mysql", "SELECT 1").is_none() {
            if child.try_wait().unwrap().is_some() {
                let log = std::fs::read(self.dir.join("log")).unwrap_or_default();
                return Err(String::from_utf8_lossy(&log).into_owned());
            }
        }
        *self.child.lock().unwrap() = Some(child);
        Ok(())
    }

    /// Its own socket: another server may listen on the port.
    fn socket(&self) -> PathBuf {
        self.dir.join("socket")
    }

    /// Sets its data directory, and the user it runs as: it refuses to run as root.
    fn as_user<'a>(&self, command: &'a mut Command) -> &'a mut Command {
        if geteuid().is_root() {
            command.arg("--user=mysql");
        }
        // A server that starts removes what is left of temporary tables, those of servers that run beside it as well.
        command.env("TMPDIR", self.temporary());
        command.arg(format!("--datadir={}", self.dir.join("data").display()))
    }

    fn temporary(&self) -> PathBuf {
        self.dir.join("tmp")
    }

    fn ask(&self, database: &str, sql: &str) -> Output {
        let mut client = Command::new("mariadb");
        client.args(["--no-defaults", "--default-character-set=utf8mb4", "-u", "root", "-N", "-B"]);
        client.arg(format!("--socket={}", self.socket().display())).arg(database);
        client.args(["-e", sql]).output().unwrap()
    }
}

impl Drop for MariaDb {
    fn drop(&mut self) {
        let child = self.child.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(mut child) = child {
            // Its data is discarded.
            if let Err(error) = child.kill().and_then(|()| child.wait().map(|_| ())) {
                say(&format!("cannot end MariaDB: {error}"));
            }
        }
        if let Err(error) = std::fs::remove_dir_all(&self.dir) {
            say(&format!("cannot remove {}: {error}", self.dir.display()));
        }
    }
}
