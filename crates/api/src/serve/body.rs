//! A request's slot among those in progress, and a response body that records when the request
//! ends.

use std::pin::Pin;
use std::sync::atomic::Ordering::{AcqRel, Relaxed};
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use axum::body::Body;
use bytes::Bytes;
use http::StatusCode;
use http_body_util::BodyExt as _;
use hyper::body::{Body as HttpBody, Frame, Incoming, SizeHint};
use parking_lot::Mutex;

use super::app::App;
use super::connection::Connection;
use super::followers::Follower;
use super::http_metrics::RouteClass;
use super::shares::{Full, Share};

/// Not counted.
const OUT: u8 = 0;
/// Counted.
const IN: u8 = 1;
/// Ended, or never admitted: not to be counted again.
const OVER: u8 = 2;
/// Maximum size of what is read of a body that its handler did not read, in bytes.
const REST_SIZE_MAX: u64 = 64 << 10;
/// How long its arrival is waited for. The response waits meanwhile.
const REST_LIMIT: Duration = Duration::from_millis(20);

/// The slot of a request in progress. It is released while the server waits for the client.
pub(super) struct Slot {
    conn: Arc<Connection>,
    key: OnceLock<Arc<Share>>,
    state: AtomicU8,
    /// Whether the client was too slow with its body.
    slow: AtomicBool,
    /// Whether some of the body was not read yet.
    unread: AtomicBool,
    /// What the handler did not read of it.
    rest: Mutex<Option<Incoming>>,
}

impl Slot {
    /// Creates a slot that is not taken; [`Slot::admit`] takes it.
    ///
    /// * `has_body`: the request has one.
    pub(super) fn new(conn: Arc<Connection>, has_body: bool) -> Self {
        let (state, slow) = (AtomicU8::new(OVER), AtomicBool::new(false));
        let (unread, rest) = (AtomicBool::new(has_body), Mutex::new(None));
        Self { conn, key: OnceLock::new(), state, slow, unread, rest }
    }

    /// Returns the server.
    pub(super) fn app(&self) -> &Arc<App> {
        &self.conn.app
    }

    /// Returns the clients that the request counts against.
    fn clients(&self) -> impl Iterator<Item = &Share> + Clone {
        [Some(&*self.conn.state.share), self.key.get().map(|key| &**key)].into_iter().flatten()
    }

    /// Takes the slot, unless the limit is reached.
    ///
    /// * `key`: the share of the presented key.
    ///
    /// # Errors
    /// [`Full`].
    pub(super) fn admit(&self, key: Option<Arc<Share>>) -> Result<(), Full> {
        if let Some(key) = key {
            self.key.get_or_init(|| key);
        }
        self.app().shares.admit(self.clients())?;
        self.state.store(IN, Ordering::Release);
        Ok(())
    }

    /// Releases the slot while the server waits for the client.
    pub(super) fn leave(&self) {
        self.conn.state.want_body(self.app().elapsed_ms());
        if self.state.compare_exchange(IN, OUT, AcqRel, Relaxed).is_ok() {
            self.app().shares.release(self.clients());
        }
    }

    /// Takes the slot back. A request in progress is not refused, so the count may exceed the
    /// limit.
    pub(super) fn enter(&self) {
        self.conn.state.have_body();
        if self.state.load(Relaxed) == OUT
            && self.state.compare_exchange(OUT, IN, AcqRel, Relaxed).is_ok()
        {
            self.app().shares.enter(self.clients());
        }
    }

    /// Releases the slot for good: the response is complete, or will not be made.
    pub(super) fn end(&self) {
        self.conn.state.have_body();
        if self.state.swap(OVER, AcqRel) == IN {
            self.app().shares.release(self.clients());
        }
    }

    /// Records that the whole body was read.
    pub(super) fn note_read(&self) {
        self.unread.store(false, Relaxed);
    }

    /// Keeps what a handler did not read of the body.
    pub(super) fn give_back(&self, rest: Incoming) {
        *self.rest.lock() = Some(rest);
    }

    /// Reads what the handler left of a small body, so that the connection can be used for the next
    /// request. What is large, or does not arrive at once, stays unread.
    pub(super) async fn read_rest(&self) {
        let Some(mut rest) = self.rest.lock().take() else { return };
        if rest.size_hint().upper().is_none_or(|size| size > REST_SIZE_MAX) {
            return;
        }
        let read = async move {
            while let Some(frame) = rest.frame().await {
                if frame.is_err() {
                    return false;
                }
            }
            true
        };
        if tokio::time::timeout(REST_LIMIT, read).await == Ok(true) {
            self.note_read();
        }
    }

    /// Whether some of the body was not read. The connection cannot be used for another request then.
    pub(super) fn has_unread_body(&self) -> bool {
        self.unread.load(Relaxed)
    }

    pub(super) fn note_slow(&self) {
        self.slow.store(true, Relaxed);
    }

    pub(super) fn was_slow(&self) -> bool {
        self.slow.load(Relaxed)
    }
}

/// A request from its head to the last byte of its response; dropping it ends the request in all
/// cases.
pub(super) struct Running {
    pub(super) conn: Arc<Connection>,
    pub(super) started: Instant,
    pub(super) class: RouteClass,
    pub(super) slot: Arc<Slot>,
    pub(super) status: Option<StatusCode>,
    /// The slot of a response without an end.
    pub(super) follower: Option<Follower>,
}

impl Running {
    /// Returns the server.
    pub(super) fn app(&self) -> &Arc<App> {
        &self.conn.app
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.slot.end();
        let (app, now) = (self.app(), Instant::now());
        self.conn.state.request_over(app.elapsed_ms_at(now));
        app.metrics.record(self.class, self.status, now - self.started);
    }
}

/// The response body passed to the connection.
pub(super) struct Tracked {
    inner: Body,
    running: Running,
}

impl Tracked {
    pub(super) fn new(inner: Body, running: Running) -> Self {
        Self { inner, running }
    }
}

impl HttpBody for Tracked {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let Connection { app, state, .. } = &*self.running.conn;
        if !app.output.has_room(state.held()) {
            // The connection's task is woken when the kernel has taken some of the output.
            state.wait_for_room();
            return Poll::Pending;
        }
        let polled = Pin::new(&mut self.inner).poll_frame(cx);
        if let Poll::Ready(Some(Ok(frame))) = &polled
            && let Some(data) = frame.data_ref()
        {
            let Connection { app, state, .. } = &*self.running.conn;
            state.hold(data.len());
            if state.stalled_since().is_some() {
                app.output.count(state, app.elapsed_ms());
            }
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}
