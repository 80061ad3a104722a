//! Minimum rate of a request's body: a client may be slow, but not silent, on any route.
//!
//! A body that stops for `idle`, or stays below `rate_min` bytes per second for `grace`, is
//! aborted: the handler reads an error, and the request is answered 408, whatever the handler
//! responds. While the server waits for a body, its request does not count as one in progress, so
//! silent clients cannot use up `server.requests_in_flight_max`.
//!
//! A timer is created only if the server must wait for a body; bytes already there cost one branch.

use std::future::Future as _;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use hyper::body::{Body as HttpBody, Frame, Incoming, SizeHint};
use tokio::time::{Instant, Sleep};

use super::body::Slot;

/// Limits on how slow a client may be.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pace {
    /// Maximum time without any data.
    pub(super) idle: Duration,
    /// Minimum rate in bytes per second, averaged over `grace`.
    pub(super) rate_min: u64,
    /// How long the rate may be below that.
    pub(super) grace: Duration,
}

impl Pace {
    /// Returns the bytes that must arrive within `grace`.
    pub(super) fn bytes_min(self) -> u64 {
        let bytes = u128::from(self.rate_min) * self.grace.as_millis() / 1_000;
        u64::try_from(bytes).unwrap_or(u64::MAX)
    }
}

/// Why a body was aborted.
#[derive(Debug, thiserror::Error)]
#[error(
    "the request's body {how} after {received} bytes: send at least {rate_min} bytes a second and \
     pause no longer than {idle:?}"
)]
pub(super) struct TooSlow {
    how: &'static str,
    received: u64,
    rate_min: u64,
    idle: Duration,
}

/// Why a body ended early.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(super) enum BodyError {
    /// The client was too slow.
    #[error(transparent)]
    Slow(#[from] TooSlow),
    /// The connection broke, or the body is malformed.
    #[error("the request body ended early")]
    Broken(#[source] hyper::Error),
}

/// A request's body with its deadlines.
pub(super) struct PacedBody {
    /// `None` once it was given back.
    inner: Option<Incoming>,
    /// Reading has failed: what is left cannot be read.
    is_broken: bool,
    slot: Arc<Slot>,
    received: u64,
    /// Bytes since `window_began`.
    window_bytes: u64,
    window_began: Option<Instant>,
    timer: Option<Pin<Box<Sleep>>>,
}

impl PacedBody {
    /// * `slot`: the request's slot among those in progress.
    pub(super) fn new(inner: Incoming, slot: Arc<Slot>) -> Self {
        let inner = Some(inner);
        let (window_began, timer, is_broken) = (None, None, false);
        Self { inner, is_broken, slot, received: 0, window_bytes: 0, window_began, timer }
    }

    fn too_slow(&mut self, how: &'static str) -> BodyError {
        self.is_broken = true;
        self.slot.note_slow();
        self.slot.app().metrics.timeouts_body.fetch_add(1, Relaxed);
        let Pace { rate_min, idle, .. } = self.slot.app().pace;
        TooSlow { how, received: self.received, rate_min, idle }.into()
    }

    /// Counts what arrived, and starts a new window if the rate was kept.
    fn keep(&mut self, bytes: u64) -> Result<(), BodyError> {
        self.received += bytes;
        self.window_bytes += bytes;
        let Some(began) = self.window_began else { return Ok(()) };
        if self.window_bytes >= self.slot.app().pace.bytes_min() {
            self.window_began = Some(Instant::now());
            self.window_bytes = 0;
        } else if began.elapsed() >= self.slot.app().pace.grace {
            return Err(self.too_slow("arrived too slowly"));
        }
        Ok(())
    }

    /// Starts the clock, because no data is available.
    fn wait(&mut self, cx: &mut Context<'_>) -> Poll<BodyError> {
        self.slot.leave();
        let now = Instant::now();
        self.window_began.get_or_insert(now);
        let idle = self.slot.app().pace.idle;
        let timer = self.timer.get_or_insert_with(|| Box::pin(tokio::time::sleep(idle)));
        ready!(timer.as_mut().poll(cx));
        Poll::Ready(self.too_slow("stopped"))
    }
}

impl HttpBody for PacedBody {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let this = self.get_mut();
        let Some(inner) = &mut this.inner else { return Poll::Ready(None) };
        let polled = Pin::new(&mut *inner).poll_frame(cx);
        let is_over = inner.is_end_stream();
        match polled {
            Poll::Ready(frame) => {
                this.timer = None;
                this.slot.enter();
                if frame.is_none() || is_over {
                    this.slot.note_read();
                }
                Poll::Ready(match frame {
                    None => None,
                    Some(Err(error)) => {
                        this.is_broken = true;
                        Some(Err(BodyError::Broken(error)))
                    }
                    Some(Ok(frame)) => {
                        let bytes = frame.data_ref().map_or(0, |data| data.len() as u64);
                        Some(this.keep(bytes).map(|()| frame))
                    }
                })
            }
            Poll::Pending => this.wait(cx).map(|error| Some(Err(error))),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.inner.as_ref().is_none_or(Incoming::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.as_ref().map_or_else(SizeHint::default, Incoming::size_hint)
    }
}

impl Drop for PacedBody {
    /// Gives back what was not read, so that the connection can be used again.
    fn drop(&mut self) {
        let rest = self.inner.take().filter(|rest| !self.is_broken && !rest.is_end_stream());
        if let Some(rest) = rest {
            self.slot.give_back(rest);
        }
    }
}
