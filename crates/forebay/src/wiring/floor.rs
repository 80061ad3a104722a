//! The baseline: the same server with a route that reads a body, responds, and does nothing else.
//!
//! It shows the cost of HTTP itself on this machine; the difference to it is the cost of storing.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::response::Response;
use axum::routing::put;
use http::{Request, StatusCode};
use http_body_util::BodyExt as _;

use crate::config::Config;
use crate::serve::{Ports, Subsystem};

/// Response of the baseline: as long as a typical one of the intake.
const ANSWER: &str = "{\"status\":\"stored\",\"id\":\"0000000000000000\"}";

/// Opens the baseline instead of the real subsystems.
#[expect(clippy::unnecessary_wraps, reason = "the same signature as opening real subsystems")]
pub(crate) fn open(_config: &Config, _ports: &Ports) -> anyhow::Result<Vec<Arc<dyn Subsystem>>> {
    Ok(vec![Arc::new(Floor)])
}

struct Floor;

impl Subsystem for Floor {
    fn name(&self) -> &'static str {
        "floor"
    }

    fn router(&self) -> Router {
        Router::new().route("/v1/files/{namespace}/{*name}", put(read_and_answer))
    }

    fn openapi(&self) -> utoipa::openapi::OpenApi {
        utoipa::openapi::OpenApiBuilder::new().build()
    }

    fn image(&self, _image: &mut forebay_base::image::Image) -> anyhow::Result<()> {
        // It keeps nothing.
        Ok(())
    }

    fn stop(&self) -> Pin<Box<dyn Future<Output = anyhow::Result<()>> + Send + '_>> {
        Box::pin(async { Ok(()) })
    }
}

async fn read_and_answer(request: Request<Body>) -> Response {
    let mut body = request.into_body();
    let mut size = 0;
    while let Some(Ok(frame)) = body.frame().await {
        size += frame.data_ref().map_or(0, bytes::Bytes::len);
    }
    std::hint::black_box(size);
    let mut response = Response::new(Body::from(ANSWER));
    *response.status_mut() = StatusCode::CREATED;
    response
}
