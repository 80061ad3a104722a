//! A server in a child process, for the tour and the benchmarks.
//!
//! It is this same binary, on a free loopback port, and it ends when its value is dropped.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};

/// Maximum time for a server to stop: the time it gives its requests, and then its last writes to
/// a disk that other processes may keep busy.
const STOP_LIMIT: Duration = Duration::from_secs(300);
/// Maximum time between the end of a crashing server's connections and its own end.
const END_LIMIT: Duration = Duration::from_millis(500);
/// Number of lines of its log shown in the error if a server does not start.
const LOG_LINES: usize = 5;

/// A running child server.
#[derive(Debug)]
pub(crate) struct Server {
    child: Child,
    address: SocketAddr,
    /// Path of its log.
    pub(crate) log: PathBuf,
    /// Time from the start of the process to its first response.
    pub(crate) started_in: Duration,
    /// Whether dropping this value ends it; if it ends earlier, that is an error.
    is_ended: bool,
}

impl Server {
    /// Starts `forebay <command...>` on `data` and waits until it listens.
    ///
    /// Its log is appended to `<log>`. Settings come from `command` alone: neither the
    /// environment nor a configuration file of the current directory is used. It serves the cache
    /// only if `command` has a setting of it: its default ports may be in use.
    pub(crate) fn start(command: &[&str], data: &Path, log: &Path) -> anyhow::Result<Self> {
        let binary =
            std::env::current_exe().context("cannot determine the path of this program")?;
        let open = || std::fs::OpenOptions::new().create(true).append(true).open(log);
        let log_file = open().with_context(|| format!("cannot write {}", log.display()))?;
        let data = std::path::absolute(data)
            .with_context(|| format!("cannot use {} for data", data.display()))?;
        std::fs::create_dir_all(&data)
            .with_context(|| format!("cannot create {}", data.display()))?;
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
            // A server that printed something else would keep running.
            let killed = child.kill();
            let status = child.wait().context("cannot wait for the server")?;
            killed.context("cannot end the server")?;
            let last = last_lines(log, LOG_LINES).unwrap_or_default();
            bail!("the server did not start ({status}); its log ends with:\n{last}");
        };
        let started_in = begun.elapsed();
        Ok(Self { child, address, log: log.to_owned(), started_in, is_ended: false })
    }

    /// Returns its address.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns its process id.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Ends it with SIGKILL, in the middle of its work.
    ///
    /// # Errors
    /// It cannot be killed, or had already ended.
    pub(crate) fn kill(mut self) -> anyhow::Result<()> {
        if let Some(status) = self.child.try_wait().context("cannot wait for the server")? {
            bail!("the server ended unexpectedly ({status}); its log is {}", self.log.display());
        }
        self.is_ended = true;
        self.child.kill().context("cannot kill the server")?;
        self.child.wait().context("cannot wait for the killed server")?;
        Ok(())
    }

    /// Ends it with SIGTERM and waits.
    pub(crate) fn stop(mut self) -> anyhow::Result<()> {
        self.terminate()?;
        self.is_ended = true;
        match self.ended_within(STOP_LIMIT).context("cannot wait for the server")? {
            Some(status) if status.success() => Ok(()),
            Some(status) => {
                bail!("the server stopped with {status}; its log is {}", self.log.display())
            }
            None => bail!("the server did not stop within {} s", STOP_LIMIT.as_secs()),
        }
    }

    /// Waits for it to end, at most for `limit`.
    fn ended_within(&mut self, limit: Duration) -> std::io::Result<Option<ExitStatus>> {
        let deadline = Instant::now() + limit;
        loop {
            let status = self.child.try_wait()?;
            if status.is_some() || Instant::now() >= deadline {
                return Ok(status);
            }
            std::thread::park_timeout(Duration::from_millis(5));
        }
    }

    /// Leaves it running when this value is dropped.
    pub(crate) fn detach(self) {
        std::mem::forget(self);
    }

    fn terminate(&self) -> anyhow::Result<()> {
        let pid = i32::try_from(self.child.id()).context("invalid process id of the server")?;
        let pid =
            rustix::process::Pid::from_raw(pid).context("invalid process id of the server")?;
        rustix::process::kill_process(pid, rustix::process::Signal::TERM)
            .context("cannot signal the server")
    }

    /// Returns a value of `/proc/<pid>/status` in bytes, such as `VmRSS`.
    pub(crate) fn memory(&self, field: &str) -> anyhow::Result<u64> {
        memory_of(self.pid(), field)
    }

    /// Returns the CPU time it has used so far, in seconds, user and system.
    pub(crate) fn cpu_seconds(&self) -> anyhow::Result<f64> {
        cpu_seconds_of(self.pid())
    }

    /// Resets its peak of resident memory.
    pub(crate) fn reset_peak(&self) -> anyhow::Result<()> {
        reset_peak_of(self.pid())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // A process that ends closes its connections first, so an error caused by that waits for
        // the end.
        let limit = if self.is_ended { Duration::ZERO } else { END_LIMIT };
        match self.ended_within(limit) {
            // A caller that drops it without stopping it is already failing and reports why.
            Ok(None) => {
                self.child.kill().and_then(|()| self.child.wait()).map(drop).unwrap_or_default();
            }
            // A crash leaves nothing in the log, which is where a lost connection is investigated.
            Ok(Some(status)) if !self.is_ended => {
                let line = serde_json::json!({
                    "level": "ERROR",
                    "message": format!("the server ended unexpectedly ({status})"),
                });
                let log = std::fs::OpenOptions::new().append(true).open(&self.log);
                log.and_then(|mut log| writeln!(log, "{line}")).unwrap_or_default();
            }
            _ => {}
        }
    }
}

