//! The cache as a subsystem of the server, and as a separate server.
//!
//! It has its own sockets, so to the HTTP server it is a subsystem without routes: opened
//! with the others, measured on each scrape, stopped before the process ends.

mod keys;

use std::future::Future;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use forebay_api::tls::Renewed;
use forebay_base::bytes::ByteSize;
use forebay_base::clock::SystemClock;
use forebay_base::fs::RealFs;
use forebay_base::image::Image;
use forebay_cache::engine::{Authority as _, OutputBound, Stopper};
use forebay_cache::persist::PersistOptions;
use forebay_cache::server::{
    Mode, Network, Server, ServerLimits, ServerOptions, TlsOptions, TlsSource,
};
use forebay_cache::{Cache, CacheOptions};

use crate::config::{CacheNetwork, CacheServer, Config, OutputLimit};
use crate::descriptors;
use crate::exit::{Coded, Exit};
use crate::layout;
use crate::serve::Subsystem;

use keys::{Following, Keys};

/// Opens the cache in the data directory and listens.
pub(super) fn open(config: &Config) -> anyhow::Result<Arc<dyn Subsystem>> {
    Ok(Arc::new(Running::start(config, descriptors::raise().cache)?))
}

/// An open cache with its server.
#[derive(Debug)]
pub(crate) struct Running {
    cache: Cache,
    server: Server,
    _following: Following,
}

impl Running {
    /// Opens the cache and starts its server.
    ///
    /// * `descriptors`: number of the process' file descriptors its connections may use.
    ///
    /// # Errors
    /// Listening is refused (exit code 2), or the data or the sockets cannot be opened.
    pub(crate) fn start(config: &Config, descriptors: u64) -> anyhow::Result<Self> {
        let settings = &config.cache;
        let password = settings.password_file.as_deref();
        let password = password
            .map(|path| read_password(path, &config.sources.named("cache.password_file")))
            .transpose()?;
        let keys = Keys::open(config)?;
        let protected = password.is_some() || keys.required();
        let addresses = [settings.resp, settings.text, settings.tls_resp, settings.tls_text];
        for address in addresses.into_iter().flatten() {
            guard(address, protected, config.server.insecure)?;
        }
        let options = server_options(config)?;
        let dir = settings.persist.then(|| layout::cache(&config.process.data));
        let cache = open_cache(config, dir.clone(), password)?;
        cache.engine().set_authority(Arc::<Keys>::clone(&keys));
        let following = Following::start(keys)?;
        let limits = &cache.engine().config();
        let size = |size: u64| usize::try_from(size).unwrap_or(usize::MAX);
        limits.clients_cap.store(size(descriptors), Relaxed);
        let clients_max = connections_max(settings.connections_max.into(), descriptors);
        limits.clients_max.store(size(clients_max), Relaxed);
        limits.line_max.store(size(settings.line_size_max.0), Relaxed);
        limits.word_max.store(size(settings.value_size_max.0), Relaxed);
        limits.output_max.store(size(settings.output_size_max.0), Relaxed);
        limits.normal_output.set(output_bound(settings.output_limit_normal));
        limits.pubsub_output.set(output_bound(settings.output_limit_pubsub));
        let (own, data) = (settings.clients_memory_max, settings.memory_max);
        let clients = own.map_or_else(|| clients_memory(data, machine_memory()), |size| size.0);
        limits.clients_memory_max.store(size(clients), Relaxed);
        let idle = settings.idle_timeout.map_or(Duration::ZERO, |limit| limit.get());
        limits.idle_seconds.store(whole_seconds(idle), Relaxed);
        let server = Server::start(Arc::clone(cache.engine()), &options)
            .context("cannot serve the cache")?;
        let address_of = |address: Option<SocketAddr>| {
            address.map_or_else(|| "off".to_owned(), |address| address.to_string())
        };
        tracing::info!(
            resp = address_of(server.resp_address()),
            text = address_of(server.text_address()),
            tls_resp = address_of(server.tls_resp_address()),
            tls_text = address_of(server.tls_text_address()),
            data = ?dir.map_or_else(|| "none".to_owned(), |dir| dir.display().to_string()),
            "cache open"
        );
        Ok(Self { cache, server, _following: following })
    }

