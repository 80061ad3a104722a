//! A PostgreSQL of our own, on a free port of this machine, gone when it is dropped.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use rustix::process::{Pid, Signal, geteuid, kill_process};

use crate::{free_port, left_out, say, shared};

/// Where Debian keeps the programs that are not on the path.
const DEBIAN: &str = "/usr/lib/postgresql";

/// One for all tests of a process that run at the same time and do not kill it.
static SHARED: Mutex<Weak<Postgres>> = Mutex::new(Weak::new());

/// A server that runs, with one superuser `postgres` who needs no password.
#[derive(Debug)]
pub struct Postgres {
    dir: PathBuf,
    programs: PathBuf,
    port: u16,
    child: Mutex<Option<Child>>,
}

impl Postgres {
    /// Starts one; none where none is installed and none is required.
    ///
    /// # Panics
    /// It does not start, or it is required and not installed.
    #[must_use]
    pub fn start() -> Option<Self> {
        let Some(programs) = programs() else {
            left_out("PostgreSQL is not installed (apt-get install postgresql)");
            return None;
        };
        let dir = tempfile::Builder::new().prefix("forebay-pg-").tempdir().unwrap().keep();
        let mut server = Self { dir, programs, port: free_port(), child: Mutex::default() };
        server.give_away(&server.dir);
        let made = server
            .program("initdb")
            .args(["-A", "trust", "-U", "postgres", "-E", "UTF8", "--locale=C", "--no-sync", "-D"])
            .arg(server.dir.join("data"))
            .output()
            .unwrap();
        assert!(made.status.success(), "initdb: {}", String::from_utf8_lossy(&made.stderr));
        // Another test may have been given the port first.
        while let Err(log) = server.attempt() {
            assert!(log.contains("could not bind"), "PostgreSQL ended: {log}");
            server.port = free_port();
        }
        Some(server)
    }

    /// The one that all tests of a process share, each with a database or schema of its own; none where none
    /// is installed and none is required.
    ///
    /// # Panics
    /// As [`start`](Self::start).
    #[must_use]
    pub fn shared() -> Option<Arc<Self>> {
        shared(&SHARED, Self::start)
    }

    /// Where it listens, at 127.0.0.1.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Starts it again where it was; again and again while processes of one that was killed are still on
    /// their way out.
    ///
    /// # Panics
    /// It does not start.
    pub fn start_again(&self) {
        while let Err(log) = self.attempt() {
            assert!(log.contains("still in use"), "PostgreSQL ended: {log}");
        }
    }

    /// Kills it and every process of it at once, as a power cut would.
    ///
    /// # Panics
    /// It does not run.
    pub fn kill(&self) {
        let mut child = self.child.lock().unwrap().take().unwrap();
        let parent = child.id().to_string();
        // Left alone its children would go by and by; one that waits for another that went so waits for
        // ever, and one that does not may still commit.
        let ps = Command::new("ps").args(["-o", "pid=", "--ppid", &parent]).output().unwrap();
        let children = String::from_utf8(ps.stdout).unwrap();
        let children: Vec<&str> = children.split_whitespace().collect();
        // One of them may be gone by now.
        Command::new("kill").arg("-KILL").arg(&parent).args(&children).output().unwrap();
        child.wait().unwrap();
        let runs = |child: &&str| {
            let stat = std::fs::read_to_string(Path::new("/proc").join(child).join("stat"));
            // Whose child it is now may take its time to ask what became of it.
            stat.is_ok_and(|stat| !stat.contains(") Z "))
        };
        while children.iter().any(runs) {}
    }

    /// Writes a file into its data directory that only it may read.
    ///
    /// # Panics
    /// It cannot be written.
    pub fn write(&self, name: &str, text: &str) {
        let path = self.dir.join("data").join(name);
        std::fs::write(&path, text).unwrap();
        self.give_away(&path);
        let mut mode = std::fs::metadata(&path).unwrap().permissions();
        mode.set_mode(0o600);
        std::fs::set_permissions(&path, mode).unwrap();
    }

    /// What a query gives, as psql prints it.
    ///
    /// # Panics
    /// It fails.
    pub fn query(&self, database: &str, sql: &str) -> String {
        let output = self.ask(database, sql);
        assert!(output.status.success(), "{sql}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap().trim_end().to_owned()
    }

    /// As [`query`](Self::query); nothing where it fails.
    pub fn try_query(&self, database: &str, sql: &str) -> Option<String> {
        let output = self.ask(database, sql);
        let said = String::from_utf8_lossy(&output.stdout).trim_end().to_owned();
        output.status.success().then_some(said)
    }

    /// The bytes COPY gives of a query.
    ///
    /// # Panics
    /// It fails.
    #[must_use]
    pub fn copy(&self, database: &str, query: &str) -> Vec<u8> {
        let output = self.ask(database, &format!("copy ({query}) to stdout (format binary)"));
        assert!(output.status.success(), "{query}: {}", String::from_utf8_lossy(&output.stderr));
        output.stdout
    }

    /// A connection held open: what is written to it is done one statement after another.
    ///
    /// # Panics
    /// psql does not start.
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
            .args(["-c", "fsync=off", "-c", "max_connections=100", "-c", "autovacuum=off"])
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

    /// A program of it, as a user it lets run it: it refuses to run as root.
    fn program(&self, name: &str) -> Command {
        let program = self.programs.join(name);
        let mut command = Command::new("setpriv");
        if geteuid().is_root() {
            command.args(["--reuid=postgres", "--regid=postgres", "--clear-groups"]).arg(program);
        } else {
            command = Command::new(program);
        }
        command.current_dir(&self.dir);
        command
    }

    /// Makes something the user's it runs as.
    fn give_away(&self, path: &Path) {
        if geteuid().is_root() {
            let owned = Command::new("chown").arg("postgres:").arg(path).status().unwrap();
            assert!(owned.success(), "chown {}", path.display());
        }
    }

    fn psql(&self, database: &str) -> Command {
        let mut command = Command::new(self.programs.join("psql"));
        // By its own socket: at the port another may answer that was there first.
        command.args(["-X", "-q", "-A", "-t", "-U", "postgres", "-h"]).arg(&self.dir);
        command.args(["-p", &self.port.to_string(), "-d", database]);
        command
    }

    fn ask(&self, database: &str, sql: &str) -> Output {
        self.psql(database).args(["-v", "ON_ERROR_STOP=1", "-c", sql]).output().unwrap()
    }
}

/// Those of the newest version.
fn programs() -> Option<PathBuf> {
    let versions = std::fs::read_dir(DEBIAN).ok()?;
    let programs = versions.filter_map(|version| Some(version.ok()?.path().join("bin")));
    programs.filter(|dir| dir.join("initdb").is_file()).max()
}

impl Drop for Postgres {
    fn drop(&mut self) {
        let child = self.child.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(mut child) = child {
            // At once: what it wrote is thrown away.
            if kill_process(Pid::from_child(&child), Signal::QUIT).is_err() {
                say("PostgreSQL was gone already");
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
