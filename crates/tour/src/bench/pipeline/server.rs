//! A temporary PostgreSQL: created in a directory, on a free port, removed when dropped.
//!
//! Its settings are those of a production server: every commit is flushed to the disk.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use anyhow::{Context as _, bail, ensure};

/// Where Debian installs the programs that are not on the path.
const DEBIAN: &str = "/usr/lib/postgresql";

/// A running server.
pub(in crate::bench) struct Server {
    dir: PathBuf,
    programs: PathBuf,
    pub(in crate::bench) port: u16,
    child: Child,
}

/// Returns the programs of the newest version that is installed.
fn programs() -> anyhow::Result<PathBuf> {
    let versions = std::fs::read_dir(DEBIAN);
    let versions = versions.context("PostgreSQL is not installed: apt-get install postgresql")?;
    let mut found = Vec::new();
    for version in versions {
        let dir = version.context("cannot list the versions of PostgreSQL")?.path().join("bin");
        if dir.join("initdb").is_file() {
            found.push(dir);
        }
    }
    found.sort();
    found.pop().context("PostgreSQL is not installed: apt-get install postgresql")
}

impl Server {
    /// Creates a server in `scratch` and starts it.
    pub(in crate::bench) fn start(scratch: &Path) -> anyhow::Result<Self> {
        let programs = programs()?;
        let dir = scratch.join("postgres");
        std::fs::create_dir(&dir).with_context(|| format!("cannot create {}", dir.display()))?;
        if is_root() {
            // The server refuses to run as root; its user must be able to reach its directory.
            open_to_all(scratch)?;
            let owned = Command::new("chown").arg("postgres:").arg(&dir).status();
            ensure!(
                owned.context("cannot start chown")?.success(),
                "cannot change the owner of {}",
                dir.display()
            );
        }
        let data = dir.join("data");
        let made = program(&programs, "initdb", &dir)
            .args(["-A", "trust", "-U", "postgres", "-E", "UTF8", "--locale=C", "--no-sync", "-D"])
            .arg(&data)
            .output()
            .context("cannot start initdb")?;
        ensure!(made.status.success(), "initdb failed: {}", String::from_utf8_lossy(&made.stderr));
        let listener = std::net::TcpListener::bind("127.0.0.1:0").context("no port is free")?;
        let port = listener.local_addr().context("no port is free")?.port();
        drop(listener);
        let log =
            std::fs::File::create(scratch.join("postgres.log")).context("cannot create a log")?;
        let mut command = program(&programs, "postgres", &dir);
        command
            .arg("-D")
            .arg(data)
            .args(["-p", &port.to_string(), "-h", "127.0.0.1", "-k"])
            .arg(&dir);
        for setting in [
            "shared_buffers=512MB",
            "max_wal_size=8GB",
            "checkpoint_timeout=1h",
            "autovacuum=off",
            "wal_level=logical",
            "wal_retrieve_retry_interval=100ms",
        ] {
            command.args(["-c", setting]);
        }
        let child =
            command.stdout(Stdio::null()).stderr(log).spawn().context("cannot start PostgreSQL")?;
        let mut server = Self { dir, programs, port, child };
        while !server.psql("postgres", "select 1")?.status.success() {
            if server.child.try_wait().context("cannot wait for PostgreSQL")?.is_some() {
                bail!("PostgreSQL did not start; see {}", scratch.join("postgres.log").display());
            }
        }
        Ok(server)
    }

    fn psql(&self, database: &str, sql: &str) -> anyhow::Result<Output> {
        self.psql_command(database).args(["-c", sql]).output().context("cannot start psql")
    }

    /// Returns psql, connected to a database.
    pub(super) fn psql_command(&self, database: &str) -> Command {
        let mut command = Command::new(self.programs.join("psql"));
        command.args(["-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1", "-h", "127.0.0.1"]);
        command.args(["-U", "postgres", "-p", &self.port.to_string(), "-d", database]);
        command
    }

    /// Returns the transactions that were committed in a range of the log, each with its number and time, as COPY
    /// reads them.
    pub(super) fn commits(&self, from: &str, till: &str) -> anyhow::Result<String> {
        let mut command = program(&self.programs, "pg_waldump", &self.dir);
        command.env("TZ", "UTC").args(["--rmgr=Transaction", "-s", from, "-e", till, "-p"]);
        let output = command.arg(self.dir.join("data/pg_wal")).output();
        let output = output.context("cannot start pg_waldump")?;
        let complaint = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "pg_waldump failed: {complaint}");
        let mut commits = String::new();
        for line in String::from_utf8_lossy(&output.stdout).lines() {
            // rmgr: Transaction ... tx: 741, lsn: ..., desc: COMMIT 2026-11-29 16:50:16.123456 UTC...
            let found = line.split_once("tx:").and_then(|(_, rest)| {
                let (number, rest) = rest.split_once(',')?;
                let (_, rest) = rest.split_once("COMMIT ")?;
                let (time, _) = rest.split_once(" UTC")?;
                Some((number.trim(), time))
            });
            if let Some((number, time)) = found {
                commits.push_str(&format!("{number}\t{time}+00\n"));
            }
        }
        Ok(commits)
    }

    /// Returns the result of a query, as psql prints it.
    pub(super) fn query(&self, database: &str, sql: &str) -> anyhow::Result<String> {
        let output = self.psql(database, sql)?;
        ensure!(output.status.success(), "{sql}: {}", String::from_utf8_lossy(&output.stderr));
        Ok(String::from_utf8_lossy(&output.stdout).trim_end().to_owned())
    }
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Lets every user traverse a directory.
fn open_to_all(dir: &Path) -> anyhow::Result<()> {
    use std::os::unix::fs::PermissionsExt as _;
    let all = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(dir, all)
        .with_context(|| format!("cannot change the permissions of {}", dir.display()))
}

/// Returns a PostgreSQL program, run as a user that it permits.
fn program(programs: &Path, name: &str, dir: &Path) -> Command {
    let program = programs.join(name);
    let mut command = if is_root() {
        let mut command = Command::new("setpriv");
        command.args(["--reuid=postgres", "--regid=postgres", "--clear-groups"]).arg(program);
        command
    } else {
        Command::new(program)
    };
    command.current_dir(dir);
    command
}

impl Drop for Server {
    fn drop(&mut self) {
        // At once: its data is removed with its directory.
        let pid = rustix::process::Pid::from_child(&self.child);
        if let Err(error) = rustix::process::kill_process(pid, rustix::process::Signal::QUIT) {
            tracing::warn!(%error, "cannot stop PostgreSQL");
        }
        if let Err(error) = self.child.wait() {
            tracing::warn!(%error, dir = %self.dir.display(), "cannot wait for PostgreSQL");
        }
    }
}
