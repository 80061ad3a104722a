//! The life cycle of the server: bind, open, serve, stop.
//!
//! Order of stopping, which keeps every acknowledgement true: `/readyz` reports 503, the listener
//! closes, running requests finish (or are ended at the limit), then the subsystems stop, each
//! flushing what it accepted.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use forebay_api::keys::{KeyFile, KeyRing, MasterKey};
use forebay_api::serve::{self as http, App};
use forebay_api::tls::Renewed;
use forebay_base::bytes::ByteSize;
use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle};
use tokio::net::TcpListener;
use tokio::signal::unix::{Signal, SignalKind, signal};

use super::guard::{self, Protection};
use crate::config::{Auth, Config};
use crate::exit::{Coded, Exit};
use crate::serve::Subsystem;
use crate::{data_dir, descriptors, out, ports, wiring};

/// Interval between checks of the key file.
const KEYS_RELOAD_EVERY: Duration = Duration::from_secs(1);
/// Interval at which the metrics recorder folds its histogram samples.
const UPKEEP_EVERY: Duration = Duration::from_secs(5);
/// Interval between looks for what a killed backup left.
const IMAGES_SWEPT_EVERY: Duration = Duration::from_secs(30);

/// Ports beside the main one, which serve what is opened.
#[derive(Debug, Clone, Default)]
pub(crate) struct Ports {
    /// The S3-compatible port.
    pub(crate) s3: Option<Arc<forebay_s3::Port>>,
}

/// Opens what is served; blocks meanwhile.
pub(crate) type Open = fn(&Config, &Ports) -> anyhow::Result<Vec<Arc<dyn Subsystem>>>;

/// Serves until a signal, with the settings in `config`.
///
/// * `ready_file`: receives the server's URL as its only line once requests are answered.
///
/// # Errors
/// The server could not start (exit code 3), listening is refused (2), or a subsystem could
/// not finish (1).
pub(crate) async fn run(
    config: Config,
    ready_file: Option<PathBuf>,
    open_subsystems: Open,
) -> anyhow::Result<Exit> {
    let mut signals = Signals::install().context("cannot handle signals")?;
    // Before anything is created: a start that fails because of a used port leaves nothing behind.
    ports::check(&ports::of_server(&config))?;
    let keys = KeyRing::open(KeyFile::in_data_dir(&config.process.data), config.server.auth.into())
        .map_err(start("cannot load the API keys"))?;
    let keys = Arc::new(keys);
    let tls = load_tls(&config)?;
    let protection =
        Protection { keys: keys.required(), tls: tls.is_some(), insecure: config.server.insecure };
    guard::check(config.server.listen, protection)?;
    data_dir::prepare(&config.process.data)?;
    let listener = http::bind(config.server.listen)
        .map_err(|error| ports::refused("server.listen", config.server.listen, &error))?;
    let address = listener.local_addr().map_err(start("cannot determine the local address"))?;
    let s3 = wiring::s3::bind(&config, &keys)?;
    let ports = Ports { s3: s3.as_ref().map(|bound| Arc::clone(&bound.port)) };
    if let Some(lack) = guard::warning(address, protection) {
        tracing::warn!(%address, "{lack}");
    }
    if config.server.auth == Auth::Required && keys.is_empty() {
        tracing::warn!(
            "server.auth is required and there is no API key; create one with forebay key new"
        );
    }
    let recorder = recorder()?;
    let process = std::process::id() ^ u32::from(address.port()).rotate_left(16);
    let master =
        MasterKey::open(&config.process.data).map_err(start("cannot load the master key"))?;
    let app = App::new(&settings(&config), keys, recorder, process)
        .signing_with(master)
        .with_tls(protection.tls)
        .with_data(&config.process.data);
    let app = Arc::new(app);
    let hangup = signal(SignalKind::hangup()).context("cannot handle SIGHUP")?;
    let accepting = spawn_background(&app, listener, tls.clone(), &config, hangup);
    let s3_url = s3.as_ref().map(|bound| bound.url.clone());
    let s3 = s3.map(|bound| {
        let max = connections_max(&config);
        tokio::spawn(http::run_port(Arc::clone(&app), bound.listener, tls, max, bound.port))
    });

    let scheme = if protection.tls { "https" } else { "http" };
    let url = format!("{scheme}://{address}");
    tokio::select! {
        opened = open(&app, &config, &ports, open_subsystems) => opened?,
        name = signals.next() => {
            tracing::info!(signal = name, "stopped before the data was open");
            return Ok(Exit::Interrupted);
        }
    }
    announce(&url, s3_url.as_deref(), &config, ready_file.as_deref())?;
    let name = signals.next().await;
    tracing::info!(signal = name, "stopping: finishing running requests");
    let stopped = tokio::select! {
        stopped = stop(&app, config.server.shutdown_limit.get()) => stopped,
        name = signals.next() => {
            tracing::warn!(signal = name, "second signal: stopping at once");
            Ok(Exit::Interrupted)
        }
    };
    accepting.abort();
    if let Some(accepting) = s3 {
        accepting.abort();
    }
    stopped
}

