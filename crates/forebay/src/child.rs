//! A server of our own in a process of its own, for the tour and the benchmarks.
//!
//! It is this same binary, on a free loopback port, and it ends with the value that stands for it.

use std::io::{BufRead as _, BufReader};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};

/// How long a stopping server may take.
const STOP_LIMIT: Duration = Duration::from_secs(30);

/// A running child server.
#[derive(Debug)]
pub(crate) struct Server {
    child: Child,
    address: SocketAddr,
    /// Where it logs.
    pub(crate) log: PathBuf,
    /// From the start of the process to its first answer.
    pub(crate) started_in: Duration,
}

impl Server {
    /// Starts `forebay <command...>` on `data` and waits until it listens.
    ///
    /// Its log goes to `<log>`, appended. Settings come from `command` alone: neither the
    /// environment nor a configuration file of the current directory has a say. It serves the cache
    /// only where `command` sets something of it: its default ports may be taken.
    pub(crate) fn start(command: &[&str], data: &Path, log: &Path) -> anyhow::Result<Self> {
        let binary = std::env::current_exe().context("cannot find this program's own file")?;
        let open = || std::fs::OpenOptions::new().create(true).append(true).open(log);
        let log_file = open().with_context(|| format!("cannot write {}", log.display()))?;
        let data = std::path::absolute(data)
            .with_context(|| format!("cannot use {} for data", data.display()))?;
        std::fs::create_dir_all(&data)
            .with_context(|| format!("cannot make {}", data.display()))?;
        let mut started = Command::new(binary);
        for (name, _) in std::env::vars_os() {
            if name.as_encoded_bytes().starts_with(b"FOREBAY_") {
                started.env_remove(name);
            }
        }
        let wants_cache = command.iter().any(|word| word.starts_with("cache."));
        let without_cache: &[&str] =
            if wants_cache { &[] } else { &["--set", "cache.enabled=false"] };
        let begun = Instant::now();
        let mut child = started
            .current_dir(&data)
            .args(command)
            .args(["--listen", "127.0.0.1:0", "--log-format", "json"])
            .args(without_cache)
            .arg("--data")
            .arg(&data)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(log_file)
            .spawn()
            .context("cannot start the server")?;
        let stdout = child.stdout.take().context("the server has no standard output")?;
        let mut line = String::new();
        BufReader::new(stdout).read_line(&mut line).context("cannot read the server's output")?;
        let address =
            line.trim().strip_prefix("listening http://").and_then(|address| address.parse().ok());
        let Some(address) = address else {
            let status = child.wait().context("cannot wait for the server")?;
            let told = std::fs::read_to_string(log).unwrap_or_default();
            let last: Vec<&str> = told.lines().rev().take(5).collect();
            bail!("the server did not start ({status}); its log ends with:\n{}", last.join("\n"));
        };
        Ok(Self { child, address, log: log.to_owned(), started_in: begun.elapsed() })
    }

    /// Where it listens.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Its process id.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Ends it with SIGKILL, in the middle of whatever it is doing.
    pub(crate) fn kill(mut self) -> anyhow::Result<()> {
        self.child.kill().context("cannot kill the server")?;
        self.child.wait().context("cannot wait for the killed server")?;
        Ok(())
    }

    /// Ends it with SIGTERM and waits.
    pub(crate) fn stop(mut self) -> anyhow::Result<()> {
        self.terminate()?;
        let deadline = Instant::now() + STOP_LIMIT;
        loop {
            if let Some(status) = self.child.try_wait().context("cannot wait for the server")? {
                if status.success() {
                    return Ok(());
                }
                bail!("the server stopped with {status}; its log is {}", self.log.display());
            }
            if Instant::now() >= deadline {
                bail!("the server did not stop within {} s", STOP_LIMIT.as_secs());
            }
            std::thread::park_timeout(Duration::from_millis(5));
        }
    }

    /// Leaves it running when this value goes.
    pub(crate) fn detach(self) {
        std::mem::forget(self);
    }

    fn terminate(&self) -> anyhow::Result<()> {
        let pid = i32::try_from(self.child.id()).context("the server's process id is odd")?;
        let pid = rustix::process::Pid::from_raw(pid).context("the server's process id is odd")?;
        rustix::process::kill_process(pid, rustix::process::Signal::TERM)
            .context("cannot signal the server")
    }

    /// A figure of `/proc/<pid>/status` in bytes, such as `VmRSS`.
    pub(crate) fn memory(&self, field: &str) -> anyhow::Result<u64> {
        memory_of(self.pid(), field)
    }

    /// Processor time it has used so far, in seconds, user and system.
    pub(crate) fn cpu_seconds(&self) -> anyhow::Result<f64> {
        cpu_seconds_of(self.pid())
    }

    /// Begins the peak of resident memory anew.
    pub(crate) fn reset_peak(&self) -> anyhow::Result<()> {
        reset_peak_of(self.pid())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(None)) {
            // Whoever drops it without stopping it is failing already and says why.
            self.child.kill().and_then(|()| self.child.wait()).map(drop).unwrap_or_default();
        }
    }
}

/// A figure of `/proc/<pid>/status` in bytes, such as `VmRSS`.
pub(crate) fn memory_of(pid: u32, field: &str) -> anyhow::Result<u64> {
    let path = format!("/proc/{pid}/status");
    let text = std::fs::read_to_string(&path).with_context(|| format!("cannot read {path}"))?;
    let line = text.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
    let kib: u64 = line
        .and_then(|line| line.trim().strip_suffix("kB")?.trim().parse().ok())
        .with_context(|| format!("{path} has no {field}"))?;
    Ok(kib * 1_024)
}

/// Processor time a process has used so far, in seconds, user and system.
pub(crate) fn cpu_seconds_of(pid: u32) -> anyhow::Result<f64> {
    let path = format!("/proc/{pid}/stat");
    let text = std::fs::read_to_string(&path).with_context(|| format!("cannot read {path}"))?;
    // The name in parentheses may hold anything; the fields are counted after it.
    let fields = text.rsplit_once(')').map(|(_, rest)| rest.split_whitespace());
    let ticks: Vec<u32> = fields
        .into_iter()
        .flatten()
        .skip(11)
        .take(2)
        .filter_map(|field| field.parse().ok())
        .collect();
    let [user, system] = ticks.as_slice() else { anyhow::bail!("{path} is odd") };
    // Linux reports in hundredths of a second on every machine (USER_HZ, proc(5)).
    Ok(f64::from(user + system) / 100.0)
}

/// Begins the peak of a process's resident memory anew.
pub(crate) fn reset_peak_of(pid: u32) -> anyhow::Result<()> {
    let path = format!("/proc/{pid}/clear_refs");
    std::fs::write(&path, "5").with_context(|| format!("cannot write {path}"))
}
