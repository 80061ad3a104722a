//! State that every request of the server shares.

use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use metrics_exporter_prometheus::PrometheusHandle;

use super::followers::Followers;
use super::gate::Gate;
use super::http_metrics::HttpMetrics;
use super::image::Images;
use super::output::Output;
use super::pace::Pace;
use super::registry::Registry;
use super::request_id::RequestIds;
use super::session::Sessions;
use super::shares::Shares;
use super::shell_routes::{self, Routers};
use super::shutdown::{Stage, Stop};
use crate::Subsystem;
use crate::keys::{KeyRing, MasterKey};

/// Maximum time for aborted connections to end.
const ABORT_LIMIT: Duration = Duration::from_secs(2);

/// Time limits of connections.
#[derive(Clone, Copy, Debug)]
pub(super) struct Deadlines {
    pub(super) head: Duration,
    pub(super) idle: Duration,
    pub(super) write: Duration,
    /// Minimum rate of reading a response.
    pub(super) pace: Pace,
}

impl Deadlines {
    pub(super) fn shortest(self) -> Duration {
        self.head.min(self.idle).min(self.write)
    }
}

/// Limits of the server, and whom it accepts.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Names by which clients may address it, besides this machine's own.
    pub hosts: Vec<String>,
    /// Origins of pages that may call it from a browser.
    pub cors_origins: Vec<String>,
    /// Maximum number of requests in progress.
    pub requests_in_flight_max: usize,
    /// Maximum share of them that one client may use, in percent.
    pub client_share_max: u32,
    /// Maximum number of responses without an end. Each holds a connection.
    pub followers_max: usize,
    /// Maximum size of a request's head, in bytes.
    pub header_size_max: usize,
    /// Time limit for a client to send it.
    pub header_read_timeout: Duration,
    /// Maximum time a kept-alive connection waits for its next request.
    pub idle_timeout: Duration,
    /// Maximum time a client may leave a response unread.
    pub write_stall_timeout: Duration,
    /// Maximum time a client may send nothing of a body.
    pub body_idle_timeout: Duration,
    /// Minimum rate of a transfer, in bytes a second.
    pub rate_min: u64,
    /// Maximum time it may stay below that.
    pub rate_grace: Duration,
    /// Maximum memory for responses that clients have not read yet, in bytes.
    pub output_memory_max: usize,
}

/// The running server.
pub struct App {
    pub(super) keys: Arc<KeyRing>,
    /// Signs URLs, if there is one.
    pub(super) master: Option<MasterKey>,
    /// Makes images of the data directory, if there is one.
    pub(super) images: Option<Images>,
    pub(super) sessions: Sessions,
    pub(super) gate: Gate,
    pub(super) output: Output,
    pub(super) pace: Pace,
    pub(super) ids: RequestIds,
    pub(super) metrics: HttpMetrics,
    pub(super) recorder: PrometheusHandle,
    pub(super) stop: Stop,
    pub(super) deadlines: Deadlines,
    pub(super) header_size_max: usize,
    pub(super) opened: OnceLock<Opened>,
    pub(super) connections: Arc<Registry>,
    pub(super) shares: Shares,
    pub(super) followers: Followers,
    /// Whether the server's own port speaks TLS.
    pub(super) tls: bool,
    epoch: Instant,
}

/// What exists once all subsystems are open.
pub(super) struct Opened {
    pub(super) routers: Routers,
    pub(super) subsystems: Vec<Arc<dyn Subsystem>>,
}

impl App {
    /// Creates a server that has nothing to serve yet.
    ///
    /// * `recorder`: renders the metrics of the process.
    /// * `process`: a number that distinguishes the ids of its requests from those of others.
    #[must_use]
    pub fn new(
        server: &Settings,
        keys: impl Into<Arc<KeyRing>>,
        recorder: PrometheusHandle,
        process: u32,
    ) -> Self {
        let pace = Pace {
            idle: server.body_idle_timeout,
            rate_min: server.rate_min,
            grace: server.rate_grace,
        };
        let connections = Arc::<Registry>::default();
        Self {
            keys: keys.into(),
            master: None,
            images: None,
            sessions: Sessions::default(),
            gate: Gate::new(&server.hosts, &server.cors_origins),
            output: Output::new(server.output_memory_max, Arc::clone(&connections)),
            pace,
            ids: RequestIds::new(process),
            metrics: HttpMetrics::default(),
            recorder,
            stop: Stop::default(),
            deadlines: Deadlines {
                head: server.header_read_timeout,
                idle: server.idle_timeout,
                write: server.write_stall_timeout,
                pace,
            },
            header_size_max: server.header_size_max,
            opened: OnceLock::new(),
            connections,
            followers: Followers::new(server.followers_max),
            tls: false,
            shares: Shares::new(server.requests_in_flight_max, server.client_share_max as usize),
            epoch: Instant::now(),
        }
    }