fn start<E>(act: &str) -> impl FnOnce(E) -> anyhow::Error
where
    E: std::error::Error + Send + Sync + 'static,
{
    move |error| Coded::wrap(Exit::Start, act, anyhow::Error::new(error))
}

fn load_tls(config: &Config) -> anyhow::Result<Option<Arc<Renewed>>> {
    match (&config.server.tls_cert, &config.server.tls_key) {
        (Some(cert), Some(key)) => Renewed::for_http(cert.clone(), key.clone())
            .map(|renewed| Some(Arc::new(renewed)))
            .map_err(start(&wiring::tls_settings(config, "server"))),
        _ => Ok(None),
    }
}

fn recorder() -> anyhow::Result<PrometheusHandle> {
    const SECONDS: [f64; 11] = [0.0001, 0.0005, 0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 30.0];
    PrometheusBuilder::new()
        .set_buckets(&SECONDS)
        .and_then(PrometheusBuilder::install_recorder)
        .map_err(start("cannot install the metrics recorder"))
}

/// Starts the accept loop and the housekeeping.
fn spawn_background(
    app: &Arc<App>,
    listener: TcpListener,
    tls: Option<Arc<Renewed>>,
    config: &Config,
    mut hangup: Signal,
) -> tokio::task::JoinHandle<()> {
    let (keeper, renewed) = (Arc::clone(app), tls.clone());
    tokio::spawn(async move {
        let mut keys = tokio::time::interval(KEYS_RELOAD_EVERY);
        let mut upkeep = tokio::time::interval(UPKEEP_EVERY);
        let mut images = tokio::time::interval(IMAGES_SWEPT_EVERY);
        loop {
            tokio::select! {
                _ = keys.tick() => reload_keys(&keeper),
                _ = upkeep.tick() => keeper.upkeep(),
                _ = images.tick() => {
                    let app = Arc::clone(&keeper);
                    // Not awaited: the next look finds what this one did not.
                    drop(tokio::task::spawn_blocking(move || app.sweep_images()));
                }
                heard = hangup.recv() => {
                    if heard.is_none() {
                        // The runtime ends.
                        return;
                    }
                    tracing::info!(signal = "SIGHUP", "reloading keys and certificates");
                    reload_keys(&keeper);
                    if let Some(tls) = &renewed {
                        tls.reload();
                    }
                }
            }
        }
    });
    tokio::spawn(http::run(Arc::clone(app), listener, tls, connections_max(config)))
}

/// Returns the maximum number of connections of all ports. In all cases, descriptors are reserved for storage.
fn connections_max(config: &Config) -> usize {
    let share = usize::try_from(descriptors::raise().http).unwrap_or(usize::MAX);
    share.min(config.server.connections_max as usize)
}

