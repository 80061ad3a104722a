//! A separate `forebay cache serve` for a client.

use std::fs::File;
use std::io::{BufRead as _, BufReader};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::{Context as _, bail};

use crate::command::{FEATURES, cargo};

/// Builds `forebay` and returns its path.
///
/// # Errors
/// It does not compile.
pub(crate) fn build() -> anyhow::Result<PathBuf> {
    crate::command::run(cargo().args([
        "build",
        "-p",
        "forebay",
        "--features",
        FEATURES,
        "--locked",
    ]))?;
    built()
}

/// Where the last build has put `forebay`.
///
/// # Errors
/// Cargo does not say.
pub(crate) fn built() -> anyhow::Result<PathBuf> {
    let metadata = cargo_metadata::MetadataCommand::new()
        .current_dir(crate::command::root())
        .no_deps()
        .exec()
        .context("cannot get the target directory from cargo")?;
    Ok(metadata.target_directory.join("debug").join("forebay").into_std_path_buf())
}

/// Maximum number of lines of a server's log in an error.
const LOG_LINES: usize = 20;

/// A running server; ended when dropped.
#[derive(Debug)]
pub(super) struct Server {
    process: Child,
    /// Where it speaks RESP.
    pub(super) resp: SocketAddr,
    /// Where it speaks the text protocol.
    pub(super) text: SocketAddr,
}

impl Server {
    /// Starts one whose data and log lie in `dir`.
    ///
    /// # Errors
    /// It does not start.
    pub(super) fn start(binary: &Path, dir: &Path, options: &[&str]) -> anyhow::Result<Self> {
        std::fs::create_dir_all(dir).with_context(|| format!("cannot create {}", dir.display()))?;
        let log = dir.join("server.log");
        let errors =
            File::create(&log).with_context(|| format!("cannot create {}", log.display()))?;
        let mut process = Command::new(binary)
            .args(["cache", "serve", "--resp", "127.0.0.1:0", "--text", "127.0.0.1:0"])
            // The default of Redis, on which its tests rely.
            .args(["--policy", "noeviction"])
            .arg("--data")
            .arg(dir.join("data"))
            .args(options)
            .stdout(Stdio::piped())
            .stderr(errors)
            .spawn()
            .with_context(|| format!("cannot start {}", binary.display()))?;
        let mut line = String::new();
        let read = process.stdout.take().map(|out| BufReader::new(out).read_line(&mut line));
        read.transpose().context("cannot read the server's output")?;
        let address = |name: &str| {
            let word = line.split_whitespace().find_map(|word| word.strip_prefix(name));
            word.and_then(|address| address.parse().ok())
        };
        match (address("resp="), address("text=")) {
            (Some(resp), Some(text)) => Ok(Self { process, resp, text }),
            _ => Err(not_started(&mut process, &line, &log)),
        }
    }

    /// Stops it by a signal.
    ///
    /// # Errors
    /// It does not end well: it crashed before, or cannot stop.
    pub(super) fn stop(mut self) -> anyhow::Result<()> {
        if let Some(status) = self.process.try_wait().context("cannot get the server's status")? {
            bail!("the server had already exited ({status})");
        }
        let mut kill = Command::new("kill");
        kill.arg(self.process.id().to_string());
        if !crate::command::works(&mut kill) {
            bail!("cannot send the server a signal to stop");
        }
        let status = self.process.wait().context("cannot wait for the server")?;
        if status.success() { Ok(()) } else { bail!("{status}") }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Nothing can be done about a server that has already exited.
        self.process.kill().ok();
        self.process.wait().ok();
    }
}

/// Ends a server that printed no address, and returns the error: what it printed, how it ended, and the
/// last lines of its log, as the directory is removed unless it is to be kept.
pub(super) fn not_started(process: &mut Child, printed: &str, log: &Path) -> anyhow::Error {
    // It has exited, or its addresses are unknown.
    process.kill().ok();
    let ended = process.wait().map_or_else(|error| error.to_string(), |status| status.to_string());
    let log = std::fs::read_to_string(log).unwrap_or_else(|error| error.to_string());
    let lines: Vec<&str> = log.lines().collect();
    let last = lines[lines.len().saturating_sub(LOG_LINES)..].join("\n");
    anyhow::anyhow!(
        "the server did not start ({ended}); it printed {printed:?}; its log ends with\n{last}"
    )
}

/// Runs a client's program for at most `limit_s` seconds, and returns what it said.
///
/// # Errors
/// It cannot be started.
pub(super) fn limited(command: &Command, limit_s: u32) -> anyhow::Result<(bool, String)> {
    let mut limited = Command::new("timeout");
    limited.args(["-k", "5", &limit_s.to_string()]);
    limited.arg(command.get_program()).args(command.get_args()).stdin(Stdio::null());
    if let Some(dir) = command.get_current_dir() {
        limited.current_dir(dir);
    }
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => limited.env(name, value),
            None => limited.env_remove(name),
        };
    }
    let program = command.get_program().to_string_lossy().into_owned();
    let ended = limited.output().with_context(|| format!("cannot start {program}"))?;
    let mut said = String::from_utf8_lossy(&ended.stdout).into_owned();
    said.push_str(&String::from_utf8_lossy(&ended.stderr));
    Ok((ended.status.success(), said))
}
