//! A `forebay serve` under attack.

use std::fs::File;
use std::io::{BufRead as _, BufReader, Read as _};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};

use super::stage::Stage;
use super::wire::{Answer, Resp, http};

/// Maximum time until a server stops.
const STOP_LIMIT: Duration = Duration::from_secs(60);

/// How a server is started.
#[derive(Debug, Default)]
pub(super) struct Setup<'a> {
    pub(super) data: PathBuf,
    /// `NAME=VALUE` each; the ports are set unless they are included.
    pub(super) settings: &'a [&'a str],
    /// Shell commands before it, such as `umask 000`.
    pub(super) before: &'a str,
}

/// A running server; killed when dropped.
#[derive(Debug)]
pub(super) struct Server {
    child: Child,
    pub(super) http: SocketAddr,
    pub(super) resp: SocketAddr,
    pub(super) text: SocketAddr,
    pub(super) log: PathBuf,
}

impl Server {
    pub(super) fn start(stage: &Stage, setup: &Setup<'_>) -> anyhow::Result<Self> {
        let log = free_log(&stage.dir);
        let errors =
            File::create(&log).with_context(|| format!("cannot create {}", log.display()))?;
        let mut command = match setup.before {
            "" => stage.forebay(),
            before => {
                let mut shell = Command::new("sh");
                shell.arg("-c").arg(format!("{before} && exec \"$0\" \"$@\"")).arg(&stage.binary);
                for (name, _) in std::env::vars_os() {
                    if name.as_encoded_bytes().starts_with(b"FOREBAY_") {
                        shell.env_remove(name);
                    }
                }
                shell
            }
        };
        command.args(["serve", "--listen", "127.0.0.1:0", "--log-format", "json", "--data"]);
        command.arg(&setup.data);
        let usual =
            ["cache.resp=127.0.0.1:0", "cache.text=127.0.0.1:0", "events.log_segment_size=1MiB"];
        for setting in usual.iter().chain(setup.settings) {
            command.args(["--set", setting]);
        }
        command.current_dir(&stage.dir).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(errors);
        let mut child = command.spawn().context("cannot start forebay")?;
        stage.note(child.id());
        let mut line = String::new();
        let out = child.stdout.take().context("forebay has no standard output")?;
        BufReader::new(out).read_line(&mut line).context("cannot read forebay's output")?;
        let url = line.trim().strip_prefix("listening ").and_then(|url| url.split_once("//"));
        let Some(http) = url.and_then(|(_, address)| address.parse().ok()) else {
            child.kill().context("cannot stop forebay")?;
            let status = child.wait().context("cannot wait for forebay")?;
            stage.forget(child.id());
            bail!("forebay did not start ({status}): {}", read_log(&log)?.trim_end());
        };
        let mut server = Self { child, http, resp: http, text: http, log };
        let said = read_log(&server.log)?;
        let open = said.lines().rev().find(|line| line.contains("\"cache open\""));
        let open: serde_json::Value = open
            .map(serde_json::from_str)
            .transpose()
            .context("cannot read forebay's log")?
            .unwrap_or_default();
        for (name, address) in [("resp", &mut server.resp), ("text", &mut server.text)] {
            let found = open.get(name).and_then(|at| at.as_str()?.parse().ok());
            *address = found.with_context(|| format!("the log has no address for {name}"))?;
        }
        Ok(server)
    }

    /// Sends an HTTP request with these header lines, each with its line end.
    ///
    /// # Errors
    /// No response was received.
    pub(super) fn ask(
        &self,
        method: &str,
        path: &str,
        headers: &str,
        body: &[u8],
    ) -> anyhow::Result<Answer> {
        let host = format!("host: {}\r\n{headers}", self.http);
        http(self.http, method, path, &host, body)
    }

    /// Sends an HTTP request that must have one of these statuses.
    ///
    /// # Errors
    /// Another status, or no response.
    pub(super) fn want(
        &self,
        method: &str,
        path: &str,
        body: &[u8],
        wanted: &[u16],
    ) -> anyhow::Result<Answer> {
        let answer = self.ask(method, path, "", body)?;
        if !wanted.contains(&answer.status) {
            bail!("{method} {path} returned {}, not {wanted:?}", answer.shown());
        }
        Ok(answer)
    }

    /// Opens a RESP connection.
    ///
    /// # Errors
    /// It cannot be opened.
    pub(super) fn resp(&self) -> anyhow::Result<Resp> {
        Resp::connect(self.resp)
    }

    /// Resident memory in bytes.
    ///
    /// # Errors
    /// The server has exited.
    pub(super) fn resident(&self) -> anyhow::Result<u64> {
        let path = format!("/proc/{}/status", self.child.id());
        let status =
            std::fs::read_to_string(&path).with_context(|| format!("cannot read {path}"))?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let kib: u64 = line
            .and_then(|line| line.trim().strip_suffix("kB")?.trim().parse().ok())
            .with_context(|| format!("{path} has no VmRSS: the server has exited"))?;
        Ok(kib * 1_024)
    }

    /// Kills it with SIGKILL.
    ///
    /// # Errors
    /// It had already exited.
    pub(super) fn kill(mut self, stage: &Stage) -> anyhow::Result<()> {
        if let Some(status) = self.child.try_wait().context("cannot get forebay's status")? {
            bail!("forebay exited unexpectedly ({status})");
        }
        self.child.kill().context("cannot kill forebay")?;
        self.child.wait().context("cannot wait for forebay")?;
        stage.forget(self.child.id());
        Ok(())
    }

    /// Stops it by a signal.
    ///
    /// # Errors
    /// It had already exited, or does not stop properly.
    pub(super) fn stop(mut self, stage: &Stage) -> anyhow::Result<()> {
        if let Some(status) = self.child.try_wait().context("cannot get forebay's status")? {
            bail!("forebay exited unexpectedly ({status})");
        }
        let pid = self.child.id();
        if !crate::command::works(Command::new("kill").arg(pid.to_string())) {
            bail!("cannot send forebay a signal to stop");
        }
        let deadline = Instant::now() + STOP_LIMIT;
        loop {
            if let Some(status) = self.child.try_wait().context("cannot wait for forebay")? {
                stage.forget(pid);
                if status.success() {
                    return Ok(());
                }
                bail!("forebay stopped with {status}");
            }
            if Instant::now() >= deadline {
                bail!("forebay did not stop within {} s", STOP_LIMIT.as_secs());
            }
            std::thread::park_timeout(Duration::from_millis(5));
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Nothing can be done about a server that has already exited.
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

/// Returns an unused name for a log.
fn free_log(dir: &Path) -> PathBuf {
    let name = |number| dir.join(format!("server-{number}.log"));
    (1..).map(name).find(|log| !log.exists()).unwrap_or_else(|| name(0))
}

fn read_log(log: &Path) -> anyhow::Result<String> {
    let mut text = String::new();
    let read = File::open(log).and_then(|mut log| log.read_to_string(&mut text));
    read.with_context(|| format!("cannot read {}", log.display()))?;
    Ok(text)
}
