//! One connection: hyper drives it, this file watches its clock.
//!
//! A connection is waiting for a request (`Idle`), receiving a head (`Head`) or answering
//! (`Busy`). hyper's own head timer costs a timer operation per request; here each change of state
//! is one store, and a single timer a connection, re-armed only when it fires, compares the state
//! with its deadline. It fires no later than the shortest deadline after any change, so a deadline
//! is kept exactly.
//!
//! A response the client does not read shows as a write that stays pending; that has a deadline in
//! any state. How slowly a *body* may arrive is for the handler that reads it to decide.

use std::future::{Future as _, poll_fn};
use std::io::{self, IoSlice};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, sleep_until};

use super::app::{App, Deadlines};
use super::service::answer;
use super::shutdown::Stage;

const IDLE: u64 = 0;
const HEAD: u64 = 1;
const BUSY: u64 = 2;
const STATE_BITS: u32 = 2;

/// Why a connection was closed by the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Overdue {
    /// A request head took too long.
    Head,
    /// No further request came.
    Idle,
    /// A response was not read.
    Write,
}

/// What a connection is doing, and since when. Times are milliseconds since the server started.
#[derive(Debug)]
pub(super) struct ConnState {
    /// Time of the last change, shifted left, and the state in the low bits.
    state: AtomicU64,
    /// Since when a write has been pending, plus one; 0 when none is.
    stalled: AtomicU64,
}

impl ConnState {
    /// A new connection owes its first request head at once.
    pub(super) fn new(now_ms: u64) -> Self {
        Self { state: AtomicU64::new(now_ms << STATE_BITS | HEAD), stalled: AtomicU64::new(0) }
    }

    fn set(&self, state: u64, now_ms: u64) {
        self.state.store(now_ms << STATE_BITS | state, Relaxed);
    }

    fn is(&self, state: u64) -> bool {
        self.state.load(Relaxed) & ((1 << STATE_BITS) - 1) == state
    }

    /// A whole request head was read.
    pub(super) fn request_begun(&self, now_ms: u64) {
        self.set(BUSY, now_ms);
    }

    /// The answer was handed over to the last byte.
    pub(super) fn request_over(&self, now_ms: u64) {
        self.set(IDLE, now_ms);
    }

    /// When to look next, or what is overdue already.
    pub(super) fn check(&self, now_ms: u64, deadlines: Deadlines) -> Result<u64, Overdue> {
        let ms = |limit: Duration| u64::try_from(limit.as_millis()).unwrap_or(u64::MAX >> 8);
        let word = self.state.load(Relaxed);
        let since = word >> STATE_BITS;
        let mut next = now_ms.saturating_add(ms(deadlines.shortest()).max(1));
        let (limit, overdue) = match word & ((1 << STATE_BITS) - 1) {
            IDLE => (Some(ms(deadlines.idle)), Overdue::Idle),
            HEAD => (Some(ms(deadlines.head)), Overdue::Head),
            _ => (None, Overdue::Idle),
        };
        let stalled = self.stalled.load(Relaxed);
        let mut consider = |since: u64, limit: u64, overdue| {
            let at = since.saturating_add(limit);
            if at <= now_ms {
                return Err(overdue);
            }
            next = next.min(at);
            Ok(())
        };
        if stalled > 0 {
            consider(stalled - 1, ms(deadlines.write), Overdue::Write)?;
        } else if let Some(limit) = limit {
            consider(since, limit, overdue)?;
        }
        Ok(next)
    }
}

/// A stream that notes in its [`ConnState`] what moves and what does not.
pub(super) struct Watched<S> {
    inner: S,
    state: Arc<ConnState>,
    app: Arc<App>,
}

impl<S> Watched<S> {
    pub(super) fn new(inner: S, state: Arc<ConnState>, app: Arc<App>) -> Self {
        Self { inner, state, app }
    }

    fn wrote(&self, written: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        let stalled = self.state.stalled.load(Relaxed) > 0;
        if stalled != written.is_pending() {
            let mark = if stalled { 0 } else { self.app.elapsed_ms() + 1 };
            self.state.stalled.store(mark, Relaxed);
        }
        written
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Watched<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        ready!(Pin::new(&mut self.inner).poll_read(cx, buf))?;
        if self.state.is(IDLE) && buf.filled().len() > before {
            self.state.set(HEAD, self.app.elapsed_ms());
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Watched<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.inner).poll_write(cx, buf);
        self.wrote(written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.inner).poll_write_vectored(cx, bufs);
        self.wrote(written)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(cx)
    }
}

/// How a connection ended.
enum End {
    Closed(hyper::Result<()>),
    Overdue(Overdue),
    Aborted,
}

/// Serves requests on `io` until it closes, is overdue, or the server stops.
pub(super) async fn serve<S>(app: &Arc<App>, state: &Arc<ConnState>, io: S)
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let service = service_fn(|request| {
        let (app, state) = (Arc::clone(app), Arc::clone(state));
        async move { Ok::<_, std::convert::Infallible>(answer(app, state, request).await) }
    });
    // `pipeline_flush` stays off: with it hyper 1.12 buffers a body without any limit, so a client
    // that does not read would decide how much memory we use.
    let conn = http1::Builder::new()
        .header_read_timeout(None)
        .max_header_size(app.header_size_max)
        .half_close(true)
        .serve_connection(TokioIo::new(io), service);
    let mut conn = pin!(conn);
    let mut timer = pin!(sleep_until(Instant::now() + app.deadlines.shortest()));
    let mut changed = pin!(app.stop.changed());
    let mut heard = Stage::Running;
    let mut listening = false;
    let end = poll_fn(|cx| {
        if let Poll::Ready(closed) = conn.as_mut().poll(cx) {
            return Poll::Ready(End::Closed(closed));
        }
        // Registering to hear of a change takes a lock, so it is done once a stage, not once a
        // poll; the stage is read after it so that no change slips between.
        loop {
            if !listening {
                if changed.as_mut().poll(cx).is_ready() {
                    changed.set(app.stop.changed());
                    continue;
                }
                listening = true;
            }
            let stage = app.stop.stage();
            if stage == heard {
                break;
            }
            heard = stage;
            listening = false;
            changed.set(app.stop.changed());
            if stage == Stage::Aborting {
                return Poll::Ready(End::Aborted);
            }
            conn.as_mut().graceful_shutdown();
            if let Poll::Ready(closed) = conn.as_mut().poll(cx) {
                return Poll::Ready(End::Closed(closed));
            }
        }
        while timer.as_mut().poll(cx).is_ready() {
            let now_ms = app.elapsed_ms();
            match state.check(now_ms, app.deadlines) {
                Ok(next_ms) => {
                    let after = Duration::from_millis(next_ms - now_ms);
                    timer.as_mut().reset(Instant::now() + after);
                }
                Err(overdue) => return Poll::Ready(End::Overdue(overdue)),
            }
        }
        Poll::Pending
    })
    .await;
    report(app, &end);
}

fn report(app: &App, end: &End) {
    match end {
        End::Closed(Ok(())) => {}
        End::Closed(Err(error)) => tracing::debug!(?error, "connection ended early"),
        End::Aborted => tracing::debug!("connection cut by the shutdown limit"),
        End::Overdue(overdue) => {
            let counter = match overdue {
                Overdue::Head => &app.metrics.timeouts_head,
                Overdue::Idle => &app.metrics.timeouts_idle,
                Overdue::Write => &app.metrics.timeouts_write,
            };
            counter.fetch_add(1, Relaxed);
            tracing::debug!(?overdue, "connection closed by a deadline");
        }
    }
}
