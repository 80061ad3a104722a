//! A PostgreSQL of our own, on a free port, gone when it is dropped.

use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};

/// Where Debian keeps the programs that are not on the path.
const DEBIAN: &str = "/usr/lib/postgresql";

pub(crate) struct Postgres {
    dir: PathBuf,
    programs: PathBuf,
    pub(crate) port: u16,
    /// Whether anybody was told the port.
    is_known: bool,
    child: Option<Child>,
}

/// Says something about a test that is left out, or of what it leaves behind.
#[expect(clippy::print_stderr, reason = "a test that is left out says so")]
fn say(text: &str) {
    eprintln!("{text}");
}

/// Starts one; nothing, and says so, where none is installed and none is required.
pub(crate) fn postgres() -> Option<Postgres> {
    let Some(programs) = programs() else {
        let required = std::env::var("FOREBAY_REQUIRE_SERVICES").is_ok_and(|it| it == "1");
        assert!(!required, "FOREBAY_REQUIRE_SERVICES=1, but PostgreSQL is not installed");
        say("SKIPPED: PostgreSQL is not installed (apt-get install postgresql)");
        return None;
    };
    let dir = tempfile::Builder::new().prefix("forebay-pg-").tempdir().unwrap().keep();
    let port = free_port();
    let mut postgres = Postgres { dir, programs, port, is_known: false, child: None };
    if is_root() {
        let owned = Command::new("chown").arg("postgres:").arg(&postgres.dir).status().unwrap();
        assert!(owned.success(), "chown");
    }
    let data = postgres.dir.join("data");
    let made = postgres
        .program("initdb")
        .args(["-A", "trust", "-U", "postgres", "-E", "UTF8", "--locale=C", "--no-sync", "-D"])
        .arg(&data)
        .output()
        .unwrap();
    assert!(made.status.success(), "initdb: {}", String::from_utf8_lossy(&made.stderr));
    postgres.start();
    Some(postgres)
}

fn free_port() -> u16 {
    std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// The newest version there is.
fn programs() -> Option<PathBuf> {
    let mut found: Vec<PathBuf> = std::fs::read_dir(DEBIAN)
        .into_iter()
        .flatten()
        .filter_map(|entry| Some(entry.ok()?.path().join("bin")))
        .filter(|dir| dir.join("initdb").is_file())
        .collect();
    found.sort();
    found.pop()
}

impl Postgres {
    /// A program of it, as a user it lets run it.
    fn program(&self, name: &str) -> Command {
        let program = self.programs.join(name);
        let mut command = if is_root() {
            let mut command = Command::new("setpriv");
            command.args(["--reuid=postgres", "--regid=postgres", "--clear-groups"]).arg(program);
            command
        } else {
            Command::new(program)
        };
        command.current_dir(&self.dir);
        command
    }

    /// Writes a file into its data directory that only it may read.
    pub(crate) fn write(&self, name: &str, text: &str) {
        let path = self.dir.join("data").join(name);
        std::fs::write(&path, text).unwrap();
        if is_root() {
            let owned = Command::new("chown").arg("postgres:").arg(&path).status().unwrap();
            assert!(owned.success(), "chown");
        }
        let mut mode = std::fs::metadata(&path).unwrap().permissions();
        std::os::unix::fs::PermissionsExt::set_mode(&mut mode, 0o600);
        std::fs::set_permissions(&path, mode).unwrap();
    }

    /// Starts it; again and again while processes of one that was killed are still on their way out.
    pub(crate) fn start(&mut self) {
        while let Err(log) = self.attempt() {
            // Another test may have been given the port first; later it stands in pipeline files.
            if !self.is_known && log.contains("could not bind") {
                self.port = free_port();
                continue;
            }
            assert!(log.contains("still in use"), "PostgreSQL ended: {log}");
        }
        self.is_known = true;
    }

    fn attempt(&mut self) -> Result<(), String> {
        let (port, dir) = (self.port.to_string(), self.dir.display().to_string());
        let log = std::fs::File::create(self.dir.join("log")).unwrap();
        let child = self
            .program("postgres")
            .arg("-D")
            .arg(self.dir.join("data"))
            .args(["-p", &port, "-k", &dir, "-h", "127.0.0.1"])
            .args(["-c", "fsync=off", "-c", "max_connections=50", "-c", "autovacuum=off"])
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .unwrap();
        self.child = Some(child);
        while !self.psql("postgres", "select 1").status.success() {
            let child = self.child.as_mut().unwrap();
            if child.try_wait().unwrap().is_some() {
                let log = std::fs::read(self.dir.join("log")).unwrap_or_default();
                return Err(String::from_utf8_lossy(&log).into_owned());
            }
        }
        Ok(())
    }

    /// Kills it and every process of it at once, as a power cut would.
    pub(crate) fn kill(&mut self) {
        let mut child = self.child.take().unwrap();
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
            let stat = std::fs::read_to_string(PathBuf::from("/proc").join(child).join("stat"));
            // Whose child it is now may take its time to ask what became of it.
            stat.is_ok_and(|stat| !stat.contains(") Z "))
        };
        while children.iter().any(runs) {}
    }

    fn psql(&self, database: &str, sql: &str) -> Output {
        Command::new(self.programs.join("psql"))
            .args([
                "-X",
                "-q",
                "-A",
                "-t",
                "-v",
                "ON_ERROR_STOP=1",
                "-h",
                "127.0.0.1",
                "-U",
                "postgres",
            ])
            .args(["-p", &self.port.to_string(), "-d", database, "-c", sql])
            .output()
            .unwrap()
    }

    /// What a query gives, as psql prints it.
    pub(crate) fn query(&self, database: &str, sql: &str) -> String {
        let output = self.psql(database, sql);
        assert!(output.status.success(), "{sql}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap().trim_end().to_owned()
    }

    /// As [`query`](Self::query); nothing where it fails.
    pub(crate) fn try_query(&self, database: &str, sql: &str) -> Option<String> {
        let output = self.psql(database, sql);
        output
            .status
            .success()
            .then(|| String::from_utf8_lossy(&output.stdout).trim_end().to_owned())
    }

    /// The bytes COPY gives of a query.
    pub(crate) fn copy(&self, database: &str, query: &str) -> Vec<u8> {
        let output = self.psql(database, &format!("copy ({query}) to stdout (format binary)"));
        assert!(output.status.success(), "{query}: {}", String::from_utf8_lossy(&output.stderr));
        output.stdout
    }

    /// A connection held open: what is written to it is done one statement after another.
    pub(crate) fn session(&self, database: &str) -> Child {
        Command::new(self.programs.join("psql"))
            .args(["-X", "-q", "-A", "-t", "-h", "127.0.0.1", "-U", "postgres"])
            .args(["-p", &self.port.to_string(), "-d", database])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap()
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            // At once: what it wrote is thrown away.
            let pid = rustix::process::Pid::from_child(&child);
            if rustix::process::kill_process(pid, rustix::process::Signal::QUIT).is_err() {
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
