//! `forebay cache serve`: the cache with no HTTP server around it.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use forebay_base::error_chain::chain;
use forebay_cache::engine::Stopper;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::Notify;

use super::settings::{DataArgs, resolve, wrong};
use crate::exit::{Coded, Exit};
use crate::wiring::cache::Running;
use crate::{out, telemetry};

const AFTER_HELP: &str = "\
Examples:
  forebay cache serve
  forebay cache serve --data /srv/forebay --max-memory 4GiB --durability sync
  forebay cache serve --no-persist --resp 127.0.0.1:0 --text ''
  forebay cache serve --server pooled --workers 200
  forebay cache serve --resp '' --text '' --tls-resp 0.0.0.0:6390 --tls-cert cert.pem \\
    --tls-key key.pem --password-file password

The first line on standard output is `listening resp=ADDRESS text=ADDRESS` (and `tls-resp=`,
`tls-text=`), once commands are answered; logs go to standard error. The data lies where
`forebay serve` with the same --data keeps it. SIGINT, SIGTERM or a client's SHUTDOWN sends the
last replies, writes the log to its end and stops. Where the log has failed, as on a full disk, or
a thread has ended, the exit code is 1: nothing can be acknowledged then, and whoever supervises
the process should start it again.";

const HEADING: &str = "Settings";

/// How often is looked whether the cache is well.
const GLANCE: Duration = Duration::from_secs(1);

#[derive(clap::Args, Debug)]
#[command(after_help = AFTER_HELP)]
pub(super) struct Args {
    #[command(flatten)]
    data: DataArgs,
    /// Where to speak RESP; port 0 takes a free one, '' is nowhere [default: 127.0.0.1:6380].
    #[arg(long, value_name = "ADDRESS", help_heading = HEADING)]
    resp: Option<String>,
    /// Where to speak the text protocol [default: 127.0.0.1:8890].
    #[arg(long, value_name = "ADDRESS", help_heading = HEADING)]
    text: Option<String>,
    /// Where to speak RESP over TLS [default: nowhere].
    #[arg(long, value_name = "ADDRESS", help_heading = HEADING)]
    tls_resp: Option<String>,
    /// Where to speak the text protocol over TLS [default: nowhere].
    #[arg(long, value_name = "ADDRESS", help_heading = HEADING)]
    tls_text: Option<String>,
    /// Certificate chain in PEM, read again when it changes.
    #[arg(long, value_name = "FILE", help_heading = HEADING)]
    tls_cert: Option<String>,
    /// Private key in PEM.
    #[arg(long, value_name = "FILE", help_heading = HEADING)]
    tls_key: Option<String>,
    /// Keep nothing on disk.
    #[arg(long, help_heading = HEADING, conflicts_with = "durability")]
    no_persist: bool,
    /// When a write is acknowledged: sync, interval:50ms or os [default: interval:50ms].
    #[arg(long, value_name = "WORD", help_heading = HEADING)]
    durability: Option<String>,
    /// Most memory for data, index and buffers [default: no bound].
    #[arg(long, value_name = "SIZE", help_heading = HEADING)]
    max_memory: Option<String>,
    /// What goes when that is used up [default: allkeys-s3fifo].
    #[arg(long, value_name = "WORD", help_heading = HEADING)]
    policy: Option<String>,
    /// per-connection or pooled [default: per-connection].
    #[arg(long, value_name = "MODE", help_heading = HEADING)]
    server: Option<String>,
    /// Most workers of the pooled server [default: 200].
    #[arg(long, value_name = "COUNT", help_heading = HEADING)]
    workers: Option<String>,
    /// Threads of the server that is not pooled; 0 takes one a core [default: 0].
    #[arg(long, value_name = "COUNT", help_heading = HEADING)]
    threads: Option<String>,
    /// auto, epoll or io_uring [default: auto: io_uring where it is permitted].
    #[arg(long, value_name = "WORD", help_heading = HEADING)]
    network: Option<String>,
    /// File whose first line is the password clients must give.
    #[arg(long, value_name = "FILE", help_heading = HEADING)]
    password_file: Option<String>,
    /// Allow listening beyond this machine without a password.
    #[arg(long, help_heading = HEADING)]
    insecure: bool,
    /// A level or a filter such as info,forebay_cache=debug [default: info].
    #[arg(long, value_name = "FILTER", help_heading = HEADING)]
    log: Option<String>,
    /// auto, human or json [default: auto: human on a terminal, JSON otherwise].
    #[arg(long, value_name = "FORMAT", help_heading = HEADING)]
    log_format: Option<String>,
}

pub(super) fn run(args: &Args) -> anyhow::Result<Exit> {
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
    let config = resolve(flags)?.config().map_err(wrong)?;
    telemetry::install(&config.process.log, config.process.log_format)?;
    // Only for the signals; the cache has threads of its own.
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("cannot start the runtime")?;
    let ended = runtime.block_on(async {
        let mut interrupt = signal(SignalKind::interrupt()).context("cannot take over SIGINT")?;
        let mut terminate = signal(SignalKind::terminate()).context("cannot take over SIGTERM")?;
        let opening = tokio::task::spawn_blocking(move || Running::start(&config));
        let running = tokio::select! {
            opened = opening => opened.context("opening the cache panicked")?.map_err(start)?,
            _ = interrupt.recv() => return Ok(Exit::Interrupted),
            _ = terminate.recv() => return Ok(Exit::Interrupted),
        };
        let asked = Arc::new(Asked::default());
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
                // Why it is not well is why its log cannot be ended, where that is so.
                health.context("the cache was not well; start it again")?;
                stopped?;
                tracing::info!("stopped");
                Ok(Exit::Ok)
            }
            _ = interrupt.recv() => Ok(Exit::Interrupted),
            _ = terminate.recv() => Ok(Exit::Interrupted),
        }
    });
    // A second signal does not wait for what the first one began.
    runtime.shutdown_background();
    ended
}

/// Ends when the cache is not well: some connections hang then, or none is answered any more.
async fn broken(running: &Running) {
    let mut glances = tokio::time::interval(GLANCE);
    loop {
        glances.tick().await;
        if let Err(error) = running.health() {
            tracing::error!(error = %chain(error.as_ref()), "the cache is not well");
            return;
        }
    }
}

/// A client's SHUTDOWN, which ends the process as SIGTERM does.
#[derive(Debug, Default)]
struct Asked(Notify);

impl Stopper for Asked {
    fn stop_soon(&self) {
        self.0.notify_one();
    }
}

/// What went wrong at the start ends the process with the start code, unless it says otherwise.
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