fn reload_keys(app: &App) {
    match app.keys().reload() {
        Ok(false) => {}
        Ok(true) => tracing::info!(keys = app.keys().len(), "API keys reloaded"),
        Err(error) => tracing::error!(
            error = %forebay_base::error_chain::chain(&error),
            "cannot read the changed API keys; the previous ones remain valid"
        ),
    }
}

/// Opens the subsystems off the async threads and installs their routes.
async fn open(
    app: &Arc<App>,
    config: &Config,
    ports: &Ports,
    open_subsystems: Open,
) -> anyhow::Result<()> {
    let (settings, ports) = (config.clone(), ports.clone());
    let subsystems = tokio::task::spawn_blocking(move || open_subsystems(&settings, &ports))
        .await
        .context("opening the data panicked")?
        .map_err(|error| {
            // An error that names its exit code, such as a wrong setting, keeps it.
            let exit =
                error.downcast_ref::<Coded>().map_or(Exit::Start, |_| Coded::exit_of(&error));
            Coded::wrap(exit, "cannot open the data", error)
        })?;
    app.open(subsystems)
}

/// Announces the server's address: the ready file first, so that it exists when the line is
/// printed.
fn announce(
    url: &str,
    s3_url: Option<&str>,
    config: &Config,
    ready_file: Option<&Path>,
) -> anyhow::Result<()> {
    if let Some(path) = ready_file {
        // Written beside and renamed, so that no process reads a part of it.
        let beside = path.with_extension("tmp");
        std::fs::write(&beside, format!("{url}\n"))
            .and_then(|()| std::fs::rename(&beside, path))
            .map_err(start(&format!("cannot write the ready file {}", path.display())))?;
    }
    out::line(format_args!("listening {url}"))?;
    if let Some(url) = s3_url {
        out::line(format_args!("s3 {url}"))?;
    }
    let data = config.process.data.display().to_string();
    tracing::info!(%url, ?data, version = env!("CARGO_PKG_VERSION"), "ready");
    Ok(())
}

/// Stops in order. Returns [`Exit::Cut`] if requests had to be aborted.
async fn stop(app: &App, limit: Duration) -> anyhow::Result<Exit> {
    let finished = app.stop(limit).await?;
    tracing::info!("stopped");
    Ok(if finished { Exit::Ok } else { Exit::Cut })
}

/// Returns the configured limits of the server.
fn settings(config: &Config) -> http::Settings {
    let server = &config.server;
    let followers = connections_max(config).saturating_mul(server.followers_share_max.0.into());
    let size = |size: ByteSize| usize::try_from(size.bytes()).unwrap_or(usize::MAX);
    http::Settings {
        hosts: server.hosts.0.clone(),
        cors_origins: server.cors_origins.0.clone(),
        requests_in_flight_max: server.requests_in_flight_max as usize,
        client_share_max: server.client_share_max.0.into(),
        followers_max: (followers / 100).max(1),
        header_size_max: size(server.header_size_max),
        header_read_timeout: server.header_read_timeout.get(),
        idle_timeout: server.idle_timeout.get(),
        write_stall_timeout: server.write_stall_timeout.get(),
        body_idle_timeout: server.body_idle_timeout.get(),
        rate_min: server.rate_min.bytes(),
        rate_grace: server.rate_grace.get(),
        output_memory_max: size(server.output_memory_max),
    }
}

/// SIGINT and SIGTERM.
#[derive(Debug)]
struct Signals {
    interrupt: Signal,
    terminate: Signal,
}

impl Signals {
    /// Replaces the default action of both signals.
    ///
    /// # Errors
    /// The kernel refuses a handler.
    fn install() -> std::io::Result<Self> {
        let interrupt = signal(SignalKind::interrupt())?;
        let terminate = signal(SignalKind::terminate())?;
        Ok(Self { interrupt, terminate })
    }

    /// Waits for the next one and returns its name.
    async fn next(&mut self) -> &'static str {
        tokio::select! {
            _ = self.interrupt.recv() => "SIGINT",
            _ = self.terminate.recv() => "SIGTERM",
        }
    }
}
