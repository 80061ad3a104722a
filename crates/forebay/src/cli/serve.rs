//! `forebay serve`.

use std::path::PathBuf;

use anyhow::Context as _;

use super::settings::{ServerArgs, wrong};
use crate::exit::Exit;
use crate::{serve, slices, telemetry, wiring};

const AFTER_HELP: &str = "\
Examples:
  forebay serve
  forebay serve --data /srv/forebay --listen 127.0.0.1:0
  forebay serve --tls-cert cert.pem --tls-key key.pem --listen 0.0.0.0:8443
  forebay serve --set server.shutdown_limit=5s --log debug

The first line on standard output is `listening URL`, printed once the server answers requests. With
s3.listen a second one follows, `s3 URL`. Logs are written to standard error. The first SIGINT or
SIGTERM lets running requests finish; a second stops the server at once.";

/// Maximum time for runtime threads to end after everything has stopped.
const RUNTIME_END_LIMIT: std::time::Duration = std::time::Duration::from_secs(1);

#[derive(clap::Args, Debug)]
#[command(after_help = AFTER_HELP)]
pub(super) struct Args {
    #[command(flatten)]
    settings: ServerArgs,
    /// Write the server's URL to FILE once the server answers requests.
    #[arg(long, value_name = "FILE")]
    ready_file: Option<PathBuf>,
}

pub(super) fn run(args: &Args) -> anyhow::Result<Exit> {
    run_with(&args.settings, args.ready_file.clone(), wiring::open)
}

/// Serves the subsystems that `open` opens; a benchmark passes its own.
pub(super) fn run_with(
    settings: &ServerArgs,
    ready_file: Option<PathBuf>,
    open: serve::Open,
) -> anyhow::Result<Exit> {
    let resolved = settings.resolve()?;
    let config = resolved.config().map_err(wrong)?;
    telemetry::install(&config.process.log, config.process.log_format)?;
    if let Some(file) = &resolved.file {
        tracing::info!(file = ?file.display().to_string(), "configuration read");
    }
    for (name, meant) in &resolved.stray_env {
        tracing::warn!(variable = ?name, nearest = ?meant, "environment variable names no setting");
    }
    if let Err(error) = slices::shorten() {
        tracing::debug!(%error, "threads keep the usual slices of processor time");
    }
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    if config.process.threads > 0 {
        builder.worker_threads(usize::from(config.process.threads));
    }
    let runtime = builder
        .thread_name("forebay-http")
        .enable_all()
        .build()
        .context("cannot start the runtime")?;
    let ended = runtime.block_on(serve::run(config, ready_file, open));
    runtime.shutdown_timeout(RUNTIME_END_LIMIT);
    ended
}
