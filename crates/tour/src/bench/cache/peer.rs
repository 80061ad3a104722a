//! The servers that are measured, each in a child process on a free port.

use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};

use super::resp::Client;
use crate::child;

/// Maximum time for a server to answer its first command, or to stop.
const LIMIT: Duration = Duration::from_secs(30);

/// Which server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    #[cfg(feature = "peers")]
    Redis,
    #[cfg(feature = "peers")]
    Valkey,
    Forebay,
}

impl Kind {
    /// The servers that this build measures, without Valkey, which need not be installed.
    #[cfg(feature = "peers")]
    pub(super) const ALL: [Self; 2] = [Self::Redis, Self::Forebay];
    /// The servers that this build measures.
    #[cfg(not(feature = "peers"))]
    pub(super) const ALL: [Self; 1] = [Self::Forebay];

    /// Returns the prefix of its figures.
    pub(super) fn name(self) -> &'static str {
        match self {
            #[cfg(feature = "peers")]
            Self::Redis => "redis",
            #[cfg(feature = "peers")]
            Self::Valkey => "valkey",
            Self::Forebay => "cache",
        }
    }
}

/// A running server.
#[derive(Debug)]
pub(super) struct Peer {
    child: Child,
    pub(super) address: SocketAddr,
    /// Address of Forebay's text protocol.
    pub(super) text: SocketAddr,
}

impl Peer {
    /// Starts a server and waits until it answers.
    ///
    /// * `logged`: whether writes are logged (`everysec` and `interval:50ms`).
    pub(super) fn start(kind: Kind, data: &Path, logged: bool) -> anyhow::Result<Self> {
        Self::start_with(kind, data, logged, &[])
    }

    /// The same with further command line arguments.
    pub(super) fn start_with(
        kind: Kind,
        data: &Path,
        logged: bool,
        words: &[&str],
    ) -> anyhow::Result<Self> {
        std::fs::create_dir_all(data)
            .with_context(|| format!("cannot create {}", data.display()))?;
        let address = free_address()?;
        let text = free_address()?;
        let mut command = match kind {
            #[cfg(feature = "peers")]
            Kind::Redis => super::redis::server("redis-server", address, data, logged),
            #[cfg(feature = "peers")]
            Kind::Valkey => super::redis::server("valkey-server", address, data, logged),
            Kind::Forebay => forebay(address, text, data, logged)?,
        };
        command.args(words);
        let log = std::fs::File::create(data.join("server.log"))
            .with_context(|| format!("cannot write in {}", data.display()))?;
        let errors = log.try_clone().context("cannot share the server's log")?;
        let child =
            command.stdin(Stdio::null()).stdout(log).stderr(errors).spawn().with_context(|| {
                format!("cannot start {}; check that it is installed", kind.name())
            })?;
        let mut peer = Self { child, address, text };
        peer.wait_for_answer(data)?;
        Ok(peer)
    }

    fn wait_for_answer(&mut self, data: &Path) -> anyhow::Result<()> {
        let deadline = Instant::now() + LIMIT;
        loop {
            let answer =
                Client::connect(self.address).and_then(|mut client| client.command(&[b"PING"]));
            if answer.is_ok() {
                return Ok(());
            }
            let ended = self.child.try_wait().context("cannot wait for the server")?;
            if ended.is_some() || Instant::now() >= deadline {
                let log = std::fs::read_to_string(data.join("server.log")).unwrap_or_default();
                bail!("the server did not start; its log:\n{log}");
            }
            std::thread::park_timeout(Duration::from_millis(10));
        }
    }

    /// Returns the resident memory in bytes.
    pub(super) fn resident(&self) -> anyhow::Result<u64> {
        child::memory_of(self.child.id(), "VmRSS")
    }

    /// Returns its peak since [`Peer::reset_peak`].
    pub(super) fn peak(&self) -> anyhow::Result<u64> {
        child::memory_of(self.child.id(), "VmHWM")
    }

    pub(super) fn reset_peak(&self) -> anyhow::Result<()> {
        child::reset_peak_of(self.child.id())
    }

    /// Returns the CPU seconds used so far.
    pub(super) fn cpu_seconds(&self) -> anyhow::Result<f64> {
        child::cpu_seconds_of(self.child.id())
    }

    /// Ends it.
    pub(super) fn stop(mut self) -> anyhow::Result<()> {
        let pid = i32::try_from(self.child.id()).ok().and_then(rustix::process::Pid::from_raw);
        let pid = pid.context("invalid process id of the server")?;
        rustix::process::kill_process(pid, rustix::process::Signal::TERM)
            .context("cannot signal the server")?;
        let deadline = Instant::now() + LIMIT;
        while self.child.try_wait().context("cannot wait for the server")?.is_none() {
            if Instant::now() >= deadline {
                bail!("the server did not stop");
            }
            std::thread::park_timeout(Duration::from_millis(5));
        }
        Ok(())
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        // After an error it may still run; a server that has stopped cannot be killed.
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

fn free_address() -> anyhow::Result<SocketAddr> {
    TcpListener::bind("127.0.0.1:0")
        .and_then(|listener| listener.local_addr())
        .context("cannot find a free port")
}

fn forebay(
    address: SocketAddr,
    text: SocketAddr,
    data: &Path,
    logged: bool,
) -> anyhow::Result<Command> {
    let binary = std::env::current_exe().context("cannot determine the path of this program")?;
    let mut command = Command::new(binary);
    command.args(["cache", "serve", "--log", "warn", "--resp", &address.to_string()]);
    command.args(["--text", &text.to_string()]);
    if logged {
        command.arg("--data").arg(data.join("data")).args(["--durability", "interval:50ms"]);
    } else {
        command.arg("--no-persist");
    }
    command.current_dir(data);
    Ok(command)
}
