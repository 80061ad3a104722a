//! `forebay cache serve`: the cache without an HTTP server.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use forebay_base::error_chain::chain;
use forebay_cache::engine::Stopper;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::Notify;

use super::settings::{DataArgs, resolve, wrong};
use crate::config::Flags;
use crate::exit::{Coded, Exit};
use crate::wiring::cache::Running;
use crate::{data_dir, descriptors, out, ports, telemetry};

const AFTER_HELP: &str = "\
Examples:
  forebay cache serve
  forebay cache serve --data /srv/forebay --max-memory 4GiB --durability sync
  forebay cache serve --no-persist --resp 127.0.0.1:0 --text ''
  forebay cache serve --server pooled --workers 200
  forebay cache serve --resp '' --text '' --tls-resp 0.0.0.0:6390 --tls-cert cert.pem \\
    --tls-key key.pem --password-file password

The first line on standard output is `listening resp=ADDRESS text=ADDRESS` (and `tls-resp=`,
`tls-text=`), printed once commands are answered. Logs are written to standard error. The data is
stored where `forebay serve` with the same --data stores it. SIGINT, SIGTERM or a client's SHUTDOWN
sends the last replies, closes the log and stops. If the log fails or a thread ends, the exit code
is 1: no write can be acknowledged any more, and the supervisor should restart the process. A full
disk does not end it: writes are refused until there is space again, and reads continue.";

const HEADING: &str = "Settings";

/// Interval between health checks of the cache.
const HEALTH_INTERVAL: Duration = Duration::from_secs(1);

#[derive(clap::Args, Debug)]
#[command(after_help = AFTER_HELP)]
pub(super) struct Args {
    #[command(flatten)]
    data: DataArgs,
    /// Address for RESP; port 0 chooses a free port, '' disables it [default: 127.0.0.1:6380].
    #[arg(long, value_name = "ADDRESS", help_heading = HEADING)]
    resp: Option<String>,
    /// Address for the text protocol [default: 127.0.0.1:8890].
    #[arg(long, value_name = "ADDRESS", help_heading = HEADING)]
    text: Option<String>,
    /// Address for RESP over TLS [default: disabled].
    #[arg(long, value_name = "ADDRESS", help_heading = HEADING)]
    tls_resp: Option<String>,
    /// Address for the text protocol over TLS [default: disabled].
    #[arg(long, value_name = "ADDRESS", help_heading = HEADING)]
    tls_text: Option<String>,
    /// Certificate chain in PEM, read again when the file changes.
    #[arg(long, value_name = "FILE", help_heading = HEADING)]
    tls_cert: Option<String>,
    /// Private key in PEM.
    #[arg(long, value_name = "FILE", help_heading = HEADING)]
    tls_key: Option<String>,
    /// Keep no data on disk.
    #[arg(long, help_heading = HEADING, conflicts_with = "durability")]
    no_persist: bool,
    /// When a write is acknowledged: sync, interval:50ms or os [default: interval:50ms].
    #[arg(long, value_name = "WORD", help_heading = HEADING)]
    durability: Option<String>,
    /// Maximum memory for data and index [default: no limit].
    #[arg(long, value_name = "SIZE", help_heading = HEADING)]
    max_memory: Option<String>,
    /// What to evict at the memory limit, such as allkeys-s3fifo [default: noeviction].
    #[arg(long, value_name = "WORD", help_heading = HEADING)]
    policy: Option<String>,
    /// Threading model: per-connection or pooled [default: per-connection].
    #[arg(long, value_name = "MODE", help_heading = HEADING)]
    server: Option<String>,
    /// Maximum number of workers of the pooled server [default: 200].
    #[arg(long, value_name = "COUNT", help_heading = HEADING)]
    workers: Option<String>,
    /// Maximum threads of the per-connection server; 0 uses one for each processor [default: 0].
    #[arg(long, value_name = "COUNT", help_heading = HEADING)]
    threads: Option<String>,
    /// Socket interface: auto (io_uring where permitted), epoll or io_uring [default: auto].
    #[arg(long, value_name = "WORD", help_heading = HEADING)]
    network: Option<String>,
    /// File whose first line is the password for clients; an API key is accepted too.
    #[arg(long, value_name = "FILE", help_heading = HEADING)]
    password_file: Option<String>,
    /// Allow listening on other than loopback addresses with neither a password nor API keys.
    #[arg(long, help_heading = HEADING)]
    insecure: bool,
    /// Log level, or a filter such as info,forebay_cache=debug [default: info].
    #[arg(long, value_name = "FILTER", help_heading = HEADING)]
    log: Option<String>,
    /// Log format: auto (human on a terminal, else JSON), human or json [default: auto].
    #[arg(long, value_name = "FORMAT", help_heading = HEADING)]
    log_format: Option<String>,
}

