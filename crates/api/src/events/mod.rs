//! The event store as a subsystem of the server: provides its routes and metrics, closes it.
//!
//! Invariant: closing waits until no request uses the store.

mod answers;
mod append;
mod body;
mod openapi;
mod page;
mod params;
mod problem;
mod proofs;
mod read;
pub mod records;
mod stream;
mod verify;
mod witness;

use std::collections::HashSet;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use axum::routing::{get, post};
use forebay_base::image::Image;
use forebay_events::ingest::RequestKey;
use forebay_events::input::Mappings;
use forebay_events::witness::WitnessService;
use forebay_events::{ReadError, Store};
use http::StatusCode;
use parking_lot::{Mutex, RwLock};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};

use crate::Subsystem;
use crate::blocking::on_thread;
pub use answers::EventStats;
use body::Memory;
use problem::Problem;

/// Maximum number of concurrent short reads; more wait.
const SHORT_READS: usize = 64;
/// Maximum number of followers that read concurrently; more wait.
const FOLLOW_READS: usize = 8;
/// Maximum number of concurrent requests to the witness; more are refused with 429.
const WITNESS_REQUESTS: usize = 16;
/// Maximum time that closing waits for reads whose client has disconnected.
const CLOSE_LIMIT: Duration = Duration::from_secs(10);

/// Limits of the routes, and where the fields of records are.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The witness for the logs of others, if this server is one.
    pub witness: Option<Arc<WitnessService>>,
    /// Where the fields of the records of a stream are; a request may override them.
    pub mappings: Mappings,
    /// Maximum number of concurrent requests that append.
    pub appends_max: u32,
    /// Maximum number of concurrent requests that read more than an event.
    pub reads_max: u32,
    /// Maximum number of streams without an end.
    pub followers_max: u32,
    /// Maximum size of a body, in bytes.
    pub body_size_max: u64,
    /// Maximum memory of all bodies together, in bytes.
    pub body_memory_max: u64,
    /// A body that delivers nothing for this long is abandoned.
    pub body_idle: Duration,
}

/// Serves an open store, and closes it at the end.
#[must_use]
pub fn subsystem(store: Store, settings: &Settings) -> Arc<dyn Subsystem> {
    Arc::new(Events(Arc::new(Shared::new(store, settings))))
}

/// The subsystem.
struct Events(Arc<Shared>);

/// The key of a request that is in progress; dropped at its end.
struct HeldKey {
    key: RequestKey,
    keys: Arc<Mutex<HashSet<RequestKey>>>,
}

impl HeldKey {
    fn key(&self) -> RequestKey {
        self.key
    }
}

impl Drop for HeldKey {
    fn drop(&mut self) {
        self.keys.lock().remove(&self.key);
    }
}

/// State shared by requests. A user of the store on another thread holds a permit of one of the
/// semaphores (except `followers`) meanwhile, so that closing can wait for it.
struct Shared {
    store: RwLock<Option<Arc<Store>>>,
    appends: Arc<Semaphore>,
    reads: Arc<Semaphore>,
    short: Arc<Semaphore>,
    /// Endless streams: they use the store only while they read.
    followers: Arc<Semaphore>,
    /// One verification at a time.
    verifying: Arc<Semaphore>,
    follow_reads: Arc<Semaphore>,
    witness: Option<Arc<WitnessService>>,
    /// Requests to the witness.
    witnessing: Arc<Semaphore>,
    appends_max: u32,
    reads_max: u32,
    followers_max: u32,
    /// Position of the last event visible to readers.
    shown: watch::Receiver<u64>,
    /// Set when endless streams must end.
    draining: watch::Sender<bool>,
    mappings: Mappings,
    /// Keys of requests that are not answered yet.
    keys: Arc<Mutex<HashSet<RequestKey>>>,
    body_size_max: u64,
    body_memory: Arc<Memory>,
    body_idle: Duration,
    rejected: metrics::Counter,
    refused: metrics::Counter,
    mistimed: metrics::Counter,
    assumed: metrics::Counter,
    commit_time: metrics::Histogram,
}

