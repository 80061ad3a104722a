//! A response body that notes when the request it answers is over.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Instant;

use axum::body::Body;
use bytes::Bytes;
use http::StatusCode;
use hyper::body::{Body as HttpBody, Frame, SizeHint};

use super::app::App;
use super::connection::ConnState;
use super::http_metrics::RouteClass;

/// One request from its head to the last byte of its answer; dropping it ends the request,
/// however that came about.
pub(super) struct Running {
    pub(super) app: Arc<App>,
    pub(super) conn: Arc<ConnState>,
    pub(super) started: Instant,
    pub(super) class: RouteClass,
    pub(super) admitted: bool,
    pub(super) status: Option<StatusCode>,
}

impl Drop for Running {
    fn drop(&mut self) {
        if self.admitted {
            self.app.release();
        }
        self.conn.request_over(self.app.elapsed_ms());
        self.app.metrics.record(self.class, self.status, self.started.elapsed());
    }
}

/// The body handed to the connection.
pub(super) struct Tracked {
    inner: Body,
    _running: Running,
}

impl Tracked {
    pub(super) fn new(inner: Body, running: Running) -> Self {
        Self { inner, _running: running }
    }
}

impl HttpBody for Tracked {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.inner).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}
