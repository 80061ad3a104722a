//! One connection: hyper drives it, this file enforces its deadlines.
//!
//! A connection waits for a request (`Idle`), receives a head (`Head`) or responds
//! (`Busy`). hyper's own head timer costs a timer operation per request; here each change of state
//! is one store, and a single timer a connection, re-armed only when it fires, compares the state
//! with its deadline. It fires no later than the shortest deadline after any change, so a deadline
//! is kept exactly.
//!
//! A response that the client does not read shows as a write that stays pending. That has a
//! deadline in any state, as does a client that reads below the minimum rate. The minimum rate of a
//! request's body is enforced by [`super::pace`].

use std::future::{Future as _, poll_fn};
use std::io::{self, IoSlice};
use std::net::IpAddr;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use parking_lot::{MappedMutexGuard, Mutex, MutexGuard};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, sleep_until};

use super::app::{App, Deadlines};
use super::pace::Pace;
use super::protocol::Protocol;
use super::service::{answer, answer_port};
use super::shares::Share;
use super::shell_routes::Routers;
use super::shutdown::Stage;

const IDLE: u64 = 0;
const HEAD: u64 = 1;
const BUSY: u64 = 2;
const STATE_BITS: u32 = 2;
/// Minimum buffer size of hyper.
const BUFFER_SIZE_MIN: usize = 8 << 10;
/// Maximum number of headers of a request on another port, where the metadata of an object is in headers.
/// Their memory is limited by `server.header_size_max`. On the main port hyper's limit of 100 holds: it
/// allocates memory for each request if the limit is higher.
const HEADERS_MAX: usize = 256;

/// A connection, and the server that it belongs to.
///
/// Requests refer to this, not to the server: all threads would change the server's count of references, at
/// a cache miss each.
pub(super) struct Connection {
    pub(super) app: Arc<App>,
    pub(super) state: Arc<ConnState>,
    /// Copies of the server's routers, since the first request.
    routers: Mutex<Option<Routers>>,
}

impl Connection {
    pub(super) fn new(app: Arc<App>, state: Arc<ConnState>) -> Self {
        Self { app, state, routers: Mutex::new(None) }
    }

    /// Returns this connection's copies of the server's routers.
    pub(super) fn routers(&self, routers: &Routers) -> MappedMutexGuard<'_, Routers> {
        MutexGuard::map(self.routers.lock(), |own| own.get_or_insert_with(|| routers.clone()))
    }
}

/// Why a connection was closed by the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Overdue {
    /// A request head took too long.
    Head,
    /// No further request arrived.
    Idle,
    /// A response was not read, or too slowly.
    Write,
    /// A response was not read, and its memory was needed.
    Output,
    /// It was idle, and its slot was needed.
    Crowded,
}

/// In which state a connection waits for its client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Wait {
    /// Whether a request is being received or answered.
    pub(super) in_request: bool,
    /// Since when, in milliseconds since the server started.
    pub(super) since_ms: u64,
}

/// The state of a connection, and since when. Times are milliseconds since the server started.
#[derive(Debug)]
pub(super) struct ConnState {
    /// Time of the last change, shifted left, and the state in the low bits.
    state: AtomicU64,
    /// Since when a write has been pending, plus one; 0 when none is.
    stalled: AtomicU64,
    /// When the minimum rate was last checked, plus one; 0 while the client keeps up.
    window_began: AtomicU64,
    /// Bytes the kernel took since then.
    window_bytes: AtomicU64,
    /// Bytes of responses that were passed to the connection and not yet taken by the kernel.
    held: AtomicUsize,
    /// Of these, the bytes that are counted in [`super::output`].
    counted: AtomicUsize,
    /// The next piece of the response waits until less is held.
    wants_room: AtomicBool,
    /// Since when the server waits for more of a request's body, plus one; 0 if it does not.
    body_wanted: AtomicU64,
    /// The connection is to be closed because its memory or its slot is needed.
    cut: AtomicBool,
    /// Its slot is needed.
    crowded: AtomicBool,
    /// Bytes it held then.
    leaving: AtomicUsize,
    /// Wakes the connection's task.
    task: OnceLock<Waker>,
    /// Local address of the connection, and whether it is encrypted.
    pub(super) local: Option<IpAddr>,
    pub(super) tls: bool,
    /// Requests of its client's address.
    pub(super) share: Arc<Share>,
}

