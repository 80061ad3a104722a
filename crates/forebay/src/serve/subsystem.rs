//! What a subsystem hands to the server.

use std::future::Future;
use std::pin::Pin;

/// A part of Forebay that answers below `/v1`.
///
/// `wiring` implements it for each subsystem's facade; nothing else of a subsystem is known here.
pub(crate) trait Subsystem: Send + Sync + 'static {
    /// Its name in logs, on the landing page and in `/readyz`.
    fn name(&self) -> &'static str;

    /// Its routes, with full paths (`/v1/files/{id}`), state already applied.
    ///
    /// Handlers find the request's id in the `x-request-id` header, always present and valid.
    fn router(&self) -> axum::Router;

    /// The description of those routes.
    fn openapi(&self) -> utoipa::openapi::OpenApi;

    /// Whether it can take work now.
    ///
    /// # Errors
    /// One sentence saying why not; `/readyz` answers 503 with it.
    fn readiness(&self) -> Result<(), String> {
        Ok(())
    }

    /// What does not work although work is taken, if there is something.
    ///
    /// One sentence; `/readyz` answers 200 with it, for a balancer would only make it worse.
    fn degraded(&self) -> Option<String> {
        None
    }

    /// Brings those of its metrics up to date that are fetched, not counted. Called before each scrape, so
    /// it must not block on a disk.
    fn measure(&self) {}

    /// Told when the server is to stop: answers without an end are to end. Must not block.
    fn drain(&self) {}

    /// Finishes what was accepted and closes its files. Called once, after the last request.
    ///
    /// # Errors
    /// What could not be finished; it is logged and the process ends with exit code 1.
    fn stop(&self) -> Pin<Box<dyn Future<Output = anyhow::Result<()>> + Send + '_>>;
}