    /// Returns its server.
    pub(crate) fn server(&self) -> &Server {
        &self.server
    }

    /// Sets what ends the process when a client sends SHUTDOWN, which is refused until then.
    pub(crate) fn set_stopper(&self, stopper: Arc<dyn Stopper>) {
        self.cache.engine().set_stopper(stopper);
    }

    /// Checks that every connection is served and every write can be acknowledged.
    ///
    /// # Errors
    /// Why it must be restarted.
    pub(crate) fn health(&self) -> anyhow::Result<()> {
        // The connections of a thread that has ended hang.
        ensure!(self.server.is_running(), "a thread of the cache's server has ended");
        Ok(self.cache.health()?)
    }

    /// Sends the last replies, closes the sockets and writes the data to stable storage. Blocks.
    ///
    /// # Errors
    /// The log could not be closed.
    pub(crate) fn stop(&self) -> anyhow::Result<()> {
        self.server.stop();
        self.cache.close().context("cannot close the cache's log")
    }
}

/// Returns the limit on connections: the configured one (0: none), reduced to the descriptors
/// available.
fn connections_max(asked: u64, descriptors: u64) -> u64 {
    let wanted = if asked == 0 { u64::MAX } else { asked };
    if wanted > descriptors {
        tracing::warn!(
            cache.connections_max = asked,
            descriptors,
            "the limit on open files of this process reduces cache.connections_max"
        );
    }
    wanted.min(descriptors).max(1)
}

fn output_bound(limit: OutputLimit) -> OutputBound {
    let size = |size: ByteSize| usize::try_from(size.0).unwrap_or(usize::MAX);
    OutputBound {
        hard: size(limit.hard),
        soft: size(limit.soft),
        soft_seconds: whole_seconds(limit.limit.get()),
    }
}

/// Returns the default memory for all connections: a quarter of the memory for data, or of
/// the machine's.
fn clients_memory(data: Option<ByteSize>, machine: u64) -> u64 {
    data.map_or(machine / 4, |data| data.0 / 4).max(CLIENTS_MEMORY_MIN)
}

/// A smaller limit would refuse values that are in common use.
const CLIENTS_MEMORY_MIN: u64 = 64 << 20;

fn machine_memory() -> u64 {
    let machine = rustix::system::sysinfo();
    machine.totalram.saturating_mul(u64::from(machine.mem_unit))
}

fn open_cache(
    config: &Config,
    dir: Option<PathBuf>,
    password: Option<Vec<u8>>,
) -> anyhow::Result<Cache> {
    let settings = &config.cache;
    let options = CacheOptions {
        persist: PersistOptions { durability: settings.durability, ..PersistOptions::default() },
        max_memory: settings
            .memory_max
            .map_or(0, |size| usize::try_from(size.0).unwrap_or(usize::MAX)),
        policy: settings.policy,
        password,
        dir,
    };
    let cache = Cache::open(Arc::new(RealFs), Arc::new(SystemClock::new()), &options)
        .with_context(|| match &options.dir {
            Some(dir) => format!("cannot open the cache in {}", dir.display()),
            None => "cannot open the cache".to_owned(),
        })?;
    if let Some(found) = cache.recovered() {
        for fault in &found.passed_over {
            tracing::warn!(?fault, "a snapshot is damaged; using an older one");
        }
        tracing::info!(
            snapshot_keys = found.snapshot.as_ref().map_or(0, |snapshot| snapshot.keys),
            snapshot_bytes = found.snapshot.as_ref().map_or(0, |snapshot| snapshot.bytes),
            operations = found.operations,
            log_bytes = found.log_bytes,
            torn = found.cut.is_some(),
            snapshot_took_ms = found.snapshot_took.as_secs_f64() * 1_000.0,
            log_took_ms = found.log_took.as_secs_f64() * 1_000.0,
            "cache recovered"
        );
    }
    Ok(cache)
}

