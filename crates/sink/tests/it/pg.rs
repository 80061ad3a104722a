//! A PostgreSQL of our own, on a free port, gone when it is dropped.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use forebay_sink::postgres::{ServerSettings, Settings};

/// Where Debian keeps the programs that are not on the path.
const DEBIAN: &str = "/usr/lib/postgresql";

/// One for all tests that run at the same time and do not kill it.
static SHARED: Mutex<Weak<Postgres>> = Mutex::new(Weak::new());

pub(crate) struct Postgres {
    dir: PathBuf,
    programs: PathBuf,
    pub(crate) port: u16,
    child: Mutex<Option<Child>>,
    schemas: AtomicU32,
}

/// Says that a test is left out; fails where it must not be.
#[expect(clippy::print_stderr, reason = "a test that is left out says so")]
pub(crate) fn left_out(what: &str) {
    let required = std::env::var("FOREBAY_REQUIRE_SERVICES").is_ok_and(|it| it == "1");
    assert!(!required, "FOREBAY_REQUIRE_SERVICES=1, but {what}");
    eprintln!("SKIPPED: {what}");
}

/// The server all share; none, and it says so, where none is installed and none is required.
pub(crate) fn shared() -> Option<Arc<Postgres>> {
    let mut shared = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(running) = shared.upgrade() {
        return Some(running);
    }
    let started = Arc::new(postgres()?);
    *shared = Arc::downgrade(&started);
    Some(started)
}

/// A server for one test alone.
pub(crate) fn postgres() -> Option<Postgres> {
    let Some(programs) = programs() else {
        left_out("PostgreSQL is not installed (apt-get install postgresql)");
        return None;
    };
    let dir = tempfile::Builder::new().prefix("forebay-sink-pg-").tempdir().unwrap().keep();
    let (child, schemas) = (Mutex::default(), AtomicU32::new(0));
    let mut postgres = Postgres { dir, programs, port: free_port(), child, schemas };
    if is_root() {
        let owned = Command::new("chown").arg("postgres:").arg(&postgres.dir).status().unwrap();
        assert!(owned.success(), "chown");
    }
    let made = postgres
        .program("initdb")
        .args(["-A", "trust", "-U", "postgres", "-E", "UTF8", "--locale=C", "--no-sync", "-D"])
        .arg(postgres.dir.join("data"))
        .output()
        .unwrap();
    assert!(made.status.success(), "initdb: {}", String::from_utf8_lossy(&made.stderr));
    // Another test may have been given the port first.
    while let Err(log) = postgres.attempt() {
        assert!(log.contains("could not bind"), "PostgreSQL ended: {log}");
        postgres.port = free_port();
    }
    Some(postgres)
}

pub(crate) fn free_port() -> u16 {
    std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

fn is_root() -> bool {
    Command::new("id").arg("-u").output().unwrap().stdout == b"0\n"
}

/// Those of the newest version.
fn programs() -> Option<PathBuf> {
    let versions = std::fs::read_dir(DEBIAN).ok()?;
    let programs = versions.filter_map(|version| Some(version.ok()?.path().join("bin")));
    programs.filter(|dir| dir.join("initdb").is_file()).max()
}

impl Postgres {
    /// A program of it, as a user it lets run it.
    fn program(&self, name: &str) -> Command {
        let program = self.programs.join(name);
        let mut command = Command::new(Path::new("setpriv"));
        if is_root() {
            command.args(["--reuid=postgres", "--regid=postgres", "--clear-groups"]).arg(program);
        } else {
            command = Command::new(program);
        }
        command.current_dir(&self.dir);
        command
    }

    /// Starts it again where it was; again and again while what was killed is still on its way out.
    pub(crate) fn start(&self) {
        while let Err(log) = self.attempt() {
            assert!(log.contains("still in use"), "PostgreSQL ended: {log}");
        }
    }

    fn attempt(&self) -> Result<(), String> {
        let (port, dir) = (self.port.to_string(), self.dir.display().to_string());
        let log = std::fs::File::create(self.dir.join("log")).unwrap();
        let mut child = self
            .program("postgres")
            .arg("-D")
            .arg(self.dir.join("data"))
            .args(["-p", &port, "-k", &dir, "-h", "127.0.0.1"])
            .args(["-c", "fsync=off", "-c", "max_connections=100", "-c", "autovacuum=off"])
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .unwrap();
        while !self.psql("select 1").status.success() {
            if child.try_wait().unwrap().is_some() {
                let log = std::fs::read(self.dir.join("log")).unwrap_or_default();
                return Err(String::from_utf8_lossy(&log).into_owned());
            }
        }
        *self.child.lock().unwrap() = Some(child);
        Ok(())
    }

    /// Kills it, as a power cut would.
    pub(crate) fn kill(&self) {
        let mut child = self.child.lock().unwrap().take().unwrap();
        let parent = child.id().to_string();
        // Its children would notice that it has gone, and go; but first they may end what they are at.
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

    fn psql(&self, sql: &str) -> Output {
        Command::new(self.programs.join("psql"))
            .args(["-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1", "-h", "127.0.0.1"])
            .args(["-U", "postgres", "-p", &self.port.to_string(), "-d", "postgres", "-c", sql])
            .output()
            .unwrap()
    }

    /// What a query gives, as psql prints it.
    pub(crate) fn query(&self, sql: &str) -> String {
        let output = self.psql(sql);
        assert!(output.status.success(), "{sql}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap().trim_end().to_owned()
    }

    /// Settings of a sink in a schema of its own.
    pub(crate) fn settings(&self) -> Settings {
        let number = self.schemas.fetch_add(1, Ordering::Relaxed);
        self.settings_at(self.port, &format!("sink {number}"))
    }

    /// Settings of a sink, reached by way of a port.
    pub(crate) fn settings_at(&self, port: u16, schema: &str) -> Settings {
        let defaults = Settings::default();
        let server =
            ServerSettings { port, database: Some("postgres".to_owned()), ..defaults.server };
        Settings { server, schema: schema.to_owned(), ..defaults }
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.get_mut().unwrap().take() {
            // At once: what it wrote is thrown away.
            Command::new("kill").arg("-QUIT").arg(child.id().to_string()).status().unwrap();
            child.wait().unwrap();
        }
        std::fs::remove_dir_all(&self.dir).unwrap();
    }
}
