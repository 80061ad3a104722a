//! Webhooks over HTTP, and what they send: the events of the intake's log and of the jobs'.
//!
//! The engine (`forebay-webhooks`) knows neither files nor jobs. `files` and `jobs` make events of the entries
//! of their logs; `secrets` derives the keys of hooks from the master key. All routes need an admin key.

mod answers;
mod body;
mod files;
mod jobs;
mod openapi;
mod routes;
mod secrets;

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::middleware::from_fn;
use axum::routing::{get, post};
use forebay_base::image::Image;
use forebay_webhooks::Hooks;

use crate::Subsystem;
use crate::idempotency;
use crate::problem::Problem;

pub use files::FileEvents;
pub use jobs::JobEvents;
pub use secrets::MasterSecrets;

/// Maximum time that closing waits for requests that are being sent.
const CLOSE_LIMIT: Duration = Duration::from_secs(5);

/// The subsystem.
pub struct Webhooks(Shared);

/// State of every handler: the hooks, or why they cannot be used.
#[derive(Clone)]
struct Shared(Result<Hooks, Arc<str>>);

impl Shared {
    fn hooks(&self) -> Result<&Hooks, Problem> {
        self.0.as_ref().map_err(|reason| Problem::closed(&**reason))
    }
}

impl Webhooks {
    /// Serves hooks, which start to send once all routes are there.
    #[must_use]
    pub fn new(hooks: Hooks) -> Self {
        Self(Shared(Ok(hooks)))
    }

    /// Answers 503: the state of webhooks cannot be used, and everything else can.
    #[must_use]
    pub fn unusable(reason: &str) -> Self {
        Self(Shared(Err(reason.into())))
    }
}

impl Subsystem for Webhooks {
    fn name(&self) -> &'static str {
        "webhooks"
    }

    fn router(&self) -> Router {
        Router::new()
            .route("/v1/webhooks", get(routes::list).post(routes::create))
            .route(
                "/v1/webhooks/{id}",
                get(routes::one).patch(routes::change).delete(routes::remove),
            )
            .route("/v1/webhooks/{id}/secret", post(routes::rotate))
            .route("/v1/webhooks/{id}/ping", post(routes::ping))
            .route("/v1/webhooks/{id}/deliveries", get(routes::deliveries))
            .route("/v1/webhooks/{id}/deliveries/{delivery}", get(routes::delivery))
            .route("/v1/webhooks/{id}/deliveries/{delivery}/redeliver", post(routes::redeliver))
            .route_layer(from_fn(idempotency::refuse))
            .with_state(self.0.clone())
    }

    fn start(&self, _bare: &Router, _routes: &Router) {
        if let Ok(hooks) = &self.0.0 {
            hooks.start();
        }
    }

    fn openapi(&self) -> utoipa::openapi::OpenApi {
        openapi::document()
    }

    fn degraded(&self) -> Option<String> {
        match &self.0.0 {
            Ok(hooks) => hooks.degraded(),
            Err(reason) => Some(format!("no webhook is sent: {reason}")),
        }
    }

    fn measure(&self) {
        if let Ok(hooks) = &self.0.0 {
            hooks.measure();
        }
    }

    fn image(&self, image: &mut Image) -> anyhow::Result<()> {
        match &self.0.0 {
            Ok(hooks) => Ok(hooks.image(image)?),
            Err(reason) => anyhow::bail!("{reason}"),
        }
    }

    fn stop(&self) -> Pin<Box<dyn Future<Output = anyhow::Result<()>> + Send + '_>> {
        Box::pin(async move {
            if let Ok(hooks) = &self.0.0 {
                hooks.close(CLOSE_LIMIT).await;
            }
            Ok(())
        })
    }
}