impl ConnState {
    /// A new connection must send its first request head at once.
    pub(super) fn new(now_ms: u64, local: Option<IpAddr>, tls: bool, share: Arc<Share>) -> Self {
        Self {
            state: AtomicU64::new(now_ms << STATE_BITS | HEAD),
            stalled: AtomicU64::new(0),
            window_began: AtomicU64::new(0),
            window_bytes: AtomicU64::new(0),
            held: AtomicUsize::new(0),
            counted: AtomicUsize::new(0),
            wants_room: AtomicBool::new(false),
            body_wanted: AtomicU64::new(0),
            cut: AtomicBool::new(false),
            crowded: AtomicBool::new(false),
            leaving: AtomicUsize::new(0),
            task: OnceLock::new(),
            local,
            tls,
            share,
        }
    }

    fn wake(&self) {
        if let Some(task) = self.task.get() {
            task.wake_by_ref();
        }
    }

    /// Returns the bytes of responses not yet taken by the kernel.
    pub(super) fn held(&self) -> usize {
        self.held.load(Relaxed)
    }

    /// Counts a piece handed over.
    pub(super) fn hold(&self, bytes: usize) {
        self.held.fetch_add(bytes, Relaxed);
    }

    /// Counts all held bytes. Returns how many were not counted before.
    pub(super) fn count_held(&self) -> usize {
        let held = self.held();
        held.saturating_sub(self.counted.swap(held, Relaxed))
    }

    /// Holds nothing more, at the end of the connection. Returns how much of it was counted.
    pub(super) fn take_held(&self) -> usize {
        self.held.store(0, Relaxed);
        self.counted.swap(0, Relaxed)
    }

    /// Registers the task to be woken when the kernel takes output.
    pub(super) fn wait_for_room(&self) {
        self.wants_room.store(true, Relaxed);
    }

    /// Returns since when the client has read nothing, if a write is pending.
    pub(super) fn stalled_since(&self) -> Option<u64> {
        self.stalled.load(Relaxed).checked_sub(1)
    }

    /// Closes the connection soon. Returns how many counted bytes it holds.
    pub(super) fn cut(&self) -> usize {
        let leaving = self.counted.load(Relaxed);
        self.leaving.store(leaving, Relaxed);
        self.cut.store(true, Relaxed);
        self.wake();
        leaving
    }

    /// Returns what [`ConnState::cut`] returned, once.
    pub(super) fn take_leaving(&self) -> usize {
        self.leaving.swap(0, Relaxed)
    }

    /// Closes the connection soon, because its slot is needed.
    pub(super) fn give_way(&self) {
        self.crowded.store(true, Relaxed);
        self.cut.store(true, Relaxed);
        self.wake();
    }

    /// Returns whether it is to be closed.
    pub(super) fn is_cut(&self) -> bool {
        self.cut.load(Relaxed)
    }

    /// Returns why it is to be closed now, if it is. Called by its own task: a connection that has
    /// continued with a request since it was asked to close stays open.
    fn leaves(&self) -> Option<Overdue> {
        if !self.is_cut() {
            return None;
        }
        if !self.crowded.load(Relaxed) {
            return Some(Overdue::Output);
        }
        if self.waits().is_some() {
            return Some(Overdue::Crowded);
        }
        self.crowded.store(false, Relaxed);
        self.cut.store(false, Relaxed);
        None
    }

    /// Records that the server waits for more of a request's body.
    pub(super) fn want_body(&self, now_ms: u64) {
        if self.body_wanted.load(Relaxed) == 0 {
            self.body_wanted.store(now_ms + 1, Relaxed);
        }
    }