fn server_options(config: &Config) -> anyhow::Result<ServerOptions> {
    let settings = &config.cache;
    let workers = usize::try_from(settings.workers).unwrap_or(usize::MAX);
    Ok(ServerOptions {
        resp: settings.resp,
        text: settings.text,
        tls: tls(config)?,
        mode: match settings.server {
            CacheServer::PerConnection => Mode::PerConnection,
            CacheServer::Pooled => Mode::Pooled { workers },
        },
        threads: usize::from(settings.threads),
        threads_min: usize::from(settings.threads_min),
        network: match settings.network {
            CacheNetwork::Auto => Network::Automatic,
            CacheNetwork::Epoll => Network::Epoll,
            CacheNetwork::Uring => Network::Uring,
        },
        limits: ServerLimits {
            write_stall: settings.write_stall_timeout.get(),
            text_idle_timeout: settings
                .text_idle_timeout
                .map_or(Duration::ZERO, |limit| limit.get()),
            ..ServerLimits::default()
        },
    })
}

/// Returns the listeners for TLS, if any are configured.
fn tls(config: &Config) -> anyhow::Result<Option<TlsOptions>> {
    let settings = &config.cache;
    let (resp, text) = (settings.tls_resp, settings.tls_text);
    if resp.or(text).is_none() {
        return Ok(None);
    }
    let (section, cert, key) = match (&settings.tls_cert, &settings.tls_key) {
        (None, None) => ("server", &config.server.tls_cert, &config.server.tls_key),
        (cert, key) => ("cache", cert, key),
    };
    let (Some(cert), Some(key)) = (cert, key) else {
        let text = "cache.tls_resp and cache.tls_text require a certificate and its key: set both \
                    cache.tls_cert and cache.tls_key";
        return Err(Coded::error(Exit::Usage, text));
    };
    let renewed = Renewed::open(cert.clone(), key.clone()).map_err(|error| {
        let text = super::tls_settings(config, section);
        Coded::wrap(Exit::Start, text, error.into())
    })?;
    let source = TlsSource::new(move || renewed.config());
    Ok(Some(TlsOptions { resp, text, source }))
}

/// The engine counts idle time in whole seconds; only zero becomes zero.
fn whole_seconds(limit: Duration) -> u64 {
    limit.as_secs() + u64::from(limit.subsec_nanos() > 0)
}

/// Returns the first line of the password file.
///
/// * `setting`: the setting that names it, and its source.
fn read_password(path: &Path, setting: &str) -> anyhow::Result<Vec<u8>> {
    let bytes = std::fs::read(path)
        .with_context(|| format!("{setting}: cannot read {}", path.display()))
        .map_err(|error| Coded::wrap(Exit::Usage, "invalid configuration", error))?;
    let line = bytes.split(|&byte| byte == b'\n').next().unwrap_or_default();
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    if line.is_empty() {
        let text = format!("{setting}: {} contains no password", path.display());
        return Err(Coded::error(Exit::Usage, text));
    }
    Ok(line.to_vec())
}

/// Refuses to listen beyond this machine without authentication. TLS does not help: it encrypts
/// the traffic of every client.
///
/// * `protected`: clients must give a password or an API key.
fn guard(address: SocketAddr, protected: bool, insecure: bool) -> anyhow::Result<()> {
    if address.ip().is_loopback() || protected || insecure {
        return Ok(());
    }
    let text = format!(
        "refusing to serve the cache on {address}: any client could read and write all \
         of it.\nDo one of these:\n  \
         create an API key      forebay key new --name first --scope admin\n  \
         require a password     --set cache.password_file=FILE\n  \
         stay on this machine   127.0.0.1:{port}\n  \
         accept the risk        --insecure",
        port = address.port(),
    );
    Err(Coded::error(Exit::Usage, text))
}