/// Returns the settings from the flags.
fn flags(args: &Args) -> anyhow::Result<Flags> {
    let mut flags = args.data.flags()?;
    for (key, flag, text) in [
        ("cache.resp", "--resp", &args.resp),
        ("cache.text", "--text", &args.text),
        ("cache.tls_resp", "--tls-resp", &args.tls_resp),
        ("cache.tls_text", "--tls-text", &args.tls_text),
        ("cache.tls_cert", "--tls-cert", &args.tls_cert),
        ("cache.tls_key", "--tls-key", &args.tls_key),
        ("cache.durability", "--durability", &args.durability),
        ("cache.memory_max", "--max-memory", &args.max_memory),
        ("cache.policy", "--policy", &args.policy),
        ("cache.server", "--server", &args.server),
        ("cache.workers", "--workers", &args.workers),
        ("cache.threads", "--threads", &args.threads),
        ("cache.network", "--network", &args.network),
        ("cache.password_file", "--password-file", &args.password_file),
        ("log", "--log", &args.log),
        ("log_format", "--log-format", &args.log_format),
    ] {
        flags.note(key, flag, text.clone());
    }
    flags.note("cache.persist", "--no-persist", args.no_persist.then(|| "false".to_owned()));
    flags.note("server.insecure", "--insecure", args.insecure.then(|| "true".to_owned()));
    Ok(flags)
}

pub(super) fn run(args: &Args) -> anyhow::Result<Exit> {
    let config = resolve(flags(args)?)?.config().map_err(wrong)?;
    telemetry::install(&config.process.log, config.process.log_format)?;
    ports::check(&ports::of_cache(&config))?;
    if config.cache.persist {
        data_dir::prepare(&config.process.data)?;
    }
    let descriptors = descriptors::raise();
    // Only for signals; the cache has its own threads.
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("cannot start the runtime")?;
    let ended = runtime.block_on(async {
        let mut interrupt = signal(SignalKind::interrupt()).context("cannot handle SIGINT")?;
        let mut terminate = signal(SignalKind::terminate()).context("cannot handle SIGTERM")?;
        // Keys and certificates are checked every second, so SIGHUP has nothing to do but must not
        // kill.
        let _hangup = signal(SignalKind::hangup()).context("cannot handle SIGHUP")?;
        let opening = tokio::task::spawn_blocking(move || {
            // Without an HTTP server its share belongs to the cache.
            Running::start(&config, descriptors.cache + descriptors.http)
        });
        let running = tokio::select! {
            opened = opening => opened.context("opening the cache panicked")?.map_err(start)?,
            _ = interrupt.recv() => return Ok(Exit::Interrupted),
            _ = terminate.recv() => return Ok(Exit::Interrupted),
        };
        let asked = Arc::new(ShutdownRequest::default());
        running.set_stopper(asked.clone());
        announce(&running)?;
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
            () = asked.0.notified() => tracing::info!("a client sent SHUTDOWN"),
            () = broken(&running) => {}
        }
        let health = running.health();
        tracing::info!("stopping: sending the last replies");
        let stopping = tokio::task::spawn_blocking(move || running.stop());
        tokio::select! {
            stopped = stopping => {
                let stopped = stopped.context("stopping the cache panicked")?;
                // A health failure also explains why the log cannot be closed.
                health.context("the cache failed; restart it")?;
                stopped?;
                tracing::info!("stopped");
                Ok(Exit::Ok)
            }
            _ = interrupt.recv() => Ok(Exit::Interrupted),
            _ = terminate.recv() => Ok(Exit::Interrupted),
        }
    });
    // A second signal does not wait for the shutdown that the first one began.
    runtime.shutdown_background();
    ended
}

/// Returns when the cache has failed: some connections then hang, or none is served.
async fn broken(running: &Running) {
    let mut glances = tokio::time::interval(HEALTH_INTERVAL);
    loop {
        glances.tick().await;
        if let Err(error) = running.health() {
            tracing::error!(error = %chain(error.as_ref()), "the cache failed");
            return;
        }
    }
}

/// A client's SHUTDOWN, which ends the process like SIGTERM.
#[derive(Debug, Default)]
struct ShutdownRequest(Notify);

impl Stopper for ShutdownRequest {
    fn stop_soon(&self) {
        self.0.notify_one();
    }
}

/// A failure at the start ends the process with the start code, unless it has another.
fn start(error: anyhow::Error) -> anyhow::Error {
    if error.downcast_ref::<Coded>().is_some() {
        return error;
    }
    Coded::wrap(Exit::Start, "cannot start the cache", error)
}

fn announce(running: &Running) -> anyhow::Result<()> {
    let server = running.server();
    let mut line = "listening".to_owned();
    for (name, address) in [
        ("resp", server.resp_address()),
        ("text", server.text_address()),
        ("tls-resp", server.tls_resp_address()),
        ("tls-text", server.tls_text_address()),
    ] {
        if let Some(address) = address {
            line.push_str(&format!(" {name}={address}"));
        }
    }
    out::line(line)
}