/// Returns the last lines of a log.
///
/// # Errors
/// It cannot be read.
pub(crate) fn last_lines(log: &Path, count: usize) -> std::io::Result<String> {
    let text = std::fs::read(log)?;
    let text = String::from_utf8_lossy(&text);
    let lines: Vec<&str> = text.lines().collect();
    let last = lines.get(lines.len().saturating_sub(count)..).unwrap_or_default();
    Ok(last.join("\n"))
}

/// Returns a value of `/proc/<pid>/status` in bytes, such as `VmRSS`.
pub(crate) fn memory_of(pid: u32, field: &str) -> anyhow::Result<u64> {
    let path = format!("/proc/{pid}/status");
    let text = std::fs::read_to_string(&path).with_context(|| format!("cannot read {path}"))?;
    let line = text.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
    let kib: u64 = line
        .and_then(|line| line.trim().strip_suffix("kB")?.trim().parse().ok())
        .with_context(|| format!("{path} has no {field}"))?;
    Ok(kib * 1_024)
}

/// Returns the CPU time a process has used so far, in seconds, user and system.
///
/// # Errors
/// There is no such process.
pub fn cpu_seconds_of(pid: u32) -> anyhow::Result<f64> {
    let path = format!("/proc/{pid}/stat");
    let text = std::fs::read_to_string(&path).with_context(|| format!("cannot read {path}"))?;
    // The name in parentheses may contain anything; the fields are counted after it.
    let fields = text.rsplit_once(')').map(|(_, rest)| rest.split_whitespace());
    let ticks: Vec<u32> = fields
        .into_iter()
        .flatten()
        .skip(11)
        .take(2)
        .filter_map(|field| field.parse().ok())
        .collect();
    let [user, system] = ticks.as_slice() else { anyhow::bail!("{path} has an unexpected format") };
    // Linux reports hundredths of a second on every machine (USER_HZ, proc(5)).
    Ok(f64::from(user + system) / 100.0)
}

/// Resets the peak of a process's resident memory.
pub(crate) fn reset_peak_of(pid: u32) -> anyhow::Result<()> {
    let path = format!("/proc/{pid}/clear_refs");
    std::fs::write(&path, "5").with_context(|| format!("cannot write {path}"))
}
