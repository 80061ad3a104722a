//! A PostgreSQL server for tests, on a free local port; removed when it is dropped.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use rustix::process::{Pid, Signal, geteuid, kill_process};

use crate::{free_port, left_out, say, shared};

/// Where Debian installs the programs that are not on the path.
const DEBIAN: &str = "/usr/lib/postgresql";

/// The directory of locales that were added to a server.
const LOCALES: &str = "locales";

/// One server for all concurrent tests of a process that do not kill it.
static SHARED: Mutex<Weak<Postgres>> = Mutex::new(Weak::new());

/// A running server with one superuser, `postgres`, without a password.
#[derive(Debug)]
pub struct Postgres {
    dir: PathBuf,
    programs: PathBuf,
    port: u16,
    child: Mutex<Option<Child>>,
}

impl Postgres {
    /// Starts one; `None` if it is neither installed nor required.
    ///
    /// # Panics
    /// If it does not start, or is required but not installed.
    #[must_use]
    pub fn start() -> Option<Self> {
        let Some(programs) = programs() else {
            left_out("PostgreSQL is not installed (apt-get install postgresql)");
            return None;
        };
        let initdb = ["-A", "trust", "-U", "postgres", "-E", "UTF8", "--locale=C", "--no-sync"];
        Some(Self::create(programs, "initdb", &initdb))
    }

    /// Starts a standby that streams from this server.
    ///
    /// # Panics
    /// If it does not start.
    #[must_use]
    pub fn standby(&self) -> Self {
        let port = self.port.to_string();
        let copy = ["-h", "127.0.0.1", "-p", &port, "-U", "postgres", "-X", "stream"];
        let copy = [&copy[..], &["-c", "fast", "--no-sync", "--write-recovery-conf"]].concat();
        Self::create(self.programs.clone(), "pg_basebackup", &copy)
    }

    /// Waits until this standby has replayed what `primary` has written.
    ///
    /// # Panics
    /// If it ends.
    pub fn catch_up(&self, primary: &Self) {
        // What is committed is flushed.
        let written = primary.query("postgres", "select pg_current_wal_flush_lsn()");
        let replayed = format!("select pg_last_wal_replay_lsn() >= '{written}'");
        while self.query("postgres", &replayed) != "t" {}
    }

    /// Makes this standby a primary.
    ///
    /// # Panics
    /// If it is none.
    pub fn promote(&self) {
        assert_eq!(self.query("postgres", "select pg_promote()"), "t");
    }

    /// Creates a data directory with one of the server's programs, and starts it.
    fn create(programs: PathBuf, program: &str, arguments: &[&str]) -> Self {
        let dir = tempfile::Builder::new().prefix("forebay-pg-").tempdir().unwrap().keep();
        let mut server = Self { dir, programs, port: free_port(), child: Mutex::default() };
        server.give_away(&server.dir);
        let mut made = server.program(program);
        let made = made.args(arguments).arg("-D").arg(server.dir.join("data")).output().unwrap();
        assert!(made.status.success(), "{program}: {}", String::from_utf8_lossy(&made.stderr));
        // Another test may have been given the port first.
        while let Err(log) = server.attempt() {
            assert!(log.contains("could not bind"), "PostgreSQL ended: {log}");
            server.port = free_port();
        }
        server
    }

    /// Returns the server shared by all tests of a process, each with a separate database or
    /// schema; `None` if it is neither installed nor required.
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

    /// Restarts it with the same port and data; tries repeatedly while processes of a killed server
    /// are still exiting.
    ///
    /// # Panics
    /// If it does not start.
    pub fn start_again(&self) {
        while let Err(log) = self.attempt() {
            assert!(log.contains("still in use"), "PostgreSQL ended: {log}");
        }
    }

    /// Kills it and every process of it at once, as a power cut would.
    ///
    /// # Panics
    /// If it does not run.
    pub fn kill(&self) {
        let mut child = self.child.lock().unwrap().take().unwrap();
        let parent = child.id().to_string();
        // Its children would exit one after another; one that waits for another that has exited
        // waits forever, and one that does not may still commit.
        let ps = Command::new("ps").args(["-o", "pid=", "--ppid", &parent]).output().unwrap();
        let children = String::from_utf8(ps.stdout).unwrap();
        let children: Vec<&str> = children.split_whitespace().collect();
        // One of them may have exited by now.
        Command::new("kill").arg("-KILL").arg(&parent).args(&children).output().unwrap();
        child.wait().unwrap();
        let runs = |child: &&str| {
            let stat = std::fs::read_to_string(Path::new("/proc").join(child).join("stat"));
            // The new parent of a process may take some time to reap it.
            stat.is_ok_and(|stat| !stat.contains(") Z "))
        };
        while children.iter().any(runs) {}
    }

    /// Makes a locale in UTF-8 known to it, such as `ja_JP`, and restarts it. Returns whether the locale's
    /// description is installed or not required.
    ///
    /// # Panics
    /// If the server does not run, or the description is required but not installed.
    #[must_use]
    pub fn add_locale(&self, name: &str) -> bool {
        let locales = self.dir.join(LOCALES);
        std::fs::create_dir_all(&locales).unwrap();
        let mut compile = Command::new("localedef");
        compile.args(["-i", name, "-f", "UTF-8"]).arg(locales.join(format!("{name}.UTF-8")));
        if !compile.output().is_ok_and(|made| made.status.success()) {
            left_out("descriptions of locales are not installed (apt-get install locales)");
            return false;
        }
        self.kill();
        self.start_again();
        true
    }

