//! State that every request of the server shares.

use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use axum::Router;
use forebay_base::bytes::ByteSize;
use metrics_exporter_prometheus::PrometheusHandle;

use super::gate::Gate;
use super::http_metrics::HttpMetrics;
use super::output::Output;
use super::pace::Pace;
use super::registry::Registry;
use super::request_id::RequestIds;
use super::session::Sessions;
use super::shares::Shares;
use super::shutdown::Stop;
use crate::config;
use crate::keys::KeyRing;
use forebay_api::Subsystem;

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

/// The running server.
pub(super) struct App {
    pub(super) keys: KeyRing,
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
    epoch: Instant,
}

/// What exists once all subsystems are open.
pub(super) struct Opened {
    pub(super) router: Router,
    pub(super) subsystems: Vec<Arc<dyn Subsystem>>,
}

impl App {
    pub(super) fn new(
        server: &config::Server,
        keys: KeyRing,
        recorder: PrometheusHandle,
        process: u32,
    ) -> Self {
        let size = |size: ByteSize| usize::try_from(size.bytes()).unwrap_or(usize::MAX);
        let pace = Pace {
            idle: server.body_idle_timeout.get(),
            rate_min: server.rate_min.bytes(),
            grace: server.rate_grace.get(),
        };
        let connections = Arc::<Registry>::default();
        Self {
            keys,
            sessions: Sessions::default(),
            gate: Gate::new(&server.hosts.0, &server.cors_origins.0),
            output: Output::new(size(server.output_memory_max), Arc::clone(&connections)),
            pace,
            ids: RequestIds::new(process),
            metrics: HttpMetrics::default(),
            recorder,
            stop: Stop::default(),
            deadlines: Deadlines {
                head: server.header_read_timeout.get(),
                idle: server.idle_timeout.get(),
                write: server.write_stall_timeout.get(),
                pace,
            },
            header_size_max: size(server.header_size_max),
            opened: OnceLock::new(),
            connections,
            shares: Shares::new(
                server.requests_in_flight_max as usize,
                server.client_share_max.0.into(),
            ),
            epoch: Instant::now(),
        }
    }

    /// Returns the milliseconds since the server started.
    pub(super) fn elapsed_ms(&self) -> u64 {
        u64::try_from(self.epoch.elapsed().as_millis()).unwrap_or(u64::MAX)
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
        if self.stop.stage() != super::shutdown::Stage::Running {
            return Err("shutting down".to_owned());
        }
        let opened = self.opened.get().ok_or("still opening its data")?;
        opened.subsystems.iter().try_for_each(|subsystem| {
            subsystem.readiness().map_err(|why| format!("{}: {why}", subsystem.name()))
        })
    }
}