    /// Lets the server sign URLs with the secret of its data directory.
    #[must_use]
    pub fn signing_with(mut self, master: MasterKey) -> Self {
        self.master = Some(master);
        self
    }

    /// Says that the server's own port speaks TLS.
    #[must_use]
    pub fn with_tls(mut self, tls: bool) -> Self {
        self.tls = tls;
        self
    }

    /// Lets the server make images of its data directory, for backups.
    #[must_use]
    pub fn with_data(mut self, data: &std::path::Path) -> Self {
        self.images = Some(Images::of(data));
        self
    }

    /// Returns the API keys.
    #[must_use]
    pub fn keys(&self) -> &KeyRing {
        &self.keys
    }

    /// Folds the samples of histograms. Called every few seconds.
    pub fn upkeep(&self) {
        self.recorder.run_upkeep();
    }

    /// Puts the routes of the subsystems in place. Until then requests are answered 503.
    ///
    /// # Errors
    /// The API description cannot be serialized, or routes are in place already.
    pub fn open(self: &Arc<Self>, subsystems: Vec<Arc<dyn Subsystem>>) -> anyhow::Result<()> {
        let routers = shell_routes::build(self, &subsystems)?;
        if self.opened.set(Opened { routers, subsystems }).is_err() {
            anyhow::bail!("the subsystems were opened twice");
        }
        Ok(())
    }

    /// Stops in order: finishes running requests, at most for `limit`, then stops the subsystems,
    /// the last opened first.
    ///
    /// * Returns whether all requests were finished; otherwise they were aborted.
    ///
    /// # Errors
    /// The first subsystem that could not stop cleanly. The others were stopped too.
    pub async fn stop(&self, limit: Duration) -> anyhow::Result<bool> {
        self.stop.advance(Stage::Draining);
        let subsystems = self.opened.get().map_or(&[][..], |opened| &opened.subsystems);
        // As below: what was opened last uses what was opened before.
        for subsystem in subsystems.iter().rev() {
            subsystem.drain();
        }
        let finished = self.stop.drained(limit).await;
        if !finished {
            let connections = self.stop.open();
            tracing::warn!(connections, ?limit, "shutdown limit reached: closing all connections");
            self.stop.advance(Stage::Aborting);
            self.stop.drained(ABORT_LIMIT).await;
        }
        let mut failed = None;
        for subsystem in subsystems.iter().rev() {
            if let Err(error) = subsystem.stop().await {
                let context = format!("{} did not stop cleanly", subsystem.name());
                failed = failed.or(Some(error.context(context)));
            }
        }
        failed.map_or(Ok(finished), Err)
    }

    /// Returns the milliseconds since the server started.
    pub(super) fn elapsed_ms(&self) -> u64 {
        self.elapsed_ms_at(Instant::now())
    }

    /// The same for a time that was just read: reading it again would cost as much as the rest.
    pub(super) fn elapsed_ms_at(&self, now: Instant) -> u64 {
        u64::try_from((now - self.epoch).as_millis()).unwrap_or(u64::MAX)
    }

    /// Returns what does not work although work is accepted, one sentence each.
    pub(super) fn degraded(&self) -> Vec<String> {
        let subsystems = self.opened.get().map_or(&[][..], |opened| &opened.subsystems);
        let said = |subsystem: &Arc<dyn Subsystem>| {
            Some(format!("{}: {}", subsystem.name(), subsystem.degraded()?))
        };
        subsystems.iter().filter_map(said).collect()
    }

    /// Checks that the server accepts work; the error says why not.
    pub(super) fn readiness(&self) -> Result<(), String> {
        if self.stop.stage() != Stage::Running {
            return Err("shutting down".to_owned());
        }
        let opened = self.opened.get().ok_or("still opening its data")?;
        opened.subsystems.iter().try_for_each(|subsystem| {
            subsystem.readiness().map_err(|why| format!("{}: {why}", subsystem.name()))
        })
    }
}