impl Shared {
    fn new(store: Store, from: &Settings) -> Self {
        let permits = |count: u32| Arc::new(Semaphore::new(count as usize));
        let (show, shown) = watch::channel(store.len());
        store.watch(move |end| {
            show.send_if_modified(|known| end > std::mem::replace(known, end.max(*known)));
        });
        Self {
            store: RwLock::new(Some(Arc::new(store))),
            appends: permits(from.appends_max),
            reads: permits(from.reads_max),
            short: Arc::new(Semaphore::new(SHORT_READS)),
            followers: permits(from.followers_max),
            verifying: permits(1),
            follow_reads: Arc::new(Semaphore::new(FOLLOW_READS)),
            witness: from.witness.clone(),
            witnessing: Arc::new(Semaphore::new(WITNESS_REQUESTS)),
            appends_max: from.appends_max,
            reads_max: from.reads_max,
            followers_max: from.followers_max,
            shown,
            draining: watch::Sender::new(false),
            mappings: from.mappings.clone(),
            keys: Arc::default(),
            body_size_max: from.body_size_max,
            body_memory: Memory::new(from.body_memory_max),
            body_idle: from.body_idle,
            rejected: metrics::counter!("forebay_events_rejected_records_total"),
            refused: metrics::counter!("forebay_events_refused_requests_total"),
            mistimed: metrics::counter!("forebay_events_mistimed_total"),
            assumed: metrics::counter!("forebay_events_assumed_zone_total"),
            commit_time: metrics::histogram!("forebay_events_commit_seconds"),
        }
    }

    /// Holds the key of a request until the request is answered.
    fn hold(&self, key: RequestKey) -> Result<HeldKey, Problem> {
        if !self.keys.lock().insert(key) {
            let text = "a request with this Idempotency-Key is in progress";
            return Err(Problem::new(StatusCode::CONFLICT, "idempotency_key_in_use", text));
        }
        Ok(HeldKey { key, keys: Arc::clone(&self.keys) })
    }

    fn store(&self) -> Result<Arc<Store>, Problem> {
        self.store.read().clone().ok_or_else(closing)
    }

    /// Acquires a slot among the append or read requests.
    fn permit(
        &self,
        among: &Arc<Semaphore>,
        setting: &'static str,
    ) -> Result<OwnedSemaphorePermit, Problem> {
        Arc::clone(among).try_acquire_owned().map_err(|_| {
            self.refused.increment(1);
            Problem::busy(setting)
        })
    }

    /// Runs a short operation on the store on a thread that may block.
    async fn ask<T: Send + 'static>(
        &self,
        question: impl FnOnce(&Store) -> Result<T, Problem> + Send + 'static,
    ) -> Result<T, Problem> {
        let permit = Arc::clone(&self.short).acquire_owned().await;
        let permit = permit.map_err(|_| closing())?;
        let store = self.store()?;
        on_thread(move || {
            let answer = question(&store);
            drop(store);
            drop(permit);
            answer
        })
        .await
    }

    /// Waits until the store is not in use, and closes it.
    async fn close(&self) -> anyhow::Result<()> {
        let everybody = async {
            let short = u32::try_from(SHORT_READS).unwrap_or(u32::MAX);
            let following = u32::try_from(FOLLOW_READS).unwrap_or(u32::MAX);
            let _appends = self.appends.acquire_many(self.appends_max).await;
            let _reads = self.reads.acquire_many(self.reads_max).await;
            let _following = self.follow_reads.acquire_many(following).await;
            let _short = self.short.acquire_many(short).await;
            let witnessing = u32::try_from(WITNESS_REQUESTS).unwrap_or(u32::MAX);
            let _witnessing = self.witnessing.acquire_many(witnessing).await;
        };
        let left = tokio::time::timeout(CLOSE_LIMIT, everybody).await.is_ok();
        let Some(store) = self.store.write().take() else { return Ok(()) };
        match Arc::try_unwrap(store) {
            Ok(store) => match forebay_base::blocking::spawn(move || store.close())
                .await
                .context("closing the event store was interrupted")?
            {
                // That it signs nothing was reported when it was found, and by `/readyz` since.
                Err(ReadError::Distrusted { .. }) => Ok(()),
                closed => closed.context("cannot close the event store"),
            },
            Err(_) => {
                tracing::warn!(left, "the event store is still being read and was not closed");
                Ok(())
            }
        }
    }
}

/// The store has been closed.
fn closing() -> Problem {
    Problem::closed("the server is shutting down")
}