    /// Records that some of the body arrived, or that it has ended.
    pub(super) fn have_body(&self) {
        self.body_wanted.store(0, Relaxed);
    }

    /// Returns whether, and since when, the server waits for the client.
    pub(super) fn waits(&self) -> Option<Wait> {
        let word = self.state.load(Relaxed);
        if self.is(BUSY) {
            let body = self.body_wanted.load(Relaxed).checked_sub(1);
            let since_ms = body.or_else(|| self.stalled_since())?;
            return Some(Wait { in_request: true, since_ms });
        }
        // The last bytes of a response may still be pending in a connection that is otherwise idle.
        let in_request = self.stalled_since().is_some();
        Some(Wait { in_request, since_ms: self.stalled_since().unwrap_or(word >> STATE_BITS) })
    }

    /// Records that the kernel takes nothing more: the server waits for the client.
    fn stalls(&self, now_ms: u64) {
        if self.stalled.load(Relaxed) > 0 {
            return;
        }
        let mark = now_ms + 1;
        self.stalled.store(mark, Relaxed);
        // The first stall of a response starts the window in which its client must keep the rate.
        if self.window_began.load(Relaxed) == 0 {
            self.window_bytes.store(0, Relaxed);
            self.window_began.store(mark, Relaxed);
        }
    }

    /// Records what the kernel took; returns how many counted bytes are no longer held.
    fn took(&self, bytes: usize) -> usize {
        if self.stalled.load(Relaxed) > 0 {
            self.stalled.store(0, Relaxed);
        }
        self.window_bytes.fetch_add(bytes as u64, Relaxed);
        // Only the connection's own task changes the count while it lives.
        let held = self.held().saturating_sub(bytes);
        self.held.store(held, Relaxed);
        if self.wants_room.load(Relaxed) && self.wants_room.swap(false, Relaxed) {
            self.wake();
        }
        let counted = self.counted.load(Relaxed);
        if counted > held {
            self.counted.store(held, Relaxed);
        }
        counted.saturating_sub(held)
    }

    /// Returns whether a client that the server waits for keeps the minimum rate.
    fn keeps_pace(&self, now_ms: u64, pace: Pace) -> bool {
        let grace_ms = ms(pace.grace);
        let Some(began) = self.window_began.load(Relaxed).checked_sub(1) else { return true };
        if now_ms.saturating_sub(began) < grace_ms {
            return true;
        }
        let kept = self.window_bytes.swap(0, Relaxed) >= pace.bytes_min();
        self.window_began.store(now_ms + 1, Relaxed);
        kept
    }

    fn set(&self, state: u64, now_ms: u64) {
        self.state.store(now_ms << STATE_BITS | state, Relaxed);
    }

    fn is(&self, state: u64) -> bool {
        self.state.load(Relaxed) & ((1 << STATE_BITS) - 1) == state
    }

    /// Records that a complete request head was read.
    pub(super) fn request_begun(&self, now_ms: u64) {
        self.set(BUSY, now_ms);
    }

    /// Records that the response was passed on to its last byte.
    pub(super) fn request_over(&self, now_ms: u64) {
        self.set(IDLE, now_ms);
        self.have_body();
        self.window_began.store(0, Relaxed);
    }

    #[cfg(test)]
    pub(super) fn stall(&self, now_ms: u64) {
        self.stalls(now_ms);
    }

    #[cfg(test)]
    pub(super) fn read_by_client(&self, bytes: usize) {
        self.took(bytes);
    }