    /// Writes a file into its data directory that only the server may read.
    ///
    /// # Panics
    /// If it cannot be written.
    pub fn write(&self, name: &str, text: &str) {
        let path = self.dir.join("data").join(name);
        std::fs::write(&path, text).unwrap();
        self.give_away(&path);
        let mut mode = std::fs::metadata(&path).unwrap().permissions();
        mode.set_mode(0o600);
        std::fs::set_permissions(&path, mode).unwrap();
    }

    /// Returns the result of a query, as psql prints it.
    ///
    /// # Panics
    /// If it fails.
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

    /// Returns the output of COPY for a query.
    ///
    /// # Panics
    /// If it fails.
    #[must_use]
    pub fn copy(&self, database: &str, query: &str) -> Vec<u8> {
        let output = self.ask(database, &format!("copy ({query}) to stdout (format binary)"));
        assert!(output.status.success(), "{query}: {}", String::from_utf8_lossy(&output.stderr));
        output.stdout
    }

    /// Runs pgbench, and waits for its end.
    ///
    /// * `scripts`: each is executed by several clients, in random turns.
    ///
    /// # Panics
    /// If it does not start, or a transaction fails.
    pub fn bench(&self, database: &str, scripts: &[&str], seconds: u32) {
        let mut command = self.program("pgbench");
        command.args(["-n", "-U", "postgres", "-c", "4", "-T", &seconds.to_string(), "-h"]);
        command.arg(&self.dir).args(["-p", &self.port.to_string()]);
        for (at, script) in scripts.iter().enumerate() {
            let name = format!("script-{at}.sql");
            self.write(&name, script);
            command.arg("-f").arg(self.dir.join("data").join(name));
        }
        let output = command.arg(database).output().unwrap();
        let report = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{report}");
    }

    /// Opens a connection: statements written to it run one after another.
    ///
    /// # Panics
    /// If psql does not start.
    #[must_use]
    pub fn session(&self, database: &str) -> Child {
        self.psql(database).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap()
    }

    fn attempt(&self) -> Result<(), String> {
        let log = std::fs::File::create(self.dir.join("log")).unwrap();
        let mut child = self
            .program("postgres")
            .arg("-D")
            .arg(self.dir.join("data"))
            .args(["-p", &self.port.to_string(), "-h", "127.0.0.1", "-k"])
            .arg(&self.dir)
            .args([
                "-c",
                "fsync=off",
                "-c",
                "max_connections=100",
                "-c",
                "max_prepared_transactions=10",
                "-c",
                "wal_level=logical",
                "-c",
                "autovacuum=off",
                // In the data directory, which is removed: a killed server leaves its memory.
                "-c",
                "dynamic_shared_memory_type=mmap",
            ])
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .unwrap();
        while !self.ask("postgres", "select 1").status.success() {
            if child.try_wait().unwrap().is_some() {
                let log = std::fs::read(self.dir.join("log")).unwrap_or_default();
                return Err(String::from_utf8_lossy(&log).into_owned());
            }
        }
        *self.child.lock().unwrap() = Some(child);
        Ok(())
    }

    /// Returns a command for one of its programs, as another user, because it refuses to run as
    /// root.
    fn program(&self, name: &str) -> Command {
        let program = self.programs.join(name);
        let mut command = Command::new("setpriv");
        if geteuid().is_root() {
            command.args(["--reuid=postgres", "--regid=postgres", "--clear-groups"]).arg(program);
        } else {
            command = Command::new(program);
        }
        command.current_dir(&self.dir);
        let locales = self.dir.join(LOCALES);
        if locales.is_dir() {
            command.env("LOCPATH", locales);
        }
        command
    }

    /// Gives a file to the user that the server runs as.
    fn give_away(&self, path: &Path) {
        if geteuid().is_root() {
            let owned = Command::new("chown").arg("postgres:").arg(path).status().unwrap();
            assert!(owned.success(), "chown {}", path.display());
        }
    }

    fn psql(&self, database: &str) -> Command {
        let mut command = Command::new(self.programs.join("psql"));
        // Over its own socket: another server may listen on the port.
        command.args(["-X", "-q", "-A", "-t", "-U", "postgres", "-h"]).arg(&self.dir);
        command.args(["-p", &self.port.to_string(), "-d", database]);
        command
    }

    fn ask(&self, database: &str, sql: &str) -> Output {
        self.psql(database).args(["-v", "ON_ERROR_STOP=1", "-c", sql]).output().unwrap()
    }
}

/// Returns the directory of the newest version's programs.
fn programs() -> Option<PathBuf> {
    let versions = std::fs::read_dir(DEBIAN).ok()?;
    let programs = versions.filter_map(|version| Some(version.ok()?.path().join("bin")));
    programs.filter(|dir| dir.join("initdb").is_file()).max()
}

impl Drop for Postgres {
    fn drop(&mut self) {
        let child = self.child.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(mut child) = child {
            // Immediate shutdown: its data is discarded.
            if kill_process(Pid::from_child(&child), Signal::QUIT).is_err() {
                say("PostgreSQL had already exited");
            }
            if let Err(error) = child.wait() {
                say(&format!("cannot wait for PostgreSQL: {error}"));
            }
        }
        if let Err(error) = std::fs::remove_dir_all(&self.dir) {
            say(&format!("cannot remove {}: {error}", self.dir.display()));
        }
    }
}