impl Subsystem for Events {
    fn name(&self) -> &'static str {
        "events"
    }

    fn router(&self) -> axum::Router {
        let router = match &self.0.witness {
            Some(_) => witness::routes(),
            None => axum::Router::new(),
        };
        router
            .route("/v1/events", post(append::by_type).get(read::list))
            .route("/v1/events/{name}", post(append::by_name).get(read::one))
            .route("/v1/events/{name}/proof", get(proofs::of_event))
            .route("/v1/events/proof/consistency", get(proofs::consistency))
            .route("/v1/events/checkpoint", get(proofs::checkpoint))
            .route("/v1/events/key", get(proofs::key))
            .route("/v1/events/stats", get(read::stats))
            .route("/v1/events/verify", get(verify::verify))
            .route("/v1/events/search", get(page::search))
            .route("/v1/events/tlog/checkpoint", get(proofs::latest))
            .route("/v1/events/tlog/tile/{*path}", get(proofs::tile))
            .with_state(Arc::clone(&self.0))
    }

    fn openapi(&self) -> utoipa::openapi::OpenApi {
        openapi::document(self.0.witness.is_some())
    }

    fn readiness(&self) -> Result<(), String> {
        let store = self.0.store.read().clone();
        store.ok_or_else(|| "the event store is closed".to_owned())?.health()
    }

    fn measure(&self) {
        let Some(store) = self.0.store.read().clone() else { return };
        measure(&store, &self.0);
    }

    fn image(&self, image: &mut Image) -> anyhow::Result<()> {
        let store = self.0.store.read().clone().context("the event store is closed")?;
        Ok(store.image(image)?)
    }

    fn drain(&self) {
        self.0.draining.send_replace(true);
    }

    fn stop(&self) -> Pin<Box<dyn Future<Output = anyhow::Result<()>> + Send + '_>> {
        self.drain();
        Box::pin(self.0.close())
    }
}

/// Updates the metrics of the event store.
fn measure(store: &Store, shared: &Shared) {
    let stats = store.stats();
    let counter = |name: &'static str, value: u64| metrics::counter!(name).absolute(value);
    let gauge = |name: &'static str, value: u64| metrics::gauge!(name).set(value as f64);
    counter("forebay_events_appended_total", stats.appended_events);
    counter("forebay_events_batches_total", stats.appended_batches);
    counter("forebay_events_appended_bytes_total", stats.appended_bytes);
    counter("forebay_events_append_waits_total", stats.append_waits);
    counter("forebay_events_flushes_total", stats.flushes);
    counter("forebay_events_flushed_bytes_total", stats.flushed_bytes);
    counter("forebay_events_flush_failures_total", stats.flush_failures);
    counter("forebay_events_compactions_total", stats.compactions);
    counter("forebay_events_checkpoints_total", stats.checkpoints);
    counter("forebay_events_checkpoints_published_total", stats.anchored);
    counter("forebay_events_publish_failures_total", stats.anchor_failures);
    counter("forebay_events_cosignatures_total", stats.cosigned);
    counter("forebay_events_witness_failures_total", stats.witness_failures);
    let failing = store.anchors().iter().filter(|anchor| anchor.failure.is_some()).count();
    gauge("forebay_events_anchors_failing", failing as u64);
    gauge("forebay_events_cosigned_size", store.cosigned_size().unwrap_or(0));
    if let Some(witness) = &shared.witness {
        let (cosigned, refused) = witness.counts();
        counter("forebay_witness_cosignatures_total", cosigned);
        counter("forebay_witness_refused_total", refused);
    }
    counter("forebay_events_log_groups_total", stats.log_groups);
    counter("forebay_events_log_syncs_total", stats.log_syncs);
    gauge("forebay_events_tree_size", stats.events);
    gauge("forebay_events_kept", stats.events_kept);
    gauge("forebay_events_in_memory", stats.events_in_memory);
    gauge("forebay_events_memory_bytes", stats.memory_bytes);
    gauge("forebay_events_segments", stats.segments);
    gauge("forebay_events_segment_bytes", stats.segment_bytes);
    gauge("forebay_events_log_bytes", stats.log_bytes);
    metrics::gauge!("forebay_events_log_sync_seconds_total").set(stats.log_sync_ns as f64 / 1e9);
    let busy = |max: u32, semaphore: &Semaphore| {
        u64::from(max).saturating_sub(semaphore.available_permits() as u64)
    };
    gauge("forebay_events_appends_running", busy(shared.appends_max, &shared.appends));
    gauge("forebay_events_reads_running", busy(shared.reads_max, &shared.reads));
    gauge("forebay_events_followers", busy(shared.followers_max, &shared.followers));
    gauge("forebay_events_body_memory_bytes", shared.body_memory.used());
}