    /// Returns when to check next, or what is overdue.
    pub(super) fn check(&self, now_ms: u64, deadlines: Deadlines) -> Result<u64, Overdue> {
        if let Some(overdue) = self.leaves() {
            return Err(overdue);
        }
        if !self.keeps_pace(now_ms, deadlines.pace) {
            return Err(Overdue::Write);
        }
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

fn ms(limit: Duration) -> u64 {
    u64::try_from(limit.as_millis()).unwrap_or(u64::MAX >> 8)
}

/// A stream that records in its [`ConnState`] which reads and writes make progress.
pub(super) struct Watched<S> {
    inner: S,
    conn: Arc<Connection>,
}

impl<S> Watched<S> {
    pub(super) fn new(inner: S, conn: Arc<Connection>) -> Self {
        Self { inner, conn }
    }

    fn wrote(&self, written: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        let Connection { app, state, .. } = &*self.conn;
        match &written {
            Poll::Pending => {
                let now_ms = app.elapsed_ms();
                state.stalls(now_ms);
                app.output.count(state, now_ms);
            }
            Poll::Ready(result) => {
                let bytes = result.as_ref().map_or(0, |bytes| *bytes);
                app.output.remove(state.took(bytes));
            }
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
        let Connection { app, state, .. } = &*self.conn;
        if state.is(IDLE) && buf.filled().len() > before {
            state.set(HEAD, app.elapsed_ms());
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

/// Wait for `handshake`, unless the connection is to be closed.
pub(super) async fn unless_cut<T>(
    state: &ConnState,
    handshake: impl Future<Output = T>,
) -> Option<T> {
    let mut handshake = pin!(handshake);
    poll_fn(|cx| {
        state.task.get_or_init(|| cx.waker().clone());
        if state.leaves().is_some() {
            return Poll::Ready(None);
        }
        handshake.as_mut().poll(cx).map(Some)
    })
    .await
}

/// Returns the settings of hyper.
///
/// * `is_port`: this is not the main port.
fn http(app: &App, is_port: bool) -> http1::Builder {
    // `pipeline_flush` stays off: with it hyper 1.12 buffers a body without any limit, so a client
    // that does not read would decide how much memory we use.
    let mut http = http1::Builder::new();
    http.header_read_timeout(None)
        .max_header_size(app.header_size_max)
        // What a connection may buffer of a response beyond its latest piece, and of a request.
        .max_buf_size(app.header_size_max.max(BUFFER_SIZE_MIN))
        .half_close(true);
    if is_port {
        http.max_headers(HEADERS_MAX);
    }
    http
}

/// Serves requests on `io` until it closes, is overdue, or the server stops.
///
/// * `port`: what answers them, if this is not the main port.
pub(super) async fn serve<S>(conn: &Arc<Connection>, port: Option<&Arc<dyn Protocol>>, io: S)
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let Connection { app, state, .. } = &**conn;
    let service = service_fn(|request| {
        let (conn, port) = (Arc::clone(conn), port.map(Arc::clone));
        async move {
            let answered = match port {
                Some(port) => answer_port(conn, port, request).await,
                None => answer(conn, request).await,
            };
            Ok::<_, std::convert::Infallible>(answered)
        }
    });
    let conn = http(app, port.is_some()).serve_connection(TokioIo::new(io), service);
    let mut conn = pin!(conn);
    let mut timer = pin!(sleep_until(Instant::now() + app.deadlines.shortest()));
    let mut changed = pin!(app.stop.changed());
    let mut heard = Stage::Running;
    let mut listening = false;
    let end = poll_fn(|cx| {
        state.task.get_or_init(|| cx.waker().clone());
        if let Some(overdue) = state.leaves() {
            return Poll::Ready(End::Overdue(overdue));
        }
        if let Poll::Ready(closed) = conn.as_mut().poll(cx) {
            return Poll::Ready(End::Closed(closed));
        }
        // Registering for a change takes a lock, so it is done once for each stage, not for each
        // poll. The stage is read afterwards, so that no change is missed.
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
        End::Aborted => tracing::debug!("connection closed by the shutdown limit"),
        End::Overdue(overdue) => {
            let counter = match overdue {
                Overdue::Head => &app.metrics.timeouts_head,
                Overdue::Idle => &app.metrics.timeouts_idle,
                Overdue::Write => &app.metrics.timeouts_write,
                Overdue::Output => &app.metrics.cut_output,
                Overdue::Crowded => &app.metrics.cut_crowded,
            };
            counter.fetch_add(1, Relaxed);
            tracing::debug!(?overdue, "connection closed by a deadline");
        }
    }
}
