//! The environment of a check: the binary, a separate directory, and the processes it started.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::{Mutex, PoisonError};

use anyhow::Context as _;

use super::server::{Server, Setup};

/// Lines of each server's log shown with a failure.
const LOG_LINES: usize = 12;

/// A missing requirement of a check, which is skipped.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(super) struct Skipped(pub(super) String);

/// The environment of a check.
#[derive(Debug)]
pub(super) struct Stage {
    pub(super) binary: PathBuf,
    /// Its own directory; servers log in it.
    pub(super) dir: PathBuf,
    /// Whether times are checked.
    pub(super) judges_times: bool,
    /// Number of tours.
    pub(super) runs: u32,
    started: Mutex<Vec<u32>>,
}

impl Stage {
    /// Returns a stage in a new directory.
    ///
    /// # Errors
    /// The directory cannot be created.
    pub(super) fn new(
        binary: PathBuf,
        dir: PathBuf,
        judges_times: bool,
        runs: u32,
    ) -> anyhow::Result<Self> {
        std::fs::create_dir_all(&dir)
            .with_context(|| format!("cannot create {}", dir.display()))?;
        Ok(Self { binary, dir, judges_times, runs, started: Mutex::default() })
    }

    /// Starts a server with these settings, its data in `data` below the stage's directory.
    ///
    /// # Errors
    /// It does not start.
    pub(super) fn serve(&self, data: &str, settings: &[&str]) -> anyhow::Result<Server> {
        self.start(&Setup { data: self.dir.join(data), settings, ..Setup::default() })
    }

    /// Starts a server.
    ///
    /// # Errors
    /// It does not start.
    pub(super) fn start(&self, setup: &Setup<'_>) -> anyhow::Result<Server> {
        Server::start(self, setup)
    }

    /// Returns a command for the binary, without settings in the environment, in the stage's
    /// directory.
    pub(super) fn forebay(&self) -> Command {
        without_settings(Command::new(&self.binary), &self.dir)
    }

    /// Runs the binary for at most `limit_s` seconds (exit code 124 after that).
    ///
    /// # Errors
    /// It cannot be started.
    pub(super) fn run(&self, args: &[&str], limit_s: u32) -> anyhow::Result<Output> {
        let mut limited = without_settings(Command::new("timeout"), &self.dir);
        limited.args(["-k", "5", &limit_s.to_string()]).arg(&self.binary).args(args);
        limited.stdin(Stdio::null()).output().context("cannot run forebay")
    }

    /// Records a process that must not outlive the check.
    pub(super) fn note(&self, pid: u32) {
        self.started.lock().unwrap_or_else(PoisonError::into_inner).push(pid);
    }

    /// Removes a process that has ended: its number may be reused.
    pub(super) fn forget(&self, pid: u32) {
        self.started.lock().unwrap_or_else(PoisonError::into_inner).retain(|known| *known != pid);
    }

    /// Kills the processes that were started and have not ended.
    pub(super) fn kill_all(&self) {
        let started =
            std::mem::take(&mut *self.started.lock().unwrap_or_else(PoisonError::into_inner));
        for pid in started {
            crate::command::works(Command::new("kill").args(["-KILL", &pid.to_string()]));
        }
    }

    /// Removes the files of a check that held.
    pub(super) fn clean(&self) {
        if let Err(error) = std::fs::remove_dir_all(&self.dir) {
            crate::command::say(format_args!("cannot remove {}: {error}", self.dir.display()));
        }
    }

    /// The ends of the servers' logs.
    pub(super) fn evidence(&self) -> String {
        let mut text = String::new();
        let entries = std::fs::read_dir(&self.dir).into_iter().flatten().flatten();
        let mut logs: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
        logs.retain(|path| path.extension().is_some_and(|extension| extension == "log"));
        logs.sort();
        for log in logs {
            text.push_str(&format!("\n    {} ends with:", log.display()));
            let all = std::fs::read(&log).unwrap_or_default();
            let all = String::from_utf8_lossy(&all);
            let lines: Vec<&str> = all.lines().collect();
            let last = lines.get(lines.len().saturating_sub(LOG_LINES)..).unwrap_or_default();
            last.iter().for_each(|line| text.push_str(&format!("\n      {line}")));
        }
        text
    }
}

/// Returns a command whose settings come only from its arguments.
fn without_settings(mut command: Command, dir: &Path) -> Command {
    for (name, _) in std::env::vars_os() {
        if name.as_encoded_bytes().starts_with(b"FOREBAY_") {
            command.env_remove(name);
        }
    }
    command.current_dir(dir);
    command
}
