//! The life of the server: bind, open, serve, stop.
//!
//! Order of stopping, which keeps every acknowledgement true: `/readyz` says no, the listener
//! closes, running requests finish (or are cut at the limit), then the subsystems stop, each
//! flushing what it accepted.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

use super::app::{App, Opened};
use super::guard::{self, Protection};
use super::listener;
use super::shell_routes;
use super::shutdown::{Signals, Stage};
use crate::config::{Auth, Config};
use crate::exit::{Coded, Exit};
use crate::keys::{KeyFile, KeyRing};
use crate::serve::Subsystem;
use crate::{out, tls};

/// How often the key file is looked at.
const KEYS_RELOAD_EVERY: Duration = Duration::from_secs(1);
/// How often the metrics recorder folds its histogram samples together.
const UPKEEP_EVERY: Duration = Duration::from_secs(5);
/// How long cut connections may take to go away.
const ABORT_LIMIT: Duration = Duration::from_secs(2);

/// Opens what is served; blocks while it does.
pub(crate) type Open = fn(&Config) -> anyhow::Result<Vec<Arc<dyn Subsystem>>>;

/// Serves until a signal, with the settings in `config`.
///
/// * `ready_file`: gets the server's URL as its only line once requests are answered.
///
/// # Errors
/// Nothing could be started (exit code 3), listening there is refused (2), or a subsystem could
/// not finish (1).
pub(crate) async fn run(
    config: Config,
    ready_file: Option<PathBuf>,
    open_subsystems: Open,
) -> anyhow::Result<Exit> {
    let mut signals = Signals::install().context("cannot take over signals")?;
    make_data_dir(&config.process.data)?;
    let keys = KeyRing::open(KeyFile::in_data_dir(&config.process.data), config.server.auth)
        .map_err(start("cannot load the API keys"))?;
    let tls = load_tls(&config)?;
    let protection =
        Protection { keys: keys.required(), tls: tls.is_some(), insecure: config.server.insecure };
    guard::check(config.server.listen, protection)?;
    let listener = listener::bind(config.server.listen)
        .map_err(start(&format!("cannot listen on {}", config.server.listen)))?;
    let address = listener.local_addr().map_err(start("cannot read the port listened on"))?;
    if let Some(lack) = guard::warning(address, protection) {
        tracing::warn!(%address, "{lack}");
    }
    if config.server.auth == Auth::Required && keys.len() == 0 {
        tracing::warn!(
            "server.auth is required and there is no key: make one with forebay key new"
        );
    }
    let recorder = recorder()?;
    let process = std::process::id() ^ u32::from(address.port()).rotate_left(16);
    let app = Arc::new(App::new(&config.server, keys, recorder, process));
    let accepting = spawn_background(&app, listener, tls, &config);

    let scheme = if protection.tls { "https" } else { "http" };
    let url = format!("{scheme}://{address}");
    tokio::select! {
        opened = open(&app, &config, open_subsystems) => opened?,
        name = signals.next() => {
            tracing::info!(signal = name, "stopped before the data was open");
            return Ok(Exit::Interrupted);
        }
    }
    announce(&url, &config, ready_file.as_deref())?;
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
    stopped
}

fn start<E>(act: &str) -> impl FnOnce(E) -> anyhow::Error
where
    E: std::error::Error + Send + Sync + 'static,
{
    move |error| Coded::wrap(Exit::Start, act, anyhow::Error::new(error))
}

fn make_data_dir(data: &Path) -> anyhow::Result<()> {
    use std::os::unix::fs::DirBuilderExt as _;
    std::fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(data)
        .map_err(start(&format!("cannot make the data directory {}", data.display())))
}

fn load_tls(config: &Config) -> anyhow::Result<Option<TlsAcceptor>> {
    match (&config.server.tls_cert, &config.server.tls_key) {
        (Some(cert), Some(key)) => {
            tls::acceptor(cert, key).map(Some).map_err(start("cannot set up TLS"))
        }
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
    tls: Option<TlsAcceptor>,
    config: &Config,
) -> tokio::task::JoinHandle<()> {
    let keeper = Arc::clone(app);
    tokio::spawn(async move {
        let mut keys = tokio::time::interval(KEYS_RELOAD_EVERY);
        let mut upkeep = tokio::time::interval(UPKEEP_EVERY);
        loop {
            tokio::select! {
                _ = keys.tick() => match keeper.keys.reload() {
                    Ok(false) => {}
                    Ok(true) => tracing::info!(keys = keeper.keys.len(), "API keys reloaded"),
                    Err(error) => tracing::error!(
                        error = %forebay_base::error_chain::chain(&error),
                        "the API keys changed and cannot be read; those known before stay in force"
                    ),
                },
                _ = upkeep.tick() => keeper.recorder.run_upkeep(),
            }
        }
    });
    let max = config.server.connections_max as usize;
    tokio::spawn(listener::run(Arc::clone(app), listener, tls, max))
}

/// Opens the subsystems off the async threads and puts their routes in place.
async fn open(app: &Arc<App>, config: &Config, open_subsystems: Open) -> anyhow::Result<()> {
    let settings = config.clone();
    let subsystems = tokio::task::spawn_blocking(move || open_subsystems(&settings))
        .await
        .context("opening the data panicked")?
        .map_err(|error| {
            // One that says which it is, such as a wrong setting, is believed.
            let exit =
                error.downcast_ref::<Coded>().map_or(Exit::Start, |_| Coded::exit_of(&error));
            Coded::wrap(exit, "cannot open the data", error)
        })?;
    let router = shell_routes::build(app, &subsystems)?;
    if app.opened.set(Opened { router, subsystems }).is_err() {
        anyhow::bail!("the subsystems were opened twice");
    }
    Ok(())
}

/// Tells whoever started the server where it is: the ready file first, so that it is there for
/// whoever saw the line.
fn announce(url: &str, config: &Config, ready_file: Option<&Path>) -> anyhow::Result<()> {
    if let Some(path) = ready_file {
        // Written beside and renamed: whoever waits for the file never reads half of it.
        let beside = path.with_extension("tmp");
        std::fs::write(&beside, format!("{url}\n"))
            .and_then(|()| std::fs::rename(&beside, path))
            .map_err(start(&format!("cannot write the ready file {}", path.display())))?;
    }
    out::line(format_args!("listening {url}"))?;
    let data = config.process.data.display().to_string();
    tracing::info!(%url, ?data, version = env!("CARGO_PKG_VERSION"), "ready");
    Ok(())
}

/// Stops in order. Returns [`Exit::Cut`] when requests had to be cut.
async fn stop(app: &Arc<App>, limit: Duration) -> anyhow::Result<Exit> {
    app.stop.advance(Stage::Draining);
    for subsystem in app.opened.get().map_or(&[][..], |opened| &opened.subsystems) {
        subsystem.drain();
    }
    let finished = app.stop.drained(limit).await;
    if !finished {
        let connections = app.stop.open();
        tracing::warn!(connections, ?limit, "the shutdown limit passed: cutting what is left");
        app.stop.advance(Stage::Aborting);
        app.stop.drained(ABORT_LIMIT).await;
    }
    let mut failed = None;
    for subsystem in app.opened.get().map_or(&[][..], |opened| &opened.subsystems).iter().rev() {
        if let Err(error) = subsystem.stop().await {
            let context = format!("{} could not stop cleanly", subsystem.name());
            failed = failed.or(Some(error.context(context)));
        }
    }
    match failed {
        Some(error) => Err(error),
        None => {
            tracing::info!("stopped");
            Ok(if finished { Exit::Ok } else { Exit::Cut })
        }
    }
}
