//! A PostgreSQL of our own: in a throw-away directory, on a socket in it, gone with the last test.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex, Weak};

use tokio_postgres::{Client, NoTls};

/// Where Debian keeps the programs that are not on the path.
const INSTALLED: &str = "/usr/lib/postgresql";

/// One for all tests that run at the same time.
static SHARED: Mutex<Weak<Postgres>> = Mutex::new(Weak::new());

pub(crate) struct Postgres {
    /// Data, log and socket.
    dir: tempfile::TempDir,
    programs: PathBuf,
}

/// The server; none, and it says so, where none is installed and none is required.
pub(crate) fn postgres() -> Option<Arc<Postgres>> {
    let Some(programs) = programs() else {
        let required = std::env::var("FOREBAY_REQUIRE_SERVICES").is_ok_and(|it| it == "1");
        assert!(!required, "FOREBAY_REQUIRE_SERVICES=1, but PostgreSQL is not installed");
        eprintln!("SKIPPED: PostgreSQL is not installed (apt-get install postgresql)");
        return None;
    };
    let mut shared = SHARED.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    if let Some(running) = shared.upgrade() {
        return Some(running);
    }
    let started = Arc::new(Postgres::start(programs));
    *shared = Arc::downgrade(&started);
    Some(started)
}

/// Those of the newest version.
fn programs() -> Option<PathBuf> {
    let versions = std::fs::read_dir(INSTALLED).ok()?;
    let programs = versions.filter_map(|version| Some(version.ok()?.path().join("bin")));
    programs.filter(|dir| dir.join("initdb").is_file()).max()
}

/// A command, as the user `postgres` where this is root, whom the server does not run for.
fn as_user(program: &Path) -> Command {
    let id = Command::new("id").arg("-u").output().unwrap();
    if id.stdout != b"0\n" {
        return Command::new(program);
    }
    let mut command = Command::new("setpriv");
    command.args(["--reuid=postgres", "--regid=postgres", "--clear-groups"]).arg(program);
    command
}

impl Postgres {
    fn start(programs: PathBuf) -> Self {
        let dir = tempfile::Builder::new().prefix("forebay-pgcopy-").tempdir().unwrap();
        // Only root can give it away, and only root has to.
        Command::new("chown").arg("postgres:").arg(dir.path()).output().unwrap();
        let server = Self { dir, programs };
        server.run("initdb", &["-A", "trust", "-U", "postgres", "-E", "UTF8", "--locale=C", "-N"]);
        let socket = server.dir.path().display();
        let options = format!("-k {socket} -c listen_addresses= -c fsync=off -c autovacuum=off");
        let log = server.dir.path().join("log").display().to_string();
        server.run("pg_ctl", &["-w", "-o", &options, "-l", &log, "start"]);
        server
    }

    /// Runs one of its programs on its data.
    fn run(&self, name: &str, arguments: &[&str]) {
        let mut command = as_user(&self.programs.join(name));
        command.current_dir(&self.dir).args(arguments).arg("-D").arg(self.dir.path().join("data"));
        // A daemon would keep pipes open.
        let output = std::fs::File::create(self.dir.path().join("output")).unwrap();
        let status = command.stdout(output.try_clone().unwrap()).stderr(output).status().unwrap();
        let said = std::fs::read_to_string(self.dir.path().join("output")).unwrap();
        assert!(status.success(), "{name}: {said}");
    }

    /// A connection.
    pub(crate) async fn connect(&self) -> Client {
        let config = format!("host={} user=postgres dbname=postgres", self.dir.path().display());
        let (client, connection) = tokio_postgres::connect(&config, NoTls).await.unwrap();
        tokio::spawn(connection);
        client
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        self.run("pg_ctl", &["-m", "immediate", "stop"]);
    }
}
