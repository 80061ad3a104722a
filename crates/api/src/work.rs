//! Work that continues after the response that started it: the build of an index, a run of a pipeline.
//!
//! A route that starts some puts a handle of it into the extensions of its 202. Jobs last as long as that work, and end
//! it when they are cancelled, without knowing the subsystem that does it.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use axum::response::Response;

/// Work in progress.
pub(crate) trait Work: Send + Sync + 'static {
    /// Bytes of its sources that were read, and in total; 0 if the total is not known.
    fn progress(&self) -> (u64, u64);

    /// Asks it to end early. It may still complete.
    fn cancel(&self);

    /// Completes when it has ended, with what the route for its status answers then.
    fn ended(self: Arc<Self>) -> Pin<Box<dyn Future<Output = Response> + Send>>;
}

/// The work that a response of 202 states, in its extensions.
#[derive(Clone)]
pub(crate) struct Started(pub(crate) Arc<dyn Work>);

impl Started {
    /// Adds the handle of its work to a response.
    pub(crate) fn mark(work: impl Work, mut response: Response) -> Response {
        response.extensions_mut().insert(Self(Arc::new(work)));
        response
    }
}

/// Marks a request of the server's own schedule, in its extensions. It is refused as if its work were running (409 with
/// the code [`RUNNING`]) while a job for the same work waits or runs.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Scheduled;

/// Code of the error that a run is in progress.
pub(crate) const RUNNING: &str = "running";
