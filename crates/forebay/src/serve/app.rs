//! What every request of the server shares.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use axum::Router;
use metrics_exporter_prometheus::PrometheusHandle;

use super::http_metrics::HttpMetrics;
use super::request_id::RequestIds;
use super::shutdown::Stop;
use super::subsystem::Subsystem;
use crate::config;
use crate::keys::KeyRing;

/// Deadlines of connections.
#[derive(Clone, Copy, Debug)]
pub(super) struct Deadlines {
    pub(super) head: Duration,
    pub(super) idle: Duration,
    pub(super) write: Duration,
}

impl Deadlines {
    pub(super) fn shortest(self) -> Duration {
        self.head.min(self.idle).min(self.write)
    }
}

/// The running server.
pub(super) struct App {
    pub(super) keys: KeyRing,
    pub(super) ids: RequestIds,
    pub(super) metrics: HttpMetrics,
    pub(super) recorder: PrometheusHandle,
    pub(super) stop: Stop,
    pub(super) deadlines: Deadlines,
    pub(super) header_size_max: usize,
    pub(super) opened: OnceLock<Opened>,
    in_flight: AtomicUsize,
    in_flight_max: usize,
    epoch: Instant,
}

/// What exists once every subsystem is open.
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
        Self {
            keys,
            ids: RequestIds::new(process),
            metrics: HttpMetrics::default(),
            recorder,
            stop: Stop::default(),
            deadlines: Deadlines {
                head: server.header_read_timeout.get(),
                idle: server.idle_timeout.get(),
                write: server.write_stall_timeout.get(),
            },
            header_size_max: usize::try_from(server.header_size_max.bytes()).unwrap_or(usize::MAX),
            opened: OnceLock::new(),
            in_flight: AtomicUsize::new(0),
            in_flight_max: server.requests_in_flight_max as usize,
            epoch: Instant::now(),
        }
    }

    /// Milliseconds since the server started.
    pub(super) fn elapsed_ms(&self) -> u64 {
        u64::try_from(self.epoch.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    /// Requests being worked on.
    pub(super) fn in_flight(&self) -> usize {
        self.in_flight.load(Ordering::Relaxed)
    }

    /// Admits one more request unless as many as allowed are being worked on.
    pub(super) fn admit(&self) -> bool {
        if self.in_flight.fetch_add(1, Ordering::Relaxed) < self.in_flight_max {
            return true;
        }
        self.release();
        false
    }

    /// Takes one admitted request off the count.
    pub(super) fn release(&self) {
        self.in_flight.fetch_sub(1, Ordering::Relaxed);
    }

    /// What does not work although work is taken, a sentence each.
    pub(super) fn degraded(&self) -> Vec<String> {
        let subsystems = self.opened.get().map_or(&[][..], |opened| &opened.subsystems);
        let said = |subsystem: &Arc<dyn Subsystem>| {
            Some(format!("{}: {}", subsystem.name(), subsystem.degraded()?))
        };
        subsystems.iter().filter_map(said).collect()
    }

    /// Why the server cannot take work now, if it cannot.
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
