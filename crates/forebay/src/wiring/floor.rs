//! The baseline: the same server with a route that reads a body, responds, and does nothing else.
//!
//! It shows the cost of HTTP itself on this machine; the difference to it is the cost of storing.
//! A second route collects the body in memory and then writes it to one file: what a server does
//! that does not store bytes as they arrive.

use std::fs::File;
use std::future::Future;
use std::io::Write as _;
use std::path::Path;
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

/// Maximum size of a body that is collected in memory.
const COLLECTED_MAX: usize = 4 << 30;

/// Opens the baseline instead of the real subsystems.
#[expect(clippy::unnecessary_wraps, reason = "the same signature as opening real subsystems")]
pub(crate) fn open(config: &Config, _ports: &Ports) -> anyhow::Result<Vec<Arc<dyn Subsystem>>> {
    Ok(vec![Arc::new(Floor { file: config.process.data.join("buffered").into() })])
}

struct Floor {
    /// Where the body of the last buffered request is. They are not sent at once.
    file: Arc<Path>,
}

impl Subsystem for Floor {
    fn name(&self) -> &'static str {
        "floor"
    }

    fn router(&self) -> Router {
        let file = self.file.clone();
        Router::new()
            .route("/v1/files/{namespace}/{*name}", put(read_and_answer))
            .route("/v1/buffered", put(move |request| buffer_and_write(file.clone(), request)))
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
    answer(StatusCode::CREATED, ANSWER.into())
}

async fn buffer_and_write(file: Arc<Path>, request: Request<Body>) -> Response {
    let written = async {
        let mut body = request.into_body();
        let mut bytes = Vec::new();
        while let Some(frame) = body.frame().await {
            let Ok(data) = frame.map_err(std::io::Error::other)?.into_data() else { continue };
            if bytes.len() + data.len() > COLLECTED_MAX {
                return Err(std::io::Error::other("the body is too large to be collected"));
            }
            bytes.extend_from_slice(&data);
        }
        tokio::task::spawn_blocking(move || {
            let mut file = File::create(file)?;
            file.write_all(&bytes)?;
            file.sync_data()
        })
        .await?
    };
    match written.await {
        Ok(()) => answer(StatusCode::CREATED, ANSWER.into()),
        Err(error) => answer(StatusCode::INTERNAL_SERVER_ERROR, error.to_string()),
    }
}

fn answer(status: StatusCode, body: String) -> Response {
    let mut response = Response::new(Body::from(body));
    *response.status_mut() = status;
    response
}
