//! The interface of a subsystem to the server.

use std::future::Future;
use std::pin::Pin;

use forebay_base::image::Image;

/// A part of Forebay that serves routes below `/v1`.
///
/// The server knows nothing else of a subsystem.
pub trait Subsystem: Send + Sync + 'static {
    /// Returns its name in logs, on the landing page and in `/readyz`.
    fn name(&self) -> &'static str;

    /// Returns its routes, with full paths (`/v1/files/{id}`), state already applied.
    ///
    /// Handlers find the request's id in the `x-request-id` header, always present and valid.
    fn router(&self) -> axum::Router;

    /// Returns its routes that start work which continues after their response. They are no part of
    /// [`router`](Self::router).
    fn work(&self) -> axum::Router {
        axum::Router::new()
    }

    /// Called once, inside the runtime, when the routes of all subsystems are complete.
    ///
    /// * `_bare`: those routes, with nothing around them.
    /// * `_routes`: the same, with what is around those that start work.
    fn start(&self, _bare: &axum::Router, _routes: &axum::Router) {}

    /// Puts something around the routes of all subsystems that start work. There is at least one.
    fn around_work(&self, routes: axum::Router) -> axum::Router {
        routes
    }

    /// Puts something around the routes of all subsystems that looks at the parameters in the query. Requests
    /// without a query do not pass through it.
    fn around_queries(&self, routes: axum::Router) -> axum::Router {
        routes
    }

    /// Returns the OpenAPI description of those routes.
    fn openapi(&self) -> utoipa::openapi::OpenApi;

    /// Checks whether it accepts work now.
    ///
    /// # Errors
    /// One sentence that says why not; `/readyz` responds 503 with it.
    fn readiness(&self) -> Result<(), String> {
        Ok(())
    }

    /// Returns what does not work although work is accepted, if anything.
    ///
    /// One sentence. `/readyz` responds 200 with it, since a load balancer could only make it
    /// worse.
    fn degraded(&self) -> Option<String> {
        None
    }

    /// Updates its metrics that are read rather than counted. Called before each scrape, so
    /// it must not block on a disk.
    fn measure(&self) {}

    /// Adds what it keeps in the data directory to an image of it. Called on a thread that may block, while requests
    /// are answered; what was acknowledged before the call is in the image.
    ///
    /// # Errors
    /// The image is not complete, and is not used.
    fn image(&self, image: &mut Image) -> anyhow::Result<()>;

    /// Called when the server is to stop: endless responses must end. Must not block.
    fn drain(&self) {}

    /// Finishes what was accepted and closes its files. Called once, after the last request.
    ///
    /// # Errors
    /// What could not be finished. It is logged and the process ends with exit code 1.
    fn stop(&self) -> Pin<Box<dyn Future<Output = anyhow::Result<()>> + Send + '_>>;
}
