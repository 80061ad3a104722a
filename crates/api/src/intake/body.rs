//! Reading a request's body at the sender's pace, within limits.
//!
//! A sender may be slow, but must not stop: a body that delivers nothing for `body_idle`, or stays
//! below `body_rate_min` for `body_rate_window`, is abandoned. Bytes that are already there are
//! returned without a timer, which is the common case.

use std::time::{Duration, Instant};

use axum::body::Body;
use bytes::Bytes;
use futures_util::FutureExt as _;
use http_body_util::BodyExt as _;

use forebay_intake::IntakeError;
use forebay_intake::options::IntakeLimits;
use forebay_intake::upload::Source;

/// A body being read.
#[derive(Debug)]
pub(crate) struct PacedBody {
    body: Body,
    idle: Duration,
    rate_min: u64,
    window: Duration,
    window_began: Option<Instant>,
    window_bytes: u64,
    received: u64,
}

impl PacedBody {
    pub(crate) fn new(body: Body, limits: &IntakeLimits) -> Self {
        Self {
            body,
            idle: limits.body_idle,
            rate_min: limits.body_rate_min,
            window: limits.body_rate_window,
            window_began: None,
            window_bytes: 0,
            received: 0,
        }
    }

    /// The next bytes; `None` at the end.
    ///
    /// # Errors
    /// [`IntakeError::Body`]: the sender stopped, was too slow, or sent a malformed body.
    pub(super) async fn next(&mut self) -> Result<Option<Bytes>, IntakeError> {
        loop {
            let frame = match self.body.frame().now_or_never() {
                Some(frame) => frame,
                None => match tokio::time::timeout(self.idle, self.body.frame()).await {
                    Ok(frame) => frame,
                    Err(_) => return Err(self.too_slow("stopped")),
                },
            };
            let Some(frame) = frame else { return Ok(None) };
            let frame = frame.map_err(|error| IntakeError::Body {
                message: format!(
                    "the body was interrupted after {} bytes: {}",
                    self.received,
                    forebay_base::error_chain::chain(&error)
                ),
                slow: false,
            })?;
            // Trailers carry nothing the intake uses.
            let Ok(bytes) = frame.into_data() else { continue };
            self.received += bytes.len() as u64;
            self.keep_pace(bytes.len() as u64)?;
            if !bytes.is_empty() {
                return Ok(Some(bytes));
            }
        }
    }

    fn keep_pace(&mut self, bytes: u64) -> Result<(), IntakeError> {
        if self.received == bytes {
            // A body that arrives in one piece needs no clock.
            return Ok(());
        }
        self.window_bytes += bytes;
        let Some(began) = self.window_began else {
            self.window_began = Some(Instant::now());
            return Ok(());
        };
        let wanted = u128::from(self.rate_min) * self.window.as_millis() / 1_000;
        if u128::from(self.window_bytes) >= wanted {
            self.window_began = Some(Instant::now());
            self.window_bytes = 0;
        } else if began.elapsed() >= self.window {
            return Err(self.too_slow("was too slow"));
        }
        Ok(())
    }

    fn too_slow(&self, how: &str) -> IntakeError {
        IntakeError::Body {
            message: format!(
                "the body {how} after {} bytes; send at least {} bytes a second, with no pause \
                 longer than {:?}",
                self.received, self.rate_min, self.idle
            ),
            slow: true,
        }
    }
}

impl Source for PacedBody {
    async fn next(&mut self) -> Result<Option<Bytes>, IntakeError> {
        Self::next(self).await
    }
}
