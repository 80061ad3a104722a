//! The inventory index as a subsystem of the server: provides its routes and metrics, closes it.
//!
//! Invariants: a client names indexes, never paths; it can have nothing read that the configuration
//! does not permit; the numbers of index scans and of builds are limited.

mod answers;
mod blobs;
mod builds;
mod job;
mod openapi;
mod page;
mod params;
mod problem;
mod read;
mod registry;
mod sources;
mod stream;

use std::future::Future;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::Context as _;
use axum::routing::{get, post};
use forebay_base::bytes::ByteSize;
use forebay_base::checksum::crc32c;
use forebay_base::image::Image;
use forebay_intake::Intake;
use forebay_inventory::cost::Prices;
use forebay_objects::Access;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::Subsystem;
use crate::problem::Problem;
use builds::Builds;
use registry::Registry;

/// Maximum time that closing waits for queries whose client has disconnected, and for cancelled
/// builds.
const CLOSE_LIMIT: Duration = Duration::from_secs(10);

/// A source from which clients of the server may build indexes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Permitted {
    /// A directory of this machine and everything below it.
    Directory(PathBuf),
    /// A prefix of a bucket. The prefix is empty or ends with a slash.
    Bucket {
        /// The bucket.
        bucket: String,
        /// The prefix.
        prefix: String,
    },
}

/// Where indexes are, what they may be built from, and limits.
#[derive(Debug)]
pub struct Settings {
    /// Directory of the indexes.
    pub dir: PathBuf,
    /// Maximum number of indexes kept open.
    pub open_max: usize,
    /// Maximum number of indexes.
    pub indexes_max: u32,
    /// Maximum number of concurrent requests that scan an index.
    pub queries_max: u32,
    /// Maximum number of concurrent builds.
    pub builds_max: usize,
    /// Memory of a build.
    pub build_memory: ByteSize,
    /// What else than the server's own files clients may have read.
    pub sources: Vec<Permitted>,
    /// Prices of storage.
    pub prices: Prices,
    /// Returns the access to buckets, by path: there a bucket's name may have dots.
    pub buckets: fn() -> anyhow::Result<Access>,
}

/// Opens the existing indexes, to serve them.
///
/// * `files`: the server's own files, which can be indexed too.
///
/// # Errors
/// The directory of the indexes cannot be read.
pub fn open(settings: Settings, files: Intake) -> anyhow::Result<Arc<dyn Subsystem>> {
    let dir = settings.dir.clone();
    let shared = Shared::new(settings, files);
    let found = shared
        .registry
        .recover()
        .with_context(|| format!("cannot read the indexes in {}", dir.display()))?;
    tracing::info!(
        indexes = found.indexes,
        unreadable = found.unreadable,
        leftovers_removed = found.leftovers,
        "inventory open"
    );
    Ok(Arc::new(Inventories(Arc::new(shared))))
}

/// The subsystem.
struct Inventories(Arc<Shared>);

/// State shared by requests.
struct Shared {
    registry: Registry,
    builds: Builds,
    /// The server's own files.
    files: Intake,
    /// What else clients may have read.
    sources: Vec<Permitted>,
    buckets: fn() -> anyhow::Result<Access>,
    prices: Prices,
    /// Distinguishes results computed from different prices.
    prices_tag: u32,
    build_memory: ByteSize,
    indexes_max: u32,
    queries: Arc<Semaphore>,
    queries_max: u32,
    draining: AtomicBool,
}

impl Shared {
    fn new(settings: Settings, files: Intake) -> Self {
        let prices = settings.prices;
        Self {
            registry: Registry::new(&settings.dir, settings.open_max),
            builds: Builds::new(settings.builds_max),
            files,
            sources: settings.sources,
            buckets: settings.buckets,
            prices_tag: crc32c(format!("{prices:?}").as_bytes()),
            prices,
            build_memory: settings.build_memory,
            indexes_max: settings.indexes_max,
            queries: Arc::new(Semaphore::new(settings.queries_max as usize)),
            queries_max: settings.queries_max,
            draining: AtomicBool::new(false),
        }
    }