impl Subsystem for Running {
    fn name(&self) -> &'static str {
        "cache"
    }

    fn router(&self) -> axum::Router {
        axum::Router::new()
    }

    fn openapi(&self) -> utoipa::openapi::OpenApi {
        utoipa::openapi::OpenApiBuilder::new().build()
    }

    fn readiness(&self) -> Result<(), String> {
        self.health().map_err(|error| format!("{error:#}"))?;
        let stalled = self.cache.stalled();
        stalled.map_or(Ok(()), |reason| {
            Err(format!("the cache refuses writes until its log can be written: {reason}"))
        })
    }

    fn image(&self, image: &mut Image) -> anyhow::Result<()> {
        Ok(self.cache.image(image)?)
    }

    fn measure(&self) {
        measure(&self.cache, &self.server);
    }

    fn stop(&self) -> Pin<Box<dyn Future<Output = anyhow::Result<()>> + Send + '_>> {
        Box::pin(async { tokio::task::block_in_place(|| Self::stop(self)) })
    }
}

/// Updates the metrics of the cache.
fn measure(cache: &Cache, server: &Server) {
    let engine = cache.engine();
    let counted = engine.statistics();
    let counter = |name: &'static str, value: u64| metrics::counter!(name).absolute(value);
    #[expect(clippy::cast_precision_loss, reason = "a gauge is a float; these stay below 2^53")]
    let gauge = |name: &'static str, value: usize| metrics::gauge!(name).set(value as f64);
    counter("forebay_cache_commands_total", counted.commands.load(Relaxed));
    counter("forebay_cache_hits_total", counted.hits.load(Relaxed));
    counter("forebay_cache_misses_total", counted.misses.load(Relaxed));
    counter("forebay_cache_evicted_keys_total", counted.evicted.load(Relaxed));
    counter("forebay_cache_expired_keys_total", engine.keyspace().expired());
    counter("forebay_cache_errors_total", counted.errors.load(Relaxed));
    counter("forebay_cache_auth_failures_total", counted.auth_failures.load(Relaxed));
    counter("forebay_cache_denied_commands_total", counted.denied.load(Relaxed));
    counter("forebay_cache_connections_total", counted.connections.load(Relaxed));
    counter("forebay_cache_received_bytes_total", counted.bytes_in.load(Relaxed));
    counter("forebay_cache_sent_bytes_total", counted.bytes_out.load(Relaxed));
    gauge("forebay_cache_memory_bytes", engine.used_memory());
    gauge("forebay_cache_memory_limit_bytes", engine.keyspace().rules().max_memory());
    gauge("forebay_cache_client_memory_bytes", engine.clients_memory());
    let clients_max = engine.config().clients_memory_max.load(Relaxed);
    gauge("forebay_cache_client_memory_limit_bytes", clients_max);
    counter("forebay_cache_evicted_clients_total", counted.evicted_clients.load(Relaxed));
    gauge("forebay_cache_blocked_clients", engine.blocked());
    let databases = 0..forebay_cache::store::DATABASES;
    let (keys, expiring) = databases
        .map(|database| engine.keyspace().count(database))
        .fold((0, 0), |(keys, expiring), (more, of_them)| (keys + more, expiring + of_them));
    gauge("forebay_cache_keys", keys);
    gauge("forebay_cache_keys_with_deadline", expiring);
    let served = server.statistics();
    gauge("forebay_cache_connections", served.open);
    counter("forebay_cache_refused_connections_total", served.refused);
    counter("forebay_cache_accept_errors_total", served.accept_errors);
    counter("forebay_cache_idle_closed_total", served.idle_closed);
    counter("forebay_cache_slow_closed_total", served.slow_closed);
    counter("forebay_cache_protocol_errors_total", served.protocol_errors);
    counter("forebay_cache_http_refused_connections_total", served.http_refused);
    let sum = |of: fn(&forebay_cache::server::ThreadStatistics) -> u64| {
        served.threads.iter().map(of).sum::<u64>()
    };
    gauge("forebay_cache_threads_active", served.active);
    counter("forebay_cache_turns_total", sum(|thread| thread.turns));
    counter("forebay_cache_reads_total", sum(|thread| thread.reads));
    counter("forebay_cache_writes_total", sum(|thread| thread.writes));
    if let Some(pool) = served.pool {
        gauge("forebay_cache_workers", pool.workers);
        gauge("forebay_cache_workers_busy", pool.busy);
        gauge("forebay_cache_workers_queue", pool.queued);
        counter("forebay_cache_worker_tasks_total", pool.tasks);
    }
}