    /// Acquires a slot among the queries that scan an index.
    fn permit(&self) -> Result<OwnedSemaphorePermit, Problem> {
        Arc::clone(&self.queries).try_acquire_owned().map_err(|_| {
            metrics::counter!("forebay_inventory_refused_requests_total").increment(1);
            Problem::busy("inventory.queries_max")
        })
    }

    fn check_running(&self) -> Result<(), Problem> {
        if self.draining.load(Ordering::Acquire) {
            return Err(Problem::closed("the server is shutting down"));
        }
        Ok(())
    }

    /// Waits until no query and no build runs.
    async fn close(&self) -> anyhow::Result<()> {
        self.builds.cancel_all();
        let threads = self.builds.threads();
        let joined = forebay_base::blocking::spawn(move || {
            threads.into_iter().filter_map(|thread| thread.join().err()).count()
        });
        let everybody = async {
            let panicked = joined.await.unwrap_or_default();
            // Never closed, so this only waits.
            drop(self.queries.acquire_many(self.queries_max).await);
            panicked
        };
        match tokio::time::timeout(CLOSE_LIMIT, everybody).await {
            Ok(0) => {}
            Ok(panicked) => tracing::error!(panicked, "builds of indexes panicked"),
            Err(_) => tracing::warn!("indexes are still being read or built at shutdown"),
        }
        Ok(())
    }
}

impl Subsystem for Inventories {
    fn name(&self) -> &'static str {
        "inventory"
    }

    fn router(&self) -> axum::Router {
        axum::Router::new()
            .route("/inventories", get(page::to_list))
            .route("/inventories/{name}", get(page::to_index))
            .route("/v1/inventories", get(read::list))
            .route("/v1/inventories/page", get(page::list))
            .route("/v1/inventories/{name}", get(read::index).delete(job::delete))
            .route("/v1/inventories/{name}/build", get(job::status).delete(job::cancel))
            .route("/v1/inventories/{name}/page", get(page::index))
            .route("/v1/inventories/{name}/prefix", get(read::prefix))
            .route("/v1/inventories/{name}/children", get(read::children))
            .route("/v1/inventories/{name}/top", get(read::top))
            .route("/v1/inventories/{name}/descendants", get(stream::descendants))
            .route("/v1/inventories/{name}/histogram", get(read::histogram))
            .route("/v1/inventories/{name}/cost", get(read::cost))
            .route("/v1/inventories/{name}/small-files", get(read::small_files))
            .route("/v1/inventories/{name}/diff", get(read::diff))
            .with_state(Arc::clone(&self.0))
    }

    fn work(&self) -> axum::Router {
        let router = axum::Router::new().route("/v1/inventories/{name}", post(job::start));
        router.with_state(Arc::clone(&self.0))
    }

    fn openapi(&self) -> utoipa::openapi::OpenApi {
        openapi::document()
    }

    fn readiness(&self) -> Result<(), String> {
        self.0.registry.readiness()
    }

    fn measure(&self) {
        let gauge = |name: &'static str, value: u64| metrics::gauge!(name).set(value as f64);
        let totals = self.0.registry.totals();
        gauge("forebay_inventory_indexes_open", totals.open);
        gauge("forebay_inventory_open_prefixes", totals.prefixes);
        gauge("forebay_inventory_open_objects", totals.objects);
        gauge("forebay_inventory_open_bytes", totals.index_bytes);
        gauge("forebay_inventory_indexes_unreadable", totals.unreadable);
        gauge("forebay_inventory_builds_running", self.0.builds.running() as u64);
        let queries = u64::from(self.0.queries_max);
        let free = self.0.queries.available_permits() as u64;
        gauge("forebay_inventory_queries_running", queries.saturating_sub(free));
    }

    fn image(&self, image: &mut Image) -> anyhow::Result<()> {
        self.0.registry.image(image)
    }

    fn drain(&self) {
        self.0.draining.store(true, Ordering::Release);
    }

    fn stop(&self) -> Pin<Box<dyn Future<Output = anyhow::Result<()>> + Send + '_>> {
        self.drain();
        Box::pin(self.0.close())
    }
}
